//! NVIDIA's library by way of the companion.

use crate::bench::{Bench, capability};
use crate::held::{has_started, reading};
use crate::lab::{User, eventually, for_each_user};
use serde_json::{Value, json};

/// How telemetry calls the stand-in's GPU.
const GPU: &str = "GPU-5b3c7f00";

#[test]
fn a_record_tells_what_a_gpu_is_and_how_it_was_before_during_and_after_a_run() {
    for_each_user(|user| {
        let bench = Bench::new(user);
        bench.says(&["energy 5000000", "temperature 41"]);
        let controller = bench.start(&["run", "c.yaml"]);
        has_started(&bench.lab);
        bench.says(&["energy 5000500", "temperature 77", "busy 93", "power 201500", "graphics_clock 1950", "memory_used 1073741824"]);
        bench.end(controller).expect(0);
        let record = bench.record();
        let gpu = &record["device"]["machine"]["gpus"][0];
        assert_eq!((&gpu["subject"], &gpu["name"], &gpu["driver"]), (&json!(GPU), &json!("Fake GPU"), &json!("999.01")));
        assert_eq!((&gpu["power_limit_w"], &gpu["power_limit_default_w"]), (&json!(250.0), &json!(300.0)));
        assert_eq!((&gpu["compute_capability"], &gpu["memory_bytes"], &gpu["persistence"]), (&json!("8.7"), &json!(8_589_934_592u64), &json!(true)));
        let context = &record["context"];
        let value = |when: &str, metric: &str, source: &str| reading(&context[when], metric, source)["value"].as_f64().unwrap();
        assert_eq!(value("before", "temperature_c", "nvml:temperature"), 41.0);
        assert_eq!(value("after", "temperature_c", "nvml:temperature"), 77.0);
        assert_eq!(value("after", "gpu_busy_pct", "nvml:busy"), 93.0);
        assert_eq!(value("after", "sensor_power_w", "nvml:power"), 201.5);
        assert_eq!(value("after", "device_clock_hz", "nvml:graphics_clock"), 1.95e9);
        assert_eq!(value("after", "device_clock_hz", "nvml:memory_clock"), 7e9);
        assert_eq!(value("after", "gpu_memory_used_bytes", "nvml:memory_used"), 1_073_741_824.0);
        assert_eq!(value("before", "gpu_throttle_bits", "nvml:reasons"), 0.0);
        let joules = |when: &str| value(when, "sensor_energy_j", "nvml:total_energy");
        assert!((joules("after") - joules("before") - 0.5).abs() < 1e-9);
        let energy = record["energy"].as_array().unwrap();
        assert!(energy.iter().any(|figure| figure["instrument"] == "nvml_energy_counter"), "{energy:?}");
        assert_eq!(reading(&context["before"], "sensor_power_w", "nvml:power")["subject"], GPU);
        let during = &context["during"][format!("temperature_c{{{GPU}}}")];
        assert!(during["n"].as_u64().is_some_and(|n| n > 0), "{during}");
        eventually("nothing is left", || bench.lab.processes().is_empty().then_some(()));
    });
}

#[test]
fn what_a_gpu_does_not_support_costs_its_own_values_and_no_other() {
    let bench = Bench::new(User::Caller);
    bench.says(&["energy !3", "power !4", "persistence !3", "uuid !3"]);
    bench.lab.write("end", "");
    bench.run(&["run", "c.yaml"]).expect(0);
    let record = bench.record();
    let gpu = &record["device"]["machine"]["gpus"][0];
    // Without a UUID it is called by its number.
    assert_eq!((&gpu["subject"], &gpu["persistence"], &gpu["absent"]["persistence"]), (&json!("GPU 0"), &Value::Null, &json!("Not Supported")));
    let before = &record["context"]["before"];
    let energy = reading(before, "sensor_energy_j", "nvml:total_energy");
    assert_eq!((&energy["value"], &energy["absent"]), (&Value::Null, &json!("Not Supported")));
    assert_eq!(reading(before, "sensor_power_w", "nvml:power")["absent"], "Insufficient Permissions");
    assert_eq!(reading(before, "temperature_c", "nvml:temperature")["value"], 55.0);
}

