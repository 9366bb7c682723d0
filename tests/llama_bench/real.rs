//! Campaigns with the real llama-bench, on models of some hundred kilobytes.

use crate::lab::{Lab, eventually};
use crate::llama;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

/// Tokens that the tiny models were made for.
const TRAINED: u64 = 2048;

/// Of the campaign over threads, depth and KV type: three of each of eight points.
const JOBS: usize = 24;

/// A lab whose campaign has this block, with the tool and a model; `None` without the tool.
fn lab(block: &str) -> Option<Lab> {
    let tool = llama::tool("llama-bench")?;
    let lab = Lab::new();
    fs::copy(llama::model("tiny-q8_0.gguf"), lab.path("q8.gguf")).unwrap();
    let campaign = format!(
        "campaign: c
devices: {{ here: {{ local: {{}}, builds: {{ real: {{ llama_bench: {tool:?} }} }} }} }}
models: {{ q8: {{ path: q8.gguf }} }}
defaults: {{ retry_contaminated: 0, repetitions: 1, timeout: 60s, iterations: 2, prepare: {{ settle: 0ms }} }}
matrix:
  - devices: here
    backend: llama-bench
    model: q8
"
    );
    let lines: String = block.lines().map(|line| format!("    {}\n", line.trim_start())).collect();
    lab.write("c.yaml", campaign + &lines);
    Some(lab)
}

fn text(stream: &Value) -> &str {
    stream["head"]["data"].as_str().unwrap()
}

/// What the tool printed behind a field, test by test.
fn printed<'t>(stdout: &'t str, field: &str) -> Vec<&'t str> {
    let key = format!("\"{field}\": ");
    stdout.lines().filter_map(|line| Some(line.split_once(&key)?.1.split(',').next().unwrap())).collect()
}

