//! The record: one JSON document per run, interpretable without the campaign file, the controller's log or the device.

pub use super::provenance::{ExportNote, Exported, ParseSpec, Read, ReadAgain, Replaced};

use crate::config::model::{AxisValue, Better};
use indexmap::IndexMap;
use isotherm_wire::{
    inspect::{FileFact, Machine},
    result::{Blob, Containment, Executed, Usage},
    task::TensorFact,
    telemetry::{Observer, Series, Snapshot},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of this layout. Older ones are migrated explicitly, newer ones refused by name.
pub const SCHEMA_VERSION: u32 = 1;

/// One run, whatever happened to it. The file's last key, `seal`, is not part of this type: writing adds it, reading checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub schema_version: u32,
    pub ids: Ids,
    pub status: Status,
    /// `None` if and only if the status is `ok`.
    pub reason: Option<Reason>,
    /// What happened, in the words of the tool or the operating system where they have any; `None` for `ok`.
    pub message: Option<String>,
    pub validity: Validity,
    pub issues: Vec<Issue>,
    pub time: Time,
    pub device: DeviceBlock,
    /// As the campaign asked: threads, warm-up, rounds, iterations …
    pub requested: IndexMap<String, Value>,
    /// As the device or tool resolved it, where it says so.
    pub resolved: IndexMap<String, Value>,
    /// As executed, where it can be told.
    pub executed: IndexMap<String, Value>,
    pub backend: BackendBlock,
    pub workload: Workload,
    /// Steps before the run, in order; without `settle`.
    pub prepare: Vec<PrepareStep>,
    pub settle: Settle,
    pub context: Context,
    /// name → value with what it means. A failed run has none, or such as could still be read.
    pub metrics: IndexMap<String, Metric>,
    /// Raw times by phase and round; `None` where the backend has no iterations.
    pub iterations: Option<Iterations>,
    pub samples: Samples,
    /// `None` where the run never reached the device.
    pub observer: Option<Observer>,
    pub raw: Raw,
    /// How `raw` was read. `None` where nothing was read, because the workload did not end by itself, and in records of an isotherm that
    /// did not say yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Read>,
    /// In a copy made by `isotherm export`: what was replaced in it. `None` everywhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<Exported>,
    pub producer: Producer,
}

impl Record {
    /// Does it answer its job for good? One that is not `ok`, or invalid, is repeated by the next `run` and kept as an attempt.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.status == Status::Ok && self.validity != Validity::Invalid
    }
}

/// What this record answers and where it stands in the night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    /// UUIDv7.
    pub run_id: String,
    pub job_id: String,
    /// sha256 (hex) over the canonical JSON of `identity`.
    pub point_identity: String,
    pub identity: Identity,
    pub campaign: String,
    pub results_id: String,
    pub point: PointIds,
    pub kind: Kind,
    /// From 0.
    pub repetition: u32,
    /// From 0; a retry of the same job counts on.
    pub attempt: u32,
    /// UUID of the invocation of `run`.
    pub epoch: String,
    /// Turn through the arms of its group, and place in the night's schedule, both from 0.
    pub pass: u32,
    pub position: u32,
    /// sha256 (hex) of the campaign file's text.
    pub campaign_sha256: String,
}

/// What is hashed into a point identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    pub identity_version: u32,
    /// Known from the campaign file alone.
    pub spec: Value,
    /// Known from the device: machine, files by content, model, limits, engine.
    pub facts: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointIds {
    pub device: String,
    pub backend: String,
    /// Every axis and constant of the point with its type: `model`, `threads`, params by name, `env.NAME`.
    pub axes: IndexMap<String, AxisValue>,
    /// Directory name of the point, for people; never parsed.
    pub slug: String,
}

/// What the run was allowed to disturb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Timing,
}

impl Kind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Timing => "timing",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Failed,
    Skipped,
}

impl Status {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Failed => "failed",
            Status::Skipped => "skipped",
        }
    }
}

/// Why a run is not `ok`: a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Oom,
    Timeout,
    ExitCode,
    Signal,
    Transport,
    Parse,
    MemoryThrash,
    ThermalStop,
    Precondition,
    CapabilityAbsent,
    ModelMissing,
    Spawn,
    Interrupted,
    DeviceLost,
    Dominated,
    Internal,
}

impl Reason {
    /// The word as it stands in a record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Oom => "oom",
            Reason::Timeout => "timeout",
            Reason::ExitCode => "exit_code",
            Reason::Signal => "signal",
            Reason::Transport => "transport",
            Reason::Parse => "parse",
            Reason::MemoryThrash => "memory_thrash",
            Reason::ThermalStop => "thermal_stop",
            Reason::Precondition => "precondition",
            Reason::CapabilityAbsent => "capability_absent",
            Reason::ModelMissing => "model_missing",
            Reason::Spawn => "spawn",
            Reason::Interrupted => "interrupted",
            Reason::DeviceLost => "device_lost",
            Reason::Dominated => "dominated",
            Reason::Internal => "internal",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    Valid,
    /// A warning stands in `issues`.
    Degraded,
    /// An error stands in `issues`, or the run is not `ok`.
    Invalid,
}

