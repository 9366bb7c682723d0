//! The text of a first campaign.

use crate::report::Foreign;
use isotherm_wire::inspect::Machine;
use isotherm_wire::search::ModelFile;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Column of the comments behind the keys.
const COMMENT_COLUMN: usize = 36;
/// A run of `builtin` shall take about so long at one thread, without warm-up.
const BUILTIN_RUN: Duration = Duration::from_secs(4);
const BUILTIN_ROUNDS: u32 = 8;

/// Where it runs.
#[derive(Debug)]
pub struct Device {
    pub id: String,
    /// Its transport as it stands in a campaign: `local: {}`.
    pub reached: String,
    /// `this machine`
    pub called: String,
    /// `isotherm probe`
    pub probe: String,
    /// Directory of the campaign, where it is the device's as well: paths below it are relative.
    pub dir: Option<PathBuf>,
}

/// What a campaign is made of.
#[derive(Debug)]
pub struct Campaign<'a> {
    pub name: &'a str,
    /// The file as it is named in commands.
    pub file: &'a str,
    pub device: &'a Device,
    pub machine: &'a Machine,
    pub machine_line: &'a str,
    /// Models that the builtin engine runs, with the time of one inference.
    pub onnx: Vec<(&'a ModelFile, Duration)>,
    pub gguf: Vec<&'a ModelFile>,
    pub llama_bench: Option<&'a str>,
    /// What is there and isn't used: a line each.
    pub remarks: Vec<String>,
}

/// The campaign file.
#[must_use]
pub fn compose(campaign: &Campaign<'_>) -> String {
    let Campaign { name, file, .. } = campaign;
    let mut ids = BTreeSet::new();
    let onnx: Vec<(String, &ModelFile)> = campaign.onnx.iter().map(|(model, _)| (id(Path::new(&model.path), &mut ids), *model)).collect();
    let gguf: Vec<(String, &ModelFile)> = campaign.gguf.iter().map(|model| (id(Path::new(&model.path), &mut ids), *model)).collect();
    let mut text = format!(
        "# A first campaign, written by `isotherm init` for {}: {}\n#\n\
         #   isotherm plan {file}    what it expands to; nothing runs\n\
         #   isotherm run {file}     runs what has no result yet; call it again to go on\n\
         #   isotherm report results/{name}\n#\n\
         # It is yours to change: what changes runs again, and nothing else does. `isotherm reference campaign` lists every key.\n\n",
        comment(&campaign.device.called),
        comment(campaign.machine_line)
    );
    text += &line(0, &format!("campaign: {}", scalar(name)), "names the results directory");
    text += "\ndevices:\n";
    let Device { id: device, reached, called, probe, dir } = campaign.device;
    let llama_bench = campaign.llama_bench.filter(|_| !gguf.is_empty());
    let builds = llama_bench.map_or_else(String::new, |tool| format!(", builds: {{ llama: {{ llama_bench: {} }} }}", quoted(tool)));
    text += &line(1, &format!("{}: {{ {reached}{builds} }}", scalar(device)), &comment(&format!("{called}; `{probe}` says what it can measure")));
    if !onnx.is_empty() || !gguf.is_empty() {
        text += "\nmodels:\n";
        for (id, model) in onnx.iter().chain(&gguf) {
            text += &line(1, &format!("{id}: {{ path: {} }}", quoted(&path(model, dir.as_deref()))), &megabytes(model.bytes));
        }
    }
    text += "\ndefaults:\n";
    text += &line(1, "repetitions: 4", "runs of each point, each in a process of its own, interleaved");
    text += &line(1, "timeout: 10m", "of one run; what takes longer is ended and recorded as failed");
    text += &line(1, "prepare: { settle: 1s }", "wait before each run; give a board that gets hot more");
    text += "\nmatrix:\n";
    let threads = threads(campaign.machine);
    let mut blocks = Vec::new();
    if !onnx.is_empty() {
        blocks.push(builtin(campaign, &onnx, &threads));
    }
    if llama_bench.is_some() {
        blocks.push(llama(&scalar(device), &gguf, &threads));
    }
    if blocks.is_empty() {
        blocks.push(stand_in(&scalar(device)));
    }
    text += &blocks.join("\n");
    if !campaign.remarks.is_empty() {
        text += "\n# Also found:\n";
        for remark in &campaign.remarks {
            text += &format!("# * {}\n", comment(remark));
        }
    }
    text
}

