//! A keeper that lies: the controller and the agent's proxy are the real ones, what answers on the keeper's socket is not.

use crate::lab::{Lab, Ran, eventually};
use crate::stranger::{TEXT, is_harmless};
use isotherm::digest::sha256_hex;
use isotherm_wire::codec::{read_frame, write_bytes, write_message};
use isotherm_wire::inspect::FileAnswer;
use isotherm_wire::session::{Call, Engine, Event, Failure, FromAgent, GivenBack, Reply, Request, RunState, SpoolEntry, Welcome};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// A lab whose device has been used once, with a true result and its manifest.
struct Device {
    lab: Lab,
    socket: PathBuf,
    run_id: String,
    manifest: Value,
    result: Vec<u8>,
}

/// What a keeper may be asked, and bytes that it answers with.
type Answer<'a> = dyn Fn(&Call) -> Vec<u8> + Sync + 'a;

const CAMPAIGN: &str = "campaign: c\ndevices: { here: { local: {} } }\nmatrix: [{ devices: here, backend: command, argv: [/bin/true], warmup: 0, prepare: { settle: 0ms } }]\n";

impl Device {
    fn new() -> Device {
        let lab = Lab::new();
        lab.write("c.yaml", CAMPAIGN);
        lab.run(&["run", "c.yaml"]).expect(0);
        eventually("its keeper has gone", || lab.processes().is_empty().then_some(()));
        let machine = fs::read_dir(lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path();
        // As recorded by a session of another day.
        let recorded = fs::read_to_string("tests/recorded/frames/results.ndjson").unwrap();
        let mut result: Value = serde_json::from_str(recorded.lines().last().unwrap()).unwrap();
        let run_id = result["run_id"].as_str().unwrap().to_owned();
        let manifest = result["manifest"].take();
        Device { lab, socket: machine.join("keeper.sock"), run_id, manifest, result: recorded.lines().last().unwrap().into() }
    }

    fn sealed(&self, bytes: u64, sha256: String) -> RunState {
        RunState::Sealed { bytes, sha256 }
    }

    /// `isotherm collect` from a keeper that answers like this, or as a true one where it has nothing to say.
    #[track_caller]
    fn collect(&self, lie: &(dyn Fn(&Request) -> Option<Vec<Said>> + Sync)) -> Ran {
        let answer = |call: &Call| {
            let said = lie(&call.request).unwrap_or_else(|| self.truth(&call.request));
            said.into_iter().flat_map(|said| said.bytes(call.id)).collect()
        };
        let _ = fs::remove_dir_all(self.lab.path("into"));
        self.served(&["collect", "--into", "into"], &answer)
    }

    fn truth(&self, request: &Request) -> Vec<Said> {
        let total = self.result.len() as u64;
        vec![match request {
            Request::Hello(_) => Said::Reply(Reply::Welcome(Welcome {
                protocol: 1,
                agent_version: "0".into(),
                agent_sha256: "0".into(),
                keeper_is_new: true,
                engine: Engine { name: "rten".into(), version: "0".into(), revision: 0 },
                given_back: GivenBack::default(),
                boot_id: None,
                no_scope: None,
            })),
            Request::List => self.listed(self.sealed(total, sha256_hex(&self.result)), self.manifest.clone()),
            Request::Collect { .. } => return vec![chunk(0, total, total), Said::Bytes(self.result.clone())],
            Request::Forget { .. } => Said::Reply(Reply::Forgotten),
            // As an agent says that doesn't know the question yet.
            Request::Clock => Said::Reply(Reply::Failed(Failure::Other { message: "unknown variant".into() })),
            _ => Said::Reply(Reply::Ended),
        }]
    }

    fn listed(&self, state: RunState, manifest: Value) -> Said {
        Said::Reply(Reply::Listed(vec![SpoolEntry { run_id: self.run_id.clone(), state, manifest }]))
    }

    /// Run isotherm while such a keeper listens; it has little memory.
    #[track_caller]
    fn served(&self, args: &[&str], answer: &Answer<'_>) -> Ran {
        let _ = fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).unwrap();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                for stream in listener.incoming() {
                    // A connection that says nothing is the test's own, at its end.
                    if !serve(&stream.unwrap(), answer) {
                        return;
                    }
                }
            });
            let mut command = self.lab.isotherm(args);
            // SAFETY: setrlimit is async-signal-safe.
            unsafe {
                command.pre_exec(|| {
                    let most = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
                    if libc::setrlimit(libc::RLIMIT_AS, &most) == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
                })
            };
            let ran = Ran(command.output().unwrap());
            drop(UnixStream::connect(&self.socket).unwrap());
            serving.join().unwrap();
            is_harmless(args, &ran);
            ran
        })
    }
}

