//! Everything that is recorded of llama-server but its answers, which the agent reads: an end has its reason, in the tool's own words.

use crate::shared;
use isotherm::backend::output::Stream;
use isotherm::backend::{self, ParseSpec, RawOutput, Reading};
use isotherm::registry::Code;
use isotherm::store::record::{LlamaServerAsked, Reason};
use isotherm_wire::served::{Request, ServeFailure, ServeOutput, Timings};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const SITUATIONS: [(&str, Reason, &str); 7] = [
    ("server_missing_model", Reason::ExitCode, "failed to open GGUF file 'models/nope.gguf' (No such file or directory)"),
    ("server_garbage_model", Reason::ExitCode, "invalid magic characters: 'not ', expected 'GGUF'"),
    (
        "server_truncated_model",
        Reason::ExitCode,
        "tensor 'blk.0.ffn_gate.weight' data is not within the file bounds, model is corrupted or incomplete",
    ),
    ("server_bad_flag", Reason::ExitCode, "error: invalid argument: --frobnicate"),
    ("server_port_in_use", Reason::ExitCode, "couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18080"),
    ("server_ctx_huge", Reason::Oom, "failed to allocate"),
    ("server_prebuilt_sigill", Reason::Signal, "ended before it was ready by SIGILL, an instruction that this CPU doesn't have"),
];

/// Whole lives, at whose end nothing had failed: logs that must not be taken for a failure or a fallback.
const LIVES: [&str; 5] = ["server_start", "server_no_model", "server_sigterm", "server_mid_load", "server_port0"];

/// Entries of the index with answers, which the agent reads: `recorded.rs` there has a file of each.
const ANSWERS: [&str; 15] = [
    "GET /health",
    "GET /props",
    "GET /slots",
    "GET /metrics",
    "GET /v1/models",
    "GET /nope",
    "completion nostream",
    "completion_stream",
    "completion_stream_timings_per_token",
    "completion_stream_progress",
    "completion_stream_ids",
    "v1_completions_stream",
    "v1_chat_stream",
    "ctx exceeded",
    "bad json",
];

/// Entries that stand under another name than their files.
const FILES_OF: [(&str, &str); 4] = [
    ("port in use", "server_port_in_use"),
    ("n_predict 0", "server_n_predict0"),
    ("SIGTERM", "server_sigterm"),
    ("mid model health during load", "server_mid_load"),
];

/// Entries without a file, and what they say; each is tried below, or can't be.
const WORDS: [&str; 5] = [
    "repeat cache_prompt=false",
    "repeat cache_prompt=true",
    // Only that the next request is answered: a client of ours never leaves one, so there is nothing to judge.
    "after disconnect next request",
    "SIGKILL mid stream",
    "killed rc",
];

fn index(folder: &Path) -> Vec<Value> {
    let index = fs::read_to_string(folder.join("SERVER_INDEX.jsonl")).unwrap();
    index.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn named<'i>(index: &'i [Value], name: &str) -> &'i Value {
    let stands_as = FILES_OF.iter().find(|(_, file)| *file == name).map_or(name, |(entry, _)| *entry);
    index.iter().find(|entry| entry["name"] == stands_as).unwrap_or_else(|| panic!("no {name} in the index"))
}

/// A run whose server came to this, with this log.
fn read(output: &ServeOutput, log: Vec<u8>) -> Reading {
    let stream = |kept: Vec<u8>| Stream { bytes: kept.len() as u64, kept, ..Stream::default() };
    let raw = RawOutput { stdout: stream(serde_json::to_vec(output).unwrap()), stderr: stream(log), ..RawOutput::default() };
    let offload = Some("-ngl 99".to_owned());
    let asked = LlamaServerAsked { n_prompt: 40, n_gen: 16, requests: 1, startup_timeout_ms: 1, slo: None, offload, ..LlamaServerAsked::default() };
    backend::read(&ParseSpec::LlamaServer(asked), &raw, 0)
}

/// A log, and what was said beside it, which is nothing.
fn log(folder: &Path, name: &str) -> Vec<u8> {
    let stdout = fs::read(folder.join(format!("{name}.stdout"))).unwrap_or_default();
    assert!(stdout.is_empty() || name == "server_bad_flag", "{name} has more than a log");
    ["stderr", "out"].iter().find_map(|end| fs::read(folder.join(format!("{name}.{end}"))).ok()).unwrap()
}

