//! GPUs of the kernel's display drivers, and how busy a GPU or an NPU is where its driver has a file that says so.

use super::trial::{Prober, Reading, absent, garbage, of_error};
use super::{capability, facts, found, is_there, limited};
use crate::gpu::drm;
use crate::sampler::sensors::leading;
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, Present};
use std::path::Path;

/// Directories in which JetPack's kernels keep a GPU's device, by release.
const JETSON_DIRS: [&str; 3] = ["sys/devices", "sys/devices/platform", "sys/devices/platform/bus@0"];
/// And what the device is called there: `gpu.0`, `17000000.gpu`, by chip else.
const JETSON_ENDS: [&str; 4] = [".gpu", ".ga10b", ".gv11b", ".gp10b"];
/// What names of devfreq devices tell of a GPU or an NPU; others are buses and memory.
const WORDS: [&str; 3] = ["gpu", "mali", "npu"];

/// Everything here is read from files.
pub fn entries(prober: &Prober) -> Vec<Capability> {
    let dir = prober.at("sys/class/drm");
    let cards = prober.numbered(&dir, "card", "");
    let why = cards.as_ref().err().cloned();
    let mut entries = Vec::new();
    limited(Family::Gpu, "gpu.drm", cards.unwrap_or_default(), &mut entries, |card| of_card(prober, &dir.join(&card).join("device"), &card));
    if entries.is_empty() {
        let why = why.unwrap_or_else(|| absent(Cause::NotThere, "no card* there"));
        entries.push(capability(Family::Gpu, "gpu.drm".into(), "display driver", None, prober.shown(&dir), Found::Absent(why)));
    }
    entries.extend(busy(prober));
    entries
}

/// Which devices tell their users how long each engine worked for them, found by opening them.
pub fn engine_times(prober: &Prober) -> Vec<Capability> {
    let dir = prober.at("dev/dri");
    let nodes = if prober.is_live() { prober.numbered(&dir, "renderD", "").unwrap_or_default() } else { Vec::new() };
    let entry = |node: String| {
        let path = dir.join(&node);
        let trial = prober.within({
            let path = path.clone();
            move || drm::engines(&path).map_err(|e| of_error(&e))
        });
        let found = trial.map_or_else(Found::Absent, |told| match told {
            Some((driver, engines)) => is_there(facts([("driver", Some(driver)), ("engines", Some(engines.join(", ")))])),
            None => Found::Absent(absent(Cause::NotThere, "its driver tells no times of its engines (fdinfo)")),
        });
        let recorded = matches!(found, Found::Present(_));
        let id = format!("gpu.{node}.engines");
        Capability { recorded, ..capability(Family::Gpu, id, &format!("{node} engine times"), None, prober.shown(&path), found) }
    };
    nodes.into_iter().map(entry).collect()
}

/// A card by driver and PCI ids, with what amdgpu counts.
fn of_card(prober: &Prober, dir: &Path, card: &str) -> Vec<Capability> {
    let text = |file: &str| prober.text(&dir.join(file));
    let driver = text("uevent").and_then(|t| t.lines().find_map(|l| l.strip_prefix("DRIVER=").map(str::to_owned)));
    let ids = text("vendor").zip(text("device")).map(|(vendor, device)| format!("{vendor}:{device}"));
    let facts = facts([("driver", driver), ("pci_id", ids)]);
    let there = if facts.is_empty() { Found::Absent(absent(Cause::Failed, "neither driver nor ids can be read")) } else { is_there(facts) };
    let mut entries = vec![capability(Family::Gpu, format!("gpu.{card}"), card, None, prober.shown(dir), there)];
    for (file, word, unit, most) in [("gpu_busy_percent", "busy", "pct", 100), ("mem_info_vram_used", "memory", "bytes", i64::MAX)] {
        let path = dir.join(file);
        if prober.exists(&path) {
            let trial = prober.number(&path, &(0..=most));
            entries.push(capability(Family::Gpu, format!("gpu.{card}.{word}"), card, Some(unit), prober.shown(&path), found(trial)));
        }
    }
    entries
}