/// Answer until the other side has gone. False if it never said anything.
fn serve(stream: &UnixStream, answer: &Answer<'_>) -> bool {
    let mut said_something = false;
    while let Ok(Some(frame)) = read_frame(&mut &*stream) {
        said_something = true;
        let value: Value = frame.message().unwrap();
        // The first one is an introduction by the proxy, with the call in it.
        let call = value.get("call").unwrap_or(&value).clone();
        let call: Call = serde_json::from_value(call).unwrap();
        let answer = answer(&call);
        // Who says nothing hangs up.
        if answer.is_empty() || (&*stream).write_all(&answer).is_err() {
            break;
        }
    }
    said_something
}

enum Said {
    Reply(Reply),
    ReplyTo(u64, Reply),
    Event(Event),
    Bytes(Vec<u8>),
    Raw(Vec<u8>),
}

impl Said {
    fn bytes(self, id: u64) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Said::Reply(reply) => write_message(&mut out, &FromAgent::Reply { id, reply }),
            Said::ReplyTo(id, reply) => write_message(&mut out, &FromAgent::Reply { id, reply }),
            Said::Event(event) => write_message(&mut out, &FromAgent::Event(event)),
            Said::Bytes(bytes) => write_bytes(&mut out, &bytes),
            Said::Raw(bytes) => out.write_all(&bytes),
        }
        .unwrap();
        out
    }
}

fn chunk(offset: u64, bytes: u64, total: u64) -> Said {
    Said::Reply(Reply::Chunk { offset, bytes, total })
}

/// A request that is asked by its kind.
fn at(request: &Request, wanted: &str) -> bool {
    serde_json::to_value(request).unwrap().to_string().trim_start_matches(['{', '"']).starts_with(wanted)
}

#[test]
fn the_truth_is_collected() {
    let device = Device::new();
    let ran = device.collect(&|_| None).expect(0);
    assert!(ran.stdout().contains("into/frames/here/"), "{}", ran.stdout());
    assert!(device.lab.path("into/frames/.isotherm-id").is_file());
}

#[test]
fn a_result_that_is_not_as_announced_is_no_result() {
    let device = Device::new();
    let total = device.result.len() as u64;
    let listed = |bytes, sha256: &str| device.listed(device.sealed(bytes, sha256.into()), device.manifest.clone());
    let sha256 = sha256_hex(&device.result);
    type Lie<'a> = (&'a str, &'a str, &'a (dyn Fn() -> Vec<Said> + Sync));
    let lies: [Lie<'_>; 10] = [
        ("list", "the most is", &|| vec![listed(u64::MAX, &sha256)]),
        ("list", "announced were", &|| vec![listed(total - 1, &sha256)]),
        ("list", "announced were", &|| vec![listed(0, &sha256)]),
        ("list", "announced were", &|| vec![listed(total, &"0".repeat(64))]),
        ("list", "announced were", &|| vec![listed(total, TEXT)]),
        ("collect", "of another length", &|| vec![chunk(0, 3, total), Said::Bytes(device.result.clone())]),
        ("collect", "of another length", &|| vec![chunk(0, 0, total), Said::Bytes(Vec::new())]),
        ("collect", "of another length", &|| vec![chunk(u64::MAX, u64::MAX, u64::MAX), Said::Bytes(vec![0])]),
        ("collect", "of another length", &|| vec![chunk(0, 1, 1), chunk(0, 1, 1)]),
        ("collect", "an answer to another question", &|| vec![Said::Reply(Reply::Started)]),
    ];
    for (request, why, lie) in lies {
        let ran = device.collect(&|asked| at(asked, request).then(lie));
        assert!(ran.code() != Some(0) && ran.stderr().contains(why), "{why}: {:?} {}", ran.code(), ran.stderr());
        assert!(device.lab.all_files().iter().all(|path| !path.ends_with("into/frames/index.ndjson")));
    }
}

