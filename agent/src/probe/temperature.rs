//! Temperatures: thermal zones and hwmon sensors, by the names that their drivers give them.

use super::trial::{Prober, absent};
use super::{capability, found, limited};
use isotherm_wire::probe::{Capability, Cause, Family, Found};
use std::ops::RangeInclusive;
use std::path::Path;

/// What silicon and its sensors can be, m°C. Below stands for "off": −256 °C of a powered-down GPU zone (Jetson), −274 °C of an
/// unplugged probe.
pub const PLAUSIBLE_MC: RangeInclusive<i64> = -55_000..=200_000;

pub fn entries(prober: &Prober) -> Vec<Capability> {
    let mut entries = Vec::new();
    let dir = prober.at("sys/class/thermal");
    match prober.numbered(&dir, "thermal_zone", "") {
        Ok(zones) => limited(Family::Temperature, "temperature.thermal_zone", zones, &mut entries, |zone| {
            let dir = dir.join(&zone);
            let name = prober.text(&dir.join("type")).unwrap_or_else(|| zone.clone());
            vec![sensor(prober, format!("temperature.{zone}"), &name, &dir.join("temp"))]
        }),
        Err(why) => {
            let source = prober.shown(&dir);
            entries.push(capability(Family::Temperature, "temperature.thermal".into(), "thermal zones", None, source, Found::Absent(why)));
        }
    }
    let before = entries.len();
    let dir = prober.at("sys/class/hwmon");
    let mut why = None;
    match prober.numbered(&dir, "hwmon", "") {
        Ok(chips) => limited(Family::Temperature, "temperature.hwmon", chips, &mut entries, |chip| of_chip(prober, &dir.join(&chip), &chip)),
        Err(absent) => why = Some(absent),
    }
    if entries.len() == before {
        let why = why.unwrap_or_else(|| absent(Cause::NotThere, "no temp*_input there"));
        let source = prober.shown(&dir);
        entries.push(capability(Family::Temperature, "temperature.hwmon".into(), "hwmon sensors", None, source, Found::Absent(why)));
    }
    entries
}

fn of_chip(prober: &Prober, dir: &Path, chip: &str) -> Vec<Capability> {
    let driver = prober.text(&dir.join("name")).unwrap_or_else(|| chip.to_owned());
    let inputs = prober.numbered(dir, "temp", "_input").unwrap_or_default();
    let entry = |input: &String| {
        let stem = input.trim_end_matches("_input");
        let label = prober.text(&dir.join(format!("{stem}_label")));
        let name = label.map_or_else(|| driver.clone(), |label| format!("{driver} {label}"));
        sensor(prober, format!("temperature.{chip}.{stem}"), &name, &dir.join(input))
    };
    inputs.iter().map(entry).collect()
}

fn sensor(prober: &Prober, id: String, name: &str, path: &Path) -> Capability {
    let trial = prober.number(path, &PLAUSIBLE_MC);
    capability(Family::Temperature, id, name, Some("millicelsius"), prober.shown(path), found(trial))
}
