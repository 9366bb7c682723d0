//! Nights with timing and power runs.

use crate::board::Board;
use crate::held::reading;
use crate::lab::{Lab, Ran, User, eventually, for_each_user};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const METER: &str = "class/hwmon/hwmon0/power1_input";

/// A board whose only energy instrument is a monitor of its input, with two repetitions of a short workload.
pub fn metered(user: User, power: &str) -> Option<Board> {
    let board = unmetered(user, power)?;
    fs::remove_file(board.lab.path("sys/class/hwmon")).unwrap();
    for (file, text) in [("name", "ina226"), ("power1_label", "VDD_IN"), ("power1_input", "6000000")] {
        board.set(&format!("class/hwmon/hwmon0/{file}"), text);
    }
    Some(board)
}

/// Likewise, without any instrument: what this machine has is hidden.
fn unmetered(user: User, power: &str) -> Option<Board> {
    let board = Board::new(user)?;
    for dir in ["class/powercap", "class/hwmon", "bus/iio"] {
        board.lab.write(&format!("sys/{dir}"), "");
    }
    board.lab.write("workload.sh", "#!/bin/sh\necho >> started\nsleep 0.2\n");
    asks_for(&board, power);
    let campaign = board.lab.read("c.yaml").replace("repetitions: 1", "repetitions: 2");
    board.lab.write("c.yaml", campaign);
    Some(board)
}

/// From now on the campaign wants this.
pub fn asks_for(board: &Board, power: &str) {
    let campaign = board.lab.read("c.yaml");
    let from = campaign.find("measure: {").unwrap();
    // To the end of the map of defaults.
    let to = from + campaign[from..].find('\n').unwrap();
    board.lab.write("c.yaml", format!("{}measure: {{ sample_hz: 50, power: {power} }} }}{}", &campaign[..from], &campaign[to..]));
}

/// Names of the records, sorted.
pub fn names(lab: &Lab) -> Vec<String> {
    let mut names: Vec<String> = lab.records("c").iter().map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// `kind-repetition` of every run that was started, in order.
fn started(lab: &Lab) -> Vec<String> {
    let starts = lab.events("c", "started").into_iter();
    starts.map(|event| format!("{}-r{}", event["kind"].as_str().unwrap(), event["repetition"])).collect()
}

fn runs(lab: &Lab) -> usize {
    lab.read("started").lines().count()
}

#[test]
fn split_has_a_power_run_after_each_timing_run_and_only_that_one_reads_instruments() {
    for_each_user(|user| {
        let Some(board) = metered(user, "split") else { return };
        let planned = board.run(&["plan", "c.yaml"]).expect(0).stdout();
        assert!(planned.starts_with("c: 1 point, 2 timing + 2 power runs on 1 device\n"), "{planned}");
        assert!(planned.contains("whether it has an energy instrument, and so power runs, is not known yet"), "{planned}");
        let ran = board.run(&["run", "c.yaml"]).expect(0);
        assert!(ran.stdout().contains("r0 power"), "{}", ran.stdout());
        assert_eq!(started(&board.lab), ["timing-r0", "power-r0", "timing-r1", "power-r1"]);
        assert_eq!(names(&board.lab), ["power-r0.json", "power-r1.json", "timing-r0.json", "timing-r1.json"]);
        for (_, record) in board.lab.records("c") {
            let is_power = record["ids"]["kind"] == "power";
            let columns = record["samples"]["inline"]["columns"].as_array().unwrap();
            assert_eq!(columns.iter().any(|column| column["metric"] == "sensor_power_w"), is_power);
            for when in ["before", "after"] {
                let energy = reading(&record["context"][when], "sensor_power_w", "ina226 VDD_IN");
                assert_eq!(energy["value"].is_number(), is_power, "{energy}");
                assert_eq!(energy["absent"].is_string(), !is_power, "{energy}");
            }
        }
        let hashes: Vec<Value> = board.lab.records("c").iter().map(|(_, record)| record["ids"]["point_identity"].clone()).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "the kind is beside the identity");
        board.run(&["status", "results/c"]).expect(0);
        let again = board.run(&["run", "c.yaml"]).expect(0);
        assert!(again.stderr().contains("4 reused"), "{}", again.stderr());
        assert_eq!(runs(&board.lab), 4);
    });
}

