//! What the sampler reads in every run: each of its sources, opened and read as it does it.

use super::trial::{Prober, absent, of_error};
use super::{capability, facts, found};
use crate::sampler::{self, Definition, Opener};
use crate::{inspect, sys};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Present};
use std::fs::File;
use std::path::Path;

/// Reads of a source for its cost.
const READS: usize = 5;

pub fn entries(prober: &Prober) -> Vec<Capability> {
    let mut entries: Vec<Capability> = sampler::openers(prober.root()).into_iter().map(|opener| entry(prober, opener)).collect();
    entries.push(limits(prober));
    entries
}

/// Family, words and place of a source.
fn about(source: &'static str) -> Option<(Family, &'static str, &'static str)> {
    let about = match source {
        "stat" => (Family::Load, "cpu time", "proc/stat"),
        "loadavg" => (Family::Load, "load average", "proc/loadavg"),
        "meminfo" => (Family::Memory, "memory, swap in use", "proc/meminfo"),
        "vmstat" => (Family::Memory, "swapping, page faults", "proc/vmstat"),
        "pressure_cpu" => (Family::Pressure, "pressure on cpu", "proc/pressure/cpu"),
        "pressure_memory" => (Family::Pressure, "pressure on memory", "proc/pressure/memory"),
        "pressure_io" => (Family::Pressure, "pressure on io", "proc/pressure/io"),
        "cgroup_memory" => (Family::Cgroup, "cgroup memory", "sys/fs/cgroup"),
        "cgroup_throttling" => (Family::Cgroup, "cgroup throttling", "sys/fs/cgroup"),
        _ => return None,
    };
    Some(about)
}

fn entry(prober: &Prober, opener: Opener) -> Capability {
    let (family, name, place) = about(opener.name).unwrap_or((Family::Load, opener.name, "proc"));
    let word = word(family);
    let id = format!("{word}.{}", opener.name.trim_start_matches(word).trim_start_matches('_'));
    let mut source = prober.at(place).display().to_string();
    let tried = prober.within(move || Ok(try_source(opener)));
    let trial = tried.and_then(|tried| {
        if let Some(first) = tried.definitions.first().filter(|d| !d.source.is_empty()) {
            source.clone_from(&first.source);
        }
        tried.outcome
    });
    let source = prober.shown(Path::new(&source));
    // The sampler names the file in its reason; it stands beside it here.
    let trial = trial.map_err(|why| {
        let below = prober.root().display().to_string();
        let reason = why.reason.replace(below.trim_end_matches('/'), "");
        Absent { reason: reason.strip_prefix(&format!("{source}: ")).unwrap_or(&reason).to_owned(), ..why }
    });
    Capability { recorded: true, ..capability(family, id, name, None, source, found(trial)) }
}

fn word(family: Family) -> &'static str {
    match family {
        Family::Memory => "memory",
        Family::Pressure => "pressure",
        Family::Cgroup => "cgroup",
        _ => "load",
    }
}

struct Tried {
    definitions: Vec<Definition>,
    outcome: Result<Present, Absent>,
}

fn try_source(opener: Opener) -> Tried {
    let mut source = match (opener.open)() {
        Ok(source) => source,
        Err((definitions, reason)) => {
            // In words that its file's opening gave; what kind of fault that is, one more try tells.
            let place = definitions.first().map(|d| d.source.clone()).unwrap_or_default();
            let kind = if place.is_empty() { Cause::NotThere } else { cause(Path::new(&place)) };
            let reason = reason.split(" (os error").next().unwrap_or_default().to_owned();
            return Tried { definitions, outcome: Err(Absent { cause: kind, reason }) };
        }
    };
    let definitions = source.definitions();
    let mut values = vec![None; definitions.len()];
    let mut costs = [0; READS];
    for cost in &mut costs {
        let start = sys::monotonic_ns();
        source.read(&mut values);
        *cost = sys::monotonic_ns() - start;
    }
    costs.sort_unstable();
    let missing: Vec<&str> = definitions.iter().zip(&values).filter(|(_, v)| v.is_none()).map(|(d, _)| d.column.entry().name).collect();
    if missing.len() == definitions.len() {
        let reason = format!("none of its numbers can be read: {}", missing.join(", "));
        return Tried { definitions, outcome: Err(absent(Cause::Garbage, &reason)) };
    }
    let metrics: Vec<&str> = definitions.iter().map(|d| d.column.entry().name).filter(|m| !missing.contains(m)).collect();
    let present = Present {
        cost_ns: Some(costs[READS / 2]),
        facts: facts([("metrics", Some(metrics.join(", ")))]),
        flaky: (!missing.is_empty()).then(|| format!("not there: {}", missing.join(", "))),
        ..Present::default()
    };
    Tried { definitions, outcome: Ok(present) }
}

fn cause(path: &Path) -> Cause {
    let tried = File::open(path).and_then(|file| sys::pread(&file, &mut [0; 1]));
    tried.map_or_else(|e| of_error(&e).cause, |_| Cause::Failed)
}

/// The limits of our own cgroup stand in every record with the machine.
fn limits(prober: &Prober) -> Capability {
    let root = prober.root().to_owned();
    let trial = prober.within(move || {
        let limits = inspect::cgroup::limits(&root);
        let Some(version) = limits.cgroup else { return Err(absent(Cause::NotThere, "no cgroup is mounted")) };
        let unknown = |field: &str| limits.unknown.contains_key(field).then(|| "unknown".to_owned());
        let quota = unknown("quota_cpus").unwrap_or_else(|| limits.quota_cpus.map_or("none".into(), |n| n.to_string()));
        let memory = unknown("memory_bytes").unwrap_or_else(|| limits.memory_bytes.map_or("none".into(), |n| n.to_string()));
        let cpuset = unknown("cpuset_cpus").or(limits.cpuset_cpus.map(|n| n.to_string())).unwrap_or_else(|| "unknown".into());
        let facts = facts([("cgroup", Some(version)), ("quota_cpus", Some(quota)), ("cpuset_cpus", Some(cpuset)), ("memory_bytes", Some(memory))]);
        Ok(Present { facts, ..Present::default() })
    });
    let source = "/proc/self/cgroup".to_owned();
    Capability { recorded: true, ..capability(Family::Cgroup, "cgroup.limits".into(), "cgroup limits", None, source, found(trial)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_of_the_sampler_has_its_words() {
        for opener in sampler::openers(Path::new("/")) {
            assert!(about(opener.name).is_some(), "{}", opener.name);
        }
    }
}
