//! What a model's own file says of it: read on the device, kept in the record, held against what the campaign says.

use crate::kit::Bench;
use serde_json::{Value, json};
use std::fs;

/// A run with this content as its model, of which the campaign says this.
fn record(content: &[u8], declared: &str) -> Value {
    let bench = Bench::one("model: m\nargv: [./bench.sh, \"{model.path}\"]");
    bench.script("bench.sh", "true");
    bench.edit("c.yaml", "matrix:", &format!("models: {{ m: {{ path: m.gguf{declared} }} }}\nmatrix:"));
    bench.lab.write("m.gguf", content);
    bench.run(&[]).expect(0);
    bench.record()
}

fn example() -> Vec<u8> {
    fs::read(format!("{}/configs/models/tiny-q8_0.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn a_model_in_gguf_tells_what_nobody_has_to_type() {
    let record = record(&example(), "");
    let model = &record["workload"]["model"];
    assert_eq!(model["quantization"], "Q8_0");
    let header = &model["header"]["gguf"];
    assert_eq!([&header["architecture"], &header["parameters"], &header["weight_bytes"]], [&json!("llama"), &json!(393_856), &json!(420_352)]);
    assert_eq!([&header["context_length"], &header["layers"], &header["kv_heads"]], [2048, 2, 2]);
    assert_eq!((&record["validity"], &record["issues"]), (&"valid".into(), &json!([])));
    // It tells of the content, and only the content decides.
    assert!(!record["ids"]["identity"].to_string().contains("llama"));
}

#[test]
fn a_declared_quantization_is_held_against_the_files() {
    for declared in ["Q8_0", "q8_0", "Q8-0", "Q8"] {
        assert_eq!(record(&example(), &format!(", quantization: {declared}"))["issues"], json!([]), "{declared}");
    }
    let record = record(&example(), ", quantization: Q4_K_M");
    assert_eq!(record["workload"]["model"]["quantization"], "Q4_K_M");
    assert_eq!(record["issues"][0]["code"], "quantization_differs");
    assert_eq!(record["issues"][0]["message"], "model `m` is declared as Q4_K_M, and its file says Q8_0");
    assert_eq!(record["validity"], "degraded");
}

#[test]
fn a_model_that_is_cut_short_says_so() {
    let example = example();
    let record = record(&example[..example.len() / 2], "");
    let why = record["workload"]["model"]["header"]["broken"].as_str().unwrap().to_owned();
    assert_eq!(why, "truncated: data of its tensors would need 430496 bytes, and the file has 215248");
}
