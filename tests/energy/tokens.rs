//! Energy of tokens: stand-ins for llama.cpp's tools, which take as long as they are told to, on a board with a monitor of its input.

use crate::board::Board;
use crate::lab::User;
use serde_json::Value;

/// Two tests of two samples: a tenth of a second each of prefill, 0.7 s each of decode, with a pause between these.
const TOOL: &str = r#"#!/bin/sh
mark() { echo "llama-bench: benchmark $1" >&2; }
result() { echo "{\"build_commit\": \"c\", \"build_number\": 1, \"backends\": \"CPU\", \"gpu_info\": \"\", \"model_size\": 1000, \"n_prompt\": $1, \"n_gen\": $2, \"n_depth\": 64, \"avg_ts\": $4, \"samples_ns\": [ $3, $3 ]}"; }
mark '1/2: starting'
for i in 1 2; do mark "1/2: depth run $i/2"; mark "1/2: prompt run $i/2"; sleep 0.1; done
result 32 0 100000000 320
mark '2/2: starting'
for i in 1 2; do mark "2/2: depth run $i/2"; sleep 0.2; mark "2/2: generation run $i/2"; sleep 0.7; done
result 0 14 700000000 20
sleep 0.3
"#;

/// A server that takes half a second for a prompt and a twentieth for each of its 8 tokens.
const SERVER: &str = include_str!("../support/server.py");

const BENCH: Workload<'_> =
    Workload { backend: "llama-bench", tool: "llama_bench", program: TOOL, asked: "n_prompt: 32, n_gen: 14, depth: 64, iterations: 2" };
const SERVED: Workload<'_> =
    Workload { backend: "llama-server", tool: "llama_server", program: SERVER, asked: "n_prompt: 32, n_gen: 8, concurrency: 2, iterations: 2" };

struct Workload<'a> {
    backend: &'a str,
    tool: &'a str,
    program: &'a str,
    asked: &'a str,
}

fn board(workload: &Workload<'_>, power: &str) -> Option<Board> {
    let Workload { backend, tool, program, asked } = workload;
    let board = Board::new(User::Caller)?;
    // What this machine has is hidden.
    board.lab.write("sys/class/powercap", "");
    for (file, text) in [("name", "ina226"), ("power1_label", "VDD_IN"), ("power1_input", "6000000")] {
        board.set(&format!("class/hwmon/hwmon0/{file}"), text);
    }
    board.lab.write("tool", program);
    board.lab.write("q.gguf", "GGUF");
    let work = format!("backend: {backend}, model: q, {asked} }}\nmodels: {{ q: {{ path: q.gguf }} }}");
    let campaign =
        board.lab.read("c.yaml").replace("backend: command, argv: [./workload.sh] }", &work).replace("power: together", &format!("power: {power}"));
    board.lab.write("c.yaml", campaign.replace("here: { local: {} }", &format!("here: {{ local: {{}}, builds: {{ own: {{ {tool}: ./tool }} }} }}")));
    Some(board)
}

#[test]
fn a_token_has_the_energy_of_the_samples_of_decode_and_of_nothing_around_them() {
    let Some(board) = board(&BENCH, "together") else { return };
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
    let Some(board) = board(&BENCH, "split") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    let report: Value = serde_json::from_str(&board.run(&["report", "results/c", "--format", "json"]).expect(0).stdout()).unwrap();
    let joined = report["tables"].as_array().unwrap().iter().find(|table| table["definition"] == "energy.joined.v1").unwrap();
    assert_eq!(joined["metric"], "energy_per_token_mj");
    // 6 W at 14 tokens in 0.7 s.
    assert!((joined["rows"][0]["number"]["value"].as_f64().unwrap() - 300.0).abs() < 0.1, "{joined}");
}

#[test]
fn a_served_token_has_the_energy_of_all_requests_their_prompts_included() {
    let Some(board) = board(&SERVED, "together") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    let record = board.record();
    let window_s = |record: &Value| {
        let ns = |name: &str| record["iterations"][name].as_u64().unwrap();
        (ns("window_end_ns") - ns("window_start_ns")) as f64 / 1e9
    };
    // Two clients with two requests of 0.9 s each.
    assert!(window_s(&record) > 1.8 && record["energy"][0]["window"]["inferences"] == 4, "{}", record["energy"][0]);
    let metric = &record["metrics"]["energy_per_token_mj"];
    let expected = 6000.0 * window_s(&record) / 32.0;
    assert!((metric["value"].as_f64().unwrap() / expected - 1.0).abs() < 1e-3, "{metric}, not {expected}");
    assert_eq!((&metric["unit"], &metric["definition"]), (&"mJ".into(), &"energy.served_window.v1".into()));
    let served = record["metrics"]["served_tps"]["value"].as_f64().unwrap();
    assert!((served * window_s(&record) - 32.0).abs() < 1e-6, "{served}");
    let reread = board.run(&["reparse", "results/c"]).expect(0);
    assert_eq!(board.record(), record, "{}", reread.stdout());
}

#[test]
fn a_timing_run_and_a_power_run_give_the_energy_of_a_served_token_together() {
    let Some(board) = board(&SERVED, "split") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    let records = board.lab.records("c");
    let timing = records.iter().find(|(_, record)| record["ids"]["kind"] == "timing").unwrap();
    let expected = 6000.0 / timing.1["metrics"]["served_tps"]["value"].as_f64().unwrap();
    let report: Value = serde_json::from_str(&board.run(&["report", "results/c", "--format", "json"]).expect(0).stdout()).unwrap();
    let joined = report["tables"].as_array().unwrap().iter().find(|table| table["definition"] == "energy.served_joined.v1").unwrap();
    assert_eq!(joined["metric"], "energy_per_token_mj");
    assert!((joined["rows"][0]["number"]["value"].as_f64().unwrap() / expected - 1.0).abs() < 1e-3, "{joined}, not {expected}");
}
