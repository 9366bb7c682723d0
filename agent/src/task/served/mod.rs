//! A served workload: takes one [`ServeTask`] as JSON, gives one [`ServeOutput`] as JSON; must not know campaigns or metrics.
//!
//! It runs as the first process of a run, and the server is its child: so one containment, one time-out and one end are those of both. Its
//! requests are made on connections that are there before their time begins, and read only once their answers are complete.

mod http;
mod listening;
#[cfg(test)]
mod recorded;
mod server;
mod stream;

use crate::inspect::resident;
use crate::{capture, processes, sys};
use http::Recording;
use isotherm_wire::served::{MOST_CLIENTS, REVISION, Request, ServeFailure, ServeOutput, ServeTask, context_of_request};
use server::Server;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use stream::Broken;

/// Of a stream: bytes for each token and around them, and of the final event, which repeats the prompt.
const BYTES_OF_EVENT: usize = 320;
const BYTES_OF_PROMPT_TOKEN: usize = 16;
const BYTES_AROUND: usize = 64 << 10;

/// Executes one task: reads it from `input` up to its end, writes one line to `output`.
///
/// # Errors
/// In words: it is no task, or the output can't be written. Whatever becomes of the server stands in the output.
pub fn run(input: &mut impl Read, output: &mut impl Write) -> Result<(), String> {
    // A run that is to end lets all of its processes know: what is answered by then is still written.
    sys::on_signal(libc::SIGTERM, server::end).map_err(|e| format!("signals: {e}"))?;
    let mut text = Vec::new();
    input.read_to_end(&mut text).map_err(|e| format!("task: {e}"))?;
    let task: ServeTask = serde_json::from_slice(&text).map_err(|e| format!("task: {e}"))?;
    if !(1..=MOST_CLIENTS).contains(&task.concurrency) || task.n_prompt == 0 || task.requests == 0 {
        return Err(format!("task: needs a prompt, a request and 1 to {MOST_CLIENTS} clients"));
    }
    let mut line = serde_json::to_vec(&served(&task)).map_err(|e| format!("output: {e}"))?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).map_err(|e| format!("output: {e}"))
}

fn served(task: &ServeTask) -> ServeOutput {
    let mut output = ServeOutput { revision: REVISION, ..ServeOutput::default() };
    match Server::start(&task.argv, sys::limit_ns(task.startup_timeout_ms)) {
        Ok(mut server) => {
            output.spawn_ns = Some(server.spawn_ns);
            output.failure = asked(task, &mut server, &mut output).err();
            output.peak_rss_bytes = resident::largest(processes::descendants(std::process::id() as i32));
            output.wait_status = server.stop(sys::limit_ns(task.grace_ms));
        }
        Err(failure) => output.failure = Some(failure),
    }
    output
}

fn asked(task: &ServeTask, server: &mut Server, output: &mut ServeOutput) -> Result<(), ServeFailure> {
    let port = server.wait_until_ready()?;
    output.ready_ns = Some(sys::monotonic_ns());
    let facts = output.server.insert(server.facts(port, &task.model)?);
    // It caps what it was told at what the model was trained for, and would stop there in each of its answers.
    if let Some(n_ctx) = facts.n_ctx.filter(|n_ctx| *n_ctx < context_of_request(task.n_prompt, task.n_gen)) {
        return Err(ServeFailure::ContextTooSmall { n_ctx });
    }
    let prompt = prompt(task, facts.bos, facts.vocabulary);
    output.prompt_sha256 = Some(capture::sha256_hex(prompt.as_bytes()));
    let request = http::request(port, "POST", "/completion", Some(&body(task, &prompt)));
    let recording = || {
        let (n_gen, n_prompt) = (task.n_gen as usize, task.n_prompt as usize);
        Recording::with_room_for(n_gen * BYTES_OF_EVENT + n_prompt * BYTES_OF_PROMPT_TOKEN + BYTES_AROUND, n_gen * 2 + 64)
    };

    // Nobody begins to measure before all have warmed up: a slot that has seen no request yet would be slower than the rest.
    let (start, stop) = (OnceLock::<Barrier>::new(), AtomicBool::new(false));
    let client = |client: u32, mut recording: Recording| {
        let mut ask = |what: &str, requests: u32| {
            let mut answered = Vec::with_capacity(requests as usize);
            for n in 0..requests {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                match exchange(client, port, &request, &mut recording) {
                    Ok(request) => answered.push(request),
                    Err(broken) => {
                        stop.store(true, Ordering::Relaxed);
                        return (answered, Some((format!("{what} {} of client {}", n + 1, client + 1), broken)));
                    }
                }
            }
            (answered, None)
        };
        let (warmup, broken) = ask("warm-up request", task.warmup);
        start.wait().wait();
        let (requests, broken_later) = ask("request", task.requests);
        (warmup, requests, broken.or(broken_later))
    };
    let (mut broken, mut lacking) = (None, None);
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for n in 0..task.concurrency {
            let recording = recording();
            match thread::Builder::new().spawn_scoped(scope, move || client(n, recording)) {
                Ok(one) => clients.push(one),
                Err(e) => {
                    // Those that are there wait for nobody else.
                    stop.store(true, Ordering::Relaxed);
                    lacking = Some(ServeFailure::TooFewClients { clients: n, message: e.to_string() });
                    break;
                }
            }
        }
        start.get_or_init(|| Barrier::new(clients.len()));
        for one in clients {
            let (warmup, requests, its) = one.join().expect("a client has no reason to panic");
            output.warmup.extend(warmup);
            output.requests.extend(requests);
            broken = broken.take().or(its);
        }
    });
    for requests in [&mut output.warmup, &mut output.requests] {
        requests.sort_by_key(|request| request.sent_ns);
    }
    match (lacking, broken) {
        (Some(lacking), _) => Err(lacking),
        (None, Some((during, broken))) => Err(failure(during, broken, server)),
        (None, None) => Ok(()),
    }
}