#[test]
fn a_device_without_an_instrument_has_no_power_runs_and_says_so() {
    let Some(board) = unmetered(User::Caller, "split") else { return };
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains("device `here` has no energy instrument that can be read"), "{}", ran.stderr());
    assert!(ran.stderr().contains(": no power runs"), "{}", ran.stderr());
    assert_eq!(names(&board.lab), ["timing-r0.json", "timing-r1.json"]);
    let planned = board.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(planned.starts_with("c: 1 point, 2 runs on 1 device\n") && planned.contains(": no power runs"), "{planned}");
    board.run(&["status", "results/c"]).expect(0);
}

#[test]
fn where_power_runs_are_all_that_is_asked_for_a_device_without_an_instrument_fails_them() {
    let Some(board) = unmetered(User::Caller, "only") else { return };
    let ran = board.run(&["run", "c.yaml"]).expect(1);
    assert!(ran.stderr().contains("its power runs will fail"), "{}", ran.stderr());
    assert_eq!((names(&board.lab), runs(&board.lab)), (vec!["power-r0.json".into(), "power-r1.json".into()], 0));
    for (_, record) in board.lab.records("c") {
        assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"precondition".into()));
        assert!(record["message"].as_str().unwrap().starts_with("no energy instrument can be read here"), "{record}");
    }
}

#[test]
fn power_runs_are_added_to_timing_runs_that_are_there_and_no_run_is_lost_without_them() {
    let Some(board) = metered(User::Caller, "off") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    asks_for(&board, "split");
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains("2 reused · 2 new"), "{}", ran.stderr());
    assert_eq!(started(&board.lab), ["timing-r0", "timing-r1", "power-r0", "power-r1"]);
    asks_for(&board, "only");
    board.run(&["run", "c.yaml"]).expect(0);
    asks_for(&board, "off");
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((runs(&board.lab), names(&board.lab).len()), (4, 4));
}

#[test]
fn a_timing_run_in_which_instruments_are_read_is_another_one() {
    let Some(board) = metered(User::Caller, "off") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    asks_for(&board, "together");
    let ran = board.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains("power changed (none → \"together\")"), "{}", ran.stderr());
    assert_eq!(names(&board.lab), ["timing-r0.json", "timing-r1.json"]);
    for (_, record) in board.lab.records("c") {
        assert!(reading(&record["context"]["before"], "sensor_power_w", "ina226 VDD_IN")["value"].is_number());
    }
}

#[test]
fn a_power_run_that_failed_is_tried_again_and_leaves_timing_runs_alone() {
    let Some(board) = metered(User::Caller, "split") else { return };
    // The second run is the first power run.
    board.lab.write("workload.sh", "#!/bin/sh\necho >> started\nsleep 0.2\n[ $(grep -c '' started) -ne 2 ]\n");
    let ran = board.run(&["run", "c.yaml"]).expect(1);
    assert!(ran.stderr().contains("4 jobs: 3 ok · 1 failed"), "{}", ran.stderr());
    assert!(ran.stderr().contains("command power: exit_code (r0)"), "{}", ran.stderr());
    let status = board.run(&["status", "results/c"]).expect(1).stdout();
    assert!(status.contains("timing") && status.contains("✓✓") && status.contains("✗✓"), "{status}");
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(started(&board.lab)[4..], ["power-r0"]);
    let expected = ["power-r0.attempt0.json", "power-r0.json", "power-r1.json", "timing-r0.json", "timing-r1.json"];
    assert_eq!(names(&board.lab), expected);
}

#[test]
fn kinds_of_run_can_be_picked() {
    let Some(board) = metered(User::Caller, "split") else { return };
    board.run(&["run", "c.yaml", "--filter", "kind=power"]).expect(0);
    assert_eq!(names(&board.lab), ["power-r0.json", "power-r1.json"]);
    board.run(&["run", "c.yaml"]).expect(0);
    board.run(&["run", "c.yaml", "--rerun", "kind=power,repetition=1"]).expect(0);
    assert_eq!(started(&board.lab)[4..], ["power-r1"]);
    let unknown = board.run(&["run", "c.yaml", "--filter", "kind=placement"]).expect(2).stderr();
    assert!(unknown.contains("its values are power, timing"), "{unknown}");
}

