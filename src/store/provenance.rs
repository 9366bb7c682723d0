//! How a record came to say what it says: the rules its output was read by, earlier readings, and what a public copy replaced.

use crate::config::model::{MetricRule, Success};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How metrics, status and validity were derived from raw output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Read {
    pub rules: ParseSpec,
    /// Every time that they were derived again from the same output, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<ReadAgain>,
}

/// One `isotherm reparse`, or a `run` with changed rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadAgain {
    /// RFC 3339, the controller's clock.
    pub at: String,
    /// Version that read it.
    pub isotherm: String,
    /// The record as it was before, relative to the results directory.
    pub earlier: String,
}

/// The rules by which output is read. They travel in the manifest, so that any controller can read a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParseSpec {
    /// The output of the engine inside the agent.
    Builtin {
        /// What the model must answer; `None` = nothing is declared.
        expected_digest: Option<String>,
    },
    /// The output of any program.
    Command {
        /// name → rule of the campaign.
        metrics: IndexMap<String, MetricRule>,
        /// When an invocation counts as done well.
        success: Success,
    },
    /// The output of llama.cpp's benchmark.
    LlamaBench(LlamaBenchAsked),
    /// The times of requests to llama.cpp's server.
    LlamaServer(LlamaServerAsked),
}

/// What llama.cpp's server was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct LlamaServerAsked {
    /// Tokens of the prompt.
    pub n_prompt: u32,
    /// Tokens generated for each request.
    pub n_gen: u32,
    /// Measured requests, of all clients together.
    pub requests: u32,
    /// From its spawn until it is ready.
    pub startup_timeout_ms: u64,
    /// What a request may take to count as served well; `None` = nothing is declared.
    pub slo: Option<Slo>,
    /// The options that ask for another device than the CPU, and variables that do likewise; `None` = none do.
    #[serde(default)]
    pub offload: Option<String>,
    /// Neither options nor variables say whether another device than the CPU is to compute.
    #[serde(default)]
    pub offload_unsaid: bool,
    /// Requests at a time, as passed; `None` = a version that kept no note of it.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Tokens of context of all requests at a time together, likewise.
    #[serde(default)]
    pub n_ctx: Option<u32>,
    /// Threads that compute, as passed; `None` = not passed, or a version that kept no note of it.
    #[serde(default)]
    pub threads: Option<u32>,
}

/// What a request may take; a limit that isn't there is kept by all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// Until its first token.
    pub ttft_ms: Option<f64>,
    /// For each token after it.
    pub tpot_ms: Option<f64>,
}

/// `ttft ≤ 500 ms, tpot ≤ 50 ms`.
impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limits = [("ttft", self.ttft_ms), ("tpot", self.tpot_ms)].into_iter().filter_map(|(name, ms)| Some(format!("{name} ≤ {} ms", ms?)));
        f.write_str(&limits.collect::<Vec<_>>().join(", "))
    }
}

/// What llama.cpp's benchmark was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LlamaBenchAsked {
    /// Tokens of the prompt; 0 = no test of prefill.
    pub n_prompt: u32,
    /// Tokens generated; 0 = no test of decode.
    pub n_gen: u32,
    /// Tokens in the context before, of either test.
    pub depth: u32,
    /// Of each test.
    pub samples: u32,
    /// Options that ask for another device than the CPU; `None` = there are none.
    pub offload: Option<String>,
    /// Options that the tool repeats in its output, as they were passed.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub passed: IndexMap<String, String>,
}

/// What a copy for others differs in from the record that it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exported {
    /// RFC 3339, the exporting machine's clock.
    pub at: String,
    /// Version that made the copy.
    pub isotherm: String,
    /// By field.
    pub replaced: Vec<Replaced>,
}

/// When and by which version a copy was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportNote {
    pub at: String,
    pub isotherm: String,
}

/// One field of a record that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// Names from the top, with dots: `device.machine.boot_id`.
    pub field: String,
    /// What was taken out of it.
    pub what: String,
}
