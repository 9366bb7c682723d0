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
