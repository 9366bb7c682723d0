//! What can infer here: the engine inside the agent, ONNX Runtime's library, llama.cpp's tools.

use super::execute::Runner;
use super::gpu::LIBRARY_DIRS;
use super::trial::{Prober, absent};
use super::{NOT_EXECUTED, Surroundings, capability, facts, first_line, is_there};
use crate::task;
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, ModelOutcome, TriedModel};
use isotherm_wire::task::{InferOutput, InferTask};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A tool states its version within this time; one that loads a GPU's libraries first takes seconds.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// Loading a model and two inferences of it.
const MODEL_LIMIT: Duration = Duration::from_secs(20);
/// Below a home or /opt, where people build llama.cpp.
const BUILD_DIRS: [&str; 4] = ["llama.cpp/build/bin", "llama.cpp/build", "llama.cpp", "src/llama.cpp/build/bin"];
/// Most copies of ONNX Runtime that are named.
const MOST_LIBRARIES: usize = 16;

pub fn entries(prober: &Prober, around: &Surroundings, runner: &Runner) -> Vec<Capability> {
    let (name, version, revision) = task::infer::engine_identity();
    let engine = is_there(facts([("engine", Some(name.into())), ("version", Some(version.into())), ("revision", Some(revision.to_string()))]));
    let mut entries = vec![capability(Family::Inference, "inference.builtin".into(), "builtin", None, "the agent".into(), engine)];
    entries.extend(onnxruntime(prober, around));
    entries.extend(["llama-bench", "llama-server"].map(|tool| llama(prober, around, runner, tool)));
    entries
}

fn onnxruntime(prober: &Prober, around: &Surroundings) -> Vec<Capability> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut entries = Vec::new();
    let entry = |id: String, path: &Path, found: Found| capability(Family::Inference, id, "onnxruntime", None, prober.shown(path), found);
    if let Some(path) = &around.onnxruntime {
        if prober.exists(path) {
            found.push(path.clone());
        } else {
            let why = absent(Cause::NotThere, "ORT_DYLIB_PATH names it, and there is no such file");
            entries.push(entry("inference.onnxruntime.env".into(), path, Found::Absent(why)));
        }
    }
    for dir in LIBRARY_DIRS.map(|dir| prober.at(dir)).into_iter().chain(wheels(prober, around)) {
        let names = prober.names(&dir).unwrap_or_default();
        // The versioned name first: it says which one it is; the plain one is usually a link to it.
        let name = names.iter().find(|n| n.starts_with("libonnxruntime.so.")).or_else(|| names.iter().find(|n| *n == "libonnxruntime.so"));
        if let Some(path) = name.map(|name| dir.join(name)).filter(|path| prober.exists(path) && !found.contains(path)) {
            found.push(path);
        }
    }
    for (index, path) in found.iter().take(MOST_LIBRARIES).enumerate() {
        let version = path.file_name().and_then(|name| name.to_str()?.strip_prefix("libonnxruntime.so."));
        entries.push(entry(format!("inference.onnxruntime.{index}"), path, is_there(facts([("version", version.map(str::to_owned))]))));
    }
    if entries.is_empty() {
        let why = absent(Cause::NotThere, "no libonnxruntime.so in the library directories and Python's site-packages");
        entries.push(entry("inference.onnxruntime".into(), Path::new("libonnxruntime.so"), Found::Absent(why)));
    }
    entries
}

/// `onnxruntime/capi` of every Python that can be found.
fn wheels(prober: &Prober, around: &Surroundings) -> Vec<PathBuf> {
    let mut libs: Vec<PathBuf> = vec![prober.at("usr/lib"), prober.at("usr/local/lib"), prober.at("usr/lib64")];
    libs.extend(around.homes.iter().map(|home| home.join(".local/lib")));
    let pyenvs = around.homes.iter().map(|home| home.join(".pyenv")).chain(around.python_roots.iter().cloned());
    for root in pyenvs {
        libs.push(root.join("lib"));
        let versions = root.join("versions");
        libs.extend(prober.names(&versions).unwrap_or_default().iter().map(|version| versions.join(version).join("lib")));
    }
    // Virtual environments right below a home.
    libs.extend(around.homes.iter().flat_map(|home| ["venv", ".venv", "env"].map(|venv| home.join(venv).join("lib"))));
    let mut capis = Vec::new();
    for lib in libs {
        for python in prober.names(&lib).unwrap_or_default().into_iter().filter(|name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                capis.push(lib.join(&python).join(packages).join("onnxruntime/capi"));
            }
        }
    }
    capis.retain(|dir| prober.exists(dir));
    capis.dedup();
    capis
}