#[track_caller]
fn is_right(record: &Value) {
    let axes = &record["ids"]["point"]["axes"];
    assert_eq!((&record["status"], &record["message"]), (&json!("ok"), &Value::Null), "{axes}");
    // What else the machine did meanwhile is another matter than what the tool said.
    let of_tool = |issue: &&Value| ["cpu_fallback", "beyond_trained_context"].contains(&issue["code"].as_str().unwrap());
    assert_eq!(record["issues"].as_array().unwrap().iter().filter(of_tool).count(), 0);
    let tests = record["tests"].as_array().unwrap();
    let depth = axes["depth"].as_u64().unwrap();
    let at = if depth > 0 { format!(" @ d{depth}") } else { String::new() };
    assert_eq!(tests.iter().map(|test| test["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), [format!("pp32{at}"), format!("tg8{at}")]);
    for (phase, printed) in ["prefill", "decode"].iter().zip(printed(text(&record["raw"]["stdout"]), "avg_ts")) {
        let mean = record["metrics"][format!("{phase}_llama_bench_avg_ts")]["value"].as_f64().unwrap();
        assert_eq!(format!("{mean:.6}"), printed);
        assert!(record["metrics"][format!("{phase}_tps")]["value"].as_f64().unwrap() > 0.0);
    }
    let (spawn, exit) = (&record["time"]["spawn_monotonic_ns"], &record["time"]["exit_monotonic_ns"]);
    let mut before = spawn.as_u64().unwrap();
    for test in tests {
        let (samples, spans) = (test["samples_ns"].as_array().unwrap(), test["spans_ns"].as_array().cloned().unwrap_or_default());
        // On a machine that is busy, lines of samples of half a millisecond may arrive together; then nobody knows where they lie.
        assert!(samples.len() == 2 && [0, 2].contains(&spans.len()), "{test}");
        for (sample, span) in samples.iter().zip(&spans) {
            let (start, end) = (span[0].as_u64().unwrap(), span[1].as_u64().unwrap());
            assert_eq!(end - start, sample.as_u64().unwrap());
            assert!(before <= end && end <= exit.as_u64().unwrap(), "{test}");
            before = end;
        }
    }
    let executed = &record["executed"];
    assert_eq!((&executed["n_threads"], &executed["type_k"], &executed["backends"]), (&axes["threads"], &axes["flags.-ctk"], &json!("CPU")));
    let header = &record["workload"]["model"]["header"]["gguf"];
    let (weights, looked_up) = (header["weight_bytes"].as_u64().unwrap(), header["lookup_bytes"].as_u64().unwrap());
    assert_eq!(executed["model_size"], weights, "the tool and the file's own header agree");
    let value = |metric: &str| record["metrics"][metric]["value"].as_f64().unwrap();
    assert!(looked_up > 0, "the model has a matrix of the output beside its embeddings");
    assert!((value("decode_gb_s") / value("decode_tps") * 1e9 / (weights - looked_up) as f64 - 1.0).abs() < 1e-9);
}

#[test]
fn a_campaign_over_threads_depth_and_kv_type_goes_on_after_its_controller_was_killed() {
    let block = "threads: [1, 2]\ndepth: [0, 64]\nflags: { -ctk: [f16, q8_0] }\nn_prompt: 32\nn_gen: 8\nrepetitions: 3";
    let Some(lab) = lab(block) else { return };
    let mut controller = lab.start(&["run", "c.yaml"]);
    eventually("two records", || (lab.records("c").len() >= 2).then_some(()));
    controller.kill().unwrap();
    controller.wait().unwrap();
    let before: BTreeMap<String, Value> = lab.records("c").into_iter().map(|(path, record)| (path.display().to_string(), record)).collect();
    assert!(before.len() < JOBS, "it was killed on its way");
    lab.run(&["run", "c.yaml"]).expect(0);
    let records = lab.records("c");
    assert_eq!(records.len(), JOBS);
    for (path, record) in &records {
        is_right(record);
        let earlier = before.get(&path.display().to_string());
        assert!(earlier.is_none_or(|earlier| earlier == record), "what was there stays");
    }
    lab.run(&["verify", "results/c"]).expect(0);
    assert!(lab.run(&["run", "c.yaml"]).expect(0).stderr().contains("nothing to do: 24 jobs with a valid record"));
    let report = lab.run(&["report", "results/c", "--format", "markdown"]).expect(0).stdout();
    for metric in ["prefill_tps", "decode_tps", "decode_llama_bench_avg_ts", "decode_gb_s"] {
        assert!(report.contains(metric), "{report}");
    }
}

#[test]
fn what_the_real_tool_keeps_quiet_about_is_an_issue_and_what_it_refuses_has_its_words() {
    for (block, status, reason, code, words) in [
        ("threads: 1\nn_prompt: 32\nn_gen: 0\nflags: { -ngl: \"99\" }", "ok", Value::Null, "cpu_fallback", ""),
        (&format!("threads: 1\nn_prompt: 32\nn_gen: 0\ndepth: {TRAINED}"), "ok", Value::Null, "beyond_trained_context", ""),
        ("threads: 1\nn_prompt: 32\nn_gen: 0\nflags: { -fa: sometimes }", "failed", json!("exit_code"), "", "invalid parameter for argument: -fa"),
        ("threads: 1\nn_prompt: 32\nn_gen: 0\nflags: { -fa: \"off\", -ctv: q8_0 }", "failed", json!("exit_code"), "", "failed to create context"),
    ] {
        let Some(lab) = lab(block) else { return };
        lab.run(&["run", "c.yaml"]);
        let record = lab.only_record("c");
        assert_eq!((&record["status"], &record["reason"]), (&json!(status), &reason), "{block}: {}", record["message"]);
        assert!(code.is_empty() || record["issues"].as_array().unwrap().iter().any(|issue| issue["code"] == code), "{block}: {}", record["issues"]);
        assert!(record["message"].as_str().unwrap_or_default().contains(words), "{block}: {}", record["message"]);
    }
}

#[test]
fn a_model_that_is_cut_short_fails_its_runs_in_the_tools_words() {
    let Some(lab) = lab("threads: 1\nn_prompt: 32\nn_gen: 0") else { return };
    let whole = fs::read(lab.path("q8.gguf")).unwrap();
    lab.write("q8.gguf", &whole[..whole.len() / 2]);
    lab.run(&["run", "c.yaml"]).expect(1);
    let record = lab.only_record("c");
    assert_eq!((&record["status"], &record["reason"]), (&json!("failed"), &json!("exit_code")));
    assert!(record["message"].as_str().unwrap().contains("failed to load model"), "{}", record["message"]);
    assert!(record["workload"]["model"]["header"]["broken"].is_string(), "{}", record["workload"]);
}

#[test]
fn an_option_of_last_years_builds_is_refused_with_the_version_before_anything_runs() {
    let Some(lab) = lab("threads: 1\nn_prompt: 32\nn_gen: 0\nflags: { -mmp: \"0\" }") else { return };
    let said = lab.run(&["run", "c.yaml"]).expect(2).stderr();
    assert!(said.contains("(version 0.") && said.contains("has no option `-mmp`"), "{said}");
    assert!(lab.records("c").is_empty());
}

#[test]
fn the_shipped_campaign_runs() {
    let Some(tool) = llama::tool("llama-bench") else { return };
    let lab = Lab::new();
    let campaign = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/llama-smoke.yaml");
    let dir = tool.parent().unwrap().display().to_string();
    lab.run_with(&["run", campaign, "--set", "prepare.settle=0s", "--set", "repetitions=1", "--set", "retry_contaminated=0"], &[("LLAMA_DIR", &dir)])
        .expect(0);
    assert_eq!(lab.records("llama-smoke").len(), 8 + 4);
}

#[test]
fn what_a_rate_does_not_depend_on_makes_no_rows() {
    let Some(lab) = lab("threads: 1\nn_prompt: [32, 64]\nn_gen: [8, 16]\nrepetitions: 2") else { return };
    lab.run(&["run", "c.yaml"]).expect(0);
    let report: Value = serde_json::from_str(&lab.run(&["report", "results/c", "--json", "--include", "degraded"]).expect(0).stdout()).unwrap();
    // Of each row what its table tells it by, and its runs.
    let rows = |metric: &str| -> Vec<(Value, Value)> {
        let table = report["tables"].as_array().unwrap().iter().find(|table| table["metric"] == metric).unwrap();
        table["rows"].as_array().unwrap().iter().map(|row| (row["cells"].clone(), row["number"]["runs"].clone())).collect()
    };
    for (metric, lengths) in [("prefill_tps", [32, 64]), ("decode_tps", [8, 16]), ("decode_gb_s", [8, 16])] {
        assert_eq!(rows(metric), lengths.map(|n| (json!([n]), json!(4))), "{metric}");
    }
    assert_eq!(rows("peak_rss_bytes").len(), 4);
}

#[test]
fn models_of_three_sizes_tell_what_decode_reads_of_the_memory() {
    let Some(lab) = lab("threads: [1, 2]\nn_prompt: 32\nn_gen: 8") else { return };
    fs::copy(llama::model("tiny-f16.gguf"), lab.path("f16.gguf")).unwrap();
    llama::generated(&lab.path("wide.gguf"), 128, 2);
    let campaign =
        lab.read("c.yaml").replace("{ q8: { path: q8.gguf } }", "{ q8: { path: q8.gguf }, f16: { path: f16.gguf }, wide: { path: wide.gguf } }");
    lab.write("c.yaml", campaign.replace("model: q8\n", "model: [q8, f16, wide]\n"));
    lab.run(&["run", "c.yaml"]).expect(0);
    let report: Value = serde_json::from_str(&lab.run(&["report", "results/c", "--json", "--include", "degraded"]).expect(0).stdout()).unwrap();
    let table = report["tables"].as_array().unwrap().iter().find(|table| table["metric"] == "decode_tps").unwrap();
    let fit = &table["fits"][0];
    assert_eq!((&fit["sizes"], fit["points"].as_array().unwrap().len(), table["rows"].as_array().unwrap().len()), (&json!(3), 3, 6), "{table}");
    let (mut xy, mut xx) = (0.0, 0.0);
    for point in fit["points"].as_array().unwrap() {
        let (row, tps) = (&table["rows"][point["row"].as_u64().unwrap() as usize], point["tokens_per_s"].as_f64().unwrap());
        assert_eq!(row["number"]["value"], tps);
        let x = 1e9 / point["weight_bytes"].as_f64().unwrap();
        (xy, xx) = (xy + x * tps, xx + x * x);
    }
    let gb_s = fit["gb_s"].as_f64().unwrap();
    assert!((gb_s * xx / xy - 1.0).abs() < 1e-9, "{fit}");
}

/// As download caches keep them: files by their content, and links with their names.
#[test]
fn a_model_in_several_files_behind_links_is_found_by_the_names_of_the_links() {
    let Some(lab) = lab("threads: 2\nn_prompt: 32\nn_gen: 8") else { return };
    llama::generated_as(&lab.path("m"), 128, 2, "--parts 2");
    for (name, blob) in [("m-00001-of-00002.gguf", "blobs/a"), ("m-00002-of-00002.gguf", "blobs/b")] {
        lab.write(blob, fs::read(lab.path(name)).unwrap());
        fs::remove_file(lab.path(name)).unwrap();
        symlink(blob, lab.path(name)).unwrap();
    }
    symlink("blobs/a", lab.path("one.gguf")).unwrap();
    lab.write("c.yaml", lab.read("c.yaml").replace("q8.gguf", "m-00001-of-00002.gguf"));
    lab.run(&["run", "c.yaml"]).expect(0);
    let record = lab.only_record("c");
    let model = &record["workload"]["model"];
    assert_eq!((&model["path"], &model["header"]["gguf"]["files"]), (&json!("$CAMPAIGN/m-00001-of-00002.gguf"), &json!(2)), "{model}");
    let files = record["backend"]["files"].as_array().unwrap();
    assert!(
        files.iter().any(|file| file["file"]["path"] == "$CAMPAIGN/blobs/b" && file["file"]["named"] == "$CAMPAIGN/m-00002-of-00002.gguf"),
        "{files:?}"
    );
    assert!(files.iter().all(|file| file["file"]["path"] != "$CAMPAIGN/blobs/a"), "the model is no library: {files:?}");

    lab.write("c.yaml", lab.read("c.yaml").replace("m-00001-of-00002.gguf", "one.gguf"));
    let ran = lab.run(&["run", "c.yaml"]).expect(1);
    assert!(
        ran.stderr().contains("one.gguf: file 1 of 2 of a model, by its header; name the first one, as NAME-00001-of-00002.gguf"),
        "{}",
        ran.stderr()
    );
    assert!(ran.stdout().contains("model_missing") || ran.stderr().contains("model_missing"), "{}{}", ran.stdout(), ran.stderr());
}

#[test]
fn of_a_mixture_of_experts_in_several_files_decode_reads_those_at_work_for_a_token() {
    let Some(lab) = lab("threads: 2\nn_prompt: 32\nn_gen: 8\nwhen: model.bytes > 3000000") else { return };
    llama::generated_as(&lab.path("moe"), 128, 4, "--experts 8 2 --parts 3");
    lab.write("c.yaml", lab.read("c.yaml").replace("q8.gguf", "moe-00001-of-00003.gguf"));
    lab.run(&["run", "c.yaml"]).expect(0);
    let record = lab.only_record("c");
    let header = &record["workload"]["model"]["header"]["gguf"];
    assert_eq!((&header["files"], &header["split"], &header["experts_used"]), (&json!(3), &Value::Null, &json!(2)), "{header}");
    assert_eq!((&header["weight_bytes"], &header["parameters"]), (&record["executed"]["model_size"], &record["executed"]["model_n_params"]));
    // Bytes of 32 values of Q8_0: one of two tables, and six of eight experts of four layers are not read.
    let bytes = |values: u64| values / 32 * 34;
    let idle = bytes(384 * 128) + bytes(4 * 6 * 3 * 128 * 384);
    let read = header["weight_bytes"].as_u64().unwrap() - idle;
    let value = |metric: &str| record["metrics"][metric]["value"].as_f64().unwrap();
    assert!((value("decode_gb_s") / (value("decode_tps") * read as f64 / 1e9) - 1.0).abs() < 1e-12, "{}", record["metrics"]);
}
