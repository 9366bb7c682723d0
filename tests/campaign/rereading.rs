//! Numbers are derived from stored output: other rules or a better parser need no other night.

use crate::kit::{Bench, relative};
use isotherm::store::record::Record;
use isotherm::store::{index, seal};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Two points, two repetitions; the script prints several numbers, and each has been printed with its run.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.script("bench.sh", "echo \"first $1.5 second $1.25\"; echo '{\"score\": '$1'.5, \"other\": '$1'.75}'; mkdir -p out; echo 7 > out/x.txt");
    bench
}

fn values(bench: &Bench, metric: &str) -> Vec<f64> {
    bench.lab.records("c").iter().map(|(_, r)| r["metrics"][metric]["value"].as_f64().unwrap()).collect()
}

fn definitions(bench: &Bench, metric: &str) -> Vec<String> {
    bench.lab.records("c").iter().map(|(_, r)| r["metrics"][metric]["definition"].as_str().unwrap().to_owned()).collect()
}

/// Edit a record as another version of isotherm might have written it.
fn as_if(path: &PathBuf, edit: impl FnOnce(&mut Record)) {
    let mut record = seal::open(&fs::read(path).unwrap()).unwrap();
    edit(&mut record);
    fs::write(path, seal::seal(&record)).unwrap();
}

#[test]
fn a_changed_rule_reads_the_stored_output_and_runs_nothing() {
    let bench = bench();
    bench.run(&[]).expect(0);
    bench.ran();
    let before = bench.lab.records("c");
    bench.edit("c.yaml", "from: stdout_last_line, json: /score", "from: stdout, regex: 'second ([0-9.]+)'");

    let plan = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(plan.contains("4 reread   nothing to do") && plan.contains("4 to be read again by the new rules"), "{plan}");
    assert_eq!(bench.lab.records("c"), before, "a plan writes nothing");
    bench.run(&["--dry-run"]).expect(0);
    assert_eq!(bench.lab.records("c"), before, "a dry run writes nothing");

    let again = bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert!(again.stderr().contains("4 read again by the new rules") && again.stderr().contains("4 reused · 0 jobs to run"), "{}", again.stderr());
    assert_eq!(values(&bench, "score"), [1.25, 1.25, 2.25, 2.25]);
    let event = bench.last_event("read_again");
    assert_eq!((&event["device"], &event["records"]), (&"here".into(), &4.into()));

    // Same runs, same output, and the earlier reading is kept whole.
    for ((path, old), (_, new)) in before.iter().zip(bench.lab.records("c")) {
        for same in ["ids", "raw", "time", "context", "producer", "device"] {
            assert_eq!(old[same], new[same], "{same}");
        }
        let note = &new["read"]["again"][0];
        assert_eq!(note["isotherm"], env!("CARGO_PKG_VERSION"));
        let earlier = bench.lab.results("c").join(note["earlier"].as_str().unwrap());
        let earlier: Value = serde_json::from_slice(&fs::read(earlier).unwrap()).unwrap();
        assert_eq!(earlier, *old, "{}", path.display());
    }
    let report = bench.look(&["report"]).expect(0).stdout();
    assert!(report.contains("2.250") && !report.contains("2.500"), "{report}");
    bench.look(&["verify"]).expect(0);
    bench.look(&["status"]).expect(0);
    assert!(bench.run(&[]).expect(0).stderr().contains("nothing to do"));
    assert_eq!(bench.superseded().len(), 4, "and not a second time");
}

#[test]
fn the_rule_is_in_the_definition_so_that_no_table_mixes_two() {
    let bench = bench();
    bench.run(&[]).expect(0);
    let old = definitions(&bench, "score");
    // Another unit is the same rule; tables part by units anyway.
    bench.edit("c.yaml", "unit: points", "unit: p");
    bench.run(&[]).expect(0);
    assert_eq!(definitions(&bench, "score"), old);
    bench.edit("c.yaml", "json: /score", "json: /other");
    bench.run(&["--filter", "size=1"]).expect(0);
    bench.ran();
    let now = definitions(&bench, "score");
    assert!(old.iter().all(|d| *d == old[0] && d.starts_with("command.score.") && d.len() == 22), "{old:?}");
    assert!(now[0] != old[0] && now[1] == now[0] && now[2..] == old[2..], "{now:?}");
    let report: Value = serde_json::from_str(&bench.look(&["report", "--json"]).expect(0).stdout()).unwrap();
    let tables: Vec<&str> =
        report["tables"].as_array().unwrap().iter().filter(|t| t["metric"] == "score").map(|t| t["definition"].as_str().unwrap()).collect();
    assert_eq!(tables.len(), 2, "{tables:?}");
}

