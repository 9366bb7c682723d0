//! Whole campaigns with a stand-in for the tool, which takes its options and prints its lines.

use crate::lab::Lab;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What llama-bench prints with these options: every sample takes as long as its number says.
const TOOL: &str = r#"#!/bin/sh
case $1 in
  --help) printf 'usage: llama-bench [options]\n  -m, --model <f>\n  -p <n>\n  -n <n>\n  -d <n>\n  -t, --threads <n>\n  -r <n>\n  -o <f>\n  --progress\n  -ctk <t>\n  -fa, --flash-attn <on|off>\n  -ngl <n>\n'; exit 0;;
  --version) echo "version: 9.9 (build 7, commit abc1234)" >&2; exit 0;;
esac
echo "$@" >> LAB/count
d=0
while [ $# -gt 0 ]; do
  case $1 in -m) m=$2;; -p) p=$2;; -n) n=$2;; -d) d=$2;; -t) t=$2;; -r) r=$2;; -ctk) k=$2;; esac
  shift
done
[ -f "$m" ] || { echo "llama_bench: error: failed to load model '$m'" >&2; exit 1; }
samples() { i=1; while [ $i -le $r ]; do printf '%s%d' "$sep" $((i * 1000000)); sep=', '; i=$((i + 1)); done; }
# In thousandths.
mean() { sum=0; i=1; while [ $i -le $r ]; do sum=$((sum + $1 * 1000000 / i)); i=$((i + 1)); done; echo $((sum / r)); }
line() {
  sep=''
  mean=$(mean $(($1 + $2)))
  sleep 0.0$((r * (r + 1) / 2))
  echo "llama-bench: benchmark $3/2: starting" >&2
  echo "{\"build_commit\": \"abc1234\", \"build_number\": 7, \"cpu_info\": \"x\", \"gpu_info\": \"\", \"backends\": \"CPU\", \"model_size\": 1000, \"n_threads\": ${t:-2}, \"type_k\": \"${k:-f16}\", \"backtrace\": \"$GGML_NO_BACKTRACE\", \"model_filename\": \"$m\", \"n_prompt\": $1, \"n_gen\": $2, \"n_depth\": $d, \"avg_ns\": 1, \"avg_ts\": $((mean / 1000)).$(printf %03d $((mean % 1000))), \"samples_ns\": [ $(samples) ],\"samples_ts\": [ 1 ]}"
}
[ "$p" -eq 0 ] || line "$p" 0 1
[ "$n" -eq 0 ] || line 0 "$n" 2
"#;

const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {}, models_dir: models, builds: { own: { llama_bench: tools/llama-bench } } } }
models: { q: { path: q.gguf } }
defaults: { retry_contaminated: 0, repetitions: 1, timeout: 20s, prepare: { settle: 0ms } }
matrix:
  - devices: here
    backend: llama-bench
    model: q
";

fn lab(block: &str) -> Lab {
    let lab = Lab::new();
    lab.write("tools/llama-bench", TOOL.replace("LAB", &lab.path("").display().to_string()));
    lab.write("models/q.gguf", "GGUF");
    let lines: String = block.lines().map(|line| format!("    {}\n", line.trim_start())).collect();
    lab.write("c.yaml", format!("{CAMPAIGN}{lines}"));
    lab
}

fn run(lab: &Lab, code: i32) -> String {
    lab.run(&["run", "c.yaml"]).expect(code).stderr()
}

