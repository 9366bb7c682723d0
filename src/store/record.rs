//! The record: one JSON document per run, interpretable without the campaign file, the controller's log or the device.

pub use super::energy::EnergyFigure;
pub use super::issue::{Issue, Severity};
pub use super::load::{Competing, CompetingProcess, PreRun};
pub use super::outcome::{Kind, Reason, Status, Validity};
pub use super::provenance::{ExportNote, Exported, LlamaBenchAsked, LlamaServerAsked, ParseSpec, Read, ReadAgain, Replaced, Slo};
pub use super::raw::{Raw, RawInvocation, RawStream, SampledColumn, Samples, Sidecar};
pub use super::settle::Settle;

use super::formats;
use crate::config::model::{AxisValue, Better, Ceiling};
use crate::registry::Code;
use indexmap::IndexMap;
use isotherm_wire::{
    clocking::Clocking,
    inspect::{FileFact, Machine},
    model::{Gguf, ModelHeader},
    result::{Containment, DrmUse, Executed, GpuProcess, PeakRss, StepOutcome, Usage},
    task::{Step, TensorFact},
    telemetry::{Observer, Series, Snapshot},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of this layout.
pub const SCHEMA_VERSION: u32 = formats::RECORD.version();

/// One run, whatever happened to it. The file's last key, `seal`, is not part of this type: writing adds it, reading checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this layout; a newer one is refused by its number.
    pub schema_version: u32,
    pub ids: Ids,
    /// What became of the run.
    pub status: Status,
    /// Why it is not `ok`; `None` if and only if it is.
    pub reason: Option<Reason>,
    /// What happened, in the words of the tool or the operating system where they have any; `None` for `ok`.
    pub message: Option<String>,
    /// Whether its numbers may be used.
    pub validity: Validity,
    /// Coded remarks, in the order in which they were found.
    pub issues: Vec<Issue>,
    pub time: Time,
    /// Where it ran.
    pub device: DeviceBlock,
    /// As the campaign asked: threads, warm-up, rounds, iterations …
    pub requested: IndexMap<String, Value>,
    /// As the device or tool resolved it, where it says so.
    pub resolved: IndexMap<String, Value>,
    /// As executed, where it can be told.
    pub executed: IndexMap<String, Value>,
    /// What ran it, and the files that took part.
    pub backend: BackendBlock,
    /// What was computed, and on what.
    pub workload: Workload,
    /// Steps before the run, in order; without `settle`.
    pub prepare: Vec<PrepareStep>,
    /// The wait before the run.
    pub settle: Settle,
    pub context: Context,
    /// Name → value with what it means. A failed run has none, or such as could still be read.
    pub metrics: IndexMap<String, Metric>,
    /// Raw times by phase and round; `None` where the backend has no iterations.
    pub iterations: Option<Iterations>,
    /// Tests that llama.cpp's benchmark made, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<LlamaBenchTest>,
    /// One figure per energy instrument that was read, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<EnergyFigure>,
    pub samples: Samples,
    /// What observing cost; `None` where the run left no result.
    pub observer: Option<Observer>,
    pub raw: Raw,
    /// How `raw` was read. `None` where nothing was read, because the workload did not end by itself, and in records of an isotherm that
    /// did not say yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Read>,
    /// In a copy made by `isotherm export`: what was replaced in it. `None` everywhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<Exported>,
    /// Who wrote this record and executed the run.
    pub producer: Producer,
}

impl Record {
    /// Does it answer its job for good? One that is not `ok`, or invalid, is repeated by the next `run` and kept as an attempt.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.status == Status::Ok && self.validity != Validity::Invalid
    }

    /// What disturbed a run that ended well, as issue codes in the order in which they were found; empty = nothing that is known here.
    #[must_use]
    pub fn contaminated_by(&self) -> Vec<&'static str> {
        let codes = self.issues.iter().filter(|_| self.status == Status::Ok).filter_map(|issue| Code::of(issue.code.as_str()));
        codes.filter(|code| code.is_contamination()).map(|code| code.entry().code).collect()
    }
}