#[test]
fn a_rule_for_a_file_that_was_not_collected_runs_those_jobs_again() {
    let bench = bench();
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "metrics: {", "metrics: { x: { from: 'file:out/x.txt', regex: '([0-9]+)', unit: x, better: lower },");
    let why = "metric rule changed and the stored output can't answer it: out/x.txt was not collected";
    let plan = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(plan.contains("4 stale") && plan.contains(why), "{plan}");
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains(&format!("4 jobs: {why}")), "{}", again.stderr());
    assert_eq!(bench.ran(), ["1", "1", "2", "2"]);
    assert_eq!(values(&bench, "x"), [7.0; 4]);
    // Once it is kept, the rule may change as it likes.
    bench.edit("c.yaml", "'([0-9]+)'", "'^([0-9]+)'");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_rule_for_an_output_whose_middle_is_gone_runs_the_job_again() {
    let bench = Bench::reading(
        "echo 'score: 5' >&2; echo 'score: 5'; head -c 5000000 /dev/zero",
        "score: { from: stderr, regex: 'score: ([0-9]+)', unit: p, better: higher }",
    );
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "from: stderr", "from: stdout");
    let again = bench.run(&[]).expect(1);
    assert!(again.stderr().contains("can't answer it: stdout has 5000009 bytes, of which only the ends were kept"), "{}", again.stderr());
    assert_eq!(bench.ran().len(), 1);
    let left = bench.look(&["reparse"]).expect(1).stdout();
    assert!(left.starts_with("left     here/") && left.contains("only the ends were kept"), "{left}");
}

#[test]
fn the_last_line_behind_a_gap_is_not_taken_for_a_whole_one() {
    let bench = Bench::reading(
        "printf 'a 1'; head -c 5000000 /dev/zero; printf ' 5'",
        "score: { from: stdout_last_line, regex: '([0-9]+)', unit: p, better: higher }",
    );
    bench.run(&[]).expect(1);
    assert!(bench.record()["message"].as_str().unwrap().contains("only the ends were kept"), "{}", bench.record()["message"]);
}

#[test]
fn other_exit_codes_make_a_failure_a_success_and_back() {
    let bench = Bench::one("argv: [./bench.sh]\nsuccess: { exit: [0] }");
    bench.script("bench.sh", "echo done; exit 3");
    bench.run(&[]).expect(1);
    assert_eq!(bench.ran().len(), 1);
    bench.edit("c.yaml", "exit: [0]", "exit: [0, 3]");
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("1 read again by the new rules"), "{}", again.stderr());
    assert!(bench.ran().is_empty());
    let record = bench.record();
    assert_eq!((&record["status"], &record["validity"], &record["reason"]), (&"ok".into(), &"valid".into(), &Value::Null));
    assert!(record["metrics"]["wall_s"]["value"].as_f64().unwrap() > 0.0);

    bench.edit("c.yaml", "exit: [0, 3]", "exit: [0]");
    let back = bench.run(&[]).expect(1);
    assert!(back.stderr().contains("1 read again by the new rules") && back.stderr().contains("failed: exit_code"), "{}", back.stderr());
    assert_eq!(bench.ran().len(), 1, "a failed job runs again");
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_wrong_rule_is_mended_without_another_run() {
    let bench = bench();
    bench.edit("c.yaml", "/score", "/scoer");
    bench.run(&[]).expect(1);
    bench.ran();
    bench.edit("c.yaml", "/scoer", "/score");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert_eq!(values(&bench, "score"), [1.5, 1.5, 2.5, 2.5]);
}

#[test]
fn a_run_that_was_ended_is_not_read_by_new_rules() {
    let bench = Bench::one("argv: [sleep, '60']\ntimeout: 1s\nmetrics: { x: { from: stdout, regex: '(1)', unit: x, better: lower } }");
    bench.run(&[]).expect(1);
    assert!(bench.record().get("read").is_none());
    bench.edit("c.yaml", "'(1)'", "'(2)'");
    let plan = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(plan.contains("1 retry") && !plan.contains("read again"), "{plan}");
    let done = bench.look(&["reparse"]).expect(0);
    assert!(done.stdout().is_empty() && done.stderr().contains("1 record: 0 changed · 1 unchanged"), "{}", done.stderr());
}

