//! `isotherm init`: what it writes is understood and runs, whatever lies around.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/llama.rs"]
mod llama;

use lab::{Lab, Ran, eventually};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn example(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models").join(name)).unwrap()
}

/// One repetition of every point; with it, the plan is asked first.
#[track_caller]
fn runs(lab: &Lab, file: &str, name: &str) -> Vec<Value> {
    lab.run(&["plan", file]).expect(0);
    lab.run(&["run", file, "--filter", "repetition=0"]).expect(0);
    let records: Vec<Value> = lab.records(name).into_iter().map(|(_, record)| record).collect();
    assert!(!records.is_empty());
    for record in &records {
        assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"valid".into()), "{record:#}");
    }
    records
}

#[test]
fn where_nothing_is_found_the_campaign_runs_all_the_same() {
    let lab = Lab::new();
    let ran = lab.run(&["init"]).expect(0);
    assert_eq!(ran.stdout(), "campaign.yaml\n");
    for part in
        ["no model that can run here", "wrote campaign.yaml: 2 points, 8 runs", "next: isotherm plan campaign.yaml && isotherm run campaign.yaml"]
    {
        assert!(ran.stderr().contains(part), "{part} is not in {}", ran.stderr());
    }
    let records = runs(&lab, "campaign.yaml", "campaign");
    assert_eq!(records.len(), 2);
    assert!(records.iter().all(|r| r["metrics"]["copy_s"]["value"].as_f64().is_some_and(|s| s > 0.0)), "{records:#?}");
}

#[test]
fn models_are_tried_and_those_that_run_are_in_the_campaign() {
    let lab = Lab::new();
    lab.write("nets/tiny-cnn.onnx", example("tiny-cnn.onnx"));
    lab.write("home/models/other.onnx", example("tiny-cnn.onnx"));
    lab.write("broken.onnx", "no model at all");
    fs::create_dir(lab.path("far")).unwrap();
    let ran = lab.run(&["init", "--output", "first.yaml"]).expect(0);
    assert!(ran.stderr().contains("broken.onnx: not an ONNX file"), "{}", ran.stderr());
    let text = lab.read("first.yaml");
    assert!(text.contains("tiny-cnn: { path: \"nets/tiny-cnn.onnx\" }") && text.contains("other: {"), "{text}");
    assert!(!text.contains("broken"), "{text}");
    let records = runs(&lab, "first.yaml", "first");
    assert!(records.iter().all(|r| r["metrics"]["latency_ms"]["value"].as_f64().is_some_and(|ms| ms > 0.0)), "{records:#?}");
    // No keeper, no agent and no workload is left.
    eventually("all of it has ended", || lab.processes().is_empty().then_some(()));
}

#[test]
fn a_models_directory_can_be_named_and_has_to_be_there() {
    let lab = Lab::new();
    let outside = Lab::new();
    outside.write("deep/er/model.onnx", example("tiny-cnn.onnx"));
    let dir = outside.path("").display().to_string();
    lab.run(&["init", "--models", &dir]).expect(0);
    assert!(lab.read("campaign.yaml").contains("deep/er/model.onnx"), "{}", lab.read("campaign.yaml"));
    let refused = lab.run(&["init", "--models", "none", "--force"]).expect(2);
    assert!(refused.stderr().contains("failed to look into none: No such file"), "{}", refused.stderr());
}

