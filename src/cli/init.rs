//! `isotherm init`.

use super::probe::{hint, this_machine};
use super::words::{count, duration, plain, program, shell_word};
use super::{InitArgs, complain, exit, print};
use crate::config::model::{Device, Ssh, Transport};
use crate::device::{self, DeviceError};
use crate::{config, init, plan, probe};
use isotherm_wire::inspect::Machine;
use isotherm_wire::probe::{Capability, Cause, ModelOutcome, PROBE_VERSION, ProbeRequest, Probed};
use isotherm_wire::search::{Finding, Format, ModelFile, Place, Search, first_of};
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
    let file = args.output.display().to_string();
    let dir = output_dir(&args.output)?;
    // Said before anything is searched; whether it is so still, writing it finds out.
    if !args.force && fs::symlink_metadata(&args.output).is_ok() {
        return Err(there_already(&args.output));
    }
    let (device, described) = match &args.target {
        Some(target) => there(target, &file)?,
        None => (this_machine(), here(dir)),
    };
    let mut probed = ask(&device, places(args)?)?;
    let finding = probed.found.take().unwrap_or_default();
    let chosen = Chosen::of(&finding, &probed);
    let name = name_of(&args.output);
    let text = chosen.compose(&name, &file, &described, &probed);
    let points = check(&text, &args.output)?;
    write(&args.output, &text, args.force)?;
    chosen.tell(&described.id, &finding, &probed);
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

/// This machine.
fn here(dir: PathBuf) -> init::Device {
    let (called, probe) = ("this machine".into(), "isotherm probe".into());
    init::Device { id: "here".into(), reached: "local: {}".into(), called, probe, dir: Some(dir) }
}

/// Another one: `[user@]host`, as `ssh` takes it.
fn there(target: &str, file: &str) -> Result<(Device, init::Device), Refusal> {
    let (user, host) = target.rsplit_once('@').map_or((None, target), |(user, host)| (Some(user), host));
    let letters = |text: &str, others: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c));
    let fits = |text: &str, others: &str| !text.is_empty() && !text.starts_with('-') && letters(text, others);
    if !fits(host, "_.:%-") || user.is_some_and(|user| !fits(user, "_.@+-")) {
        return Err(usage(format!("{target} is no machine that ssh could reach"), "isotherm init pi@board   # or a name of ~/.ssh/config"));
    }
    let id = if config::safe_name(host).is_ok() { host } else { "board" };
    let ssh = Ssh { host: host.to_owned(), user: user.map(str::to_owned), ..Ssh::default() };
    let user = user.map_or_else(String::new, |user| format!(", user: \"{user}\""));
    let described = init::Device {
        id: id.to_owned(),
        reached: format!("ssh: {{ host: \"{host}\"{user} }}"),
        called: target.to_owned(),
        probe: format!("isotherm probe {}", shell_word(file)),
        dir: None,
    };
    Ok((Device { id: id.to_owned(), transport: Transport::Ssh(ssh), ..this_machine() }, described))
}

/// Where models are looked for. Directories of this machine are absolute for its agent, and those that are named have to be there.
fn places(args: &InitArgs) -> Result<Vec<Place>, Refusal> {
    let place = |dir: &Path, depth, named| Place { dir: dir.display().to_string(), depth, named };
    let mut places = Vec::new();
    if args.target.is_some() {
        places.extend(args.models.iter().map(|dir| place(dir, DEPTH_NAMED, true)));
        places.extend([place(Path::new("~/models"), DEPTH_NAMED, false), place(Path::new("~"), DEPTH_HERE, false)]);
        return Ok(places);
    }
    if let Some((dir, error)) = args.models.iter().find_map(|dir| Some((dir, fs::read_dir(dir).err()?))) {
        return Err(usage(format!("failed to look into {}: {error}", dir.display()), "give --models a directory that holds .onnx or .gguf files"));
    }
    let here = std::env::current_dir().map_err(|e| usage(format!("failed to look around here: {e}"), "call it in a directory that is there"))?;
    places.extend(args.models.iter().map(|dir| place(&here.join(dir), DEPTH_NAMED, true)));
    places.extend([
        place(&here.join("models"), DEPTH_NAMED, false),
        place(Path::new("~/models"), DEPTH_NAMED, false),
        place(&here, DEPTH_HERE, false),
    ]);
    Ok(places)
}

fn ask(device: &Device, places: Vec<Place>) -> Result<Probed, Refusal> {
    let search = Some(Search { places, most_tried: init::MOST_TRIED });
    let request =
        ProbeRequest { probe_version: PROBE_VERSION, force: false, root: "/".into(), models: Vec::new(), search, needs: None, polling_hz: None };
    let refusal = |error| Refusal { message: DeviceError::to_string(&error), hint: init_hint(&error), code: exit::NO_DEVICE };
    device::probe(device, &request).map(|answer| answer.probed).map_err(refusal)
}

fn init_hint(error: &DeviceError) -> Option<String> {
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
            let Some(model) = finding.models.iter().find(|model| model.path == tried.path) else { continue };
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
        let mut gguf = if llama_bench.is_some() { first_of(&finding.models, Format::Gguf, init::MOST_GGUF).0 } else { Vec::new() };
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
        if let Some(there) = present("inference.llama-server") {
            remarks.push(format!("{} at {}: backend `llama-server` measures latency with it, see docs/llama.md", there.name, there.source));
        }
        if let Some(there) = present("inference.onnxruntime") {
            remarks.push(format!("{} at {}: a backend `onnx` for it is not in this build yet", there.name, there.source));
        }
        Chosen { onnx, gguf, llama_bench, failed, remarks }
    }

    fn compose(&self, name: &str, file: &str, device: &init::Device, probed: &Probed) -> String {
        let machine: &Machine = &probed.machine;
        init::compose(&init::Campaign {
            name,
            file: &shell_word(file),
            device,
            machine,
            machine_line: &probe::machine_line(machine),
            onnx: self.onnx.clone(),
            gguf: self.gguf.clone(),
            llama_bench: self.llama_bench,
            remarks: self.remarks.clone(),
        })
    }

    fn tell(&self, device: &str, finding: &Finding, probed: &Probed) {
        say!("{}: {}", plain(device), plain(&probe::machine_line(&probed.machine)));
        for (model, time) in &self.onnx {
            say!("  found     {} (one inference takes {})", plain(&model.path), inference(*time));
        }
        for model in &self.gguf {
            say!("  found     {} (not tried; {})", plain(&model.path), plain(self.llama_bench.unwrap_or_default()));
        }
        if self.onnx.is_empty() && self.gguf.is_empty() {
            say!("  found     no model that can run here: the campaign measures a stand-in");
        }
        let left_out = finding.left_out.iter().map(|(path, why)| (path.as_str(), why.as_str()));
        let failed = self.failed.iter().map(|(model, why)| (model.path.as_str(), *why));
        let left_out: Vec<(&str, &str)> = failed.chain(left_out).collect();
        for (path, why) in left_out.iter().take(MOST_LEFT_OUT) {
            say!("  left out  {}: {}", plain(path), plain(why));
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
