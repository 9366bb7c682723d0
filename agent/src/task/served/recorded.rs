//! What a real server was recorded to answer, every file of it: streams and refusals are read, what it says of itself is known. How servers
//! ended, and their logs, are read by the controller, and tried there.

use super::http::Recording;
use super::server::told;
use super::stream::{self, Broken};
use isotherm_wire::served::{Request, ServeFailure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[path = "../../../../tests/support/shared.rs"]
mod shared;

/// Streams: events with content, tokens of the prompt, and tokens of the answer. Bytes of one character make one event of several tokens.
const STREAMS: [(&str, usize, u64, u64); 5] = [
    ("server_completion_stream.http", 13, 40, 16),
    ("server_completion_stream_timings_per_token.http", 13, 40, 16),
    ("server_completion_stream_ids.http", 14, 64, 16),
    ("server_completion_stream_progress.http", 16, 802, 16),
    ("server_completion_stream_ascii_model.sse", 32, 40, 32),
];

/// Refusals, with their status and words.
const REFUSALS: [(&str, u16, &str); 3] = [
    ("server_err_ctx_exceeded.http", 400, "exceeds the available context size"),
    ("server_err_bad_json.http", 500, "parse error at line 1"),
    ("server_get_notfound.http", 404, "File Not Found"),
];

/// Answers that are no stream of this server's own dialect, and are never taken for one.
const NO_STREAMS: [&str; 7] = [
    "server_completion_nostream.http",
    "server_n_predict0.http",
    "server_v1_chat_stream.http",
    "server_v1_completions_stream.http",
    "server_get_health.http",
    "server_get_slots.http",
    "server_get_metrics.http",
];

/// What it says of itself.
const PROPS: &str = "server_get_props.http";
const MODELS: &str = "server_get_models.http";
const NO_MODEL: &str = "server_no_model.props";

/// A status and a body: recorded are a line with the status, the head, and the body, whose pieces have been put together; or a body alone.
fn recording(folder: &Path, name: &str) -> (String, String) {
    let text = String::from_utf8_lossy(&fs::read(folder.join(name)).expect("a recording")).into_owned();
    if !name.ends_with(".http") {
        return ("200".into(), text);
    }
    let (head, body) = text.split_once("\n\n").expect("a head");
    (head.lines().next().and_then(|line| line.strip_prefix("HTTP ")).expect("a status").to_owned(), body.to_owned())
}

fn request(folder: &Path, name: &str) -> Result<Request, Broken> {
    let (status, body) = recording(folder, name);
    stream::request(0, &Recording::of(0, &[(1, &format!("HTTP/1.1 {status} x\r\n\r\n")), (2, &body)]))
}

#[test]
fn every_recorded_answer_is_understood_or_told_to_be_none() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    for (name, events, prompt, tokens) in STREAMS {
        let request = request(&folder, name).unwrap_or_else(|why| panic!("{name}: {why:?}"));
        assert_eq!((request.content_ns.len(), request.prompt_tokens, request.tokens), (events, Some(prompt), Some(tokens)), "{name}");
        assert!((Some(1)..=Some(tokens)).contains(&request.first_tokens), "{name}: {:?}", request.first_tokens);
        assert_eq!(request.timings.map(|timings| (timings.cache_n, timings.prompt_n)), Some((Some(0), prompt)), "{name}");
    }
    for (name, status, words) in REFUSALS {
        let broken = request(&folder, name).expect_err(name);
        assert!(matches!(&broken, Broken::Refused { status: of, said } if *of == status && said.contains(words)), "{name}: {broken:?}");
    }
    for name in NO_STREAMS {
        assert!(matches!(request(&folder, name), Err(Broken::NotUnderstood(_))), "{name}");
    }
}

#[test]
fn what_a_recorded_server_says_of_itself_is_known() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let json = |name: &str| serde_json::from_str::<Value>(&recording(&folder, name).1).expect("JSON");
    let (props, models) = (json(PROPS), json(MODELS));
    let facts = told(&props, &models, "models/tiny-q8_0.gguf").expect("its model is there");
    assert_eq!((facts.build.as_deref(), facts.quantization.as_deref()), (Some("b1-0c1e570"), Some("Q8_0")));
    assert_eq!((facts.n_ctx, facts.slots, facts.vocabulary, facts.context_trained), (Some(1024), Some(1), 384, Some(2048)));
    assert_eq!((facts.model_path.as_deref(), facts.parameters, facts.weight_bytes), (Some("models/tiny-q8_0.gguf"), Some(885_888), Some(944_640)));
    assert_eq!(told(&props, &models, "models/other.gguf"), Err(ServeFailure::OtherModel { path: "models/tiny-q8_0.gguf".into() }));
    // Ready without a model: whatever list it has.
    for list in [Value::Null, models] {
        assert!(matches!(told(&json(NO_MODEL), &list, "models/tiny-q8_0.gguf"), Err(ServeFailure::NoModel { .. })));
    }
}

#[test]
fn no_recorded_answer_is_left_out() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let files = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.file_name().into_string().expect("UTF-8"));
    let recorded: BTreeSet<String> =
        files.filter(|name| name.starts_with("server_") && [".http", ".sse", ".props"].iter().any(|end| name.ends_with(end))).collect();
    let streams = STREAMS.map(|(name, ..)| name);
    let read = [&streams[..], &REFUSALS.map(|(name, ..)| name), &NO_STREAMS, &[PROPS, MODELS, NO_MODEL]].concat();
    assert_eq!(recorded, read.into_iter().map(str::to_owned).collect());
}
