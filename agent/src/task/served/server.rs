//! A server as a child of this process: started, waited for until it is ready, asked what it is, stopped.

use super::http::{Answer, Recording, request};
use super::listening::Listening;
use crate::sys;
use isotherm_wire::served::{ServeFailure, ServerFacts};
use serde_json::Value;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

/// Between looks at a server that isn't ready, ns: at first often, because a small model is there in a moment.
const FIRST_LOOK_NS: u64 = 5_000_000;
const LAST_LOOK_NS: u64 = 250_000_000;
/// A question about its state is answered at once or not at all, ns.
const PATIENCE_NS: u64 = 10_000_000_000;
/// A server whose connections have ended is about to be gone, if it is going, ns.
const GOING_NS: u64 = 5_000_000_000;

/// Number of the server while it is a child that nobody has waited for.
static GOING: AtomicI32 = AtomicI32::new(0);

/// End the server at once, and with it every answer that is waited for: it would first bring those to their end. Async-signal-safe.
pub extern "C" fn end(_signal: i32) {
    match GOING.load(Ordering::SeqCst) {
        0 => {}
        pid => sys::kill(pid, libc::SIGKILL),
    }
}

pub struct Server {
    child: Child,
    pub spawn_ns: u64,
    /// By then it has to be ready and to have said what it is: CLOCK_BOOTTIME, ns.
    until: u64,
}

impl Server {
    /// Its output goes where this process's stderr goes: whoever reads that never lets it wait.
    pub fn start(argv: &[String], startup_timeout_ns: u64) -> Result<Server, ServeFailure> {
        let failed = |e: io::Error| ServeFailure::Spawn { message: e.to_string(), errno: e.raw_os_error() };
        let (program, arguments) = argv.split_first().ok_or_else(|| failed(io::Error::other("empty argv")))?;
        let log = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let spawn_ns = sys::monotonic_ns();
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(log).spawn().map_err(failed)?;
        GOING.store(child.id() as i32, Ordering::SeqCst);
        Ok(Server { child, spawn_ns, until: sys::boottime_ns() + startup_timeout_ns })
    }

