//! What reading an instrument often does to what it says, and what `power: auto` makes of that.

use crate::bench::{Bench, capability};
use crate::lab::{Lab, User, for_each_user};
use crate::nights::{metered, names};
use serde_json::Value;
use std::fs;

const GPU: &str = "gpu.GPU-5b3c7f00.energy";
const BOTH_KINDS: [&str; 4] = ["power-r0.json", "power-r1.json", "timing-r0.json", "timing-r1.json"];

/// How often a campaign had to find out.
fn polled(lab: &Lab) -> usize {
    let journal = fs::read_to_string(lab.results("c").join("journal.ndjson")).unwrap();
    journal.lines().filter(|line| line.contains(r#""event":"polling""#)).count()
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

#[test]
fn one_that_keeps_up_and_says_the_same_is_read_in_timing_runs() {
    for_each_user(|user| {
        let Some(board) = metered(user, "auto") else { return };
        board.set("class/hwmon/hwmon0/update_interval", "100");
        let planned = board.run(&["plan", "c.yaml"]).expect(0).stdout();
        assert!(planned.contains("in these runs, in runs of their own or not at all is not known yet"), "{planned}");
        board.run(&["run", "c.yaml"]).expect(0);
        assert_eq!(names(&board.lab), BOTH_KINDS[2..]);
        board.run(&["run", "c.yaml"]).expect(0);
        assert_eq!(polled(&board.lab), 1, "what was found at first contact holds");
        let probed = board.run(&["probe"]).expect(0).stdout();
        assert!(probed.contains("6.00 W, read 10 times a second it says the same (+0.0 … +0.0 %)"), "{probed}");
    });
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
