//! Governor and frequency limits of every cpufreq policy, each borrowed before it is changed and read back afterwards.
//!
//! Documentation/admin-guide/pm/cpufreq.rst has the files. Frequencies are in kHz, as there.

use super::act::{Act, Action};
use super::journal::Kind;
use super::{Bench, Stop};
use crate::inspect::text;
use isotherm_wire::task::Frequency;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

const DIR: &str = "sys/devices/system/cpu/cpufreq";
/// Looks at a clock that is about to rise: drivers take a few milliseconds, firmware in between some tens.
const MOST_LOOKS: u32 = 30;

/// One policy: the CPUs whose clock is set together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Policy(u32);

impl Policy {
    /// From its name, `policy0`.
    pub fn named(name: &str) -> Option<Policy> {
        let number = name.strip_prefix("policy")?;
        let policy = Policy(number.parse().ok()?);
        (policy.name() == name).then_some(policy)
    }

    fn name(self) -> String {
        format!("policy{}", self.0)
    }

    fn file(self, name: &str) -> String {
        format!("{DIR}/policy{}/{name}", self.0)
    }

    fn text(self, root: &Path, name: &str) -> Result<String, Stop> {
        text(root, &self.file(name)).ok_or_else(|| Stop::Unsupported(format!("{} of {} can't be read", name, self.name())))
    }

    fn khz(self, root: &Path, name: &str) -> Option<u64> {
        text(root, &self.file(name))?.parse().ok()
    }

    fn limits(self, root: &Path) -> Option<Limits> {
        Some(Limits { min: self.khz(root, "scaling_min_freq")?, max: self.khz(root, "scaling_max_freq")? })
    }

    fn write(self, root: &Path, act: &mut dyn Act, name: &str, value: String) -> Result<(), Stop> {
        act.act(&Action::Write { path: root.join(self.file(name)), value })
    }
}

/// Between which a clock may be, kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    min: u64,
    max: u64,
}

impl std::fmt::Display for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.min, self.max)
    }
}

impl Limits {
    /// `600000 1500000`.
    pub fn parse(text: &str) -> Option<Limits> {
        let (min, max) = text.split_once(' ')?;
        let limits = Limits { min: min.parse().ok()?, max: max.parse().ok()? };
        (limits.min <= limits.max).then_some(limits)
    }

