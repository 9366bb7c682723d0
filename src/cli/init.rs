//! `isotherm init`.

use super::probe::{hint, this_machine};
use super::words::{count, duration, plain, program, shell_word};
use super::{InitArgs, complain, exit, print};
use crate::init::{self, Finding, Format, ModelFile, Place};
use crate::{config, device, plan, probe};
use isotherm_wire::inspect::Machine;
use isotherm_wire::probe::{Capability, Cause, ModelOutcome, PROBE_VERSION, ProbeRequest, Probed};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directories deep: below the working directory, which may be anything, and below one that was named.
const DEPTH_HERE: usize = 3;
const DEPTH_NAMED: usize = 6;
/// Files named one by one that were left out.
const MOST_LEFT_OUT: usize = 8;

pub fn init(args: &InitArgs) -> u8 {
    match write_first(args) {
        Ok(path) => print(&format!("{path}\n")),
        Err(Refusal { message, hint, code }) => {
            complain(&message, hint.as_deref());
            code
        }
    }
}

struct Refusal {
    message: String,
    hint: Option<String>,
    code: u8,
}

fn usage(message: String, hint: &str) -> Refusal {
    Refusal { message, hint: Some(hint.to_owned()), code: exit::USAGE }
}

fn write_first(args: &InitArgs) -> Result<String, Refusal> {
    if let Some(target) = &args.target {
        let message = format!("a first campaign for another machine (`{target}`) is not in this build yet");
        return Err(usage(message, &format!("{} init   # on that machine itself, or without it for this one", program())));
    }
    let file = args.output.display().to_string();
    let dir = output_dir(&args.output)?;
    // Said before anything is searched; whether it is so still, writing it finds out.
    if !args.force && fs::symlink_metadata(&args.output).is_ok() {
        return Err(there_already(&args.output));
    }
    if let Some((dir, error)) = args.models.iter().find_map(|dir| Some((dir, fs::read_dir(dir).err()?))) {
        return Err(usage(format!("failed to look into {}: {error}", dir.display()), "give --models a directory that holds .onnx or .gguf files"));
    }

    let finding = init::find(&places(args), memory_bytes());
    let probed = ask(&finding)?;
    let chosen = Chosen::of(&finding, &probed);
    let name = name_of(&args.output);
    let text = chosen.compose(&name, &file, &dir, &probed);
    let points = check(&text, &args.output)?;
    write(&args.output, &text, args.force)?;
    chosen.tell(&finding, &probed);
    say!("wrote {}: {}", plain(&file), points);
    say!("next: {0} plan {1} && {0} run {1}", program(), shell_word(&args.output));
    Ok(file)
}

/// The directory that the file will be in, absolute. The file isn't there, or may be overwritten.
fn output_dir(output: &Path) -> Result<PathBuf, Refusal> {
    let shown = output.display();
    if output.file_name().is_none() || output.is_dir() {
        return Err(usage(format!("{shown} is a directory"), "name a file: isotherm init --output campaign.yaml"));
    }
    let dir = output.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::canonicalize(dir).map_err(|e| usage(format!("failed to write {shown}: {e}"), &format!("mkdir -p {}", shell_word(dir))))
}

fn places(args: &InitArgs) -> Vec<Place> {
    let mut places: Vec<Place> = args.models.iter().map(|dir| Place { dir: dir.clone(), depth: DEPTH_NAMED }).collect();
    places.push(Place { dir: "models".into(), depth: DEPTH_NAMED });
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()) {
        places.push(Place { dir: home.join("models"), depth: DEPTH_NAMED });
    }
    places.push(Place { dir: ".".into(), depth: DEPTH_HERE });
    places
}

/// `MemTotal`; larger models aren't looked at any further.
fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn ask(finding: &Finding) -> Result<Probed, Refusal> {
    let device = this_machine();
    let models = init::first_of(&finding.models, Format::Onnx, init::MOST_TRIED).0.iter().map(|model| model.path.display().to_string()).collect();
    let request = ProbeRequest { probe_version: PROBE_VERSION, force: false, root: "/".into(), models, needs: None, polling_hz: None };
    device::probe(&device, &request).map_err(|error| Refusal { message: error.to_string(), hint: init_hint(&error), code: exit::NO_DEVICE })
}

