//! Every recorded end of llama-server: failed for its reason, in the tool's own words.

use crate::shared;
use isotherm::backend::output::Stream;
use isotherm::backend::{self, ParseSpec, RawOutput};
use isotherm::store::record::{LlamaServerAsked, Reason};
use isotherm_wire::served::{ServeFailure, ServeOutput};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

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

/// Recorded too, and no end of a server: what it answers is read by the agent, which is tried there.
const ANSWERS: [&str; 3] = ["server_start", "server_no_model", "server_sigterm"];

#[test]
fn every_recorded_end_has_its_reason_and_the_tools_own_words() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let index = fs::read_to_string(folder.join("SERVER_INDEX.jsonl")).unwrap();
    let entries: Vec<Value> = index.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named = |name: &str| {
        entries
            .iter()
            .find(|entry| entry["name"].as_str().unwrap().replace(' ', "_").trim_start_matches("server_") == name.trim_start_matches("server_"))
    };
    for (name, reason, words) in SITUATIONS {
        let rc = named(name).unwrap_or_else(|| panic!("no {name} in the index"))["rc"].as_i64().unwrap() as i32;
        // A shell's word for a signal.
        let wait_status = if rc > 128 { rc - 128 } else { rc << 8 };
        let log = ["stderr", "out"].iter().find_map(|end| fs::read(folder.join(format!("{name}.{end}"))).ok()).unwrap();
        let output =
            ServeOutput { failure: Some(ServeFailure::EndedAtStart { wait_status }), wait_status: Some(wait_status), ..ServeOutput::default() };
        let stream = |kept: Vec<u8>| Stream { bytes: kept.len() as u64, kept, ..Stream::default() };
        let raw = RawOutput { stdout: stream(serde_json::to_vec(&output).unwrap()), stderr: stream(log), ..RawOutput::default() };
        let asked = LlamaServerAsked { n_prompt: 1, n_gen: 1, requests: 1, startup_timeout_ms: 1, slo: None, offload: None };
        let reading = backend::read(&ParseSpec::LlamaServer(asked), &raw, 0);
        let (said, message) = reading.failure.unwrap();
        assert!(said == reason && message.contains(words), "{name}: {said:?} {message}");
        assert!(reading.metrics.is_empty(), "{name}");
    }
}

#[test]
fn no_recorded_end_is_left_out() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let files = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let ended: BTreeSet<String> = files
        .filter(|name| name.starts_with("server_") && (name.ends_with(".stderr") || name.ends_with("sigill.out")))
        .map(|name| name.rsplit_once('.').unwrap().0.to_owned())
        // Whole lives, in which nothing failed.
        .filter(|name| !ANSWERS.contains(&name.as_str()) && name != "server_mid_load")
        .collect();
    assert_eq!(ended, SITUATIONS.iter().map(|(name, ..)| (*name).to_owned()).collect());
}
