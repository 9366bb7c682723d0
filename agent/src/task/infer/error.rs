//! What can go wrong with an inference task, in words that name the subject first.

use super::InferTask;
use std::fmt;

/// Why a task gave no output.
#[derive(Debug)]
pub enum InferError {
    /// The input is not one task in JSON.
    Task(String),
    /// A number of the task is outside of what can be executed.
    Number { what: &'static str, given: u32, allowed: &'static str },
    /// More durations than the memory holds.
    TooManyInferences(u64),
    /// The engine has been told, by its own variable, to print where our output goes.
    EnginePrints,
    /// The workers could not be started; `started` is `None` if there is no pool at all.
    Pool { asked: u32, started: Option<usize> },
    /// The model can't be read, prepared or executed; `source` is the text of the system or the engine.
    Model { path: String, what: &'static str, source: String },
    /// One tensor of the model is of a kind that we can't make or read.
    Tensor { path: String, tensor: String, reason: String },
    /// The same inputs gave different answers in the first and in the last inference.
    OutputsDiffer { path: String, first: String, last: String },
    /// The output could not be written.
    Output(std::io::Error),
}

impl InferError {
    pub(super) fn model(task: &InferTask, what: &'static str, source: impl fmt::Display) -> InferError {
        InferError::Model { path: task.model.clone(), what, source: source.to_string() }
    }
}

impl fmt::Display for InferError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            InferError::Task(source) => write!(f, "task: {source}"),
            InferError::Number { what, given, allowed } => write!(f, "task: {what} is {given}, must be {allowed}"),
            InferError::TooManyInferences(count) => write!(f, "task: no memory for the durations of {count} inferences"),
            InferError::EnginePrints => {
                write!(
                    f,
                    "environment: RTEN_TIMING makes the engine print between our output\nhint: remove RTEN_TIMING from the workload's variables"
                )
            }
            InferError::Pool { asked, started } => {
                write!(f, "threads: asked for {asked}, the engine started {}", started.unwrap_or(0))?;
                write!(f, "\nhint: compare with the limits in /proc/self/limits (processes) and pids.max of the cgroup")
            }
            InferError::Model { path, what, source } => write!(f, "model {path}: {what}: {source}"),
            InferError::Tensor { path, tensor, reason } => write!(f, "model {path}: tensor \"{tensor}\": {reason}"),
            InferError::OutputsDiffer { path, first, last } => {
                write!(f, "model {path}: outputs_differ: same inputs, but the first inference gave {first} and the last {last}")
            }
            InferError::Output(source) => write!(f, "output: {source}"),
        }
    }
}

impl std::error::Error for InferError {}