fn init_hint(error: &device::DeviceError) -> Option<String> {
    // `--force` means another thing here.
    hint(error).map(|hint| hint.split(", or look all the same").next().unwrap_or_default().to_owned())
}

/// What goes into the campaign, and what is said of the rest.
struct Chosen<'a> {
    onnx: Vec<(&'a ModelFile, Duration)>,
    gguf: Vec<&'a ModelFile>,
    llama_bench: Option<&'a str>,
    /// Models that were tried and don't run, with the reason.
    failed: Vec<(&'a ModelFile, &'a str)>,
    remarks: Vec<String>,
}

impl Chosen<'_> {
    fn of<'a>(finding: &'a Finding, probed: &'a Probed) -> Chosen<'a> {
        let all = |format| finding.models.iter().filter(|model| model.format == format).count();
        let (mut onnx, mut failed) = (Vec::new(), Vec::new());
        for tried in &probed.models {
            let Some(model) = finding.models.iter().find(|model| model.path.as_os_str() == tried.path.as_str()) else { continue };
            match &tried.outcome {
                ModelOutcome::Runs { inference_ns, .. } => onnx.push((model, Duration::from_nanos(*inference_ns))),
                ModelOutcome::Fails(why) => failed.push((model, why.reason.as_str())),
            }
        }
        onnx.truncate(init::MOST_ONNX);
        let present = |id: &str| probed.capabilities.iter().find(|c| c.id.starts_with(id) && c.present().is_some());
        // Placeholders are written with braces, variables with `$`.
        let writable = |c: &&Capability| !c.source.contains(['{', '}', '$']) && !c.source.chars().any(char::is_control);
        let llama_bench = present("inference.llama-bench").filter(writable).map(|c| c.source.as_str());
        let mut gguf = if llama_bench.is_some() { init::first_of(&finding.models, Format::Gguf, init::MOST_GGUF).0 } else { Vec::new() };
        // Of the whole memory only so much may be ours. An ONNX model that doesn't fit has failed its trial.
        if let Some(limit) = probed.machine.limits.memory_bytes {
            gguf.retain(|model| model.bytes <= limit);
        }

        let mut remarks = Vec::new();
        let untried = all(Format::Onnx).saturating_sub(onnx.len() + failed.len());
        if untried > 0 {
            remarks.push(format!("{}: add them under `models`", count(untried, "more ONNX model")));
        }
        match (all(Format::Gguf), llama_bench) {
            (0, None) => {}
            (0, Some(tool)) => remarks.push(format!("{tool}: with a .gguf file here, `isotherm init` writes a block for it")),
            (n, None) => {
                // One that is there and doesn't answer isn't mended by building another.
                let silent = probed.capabilities.iter().find(|c| c.id == "inference.llama-bench").and_then(|c| Some((&c.source, c.absent()?)));
                let why = match silent.filter(|(_, why)| why.cause != Cause::NotThere) {
                    Some((source, why)) => format!("{source} can't be used: {}", why.reason),
                    None => "no llama-bench: build llama.cpp, put it on PATH, and call `isotherm init` again".into(),
                };
                remarks.push(format!("{}, and {why}", count(n, "GGUF model")));
            }
            (n, Some(_)) if n > gguf.len() => remarks.push(format!("{}: add them under `models`", count(n - gguf.len(), "more GGUF model"))),
            _ => {}
        }
        for (id, backend) in [("inference.llama-server", "llama-server"), ("inference.onnxruntime", "onnx")] {
            if let Some(there) = present(id) {
                remarks.push(format!("{} at {}: a backend `{backend}` for it is not in this build yet", there.name, there.source));
            }
        }
        Chosen { onnx, gguf, llama_bench, failed, remarks }
    }

    fn compose(&self, name: &str, file: &str, dir: &Path, probed: &Probed) -> String {
        let machine: &Machine = &probed.machine;
        init::compose(&init::Campaign {
            name,
            file: &shell_word(file),
            dir,
            machine,
            machine_line: &probe::machine_line(machine),
            onnx: self.onnx.clone(),
            gguf: self.gguf.clone(),
            llama_bench: self.llama_bench,
            remarks: self.remarks.clone(),
        })
    }

    fn tell(&self, finding: &Finding, probed: &Probed) {
        say!("here: {}", plain(&probe::machine_line(&probed.machine)));
        for (model, time) in &self.onnx {
            say!("  found     {} (one inference takes {})", plain(&model.path.display().to_string()), inference(*time));
        }
        for model in &self.gguf {
            say!("  found     {} (not tried; {})", plain(&model.path.display().to_string()), plain(self.llama_bench.unwrap_or_default()));
        }
        if self.onnx.is_empty() && self.gguf.is_empty() {
            say!("  found     no model that can run here: the campaign measures a stand-in");
        }
        let left_out = finding.left_out.iter().map(|(path, why)| (path.as_path(), why.as_str()));
        let failed = self.failed.iter().map(|(model, why)| (model.path.as_path(), *why));
        let left_out: Vec<(&Path, &str)> = failed.chain(left_out).collect();
        for (path, why) in left_out.iter().take(MOST_LEFT_OUT) {
            say!("  left out  {}: {}", plain(&path.display().to_string()), plain(why));
        }
        if left_out.len() > MOST_LEFT_OUT {
            say!("  left out  {} more", left_out.len() - MOST_LEFT_OUT);
        }
        for remark in &self.remarks {
            say!("  also      {}", plain(remark));
        }
        if finding.cut_short {
            say!("  note      not every directory was looked at: there are too many; name yours with --models DIR");
        }
    }
}