    /// Its raw wait status, if it has ended.
    fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok().flatten()?;
        GOING.store(0, Ordering::SeqCst);
        Some(status.into_raw())
    }

    /// The status of one that has ended its connections, if it ends.
    pub fn is_going(&mut self) -> Option<i32> {
        wait_until(GOING_NS, || self.ended())
    }

    /// The port that it answers on, once it is ready.
    pub fn wait_until_ready(&mut self) -> Result<u16, ServeFailure> {
        let (mut look_ns, mut last) = (FIRST_LOOK_NS, None);
        loop {
            if let Some(wait_status) = self.ended() {
                return Err(ServeFailure::EndedAtStart { wait_status });
            }
            // Its own port, whatever it was told and whoever else is there.
            let listening = Listening::now();
            for &port in &listening.ports {
                match self.ask(port, "GET", "/health", None) {
                    Ok(answer) if answer.status == 200 => return Ok(port),
                    Ok(answer) => last = Some(format!("/health says {}: {}", answer.status, answer.said())),
                    // Of an answer that our own end cut short, what it said before is worth more.
                    Err(why) if self.is_late() => _ = last.get_or_insert(format!("/health: {why}")),
                    Err(why) => last = Some(format!("/health: {why}")),
                }
            }
            if self.is_late() {
                return Err(ServeFailure::StartupTimeout { last: last.unwrap_or_else(|| listening.why_none()) });
            }
            sys::poll_readable(&[], Some(look_ns));
            look_ns = (look_ns * 5 / 4).min(LAST_LOOK_NS);
        }
    }

    fn is_late(&self) -> bool {
        sys::boottime_ns() >= self.until
    }

    /// One question and its whole answer.
    fn ask(&self, port: u16, method: &str, path: &str, body: Option<&str>) -> Result<Answer, String> {
        if self.is_late() {
            return Err("no time was left to ask".into());
        }
        let mut recording = Recording::with_room_for(0, 0);
        let until = self.until.min(sys::boottime_ns() + PATIENCE_NS);
        recording.exchange(port, &request(port, method, path, body), Some(until)).map_err(|e| e.to_string())?;
        match Answer::read(&recording.bytes) {
            Ok(answer) if answer.is_whole => Ok(answer),
            Err(Some(why)) => Err(why),
            _ => Err("no whole answer".into()),
        }
    }

    /// An answer that has to be JSON.
    fn json(&self, port: u16, method: &str, path: &str, body: Option<&str>) -> Result<Value, ServeFailure> {
        let answer = self.ask(port, method, path, body).map_err(|why| match self.is_late() {
            true => ServeFailure::StartupTimeout { last: format!("{path}: {why}") },
            false => not_understood(path, why),
        })?;
        if answer.status != 200 {
            return Err(ServeFailure::Refused { during: path.to_owned(), status: answer.status, said: answer.said() });
        }
        serde_json::from_slice(&answer.body).map_err(|e| not_understood(path, format!("{e}: {}", answer.said())))
    }

    /// What it says of itself on its port; it has to have this model.
    pub fn facts(&self, port: u16, model: &str) -> Result<ServerFacts, ServeFailure> {
        let get = |path: &str| self.json(port, "GET", path, None);
        let facts = told(&get("/props")?, &get("/v1/models")?, model)?;
        // With nothing to tokenize, what is left is what begins every prompt.
        let beginning = self.json(port, "POST", "/tokenize", Some(r#"{"content":"","add_special":true}"#))?;
        let bos = beginning.pointer("/tokens/0").and_then(Value::as_u64).and_then(|token| u32::try_from(token).ok());
        Ok(ServerFacts { bos, ..facts })
    }

    /// TERM, and KILL for one that doesn't heed it; its raw wait status. What it has started itself is ended with the run.
    pub fn stop(mut self, grace_ns: u64) -> Option<i32> {
        if let Some(status) = self.ended() {
            return Some(status);
        }
        // Not waited for yet, so that its number is still its own.
        sys::kill(self.child.id() as i32, libc::SIGTERM);
        sys::kill(self.child.id() as i32, libc::SIGCONT);
        wait_until(grace_ns, || self.ended()).or_else(|| {
            let _ = self.child.kill();
            wait_until(grace_ns, || self.ended())
        })
    }
}

fn wait_until<T>(most_ns: u64, mut is_so: impl FnMut() -> Option<T>) -> Option<T> {
    let until = sys::boottime_ns() + most_ns;
    loop {
        if let Some(found) = is_so() {
            return Some(found);
        }
        if sys::boottime_ns() >= until {
            return None;
        }
        sys::poll_readable(&[], Some(FIRST_LOOK_NS));
    }
}

/// What stands in these answers of a server; `asked`: the path of the model that it is to have.
pub(super) fn told(props: &Value, models: &Value, asked: &str) -> Result<ServerFacts, ServeFailure> {
    let text = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let number = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let is_router = props.get("role").and_then(Value::as_str) == Some("router");
    let named = text(props, "/model_path").filter(|path| !path.is_empty() && path != "none").or_else(|| text(models, "/data/0/id"));
    match &named {
        Some(path) if !is_router => is_same(path, asked).then_some(()).ok_or_else(|| ServeFailure::OtherModel { path: path.clone() })?,
        _ => return Err(ServeFailure::NoModel { said: shortened(&props.to_string()) }),
    }
    let vocabulary = number(models, "/data/0/meta/n_vocab").filter(|tokens| *tokens > 0);
    let vocabulary = vocabulary.ok_or_else(|| not_understood("/v1/models", "it has no `n_vocab`: this build is too old".into()))?;
    Ok(ServerFacts {
        build: text(props, "/build_info"),
        quantization: text(models, "/data/0/meta/ftype"),
        n_ctx: number(props, "/default_generation_settings/n_ctx"),
        slots: number(props, "/total_slots"),
        vocabulary,
        bos: None,
        context_trained: number(models, "/data/0/meta/n_ctx_train"),
        parameters: number(models, "/data/0/meta/n_params"),
        weight_bytes: number(models, "/data/0/meta/size"),
        model_path: named,
    })
}

/// Do both name one file?
fn is_same(said: &str, asked: &str) -> bool {
    let real = |path: &str| Path::new(path).canonicalize().ok();
    said == asked || real(said).is_some_and(|said| Some(said) == real(asked))
}

fn not_understood(path: &str, why: String) -> ServeFailure {
    ServeFailure::NotUnderstood { during: path.to_owned(), why }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
