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
    eventually("the board is away and the other device is through", || (rig.events("link_lost") == 1 && of_here() == 2).then_some(()));
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
    assert_eq!(rig.events("same_machine"), 1);
    rig.bench.nothing_is_left();
}
