//! What the agent may do to the machine: tried without an effect, or asked of the kernel.

use super::execute::Runner;
use super::trial::{Prober, absent, garbage};
use super::{COPY, capability, facts, found, is_there};
use isotherm_wire::inspect::{ContainmentLevel, Machine};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, Present};
use std::collections::BTreeMap;

/// Bit of CAP_SYS_ADMIN in a capability mask, linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;

pub fn entries(prober: &Prober, runner: &Runner, machine: &Machine) -> Vec<Capability> {
    let entry = |what: &str, name: &str, source: &str, found: Found| {
        capability(Family::Permission, format!("permission.{what}"), name, None, source.to_owned(), found)
    };
    let namespace = (machine.containment.level == ContainmentLevel::PidNamespace, "no PID namespace");
    let cgroup = (machine.containment.cgroup, "no cgroup of its own");
    vec![
        entry("pid_namespace", "PID namespace", "unshare", contained(runner, machine, namespace)),
        entry("own_cgroup", "own cgroup", "/sys/fs/cgroup", contained(runner, machine, cgroup)),
        entry("drop_caches", "drop_caches", "/proc/sys/vm/drop_caches", found(tried(prober, || writable(prober, "proc/sys/vm/drop_caches")))),
        entry("swap_reset", "swap reset", "/proc/swaps", found(tried(prober, || swap(prober)))),
        entry("governor", "governor", "/sys/devices/system/cpu/cpufreq", found(tried(prober, || governor(prober)))),
    ]
}

fn tried(prober: &Prober, trial: impl Fn() -> Result<Present, Absent>) -> Result<Present, Absent> {
    if prober.is_live() { trial() } else { Err(absent(Cause::NotTried, COPY)) }
}

/// Levels of containment were tried as a keeper tries them; reasons begin with what is missing.
fn contained(runner: &Runner, machine: &Machine, (there, missing): (bool, &str)) -> Found {
    if matches!(runner, Runner::Nothing) {
        return Found::Absent(absent(Cause::NotTried, COPY));
    }
    if there {
        return is_there(BTreeMap::new());
    }
    let reasons = &machine.containment.reasons;
    let reason = reasons.iter().find_map(|reason| reason.strip_prefix(missing)?.strip_prefix(": "));
    let reason = reason.and_then(|reason| reason.split(" (os error").next()).unwrap_or("it can't be had here").to_owned();
    let cause = if reason.contains("not permitted") || reason.contains("denied") { Cause::NotPermitted } else { Cause::Failed };
    Found::Absent(Absent { cause, reason })
}

fn writable(prober: &Prober, path: &str) -> Result<Present, Absent> {
    prober.is_writable(&prober.at(path)).map(|()| Present::default())
}

/// Asked of the kernel and not tried: switching swap off and on is an effect.
fn swap(prober: &Prober) -> Result<Present, Absent> {
    let areas = prober.read(&prober.at("proc/swaps"))?.text.lines().count().saturating_sub(1);
    if areas == 0 {
        return Ok(Present { facts: facts([("areas", Some("0".into()))]), ..Present::default() });
    }
    if !is_admin(prober)? {
        return Err(absent(Cause::NotPermitted, "Operation not permitted: no CAP_SYS_ADMIN"));
    }
    Ok(Present { facts: facts([("areas", Some(areas.to_string()))]), ..Present::default() })
}

/// Have we CAP_SYS_ADMIN?
pub fn is_admin(prober: &Prober) -> Result<bool, Absent> {
    let status = prober.read(&prober.at("proc/self/status"))?.text;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default().trim();
    let mask = u64::from_str_radix(mask, 16).map_err(|_| garbage("a capability mask", mask))?;
    Ok(mask & (1 << CAP_SYS_ADMIN) != 0)
}

fn governor(prober: &Prober) -> Result<Present, Absent> {
    let dir = prober.at("sys/devices/system/cpu/cpufreq");
    let policies = prober.numbered(&dir, "policy", "").map_err(|why| Absent { reason: "no cpufreq".into(), ..why })?;
    for policy in &policies {
        prober.is_writable(&dir.join(policy).join("scaling_governor"))?;
    }
    let choices = policies.first().and_then(|policy| prober.text(&dir.join(policy).join("scaling_available_governors")));
    Ok(Present { facts: facts([("governors", choices)]), ..Present::default() })
}
