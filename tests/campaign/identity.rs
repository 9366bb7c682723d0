//! What makes a record the answer to another question: content, not names and times.

use crate::kit::Bench;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn run_id(record: &Value) -> String {
    record["ids"]["run_id"].as_str().unwrap().to_owned()
}

/// A change makes exactly these runs again and says why; the records that it replaces are kept as they were.
#[track_caller]
fn measures_again(bench: &Bench, change: impl FnOnce(&Bench), expected: &[&str], why: &str) {
    bench.run(&[]).expect(0);
    bench.ran();
    let before: BTreeMap<String, Vec<u8>> = bench.lab.records("c").iter().map(|(path, r)| (run_id(r), fs::read(path).unwrap())).collect();
    let kept_before = bench.superseded();
    change(bench);

    let again = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), expected);
    assert!(again.stderr().contains(why), "{why:?} is not in:\n{}", again.stderr());
    let now: Vec<String> = bench.lab.records("c").iter().map(|(_, r)| run_id(r)).collect();
    let replaced: Vec<&String> = before.keys().filter(|id| !now.contains(id)).collect();
    let kept: Vec<String> = bench.superseded().difference(&kept_before).map(|name| name.trim_end_matches(".json").to_owned()).collect();
    assert_eq!(kept.iter().collect::<Vec<_>>(), replaced, "replaced records are in superseded/ under their run_id");
    for id in replaced {
        assert_eq!(fs::read(bench.lab.results("c").join(format!("superseded/{id}.json"))).unwrap(), before[id]);
    }
    bench.look(&["verify"]).expect(0);
    bench.look(&["status"]).expect(0);
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty(), "and then nothing");
}

/// A change that concerns no number runs nothing.
#[track_caller]
fn measures_nothing(bench: &Bench, change: impl FnOnce(&Bench)) {
    bench.run(&[]).expect(0);
    bench.ran();
    let before = bench.lab.records("c");
    change(bench);
    let again = bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty(), "{}", again.stderr());
    assert_eq!(bench.lab.records("c"), before);
    assert!(bench.superseded().is_empty());
}

#[test]
fn a_changed_script_behind_argv_is_measured_again() {
    let bench = Bench::new();
    measures_again(&bench, |b| b.script("bench.sh", "echo '{\"score\": 7}'"), &["1", "1", "2", "2"], "4 jobs: argv[0] changed (");
}

#[test]
fn a_changed_script_that_an_interpreter_runs_is_measured_again() {
    let bench = Bench::new();
    bench.edit("c.yaml", "./bench.sh", "sh, bench.sh");
    measures_again(&bench, |b| b.script("bench.sh", "echo '{\"score\": 7}'"), &["1", "1", "2", "2"], "argv[1] changed (");
}

