//! Every recorded situation of llama-bench as a record: read, or failed for its reason with the tool's own words.

use crate::shared;
use isotherm::backend::llama_help as help;
use isotherm::backend::output::Stream;
use isotherm::backend::{self, ParseSpec, RawOutput};
use isotherm::run::assemble;
use isotherm::run::manifest::Manifest;
use isotherm::store::record::{Identity, Kind, LlamaBenchAsked, ModelBlock, PointIds, Reason, Record, Status};
use isotherm_wire::columns::ColumnName;
use isotherm_wire::inspect::Machine;
use isotherm_wire::model::{Gguf, ModelHeader};
use isotherm_wire::result::{AgentFacts, Blob, Captured, Encoding, Outcome, RunResult};
use isotherm_wire::telemetry::{Reading, Snapshot};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What a situation is.
enum Is {
    /// Read, with these tests.
    Read(&'static [&'static str]),
    /// Read, with this issue.
    With(&'static str),
    /// Failed for this reason, and with these words in the message.
    Failed(Reason, &'static str),
}
use Is::{Failed, Read, With};

const NO_MODEL: &str = "failed to load model";
const NO_TEST: &str = "exit code 0, and no test in its output";
const TWICE: &str = "more than one result of a test";

const SITUATIONS: [(&str, Is); 53] = [
    ("bench_bad_flag_c", Failed(Reason::ExitCode, "invalid parameter for argument: -c")),
    ("bench_bad_format", Failed(Reason::ExitCode, "invalid parameter for argument: -o")),
    ("bench_bad_value", Failed(Reason::ExitCode, "invalid range format")),
    ("bench_cgroup_mmap_thrash", Read(&["tg2"])),
    ("bench_csv", Failed(Reason::Parse, NO_TEST)),
    ("bench_depth_gt_ctx", With("beyond_trained_context")),
    ("bench_dev_cuda0", Failed(Reason::ExitCode, "invalid device: CUDA0")),
    ("bench_dup_p", Failed(Reason::Parse, TWICE)),
    ("bench_fa", Failed(Reason::Parse, TWICE)),
    ("bench_fa_off", Read(&["pp64", "tg16"])),
    ("bench_garbage_model", Failed(Reason::ExitCode, NO_MODEL)),
    ("bench_help", Failed(Reason::Parse, NO_TEST)),
    ("bench_json_n0", Read(&["pp64"])),
    ("bench_json_oe_md", Read(&["pp64", "tg16"])),
    ("bench_json_p0", Read(&["tg16"])),
    ("bench_json_p0_n0", Failed(Reason::Parse, NO_TEST)),
    ("bench_json_pg", Failed(Reason::Parse, "a test in its output that was not asked for: pp64+tg16")),
    ("bench_json_pp_tg", Read(&["pp64", "tg16"])),
    ("bench_jsonl_depths", Failed(Reason::Parse, "not asked for: pp64 @ d128")),
    ("bench_jsonl_pp_tg", Read(&["pp64", "tg16"])),
    ("bench_killed_after_first.json", Failed(Reason::Signal, "ended by SIGKILL")),
    ("bench_killed_after_first.jsonl", Failed(Reason::Signal, "ended by SIGKILL")),
    ("bench_kvq_nofa", Failed(Reason::ExitCode, "failed to create context with model")),
    ("bench_list_devices", Failed(Reason::Parse, NO_TEST)),
    ("bench_md", Failed(Reason::Parse, NO_TEST)),
    ("bench_mid_json", Read(&["pp64", "tg16"])),
    ("bench_missing_model", Failed(Reason::ModelMissing, "failed to load model 'models/nope.gguf'")),
    ("bench_model_dir", Failed(Reason::ModelMissing, NO_MODEL)),
    ("bench_neg_n", Failed(Reason::ExitCode, "invalid parameter for argument: -n")),
    ("bench_ngl99_cpu_build", With("cpu_fallback")),
    ("bench_no_model_arg", Failed(Reason::ExitCode, NO_MODEL)),
    ("bench_noperm", Failed(Reason::ModelMissing, NO_MODEL)),
    ("bench_oom_cgroup_lm_none", Failed(Reason::Oom, "ended by the kernel, which was out of memory")),
    // The tool doesn't say that it was memory, and nobody else does.
    ("bench_oom_prlimit_as", Failed(Reason::ExitCode, NO_MODEL)),
    ("bench_progress", Read(&["pp64", "tg16"])),
    ("bench_prompt_huge", With("beyond_trained_context")),
    ("bench_r0", Failed(Reason::Parse, "0 samples of pp64")),
    ("bench_r1", Read(&["pp64", "tg16"])),
    ("bench_removed_flag_mmp", Failed(Reason::ExitCode, "invalid parameter for argument: -mmp")),
    ("bench_second_model_missing", Failed(Reason::ExitCode, "failed to load model 'models/nope.gguf'")),
    ("bench_second_model_missing_jsonl", Failed(Reason::ExitCode, "failed to load model 'models/nope.gguf'")),
    ("bench_sigint", Failed(Reason::Signal, "ended by SIGINT")),
    ("bench_sql", Failed(Reason::Parse, NO_TEST)),
    ("bench_t0", Failed(Reason::Signal, "ended by SIGABRT: dl/lcp-sdist/")),
    ("bench_t0_nobacktrace", Failed(Reason::Signal, "GGML_ASSERT(cplan->n_threads > 0) failed")),
    ("bench_threads_gt_cores", Read(&["pp64", "tg16"])),
    ("bench_timeout_sigterm", Failed(Reason::Timeout, "ran into its time-out")),
    ("bench_truncated_model", Failed(Reason::ExitCode, NO_MODEL)),
    ("bench_two_models", Failed(Reason::Parse, TWICE)),
    ("bench_unknown_flag", Failed(Reason::ExitCode, "invalid parameter for argument: --frobnicate")),
    ("bench_verbose", Read(&["pp64", "tg16"])),
    ("bench_version", Failed(Reason::Parse, NO_TEST)),
    ("bench_vocab_only_gguf", Failed(Reason::ExitCode, NO_MODEL)),
];

/// Tokens that the recorded models were made for.
const TRAINED: u64 = 2048;

/// How those ended of which the index says nothing, as the shell has it.
const UNLISTED: [(&str, i64); 5] = [
    ("bench_killed_after_first.json", 137),
    ("bench_killed_after_first.jsonl", 137),
    ("bench_removed_flag_mmp", 1),
    ("bench_sigint", 130),
    ("bench_t0_nobacktrace", 134),
];

/// A recorded run.
struct Recorded {
    name: String,
    argv: Vec<String>,
    rc: i64,
    stdout: String,
    stderr: String,
}

impl Recorded {
    /// All of them, by name.
    fn all(folder: &Path) -> BTreeMap<String, Recorded> {
        let index = fs::read_to_string(folder.join("INDEX.jsonl")).unwrap();
        // The last entry of a name is the one whose files are there.
        let index: BTreeMap<String, Value> = index
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry))
            .collect();
        let names = fs::read_dir(folder).unwrap().filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".stdout")?.to_owned()));
        let recorded = names.filter(|name| name.starts_with("bench_")).map(|name| {
            let read = |what: &str| fs::read_to_string(folder.join(format!("{name}.{what}"))).unwrap();
            let entry = index.get(&name);
            let argv = entry.map_or(json!([]), |entry| entry["argv"].clone());
            let rc = entry.map(|entry| entry["rc"].as_i64().unwrap());
            let recorded = Recorded {
                argv: serde_json::from_value(argv).unwrap(),
                rc: rc.unwrap_or_else(|| UNLISTED.iter().find(|(unlisted, _)| *unlisted == name).expect("its end is known").1),
                stdout: read("stdout"),
                stderr: read("stderr"),
                name: name.clone(),
            };
            (name, recorded)
        });
        recorded.collect()
    }

    fn option(&self, name: &str) -> Option<&str> {
        let line = self.argv.iter().flat_map(|element| element.split(' ')).collect::<Vec<_>>();
        line.windows(2).rfind(|pair| pair[0] == name).map(|pair| pair[1])
    }

    fn asked(&self) -> LlamaBenchAsked {
        let number = |name: &str, default: u32| self.option(name).and_then(|text| text.split(',').next()?.parse().ok()).unwrap_or(default);
        LlamaBenchAsked {
            n_prompt: number("-p", 512),
            n_gen: number("-n", 128),
            depth: number("-d", 0),
            samples: number("-r", 5),
            offload: self.option("-ngl").map(|layers| format!("-ngl {layers}")),
            // As a campaign passes them, which names each once.
            passed: ["-t", "-fa", "-ngl", "-lm", "--repack", "-ctk", "-ctv"]
                .into_iter()
                .filter_map(|option| Some((option.to_owned(), self.option(option)?.to_owned())))
                .collect(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self.rc {
            124 => Outcome::TimedOut { wait_status: Some(15) },
            rc @ 129.. => Outcome::Exited { wait_status: (rc - 128) as i32 },
            rc => Outcome::Exited { wait_status: (rc as i32) << 8 },
        }
    }

    fn record(&self) -> Record {
        let agent = AgentFacts { version: "0".into(), sha256: String::new(), target: String::new() };
        let kills = |n: f64| Snapshot { readings: vec![Reading { value: Some(n), ..oom_kills() }], ..Snapshot::default() };
        let grown = if self.name.contains("oom_cgroup") { 1.0 } else { 0.0 };
        let result = RunResult {
            outcome: self.outcome(),
            stdout: captured(&self.stdout),
            stderr: captured(&self.stderr),
            before: kills(0.0),
            after: kills(grown),
            ..RunResult::unexecuted("run".into(), Value::Null, agent, Machine::default())
        };
        // As the agent would have found the file.
        let is_file = !["missing_model", "model_dir", "noperm"].iter().any(|what| self.name == format!("bench_{what}"));
        let model = self.option("-m").unwrap_or("models/tiny-q8_0.gguf");
        assemble::record(result, manifest(self.asked(), model, is_file), "salt", None)
    }
}

fn oom_kills() -> Reading {
    serde_json::from_value(json!({ "metric": ColumnName::OomKills.entry().name, "subject": null, "unit": "count", "source": "/proc/vmstat", "value": 0.0, "absent": null }))
        .unwrap()
}

fn captured(text: &str) -> Captured {
    Captured { bytes: text.len() as u64, head: Blob { encoding: Encoding::Utf8, data: text.into() }, ..Captured::default() }
}

fn manifest(asked: LlamaBenchAsked, model: &str, is_file: bool) -> Manifest {
    let model = ModelBlock {
        id: "m".into(),
        path: model.into(),
        sha256: is_file.then(|| "a".repeat(64)),
        bytes: is_file.then_some(1),
        quantization: None,
        tags: Default::default(),
        header: Some(ModelHeader::Gguf(Box::new(Gguf { context_length: Some(TRAINED), lookup_bytes: Some(44_640), ..Gguf::default() }))),
    };
    Manifest {
        manifest_version: 1,
        results_id: "results".into(),
        campaign: "c".into(),
        campaign_sha256: String::new(),
        epoch: "epoch".into(),
        job_id: "job".into(),
        identity: Identity { identity_version: 1, spec: json!({}), facts: json!({}) },
        point: PointIds { device: "here".into(), backend: "llama-bench".into(), axes: Default::default(), slug: "llama-bench".into() },
        label: "m".into(),
        transport: "local".into(),
        kind: Kind::Timing,
        repetition: 0,
        attempt: 0,
        pass: 0,
        position: 0,
        parse: ParseSpec::LlamaBench(asked),
        requested: Default::default(),
        model: Some(model),
        files: Vec::new(),
        settle_ms: 0,
        settle: None,
        base: "/".into(),
        instruments: false,
        conditions: Default::default(),
        ceilings: Default::default(),
        sleep_inhibited: None,
        clock: None,
    }
}

/// Texts of a field as the tool printed them, in order.
fn printed<'t>(text: &'t str, field: &str) -> Vec<&'t str> {
    let after = |at: usize| text[at..].trim_start_matches([' ', ':', '[']).split([',', '\n', ' ', ']']).next().unwrap();
    let key = format!("\"{field}\"");
    text.match_indices(&key).map(|(at, _)| after(at + key.len())).collect()
}

