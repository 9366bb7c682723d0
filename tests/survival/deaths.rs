//! `kill -9` of each part in the middle of a run, alone and together.

use crate::lab::{eventually, for_each_user, is_root};
use crate::rig::{Rig, end};
use std::fs;
use std::process::{Child, Command};

const KEEPER: &str = " keep --state-dir ";
const SERVE: &str = " serve --nonce ";
const INIT: &str = " init --level ";
const WORKLOAD: &str = "./workload.sh 1";

fn copy(from: &std::path::Path, to: &std::path::Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// End the controller with KILL; its run goes on.
fn kill_controller(rig: &Rig, controller: Child) {
    rig.kill(&[controller.id() as i32]);
    end(controller, None);
}

#[test]
fn a_run_that_ended_while_its_controller_was_dead_is_collected() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        kill_controller(&rig, controller);
        rig.open(1);
        rig.sealed();
        let again = rig.run().expect(0);
        assert!(again.stderr().contains("1 reused"), "{}", again.stderr());
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_run_that_goes_on_while_its_controller_is_dead_is_attached_to() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        kill_controller(&rig, controller);
        let again = rig.lab.start(&["run", "c.yaml"]);
        eventually("it has attached", || (rig.events("attached") == 1).then_some(()));
        rig.open(1);
        end(again, Some(0));
        rig.settled([1, 1], 0);
    });
}

#[test]
fn controllers_that_die_again_and_again_repeat_nothing() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        kill_controller(&rig, controller);
        for n in 1..=3 {
            let controller = rig.lab.start(&["run", "c.yaml"]);
            eventually("it has attached", || (rig.events("attached") == n).then_some(()));
            kill_controller(&rig, controller);
        }
        rig.open(1);
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_keeper_that_dies_with_its_run_costs_a_new_start_and_no_record() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        let old: Vec<i32> = rig.lab.pids_of(INIT).into_iter().chain(rig.lab.pids_of(WORKLOAD)).collect();
        rig.kill(&rig.lab.pids_of(KEEPER));
        rig.executing(1, 2);
        let left = rig.lab.processes();
        assert!(old.iter().all(|pid| !left.contains(pid)), "nothing of the first run when the second starts");
        rig.open(1);
        end(controller, Some(0));
        assert_eq!(rig.events("run_lost"), 1);
        rig.settled([2, 1], 0);
    });
}

#[test]
fn a_keeper_that_dies_between_seal_and_collect_loses_nothing() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        kill_controller(&rig, controller);
        rig.open(1);
        rig.sealed();
        rig.kill(&rig.lab.pids_of(KEEPER));
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_job_whose_keeper_dies_again_and_again_fails_and_the_others_go_on() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        rig.kill(&rig.lab.pids_of(KEEPER));
        rig.executing(1, 2);
        rig.kill(&rig.lab.pids_of(KEEPER));
        let ran = end(controller, Some(1));
        assert!(ran.stdout().contains("its keeper died with it 2 times"), "{}", ran.stdout());
        assert_eq!([rig.executions(1), rig.executions(2)], [2, 1]);
        rig.nothing_is_left();
        rig.open(1);
        rig.run().expect(0);
        rig.settled([3, 1], 1);
    });
}

#[test]
fn an_init_that_dies_fails_its_run_which_the_next_night_repeats() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        // Two of them where there is a PID namespace: outside, and its first process.
        rig.kill(&rig.lab.pids_of(INIT)[..1]);
        end(controller, Some(1));
        rig.nothing_is_left();
        assert_eq!([rig.executions(1), rig.executions(2)], [1, 1]);
        rig.open(1);
        rig.run().expect(0);
        rig.settled([2, 1], 1);
    });
}

#[test]
fn the_first_process_of_a_pid_namespace_that_dies_fails_its_run() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        rig.kill(&rig.lab.pids_of(INIT)[rig.lab.pids_of(INIT).len() - 1..]);
        end(controller, Some(1));
        rig.open(1);
        rig.run().expect(0);
        rig.settled([2, 1], 1);
    });
}

#[test]
fn a_workload_that_is_killed_has_a_record_that_says_so() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        rig.kill(&rig.lab.pids_of(WORKLOAD));
        end(controller, Some(1));
        let failed = rig.lab.records("c").into_iter().find(|(_, r)| r["ids"]["point"]["axes"]["job"] == 1).unwrap().1;
        assert_eq!((&failed["reason"], &failed["raw"]["wait_status"]), (&"signal".into(), &9.into()));
        rig.open(1);
        rig.run().expect(0);
        rig.settled([2, 1], 1);
    });
}

#[test]
fn a_connection_that_dies_is_made_again_and_the_run_is_not_repeated() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        for _ in 0..2 {
            rig.kill(&rig.lab.pids_of(SERVE));
            // Made, or being made: the second time it may die before it has answered.
            eventually("a new connection", || (rig.lab.pids_of(SERVE).len() == 1).then_some(()));
        }
        assert!(rig.events("link_lost") >= 1);
        rig.open(1);
        end(controller, Some(0));
        rig.settled([1, 1], 0);
    });
}

