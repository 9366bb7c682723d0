//! Clocks: cpufreq per policy with its governor, and devfreq devices (GPU, NPU, memory controller).

use super::trial::Prober;
use super::{capability, facts, found, limited};
use isotherm_wire::probe::{Capability, Family, Found, Present};
use std::ops::RangeInclusive;
use std::path::Path;

/// 1 MHz to 20 GHz. 0 is what some drivers say of a parked CPU.
const PLAUSIBLE_KHZ: RangeInclusive<i64> = 1_000..=20_000_000;
/// The same in Hz, and 0 for a device that is off.
const PLAUSIBLE_HZ: RangeInclusive<i64> = 0..=20_000_000_000;

pub fn entries(prober: &Prober) -> Vec<Capability> {
    let mut entries = Vec::new();
    let dir = prober.at("sys/devices/system/cpu/cpufreq");
    match prober.numbered(&dir, "policy", "") {
        Ok(policies) => limited(Family::Clock, "clock.policy", policies, &mut entries, |policy| vec![of_policy(prober, &dir.join(&policy), &policy)]),
        Err(why) => {
            entries.push(capability(Family::Clock, "clock.cpufreq".into(), "cpufreq", None, prober.shown(&dir), Found::Absent(why)));
        }
    }
    let dir = prober.at("sys/class/devfreq");
    limited(Family::Clock, "clock.devfreq", prober.names(&dir).unwrap_or_default(), &mut entries, |device| {
        let path = dir.join(&device).join("cur_freq");
        let trial = prober.number(&path, &PLAUSIBLE_HZ).map(|present| {
            let governor = prober.text(&dir.join(&device).join("governor"));
            Present { facts: facts([("governor", governor)]), ..present }
        });
        vec![capability(Family::Clock, format!("clock.devfreq.{device}"), &device, Some("hz"), prober.shown(&path), found(trial))]
    });
    entries
}

fn of_policy(prober: &Prober, dir: &Path, policy: &str) -> Capability {
    let path = dir.join("scaling_cur_freq");
    let text = |file: &str| prober.text(&dir.join(file));
    let name = text("affected_cpus").or_else(|| text("related_cpus")).map_or_else(|| policy.to_owned(), |cpus| format!("{policy} (cpu {cpus})"));
    let trial = prober.number(&path, &PLAUSIBLE_KHZ).map(|present| {
        let facts = facts([
            ("governor", text("scaling_governor")),
            ("driver", text("scaling_driver")),
            ("min_khz", text("scaling_min_freq")),
            ("max_khz", text("scaling_max_freq")),
        ]);
        Present { facts, ..present }
    });
    capability(Family::Clock, format!("clock.{policy}"), &name, Some("khz"), prober.shown(&path), found(trial))
}