/// What this record answers and where it stands in the night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// UUIDv7.
    pub run_id: String,
    /// The job that this run is an attempt at: the same for the same point and repetition.
    pub job_id: String,
    /// sha256 (hex) over the canonical JSON of `identity`.
    pub point_identity: String,
    pub identity: Identity,
    /// Name of the campaign.
    pub campaign: String,
    /// UUID of the results directory that it was made for.
    pub results_id: String,
    /// The point by its names.
    pub point: PointIds,
    pub kind: Kind,
    /// Which repetition of the point, from 0.
    pub repetition: u32,
    /// Which run of its job, from 0: a repeated job counts on.
    pub attempt: u32,
    /// UUID of the invocation of `run`.
    pub epoch: String,
    /// Turn through the arms of its group, from 0.
    pub pass: u32,
    /// Place in the night's schedule, from 0.
    pub position: u32,
    /// sha256 (hex) of the campaign file's text.
    pub campaign_sha256: String,
}

/// Has the text the form of a run's id? Files are named by it.
#[must_use]
pub fn is_run_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// What is hashed into a point identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Version of what is hashed, and how.
    pub identity_version: u32,
    /// Known from the campaign file alone.
    pub spec: Value,
    /// Known from the device: machine, files by content, model, limits, engine.
    pub facts: Value,
}

/// A point by its names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointIds {
    /// Id of the device in the campaign.
    pub device: String,
    /// Name of the backend.
    pub backend: String,
    /// Every axis and constant of the point with its type: `model`, `threads`, params by name, `env.NAME`.
    pub axes: IndexMap<String, AxisValue>,
    /// Directory name of the point, for people; never parsed.
    pub slug: String,
}

/// Labels in wall time; durations on the device's monotonic clock. `None` = that phase was not reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// RFC 3339, the device's clock.
    pub start_utc: Option<String>,
    /// Likewise.
    pub end_utc: Option<String>,
    /// Steps before the settle; `None` where there was nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<f64>,
    /// The wait before the run.
    pub settle_ms: Option<f64>,
    /// Loading the model, where the tool tells; inside of `measure_ms`.
    pub load_ms: Option<f64>,
    /// Warm-up: inferences inside of `measure_ms`, or whole invocations before it.
    pub warmup_ms: Option<f64>,
    /// Spawn to exit of the measured invocation.
    pub measure_ms: Option<f64>,
    /// Exit of the measured invocation until no process of the run was left.
    pub drain_ms: Option<f64>,
    /// Time for which the machine slept: growth of BOOTTIME − MONOTONIC.
    pub suspended_ms: Option<f64>,
    /// Spawn of the measured invocation on the clock of `samples`: CLOCK_MONOTONIC of the device, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn_monotonic_ns: Option<u64>,
    /// Exit of the measured invocation on the same clock, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_monotonic_ns: Option<u64>,
    /// How far the device's wall clock was ahead of its controller's when it was last asked before the run. `None` = it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<f64>,
    /// The offset is within ± this: half of the time that the question took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_uncertainty_ms: Option<f64>,
}

/// The device of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceBlock {
    /// As in the campaign.
    pub id: String,
    /// How it was reached: `local`.
    pub transport: String,
    /// The machine; its `hostname` is replaced by the HMAC of it under the salt of the results directory.
    pub machine: Option<Machine>,
    /// How the run was contained and ended; `None` where it left no result.
    pub containment: Option<Containment>,
    /// What the campaign declares of the surroundings: ambient temperature, cooling, supply. Nobody has checked it.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub conditions: IndexMap<String, String>,
    /// What the campaign says that its hardware can do at most, by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub ceilings: IndexMap<String, Ceiling>,
    /// Whether the controller kept the device from sleeping; `None` where it was asked for by none, or by an earlier isotherm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_inhibited: Option<SleepInhibited>,
}

/// A lock against sleep, idling and a closed lid, which its controller asked for when it began and which ends with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SleepInhibited {
    /// It was granted.
    pub held: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// What ran a point, as executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendBlock {
    /// `builtin` or `command`.
    pub name: String,
    /// `builtin`: engine and version.
    pub version: Option<String>,
    /// argv, the whole environment, working directory, affinity and nice as executed.
    pub executed: Option<Executed>,
    /// Program, interpreter, arguments that are files, inputs, libraries mapped from outside the system.
    pub files: Vec<RanFile>,
}