#[test]
fn a_library_of_an_old_driver_lacks_a_function_and_the_rest_is_there() {
    let bench = Bench::with(User::Caller, &["-DOLD"]);
    bench.says(&["processes 1:1048576"]);
    bench.lab.write("end", "");
    bench.run(&["run", "c.yaml"]).expect(0);
    let record = bench.record();
    let before = &record["context"]["before"];
    let energy = reading(before, "sensor_energy_j", "nvml:total_energy")["absent"].as_str().unwrap().to_owned();
    assert_eq!(energy, "this library has no nvmlDeviceGetTotalEnergyConsumption");
    assert_eq!(reading(before, "sensor_power_w", "nvml:power")["value"], 15.237);
    assert_eq!(reading(before, "gpu_processes_count", "nvml:processes")["value"], 1.0);
}

#[test]
fn a_getter_that_hangs_is_given_up_with_its_process_and_the_others_are_asked_again_after_the_window() {
    for_each_user(|user| {
        let bench = Bench::new(user);
        let controller = bench.start(&["run", "c.yaml"]);
        has_started(&bench.lab);
        bench.says(&["power hang", "temperature 66"]);
        // In the window it is ended and no other is started.
        eventually("it is ended", || bench.lab.pids_of("isotherm-companion").is_empty().then_some(()));
        bench.end(controller).expect(0);
        let record = bench.record();
        assert_eq!(record["observer"]["given_up"], json!([[format!("{GPU} nvml:power"), "no answer within 1000 ms"]]));
        let after = &record["context"]["after"];
        assert_eq!(reading(after, "sensor_power_w", "nvml:power")["absent"], "no answer within 1000 ms");
        assert_eq!(reading(after, "temperature_c", "nvml:temperature")["value"], 66.0);
        eventually("nothing is left, nor who hangs", || bench.lab.processes().is_empty().then_some(()));
    });
}

#[test]
fn a_companion_that_crashes_or_is_killed_costs_its_values_until_the_next_run() {
    let bench = Bench::new(User::Caller);
    bench.lab.write("c.yaml", bench.lab.read("c.yaml").replace("repetitions: 1", "repetitions: 2"));
    let controller = bench.start(&["run", "c.yaml"]);
    has_started(&bench.lab);
    bench.says(&["reasons crash"]);
    eventually("it is gone", || bench.lab.pids_of("isotherm-companion").is_empty().then_some(()));
    bench.says(&[]);
    bench.end(controller).expect(0);
    let records = bench.lab.records("c");
    for (_, record) in &records {
        // After each run, too, because whoever is gone by then is started again.
        assert_eq!(reading(&record["context"]["after"], "temperature_c", "nvml:temperature")["value"], 55.0);
        assert_eq!(record["status"], "ok");
    }
    assert_eq!(records.len(), 2);
}

#[test]
fn who_crashes_again_and_again_is_left_alone_and_who_refuses_an_answer_is_not_started_again() {
    for (says, restarts) in [("name crash", 3), ("gpus !15", 0)] {
        let bench = Bench::new(User::Caller);
        bench.lab.write("c.yaml", bench.lab.read("c.yaml").replace("repetitions: 1", "repetitions: 4"));
        let controller = bench.start(&["run", "c.yaml"]);
        has_started(&bench.lab);
        // Whoever loads the library from now on leaves a mark.
        let loaded = bench.lab.write("driver/init.reads", "");
        bench.says(&[says]);
        bench.end(controller).expect(0);
        assert_eq!(std::fs::metadata(loaded).unwrap().len(), restarts, "{says}");
        assert_eq!(bench.lab.records("c").len(), 4);
        eventually("nothing is left", || bench.lab.processes().is_empty().then_some(()));
    }
}

#[test]
fn a_keeper_that_is_killed_leaves_no_companion() {
    let bench = Bench::new(User::Caller);
    let mut controller = bench.start(&["run", "c.yaml"]);
    has_started(&bench.lab);
    // In the middle of a call that never returns.
    bench.says(&["power hang"]);
    let [keeper] = bench.lab.pids_of(" keep ")[..] else { panic!("one keeper") };
    controller.kill().unwrap();
    controller.wait().unwrap();
    // SAFETY: plain integers; a process of this lab.
    assert_eq!(unsafe { libc::kill(keeper, libc::SIGKILL) }, 0);
    eventually("nothing is left", || bench.lab.processes().is_empty().then_some(()));
}

