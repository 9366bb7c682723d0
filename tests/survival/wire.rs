//! The protocol as any controller may speak it, well or badly.

use crate::client::{Device, hello, start};
use crate::lab::eventually;
use isotherm_wire::PROTOCOL_VERSION;
use isotherm_wire::codec::{MAX_CHUNK_BYTES, write_bytes};
use isotherm_wire::models::Wanted;
use isotherm_wire::result::{Outcome, RunResult};
use isotherm_wire::session::{Failure, Reply, Request, RunState, SpoolEntry};
use isotherm_wire::task::{ProcessTask, RunSpec, Task, WatchedFile};
use sha2::{Digest, Sha256};
use std::fs;

const WAITS: &str = "echo x >> count; while [ ! -e go ]; do sleep 0.01; done";

fn id(run_id: &str) -> String {
    run_id.into()
}

fn executions(device: &Device) -> usize {
    device.lab.read("count").lines().count()
}

/// Wait until the workload has been started once.
fn executing(device: &Device) {
    eventually("the workload runs", || (executions(device) == 1).then_some(()));
}

#[test]
fn garbage_ends_its_own_connection_and_nothing_else() {
    let device = Device::new();
    let [this, _] = device.run_ids.each_ref().map(String::as_str);
    let (mut first, welcome) = device.session("a");
    assert!(welcome.keeper_is_new);
    assert_eq!(first.ask(Request::Start(Box::new(start(&device.lab, this, WAITS)))), Reply::Started);
    executing(&device);
    let mut cut = b"\x00\x00\xff\xffJ{\"id\":".to_vec();
    cut.resize(40, b' ');
    let garbage: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xffJ",
        b"\x00\x04\x00\x01B",
        b"\x00\x00\x00\x03Bxyz",
        b"\x00\x00\x00\x02J{]",
        b"\x00\x00\x00\x04Jnull",
        &cut,
    ];
    for bytes in garbage {
        let (mut client, welcome) = device.session("a");
        assert!(!welcome.keeper_is_new);
        client.send(bytes);
        if bytes == cut {
            client.stdin = None;
        }
        client.ended();

        let mut early = device.connect();
        early.send(bytes);
        early.stdin = None;
        early.ended();
    }
    device.lab.write("go", "");
    first.sealed(this);
}

#[test]
fn a_request_of_a_later_version_is_refused_and_the_connection_goes_on() {
    let device = Device::new();
    let (mut client, _) = device.session("a");
    let text = br#"{"id": 77, "request": {"fly_to": {"moon": true}}}"#;
    client.send(&[&(text.len() as u32).to_be_bytes()[..], b"J", text].concat());
    assert!(matches!(client.reply(77), Reply::Failed(Failure::Other { message }) if message.contains("fly_to")));
    assert_eq!(client.ask(Request::List), Reply::Listed(vec![]));
    assert!(matches!(client.refused(hello("a")), Failure::Other { .. }), "hello is said once");
}

#[test]
fn the_first_request_is_hello_and_in_our_version() {
    let device = Device::new();
    assert!(matches!(device.connect().refused(Request::List), Failure::Other { message } if message.contains("hello")));
    let Request::Hello(mut newer) = hello("a") else { unreachable!() };
    newer.protocol = 99;
    let mismatch = device.connect().refused(Request::Hello(newer));
    assert_eq!(mismatch, Failure::VersionMismatch { agent: PROTOCOL_VERSION, controller: 99 });
    assert!(device.lab.processes().is_empty(), "no keeper was started for it");
}

#[test]
fn a_run_that_is_started_twice_runs_once_and_another_task_is_refused() {
    let device = Device::new();
    let [this, _] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    let run = start(&device.lab, this, WAITS);
    assert_eq!(client.ask(Request::Start(Box::new(run.clone()))), Reply::Started);
    assert_eq!(client.ask(Request::Start(Box::new(run.clone()))), Reply::Started);
    executing(&device);
    let differs = Failure::RunDiffers { run_id: id(this) };
    assert_eq!(client.refused(Request::Start(Box::new(start(&device.lab, this, "echo y >> count")))), differs);
    // From another connection, too, which follows it then.
    let (mut second, _) = device.session("a");
    assert_eq!(second.ask(Request::Start(Box::new(run.clone()))), Reply::Started);
    device.lab.write("go", "");
    assert_eq!(client.sealed(this), second.sealed(this));
    // And when it is over.
    assert_eq!(client.ask(Request::Start(Box::new(run))), Reply::Started);
    assert_eq!(client.refused(Request::Start(Box::new(start(&device.lab, this, "echo y >> count")))), differs);
    assert_eq!(executions(&device), 1);
}

