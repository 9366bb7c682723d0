//! Waiting for a GPU: which runs do, for what, and what their records tell.

use crate::driver;
use crate::lab::{User, eventually, for_each_user};
use crate::rig::{Night, Rig, codes};
use serde_json::{Value, json};
use std::thread;

const GPU: &str = "GPU-5b3c7f00";
const MIB: u64 = 1 << 20;
/// Says that it runs, then waits for the end of this one.
const WORKLOAD: &str = "#!/bin/sh\necho $1 >> started\nwhile [ ! -e end ]; do sleep 0.01; done\nrm end\n";

fn rig(user: User, settle: &str) -> Option<Rig> {
    let rig = twice(Rig::with_gpu(user, settle)?);
    says(&rig, 40, &[], 512);
    Some(rig)
}

fn twice(rig: Rig) -> Rig {
    rig.board.lab.write("workload.sh", WORKLOAD);
    rig.edit("repetitions: 1", "repetitions: 2");
    rig.edit("power: together", "power: off");
    rig
}

fn says(rig: &Rig, celsius: u32, pids: &[i32], mib: u64) {
    let processes: Vec<String> = pids.iter().map(|pid| format!("{pid}:{MIB}")).collect();
    let lines = [format!("temperature {celsius}"), format!("processes {}", processes.join(",")), format!("memory_used {}", mib * MIB)];
    driver::says(&rig.board.lab, &lines.each_ref().map(String::as_str));
}

/// One run, which computes on the GPU if it is to, and leaves it hot. Its pid is listed on as long as nobody says otherwise.
fn runs(rig: &Rig, night: &mut Night, on_the_gpu: bool) {
    let lab = &rig.board.lab;
    let n = || lab.read("started").lines().count();
    let before = n();
    eventually("the workload runs", || (n() > before).then_some(()));
    let workload = eventually("it is seen", || lab.pids_of("workload.sh").first().copied());
    if on_the_gpu {
        says(rig, 80, &[workload], 6144);
    }
    // For more than a second.
    driver::reads_on(lab, "processes");
    driver::reads_on(lab, "processes");
    lab.write("end", "");
    night.next(&["finished"]);
}

fn of_gpu(record: &Value) -> Vec<&Value> {
    record["settle"]["criteria"].as_array().unwrap().iter().filter(|found| found["subject"] == GPU).collect()
}

#[test]
fn a_gpu_that_the_command_was_on_is_waited_for_until_it_is_cool_free_and_nobody_elses() {
    for_each_user(|user| {
        let Some(rig) = rig(user, "{ min: 0ms, timeout: 10m, temp_within: 3C }") else { return };
        let mut night = rig.start();
        runs(&rig, &mut night, true);
        // The run is over; its context seems to live on, its memory is held, and the GPU is hot.
        let foreign = [std::process::id() as i32];
        let cooling = [71, 60, 52, 46, 43, 43];
        let mut shown = Vec::new();
        night.each_look(|n, look| {
            shown.push((look["temperature_c"].as_f64(), look["limit_c"].as_f64()));
            rig.pass(8);
            let n = n as usize;
            says(&rig, cooling[(n - 1).min(5)], if n < 8 { &foreign[..] } else { &[] }, if n < 7 { 6144 } else { 540 });
            if shown.len() > 8 {
                rig.board.lab.write("end", "");
            }
        });
        night.end(0);
        assert!(shown[0] == (Some(80.0), Some(43.0)) && shown.len() > 8, "{shown:?}");
        let [first, second] = &rig.records()[..] else { panic!() };
        let reason = "no run of this session was seen to compute on it";
        assert_eq!(
            of_gpu(first),
            [&json!({ "criterion": "temperature", "subject": GPU, "met": null, "value": null, "limit": null, "reason": reason })]
        );
        let found =
            |criterion: &str, value: f64, limit: f64| json!({ "criterion": criterion, "subject": GPU, "met": true, "value": value, "limit": limit });
        let (used, limit) = ((540 * MIB) as f64, (544 * MIB) as f64);
        let expected = [found("temperature", 43.0, 43.0), found("gpu_processes", 0.0, 0.0), found("gpu_memory", used, limit)];
        assert_eq!(of_gpu(second), expected.iter().collect::<Vec<_>>());
        let settle = &second["settle"];
        assert_eq!((&settle["verdict"], &settle["regime"], &settle["offset_c"]), (&"settled".into(), &"burst".into(), &3.0.into()), "{settle:#}");
        let columns = settle["trace"]["columns"].as_array().unwrap();
        let trace = |metric: &str| columns.iter().find(|c| c["metric"] == metric && c["subject"] == GPU).unwrap()["values"].clone();
        assert_eq!((&trace("temperature_c")[0], &trace("gpu_processes_count")[1]), (&80.0.into(), &1.0.into()));
        assert_eq!(settle["reference"]["values"][GPU], 40.0);
        assert!(codes(second).is_empty(), "{second}");
    });
}

