//! Builtin inference: takes one [`InferTask`] as JSON, gives one [`InferOutput`] as JSON; must not know campaigns or metrics.
//!
//! It runs as a child process of its own, so that its memory, its threads and its death are those of the workload alone.
//! The timed part holds the engine's call and nothing of ours: inputs and lists are made before it, facts and digests after it.

mod error;
mod tensor;

pub use error::InferError;

use crate::sys::monotonic_ns;
use isotherm_wire::task::{InferOutput, InferTask, OUTPUT_DIGEST_METHOD, Window};
use rten::{LoadErrorKind, Model, NodeId, RunError, RunOptions, ThreadPool, Value, ValueOrView};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tensor::TensorError;

/// Name of the engine in every record of its runs.
pub const ENGINE: &str = "rten";

/// Version of the engine, as `agent/Cargo.toml` pins it and `Cargo.lock` records it.
const ENGINE_VERSION: &str = "0.27.0";

/// How the engine is driven; raised with any change that can move a timing or an input.
///
/// 1: graph optimisation on, weights not prepacked, the loop runs inside a worker of the pool, inputs by splitmix64.
pub const REVISION: u32 = 1;

/// Most threads that a task may ask for: well above any board's core count, and low enough that a slip of the keyboard is an
/// error instead of an exhausted process table.
const MAX_THREADS: u32 = 1024;

/// Name, version and [`REVISION`] of the engine: what makes timings of two agents comparable.
pub fn engine_identity() -> (&'static str, &'static str, u32) {
    (ENGINE, ENGINE_VERSION, REVISION)
}

/// Executes one task: reads it from `input` up to its end, writes one line to `output`.
///
/// # Errors
///
/// Any [`InferError`]; nothing has been written then, unless writing itself failed.
pub fn run(input: &mut impl Read, output: &mut impl Write) -> Result<(), InferError> {
    let mut text = Vec::new();
    input.read_to_end(&mut text).map_err(|error| InferError::Task(error.to_string()))?;
    let task: InferTask = serde_json::from_slice(&text).map_err(|error| InferError::Task(error.to_string()))?;
    let answer = infer(&task)?;
    let mut line = serde_json::to_vec(&answer).map_err(|error| InferError::Output(error.into()))?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).map_err(InferError::Output)
}

/// Prepares, measures, and only then looks at the answers.
fn infer(task: &InferTask) -> Result<InferOutput, InferError> {
    check(task)?;
    let pool = start_pool(task.threads)?;
    let load_start = monotonic_ns();
    let model = load(&task.model)?;
    let load_ns = monotonic_ns() - load_start;
    let inputs = tensor::generate(&model, task.seed).map_err(|error| error.of_model(&task.model))?;
    let engine = Engine { model: &model, inputs: &inputs, options: RunOptions::default().with_thread_pool(Some(pool.clone())) };
    let timings = Timings::with_room_for(task)?;

    // Inside a worker from the start: entering the pool once per inference would add a thread hand-over to each.
    let measured = pool.run(|| measure(&engine, task, timings)).map_err(|error| InferError::model(task, "inference failed", error))?;

    let Measured { timings, first, last } = measured;
    let names = tensor::names(&model, model.output_ids());
    let in_model = |error: TensorError| error.of_model(&task.model);
    let (engine, engine_version, revision) = engine_identity();
    Ok(InferOutput {
        engine: engine.to_owned(),
        engine_version: engine_version.to_owned(),
        revision,
        threads: task.threads,
        load_ns,
        first_inference_ns: timings.first_ns(),
        rounds_ns: timings.timed_ns.chunks(task.iterations as usize).map(<[u64]>::to_vec).collect(),
        warmup_ns: timings.warmup_ns,
        round_spans_ns: timings.round_spans_ns,
        window_start_ns: timings.window_start_ns,
        window_end_ns: timings.window_end_ns,
        inputs: inputs.iter().map(|input| tensor::fact(&input.name, &input.value)).collect::<Result<_, _>>().map_err(in_model)?,
        outputs: names.iter().zip(&last).map(|(name, value)| tensor::fact(name, value)).collect::<Result<_, _>>().map_err(in_model)?,
        output_digest: settled_digest(&task.model, &names, first.as_deref(), &last)?,
        output_digest_method: OUTPUT_DIGEST_METHOD.to_owned(),
    })
}

/// The digest of the last answer, if the first one had the same.
fn settled_digest(path: &str, names: &[String], first: Option<&[Value]>, last: &[Value]) -> Result<String, InferError> {
    let digest = |values| tensor::digest(names, values).map_err(|error| error.of_model(path));
    let of_last = digest(last)?;
    match first.map(digest).transpose()? {
        Some(of_first) if of_first != of_last => Err(InferError::OutputsDiffer { path: path.to_owned(), first: of_first, last: of_last }),
        _ => Ok(of_last),
    }
}