fn builtin(campaign: &Campaign<'_>, models: &[(String, &ModelFile)], threads: &[u32]) -> String {
    let device = scalar(&campaign.device.id);
    let slowest = campaign.onnx.iter().map(|(_, time)| *time).max().unwrap_or_default().max(Duration::from_micros(1));
    let per_round = BUILTIN_RUN.as_secs_f64() / f64::from(BUILTIN_ROUNDS) / slowest.as_secs_f64();
    // As many as fit, within what is neither too few for a median nor more than the default.
    let iterations = (per_round as u32).clamp(2, 60);
    let warmup = ((1.0 / slowest.as_secs_f64()) as u32).clamp(2, 10);
    let mut text = "  # ONNX models in the inference engine inside of isotherm's agent. Each was tried once and runs.\n".to_owned();
    text += &format!("  - devices: {device}\n");
    text += "    backend: builtin\n";
    text += &line(2, &format!("model: [{}]", names(models)), "a list is swept: a point for each value");
    text += &line(2, &format!("threads: [{}]", numbers(threads)), "");
    text += &line(2, &format!("warmup: {warmup}"), "inferences before the first timed one");
    text += &line(2, &format!("rounds: {BUILTIN_ROUNDS}"), "the result is the median of the rounds' medians");
    text += &line(2, &format!("iterations: {iterations}"), "inferences in a round");
    text += "    cooldown: 100ms\n";
    text
}

fn llama(device: &str, models: &[(String, &ModelFile)], threads: &[u32]) -> String {
    let mut text = "  # GGUF models in llama.cpp: how fast it reads a prompt and writes an answer, by its own benchmark.\n".to_owned();
    text += &format!("  - devices: {device}\n");
    text += "    backend: llama-bench\n";
    text += &line(2, &format!("model: [{}]", names(models)), "");
    text += &line(2, &format!("threads: [{}]", numbers(threads)), "");
    text += &line(2, "n_prompt: 64", "tokens of the prompt; 512 unless said otherwise");
    text += &line(2, "n_gen: 16", "tokens written, one after the other; 128 unless said otherwise");
    text
}

/// Where there is no model yet: something that every machine has and that takes a measurable time.
fn stand_in(device: &str) -> String {
    let mut text =
        "  # No model was found, so this measures something that every machine has: how long it takes to copy zeroes in memory.\n".to_owned();
    text += "  # Put an .onnx file here and call `isotherm init` again, or put your own program in place of `dd`.\n";
    text += &format!("  - devices: {device}\n");
    text += "    backend: command\n";
    text += &line(2, "params: { mib: [2048, 8192] }", "a list is swept: a point for each value");
    text += &line(2, "argv: [dd, if=/dev/zero, of=/dev/null, bs=1M, \"count={mib}\"]", "");
    text += "    metrics:\n";
    text += "      copy_s: { from: stderr, regex: ', ([0-9.e-]+) s', unit: s, better: lower }\n";
    text
}

/// From one thread to all cores that we may use.
fn threads(machine: &Machine) -> Vec<u32> {
    let limits = &machine.limits;
    let quota = limits.quota_cpus.map(|quota| quota as u32);
    let all = [machine.online_cpus, machine.physical_cores, quota, limits.cpuset_cpus, limits.affinity_cpus].into_iter().flatten().min();
    let all = all.unwrap_or(1).max(1);
    let mut threads = vec![1, all.div_ceil(2), all];
    threads.dedup();
    threads
}

fn line(level: usize, code: &str, remark: &str) -> String {
    let code = format!("{}{code}", "  ".repeat(level));
    if remark.is_empty() { format!("{code}\n") } else { format!("{code:COMMENT_COLUMN$} # {remark}\n") }
}

fn comment(text: &str) -> String {
    Foreign::new(text).terminal()
}

/// Double-quoted: JSON's escapes are YAML's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Plain where nobody can take it for a number or a truth value.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic()) && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain { text.to_owned() } else { quoted(text) }
}

/// A name for a model from its file's, which no other has.
fn id(path: &Path, taken: &mut BTreeSet<String>) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let clean: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).take(60).collect();
    let clean = clean.trim_start_matches(['.', '-']);
    let clean = if clean.is_empty() { "model" } else { clean };
    let candidates = std::iter::once(clean.to_owned()).chain((2..).map(|n| format!("{clean}-{n}")));
    let free = candidates.into_iter().find(|name| taken.insert(name.to_ascii_lowercase())).unwrap_or_default();
    scalar(&free)
}

fn names(models: &[(String, &ModelFile)]) -> String {
    models.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(", ")
}