#[test]
fn every_recorded_situation_is_read_or_fails_for_its_reason() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let recorded = Recorded::all(&folder);
    let names: BTreeSet<&str> = recorded.keys().map(String::as_str).collect();
    assert_eq!(names, SITUATIONS.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>());
    for (name, is) in &SITUATIONS {
        let record = recorded[*name].record();
        let message = record.message.clone().unwrap_or_default();
        let codes: Vec<String> = record.issues.iter().map(|issue| issue.code.to_string()).collect();
        match is {
            Read(tests) => {
                assert_eq!((record.status, message.as_str(), codes.len()), (Status::Ok, "", 0), "{name}: {codes:?}");
                assert_eq!(record.tests.iter().map(|test| test.name.as_str()).collect::<Vec<_>>(), *tests, "{name}");
            }
            With(code) => assert!(record.status == Status::Ok && codes.iter().any(|found| found == code), "{name}: {codes:?}"),
            Failed(reason, words) => {
                assert_eq!((record.status, record.reason), (Status::Failed, Some(*reason)), "{name}: {message}");
                assert!(message.contains(words) && !message.contains("No such file or directory"), "{name}: {message}");
            }
        }
    }
}

#[test]
fn the_tools_own_mean_is_in_the_record_as_it_was_printed_and_ours_is_the_median_of_its_samples() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let recorded = Recorded::all(&folder);
    let mut n_compared = 0;
    for name in SITUATIONS.iter().filter(|(_, is)| matches!(is, Read(_))).map(|(name, _)| *name) {
        let record = recorded[name].record();
        let text = &recorded[name].stdout;
        for (test, printed) in record.tests.iter().zip(printed(text, "avg_ts")) {
            let phase = if test.n_gen == 0 { "prefill" } else { "decode" };
            let mean = &record.metrics[&format!("{phase}_llama_bench_avg_ts")];
            assert_eq!(format!("{:.6}", mean.value.unwrap()), printed, "{name} {}", test.name);
            let rate = &record.metrics[&format!("{phase}_tps")];
            let tokens = (test.n_prompt + test.n_gen) as f64;
            let mut rates: Vec<f64> = test.samples_ns.iter().map(|&ns| tokens * 1e9 / ns as f64).collect();
            rates.sort_by(f64::total_cmp);
            let median = (rates[(rates.len() - 1) / 2] + rates[rates.len() / 2]) / 2.0;
            assert!((rate.value.unwrap() / median - 1.0).abs() < 1e-12, "{name} {}", test.name);
            assert_eq!((rate.n as usize, rate.samples.len(), rate.label.as_deref()), (rates.len(), rates.len(), Some(test.name.as_str())));
            n_compared += 1;
        }
    }
    assert!(n_compared > 20, "{n_compared}");
}

