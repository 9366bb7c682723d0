//! What a run has left as it came, output and telemetry: in its record, or in a sidecar.

use isotherm_wire::result::Blob;
use isotherm_wire::telemetry::Series;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Telemetry in the record, or beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Samples {
    /// All of it.
    Inline(Series),
    /// CSV, `monotonic_ns` and then these columns in this order; an empty field = that read failed.
    Sidecar {
        /// The file.
        file: Sidecar,
        /// What its columns are, after the first.
        columns: Vec<SampledColumn>,
    },
}

/// A column of the samples sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampledColumn {
    /// The column's name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which of several it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Path of the file it was read from.
    pub source: String,
}

/// A file beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sidecar {
    /// Bare file name in the record's directory.
    pub name: String,
    /// Size of the file as stored.
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
    /// Standard output of the measured invocation.
    pub stdout: RawStream,
    /// Its standard error.
    pub stderr: RawStream,
    /// Files collected by name.
    pub files: BTreeMap<String, RawStream>,
    /// Warm-up invocations, in order.
    pub warmup: Vec<RawInvocation>,
}

/// What a warm-up invocation printed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawInvocation {
    /// As of `waitpid(2)`; `None` where it was ended by its time-out.
    pub wait_status: Option<i32>,
    /// Its standard output.
    pub stdout: RawStream,
    /// Its standard error.
    pub stderr: RawStream,
}

/// A stream: length and hash of all of it, and its content here or in a sidecar.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawStream {
    /// Length of the whole stream.
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
    /// How many secrets were taken out of it on the device; length and hash are those of what is left. `None` = the stream was kept
    /// as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<u64>,
    /// When the end of each line arrived, from the first one on, CLOCK_MONOTONIC of the device; empty where nobody asked for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub line_ns: Vec<u64>,
}
