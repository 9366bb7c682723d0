//! Looking at plans and results: nothing is changed by it, and the same results look the same.

use crate::kit::{Bench, relative};
use serde_json::{Value, json};
use std::fs;

fn plan(bench: &Bench, args: &[&str]) -> Value {
    let ran = bench.lab.run(&[&["plan", "c.yaml", "--json"], args].concat()).expect(0);
    serde_json::from_str(&ran.stdout()).unwrap()
}

#[test]
fn a_plan_before_any_contact_knows_what_it_does_not_know() {
    let bench = Bench::new();
    let document = plan(&bench, &[]);
    assert_eq!((&document["campaign"], &document["points"]), (&"c".into(), &2.into()));
    assert_eq!(document["states"], json!({"new": 4}));
    assert_eq!(document["facts_as_of"], json!({"here": null}));
    let text = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(text.contains("c: 2 points, 4 runs on 1 device") && text.contains("4 new") && text.contains("this device was not asked yet"), "{text}");
    assert!(!bench.lab.path("results").exists());
    assert!(bench.lab.processes().is_empty());
    assert!(bench.ran().is_empty());
}

#[test]
fn the_jobs_of_a_plan_stand_in_the_order_of_the_night() {
    let bench = Bench::new();
    let document = plan(&bench, &[]);
    let jobs = document["jobs"].as_array().unwrap();
    let order: Vec<(i64, i64, i64)> =
        jobs.iter().map(|j| (j["position"].as_i64().unwrap(), j["axes"]["size"].as_i64().unwrap(), j["repetition"].as_i64().unwrap())).collect();
    assert_eq!(order, [(0, 1, 0), (1, 2, 0), (2, 2, 1), (3, 1, 1)]);
    let first = jobs[0].as_object().unwrap();
    let keys: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(keys, ["id", "device", "backend", "axes", "kind", "repetition", "pass", "position", "state", "why", "point_identity"]);
    assert_eq!(first["id"].as_str().unwrap().len(), 16);
    let filtered = plan(&bench, &["--filter", "size=2"]);
    assert_eq!(filtered["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_plan_after_a_run_reuses_and_after_a_change_says_what_is_stale() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    let done = plan(&bench, &[]);
    assert_eq!(done["states"], json!({"reused": 4}));
    assert!(done["facts_as_of"]["here"].is_string());
    assert_eq!(done["jobs"][0]["point_identity"], bench.lab.records("c")[0].1["ids"]["point_identity"]);

    // What stands in the file is known at once.
    bench.edit("c.yaml", "MODE: fast", "MODE: slow");
    let stale = plan(&bench, &[]);
    assert_eq!((&stale["states"], &stale["jobs"][0]["why"]), (&json!({"stale": 4}), &"env.MODE changed (\"fast\" → \"slow\")".into()));
    bench.edit("c.yaml", "MODE: slow", "MODE: fast");

    // What is on the device is known as of the last contact.
    bench.script("bench.sh", "echo '{\"score\": 7}'");
    assert_eq!(plan(&bench, &[])["states"], json!({"reused": 4}));
    let fresh = plan(&bench, &["--refresh"]);
    assert_eq!(fresh["states"], json!({"stale": 4}));
    assert!(fresh["jobs"][0]["why"].as_str().unwrap().starts_with("argv[0] changed ("), "{fresh:#}");
    assert_eq!(plan(&bench, &[])["states"], json!({"stale": 4}), "and from now on without asking");
    let text = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(text.contains("4 stale") && text.contains("4 runs: argv[0] changed ("), "{text}");
    assert!(bench.ran().is_empty());
    assert_eq!(bench.lab.records("c").len(), 4);
    assert!(bench.superseded().is_empty());
}

#[test]
fn a_plan_shows_what_has_to_be_done_again_and_why() {
    let bench = Bench::new();
    bench.script("bench.sh", "if [ $1 = 2 ]; then exit 3; fi; echo '{\"score\": 1}'");
    bench.run(&[]).expect(1);
    fs::remove_file(bench.place(1, 0)).unwrap();
    let document = plan(&bench, &[]);
    assert_eq!(document["states"], json!({"lost": 1, "retry": 2, "reused": 1}));
    let text = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(text.contains("timing-r0.json was deleted") && text.contains("2 runs: failed: exit_code"), "{text}");
}

#[test]
fn a_plan_is_the_same_every_time() {
    let bench = Bench::new();
    bench.run(&["--limit", "3"]).expect(1);
    for args in [&["plan", "c.yaml"][..], &["plan", "c.yaml", "--json"]] {
        assert_eq!(bench.lab.run(args).expect(0).stdout(), bench.lab.run(args).expect(0).stdout());
    }
}

/// Every file below the results directory with its content.
fn files(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    fn walk(dir: &std::path::Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => walk(&path, found),
                path => found.push((path.display().to_string(), fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = Vec::new();
    walk(&bench.lab.results("c"), &mut found);
    found.sort();
    found
}

#[test]
fn looking_at_results_changes_nothing_and_always_shows_the_same() {
    let bench = Bench::new();
    bench.script("bench.sh", "if [ $1 = 2 ]; then exit 3; fi; echo '{\"score\": [1, 2, 3]}'");
    bench.run(&[]).expect(1);
    let before = files(&bench);
    let views: [&[&str]; 7] = [
        &["report", "--format", "terminal"],
        &["report", "--format", "markdown"],
        &["report", "--format", "csv"],
        &["report", "--format", "json"],
        &["report", "--include", "degraded"],
        &["status"],
        &["status", "--json"],
    ];
    for view in views {
        let code = i32::from(view[0] == "status");
        let first = bench.look(view).expect(code);
        assert!(!first.stdout().is_empty(), "{view:?}");
        assert_eq!(first.stdout(), bench.look(view).expect(code).stdout(), "{view:?}");
        assert_eq!(first.stderr(), "", "{view:?}");
    }
    assert_eq!(bench.look(&["report", "--json"]).stdout(), bench.look(&["report", "--format", "json"]).stdout());
    bench.look(&["verify"]).expect(0);
    assert!(files(&bench) == before, "nothing is written");
    // A run that has nothing to do doesn't change the tables either.
    let report = bench.look(&["report", "--format", "json"]).stdout();
    bench.run(&["--filter", "size=1"]).expect(0);
    assert_eq!(bench.look(&["report", "--format", "json"]).stdout(), report);
}

#[test]
fn a_report_is_made_from_records_alone() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let here = bench.look(&["report", "--format", "csv"]).expect(0).stdout();
    for name in ["c.yaml", "bench.sh", "results/c/journal.ndjson", "results/c/index.ndjson", "results/c/campaign.yaml", "results/c/devices/here.json"]
    {
        fs::remove_file(bench.lab.path(name)).unwrap();
    }
    fs::rename(bench.lab.path("results/c"), bench.lab.path("copied")).unwrap();
    assert_eq!(bench.lab.run(&["report", "--format", "csv", "copied"]).expect(0).stdout(), here);
    bench.lab.run(&["status", "copied"]).expect(0);
    bench.lab.run(&["verify", "copied"]).expect(0);
}

#[test]
fn status_is_0_only_without_holes() {
    let bench = Bench::new();
    bench.run(&["--limit", "3"]).expect(1);
    let holes = bench.look(&["status"]).expect(1);
    assert!(holes.stdout().contains('·'), "{}", holes.stdout());
    let document: Value = serde_json::from_str(&bench.look(&["status", "--json"]).expect(1).stdout()).unwrap();
    assert_eq!(document["complete"], false);
    let marks: Vec<&str> =
        document["rows"].as_array().unwrap().iter().flat_map(|r| r["runs"].as_array().unwrap()).map(|r| r["mark"].as_str().unwrap()).collect();
    assert_eq!(marks, ["ok", "missing", "ok", "ok"]);
    bench.run(&[]).expect(0);
    bench.look(&["status"]).expect(0);
    let document: Value = serde_json::from_str(&bench.look(&["status", "--json"]).expect(0).stdout()).unwrap();
    assert_eq!(document["complete"], true);
}

#[test]
fn verify_names_an_edited_record_and_counts_the_rest() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let whole = bench.look(&["verify"]).expect(0).stdout();
    assert_eq!(whole, "4 files checked: 4 whole, 0 damaged\n");
    let path = bench.place(2, 0);
    let name = relative(&path, &bench.lab.results("c"));
    let edited = String::from_utf8(fs::read(&path).unwrap()).unwrap().replacen("\"status\":\"ok\"", "\"status\":\"OK\"", 1);
    fs::write(&path, edited).unwrap();
    let found = bench.look(&["verify"]).expect(1).stdout();
    assert!(found.contains(&format!("damaged  {name}: its seal does not fit its content")), "{found}");
    assert!(found.ends_with("4 files checked: 3 whole, 1 damaged\n"), "{found}");
    let document: Value = serde_json::from_str(&bench.look(&["verify", "--json"]).expect(1).stdout()).unwrap();
    assert_eq!((&document["checked"], &document["damaged"][0]["path"]), (&4.into(), &name.into()));
    assert!(document["damaged"][0]["why"].is_string());
    // The others are still good for a report, which says so.
    let report = bench.look(&["report"]).expect(0).stdout();
    assert!(report.contains("timing-r0.json") && report.contains("seal"), "{report}");
    bench.look(&["status"]).expect(1);
}

#[test]
fn verify_names_a_missing_and_an_edited_sidecar() {
    let bench = Bench::one("argv: [./bench.sh]\nrepetitions: 2");
    bench.script("bench.sh", "head -c 100000 /dev/zero");
    bench.run(&[]).expect(0);
    let records = bench.lab.records("c");
    let sidecar = |n: usize| records[n].0.with_file_name(records[n].1["raw"]["stdout"]["sidecar"]["name"].as_str().unwrap());
    assert_eq!(bench.look(&["verify"]).expect(0).stdout(), "4 files checked: 4 whole, 0 damaged\n");
    fs::remove_file(sidecar(0)).unwrap();
    let mut bytes = fs::read(sidecar(1)).unwrap();
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    fs::write(sidecar(1), bytes).unwrap();
    let found = bench.look(&["verify"]).expect(1).stdout();
    assert!(found.contains("No such file") && found.contains("its content is not the one that the record names"), "{found}");
    let document: Value = serde_json::from_str(&bench.look(&["verify", "--json"]).expect(1).stdout()).unwrap();
    assert_eq!((&document["checked"], document["damaged"].as_array().unwrap().len()), (&4.into(), 2));
}

#[test]
fn a_superseded_record_takes_its_sidecars_with_it() {
    let bench = Bench::one("argv: [./bench.sh]");
    bench.script("bench.sh", "head -c 100000 /dev/zero");
    bench.run(&[]).expect(0);
    bench.run(&["--fresh"]).expect(0);
    assert_eq!(bench.superseded().len(), 2, "{:?}", bench.superseded());
    assert_eq!(bench.look(&["verify"]).expect(0).stdout(), "4 files checked: 4 whole, 0 damaged\n");
    let kept = bench.superseded().into_iter().find(|name| name.ends_with(".zst")).unwrap();
    fs::write(bench.lab.results("c").join("superseded").join(&kept), "x").unwrap();
    let found = bench.look(&["verify"]).expect(1).stdout();
    assert!(found.contains("superseded/") && found.contains(&kept), "{found}");
}

#[test]
fn what_is_no_results_directory_is_refused_with_a_hint() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    for command in ["report", "status", "verify"] {
        for dir in [".", "results", "no/such/place", "c.yaml", "results/c/here"] {
            let refused = bench.lab.run(&[command, dir]).expect(2);
            assert!(refused.stderr().contains(&format!("{dir} is not a results directory")), "{}", refused.stderr());
            assert!(refused.stderr().contains("hint: ") && refused.stdout().is_empty(), "{}", refused.stderr());
        }
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let mut child = bench.lab.start(&["report", "--format", "json", "results/c"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_plan_tells_time_settle_limits_and_what_it_can_resolve_from_earlier_records() {
    let bench = Bench::new();
    let first = bench.lab.run(&["plan", "c.yaml"]).expect(0);
    assert!(first.stdout().contains("time unknown until something has run"), "{}", first.stdout());
    assert!(!first.stdout().contains("resolves differences"), "{}", first.stdout());
    bench.script("bench.sh", "n=$(wc -l < count); echo '{\"score\": '$1'.'$n'}'");
    bench.run(&[]).expect(0);

    // Two repetitions more of each: what is known now is how long they take and how they scatter.
    bench.edit("c.yaml", "repetitions: 2", "repetitions: 4");
    bench.edit("c.yaml", "settle: 0ms", "settle: 30s");
    let fresh = bench.lab.run(&["plan", "c.yaml", "--json"]).expect(0);
    let plan: Value = serde_json::from_str(&fresh.stdout()).unwrap();
    assert_eq!(plan["settle_s"], 240.0, "8 runs: the settle is another one, so all are stale");
    assert!(plan["about_s"].as_f64().unwrap() > 240.0);
    assert_eq!(plan["resolution"]["repetitions"], 4);
    assert!(plan["resolution"]["difference_pct"].as_f64().unwrap() > 1.0, "{}", plan["resolution"]);
    let text = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(text.contains("settle: 30 s each, 4 min in all"), "{text}");
    assert!(text.contains("% at 4 repetitions (from the spread of 2 points that ran earlier)"), "{text}");

    bench.edit("c.yaml", "timeout: 20s", "timeout: 1ms");
    let text = bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(text.contains("warning: here size=1: timeout 1 ms is less than an earlier run took"), "{text}");
}
