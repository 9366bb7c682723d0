//! Energy and power: RAPL package domains, hwmon and IIO power monitors, the battery's own meter, the Pi 5's power controller.

use super::execute::Runner;
use super::trial::{Prober, absent};
use super::{Surroundings, capability, facts, found, limited, pmic};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, Present};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

/// ±10 kW: beyond it, no board or server is measured. Batteries count negative while discharging with some drivers.
const PLAUSIBLE_UW: RangeInclusive<i64> = -10_000_000_000..=10_000_000_000;
const PLAUSIBLE_MV: RangeInclusive<i64> = -1_000_000..=1_000_000;
const PLAUSIBLE_MA: RangeInclusive<i64> = -10_000_000..=10_000_000;
const RAPL: &str = "intel-rapl";
const PMIC_LIMIT: Duration = Duration::from_secs(3);

pub fn entries(prober: &Prober, around: &Surroundings, runner: &Runner) -> Vec<Capability> {
    let mut entries = files(prober);
    entries.extend(pmic(prober, around, runner));
    entries
}

/// What can be read from a file.
pub fn files(prober: &Prober) -> Vec<Capability> {
    let mut entries = rapl(prober);
    let chips = prober.at("sys/class/hwmon");
    let all = listed(prober, &chips, "hwmon", "energy.hwmon", &mut entries);
    limited(Family::Energy, "energy.hwmon", all, &mut entries, |chip| of_chip(prober, &chips.join(&chip), &chip));
    let devices = prober.at("sys/bus/iio/devices");
    let all = listed(prober, &devices, "iio:device", "energy.iio", &mut entries);
    limited(Family::Energy, "energy.iio", all, &mut entries, |device| of_iio(prober, &devices.join(&device), &device));
    entries.extend(batteries(prober));
    entries
}

/// Names in a directory. One that doesn't answer is an entry of its own: what it lists may be there as ever.
fn listed(prober: &Prober, dir: &Path, prefix: &str, id: &str, entries: &mut Vec<Capability>) -> Vec<String> {
    prober.numbered(dir, prefix, "").unwrap_or_else(|why| {
        if why.cause != Cause::NotThere {
            entries.push(capability(Family::Energy, id.into(), prefix, None, prober.shown(dir), Found::Absent(why)));
        }
        Vec::new()
    })
}

/// Packages only: core, uncore and psys are parts or supersets of them, and `intel-rapl-mmio` counts the same package again.
fn rapl(prober: &Prober) -> Vec<Capability> {
    let dir = prober.at("sys/class/powercap");
    let mut entries = Vec::new();
    let zones = prober.numbered(&dir, "intel-rapl:", "");
    let mut why = zones.as_ref().err().cloned();
    limited(Family::Energy, "energy.rapl", zones.unwrap_or_default(), &mut entries, |zone| {
        let dir = dir.join(&zone);
        let name = prober.text(&dir.join("name")).unwrap_or_default();
        if !name.starts_with("package") {
            return Vec::new();
        }
        let path = dir.join("energy_uj");
        let trial = prober.number(&path, &(0..=i64::MAX)).map(|present| {
            let range = prober.text(&dir.join("max_energy_range_uj"));
            Present { facts: facts([("wraps_at_uj", range), ("limit_uw", rapl_limit(prober, &dir)), ("driver", Some(RAPL.into()))]), ..present }
        });
        vec![capability(Family::Energy, format!("energy.rapl.{name}"), &format!("RAPL {name}"), Some("uj"), prober.shown(&path), found(trial))]
    });
    if entries.is_empty() {
        let why = why.take().unwrap_or_else(|| absent(Cause::NotThere, "no zone named package-*"));
        entries.push(capability(Family::Energy, "energy.rapl".into(), "RAPL", None, prober.shown(&dir), Found::Absent(why)));
    }
    entries
}

/// The higher of a zone's two limits, µW: over less than its time window the second one is allowed.
fn rapl_limit(prober: &Prober, zone: &Path) -> Option<String> {
    let limit = |constraint: u32| -> Option<u64> { prober.text(&zone.join(format!("constraint_{constraint}_power_limit_uw")))?.parse().ok() };
    (0..2).filter_map(limit).max().map(|uw| uw.to_string())
}

fn of_chip(prober: &Prober, dir: &Path, chip: &str) -> Vec<Capability> {
    let driver = prober.text(&dir.join("name")).unwrap_or_else(|| chip.to_owned());
    let mut entries = Vec::new();
    let mut add = |stem: &str, unit: &str, path: &Path, trial: Result<Present, Absent>| {
        let label = prober.text(&dir.join(format!("{stem}_label")));
        let trial = trial.map(|mut present| {
            let period = prober.text(&dir.join(format!("{stem}_average_interval"))).or_else(|| prober.text(&dir.join("update_interval")));
            let limit = prober.text(&dir.join(format!("{stem}_cap")));
            present.facts.extend(facts([("driver", Some(driver.clone())), ("period_ms", period), ("limit_uw", limit)]));
            present
        });
        let name = label.map_or_else(|| format!("{driver} {stem}"), |label| format!("{driver} {label}"));
        entries.push(capability(Family::Energy, format!("energy.{chip}.{stem}"), &name, Some(unit), prober.shown(path), found(trial)));
    };
    for input in prober.numbered(dir, "energy", "_input").unwrap_or_default() {
        let path = dir.join(&input);
        add(input.trim_end_matches("_input"), "uj", &path, prober.number(&path, &(0..=i64::MAX)));
    }
    let mut has_power = false;
    for suffix in ["_input", "_average"] {
        for input in prober.numbered(dir, "power", suffix).unwrap_or_default() {
            let path = dir.join(&input);
            has_power = true;
            add(input.trim_end_matches(suffix), "uw", &path, prober.number(&path, &PLAUSIBLE_UW));
        }
    }
    // INA3221 gives volts and amperes of each rail and leaves the product to the reader; its label is that of the voltage.
    if !has_power && driver.starts_with("ina") {
        for input in prober.numbered(dir, "curr", "_input").unwrap_or_default() {
            let number = input.trim_start_matches("curr").trim_end_matches("_input");
            let path = dir.join(&input);
            add(&format!("in{number}"), "uw", &path, product(prober, &dir.join(format!("in{number}_input")), &path));
        }
    }
    entries
}

