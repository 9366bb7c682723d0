//! A board beside other devices: what happens to one is nobody else's business.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use std::fs;

#[test]
fn while_a_board_is_away_other_devices_go_on() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.bench.lab.write("workload.sh", "#!/bin/sh\necho done $1\n");
    rig.campaign_of("board: { ssh: { host: board, config: ssh_config } }, here: { local: {} }", "board, here");
    let controller = rig.start();
    rig.bench.cut();
    let of_here = || rig.bench.lab.records("c").iter().filter(|(_, record)| record["device"]["id"] == "here").count();
    eventually("the board is away and the other device is through", || (rig.events("link_lost") >= 1 && of_here() == 2).then_some(()));
    rig.open(1);
    rig.bench.mend();
    end(controller, 0);
    assert_eq!(([rig.executions(1), rig.executions(2)], rig.bench.lab.records("c").len()), ([1, 1], 4));
    rig.bench.nothing_is_left();
}

#[test]
fn two_names_of_one_board_take_turns() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.open(1);
    rig.campaign_of("board: &board { ssh: { host: board, config: ssh_config } }, again: *board", "board, again");
    rig.run().expect(0);
    assert_eq!(([rig.executions(1), rig.executions(2)], rig.bench.lab.records("c").len()), ([2, 2], 4));
    // By the clock of the one machine that both are.
    let at = |record: &serde_json::Value, name: &str| record["time"][name].as_u64().unwrap();
    let mut runs: Vec<(u64, u64)> =
        rig.bench.lab.records("c").iter().map(|(_, record)| (at(record, "spawn_monotonic_ns"), at(record, "exit_monotonic_ns"))).collect();
    runs.sort_unstable();
    assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{runs:?}");
    rig.bench.nothing_is_left();
}

#[test]
fn one_that_is_off_takes_nobodys_place() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.bench.lab.write("workload.sh", "#!/bin/sh\necho done $1\n");
    rig.campaign_of("board: { ssh: { host: board, config: ssh_config } }, here: { local: {} }", "board, here");
    rig.bench.cut();
    let ran = rig.bench.run(&["run", "c.yaml", "--jobs", "1"]).expect(1);
    assert_eq!(rig.bench.lab.records("c").len(), 2, "{}", ran.stderr());
    assert!(rig.events("out_of_reach") >= 1 && rig.events("device_failed") == 1, "{}", ran.stderr());
    assert!(ran.stderr().contains("4 jobs: 2 ok · 0 failed · 2 pending"), "{}", ran.stderr());
    nothing_is_left(&rig);
}

#[test]
fn a_group_stays_the_lost_devices_until_its_run_has_ended_and_then_they_go_on_in_turns() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let devices = "board: { ssh: { host: board, config: ssh_config }, resource_group: shelf }, here: { local: {}, resource_group: shelf }";
    rig.bench.lab.write("workload.sh", "#!/bin/sh\necho done $1\n");
    rig.campaign_of(devices, "board, here");
    let controller = rig.start();
    rig.bench.cut();
    // The other one may have had its first turn before.
    let begun = rig.events("started");
    eventually("the board is away for a while", || (rig.events("out_of_reach") >= 3).then_some(()));
    assert_eq!((rig.events("started"), begun < 4), (begun, true), "its run goes on");
    rig.open(1);
    rig.bench.mend();
    end(controller, 0);
    assert_eq!(rig.bench.lab.records("c").len(), 4);
    assert_eq!(rig.events("link_back"), 1);
    nothing_is_left(&rig);
}

/// Of the board's runs, and of those of this machine.
#[track_caller]
fn nothing_is_left(rig: &Rig) {
    rig.bench.nothing_is_left();
    eventually("no process of the lab is left", || rig.bench.lab.processes().is_empty().then_some(()));
}

const EIGHT: [&str; 8] = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7"];

