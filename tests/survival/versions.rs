//! Keepers and controllers of different versions: the older one's night is finished, the newer one's is left alone.
//!
//! The same programs, told by `ISOTHERM_PROTOCOL` to speak another version of the protocol.

use crate::client::{Client, hello_as, start};
use crate::lab::{Ran, User, eventually, for_each_user};
use crate::rig::{Rig, end};
use isotherm_wire::session::{Failure, Reply, Request, RunState, Start};
use isotherm_wire::{PROTOCOL_VARIABLE, PROTOCOL_VERSION};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const NEWER: u32 = PROTOCOL_VERSION + 1;

fn newer(rig: &Rig, args: &[&str]) -> Ran {
    rig.lab.run_with(args, &[(PROTOCOL_VARIABLE, &NEWER.to_string())])
}

fn start_newer(rig: &Rig) -> Child {
    let mut command = rig.lab.isotherm(&["run", "c.yaml"]);
    command.env(PROTOCOL_VARIABLE, NEWER.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Job 1 executing for a keeper whose controller is gone.
fn orphaned(rig: &Rig) {
    let controller = rig.start();
    rig.kill(&[controller.id() as i32]);
    end(controller, None);
}

#[test]
fn a_newer_controller_waits_for_what_an_older_keeper_runs_and_goes_on_with_its_own() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        orphaned(&rig);
        let controller = start_newer(&rig);
        eventually("it waits for the run", || (rig.events("attached") == 1).then_some(()));
        assert_eq!((rig.events("older_keeper"), rig.events("device_ready")), (1, 1), "the keeper is the first controller's");
        rig.open(1);
        let ran = end(controller, Some(0));
        assert!(ran.stderr().contains("an older isotherm's keeper is there: its runs are finished first"), "{}", ran.stderr());
        assert_eq!(rig.events("device_ready"), 2, "now it has one of its own");
        rig.settled([1, 1], 0);
    });
}

#[test]
fn an_older_keeper_that_dies_while_it_is_waited_for_costs_its_run_and_nothing_else() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        orphaned(&rig);
        let controller = start_newer(&rig);
        eventually("it waits for the run", || (rig.events("attached") == 1).then_some(()));
        rig.kill(&rig.lab.pids_of(" keep --state-dir "));
        rig.executing(1, 2);
        rig.open(1);
        end(controller, Some(0));
        assert_eq!(rig.events("run_lost"), 1);
        rig.settled([2, 1], 0);
    });
}

/// Manifests of jobs, as the campaign's controller makes them, taken from the spool while they run; nothing of that night is kept.
fn manifests(rig: &Rig, jobs: std::ops::RangeInclusive<u32>) -> Vec<Value> {
    let controller = rig.lab.start(&["run", "c.yaml"]);
    let manifest = |job: u32| {
        rig.executing(job, 1);
        let (run, _) = rig.spooled().remove(0);
        let run: Value = serde_json::from_slice(&fs::read(run.join("run.json")).unwrap()).unwrap();
        rig.open(job);
        run["manifest"].clone()
    };
    let manifests = jobs.clone().map(manifest).collect();
    end(controller, Some(0));
    fs::remove_dir_all(rig.lab.results("c").join("here")).unwrap();
    fs::remove_file(rig.lab.results("c").join("index.ndjson")).unwrap();
    rig.lab.write("count", "");
    jobs.for_each(|job| fs::remove_file(rig.lab.path(&format!("gate.{job}"))).unwrap());
    manifests
}

/// The agent of a lab in which a campaign has run, as `serve` of the results directory `c`.
fn client(rig: &Rig, protocol: u32) -> (Client, Request) {
    let agent = fs::read_dir(rig.lab.path("cache/isotherm")).unwrap().next().unwrap().unwrap().path();
    let id: Value = serde_json::from_slice(&fs::read(rig.lab.results("c").join(".isotherm-id")).unwrap()).unwrap();
    (Client::of(&rig.lab, &agent, protocol), hello_as(id["results_id"].as_str().unwrap(), protocol))
}

fn run_of(rig: &Rig, manifest: &Value, job: u32) -> Start {
    let run = start(&rig.lab, &uuid::Uuid::now_v7().to_string(), &format!("./workload.sh {job}"));
    Start { manifest: manifest.clone(), ..run }
}

