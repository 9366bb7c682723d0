//! A run that others disturbed says who they were.

use crate::burners::{BURNERS, Burners, WORKLOAD};
use crate::lab::{Lab, Ran, eventually, spawn};
use serde_json::Value;
use std::time::Duration;

fn lab(settle: &str, program: &str) -> Lab {
    let lab = Lab::new();
    lab.write("workload.sh", WORKLOAD);
    lab.write(
        "c.yaml",
        format!(
            "campaign: c
devices: {{ here: {{ local: {{}} }} }}
defaults: {{ repetitions: 1, retry_contaminated: 0, timeout: 120s, warmup: 0, prepare: {{ settle: {settle} }} }}
matrix:
  - {{ devices: here, backend: command, argv: [{program}] }}
"
        ),
    );
    lab
}

#[track_caller]
fn says(record: &Value, code: &str, competing: &Value, burners: &Burners) {
    let of_burners = competing["processes"].as_array().unwrap().iter().find(|p| p["name"] == burners.name.as_str()).unwrap();
    assert!(of_burners["cores"].as_f64().unwrap() > 0.1 && of_burners["processes"] == BURNERS, "{competing}");
    assert!(competing["cores"].as_f64() > of_burners["cores"].as_f64().map(|cores| 0.8 * cores), "{competing}");
    assert_eq!(record["validity"], "degraded");
    let issue = record["issues"].as_array().unwrap().iter().find(|issue| issue["code"] == code).unwrap();
    assert!(issue["message"].as_str().unwrap().contains(&format!("{BURNERS} × {}", burners.name)), "{issue}");
}

#[test]
fn who_disturbed_a_run_is_named() {
    let lab = lab("0ms", "./workload.sh");
    let night = lab.start(&["run", "c.yaml"]);
    eventually("the workload runs", || lab.path("started").exists().then_some(()));
    let burners = Burners::start(&lab);
    burners.disturb();
    lab.write("end", "");
    Ran::of(night).expect(0);

    let record = lab.only_record("c");
    says(&record, "competing_load", &record["context"]["competing"], &burners);
    assert!(record["context"]["pre_run"].is_null(), "nothing was waited for");
}

#[test]
fn who_disturbed_a_short_run_is_named_too() {
    let lab = lab("0ms", "./workload.sh");
    let night = spawn(lab.isotherm(&["run", "c.yaml"]).env_remove("ISOTHERM_JUDGED_FROM_S"));
    eventually("the workload runs", || lab.path("started").exists().then_some(()));
    let burners = Burners::start(&lab);
    burners.disturb_for(Duration::from_millis(300));
    lab.write("end", "");
    Ran::of(night).expect(0);

    let record = lab.only_record("c");
    says(&record, "competing_load", &record["context"]["competing"], &burners);
}

#[test]
fn who_was_busy_right_before_a_run_is_named() {
    let lab = lab("6s", "\"true\"");
    let burners = Burners::start(&lab);
    lab.run(&["run", "c.yaml"]).expect(0);

    let record = lab.only_record("c");
    says(&record, "busy_before", &record["context"]["pre_run"]["competing"], &burners);
}