#[test]
fn a_point_is_one_process_with_the_options_that_the_campaign_asks_for_and_no_others() {
    let lab = lab("threads: 1\nn_prompt: 64\nn_gen: 16");
    run(&lab, 0);
    let record = lab.only_record("c");
    let model = lab.path("models/q.gguf").display().to_string();
    assert_eq!(lab.read("count"), format!("-m {model} -p 64 -n 16 -t 1 -r 3 -o jsonl --progress\n"));
    assert_eq!((&record["status"], &record["validity"], &record["issues"]), (&json!("ok"), &json!("valid"), &json!([])));
    // Samples of 1, 2 and 3 ms: the median is 64 tokens in 2 ms.
    let value = |name: &str| record["metrics"][name]["value"].as_f64().unwrap();
    assert_eq!([value("prefill_tps"), value("decode_tps"), value("decode_llama_bench_avg_ts")], [32_000.0, 8000.0, 9_777.777]);
    // Its model is none, whose header would tell what decode reads.
    let bandwidth = &record["metrics"]["decode_gb_s"];
    let (value, why) = (&bandwidth["value"], bandwidth["omitted_reason"].as_str().unwrap());
    assert!(value.is_null() && why.starts_with("the header of the model's file was not read"), "{bandwidth}");
    assert_eq!([&record["metrics"]["prefill_tps"]["label"], &record["metrics"]["decode_tps"]["label"]], [&json!("pp64"), &json!("tg16")]);
    assert_eq!(record["tests"][1]["samples_ns"], json!([1_000_000, 2_000_000, 3_000_000]));
    assert_eq!([&record["executed"]["n_threads"], &record["executed"]["backtrace"]], [&json!(1), &json!("1")]);
    assert_eq!(record["backend"]["version"], "llama.cpp abc1234 (build 7)");
    let program = record["backend"]["files"].as_array().unwrap().iter().find(|file| file["role"] == "program").unwrap();
    assert_eq!(program["name"], "tools/llama-bench");
}

#[test]
fn without_a_word_on_lengths_they_are_those_of_the_tool_and_without_a_build_it_is_the_one_on_the_path() {
    let lab = lab("iterations: 1");
    let text = lab.read("c.yaml").replace(", builds: { own: { llama_bench: tools/llama-bench } }", ", env: { PATH: 'LAB/tools:/usr/bin:/bin' }");
    lab.write("c.yaml", text.replace("LAB", &lab.path("").display().to_string()));
    run(&lab, 0);
    assert!(lab.read("count").ends_with("-p 512 -n 128 -r 1 -o jsonl --progress\n"), "{}", lab.read("count"));
    assert_eq!(lab.only_record("c")["ids"]["point"]["axes"], json!({ "model": "q", "n_prompt": 512, "n_gen": 128, "depth": 0 }));
}

