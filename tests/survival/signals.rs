//! What a person does to a controller: Ctrl-C once, twice, three times; a terminal that goes; a second controller.

use crate::lab::{eventually, for_each_user};
use crate::rig::{Rig, end, signal};
use std::process::Child;

/// Press Ctrl-C, the n-th time; false if the controller was gone already.
#[track_caller]
fn interrupt(rig: &Rig, controller: &mut Child, n: usize) -> bool {
    signal(&[controller.id() as i32], libc::SIGINT);
    eventually("it was heard", || (rig.events("stopping") == n || controller.try_wait().unwrap().is_some()).then_some(()));
    rig.events("stopping") == n
}

#[test]
fn the_first_ctrl_c_waits_for_the_running_job_and_starts_no_other() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let mut controller = rig.start();
        assert!(interrupt(&rig, &mut controller, 1));
        rig.open(1);
        let ran = end(controller, Some(130));
        assert!(ran.stderr().contains("no new jobs"), "{}", ran.stderr());
        assert_eq!((rig.executions(1), rig.executions(2), rig.lab.records("c").len()), (1, 0, 1));
        rig.nothing_is_left();
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn the_second_ctrl_c_leaves_the_running_job_to_its_device() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let mut controller = rig.start();
        assert!(interrupt(&rig, &mut controller, 1));
        // One that comes while it does something else than waiting ends it at once, without a word in the journal.
        interrupt(&rig, &mut controller, 2);
        end(controller, Some(130));
        assert!(rig.lab.records("c").is_empty());
        assert_eq!(rig.lab.pids_of("./workload.sh 1").len(), 1, "it goes on");
        rig.open(1);
        rig.sealed();
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn the_third_ctrl_c_cancels_the_running_job_and_gives_the_device_back() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        // It has to come within two seconds of the second. On a machine that stood still meanwhile, it is tried again.
        let mut cancelled = false;
        for earlier in 0..5 {
            let heard = rig.events("stopping");
            let mut controller = rig.lab.start(&["run", "c.yaml"]);
            eventually("it waits for job 1", || (rig.events("started") + rig.events("attached") > earlier).then_some(()));
            rig.executing(1, 1);
            cancelled = (1..=3).all(|n| interrupt(&rig, &mut controller, heard + n));
            end(controller, Some(130));
            if cancelled {
                break;
            }
        }
        assert!(cancelled);
        let record = &rig.lab.records("c")[0].1;
        assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"interrupted".into()), "{record}");
        assert_eq!((rig.executions(1), rig.executions(2)), (1, 0));
        rig.nothing_is_left();
        rig.open(1);
        rig.run().expect(0);
        rig.settled([2, 1], 1);
    });
}

#[test]
fn term_and_hangup_detach() {
    for_each_user(|user| {
        for (which, code) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
            let rig = Rig::new(user);
            let controller = rig.start();
            signal(&[controller.id() as i32], which);
            end(controller, Some(code));
            assert!(rig.lab.records("c").is_empty());
            rig.open(1);
            rig.run().expect(0);
            rig.settled([1, 1], 0);
        }
    });
}

#[test]
fn a_second_controller_of_the_same_campaign_is_told_about_the_first() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        let second = rig.run().expect(4);
        assert!(second.stderr().contains(&format!("pid {}", controller.id())), "{}", second.stderr());
        rig.open(1);
        end(controller, Some(0));
        rig.settled([1, 1], 0);
    });
}

#[test]
fn controllers_that_start_at_the_same_moment_do_each_job_once() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.open(1);
        let all: Vec<Child> = (0..4).map(|_| rig.lab.start(&["run", "c.yaml"])).collect();
        let codes: Vec<Option<i32>> = all.into_iter().map(|c| crate::lab::Ran::of(c).code()).collect();
        assert!(codes.contains(&Some(0)) && codes.iter().all(|c| matches!(c, Some(0 | 4))), "{codes:?}");
        rig.settled([1, 1], 0);
    });
}