#[test]
fn a_changed_program_that_a_wrapper_starts_is_measured_again() {
    let bench = Bench::one("argv: [./wrapper.sh]");
    let sleep = std::env::split_paths("/bin:/usr/bin").map(|dir| dir.join("sleep")).find(|p| p.exists()).unwrap();
    let tool = fs::read(sleep).unwrap();
    let install = |content: &[u8]| {
        bench.lab.write("lib/sleep", content);
        fs::set_permissions(bench.lab.path("lib/sleep"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    install(&tool);
    // Long enough to be seen at work; how long it takes is nobody's question.
    bench.script("wrapper.sh", "./lib/sleep 0.3");
    bench.run(&[]).expect(0);
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 1);
    let files = bench.record()["backend"]["files"].clone();
    assert!(files.as_array().unwrap().iter().any(|f| f["role"] == "library" && f["file"]["path"] == "$CAMPAIGN/lib/sleep"), "{files:#}");

    install(&[&tool[..], b"another build"].concat());
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("lib/sleep changed ("), "{}", again.stderr());
    assert_eq!((bench.ran().len(), bench.superseded().len()), (1, 1));
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn what_a_workload_unpacks_into_its_temporary_directory_is_no_part_of_it() {
    let bench = Bench::one("argv: [./unpack.sh]\nrepetitions: 2");
    bench.script("unpack.sh", "cp \"$(command -v sleep)\" \"$TMPDIR/sleep\" && \"$TMPDIR/sleep\" 0.3");
    bench.run(&[]).expect(0);
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 2);
}

#[test]
fn a_change_of_content_counts_whatever_length_and_times_say() {
    let bench = Bench::new();
    let path = bench.lab.path("bench.sh");
    let change = |b: &Bench| {
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        b.edit("bench.sh", "score", "scope");
        b.edit("c.yaml", "/score", "/scope");
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    };
    measures_again(&bench, change, &["1", "1", "2", "2"], "argv[0] changed (");
}

#[test]
fn a_file_written_again_with_the_same_content_is_the_same_file() {
    let bench = Bench::new();
    measures_nothing(&bench, |b| {
        let text = b.lab.read("bench.sh");
        b.lab.write("bench.sh", text);
        fs::set_permissions(b.lab.path("bench.sh"), fs::Permissions::from_mode(0o700)).unwrap();
    });
}

#[test]
fn a_changed_input_is_measured_again() {
    let bench = Bench::new();
    bench.lab.write("data/a.bin", "one");
    bench.edit("c.yaml", "    env:", "    inputs: [\"data/*.bin\"]\n    env:");
    measures_again(&bench, |b| _ = b.lab.write("data/a.bin", "two"), &["1", "1", "2", "2"], "input data/a.bin changed (");
    measures_again(&bench, |b| _ = b.lab.write("data/b.bin", "new"), &["1", "1", "2", "2"], "input data/b.bin changed (none → ");
    measures_again(&bench, |b| fs::remove_file(b.lab.path("data/a.bin")).unwrap(), &["1", "1", "2", "2"], "→ none)");
}

#[test]
fn a_file_beside_the_inputs_does_not_count() {
    let bench = Bench::new();
    bench.lab.write("data/a.bin", "one");
    bench.edit("c.yaml", "    env:", "    inputs: [\"data/*.bin\"]\n    env:");
    measures_nothing(&bench, |b| {
        b.lab.write("data/a.txt", "notes");
        b.lab.write("other/a.bin", "elsewhere");
    });
}

#[test]
fn a_changed_environment_constant_is_measured_again() {
    measures_again(&Bench::new(), |b| b.edit("c.yaml", "MODE: fast", "MODE: slow"), &["1", "1", "2", "2"], "env.MODE changed (\"fast\" → \"slow\")");
}

#[test]
fn a_variable_of_the_device_is_measured_again() {
    let change = |b: &Bench| b.edit("c.yaml", "{ local: {} }", "{ local: {}, env: { ARENAS: 1 } }");
    measures_again(&Bench::new(), change, &["1", "1", "2", "2"], "env.ARENAS changed (none → \"1\")");
}

#[test]
fn a_changed_flag_is_measured_again() {
    measures_again(&Bench::new(), |b| b.edit("c.yaml", "--quick", "--exact"), &["1", "1", "2", "2"], "argv changed");
}

#[test]
fn a_changed_warm_up_is_measured_again() {
    let bench = Bench::new();
    // One warm-up invocation before each measured one.
    measures_again(&bench, |b| b.edit("c.yaml", "warmup: 0", "warmup: 1"), &["1", "1", "1", "1", "2", "2", "2", "2"], "warmup changed (0 → 1)");
}

#[test]
fn a_changed_settle_or_sample_rate_is_measured_again() {
    let bench = Bench::new();
    measures_again(&bench, |b| b.edit("c.yaml", "settle: 0ms", "settle: 1ms"), &["1", "1", "2", "2"], "settle_ms changed (0 → 1)");
    let rate = |b: &Bench| b.edit("c.yaml", "warmup: 0,", "warmup: 0, measure: { sample_hz: 20 },");
    measures_again(&bench, rate, &["1", "1", "2", "2"], "sample_hz changed (10.0 → 20.0)");
}

#[test]
fn a_changed_value_of_an_axis_is_measured_and_the_other_stays() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "size: [1, 2]", "size: [1, 3]");
    let again = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["3", "3"]);
    assert!(again.stderr().contains("2 reused · 2 new"), "{}", again.stderr());
    assert!(bench.superseded().is_empty(), "what nobody asks for any more stays where it is");
}

