//! What no sensor tells and a campaign declares.

use crate::lab::Lab;

fn write(lab: &Lab, ambient: &str, repetitions: u32) {
    lab.write(
        "c.yaml",
        format!(
            "campaign: c
devices: {{ here: {{ local: {{}}, conditions: {{ ambient_c: {ambient}, psu: 27 W }} }} }}
defaults: {{ retry_contaminated: 0, repetitions: {repetitions}, warmup: 0, prepare: {{ settle: 0ms }}, conditions: {{ cooling: none }} }}
matrix:
  - {{ devices: here, backend: command, argv: [\"true\"], conditions: {{ cooling: on }} }}
"
        ),
    );
}

#[test]
fn declared_conditions_stand_in_records_and_what_differs_in_reports() {
    let lab = Lab::new();
    write(&lab, "22", 2);
    lab.run(&["run", "c.yaml"]).expect(0);
    let conditions = |at: usize| lab.records("c")[at].1["device"]["conditions"].clone();
    assert_eq!(conditions(0), serde_json::json!({ "ambient_c": "22", "psu": "27 W", "cooling": "on" }), "text as written");
    let report = || lab.run(&["report", "results/c"]).expect(0).stdout();
    assert!(!report().contains("conditions"));

    // They say under what was measured and not what: nothing becomes stale.
    write(&lab, "31", 3);
    assert!(lab.run(&["run", "c.yaml"]).expect(0).stderr().contains("2 reused · 1 new"));
    assert_eq!((&conditions(1)["ambient_c"], &conditions(2)["ambient_c"]), (&"22".into(), &"31".into()));
    assert!(report().contains("conditions (ambient_c 22 and 31)"), "{}", report());
    lab.run(&["verify", "results/c"]).expect(0);
}