/// A file that took part in the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RanFile {
    /// What it was to the run.
    pub role: RanRole,
    /// As named in the campaign; for a library its path on the device.
    pub name: String,
    /// The file by content.
    pub file: FileFact,
}

/// What a file was to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RanRole {
    /// `argv[0]`.
    Program,
    /// Of a program that begins with `#!`.
    Interpreter,
    /// An argument that is a file.
    Argument,
    /// Named under `inputs`.
    Input,
    /// Mapped from outside the system directories.
    Library,
}

/// What was computed, and on what.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The model; `None` for a point without one.
    pub model: Option<ModelBlock>,
    /// Tensors that went in, where the backend knows them.
    pub inputs: Vec<TensorFact>,
    /// Tensors that came out, likewise.
    pub outputs: Vec<TensorFact>,
    /// Digest of the answer; `None` where nothing is digested.
    pub output_digest: Option<OutputDigest>,
}

/// The model of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelBlock {
    /// As in the campaign.
    pub id: String,
    /// Where it was on the device.
    pub path: String,
    /// Of its content, hex; `None` if it was missing or no regular file. Of a model in several files, of the first.
    pub sha256: Option<String>,
    /// Its size; `None` likewise.
    pub bytes: Option<u64>,
    /// As declared, else as its own file says; for people.
    pub quantization: Option<String>,
    /// As declared; for people.
    pub tags: IndexMap<String, String>,
    /// What its file says of it: parameters, bytes of its weights, what it was trained for. `None` for a format without a header that is
    /// understood here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<ModelHeader>,
}

impl ModelBlock {
    /// What a model in GGUF says. Of one in several files whose headers were not all read, sums, such as the bytes of its weights, are those of
    /// the first file alone.
    #[must_use]
    pub fn gguf(&self) -> Option<&Gguf> {
        if let Some(ModelHeader::Gguf(gguf)) = &self.header { Some(gguf) } else { None }
    }
}

/// A digest of the answer, and what it was compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputDigest {
    /// sha256, hex.
    pub value: String,
    /// How it was made: `top8_last_axis_v1` of `builtin`, `picked_json_v1` of `command`.
    pub method: String,
    /// What the campaign or an earlier repetition says it must be; `None` = nothing to compare with.
    pub expected: Option<String>,
}

/// Something done to the device before the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrepareStep {
    /// Which.
    pub step: Step,
    /// What came of it.
    pub outcome: StepOutcome,
    /// Why it is not `done`, in the system's words where it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was found: bytes of swap and page cache, or governor, limits and clock of every cpufreq policy in kHz; `None` = not read.
    pub before: Option<Value>,
    /// Likewise, what was left.
    pub after: Option<Value>,
    /// How long it took.
    pub duration_ms: f64,
}

/// The machine before, during and after.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// What the machine was like in the window; numbers of different states are never averaged.
    #[serde(default)]
    pub state: OperatingState,
    /// Every telemetry source once, ahead of the run.
    pub before: Option<Snapshot>,
    /// Energy instruments in the last seconds of the wait before the run, once a second; `None` where none was read then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Series>,
    /// Column of telemetry, `metric` or `metric{subject}` → summary over the samples between spawn and exit.
    pub during: BTreeMap<String, DuringSummary>,
    /// Every telemetry source once, after it; what is absent says why.
    pub after: Option<Snapshot>,
    /// What the run used as a whole.
    pub usage: Option<Usage>,
    /// Largest resident set of its processes together, of a server without who asks it; `None` where none was started, where a server was gone
    /// before anybody looked, or by an earlier isotherm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_rss: Option<PeakRss>,
    /// The temperature that speaks for the machine; `None` where no sensor does, or none could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Headline>,
    /// Who else used the CPUs, from just before the spawn until nothing was left of the run; `None` where that can't be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub competing: Option<Competing>,
    /// The same before the window; `None` where nothing was waited for 5 s, or that can't be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_run: Option<PreRun>,
    /// Who had a compute context on a GPU, from just before the spawn until nothing was left of the run; the run's own among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_processes: Vec<GpuProcess>,
    /// What the run used of GPUs by way of the kernel's display drivers, as far as it was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drm: Vec<DrmUse>,
    /// What was set for the clocks ahead of the run, `None` where nothing of that is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocking_before: Option<Clocking>,
    /// The same after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocking_after: Option<Clocking>,
}