#[test]
fn threads_depth_and_kv_type_make_a_matrix_and_a_second_run_has_nothing_to_do_until_the_tool_changes() {
    let lab = lab("threads: [1, 2]\ndepth: [0, 128]\nflags: { -ctk: [f16, q8_0], -fa: \"on\" }\nn_prompt: 32\nn_gen: 8\niterations: 2");
    run(&lab, 0);
    let records = lab.records("c");
    assert_eq!(records.len(), 8);
    let labels: BTreeSet<&str> = records.iter().map(|(_, record)| record["metrics"]["decode_tps"]["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["tg8", "tg8 @ d128"].into());
    let is_as_asked = |record: &Value| {
        let (axes, executed) = (&record["ids"]["point"]["axes"], &record["executed"]);
        axes["threads"] == executed["n_threads"] && axes["flags.-ctk"] == executed["type_k"]
    };
    assert!(records.iter().all(|(_, record)| is_as_asked(record)));
    assert!(lab.read("count").lines().all(|line| line.ends_with("-fa on")), "{}", lab.read("count"));
    assert!(run(&lab, 0).contains("nothing to do: 8 jobs with a valid record"));
    // By the tool's own names, too.
    let report = lab.run(&["report", "results/c", "--format", "csv"]).expect(0).stdout();
    let labels = |metric: &str| {
        report.lines().filter(|line| line.contains(&format!(",{metric},"))).filter_map(|line| line.rsplit(',').next()).collect::<BTreeSet<_>>()
    };
    assert_eq!(labels("decode_tps"), ["tg8", "tg8 @ d128"].into());
    assert_eq!(labels("prefill_llama_bench_avg_ts"), ["pp32", "pp32 @ d128"].into());
    assert!(lab.run(&["report", "results/c"]).expect(0).stdout().contains("tg8 @ d128"));
    let tool = lab.read("tools/llama-bench");
    lab.write("tools/llama-bench", tool + "# another build\n");
    let plan = lab.run(&["plan", "c.yaml", "--refresh"]).expect(0);
    assert!(plan.stdout().contains("8 stale") || plan.stderr().contains("8 stale"), "{}{}", plan.stdout(), plan.stderr());
    lab.run(&["verify", "results/c"]).expect(0);
    lab.run(&["reparse", "results/c"]).expect(0);
}

#[test]
fn a_missing_model_is_one_failed_record_with_the_tools_words() {
    let lab = lab("n_prompt: 32\nn_gen: 0");
    std::fs::remove_file(lab.path("models/q.gguf")).unwrap();
    run(&lab, 1);
    let record = lab.only_record("c");
    assert_eq!((&record["status"], &record["reason"]), (&json!("failed"), &json!("model_missing")));
    assert!(record["message"].as_str().unwrap().contains("llama_bench: error: failed to load model"), "{record}");
}

#[test]
fn a_gpu_that_was_asked_for_and_not_used_makes_the_record_invalid() {
    let lab = lab("n_prompt: 32\nn_gen: 0\nflags: { -ngl: \"99\" }");
    run(&lab, 1);
    let record = lab.only_record("c");
    assert_eq!((&record["status"], &record["validity"], &record["issues"][0]["code"]), (&json!("ok"), &json!("invalid"), &json!("cpu_fallback")));
}

#[test]
fn a_value_that_the_tool_executed_otherwise_makes_the_record_invalid() {
    let lab = lab("n_prompt: 32\nn_gen: 8\nthreads: 1\nflags: { -ctk: q8_0 }");
    lab.write("tools/llama-bench", lab.read("tools/llama-bench").replace("${t:-2}", "2"));
    run(&lab, 1);
    let record = lab.only_record("c");
    let issue = &record["issues"][0];
    assert_eq!((&record["status"], &record["validity"], &issue["code"]), (&json!("ok"), &json!("invalid"), &json!("executed_differs")));
    assert_eq!(issue["message"], "`-t 1` was passed, and the tool says `n_threads` 2");
}

#[test]
fn a_tool_that_took_another_model_or_made_its_samples_up_makes_the_record_invalid() {
    for (from, to, codes) in [
        ("; sep=''", "; sep=''", vec![]),
        ("n=$2;; -d", "n=$2; m=${m%q.gguf}other.gguf;; -d", vec!["executed_differs"]),
        ("$((i * 1000000))", "$((i * 3600000000000))", vec!["window_outside_run", "samples_differ"]),
        ("$((i * 1000000))", "1", vec!["samples_differ"]),
        ("avg_ts\\\": $", "avg_ts\\\": 9$", vec!["samples_differ"]),
    ] {
        let lab = lab("n_prompt: 32\nn_gen: 0\nthreads: 1");
        lab.write("models/other.gguf", "GGUF");
        lab.write("tools/llama-bench", lab.read("tools/llama-bench").replace(from, to));
        run(&lab, i32::from(!codes.is_empty()));
        let record = lab.only_record("c");
        let found: Vec<&str> = record["issues"].as_array().unwrap().iter().map(|issue| issue["code"].as_str().unwrap()).collect();
        assert_eq!((&record["status"], found), (&json!("ok"), codes), "{to}: {record}");
    }
}

#[test]
fn decode_is_not_measured_without_a_real_prompt() {
    for (lengths, said) in [
        ("n_prompt: [512, 16]\nn_gen: 8", "`n_prompt` is 16 where 8 tokens are generated"),
        ("n_prompt: 0", "`n_prompt` is 0 where 128 tokens are generated"),
        ("n_prompt: 0\nn_gen: 0", "nothing to measure"),
    ] {
        let lab = lab(lengths);
        let plan = lab.run(&["plan", "c.yaml"]).expect(2);
        assert!(plan.stderr().contains(said), "{}", plan.stderr());
    }
}

#[test]
fn an_option_that_the_build_of_one_device_has_not_leaves_the_others_at_work() {
    let lab = lab("n_prompt: 32\nn_gen: 0\nflags: { --flash-attn: on }");
    let text = lab.read("c.yaml");
    let device = text.lines().find_map(|line| line.strip_prefix("devices: { here: ")?.strip_suffix(" }")).unwrap();
    let older = device.replace("tools/llama-bench", "older/llama-bench");
    lab.write("older/llama-bench", lab.read("tools/llama-bench").replace("--flash-attn", "--flash-atn"));
    let both = text.replace(&format!("here: {device}"), &format!("here: {device}, old: {older}")).replace("devices: here", "devices: [old, here]");
    lab.write("c.yaml", &both);
    for jobs in ["1", "2"] {
        let ran = lab.run(&["run", "c.yaml", "--fresh", "--jobs", jobs]).expect(1);
        assert!(ran.stderr().contains("  old  ✗ `older/llama-bench` on device `old`"), "{}", ran.stderr());
        assert!(ran.stderr().contains("  not run  `older/llama-bench` on device `old` (version 9.9"), "{}", ran.stderr());
        let devices: Vec<Value> = lab.records("c").iter().map(|(_, record)| record["ids"]["point"]["device"].clone()).collect();
        assert_eq!(devices, ["here"], "{}", ran.stderr());
    }
    lab.run(&["plan", "c.yaml", "--refresh"]).expect(2);
    // Nobody is left.
    for of in [&["--device", "old"][..], &["--results", "none"]] {
        lab.write("tools/llama-bench", lab.read("older/llama-bench"));
        let refused = lab.run(&[&["run", "c.yaml"], of].concat()).expect(2);
        assert!(refused.stderr().contains("has no option `--flash-attn`"), "{}", refused.stderr());
    }
}

#[test]
fn an_option_that_the_build_has_not_stops_the_campaign_before_anything_runs() {
    let lab = lab("n_prompt: 32\nn_gen: 0\nflags: { --flash-atn: [\"on\", \"off\"] }");
    for command in [&["run", "c.yaml"][..], &["plan", "c.yaml", "--refresh"]] {
        let said = lab.run(command).expect(2).stderr();
        assert!(said.contains("`tools/llama-bench` on device `here` (version 9.9 (build 7, commit abc1234)) has no option `--flash-atn`"), "{said}");
        assert!(said.contains("hint: the nearest that it has: `--flash-attn`"), "{said}");
    }
    assert_eq!((lab.read("count").as_str(), lab.records("c").len()), ("", 0));
    // Options that are there are no matter, and a build that says nothing of its options is tried.
    lab.write("c.yaml", lab.read("c.yaml").replace("--flash-atn", "--flash-attn"));
    run(&lab, 0);
    let silent = lab.read("tools/llama-bench").replace("--help) printf", "--help) exec sleep 0; printf");
    lab.write("tools/llama-bench", silent);
    lab.write("c.yaml", lab.read("c.yaml").replace("--flash-attn", "--flash-atn"));
    run(&lab, 0);
    // A help whose end isn't kept can't say that an option isn't there.
    let tool = TOOL.replace("LAB", &lab.path("").display().to_string());
    lab.write("tools/llama-bench", tool.replace("--help) printf", "--help) head -c 300000 /dev/zero | tr '\\0' ' '; printf"));
    let said = run(&lab, 0);
    assert!(said.contains("the help of `tools/llama-bench` on device `here` is longer than 256 KiB: its options are not checked"), "{said}");
}

#[test]
fn an_option_with_underscores_is_the_one_with_dashes() {
    let lab = lab("n_prompt: 32\nn_gen: 0\nflags: { --flash_attn: \"on\" }");
    run(&lab, 0);
    assert!(lab.read("count").ends_with("--flash_attn on\n"), "{}", lab.read("count"));
    lab.write("c.yaml", lab.read("c.yaml").replace("--flash_attn: \"on\"", "--n_prompt: 64"));
    let said = lab.run(&["plan", "c.yaml"]).expect(2).stderr();
    assert!(said.contains("`--n_prompt` is no option for `flags`") && said.contains("write `n_prompt`"), "{said}");
}