#[test]
fn a_board_that_hangs_delays_none_of_seven_others_and_goes_on_when_it_is_back() {
    let Some(rig) = Rig::of(&EIGHT.map(|name| Setup { name, ..Setup::default() })) else { return };
    let controller = rig.start();
    eventually("all eight are at work at once", || (rig.executions(1) == 8).then_some(()));
    let hung = &rig.bench.boards[3];
    hung.hang();
    rig.open(1);
    let answered = |name: &str| rig.bench.lab.records("c").iter().filter(|(_, record)| record["device"]["id"] == name).count();
    eventually("the others are through", || EIGHT.iter().all(|name| answered(name) == if *name == hung.name { 0 } else { 2 }).then_some(()));
    let lost = || rig.bench.lab.events("c", "link_lost").iter().any(|event| event["device"] == *hung.name);
    eventually("the link to the one that hangs counts as lost", || lost().then_some(()));
    hung.go_on();
    end(controller, 0);
    rig.settled([8, 8], 0);
}

#[test]
fn two_boards_with_one_home_keep_apart_what_is_a_machines() {
    let Some(mut rig) = Rig::of(&["a", "b"].map(|name| Setup { name, home: Some("shared"), ..Setup::default() })) else { return };
    let controller = rig.start();
    eventually("both are at work at once", || (rig.executions(1) == 2).then_some(()));
    assert_eq!(rig.machines().len(), 2);
    rig.bench.boards[0].power_cut();
    rig.bench.boards[0].boot();
    eventually("the job of the one has started again", || (rig.executions(1) == 3).then_some(()));
    assert_eq!(rig.bench.lab.events("c", "link_lost").len(), 1, "the other one goes on");
    rig.open(1);
    end(controller, 0);
    rig.settled([3, 2], 1);
    assert_eq!(rig.machines().len(), 2);
}

#[test]
fn two_boards_of_one_name_with_one_home_may_be_given_their_agent_at_once() {
    let before = "hostname twin; tr -d - < /proc/sys/kernel/random/uuid > /mnt/machine-id; mount --bind /mnt/machine-id /etc/machine-id";
    let Some(rig) = Rig::of(&["a", "b"].map(|name| Setup { name, home: Some("shared"), before, ..Setup::default() })) else { return };
    if !rig.bench.boards.iter().all(|board| board.slow_down("8mbit")) {
        return eprintln!("skipped: a slow wire (no tbf in this kernel)");
    }
    rig.open(1);
    let controller = rig.begin(None);
    let installed = || {
        let entries = fs::read_dir(rig.bench.lab.path("shared/.cache/isotherm")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    eventually("two copies are on their way", || (installed().iter().filter(|name| name.contains(".new.")).count() == 2).then_some(()));
    end(controller, 0);
    rig.settled([2, 2], 0);
    // Nobody had to go elsewhere.
    assert!(matches!(&installed()[..], [agent] if agent.starts_with("isotherm-agent-")), "{:?}", installed());
    for name in ["a", "b"] {
        assert!(!rig.bench.lab.path(&format!("{name}/tmp/isotherm-0")).exists());
    }
}

#[test]
fn a_board_that_another_directorys_campaign_holds_is_refused_with_its_holder_and_let_in_to_when_that_is_over() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let theirs = rig.start();
    let pid = format!(" pid {})", theirs.id());
    rig.bench.lab.write("ours.yaml", rig.bench.lab.read("c.yaml"));
    for args in [&["run", "ours.yaml"][..], &["run", "c.yaml", "--results", "elsewhere"]] {
        let refused = rig.bench.run(args).expect(4).stderr();
        assert!(refused.contains("device `board` is held by campaign `c` (tester@") && refused.contains(&pid), "{pid}: {refused}");
    }
    assert_eq!(([rig.executions(1), rig.executions(2)], rig.events("link_lost")), ([1, 0], 0));
    rig.open(1);
    end(theirs, 0);
    rig.settled([1, 1], 0);
    rig.bench.run(&["run", "ours.yaml"]).expect(0);
    rig.bench.lab.answered("ours", &["board"], 2, 0);
    rig.bench.nothing_is_left();
}
