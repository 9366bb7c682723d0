//! What is said to a person who has to do something next.

use crate::kit::Bench;
use std::fs;

#[test]
fn a_model_that_is_not_there_is_named_before_its_jobs_fail() {
    let bench = Bench::one("model: m");
    bench.edit("c.yaml", "matrix:", "models: { m: { path: nets/m.onnx } }\nmatrix:");
    bench.edit("c.yaml", "backend: command", "backend: builtin");
    let ran = bench.run(&["--set", "threads=[1, 2]"]).expect(1);
    let path = fs::canonicalize(bench.lab.path("")).unwrap().join("nets/m.onnx");
    let warning = format!("warning: model `m` on device `here`: {}: No such file or directory; its 2 jobs will fail\n", path.display());
    assert!(ran.stderr().contains(&warning), "{}", ran.stderr());
    assert!(ran.stderr().contains("next: isotherm report results/c   # says what to do about what failed"), "{}", ran.stderr());
    let report = bench.look(&["report"]).expect(0);
    assert!(report.stdout().contains("hint (model_missing): put the file where the message says"), "{}", report.stdout());
}

#[test]
fn a_place_without_results_names_those_that_have_some() {
    let bench = Bench::new();
    bench.run(&["--limit", "1"]).expect(1);
    for place in ["results", ".", "results/d"] {
        let refused = bench.lab.run(&["report", place]).expect(2);
        assert!(refused.stderr().contains("hint: there is results/c\n"), "{place}: {}", refused.stderr());
    }
    let file = bench.lab.run(&["status", "c.yaml"]).expect(2);
    assert!(file.stderr().contains("hint: that is a campaign file"), "{}", file.stderr());
    let results = bench.lab.run(&["plan", "results/c"]).expect(2);
    assert!(results.stderr().contains("hint: name the campaign file; for results there are"), "{}", results.stderr());
    let nowhere = bench.lab.run(&["report", "far/away"]).expect(2);
    assert!(nowhere.stderr().contains("such as results/smoke"), "{}", nowhere.stderr());
}

#[test]
fn a_plan_of_a_later_build_says_once_what_is_lacking_and_where() {
    let bench = Bench::one("argv: [./bench.sh]\nthreads: 1\ncontrol: { point: first }");
    let text = bench.lab.read("c.yaml");
    let block = text.split("matrix:\n").nth(1).unwrap().replace("threads: 1", "threads: 2");
    bench.lab.write("c.yaml", format!("{text}{block}"));
    let planned = bench.lab.run(&["plan", "c.yaml"]).expect(2);
    let lines: Vec<String> = planned.stderr().lines().map(str::to_owned).collect();
    let expected = [
        "c.yaml asks for what this build can't do yet, so `run` will refuse it:",
        "  `control`  c.yaml:9 and 1 more",
        "It can be planned all the same.",
        "",
    ];
    assert_eq!(lines, expected);
    assert!(planned.stdout().contains("2 points, 2 runs"), "{}", planned.stdout());
    assert!(!planned.stdout().contains("--refresh"), "nothing can be asked for it: {}", planned.stdout());
    let refused = bench.run(&[]).expect(2);
    assert!(refused.stderr().contains("╭─[c.yaml:9:"), "{}", refused.stderr());
}

#[test]
fn a_ratio_is_a_number_without_a_unit() {
    let bench = Bench::reading("echo '{\"r\": 7.5}'", "r: { from: stdout_last_line, json: /r, unit: \"1\", better: higher }");
    let ran = bench.run(&[]).expect(0);
    assert!(ran.stdout().trim_end().ends_with("r 7.500"), "{}", ran.stdout());
    let report = bench.look(&["report"]).expect(0);
    assert!(report.stdout().contains("\nr (higher is better), definition ") && !report.stdout().contains("r (1)"), "{}", report.stdout());
}