/// Refuses what would measure nothing, exhaust the device or spoil our own output.
fn check(task: &InferTask) -> Result<(), InferError> {
    let refuse = |what, given, allowed| Err(InferError::Number { what, given, allowed });
    if !(1..=MAX_THREADS).contains(&task.threads) {
        return refuse("threads", task.threads, "1 to 1024");
    }
    if task.rounds == 0 {
        return refuse("rounds", task.rounds, "at least 1");
    }
    if task.iterations == 0 {
        return refuse("iterations", task.iterations, "at least 1");
    }
    if task.window.is_some() && task.warmup == 0 {
        return refuse("warm-up before a window", 0, "at least 1");
    }
    // rten 0.27 prints a table to stdout after every inference when this is set, whatever its value.
    if std::env::var_os("RTEN_TIMING").is_some() {
        return Err(InferError::EnginePrints);
    }
    Ok(())
}

/// A pool of exactly `threads` workers, started.
fn start_pool(threads: u32) -> Result<Arc<ThreadPool>, InferError> {
    // rten 0.27 makes its default pool at the first inference even if another one is given; made here, it can't be inside a timing.
    rten::thread_pool();
    let pool = ThreadPool::with_num_threads(threads as usize);
    // rten 0.27 keeps quiet if the workers can't be started and runs in the calling thread: ask from inside.
    let started = pool.run(|| rayon::current_thread_index().map(|_| rayon::current_num_threads()));
    if started == Some(threads as usize) { Ok(Arc::new(pool)) } else { Err(InferError::Pool { asked: threads, started }) }
}

/// Reads and prepares the model.
fn load(path: &str) -> Result<Model, InferError> {
    let failed = |what, source: String| InferError::Model { path: path.to_owned(), what, source };
    let bytes = std::fs::read(path).map_err(|error| failed("can't be read", error.to_string()))?;
    Model::load(bytes).map_err(|error| {
        let what = match error.kind() {
            LoadErrorKind::UnknownFileType => "not an ONNX file, or a truncated one",
            LoadErrorKind::ParseError => "damaged or truncated ONNX file",
            LoadErrorKind::OperatorInvalid => "the engine can't execute an operator",
            LoadErrorKind::ExternalDataError => "weights outside the model file are not supported",
            _ => "the engine can't prepare it",
        };
        failed(what, error.to_string().trim_end().to_owned())
    })
}

/// Everything that stays the same from inference to inference.
struct Engine<'a> {
    model: &'a Model,
    inputs: &'a [tensor::Input],
    options: RunOptions,
}

/// One inference: its outputs, and CLOCK_MONOTONIC before and after the engine's call.
struct Inference {
    outputs: Vec<Value>,
    start_ns: u64,
    end_ns: u64,
}

impl Engine<'_> {
    fn infer(&self) -> Result<Inference, RunError> {
        let inputs: Vec<(NodeId, ValueOrView)> = self.inputs.iter().map(|input| (input.id, (&input.value).into())).collect();
        let options = Some(self.options.clone());
        let start_ns = monotonic_ns();
        let outputs = self.model.run(inputs, self.model.output_ids(), options)?;
        let end_ns = monotonic_ns();
        Ok(Inference { outputs, start_ns, end_ns })
    }
}

/// Durations in order of execution; all room is reserved before the first inference.
struct Timings {
    warmup_ns: Vec<u64>,
    /// Round after round, without separators.
    timed_ns: Vec<u64>,
    round_spans_ns: Vec<(u64, u64)>,
    window_start_ns: u64,
    window_end_ns: u64,
}

impl Timings {
    fn with_room_for(task: &InferTask) -> Result<Timings, InferError> {
        fn room<T>(wanted: u64) -> Result<Vec<T>, InferError> {
            let mut list = Vec::new();
            let reserved = usize::try_from(wanted).is_ok_and(|wanted| list.try_reserve_exact(wanted).is_ok());
            if reserved { Ok(list) } else { Err(InferError::TooManyInferences(wanted)) }
        }
        let timed_ns = room(u64::from(task.rounds) * u64::from(task.iterations))?;
        let (warmup_ns, round_spans_ns) = (room(u64::from(task.warmup))?, room(u64::from(task.rounds))?);
        Ok(Timings { warmup_ns, timed_ns, round_spans_ns, window_start_ns: 0, window_end_ns: 0 })
    }

    /// Duration of the very first inference, warm-up or not.
    fn first_ns(&self) -> u64 {
        *self.warmup_ns.first().or(self.timed_ns.first()).expect("a task has at least one timed inference")
    }
}

/// What the loop leaves: `first` is `None` if the first inference was also the last.
struct Measured {
    timings: Timings,
    first: Option<Vec<Value>>,
    last: Vec<Value>,
}