/// Temperature of the headline sensor, the one that speaks for the CPU. `None` = not read at that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// By its driver's name, as a `subject` of `temperature_c`.
    pub sensor: String,
    /// Ahead of the run.
    pub start_c: Option<f64>,
    /// After it.
    pub end_c: Option<f64>,
    /// Over the samples between spawn and exit.
    pub mean_c: Option<f64>,
    /// The largest of them.
    pub max_c: Option<f64>,
}

/// Operating state of a run. `None` = nothing here tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperatingState {
    /// Firmware, CPU or GPU held the clock back for heat or voltage.
    pub throttled: Option<bool>,
    /// The CPU quota of the keeper's own cgroup held it back.
    pub cgroup_throttled: Option<bool>,
    /// No mains at its beginning or its end.
    pub on_battery: Option<bool>,
    /// cpufreq governor.
    pub governor: Option<String>,
}

/// One column of telemetry between spawn and exit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DuringSummary {
    /// The column's unit.
    pub unit: String,
    /// Samples in it.
    pub n: u32,
    /// Their mean; of a counter without meaning.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Last − first, for counters.
    pub delta: f64,
}

/// One number with what it means, or none and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The run's headline; `None` with an `omitted_reason`.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// Samples behind it.
    pub n: u32,
    /// How the samples lie; `None` without any.
    pub spread: Option<Spread>,
    /// Definition id, e.g. `inference.wall.v1`.
    pub definition: String,
    /// What the tool calls it, e.g. `tg128 @ d4096`; `None` where it has no name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Why there is no value.
    pub omitted_reason: Option<String>,
    /// The samples themselves, where the tool gave an array or several matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// Where there are too many for the record: one per line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_sidecar: Option<Sidecar>,
}

/// How the samples of one run lie.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Coefficient of variation (ddof 1) of what the headline is the median of; `None` with fewer than two or a mean of 0.
    pub cov_pct: Option<f64>,
    /// The smallest, in the metric's unit like all that follow.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// ddof 1; `None` with one sample.
    pub sd: Option<f64>,
    /// First quartile (type 7 of Hyndman and Fan).
    pub q1: f64,
    /// Third quartile.
    pub q3: f64,
}

/// Raw times of a `builtin` run, nanoseconds; of `llama-server` those of whole requests, a round for each client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iterations {
    /// Of the warm-up, in order.
    pub warmup_ns: Vec<u64>,
    /// One list per round, in order.
    pub rounds_ns: Vec<Vec<u64>>,
    /// Start of the first and end of the last iteration of each round, CLOCK_MONOTONIC of the device: what lies between rounds is a pause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_spans_ns: Vec<(u64, u64)>,
    /// Start of the first timed iteration, CLOCK_MONOTONIC of the device.
    pub window_start_ns: u64,
    /// End of the last one, likewise.
    pub window_end_ns: u64,
}

/// One test of llama.cpp's benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LlamaBenchTest {
    /// As the tool names it: `pp512`, `tg128 @ d4096`.
    pub name: String,
    /// Tokens of the prompt; 0 in a test of decode.
    pub n_prompt: u64,
    /// Tokens generated; 0 in a test of prefill.
    pub n_gen: u64,
    /// Tokens in the context before.
    pub depth: u64,
    /// Duration of each sample as the tool tells it, in order.
    pub samples_ns: Vec<u64>,
    /// Start and end of each, CLOCK_MONOTONIC of the device, by when its lines arrived; empty where that isn't known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans_ns: Vec<(u64, u64)>,
}

/// Who made the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    /// Version of the controller that wrote the record.
    pub isotherm: String,
    /// The agent that executed the run; `None` where it left no result.
    pub agent: Option<isotherm_wire::result::AgentFacts>,
}