#[test]
fn what_was_executed_and_by_which_build_is_in_the_record() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let record = Recorded::all(&folder)["bench_fa_off"].record();
    assert_eq!(record.backend.version.as_deref(), Some("llama.cpp 0c1e570 (build 1)"));
    let executed = |name: &str| record.executed[name].clone();
    assert_eq!(
        [executed("n_threads"), executed("n_batch"), executed("n_ubatch"), executed("flash_attn")],
        [json!(1), json!(2048), json!(512), json!(0)]
    );
    assert_eq!([executed("backends"), executed("gpu_info"), executed("type_k")], [json!("CPU"), json!(""), json!("f16")]);
    // Of 944640 bytes those that are read for each token.
    let (decode, bandwidth) = (record.metrics["decode_tps"].value.unwrap(), record.metrics["decode_gb_s"].value.unwrap());
    assert!((bandwidth - decode * 900_000.0 / 1e9).abs() < 1e-12);
}

#[test]
fn a_test_that_was_whole_before_the_tool_was_killed_stays_in_what_is_kept_and_in_no_number() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    for name in ["bench_killed_after_first.json", "bench_killed_after_first.jsonl"] {
        let recorded = &Recorded::all(&folder)[name];
        let record = recorded.record();
        assert!(record.metrics.is_empty() && record.tests.is_empty(), "{name}");
        assert_eq!(record.raw.stdout.head.as_ref().map(|head| head.data.as_str()), Some(recorded.stdout.as_str()), "{name}");
    }
}