/// Warm-up, then the rounds with their pauses.
fn measure(engine: &Engine, task: &InferTask, mut timings: Timings) -> Result<Measured, RunError> {
    let mut first = None;
    let mut last: Option<Vec<Value>> = None;
    let mut keep = |outputs: Vec<Value>| {
        let previous = last.replace(outputs);
        if first.is_none() {
            first = previous;
        }
    };
    for _ in 0..task.warmup {
        let inference = engine.infer()?;
        timings.warmup_ns.push(inference.end_ns - inference.start_ns);
        keep(inference.outputs);
    }
    let iterations = task.window.map_or(task.iterations, |window| filling(window, &timings.warmup_ns, task.iterations));
    for round in 0..task.rounds {
        if round > 0 {
            std::thread::sleep(Duration::from_millis(task.cooldown_ms));
        }
        let mut round_start_ns = None;
        for _ in 0..iterations {
            let inference = engine.infer()?;
            if timings.timed_ns.is_empty() {
                timings.window_start_ns = inference.start_ns;
            }
            round_start_ns.get_or_insert(inference.start_ns);
            timings.timed_ns.push(inference.end_ns - inference.start_ns);
            timings.window_end_ns = inference.end_ns;
            keep(inference.outputs);
        }
        timings.round_spans_ns.extend(round_start_ns.map(|start_ns| (start_ns, timings.window_end_ns)));
    }
    Ok(Measured { timings, first, last: last.unwrap_or_default() })
}

/// How many inferences last as long as a window. The first ones of a process are slow, so it goes by the later half of the warm-up.
fn filling(window: Window, warmup_ns: &[u64], most: u32) -> u32 {
    let mut settled = warmup_ns[warmup_ns.len() / 2..].to_vec();
    settled.sort_unstable();
    let typical_ns = settled.get(settled.len() / 2).copied().unwrap_or(u64::MAX).max(1);
    let filling = window.target_ms.saturating_mul(1_000_000).div_ceil(typical_ns);
    u32::try_from(filling).unwrap_or(u32::MAX).max(window.least).min(most)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rten_tensor::prelude::*;

    fn example(model: &str) -> Model {
        load(&format!("{}/../configs/models/{model}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn the_stated_engine_version_is_the_one_in_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
        let entry = format!("name = \"{ENGINE}\"\nversion = \"{ENGINE_VERSION}\"\n");
        assert!(lock.contains(&entry), "Cargo.lock has another {ENGINE} than {ENGINE_VERSION}");
    }

    #[test]
    fn a_window_is_filled_by_what_the_later_half_of_the_warm_up_took() {
        let filled = |warmup_ms: &[u64], target_ms, least, most| {
            let warmup_ns: Vec<u64> = warmup_ms.iter().map(|ms| ms * 1_000_000).collect();
            filling(Window { target_ms, least }, &warmup_ns, most)
        };
        // 900 and 50 ms are of an engine that still warms up; 4 ms × 1250 are 5 s, 3 ms take one more than 1666.
        assert_eq!(filled(&[900, 50, 4, 4], 5000, 1, 100_000), 1250);
        assert_eq!(filled(&[3, 3], 5000, 1, 100_000), 1667);
        assert_eq!((filled(&[4], 5000, 2000, 100_000), filled(&[4], 5000, 1, 1000)), (2000, 1000));
        assert_eq!((filled(&[0], u64::MAX, 1, 7), filled(&[60_000], 10, 1, 7)), (7, 1));
    }

    #[test]
    fn the_pool_has_as_many_threads_as_asked_for() {
        for threads in [1, 2, 5] {
            assert_eq!(start_pool(threads).unwrap().run(rayon::current_num_threads), threads as usize);
        }
    }

    #[test]
    fn answers_that_change_between_the_first_and_the_last_inference_are_an_error() {
        let names = ["y".to_owned()];
        let answer = |values: [f32; 3]| [Value::from_shape([1, 3], values.to_vec()).unwrap()];
        let (one, other) = (answer([0.1, 0.7, 0.2]), answer([0.1, 0.2, 0.7]));
        assert!(settled_digest("m.onnx", &names, Some(&one), &one).is_ok());
        assert!(settled_digest("m.onnx", &names, None, &one).is_ok());
        let error = settled_digest("m.onnx", &names, Some(&one), &other).unwrap_err().to_string();
        assert!(error.starts_with("model m.onnx: outputs_differ: "), "{error}");
    }

    /// What makes one golden digest valid on every CPU: rounding moves a float32 by about one part in 10⁶ in these models.
    #[test]
    fn the_example_models_rank_their_answers_with_room_for_rounding() {
        for name in ["tiny-cnn.onnx", "tiny-transformer.onnx"] {
            let model = example(name);
            let inputs = tensor::generate(&model, 1).unwrap();
            let engine = Engine { model: &model, inputs: &inputs, options: RunOptions::default().with_thread_pool(Some(start_pool(1).unwrap())) };
            for value in engine.infer().unwrap().outputs {
                let Value::FloatTensor(values) = value else { panic!("{name}: an output is not f32") };
                let row_length = *values.shape().last().unwrap();
                for row in values.to_vec().chunks_mut(row_length) {
                    row.sort_by(|a, b| b.total_cmp(a));
                    let smallest_gap =
                        row[..9].windows(2).map(|pair| (pair[0] - pair[1]) / pair[0].abs().max(pair[1].abs())).fold(f32::MAX, f32::min);
                    assert!(smallest_gap > 1e-4, "{name}: neighbours only {smallest_gap:e} apart");
                }
            }
        }
    }
}