#[test]
fn a_sealed_a_lost_and_a_running_run_of_an_older_keeper_leave_one_record_each_and_nothing_on_the_device() {
    let rig = Rig::new(User::Caller);
    rig.lab.write("c.yaml", rig.lab.read("c.yaml").replace("[1, 2]", "[1, 2, 3]"));
    fs::remove_file(rig.lab.path("gate.2")).unwrap();
    let manifests = manifests(&rig, 1..=3);

    let (mut older, hello) = client(&rig, PROTOCOL_VERSION);
    assert!(matches!(older.ask(hello), Reply::Welcome(_)));
    // Job 1 is sealed.
    rig.open(1);
    let sealed = run_of(&rig, &manifests[0], 1);
    let run_id = sealed.run_id.clone();
    assert_eq!(older.ask(Request::Start(Box::new(sealed))), Reply::Started);
    older.sealed(&run_id);
    // Job 2 was noted, and its keeper died.
    let (noted, _) = rig.spooled().remove(0);
    let lost = uuid::Uuid::now_v7().to_string();
    let mut run: Value = serde_json::from_slice(&fs::read(noted.join("run.json")).unwrap()).unwrap();
    run["run_id"] = lost.as_str().into();
    run["manifest"] = manifests[1].clone();
    fs::create_dir(noted.with_file_name(&lost)).unwrap();
    fs::write(noted.with_file_name(&lost).join("run.json"), run.to_string()).unwrap();
    // Job 3 runs.
    assert_eq!(older.ask(Request::Start(Box::new(run_of(&rig, &manifests[2], 3)))), Reply::Started);
    rig.executing(3, 1);
    drop(older);

    rig.open(2);
    let controller = start_newer(&rig);
    eventually("it waits for the run", || (rig.events("attached") == 1).then_some(()));
    rig.open(3);
    end(controller, Some(0));
    assert_eq!([1, 2, 3].map(|job| rig.executions(job)), [1, 1, 1], "the lost one had not begun");
    assert_eq!((rig.events("collected"), rig.events("run_lost")), (2, 1));
    let mut jobs: Vec<i64> = rig.lab.records("c").iter().map(|(_, r)| r["ids"]["point"]["axes"]["job"].as_i64().unwrap()).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, [1, 2, 3]);
    rig.lab.run(&["verify", "results/c"]).expect(0);
    assert!(rig.spooled().is_empty(), "{:?}", rig.spooled());
    rig.nothing_is_left();
}

#[test]
fn a_run_that_its_machine_did_not_survive_under_an_older_keeper_has_a_record_of_the_machine_and_is_tried_again() {
    let rig = Rig::new(User::Caller);
    let manifests = manifests(&rig, 1..=2);
    let (mut older, hello) = client(&rig, PROTOCOL_VERSION);
    assert!(matches!(older.ask(hello), Reply::Welcome(_)));
    assert_eq!(older.ask(Request::Start(Box::new(run_of(&rig, &manifests[0], 1)))), Reply::Started);
    rig.executing(1, 1);
    // Job 2 was noted in another boot.
    let (noted, _) = rig.spooled().remove(0);
    let lost = noted.with_file_name(uuid::Uuid::now_v7().to_string());
    let mut run: Value = serde_json::from_slice(&fs::read(noted.join("run.json")).unwrap()).unwrap();
    run["run_id"] = lost.file_name().unwrap().to_str().unwrap().into();
    run["manifest"] = manifests[1].clone();
    run["boot_id"] = "another".into();
    fs::create_dir(&lost).unwrap();
    fs::write(lost.join("run.json"), run.to_string()).unwrap();
    drop(older);

    [1, 2].iter().for_each(|job| rig.open(*job));
    newer(&rig, &["run", "c.yaml"]).expect(0);
    assert_eq!(([1, 2].map(|job| rig.executions(job)), rig.events("run_lost")), ([1, 1], 1));
    let records = rig.lab.records("c");
    let restarted = records.iter().filter(|(_, r)| r["issues"].as_array().unwrap().iter().any(|issue| issue["code"] == "device_restarted"));
    assert_eq!((records.len(), restarted.count()), (3, 1));
    let machines: Vec<&Value> = records.iter().map(|(_, r)| &r["device"]["machine"]["hostname"]).collect();
    assert!(machines.iter().all(|name| *name == machines[0]), "{machines:?}");
    rig.nothing_is_left();
}