#[test]
fn a_gpu_whose_memory_stays_in_use_is_a_time_out_and_the_run_becomes_what_was_asked_for() {
    thread::scope(|scope| {
        for (policy, code, status) in [("flag", 0, "ok"), ("fail", 1, "failed"), ("skip", 1, "skipped")] {
            scope.spawn(move || {
                let Some(rig) = rig(User::Caller, &format!("{{ min: 0ms, timeout: 1m, on_timeout: {policy} }}")) else { return };
                let mut night = rig.start();
                runs(&rig, &mut night, true);
                says(&rig, 40, &[], 6144);
                rig.board.lab.write("end", "");
                night.each_look(|_, _| rig.pass(20));
                night.end(code);
                let record = &rig.records()[1];
                assert_eq!((&record["status"], &record["settle"]["verdict"]), (&status.into(), &"timed_out".into()), "{record}");
                let met: Vec<&Value> = of_gpu(record).into_iter().map(|found| &found["met"]).collect();
                assert_eq!(met, [true, true, false]);
                let said = if policy == "flag" { &record["issues"][0]["message"] } else { &record["message"] };
                let told = format!("did not settle within 1m: {GPU} memory in use 6144.0 MiB (at most 544.0)");
                assert!(said.as_str().unwrap().contains(&told), "{said}");
                assert_eq!(rig.reference()["too_warm"], json!([]), "it was cool");
                rig.board.run(&["export", "results/c", "--public", "copy"]).expect(0);
                let copied = rig.board.lab.all_files().into_iter().filter(|path| path.starts_with(rig.board.lab.path("copy")));
                for path in copied.collect::<Vec<_>>() {
                    let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                    let left = text.find("5b3c7f00");
                    assert!(left.is_none(), "{}: {}", path.display(), &text[left.unwrap_or(0).saturating_sub(200)..][..400]);
                }
            });
        }
    });
}

