//! GPUs of NVIDIA: management library, devices and tool, and everything that the library or the tool says of each.

use super::execute::Runner;
use super::trial::{Prober, absent};
use super::{NOT_EXECUTED, Surroundings, capability, facts, first_line, is_there};
use crate::gpu::{self, Looked, Means};
use isotherm_wire::inspect::Gpu;
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
    let library = LIBRARY_DIRS.iter().map(|dir| prober.at(dir).join("libnvidia-ml.so.1")).find(|path| prober.exists(path));
    let nodes: Vec<String> = prober.numbered(&prober.at("dev"), "nvidia", "").unwrap_or_default();
    let tool = around.program(prober, "nvidia-smi", &[prober.at("usr/lib/wsl/lib")]);
    let (looked, refusals) = if prober.is_live() { gpu::look() } else { (None, Vec::new()) };
    if library.is_none() && nodes.is_empty() && tool.is_none() && looked.is_none() && refusals.is_empty() {
        let why = absent(Cause::NotThere, "no NVIDIA driver: no libnvidia-ml.so.1, no /dev/nvidia*, no nvidia-smi");
        return vec![capability(Family::Gpu, "gpu.nvidia".into(), "NVIDIA", None, "/dev".into(), Found::Absent(why))];
    }
    let place = |path: &Option<PathBuf>, otherwise: &str| path.as_deref().map_or_else(|| otherwise.to_owned(), |path| prober.shown(path));
    let missing = |what: &str| Found::Absent(absent(Cause::NotThere, what));
    let refused = |is_meant: fn(&Means) -> bool| refusals.iter().find(|(means, _)| is_meant(means)).map(|(_, why)| why.clone());
    let by_companion = looked.as_ref().filter(|looked| matches!(looked.means, Means::Companion(_)));
    let (library_source, library_found) = match (by_companion, refused(|means| matches!(means, Means::Companion(_)))) {
        (Some(Looked { gpus, .. }), _) => (gpus.source.clone(), is_there(facts([("driver", gpus.driver.clone())]))),
        (_, Some(why)) => (place(&library, "libnvidia-ml.so.1"), Found::Absent(why)),
        _ if library.is_none() => ("/usr/lib".into(), missing("no libnvidia-ml.so.1 in the usual directories")),
        // It is there, and this agent came without a companion to load it.
        _ if prober.is_live() => (place(&library, "/usr/lib"), Found::Absent(absent(Cause::NotTried, "no companion was installed to load it"))),
        _ => (place(&library, "/usr/lib"), is_there(BTreeMap::new())),
    };
    let nodes_found = if nodes.is_empty() { missing("no /dev/nvidia*") } else { is_there(facts([("devices", Some(nodes.join(", ")))])) };
    let tool_found = match &tool {
        None => missing("no nvidia-smi on the path"),
        Some(tool) => smi(tool, runner),
    };
    let mut entries = vec![
        capability(Family::Gpu, "gpu.nvidia.library".into(), "NVIDIA management library", None, library_source, library_found),
        capability(Family::Gpu, "gpu.nvidia.devices".into(), "NVIDIA devices", None, "/dev".into(), nodes_found),
        capability(Family::Gpu, "gpu.nvidia.smi".into(), "nvidia-smi", None, place(&tool, "nvidia-smi"), tool_found),
    ];
    entries.extend(looked.into_iter().flat_map(of_looked));
    entries
}

/// Each GPU with what it is, and everything that can be read of it.
fn of_looked(looked: Looked) -> Vec<Capability> {
    let of_gpu = |gpu: &Gpu| {
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let flag = |on: Option<bool>| on.map(|on| if on { "on" } else { "off" }.to_owned());
        let facts = facts([
            ("name", gpu.name.clone()),
            ("uuid", gpu.uuid.clone()),
            ("driver", gpu.driver.clone()),
            ("compute_capability", gpu.compute_capability.clone()),
            ("memory_bytes", gpu.memory_bytes.map(|bytes| bytes.to_string())),
            ("pcie_generation", number(gpu.pcie_generation)),
            ("pcie_width", number(gpu.pcie_width)),
            ("pcie_max_generation", number(gpu.pcie_max_generation)),
            ("pcie_max_width", number(gpu.pcie_max_width)),
            ("power_limit_w", gpu.power_limit_w.map(|watts| watts.to_string())),
            ("power_limit_default_w", gpu.power_limit_default_w.map(|watts| watts.to_string())),
            ("ecc", flag(gpu.ecc)),
            ("persistence", flag(gpu.persistence)),
        ]);
        let id = format!("gpu.{}", gpu.subject).replace(' ', "");
        let recorded = true;
        Capability { recorded, ..capability(Family::Gpu, id, &gpu.subject, None, looked.gpus.source.clone(), is_there(facts)) }
    };
    let gpus: Vec<Capability> = looked.gpus.gpus.iter().map(of_gpu).collect();
    gpus.into_iter().chain(looked.entries.into_iter().map(|entry| entry.capability)).collect()
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
