//! Somebody sets the CPUs' clocks otherwise in the middle of a run.

use crate::board::Board;
use crate::lab::{User, for_each_user};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A board with two policies, of CPUs that no machine of a test has. The first of three repetitions writes a value into a file of the
/// first one.
fn board(user: User, file: &str, value: &str) -> Option<Board> {
    let board = Board::new(user)?;
    for (policy, cpus) in [("policy900", "900 901"), ("policy902", "902 903")] {
        let settings = [("affected_cpus", cpus), ("scaling_governor", "schedutil"), ("scaling_min_freq", "600000"), ("scaling_max_freq", "2400000")];
        for (name, value) in settings {
            let path = board.set(&format!("devices/system/cpu/cpufreq/{policy}/{name}"), value);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        }
    }
    let path = board.lab.path(&format!("sys/devices/system/cpu/cpufreq/policy900/{file}"));
    let change = format!("[ $(grep -c '' started) -gt 1 ] || printf '%-24s\\n' {value} 1<> {path:?}");
    board.lab.write("workload.sh", format!("#!/bin/sh\necho >> started\n{change}\n"));
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("repetitions: 1", "repetitions: 3"));
    Some(board)
}

/// In how many rows the runs stand, and how many of them are in the number of the first.
fn reported(board: &Board) -> (usize, Value) {
    let model: Value = serde_json::from_str(&board.run(&["report", "results/c", "--format", "json"]).expect(0).stdout()).unwrap();
    let wall = model["tables"].as_array().unwrap().iter().find(|table| table["metric"] == "wall_s").unwrap();
    let rows = wall["rows"].as_array().unwrap();
    (rows.len(), rows[0]["number"]["runs"].clone())
}

/// Code, severity and message of the issues of each record.
fn issues(board: &Board) -> Vec<Vec<[String; 3]>> {
    let told = |issue: &Value| ["code", "severity", "message"].map(|field| issue[field].as_str().unwrap().to_owned());
    board.lab.records("c").iter().map(|(_, record)| record["issues"].as_array().unwrap().iter().map(told).collect()).collect()
}

#[test]
fn a_run_in_which_somebody_changes_the_governor_is_left_out_and_says_what_was_changed() {
    for_each_user(|user| {
        let Some(board) = board(user, "scaling_governor", "performance") else { return };
        let ran = board.run(&["run", "c.yaml"]).expect(0);
        let told = ["clock_settings_changed", "warning", "governor of CPU 900 and 1 more: schedutil → performance"].map(str::to_owned);
        assert_eq!(issues(&board), [vec![told], Vec::new(), Vec::new()], "{}", ran.stderr());
        let (_, record) = board.lab.records("c").remove(0);
        assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"degraded".into()));
        let policy = |when: &str| {
            let mut policies = record["context"][when]["policies"].as_array().unwrap().iter();
            let found = policies.find(|policy| policy["cpus"].as_str().unwrap().starts_with("900")).unwrap();
            (found["cpus"].clone(), found["governor"].clone())
        };
        assert_eq!(policy("clocking_before"), ("900-903".into(), "schedutil".into()));
        assert_eq!(policy("clocking_after"), ("900-901".into(), "performance".into()));
        assert_eq!(reported(&board), (1, 2.into()));
        assert!(board.run(&["report", "results/c"]).expect(0).stdout().contains("1 degraded left out"));
    });
}

#[test]
fn a_run_under_which_a_frequency_limit_is_lowered_says_so_and_counts() {
    for_each_user(|user| {
        let Some(board) = board(user, "scaling_max_freq", "1500000") else { return };
        let ran = board.run(&["run", "c.yaml"]).expect(0);
        let told = ["frequency_limits_changed", "note", "upper limit of CPU 900 and 1 more: 2400000 kHz → 1500000 kHz"].map(str::to_owned);
        assert_eq!(issues(&board), [vec![told], Vec::new(), Vec::new()], "{}", ran.stderr());
        let (_, record) = board.lab.records("c").remove(0);
        assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"valid".into()));
        assert_eq!(reported(&board), (1, 3.into()));
    });
}