    /// The writes that lead there, in an order in which the lower limit is never above the upper one: the kernel refuses that.
    fn reached_from(self, now: Limits) -> [(&'static str, u64); 2] {
        let (min, max) = (("scaling_min_freq", self.min), ("scaling_max_freq", self.max));
        if self.max >= now.max { [max, min] } else { [min, max] }
    }
}

pub fn reading(root: &Path) -> Option<Value> {
    let policies = policies(root).ok()?;
    let of = |policy: &Policy| {
        let khz = |name| policy.khz(root, name);
        json!({
            "governor": text(root, &policy.file("scaling_governor")),
            "min_khz": khz("scaling_min_freq"),
            "max_khz": khz("scaling_max_freq"),
            "clock_khz": khz("scaling_cur_freq"),
        })
    };
    Some(Value::Object(policies.iter().map(|policy| (policy.name(), of(policy))).collect::<Map<_, _>>()))
}

pub fn governor(bench: &mut Bench<'_>, wanted: &str) -> Result<(), Stop> {
    let root = bench.root;
    let policies = policies(root)?;
    let mut to_change = Vec::new();
    for policy in policies.iter().copied() {
        let now = policy.text(root, "scaling_governor")?;
        let choices = policy.text(root, "scaling_available_governors");
        if let Ok(choices) = choices
            && !choices.split_whitespace().any(|choice| choice == wanted)
        {
            return Err(Stop::Unsupported(format!("{} has no governor {wanted}: {choices}", policy.name())));
        }
        if now != wanted {
            to_change.push((policy, now));
        }
    }
    if to_change.is_empty() {
        return Err(Stop::Skipped("it is so already".into()));
    }
    let originals: Vec<_> = to_change.iter().map(|(policy, now)| (policy.name(), now.clone())).collect();
    bench.borrow(Kind::Governor, &originals)?;
    for (policy, _) in to_change {
        set_governor(root, bench.act, policy, wanted)?;
    }
    if wanted == "performance" {
        for policy in policies {
            see_clock_leave_its_floor(root, bench.act, policy)?;
        }
    }
    Ok(())
}

/// A governor that reads `performance` while the clock stays at its lower limit is none: firmware or another driver has the last word.
fn see_clock_leave_its_floor(root: &Path, act: &mut dyn Act, policy: Policy) -> Result<(), Stop> {
    let Some(limits) = policy.limits(root).filter(|limits| limits.min < limits.max) else { return Ok(()) };
    for _ in 0..MOST_LOOKS {
        match policy.khz(root, "scaling_cur_freq") {
            Some(clock) if clock <= limits.min => act.pause(),
            // Not every driver says.
            _ => return Ok(()),
        }
    }
    Err(Stop::Failed(format!("{} reads performance, and its clock stays at {} kHz, the lower limit", policy.name(), limits.min)))
}

pub fn frequency(bench: &mut Bench<'_>, wanted: Frequency) -> Result<(), Stop> {
    let root = bench.root;
    let mut to_change = Vec::new();
    for policy in policies(root)? {
        let unreadable = || Stop::Unsupported(format!("the limits of {} can't be read", policy.name()));
        let now = policy.limits(root).ok_or_else(unreadable)?;
        let range = policy.khz(root, "cpuinfo_min_freq").zip(policy.khz(root, "cpuinfo_max_freq"));
        let (lowest, highest) = range.ok_or_else(unreadable)?;
        let khz = match wanted {
            Frequency::Max => highest,
            Frequency::Min => lowest,
            Frequency::Khz(khz) => khz,
        };
        if !(lowest..=highest).contains(&khz) {
            return Err(Stop::Unsupported(format!("{} goes from {lowest} to {highest} kHz", policy.name())));
        }
        let wanted = Limits { min: khz, max: khz };
        if now != wanted {
            to_change.push((policy, now, wanted));
        }
    }
    if to_change.is_empty() {
        return Err(Stop::Skipped("it is so already".into()));
    }
    let originals: Vec<_> = to_change.iter().map(|(policy, now, _)| (policy.name(), now.to_string())).collect();
    bench.borrow(Kind::FrequencyLimits, &originals)?;
    for (policy, _, wanted) in to_change {
        set_limits(root, bench.act, policy, wanted)?;
    }
    Ok(())
}

/// Write a governor unless it is that one, and read it back. One that can't be read is written: it may have to be given back.
pub fn set_governor(root: &Path, act: &mut dyn Act, policy: Policy, wanted: &str) -> Result<(), Stop> {
    if policy.text(root, "scaling_governor").is_ok_and(|now| now == wanted) {
        return Ok(());
    }
    policy.write(root, act, "scaling_governor", wanted.to_owned())?;
    match policy.text(root, "scaling_governor")? {
        now if now == wanted => Ok(()),
        now => Err(Stop::Failed(format!("the governor of {} reads {now} after {wanted} was written", policy.name()))),
    }
}

/// Likewise both limits.
pub fn set_limits(root: &Path, act: &mut dyn Act, policy: Policy, wanted: Limits) -> Result<(), Stop> {
    let now = policy.limits(root);
    if now == Some(wanted) {
        return Ok(());
    }
    for (file, khz) in wanted.reached_from(now.unwrap_or(wanted)) {
        policy.write(root, act, file, khz.to_string())?;
    }
    match policy.limits(root) {
        Some(now) if now == wanted => Ok(()),
        Some(now) => Err(Stop::Failed(format!("the limits of {} read {now} kHz after {wanted} were written", policy.name()))),
        None => Err(Stop::Failed(format!("the limits of {} can't be read", policy.name()))),
    }
}

fn policies(root: &Path) -> Result<Vec<Policy>, Stop> {
    let entries = fs::read_dir(root.join(DIR)).into_iter().flatten().flatten();
    let mut policies: Vec<Policy> = entries.filter_map(|entry| Policy::named(entry.file_name().to_str()?)).collect();
    policies.sort();
    if policies.is_empty() { Err(Stop::Unsupported("no cpufreq".into())) } else { Ok(policies) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_never_cross_on_their_way() {
        let limits = |min, max| Limits { min, max };
        for (now, wanted) in [(limits(1, 2), limits(5, 5)), (limits(5, 5), limits(1, 2)), (limits(1, 9), limits(9, 9)), (limits(1, 9), limits(1, 1))]
        {
            let mut at = now;
            for (file, khz) in wanted.reached_from(now) {
                if file == "scaling_min_freq" {
                    at.min = khz
                } else {
                    at.max = khz
                }
                assert!(at.min <= at.max, "{now} → {wanted}: {at}");
            }
            assert_eq!(at, wanted);
        }
    }

    #[test]
    fn a_policy_has_one_name() {
        assert_eq!(Policy::named("policy12"), Some(Policy(12)));
        for name in ["policy", "policy01", "policy-1", "policy0/..", "policy+1", "Policy0"] {
            assert_eq!(Policy::named(name), None, "{name}");
        }
    }
}
