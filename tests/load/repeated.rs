//! A run that something else disturbed is made once more, at the end of its pass.

use crate::burners::Burners;
use crate::lab::{Clocks, Lab, Ran, eventually, for_each_user, spawn};
use serde_json::Value;
use std::fs;
use std::process::Child;

/// The first run waits to be disturbed; the others are over at once, and too short to be judged.
const DISTURBED_ONCE: &str = "#!/bin/sh
[ -e started ] && exit
: > started
while [ ! -e end ]; do sleep 0.05; done
";
/// Run n sets the clocks as `clock.n` says, if that is there, and waits while `hold` is.
const SLEEPER: &str = "#!/bin/sh
echo >> count
n=$(wc -l < count)
[ -e clock.$n ] && dd if=clock.$n of=clock conv=notrunc 2> /dev/null
while [ $n = 2 ] && [ -e hold ]; do sleep 0.02; done
exit 0
";

/// A campaign of one point, two repetitions.
fn write(lab: &Lab, workload: &str) {
    lab.write("workload.sh", workload);
    let campaign = "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 2, timeout: 120s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
";
    lab.write("c.yaml", campaign);
}

/// A night whose first run is disturbed, to its end.
fn disturbed_night(lab: &Lab, args: &[&str]) -> (Ran, String) {
    let night = lab.start(args);
    eventually("the workload runs", || lab.path("started").exists().then_some(()));
    let burners = Burners::start(lab);
    burners.disturb();
    lab.write("end", "");
    (Ran::of(night).expect(0), burners.name.clone())
}

/// Names of the records, and what each is.
fn records(lab: &Lab) -> Vec<(String, Value)> {
    let name = |path: std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    lab.records("c").into_iter().map(|(path, record)| (name(path), record)).collect()
}

fn names(records: &[(String, Value)]) -> Vec<(&str, &str)> {
    records.iter().map(|(name, record)| (name.as_str(), record["validity"].as_str().unwrap())).collect()
}

#[test]
fn a_burst_of_another_process_costs_a_run_and_its_repeat_comes_before_the_next_pass() {
    let lab = Lab::new();
    write(&lab, DISTURBED_ONCE);
    let (ran, burner) = disturbed_night(&lab, &["run", "c.yaml"]);
    let (ran, told) = (ran.stdout(), ran.stderr());
    assert!(told.contains("1 run of this pass disturbed: once more") && told.contains("2 ok · 0 failed · 0 pending · 1 repeated"), "{ran}{told}");

    let records = records(&lab);
    assert_eq!(names(&records), [("timing-r0.attempt0.json", "degraded"), ("timing-r0.json", "valid"), ("timing-r1.json", "valid")]);
    let [first, repeat, next] = [0, 1, 2].map(|at: usize| &records[at].1);
    let message = first["issues"][0]["message"].as_str().unwrap();
    assert!(first["issues"][0]["code"] == "competing_load" && message.contains(&burner), "{}", first["issues"]);
    assert_eq!((&repeat["ids"]["attempt"], &repeat["ids"]["job_id"]), (&1.into(), &first["ids"]["job_id"]));
    assert!(repeat["time"]["start_utc"].as_str() < next["time"]["start_utc"].as_str());

    lab.run(&["verify", "results/c"]).expect(0);
    assert!(lab.run(&["report", "results/c"]).expect(0).stdout().contains("1 earlier attempt"));
    assert!(lab.run(&["run", "c.yaml"]).expect(0).stderr().contains("nothing to do"));
}