#[test]
fn what_an_older_parser_read_wrongly_is_read_again() {
    let bench = bench();
    bench.run(&[]).expect(0);
    bench.ran();
    let path = bench.place(2, 1);
    as_if(&path, |record| record.metrics["score"].value = Some(99.0));
    let harmed = fs::read(&path).unwrap();
    let name = relative(&path, &bench.lab.results("c"));

    let dry = bench.look(&["reparse", "--dry-run"]).expect(0).stdout();
    assert_eq!(dry, format!("changed  {name}\n         score  99.00 points → 2.500 points\n"));
    assert_eq!(fs::read(&path).unwrap(), harmed);

    let done = bench.look(&["reparse"]).expect(0);
    assert_eq!(done.stdout(), dry);
    assert!(done.stderr().contains("4 records: 1 changed · 3 unchanged · 0 left"), "{}", done.stderr());
    assert_eq!(values(&bench, "score"), [1.5, 1.5, 2.5, 2.5]);
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let earlier = record["read"]["again"][0]["earlier"].as_str().unwrap();
    assert_eq!(earlier, format!("superseded/{}.0.json", record["ids"]["run_id"].as_str().unwrap()));
    assert_eq!(fs::read(bench.lab.results("c").join(earlier)).unwrap(), harmed);
    assert_eq!(bench.last_event("record_read_again")["path"], name);

    let again = bench.look(&["reparse"]).expect(0);
    assert!(again.stdout().is_empty() && again.stderr().contains("0 changed · 4 unchanged"), "{}", again.stderr());
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    bench.look(&["verify"]).expect(0);
}

#[test]
fn every_reading_is_kept_under_its_own_number() {
    let bench = Bench::reading("echo '{\"a\": 1, \"b\": 2, \"c\": 3}'", "v: { from: stdout_last_line, json: /a, unit: x, better: lower }");
    bench.run(&[]).expect(0);
    for (old, new) in [("json: /a", "json: /b"), ("json: /b", "json: /c")] {
        bench.edit("c.yaml", old, new);
        bench.lab.run(&["reparse", "results/c", "--campaign", "c.yaml"]).expect(0);
    }
    let record = bench.record();
    let run_id = record["ids"]["run_id"].as_str().unwrap();
    let kept: Vec<&str> = record["read"]["again"].as_array().unwrap().iter().map(|a| a["earlier"].as_str().unwrap()).collect();
    assert_eq!(kept, [format!("superseded/{run_id}.0.json"), format!("superseded/{run_id}.1.json")]);
    let values = kept.iter().map(|name| index::read_record(&bench.lab.results("c").join(name)).unwrap().metrics["v"].value);
    assert_eq!(values.collect::<Vec<_>>(), [Some(1.0), Some(2.0)]);
    assert_eq!(record["metrics"]["v"]["value"], 3.0);
    bench.ran();
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn sidecars_are_shared_by_both_readings_and_stay_whole_whatever_goes_first() {
    let rule = "v: { from: stdout, regex: 'n ([0-9]+)', take: all, unit: x, better: lower }";
    let bench = Bench::reading("seq 1 9000 | while read n; do echo \"n $n m $((n * 2))\"; done", rule);
    bench.run(&[]).expect(0);
    bench.ran();
    assert_eq!(bench.record()["metrics"]["v"]["value"], 4500.5);
    assert!(bench.record()["raw"]["stdout"]["sidecar"].is_object() && bench.record()["metrics"]["v"]["samples_sidecar"].is_object());
    // Read from the sidecar, and nothing is to be changed.
    bench.look(&["reparse"]).expect(0);
    assert!(bench.superseded().is_empty());

    bench.edit("c.yaml", "'n ([0-9]+)'", "'m ([0-9]+)'");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert_eq!(bench.record()["metrics"]["v"]["value"], 9001.0);
    let old = &bench.lab.records("c")[0].0.parent().unwrap().to_owned();
    let beside = fs::read_dir(old).unwrap().count();
    assert_eq!(beside, 3, "record, output, samples of the new reading");
    assert_eq!(bench.superseded().len(), 3, "record, output, samples of the old one");
    assert!(bench.look(&["verify"]).expect(0).stdout().starts_with("6 files checked: 6 whole"));

    // The run is replaced as a whole, and its directory takes only the new one.
    bench.run(&["--fresh"]).expect(0);
    bench.look(&["verify"]).expect(0);
    assert_eq!(fs::read_dir(old).unwrap().count(), 3);
}

#[test]
fn a_record_whose_sidecar_is_harmed_stays_as_it_is_and_is_named() {
    let bench = Bench::reading("seq 1 20000; echo '{\"a\": 1, \"b\": 2}'", "v: { from: stdout_last_line, json: /a, unit: x, better: lower }");
    bench.run(&[]).expect(0);
    bench.ran();
    let (path, record) = bench.lab.records("c").remove(0);
    let sidecar = path.parent().unwrap().join(record["raw"]["stdout"]["sidecar"]["name"].as_str().unwrap());
    let whole = fs::read(&sidecar).unwrap();
    fs::write(&sidecar, &whole[1..]).unwrap();
    bench.edit("c.yaml", "/a", "/b");
    let ran = bench.lab.run(&["reparse", "results/c", "--campaign", "c.yaml"]).expect(1);
    assert!(ran.stdout().starts_with(&format!("left     {}: ", relative(&path, &bench.lab.results("c")))), "{}", ran.stdout());
    assert_eq!(bench.record(), record);
    let json: Value = serde_json::from_str(&bench.look(&["reparse", "--json"]).expect(1).stdout()).unwrap();
    assert_eq!((json["left"].as_array().unwrap().len(), &json["changed"]), (1, &Value::Array(Vec::new())));
    // What can't be answered from the disk is measured.
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("the stored output can't answer it"), "{}", again.stderr());
    assert_eq!((bench.ran().len(), bench.record()["metrics"]["v"]["value"].as_f64()), (1, Some(2.0)));
}

