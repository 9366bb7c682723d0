//! The wire of a board while something is measured there.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use isotherm::digest::sha256_hex;
use serde_json::Value;
use std::fs;

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

/// Of the controller's own machine, as on a board: marks two moments in the window of job 2.
const HERE: &str = "#!/bin/sh
echo begun > window.$1
[ $1 = 2 ] || while [ ! -e gate ]; do sleep 0.01; done
[ $1 = 1 ] || { sleep 3; echo > begun; sleep 2; echo > over; }
";

#[test]
fn while_the_controllers_own_machine_is_measured_no_result_that_it_fetches_comes_any_further() {
    const BULK: u64 = 1_000_000;
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let bulk = format!("[ $1 = 2 ] || {{ head -c {BULK} /dev/zero | tr '\\0' x | tee /dev/stderr; }}");
    rig.bench.lab.write("board/home/workload.sh", format!("{}{bulk}\n", rig.bench.lab.read("board/home/workload.sh")));
    rig.bench.lab.write("workload.sh", HERE);
    rig.campaign_of("board: { ssh: { host: board, config: ssh_config } }, here: { local: {} }", "board");
    let text = rig.bench.lab.read("c.yaml");
    let of_board = text.lines().last().unwrap();
    let of_here = of_board.replace("[board]", "here, prepare: { settle: 5s }");
    rig.bench.lab.write("c.yaml", format!("{text}{of_here}\n"));
    let controller = rig.begin(Some("3600"));
    let is_there = |mark: &str| rig.bench.lab.path(mark).exists().then_some(());
    eventually("both are at work", || is_there("window.1").filter(|()| rig.executions(1) == 1));
    assert!(rig.bench.slow_down("2mbit"), "this kernel has tbf");
    rig.open(1);
    eventually("the board's result waits", || rig.sealed().then_some(()));
    let before = rig.bench.received();
    rig.bench.lab.write("gate", "");
    // It is fetched from one window to the other, and the chunk that is on its way in the second one still comes.
    let received_at = |mark: &str| {
        eventually(mark, || is_there(mark));
        rig.bench.received() - before
    };
    let [begun, over] = ["begun", "over"].map(received_at);
    assert!(begun > 0 && begun < 2 * BULK, "{begun}");
    assert_eq!(begun, over);
    end(controller, 0);
    assert!(rig.bench.received() - before > 2 * BULK);
    assert_eq!((rig.bench.lab.records("c").len(), rig.executions(1)), (4, 1));
    rig.bench.nothing_is_left();
}

#[test]
fn while_the_controllers_own_machine_is_measured_no_model_is_copied_any_further() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    // Its agent first.
    rig.bench.run(&["probe", "c.yaml"]).expect(0);
    assert!(rig.bench.slow_down("2mbit"), "this kernel has tbf");
    let model: Vec<u8> = (0..500_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    rig.bench.lab.write("models/m.bin", &model);
    let window = HERE.replace("$1", "2");
    rig.bench.lab.write("workload.sh", window);
    rig.bench.lab.write("board/home/workload.sh", "#!/bin/sh\nsha256sum < \"$1\"\n");
    let text = "devices: { board: { ssh: { host: board, config: ssh_config } }, here: { local: {} } }
models: { m: { path: models/m.bin, push: true } }
defaults: { retry_contaminated: 0, repetitions: 1, timeout: 60s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: board, backend: command, model: m, argv: [./workload.sh, \"{model.path}\"] }
  - { devices: here, backend: command, argv: [./workload.sh], prepare: { settle: 5s } }
";
    rig.bench.lab.write("c.yaml", text);
    let controller = rig.begin(Some("3600"));
    let part = rig.bench.lab.path(&format!("board/home/.local/state/isotherm/models/{}.part", sha256_hex(&model)));
    let copied_at = |mark: &str| {
        eventually(mark, || rig.bench.lab.path(mark).exists().then_some(()));
        (fs::metadata(&part).map_or(0, |meta| meta.len()), rig.bench.crossed())
    };
    let [begun, over] = ["begun", "over"].map(copied_at);
    assert!((1..model.len() as u64).contains(&begun.0), "{begun:?}");
    assert_eq!(begun, over);
    end(controller, 0);
    let records = rig.bench.lab.records("c");
    let said = records.iter().map(|(_, record)| record["raw"]["stdout"]["head"]["data"].as_str().unwrap_or_default()).collect::<String>();
    assert_eq!((records.len(), said), (2, format!("{}  -\n", sha256_hex(&model))));
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