#[test]
fn a_machine_whose_library_is_not_there_says_so_and_how_to_mend_it() {
    let bench = Bench::new(User::Caller);
    std::fs::remove_file(bench.lab.path("driver/libnvidia-ml.so.1")).unwrap();
    bench.lab.write("end", "");
    bench.run(&["run", "c.yaml"]).expect(0);
    let record = bench.record();
    let absent = reading(&record["context"]["before"], "gpu_busy_pct", "nvml:busy")["absent"].as_str().unwrap().to_owned();
    assert!(absent.contains("libnvidia-ml.so.1"), "{absent}");
    assert_eq!(record["device"]["machine"].get("gpus"), None);
    let probe: Value = serde_json::from_str(&bench.run(&["probe", "--json"]).expect(0).stdout()).unwrap();
    let library = &capability(&probe, "gpu.nvidia.library")["found"]["absent"];
    assert_eq!(library["cause"], "not_there");
    assert!(library["remedy"].as_str().unwrap().contains("ISOTHERM_NVML"), "{library}");
}

#[test]
fn a_gpu_that_refuses_to_answer_keeps_its_power_runs_and_they_say_why_they_fail() {
    let bench = Bench::new(User::Caller);
    bench.lab.write("end", "");
    bench.lab.write("c.yaml", bench.lab.read("c.yaml").replace("power: together", "power: split"));
    bench.run(&["run", "c.yaml", "--filter", "kind=timing"]).expect(0);
    bench.says(&["init !999"]);
    bench.run(&["run", "c.yaml"]);
    let (power, timing): (Vec<_>, Vec<_>) = bench.lab.records("c").into_iter().partition(|(_, record)| record["ids"]["kind"] == "power");
    assert_eq!((power.len(), timing.len()), (1, 1));
    // A machine that measures its packages as well has them left.
    if let Some((_, failed)) = power.iter().find(|(_, record)| record["status"] == "failed") {
        let message = failed["message"].as_str().unwrap();
        assert!(message.contains("no energy instrument can be read here") && message.contains("NVIDIA GPUs: Unknown Error"), "{message}");
    }
}

#[test]
fn a_probe_has_every_gpu_with_what_can_be_read_of_it_and_what_not() {
    for_each_user(|user| {
        let bench = Bench::new(user);
        bench.says(&["gpus 2", "energy !3"]);
        let probe: Value = serde_json::from_str(&bench.run(&["probe", "--json"]).expect(0).stdout()).unwrap();
        let found = |id: &str| capability(&probe, id)["found"].clone();
        assert_eq!(found("gpu.nvidia.library")["present"]["facts"]["driver"], "999.01");
        for gpu in ["GPU-5b3c7f00", "GPU-5b3c7f01"] {
            assert_eq!(found(&format!("gpu.{gpu}"))["present"]["facts"]["name"], "Fake GPU");
            assert_eq!(found(&format!("gpu.{gpu}.power"))["present"]["value"], 15_237.0);
            assert!(found(&format!("gpu.{gpu}.power"))["present"]["cost_ns"].is_u64());
            assert_eq!(found(&format!("gpu.{gpu}.energy"))["absent"]["reason"], "Not Supported");
            assert_eq!(capability(&probe, &format!("gpu.{gpu}.temperature"))["recorded"], true);
        }
        let text = bench.run(&["probe"]).expect(0).stdout();
        assert!(text.contains("GPU-5b3c7f01") && text.contains("Fake GPU") && text.contains("15.24 W"), "{text}");
        eventually("nothing is left", || bench.lab.processes().is_empty().then_some(()));
    });
}

#[test]
fn a_driver_that_is_not_loaded_has_its_own_words_and_the_command_that_loads_it() {
    let bench = Bench::new(User::Caller);
    bench.says(&["init !9"]);
    let probe: Value = serde_json::from_str(&bench.run(&["probe", "--json"]).expect(0).stdout()).unwrap();
    let library = &capability(&probe, "gpu.nvidia.library")["found"]["absent"];
    assert_eq!((&library["reason"], &library["cause"]), (&json!("Driver Not Loaded"), &json!("not_there")));
    assert!(library["remedy"].as_str().unwrap().starts_with("sudo modprobe nvidia"), "{library}");
}

