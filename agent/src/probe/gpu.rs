//! GPUs: NVIDIA's management library, devices and tool; whatever else the kernel's display drivers carry.

use super::execute::Runner;
use super::trial::{Prober, absent};
use super::{NOT_EXECUTED, Surroundings, capability, facts, first_line, found, is_there, limited};
use isotherm_wire::probe::{Capability, Cause, Family, Found, Present};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A driver that has to wake its device first takes seconds.
const TOOL_LIMIT: Duration = Duration::from_secs(8);
/// Where distributions, WSL, JetPack and container runtimes put libraries.
pub const LIBRARY_DIRS: [&str; 12] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/arm-linux-gnueabihf",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/local/lib64",
    "usr/lib/wsl/lib",
    "usr/lib/aarch64-linux-gnu/tegra",
    "usr/lib/aarch64-linux-gnu/nvidia",
    "usr/local/nvidia/lib64",
    "opt/onnxruntime/lib",
];

pub fn entries(prober: &Prober, around: &Surroundings, runner: &Runner) -> Vec<Capability> {
    let mut entries = nvidia(prober, around, runner);
    let dir = prober.at("sys/class/drm");
    let cards = prober.numbered(&dir, "card", "");
    let why = cards.as_ref().err().cloned();
    let before = entries.len();
    limited(Family::Gpu, "gpu.drm", cards.unwrap_or_default(), &mut entries, |card| of_card(prober, &dir.join(&card).join("device"), &card));
    if entries.len() == before {
        let why = why.unwrap_or_else(|| absent(Cause::NotThere, "no card* there"));
        entries.push(capability(Family::Gpu, "gpu.drm".into(), "display driver", None, prober.shown(&dir), Found::Absent(why)));
    }
    entries
}

fn nvidia(prober: &Prober, around: &Surroundings, runner: &Runner) -> Vec<Capability> {
    let library = LIBRARY_DIRS.iter().map(|dir| prober.at(dir).join("libnvidia-ml.so.1")).find(|path| prober.exists(path));
    let nodes: Vec<String> = prober.numbered(&prober.at("dev"), "nvidia", "").unwrap_or_default();
    let tool = around.program(prober, "nvidia-smi", &[prober.at("usr/lib/wsl/lib")]);
    if library.is_none() && nodes.is_empty() && tool.is_none() {
        let why = absent(Cause::NotThere, "no NVIDIA driver: no libnvidia-ml.so.1, no /dev/nvidia*, no nvidia-smi");
        return vec![capability(Family::Gpu, "gpu.nvidia".into(), "NVIDIA", None, "/dev".into(), Found::Absent(why))];
    }
    let place = |path: &Option<PathBuf>, otherwise: &str| path.as_deref().map_or_else(|| otherwise.to_owned(), |path| prober.shown(path));
    let missing = |what: &str| Found::Absent(absent(Cause::NotThere, what));
    let library_found = if library.is_some() { is_there(BTreeMap::new()) } else { missing("no libnvidia-ml.so.1 in the usual directories") };
    let nodes_found = if nodes.is_empty() { missing("no /dev/nvidia*") } else { is_there(facts([("devices", Some(nodes.join(", ")))])) };
    let tool_found = match &tool {
        None => missing("no nvidia-smi on the path"),
        Some(tool) => smi(tool, runner),
    };
    vec![
        capability(Family::Gpu, "gpu.nvidia.library".into(), "NVIDIA management library", None, place(&library, "/usr/lib"), library_found),
        capability(Family::Gpu, "gpu.nvidia.devices".into(), "NVIDIA devices", None, "/dev".into(), nodes_found),
        capability(Family::Gpu, "gpu.nvidia.smi".into(), "nvidia-smi", None, place(&tool, "nvidia-smi"), tool_found),
    ]
}

fn smi(tool: &Path, runner: &Runner) -> Found {
    let start = crate::sys::monotonic_ns();
    let query = "--query-gpu=name,driver_version,memory.total";
    match runner.run(&[&tool.display().to_string(), query, "--format=csv,noheader"], None, TOOL_LIMIT) {
        Ok(output) if output.ok => {
            let cost_ns = Some(crate::sys::monotonic_ns() - start);
            Found::Present(Present { cost_ns, facts: facts([("says", first_line(&output.stdout))]), ..Present::default() })
        }
        Ok(output) => {
            let said = first_line(&output.stdout).or_else(|| first_line(&output.stderr));
            Found::Absent(absent(Cause::Failed, &said.unwrap_or_else(|| "it fails without a word".into())))
        }
        // Of a copied machine its being there is all that can be said.
        Err(why) if why.cause == Cause::NotTried => is_there(facts([("says", Some(NOT_EXECUTED.into()))])),
        Err(why) => Found::Absent(why),
    }
}

/// A card by driver and PCI ids, with its busy counter where the driver has one.
fn of_card(prober: &Prober, dir: &Path, card: &str) -> Vec<Capability> {
    let text = |file: &str| prober.text(&dir.join(file));
    let driver = text("uevent").and_then(|t| t.lines().find_map(|l| l.strip_prefix("DRIVER=").map(str::to_owned)));
    let ids = text("vendor").zip(text("device")).map(|(vendor, device)| format!("{vendor}:{device}"));
    let facts = facts([("driver", driver), ("pci_id", ids)]);
    let there = if facts.is_empty() { Found::Absent(absent(Cause::Failed, "neither driver nor ids can be read")) } else { is_there(facts) };
    let mut entries = vec![capability(Family::Gpu, format!("gpu.{card}"), card, None, prober.shown(dir), there)];
    let busy = dir.join("gpu_busy_percent");
    if prober.exists(&busy) {
        let trial = prober.number(&busy, &(0..=100));
        entries.push(capability(Family::Gpu, format!("gpu.{card}.busy"), &format!("{card} busy"), Some("pct"), prober.shown(&busy), found(trial)));
    }
    entries
}