#[test]
fn the_content_of_a_commands_model_counts_and_its_name_does_not() {
    let bench = Bench::new();
    bench.lab.write("m.bin", "weights");
    bench.edit("c.yaml", "matrix:", "models: { m: { path: m.bin } }\nmatrix:");
    bench.edit("c.yaml", "    params:", "    model: m\n    params:");
    measures_again(&bench, |b| _ = b.lab.write("m.bin", "better weights"), &["1", "1", "2", "2"], "model changed (");
    // Moved with its content: the path is in no argv here, so it is the same model.
    fs::rename(bench.lab.path("m.bin"), bench.lab.path("renamed.bin")).unwrap();
    bench.edit("c.yaml", "m.bin", "renamed.bin");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn another_model_leaves_the_first_alone() {
    let bench = Bench::new();
    bench.lab.write("a.bin", "a");
    bench.lab.write("b.bin", "b");
    bench.edit("c.yaml", "matrix:", "models: { a: { path: a.bin }, b: { path: b.bin } }\nmatrix:");
    bench.edit("c.yaml", "    params: { size: [1, 2] }", "    model: [a, b]\n    params: { size: 1 }");
    bench.edit("c.yaml", "\"{size}\"", "\"{model.id}\"");
    bench.script("bench.sh", "echo '{\"score\": 1}'");
    measures_again(&bench, |b| _ = b.lab.write("b.bin", "b, trained further"), &["b", "b"], "2 jobs: model changed (");
}

#[test]
fn restoring_the_old_content_measures_again_for_superseded_records_answer_nothing() {
    let bench = Bench::new();
    let old = bench.lab.read("bench.sh");
    measures_again(&bench, |b| b.script("bench.sh", "echo '{\"score\": 7}'"), &["1", "1", "2", "2"], "argv[0] changed (");
    measures_again(&bench, |b| _ = b.lab.write("bench.sh", old), &["1", "1", "2", "2"], "argv[0] changed (");
    assert_eq!(bench.superseded().len(), 8);
}

#[test]
fn more_repetitions_run_only_the_new_ones() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "repetitions: 2", "repetitions: 3");
    let more = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1", "2"]);
    assert!(more.stderr().contains("4 reused · 2 new"), "{}", more.stderr());
    let repetitions: Vec<u64> = bench.lab.records("c").iter().map(|(_, r)| r["ids"]["repetition"].as_u64().unwrap()).collect();
    assert_eq!(repetitions, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn what_says_how_often_when_or_how_long_is_no_part_of_a_number() {
    let bench = Bench::new();
    measures_nothing(&bench, |b| {
        b.edit("c.yaml", "timeout: 20s", "timeout: 10s, order: sequential");
        b.edit("c.yaml", "campaign: c", "campaign: c\ndescription: now with words # and a comment");
        b.edit("c.yaml", "repetitions: 2", "repetitions: 1");
    });
}

/// Nothing of isotherm's own build is in an identity, so that no rebuild makes a record stale.
#[test]
fn an_identity_holds_the_fields_of_the_workload_and_nothing_of_isotherm() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let (_, record) = bench.lab.records("c").remove(0);
    let identity = &record["ids"]["identity"];
    let keys = |v: &Value| -> Vec<String> {
        let mut keys: Vec<String> = v.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(identity), ["facts", "identity_version", "spec"]);
    let spec = ["argv", "axes", "backend", "device", "env", "inputs", "sample_hz", "settle_ms", "transport", "warmup"];
    assert_eq!(keys(&identity["spec"]), spec);
    assert_eq!(keys(&identity["facts"]), ["files", "limits", "machine", "model"]);
    assert_eq!(keys(&identity["facts"]["files"]), ["argv[0]", "interpreter"]);
    let text = identity.to_string();
    let agent = &record["producer"]["agent"];
    for own in [&agent["sha256"], &record["ids"]["run_id"], &record["ids"]["epoch"], &record["ids"]["campaign_sha256"]] {
        assert!(!text.contains(own.as_str().unwrap()), "{own} in {text}");
    }
    assert!(!text.contains(bench.lab.path("").to_str().unwrap().trim_end_matches('/')), "a place on the disk in {text}");
}

