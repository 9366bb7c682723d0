//! One connection: proof of life, then a proxy between stdin/stdout and the keeper. It may die and be replaced at any time.

use crate::keep::lease;
use crate::{capture, dirs, keep, scope, sys};
use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::session::{Call, Failure, FromAgent, Hello, Reply, Request};
use isotherm_wire::{GREETING_WORD, protocol_version};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How often, every [`LOOK_AGAIN_NS`], a keeper of our own campaign that is starting or ending is looked for: trying out how it can
/// contain a run may take it seconds on a busy board.
const LOOKS: u32 = 300;
const LOOK_AGAIN_NS: u64 = 50_000_000;
/// How often a keeper that ends before it has answered is tried again.
const MOST_KEEPERS: u32 = 3;
/// The keeper's log is begun anew when it is larger than this, bytes.
const LARGEST_LOG: u64 = 1 << 20;

pub fn main(args: Vec<OsString>) -> Result<(), String> {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut nonce, mut configured) = (None, None);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            lexopt::Arg::Long("nonce") => nonce = Some(parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned()),
            lexopt::Arg::Long("state-dir") => configured = Some(parser.value().map_err(|e| e.to_string())?.to_string_lossy().into_owned()),
            other => return Err(other.unexpected().to_string()),
        }
    }
    let nonce = nonce.ok_or("serve needs --nonce")?;
    let mut stdin = io::stdin().lock();
    let mut stdout = io::stdout();
    writeln!(stdout, "{GREETING_WORD} {nonce} {} {}", env!("CARGO_PKG_VERSION"), protocol_version()).map_err(|e| e.to_string())?;
    stdout.flush().map_err(|e| e.to_string())?;

    let Some(frame) = read_frame(&mut stdin).map_err(|e| e.to_string())? else { return Ok(()) };
    let call: Call = frame.message().map_err(|e| e.to_string())?;
    let Request::Hello(hello) = &call.request else {
        return fail(call.id, Failure::Other { message: "the first request must be hello".into() });
    };
    // A keeper of another version has its own answer; this process, which would start one, has to fit its controller.
    if hello.protocol != protocol_version() {
        return fail(call.id, Failure::VersionMismatch { agent: protocol_version(), controller: hello.protocol });
    }
    for _ in 0..MOST_KEEPERS {
        let (mut keeper, is_new) = match reach_keeper(hello, configured.as_deref()) {
            Ok(reached) => reached,
            Err(failure) => return fail(call.id, failure),
        };
        // One that was about to exit, because nobody had come for so long, goes away without an answer.
        if keep::introduce(&mut keeper, &call, is_new).is_ok() && sys::has_more(&keeper) {
            // The keeper, and those beside it: nobody here waits for them.
            sys::ignore_children();
            return pump(stdin, keeper);
        }
    }
    fail(call.id, Failure::Other { message: "its keeper ends before it answers; keeper.log in its state directory may say why".into() })
}

fn fail(id: u64, failure: Failure) -> Result<(), String> {
    write_message(&mut io::stdout(), &FromAgent::Reply { id, reply: Reply::Failed(failure) }).map_err(|e| e.to_string())
}

/// Connect to this machine's keeper; start one if there is none. True with it: it is new.
fn reach_keeper(hello: &Hello, configured: Option<&str>) -> Result<(UnixStream, bool), Failure> {
    let state = dirs::state_dir(configured)?;
    let connect = || sys::connect_in(&state.path, keep::SOCKET_NAME);
    if let Ok(stream) = connect() {
        return Ok((stream, false));
    }
    let mut other = None;
    for look in 0..LOOKS {
        // Now and then: the one that holds this machine may be ending, and then nobody else starts the next one.
        if look % 10 == 0 {
            match start_keeper(hello, &state)? {
                None => {
                    let unreachable = |e| Failure::Other { message: format!("the keeper started and can't be reached: {e}") };
                    return connect().map(|stream| (stream, true)).map_err(unreachable);
                }
                Some(lease::Held { holder, state_dir }) => {
                    // One with its state elsewhere is never ours.
                    let is_elsewhere = state_dir.is_some_and(|dir| Path::new(&dir) != state.root);
                    if holder.results_id != hello.holder.results_id || is_elsewhere {
                        return Err(Failure::LeaseHeld(holder));
                    }
                    other = Some(holder);
                }
            }
        }
        // Somebody of the same campaign was faster: their keeper is ours too, as soon as it listens.
        if let Ok(stream) = connect() {
            return Ok((stream, false));
        }
        sys::poll_readable(&[], Some(LOOK_AGAIN_NS));
    }
    Err(other.map_or_else(|| Failure::Other { message: "no keeper could be reached".into() }, Failure::LeaseHeld))
}

