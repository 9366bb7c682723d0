//! Nights in which nobody dies: what is asked for is there while runs ask for it, recorded, and gone afterwards.

use crate::board::{Board, PERFORMANCE};
use crate::lab::User;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

#[test]
fn governor_and_limits_are_there_for_the_runs_that_ask_for_them_and_as_before_for_others() {
    let Some(board) = Board::of(User::Caller) else { return };
    board.campaign(&[PERFORMANCE, PERFORMANCE, "governor: powersave", ""]);
    board.open(&[0, 1, 2, 3]);
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(board.seen(), ["performance", "performance", "powersave", "ondemand"]);
    assert_eq!(
        board.steps(),
        [
            vec!["governor done", "frequency done"],
            vec!["governor skipped", "frequency skipped"],
            vec!["give_back done", "governor done"],
            vec!["give_back done"],
        ]
    );
    // The state that each was measured in, not the one that it found.
    let governors: Vec<_> = board.records().iter().map(|record| record["context"]["state"]["governor"].clone()).collect();
    assert_eq!(governors, board.seen());
    // Nothing was left to be given back at the end.
    assert!(!ran.stderr().contains("given back"), "{}", ran.stderr());
    let record = &board.records()[0];
    let [before, after] = ["before", "after"].map(|when| record["prepare"][0][when]["policy4"]["governor"].clone());
    assert_eq!((before, after), ("powersave".into(), "performance".into()));
    assert!(record["time"]["prepare_ms"].is_f64() && record["prepare"][0]["duration_ms"].is_f64(), "{}", record["time"]);
    assert_eq!(record["ids"]["identity"]["spec"]["prepare"]["governor"], "performance");
    board.is_as_it_was();
    board.lab.run(&["verify", "results/c"]).expect(0);
}

#[test]
fn what_is_given_back_at_the_end_is_said() {
    let Some(board) = Board::of(User::Caller) else { return };
    board.campaign(&[PERFORMANCE]);
    board.open(&[0]);
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains("here  given back: frequency limits of policy4: 600000 2400000 kHz, and 3 more"), "{}", ran.stderr());
    board.is_as_it_was();
}

#[test]
fn an_ordinary_user_without_sudo_is_denied_and_measures_all_the_same() {
    let Some(board) = Board::of(User::Ordinary) else { return };
    board.campaign(&[&format!("drop_caches: each, {PERFORMANCE}")]);
    board.open(&[0]);
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stdout().contains("[prepare_denied]"), "{}", ran.stdout());
    assert_eq!(board.steps(), [["drop_caches denied", "governor denied", "frequency denied"]]);
    let record = &board.records()[0];
    assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"degraded".into()));
    let reason = record["prepare"][1]["reason"].as_str().unwrap();
    // There is none, or it wants a password.
    assert!(reason.contains("policy0/scaling_governor: ") && reason.contains("sudo"), "{reason}");
    assert!(record["issues"][0]["hint"].as_str().unwrap().contains("sudoers"), "{}", record["issues"]);
    let report = board.lab.run(&["report", "results/c"]).expect(0);
    assert!(report.stdout().contains("prepare_denied"), "{}", report.stdout());
    board.is_as_it_was();
}

#[test]
fn an_ordinary_user_may_by_sudo_what_its_lines_name() {
    let Some(board) = Board::of(User::Ordinary) else { return };
    // In the place of sudo: it notes what it was asked for, and is allowed to write.
    board.lab.write(
        "usr-bin/sudo",
        "#!/bin/sh\necho \"$*\" >> asked\nshift\nchmod u+w \"$2\"\n\"$@\"\nstatus=$?\nchmod a-w \"$2\"\nexit $status\n"
            .replace(">> asked", &format!(">> {}", board.lab.path("asked").display())),
    );
    for policy in ["policy0", "policy4"] {
        for file in ["scaling_governor", "scaling_min_freq", "scaling_max_freq"] {
            let file = board.lab.path(&format!("cpufreq/{policy}/{file}"));
            chown(&file, Some(65534), Some(65534)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        }
    }
    board.campaign(&["governor: performance"]);
    board.open(&[0]);
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((board.steps(), board.seen()), (vec![vec!["governor done".to_owned()]], vec!["performance".to_owned()]), "{}", ran.stdout());
    let asked = board.lab.read("asked");
    let file = |policy: u32| format!("-n /usr/bin/tee /sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor");
    assert_eq!(asked.lines().collect::<Vec<_>>(), [file(0), file(4), file(4), file(0)], "there and back");
    board.is_as_it_was();
}
