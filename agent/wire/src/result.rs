//! What a run leaves on the device's disk: sealed before anything is sent.

use crate::clocking::Clocking;
use crate::format::Format;
use crate::inspect::{ContainmentLevel, FileFact, Machine};
use crate::load::{CpuTime, PreRun};
use crate::probe::Capability;
use crate::settle::Evidence;
use crate::task::Step;
use crate::telemetry::{Observer, Series, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Versions of the sealed result in a spool.
pub const RESULT: Format = Format::new("result_version", &[]);

/// The result of one run. Raw observations only; the controller interprets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub result_version: u32,
    pub run_id: String,
    /// What the controller sent along, untouched; any controller can build the record from it.
    pub manifest: serde_json::Value,
    pub agent: AgentFacts,
    pub machine: Machine,
    pub containment: Containment,
    pub outcome: Outcome,
    pub times: Times,
    pub executed: Executed,
    /// What was done to the device before the settle, in order; what the run did not come to is not in it.
    #[serde(default)]
    pub prepare: Vec<PrepareStep>,
    /// What a wait for the device to settle has found; `None` for a fixed one, and for a run that did not come to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Evidence>,
    /// Why the limit of temperature could not be watched all the time; `None` = it was, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwatched: Option<String>,
    /// The measured invocation.
    pub stdout: Captured,
    pub stderr: Captured,
    /// Output of warm-up invocations, stdout and stderr each, in order.
    pub warmup: Vec<WarmupInvocation>,
    /// path as asked → its content, if the run wrote it.
    pub files: BTreeMap<String, CollectedFile>,
    /// Watched files that are not what was hashed: path and what changed.
    pub changed_inputs: Vec<String>,
    /// Files mapped executable by the workload from outside the system directories.
    pub mapped: Vec<FileFact>,
    pub usage: Option<Usage>,
    /// Largest resident set of the run's processes together, of a server without who asks it; `None` if none was started, or a server was
    /// gone before anybody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_rss: Option<PeakRss>,
    /// Who used the machine's CPUs, from shortly before the spawn of the measured invocation until nothing was left of it; `None` where
    /// that can't be told.
    #[serde(default)]
    pub cpu_time: Option<CpuTime>,
    /// Who used it before that; `None` where nothing was waited for that long, or that can't be told.
    #[serde(default)]
    pub pre_run: Option<PreRun>,
    /// Who was seen to have a compute context on a GPU from shortly before the workload to its end.
    #[serde(default)]
    pub gpu_processes: Vec<GpuProcess>,
    /// What the run used of GPUs by way of the kernel's display drivers, as far as it was seen.
    #[serde(default)]
    pub drm: Vec<DrmUse>,
    /// What was set for the clocks, ahead of the run and after it; `None` where nothing of that is told.
    #[serde(default)]
    pub clocking_before: Option<Clocking>,
    #[serde(default)]
    pub clocking_after: Option<Clocking>,
    pub before: Snapshot,
    /// Energy instruments in the last seconds of the wait before the run, once a second; `None` where none was read, or nothing waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Series>,
    pub samples: Series,
    pub after: Snapshot,
    /// Energy counters and power meters that were read: what is known of them beside their columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instruments: Vec<Capability>,
    pub observer: Observer,
}

impl RunResult {
    /// A run of which nothing has happened yet.
    #[must_use]
    pub fn unexecuted(run_id: String, manifest: serde_json::Value, agent: AgentFacts, machine: Machine) -> RunResult {
        RunResult {
            result_version: RESULT.version(),
            run_id,
            manifest,
            agent,
            containment: Containment { level: machine.containment.level, cgroup: None, ended: 0, survivors: Vec::new() },
            machine,
            outcome: Outcome::AgentError { message: "the run was not executed".into() },
            times: Times::default(),
            executed: Executed::default(),
            prepare: Vec::new(),
            settle: None,
            unwatched: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            warmup: Vec::new(),
            files: BTreeMap::new(),
            changed_inputs: Vec::new(),
            mapped: Vec::new(),
            usage: None,
            peak_rss: None,
            cpu_time: None,
            pre_run: None,
            gpu_processes: Vec::new(),
            drm: Vec::new(),
            clocking_before: None,
            clocking_after: None,
            before: Snapshot::default(),
            idle: None,
            samples: Series::default(),
            after: Snapshot::default(),
            instruments: Vec::new(),
            observer: Observer::default(),
        }
    }
}

