//! What is waited for, what ends a wait, and what its record tells.

use crate::lab::{User, eventually, for_each_user};
use crate::rig::{LIVE_BITS, Rig, codes, criterion, kill, trace};
use serde_json::{Value, json};
use std::thread;

const QUIET: &str = "{ min: 0ms, timeout: 3m, temp_within: 3C }";

#[test]
fn a_board_that_heats_and_throttles_is_waited_for_until_it_has_cooled_and_its_record_tells_so() {
    for_each_user(|user| {
        let Some(rig) = Rig::new(user, QUIET) else { return };
        rig.edit("repetitions: 1", "repetitions: 2");
        let mut night = rig.start();
        // At rest, there is nothing to wait for but that it stays so.
        night.each_look(|_, look| assert_eq!((&look["temperature_c"], &look["limit_c"]), (&45.0.into(), &48.0.into())));
        // While the first record is written the board is as hot as its run has made it.
        rig.heat(70_000);
        rig.board.set(LIVE_BITS, "50008");
        rig.cap(1_200_000);
        let cooling = [66_000, 58_000, 52_000, 49_000, 47_000];
        let mut hot = Vec::new();
        night.each_look(|n, look| {
            hot.extend(look["temperature_c"].as_f64().filter(|c| *c > 60.0));
            // Quick enough that nobody takes it for steady.
            rig.pass(8);
            rig.heat(cooling[(n as usize - 1).min(4)]);
            match n {
                // Now it is cool enough, and held back still.
                5 => rig.cap(1_500_000),
                6 => _ = rig.board.set(LIVE_BITS, "50000"),
                _ => {}
            }
        });
        night.end(0);
        let [first, second] = &rig.records()[..] else { panic!() };
        let settle = &first["settle"];
        assert_eq!((&settle["verdict"], &settle["regime"], &settle["offset_c"]), (&"settled".into(), &"burst".into(), &0.0.into()));
        assert_eq!(settle["reference"]["values"], json!({ "cpu-thermal": 45.0, "gpu-thermal": 30.0 }));
        assert!(first["time"]["settle_ms"].as_f64().unwrap() >= 3000.0);

        let settle = &second["settle"];
        assert_eq!((&settle["verdict"], &settle["regime"], &settle["offset_c"]), (&"settled".into(), &"burst".into(), &2.0.into()), "{settle:#}");
        let temperatures: Vec<f64> = trace(second, "temperature_c").into_iter().flatten().collect();
        assert!(temperatures.is_sorted_by(|a, b| a >= b) && temperatures.len() >= 8, "{temperatures:?}");
        assert_eq!((temperatures.last(), hot.is_empty()), (Some(&47.0), false));
        assert_eq!((trace(second, "throttle_count")[0], trace(second, "throttle_count").last().unwrap()), (Some(1.0), &Some(0.0)));
        assert_eq!(trace(second, "narrowed_policies_count")[0], Some(1.0));
        assert_eq!(criterion(second, "temperature")["limit"], 48.0);
        assert!(codes(second).is_empty(), "{second}");
        assert_eq!(second["context"]["headline"]["start_c"], 47.0);
    });
}

