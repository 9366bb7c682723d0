//! What the agent is asked to execute, in primitives it understands.

use crate::limits::Limits;
use crate::served::ServeTask;
use crate::settle;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run as the agent executes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub task: Task,
    /// What is done to the device before the settle, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Prepare>,
    /// Tells one model from another, for what is prepared when it changes: sha256 of its content; `None` = a run without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Fixed wait before the workload, ms; 0 = none. With a rule, the shortest one.
    pub settle_ms: u64,
    /// Until when it is waited instead; `None` = the fixed wait is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<settle::Rule>,
    /// How warm the device may become meanwhile; `None` = as warm as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// From spawn of the workload to its exit, ms. Warm-up invocations have this limit each.
    pub timeout_ms: u64,
    /// Between TERM and KILL when the workload has to be ended, ms.
    pub grace_ms: u64,
    /// Telemetry samples per second.
    pub sample_hz: f64,
    /// Whether energy counters and power meters are read.
    #[serde(default, skip_serializing_if = "Instruments::is_on")]
    pub instruments: Instruments,
    /// The workload's own variables; `PATH HOME USER LANG TMPDIR` are added by the agent unless named here. `${secret:NAME}` stands for
    /// one of `secrets`.
    pub env: BTreeMap<String, String>,
    /// Given to the workload in its environment, and taken out of everything that is kept.
    #[serde(default, skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// Memory that must be available before anything is started, bytes; `None` = it is started whatever there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_bytes: Option<u64>,
    /// CPUs that the workload may use, ascending; `None` = all that the agent may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u32>>,
    /// Working directory on the device; `~` and `~/…` are expanded there.
    pub cwd: String,
    /// Files whose content must not change during the run; their stat is compared before and after.
    pub watched: Vec<WatchedFile>,
}

/// What becomes of energy counters and power meters in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Instruments {
    /// They are left alone: reading one may slow what is timed.
    Off,
    /// They are read like every other sensor.
    #[default]
    On,
    /// Likewise, and without one that can be read nothing is started.
    Required,
}

impl Instruments {
    /// Are they read where there are any?
    #[must_use]
    pub fn are_read(self) -> bool {
        self != Instruments::Off
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    fn is_on(&self) -> bool {
        *self == Instruments::On
    }
}

/// One thing done to a device before a run. What it borrows is given back when no run asks for it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prepare {
    /// Every swap area that is in use off and on again.
    ResetSwap(When),
    /// Write back and empty the page cache.
    DropCaches(When),
    /// cpufreq governor of every policy.
    Governor(String),
    /// Both frequency limits of every policy.
    Frequency(Frequency),
}

impl Prepare {
    /// Its name in results.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Prepare::ResetSwap(_) => Step::ResetSwap,
            Prepare::DropCaches(_) => Step::DropCaches,
            Prepare::Governor(_) => Step::Governor,
            Prepare::Frequency(_) => Step::Frequency,
        }
    }

    /// Longest time that it may reasonably take, ms: deadlines of what it does, once each.
    #[must_use]
    pub fn most_ms(&self) -> u64 {
        match self {
            Prepare::ResetSwap(_) => SWAPOFF_DEADLINE_MS + SWAPON_DEADLINE_MS,
            Prepare::DropCaches(_) => SYNC_DEADLINE_MS + WRITE_DEADLINE_MS,
            Prepare::Governor(_) | Prepare::Frequency(_) => WRITE_DEADLINE_MS,
        }
    }
}

/// Writing back what a slow SD card has outstanding takes a minute.
pub const SYNC_DEADLINE_MS: u64 = 120_000;
/// Gigabytes of small pages come back from an SD card at a few MB/s.
pub const SWAPOFF_DEADLINE_MS: u64 = 600_000;
/// It reads one page.
pub const SWAPON_DEADLINE_MS: u64 = 60_000;
/// One value into one file of `/proc/sys` or `/sys`; a page cache of many gigabytes is emptied by that.
pub const WRITE_DEADLINE_MS: u64 = 60_000;

/// When a step is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before every run.
    Each,
    /// Before the first run that a keeper executes with a model, until it executes one with another.
    OnModelChange,
}

/// What both frequency limits of a policy are set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frequency {
    /// The highest that the policy's hardware has.
    Max,
    /// The lowest.
    Min,
    Khz(u64),
}

