//! `nvidia-smi` as one who can be asked like the companion: a role of the agent of its own, beside the keeper, that executes it.
//!
//! Takes questions as frames, gives what the tool says in the companion's units. An execution costs tens of milliseconds of a CPU, so
//! there is one a second at the most, and whatever it said is said once: between two of them there is no value, and none is repeated.

use crate::sys;
use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::companion::{Answer, COMPANION_VERSION, ComputeProcess, Getter, Gpus, Question};
use isotherm_wire::inspect::Gpu;
use isotherm_wire::probe::{Absent, Cause};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One execution; a driver that has to wake its device first takes seconds.
pub const LIMIT: Duration = Duration::from_secs(8);
/// Between two executions for values, ns.
const EVERY_NS: u64 = 1_000_000_000;
/// And between two for the list of processes, ns.
const PROCESSES_EVERY_NS: u64 = 5_000_000_000;
/// Output taken of it, bytes.
const MOST_BYTES: u64 = 1 << 20;

/// What is asked about a GPU as such.
const FACTS: [&str; 13] = [
    "index",
    "uuid",
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "pcie.link.gen.current",
    "pcie.link.width.current",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "enforced.power.limit",
    "power.default_limit",
    "ecc.mode.current",
];
const PERSISTENCE: &str = "persistence_mode";

/// The tool's field for a value; `None` where it has none.
pub fn field(getter: Getter) -> Option<&'static str> {
    match getter {
        Getter::Energy => None,
        Getter::Power => Some("power.draw"),
        Getter::Temperature => Some("temperature.gpu"),
        Getter::GraphicsClock => Some("clocks.gr"),
        Getter::MemoryClock => Some("clocks.mem"),
        Getter::Reasons => Some("clocks_throttle_reasons.active"),
        Getter::Busy => Some("utilization.gpu"),
        Getter::MemoryUsed => Some("memory.used"),
    }
}

