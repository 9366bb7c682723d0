//! What `run` can be told.

use crate::kit::Bench;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

fn run_ids(bench: &Bench) -> BTreeSet<String> {
    bench.lab.records("c").iter().map(|(_, r)| r["ids"]["run_id"].as_str().unwrap().to_owned()).collect()
}

/// Two names for this machine.
fn two_devices() -> Bench {
    let bench = Bench::new();
    bench.edit("c.yaml", "devices: { here: { local: {} } }", "devices: { a: { local: {} }, b: { local: {} } }");
    bench.edit("c.yaml", "devices: here", "devices: [a, b]");
    bench.edit("c.yaml", "\"{size}\"", "\"{device.id}{size}\"");
    bench.script("bench.sh", "echo '{\"score\": 1}'");
    bench
}

#[test]
fn a_filter_runs_what_it_takes_and_counts_nothing_else() {
    let bench = Bench::new();
    let ran = bench.run(&["--filter", "size=2"]).expect(0);
    assert_eq!(bench.ran(), ["2", "2"]);
    assert!(ran.stderr().contains("2 jobs: 2 ok"), "{}", ran.stderr());
    bench.run(&["--filter", "size=1,repetition=1"]).expect(0);
    assert_eq!(bench.ran(), ["1"]);
    bench.look(&["status"]).expect(1);
    bench.run(&["--filter", "size=1,2", "--filter", "backend=command,device=here"]).expect(0);
    assert_eq!(bench.ran(), ["1"]);
    bench.look(&["status"]).expect(0);
}

#[test]
fn a_filter_that_takes_nothing_names_the_choices() {
    let bench = two_devices();
    let cases: [(&[&str], &[&str]); 7] = [
        (&["--filter", "sizes=1"], &["no axis `sizes`", "backend, device, kind, repetition, size"]),
        (&["--filter", "size=3"], &["`size` is never \"3\"", "1, 2"]),
        (&["--filter", "device=c"], &["`device` is never \"c\"", "a, b"]),
        (&["--filter", "repetition=2"], &["`repetition` is never \"2\"", "0, 1"]),
        (&["--filter", "size"], &["axis=value"]),
        (&["--rerun", "size=9"], &["`size` is never \"9\"", "1, 2"]),
        (&["--device", "c"], &["no device `c`", "a, b"]),
    ];
    for (args, words) in cases {
        let refused = bench.run(args).expect(2);
        assert!(words.iter().all(|word| refused.stderr().contains(word)), "{args:?}: {words:?} are not in {}", refused.stderr());
    }
    let refused = bench.lab.run(&["plan", "c.yaml", "--filter", "size=3"]).expect(2);
    assert!(refused.stderr().contains("1, 2"), "{}", refused.stderr());
    assert!(bench.ran().is_empty());
    assert!(!bench.lab.results("c").exists());
}

#[test]
fn one_of_two_devices_can_be_chosen() {
    let bench = two_devices();
    let ran = bench.run(&["--device", "b"]).expect(0);
    assert_eq!(bench.ran(), ["b1", "b1", "b2", "b2"]);
    assert!(ran.stderr().contains("4 jobs: 4 ok"), "{}", ran.stderr());
    bench.look(&["status"]).expect(1);
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["a1", "a1", "a2", "a2"]);
    bench.look(&["status"]).expect(0);
    for device in ["a", "b"] {
        assert_eq!(fs::read_dir(bench.lab.results("c").join(device)).unwrap().count(), 2);
        assert!(bench.lab.results("c").join(format!("devices/{device}.json")).is_file());
    }
}

#[test]
fn a_limit_counts_runs_over_all_devices() {
    let bench = two_devices();
    let some = bench.run(&["--limit", "5"]).expect(1);
    let mut ran = bench.ran();
    assert_eq!(ran.len(), 5);
    assert!(some.stderr().contains("8 jobs: 5 ok · 0 failed · 3 pending"), "{}", some.stderr());
    bench.run(&["--limit", "0"]).expect(1);
    assert!(bench.ran().is_empty());
    bench.run(&["--limit", "5"]).expect(0);
    ran.extend(bench.ran());
    ran.sort();
    assert_eq!(ran, ["a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2"]);
}

#[test]
fn fresh_measures_everything_again_and_keeps_the_old_records() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    let old = run_ids(&bench);
    bench.run(&["--fresh"]).expect(0);
    assert_eq!(bench.ran(), ["1", "1", "2", "2"]);
    assert!(run_ids(&bench).is_disjoint(&old));
    assert_eq!(bench.superseded(), old.iter().map(|id| format!("{id}.json")).collect());
    bench.look(&["verify"]).expect(0);
    bench.look(&["status"]).expect(0);
}

