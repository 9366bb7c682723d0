//! Clocks that are wrong, clocks that are set, and a machine that sleeps: labels may be off, and nothing else is.

use crate::lab::{Clocks, Ran, eventually, for_each_user, spawn};
use crate::rig::{Rig, end};
use serde_json::Value;
use std::fs;
use std::process::Child;

const FIVE_HOURS_S: i64 = 5 * 3600;
/// Less than the run's time-out, which goes on meanwhile.
const SLEPT_S: i64 = 20;

/// Start a night, which is executing job 1 when this returns.
fn night(rig: &Rig) -> Child {
    let before = rig.executions(1);
    let night = spawn(rig.lab.isotherm(&["run", "c.yaml"]).envs([rig.lab.clock()]));
    rig.executing(1, before + 1);
    // The keeper knows it, too, and its time-out is set: it looks at what the workload maps.
    let keeper = rig.lab.pids_of(" keep --state-dir ")[0];
    let names = || fs::read_dir(format!("/proc/{keeper}/task")).unwrap().flatten().map(|thread| fs::read_to_string(thread.path().join("comm")));
    eventually("the run is watched", || names().flatten().any(|name| name == "mapped\n").then_some(()));
    night
}

/// A night of a controller whose clock is off by some seconds.
fn night_at(rig: &Rig, off: i64) -> Ran {
    rig.lab.run_with(&["run", "c.yaml"], &[("ISOTHERM_CONTROLLER_CLOCK_S", &off.to_string())])
}

fn record(rig: &Rig, job: u32) -> Value {
    let mut records = rig.lab.records("c").into_iter().map(|(_, record)| record);
    records.find(|record| record["ids"]["point"]["axes"]["job"] == job).unwrap()
}

/// Seconds from the first to the second label of a record's time.
fn labelled_s(record: &Value) -> i64 {
    let seconds = |name: &str| {
        let at = humantime::parse_rfc3339(record["time"][name].as_str().unwrap()).unwrap();
        at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
    };
    seconds("end_utc") - seconds("start_utc")
}

/// The duration of a run is what the monotonic clock says: it was over within the minute that this test would have waited.
fn measured_in_a_minute(record: &Value) {
    let ms = record["time"]["measure_ms"].as_f64().unwrap();
    assert!(ms > 0.0 && ms < 60_000.0, "{record}");
    assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"valid".into()), "{record}");
}

#[test]
fn a_device_whose_clock_is_hours_off_is_measured_like_any_other() {
    for_each_user(|user| {
        for realtime in [FIVE_HOURS_S, -FIVE_HOURS_S] {
            let rig = Rig::new(user);
            rig.lab.set_clocks(Clocks { realtime_s: realtime, ..Clocks::default() });
            let controller = night(&rig);
            rig.open(1);
            end(controller, Some(0));
            measured_in_a_minute(&record(&rig, 1));
            let time = &record(&rig, 1)["time"];
            let [offset_ms, within_ms] = ["clock_offset_ms", "clock_offset_uncertainty_ms"].map(|name| time[name].as_f64().unwrap());
            assert!((offset_ms - realtime as f64 * 1e3).abs() <= within_ms + 1.0, "{time}");
            // To a controller that knows the right time these are answers, too.
            assert!(rig.run().expect(0).stderr().contains("2 reused"));
            rig.settled([1, 1], 0);
        }
    });
}

#[test]
fn a_clock_that_is_set_in_the_middle_of_a_run_changes_its_labels_alone() {
    for_each_user(|user| {
        for realtime in [FIVE_HOURS_S, -FIVE_HOURS_S] {
            let rig = Rig::new(user);
            rig.lab.set_clocks(Clocks::default());
            let controller = night(&rig);
            rig.lab.set_clocks(Clocks { realtime_s: realtime, ..Clocks::default() });
            rig.open(1);
            end(controller, Some(0));
            let record = record(&rig, 1);
            measured_in_a_minute(&record);
            assert!((labelled_s(&record) - realtime).abs() <= 61, "{record}");
            rig.settled([1, 1], 0);
        }
    });
}

#[test]
fn a_machine_that_slept_during_a_run_has_no_number_and_the_run_is_repeated() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.lab.set_clocks(Clocks::default());
        let controller = night(&rig);
        // Of which neither the workload nor MONOTONIC knows.
        rig.lab.set_clocks(Clocks { boottime_s: SLEPT_S, ..Clocks::default() });
        rig.open(1);
        let ran = end(controller, Some(0));
        assert!(ran.stdout().contains("suspended"), "{}", ran.stdout());
        let attempts = rig.lab.records("c").into_iter().filter(|(path, _)| path.to_string_lossy().contains(".attempt"));
        let slept: Vec<Value> = attempts.map(|(_, record)| record).collect();
        let [slept] = slept.as_slice() else { panic!("{} attempts", slept.len()) };
        assert_eq!((&slept["validity"], slept["issues"][0]["code"].as_str()), (&"invalid".into(), Some("suspended")), "{slept}");
        // Two clocks are never read at the same moment; what counts as a suspend is 50 ms.
        assert!((slept["time"]["suspended_ms"].as_f64().unwrap() - SLEPT_S as f64 * 1e3).abs() < 50.0, "{slept}");
        rig.settled([2, 1], 1);
    });
}

#[test]
fn a_run_whose_time_out_passed_while_the_machine_slept_is_ended_when_it_wakes() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        // The first job says so when it wakes, and doesn't end.
        let workload = rig.lab.read("workload.sh");
        rig.lab.write("workload.sh", format!("{workload}[ $1 = 2 ] || exec sleep 1000\n"));
        rig.lab.set_clocks(Clocks::default());
        let controller = night(&rig);
        rig.lab.set_clocks(Clocks { boottime_s: FIVE_HOURS_S, ..Clocks::default() });
        rig.open(1);
        end(controller, Some(1));
        let slept = record(&rig, 1);
        assert_eq!((&slept["reason"], slept["issues"][0]["code"].as_str()), (&"timeout".into(), Some("suspended")), "{slept}");
        rig.lab.write("workload.sh", workload);
        rig.run().expect(0);
        // What is executed is another program now.
        rig.settled([2, 2], 0);
    });
}

#[test]
fn a_controller_whose_clock_is_set_back_or_forward_between_nights_keeps_its_answers_in_order() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.lab.write("workload.sh", "#!/bin/sh\necho $1 >> count\n[ $1 = 2 ] || [ -e gate.1 ] && echo done $1\n");
        night_at(&rig, FIVE_HOURS_S).expect(1);
        night_at(&rig, -FIVE_HOURS_S).expect(1);
        rig.open(1);
        // Later than the two failures, and older than both by its clock.
        night_at(&rig, -2 * FIVE_HOURS_S).expect(0);
        assert!(night_at(&rig, FIVE_HOURS_S).expect(0).stderr().contains("2 reused"));
        rig.settled([3, 1], 2);
    });
}
