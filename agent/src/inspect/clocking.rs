//! Settings of cpufreq, boost and the firmware's profile, below a root. Every file may be absent alone.

use super::text;
use crate::sys;
use isotherm_wire::clocking::{ClockPolicy, Clocking};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const CPU: &str = "sys/devices/system/cpu";

/// Read everything; `None` where there is nothing of all that.
pub fn read(root: &Path) -> Option<Clocking> {
    let clocking = Clocking { policies: policies(root), boost: boost(root), platform_profile: text(root, "sys/firmware/acpi/platform_profile") };
    (clocking != Clocking::default()).then_some(clocking)
}

fn boost(root: &Path) -> Option<bool> {
    let is = |file: &str, on: &str| match text(root, &format!("{CPU}/{file}")).as_deref() {
        Some(value @ ("0" | "1")) => Some(value == on),
        _ => None,
    };
    is("cpufreq/boost", "1").or_else(|| is("intel_pstate/no_turbo", "0"))
}

fn policies(root: &Path) -> Vec<ClockPolicy> {
    // A server has a policy per CPU, all of them alike.
    let mut alike: Vec<(BTreeSet<usize>, ClockPolicy)> = Vec::new();
    for entry in fs::read_dir(root.join(CPU).join("cpufreq")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(number) = name.strip_prefix("policy").and_then(|number| number.parse().ok()) else { continue };
        let dir = entry.path();
        let khz = |file: &str| text(&dir, file)?.parse().ok();
        let policy = ClockPolicy {
            cpus: String::new(),
            driver: text(&dir, "scaling_driver"),
            governor: text(&dir, "scaling_governor"),
            min_khz: khz("scaling_min_freq"),
            max_khz: khz("scaling_max_freq"),
            hardware_min_khz: khz("cpuinfo_min_freq"),
            hardware_max_khz: khz("cpuinfo_max_freq"),
            energy_preference: text(&dir, "energy_performance_preference"),
        };
        let of = text(&dir, "affected_cpus").unwrap_or_default();
        let mut cpus: BTreeSet<usize> = of.split_whitespace().filter_map(|cpu| cpu.parse().ok()).collect();
        if cpus.is_empty() {
            // A policy is called by its first CPU.
            cpus.insert(number);
        }
        match alike.iter_mut().find(|(_, other)| *other == policy) {
            Some((all, _)) => all.append(&mut cpus),
            None => alike.push((cpus, policy)),
        }
    }
    alike.sort_by_key(|(cpus, _)| cpus.first().copied());
    let named = |(cpus, policy): (BTreeSet<usize>, ClockPolicy)| ClockPolicy { cpus: sys::cpu_list(&cpus.into_iter().collect::<Vec<_>>()), ..policy };
    alike.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        // As the kernel ends them.
        let lines: Vec<(&str, String)> = files.iter().map(|(path, content)| (*path, format!("{content}\n"))).collect();
        crate::trees::of_files(&lines)
    }

    fn recorded(name: &str) -> Clocking {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recorded/probe").join(name)).unwrap()
    }

    #[test]
    fn authored_boards_say_what_is_set() {
        let pi = recorded("pi5");
        let policy = &pi.policies[0];
        assert_eq!((pi.policies.len(), policy.cpus.as_str(), policy.governor.as_deref()), (1, "0-3", Some("ondemand")));
        assert_eq!((policy.min_khz, policy.max_khz, policy.hardware_max_khz), (Some(1_500_000), Some(2_400_000), None));
        assert_eq!((pi.boost, pi.platform_profile), (None, None));
        let laptop = recorded("laptop");
        assert_eq!((laptop.policies[0].driver.as_deref(), laptop.policies[0].max_khz), (Some("amd-pstate-epp"), None));
        assert!(read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recorded/probe/nothing")).is_none());
    }

    #[test]
    fn policies_for_which_the_same_is_set_are_told_once() {
        let file = |policy: u32, name: &str| format!("{CPU}/cpufreq/policy{policy}/{name}");
        let mut files: Vec<(String, String)> = Vec::new();
        for policy in [0, 1, 2, 10] {
            let preference = if policy == 1 { "performance" } else { "balance_power" };
            files.extend([(file(policy, "scaling_max_freq"), "4700000".into()), (file(policy, "energy_performance_preference"), preference.into())]);
        }
        files.extend([(format!("{CPU}/intel_pstate/no_turbo"), "1".into()), ("sys/firmware/acpi/platform_profile".into(), "balanced".into())]);
        let dir = tree(&files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect::<Vec<_>>());
        let found = read(dir.path()).unwrap();
        let told: Vec<_> = found.policies.iter().map(|p| (p.cpus.as_str(), p.energy_preference.as_deref().unwrap())).collect();
        assert_eq!(told, [("0,2,10", "balance_power"), ("1", "performance")]);
        assert_eq!((found.boost, found.platform_profile.as_deref()), (Some(false), Some("balanced")));
    }
}
