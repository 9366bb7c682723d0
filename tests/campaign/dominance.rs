//! What a failure makes needless is skipped, says so, and comes back when it is asked for.

use crate::kit::Bench;
use serde_json::Value;

/// Three depths; those of a file `limit` or more run out of memory.
fn bench(repetitions: u32, on: &str) -> Bench {
    let bench = Bench::new();
    bench.lab.write(
        "c.yaml",
        format!(
            "campaign: c
devices: {{ here: {{ local: {{}} }} }}
defaults: {{ retry_contaminated: 0, repetitions: {repetitions}, timeout: 20s, warmup: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - devices: here
    backend: command
    params: {{ depth: [0, 4096, 8192], mode: [a] }}
    argv: [./bench.sh, \"{{depth}}\"]
    dominance: {{ axis: depth, on: {on} }}
"
        ),
    );
    bench.script("bench.sh", "if [ $1 -ge $(cat limit) ]; then echo 'cannot allocate memory' >&2; exit 1; fi");
    bench
}

fn states(bench: &Bench) -> Vec<(i64, String, Value)> {
    let is_attempt = |path: &std::path::Path| path.display().to_string().contains(".attempt");
    let records = bench.lab.records("c").into_iter().filter(|(path, _)| !is_attempt(path));
    let mut states: Vec<_> = records
        .map(|(_, record)| {
            (record["ids"]["point"]["axes"]["depth"].as_i64().unwrap(), record["status"].as_str().unwrap().to_owned(), record["reason"].clone())
        })
        .collect();
    states.sort_by_key(|state| state.0);
    states
}

#[test]
fn larger_points_are_skipped_after_one_ran_out_of_memory() {
    let bench = bench(1, "[oom, timeout]");
    bench.lab.write("limit", "4096");
    let first = bench.run(&[]).expect(1);
    assert_eq!(bench.ran(), ["0", "4096"], "8192 is never tried");
    let expected = [(0, "ok".into(), Value::Null), (4096, "failed".into(), "oom".into()), (8192, "skipped".into(), "dominated".into())];
    assert_eq!(states(&bench), expected);
    assert!(first.stderr().contains("3 jobs: 1 ok · 1 failed · 1 skipped · 0 pending"), "{}", first.stderr());
    let status = bench.look(&["status"]).expect(1);
    assert!(status.stdout().contains("skipped"), "{}", status.stdout());
    let report = bench.look(&["report"]).expect(0);
    assert!(report.stdout().contains("depth=4096 mode=a failed: oom"), "{}", report.stdout());
    bench.lab.run(&["verify", "results/c"]).expect(0);

    // Neither is tried again by itself, and both when that is asked for.
    let plan = bench.lab.run(&["plan", "c.yaml"]).expect(0);
    assert!(plan.stdout().contains("1 reused · 2 kept") && plan.stdout().contains("`--rerun` tries it again"), "{}", plan.stdout());
    let again = bench.run(&[]).expect(1);
    assert!(bench.ran().is_empty() && again.stderr().contains("1 failed · 1 skipped"), "{}", again.stderr());
    bench.lab.write("limit", "100000");
    bench.run(&["--rerun", "depth=4096,8192"]).expect(0);
    assert_eq!(bench.ran(), ["4096", "8192"]);
    assert!(states(&bench).iter().all(|state| state.1 == "ok"), "{:?}", states(&bench));
}

#[test]
fn a_larger_point_runs_again_once_the_smaller_one_is_another() {
    let bench = bench(1, "oom");
    bench.lab.write("limit", "4096");
    bench.run(&[]).expect(1);
    bench.ran();
    bench.lab.write("limit", "100000");
    // Another program: the failure was of the old one.
    bench.script("bench.sh", "exit 0 # a better one");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["0", "4096", "8192"]);
}

#[test]
fn a_failure_of_another_kind_dominates_nothing_and_is_tried_again() {
    let bench = bench(1, "oom");
    bench.script("bench.sh", "[ $1 -lt 4096 ] || exit 3");
    bench.run(&[]).expect(1);
    assert_eq!(bench.ran(), ["0", "4096", "8192"]);
    bench.run(&[]).expect(1);
    assert_eq!(bench.ran(), ["4096", "8192"]);
}

#[test]
fn every_repetition_of_a_dominated_point_is_skipped_in_whatever_order_they_come() {
    let bench = bench(2, "oom");
    bench.lab.write("limit", "4096");
    bench.run(&[]).expect(1);
    // Pass 0: 0 and 4096, which fails; 8192 is skipped. Pass 1 turns back: 8192 is skipped, 4096 fails again, then 0.
    assert_eq!(bench.ran(), ["0", "0", "4096", "4096"]);
    let skipped = states(&bench).into_iter().filter(|state| state.1 == "skipped").count();
    assert_eq!(skipped, 2);
}