/// Steps before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// What an earlier run had borrowed and this one doesn't ask for is set back.
    GiveBack,
    /// Swap areas in use off and on again.
    ResetSwap,
    /// `sync`, then the page cache is emptied.
    DropCaches,
    /// The governor of every cpufreq policy.
    Governor,
    /// The frequency limits of every cpufreq policy.
    Frequency,
}

impl Step {
    /// As it is serialized.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Step::GiveBack => "give_back",
            Step::ResetSwap => "reset_swap",
            Step::DropCaches => "drop_caches",
            Step::Governor => "governor",
            Step::Frequency => "frequency",
        }
    }
}

/// name → value; never shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub BTreeMap<String, String>);

impl Secrets {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What stands for it in texts.
    #[must_use]
    pub fn token(name: &str) -> String {
        format!("${{secret:{name}}}")
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl FromIterator<(String, String)> for Secrets {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(entries: T) -> Secrets {
        Secrets(entries.into_iter().collect())
    }
}

/// A file as it was when its content was hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedFile {
    pub path: String,
    pub bytes: u64,
    pub mtime_ns: i64,
    pub inode: u64,
}

/// The primitives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    Process(ProcessTask),
    Infer(InferTask),
    Serve(ServeTask),
}

/// One program, started once (after its warm-up invocations).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessTask {
    /// Program and arguments; the program is looked up in the workload's PATH if it has no slash. Never a shell string.
    pub argv: Vec<String>,
    /// Invocations before the measured one; their output is kept apart.
    pub warmup: u32,
    /// Files that the program writes and that belong to the result.
    pub collect: Vec<String>,
    /// When each line of the measured invocation's output arrived belongs to the result, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamp_lines: bool,
}

/// Inference of one model by the engine inside the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InferTask {
    /// ONNX file on the device, absolute.
    pub model: String,
    pub threads: u32,
    /// Inferences before the first timed one, kept apart.
    pub warmup: u32,
    pub rounds: u32,
    /// Timed inferences per round; with a `window`, the most in all.
    pub iterations: u32,
    /// One round that lasts so long, instead of a fixed number of inferences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// Pause between rounds, ms.
    pub cooldown_ms: u64,
    /// Seed of the generated inputs.
    pub seed: u64,
}

/// How long a round is to last: as many inferences as fill it by what the last ones of the warm-up took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub target_ms: u64,
    /// However long they take.
    pub least: u32,
}

/// What the `infer` child prints on its stdout, one JSON object on one line. All times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InferOutput {
    /// Engine name, e.g. `rten`.
    pub engine: String,
    pub engine_version: String,
    /// Our own revision of how the engine is driven; part of the identity of a point.
    pub revision: u32,
    /// Threads of the engine's pool as it reports them.
    pub threads: u32,
    /// Reading and preparing the model, duration.
    pub load_ns: u64,
    /// The very first inference, duration; it is the first warm-up (or the first timed one without warm-up).
    pub first_inference_ns: u64,
    /// Durations of the warm-up inferences, in order.
    pub warmup_ns: Vec<u64>,
    /// Durations of the timed inferences: one list per round, in order.
    pub rounds_ns: Vec<Vec<u64>>,
    /// Start of the first and end of the last inference of each round: what lies between is a pause. Empty = an older agent.
    #[serde(default)]
    pub round_spans_ns: Vec<(u64, u64)>,
    /// Start of the first and end of the last timed inference.
    pub window_start_ns: u64,
    pub window_end_ns: u64,
    pub inputs: Vec<TensorFact>,
    pub outputs: Vec<TensorFact>,
    /// Digest over all outputs of the last timed inference, see [`OUTPUT_DIGEST_METHOD`].
    pub output_digest: String,
    /// Name of the method, [`OUTPUT_DIGEST_METHOD`].
    pub output_digest_method: String,
}

/// The output digest: sha256 (hex) over, for each output in the model's order, its name, its shape and, for every row of the last
/// axis, the indices of the eight largest values in descending order (ties: lower index first). Equal across CPUs and kernels
/// that differ only in rounding; different as soon as an answer differs.
pub const OUTPUT_DIGEST_METHOD: &str = "top8_last_axis_v1";

/// One input or output tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TensorFact {
    /// Its name in the model.
    pub name: String,
    /// `f32`, `i32`, …
    pub dtype: String,
    /// Its dimensions, outermost first.
    pub shape: Vec<u64>,
    /// sha256 (hex) over the little-endian values; exact bytes, so outputs may differ between CPUs.
    pub sha256: String,
}