fn llama(prober: &Prober, around: &Surroundings, runner: &Runner, tool: &str) -> Capability {
    let roots = around.homes.iter().cloned().chain(["opt", "usr/local/src", "srv"].map(|dir| prober.at(dir)));
    let elsewhere: Vec<PathBuf> = roots.flat_map(|root| BUILD_DIRS.map(|dir| root.join(dir))).collect();
    let id = format!("inference.{tool}");
    let Some(program) = around.program(prober, tool, &elsewhere) else {
        let why = absent(Cause::NotThere, "neither on the path nor where llama.cpp is usually built");
        return capability(Family::Inference, id, tool, None, tool.into(), Found::Absent(why));
    };
    let found = match runner.run(&[&program.display().to_string(), "--version"], None, VERSION_LIMIT) {
        Ok(output) => {
            let said = format!("{}\n{}", output.stderr, output.stdout);
            let version = said.lines().map(str::trim).find(|line| line.starts_with("version")).map(str::to_owned);
            match version.or_else(|| first_line(&said)) {
                Some(line) if output.ok => is_there(facts([("version", first_line(line.trim_start_matches("version:").trim()))])),
                // Older builds know no such option and say so; they are there all the same.
                Some(line) if line.contains("--version") => is_there(BTreeMap::new()),
                said => Found::Absent(absent(Cause::Failed, &said.and_then(|s| first_line(&s)).unwrap_or_else(|| "it fails without a word".into()))),
            }
        }
        Err(why) if why.cause == Cause::NotTried => is_there(facts([("says", Some(NOT_EXECUTED.into()))])),
        Err(why) => Found::Absent(why),
    };
    capability(Family::Inference, id, tool, None, prober.shown(&program), found)
}

/// One inference in a child of its own, after a first one.
pub fn try_model(prober: &Prober, runner: &Runner, path: &str) -> TriedModel {
    let outcome = infer(prober, runner, path).unwrap_or_else(ModelOutcome::Fails);
    TriedModel { path: path.to_owned(), outcome }
}

fn infer(prober: &Prober, runner: &Runner, path: &str) -> Result<ModelOutcome, Absent> {
    if !prober.exists(Path::new(path)) {
        return Err(absent(Cause::NotThere, "no such file"));
    }
    let task = InferTask { model: path.to_owned(), threads: 1, warmup: 1, rounds: 1, iterations: 1, window: None, cooldown_ms: 0, seed: 1 };
    let stdin = serde_json::to_string(&task).map_err(|e| absent(Cause::Failed, &e.to_string()))?;
    let output = runner.run(&["/proc/self/exe", "infer"], Some(stdin), MODEL_LIMIT)?;
    if !output.ok {
        let said = first_line(&output.stderr).unwrap_or_else(|| "the engine ended without a word".into());
        let said = said.trim_start_matches("isotherm-agent: ");
        // Which model it is stands beside the reason.
        let said = said.strip_prefix(&format!("model {path}: ")).unwrap_or(said);
        return Err(absent(Cause::Failed, said));
    }
    let answer: InferOutput = serde_json::from_str(&output.stdout).map_err(|e| absent(Cause::Garbage, &e.to_string()))?;
    let inference_ns = answer.rounds_ns.first().and_then(|round| round.first().copied());
    let inference_ns = inference_ns.ok_or_else(|| absent(Cause::Garbage, "no inference was timed"))?;
    Ok(ModelOutcome::Runs { load_ns: answer.load_ns, inference_ns })
}
