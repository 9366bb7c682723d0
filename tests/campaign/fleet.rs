//! Several devices in one night.

use crate::kit::Bench;
use crate::lab::eventually;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// Two names of this machine, with one keeper.
fn two_names() -> Bench {
    let bench = Bench::new();
    bench.edit("c.yaml", "devices: { here: { local: {} } }", "devices: { a: { local: {} }, b: { local: {} } }");
    bench.edit("c.yaml", "devices: here\n", "devices: [a, b]\n");
    bench
}

#[test]
fn two_names_of_one_machine_take_turns_and_the_last_one_gives_it_back() {
    let bench = two_names();
    let ran = bench.run(&[]).expect(0);
    let devices: Vec<String> = bench.lab.events("c", "started").iter().map(|event| event["device"].as_str().unwrap().to_owned()).collect();
    let [a, b] = ["a", "b"].map(|name| devices.iter().filter(|device| *device == name).count());
    assert_eq!((a, b), (4, 4));
    // Whoever is there first may run twice before the other one is; from then on they alternate.
    let from = devices.iter().position(|device| *device != devices[0]).unwrap();
    let both = &devices[from..];
    let alternating = both.windows(2).take_while(|pair| pair[0] != pair[1]).count();
    assert!(alternating + 1 >= both.len() - from, "{devices:?}");
    assert!(ran.stderr().contains("is the same machine as"), "{}", ran.stderr());
    assert_eq!(bench.lab.events("c", "device_released").len(), 1);
    bench.look(&["status"]).expect(0);
}

#[test]
fn a_run_never_overlaps_another_one_on_the_same_machine() {
    let bench = two_names();
    bench.script("bench.sh", "mkdir lock || exit 9; sleep 0.05; rmdir lock; echo '{\"score\": 1}'");
    bench.run(&["--jobs", "8"]).expect(0);
    bench.run(&["--jobs", "1", "--fresh"]).expect(0);
    let refused = bench.run(&["-j", "0"]).expect(2);
    assert!(refused.stderr().contains("--jobs"), "{}", refused.stderr());
}

#[test]
fn what_the_controller_used_beside_a_run_on_its_own_machine_is_in_the_record() {
    let bench = Bench::new();
    bench.run(&["--limit", "1"]).expect(1);
    let used_ms = bench.record()["observer"]["controller_cpu_ms"].as_f64().unwrap();
    assert!((0.0..1000.0).contains(&used_ms), "{used_ms}");
}

#[test]
fn a_group_that_another_campaign_has_is_waited_for() {
    let bench = Bench::new();
    bench.edit("c.yaml", "here: { local: {} }", "here: { local: {}, resource_group: shelf }");
    bench.run(&["--limit", "1"]).expect(1);
    let lock = bench.lab.path("state/isotherm/groups/shelf");
    let said = fs::read_to_string(&lock).unwrap();
    assert!(said.starts_with("campaign `c` ("), "{said}");
    fs::write(&lock, "campaign `other` (me@there pid 1)\n").unwrap();
    let file = File::open(&lock).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let waiting = bench.lab.start(&["run", "c.yaml"]);
    let taken = eventually("it says that it waits", || bench.lab.events("c", "group_taken").pop());
    assert_eq!((taken["group"].as_str(), taken["holder"].as_str()), (Some("shelf"), Some("campaign `other` (me@there pid 1)")));
    assert_eq!(bench.ran().len(), 1, "of before");
    drop(file);
    crate::lab::Ran::of(waiting).expect(0);
    assert_eq!(bench.ran().len(), 3);
}

#[test]
fn once_three_runs_have_found_nothing_of_what_they_need_the_others_are_not_tried() {
    let bench = Bench::new();
    fs::remove_file(bench.lab.path("bench.sh")).unwrap();
    let ran = bench.run(&[]).expect(1);
    assert!(ran.stderr().contains("size=1: skipped: precondition (r1)"), "{}", ran.stderr());
    let records = bench.lab.records("c");
    let skipped: Vec<&Value> = records.iter().map(|(_, record)| record).filter(|record| record["status"] == "skipped").collect();
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0]["reason"], "precondition");
    assert!(skipped[0]["message"].as_str().unwrap().contains("for want of what this one needs too: ./bench.sh"), "{}", skipped[0]["message"]);
    // It is there again: everything is tried again.
    bench.script("bench.sh", "echo '{\"score\": 1}'");
    bench.run(&[]).expect(0);
}

#[test]
fn who_watches_sees_what_every_device_does_until_the_night_is_over() {
    let bench = Bench::new();
    bench.script("bench.sh", "until [ -e go ]; do sleep 0.02; done; echo '{\"score\": '$1'.5}'");
    let night = bench.lab.start(&["run", "c.yaml"]);
    eventually("the first run is on", || bench.lab.events("c", "started").pop());
    let mut watching = bench.lab.start(&["watch", "results/c"]);
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("  here  0/4       size=1 r0 since ")));
    bench.lab.write("go", "");
    crate::lab::Ran::of(night).expect(0);
    let text = lines.collect::<Vec<_>>().join("\n");
    assert!(watching.wait().unwrap().success());
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.contains("4/4 runs") && last.contains("over: 4 ok · 0 failed · 0 pending") && last.contains("through"), "{text}");
    // What is over can still be looked at.
    let json = bench.look(&["watch", "--json"]).expect(0);
    assert_eq!(json.stdout().lines().filter(|line| line.contains("\"event\":\"finished\"")).count(), 4);
}

#[test]
fn who_watches_a_night_without_a_controller_is_told() {
    let bench = Bench::new();
    bench.script("bench.sh", "until [ -e go ]; do sleep 0.02; done; echo '{\"score\": 1}'");
    let mut night = bench.lab.start(&["run", "c.yaml"]);
    eventually("the first run is on", || bench.lab.events("c", "started").pop());
    let watching = bench.lab.start(&["watch", "results/c"]);
    night.kill().unwrap();
    night.wait().unwrap();
    let seen = watching.wait_with_output().unwrap();
    assert_eq!(seen.status.code(), Some(1));
    assert!(String::from_utf8(seen.stderr).unwrap().contains("no controller is at work"));
    bench.lab.write("go", "");
    bench.run(&[]).expect(0);
}

#[test]
fn what_another_device_says_of_itself_moves_no_job_of_a_device_at_work() {
    let bench = two_names();
    bench.script("bench.sh", "echo '{\"score\": '$1'}'");
    // `b` comes first in the plan and loses half of its points as soon as it is asked, which `a` is before.
    bench.edit(
        "c.yaml",
        "devices: [a, b]\n",
        "devices: [b, a]\n    when: device.id == 'a' or size < device.logical_cpus - device.logical_cpus + 2\n",
    );
    bench.run(&[]).expect(0);
    let records = bench.lab.records("c");
    assert_eq!(records.len(), 6);
    for (path, record) in records {
        let size = &record["ids"]["point"]["axes"]["size"];
        assert_eq!(
            (&record["metrics"]["score"]["value"], record["backend"]["executed"]["argv"][1].as_str()),
            (&Value::from(size.as_f64()), Some(size.to_string().as_str())),
            "{path:?}"
        );
    }
    bench.look(&["status"]).expect(0);
}