fn inference(time: Duration) -> String {
    if time < Duration::from_secs(2) { format!("{:.3} ms", time.as_secs_f64() * 1e3) } else { duration(time) }
}

/// The file's stem, if it can be a campaign's name as it stands, with what can't be in one left out.
fn name_of(output: &Path) -> String {
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let name: String = stem.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(100).collect();
    let name = name.trim_start_matches('.').to_owned();
    if name.is_empty() { "campaign".into() } else { name }
}

/// What is written is understood and has points; otherwise nothing is written.
fn check(text: &str, output: &Path) -> Result<String, Refusal> {
    let own = |message: String| Refusal { message, hint: None, code: exit::INTERNAL };
    let campaign = config::parse(text, output).map_err(|e| own(format!("the campaign made here is not understood:\n{}", e.render(false))))?;
    let plan = plan::expand::expand(&campaign, &std::collections::BTreeMap::new())
        .map_err(|e| own(format!("the campaign made here does not expand: {e}")))?;
    let runs: u32 = plan.points.iter().map(|point| point.settings.repetitions).sum();
    Ok(format!("{}, {}", count(plan.points.len(), "point"), count(runs as usize, "run")))
}

/// Whole or not at all; an existing file only with `--force`.
fn write(output: &Path, text: &str, force: bool) -> Result<(), Refusal> {
    let failed = |e: io::Error| usage(format!("failed to write {}: {e}", output.display()), "choose another place: isotherm init --output FILE");
    if force {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = output.with_file_name(name);
        let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, output));
        return written.map_err(|e| {
            let _ = fs::remove_file(&temporary);
            failed(e)
        });
    }
    let mut file = File::create_new(output).map_err(|e| if e.kind() == io::ErrorKind::AlreadyExists { there_already(output) } else { failed(e) })?;
    file.write_all(text.as_bytes()).map_err(|e| {
        let _ = fs::remove_file(output);
        failed(e)
    })
}

fn there_already(output: &Path) -> Refusal {
    let message = format!("{} is there already, and was left as it is", output.display());
    let command = format!("{} init --output {} --force", program(), shell_word(output));
    usage(message, &format!("{command}   # overwrites it; or choose another name"))
}