#[test]
fn answers_are_compared_again_under_a_new_rule() {
    let bench = Bench::one("argv: [./bench.sh]\nrepetitions: 3\nsuccess: { output_digest: { json: /same } }");
    bench.script("bench.sh", "echo '{\"same\": 1, \"differs\": '$(wc -l < count)'}'");
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "/same", "/differs");
    let dry = bench.lab.run(&["reparse", "results/c", "--campaign", "c.yaml", "--dry-run"]).expect(0).stdout();
    assert_eq!(dry.matches("issues  none → output_differs").count(), 2, "{dry}");
    bench.lab.run(&["reparse", "results/c", "--campaign", "c.yaml"]).expect(0);
    let states = |bench: &Bench| -> Vec<String> { bench.lab.records("c").iter().map(|(_, r)| r["validity"].as_str().unwrap().to_owned()).collect() };
    assert_eq!(states(&bench), ["valid", "invalid", "invalid"]);
    bench.edit("c.yaml", "/differs", "/same");
    bench.run(&[]).expect(0);
    assert_eq!(states(&bench), ["valid", "valid", "valid"]);
    assert!(bench.ran().is_empty());
}

#[test]
fn a_repeated_repetition_does_not_make_its_neighbours_read_differently() {
    let bench = Bench::one("argv: [./bench.sh]\nrepetitions: 3\nsuccess: { output_digest: { json: /same } }");
    bench.script("bench.sh", "echo '{\"same\": 1}'");
    bench.run(&[]).expect(0);
    // r0 is the newest now; the others were compared with its predecessor.
    bench.run(&["--rerun", "repetition=0"]).expect(0);
    let done = bench.look(&["reparse"]).expect(0);
    assert!(done.stderr().contains("0 changed · 3 unchanged"), "{}\n{}", done.stderr(), done.stdout());
}

#[test]
fn the_engines_output_is_read_again_too() {
    let bench = Bench::empty(crate::lab::User::Caller);
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("configs/models");
    bench.lab.write("m.onnx", fs::read(models.join("tiny-cnn.onnx")).unwrap());
    bench.lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
models: { m: { path: m.onnx } }
defaults: { retry_contaminated: 0, repetitions: 1, warmup: 1, prepare: { settle: 0ms }, cooldown: 0ms }
matrix: [{ devices: here, backend: builtin, model: m, rounds: 2, iterations: 3 }]
",
    );
    bench.run(&[]).expect(0);
    let right = bench.record();
    assert_eq!(right["read"]["rules"]["builtin"]["expected_digest"], Value::Null);
    bench.look(&["reparse"]).expect(0);
    assert_eq!(bench.record(), right, "what is right is not written again");
    let (path, _) = bench.lab.records("c").remove(0);
    as_if(&path, |record| {
        record.metrics.shift_remove("load_ms");
        record.iterations = None;
    });
    let done = bench.look(&["reparse"]).expect(0).stdout();
    assert!(done.contains("load_ms  none → "), "{done}");
    let mended = bench.record();
    assert_eq!((&mended["metrics"], &mended["iterations"]), (&right["metrics"], &right["iterations"]));
}