/// What another build of isotherm left: other producer, other agent, the same identity.
#[test]
fn a_record_of_another_build_answers_its_job() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    for (path, _) in bench.lab.records("c") {
        let mut record = isotherm::store::seal::open(&fs::read(&path).unwrap()).unwrap();
        record.producer.isotherm = "0.0.9".into();
        let agent = record.producer.agent.as_mut().unwrap();
        (agent.sha256, agent.version) = ("0".repeat(64), "0.0.9".into());
        fs::write(&path, isotherm::store::seal::seal(&record)).unwrap();
    }
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    bench.look(&["status"]).expect(0);
}

#[test]
fn a_campaign_can_be_moved_without_being_measured_again() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    for name in ["c.yaml", "bench.sh"] {
        let text = bench.lab.read(name);
        bench.lab.write(&format!("elsewhere/{name}"), text);
        fs::remove_file(bench.lab.path(name)).unwrap();
    }
    bench.lab.run(&["run", "elsewhere/c.yaml"]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn a_library_is_compared_and_never_part_of_the_identity() {
    // Seen or not, when one looks, is chance; so two repetitions must have one identity either way.
    let bench = Bench::one("argv: [./wrapper.sh]\nrepetitions: 2");
    let sleep = std::env::split_paths("/bin:/usr/bin").map(|dir| dir.join("sleep")).find(|p| p.exists()).unwrap();
    bench.lab.write("lib/sleep", fs::read(sleep).unwrap());
    fs::set_permissions(bench.lab.path("lib/sleep"), fs::Permissions::from_mode(0o755)).unwrap();
    bench.script("wrapper.sh", "[ -e seen ] && exec ./lib/sleep 0.3; touch seen");
    bench.run(&[]).expect(0);
    let identities: BTreeSet<String> = bench.lab.records("c").iter().map(|(_, r)| r["ids"]["point_identity"].to_string()).collect();
    assert_eq!(identities.len(), 1);
    assert!(bench.look(&["report"]).expect(0).stdout().contains("2 of 2"));
    bench.look(&["status"]).expect(0);
}

#[test]
fn points_that_differ_only_in_a_variable_or_a_setting_are_told_apart_and_stay() {
    let bench = Bench::new();
    let block = |extra: &str| format!("  - {{ devices: here, backend: command, argv: [./bench.sh], {extra} }}\n");
    let text = format!(
        "devices: {{ here: {{ local: {{}} }} }}\ndefaults: {{ retry_contaminated: 0, repetitions: 2, warmup: 0, prepare: {{ settle: 0ms }} }}\nmatrix:\n{}{}{}{}",
        block("env: { A: '1' }"),
        block("env: { A: '2' }"),
        block("env: { A: '1' }, warmup: 1"),
        // One that no device has, so that none is changed.
        block("env: { A: '1' }, prepare: { governor: imaginary }"),
    );
    bench.lab.write("c.yaml", text);
    bench.script("bench.sh", "exit 0");
    bench.run(&[]).expect(0);
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("nothing to do: 8 jobs"), "{}", again.stderr());
    assert!(bench.superseded().is_empty());
    let report = bench.look(&["report"]).expect(0).stdout();
    assert!(
        report.contains("env.A") && report.contains("block.warmup") && report.contains("governor=imaginary") && !report.contains("mixed_identity"),
        "{report}"
    );
}