/// The agent that executed the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentFacts {
    /// Its version.
    pub version: String,
    /// Of its executable, hex.
    pub sha256: String,
    /// Target triple.
    pub target: String,
}

/// A process that had a compute context on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuProcess {
    /// The GPU, as telemetry calls it.
    pub gpu: String,
    /// As the driver numbers it.
    pub pid: u32,
    /// Its name in `/proc`; `None` where there is no such process, as in a container that is told the host's numbers.
    pub name: Option<String>,
    /// The most memory of the GPU that it was seen to hold, bytes; `None` where the driver doesn't tell.
    pub memory_bytes: Option<u64>,
    /// It was there before the workload was started.
    pub before: bool,
    /// It belongs to the run.
    pub of_run: bool,
}

/// What a run used of a GPU, as the kernel's display driver counts it for each client. Looked at once a second: a client that came and went
/// in between is not in it, and what was used after the last look isn't, either.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrmUse {
    /// Name of the driver: `amdgpu`, `i915`, `v3d`.
    pub driver: String,
    /// PCI address, else the path of the device.
    pub device: String,
    /// Engine → time that it worked for the run, ns.
    pub engines_ns: BTreeMap<String, u64>,
    /// Region of memory → the most that the run was seen to hold there, bytes.
    pub memory_bytes: BTreeMap<String, u64>,
    /// When it was last seen to have that GPU open: CLOCK_MONOTONIC of the device, ns.
    pub seen_ns: u64,
}

/// How the run was contained and ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Containment {
    /// How strongly.
    pub level: ContainmentLevel,
    /// cgroup directory of the run, where it had one.
    pub cgroup: Option<String>,
    /// Processes that had to be ended after the workload's first process had exited or been stopped.
    pub ended: u32,
    /// Processes that could not be ended: pid, state and where the kernel holds them.
    pub survivors: Vec<Survivor>,
}

/// A process that outlived KILL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Survivor {
    /// Its process id.
    pub pid: i32,
    /// As in `/proc/<pid>/stat`: `D`, `R` …
    pub state: String,
    /// Where the kernel holds it; `None` where it doesn't tell.
    pub wchan: Option<String>,
}

/// How the workload's run came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The first process ended by itself. Raw wait status as of `waitpid(2)`.
    Exited { wait_status: i32 },
    /// It could not be started: operating system's words and errno.
    SpawnFailed { message: String, errno: Option<i32> },
    /// It ran into `timeout_ms`; the raw status it had when it was ended.
    TimedOut { wait_status: Option<i32> },
    /// Ended because the machine did little else than move memory.
    Thrashed { wait_status: Option<i32> },
    /// Ended because its device became hotter than it may: by which sensor.
    TooHot { wait_status: Option<i32>, sensor: String, temperature_mc: i64 },
    /// Ended because nobody could tell any more how hot its device is.
    SensorLost { wait_status: Option<i32> },
    /// Ended because a controller asked for it.
    Cancelled { wait_status: Option<i32> },
    /// A warm-up invocation ended by a signal or ran into the time-out (`None`): its index and raw status.
    WarmupFailed { index: u32, wait_status: Option<i32> },
    /// A watched file was already different before the workload started; it was not started.
    InputChanged,
    /// The device cannot give what the run asks for, such as CPUs that it hasn't: in words. Nothing was started.
    Unmet { message: String },
    /// It did not settle in time, and the run was not to be made then. Nothing was started.
    Unsettled,
    /// The agent itself failed: in words.
    AgentError { message: String },
}

