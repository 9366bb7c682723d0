//! A board beside other devices: what happens to one is nobody else's business.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};

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
}
