//! The life of a run under the keeper of an emulated board: greeting, inspection, execution, sealed result, end.

use crate::answers::{models, task};
use crate::board::Board;
use crate::client::{Client, hello, start};
use crate::emulated::{Agent, foreign};
use crate::lab::eventually;
use isotherm::device::Architecture;
use isotherm_wire::inspect::{ContainmentLevel, InspectRequest};
use isotherm_wire::result::{Outcome, RunResult};
use isotherm_wire::session::{Failure, Reply, Request, RunState, Start};
use isotherm_wire::task::{InferOutput, Task};
use sha2::{Digest, Sha256};
use std::time::{SystemTime, UNIX_EPOCH};

/// A test per board, all at the same time.
fn on_each(test: impl Fn(&Agent) + Sync) {
    let agents = foreign();
    std::thread::scope(|scope| {
        for agent in &agents {
            scope.spawn(|| test(agent));
        }
    });
}

fn run_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The sealed result of a run, verified, and dropped on the device.
fn collected(client: &mut Client, run_id: &str) -> RunResult {
    let (bytes, sha256) = client.sealed(run_id);
    let mut whole = Vec::new();
    while (whole.len() as u64) < bytes {
        whole.extend(client.piece(run_id, whole.len() as u64).0);
    }
    let got: String = Sha256::digest(&whole).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(got, sha256);
    assert_eq!(client.ask(Request::Forget { run_id: run_id.into(), sha256 }), Reply::Forgotten);
    serde_json::from_slice(&whole).unwrap()
}