fn exchange(client: u32, port: u16, request: &[u8], recording: &mut Recording) -> Result<Request, Broken> {
    match recording.exchange(port, request, None) {
        Ok(()) => stream::request(client, recording),
        // A server that is gone refuses connections, or resets the one there is.
        Err(e) if is_gone(&e) => Err(Broken::Cut { events: 0 }),
        Err(e) => Err(Broken::NotUnderstood(e.to_string())),
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | ConnectionAborted | BrokenPipe)
}

fn failure(during: String, broken: Broken, server: &mut Server) -> ServeFailure {
    match broken {
        Broken::Cut { events } => match server.is_going() {
            Some(wait_status) => ServeFailure::Ended { during: format!("{during}, after {events} events with content"), wait_status },
            None => ServeFailure::Cut { during, events },
        },
        Broken::Refused { status, said } => ServeFailure::Refused { during, status, said },
        Broken::NotUnderstood(why) => ServeFailure::NotUnderstood { during, why },
    }
}

/// The prompt's tokens with a comma between them: exactly as many as are asked for, what begins every prompt of this model first.
fn prompt(task: &ServeTask, bos: Option<u32>, vocabulary: u64) -> String {
    let mut state = task.seed;
    let random = std::iter::repeat_with(|| splitmix64(&mut state) % vocabulary);
    let tokens: Vec<String> = bos.map(u64::from).into_iter().chain(random).take(task.n_prompt as usize).map(|token| token.to_string()).collect();
    tokens.join(",")
}

/// Sebastiano Vigna's splitmix64: tiny, and the same stream in any language.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn body(task: &ServeTask, prompt: &str) -> String {
    let ServeTask { n_gen, seed, .. } = task;
    format!(
        "{{\"prompt\":[{prompt}],\"n_predict\":{n_gen},\"temperature\":0,\"seed\":{seed},\"cache_prompt\":false,\"ignore_eos\":true,\"stream\":true}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(n_prompt: u32) -> ServeTask {
        ServeTask {
            argv: Vec::new(),
            model: String::new(),
            startup_timeout_ms: 0,
            grace_ms: 0,
            n_prompt,
            n_gen: 3,
            warmup: 0,
            requests: 1,
            concurrency: 1,
            seed: 1,
        }
    }

    #[test]
    fn a_prompt_has_as_many_tokens_as_are_asked_for_and_begins_as_the_model_wants() {
        let tokens = |n, bos| prompt(&task(n), bos, 384).split(',').map(|token| token.parse().expect("a number")).collect::<Vec<u64>>();
        assert_eq!((tokens(64, Some(1)).len(), tokens(64, None).len(), tokens(1, Some(1))), (64, 64, vec![1]));
        assert_eq!(tokens(64, Some(1))[1..], tokens(63, None)[..]);
        assert!(tokens(1000, None).iter().all(|token| *token < 384));
    }

    #[test]
    fn a_request_is_one_json_object() {
        let body: serde_json::Value = serde_json::from_str(&body(&task(2), &prompt(&task(2), Some(1), 10))).expect("JSON");
        assert_eq!((&body["prompt"][0], &body["n_predict"], &body["cache_prompt"]), (&1.into(), &3.into(), &false.into()));
    }
}
