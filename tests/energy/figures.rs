//! One run beside counters that the test drives: what its record says it took.

use crate::board::Board;
use crate::held::{has_started, reading};
use crate::lab::{Ran, User, for_each_user};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Long enough to be a window, and quiet at both ends.
const WORKLOAD: &str = "#!/bin/sh\nsleep 0.6\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\nsleep 0.6\n";

fn board(user: User) -> Option<Board> {
    let board = Board::new(user)?;
    board.lab.write("workload.sh", WORKLOAD);
    // A machine that is busy with other tests can't be sampled more often without gaps.
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("sample_hz: 50", "sample_hz: 10"));
    Some(board)
}

fn zone(board: &Board, zone: &str, name: &str, microjoules: u64) {
    board.set(&format!("class/powercap/{zone}/name"), name);
    board.set(&format!("class/powercap/{zone}/max_energy_range_uj"), "262143328850");
    board.set(&format!("class/powercap/{zone}/energy_uj"), &microjoules.to_string());
}

fn rail(board: &Board, label: &str, millivolts: u32, milliamperes: u32) {
    for (file, text) in [("name", "ina3221"), ("in1_label", label)] {
        board.set(&format!("class/hwmon/hwmon0/{file}"), text);
    }
    board.set("class/hwmon/hwmon0/in1_input", &millivolts.to_string());
    board.set("class/hwmon/hwmon0/curr1_input", &milliamperes.to_string());
}

/// The record of a run in whose middle something is done.
fn run(board: &Board, meanwhile: impl FnOnce()) -> Value {
    ended(board, meanwhile).expect(0);
    board.record()
}

fn ended(board: &Board, meanwhile: impl FnOnce()) -> Ran {
    let controller = board.start(&["run", "c.yaml"]);
    has_started(&board.lab);
    meanwhile();
    board.end(controller)
}

#[track_caller]
fn only_figure(record: &Value) -> Value {
    let figures = record["energy"].as_array().unwrap();
    assert_eq!(figures.len(), 1, "{figures:?}");
    figures[0].clone()
}

#[track_caller]
fn assert_near(of: &Value, field: &str, expected: f64) {
    let number = of[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {of}"));
    assert!((number - expected).abs() <= 1e-6 * expected.abs(), "{number}, expected {expected}");
}

#[test]
fn ten_joules_of_two_packages_are_ten_joules_whatever_else_rapl_counts() {
    for_each_user(|user| {
        let Some(board) = board(user) else { return };
        let zones = [
            ("intel-rapl:0", "package-0", 6),
            ("intel-rapl:0:0", "core", 5),
            ("intel-rapl:0:1", "uncore", 3),
            ("intel-rapl:1", "package-1", 4),
            ("intel-rapl:1:0", "core", 2),
            ("intel-rapl:2", "psys", 18),
        ];
        for (path, name, _) in zones {
            zone(&board, path, name, 7_000_000);
        }
        let record = run(&board, || zones.iter().for_each(|(path, name, joules)| zone(&board, path, name, 7_000_000 + joules * 1_000_000)));
        let figure = only_figure(&record);
        assert_near(&figure, "joules", 10.0);
        assert_near(&figure, "mean_w", 10.0 / (figure["window"]["integrated_ns"].as_f64().unwrap() / 1e9));
        for (field, expected) in [("instrument", "rapl_energy_counter"), ("measures", "cpu_packages"), ("ran", "invocation")] {
            assert_eq!(figure[field], expected, "{figure}");
        }
        // On a machine that is busy the reads at the edges may come late: then they are samples like others.
        assert!(["on_device_gated", "agent_timed_window"].contains(&figure["scope"].as_str().unwrap()), "{figure}");
        let channels: Vec<_> =
            figure["channels"].as_array().unwrap().iter().map(|c| (c["subject"].as_str().unwrap(), c["joules"].as_f64())).collect();
        assert_eq!(channels, [("RAPL package-0", Some(6.0)), ("RAPL package-1", Some(4.0))]);
        assert!(record["issues"].as_array().unwrap().iter().all(|issue| !issue["code"].as_str().unwrap().contains("energy")), "{record}");
    });
}

#[test]
fn counters_are_read_at_both_edges_of_a_run_however_rarely_it_is_sampled() {
    let Some(board) = board(User::Caller) else { return };
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("sample_hz: 10", "sample_hz: 0.001"));
    zone(&board, "intel-rapl:0", "package-0", 7_000_000);
    let record = run(&board, || zone(&board, "intel-rapl:0", "package-0", 17_000_000));
    let times: Vec<u64> = record["samples"]["inline"]["monotonic_ns"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).collect();
    let mark = |name: &str| record["time"][name].as_u64().unwrap();
    // On a busy machine a mark may take more than one.
    let (first, at_exit) = (times[0], times[times.len() - 1]);
    let at_spawn = *times.iter().rfind(|&&time| time < mark("exit_monotonic_ns")).unwrap();
    assert!(first < mark("spawn_monotonic_ns") && at_spawn >= mark("spawn_monotonic_ns") && at_exit >= mark("exit_monotonic_ns"));
    // Between its readings a counter grows evenly.
    let share = (mark("exit_monotonic_ns") - at_spawn) as f64 / (at_exit - at_spawn) as f64;
    assert_near(&only_figure(&record), "joules", 10.0 * share);
    assert!(record["observer"]["achieved_hz"].is_null(), "the rate is that of what was due");
}