#[test]
fn what_is_no_message_ends_the_connection_with_a_reason() {
    let device = Device::new();
    for (garbage, why) in [
        (b"\xff\xff\xff\xffJ{".to_vec(), "the most is"),
        (b"\x00\x00\x00\x02J[]".to_vec(), "message not understood"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "frame kind"),
        ([b"\x00\x01\x00\x00J".as_slice(), &[b'['; 65536]].concat(), "message not understood"),
        ([b"\x00\x00\x00\x40J".as_slice(), &[0x1b; 64]].concat(), "message not understood"),
    ] {
        let ran = device.collect(&|asked| at(asked, "list").then(|| vec![Said::Raw(garbage.clone())]));
        assert!(ran.code() == Some(4), "{why}: {:?}", ran.code());
        assert!(ran.stderr().contains("was lost"), "{why}: {}", ran.stderr());
    }
}

#[test]
fn answers_that_nobody_asked_for_are_neither_taken_nor_hoarded() {
    let device = Device::new();
    let more = |mut said: Vec<Said>, request: &Request| {
        said.extend(device.truth(request));
        said
    };
    // A few are passed over.
    let strays = || {
        vec![
            Said::ReplyTo(9999, Reply::Started),
            Said::Bytes(vec![0; 10]),
            Said::Event(Event::Sealed { run_id: TEXT.into(), bytes: u64::MAX, sha256: TEXT.into() }),
            Said::Event(Event::SealFailed { run_id: device.run_id.clone(), message: TEXT.into() }),
        ]
    };
    device.collect(&|asked| at(asked, "list").then(|| more(strays(), asked))).expect(0);
    // Gigabytes of them are not read into memory: it waits until somebody takes them, and here each question does.
    let chunk = vec![0; 256 << 10];
    let ran = device.collect(&|asked| at(asked, "list").then(|| more((0..400).map(|_| Said::Bytes(chunk.clone())).collect(), asked)));
    ran.expect(0);
}

#[test]
fn a_manifest_or_result_with_names_that_climb_becomes_no_file() {
    let device = Device::new();
    let with = |pointer: &str, value: &str| {
        let mut manifest = device.manifest.clone();
        *manifest.pointer_mut(pointer).unwrap() = value.into();
        manifest
    };
    let listed = |manifest| vec![device.listed(device.sealed(device.result.len() as u64, sha256_hex(&device.result)), manifest)];
    for pointer in ["/campaign", "/point/device", "/point/slug"] {
        for name in ["../../x", "/x", "..", "", "a/b", TEXT] {
            let ran = device.collect(&|asked| at(asked, "list").then(|| listed(with(pointer, name)))).expect(1);
            assert!(ran.stderr().contains("left: run "), "{pointer} {name:?}: {}", ran.stderr());
        }
    }
    // The result says that it is another run's.
    for id in ["../../../x", "01a22b7c-0000-7000-8000-000000000000", TEXT] {
        let mut result: Value = serde_json::from_slice(&device.result).unwrap();
        result["run_id"] = id.into();
        let result = result.to_string().into_bytes();
        let total = result.len() as u64;
        let lie = |asked: &Request| match asked {
            Request::List => Some(vec![device.listed(device.sealed(total, sha256_hex(&result)), device.manifest.clone())]),
            Request::Collect { .. } => Some(vec![chunk(0, total, total), Said::Bytes(result.clone())]),
            _ => None,
        };
        let ran = device.collect(&lie).expect(1);
        assert!(ran.stderr().contains("it is of run"), "{id:?}: {}", ran.stderr());
    }
    let strays: Vec<_> = device.lab.all_files().into_iter().filter(|path| path.ends_with("x") || path.ends_with("x.json")).collect();
    assert!(strays.is_empty(), "{strays:?}");
}

