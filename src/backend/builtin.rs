//! The `builtin` backend: ONNX inference by the engine inside the agent.

use super::{RawOutput, Reading, check_digest, last_words, measured, spread};
use crate::config::model::Settings;
use crate::registry::{Code, MetricId};
use crate::stats;
use crate::store::record::{Issue, Iterations, Kind, Metric, Reason};
use isotherm_wire::task::{InferOutput, InferTask, Task};

/// Seed of the generated inputs.
pub const SEED: u64 = 1;

/// Pause between rounds. A power run has none: the mean of its window is that of a working machine.
pub(super) fn cooldown_ms(settings: &Settings, kind: Kind) -> u64 {
    match kind {
        Kind::Timing => settings.cooldown.as_millis() as u64,
        Kind::Power => 0,
    }
}

pub(super) fn task(threads: u32, settings: &Settings, kind: Kind, model: &str) -> Task {
    Task::Infer(InferTask {
        model: model.to_owned(),
        threads,
        warmup: settings.warmup,
        rounds: settings.rounds,
        iterations: settings.iterations,
        cooldown_ms: cooldown_ms(settings, kind),
        seed: SEED,
    })
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
