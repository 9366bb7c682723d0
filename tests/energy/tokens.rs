//! Energy of tokens: a stand-in for llama-bench, whose samples take as long as it says, on a board with a monitor of its input.

use crate::board::Board;
use crate::lab::User;
use serde_json::Value;

/// Two tests of two samples: a tenth of a second each of prefill, 0.7 s each of decode, with a pause between these.
const TOOL: &str = r#"#!/bin/sh
mark() { echo "llama-bench: benchmark $1" >&2; }
result() { echo "{\"build_commit\": \"c\", \"build_number\": 1, \"backends\": \"CPU\", \"gpu_info\": \"\", \"model_size\": 1000, \"n_prompt\": $1, \"n_gen\": $2, \"n_depth\": 64, \"avg_ts\": 1.0, \"samples_ns\": [ $3, $3 ]}"; }
mark '1/2: starting'
for i in 1 2; do mark "1/2: depth run $i/2"; mark "1/2: prompt run $i/2"; sleep 0.1; done
result 32 0 100000000
mark '2/2: starting'
for i in 1 2; do mark "2/2: depth run $i/2"; sleep 0.2; mark "2/2: generation run $i/2"; sleep 0.7; done
result 0 14 700000000
sleep 0.3
"#;

fn board(power: &str) -> Option<Board> {
    let board = Board::new(User::Caller)?;
    // What this machine has is hidden.
    board.lab.write("sys/class/powercap", "");
    for (file, text) in [("name", "ina226"), ("power1_label", "VDD_IN"), ("power1_input", "6000000")] {
        board.set(&format!("class/hwmon/hwmon0/{file}"), text);
    }
    board.lab.write("tool", TOOL);
    board.lab.write("q.gguf", "GGUF");
    let work = "backend: llama-bench, model: q, n_prompt: 32, n_gen: 14, depth: 64, iterations: 2 }\nmodels: { q: { path: q.gguf } }";
    let campaign =
        board.lab.read("c.yaml").replace("backend: command, argv: [./workload.sh] }", work).replace("power: together", &format!("power: {power}"));
    board.lab.write("c.yaml", campaign.replace("here: { local: {} }", "here: { local: {}, builds: { own: { llama_bench: ./tool } } }"));
    Some(board)
}

#[test]
fn a_token_has_the_energy_of_the_samples_of_decode_and_of_nothing_around_them() {
    let Some(board) = board("together") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    let record = board.record();
    let ns = |value: &Value| value.as_u64().unwrap();
    let spans = record["tests"][1]["spans_ns"].as_array().unwrap();
    let lengths: Vec<u64> = spans.iter().map(|span| ns(&span[1]) - ns(&span[0])).collect();
    assert_eq!(lengths, [700_000_000, 700_000_000]);
    assert!(ns(&spans[1][0]) - ns(&spans[0][1]) >= 200_000_000, "the pause is between them: {spans:?}");
    let (spawn, exit) = (ns(&record["time"]["spawn_monotonic_ns"]), ns(&record["time"]["exit_monotonic_ns"]));
    assert!(spawn < ns(&record["tests"][0]["spans_ns"][0][0]) && ns(&spans[1][1]) + 300_000_000 <= exit, "{spans:?}");
    let figure = &record["energy"][0];
    assert_eq!(
        (&figure["window"]["integrated_ns"], &figure["window"]["parts"], &figure["window"]["inferences"]),
        (&1_400_000_000_u64.into(), &2.into(), &28.into())
    );
    // 6 W for 1.4 s make 28 tokens.
    let metric = &record["metrics"]["energy_per_token_mj"];
    assert!((metric["value"].as_f64().unwrap() - 300.0).abs() < 0.01, "{metric} {figure}");
    assert_eq!((&metric["unit"], &metric["definition"]), (&"mJ".into(), &"energy.window.v1".into()));
    assert!((record["metrics"]["power_w"]["value"].as_f64().unwrap() - 6.0).abs() < 1e-3);
    // Another reading of the same output and its times is the same.
    let reread = board.run(&["reparse", "results/c"]).expect(0);
    assert_eq!(board.record(), record, "{}", reread.stdout());
}

#[test]
fn a_timing_run_and_a_power_run_give_the_energy_of_a_token_together() {
    let Some(board) = board("split") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    let report: Value = serde_json::from_str(&board.run(&["report", "results/c", "--format", "json"]).expect(0).stdout()).unwrap();
    let joined = report["tables"].as_array().unwrap().iter().find(|table| table["definition"] == "energy.joined.v1").unwrap();
    assert_eq!(joined["metric"], "energy_per_token_mj");
    // 6 W at 14 tokens in 0.7 s.
    assert!((joined["rows"][0]["number"]["value"].as_f64().unwrap() - 300.0).abs() < 0.1, "{joined}");
}