#[test]
fn a_run_whose_device_does_not_settle_in_time_is_flagged_failed_or_skipped_as_asked() {
    thread::scope(|scope| {
        for (policy, code, status, reason) in
            [("flag", 0, "ok", Value::Null), ("fail", 1, "failed", "precondition".into()), ("skip", 1, "skipped", "precondition".into())]
        {
            scope.spawn(move || {
                let Some(rig) = Rig::new(User::Caller, &format!("{{ min: 1s, timeout: 1m, on_timeout: {policy} }}")) else { return };
                let mut night = rig.start();
                night.next(&["started"]);
                night.each_look(|n, _| {
                    // So that it isn't steady either.
                    rig.heat(60_000 + i64::from(n) * 1000);
                    rig.pass(20);
                });
                night.end(code);
                let record = &rig.records()[0];
                assert_eq!((&record["status"], &record["reason"]), (&status.into(), &reason), "{record}");
                let settle = &record["settle"];
                assert_eq!((&settle["verdict"], &settle["regime"]), (&"timed_out".into(), &"sustained".into()));
                assert_eq!(criterion(record, "temperature")["met"], false);
                assert_eq!(criterion(record, "competing_cpu")["met"], true, "{record}");
                let ran = rig.board.lab.path("started").exists();
                match policy {
                    "flag" => {
                        assert_eq!((&record["validity"], codes(record)), (&"degraded".into(), vec!["settle_timeout"]));
                        let said = record["issues"][0]["message"].as_str().unwrap();
                        assert!(
                            said.starts_with("the device did not settle within 1m: cpu-thermal 6") && said.ends_with(" °C (at most 48.0)"),
                            "{said}"
                        );
                        assert!(ran);
                    }
                    _ => {
                        assert!(record["message"].as_str().unwrap().contains("did not settle within 1m: cpu-thermal"), "{record}");
                        assert!(!ran && record["time"]["settle_ms"].as_f64().unwrap() >= 60_000.0, "{record}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_hot_board_is_not_called_settled_by_whoever_comes_next() {
    thread::scope(|scope| {
        for keeper_dies in [false, true] {
            scope.spawn(move || {
                let Some(rig) = Rig::new(User::Caller, "{ min: 0ms, timeout: 10m }") else { return };
                let mut night = rig.start();
                night.next(&["settling"]);
                rig.heat(75_000);
                let keeper = rig.board.lab.pids_of(" keep --state-dir ")[0];
                kill(night.controller.id() as i32);
                night.controller.wait().unwrap();
                if keeper_dies {
                    kill(keeper);
                }
                let first_contact = rig.reference();
                let mut night = rig.start();
                night.each_look(|n, look| {
                    assert_eq!(look["limit_c"], 48.0, "{look}");
                    rig.pass(8);
                    rig.heat((75_000 - 10_000 * i64::from(n)).max(46_000));
                });
                night.end(0);
                let record = rig.records().remove(0);
                let settle = &record["settle"];
                assert_eq!((&settle["verdict"], &settle["offset_c"]), (&"settled".into(), &1.0.into()), "{settle:#}");
                assert!(trace(&record, "temperature_c").contains(&Some(75.0)), "{settle:#}");
                assert_eq!(settle["reference"]["values"]["cpu-thermal"], 45.0);
                assert_eq!(rig.reference(), first_contact, "taken once");
            });
        }
    });
}

#[test]
fn a_sensor_that_is_lost_later_is_unmet_and_one_that_never_was_there_is_left_out() {
    let Some(rig) = Rig::new(User::Caller, "{ min: 0ms, timeout: 1m }") else { return };
    let mut night = rig.start();
    night.next(&["started"]);
    rig.board.set("class/thermal/thermal_zone0/temp", "n/a");
    night.each_look(|_, _| rig.pass(20));
    night.end(0);
    let record = rig.records().remove(0);
    let temperature = criterion(&record, "temperature");
    assert_eq!((&temperature["met"], &temperature["value"], &temperature["reason"]), (&false.into(), &Value::Null, &"this read failed".into()));
    assert_eq!((codes(&record), &record["settle"]["regime"]), (vec!["settle_timeout"], &Value::Null));

    let Some(rig) = Rig::new(User::Caller, "{ min: 0ms, timeout: 1m }") else { return };
    rig.board.set("class/thermal/thermal_zone0/temp", "n/a");
    let mut night = rig.start();
    night.each_look(|_, look| assert_eq!(look["temperature_c"], Value::Null));
    night.end(0);
    let record = rig.records().remove(0);
    let temperature = criterion(&record, "temperature");
    assert_eq!((&temperature["met"], &record["settle"]["verdict"]), (&Value::Null, &"settled".into()));
    assert!(temperature["reason"].as_str().unwrap().starts_with("not read at first contact: "), "{temperature}");
}

#[test]
fn a_sensor_that_hangs_holds_up_neither_a_wait_nor_its_cancel() {
    let Some(rig) = Rig::new(User::Caller, "{ min: 0ms, timeout: 1m }") else { return };
    let mut night = rig.start();
    night.each_look(|_, _| {});
    night.end(0);
    // The next keeper opens it anew, and nobody answers.
    eventually("the keeper is gone", || rig.board.lab.pids_of(" keep ").is_empty().then_some(()));
    let zone = rig.board.zone(0, "cpu-thermal", 45_000);
    std::fs::remove_file(&zone).unwrap();
    let name = std::ffi::CString::new(zone.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
    rig.edit("repetitions: 1", "repetitions: 2");
    let mut night = rig.start();
    night.next(&["settling"]);
    rig.board.run(&["cancel", "c.yaml"]).expect(0);
    night.next(&["finished"]);
    night.end(1);
    let records = rig.records();
    let cancelled = records.iter().find(|record| record["ids"]["repetition"] == 1).unwrap();
    assert_eq!((&cancelled["reason"], &cancelled["settle"]["verdict"]), (&"interrupted".into(), &"not_reached".into()));
    let temperature = criterion(cancelled, "temperature");
    assert_eq!(temperature["met"], false, "{temperature}");
}

#[test]
fn a_board_that_never_cools_again_gets_another_reference_after_three_time_outs() {
    let Some(rig) = Rig::new(User::Caller, "{ min: 0ms, timeout: 1m }") else { return };
    rig.edit("repetitions: 1", "repetitions: 5");
    let mut night = rig.start();
    night.each_look(|_, _| {});
    let looks = (0..4).map(|_| {
        night.each_look(|n, _| {
            rig.heat(60_000 + i64::from(n) * 500);
            rig.pass(20);
        })
    });
    assert!(looks.collect::<Vec<_>>().iter().all(|n| *n < 20));
    night.end(0);
    let records = rig.records();
    let verdicts: Vec<&Value> = records.iter().map(|record| &record["settle"]["verdict"]).collect();
    assert_eq!(verdicts, ["settled", "timed_out", "timed_out", "timed_out", "settled"], "{records:#?}");
    assert_eq!(codes(&records[2]), ["settle_timeout"]);
    assert_eq!(codes(&records[3]), ["settle_timeout", "reference_raised"]);
    let reference = &records[4]["settle"]["reference"];
    assert_eq!(reference["raised"], 1);
    assert!(reference["values"]["cpu-thermal"].as_f64().unwrap() >= 60.0);
    assert_eq!(reference["taken_at"], records[0]["settle"]["reference"]["taken_at"]);
}

#[test]
fn a_board_that_stays_a_little_warmer_has_settled_when_it_is_steady() {
    let Some(rig) = Rig::new(User::Caller, "{ min: 0ms, timeout: 10m, temp_within: 3C }") else { return };
    let mut night = rig.start();
    night.next(&["started"]);
    rig.heat(52_000);
    // What stands still in whole degrees for less than five minutes may be falling.
    let looks = night.each_look(|_, _| rig.pass(59));
    assert!(looks >= 6, "{looks}");
    night.end(0);
    let record = rig.records().remove(0);
    let settle = &record["settle"];
    assert_eq!(
        (&settle["verdict"], &settle["regime"], &settle["offset_c"]),
        (&"settled_steady".into(), &"sustained".into(), &7.0.into()),
        "{settle:#}"
    );
    assert!(codes(&record).is_empty());
}

#[test]
fn somebody_elses_work_is_waited_for() {
    let Some(rig) = Rig::new(User::Caller, QUIET) else { return };
    let mut night = rig.start();
    night.next(&["started"]);
    let mut busy = 0;
    let looks = night.each_look(|n, _| {
        if n < 4 {
            // More than one core for a second.
            busy += 500;
            rig.busy_ticks(busy);
        }
    });
    night.end(0);
    let record = rig.records().remove(0);
    assert_eq!(record["settle"]["verdict"], "settled");
    let cores = trace(&record, "competing_cores");
    assert!(looks >= 7 && cores[1..4].iter().flatten().any(|cores| *cores > 1.0) && cores.last().unwrap().unwrap() <= 0.1, "{cores:?}");
}