#[test]
fn while_a_run_executes_no_other_is_started_and_nothing_of_it_is_given_away() {
    let device = Device::new();
    let [this, other] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    assert_eq!(client.ask(Request::Start(Box::new(start(&device.lab, this, WAITS)))), Reply::Started);
    executing(&device);
    let busy = Failure::Busy { run_id: id(this) };
    assert_eq!(client.refused(Request::Start(Box::new(start(&device.lab, other, "true")))), busy);
    assert_eq!(client.refused(Request::End), busy);
    // Nor is a model copied, looked at or removed.
    let sha256 = "a".repeat(64);
    assert_eq!(client.refused(Request::Have(Wanted { sha256: sha256.clone(), bytes: 3, name: "m".into(), set: None })), busy);
    let put = client.say(Request::Put { sha256: sha256.clone(), offset: 0 });
    let mut chunk = Vec::new();
    write_bytes(&mut chunk, b"abc").unwrap();
    client.send(&chunk);
    assert_eq!(client.reply(put), Reply::Failed(busy.clone()));
    assert_eq!(client.refused(Request::Evict { sha256 }), busy);
    assert_eq!(client.refused(Request::Collect { run_id: id(this), offset: 0 }), Failure::NotSealed { run_id: id(this) });
    assert_eq!(client.refused(Request::Forget { run_id: id(this), sha256: String::new() }), Failure::NotSealed { run_id: id(this) });
    assert!(matches!(client.ask(Request::Attach { run_id: id(this) }), Reply::Attached(RunState::Running { .. })));
    let Reply::Listed(listed) = client.ask(Request::List) else { panic!() };
    assert!(matches!(&listed[..], [entry] if entry.run_id == this && matches!(entry.state, RunState::Running { .. })), "{listed:?}");
    assert_eq!(listed[0].manifest["mine"], this);
    // What was refused is not remembered.
    assert_eq!(client.refused(Request::Attach { run_id: id(other) }), Failure::UnknownRun { run_id: id(other) });
    device.lab.write("go", "");
    client.sealed(this);
    assert_eq!(client.ask(Request::Start(Box::new(start(&device.lab, other, "true")))), Reply::Started);
    client.sealed(other);
}

#[test]
fn a_result_comes_in_pieces_from_any_offset_and_goes_when_its_digest_is_named() {
    let device = Device::new();
    let [this, _] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    let script = "i=0; while [ $i -lt 20000 ]; do echo \"line $i of a long output\"; i=$((i+1)); done";
    assert_eq!(client.ask(Request::Start(Box::new(start(&device.lab, this, script)))), Reply::Started);
    let (bytes, sha256) = client.sealed(this);
    assert!(bytes > 2 * MAX_CHUNK_BYTES as u64);
    assert_eq!(client.ask(Request::Attach { run_id: id(this) }), Reply::Attached(RunState::Sealed { bytes, sha256: sha256.clone() }));

    // Half of it through a connection that is then lost, the rest through another.
    let (mut whole, total) = client.piece(this, 0);
    assert_eq!((whole.len(), total), (MAX_CHUNK_BYTES, bytes));
    drop(client);
    let (mut client, welcome) = device.session("a");
    assert!(!welcome.keeper_is_new);
    while (whole.len() as u64) < bytes {
        let (piece, _) = client.piece(this, whole.len() as u64);
        assert!(!piece.is_empty());
        whole.extend(piece);
    }
    assert_eq!(client.piece(this, 1).0[..], whole[1..=MAX_CHUNK_BYTES]);
    assert!(client.piece(this, bytes).0.is_empty() && client.piece(this, u64::MAX / 2).0.is_empty());
    let got: String = Sha256::digest(&whole).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(got, sha256);
    let result: RunResult = serde_json::from_slice(&whole).unwrap();
    assert_eq!((result.run_id.as_str(), &result.manifest["mine"], &result.outcome), (this, &this.into(), &Outcome::Exited { wait_status: 0 }));

    let wrong = "0".repeat(64);
    let differs = Failure::DigestDiffers { expected: sha256.clone(), got: wrong.clone() };
    assert_eq!(client.refused(Request::Forget { run_id: id(this), sha256: wrong }), differs);
    assert_eq!(client.piece(this, 0).1, bytes, "still there");
    assert_eq!(client.ask(Request::Forget { run_id: id(this), sha256: sha256.clone() }), Reply::Forgotten);
    assert_eq!(client.refused(Request::Forget { run_id: id(this), sha256 }), Failure::UnknownRun { run_id: id(this) });
    assert_eq!(client.ask(Request::List), Reply::Listed(vec![]));
}

