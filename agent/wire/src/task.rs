//! What the agent is asked to execute, in primitives it understands.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run as the agent executes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub task: Task,
    /// Fixed wait before the workload, ms; 0 = none.
    pub settle_ms: u64,
    /// From spawn of the workload to its exit, ms. Warm-up invocations have this limit each.
    pub timeout_ms: u64,
    /// Between TERM and KILL when the workload has to be ended, ms.
    pub grace_ms: u64,
    /// Telemetry samples per second.
    pub sample_hz: f64,
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
    /// Timed inferences per round.
    pub iterations: u32,
    /// Pause between rounds, ms.
    pub cooldown_ms: u64,
    /// Seed of the generated inputs.
    pub seed: u64,
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