/// A stand-in for llama-bench: refuses other arguments than it expects, and prints lines as the real one does. Its directory says so.
fn fake_llama_bench(lab: &Lab) -> String {
    let script = "#!/bin/sh
case \"$1\" in --version) echo 'version: 1 (fake)' >&2; exit 0;; --help) exit 0;; esac
[ \"$1\" = -m ] && [ -r \"$2\" ] && shift 2 || exit 3
case \"$*\" in '-p 64 -n 16 -t '[1-9]*' -r 3 -o jsonl --progress') ;; *) exit 4;; esac
line() {
  echo \"{\\\"build_commit\\\": \\\"c\\\", \\\"build_number\\\": 1, \\\"n_prompt\\\": $1, \\\"n_gen\\\": $2, \\\"n_depth\\\": 0, \\\"avg_ts\\\": $3, \\\"samples_ns\\\": [ 1000000, 2000000, 4000000 ]}\"
}
sleep 0.014
line 64 0 37333.333333
line 0 16 9333.333333
";
    lab.write("fake-llama.cpp/llama-bench", script);
    format!("{}:/usr/bin:/bin", lab.path("fake-llama.cpp").display())
}

#[test]
fn a_gguf_model_and_llama_bench_make_a_block_that_reads_its_samples() {
    let lab = Lab::new();
    let path = fake_llama_bench(&lab);
    lab.write("weights/small.gguf", "GGUF, as far as anybody looks");
    lab.write("weights/page.gguf", "<html>not found</html>");
    let ran = Ran(lab.isotherm(&["init"]).env("PATH", &path).output().unwrap()).expect(0);
    assert!(ran.stderr().contains("page.gguf: does not begin like a GGUF file"), "{}", ran.stderr());
    let text = lab.read("campaign.yaml");
    assert!(text.contains("fake-llama.cpp/llama-bench") && text.contains("small: { path: \"weights/small.gguf\" }"), "{text}");
    for record in runs(&lab, "campaign.yaml", "campaign") {
        // 64 and 16 tokens in 2 ms.
        assert_eq!(record["metrics"]["prefill_tps"]["value"], 32_000.0);
        assert_eq!(record["metrics"]["decode_tps"]["value"], 8000.0);
    }
}

#[test]
fn a_real_llama_bench_runs_the_block_that_is_written_for_it() {
    let Some(tool) = llama::tool("llama-bench") else { return };
    let lab = Lab::new();
    fs::create_dir(lab.path("models")).unwrap();
    fs::copy(llama::model("tiny-q8_0.gguf"), lab.path("models/real.gguf")).unwrap();
    let path = format!("{}:/usr/bin:/bin", tool.parent().unwrap().display());
    Ran(lab.isotherm(&["init"]).env("PATH", &path).output().unwrap()).expect(0);
    let records = runs(&lab, "campaign.yaml", "campaign");
    assert!(records.iter().all(|r| r["metrics"]["decode_tps"]["value"].as_f64().is_some_and(|tps| tps > 0.0)), "{records:#?}");
}

#[test]
fn without_llama_bench_a_gguf_model_is_named_and_not_claimed() {
    let lab = Lab::new();
    lab.write("small.gguf", "GGUF");
    let empty = lab.path("cache").display().to_string();
    Ran(lab.isotherm(&["init"]).env("PATH", empty).output().unwrap()).expect(0);
    let text = lab.read("campaign.yaml");
    assert!(text.contains("# * 1 GGUF model, and no llama-bench") && !text.contains("small:"), "{text}");
}

#[test]
fn a_llama_bench_that_hangs_is_named_and_not_said_to_be_missing() {
    let lab = Lab::new();
    lab.write("small.gguf", "GGUF");
    lab.write("tools/llama-bench", "#!/bin/sh\nsleep 300 & exec sleep 300\n");
    let path = format!("{}:/usr/bin:/bin", lab.path("tools").display());
    let ran = Ran(lab.isotherm(&["init"]).env("PATH", &path).output().unwrap()).expect(0);
    let text = lab.read("campaign.yaml");
    assert!(text.contains("tools/llama-bench can't be used: no answer within 5 s") && !text.contains("no llama-bench"), "{text}");
    assert!(!ran.stderr().contains("build llama.cpp"), "{}", ran.stderr());
}

#[test]
fn a_campaign_is_understood_whatever_its_file_is_called() {
    let lab = Lab::new();
    for name in ["two\nlines.yaml", "it's mine.yaml", "#: {.yaml"] {
        let ran = lab.run(&["init", "--output", name]).expect(0);
        assert!(lab.path(name).is_file(), "{}", ran.stderr());
        lab.run(&["plan", name]).expect(0);
    }
}

#[test]
fn a_file_that_is_there_is_left_alone_unless_forced() {
    let lab = Lab::new();
    lab.write("campaign.yaml", "mine");
    let refused = lab.run(&["init"]).expect(2);
    for part in ["campaign.yaml is there already", "hint: isotherm init --output campaign.yaml --force"] {
        assert!(refused.stderr().contains(part), "{part} is not in {}", refused.stderr());
    }
    assert_eq!(lab.read("campaign.yaml"), "mine");
    lab.run(&["init", "--force"]).expect(0);
    assert!(lab.read("campaign.yaml").contains("campaign: campaign"));
    // A link that leads nowhere is there as well: nothing is written through it.
    std::os::unix::fs::symlink("elsewhere.yaml", lab.path("link.yaml")).unwrap();
    lab.run(&["init", "--output", "link.yaml"]).expect(2);
    assert!(!lab.path("elsewhere.yaml").exists());
    let nowhere = lab.run(&["init", "--output", "no/where.yaml"]).expect(2);
    assert!(nowhere.stderr().contains("hint: mkdir -p no"), "{}", nowhere.stderr());
    lab.run(&["init", "--output", "home"]).expect(2);
}

#[test]
fn a_machine_is_a_name_and_a_held_one_is_for_when_it_is_free() {
    let lab = Lab::new();
    for target in ["-oProxyCommand=reboot", "pi@", "a b", "$(reboot)"] {
        let refused = lab.run(&["init", "--", target]).expect(2);
        assert!(refused.stderr().contains("is no machine that ssh could reach"), "{}", refused.stderr());
    }

    lab.write("w.sh", "#!/bin/sh\necho >> started\nwhile [ ! -e gate ]; do sleep 0.01; done\n");
    lab.write(
        "c.yaml",
        "campaign: c\ndevices: { here: { local: {} } }\ndefaults: { repetitions: 1, timeout: 60s, warmup: 0, prepare: { settle: 0ms } }\n\
         matrix:\n  - { devices: here, backend: command, argv: [./w.sh] }\n",
    );
    let controller = lab.start(&["run", "c.yaml"]);
    eventually("the job runs", || lab.path("started").exists().then_some(()));
    let held = lab.run(&["init"]).expect(4);
    assert!(held.stderr().contains("is held by campaign `c`") && !held.stderr().contains("--force"), "{}", held.stderr());
    assert!(!lab.path("campaign.yaml").exists());
    lab.write("gate", "");
    crate::lab::Ran::of(controller).expect(0);
}