fn numbers(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Relative to the campaign where it lies below it: the two can be moved together then.
fn path(model: &ModelFile, dir: Option<&Path>) -> String {
    let below = dir.and_then(|dir| Path::new(&model.path).strip_prefix(dir).ok()).map(|below| below.display().to_string());
    match below {
        // `~` and `-` in front would mean something.
        Some(below) if below.starts_with(|c: char| c.is_ascii_alphanumeric()) => below,
        Some(below) => format!("./{below}"),
        None => model.path.clone(),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use isotherm_wire::inspect::Limits;
    use isotherm_wire::search::{Format, first_of};
    use std::sync::LazyLock;

    fn machine(cpus: u32) -> Machine {
        Machine { online_cpus: Some(cpus), limits: Limits { affinity_cpus: Some(cpus), ..Limits::default() }, ..Machine::default() }
    }

    fn model(format: Format, path: &str) -> ModelFile {
        ModelFile { format, path: path.into(), bytes: 1_234_567 }
    }

    fn device() -> Device {
        let dir = Some("/work place".into());
        Device { id: "here".into(), reached: "local: {}".into(), called: "this machine".into(), probe: "isotherm probe".into(), dir }
    }

    /// The text, which has to be understood without a fault or a warning.
    #[track_caller]
    fn understood(campaign: &Campaign<'_>) -> (String, config::model::Campaign) {
        let text = compose(campaign);
        let read = config::parse(&text, Path::new("c.yaml")).unwrap_or_else(|e| panic!("{}\n{text}", e.render(false)));
        assert!(read.warnings.is_empty(), "{:?}\n{text}", read.warnings);
        (text, read)
    }

    fn campaign<'a>(machine: &'a Machine, models: &'a [ModelFile]) -> Campaign<'a> {
        static DEVICE: LazyLock<Device> = LazyLock::new(device);
        let onnx = models.iter().filter(|m| m.format == Format::Onnx).map(|m| (m, Duration::from_millis(2))).collect();
        Campaign {
            name: "c",
            file: "c.yaml",
            device: &DEVICE,
            machine,
            machine_line: "a machine\nwith two lines",
            onnx,
            gguf: first_of(models, Format::Gguf, 2).0,
            llama_bench: Some("/opt/it's \"here\"/llama-bench"),
            remarks: vec!["onnxruntime at /x\n- devices: there".into()],
        }
    }

    #[test]
    fn with_nothing_found_there_is_a_stand_in() {
        let machine = machine(1);
        let (text, read) = understood(&campaign(&machine, &[]));
        assert_eq!((read.blocks.len(), read.models.len()), (1, 0));
        assert!(text.contains("No model was found"), "{text}");
    }

    #[test]
    fn whatever_models_are_called_the_campaign_is_understood() {
        let onnx = ["/work place/a.onnx", "/work place/sub/a.onnx", "/elsewhere/true.onnx", "/work place/-x #1: \"q\".onnx", "/work place/~.onnx"];
        let gguf = ["/work place/7.gguf", "/models/Ünïcode model.gguf", "/models/….gguf"];
        let models: Vec<ModelFile> =
            onnx.map(|path| model(Format::Onnx, path)).into_iter().chain(gguf.map(|path| model(Format::Gguf, path))).collect();
        let machine = machine(4);
        let (text, read) = understood(&campaign(&machine, &models));
        let ids: Vec<&str> = read.models.keys().map(String::as_str).collect();
        assert_eq!(ids, ["a", "a-2", "true", "x--1---q-", "~".replace('~', "model").as_str(), "7", "n-code-model"], "{text}");
        let paths: Vec<&str> = read.models.values().filter_map(|m| m.path.as_deref()).collect();
        assert_eq!(paths[..3], ["a.onnx", "sub/a.onnx", "/elsewhere/true.onnx"]);
        assert_eq!(paths[3..5], ["./-x #1: \"q\".onnx", "./~.onnx"]);
        assert_eq!(read.blocks.len(), 2);
        assert!(text.contains("threads: [1, 2, 4]"), "{text}");
    }

    #[test]
    fn threads_end_at_what_may_be_used() {
        assert_eq!(threads(&machine(1)), [1]);
        assert_eq!(threads(&machine(2)), [1, 2]);
        assert_eq!(threads(&machine(6)), [1, 3, 6]);
        let mut quota = machine(8);
        quota.limits.quota_cpus = Some(0.5);
        assert_eq!(threads(&quota), [1]);
    }

    #[test]
    fn a_slow_model_makes_fewer_iterations_and_never_none() {
        let models = [model(Format::Onnx, "/m/slow.onnx")];
        let machine = machine(1);
        let slow = Campaign { onnx: vec![(&models[0], Duration::from_secs(9))], ..campaign(&machine, &models) };
        assert!(understood(&slow).0.contains("iterations: 2 "));
        let fast = Campaign { onnx: vec![(&models[0], Duration::ZERO)], ..campaign(&machine, &models) };
        assert!(understood(&fast).0.contains("iterations: 60 "));
    }
}