#[test]
fn a_counter_that_wraps_during_a_run_counts_on() {
    let Some(board) = board(User::Caller) else { return };
    zone(&board, "intel-rapl:0", "package-0", 262_140_000_000);
    let figure = only_figure(&run(&board, || zone(&board, "intel-rapl:0", "package-0", 6_671_150)));
    assert_near(&figure, "joules", 10.0);
    assert_near(&figure["channels"][0], "wraps_at_j", 262_143.328_850);
}

#[test]
fn a_counter_that_stands_still_or_starts_anew_has_no_energy_and_says_why() {
    let Some(standing) = board(User::Caller) else { return };
    zone(&standing, "intel-rapl:0", "package-0", 55_000_000);
    let Some(restarted) = board(User::Caller) else { return };
    zone(&restarted, "intel-rapl:0", "package-0", 55_000_000);
    let anew = run(&restarted, || zone(&restarted, "intel-rapl:0", "package-0", 1_000_000));
    for (record, why) in [(run(&standing, || ()), "stood still"), (anew, "went back from 55 to 1 J")] {
        let figure = only_figure(&record);
        assert!(figure["joules"].is_null() && figure["mean_w"].is_null(), "{figure}");
        assert!(figure["omitted_reason"].as_str().unwrap().contains(why), "{figure}");
    }
}

#[test]
fn the_power_of_a_boards_input_is_integrated_from_spawn_to_exit() {
    for_each_user(|user| {
        let Some(board) = board(user) else { return };
        rail(&board, "VDD_IN", 5000, 1200);
        let record = run(&board, || ());
        let figure = only_figure(&record);
        let (time, window) = (&record["time"], &figure["window"]);
        assert_eq!((&window["start_ns"], &window["end_ns"]), (&time["spawn_monotonic_ns"], &time["exit_monotonic_ns"]));
        assert_near(&figure, "mean_w", 6.0);
        assert_near(&figure, "joules", 6.0 * window["integrated_ns"].as_f64().unwrap() / 1e9);
        assert_near(&record["metrics"]["power_w"], "value", 6.0);
        assert_eq!((&figure["instrument"], &figure["measures"]), (&"hwmon_power_samples".into(), &"board".into()));
        assert_eq!(figure["scope"], "agent_timed_window", "a monitor is sampled and gates nothing");
    });
}

#[test]
fn an_inference_has_the_energy_of_its_rounds_without_the_pauses_between_them() {
    let Some(board) = board(User::Caller) else { return };
    rail(&board, "VDD_IN", 5000, 1200);
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/models/tiny-cnn.onnx");
    let work =
        format!("backend: builtin, model: cnn, rounds: 3, iterations: 600, cooldown: 300ms, threads: 1 }}\nmodels: {{ cnn: {{ path: {model:?} }} }}");
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("backend: command, argv: [./workload.sh] }", &work));
    board.run(&["run", "c.yaml"]).expect(0);
    let record = board.record();
    let figure = only_figure(&record);
    let (window, iterations) = (&figure["window"], &record["iterations"]);
    let ns = |value: &Value| value.as_u64().unwrap();
    let spans = iterations["round_spans_ns"].as_array().unwrap();
    assert_eq!(ns(&window["integrated_ns"]), spans.iter().map(|span| ns(&span[1]) - ns(&span[0])).sum::<u64>());
    let pauses = ns(&iterations["window_end_ns"]) - ns(&iterations["window_start_ns"]) - ns(&window["integrated_ns"]);
    assert!(pauses >= 600_000_000, "{pauses} ns");
    assert_eq!((&figure["ran"], &window["parts"], &window["inferences"]), (&"timed_inferences".into(), &3.into(), &1800.into()));
    let joules = 6.0 * ns(&window["integrated_ns"]) as f64 / 1e9;
    assert_near(&figure, "joules", joules);
    let metric = &record["metrics"]["energy_per_inference_j"];
    assert_near(metric, "value", joules / 1800.0);
    assert_eq!((&metric["unit"], &metric["definition"]), (&"J".into(), &"energy.window.v1".into()));
    // Another reading of the same output is the same.
    let reread = board.run(&["reparse", "results/c"]).expect(0);
    assert_eq!(board.record(), record, "{}", reread.stdout());
}

