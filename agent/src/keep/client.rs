//! Connections to the keeper: accepts them, answers requests, notices when nobody is there any more.

use super::{Client, Current, Introduction, Keeper, LINGER_NS, SOCKET_NAME, execute, lease::Lease};
use crate::{inspect, sampler, spool, sys, task};
use isotherm_wire::PROTOCOL_VERSION;
use isotherm_wire::codec::{MAX_CHUNK_BYTES, read_frame, write_bytes, write_message};
use isotherm_wire::inspect::{InspectRequest, Inspected};
use isotherm_wire::session::{Call, Engine, Failure, FromAgent, Hello, Phase, Reply, Request, RunState, SpoolEntry, Start, Welcome};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A client that doesn't take a frame for this long is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serve clients until a controller ends the session, or nobody has come for the linger time. Then the lease is given back.
pub fn accept_loop(keeper: &Arc<Keeper>, listener: &UnixListener, mut wakened: &File, lease: Lease) {
    let linger_ns = std::env::var("ISOTHERM_LINGER_MS").ok().and_then(|ms| ms.parse::<u64>().ok()).map_or(LINGER_NS, |ms| ms * 1_000_000);
    let reply_to = loop {
        let wait = {
            let state = keeper.state();
            if state.ended_by.is_some() {
                break state.ended_by;
            }
            let idle = state.clients.is_empty() && state.current.is_none();
            let left = (state.idle_since_ns + linger_ns).saturating_sub(sys::boottime_ns());
            if idle && left == 0 {
                break None;
            }
            idle.then_some(left)
        };
        let ready = sys::poll_readable(&[listener.as_raw_fd(), wakened.as_raw_fd()], wait);
        if ready[1] {
            let _ = wakened.read(&mut [0; 64]);
        }
        if ready[0]
            && let Ok((stream, _)) = listener.accept()
        {
            let keeper = Arc::clone(keeper);
            // Without a thread the client is dropped and comes again.
            let _ = thread::Builder::new().name("client".into()).spawn(move || serve(&keeper, stream));
        }
    };
    let _ = std::fs::remove_file(keeper.dirs.path.join(SOCKET_NAME));
    keeper.hashes.lock().unwrap_or_else(PoisonError::into_inner).save();
    lease.give_back();
    if let Some((client, id)) = reply_to
        && let Some(client) = keeper.state().clients.get(&client)
    {
        let _ = send(&client.stream, &FromAgent::Reply { id, reply: Reply::Ended });
    }
}

fn send(stream: &Mutex<UnixStream>, message: &FromAgent) -> io::Result<()> {
    write_message(&mut *stream.lock().unwrap_or_else(PoisonError::into_inner), message)
}

fn serve(keeper: &Arc<Keeper>, stream: UnixStream) {
    let Ok(mut reader) = stream.try_clone() else { return };
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = Arc::new(Mutex::new(stream));
    let introduction = read_frame(&mut reader).ok().flatten().and_then(|frame| frame.message::<Introduction>().ok());
    let Some(Introduction { call: Call { id, request: Request::Hello(hello) }, keeper_is_new }) = introduction else { return };
    let reply = welcome(keeper, &hello, keeper_is_new);
    let refused = matches!(reply, Reply::Failed(_));
    if send(&stream, &FromAgent::Reply { id, reply }).is_err() || refused {
        return;
    }
    let number = {
        let mut state = keeper.state();
        state.next_client += 1;
        let number = state.next_client;
        state.clients.insert(number, Client { stream: Arc::clone(&stream), follows: None });
        number
    };
    while let Ok(Some(frame)) = read_frame(&mut reader) {
        let Ok(Call { id, request }) = frame.message() else { break };
        let (reply, chunk) = match request {
            Request::Collect { run_id, offset } => collect(keeper, &run_id, offset),
            Request::End => match end(keeper, number, id) {
                Ok(()) => continue,
                Err(failure) => (Reply::Failed(failure), None),
            },
            request => (answer(keeper, number, request).unwrap_or_else(Reply::Failed), None),
        };
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = write_message(&mut *stream, &FromAgent::Reply { id, reply });
        if sent.and_then(|()| chunk.map_or(Ok(()), |c| write_bytes(&mut *stream, &c))).is_err() {
            break;
        }
    }
    let mut state = keeper.state();
    state.clients.remove(&number);
    state.idle_since_ns = sys::boottime_ns();
    drop(state);
    wake(keeper);
}

