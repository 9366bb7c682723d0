//! A campaign of one run that lasts as long as a test wants: takes a lab, gives the run's beginning, its end and what its record read.
//! Must not know what the machine is made to look like meanwhile.

use crate::lab::{Lab, Ran, eventually};
use serde_json::Value;
use std::process::Child;

/// Says that it runs, then waits until it may end.
const WORKLOAD: &str = "#!/bin/sh\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\n";

/// Write the campaign, `c.yaml`. Its run reads what instruments there are.
pub fn campaign(lab: &Lab) {
    lab.write("workload.sh", WORKLOAD);
    lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, retry_contaminated: 0, timeout: 60s, warmup: 0, prepare: { settle: 0ms }, measure: { sample_hz: 50, power: together } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
",
    );
}

/// Wait until the workload runs.
#[track_caller]
pub fn has_started(lab: &Lab) {
    eventually("the workload runs", || lab.path("started").exists().then_some(()));
}

/// Let the workload end, and the campaign with it.
pub fn end(lab: &Lab, controller: Child) -> Ran {
    lab.write("end", "");
    Ran::of(controller)
}

/// A reading of a snapshot by its metric, and its subject or source.
#[track_caller]
pub fn reading<'r>(snapshot: &'r Value, metric: &str, of: &str) -> &'r Value {
    let mut readings = snapshot["readings"].as_array().unwrap().iter();
    let found = readings.find(|r| r["metric"] == metric && (r["subject"] == of || r["source"] == of));
    found.unwrap_or_else(|| panic!("no {metric} of {of} in {snapshot}"))
}
