//! The machine is kept from sleeping for as long as a campaign runs. `systemd-inhibit` is a stand-in here, first on the PATH: the real one
//! would ask the logind of the machine that the tests run on.

use crate::kit::Bench;
use crate::lab::{Lab, Ran, User, eventually};
use serde_json::{Value, json};
use std::process::{Child, Stdio};

/// Grants the lock: notes who holds it and what it was asked for, then runs the command.
const GRANTS: &str = "echo \"$@\" >> asked; echo $$ >> holder; while [ $# -gt 1 ]; do shift; done; exec \"$1\"";

/// One run that waits for its gate, and a `systemd-inhibit` with this body, or none at all.
fn bench(user: User, inhibit: Option<&str>) -> Bench {
    let bench = Bench::one_of(user, "argv: [./bench.sh]");
    bench.script("bench.sh", "while [ ! -e gate ]; do sleep 0.01; done");
    if let Some(body) = inhibit {
        bench.lab.write("stand-in/systemd-inhibit", format!("#!/bin/sh\n# A stand-in.\n{body}\n"));
    }
    bench
}

fn start(lab: &Lab) -> Child {
    let path = format!("{}:/bin", lab.path("stand-in").display());
    lab.isotherm(&["run", "c.yaml"]).env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// To its end, without any wait.
fn run(bench: &Bench) -> Value {
    bench.lab.write("gate", "");
    let path = bench.lab.path("stand-in").display().to_string();
    bench.lab.run_with(&["run", "c.yaml"], &[("PATH", &path)]).expect(0);
    bench.record()["device"]["sleep_inhibited"].clone()
}

/// The process that holds the lock of a controller whose run is being executed.
fn holder(lab: &Lab) -> i32 {
    eventually("the run is executed", || (!lab.read("count").is_empty()).then_some(()));
    lab.read("holder").trim().parse().unwrap()
}

#[test]
fn the_lock_is_held_while_a_campaign_runs_and_gone_with_it() {
    crate::lab::for_each_user(|user| {
        let bench = bench(user, Some(GRANTS));
        let controller = start(&bench.lab);
        let holder = holder(&bench.lab);
        assert!(bench.lab.processes().contains(&holder));
        // SAFETY: plain integers.
        assert_eq!(unsafe { libc::getpgid(holder) }, holder, "a Ctrl-C of the terminal doesn't reach it");
        let asked = bench.lab.read("asked");
        assert!(asked.starts_with("--what=sleep:idle:handle-lid-switch --mode=block --who=isotherm --why="), "{asked}");
        bench.lab.write("gate", "");
        Ran::of(controller).expect(0);
        assert!(!bench.lab.processes().contains(&holder));
        assert_eq!(bench.record()["device"]["sleep_inhibited"], json!({ "held": true, "reason": null }));
    });
}

#[test]
fn the_lock_of_a_controller_that_is_killed_goes_with_it() {
    let bench = bench(User::Caller, Some(GRANTS));
    let mut controller = start(&bench.lab);
    let holder = holder(&bench.lab);
    controller.kill().unwrap();
    controller.wait().unwrap();
    eventually("the holder is gone", || (!bench.lab.processes().contains(&holder)).then_some(()));
    assert!(!bench.lab.pids_of("bench.sh").is_empty(), "its run goes on");
    assert_eq!(run(&bench), json!({ "held": true, "reason": null }), "as of the controller that began it");
}

#[test]
fn a_campaign_goes_on_without_the_lock_and_its_records_say_why() {
    let told = |inhibit| run(&bench(User::Caller, inhibit));
    let because = |reason: &str| json!({ "held": false, "reason": format!("systemd-inhibit: {reason}") });
    assert_eq!(told(None), because("No such file or directory (os error 2)"));
    assert_eq!(told(Some("echo 'Failed to inhibit: Access denied' >&2; exit 1")), because("Failed to inhibit: Access denied"));
    assert_eq!(told(Some("exit 0")), because("ended without a word"));
    // It waits for a logind that doesn't answer, and is not left behind.
    let silent = bench(User::Caller, Some("exec /bin/sleep 1000"));
    assert_eq!(run(&silent), because("no answer within 5 s"));
    assert!(silent.lab.pids_of("sleep 1000").is_empty());
}

#[test]
fn who_only_looks_asks_for_no_lock() {
    let bench = bench(User::Caller, Some(GRANTS));
    let path = bench.lab.path("stand-in").display().to_string();
    bench.lab.run_with(&["run", "c.yaml", "--dry-run"], &[("PATH", &path)]).expect(0);
    assert!(!bench.lab.path("asked").exists());
}
