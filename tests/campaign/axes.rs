//! A sweep that grows or shrinks.

use crate::kit::Bench;
use serde_json::Value;

fn status(bench: &Bench) -> Value {
    serde_json::from_str(&bench.look(&["status", "--json"]).stdout()).unwrap()
}

#[test]
fn a_constant_that_becomes_an_axis_keeps_its_point() {
    let bench = Bench::new();
    bench.edit("c.yaml", "size: [1, 2]", "size: 1");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1", "1"]);
    bench.edit("c.yaml", "size: 1", "size: [1, 2]");
    let wider = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["2", "2"]);
    assert!(wider.stderr().contains("2 reused · 2 new"), "{}", wider.stderr());
    let status = status(&bench);
    assert_eq!(status["complete"], true);
    assert_eq!(status["rows"].as_array().unwrap().len(), 2, "{status:#}");
}

#[test]
fn a_threads_constant_that_becomes_an_axis_keeps_its_point() {
    let bench = Bench::new();
    bench.edit("c.yaml", "    params: { size: [1, 2] }", "    threads: 1");
    bench.edit("c.yaml", "{size}", "{threads}");
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "threads: 1", "threads: [1, 4]");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["4", "4"]);
}

#[test]
fn an_axis_value_that_is_gone_leaves_orphans_that_are_shown() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "size: [1, 2]", "size: [1]");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert_eq!(bench.lab.records("c").len(), 4, "nothing is thrown away");

    let matrix = status(&bench);
    let orphans: Vec<bool> = matrix["rows"].as_array().unwrap().iter().map(|r| r["orphan"].as_bool().unwrap()).collect();
    assert_eq!((orphans, &matrix["complete"]), (vec![false, true], &Value::Bool(true)), "{matrix:#}");
    let status = bench.look(&["status"]).expect(0);
    assert!(status.stdout().contains("orphan"), "{}", status.stdout());
    let report = bench.look(&["report"]).expect(0);
    assert!(report.stdout().contains("orphan"), "{}", report.stdout());

    // Asked for again, they answer again.
    bench.edit("c.yaml", "size: [1]", "size: [1, 2]");
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn a_repetition_beyond_the_plan_is_an_orphan() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.edit("c.yaml", "repetitions: 2", "repetitions: 1");
    bench.run(&[]).expect(0);
    let status = bench.look(&["status"]).expect(0);
    assert!(status.stdout().contains("orphan"), "{}", status.stdout());
}

#[test]
fn an_environment_constant_that_becomes_an_axis_keeps_its_point() {
    let bench = Bench::new();
    bench.edit("c.yaml", "size: [1, 2]", "size: 1");
    bench.script("bench.sh", "echo '{\"score\": 1}'; echo $MODE >> modes");
    bench.run(&[]).expect(0);
    bench.ran();
    bench.edit("c.yaml", "MODE: fast", "MODE: [fast, slow]");
    bench.run(&[]).expect(0);
    assert_eq!(bench.lab.read("modes"), "fast\nfast\nslow\nslow\n");
    let status = status(&bench);
    assert_eq!(status["complete"], true, "{status:#}");
    assert_eq!(status["rows"].as_array().unwrap().len(), 2, "{status:#}");
}

#[test]
fn two_commands_of_the_same_axes_are_two_points_that_leave_each_other_alone() {
    let bench = Bench::new();
    let block = |flag: &str| format!("  - {{ devices: here, backend: command, argv: [./bench.sh, \"1\", {flag}] }}\n");
    bench.edit("c.yaml", "matrix:\n", &format!("matrix:\n{}{}", block("--one"), block("--two")));
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 8);
    bench.run(&[]).expect(0);
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert!(bench.superseded().is_empty(), "{:?}", bench.superseded());
    assert_eq!(bench.lab.records("c").len(), 8);
}

#[test]
fn a_value_may_look_like_a_name_that_isotherm_uses() {
    let bench = Bench::new();
    bench.script("bench.sh", "echo '{\"score\": 1}'");
    bench.edit("c.yaml", "size: [1, 2]", "size: [a.attempt1, timing-r0.json, ../up, \" \", superseded, devices]");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 12);
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert_eq!(bench.lab.records("c").len(), 12);
    bench.look(&["status"]).expect(0);
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_device_cannot_be_called_like_a_directory_of_the_results() {
    for name in ["devices", "superseded"] {
        let bench = Bench::new();
        bench.edit("c.yaml", "devices: here\n", &format!("devices: {name}\n"));
        bench.edit("c.yaml", "{ here: {", &format!("{{ {name}: {{"));
        let refused = bench.run(&[]).expect(2);
        assert!(refused.stderr().contains(&format!("`{name}` cannot be the name of a device")), "{}", refused.stderr());
    }
}

#[test]
fn a_point_that_stands_twice_is_an_error_before_anything_runs() {
    let bench = Bench::new();
    let block = "  - { devices: here, backend: command, argv: [./bench.sh, \"1\"] }\n";
    bench.edit("c.yaml", "matrix:\n", &format!("matrix:\n{block}{block}"));
    let refused = bench.run(&[]).expect(2);
    assert!(refused.stderr().contains("stands twice"), "{}", refused.stderr());
    assert!(!bench.lab.results("c").exists());
}
