//! A record's numbers once more, from the output that it keeps. Shares with [`super::assemble`] what a result and a record have in common.

use super::{assemble, energy};
use crate::backend::output::{self, RawOutput};
use crate::backend::{ParseSpec, READ_ISSUES};
use crate::registry::Code;
use crate::store::record::{Issue, Metric, Read, Record, Sidecar, Status};
use crate::store::sidecar;
use serde::Serialize;
use std::path::Path;

/// What became of a record.
#[derive(Debug)]
pub enum Reread {
    /// Nothing is to be read from it, or the same comes out.
    Unchanged,
    Changed {
        record: Box<Record>,
        changes: Vec<Change>,
    },
    /// It stays as it is: why.
    Left(String),
}

/// One thing that is another now.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// `None` = the record has no metric of that name.
    Metric {
        name: String,
        old: Option<Box<Metric>>,
        new: Option<Box<Metric>>,
    },
    Field {
        field: &'static str,
        old: String,
        new: String,
    },
}

/// Read a record's own output by these rules. `dir` is the record's directory; `earlier`: the output digest of an earlier repetition of
/// the same point, by the same rules.
#[must_use]
pub fn reread(old: &Record, rules: &ParseSpec, dir: &Path, earlier: Option<&str>) -> Reread {
    if !output::was_read(old.status, old.reason, old.read.is_some()) {
        return Reread::Unchanged;
    }
    if let Some(why) = output::unanswered(rules, old, dir) {
        return Reread::Left(why);
    }
    let Some(exit_code) = old.raw.wait_status.and_then(assemble::exit_code_of) else {
        return Reread::Left("it has no exit code".into());
    };
    let output = match RawOutput::of_record(old, dir) {
        Ok(output) => output,
        Err(why) => return Reread::Left(why),
    };
    let (failure, mut reading) = assemble::read(rules, &output, exit_code, old.workload.model.as_ref());
    // With no earlier repetition left to compare with, what it was compared with at first still holds for the same answer.
    let before = old.workload.output_digest.as_ref().filter(|old| reading.output_digest.as_ref().is_some_and(|new| new.value == old.value));
    let before = before.and_then(|digest| digest.expected.clone());
    assemble::compare_digest(&mut reading, rules, earlier.or(before.as_deref()));

    let mut issues = std::mem::take(&mut reading.issues);
    // Without the window's place on the clock whether the engine's lay in it can't be judged again.
    let judged_again = |issue: &Issue| {
        let code = Code::of(issue.code.as_str()).filter(|code| READ_ISSUES.contains(code));
        code.is_some_and(|code| code != Code::WindowOutsideRun || output.window.is_some())
    };
    issues.extend(old.issues.iter().filter(|issue| !judged_again(issue)).cloned());
    let mut new = old.clone();
    new.status = if failure.is_some() { Status::Failed } else { Status::Ok };
    new.validity = assemble::validity(new.status, &issues);
    new.issues = issues;
    (new.reason, new.message) = failure.unzip();
    new.time.load_ms = reading.load_ms;
    new.time.warmup_ms = reading.warmup_ms.or(old.time.warmup_ms);
    new.resolved = reading.resolved;
    new.executed = reading.executed;
    new.backend.version = reading.version;
    (new.workload.inputs, new.workload.outputs, new.workload.output_digest) = (reading.inputs, reading.outputs, reading.output_digest);
    new.iterations = reading.iterations;
    new.metrics = reading.metrics;
    if new.status == Status::Ok {
        energy::add(&mut new.metrics, energy::metrics_of(old));
    }
    for (name, metric) in &mut new.metrics {
        if let Some(stored) = old.metrics.get(name).filter(|stored| is_the_same(stored, metric, dir)) {
            *metric = stored.clone();
        }
    }
    let again = old.read.as_ref().map_or_else(Vec::new, |read| read.again.clone());
    new.read = Some(Read { rules: rules.clone(), again });
    if new == *old {
        return Reread::Unchanged;
    }
    let changes = changes(old, &new);
    Reread::Changed { record: Box::new(new), changes }
}

/// Is a metric what is stored, wherever its samples lie?
fn is_the_same(stored: &Metric, new: &Metric, dir: &Path) -> bool {
    match &stored.samples_sidecar {
        None => stored == new,
        Some(file) => samples(dir, file).is_some_and(|samples| Metric { samples, samples_sidecar: None, ..stored.clone() } == *new),
    }
}

fn samples(dir: &Path, file: &Sidecar) -> Option<Vec<f64>> {
    let text = String::from_utf8(sidecar::unpack(dir, file).ok()?).ok()?;
    text.lines().map(|line| line.parse().ok()).collect()
}

/// What differs between two readings, in words and numbers.
fn changes(old: &Record, new: &Record) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut field = |field: &'static str, old: String, new: String| {
        if old != new {
            changes.push(Change::Field { field, old, new });
        }
    };
    let status = |r: &Record| r.reason.map_or_else(|| r.status.name().to_owned(), |reason| format!("{}: {}", r.status.name(), reason.name()));
    field("status", status(old), status(new));
    let message = |r: &Record| r.message.clone().unwrap_or_else(|| "—".into());
    field("message", message(old), message(new));
    field("validity", old.validity.name().into(), new.validity.name().into());
    let issues =
        |r: &Record| if r.issues.is_empty() { "none".to_owned() } else { r.issues.iter().map(|i| i.code.as_str()).collect::<Vec<_>>().join(", ") };
    field("issues", issues(old), issues(new));
    let digest = |r: &Record| r.workload.output_digest.as_ref().map_or_else(|| "none".to_owned(), |digest| digest.value.clone());
    field("output_digest", digest(old), digest(new));
    let rules = |r: &Record| r.read.as_ref().map_or_else(|| "not recorded".to_owned(), |read| read.rules.digest());
    field("rules", rules(old), rules(new));
    let names = new.metrics.keys().chain(old.metrics.keys().filter(|name| !new.metrics.contains_key(*name)));
    for name in names {
        let (old, new) = (old.metrics.get(name), new.metrics.get(name));
        if old != new {
            let boxed = |metric: Option<&Metric>| metric.cloned().map(Box::new);
            changes.push(Change::Metric { name: name.clone(), old: boxed(old), new: boxed(new) });
        }
    }
    changes
}
