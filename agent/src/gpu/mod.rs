//! NVIDIA's GPUs: who can be asked about them here, what it finds, and the conversation with it; beside it, in `drm`, what a run's own
//! processes use of others.
//!
//! Asked is the companion, which loads NVIDIA's library, or `nvidia-smi` by way of a role of our own; both are processes beside the
//! keeper that talk alike. Takes the machine, gives entries of the probe and a [`Connection`] to read them again; must not know when.

pub mod drm;
pub mod smi;

use crate::aside::{Aside, Handle};
use crate::inspect::files::DEFAULT_PATH;
use crate::sys;
use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::companion::{Answer, COMPANION_VARIABLE, COMPANION_VERSION, Getter, Gpus, NVML_VARIABLE, Question};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, Present};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What tells that there is a GPU of NVIDIA: its driver, its device; on WSL the host's.
const TRACES: [&str; 3] = ["/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg"];
/// Where `nvidia-smi` is though it is on nobody's path.
const SMI_DIRS: [&str; 1] = ["/usr/lib/wsl/lib"];
/// The driver may have to wake the GPU first, which takes seconds without persistence mode.
pub const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// And every other answer is there within this time.
const ANSWER: Duration = Duration::from_secs(2);
/// How often a value is read for its cost.
const READS: usize = 4;

/// Who can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Means {
    Companion(PathBuf),
    Smi(PathBuf),
}

impl Means {
    /// All there are, best first; none where nothing tells of a GPU.
    pub fn here() -> Vec<Means> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let companion = variable(COMPANION_VARIABLE).map(PathBuf::from);
        if companion.is_none() && variable(NVML_VARIABLE).is_none() && !TRACES.iter().any(|path| Path::new(path).exists()) {
            return Vec::new();
        }
        let path = variable("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).chain(SMI_DIRS.map(PathBuf::from));
        let smi = dirs.map(|dir| dir.join("nvidia-smi")).find(|program| program.is_file());
        companion.map(Means::Companion).into_iter().chain(smi.map(Means::Smi)).collect()
    }

    /// How sources of its values begin.
    fn scheme(&self) -> &'static str {
        match self {
            Means::Companion(_) => "nvml",
            Means::Smi(_) => "nvidia-smi",
        }
    }

    /// What a value is called there; `None` if it has no such value.
    fn source(&self, getter: Getter) -> Option<String> {
        let name = match self {
            Means::Companion(_) => match getter {
                Getter::Energy => "total_energy",
                Getter::Power => "power",
                Getter::Temperature => "temperature",
                Getter::GraphicsClock => "graphics_clock",
                Getter::MemoryClock => "memory_clock",
                Getter::Reasons => "reasons",
                Getter::Busy => "busy",
                Getter::MemoryUsed => "memory_used",
            },
            Means::Smi(_) => smi::field(getter)?,
        };
        Some(format!("{}:{name}", self.scheme()))
    }

    /// The instruments of all GPUs, of which nothing could be learnt: one entry, whose source is how theirs begin.
    pub fn refused(&self, why: Absent) -> Capability {
        let (name, source) = ("NVIDIA GPUs".to_owned(), format!("{}:", self.scheme()));
        Capability { id: "gpu.nvidia".into(), family: Family::Energy, name, unit: None, source, recorded: false, found: Found::Absent(why) }
    }

    fn source_of_processes(&self) -> &'static str {
        match self {
            Means::Companion(_) => "nvml:processes",
            Means::Smi(_) => "nvidia-smi:compute-apps",
        }
    }

    /// Longest that an honest answer takes when the GPU is awake.
    pub fn patience(&self) -> Duration {
        match self {
            Means::Companion(_) => ANSWER,
            Means::Smi(_) => smi::LIMIT + ANSWER,
        }
    }
}

/// A conversation with who is asked.
pub struct Connection {
    aside: Aside,
    /// An answer is missing, or none: what came next would be taken for the answer to another question.
    is_broken: bool,
}

impl Connection {
    /// Start it; nothing has been asked yet.
    pub fn start(means: &Means) -> Result<Connection, Absent> {
        let started = match means {
            Means::Companion(path) => Aside::start(path, &[]),
            Means::Smi(path) => Aside::start(Path::new("/proc/self/exe"), &["smi", &path.display().to_string()]),
        };
        let failed = |e: io::Error| Absent { cause: Cause::Failed, reason: format!("starting {}: {e}", means.scheme()) };
        started.map(|aside| Connection { aside, is_broken: false }).map_err(failed)
    }

    pub fn handle(&self) -> Arc<Handle> {
        Arc::clone(&self.aside.handle)
    }