fn wake(keeper: &Keeper) {
    let _ = (&keeper.wake).write_all(&[0]);
}

fn welcome(keeper: &Keeper, hello: &Hello, keeper_is_new: bool) -> Reply {
    if hello.protocol != PROTOCOL_VERSION {
        return Reply::Failed(Failure::VersionMismatch { agent: PROTOCOL_VERSION, controller: hello.protocol });
    }
    if hello.holder.results_id != keeper.holder.results_id {
        return Reply::Failed(Failure::LeaseHeld(keeper.holder.clone()));
    }
    let (name, version, revision) = task::infer::engine_identity();
    Reply::Welcome(Welcome {
        protocol: PROTOCOL_VERSION,
        agent_version: keeper.facts.version.clone(),
        agent_sha256: keeper.facts.sha256.clone(),
        keeper_is_new,
        engine: Engine { name: name.into(), version: version.into(), revision },
    })
}

fn answer(keeper: &Arc<Keeper>, client: u64, request: Request) -> Result<Reply, Failure> {
    let other = |e: io::Error| Failure::Other { message: e.to_string() };
    match request {
        Request::Hello(_) => Err(Failure::Other { message: "hello was said already".into() }),
        Request::Inspect(request) => Ok(Reply::Inspected(Box::new(inspect(keeper, &request)))),
        Request::List => {
            let entries = keeper.spool.entries().map_err(other)?;
            let entry = |e: spool::Entry| SpoolEntry { state: run_state(keeper, &e), run_id: e.run.run_id, manifest: e.run.manifest };
            Ok(Reply::Listed(entries.into_iter().map(entry).collect()))
        }
        Request::Start(start) => begin(keeper, client, start).map(|()| Reply::Started),
        Request::Attach { run_id } => {
            // First follow, then look: an end in between is told once at least.
            if let Some(client) = keeper.state().clients.get_mut(&client) {
                client.follows = Some(run_id.clone());
            }
            let entry = keeper.spool.entry(&run_id).ok_or(Failure::UnknownRun { run_id })?;
            Ok(Reply::Attached(run_state(keeper, &entry)))
        }
        Request::Forget { run_id, sha256 } => {
            let entry = keeper.spool.entry(&run_id).ok_or_else(|| Failure::UnknownRun { run_id: run_id.clone() })?;
            if let RunState::Running { .. } = run_state(keeper, &entry) {
                return Err(Failure::NotSealed { run_id });
            }
            // A lost run has no result, so nothing to compare with: its digest is the empty text.
            let expected = entry.sealed.map(|(_, sha256)| sha256).unwrap_or_default();
            if expected != sha256 {
                return Err(Failure::DigestDiffers { expected, got: sha256 });
            }
            keeper.spool.forget(&run_id).map_err(other)?;
            Ok(Reply::Forgotten)
        }
        Request::Cancel { run_id } => {
            let mut state = keeper.state();
            match &mut state.current {
                Some(current) if current.run_id == run_id => {
                    current.cancelled = true;
                    let _ = (&current.cancel).write_all(&[0]);
                    keeper.changed.notify_all();
                    Ok(Reply::Cancelled)
                }
                _ => Err(Failure::UnknownRun { run_id }),
            }
        }
        Request::Collect { .. } | Request::End => Err(Failure::Other { message: "answered elsewhere".into() }),
    }
}