impl Validity {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::Degraded => "degraded",
            Validity::Invalid => "invalid",
        }
    }
}

/// A coded remark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    pub code: String,
    pub severity: Severity,
    pub message: String,
    /// What it is about: a path, a metric, a sensor.
    pub subject: Option<String>,
    pub value: Option<Value>,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Note,
    /// Degrades.
    Warning,
    /// Invalidates.
    Error,
}

/// Labels in wall time; durations on the device's monotonic clock. `None` = that phase was not reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// RFC 3339, the device's clock.
    pub start_utc: Option<String>,
    pub end_utc: Option<String>,
    pub settle_ms: Option<f64>,
    pub load_ms: Option<f64>,
    pub warmup_ms: Option<f64>,
    /// Spawn to exit of the measured invocation.
    pub measure_ms: Option<f64>,
    /// Exit of the measured invocation until no process of the run was left.
    pub drain_ms: Option<f64>,
    pub suspended_ms: Option<f64>,
    /// Spawn and exit of the measured invocation on the clock of `samples`: CLOCK_MONOTONIC of the device, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn_monotonic_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_monotonic_ns: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceBlock {
    pub id: String,
    pub transport: String,
    /// `hostname` is replaced by its HMAC under the salt of the results directory.
    pub machine: Option<Machine>,
    pub containment: Option<Containment>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendBlock {
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
    pub role: RanRole,
    /// As named in the campaign; for a library its path on the device.
    pub name: String,
    pub file: FileFact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RanRole {
    Program,
    Interpreter,
    Argument,
    Input,
    Library,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub model: Option<ModelBlock>,
    pub inputs: Vec<TensorFact>,
    pub outputs: Vec<TensorFact>,
    pub output_digest: Option<OutputDigest>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelBlock {
    pub id: String,
    pub path: String,
    pub sha256: Option<String>,
    pub bytes: Option<u64>,
    pub quantization: Option<String>,
    pub tags: IndexMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputDigest {
    /// sha256, hex.
    pub value: String,
    pub method: String,
    /// What the campaign or an earlier repetition says it must be; `None` = nothing to compare with.
    pub expected: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrepareStep {
    pub step: String,
    pub outcome: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub duration_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The fixed wait asked for.
    pub requested_ms: u64,
    /// `fixed_wait`, or `not_reached`.
    pub verdict: String,
}

/// The machine before, during and after.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Context {
    pub before: Option<Snapshot>,
    /// metric → summary over the samples between spawn and exit.
    pub during: BTreeMap<String, DuringSummary>,
    pub after: Option<Snapshot>,
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DuringSummary {
    pub unit: String,
    pub n: u32,
    pub mean: f64,
    pub min: f64,
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
    pub unit: String,
    pub better: Better,
    /// Samples behind it.
    pub n: u32,
    pub spread: Option<Spread>,
    /// Definition id, e.g. `inference.wall.v1`.
    pub definition: String,
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
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// ddof 1; `None` with one sample.
    pub sd: Option<f64>,
    pub q1: f64,
    pub q3: f64,
}

/// Raw times of a `builtin` run, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iterations {
    pub warmup_ns: Vec<u64>,
    /// One list per round, in order.
    pub rounds_ns: Vec<Vec<u64>>,
    /// Start of the first and end of the last timed iteration, CLOCK_MONOTONIC of the device.
    pub window_start_ns: u64,
    pub window_end_ns: u64,
}

/// Telemetry in the record, or beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Samples {
    Inline(Series),
    /// CSV, `monotonic_ns` and then these columns in this order; an empty field = that read failed.
    Sidecar {
        file: Sidecar,
        columns: Vec<SampledColumn>,
    },
}

/// A column of the samples sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampledColumn {
    pub metric: String,
    pub unit: String,
    pub source: String,
}

/// A file beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    /// Bare file name in the record's directory.
    pub name: String,
    pub bytes: u64,
    /// Of the file as stored, hex.
    pub sha256: String,
    /// `zstd` or `csv+zstd`.
    pub format: String,
}

/// What the tool printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// As of `waitpid(2)`; `None` where nothing was waited for.
    pub wait_status: Option<i32>,
    pub stdout: RawStream,
    pub stderr: RawStream,
    /// Files collected by name.
    pub files: BTreeMap<String, RawStream>,
    pub warmup: Vec<RawInvocation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawInvocation {
    pub wait_status: Option<i32>,
    pub stdout: RawStream,
    pub stderr: RawStream,
}

/// A stream: length and hash of all of it, and its content here or in a sidecar.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawStream {
    pub bytes: u64,
    /// Over the whole stream, hex.
    pub sha256: String,
    /// All of it, or its beginning; `None` where it is in the sidecar, missing or not written.
    pub head: Option<Blob>,
    /// Its end, where the middle was dropped.
    pub tail: Option<Blob>,
    /// Bytes of the beginning that were kept; what else was kept is the end.
    pub kept_head_bytes: Option<u64>,
    /// Kept bytes, beginning and end, one after the other.
    pub sidecar: Option<Sidecar>,
    /// Why there is no content.
    pub absent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    pub isotherm: String,
    pub agent: Option<isotherm_wire::result::AgentFacts>,
}
