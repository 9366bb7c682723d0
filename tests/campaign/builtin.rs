//! The engine inside the agent, on the models that come with isotherm.

use crate::kit::Bench;
use crate::lab::{User, eventually};
use serde_json::Value;
use std::fs;

/// One point on `m.onnx`, a copy of one of the example models.
fn bench(model: &str) -> Bench {
    let bench = Bench::empty(User::Caller);
    bench.lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
models: { m: { path: m.onnx } }
defaults: { retry_contaminated: 0, repetitions: 1, timeout: 20s, warmup: 1, rounds: 1, iterations: 2, cooldown: 0ms, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: builtin, model: m, threads: 1 }
",
    );
    bench.lab.write("m.onnx", example(model));
    bench
}

fn example(model: &str) -> Vec<u8> {
    fs::read(format!("{}/configs/models/{model}.onnx", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn a_model_is_measured_once_and_another_content_again() {
    let bench = bench("tiny-cnn");
    bench.run(&[]).expect(0);
    let first = bench.record();
    assert_eq!((&first["status"], &first["validity"]), (&"ok".into(), &"valid".into()));
    assert_eq!(first["iterations"]["rounds_ns"][0].as_array().unwrap().len(), 2);
    assert_eq!(bench.run(&[]).expect(0).stdout(), "");

    bench.lab.write("m.onnx", example("tiny-transformer"));
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("1 job: model changed ("), "{}", again.stderr());
    let second = bench.record();
    assert_ne!(first["workload"]["output_digest"], second["workload"]["output_digest"]);
    assert_eq!(bench.superseded().into_iter().collect::<Vec<_>>(), [format!("{}.json", first["ids"]["run_id"].as_str().unwrap())]);
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_thread_count_more_measures_just_that_one() {
    let bench = bench("tiny-cnn");
    bench.run(&[]).expect(0);
    bench.edit("c.yaml", "threads: 1", "threads: [1, 2]");
    let wider = bench.run(&[]).expect(0);
    assert!(wider.stderr().contains("1 reused · 1 new"), "{}", wider.stderr());
    assert_eq!(bench.lab.records("c").len(), 2);
}

/// A rebuilt agent has another hash, but drives the same engine the same way.
#[test]
fn an_identity_names_the_engine_and_not_the_agents_file() {
    let bench = bench("tiny-cnn");
    bench.run(&[]).expect(0);
    let record = bench.record();
    let identity = &record["ids"]["identity"];
    let engine = identity["facts"]["engine"].as_str().unwrap();
    assert!(engine.starts_with("rten@") && engine.contains('+'), "{engine}");
    assert_eq!(identity["facts"]["files"], serde_json::json!({}), "the agent's own file and what it maps are in no identity");
    let agent = &record["producer"]["agent"];
    assert!(!identity.to_string().contains(agent["sha256"].as_str().unwrap()));
    let version = agent["version"].as_str().unwrap();
    assert!(!identity.to_string().contains(&format!("\"{version}\"")), "{identity}");
}

#[track_caller]
fn failed(bench: &Bench, reason: &str, words: &[&str]) {
    bench.run(&[]).expect(1);
    let record = bench.record();
    assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &reason.into()), "{}", record["message"]);
    let message = record["message"].as_str().unwrap();
    assert!(words.iter().all(|word| message.contains(word)), "{words:?} are not in {message:?}");
    assert_eq!(record["metrics"], serde_json::json!({}));
}

#[test]
fn a_text_instead_of_a_model_fails_in_the_engines_words() {
    let bench = bench("tiny-cnn");
    bench.lab.write("m.onnx", "version https://git-lfs.github.com/spec/v1\n");
    failed(&bench, "exit_code", &["m.onnx", "not an ONNX file"]);
}

#[test]
fn a_truncated_model_fails_in_the_engines_words() {
    let bench = bench("tiny-cnn");
    let whole = example("tiny-cnn");
    bench.lab.write("m.onnx", &whole[..whole.len() / 2]);
    failed(&bench, "exit_code", &["m.onnx", "truncated ONNX file"]);
    bench.lab.write("m.onnx", whole);
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("model changed ("), "{}", again.stderr());
}

#[test]
fn a_missing_model_is_named_and_measured_once_it_is_there() {
    let bench = bench("tiny-cnn");
    fs::rename(bench.lab.path("m.onnx"), bench.lab.path("away")).unwrap();
    failed(&bench, "model_missing", &["m.onnx", "No such file"]);
    fs::rename(bench.lab.path("away"), bench.lab.path("m.onnx")).unwrap();
    bench.run(&[]).expect(0);
    assert_eq!(bench.record()["status"], "ok");
}

#[test]
fn a_model_of_another_content_than_declared_stops_the_campaign_before_anything_runs() {
    let bench = bench("tiny-cnn");
    let declared = "0".repeat(64);
    bench.edit("c.yaml", "path: m.onnx", &format!("path: m.onnx, sha256: {declared}"));
    let refused = bench.run(&[]).expect(2);
    let found = isotherm::digest::sha256_hex(&example("tiny-cnn"));
    for part in ["model `m` on device `here`", &declared, &found, "hint: "] {
        assert!(refused.stderr().contains(part), "{part} is not in {}", refused.stderr());
    }
    assert!(bench.lab.records("c").is_empty());
    assert!(bench.journal().iter().all(|e| e["event"] != "started"));
    // The device was given back.
    assert_eq!(bench.last_event("device_released")["device"], "here");
    eventually("the keeper is gone", || bench.lab.processes().is_empty().then_some(()));

    bench.edit("c.yaml", &declared, &found.to_uppercase());
    bench.run(&[]).expect(0);
}

#[test]
fn another_answer_than_declared_makes_a_run_invalid() {
    let bench = bench("tiny-cnn");
    bench.edit("c.yaml", "path: m.onnx", &format!("path: m.onnx, output_digest: {}", "0".repeat(64)));
    let ran = bench.run(&[]).expect(1);
    assert!(ran.stdout().contains("output_mismatch"), "{}", ran.stdout());
    let digest = bench.record()["workload"]["output_digest"]["value"].as_str().unwrap().to_owned();
    bench.edit("c.yaml", &"0".repeat(64), &digest);
    bench.run(&[]).expect(0);
    assert_eq!(bench.record()["validity"], Value::from("valid"));
}
