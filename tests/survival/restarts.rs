//! A device that is started anew in the middle of a run: everything on it has ended, and its boot id is another one.
//!
//! The boot id of this machine is laid over by a file of the lab, in a mount namespace of the controller and what it starts.

use crate::lab::{Ran, User, for_each_user, is_root};
use crate::rig::{Rig, end};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::process::{Child, Stdio};

struct Board {
    rig: Rig,
}

impl Board {
    fn new(user: User) -> Board {
        let board = Board { rig: Rig::new(user) };
        board.rig.lab.write("boot_id", "00000000-0000-4000-8000-000000000001\n");
        board
    }

    /// From now on this is the boot with this number.
    fn boot(&self, number: u32) {
        // In place: it is this file that lies over the kernel's, and it is never half written.
        let mut file = File::options().write(true).open(self.rig.lab.path("boot_id")).unwrap();
        file.write_all(format!("00000000-0000-4000-8000-{number:012}\n").as_bytes()).unwrap();
    }

    fn start(&self, args: &[&str]) -> Child {
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let boot_id = self.rig.lab.path("boot_id").display().to_string();
        let mut command = self.rig.lab.isotherm_inside(&["unshare", "--mount", "sh", "-c", script, &boot_id], args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Start a night, which executes job 1 for the `n`th time when this returns.
    fn night(&self, n: usize) -> Child {
        let controller = self.start(&["run", "c.yaml"]);
        self.rig.executing(1, n);
        controller
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.start(args))
    }

    /// Everything on the board ends at once; the next boot has this number.
    fn cut_power(&self, controller: &Child, next: u32) {
        let own = controller.id() as i32;
        let pids: Vec<i32> = self.rig.lab.processes().into_iter().filter(|pid| *pid != own).collect();
        self.boot(next);
        self.rig.kill(&pids);
    }

    /// Status, reason and whether it is said that the device was started anew, of the records of a job, attempts first.
    fn records_of(&self, job: u32) -> Vec<(String, Value, bool)> {
        let records = self.rig.lab.records("c").into_iter().map(|(_, record)| record);
        let mut records: Vec<Value> = records.filter(|record| record["ids"]["point"]["axes"]["job"] == job).collect();
        records.sort_by_key(|record| record["ids"]["attempt"].as_u64());
        let restarted = |record: &Value| record["issues"].as_array().unwrap().iter().any(|issue| issue["code"] == "device_restarted");
        records.iter().map(|record| (record["status"].as_str().unwrap().into(), record["reason"].clone(), restarted(record))).collect()
    }
}

/// For root, who may lay a file over the kernel's, and as an ordinary user inside of that.
fn on_boards(test: impl Fn(&Board) + Sync) {
    if !is_root() {
        eprintln!("skipped: laying a file over the boot id needs root");
        return;
    }
    for_each_user(|user| test(&Board::new(user)));
}

fn interrupted() -> (String, Value, bool) {
    ("failed".into(), "interrupted".into(), true)
}

fn ok() -> (String, Value, bool) {
    ("ok".into(), Value::Null, false)
}

#[test]
fn a_controller_that_goes_down_with_its_device_finds_an_attempt_and_tries_again() {
    on_boards(|board| {
        let controller = board.night(1);
        // First, so that it doesn't come back to its device in between.
        board.rig.kill(&[controller.id() as i32]);
        board.cut_power(&controller, 2);
        end(controller, None);
        board.rig.open(1);
        let again = board.run(&["run", "c.yaml"]).expect(0);
        assert!(again.stderr().contains("left no result: the device was started anew during it"), "{}", again.stderr());
        assert_eq!(board.records_of(1), [interrupted(), ok()]);
        board.rig.settled([2, 1], 1);
    });
}

#[test]
fn a_controller_that_outlives_its_device_tries_again_by_itself() {
    on_boards(|board| {
        let controller = board.night(1);
        board.cut_power(&controller, 2);
        board.rig.executing(1, 2);
        board.rig.open(1);
        end(controller, Some(0));
        assert_eq!(board.records_of(1), [interrupted(), ok()]);
        board.rig.settled([2, 1], 1);
    });
}

#[test]
fn a_run_that_takes_its_device_down_twice_is_left_alone_and_so_are_the_larger_ones() {
    on_boards(|board| {
        let text = board.rig.lab.read("c.yaml").replace("backend: command,", "backend: command, dominance: { axis: job, on: oom },");
        board.rig.lab.write("c.yaml", text);
        let controller = board.night(1);
        board.cut_power(&controller, 2);
        board.rig.executing(1, 2);
        board.cut_power(&controller, 3);
        let ran = end(controller, Some(1));
        assert!(ran.stdout().contains("the device was started anew during it, for the second time"), "{}", ran.stdout());
        let lost = ("failed".into(), "device_lost".into(), true);
        assert_eq!(board.records_of(1), [interrupted(), lost]);
        assert_eq!(board.records_of(2), [("skipped".into(), "dominated".into(), false)]);
        // Not by itself, also in another night.
        board.rig.open(1);
        board.run(&["run", "c.yaml"]).expect(1);
        assert_eq!(board.rig.executions(1), 2);
        board.run(&["run", "c.yaml", "--rerun", "job=1", "--rerun", "job=2"]).expect(0);
        // Beside the two answers: both attempts of the first job, and that the second was skipped.
        board.rig.settled([3, 1], 3);
    });
}

#[test]
fn a_result_that_was_sealed_before_the_device_went_down_is_collected() {
    on_boards(|board| {
        let controller = board.night(1);
        board.rig.kill(&[controller.id() as i32]);
        end(controller, None);
        board.rig.open(1);
        board.rig.sealed();
        board.boot(2);
        board.rig.kill(&board.rig.lab.processes());
        board.run(&["run", "c.yaml"]).expect(0);
        assert_eq!(board.records_of(1), [ok()]);
        board.rig.settled([1, 1], 0);
    });
}
