//! Where the power comes from: mains, USB, battery.

use super::trial::{Prober, absent, garbage};
use super::{capability, facts, found, limited};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, Present};
use std::path::Path;

pub fn entries(prober: &Prober) -> Vec<Capability> {
    let dir = prober.at("sys/class/power_supply");
    let mut entries = Vec::new();
    let names = prober.names(&dir);
    let why = names.as_ref().err().cloned();
    limited(Family::PowerSource, "power_source", names.unwrap_or_default(), &mut entries, |supply| of_supply(prober, &dir.join(&supply), &supply));
    if entries.is_empty() {
        let why = why.unwrap_or_else(|| absent(Cause::NotThere, "no power supply named there"));
        let source = prober.shown(&dir);
        entries.push(capability(Family::PowerSource, "power_source.any".into(), "power source", None, source, Found::Absent(why)));
    }
    entries
}

fn of_supply(prober: &Prober, dir: &Path, supply: &str) -> Vec<Capability> {
    // Of a mouse or a headset.
    if prober.text(&dir.join("scope")).as_deref() == Some("Device") {
        return Vec::new();
    }
    let kind = prober.read(&dir.join("type"));
    let (file, trial) = match &kind {
        Err(why) => ("type", Err(why.clone())),
        Ok(kind) if kind.text == "Battery" => ("status", battery(prober, dir)),
        Ok(_) => ("online", prober.number(&dir.join("online"), &(0..=2))),
    };
    let unit = (file == "online").then_some("online");
    let name = kind.map_or_else(|_| supply.to_owned(), |kind| format!("{supply} ({})", kind.text));
    vec![capability(Family::PowerSource, format!("power_source.{supply}"), &name, unit, prober.shown(&dir.join(file)), found(trial))]
}

fn battery(prober: &Prober, dir: &Path) -> Result<Present, Absent> {
    let status = prober.read(&dir.join("status"))?;
    // The kernel's whole vocabulary.
    if !["Charging", "Discharging", "Not charging", "Full", "Unknown"].contains(&status.text.as_str()) {
        return Err(garbage("a battery's status", &status.text));
    }
    let capacity = prober.number(&dir.join("capacity"), &(0..=100)).ok().and_then(|p| p.value).map(|pct| pct.to_string());
    let facts = facts([("status", Some(status.text)), ("capacity_pct", capacity)]);
    Ok(Present { cost_ns: Some(status.cost_ns), facts, flaky: status.flaky, ..Present::default() })
}