/// Marks of the run on the device's clocks. `None` = that phase was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Times {
    /// CLOCK_REALTIME, nanoseconds since 1970, labels only.
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub accepted_ns: u64,
    #[serde(default)]
    pub prepare_start_ns: Option<u64>,
    #[serde(default)]
    pub prepare_end_ns: Option<u64>,
    pub settle_start_ns: Option<u64>,
    pub settle_end_ns: Option<u64>,
    pub warmup_start_ns: Option<u64>,
    pub warmup_end_ns: Option<u64>,
    /// Spawn and exit of the measured invocation's first process.
    pub spawn_ns: Option<u64>,
    pub exit_ns: Option<u64>,
    /// No process of the run is left.
    pub drained_ns: Option<u64>,
    /// Growth of BOOTTIME − MONOTONIC between acceptance and the end: time suspended.
    pub suspended_ns: u64,
}

/// One step before a run, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareStep {
    pub step: Step,
    pub outcome: StepOutcome,
    /// Why it is not `done`, in the system's words where it has any.
    pub reason: Option<String>,
    /// What the step is about, read before and after it; `None` = not read.
    pub before: Option<serde_json::Value>,
    pub after: Option<serde_json::Value>,
    pub duration_ns: u64,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// Done, and seen to be.
    Done,
    /// There was nothing to do, or it would have done harm.
    Skipped,
    /// The device has no such thing.
    Unsupported,
    /// It may not be done there.
    Denied,
    /// It was tried, and did not come out as it should.
    Failed,
}

/// What was really executed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Executed {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: String,
    /// CPUs of the affinity mask, as a list like `0-3,6`.
    pub affinity: Option<String>,
    /// Its nice value; lower is served first.
    pub nice: Option<i32>,
}

/// One stream of bytes: all of it, or its head and tail.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Captured {
    /// Length of the whole stream, bytes.
    pub bytes: u64,
    /// sha256 (hex) over the whole stream.
    pub sha256: String,
    pub head: Blob,
    /// The end of the stream, where its middle was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Blob>,
    /// How many secrets were taken out; length, hash and content are those of what is left, with `${secret:NAME}` in their places.
    #[serde(default, skip_serializing_if = "is_none_redacted")]
    pub redacted: u64,
    /// When the end of each line arrived, from the first one on, CLOCK_MONOTONIC ns; empty where that was not asked for. Lines beyond the
    /// first thousands have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub line_ns: Vec<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none_redacted(n: &u64) -> bool {
    *n == 0
}

/// Bytes in JSON: as text where they are UTF-8, else base64 (standard alphabet, padded).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blob {
    /// How the bytes are written.
    pub encoding: Encoding,
    /// The bytes.
    pub data: String,
}

impl Default for Blob {
    fn default() -> Self {
        Blob { encoding: Encoding::Utf8, data: String::new() }
    }
}

/// How bytes are written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// As it is.
    Utf8,
    /// Standard alphabet, padded.
    Base64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarmupInvocation {
    pub wait_status: Option<i32>,
    pub spawn_ns: u64,
    pub exit_ns: u64,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// A file that the campaign wants from the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CollectedFile {
    Written(Captured),
    /// It is there but is the one from before the run.
    NotWritten,
    Missing(String),
}

/// `getrusage(RUSAGE_CHILDREN)` of the run's first process and all it waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// CPU time in user mode.
    pub user_us: u64,
    /// CPU time in the kernel.
    pub system_us: u64,
    /// Largest resident set of a single process, bytes.
    pub max_rss_bytes: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because another was let on.
    pub involuntary_switches: u64,
}

/// Largest resident set of a run's processes together: what was seen of it, so a lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeakRss {
    /// Pages that processes share are counted once for each of them.
    pub bytes: u64,
    /// What tells of it.
    pub by: PeakRssBy,
}

/// What tells of the largest resident set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PeakRssBy {
    /// The largest sum over all processes of the run, added up twice a second.
    Looks,
    /// The kernel's peak of the largest single process, which no sum that was seen exceeds.
    LargestProcess,
}
