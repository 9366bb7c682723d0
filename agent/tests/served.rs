//! `isotherm-agent served` as its parent sees it: a task on stdin, one line on stdout, the server's log on stderr. With the real server.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "../../tests/support/llama.rs"]
mod llama;

use isotherm_wire::served::{ServeFailure, ServeOutput, ServeTask};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

fn task(argv: &[&str]) -> ServeTask {
    ServeTask {
        argv: argv.iter().map(|text| (*text).to_owned()).collect(),
        model: llama::model("tiny-f16.gguf").display().to_string(),
        startup_timeout_ms: 60_000,
        grace_ms: 5000,
        n_prompt: 32,
        n_gen: 8,
        warmup: 1,
        requests: 2,
        concurrency: 1,
        seed: 1,
    }
}

/// The real server with these options after its model and host.
fn real(options: &[&str]) -> Option<ServeTask> {
    let (server, model) = (llama::tool("llama-server")?, llama::model("tiny-f16.gguf"));
    let argv = [&[server.to_str().unwrap(), "-m", model.to_str().unwrap(), "--host", "127.0.0.1", "-t", "1", "-c", "2048"], options].concat();
    Some(task(&argv))
}

/// A server that answers at once, but to what HANGS names never, or with STATUS where there is one.
const STAND_IN: &str = r#"
import http.server, json, sys, time
GET = {
    "/health": {},
    "/props": {"model_path": sys.argv[2], "default_generation_settings": {"n_ctx": 256}},
    "/v1/models": {"data": [{"meta": {"n_vocab": 384}}]},
}
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, text):
        status = sys.argv[3] if self.path == sys.argv[1] else "200"
        if not status:
            time.sleep(1000)
        self.send_response(int(status))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        self.answer(json.dumps(GET[self.path]))
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer('{"tokens": []}' if self.path == "/tokenize" else 'data: {"content": "", "stop": true}\n\n')
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler).serve_forever()
"#;

fn stand_in(hangs: &str, status: &str) -> ServeTask {
    let model = llama::model("tiny-f16.gguf");
    let shell = "ulimit -S -v unlimited; exec python3 \"$@\"";
    task(&["/bin/sh", "-c", shell, "sh", "-c", STAND_IN, hangs, model.to_str().unwrap(), status])
}

fn start(task: &ServeTask) -> Child {
    start_by(Command::new(env!("CARGO_BIN_EXE_isotherm-agent")).arg("served"), task)
}

fn start_by(command: &mut Command, task: &ServeTask) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(task).unwrap()).unwrap();
    child
}

fn output(stdout: &[u8]) -> ServeOutput {
    let text = std::str::from_utf8(stdout).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "one line");
    serde_json::from_str(text).unwrap()
}

