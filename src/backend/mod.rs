//! Backends: takes a point, gives a task; later takes a raw result, gives metrics. One file per tool; must not know how a task travels.

pub mod builtin;
pub mod command;
pub mod llama_bench;
pub mod llama_help;
mod llama_log;
mod llama_offload;
pub mod llama_server;
pub mod memory;
pub mod output;

pub use crate::store::record::ParseSpec;
pub use output::RawOutput;

use crate::config::model::{AxisValue, Better, TextSource};
use crate::digest::sha256_hex;
use crate::plan::{Point, Work, identity};
use crate::registry::{Code, MetricId};
use crate::stats;
use crate::store::record::{Issue, Iterations, Kind, LlamaBenchTest, Metric, OutputDigest, Reason, Spread};
use indexmap::IndexMap;
use isotherm_wire::task::{Task, TensorFact};
use serde_json::Value;
use std::time::Duration;

impl ParseSpec {
    /// sha256 (hex) over its canonical JSON: rules with the same digest read the same.
    ///
    /// # Panics
    /// Never: rules are plain JSON.
    #[must_use]
    pub fn digest(&self) -> String {
        let value = serde_json::to_value(self).expect("rules are plain JSON");
        sha256_hex(identity::canonical(&value).as_bytes())
    }

    /// Where they look.
    fn sources(&self) -> Vec<&TextSource> {
        match self {
            ParseSpec::Builtin { .. } => vec![&TextSource::Stdout],
            ParseSpec::Command { metrics, success } => {
                metrics.values().map(|rule| &rule.from).chain(success.output_digest.as_ref().map(|rule| &rule.from)).collect()
            }
            // stderr has when each sample began.
            ParseSpec::LlamaBench(_) => vec![&TextSource::Stdout, &TextSource::Stderr],
            ParseSpec::LlamaServer(_) => vec![&TextSource::Stdout],
        }
    }
}

/// Name under which a power run's window is requested.
pub const WINDOW: &str = "window";

/// Share by which a tool's own times may be longer than those that were seen of it: it may go by a clock that is being adjusted.
const MOST_CLOCKS_APART: f64 = 1e-3;

/// Codes of the issues that reading can raise; all others are remarks on what went on around the run.
pub const READ_ISSUES: [Code; 9] = [
    Code::OutputMismatch,
    Code::OutputDiffers,
    Code::WindowOutsideRun,
    Code::CpuFallback,
    Code::ExecutedDiffers,
    Code::SamplesDiffer,
    Code::BeyondTrainedContext,
    Code::KvTrafficExcluded,
    Code::PromptCached,
];

/// What a backend reads out of a result whose workload ended by itself.
#[derive(Debug, Default)]
pub struct Reading {
    /// The run is not `ok` after all: why, in words.
    pub failure: Option<(Reason, String)>,
    pub metrics: IndexMap<String, Metric>,
    pub iterations: Option<Iterations>,
    pub tests: Vec<LlamaBenchTest>,
    pub issues: Vec<Issue>,
    pub version: Option<String>,
    pub resolved: IndexMap<String, Value>,
    pub executed: IndexMap<String, Value>,
    pub load_ms: Option<f64>,
    pub warmup_ms: Option<f64>,
    pub inputs: Vec<TensorFact>,
    pub outputs: Vec<TensorFact>,
    pub output_digest: Option<OutputDigest>,
}

/// The task of a run. `model_path`: as found on the device, else as written; `period`: see [`crate::plan::power::period`].
#[must_use]
pub fn task(point: &Point, kind: Kind, model_path: Option<&str>, period: Duration) -> Task {
    match &point.work {
        Work::Builtin { threads } => builtin::task(*threads, &point.settings, kind, model_path.unwrap_or_default(), period),
        Work::Command(work) => command::task(work, point.texts(model_path).argv, &point.settings),
        Work::LlamaBench(work) => llama_bench::task(work, &point.settings, model_path.unwrap_or_default()),
        Work::LlamaServer(work) => llama_server::task(work, &point.settings, model_path.unwrap_or_default()),
        Work::Later => unreachable!("a point of a later build is never run"),
    }
}

/// How a point's results are read.
#[must_use]
pub fn parse_spec(point: &Point) -> ParseSpec {
    match &point.work {
        Work::Builtin { .. } => ParseSpec::Builtin { expected_digest: point.model.as_ref().and_then(|m| m.declared.output_digest.clone()) },
        Work::Command(work) => ParseSpec::Command { metrics: work.metrics.as_ref().clone(), success: work.success.as_ref().clone() },
        Work::LlamaBench(work) => ParseSpec::LlamaBench(llama_bench::asked(work, &point.settings)),
        Work::LlamaServer(work) => ParseSpec::LlamaServer(llama_server::asked(work, &point.settings, &point.env)),
        Work::Later => unreachable!("a point of a later build is never run"),
    }
}