#[test]
fn who_computed_on_a_gpu_before_a_run_that_used_it_is_named_and_the_run_is_degraded() {
    for_each_user(|user| {
        let bench = Bench::new(user);
        // A real process, so that it has a name: `sleep`, which has no idea.
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let listed = |pids: &[u32]| pids.iter().map(|pid| format!("{pid}:{}", 64 << 20)).collect::<Vec<_>>().join(",");
        bench.says(&[&format!("processes {}", listed(&[other.id()]))]);
        let controller = bench.start(&["run", "c.yaml"]);
        has_started(&bench.lab);
        // From now on the workload computes there, too.
        let workload = eventually("it is seen", || bench.lab.pids_of("workload.sh").first().copied());
        bench.says(&[&format!("processes {}", listed(&[other.id(), workload as u32]))]);
        bench.reads_on("processes");
        let ran = bench.end(controller).expect(0);
        other.kill().unwrap();
        other.wait().unwrap();
        let record = bench.record();
        let seen = record["context"]["gpu_processes"].as_array().unwrap();
        let of = |pid: u32| seen.iter().find(|p| p["pid"] == pid).unwrap_or_else(|| panic!("{pid} in {seen:?}"));
        let flags = |pid: u32| (of(pid)["name"].clone(), of(pid)["before"].clone(), of(pid)["of_run"].clone());
        assert_eq!(flags(other.id()), (json!("sleep"), json!(true), json!(false)));
        assert_eq!(flags(workload as u32), (json!("workload.sh"), json!(false), json!(true)));
        let issues = record["issues"].as_array().unwrap();
        let issue = issues.iter().find(|issue| issue["code"] == "gpu_busy_before").unwrap_or_else(|| panic!("{issues:?} {}", ran.stderr()));
        assert_eq!(issue["message"], format!("on {GPU} there were sleep (pid {}, 64 MiB) before the run", other.id()));
        assert_eq!((&record["validity"], &issue["subject"]), (&json!("degraded"), &json!(GPU)));
    });
}

#[test]
fn a_gpu_that_is_hot_throttles_the_run_that_was_on_it() {
    let bench = Bench::new(User::Caller);
    let controller = bench.start(&["run", "c.yaml"]);
    has_started(&bench.lab);
    bench.says(&["reasons 64"]);
    bench.reads_on("reasons");
    // It has cooled down by the end.
    bench.says(&["reasons 1"]);
    bench.end(controller).expect(0);
    let record = bench.record();
    assert_eq!(record["context"]["state"]["throttled"], true);
    let issue = record["issues"].as_array().unwrap().iter().find(|issue| issue["code"] == "throttled").unwrap().clone();
    assert_eq!(issue["message"], format!("{GPU} reports temperature (hardware)"));
}

#[test]
fn a_public_copy_has_another_name_for_the_gpu_and_the_same_one_everywhere() {
    let bench = Bench::new(User::Caller);
    bench.lab.write("end", "");
    bench.run(&["run", "c.yaml"]).expect(0);
    bench.run(&["export", "results/c", "--public", "copy"]).expect(0);
    let copied: Vec<_> = bench.lab.all_files().into_iter().filter(|path| path.starts_with(bench.lab.path("copy"))).collect();
    assert!(!copied.is_empty());
    for path in copied {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        let left = text.find("5b3c7f00").or(text.find("444455556666"));
        assert!(left.is_none(), "{}: {}", path.display(), &text[left.unwrap_or(0).saturating_sub(200)..][..400]);
        if path.file_name().is_some_and(|name| name == "timing-r0.json") {
            let record: Value = serde_json::from_str(&text).unwrap();
            let subject = record["device"]["machine"]["gpus"][0]["subject"].as_str().unwrap();
            assert!(subject.starts_with("GPU-"), "{subject}");
            assert_eq!(reading(&record["context"]["before"], "temperature_c", "nvml:temperature")["subject"], subject);
        }
    }
    bench.run(&["verify", "copy"]).expect(0);
}

#[test]
fn what_hangs_from_the_beginning_is_absent_and_no_answer_is_taken_for_another() {
    let bench = Bench::new(User::Caller);
    bench.says(&["power hang", "graphics_clock crash", "temperature 44"]);
    let probe: Value = serde_json::from_str(&bench.run(&["probe", "--json"]).expect(0).stdout()).unwrap();
    let found = |what: &str| capability(&probe, &format!("gpu.{GPU}.{what}"))["found"].clone();
    assert_eq!((&found("power")["absent"]["cause"], &found("power")["absent"]["reason"]), (&json!("no_answer"), &json!("no answer within 2 s")));
    assert_eq!(found("graphics_clock")["absent"]["reason"], "it ended without an answer");
    // Its mean power is judged by the limit that is enforced.
    assert_eq!(found("energy")["present"]["facts"]["limit_uw"], "250000000");
    for (what, value) in [("energy", 1_234_567.0), ("temperature", 44.0), ("memory_clock", 7000.0), ("busy", 0.0), ("memory", 536_870_912.0)] {
        assert_eq!(found(what)["present"]["value"], value, "{what}");
    }
    eventually("nothing is left", || bench.lab.processes().is_empty().then_some(()));
}
