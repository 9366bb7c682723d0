//! What reading an instrument often does to what it says, and what `power: auto` makes of that.

use crate::bench::{Bench, capability};
use crate::board::Board;
use crate::lab::{Lab, User, eventually, for_each_user, spawn};
use crate::nights::{asks_for, metered, names};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const GPU: &str = "gpu.GPU-5b3c7f00.energy";
const BOTH_KINDS: [&str; 4] = ["power-r0.json", "power-r1.json", "timing-r0.json", "timing-r1.json"];

/// How often a campaign had to find out.
fn polled(lab: &Lab) -> usize {
    lab.events("c", "polling").len()
}

#[test]
fn an_instrument_that_says_more_when_it_is_read_often_is_found_out_and_has_runs_of_its_own() {
    let bench = Bench::new(User::Caller);
    bench.says(&["energy 10 W, 12 W polled"]);
    let probe: Value = serde_json::from_str(&bench.run(&["probe", "--json"]).expect(0).stdout()).unwrap();
    let found = &capability(&probe, GPU)["found"]["present"];
    assert_eq!((&found["polled"]["hz"], &found["polling"]["verdict"]), (&10.0.into(), &"shift".into()), "{found:#}");
    // A machine that is held up reads less often than it means to.
    let pct = found["polling"]["median_pct"].as_f64().unwrap();
    assert!((2.0..25.0).contains(&pct), "{found:#}");

    bench.lab.write("end", "");
    bench.lab.write("c.yaml", bench.lab.read("c.yaml").replace("power: together", "power: auto").replace("repetitions: 1", "repetitions: 2"));
    bench.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(names(&bench.lab), BOTH_KINDS);
    let planned = bench.run(&["plan", "c.yaml"]).expect(0).stdout();
    let report: Value = serde_json::from_slice(&fs::read(bench.lab.results("c").join("devices/here.json")).unwrap()).unwrap();
    let is_it = |one: &&Value| one["id"] == GPU;
    let polled = &report["instruments"].as_array().unwrap().iter().find(is_it).unwrap()["found"]["present"]["polled"];
    match planned.contains("power runs of their own: its instruments take ") {
        // Its machine was too busy to read it within a millisecond, and that was enough.
        true => assert!(polled.is_null(), "{planned}"),
        false => {
            assert!(polled["hz"] == 50.0 && planned.contains("power runs of their own: GPU-5b3c7f00: read 50 times a second it says "), "{planned}")
        }
    }
}

/// While this is done, the board's monitor says something new every so often, by small steps.
fn lively<T>(board: &Board, during: impl FnOnce() -> T) -> T {
    board.set("class/hwmon/hwmon0/update_interval", "100");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for microwatts in [6_000_000, 6_010_000, 6_020_000].into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                board.set("class/hwmon/hwmon0/power1_input", &microwatts.to_string());
                thread::sleep(Duration::from_millis(37));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        is_over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

#[test]
fn one_that_keeps_up_and_says_the_same_is_read_in_timing_runs() {
    for_each_user(|user| {
        let Some(board) = metered(user, "auto") else { return };
        lively(&board, || are_read_in_timing_runs(&board));
    });
}

fn are_read_in_timing_runs(board: &Board) {
    let planned = board.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(planned.contains("in these runs, in runs of their own or not at all is not known yet"), "{planned}");
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(names(&board.lab), BOTH_KINDS[2..]);
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(polled(&board.lab), 1, "what was found at first contact holds");
    let probed = board.run(&["probe"]).expect(0).stdout();
    assert!(probed.contains(" W, read 10 times a second it says the same ("), "{probed}");
}

#[test]
fn what_a_faster_block_finds_out_leaves_the_records_of_a_slower_one_alone() {
    let Some(board) = metered(User::Caller, "auto") else { return };
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("sample_hz: 50", "sample_hz: 10"));
    lively(&board, || board.run(&["run", "c.yaml"]).expect(0));
    let slower: Vec<_> = names(&board.lab);
    assert_eq!(slower, BOTH_KINDS[2..]);
    // It stands still from now on, and can't tell.
    let block = "  - { devices: here, backend: command, argv: [./workload.sh], params: { how: fast }, measure: { power: auto, sample_hz: 50 } }\n";
    board.lab.write("c.yaml", board.lab.read("c.yaml") + block);
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((polled(&board.lab), names(&board.lab).len()), (2, 2 + 4), "{:?}", names(&board.lab));
    let planned = board.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(planned.contains("6 reused   nothing to do"), "{planned}");
}

#[test]
fn instruments_are_polled_once_the_run_of_an_earlier_controller_is_over() {
    let Some(board) = metered(User::Caller, "off") else { return };
    board.lab.write("workload.sh", "#!/bin/sh\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\n");
    let mut controller = spawn(&mut board.inside(&["run", "c.yaml"]));
    eventually("the workload runs", || board.lab.path("started").exists().then_some(()));
    controller.kill().unwrap();
    controller.wait().unwrap();
    asks_for(&board, "auto");
    let next = spawn(&mut board.inside(&["run", "c.yaml"]));
    let journal = || fs::read_to_string(board.lab.results("c").join("journal.ndjson")).unwrap();
    let at = |event: &str| journal().lines().position(|line| line.contains(&format!(r#""event":"{event}""#)));
    eventually("it is waited for", || at("attached"));
    assert_eq!(at("polling"), None);
    board.lab.write("end", "");
    crate::lab::Ran::of(next).expect(0);
    assert!(at("polling") > at("attached"));
    let report: Value = serde_json::from_slice(&fs::read(board.lab.results("c").join("devices/here.json")).unwrap()).unwrap();
    assert!(report["instruments"].as_array().unwrap().iter().any(|one| one["found"]["present"]["polled"]["hz"] == 50.0), "{report:#}");
}

#[test]
fn one_that_can_not_tell_has_runs_of_its_own() {
    let Some(board) = metered(User::Caller, "auto") else { return };
    let why = || board.run(&["plan", "c.yaml"]).expect(0).stdout();
    // Whether it stands still or says the same again and again.
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((names(&board.lab), polled(&board.lab)), (BOTH_KINDS.map(String::from).to_vec(), 1));
    assert!(why().contains("ina226 VDD_IN: whether reading it often changes it can't be told: it said something new in 0 of "), "{}", why());
    // For one that is known to be slow nobody has to wait.
    board.set("class/hwmon/hwmon0/update_interval", "1000");
    fs::remove_dir_all(board.lab.results("c")).unwrap();
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((names(&board.lab), polled(&board.lab)), (BOTH_KINDS.map(String::from).to_vec(), 0));
    assert!(why().contains("what it says may be 1000 ms old, too much for slices of 500 ms"), "{}", why());
}
