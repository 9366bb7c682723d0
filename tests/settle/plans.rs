//! What a plan says of waits, and which of their keys say what is measured.

use crate::lab::Lab;

fn lab(settle: &str, repetitions: u32) -> Lab {
    let lab = Lab::new();
    lab.write(
        "c.yaml",
        format!(
            "campaign: c\ndevices: {{ here: {{ local: {{}} }} }}\nmatrix:\n  - {{ devices: here, backend: command, argv: [\"true\"], warmup: 0, \
             repetitions: {repetitions}, prepare: {{ settle: {settle} }} }}\n"
        ),
    );
    lab
}

#[test]
fn a_plan_names_the_budget_of_its_waits_and_the_worst_case() {
    let plan = lab("{ temp_within: 2.5C, timeout: 5m }", 72).run(&["plan", "c.yaml"]).expect(0);
    assert!(plan.stdout().contains(" · settle: within 2.5 °C, at worst 5 min each (6 h 0 min)\n"), "{}", plan.stdout());
    let plan = lab("20s", 6).run(&["plan", "c.yaml"]).expect(0);
    assert!(plan.stdout().contains(" · settle: 20 s each, 2 min in all\n"), "{}", plan.stdout());
}

#[test]
fn how_long_a_device_may_take_and_what_happens_then_makes_nothing_stale() {
    // Too short for any device, so that nothing depends on how quiet this one is.
    let lab = lab("{ min: 0s, timeout: 1ms }", 1);
    lab.run(&["run", "c.yaml"]).expect(0);
    let edit = |from: &str, to: &str| _ = lab.write("c.yaml", lab.read("c.yaml").replace(from, to));
    edit("timeout: 1ms", "timeout: 2m, on_timeout: skip");
    assert!(lab.run(&["run", "c.yaml"]).expect(0).stderr().contains("nothing to do"));
    edit("min: 0s", "min: 0s, temp_within: 5C");
    let plan = lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(plan.contains("settle.temp_within_c changed (3.0 → 5.0)"), "{plan}");
}

#[test]
fn a_time_out_shows_in_the_line_of_its_run_and_in_the_report() {
    let lab = lab("{ min: 0s, timeout: 1ms }", 1);
    let ran = lab.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stdout().contains("   not settled in ") && ran.stdout().contains("settle_timeout"), "{}", ran.stdout());
    let report = lab.run(&["report", "results/c"]).expect(0).stdout();
    assert!(report.contains("settle_timeout"), "{report}");
    let explained = lab.run(&["explain", "settle_timeout"]).expect(0).stdout();
    assert!(explained.contains("temp_within"), "{explained}");
}