#[test]
fn a_power_run_outlives_its_controller_and_is_collected_as_what_it_is() {
    for_each_user(|user| {
        let Some(board) = metered(user, "split") else { return };
        board.lab.write(
            "workload.sh",
            "#!/bin/sh\necho >> started\nsleep 0.2\nwhile [ $(grep -c '' started) -eq 2 ] && [ ! -e end ]; do sleep 0.01; done\n",
        );
        let mut controller = board.start(&["run", "c.yaml"]);
        eventually("the power run runs", || (runs(&board.lab) == 2).then_some(()));
        controller.kill().unwrap();
        controller.wait().unwrap();
        board.lab.write("end", "");
        let ran = board.run(&["run", "c.yaml"]).expect(0);
        assert!(ran.stderr().contains("command r0 power"), "{}", ran.stderr());
        assert_eq!((runs(&board.lab), names(&board.lab).len()), (4, 4));
    });
}

#[test]
fn an_instrument_that_may_not_be_read_any_more_fails_its_power_runs_and_nothing_else() {
    let Some(board) = metered(User::Ordinary, "split") else { return };
    board.run(&["run", "c.yaml"]).expect(0);
    fs::set_permissions(board.lab.path(&format!("sys/{METER}")), fs::Permissions::from_mode(0o000)).unwrap();
    for (path, record) in board.lab.records("c") {
        if record["ids"]["repetition"] == 1 {
            fs::remove_file(path).unwrap();
        }
    }
    let ran: Ran = board.run(&["run", "c.yaml"]).expect(1);
    assert!(ran.stderr().contains("4 jobs: 3 ok · 1 failed"), "{}", ran.stderr());
    let (_, failed) = board.lab.records("c").into_iter().find(|(_, record)| record["status"] == "failed").unwrap();
    assert_eq!((&failed["ids"]["kind"], &failed["reason"]), (&"power".into(), &"precondition".into()));
    assert!(failed["message"].as_str().unwrap().contains("ina226 VDD_IN: Permission denied"), "{}", failed["message"]);
}

/// Builtin inference in place of the workload.
fn inference(window: &str) -> Option<Board> {
    let board = metered(User::Caller, "split")?;
    let model = fs::read(format!("{}/configs/models/tiny-cnn.onnx", env!("CARGO_MANIFEST_DIR"))).unwrap();
    board.lab.write("m.onnx", model);
    let block = "matrix:\n  - { devices: here, backend: builtin, model: m, rounds: 2, iterations: 3, cooldown: 1ms }\n";
    let campaign = board.lab.read("c.yaml");
    let (head, _) = campaign.split_once("matrix:").unwrap();
    board.lab.write("c.yaml", format!("{head}models: {{ m: {{ path: m.onnx }} }}\n{block}"));
    asks_for(&board, &format!("split, window: {{ {window} }}"));
    Some(board)
}

/// Inferences of the power runs, and what was asked of them.
#[track_caller]
fn windows(board: &Board) -> Vec<(usize, Value)> {
    let stands = |path: &Path| !path.display().to_string().contains(".attempt");
    let records = board.lab.records("c").into_iter().filter(|(path, _)| stands(path)).map(|(_, record)| record);
    let power = records.filter(|record| record["ids"]["kind"] == "power");
    let window = |record: Value| {
        let rounds = record["iterations"]["rounds_ns"].as_array().unwrap();
        assert_eq!(rounds.len(), 1, "one stretch without a pause");
        (rounds[0].as_array().unwrap().len(), record["requested"].clone())
    };
    power.map(window).collect()
}

#[test]
fn a_power_run_has_as_many_inferences_as_fill_its_window() {
    let Some(board) = inference("target: 1ms, min: 7, max: 7") else { return };
    // Too short for any energy, and no run that is as short has more.
    board.run(&["run", "c.yaml"]).expect(0);
    let again = board.run(&["run", "c.yaml"]).expect(0);
    assert!(again.stderr().contains("4 reused"), "{}", again.stderr());
    for (inferences, requested) in windows(&board) {
        assert_eq!((inferences, &requested["window"]), (7, &serde_json::json!({ "target_ms": 1, "min": 7, "max": 7 })));
        // Told from the warm-up, of which there is one where the campaign wants none.
        assert_eq!(requested["warmup"], 3);
    }
    // Timing runs are as they always are.
    let (_, timing) = board.lab.records("c").into_iter().find(|(_, record)| record["ids"]["kind"] == "timing").unwrap();
    assert_eq!((&timing["requested"]["window"], &timing["requested"]["rounds"]), (&Value::Null, &2.into()));

    // Another window concerns power runs alone.
    asks_for(&board, "split, window: { mode: fixed }");
    let ran = board.run(&["run", "c.yaml"]);
    assert!(ran.stderr().contains("2 jobs: window changed ({\"target_ms\":1,\"min\":7,\"max\":7} → fixed)"), "{}", ran.stderr());
    assert_eq!(started(&board.lab)[4..], ["power-r0", "power-r1"]);
    assert!(windows(&board).iter().all(|(inferences, requested)| *inferences == 6 && requested["window"].is_null()));
}