fn inspect(keeper: &Keeper, request: &InspectRequest) -> Inspected {
    // The quiet reading first: hashing files warms the machine.
    let snapshot = sampler::Sources::open(Path::new("/")).snapshot();
    let mut hashes = keeper.hashes.lock().unwrap_or_else(PoisonError::into_inner);
    let files = request.files.iter().map(|query| (query.key.clone(), hashes.answer(query))).collect();
    hashes.save();
    Inspected { machine: inspect::machine::inspect(Path::new("/"), &keeper.containment), files, snapshot }
}

fn run_state(keeper: &Keeper, entry: &spool::Entry) -> RunState {
    let state = keeper.state();
    match (&entry.sealed, &state.current) {
        (Some((bytes, sha256)), _) => RunState::Sealed { bytes: *bytes, sha256: sha256.clone() },
        (None, Some(current)) if current.run_id == entry.run.run_id => RunState::Running { phase: current.phase },
        _ => RunState::Lost {
            reason: state
                .unsealed
                .get(&entry.run.run_id)
                .map_or_else(|| "its keeper ended before it did".into(), |why| format!("its result could not be written: {why}")),
        },
    }
}

fn begin(keeper: &Arc<Keeper>, client: u64, start: Start) -> Result<(), Failure> {
    let mut state = keeper.state();
    if let Some(reason) = &state.quarantined {
        return Err(Failure::Quarantined { reason: reason.clone() });
    }
    if let Some(client) = state.clients.get_mut(&client) {
        client.follows = Some(start.run_id.clone());
    }
    let task_sha256 = spool::task_sha256(&start);
    let known = match (&state.current, keeper.spool.entry(&start.run_id)) {
        (Some(current), _) if current.run_id == start.run_id => Some(current.task_sha256.clone()),
        (_, Some(entry)) => Some(entry.run.task_sha256),
        (Some(current), None) => return Err(Failure::Busy { run_id: current.run_id.clone() }),
        (None, None) => None,
    };
    match known {
        Some(sha256) if sha256 == task_sha256 => return Ok(()),
        Some(_) => return Err(Failure::RunDiffers { run_id: start.run_id }),
        None => {}
    }
    keeper.spool.begin(&start).map_err(|e| Failure::StateDirectory {
        path: keeper.dirs.spool().display().to_string(),
        reason: e.to_string(),
        hint: "free space there, or set `state_dir` of the device".into(),
    })?;
    let (cancelled, cancel) = sys::pipe().map_err(|e| Failure::Other { message: e.to_string() })?;
    state.current = Some(Current { run_id: start.run_id.clone(), task_sha256, phase: Phase::Settle, cancel, cancelled: false });
    drop(state);
    let for_thread = Arc::clone(keeper);
    let spawned = thread::Builder::new().name("run".into()).spawn(move || {
        execute::execute(&for_thread, &start, &cancelled);
        wake(&for_thread);
    });
    if let Err(e) = spawned {
        keeper.state().current = None;
        return Err(Failure::Other { message: format!("starting the run's thread: {e}") });
    }
    Ok(())
}

fn collect(keeper: &Keeper, run_id: &str, offset: u64) -> (Reply, Option<Vec<u8>>) {
    let Some(entry) = keeper.spool.entry(run_id) else {
        return (Reply::Failed(Failure::UnknownRun { run_id: run_id.into() }), None);
    };
    let Some((total, _)) = entry.sealed else {
        return (Reply::Failed(Failure::NotSealed { run_id: run_id.into() }), None);
    };
    match keeper.spool.read(&entry, offset, MAX_CHUNK_BYTES) {
        Ok(chunk) => (Reply::Chunk { offset, bytes: chunk.len() as u64, total }, Some(chunk)),
        Err(e) => (Reply::Failed(Failure::Other { message: e.to_string() }), None),
    }
}

fn end(keeper: &Keeper, client: u64, id: u64) -> Result<(), Failure> {
    let mut state = keeper.state();
    if let Some(current) = &state.current {
        return Err(Failure::Busy { run_id: current.run_id.clone() });
    }
    state.ended_by = Some((client, id));
    drop(state);
    wake(keeper);
    Ok(())
}
