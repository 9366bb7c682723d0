//! What was changed of the clocks' settings while a run was made.
//!
//! Takes the settings before and after it, gives issues; pure. Must not know how a clock is read.

use crate::config::cpu_list;
use crate::registry::Code;
use crate::store::issue::Issue;
use isotherm_wire::clocking::{ClockPolicy, Clocking};
use isotherm_wire::result::RunResult;
use std::collections::BTreeMap;

/// Settings that are not after the run what they were before it, as far as both are known.
pub fn issues(result: &RunResult) -> Vec<Issue> {
    let (Some(before), Some(after)) = (&result.clocking_before, &result.clocking_after) else { return Vec::new() };
    let of_machine =
        |clocking: &Clocking| [("boost", clocking.boost.map(|on| on.to_string())), ("platform profile", clocking.platform_profile.clone())];
    let mut settings: Vec<String> = of_machine(before)
        .into_iter()
        .zip(of_machine(after))
        .filter_map(|((what, old), (_, new))| old.zip(new).filter(|(old, new)| old != new).map(|(old, new)| format!("{what}: {old} → {new}")))
        .collect();
    let text = |value: &Option<String>| value.clone();
    let khz = |value: Option<u64>| value.map(|khz| format!("{khz} kHz"));
    settings.extend(changes("governor", before, after, |policy| text(&policy.governor)));
    settings.extend(changes("energy preference", before, after, |policy| text(&policy.energy_preference)));
    let mut limits = changes("lower limit", before, after, |policy| khz(policy.min_khz));
    limits.extend(changes("upper limit", before, after, |policy| khz(policy.max_khz)));
    let issue = |code, changes: Vec<String>| (!changes.is_empty()).then(|| Issue::new(code, changes.join("; ")));
    issue(Code::ClockSettingsChanged, settings).into_iter().chain(issue(Code::FrequencyLimitsChanged, limits)).collect()
}

/// Changes of one setting of the policies, CPUs with the same change together. CPU by CPU, because policies are grouped by what is set for
/// them, which may be another grouping afterwards.
fn changes(what: &str, before: &Clocking, after: &Clocking, value: impl Fn(&ClockPolicy) -> Option<String>) -> Vec<String> {
    let of_cpus = |clocking: &Clocking| -> BTreeMap<u32, String> {
        let of_policy = |policy: &ClockPolicy| Some((cpu_list(&policy.cpus).ok()?, value(policy)?));
        let each = clocking.policies.iter().filter_map(of_policy);
        each.flat_map(|(cpus, value)| cpus.into_iter().map(move |cpu| (cpu, value.clone()))).collect()
    };
    let (before, after) = (of_cpus(before), of_cpus(after));
    let mut changed: BTreeMap<(&String, &String), Vec<u32>> = BTreeMap::new();
    for (cpu, old) in &before {
        if let Some(new) = after.get(cpu).filter(|new| *new != old) {
            changed.entry((old, new)).or_default().push(*cpu);
        }
    }
    let told = |((old, new), cpus): ((&String, &String), Vec<u32>)| {
        let more = if cpus.len() > 1 { format!(" and {} more", cpus.len() - 1) } else { String::new() };
        format!("{what} of CPU {}{more}: {old} → {new}", cpus[0])
    };
    changed.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_wire::result::AgentFacts;

    fn policy(cpus: &str, governor: Option<&str>, max_khz: u64) -> ClockPolicy {
        ClockPolicy { cpus: cpus.into(), governor: governor.map(str::to_owned), max_khz: Some(max_khz), ..ClockPolicy::default() }
    }

    fn told(before: &[ClockPolicy], after: &[ClockPolicy]) -> Vec<(String, String)> {
        let clocking = |policies: &[ClockPolicy]| Some(Clocking { policies: policies.to_vec(), ..Clocking::default() });
        let agent = AgentFacts { version: String::new(), sha256: String::new(), target: String::new() };
        let mut run = RunResult::unexecuted("r".into(), serde_json::Value::Null, agent, Default::default());
        (run.clocking_before, run.clocking_after) = (clocking(before), clocking(after));
        issues(&run).into_iter().map(|issue| (issue.code.to_string(), issue.message)).collect()
    }

    #[test]
    fn what_is_set_otherwise_after_a_run_is_told_by_cpu() {
        let all = [policy("0-3", Some("powersave"), 2400)];
        assert!(told(&all, &all).is_empty());
        let parted = [policy("0,2-3", Some("powersave"), 1500), policy("1", Some("performance"), 2400)];
        let limits = ("frequency_limits_changed".to_owned(), "upper limit of CPU 0 and 2 more: 2400 kHz → 1500 kHz".to_owned());
        let settings = ("clock_settings_changed".to_owned(), "governor of CPU 1: powersave → performance".to_owned());
        assert_eq!(told(&all, &parted), [settings, limits]);
    }

    #[test]
    fn what_is_not_known_on_both_sides_has_not_changed() {
        assert!(told(&[policy("0", None, 1)], &[policy("0", Some("powersave"), 1)]).is_empty());
        assert!(told(&[policy("0", None, 1)], &[]).is_empty());
    }
}