/// The output, and the server's log.
fn served(task: &ServeTask) -> (ServeOutput, String) {
    let ended = start(task).wait_with_output().unwrap();
    assert!(ended.status.success());
    (output(&ended.stdout), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// A server that somebody else has left on a port of its own.
struct Stale {
    child: Child,
    port: String,
}

impl Stale {
    fn start() -> Option<Stale> {
        let (server, model) = (llama::tool("llama-server")?, llama::model("tiny-q8_0.gguf"));
        let mut command = Command::new(server);
        command.args(["--host", "127.0.0.1", "--port", "0", "-t", "1", "-c", "512", "-m"]).arg(model).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let port = log.find_map(|line| Some(line.split_once("listening on http://127.0.0.1:")?.1.trim().to_owned())).unwrap();
        // Its pipe stays read, so that it can go on.
        std::thread::spawn(move || log.count());
        Some(Stale { child, port })
    }
}

impl Drop for Stale {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn requests_have_the_tokens_that_were_asked_for_and_the_server_is_gone_afterwards() {
    let Some(task) = real(&["--port", "0", "-np", "3"]) else { return };
    let (output, log) = served(&ServeTask { concurrency: 3, ..task });
    assert_eq!((&output.failure, output.wait_status), (&None, Some(0)), "{log}");
    assert_eq!((output.warmup.len(), output.requests.len()), (3, 6));
    let warm = output.warmup.iter().map(|request| request.sent_ns + request.end_ns).max();
    assert!(warm < Some(output.requests[0].sent_ns), "all are warm before the first is measured");
    assert!(output.requests.iter().all(|request| request.content_ns.len() == 8 && request.timings.unwrap().cache_n == Some(0)));
    assert!(output.requests.is_sorted_by_key(|request| request.sent_ns));
    assert!(output.spawn_ns < output.ready_ns && output.ready_ns.unwrap() < output.requests[0].sent_ns);
    assert!(output.peak_rss_bytes > Some(1 << 20), "{:?}", output.peak_rss_bytes);
    let server = output.server.unwrap();
    assert_eq!((server.vocabulary, server.bos, server.slots, server.parameters), (384, Some(1), Some(3), Some(147_776)));
}

#[test]
fn a_stale_server_on_the_port_is_never_the_one_that_answers() {
    let Some(stale) = Stale::start() else { return };
    // Ours can't have the port, says so and ends.
    let (output, log) = served(&real(&["--port", &stale.port]).unwrap());
    assert_eq!(output.failure, Some(ServeFailure::EndedAtStart { wait_status: 1 << 8 }));
    assert!(log.contains("couldn't bind HTTP server socket") && output.requests.is_empty(), "{log}");
    // Ours listens nowhere and stays: what listens where it was told to is another's.
    let sleeper = ServeTask { startup_timeout_ms: 300, ..task(&["/bin/sleep", "1000"]) };
    let (output, _) = served(&sleeper);
    assert_eq!(output.failure, Some(ServeFailure::StartupTimeout { last: "it listens on no port".into() }));
    // And beside one that is there ours has its own.
    let (output, log) = served(&real(&["--port", "0"]).unwrap());
    assert_eq!((output.failure, output.server.unwrap().parameters), (None, Some(147_776)), "{log}");
}

#[test]
fn a_server_of_all_addresses_is_asked_and_one_of_others_is_told_where_it_listens() {
    let Some(task) = real(&["--port", "0", "--host", "0.0.0.0"]) else { return };
    let (output, log) = served(&task);
    assert_eq!((&output.failure, output.requests.len()), (&None, 2), "{log}");
    // Not every machine has IPv6.
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let task = ServeTask { startup_timeout_ms: 5000, ..real(&["--port", "0", "--host", "::1"]).unwrap() };
        let (output, log) = served(&task);
        let Some(ServeFailure::StartupTimeout { last }) = output.failure else { panic!("{:?} {log}", output.failure) };
        assert!(last.starts_with("it is asked on 127.0.0.1, and has no port there for itself: it listens on [::1]:"), "{last}: {log}");
    }
}

#[test]
fn a_server_that_dies_in_the_middle_of_an_answer_has_its_status_told() {
    let Some(task) = real(&["--port", "0"]) else { return };
    let mut child = start(&ServeTask { warmup: 0, n_gen: 1900, requests: 1000, ..task });
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut lines = log.by_ref().lines().map(Result::unwrap);
    lines.find(|line| line.contains("processing task")).unwrap();
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let server: i32 = children.trim().parse().unwrap();
    // SAFETY: plain integers.
    unsafe { libc::kill(server, libc::SIGKILL) };
    lines.for_each(drop);
    let mut stdout = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    assert!(child.wait().unwrap().success());
    let output = output(&stdout);
    let Some(ServeFailure::Ended { during, wait_status }) = &output.failure else { panic!("{:?}", output.failure) };
    assert!(during.starts_with("request ") && during.contains(" of client 1, after "), "{during}");
    assert_eq!((*wait_status, output.wait_status, output.peak_rss_bytes), (9, Some(9), None));
}

#[test]
fn answers_that_are_there_when_a_run_is_to_end_are_kept() {
    let Some(task) = real(&["--port", "0"]) else { return };
    let mut child = start(&ServeTask { warmup: 0, n_gen: 400, requests: 1000, ..task });
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.by_ref().filter(|line| line.contains("processing task")).nth(3).unwrap();
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    // As the first process of a run does: to all of them.
    for pid in [child.id() as i32, children.trim().parse().unwrap()] {
        // SAFETY: plain integers.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
    lines.for_each(drop);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    let output = output(&ended.stdout);
    assert!(matches!(output.failure, Some(ServeFailure::Ended { wait_status: 9, .. })) && output.requests.len() >= 3, "{:?}", output.failure);
}

#[test]
fn a_question_that_is_never_answered_is_part_of_the_start() {
    std::thread::scope(|scope| {
        for path in ["/health", "/props", "/tokenize"] {
            scope.spawn(move || {
                let (output, log) = served(&ServeTask { startup_timeout_ms: 5000, ..stand_in(path, "") });
                assert_eq!(output.failure, Some(ServeFailure::StartupTimeout { last: format!("{path}: no whole answer") }), "{log}");
            });
        }
    });
}

#[test]
fn a_server_that_is_not_ready_in_time_is_told_by_its_last_answer() {
    let never = |status| stand_in("/health", status);
    let under_a_prefix = real(&["--port", "0", "--api-prefix", "/x"]);
    let tasks = [Some((never("503"), "503: {}")), Some((never("302"), "302: {}")), under_a_prefix.map(|task| (task, "404: {\"error\""))];
    std::thread::scope(|scope| {
        for (task, words) in tasks.into_iter().flatten() {
            scope.spawn(move || {
                let (output, log) = served(&ServeTask { startup_timeout_ms: 5000, ..task });
                let Some(ServeFailure::StartupTimeout { last }) = output.failure else { panic!("{:?} {log}", output.failure) };
                assert!(last.starts_with(&format!("/health says {words}")), "{last}: {log}");
            });
        }
    });
}

#[test]
fn clients_that_there_is_no_room_for_leave_nobody_waiting() {
    let limited = "ulimit -S -v 400000; exec \"$0\" served";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_isotherm-agent")]);
    let ended = start_by(&mut command, &ServeTask { concurrency: 1024, n_gen: 1, ..stand_in("", "") }).wait_with_output().unwrap();
    let output = output(&ended.stdout);
    assert!(matches!(&output.failure, Some(ServeFailure::TooFewClients { clients: 1..1024, .. })), "{:?}", output.failure);
    assert!(output.requests.is_empty());
}

#[test]
fn a_program_that_is_not_there_is_told_in_the_systems_words() {
    let (output, _) = served(&task(&["/nonexistent/llama-server"]));
    assert!(matches!(&output.failure, Some(ServeFailure::Spawn { errno: Some(libc::ENOENT), .. })), "{:?}", output.failure);
}

#[test]
fn a_task_that_asks_for_nothing_is_refused() {
    for bad in [ServeTask { concurrency: 0, ..task(&["x"]) }, ServeTask { n_prompt: 0, ..task(&["x"]) }, ServeTask { requests: 0, ..task(&["x"]) }] {
        let ended = start(&bad).wait_with_output().unwrap();
        assert!(!ended.status.success() && String::from_utf8_lossy(&ended.stderr).contains("needs a prompt, a request"));
    }
}