#[test]
fn a_keeper_answers_a_controller_of_another_version_what_is_frozen_and_refuses_the_rest_by_name() {
    let rig = Rig::new(User::Caller);
    orphaned(&rig);
    let (mut client, hello) = client(&rig, NEWER);
    let mismatch = Failure::VersionMismatch { agent: PROTOCOL_VERSION, controller: NEWER };
    assert_eq!(client.refused(hello.clone()), mismatch);
    let Reply::Listed(runs) = client.ask(Request::List) else { panic!() };
    let run_id = runs[0].run_id.clone();
    let run = run_of(&rig, &runs[0].manifest, 1);
    for request in [hello, Request::Inspect(Default::default()), Request::Start(Box::new(run))] {
        assert_eq!(client.refused(request), mismatch);
    }
    assert!(matches!(client.ask(Request::Attach { run_id: run_id.clone() }), Reply::Attached(RunState::Running { .. })));
    assert_eq!(client.refused(Request::End), Failure::Busy { run_id: run_id.clone() });
    assert_eq!(client.ask(Request::Cancel { run_id: run_id.clone() }), Reply::Cancelled);
    let (bytes, sha256) = client.sealed(&run_id);
    let (piece, total) = client.piece(&run_id, 0);
    assert_eq!((piece.len() as u64, total), (bytes, bytes));
    assert_eq!(client.ask(Request::Forget { run_id, sha256 }), Reply::Forgotten);
    assert_eq!(client.ask(Request::List), Reply::Listed(vec![]));
    assert_eq!(client.ask(Request::End), Reply::Ended);
    drop(client);
    rig.nothing_is_left();
}

#[test]
fn a_newer_controller_cancels_what_an_older_keeper_runs() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        orphaned(&rig);
        let cancelled = newer(&rig, &["cancel", "c.yaml"]).expect(0);
        assert!(cancelled.stderr().contains("cancelled on `here`: job=1"), "{}", cancelled.stderr());
        rig.nothing_is_left();
        rig.open(1);
        newer(&rig, &["run", "c.yaml"]).expect(0);
        rig.settled([2, 1], 1);
    });
}

#[test]
fn an_older_controller_leaves_a_newer_keeper_alone_and_says_what_to_do() {
    let rig = Rig::new(User::Caller);
    let controller = start_newer(&rig);
    rig.executing(1, 1);
    rig.kill(&[controller.id() as i32]);
    end(controller, None);
    for args in [["run", "c.yaml"], ["cancel", "c.yaml"]] {
        let refused = rig.lab.run(&args).expect(4);
        let told = format!("device `here` speaks protocol {NEWER}, this controller speaks {PROTOCOL_VERSION}");
        assert!(refused.stderr().contains(&told) && refused.stderr().contains("hint: a newer isotherm is at work"), "{}", refused.stderr());
    }
    assert_eq!(rig.executions(1), 1);
    rig.open(1);
    newer(&rig, &["run", "c.yaml"]).expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn asking_without_running_leaves_an_older_keeper_alone() {
    let rig = Rig::new(User::Caller);
    orphaned(&rig);
    let asked = newer(&rig, &["plan", "--refresh", "c.yaml"]).expect(4);
    assert!(asked.stderr().contains("`isotherm run` finishes its runs first"), "{}", asked.stderr());
    rig.open(1);
    rig.sealed();
    newer(&rig, &["run", "c.yaml"]).expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn a_keeper_of_another_build_and_the_same_protocol_is_used_as_it_is() {
    let rig = Rig::new(User::Caller);
    rig.open(1);
    rig.run().expect(0);
    fs::remove_dir_all(rig.lab.results("c").join("here")).unwrap();
    rig.lab.write("count", "");
    // Bytes behind the end of an executable change nothing but its hash.
    let agent = fs::read_dir(rig.lab.path("cache/isotherm")).unwrap().next().unwrap().unwrap().path();
    let other = rig.lab.path("other-agent");
    crate::lab::copy_executable(&agent, &other);
    append(&other);
    let id: Value = serde_json::from_slice(&fs::read(rig.lab.results("c").join(".isotherm-id")).unwrap()).unwrap();
    let mut client = Client::of(&rig.lab, &other, PROTOCOL_VERSION);
    let Reply::Welcome(welcome) = client.ask(hello_as(id["results_id"].as_str().unwrap(), PROTOCOL_VERSION)) else { panic!() };
    drop(client);
    rig.run().expect(0);
    let (_, record) = rig.lab.records("c").remove(0);
    assert_eq!(record["producer"]["agent"]["sha256"], welcome.agent_sha256.as_str());
    assert!(!agent.display().to_string().ends_with(&welcome.agent_sha256[..12]), "another build");
    rig.settled([1, 1], 0);
}

fn append(executable: &Path) {
    // By a process of its own, as in `copy_executable`.
    let appended = Command::new("sh").args(["-c", "echo >> \"$0\""]).arg(executable).status().unwrap();
    assert!(appended.success());
}