pub fn main(args: Vec<OsString>) -> Result<(), String> {
    let [program] = args.as_slice() else { return Err("usage: isotherm-agent smi PROGRAM".into()) };
    let fields = FACTS.into_iter().chain([PERSISTENCE]).chain(Getter::ALL.into_iter().filter_map(field)).collect();
    let mut smi = Smi { program: program.into(), fields, ..Smi::default() };
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout());
    while let Some(frame) = read_frame(&mut stdin).map_err(|e| e.to_string())? {
        let question = frame.message().map_err(|e| e.to_string())?;
        let answer = smi.answer(&question).unwrap_or_else(Answer::Absent);
        write_message(&mut stdout, &answer).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// field → what the tool says of one GPU, until it is told.
type Row = HashMap<&'static str, String>;

#[derive(Default)]
struct Smi {
    program: PathBuf,
    /// Those that this version of the tool knows.
    fields: Vec<&'static str>,
    rows: Vec<Row>,
    asked_ns: Option<u64>,
    /// GPU → its processes, until they are told.
    processes: HashMap<u32, Vec<ComputeProcess>>,
    asked_processes_ns: Option<u64>,
    /// It didn't answer in time, and isn't asked again: it would cost as much every time.
    hung: Option<Absent>,
}

impl Smi {
    fn answer(&mut self, question: &Question) -> Result<Answer, Absent> {
        if let Some(why) = &self.hung {
            return Err(why.clone());
        }
        let answer = self.ask_for(question);
        self.hung = answer.as_ref().err().filter(|why| why.cause == Cause::NoAnswer).cloned();
        answer
    }

    fn ask_for(&mut self, question: &Question) -> Result<Answer, Absent> {
        match question {
            Question::Gpus => {
                self.asked_processes_ns = None;
                self.ask()?;
                let driver = self.rows.first().and_then(|row| row.get("driver_version").cloned());
                let gpus = self.rows.iter().zip(0..).map(|(row, index)| gpu(row, index)).collect();
                Ok(Answer::Gpus(Gpus { companion_version: COMPANION_VERSION, source: self.program.display().to_string(), driver, gpus }))
            }
            Question::Read { gpu, getter } => {
                if is_due(self.asked_ns, EVERY_NS) {
                    self.ask()?;
                }
                let field = field(*getter).ok_or_else(|| absent(Cause::NotThere, "nvidia-smi has no such field"))?;
                if !self.fields.contains(&field) {
                    return Err(absent(Cause::NotThere, "this nvidia-smi has no such field"));
                }
                let row = self.rows.get_mut(*gpu as usize).ok_or_else(|| absent(Cause::NotThere, "there is no such GPU any more"))?;
                let text = row.remove(field).ok_or_else(|| absent(Cause::NotTried, "nvidia-smi is asked once a second"))?;
                value(*getter, &text).map(Answer::Value)
            }
            Question::Processes { gpu } => {
                if is_due(self.asked_processes_ns, PROCESSES_EVERY_NS) {
                    self.ask_for_processes()?;
                }
                let processes = self.processes.remove(gpu).ok_or_else(|| absent(Cause::NotTried, "nvidia-smi lists them every 5 s"))?;
                Ok(Answer::Processes(processes))
            }
        }
    }

    /// All fields of all GPUs. A field that this version doesn't know fails the whole query, and is left out from then on.
    fn ask(&mut self) -> Result<(), Absent> {
        self.asked_ns = Some(sys::monotonic_ns());
        self.rows.clear();
        loop {
            let query = format!("--query-gpu={}", self.fields.join(","));
            let said = match self.execute(&query) {
                Ok(said) => said,
                Err(why) => match self.fields.iter().position(|field| why.reason.contains(&format!("\"{field}\" is not a valid field"))) {
                    Some(at) => {
                        self.fields.remove(at);
                        continue;
                    }
                    None => return Err(why),
                },
            };
            let row = |line: &str| self.fields.iter().copied().zip(line.split(", ").map(|text| text.trim().to_owned())).collect();
            self.rows = said.lines().filter(|line| !line.trim().is_empty()).map(row).collect();
            return Ok(());
        }
    }

    fn ask_for_processes(&mut self) -> Result<(), Absent> {
        self.asked_processes_ns = Some(sys::monotonic_ns());
        self.processes.clear();
        let said = self.execute("--query-compute-apps=gpu_uuid,pid,used_memory")?;
        let of: Vec<(String, u32)> = self.rows.iter().zip(0..).filter_map(|(row, index)| Some((row.get("uuid")?.clone(), index))).collect();
        self.processes = of.iter().map(|(_, index)| (*index, Vec::new())).collect();
        for line in said.lines() {
            let mut texts = line.split(", ").map(str::trim);
            let (Some(uuid), Some(pid), used) = (texts.next(), texts.next().and_then(|pid| pid.parse().ok()), texts.next()) else { continue };
            let Some((_, index)) = of.iter().find(|(of, _)| of == uuid) else { continue };
            let memory_bytes = used.and_then(|mib| mib.parse::<u64>().ok()).map(|mib| mib << 20);
            self.processes.entry(*index).or_default().push(ComputeProcess { pid, memory_bytes });
        }
        Ok(())
    }

    /// What it prints; it ends with its time, with our input, and with us.
    fn execute(&self, query: &str) -> Result<String, Absent> {
        let mut command = Command::new(&self.program);
        command.args([query, "--format=csv,noheader,nounits"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: async-signal-safe.
        unsafe { command.pre_exec(|| sys::die_with_parent(libc::SIGKILL)) };
        let mut child = command.spawn().map_err(|e| absent(Cause::Failed, &e.to_string()))?;
        let said = take(&mut child);
        if said.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|e| absent(Cause::Failed, &e.to_string()))?;
        let said = said?;
        if status.success() {
            return Ok(said);
        }
        let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it fails without a word");
        Err(absent(Cause::Failed, &line.chars().take(200).collect::<String>()))
    }
}

/// All output of the tool, unless its time is over or nobody asks any more: then this process ends with it.
fn take(child: &mut Child) -> Result<String, Absent> {
    let Some(mut stdout) = child.stdout.take() else { return Err(absent(Cause::Failed, "its output is not there")) };
    let until_ns = sys::monotonic_ns() + LIMIT.as_nanos() as u64;
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let left = until_ns.saturating_sub(sys::monotonic_ns());
        // While a question is open none is asked: what comes in is the end.
        let ready = sys::poll_readable(&[stdout.as_raw_fd(), io::stdin().as_raw_fd()], Some(left));
        if ready[1] {
            let _ = child.kill();
            std::process::exit(0);
        }
        if !ready[0] {
            return Err(absent(Cause::NoAnswer, &format!("no answer within {} s", LIMIT.as_secs())));
        }
        match stdout.read(&mut chunk) {
            Ok(0) => return Ok(String::from_utf8_lossy(&said).into_owned()),
            Ok(n) if (said.len() + n) as u64 <= MOST_BYTES => said.extend_from_slice(&chunk[..n]),
            Ok(_) => return Err(absent(Cause::Garbage, &format!("it says more than {MOST_BYTES} bytes"))),
            Err(e) => return Err(absent(Cause::Failed, &e.to_string())),
        }
    }
}

fn is_due(asked_ns: Option<u64>, every_ns: u64) -> bool {
    asked_ns.is_none_or(|asked| sys::monotonic_ns().saturating_sub(asked) >= every_ns)
}

fn absent(cause: Cause, reason: &str) -> Absent {
    Absent { cause, reason: reason.to_owned() }
}

/// A field's text, unless the tool says there that it has none: `[N/A]`, `[Not Supported]`.
fn known(text: &str) -> Result<&str, Absent> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    match inner {
        "" => Err(absent(Cause::Garbage, "it is empty")),
        "N/A" | "Not Supported" | "Not Available" | "Unknown Error" | "GPU is lost" => Err(absent(Cause::NotThere, inner)),
        _ => Ok(text),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Absent> {
    let text = known(text)?;
    text.parse().map_err(|_| absent(Cause::Garbage, &format!("reads {text:?}, which is not a number")))
}

/// In the getter's unit: the tool has W and MiB.
fn value(getter: Getter, text: &str) -> Result<u64, Absent> {
    match getter {
        Getter::Power => number::<f64>(text).map(|watts| (watts * 1e3).round() as u64),
        Getter::MemoryUsed => number::<u64>(text).map(|mib| mib << 20),
        Getter::Reasons => {
            let text = known(text)?;
            let bits = u64::from_str_radix(text.trim_start_matches("0x"), 16);
            bits.map_err(|_| absent(Cause::Garbage, &format!("reads {text:?}, which is no hexadecimal number")))
        }
        Getter::Energy | Getter::Temperature | Getter::GraphicsClock | Getter::MemoryClock | Getter::Busy => number(text),
    }
}

fn gpu(row: &Row, index: u32) -> Gpu {
    let mut absents = BTreeMap::new();
    let mut gpu = Gpu { index, ..Gpu::default() };
    macro_rules! set {
        ($field:ident, $name:expr, $read:expr) => {
            let text = row.get($name).ok_or_else(|| absent(Cause::NotThere, "this nvidia-smi has no such field"));
            match text.and_then(|text| $read(text)) {
                Ok(value) => gpu.$field = Some(value),
                Err(why) => _ = absents.insert(stringify!($field).to_owned(), why.reason),
            }
        };
    }
    let text = |text: &String| known(text).map(str::to_owned);
    let is_enabled = |text: &String| known(text).map(|text| text == "Enabled");
    set!(name, "name", text);
    set!(uuid, "uuid", text);
    set!(driver, "driver_version", text);
    set!(compute_capability, "compute_cap", text);
    set!(memory_bytes, "memory.total", |text: &String| number::<u64>(text).map(|mib| mib << 20));
    set!(pcie_generation, "pcie.link.gen.current", |text: &String| number(text));
    set!(pcie_width, "pcie.link.width.current", |text: &String| number(text));
    set!(pcie_max_generation, "pcie.link.gen.max", |text: &String| number(text));
    set!(pcie_max_width, "pcie.link.width.max", |text: &String| number(text));
    set!(power_limit_w, "enforced.power.limit", |text: &String| number(text));
    set!(power_limit_default_w, "power.default_limit", |text: &String| number(text));
    set!(ecc, "ecc.mode.current", is_enabled);
    set!(persistence, PERSISTENCE, is_enabled);
    gpu.subject = Gpu::subject_of(index, gpu.uuid.as_deref());
    gpu.absent = absents;
    gpu
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_it_has_not_is_absent_in_its_own_words_and_units_are_ours() {
        assert_eq!(value(Getter::Power, "15.237"), Ok(15_237));
        assert_eq!(value(Getter::MemoryUsed, "512"), Ok(512 << 20));
        assert_eq!(value(Getter::Reasons, "0x0000000000000028"), Ok(0x28));
        assert_eq!(value(Getter::Temperature, "[N/A]").unwrap_err().reason, "N/A");
        assert_eq!(value(Getter::Power, "[Not Supported]").unwrap_err().cause, Cause::NotThere);
        assert_eq!(value(Getter::Busy, "[Unknown Error]").unwrap_err().reason, "Unknown Error");
        assert_eq!(value(Getter::Busy, "many").unwrap_err().cause, Cause::Garbage);
        let row: Row = [("uuid", "GPU-5b3c7f0a-1111-2222-3333-444455556666"), ("ecc.mode.current", "[N/A]"), (PERSISTENCE, "Enabled")]
            .map(|(name, text)| (name, text.to_owned()))
            .into();
        let gpu = gpu(&row, 3);
        assert_eq!((gpu.subject.as_str(), gpu.persistence, gpu.ecc), ("GPU-5b3c7f0a", Some(true), None));
        assert_eq!((gpu.absent["ecc"].as_str(), gpu.absent["name"].as_str()), ("N/A", "this nvidia-smi has no such field"));
    }
}