#[test]
fn options_that_a_build_has_and_has_not_are_told_by_its_own_help() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let recorded = Recorded::all(&folder);
    let help = &recorded["bench_help"].stdout;
    let known = help::options(help);
    assert!(
        ["-m", "--model", "-p", "-n", "-d", "-r", "-o", "--progress", "-fa", "-ctk", "-ot", "--override-tensor", "-hfr"]
            .iter()
            .all(|name| known.contains(name)),
        "{known:?}"
    );
    assert!(known.iter().all(|name| name.starts_with('-') && !name.contains(['<', '(', ','])), "{known:?}");
    // What the build refused is what its help doesn't name.
    for (name, recorded) in &recorded {
        let refused = recorded.stderr.lines().find_map(|line| line.strip_prefix("error: invalid parameter for argument: "));
        let is_value = ["bench_bad_format", "bench_bad_value", "bench_dev_cuda0", "bench_neg_n"].contains(&name.as_str());
        if !recorded.argv.is_empty() && !recorded.argv[0].contains("sh") && name != "bench_help" {
            let tool = recorded.argv.iter().position(|element| element.ends_with("llama-bench")).unwrap();
            let unknown: Vec<String> = help::unknown(help, &recorded.argv[tool..]).into_iter().map(|unknown| unknown.option).collect();
            let expected: Vec<String> = refused.filter(|_| !is_value).into_iter().map(str::to_owned).collect();
            assert_eq!(unknown, expected, "{name}");
        }
    }
    let gone = help::unknown(help, &["llama-bench".to_owned(), "--flash-atn".to_owned()]);
    assert_eq!(gone[0].nearest[0], "--flash-attn");
    assert_eq!(help::version(&recorded["bench_version"].stderr), Some("0.5.0-dev (build 1, commit 0c1e570)"));
}

#[test]
fn output_that_is_cut_anywhere_gives_whole_tests_or_none_and_never_a_run_that_is_ok() {
    let Some(folder) = shared::recordings("llama.cpp") else { return };
    let recorded = Recorded::all(&folder);
    for name in ["bench_jsonl_pp_tg", "bench_json_pp_tg"] {
        let (asked, text) = (ParseSpec::LlamaBench(recorded[name].asked()), recorded[name].stdout.as_bytes());
        let read = |text: &[u8]| {
            let stdout = Stream { bytes: text.len() as u64, kept: text.to_vec(), ..Stream::default() };
            backend::read(&asked, &RawOutput { stdout, ..RawOutput::default() }, 0)
        };
        let whole = read(text).tests;
        assert_eq!(whole.len(), 2);
        for cut in 0..text.len() {
            let part = read(&text[..cut]);
            assert!(whole.starts_with(&part.tests), "{name} cut at {cut}");
            assert_eq!(part.failure.is_none(), part.tests.len() == 2, "{name} cut at {cut}: {:?}", part.failure);
        }
    }
}
