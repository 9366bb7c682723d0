//! `isotherm restore`: for what is left of a night that everybody was killed in, or whose controller was.

use crate::board::BORROWED;
use crate::deaths::night;
use serde_json::{Value, json};
use std::fs;

#[test]
fn what_everybody_left_who_was_killed_is_given_back_when_asked() {
    let Some((board, mut controller)) = night() else { return };
    board.kill(&board.lab.processes());
    controller.wait().unwrap();
    assert_eq!(board.policies(), BORROWED);
    let restored = board.run(&["restore"]).expect(0);
    assert!(restored.stdout().contains("governor of policy4: powersave\ngovernor of policy0: ondemand\n"), "{}", restored.stdout());
    board.is_as_it_was();
    let again = board.run(&["restore", "c.yaml"]).expect(0);
    assert_eq!((again.stdout().as_str(), again.stderr().as_str()), ("", "nothing is borrowed of `here`\n"));
}

#[test]
fn after_a_boot_nothing_is_written() {
    let Some((board, mut controller)) = night() else { return };
    board.kill(&board.lab.processes());
    controller.wait().unwrap();
    board.lab.write("boot_id", "5b1ec7a0-1f4e-4e7a-8f0e-1f2d3c4b5a69\n");
    board.run(&["restore"]).expect(0);
    assert_eq!((board.policies(), board.journal()), (BORROWED.map(String::from), None));
}

#[test]
fn a_keeper_that_waits_for_nobody_is_ended_by_restore_unless_it_executes_a_run() {
    let Some((board, mut controller)) = night() else { return };
    let locked = board.run(&["restore", "c.yaml"]).expect(4);
    assert!(locked.stderr().contains("hint: "), "{}", locked.stderr());
    controller.kill().unwrap();
    controller.wait().unwrap();
    let held = board.run(&["restore"]).expect(4);
    assert!(held.stderr().contains("is held by campaign `c`") && held.stderr().contains("restore FILE"), "{}", held.stderr());
    let running = board.run(&["restore", "c.yaml"]).expect(4);
    assert!(running.stderr().contains("is executing run") && running.stderr().contains("cancel FILE"), "{}", running.stderr());
    assert_eq!(board.policies(), BORROWED);
    board.run(&["cancel", "c.yaml"]).expect(0);
    board.is_as_it_was();
}

#[test]
fn a_journal_of_another_version_is_left_and_said_and_runs_go_on() {
    let Some((board, mut controller)) = night() else { return };
    board.kill(&board.lab.processes());
    controller.wait().unwrap();
    let journal = board.journal().unwrap();
    let newer = fs::read_to_string(&journal).unwrap().replace("\"journal_version\":1", "\"journal_version\":2");
    fs::write(&journal, &newer).unwrap();
    let refused = board.run(&["restore", "--json"]).expect(1);
    let told: Value = serde_json::from_str(&refused.stdout()).unwrap();
    assert!(told["restored"] == json!([]) && told["failed"][0].as_str().unwrap().contains("version 2"), "{told}");
    assert!(refused.stderr().contains("has version 2, this agent knows 1: use the isotherm that wrote it"), "{}", refused.stderr());
    board.open(&[0]);
    // All jobs are ok; the board is not as it was.
    let ran = board.run(&["run", "c.yaml"]).expect(1);
    assert!(ran.stderr().contains("not given back: the restore journal"), "{}", ran.stderr());
    // Governor and limits are as they were left; nothing is borrowed on top of it, and the record says so.
    assert_eq!((board.steps(), fs::read_to_string(&journal).unwrap()), (vec![vec!["governor skipped".into(), "frequency skipped".into()]], newer));
}