/// Files of drivers that aren't, or aren't only, display drivers.
fn busy(prober: &Prober) -> Vec<Capability> {
    let names = |dir: &str| prober.names(&prober.at(dir)).unwrap_or_default();
    let mut files: Vec<(String, String, &str)> = Vec::new();
    // Rockchip and others: `42@850000000Hz`.
    let devices = names("sys/class/devfreq").into_iter().filter(|name| WORDS.iter().any(|word| name.to_lowercase().contains(word)));
    files.extend(devices.map(|name| (name.clone(), format!("sys/class/devfreq/{name}/load"), "pct")));
    // Adreno: `12 %`.
    files.extend(names("sys/class/kgsl").into_iter().map(|name| (name.clone(), format!("sys/class/kgsl/{name}/gpu_busy_percentage"), "pct")));
    for dir in JETSON_DIRS {
        let gpus = names(dir).into_iter().filter(|name| name == "gpu.0" || JETSON_ENDS.iter().any(|end| name.ends_with(end)));
        files.extend(gpus.map(|name| (name.clone(), format!("{dir}/{name}/load"), "per_mille")));
    }
    let there = files.into_iter().filter(|(_, path, _)| prober.exists(&prober.at(path)));
    let entry = |(name, path, unit): (String, String, &str)| {
        let path = prober.at(&path);
        let trial = prober.read(&path).and_then(|reading| share(&reading, if unit == "pct" { 100 } else { 1000 }));
        capability(Family::Gpu, format!("gpu.{name}.busy"), &name, Some(unit), prober.shown(&path), found(trial))
    };
    there.map(entry).collect()
}

/// The number that a text begins with, of so many parts.
fn share(reading: &Reading, parts: i64) -> Result<Present, Absent> {
    let value = leading(&reading.text).ok_or_else(|| garbage("a number", &reading.text))?;
    if !(0..=parts).contains(&value) {
        return Err(absent(Cause::OutOfRange, &format!("reads {value}, which is not within 0 to {parts}")));
    }
    Ok(Present { cost_ns: Some(reading.cost_ns), value: Some(value as f64), flaky: reading.flaky.clone(), ..Present::default() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs;

    #[test]
    fn each_drivers_way_to_say_how_busy_it_is_becomes_per_cent_and_what_is_none_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("sys/class/devfreq/fb000000.gpu/load", "42@850000000Hz\n"),
            ("sys/class/devfreq/fdab0000.npu/load", "0@1000000000Hz\n"),
            ("sys/class/devfreq/dmc/load", "11@528000000Hz\n"),
            ("sys/class/kgsl/kgsl-3d0/gpu_busy_percentage", "12 %\n"),
            ("sys/devices/gpu.0/load", "173\n"),
            ("sys/devices/platform/bus@0/17000000.gpu/load", "1001\n"),
            ("sys/class/drm/card0/device/gpu_busy_percent", "7\n"),
            ("sys/class/drm/card1/device/gpu_busy_percent", "many\n"),
        ];
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (sensors, absent) = crate::sampler::sensors::of(dir.path(), &entries(&Prober::new(dir.path())));
        let value = |sensor: &crate::sampler::sensors::Sensor| sensor.value(&[&fs::read_to_string(&sensor.files[0]).unwrap()]);
        let values: Vec<(&str, Option<f64>)> = sensors.iter().map(|sensor| (sensor.subject.as_str(), value(sensor))).collect();
        let expected = [("card0", 7.0), ("fb000000.gpu", 42.0), ("fdab0000.npu", 0.0), ("kgsl-3d0", 12.0), ("gpu.0", 17.3)];
        assert_eq!(values, expected.map(|(name, pct)| (name, Some(pct))));
        let reasons: Vec<&str> = absent.iter().map(|reading| reading.absent.as_deref().unwrap()).collect();
        assert_eq!(reasons, ["reads \"many\", which is not a whole number", "reads 1001, which is not within 0 to 1000"]);
    }
}
