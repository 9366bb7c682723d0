//! Short of memory: who is taken, and when a run is stopped before the machine is lost.
//!
//! The kernel's count of stalls is laid over by a file of the lab, in a mount namespace of the controller and what it starts; minutes
//! pass by the clock parameter.

use crate::lab::{Clocks, Ran, User, eventually, for_each_user, is_root, spawn};
use crate::ward::{Ward, text};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};

/// Works for ever, and says so all the time, so that its keeper looks up.
const RESTLESS: &str = "echo > started\nwhile :; do echo .; sleep 0.01; done";

/// Tasks have stood still for memory for so long since boot, and so much time has passed for the device.
fn at(ward: &Ward, seconds: i64, stalled_s: u64) {
    let line = |which: &str| format!("{which} avg10=0.00 avg60=0.00 avg300=0.00 total={:020}\n", stalled_s * 1_000_000);
    ward.lab.write_in_place("pressure", line("some") + &line("full"));
    ward.lab.set_clocks(Clocks::passed(seconds));
}

fn start(ward: &Ward) -> Child {
    let script = "mount --bind pressure /proc/pressure/memory && exec \"$@\"";
    let mut command = ward.lab.isotherm_inside(&["unshare", "--mount", "sh", "-c", script, "sh"], &["run", "c.yaml"]);
    spawn(command.envs([ward.lab.clock()]))
}

/// A ward whose workload is running, with its controller; minutes are long.
fn restless(user: User) -> (Ward, Child) {
    let ward = Ward::new(user, "2h", RESTLESS);
    at(&ward, 0, 1000);
    let controller = start(&ward);
    eventually("the workload runs", || ward.lab.path("started").exists().then_some(()));
    (ward, controller)
}

fn ended(ward: &Ward, controller: Child) -> Value {
    ward.finish(Ran::of(controller))
}

#[test]
fn a_run_under_which_the_machine_moves_nothing_but_memory_is_stopped_and_not_tried_again() {
    if !is_root() {
        eprintln!("skipped: laying a file over the kernel's count of stalls needs root");
        return;
    }
    for_each_user(|user| {
        let (ward, controller) = restless(user);
        at(&ward, 70, 1040);
        let record = ended(&ward, controller);
        assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"memory_thrash".into()), "{record}");
        let message = record["message"].as_str().unwrap();
        assert!(message.contains("did little else than move memory"), "{message}");
        // What it printed is kept.
        assert!(text(&record["raw"]["stdout"]).starts_with(".\n"), "{record}");
        // Another night leaves it alone.
        let again = ward.lab.run(&["run", "c.yaml"]).expect(1);
        assert_eq!(ward.lab.records("c").len(), 2, "{}", again.stderr());
    });
}

#[test]
fn a_machine_that_moves_memory_for_less_than_half_of_a_minute_is_left_alone() {
    if !is_root() {
        eprintln!("skipped: laying a file over the kernel's count of stalls needs root");
        return;
    }
    for_each_user(|user| {
        let (ward, controller) = restless(user);
        // Seen by what follows: an hour later the run is over, for another reason.
        at(&ward, 70, 1030);
        at(&ward, 7300, 1030);
        assert_eq!(ended(&ward, controller)["reason"], "timeout");
    });
}

#[test]
fn a_workload_is_what_the_kernel_takes_first_when_memory_is_short_and_its_keeper_the_last() {
    for_each_user(|user| {
        // It may ask for more mercy; whatever it gets, its children are found and ended.
        let body =
            "cat /proc/self/oom_score_adj\n(echo 0 > /proc/self/oom_score_adj) 2>/dev/null\n./sleeper.sh &\nwhile [ ! -e seen ]; do sleep 0.01; done";
        let ward = Ward::new(user, "60s", body);
        let controller = ward.lab.start(&["run", "c.yaml"]);
        let keeper = eventually("the keeper is there, and the workload", || {
            ward.lab.path("started").exists().then(|| ward.lab.pids_of(" keep --state-dir ").first().copied()).flatten()
        });
        let keepers = fs::read_to_string(format!("/proc/{keeper}/oom_score_adj")).unwrap();
        // Only who has the privilege may ask to be spared, which root in a container hasn't always.
        let may = Command::new("sh").args(["-c", "echo -900 > /proc/self/oom_score_adj"]).stderr(Stdio::null()).status().unwrap().success();
        let spared = may && user == User::Caller;
        assert!(if spared { keepers == "-900\n" } else { keepers.trim().parse::<i32>().unwrap() < 1000 }, "{keepers}");
        ward.lab.write("seen", "");
        assert_eq!(text(&ward.finish(Ran::of(controller))["raw"]["stdout"]), "1000\n");
    });
}