#[test]
fn a_command_that_stayed_off_a_gpu_and_an_engine_on_the_cpu_do_not_wait_for_it() {
    let Some(rig) = rig(User::Caller, "{ min: 0ms, timeout: 1m }") else { return };
    rig.edit("argv: [./workload.sh]", "argv: [./workload.sh, '{for}'], params: { for: [cuda, cpu] }");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/models/tiny-cnn.onnx");
    let engine = "  - { devices: here, backend: builtin, model: cnn, repetitions: 1, rounds: 1, iterations: 1, threads: 1 }\n";
    let models = format!("models: {{ cnn: {{ path: {model:?} }} }}\n");
    rig.board.lab.write("c.yaml", rig.board.lab.read("c.yaml") + engine + &models);
    let mut night = rig.start();
    // There and back: cuda, cpu, cpu, cuda.
    runs(&rig, &mut night, true);
    says(&rig, 40, &[], 512);
    runs(&rig, &mut night, false);
    let nobody_could_wait_for_it = || says(&rig, 90, &[std::process::id() as i32], 7000);
    nobody_could_wait_for_it();
    runs(&rig, &mut night, false);
    says(&rig, 40, &[], 512);
    runs(&rig, &mut night, true);
    nobody_could_wait_for_it();
    night.end(0);
    let records = rig.records();
    let of = |name: &str, repetition: u32| {
        let is_it = |record: &&Value| record["ids"]["point"]["axes"]["for"] == name && record["ids"]["repetition"] == repetition;
        records.iter().find(is_it).unwrap_or_else(|| panic!("{name} {repetition} in {:#?}", records[0]["ids"]))
    };
    let n_looked_at = |name, repetition| of_gpu(of(name, repetition)).iter().filter(|found| found["met"] == true).count();
    assert_eq!((n_looked_at("cpu", 0), n_looked_at("cuda", 1)), (3, 3), "of a new command it isn't known");
    let [left_out] = of_gpu(of("cpu", 1))[..] else { panic!() };
    assert_eq!((&left_out["met"], &left_out["reason"]), (&Value::Null, &"the last run of this command did not compute on it".into()));
    assert_eq!(of("cpu", 1)["settle"]["verdict"], "settled");
    let engine = records.iter().find(|record| record["backend"]["name"] == "builtin").unwrap();
    assert_eq!((&of_gpu(engine)[0]["reason"], &engine["settle"]["verdict"]), (&"the engine runs on the CPU".into(), &"settled".into()));
}

#[test]
fn a_gpu_that_falls_silent_is_unmet() {
    let Some(rig) = rig(User::Caller, "{ min: 0ms, timeout: 1m }") else { return };
    let mut night = rig.start();
    runs(&rig, &mut night, true);
    driver::says(&rig.board.lab, &["temperature hang"]);
    rig.board.lab.write("end", "");
    night.each_look(|_, _| rig.pass(20));
    night.end(0);
    let record = rig.records().remove(1);
    let temperature = of_gpu(&record)[0];
    assert_eq!((&temperature["met"], &temperature["value"]), (&false.into(), &Value::Null), "{temperature}");
    assert_eq!((codes(&record), &record["settle"]["regime"]), (vec!["settle_timeout"], &Value::Null));
}

#[test]
fn where_nvidia_smi_tells_each_look_has_its_values() {
    let Some(rig) = Rig::with_smi(User::Caller, "{ min: 0ms, timeout: 10m, temp_within: 3C }").map(twice) else { return };
    let lab = &rig.board.lab;
    const UUID: &str = "GPU-5b3c7f00-1111-2222-3333-444455556666";
    let says = |celsius: u32, pid: Option<i32>| {
        let app = pid.map(|pid| format!("apps {UUID}, {pid}, 64"));
        let lines = [format!("uuid {UUID}"), format!("temperature.gpu {celsius}"), "memory.used 512".into(), app.unwrap_or_default()];
        driver::says(lab, &lines.each_ref().map(String::as_str));
    };
    says(40, None);
    let mut night = rig.start();
    eventually("the workload runs", || lab.path("started").exists().then_some(()));
    says(80, lab.pids_of("workload.sh").first().copied());
    // It lists processes every 5 s.
    let lists = || lab.read("driver/smi.log").lines().filter(|line| line.starts_with("--query-compute-apps")).count();
    let before = lists();
    eventually("they are listed", || (lists() > before).then_some(()));
    lab.write("end", "");
    night.next(&["finished"]);
    night.each_look(|n, _| {
        rig.pass(8);
        says(if n < 4 { 70 - 5 * n } else { 42 }, None);
        lab.write("end", "");
    });
    night.end(0);
    let record = &rig.records()[1];
    let met: Vec<&Value> = of_gpu(record).into_iter().map(|found| &found["met"]).collect();
    assert_eq!((met, &record["settle"]["verdict"]), (vec![&json!(true); 3], &"settled".into()), "{record}");
    let columns = record["settle"]["trace"]["columns"].as_array().unwrap().iter().filter(|column| column["subject"] == GPU);
    let unread: Vec<&Value> = columns.clone().filter(|column| column["values"].as_array().unwrap().contains(&Value::Null)).collect();
    assert_eq!((columns.count(), unread), (3, vec![]));
}