fn request(tokens: u64, computed: u64, cached: u64) -> Request {
    let timings = Timings { cache_n: Some(cached), prompt_n: computed, prompt_ms: 1.0, predicted_n: 16, predicted_ms: 1.0 };
    Request {
        content_ns: vec![1_000_000],
        end_ns: 2_000_000,
        prompt_tokens: Some(tokens),
        tokens: Some(16),
        timings: Some(timings),
        ..Request::default()
    }
}

#[test]
fn every_recorded_end_has_its_reason_and_the_tools_own_words() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let index = index(&folder);
    for (name, reason, words) in SITUATIONS {
        let rc = named(&index, name)["rc"].as_i64().unwrap() as i32;
        // A shell's word for a signal.
        let wait_status = if rc > 128 { rc - 128 } else { rc << 8 };
        let output =
            ServeOutput { failure: Some(ServeFailure::EndedAtStart { wait_status }), wait_status: Some(wait_status), ..ServeOutput::default() };
        let reading = read(&output, log(&folder, name));
        let (said, message) = reading.failure.unwrap();
        assert!(said == reason && message.contains(words), "{name}: {said:?} {message}");
        assert!(reading.metrics.is_empty(), "{name}");
    }
}

#[test]
fn a_recorded_life_without_a_failure_has_none() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    for name in LIVES {
        let reading = read(&ServeOutput { requests: vec![request(40, 40, 0)], ..ServeOutput::default() }, log(&folder, name));
        assert_eq!((&reading.failure, &reading.issues), (&None, &vec![]), "{name}");
        // One without a model computes nothing.
        let threads = reading.executed.get("n_threads").and_then(Value::as_u64);
        assert_eq!(threads.is_some(), name != "server_no_model", "{name}: {threads:?}");
    }
}

#[test]
fn what_the_index_alone_says_is_judged_by_it() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let index = index(&folder);
    // Tokens of the prompt: all, computed, had already.
    for (name, is_cached) in [("repeat cache_prompt=false", false), ("repeat cache_prompt=true", true)] {
        for numbers in named(&index, name)["outs"].as_array().unwrap() {
            let [tokens, computed, cached] = [0, 1, 2].map(|at| numbers[at].as_u64().unwrap());
            let reading = read(&ServeOutput { requests: vec![request(tokens, computed, cached)], ..ServeOutput::default() }, Vec::new());
            assert_eq!(reading.issues.iter().any(|issue| issue.code == Code::PromptCached), is_cached, "{name}: {numbers}");
        }
    }
    let killed = named(&index, "killed rc")["rc"].as_i64().unwrap() as i32;
    assert_eq!(named(&index, "SIGKILL mid stream")["client"], "EOF");
    let during = "request 1 of client 1, after 1 events with content".to_owned();
    let ended = ServeOutput { failure: Some(ServeFailure::Ended { during, wait_status: -killed }), ..ServeOutput::default() };
    let (reason, message) = read(&ended, Vec::new()).failure.unwrap();
    assert!(reason == Reason::Signal && message.contains("by SIGKILL"), "{message}");
    // Ready is what answers with 200: until then nobody listens, or a model is loading, and from then on it stays so.
    for entry in &index {
        for look in ["health_log", "log", "ready_ms"].iter().filter_map(|key| entry[key].as_array()).flat_map(|looks| looks.windows(2)) {
            assert!(look[0][1] == "ConnectionRefusedError" || look[0][1] == 503, "{entry}");
        }
    }
}

#[test]
fn no_recording_is_left_out() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let files = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    // Answers are the agent's to read, and left out of nothing there.
    let is_answer = |name: &str| [".http", ".sse", ".props"].iter().any(|end| name.ends_with(end));
    let logs: BTreeSet<String> = files
        .filter(|name| name.starts_with("server_") && !is_answer(name))
        .map(|name| {
            let (name, end) = name.rsplit_once('.').unwrap();
            assert!(["stderr", "stdout", "out"].contains(&end), "nobody reads {name}.{end}");
            name.to_owned()
        })
        .collect();
    let read: BTreeSet<String> = SITUATIONS.iter().map(|(name, ..)| *name).chain(LIVES).map(str::to_owned).collect();
    assert_eq!(logs, read);
    let known: BTreeSet<&str> = read.iter().map(String::as_str).chain(ANSWERS).chain(WORDS).chain(FILES_OF.map(|(entry, _)| entry)).collect();
    let index = index(&folder);
    let unknown: Vec<&Value> = index.iter().map(|entry| &entry["name"]).filter(|name| !known.contains(name.as_str().unwrap())).collect();
    assert_eq!(unknown, [] as [&Value; 0]);
}
