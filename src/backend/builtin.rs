//! The `builtin` backend: ONNX inference by the engine inside the agent.

use super::{RawOutput, Reading, check_digest, last_words, measured, spread};
use crate::config::model::{Settings, Window as Asked};
use crate::registry::{Code, MetricId};
use crate::stats;
use crate::store::record::{Issue, Iterations, Kind, Metric, Reason};
use isotherm_wire::task::{InferOutput, InferTask, Task, Window};
use serde_json::{Value, json};
use std::time::Duration;

/// Seed of the generated inputs.
pub const SEED: u64 = 1;

/// A power run aims at so many samples, …
const SAMPLES: f64 = 100.0;
/// … at twice as many values of its instrument as a monitor has to have in a window, …
const VALUES: u32 = 20;
/// … and lasts at least so long: what a counter that is read at both ends of it misses there is a small part then.
const LEAST_WINDOW: Duration = Duration::from_secs(5);
/// Inferences of a warm-up that tell how long one takes.
const LEAST_WARMUP: u32 = 3;

/// A timing run has its rounds and pauses. A power run has one round without a pause, so that what is measured is a machine at work.
/// `period`: of the instrument of record.
pub(super) fn task(threads: u32, settings: &Settings, kind: Kind, model: &str, period: Duration) -> Task {
    let timing = InferTask {
        model: model.to_owned(),
        threads,
        warmup: settings.warmup,
        rounds: settings.rounds,
        iterations: settings.iterations,
        window: None,
        cooldown_ms: settings.cooldown.as_millis() as u64,
        seed: SEED,
    };
    Task::Infer(match kind {
        Kind::Timing => timing,
        Kind::Power => {
            InferTask { rounds: 1, iterations: most(settings), window: window(settings, period), warmup: warmup(settings, kind), ..timing }
        }
    })
}

/// What of the campaign's request is this backend's own.
pub(super) fn requested(threads: u32, settings: &Settings, kind: Kind, period: Duration) -> Vec<(&'static str, Value)> {
    let mut requested = vec![("warmup", warmup(settings, kind).into()), ("threads", threads.into())];
    match (kind, window(settings, period)) {
        (Kind::Timing, _) => requested.extend([
            ("rounds", settings.rounds.into()),
            ("iterations", settings.iterations.into()),
            ("cooldown_ms", (settings.cooldown.as_millis() as u64).into()),
        ]),
        (Kind::Power, None) => requested.extend([("rounds", 1.into()), ("iterations", most(settings).into())]),
        (Kind::Power, Some(Window { target_ms, least })) => {
            requested.push((super::WINDOW, json!({ "target_ms": target_ms, "min": least, "max": most(settings) })));
        }
    }
    requested
}

fn window(settings: &Settings, period: Duration) -> Option<Window> {
    let sampled = || {
        let samples = Duration::try_from_secs_f64(SAMPLES / settings.sample_hz).unwrap_or(Duration::MAX);
        // The run's time is for loading and warm-up as well.
        samples.max(period.saturating_mul(VALUES)).max(LEAST_WINDOW).min(settings.timeout / 2)
    };
    let Asked { fills, target, min, max: _ } = settings.window;
    fills.then(|| Window { target_ms: target.unwrap_or_else(sampled).as_millis() as u64, least: min })
}

/// Inferences of a power run.
fn most(settings: &Settings) -> u32 {
    if settings.window.fills { settings.window.max } else { settings.rounds.saturating_mul(settings.iterations) }
}

fn warmup(settings: &Settings, kind: Kind) -> u32 {
    match kind {
        Kind::Power if settings.window.fills => settings.warmup.max(LEAST_WARMUP),
        _ => settings.warmup,
    }
}

pub(super) fn read(expected_digest: Option<&str>, raw: &RawOutput, exit_code: i32) -> Reading {
    let mut reading = Reading::default();
    if exit_code != 0 {
        let words = last_words(raw).unwrap_or_else(|| "it said nothing".into());
        reading.failure = Some((Reason::ExitCode, words));
        return reading;
    }
    let output: InferOutput = match serde_json::from_slice(&raw.stdout.kept) {
        Ok(output) => output,
        Err(e) => {
            reading.failure = Some((Reason::Parse, format!("the engine's output was not understood: {e}")));
            return reading;
        }
    };
    let rounds_ms: Vec<Vec<f64>> = output.rounds_ns.iter().map(|r| r.iter().map(|&ns| ns as f64 / 1e6).collect()).collect();
    let all_ms: Vec<f64> = rounds_ms.iter().flatten().copied().collect();
    // Run headline = median of its round medians.
    let round_medians: Vec<f64> = rounds_ms.iter().filter_map(|r| stats::median(r)).collect();
    let (name, empty) = measured(MetricId::Latency, &[]);
    let latency = Metric { value: stats::median(&round_medians), n: all_ms.len() as u32, spread: spread(&all_ms, &round_medians), ..empty };
    let per_second: Vec<f64> = round_medians.iter().filter(|&&ms| ms > 0.0).map(|ms| 1000.0 / ms).collect();
    let ms = |ns: u64| ns as f64 / 1e6;
    reading.metrics.extend([
        (name, latency),
        measured(MetricId::Throughput, &per_second),
        measured(MetricId::Load, &[ms(output.load_ns)]),
        measured(MetricId::FirstInference, &[ms(output.first_inference_ns)]),
    ]);
    reading.metrics.extend(raw.peak_rss.map(|peak| measured(MetricId::PeakRss, &[peak.bytes as f64])));
    reading.load_ms = Some(ms(output.load_ns));
    reading.warmup_ms = Some(output.warmup_ns.iter().map(|&ns| ns as f64 / 1e6).sum());

    let (spawn, exit) = raw.window.unwrap_or((0, u64::MAX));
    if output.window_start_ns < spawn || output.window_end_ns > exit || output.window_end_ns <= output.window_start_ns {
        let message = "the engine's window does not lie between the start and the end of its process";
        reading.issues.push(Issue::new(Code::WindowOutsideRun, message));
    }
    reading.version = Some(format!("{} {} (revision {})", output.engine, output.engine_version, output.revision));
    reading.resolved.insert("threads".into(), output.threads.into());
    reading.executed.insert("threads".into(), output.threads.into());
    reading.executed.insert("rounds".into(), output.rounds_ns.len().into());
    reading.executed.insert("iterations".into(), output.rounds_ns.first().map_or(0, Vec::len).into());
    reading.executed.insert("warmup".into(), output.warmup_ns.len().into());
    check_digest(&mut reading, output.output_digest, &output.output_digest_method, expected_digest);
    reading.inputs = output.inputs;
    reading.outputs = output.outputs;
    reading.iterations = Some(Iterations {
        warmup_ns: output.warmup_ns,
        rounds_ns: output.rounds_ns,
        round_spans_ns: output.round_spans_ns,
        window_start_ns: output.window_start_ns,
        window_end_ns: output.window_end_ns,
    });
    reading
}