#[test]
fn rerun_measures_what_it_names_again() {
    let bench = Bench::new();
    bench.run(&["--filter", "repetition=0"]).expect(0);
    bench.ran();
    // What is missing runs all the same.
    bench.run(&["--rerun", "size=2,repetition=0"]).expect(0);
    assert_eq!(bench.ran(), ["1", "2", "2"]);
    assert_eq!(bench.superseded().len(), 1);
    bench.run(&["--rerun", "size=1", "--filter", "repetition=1"]).expect(0);
    assert_eq!(bench.ran(), ["1"]);
}

#[test]
fn a_dry_run_asks_the_device_and_runs_nothing() {
    let bench = Bench::new();
    let dry = bench.run(&["--dry-run"]).expect(0);
    assert!(dry.stderr().contains("4 new · 4 jobs to run"), "{}", dry.stderr());
    assert!(bench.ran().is_empty());
    assert!(bench.lab.records("c").is_empty());
    bench.run(&["--limit", "3"]).expect(1);
    bench.script("bench.sh", "echo '{\"score\": 7}'");
    let dry = bench.run(&["--dry-run"]).expect(0);
    assert!(dry.stderr().contains("3 stale · 1 new · 4 jobs to run"), "{}", dry.stderr());
    assert!(dry.stderr().contains("3 jobs: argv[0] changed"), "{}", dry.stderr());
    assert_eq!((bench.ran().len(), bench.superseded().len()), (3, 0));
}

#[test]
fn results_can_be_somewhere_else() {
    let bench = Bench::new();
    bench.run(&["--results", "deep/else where"]).expect(0);
    assert!(!bench.lab.path("results").exists());
    assert!(bench.lab.path("deep/else where/c/.isotherm-id").is_file());
    bench.run(&["--results", "deep/else where"]).expect(0);
    assert_eq!(bench.ran().len(), 4);
    bench.lab.run(&["status", "deep/else where/c"]).expect(0);
    // Another place is another set of results.
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 4);
}

fn events(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn json_is_one_event_per_line_and_the_last_one_is_the_summary() {
    let bench = Bench::new();
    bench.script("bench.sh", "if [ $1 = 2 ]; then printf 'no\\nway' >&2; exit 1; fi; echo '{\"score\": 1}'");
    let ran = bench.run(&["--json"]).expect(1);
    let events = events(&ran.stdout());
    let names: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["campaign_started", "device_ready", "device_planned"]);
    assert_eq!(names.iter().filter(|n| **n == "started").count(), 4);
    assert_eq!(names.iter().filter(|n| **n == "finished").count(), 4);
    let last = events.last().unwrap();
    assert_eq!(last["event"], "campaign_ended");
    assert_eq!(
        (&last["jobs"], &last["ok"], &last["failed"], &last["pending"], &last["ran"]),
        (&4.into(), &2.into(), &2.into(), &0.into(), &4.into())
    );
    let failed = events.iter().find(|e| e["event"] == "finished" && e["status"] == "failed").unwrap();
    assert_eq!((&failed["reason"], &failed["message"]), (&"exit_code".into(), &"exit code 1: no / way".into()));
    assert_eq!(ran.stderr(), "");
    for event in events.iter().filter(|e| e["event"] == "finished") {
        assert!(bench.lab.results("c").join(event["path"].as_str().unwrap()).is_file());
    }
}

#[test]
fn json_says_why_something_runs_again() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.edit("c.yaml", "MODE: fast", "MODE: slow");
    let ran = bench.run(&["--json"]).expect(0);
    let planned = events(&ran.stdout()).into_iter().find(|e| e["event"] == "device_planned").unwrap();
    assert_eq!((&planned["states"]["stale"], &planned["to_run"]), (&4.into(), &4.into()));
    assert_eq!(planned["reasons"]["env.MODE changed (\"fast\" → \"slow\")"], 4);
    assert_eq!(events(&ran.stdout()).iter().filter(|e| e["event"] == "superseded").count(), 4);
}

#[test]
fn a_mistake_in_the_campaign_is_exit_code_2_and_nothing_happens() {
    let bench = Bench::new();
    bench.edit("c.yaml", "repetitions: 2", "repetitons: 2");
    let refused = bench.run(&[]).expect(2);
    assert!(refused.stderr().contains("repetitons") && refused.stderr().contains("did you mean `repetitions`?"), "{}", refused.stderr());
    bench.lab.run(&["run", "missing.yaml"]).expect(2);
    bench.lab.run(&["run"]).expect(2);
    bench.lab.run(&["run", "c.yaml", "--limit", "many"]).expect(2);
    assert!(bench.ran().is_empty());
    assert!(!bench.lab.results("c").exists());
}
