//! What a GPU took, by each way of asking it: the joules that follow from what it said.

use crate::bench::Bench;
use crate::held::has_started;
use crate::lab::{User, eventually, for_each_user};
use serde_json::Value;

const GPU: &str = "GPU-5b3c7f00";
/// Long enough to be a window, and quiet at both ends.
const WORKLOAD: &str = "#!/bin/sh\nsleep 0.6\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\nsleep 0.6\n";

/// The record of a run in whose middle something is done.
fn run(bench: &Bench, meanwhile: impl FnOnce()) -> Value {
    bench.lab.write("workload.sh", WORKLOAD);
    // A machine that is busy with other tests can't be sampled more often without gaps.
    bench.lab.write("c.yaml", bench.lab.read("c.yaml").replace("sample_hz: 50", "sample_hz: 10"));
    let controller = bench.start(&["run", "c.yaml"]);
    has_started(&bench.lab);
    meanwhile();
    bench.end(controller).expect(0);
    bench.record()
}

/// The figure of an instrument that measures this GPU.
#[track_caller]
fn figure<'r>(record: &'r Value, instrument: &str, gpu: &str) -> &'r Value {
    let figures = record["energy"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["instrument"] == instrument).unwrap_or_else(|| panic!("no {instrument} in {figures:?}"));
    assert_eq!((&found["measures"], &found["channels"][0]["subject"]), (&"gpu".into(), &gpu.into()), "{found}");
    found
}

fn seconds(figure: &Value) -> f64 {
    figure["window"]["integrated_ns"].as_f64().unwrap() / 1e9
}

#[track_caller]
fn assert_near(of: &Value, field: &str, expected: f64) {
    let number = of[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {of}"));
    assert!((number - expected).abs() <= 1e-6 * expected.abs(), "{number}, expected {expected}");
}

#[test]
fn a_gpus_counter_is_of_record_for_the_command_that_was_on_it_and_its_power_is_held_against_it() {
    for_each_user(|user| {
        let bench = Bench::new(user);
        bench.says(&["energy 5000000", "power 20000"]);
        let record = run(&bench, || {
            let [workload] = bench.lab.pids_of("workload.sh")[..] else { panic!("one workload") };
            bench.says(&["energy 5030000", "power 20000", &format!("processes {workload}:1048576")]);
            bench.reads_on("processes");
            bench.reads_on("energy");
        });
        let counted = figure(&record, "nvml_energy_counter", GPU);
        assert_near(counted, "joules", 30.0);
        assert_near(counted, "mean_w", 30.0 / seconds(counted));
        assert_eq!((&counted["of_record"], &counted["ran"]), (&true.into(), &"invocation".into()));
        // Where the machine is busy the reads at the edges may come late.
        assert!(["on_device_gated", "agent_timed_window"].contains(&counted["scope"].as_str().unwrap()), "{counted}");
        let integrated = figure(&record, "nvml_integrated_samples", GPU);
        assert_near(integrated, "joules", 20.0 * seconds(integrated));
        assert_eq!(integrated["of_record"], false);
        // Edges that were read late are held against nothing.
        if [counted, integrated].iter().any(|figure| figure["edge_error_pct"].as_f64().is_some_and(|pct| pct > 5.0)) {
            return assert!(counted["cross_check"].is_null(), "{counted}");
        }
        assert_eq!(counted["cross_check"]["instrument"], "nvml_integrated_samples");
        assert_near(&counted["cross_check"], "ratio", integrated["joules"].as_f64().unwrap() / 30.0);
    });
}

#[test]
fn a_gpu_without_a_counter_has_its_power_integrated_from_spawn_to_exit() {
    let bench = Bench::new(User::Caller);
    bench.says(&["energy !3", "power 20000"]);
    let record = run(&bench, || (0..2).for_each(|_| bench.reads_on("power")));
    let integrated = figure(&record, "nvml_integrated_samples", GPU);
    let (time, window) = (&record["time"], &integrated["window"]);
    assert_eq!((&window["start_ns"], &window["end_ns"]), (&time["spawn_monotonic_ns"], &time["exit_monotonic_ns"]));
    assert_near(integrated, "joules", 20.0 * seconds(integrated));
    assert_near(&record["metrics"]["power_w"], "value", 20.0);
    assert_eq!((&integrated["of_record"], &integrated["scope"]), (&true.into(), &"agent_timed_window".into()));
    assert!(integrated["cross_check"].is_null(), "{integrated}");
}

#[test]
fn what_nvidia_smi_says_once_a_second_gives_joules_and_too_few_readings_for_a_power() {
    let bench = Bench::with_smi_only(User::Caller);
    bench.says(&["uuid GPU-5b3c7f0a-1111-2222-3333-444455556666", "name Fake GPU", "enforced.power.limit 250.00", "power.draw 20.00"]);
    let asked = || bench.lab.read("driver/smi.log").lines().filter(|line| line.starts_with("--query-gpu")).count();
    let record = run(&bench, || {
        let before = asked();
        eventually("it is asked a few times", || (asked() > before + 3).then_some(()));
    });
    let integrated = figure(&record, "nvidia_smi_instantaneous", "GPU-5b3c7f0a");
    assert_near(integrated, "joules", 20.0 * seconds(integrated));
    assert!(seconds(integrated) > 2.0 && record["metrics"].get("power_w").is_none_or(|power| power["value"].is_null()), "{record}");
    assert!(integrated["power_omitted_reason"].as_str().unwrap().contains("readings"), "{integrated}");
}