#[test]
fn a_power_run_is_long_enough_for_an_instrument_that_is_slow_and_is_not_made_again_for_a_faster_one() {
    // As long as seven inferences are, whatever the window.
    let Some(board) = inference("min: 7, max: 7") else { return };
    let every_ms = |period: &str| _ = board.set("class/hwmon/hwmon0/update_interval", period);
    let targets = || windows(&board).iter().map(|(_, requested)| requested["window"]["target_ms"].clone()).collect::<Vec<_>>();
    every_ms("1000");
    board.run(&["run", "c.yaml"]);
    assert_eq!(targets(), [20_000, 20_000], "2 s of samples, 5 s at least");
    every_ms("3000");
    let ran = board.run(&["run", "c.yaml"]);
    assert!(ran.stderr().contains("2 jobs: window changed ({\"target_ms\":20000"), "{}", ran.stderr());
    assert_eq!((targets(), started(&board.lab).len()), (vec![30_000.into(), 30_000.into()], 6), "half of the time that a run has");
    every_ms("100");
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(started(&board.lab).len(), 6);
}

#[test]
fn energy_per_inference_is_joined_from_both_runs_of_each_repetition_or_says_why_not() {
    let Some(board) = inference("target: 1500ms") else { return };
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("rounds: 2, iterations: 3", "rounds: 3, iterations: 200"));
    board.run(&["run", "c.yaml"]);

    // What this machine, busy or not, has come to.
    let mut pairs = Vec::new();
    for repetition in 0..2 {
        let of = |kind: &str| {
            let is_it = |record: &Value| record["ids"]["kind"] == kind && record["ids"]["repetition"] == repetition && record["validity"] == "valid";
            board.lab.records("c").into_iter().map(|(_, record)| record).find(is_it)
        };
        let value = |record: &Value, metric: &str| record["metrics"][metric]["value"].as_f64();
        let pair = of("power").zip(of("timing")).and_then(|(power, timing)| {
            let watts = value(&power, "power_w")?;
            assert!((watts - 6.0).abs() < 1e-6, "{watts}");
            Some((watts * value(&timing, "latency_ms")? / 1000.0, value(&timing, "latency_ms")? / value(&power, "latency_ms")?))
        });
        pairs.extend(pair);
    }
    let mean = |values: Vec<f64>| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp();
    let model: Value = serde_json::from_str(&board.run(&["report", "results/c", "--json"]).expect(0).stdout()).unwrap();
    let tables = model["tables"].as_array().unwrap();
    let joined = tables.iter().find(|table| table["definition"] == "energy.joined.v1").unwrap_or_else(|| panic!("{model}"));
    let row = &joined["rows"][0];
    match row["number"]["value"].as_f64() {
        Some(joules) => {
            assert_eq!(row["number"]["runs"], pairs.len());
            let expected = mean(pairs.iter().map(|pair| pair.0).collect());
            assert!((joules - expected).abs() <= 1e-9 * expected, "{joules}, expected {expected}");
            assert!(row["instrument"].as_str().unwrap().starts_with("hwmon_power_samples of board"), "{row}");
        }
        None => {
            let differ = row["states"].as_array().unwrap().iter().any(|state| state["code"] == "rates_differ");
            let ratio = mean(pairs.iter().map(|pair| pair.1).collect());
            assert!(pairs.is_empty() || differ && (ratio - 1.0).abs() > 0.05, "{row} {pairs:?}");
        }
    }
    // Each kind of number has its own rows.
    let latency = tables.iter().find(|table| table["metric"] == "latency_ms").unwrap();
    assert_eq!(latency["rows"].as_array().unwrap().len(), 1);
}
