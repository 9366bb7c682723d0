//! `nvidia-smi` where the library can't be asked.

use crate::bench::{Bench, capability};
use crate::held::{has_started, reading};
use crate::lab::{User, eventually, for_each_user};
use serde_json::{Value, json};

const GPU: &str = "GPU-5b3c7f0a";
const KNOWN: [&str; 10] = [
    "uuid GPU-5b3c7f0a-1111-2222-3333-444455556666",
    "name Fake GPU",
    "driver_version 999.01",
    "memory.total 8192",
    "enforced.power.limit 250.00",
    "persistence_mode Enabled",
    "temperature.gpu 61",
    "utilization.gpu 3",
    "memory.used 512",
    "clocks_throttle_reasons.active 0x0000000000000020",
];

fn says(bench: &Bench, more: &[&str]) {
    bench.says(&[&KNOWN, more].concat());
}

#[test]
fn it_is_asked_once_a_second_and_nothing_that_it_said_is_repeated() {
    for_each_user(|user| {
        let bench = Bench::with_smi_only(user);
        says(&bench, &["power.draw 15.24", &format!("apps GPU-5b3c7f0a-1111-2222-3333-444455556666, {}, 64", std::process::id())]);
        let controller = bench.start(&["run", "c.yaml"]);
        has_started(&bench.lab);
        let asked = || bench.lab.read("driver/smi.log").lines().filter(|line| line.starts_with("--query-gpu")).count();
        let before = asked();
        eventually("it is asked a few times", || (asked() > before + 2).then_some(()));
        bench.end(controller).expect(0);
        let record = bench.record();
        let gpu = &record["device"]["machine"]["gpus"][0];
        assert_eq!((&gpu["subject"], &gpu["name"], &gpu["power_limit_w"]), (&json!(GPU), &json!("Fake GPU"), &json!(250.0)));
        assert_eq!((&gpu["ecc"], &gpu["absent"]["ecc"]), (&Value::Null, &json!("N/A")));
        for when in ["before", "after"] {
            let value = |metric: &str, field: &str| reading(&record["context"][when], metric, &format!("nvidia-smi:{field}"))["value"].clone();
            assert_eq!(value("sensor_power_w", "power.draw"), 15.24);
            assert_eq!(value("temperature_c", "temperature.gpu"), 61.0);
            assert_eq!(value("gpu_memory_used_bytes", "memory.used"), 536_870_912.0);
            assert_eq!(value("gpu_processes_count", "compute-apps"), 1.0);
        }
        let n = record["context"]["during"][format!("sensor_power_w{{{GPU}}}")]["n"].as_u64().unwrap() as usize;
        assert!((1..=asked()).contains(&n), "{n} values of {} queries", asked());
        let slowed = record["observer"]["slowed"].as_array().unwrap();
        assert!(slowed.iter().any(|slow| slow[0].as_str().unwrap().starts_with(&format!("{GPU} nvidia-smi:"))), "{slowed:?}");
        // Whoever was there before, and reasons for which a clock is held back, are judged alike.
        assert_eq!(record["context"]["gpu_processes"][0]["pid"], std::process::id());
        eventually("nothing is left", || bench.lab.processes().is_empty().then_some(()));
    });
}

#[test]
fn a_version_that_does_not_know_a_field_is_asked_without_it() {
    let bench = Bench::with_smi_only(User::Caller);
    says(&bench, &["unknown clocks_throttle_reasons.active", "power.draw 15.24"]);
    let probe: Value = serde_json::from_str(&bench.run(&["probe", "--json"]).expect(0).stdout()).unwrap();
    let found = |what: &str| capability(&probe, &format!("gpu.{GPU}.{what}"))["found"].clone();
    assert_eq!(found("power")["present"]["value"], 15_240.0);
    assert_eq!(found("reasons")["absent"]["reason"], "this nvidia-smi has no such field");
    assert_eq!(found("graphics_clock")["absent"]["reason"], "N/A");
}

#[test]
fn one_that_hangs_is_ended_and_the_run_goes_on() {
    let bench = Bench::with_smi_only(User::Caller);
    says(&bench, &["power.draw 15.24"]);
    let controller = bench.start(&["run", "c.yaml"]);
    has_started(&bench.lab);
    says(&bench, &["power.draw hang"]);
    eventually("it hangs", || (!bench.lab.pids_of("sleep 1000").is_empty()).then_some(()));
    bench.end(controller).expect(0);
    assert_eq!(bench.record()["status"], "ok");
    eventually("nothing is left of it", || bench.lab.processes().is_empty().then_some(()));
}
