//! A controller that says what a test wants: the agent's protocol over `isotherm-agent serve`.

use crate::lab::Lab;
use isotherm_wire::codec::{Frame, read_frame, write_message};
use isotherm_wire::session::{Call, Event, Failure, FromAgent, Hello, Holder, Reply, Request, Start, Welcome};
use isotherm_wire::task::{ProcessTask, RunSpec, Task};
use isotherm_wire::{GREETING_WORD, PROTOCOL_VARIABLE, PROTOCOL_VERSION};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A lab with an agent in it, and nothing running.
pub struct Device {
    pub lab: Lab,
    agent: PathBuf,
    /// Two ids of this device's own: a keeper ends whatever carries the id of a run that it has lost.
    pub run_ids: [String; 2],
}

impl Device {
    pub fn new() -> Device {
        let lab = Lab::new();
        lab.write("c.yaml", "campaign: c\ndevices: { here: { local: {} } }\nmatrix:\n  - { devices: here, backend: command, warmup: 0, argv: [\"true\"], prepare: { settle: 0ms } }\n");
        lab.run(&["run", "c.yaml"]).expect(0);
        let agent = fs::read_dir(lab.path("cache/isotherm")).unwrap().next().unwrap().unwrap().path();
        Device { lab, agent, run_ids: [(); 2].map(|()| uuid::Uuid::now_v7().to_string()) }
    }

    /// A connection that has been greeted and hasn't said hello.
    pub fn connect(&self) -> Client {
        self.connect_as(PROTOCOL_VERSION)
    }

    /// Through an agent that speaks this version.
    pub fn connect_as(&self, protocol: u32) -> Client {
        Client::of(&self.lab, &self.agent, protocol)
    }

    /// A connection of the campaign with this results id.
    #[track_caller]
    pub fn session(&self, results_id: &str) -> (Client, Welcome) {
        let mut client = self.connect();
        match client.ask(hello(results_id)) {
            Reply::Welcome(welcome) => (client, welcome),
            other => panic!("{other:?}"),
        }
    }
}

pub fn hello(results_id: &str) -> Request {
    hello_as(results_id, PROTOCOL_VERSION)
}

/// Of a controller that speaks this version.
pub fn hello_as(results_id: &str, protocol: u32) -> Request {
    let holder = Holder { results_id: results_id.into(), campaign: "wire".into(), controller: "a test".into(), since: "now".into() };
    Request::Hello(Hello { protocol, holder })
}

/// A run of a shell script in the lab's directory.
pub fn start(lab: &Lab, run_id: &str, script: &str) -> Start {
    let argv = ["/bin/sh", "-c", script].map(String::from).to_vec();
    let spec = RunSpec {
        prepare: Vec::new(),
        model: None,
        secrets: Default::default(),
        cpus: None,
        needs_bytes: None,
        task: Task::Process(ProcessTask { argv, warmup: 0, collect: Vec::new(), stamp_lines: false }),
        settle_ms: 0,
        settle: None,
        limits: None,
        timeout_ms: u64::MAX,
        grace_ms: 1000,
        sample_hz: 10.0,
        instruments: Default::default(),
        env: Default::default(),
        cwd: lab.path("").display().to_string(),
        watched: Vec::new(),
    };
    Start { run_id: run_id.into(), manifest: serde_json::json!({ "mine": run_id }), spec }
}

pub struct Client {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
    pub events: VecDeque<Event>,
    /// What was said, as it stood in the frames: `> ` by us, `< ` to us.
    pub transcript: Vec<String>,
}

impl Client {
    /// A connection through an agent of this lab that speaks this version, greeted and without a hello.
    #[track_caller]
    pub fn of(lab: &Lab, agent: &Path, protocol: u32) -> Client {
        let mut command = Command::new(agent);
        command.args(["serve", "--nonce", "n0"]).env_clear().envs(lab.isotherm(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        Client::greeted_by(command.env(PROTOCOL_VARIABLE, protocol.to_string()))
    }

    /// Start an agent as `serve --nonce n0` and read its proof of life.
    #[track_caller]
    pub fn greeted_by(command: &mut Command) -> Client {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).unwrap();
        assert!(greeting.starts_with(&format!("{GREETING_WORD} n0 ")) && greeting.split(' ').count() == 4, "{greeting}");
        Client { child, stdin: Some(stdin), stdout, next_id: 0, events: VecDeque::new(), transcript: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).and_then(|()| stdin.flush()).unwrap();
    }

    pub fn say(&mut self, request: Request) -> u64 {
        self.next_id += 1;
        let call = Call { id: self.next_id, request };
        self.transcript.push(format!("> {}", serde_json::to_string(&call).unwrap()));
        write_message(self.stdin.as_mut().unwrap(), &call).unwrap();
        self.next_id
    }

    /// The reply to a request; events before it are kept.
    #[track_caller]
    pub fn ask(&mut self, request: Request) -> Reply {
        let id = self.say(request);
        self.reply(id)
    }

    #[track_caller]
    pub fn reply(&mut self, id: u64) -> Reply {
        loop {
            match self.frame().expect("an answer").message().unwrap() {
                FromAgent::Reply { id: of, reply } => {
                    assert_eq!(of, id);
                    return reply;
                }
                FromAgent::Event(event) => self.events.push_back(event),
            }
        }
    }

    #[track_caller]
    pub fn refused(&mut self, request: Request) -> Failure {
        match self.ask(request) {
            Reply::Failed(failure) => failure,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// The next frame; `None` once the connection has ended. One that never comes fails the test instead of holding it up.
    #[track_caller]
    pub fn frame(&mut self) -> Option<Frame> {
        if self.stdout.buffer().is_empty() {
            let mut readable = libc::pollfd { fd: self.stdout.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            assert_eq!(unsafe { libc::poll(&mut readable, 1, 60_000) }, 1, "nothing is said any more");
        }
        let frame = read_frame(&mut self.stdout).unwrap();
        self.transcript.extend(frame.as_ref().map(|frame| match frame {
            Frame::Json(payload) => format!("< {}", String::from_utf8_lossy(payload)),
            Frame::Bytes(chunk) => format!("< {} bytes", chunk.len()),
        }));
        frame
    }

    /// Length and sha256 of a run's result, as the event that says so.
    #[track_caller]
    pub fn sealed(&mut self, run: &str) -> (u64, String) {
        loop {
            let event = self.events.pop_front().or_else(|| match self.frame().expect("an event").message().unwrap() {
                FromAgent::Event(event) => Some(event),
                FromAgent::Reply { .. } => None,
            });
            if let Some(Event::Sealed { run_id, bytes, sha256 }) = event
                && run_id == run
            {
                return (bytes, sha256);
            }
        }
    }

    /// One piece of a result: where it starts, its bytes, the length of the whole.
    #[track_caller]
    pub fn piece(&mut self, run_id: &str, offset: u64) -> (Vec<u8>, u64) {
        match self.ask(Request::Collect { run_id: run_id.into(), offset }) {
            Reply::Chunk { offset: of, bytes, total } => {
                let Some(Frame::Bytes(chunk)) = self.frame() else { panic!("no chunk") };
                assert_eq!((of, bytes), (offset, chunk.len() as u64));
                (chunk, total)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The connection ends without another frame.
    #[track_caller]
    pub fn ended(&mut self) {
        while let Some(frame) = self.frame() {
            let FromAgent::Event(_) = frame.message().unwrap() else { panic!("{frame:?}") };
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}
