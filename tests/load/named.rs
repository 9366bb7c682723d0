//! A run that others disturbed says who they were.

use crate::burners::{Burners, WORKLOAD};
use crate::lab::{Lab, Ran, eventually};

#[test]
fn who_disturbed_a_run_is_named() {
    let lab = Lab::new();
    lab.write("workload.sh", WORKLOAD);
    lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, timeout: 120s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
",
    );
    let night = lab.start(&["run", "c.yaml"]);
    eventually("the workload runs", || lab.path("started").exists().then_some(()));
    let burners = Burners::start(&lab);
    burners.disturb();
    lab.write("end", "");
    Ran(night.wait_with_output().unwrap()).expect(0);

    let record = lab.only_record("c");
    let competing = &record["context"]["competing"];
    let of_burners = competing["processes"].as_array().unwrap().iter().find(|p| p["name"] == burners.name.as_str()).unwrap();
    assert!(competing["span_s"].as_f64().unwrap() >= 5.0);
    assert!(of_burners["cores"].as_f64().unwrap() > 0.25 && of_burners["processes"] == 4, "{competing}");
    assert!(competing["cores"].as_f64() > of_burners["cores"].as_f64().map(|cores| 0.8 * cores), "{competing}");
    assert_eq!(record["validity"], "degraded");
    let issue = record["issues"].as_array().unwrap().iter().find(|issue| issue["code"] == "competing_load").unwrap();
    assert!(issue["message"].as_str().unwrap().contains(&format!("4 × {}", burners.name)), "{issue}");
}
