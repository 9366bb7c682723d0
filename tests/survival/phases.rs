//! `kill -9` of each part in each phase of a run. Sealing, collecting, writing and forgetting take no time in which they could be met:
//! there `tests/crash.rs` ends each part at every one of its calls.

use crate::lab::{User, eventually, for_each_user};
use crate::rig::Rig;
use std::fs;
use std::process::Child;

/// Who is ended, by their command lines.
const VICTIMS: [&[&str]; 6] = [
    &["isotherm run"],
    &[" serve --nonce "],
    &[" keep --state-dir "],
    &[" init --level "],
    &["./workload.sh 1"],
    &["isotherm run", " serve --nonce ", " keep --state-dir ", " init --level ", "./workload.sh 1"],
];
/// These have no process before a workload is started.
const OF_A_WORKLOAD: [&str; 2] = [" init --level ", "./workload.sh 1"];

fn rig(user: User, warmup: u32, settle: &str) -> Rig {
    let rig = Rig::new(user);
    let text = rig.lab.read("c.yaml").replace("warmup: 0", &format!("warmup: {warmup}")).replace("settle: 0ms", &format!("settle: {settle}"));
    rig.lab.write("c.yaml", text);
    rig
}

/// End these now; then nights until every job has its answer, and what a night never leaves.
fn kill(rig: &Rig, controller: Child, victims: &[&str]) {
    rig.kill(&victims.iter().flat_map(|text| rig.lab.pids_of(text)).collect::<Vec<_>>());
    rig.open(1);
    // Whether it goes on, and to which end, is its own affair.
    let mut controller = controller;
    eventually("the controller has ended", || controller.try_wait().unwrap());
    rig.run().expect(0);
    let failed = rig.lab.records("c").len() - 2;
    assert!(failed <= 1, "{victims:?}: {failed} attempts failed");
    rig.settled([rig.executions(1), rig.executions(2)], failed);
}

#[test]
fn whoever_dies_while_the_device_settles() {
    for_each_user(|user| {
        for victims in VICTIMS.into_iter().filter(|victims| !victims.iter().all(|victim| OF_A_WORKLOAD.contains(victim))) {
            // Longer than it takes to see that a job was started, as a rule; else once more.
            let in_time = (0..10).any(|_| {
                let rig = rig(user, 0, "300ms");
                let controller = rig.lab.start(&["run", "c.yaml"]);
                eventually("the job has been started", || (rig.events("started") == 1).then_some(()));
                eventually("the keeper knows it", || (!rig.spooled().is_empty()).then_some(()));
                let in_time = rig.executions(1) == 0;
                kill(&rig, controller, victims);
                in_time
            });
            assert!(in_time, "{victims:?} were never ended before the settle was over");
        }
    });
}

#[test]
fn whoever_dies_while_the_workload_warms_up() {
    for_each_user(|user| {
        for victims in VICTIMS {
            let rig = rig(user, 1, "0ms");
            kill(&rig, rig.start(), victims);
        }
    });
}

#[test]
fn whoever_dies_while_it_is_measured() {
    for_each_user(|user| {
        for victims in VICTIMS {
            let rig = rig(user, 1, "0ms");
            // The gate is open for the warm-up invocation, and closed for the measured one.
            rig.open(1);
            let body = "[ $(grep -c \"^$1$\" count) != 1 ] || { rm gate.1; echo done $1; exit; }";
            let workload = rig.lab.read("workload.sh").replace("while", &format!("[ $1 != 1 ] || {body}\nwhile"));
            rig.lab.write("workload.sh", workload);
            let controller = rig.lab.start(&["run", "c.yaml"]);
            rig.executing(1, 2);
            assert!(!fs::exists(rig.lab.path("gate.1")).unwrap());
            kill(&rig, controller, victims);
        }
    });
}