    /// Is it of no use any more: no answer came, or one that is none?
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// One question, one answer. `None` = it is waited for until the process has ended.
    pub fn ask(&mut self, question: &Question, limit: Option<Duration>) -> Result<Answer, Absent> {
        if self.is_broken {
            return Err(Absent { cause: Cause::Failed, reason: "it is not asked any more".into() });
        }
        let until_ns = limit.map(|limit| sys::monotonic_ns() + limit.as_nanos() as u64);
        let mut answers = Timed { file: &self.aside.stdout, until_ns };
        let answer = write_message(&mut self.aside.stdin, question).and_then(|()| read_frame(&mut answers)).and_then(|frame| match frame {
            Some(frame) => frame.message::<Answer>(),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        self.is_broken = answer.is_err();
        match answer {
            Ok(Answer::Absent(why)) => Err(why),
            Ok(answer) => Ok(answer),
            Err(e) => Err(match e.kind() {
                io::ErrorKind::TimedOut => {
                    let seconds = limit.unwrap_or_default().as_secs();
                    Absent { cause: Cause::NoAnswer, reason: format!("no answer within {seconds} s") }
                }
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                    Absent { cause: Cause::Failed, reason: "it ended without an answer".into() }
                }
                _ => Absent { cause: Cause::Garbage, reason: e.to_string() },
            }),
        }
    }
}

/// A pipe that is read until a time, and not longer.
struct Timed<'a> {
    file: &'a File,
    until_ns: Option<u64>,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until_ns.map(|until| until.saturating_sub(sys::monotonic_ns()));
        match sys::poll_readable(&[self.file.as_raw_fd()], left)[0] || left.is_none() {
            true => self.file.read(buffer),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// What was found by asking.
pub struct Looked {
    pub means: Means,
    pub connection: Connection,
    pub gpus: Gpus,
    /// What can be read of them, and why the rest can't; as the probe has it.
    pub entries: Vec<Entry>,
}

/// One entry of the probe, and how it is read again.
pub struct Entry {
    pub capability: Capability,
    pub question: Question,
}

/// Ask whoever is there; the first one that knows a GPU counts. With it, or instead of it, why those before it didn't.
pub fn look() -> (Option<Looked>, Vec<(Means, Absent)>) {
    let mut refusals = Vec::new();
    for means in Means::here() {
        match look_by(&means) {
            Ok(looked) => return (Some(looked), refusals),
            Err(why) => refusals.push((means, why)),
        }
    }
    (None, refusals)
}

fn look_by(means: &Means) -> Result<Looked, Absent> {
    let (mut connection, gpus) = begin(means)?;
    let mut entries = Vec::new();
    for gpu in &gpus.gpus {
        for getter in Getter::ALL {
            let Some(source) = means.source(getter) else { continue };
            let question = Question::Read { gpu: gpu.index, getter };
            let found = try_out(&mut connection, means, &question)?;
            let mut capability = capability(getter, &gpu.subject, source, found);
            if let (Getter::Power | Getter::Energy, Found::Present(present), Some(watts)) = (getter, &mut capability.found, gpu.power_limit_w) {
                present.facts.insert("limit_uw".into(), format!("{:.0}", watts * 1e6));
            }
            entries.push(Entry { capability, question });
        }
        let question = Question::Processes { gpu: gpu.index };
        let found = try_out(&mut connection, means, &question)?;
        let source = means.source_of_processes().to_owned();
        entries.push(Entry { capability: of_gpu("processes", &gpu.subject, Family::Gpu, "count", &gpu.subject, source, found), question });
    }
    Ok(Looked { means: means.clone(), connection, gpus, entries })
}

/// Start a conversation, and hear which GPUs there are.
fn begin(means: &Means) -> Result<(Connection, Gpus), Absent> {
    let mut connection = Connection::start(means)?;
    match connection.ask(&Question::Gpus, Some(FIRST_ANSWER))? {
        Answer::Gpus(gpus) if gpus.companion_version != COMPANION_VERSION => {
            Err(Absent { cause: Cause::Garbage, reason: format!("it speaks version {}", gpus.companion_version) })
        }
        Answer::Gpus(gpus) if gpus.gpus.is_empty() => Err(Absent { cause: Cause::NotThere, reason: "it knows no GPU".into() }),
        Answer::Gpus(gpus) => Ok((connection, gpus)),
        other => Err(Absent { cause: Cause::Garbage, reason: format!("an answer to another question: {other:?}") }),
    }
}

/// The number in an answer: a value, or how many there are.
pub fn number(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Value(value) => Some(*value),
        Answer::Processes(processes) => Some(processes.len() as u64),
        Answer::Gpus(_) | Answer::Absent(_) => None,
    }
}

/// Read it once, and for its cost a few times more where that costs no process. Who hangs or crashes at it is started anew for the others.
fn try_out(connection: &mut Connection, means: &Means, question: &Question) -> Result<Found, Absent> {
    let reads = if matches!(means, Means::Smi(_)) { 1 } else { READS };
    let mut costs = Vec::with_capacity(reads);
    let mut value = None;
    for _ in 0..reads {
        let start_ns = sys::monotonic_ns();
        match connection.ask(question, Some(means.patience())) {
            Ok(answer) => value = number(&answer).or(value),
            Err(why) => {
                if connection.is_broken {
                    *connection = begin(means)?.0;
                }
                return Ok(Found::Absent(why));
            }
        }
        costs.push(sys::monotonic_ns() - start_ns);
    }
    costs.sort_unstable();
    let cost_ns = costs.get(costs.len() / 2).copied();
    Ok(Found::Present(Present { cost_ns, value: value.map(|value| value as f64), ..Present::default() }))
}

/// An entry by the family and with the unit that its values have.
fn capability(getter: Getter, subject: &str, source: String, found: Found) -> Capability {
    let (word, family, unit, part) = match getter {
        Getter::Energy => ("energy", Family::Energy, "mj", ""),
        Getter::Power => ("power", Family::Energy, "mw", ""),
        Getter::Temperature => ("temperature", Family::Temperature, "celsius", ""),
        Getter::GraphicsClock => ("graphics_clock", Family::Clock, "mhz", " graphics"),
        Getter::MemoryClock => ("memory_clock", Family::Clock, "mhz", " memory"),
        Getter::Reasons => ("reasons", Family::Gpu, "reasons", ""),
        Getter::Busy => ("busy", Family::Gpu, "pct", ""),
        Getter::MemoryUsed => ("memory", Family::Gpu, "bytes", ""),
    };
    of_gpu(word, subject, family, unit, &format!("{subject}{part}"), source, found)
}

fn of_gpu(word: &str, subject: &str, family: Family, unit: &str, name: &str, source: String, found: Found) -> Capability {
    let id = format!("gpu.{subject}.{word}").replace(' ', "");
    Capability { id, family, name: name.to_owned(), unit: Some(unit.to_owned()), source, recorded: false, found }
}