#[test]
fn a_run_id_that_climbs_is_refused() {
    let device = Device::new();
    let (mut client, _) = device.session("a");
    device.lab.write("state/run.json", "{}");
    for run_id in ["../../../run", "..", ".", "", "/etc", "a/b", "a\0b", "01932f5e-0000-7000-8000-00000000000g", &"a".repeat(65)] {
        let failure = client.refused(Request::Start(Box::new(start(&device.lab, run_id, "echo x >> count"))));
        assert!(matches!(&failure, Failure::Other { message } if message.contains("not a run id")), "{run_id:?}: {failure:?}");
        let unknown = Failure::UnknownRun { run_id: id(run_id) };
        assert_eq!(client.refused(Request::Collect { run_id: id(run_id), offset: 0 }), unknown);
        assert_eq!(client.refused(Request::Forget { run_id: id(run_id), sha256: String::new() }), unknown);
        assert_eq!(client.refused(Request::Attach { run_id: id(run_id) }), unknown);
        assert_eq!(client.refused(Request::Cancel { run_id: id(run_id) }), unknown);
    }
    assert_eq!((client.ask(Request::List), executions(&device)), (Reply::Listed(vec![]), 0));
    assert!(device.lab.path("state/run.json").exists());
}

#[test]
fn a_cancelled_run_is_sealed_as_such_and_cancelling_what_has_ended_is_no_error() {
    let device = Device::new();
    let [this, other] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    assert_eq!(client.ask(Request::Start(Box::new(start(&device.lab, this, &format!("echo before; {WAITS}"))))), Reply::Started);
    executing(&device);
    assert_eq!(client.ask(Request::Cancel { run_id: id(this) }), Reply::Cancelled);
    assert_eq!(client.ask(Request::Cancel { run_id: id(this) }), Reply::Cancelled);
    client.sealed(this);
    assert_eq!(client.ask(Request::Cancel { run_id: id(this) }), Reply::Cancelled);
    let result: RunResult = serde_json::from_slice(&client.piece(this, 0).0).unwrap();
    assert_eq!(result.outcome, Outcome::Cancelled { wait_status: Some(libc::SIGTERM) });
    assert_eq!(result.stdout.head.data, "before\n");
    // Before its workload starts, too.
    let mut settles = start(&device.lab, other, "echo y >> count");
    settles.spec.settle_ms = u64::MAX;
    assert_eq!(client.ask(Request::Start(Box::new(settles))), Reply::Started);
    assert_eq!(client.ask(Request::Cancel { run_id: id(other) }), Reply::Cancelled);
    client.sealed(other);
    assert_eq!(executions(&device), 1);
}

/// Changes a task that would end well.
type Change = fn(&mut RunSpec);

