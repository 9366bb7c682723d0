//! Throttling: the Raspberry Pi's firmware bits, x86 throttle counts, states of cooling devices.

use super::trial::{Prober, absent, garbage};
use super::{capability, facts, found, limited};
use isotherm_wire::probe::{Capability, Cause, Family, Found, Present};
use std::path::{Path, PathBuf};

pub fn entries(prober: &Prober) -> Vec<Capability> {
    let mut entries: Vec<Capability> = firmware(prober).into_iter().collect();
    entries.extend(counts(prober));
    let dir = prober.at("sys/class/thermal");
    let devices = prober.numbered(&dir, "cooling_device", "").unwrap_or_default();
    limited(Family::Throttling, "throttling.cooling_device", devices, &mut entries, |device| {
        let dir = dir.join(&device);
        let name = prober.text(&dir.join("type")).unwrap_or_else(|| device.clone());
        let trial = prober.number(&dir.join("cur_state"), &(0..=i64::from(i32::MAX))).map(|present| {
            let most = prober.text(&dir.join("max_state"));
            Present { facts: facts([("max_state", most)]), ..present }
        });
        let source = prober.shown(&dir.join("cur_state"));
        vec![capability(Family::Throttling, format!("throttling.{device}"), &format!("cooling {name}"), Some("state"), source, found(trial))]
    });
    if entries.is_empty() {
        let why = absent(Cause::NotThere, "no firmware bits, no throttle counts, no cooling devices");
        let source = "/sys/class/thermal".to_owned();
        entries.push(capability(Family::Throttling, "throttling.any".into(), "throttling", None, source, Found::Absent(why)));
    }
    entries
}

/// `get_throttled` of the Raspberry Pi's firmware driver: hexadecimal, bits 0–3 now, 16–19 since boot.
fn firmware(prober: &Prober) -> Option<Capability> {
    let path = firmware_file(prober)?;
    let trial = prober.read(&path).and_then(|reading| {
        let digits = reading.text.trim_start_matches("0x");
        let bits = u32::from_str_radix(digits, 16).map_err(|_| garbage("a hexadecimal number", &reading.text))?;
        let facts = facts([("bits", Some(format!("{bits:#x}")))]);
        Ok(Present { cost_ns: Some(reading.cost_ns), value: Some(f64::from(bits)), facts, flaky: reading.flaky, ..Present::default() })
    });
    Some(capability(Family::Throttling, "throttling.firmware".into(), "firmware throttle bits", Some("bits"), prober.shown(&path), found(trial)))
}

/// `soc/soc:firmware` up to the Pi 4, `soc@107c000000/soc@107c000000:firmware` on the Pi 5.
fn firmware_file(prober: &Prober) -> Option<PathBuf> {
    let platform = prober.at("sys/devices/platform");
    let buses = prober.names(&platform).ok()?.into_iter().filter(|name| name == "soc" || name.starts_with("soc@"));
    buses.map(|bus| platform.join(&bus).join(format!("{bus}:firmware/get_throttled"))).find(|path| prober.exists(path))
}

/// Counts since boot; of the first CPU of each package, since the others of it count the same package events.
fn counts(prober: &Prober) -> Vec<Capability> {
    let dir = prober.at("sys/devices/system/cpu");
    let mut seen = Vec::new();
    let mut entries = Vec::new();
    for cpu in prober.numbered(&dir, "cpu", "").unwrap_or_default().into_iter().take(super::MOST_OF_A_KIND) {
        let dir = dir.join(&cpu);
        let own = dir.join("thermal_throttle");
        if !prober.exists(&own) {
            continue;
        }
        let package = prober.text(&dir.join("topology/physical_package_id")).unwrap_or_default();
        if seen.contains(&package) {
            continue;
        }
        for (file, name) in [("package_throttle_count", "package"), ("core_throttle_count", "core")] {
            entries.push(count(prober, &own.join(file), &cpu, name));
        }
        seen.push(package);
    }
    entries
}

fn count(prober: &Prober, path: &Path, cpu: &str, what: &str) -> Capability {
    let trial = prober.number(path, &(0..=i64::MAX));
    let name = format!("{what} throttle count ({cpu})");
    capability(Family::Throttling, format!("throttling.{cpu}.{what}"), &name, Some("count"), prober.shown(path), found(trial))
}