/// A machine as one was recorded.
fn inspected() -> Reply {
    let session = fs::read_to_string("tests/recorded/frames/agent.ndjson").unwrap();
    match serde_json::from_str(session.lines().nth(1).unwrap()).unwrap() {
        FromAgent::Reply { reply, .. } => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_whose_link_is_lost_at_the_very_end_is_said_not_to_be_given_back() {
    let device = Device::new();
    let answer = |call: &Call| {
        let said = match &call.request {
            Request::List => Said::Reply(Reply::Listed(Vec::new())),
            Request::Inspect(_) => Said::Reply(inspected()),
            Request::End => return Vec::new(),
            request => return device.truth(request).into_iter().flat_map(|said| said.bytes(call.id)).collect(),
        };
        said.bytes(call.id)
    };
    let ran = device.served(&["run", "c.yaml", "--fresh", "--limit", "0"], &answer);
    assert!(ran.stderr().contains("device `here` was not given back ("), "{}", ran.stderr());
    assert_eq!(device.lab.events("c", "link_back").len(), 1, "it was tried once more");
}

#[test]
fn a_campaign_goes_on_past_a_spool_of_lies() {
    let device = Device::new();
    let id: Value = serde_json::from_slice(&fs::read(device.lab.results("c").join(".isotherm-id")).unwrap()).unwrap();
    let mut manifest = device.manifest.clone();
    manifest["results_id"] = id["results_id"].clone();
    manifest["point"]["slug"] = "../../../x".into();
    let answer = |call: &Call| {
        let said = match &call.request {
            Request::List => vec![device.listed(device.sealed(1, TEXT.into()), manifest.clone())],
            Request::Inspect(_) => vec![Said::Reply(inspected())],
            request => device.truth(request),
        };
        said.into_iter().flat_map(|said| said.bytes(call.id)).collect()
    };
    let ran = device.served(&["run", "c.yaml", "--fresh", "--limit", "0"], &answer);
    assert!(ran.stderr().contains("stays on device `here`: \"../../../x\" is no name of a point"), "{}", ran.stderr());
}

#[test]
fn a_run_without_a_result_is_on_record_though_its_device_is_gone_before_it_hears_of_it() {
    let device = Device::new();
    let answer = |call: &Call| {
        let said = match &call.request {
            Request::List => vec![Said::Reply(Reply::Listed(Vec::new()))],
            Request::Inspect(asked) => {
                let Reply::Inspected(mut inspected) = inspected() else { panic!() };
                inspected.files = asked.files.iter().map(|file| (file.key.clone(), FileAnswer::NotAFile)).collect();
                vec![Said::Reply(Reply::Inspected(inspected))]
            }
            Request::Start(start) => {
                let (run_id, message) = (start.run_id.clone(), "no space left".to_owned());
                vec![Said::Reply(Reply::Started), Said::Event(Event::SealFailed { run_id, message })]
            }
            Request::Forget { .. } | Request::End => Vec::new(),
            request => device.truth(request),
        };
        said.into_iter().flat_map(|said| said.bytes(call.id)).collect()
    };
    let ran = device.served(&["run", "c.yaml", "--fresh", "--limit", "1"], &answer).expect(1);
    assert!(ran.stdout().contains("failed: internal: the device could not write the result: no space left"), "{} {}", ran.stdout(), ran.stderr());
    assert!(ran.stderr().contains("device `here` was not given back ("), "{}", ran.stderr());
    assert!(device.lab.events("c", "device_failed").is_empty(), "{}", ran.stderr());
}