#[test]
fn all_at_once_costs_what_was_executing_and_nothing_else() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.open(1);
        fs::remove_file(rig.lab.path("gate.2")).unwrap();
        let controller = rig.lab.start(&["run", "c.yaml"]);
        rig.executing(2, 1);
        rig.kill(&rig.lab.processes());
        end(controller, None);
        rig.open(2);
        rig.run().expect(0);
        rig.settled([1, 2], 0);
    });
}

#[test]
fn keeper_and_controller_together_cost_the_run() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        rig.kill(&[rig.lab.pids_of(KEEPER), vec![controller.id() as i32]].concat());
        end(controller, None);
        rig.nothing_is_left();
        rig.open(1);
        rig.run().expect(0);
        rig.settled([2, 1], 0);
    });
}

#[test]
fn what_a_keeper_and_its_init_leave_is_ended_before_the_next_run() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        // In a session of its own, so that it doesn't go with the workload.
        let body = "[ $1 = 1 ] && setsid ./workload.sh hidden &\necho $1 >> count\nwhile [ ! -e gate.$1 ]; do sleep 0.01; done\necho done $1";
        rig.lab.write("first.sh", format!("#!/bin/sh\n{body}\n"));
        rig.lab.write("c.yaml", rig.lab.read("c.yaml").replace("./workload.sh", "./first.sh"));
        let controller = rig.start();
        eventually("the hidden one has started", || rig.lab.read("count").contains("hidden").then_some(()));
        let hidden = rig.lab.pids_of("./workload.sh hidden");
        let together = [KEEPER, INIT, "./first.sh 1"].iter().flat_map(|who| rig.lab.pids_of(who)).chain([controller.id() as i32]);
        rig.kill(&together.collect::<Vec<i32>>());
        end(controller, None);
        let again = rig.start();
        let left = rig.lab.processes();
        assert!(hidden.iter().all(|pid| !left.contains(pid)), "{hidden:?} {left:?}");
        rig.open(1);
        end(again, Some(0));
        rig.settled([2, 1], 0);
    });
}

#[test]
fn a_result_whose_record_was_written_and_that_was_not_forgotten_makes_no_second_record() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        kill_controller(&rig, controller);
        rig.open(1);
        let entry = rig.sealed();
        let kept = rig.lab.path("kept");
        copy(&entry, &kept);
        rig.run().expect(0);
        assert!(!entry.exists(), "forgotten");
        // As if the controller had died between the two.
        copy(&kept, &entry);
        let before = rig.lab.records("c");
        rig.run().expect(0);
        assert_eq!(rig.lab.records("c"), before);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_keeper_without_clients_exits_by_itself_and_keeps_the_spool() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let mut command = rig.lab.isotherm(&["run", "c.yaml"]);
        let controller = command.env("ISOTHERM_LINGER_MS", "1").spawn().unwrap();
        rig.executing(1, 1);
        kill_controller(&rig, controller);
        assert_eq!(rig.lab.pids_of(KEEPER).len(), 1, "not while its run goes on");
        rig.open(1);
        rig.nothing_is_left();
        rig.sealed();
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn no_cgroup_is_left_of_a_run_that_was_lost() {
    let rig = Rig::new(crate::lab::User::Caller);
    let controller = rig.start();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", rig.lab.pids_of(WORKLOAD)[0])).unwrap();
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::").filter(|path| path.contains("/isotherm-"))) else {
        eprintln!("skipped: no cgroup of our own can be made here");
        rig.open(1);
        end(controller, Some(0));
        return;
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4)).unwrap();
    let dir = std::path::Path::new(mount).join(group.trim_start_matches('/'));
    assert!(dir.exists());
    rig.kill(&rig.lab.processes());
    end(controller, None);
    rig.open(1);
    rig.run().expect(0);
    assert!(!dir.exists());
    rig.settled([2, 1], 0);
}

#[test]
fn a_whole_pid_namespace_that_ends_with_controller_keeper_and_run_costs_what_was_executing() {
    if !is_root() {
        eprintln!("skipped: making a PID namespace needs root");
        return;
    }
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.open(1);
        fs::remove_file(rig.lab.path("gate.2")).unwrap();
        // As a container that is stopped: with its first process, the controller, the kernel ends everything in it at once.
        let mut command = rig.lab.isotherm_inside(&["unshare", "--pid", "--fork", "--mount-proc"], &["run", "c.yaml"]);
        let mut container = command.spawn().unwrap();
        rig.executing(2, 1);
        rig.kill(&rig.lab.pids_of("isotherm run"));
        container.wait().unwrap();
        rig.nothing_is_left();
        rig.open(2);
        rig.run().expect(0);
        rig.settled([1, 2], 0);
    });
}
