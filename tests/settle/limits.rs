//! Runs that are ended because of the temperature of their device.

use crate::held;
use crate::lab::{User, eventually, for_each_user};
use crate::rig::{Rig, codes};
use serde_json::{Value, json};

const WORKLOAD: &str = "#!/bin/sh\necho hello\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\n";

fn rig(user: User, limits: &str) -> Option<Rig> {
    let rig = Rig::new(user, "0ms")?;
    rig.board.lab.write("workload.sh", WORKLOAD);
    rig.edit("argv: [./workload.sh]", &format!("limits: {limits}, argv: [./workload.sh]"));
    Some(rig)
}

fn has_started(rig: &Rig) {
    held::has_started(&rig.board.lab);
}

#[test]
fn a_run_that_makes_its_device_too_hot_is_stopped_and_not_tried_again_by_itself() {
    for_each_user(|user| {
        let Some(rig) = rig(user, "{ temp_max: 85C }") else { return };
        // At the limit is not above it.
        rig.heat(85_000);
        let night = rig.start();
        has_started(&rig);
        rig.heat(85_500);
        night.end(1);
        let record = rig.records().remove(0);
        assert_eq!((&record["status"], &record["reason"], &record["validity"]), (&"failed".into(), &"thermal_stop".into(), &"invalid".into()));
        let said = record["message"].as_str().unwrap();
        assert!(said.starts_with("stopped: cpu-thermal was at 85.5 °C, above the limit of 85 °C: hello"), "{said}");
        assert_eq!((&record["raw"]["stdout"]["head"]["data"], &record["requested"]["temp_max_c"]), (&"hello\n".into(), &85.0.into()));
        assert!(codes(&record).is_empty() && record["device"]["containment"]["survivors"] == json!([]), "{record}");
        eventually("nothing is left", || rig.board.lab.processes().is_empty().then_some(()));

        rig.heat(50_000);
        rig.board.lab.write("end", "");
        rig.board.run(&["run", "c.yaml"]).expect(1);
        assert_eq!(rig.records().len(), 1, "kept");
        // It may become hotter now: that is another question.
        rig.edit("85C", "90C");
        rig.board.run(&["run", "c.yaml"]).expect(0);
    });
}

#[test]
fn a_warm_up_that_makes_its_device_too_hot_is_the_end_of_its_run() {
    let Some(rig) = rig(User::Caller, "{ temp_max: 85C }") else { return };
    rig.edit("warmup: 0", "warmup: 1");
    let night = rig.start();
    has_started(&rig);
    rig.heat(92_250);
    night.end(1);
    let record = rig.records().remove(0);
    assert_eq!((&record["reason"], &record["time"]["measure_ms"]), (&"thermal_stop".into(), &Value::Null), "{record}");
    assert!(record["message"].as_str().unwrap().contains("cpu-thermal was at 92.2"), "{record}");
}

#[test]
fn a_limit_of_the_device_holds_for_all_that_do_not_have_their_own() {
    let Some(rig) = rig(User::Caller, "{ temp_max: 90C }") else { return };
    rig.edit("here: { local: {} }", "here: { local: {}, limits: { temp_max: 60C, on_sensor_loss: stop } }");
    rig.heat(70_000);
    rig.board.lab.write("end", "");
    rig.board.run(&["run", "c.yaml"]).expect(0);
    let spec = |record: &Value| record["ids"]["identity"]["spec"]["limits"].clone();
    assert_eq!(spec(&rig.records()[0]), json!({ "temp_max_c": 90.0, "on_sensor_loss": "stop" }));
    rig.edit("limits: { temp_max: 90C }, ", "");
    std::fs::remove_file(rig.board.lab.path("end")).unwrap();
    rig.board.run(&["run", "c.yaml"]).expect(1);
    let record = rig.records().into_iter().find(|record| record["status"] == "failed").unwrap();
    assert!(record["message"].as_str().unwrap().starts_with("stopped: cpu-thermal was at 70.0 °C, above the limit of 60 °C"), "{record}");
}

#[test]
fn a_sensor_that_falls_silent_ends_a_run_and_lets_none_begin_where_the_campaign_wants_it_until_it_speaks_again() {
    let Some(rig) = rig(User::Caller, "{ temp_max: 85C, on_sensor_loss: stop }") else { return };
    rig.edit("repetitions: 1", "repetitions: 2");
    let night = rig.start();
    has_started(&rig);
    rig.board.set("class/thermal/thermal_zone0/temp", "n/a");
    rig.pass(11);
    night.end(1);
    let records = rig.records();
    let told = ["stopped: cpu-thermal gave no value for 10 s, and its temperature is limited", "cpu-thermal can't be read (this read failed), and"];
    for (record, told) in records.iter().zip(told) {
        assert_eq!((&record["reason"], codes(record)), (&"precondition".into(), vec!["sensor_lost"]), "{record}");
        assert!(record["message"].as_str().unwrap().starts_with(told), "{record}");
    }
    assert_eq!((records.len(), rig.board.lab.read("started").lines().count()), (2, 1));

    rig.heat(45_000);
    rig.board.lab.write("end", "");
    rig.board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(rig.records().iter().filter(|record| record["status"] == "ok").count(), 2);
}

#[test]
fn without_a_sensor_a_limited_run_goes_on_unwatched_or_is_not_started() {
    for (on_loss, code) in [("continue", 0), ("stop", 1)] {
        let Some(rig) = rig(User::Caller, &format!("{{ temp_max: 85C, on_sensor_loss: {on_loss} }}")) else { return };
        rig.board.set("class/thermal/thermal_zone0/type", "acpitz");
        rig.board.lab.write("end", "");
        rig.board.run(&["run", "c.yaml"]).expect(code);
        let record = rig.records().remove(0);
        assert_eq!(codes(&record), ["sensor_lost"]);
        match on_loss {
            "continue" => assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"valid".into())),
            _ => assert_eq!((&record["reason"], rig.board.lab.path("started").exists()), (&"precondition".into(), false), "{record}"),
        }
    }
}