/// What the campaign asked of a run, as it stands in the record; `period` as in [`task`].
#[must_use]
pub fn requested(point: &Point, kind: Kind, period: Duration) -> IndexMap<String, Value> {
    let settings = &point.settings;
    let own = match &point.work {
        Work::Builtin { threads } => builtin::requested(*threads, settings, kind, period),
        Work::LlamaBench(work) => llama_bench::requested(work, settings),
        Work::LlamaServer(work) => llama_server::requested(work, settings),
        Work::Command(_) | Work::Later => vec![("warmup", settings.warmup.into())],
    };
    let mut requested: IndexMap<String, Value> = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if let Some(AxisValue::Text(cpus)) = point.ids.axes.get("cpus") {
        requested.insert("cpus".into(), cpus.clone().into());
    }
    requested.insert("timeout_ms".into(), (settings.timeout.as_millis() as u64).into());
    requested.insert("sample_hz".into(), settings.sample_hz.into());
    if let Some(temp_max_c) = point.limits.temp_max_c {
        requested.insert("temp_max_c".into(), temp_max_c.into());
    }
    requested
}

/// Read the output of a run whose workload ended by itself with this exit code.
#[must_use]
pub fn read(spec: &ParseSpec, output: &RawOutput, exit_code: i32) -> Reading {
    match spec {
        ParseSpec::Builtin { expected_digest } => builtin::read(expected_digest.as_deref(), output, exit_code),
        ParseSpec::Command { metrics, success } => command::read(metrics, success, output, exit_code),
        ParseSpec::LlamaBench(asked) => llama_bench::read(asked, output, exit_code),
        ParseSpec::LlamaServer(asked) => llama_server::read(asked, output, exit_code),
    }
}

/// The last lines of what a tool said: of stderr, or of stdout where it kept silent there.
#[must_use]
pub fn last_words(output: &RawOutput) -> Option<String> {
    const LINES: usize = 4;
    const CHARS: usize = 500;
    [&output.stderr, &output.stdout].into_iter().find_map(|stream| {
        let bytes = &stream.kept;
        // The end of megabytes is enough to find a few lines in.
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(8192)..]).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty() && !is_of_debugger(line)).collect();
        let words = lines[lines.len().saturating_sub(LINES)..].join(" / ");
        let from = words.chars().count().saturating_sub(CHARS);
        let words: String = words.chars().skip(from).collect();
        (!words.is_empty()).then_some(words)
    })
}

/// A source line that gdb couldn't find: ggml lets it print where it aborted, after its own words.
fn is_of_debugger(line: &str) -> bool {
    line.split_once('\t').is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        && line.ends_with("No such file or directory.")
}

/// A metric from its samples: their median, with how they lie.
fn metric_of(samples: &[f64], unit: &str, better: Better, definition: &str) -> Metric {
    Metric {
        value: stats::median(samples),
        unit: unit.into(),
        better,
        n: samples.len() as u32,
        spread: spread(samples, samples),
        definition: definition.into(),
        label: None,
        omitted_reason: None,
        samples: Vec::new(),
        samples_sidecar: None,
    }
}

/// A metric of the registry: its name, and what its samples make of it.
fn measured(id: MetricId, samples: &[f64]) -> (String, Metric) {
    let entry = id.entry();
    (entry.name.into(), metric_of(samples, entry.unit.symbol(), entry.better, entry.definition))
}

/// A number that isn't there, and why.
fn omitted(unit: &str, better: Better, definition: &str, reason: String) -> Metric {
    Metric {
        value: None,
        unit: unit.into(),
        better,
        n: 0,
        spread: None,
        definition: definition.into(),
        label: None,
        omitted_reason: Some(reason),
        samples: Vec::new(),
        samples_sidecar: None,
    }
}

/// `all`: every sample; `headline_of`: what the headline is the median of (rounds, or the samples themselves).
pub(crate) fn spread(all: &[f64], headline_of: &[f64]) -> Option<Spread> {
    let quantile = |q| stats::quantile(all, q);
    Some(Spread {
        cov_pct: stats::coefficient_of_variation(headline_of).map(|c| c * 100.0),
        min: quantile(0.0)?,
        max: quantile(1.0)?,
        mean: stats::mean(all)?,
        sd: stats::standard_deviation(all),
        q1: quantile(0.25)?,
        q3: quantile(0.75)?,
    })
}

/// More tokens of context than a model was trained for, by its file or by the tool.
fn beyond_trained_context(tokens: u64, trained: u64) -> Option<Issue> {
    let message = || format!("{tokens} tokens of context for a model that was trained for {trained}");
    (tokens > trained).then(|| Issue::new(Code::BeyondTrainedContext, message()))
}

/// Name of a signal, and what it means where not every tool has words of its own for that.
#[must_use]
pub fn signal_words(signal: i32) -> (String, &'static str) {
    let name = signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned);
    (name, if signal == signal_hook::consts::SIGILL { ", an instruction that this CPU doesn't have" } else { "" })
}

/// Compare an output with what it must be.
fn check_digest(reading: &mut Reading, value: String, method: &str, expected: Option<&str>) {
    if let Some(expected) = expected.filter(|e| *e != value) {
        let message = format!("the output's digest is {value}, it must be {expected}: another answer than the one expected");
        reading.issues.push(Issue::new(Code::OutputMismatch, message));
    }
    reading.output_digest = Some(OutputDigest { value, method: method.into(), expected: expected.map(str::to_owned) });
}