#[test]
fn a_task_that_makes_no_sense_ends_its_run_and_not_the_keeper() {
    fn process(spec: &mut RunSpec, change: impl FnOnce(&mut ProcessTask)) {
        if let Task::Process(task) = &mut spec.task {
            change(task);
        }
    }
    let changes: [(&str, Change); 18] = [
        ("no argv", |spec| process(spec, |task| task.argv.clear())),
        ("an empty program", |spec| process(spec, |task| task.argv = vec![String::new()])),
        ("a NUL in the program", |spec| process(spec, |task| task.argv[0] = "/bin/sh\0x".into())),
        ("a NUL in an argument", |spec| process(spec, |task| task.argv.push("a\0b".into()))),
        ("an argument too long", |spec| process(spec, |task| task.argv.push("x".repeat(1 << 20)))),
        ("many warm-ups that fail", |spec| process(spec, |task| (task.warmup, task.argv[2]) = (u32::MAX, "kill -9 $$".into()))),
        ("a device as output", |spec| process(spec, |task| task.collect = ["/dev/zero", "/dev/full", "/", "", "\0"].map(String::from).to_vec())),
        ("a NUL in a variable", |spec| _ = spec.env.insert("A\0B".into(), "x\0y".into())),
        ("no name of a variable", |spec| spec.env.extend([(String::new(), "x".into()), ("=".into(), "=".into())])),
        ("no directory", |spec| spec.cwd = "/nowhere/\0".into()),
        ("all the memory", |spec| spec.needs_bytes = Some(u64::MAX)),
        ("a CPU out of this world", |spec| spec.cpus = Some(vec![u32::MAX])),
        ("no CPU", |spec| spec.cpus = Some(Vec::new())),
        ("no time", |spec| (spec.timeout_ms, spec.grace_ms) = (0, 0)),
        ("samples without end", |spec| spec.sample_hz = 1e308),
        ("no samples", |spec| spec.sample_hz = 0.0),
        ("samples backwards", |spec| spec.sample_hz = -1.0),
        ("a file that was never so", |spec| {
            spec.watched = vec![WatchedFile { path: "\0".into(), bytes: u64::MAX, mtime_ns: i64::MIN, inode: u64::MAX }];
        }),
    ];
    let device = Device::new();
    let (mut client, _) = device.session("a");
    for (what, change) in changes {
        let run = uuid::Uuid::now_v7().to_string();
        let mut start = start(&device.lab, &run, "true");
        change(&mut start.spec);
        assert_eq!(client.ask(Request::Start(Box::new(start))), Reply::Started, "{what}");
        let (bytes, sha256) = client.sealed(&run);
        let mut result = Vec::new();
        while (result.len() as u64) < bytes {
            result.extend(client.piece(&run, result.len() as u64).0);
        }
        let RunResult { run_id, .. } = serde_json::from_slice(&result).unwrap();
        assert_eq!(run_id, run, "{what}");
        assert_eq!(client.ask(Request::Forget { run_id: run, sha256 }), Reply::Forgotten, "{what}");
    }
    assert_eq!(client.ask(Request::List), Reply::Listed(vec![]));
    assert_eq!(client.ask(Request::End), Reply::Ended);
}

#[test]
fn another_campaign_is_refused_until_the_session_ends_and_then_at_once_let_in() {
    let device = Device::new();
    let (mut client, _) = device.session("a");
    assert!(matches!(device.connect().refused(hello("b")), Failure::LeaseHeld(holder) if holder.results_id == "a"));
    for (now, next) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")] {
        assert_eq!(client.ask(Request::End), Reply::Ended, "{now}");
        let (new, welcome) = device.session(next);
        assert!(welcome.keeper_is_new);
        client = new;
    }
}

#[test]
fn connections_that_come_at_the_same_moment_find_one_keeper() {
    let device = Device::new();
    for round in 0..4 {
        let clients: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..6).map(|_| scope.spawn(|| device.session(&format!("round {round}")))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(clients.iter().filter(|(_, welcome)| welcome.keeper_is_new).count(), 1);
        assert_eq!(device.lab.pids_of(" keep --state-dir ").len(), 1);
        let (mut last, _) = clients.into_iter().next_back().unwrap();
        assert_eq!(last.ask(Request::End), Reply::Ended);
    }
}

#[test]
fn who_comes_while_a_keeper_of_its_campaign_is_leaving_gets_the_next_one() {
    let device = Device::new();
    for _ in 0..10 {
        let (mut leaving, _) = device.session("a");
        leaving.say(Request::End);
        // Before or after it has gone: that is the point. Who was let in before it heard of the end goes with it.
        let (coming, _) = device.session("a");
        while leaving.frame().is_some() {}
        drop(coming);
    }
    assert_eq!(device.session("a").0.ask(Request::List), Reply::Listed(vec![]));
}

