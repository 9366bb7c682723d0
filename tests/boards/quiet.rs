//! The wire of a board while something is measured there.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};

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
