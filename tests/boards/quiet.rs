//! The wire of a board while something is measured there.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use serde_json::Value;

/// Marks two moments in its window, seconds apart and well behind its start, and goes on when it may.
const WORKLOAD: &str = "#!/bin/sh
[ $1 = 2 ] || { echo 1 >> count; sleep 1; echo > begun; sleep 3; echo > over; while [ ! -e gate.1 ]; do sleep 0.01; done; }
echo done $1
";

#[test]
fn nothing_crosses_the_wire_while_a_run_is_in_its_window() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.bench.lab.write("board/home/workload.sh", WORKLOAD);
    // ssh itself asks nothing for an hour.
    let controller = rig.begin(Some("3600"));
    let crossed_at = |mark: &str| {
        eventually(mark, || rig.bench.lab.path(&format!("board/home/{mark}")).exists().then_some(()));
        rig.bench.crossed()
    };
    let [begun, over] = ["begun", "over"].map(crossed_at);
    assert_eq!(begun, over);
    rig.open(1);
    end(controller, 0);
    assert!(rig.bench.crossed() > over);
    rig.bench.lab.answered("c", &["board"], 2, 0);
    rig.bench.nothing_is_left();
}

#[test]
fn a_record_says_how_many_packets_the_boards_links_have_carried_whoever_sent_them() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let sends = "#!/bin/bash\n[ $1 = 1 ] || for i in {1..200}; do echo > /dev/udp/10.79.0.1/9; done\necho done $1\n";
    rig.bench.lab.write("board/home/workload.sh", sends);
    end(rig.begin(Some("3600")), 0);
    let [silent, talks] = &rig.bench.lab.answered("c", &["board"], 2, 0)[..] else { panic!() };
    let packets = |record: &Value| record["observer"]["link_packets"].as_u64().unwrap();
    assert!(packets(silent) < 20 && packets(talks) >= 200, "{} {}", packets(silent), packets(talks));
}