/// Start a detached keeper and wait until it listens. `Some` = somebody else holds this machine.
fn start_keeper(hello: &Hello, state: &dirs::StateDir) -> Result<Option<lease::Held>, Failure> {
    let other = |what: &str, e: &dyn std::fmt::Display| Failure::Other { message: format!("{what}: {e}") };
    let log_path = state.path.join("keeper.log");
    if std::fs::metadata(&log_path).is_ok_and(|meta| meta.len() > LARGEST_LOG) {
        let _ = std::fs::remove_file(&log_path);
    }
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&log_path);
    let log = log.map_err(|e| Failure::StateDirectory {
        path: state.path.display().to_string(),
        reason: e.to_string(),
        hint: "make it writable, or set `state_dir` of the device".into(),
    })?;
    let started = |mut command: Command| -> Result<keep::Started, String> {
        let before = log.metadata().map_or(0, |meta| meta.len()) as usize;
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.try_clone().map_err(|e| e.to_string())?);
        // SAFETY: setsid is async-signal-safe.
        unsafe { command.pre_exec(sys::new_session) };
        let mut keeper = command.spawn().map_err(|e| e.to_string())?;
        let holder = serde_json::to_vec(&hello.holder).map_err(|e| e.to_string())?;
        // One that is gone already has said why.
        let _ = keeper.stdin.take().map(|mut stdin| stdin.write_all(&holder));
        let mut line = String::new();
        if let Some(mut stdout) = keeper.stdout.take() {
            stdout.read_to_string(&mut line).map_err(|e| e.to_string())?;
        }
        serde_json::from_str(line.trim()).map_err(|_| {
            let written = std::fs::read(&log_path).unwrap_or_default();
            let words = written.get(before..).unwrap_or_default();
            capture::blob(&words[words.len().saturating_sub(400)..]).data.trim().to_owned()
        })
    };
    let arguments = |command: &mut Command| _ = command.arg("keep").arg("--state-dir").arg(&state.root);
    let in_scope = scope::here().zip(std::fs::read_link("/proc/self/exe").ok()).map(|(scope, agent)| {
        let mut command = scope.command(&agent);
        arguments(&mut command);
        started(command)
    });
    let told = match in_scope {
        Some(Ok(told)) => told,
        no_scope => {
            let mut command = Command::new("/proc/self/exe");
            // For people who look at a process list.
            command.arg0("isotherm-agent");
            arguments(&mut command);
            if let Some(Err(why)) = no_scope {
                command.arg(keep::NO_SCOPE).arg(why);
            }
            started(command).map_err(|e| other("the keeper did not start", &e))?
        }
    };
    match told {
        keep::Started::Listening => Ok(None),
        keep::Started::Held(held) => Ok(Some(held)),
        keep::Started::Failed(failure) => Err(failure),
    }
}

/// Bytes in both directions until either side ends.
fn pump(mut stdin: io::StdinLock<'_>, keeper: UnixStream) -> Result<(), String> {
    let mut from_keeper = keeper.try_clone().map_err(|e| e.to_string())?;
    let mut to_keeper = keeper;
    let back = std::thread::spawn(move || {
        let mut stdout = io::stdout().lock();
        let mut chunk = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from_keeper.read(&mut chunk) {
            if stdout.write_all(&chunk[..n]).and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
        // The keeper is gone or the link is: nothing is left to carry. A read of stdin would hang on, so leave at once.
        std::process::exit(0);
    });
    let mut chunk = vec![0; 64 << 10];
    while let Ok(n @ 1..) = stdin.read(&mut chunk) {
        if to_keeper.write_all(&chunk[..n]).is_err() {
            break;
        }
    }
    // The controller has gone: tell the keeper and let what it still says drain away.
    let _ = to_keeper.shutdown(Shutdown::Both);
    let _ = back.join();
    Ok(())
}