#[test]
fn a_record_that_does_not_say_its_rules_needs_a_campaign() {
    let bench = bench();
    bench.run(&[]).expect(0);
    let path = bench.place(1, 0);
    as_if(&path, |record| record.read = None);
    let told = bench.look(&["reparse"]).expect(1).stdout();
    assert!(told.contains("--campaign FILE"), "{told}");
    bench.lab.run(&["reparse", "results/c", "--campaign", "c.yaml"]).expect(0);
    bench.look(&["reparse"]).expect(0);
}

#[test]
fn points_that_the_campaign_does_not_have_are_left_alone() {
    let bench = bench();
    bench.run(&[]).expect(0);
    let before = bench.lab.records("c");
    bench.edit("c.yaml", "size: [1, 2]", "size: [2]");
    bench.edit("c.yaml", "/score", "/other");
    let done = bench.lab.run(&["reparse", "results/c", "--campaign", "c.yaml"]).expect(0);
    assert!(done.stderr().contains("2 changed · 0 unchanged · 0 left · 2 of points that the campaign doesn't have"), "{}", done.stderr());
    assert_eq!(bench.lab.records("c")[..2], before[..2]);
}

#[test]
fn reparse_refuses_what_is_no_results_directory_and_one_in_use() {
    let bench = bench();
    let none = bench.lab.run(&["reparse", "."]).expect(2);
    assert!(none.stderr().contains("is not a results directory"), "{}", none.stderr());
    bench.run(&[]).expect(0);
    let lock = fs::File::open(bench.lab.results("c").join(".lock")).unwrap();
    lock.lock().unwrap();
    let held = bench.look(&["reparse"]).expect(4);
    assert!(held.stderr().contains("is in use"), "{}", held.stderr());
}

#[test]
fn an_interrupted_reading_is_finished_and_nothing_is_kept_twice() {
    let bench = bench();
    bench.run(&[]).expect(0);
    // As a controller leaves it that is killed after it has kept the earlier reading and before it has put the new one in its place.
    let path = bench.place(1, 0);
    let bytes = fs::read(&path).unwrap();
    let record = seal::open(&bytes).unwrap();
    let kept = format!("{}.0.json", record.ids.run_id);
    bench.lab.write(&format!("results/c/superseded/{kept}"), &bytes);
    bench.edit("c.yaml", "json: /score", "json: /other");
    bench.run(&["--filter", "size=1", "--filter", "repetition=0"]).expect(0);
    assert_eq!(bench.superseded().into_iter().collect::<Vec<_>>(), [kept]);
    assert_eq!(seal::open(&fs::read(&path).unwrap()).unwrap().metrics["score"].value, Some(1.75));
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_lost_index_changes_nothing_of_what_is_read_again() {
    let bench = bench();
    bench.run(&[]).expect(0);
    bench.ran();
    fs::remove_file(bench.lab.results("c").join("index.ndjson")).unwrap();
    bench.edit("c.yaml", "json: /score", "json: /other");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    fs::remove_file(bench.lab.results("c").join("index.ndjson")).unwrap();
    assert!(bench.run(&[]).expect(0).stderr().contains("nothing to do"));
    assert_eq!(values(&bench, "score"), [1.75, 1.75, 2.75, 2.75]);
}

#[test]
fn two_blocks_that_differ_only_in_rules_are_the_same_point_twice() {
    let bench = Bench::one("argv: [./bench.sh]");
    let block = |json: &str| {
        format!(
            "  - {{ devices: here, backend: command, argv: [./bench.sh], metrics: {{ v: {{ from: stdout, json: {json}, unit: x, better: lower }} }} }}\n"
        )
    };
    bench.lab.write("c.yaml", format!("devices: {{ here: {{ local: {{}} }} }}\nmatrix:\n{}{}", block("/a"), block("/b")));
    let refused = bench.lab.run(&["plan", "c.yaml"]).expect(2);
    assert!(refused.stderr().contains("the same point stands twice"), "{}", refused.stderr());
}