/// Millivolts × milliamperes.
fn product(prober: &Prober, volts: &Path, amperes: &Path) -> Result<Present, Absent> {
    let (volts, amperes) = (prober.number(volts, &PLAUSIBLE_MV)?, prober.number(amperes, &PLAUSIBLE_MA)?);
    Ok(Present {
        cost_ns: volts.cost_ns.zip(amperes.cost_ns).map(|(a, b)| a + b),
        value: volts.value.zip(amperes.value).map(|(mv, ma)| mv * ma),
        facts: facts([("from", Some("voltage × current".into()))]),
        flaky: volts.flaky.or(amperes.flaky),
        ..Present::default()
    })
}

/// Power monitors that the industrial I/O drivers carry (INA3221 on some Jetsons), milliwatts.
fn of_iio(prober: &Prober, dir: &Path, device: &str) -> Vec<Capability> {
    let driver = prober.text(&dir.join("name")).unwrap_or_else(|| device.to_owned());
    let inputs = prober.numbered(dir, "in_power", "_input").unwrap_or_default();
    let entry = |input: &String| {
        let number = input.trim_start_matches("in_power").trim_end_matches("_input");
        let rail = prober.text(&dir.join(format!("rail_name_{number}"))).unwrap_or_else(|| number.to_owned());
        let trial = prober.number(&dir.join(input), &(-10_000_000..=10_000_000));
        let trial = trial.map(|present| Present { facts: facts([("driver", Some(driver.clone()))]), ..present });
        let id = format!("energy.{}.power{number}", device.replace(':', "."));
        capability(Family::Energy, id, &format!("{driver} {rail}"), Some("mw"), prober.shown(&dir.join(input)), found(trial))
    };
    inputs.iter().map(entry).collect()
}

/// What flows into or out of a battery: the whole machine while it discharges, and nothing of it on mains.
fn batteries(prober: &Prober) -> Vec<Capability> {
    let dir = prober.at("sys/class/power_supply");
    let mut entries = Vec::new();
    for supply in prober.names(&dir).unwrap_or_default().into_iter().take(super::MOST_OF_A_KIND) {
        let dir = dir.join(&supply);
        if prober.text(&dir.join("type")).as_deref() != Some("Battery") || prober.text(&dir.join("scope")).as_deref() == Some("Device") {
            continue;
        }
        let power = dir.join("power_now");
        let (path, trial) = if prober.exists(&power) {
            let trial = prober.number(&power, &PLAUSIBLE_UW);
            (power, trial)
        } else {
            let (volts, amperes) = (dir.join("voltage_now"), dir.join("current_now"));
            let trial = battery_product(prober, &volts, &amperes);
            (amperes, trial)
        };
        entries.push(capability(
            Family::Energy,
            format!("energy.{supply}"),
            &format!("battery {supply}"),
            Some("uw"),
            prober.shown(&path),
            found(trial),
        ));
    }
    entries
}

/// Microvolts × microamperes, in microwatts.
fn battery_product(prober: &Prober, volts: &Path, amperes: &Path) -> Result<Present, Absent> {
    let volts = prober.number(volts, &(-1_000_000_000..=1_000_000_000))?;
    let amperes = prober.number(amperes, &(-1_000_000_000..=1_000_000_000))?;
    Ok(Present {
        cost_ns: volts.cost_ns.zip(amperes.cost_ns).map(|(a, b)| a + b),
        value: volts.value.zip(amperes.value).map(|(uv, ua)| uv * ua / 1e6),
        facts: facts([("from", Some("voltage × current".into()))]),
        flaky: volts.flaky.or(amperes.flaky),
        ..Present::default()
    })
}

/// The Raspberry Pi 5's power controller, through its firmware tool: rails on the board, without what hangs at its 5 V.
fn pmic(prober: &Prober, around: &Surroundings, runner: &Runner) -> Option<Capability> {
    let found = pmic::tool_of(prober, around)?.and_then(|program| {
        let start = crate::sys::monotonic_ns();
        let output = runner.run(&[&program.display().to_string(), "pmic_read_adc"], None, PMIC_LIMIT)?;
        let cost_ns = Some(crate::sys::monotonic_ns() - start);
        let rails = pmic::rails(&output.stdout);
        if !output.ok || rails.is_empty() {
            let said = super::first_line(&output.stderr).or_else(|| super::first_line(&output.stdout));
            return Err(absent(Cause::Failed, &said.unwrap_or_else(|| "it names no rail".into())));
        }
        let watts: f64 = rails.iter().map(|(_, watts)| watts).sum();
        Ok(Present { cost_ns, value: Some(watts * 1e6), facts: facts([("rails", Some(rails.len().to_string()))]), ..Present::default() })
    });
    Some(capability(Family::Energy, "energy.pmic".into(), pmic::NAME, Some("uw"), pmic::SOURCE.into(), self::found(found)))
}