#[test]
fn a_disturbed_run_that_was_not_repeated_is_counted_and_repeated_once_that_is_asked_for() {
    let lab = Lab::new();
    write(&lab, DISTURBED_ONCE);
    let (ran, _) = disturbed_night(&lab, &["run", "c.yaml", "--set", "retry_contaminated=0"]);
    assert!(ran.stderr().contains("2 ok (1 degraded, 1 contaminated)"), "{}", ran.stderr());
    let report = lab.run(&["report", "results/c"]).expect(0).stdout();
    assert!(report.contains("1 ok · 1 degraded (1 contaminated)") && report.contains("1 degraded left out (1 contaminated)"), "{report}");
    assert!(lab.run(&["status", "results/c"]).expect(0).stdout().contains("r0 degraded (contaminated)"));
    assert!(lab.run(&["run", "c.yaml", "--set", "retry_contaminated=0"]).expect(0).stderr().contains("nothing to do"));

    let plan = lab.run(&["plan", "c.yaml"]).expect(0).stdout();
    assert!(plan.contains("1 contaminated · 1 reused") && plan.contains("1 run: disturbed: competing_load"), "{plan}");
    let doctor = lab.run(&["doctor", "c.yaml"]).stdout();
    assert!(doctor.contains("; 1 run to make, about "), "{doctor}");
    assert!(lab.run(&["run", "c.yaml"]).expect(0).stderr().contains("2 ok · 0 failed"));
    assert_eq!(names(&records(&lab))[..2], [("timing-r0.attempt0.json", "degraded"), ("timing-r0.json", "valid")]);
}

/// Clocks by which the machine has slept for 20 s once more with each of these runs.
fn sleep_in_runs(lab: &Lab, runs: &[i64]) {
    lab.set_clocks(Clocks::default());
    for (times, run) in (1..).zip(runs) {
        lab.write(&format!("clock.{run}"), Clocks { boottime_s: times * 20, ..Clocks::default() }.bytes());
    }
}

fn start(lab: &Lab, args: &[&str]) -> Child {
    spawn(lab.isotherm(args).envs([lab.clock()]))
}

fn executions(lab: &Lab) -> usize {
    lab.read("count").lines().count()
}

#[test]
fn a_run_is_repeated_as_often_as_the_campaign_says_and_no_more() {
    for_each_user(|user| {
        let lab = Lab::of(user);
        write(&lab, SLEEPER);
        sleep_in_runs(&lab, &[1, 2, 3]);
        lab.write("count", "");
        for file in ["clock", "count"] {
            fs::set_permissions(lab.path(file), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        }
        let night = start(&lab, &["run", "c.yaml", "--set", "retry_contaminated=2"]);
        let ran = Ran::of(night).expect(1);
        assert!(ran.stderr().contains("2 repeated"), "{}", ran.stderr());
        let attempts = [("timing-r0.attempt0.json", "invalid"), ("timing-r0.attempt1.json", "invalid"), ("timing-r0.json", "invalid")];
        assert_eq!(names(&records(&lab))[..3], attempts);
        assert_eq!(executions(&lab), 4);
    });
}

#[test]
fn a_repeat_is_one_of_the_runs_that_a_limit_allows() {
    let lab = Lab::new();
    write(&lab, SLEEPER);
    sleep_in_runs(&lab, &[1]);
    lab.write("count", "");
    for (limit, code, all) in [("2", 1, 2), ("1", 0, 3)] {
        let night = start(&lab, &["run", "c.yaml", "--limit", limit]);
        Ran::of(night).expect(code);
        assert_eq!(executions(&lab), all, "the second repetition is left for another time");
    }
    let all = [("timing-r0.attempt0.json", "invalid"), ("timing-r0.json", "valid"), ("timing-r1.json", "valid")];
    assert_eq!(names(&records(&lab)), all);
}

#[test]
fn a_controller_that_is_killed_while_a_run_is_repeated_costs_no_further_repeat() {
    for_each_user(|user| {
        let lab = Lab::of(user);
        write(&lab, SLEEPER);
        sleep_in_runs(&lab, &[1]);
        lab.write("count", "");
        for file in ["clock", "count"] {
            fs::set_permissions(lab.path(file), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        }
        lab.write("hold", "");
        let mut night = start(&lab, &["run", "c.yaml"]);
        eventually("the repeat runs", || (executions(&lab) == 2).then_some(()));
        night.kill().unwrap();
        night.wait().unwrap();
        fs::remove_file(lab.path("hold")).unwrap();
        let night = start(&lab, &["run", "c.yaml"]);
        Ran::of(night).expect(0);
        let all = [("timing-r0.attempt0.json", "invalid"), ("timing-r0.json", "valid"), ("timing-r1.json", "valid")];
        assert_eq!(names(&records(&lab)), all);
        assert_eq!(executions(&lab), 3);
    });
}