#[test]
fn a_client_that_does_not_read_delays_no_run() {
    let device = Device::new();
    let [this, other] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    // Many times what fits into all pipes and sockets on the way.
    let mut stopped = device.session("a").0;
    let big = start(&device.lab, this, "head -c 500000 /dev/zero | tr '\\0' x");
    assert_eq!(client.ask(Request::Start(Box::new(big))), Reply::Started);
    client.sealed(this);
    assert_eq!(client.ask(Request::Start(Box::new(start(&device.lab, other, WAITS)))), Reply::Started);
    assert!(matches!(stopped.ask(Request::Attach { run_id: id(other) }), Reply::Attached(RunState::Running { .. })));
    for _ in 0..40 {
        stopped.say(Request::Collect { run_id: id(this), offset: 0 });
    }
    device.lab.write("go", "");
    client.sealed(other);
    assert_eq!(executions(&device), 1);
    // SAFETY: a child of ours.
    unsafe { libc::kill(stopped.child.id() as i32, libc::SIGKILL) };
}

#[test]
fn a_run_without_a_result_and_without_a_keeper_is_lost_and_can_be_forgotten() {
    let device = Device::new();
    let [this, _] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    let run = start(&device.lab, this, WAITS);
    assert_eq!(client.ask(Request::Start(Box::new(run.clone()))), Reply::Started);
    executing(&device);
    // SAFETY: plain integers.
    device.lab.pids_of(" keep --state-dir ").iter().for_each(|&pid| _ = unsafe { libc::kill(pid, libc::SIGKILL) });
    client.ended();
    let (mut client, welcome) = device.session("a");
    assert!(welcome.keeper_is_new);
    assert!(device.lab.pids_of("sleep").is_empty() && device.lab.pids_of("while").is_empty(), "nothing of it is left");
    assert!(matches!(client.ask(Request::Attach { run_id: id(this) }), Reply::Attached(RunState::Lost { .. })));
    // Starting it again does not start it again: a new attempt has a new id.
    assert_eq!(client.ask(Request::Start(Box::new(run))), Reply::Started);
    assert!(matches!(client.ask(Request::Attach { run_id: id(this) }), Reply::Attached(RunState::Lost { .. })));
    assert!(matches!(client.refused(Request::Forget { run_id: id(this), sha256: "0".into() }), Failure::DigestDiffers { .. }));
    assert_eq!(client.ask(Request::Forget { run_id: id(this), sha256: String::new() }), Reply::Forgotten);
    assert_eq!((client.ask(Request::List), executions(&device)), (Reply::Listed(vec![]), 1));
}

#[test]
fn a_spool_entry_of_a_newer_keeper_is_listed_without_its_manifest_and_stays() {
    let device = Device::new();
    let [this, other] = device.run_ids.each_ref().map(String::as_str);
    let (mut client, _) = device.session("a");
    assert_eq!(client.ask(Request::Start(Box::new(start(&device.lab, this, "true")))), Reply::Started);
    let (_, sha256) = client.sealed(this);
    let machine = fs::read_dir(device.lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path();
    let later = machine.join("spool").join(other);
    let unstarted = machine.join("spool/01932f5e-0000-7000-8000-000000000003");
    for dir in [&later, &unstarted] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(later.join("run.json"), r#"{"spool_version": 9, "of": "a later version"}"#).unwrap();
    assert_eq!(client.ask(Request::End), Reply::Ended);
    let (mut client, _) = device.session("a");
    let Reply::Listed(listed) = client.ask(Request::List) else { panic!() };
    let newer = "it was written by a newer isotherm (version 9, this one reads up to 1)";
    let is_ours = |entry: &SpoolEntry| matches!(&entry.state, RunState::Sealed { sha256: s, .. } if *s == sha256);
    let is_newer = |entry: &SpoolEntry| entry.manifest.is_null() && matches!(&entry.state, RunState::Lost { reason, .. } if reason == newer);
    assert_eq!((listed.iter().filter(|e| is_ours(e)).count(), listed.iter().filter(|e| is_newer(e)).count(), listed.len()), (1, 1, 2), "{listed:?}");
    assert!(!unstarted.exists(), "what never started is cleared away");
    // A controller that takes it for lost can't have it dropped.
    let refused = client.refused(Request::Forget { run_id: id(other), sha256: String::new() });
    assert!(matches!(refused, Failure::Other { message } if message.contains(newer)));
    assert_eq!(client.refused(Request::Start(Box::new(start(&device.lab, other, "true")))), Failure::RunDiffers { run_id: id(other) });
    assert!(later.join("run.json").exists());
}
