//! What is frozen of the protocol, byte for byte as it was recorded: a keeper that is out there answers like this and understands nothing
//! else.

use crate::client::{Client, Device, hello, hello_as, start};
use crate::lab::eventually;
use isotherm_wire::PROTOCOL_VERSION;
use isotherm_wire::codec::write_message;
use isotherm_wire::session::{Call, FromAgent, Reply, Request, RunState, SpoolEntry};
use std::fs;
use std::path::{Path, PathBuf};

/// What no test can bring a keeper to say.
const UNSAID: [&str; 5] = [
    r#"< {"event":{"phase":{"run_id":"r","phase":"settle"}}}"#,
    r#"< {"event":{"phase":{"run_id":"r","phase":"warmup"}}}"#,
    r#"< {"event":{"phase":{"run_id":"r","phase":"measure"}}}"#,
    r#"< {"event":{"seal_failed":{"run_id":"r","message":"no space left"}}}"#,
    r#"< {"reply":{"id":1,"reply":{"failed":{"other":{"message":"why"}}}}}"#,
];

fn recorded(version: u32) -> (PathBuf, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/protocol/v{version}/conversation.txt"));
    let lines = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    (path, lines)
}

/// Understood by today's types, and said by them in the same bytes.
fn again(line: &str) -> String {
    match line.split_at(2) {
        ("> ", call) => format!("> {}", serde_json::to_string(&serde_json::from_str::<Call>(call).unwrap()).unwrap()),
        ("< ", chunk) if chunk.ends_with(" bytes") => line.to_owned(),
        (_, said) => format!("< {}", serde_json::to_string(&serde_json::from_str::<FromAgent>(said).unwrap()).unwrap()),
    }
}

#[test]
fn what_was_recorded_is_understood_and_said_in_the_same_bytes() {
    for version in 1..=PROTOCOL_VERSION {
        let (path, lines) = recorded(version);
        assert!(!lines.is_empty(), "{}", path.display());
        for line in lines.iter().map(String::as_str).chain(UNSAID) {
            assert_eq!(again(line), line);
        }
    }
    let mut frame = Vec::new();
    write_message(&mut frame, &Call { id: 2, request: Request::List }).unwrap();
    assert_eq!(frame, b"\x00\x00\x00\x19J{\"id\":2,\"request\":\"list\"}");
}

/// A newer controller at a keeper with a running and a lost run, until nothing is left; then one of another campaign.
fn conversation() -> Vec<String> {
    let device = Device::new();
    let [this, lost] = device.run_ids.each_ref().map(String::as_str);
    let (mut own, _) = device.session("a");
    own.ask(Request::Start(Box::new(start(&device.lab, this, "echo x > begun; sleep 60"))));
    eventually("the workload runs", || device.lab.path("begun").exists().then_some(()));
    drop(own);

    let run_id = || this.to_owned();
    let mut newer = device.connect_as(PROTOCOL_VERSION + 1);
    newer.ask(hello_as("a", PROTOCOL_VERSION + 1));
    newer.ask(Request::List);
    newer.ask(Request::Attach { run_id: run_id() });
    newer.ask(Request::Collect { run_id: run_id(), offset: 0 });
    newer.ask(Request::Forget { run_id: run_id(), sha256: String::new() });
    newer.ask(Request::End);
    newer.ask(Request::Cancel { run_id: run_id() });
    let (_, sha256) = newer.sealed(this);
    newer.ask(Request::Attach { run_id: run_id() });
    newer.piece(this, 0);

    let noted = fs::read_dir(device.lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path().join("spool").join(this);
    fs::create_dir(noted.with_file_name(lost)).unwrap();
    let run = fs::read_to_string(noted.join("run.json")).unwrap().replace(this, lost);
    fs::write(noted.with_file_name(lost).join("run.json"), run).unwrap();
    newer.ask(Request::List);
    newer.ask(Request::Forget { run_id: run_id(), sha256: "0".repeat(64) });
    newer.ask(Request::Forget { run_id: run_id(), sha256 });
    newer.ask(Request::Forget { run_id: lost.to_owned(), sha256: String::new() });
    newer.ask(Request::Cancel { run_id: run_id() });
    newer.ask(Request::List);

    let mut stranger: Client = device.connect();
    stranger.ask(hello("b"));
    newer.ask(Request::End);
    [&newer.transcript[..], &stranger.transcript[..]].concat()
}

/// With names in the place of what is another every time. Events come last: in between they have no certain place.
fn named(lines: &[String]) -> Vec<String> {
    let mut names: Vec<(String, String)> = Vec::new();
    for line in lines {
        let Ok(FromAgent::Reply { reply: Reply::Listed(runs), .. }) = serde_json::from_str(&line[2..]) else { continue };
        for SpoolEntry { run_id, state, .. } in runs {
            let place = if matches!(state, RunState::Lost { .. }) { "lost" } else { "this" };
            names.push((run_id, format!("<{place}>")));
            if let RunState::Sealed { bytes, sha256 } = state {
                names.extend([(sha256, "<sha256>".into()), (format!("\"bytes\":{bytes}"), "\"bytes\":0".into())]);
                names.extend([(format!("\"total\":{bytes}"), "\"total\":0".into()), (format!("< {bytes} bytes"), "< all bytes".into())]);
            }
        }
    }
    let mut lines: Vec<String> = lines.iter().map(|line| names.iter().fold(line.clone(), |line, (what, name)| line.replace(what, name))).collect();
    lines.sort_by_key(|line| line.starts_with("< {\"event\""));
    lines
}

#[test]
fn a_keeper_and_a_newer_controller_say_to_each_other_what_was_recorded() {
    let said = conversation();
    let (path, recorded) = recorded(PROTOCOL_VERSION);
    if recorded.is_empty() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, said.join("\n") + "\n").unwrap();
        panic!("recorded anew, read it: {}", path.display());
    }
    assert_eq!(named(&said), named(&recorded));
}