#[test]
fn a_keeper_is_greeted_runs_a_process_and_builtin_inference_and_gives_the_board_back() {
    on_each(|agent| {
        let architecture = agent.architecture;
        let board = Board::of(agent);
        let (mut client, welcome) = board.session();
        assert!(welcome.keeper_is_new);
        let Reply::Inspected(inspected) = client.ask(Request::Inspect(InspectRequest::default())) else { panic!("{architecture}") };
        let machine = inspected.machine;
        let expected = if architecture == Architecture::Armv7 { "armv7l".to_owned() } else { architecture.to_string() };
        assert_eq!((machine.arch, machine.containment.level), (expected, ContainmentLevel::PidNamespace), "{:?}", machine.containment);
        assert!(machine.ram_bytes.is_some_and(|bytes| bytes > 1 << 28), "{:?}", machine.ram_bytes);

        let id = run_id();
        assert_eq!(client.ask(Request::Start(Box::new(start(&board.lab, &id, "echo out; echo err >&2; cat; exit 7")))), Reply::Started);
        let result = collected(&mut client, &id);
        assert_eq!(result.outcome, Outcome::Exited { wait_status: 7 << 8 }, "{architecture}");
        assert_eq!((result.stdout.head.data.as_str(), result.stderr.head.data.as_str()), ("out\n", "err\n"), "{architecture}");
        assert_eq!((result.agent.target.as_str(), &result.agent.sha256), (architecture.triple(), &welcome.agent_sha256));
        let times = &result.times;
        let in_order = [Some(times.accepted_ns), times.spawn_ns, times.exit_ns, times.drained_ns];
        assert!(in_order.is_sorted() && in_order[1].is_some(), "{in_order:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!(times.start_unix_ns < now && now - times.start_unix_ns < 600_000_000_000, "{architecture}: {} is not now", times.start_unix_ns);

        for (model, digest) in models() {
            let id = run_id();
            let mut run = start(&board.lab, &id, "");
            run.spec.task = Task::Infer(task(&model));
            assert_eq!(client.ask(Request::Start(Box::new(run))), Reply::Started);
            let result = collected(&mut client, &id);
            assert_eq!(result.outcome, Outcome::Exited { wait_status: 0 }, "{architecture}: {}", result.stderr.head.data);
            let output: InferOutput = serde_json::from_str(&result.stdout.head.data).unwrap();
            assert_eq!(output.output_digest, digest, "{architecture}: {model}");
        }

        assert_eq!(client.ask(Request::List), Reply::Listed(vec![]));
        assert_eq!(client.ask(Request::End), Reply::Ended);
        drop(client);
        eventually("nothing of the board is left", || board.lab.processes().is_empty().then_some(()));
    });
}

#[test]
fn where_nothing_can_contain_a_run_the_keeper_says_why_and_leaves() {
    on_each(|agent| {
        // No PID namespace without this capability; and the emulator makes nobody a subreaper.
        let board = Board::through(agent, &["setpriv", "--bounding-set=-sys_admin"]);
        let message = match board.connect().ask(hello("a campaign")) {
            Reply::Failed(Failure::Other { message }) => message,
            Reply::Welcome(_) => return eprintln!("skipped: this emulator of {} makes subreapers", agent.architecture),
            other => panic!("{}: {other:?}", agent.architecture),
        };
        assert!(message.starts_with("no run could be contained here: no PID namespace: unshare: "), "{message}");
        assert!(message.contains("; no subreaper: Invalid argument"), "{message}");
        eventually("nothing of the board is left", || board.lab.processes().is_empty().then_some(()));
    });
}

/// Waits for ever, with a process beside it that nobody waits for and that ignores TERM.
const STUBBORN: &str = "(trap '' TERM; while :; do sleep 1; done) & echo started > mark; wait";

fn stubborn(board: &Board<'_>, id: &str) -> Start {
    let mut run = start(&board.lab, id, STUBBORN);
    run.spec.grace_ms = 50;
    run
}

/// A session whose stubborn run is executing, and the run's id.
fn executing(board: &Board<'_>) -> (Client, String) {
    let (mut client, _) = board.session();
    let id = run_id();
    assert_eq!(client.ask(Request::Start(Box::new(stubborn(board, &id)))), Reply::Started);
    eventually("the workload runs", || (board.lab.read("mark") == "started\n").then_some(()));
    (client, id)
}

#[test]
fn nothing_of_a_cancelled_run_is_left() {
    on_each(|agent| {
        let board = Board::of(agent);
        let (mut client, id) = executing(&board);
        assert_eq!(client.ask(Request::Cancel { run_id: id.clone() }), Reply::Cancelled);
        let result = collected(&mut client, &id);
        assert!(matches!(result.outcome, Outcome::Cancelled { .. }), "{:?}", result.outcome);
        assert_eq!(result.containment.survivors, [], "{}", agent.architecture);
        assert!(board.lab.pids_of("sleep").is_empty() && board.lab.pids_of("trap").is_empty());
    });
}

#[test]
fn nothing_is_left_of_a_run_whose_init_was_killed_although_no_orphan_comes_to_the_keeper() {
    on_each(|agent| {
        let board = Board::of(agent);
        let (mut client, id) = executing(&board);
        // Outside of the namespace and the first process in it; the older one is the parent of the other.
        let inits = board.lab.pids_of(" init --level pid_namespace");
        let outer = *inits.iter().min().expect("a run has an init");
        // SAFETY: plain integers.
        unsafe { libc::kill(outer, libc::SIGKILL) };
        let result = collected(&mut client, &id);
        assert!(matches!(&result.outcome, Outcome::AgentError { message } if message.contains("ended from outside")), "{:?}", result.outcome);
        assert_eq!(result.containment.survivors, [], "{}", agent.architecture);
        assert!(board.lab.pids_of("sleep").is_empty() && board.lab.pids_of("trap").is_empty());
    });
}

#[test]
fn a_run_outlives_its_connection_and_dies_with_its_keeper() {
    on_each(|agent| {
        let board = Board::of(agent);
        let (client, id) = executing(&board);
        drop(client);
        let (mut client, welcome) = board.session();
        assert!(!welcome.keeper_is_new);
        let attached = client.ask(Request::Attach { run_id: id.clone() });
        assert!(matches!(attached, Reply::Attached(RunState::Running { .. })), "{}: {attached:?}", agent.architecture);
        for pid in board.lab.pids_of(" keep --state-dir ") {
            // SAFETY: plain integers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        client.ended();
        let (mut client, welcome) = board.session();
        assert!(welcome.keeper_is_new);
        assert!(matches!(client.ask(Request::Attach { run_id: id }), Reply::Attached(RunState::Lost { .. })));
        assert!(board.lab.pids_of("sleep").is_empty() && board.lab.pids_of("trap").is_empty());
    });
}
