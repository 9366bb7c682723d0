//! A served workload: a server that is started, asked and stopped within one run, and what came of its requests.

use serde::{Deserialize, Serialize};

/// How a server is driven; raised with any change that can move a time, and part of the identity of what it moves.
///
/// 1: a connection for each request, made before it; all clients send the same prompt; an answer is read after its end.
/// 2: every client warms up, not only the first one.
pub const REVISION: u32 = 2;
/// Clients at a time; each is a thread of the agent and a slot of the server.
pub const MOST_CLIENTS: u32 = 1024;

/// Tokens of context that a request needs: a server whose last token takes the last place calls the answer truncated.
#[must_use]
pub const fn context_of_request(n_prompt: u32, n_gen: u32) -> u64 {
    n_prompt as u64 + n_gen as u64 + 1
}

/// Requests to a server of llama.cpp that is started for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServeTask {
    /// Program and arguments of the server. It is to listen on 127.0.0.1; which port that is, is found out.
    pub argv: Vec<String>,
    /// The model's file as argv names it; the server has to name it, too.
    pub model: String,
    /// From its spawn until it says that it is ready, ms.
    pub startup_timeout_ms: u64,
    /// Between TERM and KILL when it is stopped, ms.
    pub grace_ms: u64,
    /// Tokens of the prompt.
    pub n_prompt: u32,
    /// Tokens generated for each request.
    pub n_gen: u32,
    /// Requests of each client before the measured ones, one after the other.
    pub warmup: u32,
    /// Measured requests of each client, one after the other.
    pub requests: u32,
    /// Clients at a time.
    pub concurrency: u32,
    /// Of the prompt's tokens, and of the server's sampling.
    pub seed: u64,
}

/// What the `served` child prints on its stdout, one JSON object on one line. Moments are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServeOutput {
    /// How the server is driven; raised with any change that can move a time.
    pub revision: u32,
    /// When the server was started, and when it said that it is ready.
    pub spawn_ns: Option<u64>,
    pub ready_ns: Option<u64>,
    /// What it says of itself; `None` = it didn't come to that.
    pub server: Option<ServerFacts>,
    /// sha256 (hex) over the prompt's tokens, as decimal numbers with a comma between them.
    pub prompt_sha256: Option<String>,
    pub warmup: Vec<Request>,
    /// Those that were answered in full, in the order in which they were sent.
    pub requests: Vec<Request>,
    /// Why there are no more of them.
    pub failure: Option<ServeFailure>,
    /// Raw wait status of the server; `None` = it was never started, or couldn't be ended.
    pub wait_status: Option<i32>,
}

/// A server of llama.cpp in its own words. `None` = its version doesn't tell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerFacts {
    pub build: Option<String>,
    pub model_path: Option<String>,
    pub quantization: Option<String>,
    /// Tokens of context for each request.
    pub n_ctx: Option<u64>,
    /// Requests at a time.
    pub slots: Option<u64>,
    pub vocabulary: u64,
    /// Token that begins every prompt; `None` = the model has none.
    pub bos: Option<u32>,
    pub context_trained: Option<u64>,
    pub parameters: Option<u64>,
    pub weight_bytes: Option<u64>,
}

/// One request that was answered in full.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Request {
    /// From 0.
    pub client: u32,
    /// Right before it was written to its connection, which had been made before.
    pub sent_ns: u64,
    /// Arrival of each event with content, from `sent_ns`.
    pub content_ns: Vec<u64>,
    /// Arrival of the final event, likewise.
    pub end_ns: u64,
    /// Tokens of the prompt, and tokens generated, as the server counts them.
    pub prompt_tokens: Option<u64>,
    pub tokens: Option<u64>,
    pub timings: Option<Timings>,
    /// The server had less context than the request needed.
    pub truncated: bool,
}

/// The server's own timings of a request.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Timings {
    /// Tokens of the prompt that it had already.
    pub cache_n: Option<u64>,
    /// Tokens of the prompt that it computed.
    pub prompt_n: u64,
    pub prompt_ms: f64,
    /// Tokens that it generated.
    pub predicted_n: u64,
    pub predicted_ms: f64,
}

/// Why a served workload came to nothing, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServeFailure {
    /// The server could not be started: the system's words.
    Spawn { message: String, errno: Option<i32> },
    /// It ended before it was ready. Raw wait status.
    EndedAtStart { wait_status: i32 },
    /// It was not ready in time: how far it was, in words.
    StartupTimeout { last: String },
    /// It is ready without a model, to load some later.
    NoModel { said: String },
    /// It has another model than the one that was asked for.
    OtherModel { path: String },
    /// Its context for a request, in tokens, doesn't hold one that is asked for.
    ContextTooSmall { n_ctx: u64 },
    /// The device has no room for as many clients as are asked for: how many there were, and the system's words.
    TooFewClients { clients: u32, message: String },
    /// It ended while it was asked. Raw wait status.
    Ended { during: String, wait_status: i32 },
    /// It ended a connection in the middle of an answer, and goes on.
    Cut { during: String, events: u64 },
    /// It refused a request: status of HTTP and its words.
    Refused { during: String, status: u16, said: String },
    /// It answered what isn't understood.
    NotUnderstood { during: String, why: String },
}