#[test]
fn what_the_device_takes_while_it_waits_is_known_beside_the_gross_figure() {
    let Some(board) = board(User::Caller) else { return };
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("settle: 0ms", "settle: 10s"));
    rail(&board, "VDD_IN", 5000, 400);
    let record = run(&board, || rail(&board, "VDD_IN", 5000, 1200));
    let figure = only_figure(&record);
    let (net, mean_w) = (&figure["net"], figure["mean_w"].as_f64().unwrap());
    assert_near(net, "idle_w", 2.0);
    assert_near(net, "mean_w", mean_w - 2.0);
    assert!(mean_w > 2.0 && net["idle_ns"].as_u64().unwrap() >= 10_000_000_000, "{figure}");
    assert_eq!(record["context"]["idle"]["columns"][0]["subject"], "ina3221 VDD_IN");
}

#[test]
fn what_a_power_run_cannot_say_makes_it_invalid_and_a_timing_run_only_mentions_it() {
    for (power, exit_code, severity) in [("together", 0, "note"), ("only", 1, "error")] {
        let Some(board) = board(User::Caller) else { return };
        board.lab.write("c.yaml", board.lab.read("c.yaml").replace("power: together", &format!("power: {power}")));
        zone(&board, "intel-rapl:0", "package-0", 55_000_000);
        ended(&board, || ()).expect(exit_code);
        let record = board.record();
        let issue = record["issues"].as_array().unwrap().iter().find(|issue| issue["code"] == "energy_implausible").unwrap();
        assert_eq!((record["validity"] == "invalid", &issue["severity"]), (severity == "error", &severity.into()), "{}", record["issues"]);
    }
}

#[test]
fn a_counter_and_a_monitor_of_one_board_are_held_against_each_other() {
    let Some(board) = board(User::Caller) else { return };
    let files = [("name", "ina228"), ("energy1_label", "VDD_IN"), ("power1_label", "VDD_IN"), ("power1_input", "5000000")];
    files.iter().for_each(|(file, text)| _ = board.set(&format!("class/hwmon/hwmon0/{file}"), text));
    let counter = "class/hwmon/hwmon0/energy1_input";
    board.set(counter, "900000000");
    let record = run(&board, || _ = board.set(counter, "902000000"));
    let [counted, integrated] = &record["energy"].as_array().unwrap()[..] else { panic!("{}", record["energy"]) };
    assert_eq!((&counted["instrument"], &counted["of_record"]), (&"hwmon_energy_counter".into(), &true.into()));
    assert_near(counted, "joules", 2.0);
    assert_eq!(counted["cross_check"]["instrument"], "hwmon_power_samples");
    assert_near(&counted["cross_check"], "ratio", integrated["joules"].as_f64().unwrap() / 2.0);
}

#[test]
fn a_counter_that_may_not_be_read_is_absent_and_no_figure_is_made_of_it() {
    let Some(board) = board(User::Ordinary) else { return };
    zone(&board, "intel-rapl:0", "package-0", 7_000_000);
    let counter = board.lab.path("sys/class/powercap/intel-rapl:0/energy_uj");
    fs::set_permissions(counter, fs::Permissions::from_mode(0o400)).unwrap();
    let record = run(&board, || ());
    assert!(record.get("energy").is_none(), "{}", record["energy"]);
    assert!(record["metrics"].get("power_w").is_none(), "{}", record["metrics"]);
    let absent = reading(&record["context"]["before"], "sensor_energy_j", "RAPL package-0");
    assert_eq!((&absent["value"], &absent["absent"]), (&Value::Null, &"Permission denied".into()));
}

#[test]
fn an_instrument_that_hangs_has_no_figure_and_takes_none_from_others() {
    let Some(board) = board(User::Caller) else { return };
    rail(&board, "VDD_IN", 5000, 1200);
    zone(&board, "intel-rapl:0", "package-0", 7_000_000);
    // Sound when it was found; it hangs from the first sample of the run on.
    let counter = board.lab.path("sys/class/powercap/intel-rapl:0/energy_uj");
    fs::remove_file(&counter).unwrap();
    let name = std::ffi::CString::new(counter.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
    let record = run(&board, || ());
    let figure = only_figure(&record);
    assert_eq!((&figure["measures"], &figure["of_record"]), (&"board".into(), &true.into()));
    assert_near(&figure, "mean_w", 6.0);
    let absent = reading(&record["context"]["before"], "sensor_energy_j", "RAPL package-0");
    assert!(absent["absent"].as_str().unwrap().contains("no answer within"), "{absent}");
}
