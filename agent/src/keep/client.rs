//! Connections to the keeper: accepts them, answers requests, notices when nobody is there any more.

use super::outgoing::{self, Outgoing};
use super::{Client, Current, Introduction, Keeper, LINGER_NS, SOCKET_NAME, execute, lease::Lease};
use crate::sampler::{self, polling};
use crate::{copies, inspect, spool, sys, task};
use isotherm_wire::codec::{Frame, MAX_CHUNK_BYTES, read_frame};
use isotherm_wire::inspect::{InspectRequest, Inspected};
use isotherm_wire::protocol_version;
use isotherm_wire::session::{Call, Engine, Event, Failure, FromAgent, GivenBack, Phase, Reply, Request, RunState, SpoolEntry, Start, Welcome};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// Who connects says hello within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Whoever started the keeper is on the way: it is waited for at least this long, ns.
const FIRST_CLIENT_NS: u64 = 30_000_000_000;
/// Pause after a connection that could not be accepted, ns: there are no descriptors left, say.
const ACCEPT_AGAIN_NS: u64 = 100_000_000;

/// Serve clients until a controller ends the session, or nobody has come for the linger time. Then what was borrowed of the device is
/// given back, and after it the lease.
pub fn accept_loop(keeper: &Arc<Keeper>, listener: &UnixListener, mut wakened: &File, lease: Lease) {
    let linger_ns = std::env::var("ISOTHERM_LINGER_MS").ok().and_then(|ms| ms.parse::<u64>().ok()).map_or(LINGER_NS, sys::limit_ns);
    let reply_to = loop {
        let wait = {
            let mut state = keeper.state();
            let idle = state.clients.is_empty() && state.current.is_none();
            let patience_ns = if state.next_client == 0 { linger_ns.max(FIRST_CLIENT_NS) } else { linger_ns };
            let left = (state.idle_since_ns + patience_ns).saturating_sub(sys::boottime_ns());
            state.closing |= idle && left == 0;
            if state.closing {
                break state.ended_by;
            }
            idle.then_some(left)
        };
        let ready = sys::poll_readable(&[listener.as_raw_fd(), wakened.as_raw_fd()], wait);
        if ready[1] {
            let _ = wakened.read(&mut [0; 64]);
        }
        if ready[0] {
            match listener.accept() {
                Ok((stream, _)) => {
                    let keeper = Arc::clone(keeper);
                    // Without a thread the client is dropped and comes again.
                    let _ = thread::Builder::new().name("client".into()).spawn(move || serve(&keeper, stream));
                }
                Err(_) => _ = sys::poll_readable(&[], Some(ACCEPT_AGAIN_NS)),
            }
        }
    };
    let _ = std::fs::remove_file(keeper.dirs.path.join(SOCKET_NAME));
    keeper.hashes.lock().unwrap_or_else(PoisonError::into_inner).save();
    let given_back = keeper.preparation.lock().unwrap_or_else(PoisonError::into_inner).give_back();
    given_back.failed.iter().for_each(|what| eprintln!("not given back: {what}"));
    keeper.end_who_looks_on();
    lease.give_back();
    if let Some((client, id)) = reply_to {
        let client = keeper.state().clients.get(&client).map(|c| c.outgoing.clone());
        if let Some(client) = client {
            if !given_back.is_empty() {
                client.answer(FromAgent::Event(Event::GivenBack(given_back)), None);
            }
            client.answer(FromAgent::Reply { id, reply: Reply::Ended }, None);
            outgoing::flush(&[client]);
        }
    }
}

fn serve(keeper: &Arc<Keeper>, stream: UnixStream) {
    let Ok(mut reader) = stream.try_clone() else { return };
    let _ = reader.set_read_timeout(Some(HELLO_TIMEOUT));
    let introduction = read_frame(&mut reader).ok().flatten().and_then(|frame| frame.message::<Introduction>().ok());
    let Some(Introduction { call: Call { id, request: Request::Hello(hello) }, keeper_is_new }) = introduction else { return };
    let _ = reader.set_read_timeout(None);
    let Ok(outgoing) = Outgoing::start(stream) else { return };
    if hello.holder.results_id != keeper.holder.results_id {
        outgoing.answer(FromAgent::Reply { id, reply: Reply::Failed(Failure::LeaseHeld(keeper.holder.clone())) }, None);
        return outgoing::flush(&[outgoing]);
    }
    let ours = protocol_version();
    let mismatch = (hello.protocol != ours).then_some(Failure::VersionMismatch { agent: ours, controller: hello.protocol });
    let reply = mismatch.clone().map_or_else(|| welcome(keeper, ours, keeper_is_new), Reply::Failed);
    // A client before it is answered: who has been welcomed doesn't meet a keeper that has just decided to exit.
    let number = {
        let mut state = keeper.state();
        if state.closing {
            return;
        }
        state.next_client += 1;
        let number = state.next_client;
        state.clients.insert(number, Client { outgoing: outgoing.clone(), follows: None });
        number
    };
    if outgoing.answer(FromAgent::Reply { id, reply }, None) {
        converse(keeper, number, mismatch.as_ref(), &mut reader, &outgoing);
    }
    let mut state = keeper.state();
    state.clients.remove(&number);
    state.idle_since_ns = sys::boottime_ns();
    drop(state);
    wake(keeper);
}

/// Answer requests until the client goes, or says what is no message. With a controller of another version, only what is frozen.
fn converse(keeper: &Arc<Keeper>, number: u64, mismatch: Option<&Failure>, reader: &mut UnixStream, outgoing: &Outgoing) {
    while let Ok(Some(frame)) = read_frame(reader) {
        let (id, request) = match frame.message() {
            Ok(Call { id, request }) => (id, request),
            Err(e) => match id_of(&frame) {
                // Of a newer controller, say: it learns that this can't be had here and goes on.
                Some(id) if outgoing.answer(FromAgent::Reply { id, reply: Reply::Failed(Failure::Other { message: e.to_string() }) }, None) => {
                    continue;
                }
                _ => return,
            },
        };
        let (reply, chunk) = match (request, mismatch) {
            (request, Some(mismatch)) if !request.is_frozen() => (Reply::Failed(mismatch.clone()), None),
            (Request::Collect { run_id, offset }, _) => collect(keeper, &run_id, offset),
            (Request::Put { sha256, offset }, _) => match read_frame(reader) {
                Ok(Some(Frame::Bytes(bytes))) => (put(keeper, &sha256, offset, &bytes).unwrap_or_else(Reply::Failed), None),
                _ => return,
            },
            (Request::End, _) => match end(keeper, number, id) {
                Ok(()) => continue,
                Err(failure) => (Reply::Failed(failure), None),
            },
            (request, _) => (answer(keeper, number, request).unwrap_or_else(Reply::Failed), None),
        };
        if !outgoing.answer(FromAgent::Reply { id, reply }, chunk) {
            return;
        }
    }
}

/// Id of a request that is not understood.
fn id_of(frame: &Frame) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Asked {
        id: u64,
    }
    frame.message::<Asked>().ok().map(|asked| asked.id)
}

fn wake(keeper: &Keeper) {
    let _ = (&keeper.wake).write_all(&[0]);
}

fn welcome(keeper: &Keeper, protocol: u32, keeper_is_new: bool) -> Reply {
    let (name, version, revision) = task::infer::engine_identity();
    Reply::Welcome(Welcome {
        protocol,
        agent_version: keeper.facts.version.clone(),
        agent_sha256: keeper.facts.sha256.clone(),
        keeper_is_new,
        engine: Engine { name: name.into(), version: version.into(), revision },
        given_back: if keeper_is_new { keeper.given_back.clone() } else { GivenBack::default() },
        boot_id: inspect::machine::boot_id(Path::new("/")),
        no_scope: keeper.no_scope.clone(),
    })
}

fn answer(keeper: &Arc<Keeper>, client: u64, request: Request) -> Result<Reply, Failure> {
    let other = |e: io::Error| Failure::Other { message: e.to_string() };
    match request {
        Request::Hello(_) => Err(Failure::Other { message: "hello was said already".into() }),
        Request::Inspect(request) => Ok(Reply::Inspected(Box::new(inspect(keeper, &request)?))),
        Request::List => {
            let entries = keeper.spool.entries().map_err(other)?;
            let entry = |e: spool::Entry| {
                let manifest = e.run.map_or(serde_json::Value::Null, |run| run.manifest);
                SpoolEntry { state: run_state(keeper, &e.run_id), run_id: e.run_id, manifest }
            };
            Ok(Reply::Listed(entries.into_iter().map(entry).collect()))
        }
        Request::Start(start) => begin(keeper, client, *start).map(|()| Reply::Started),
        Request::Attach { run_id } => {
            keeper.spool.entry(&run_id).ok_or_else(|| Failure::UnknownRun { run_id: run_id.clone() })?;
            // First follow, then look: an end in between is told once at least.
            if let Some(client) = keeper.state().clients.get_mut(&client) {
                client.follows = Some(run_id.clone());
            }
            Ok(Reply::Attached(run_state(keeper, &run_id)))
        }
        Request::Forget { run_id, sha256 } => {
            let entry = keeper.spool.entry(&run_id).ok_or_else(|| Failure::UnknownRun { run_id: run_id.clone() })?;
            // What can't be read here isn't lost: who wrote it can read it.
            entry.run.map_err(|why| Failure::Other { message: format!("run {run_id} stays: {why}") })?;
            let expected = match run_state(keeper, &run_id) {
                RunState::Running { .. } => return Err(Failure::NotSealed { run_id }),
                RunState::Sealed { sha256, .. } => sha256,
                // A lost run has no result, so nothing to compare with: its digest is the empty text.
                RunState::Lost { .. } => String::new(),
            };
            if expected != sha256 {
                return Err(Failure::DigestDiffers { expected, got: sha256 });
            }
            keeper.spool.forget(&run_id).map_err(other)?;
            Ok(Reply::Forgotten)
        }
        Request::Cancel { run_id } => {
            let state = keeper.state();
            match &state.current {
                Some(current) if current.run_id == run_id => {
                    let _ = (&current.cancel).write_all(&[0]);
                    Ok(Reply::Cancelled)
                }
                // It has just ended by itself, and who asks will be told so.
                _ if keeper.spool.entry(&run_id).is_some() => Ok(Reply::Cancelled),
                _ => Err(Failure::UnknownRun { run_id }),
            }
        }
        Request::Clock => Ok(Reply::Clock { realtime_ns: sys::realtime_ns() }),
        Request::Have(wanted) => {
            not_beside_a_run(keeper)?;
            let mut hashes = keeper.hashes.lock().unwrap_or_else(PoisonError::into_inner);
            let have = keeper.models.have(&wanted, &keeper.holder.campaign, &mut hashes)?;
            hashes.save();
            Ok(Reply::Have(have))
        }
        Request::Models => keeper.models.list().map(Reply::Models).map_err(other),
        Request::Evict { sha256 } => {
            not_beside_a_run(keeper)?;
            Ok(Reply::Evicted { bytes: keeper.models.evict(&sha256)? })
        }
        Request::Collect { .. } | Request::Put { .. } | Request::End => Err(Failure::Other { message: "answered elsewhere".into() }),
    }
}

fn inspect(keeper: &Keeper, request: &InspectRequest) -> Result<Inspected, Failure> {
    // The quiet readings first: hashing files warms the machine.
    keeper.settling();
    let snapshot = keeper.snapshot(&mut sampler::Sources::open(Path::new("/")));
    let mut hashes = keeper.hashes.lock().unwrap_or_else(PoisonError::into_inner);
    let files = request.files.iter().map(|query| (query.key.clone(), hashes.answer(query))).collect();
    hashes.save();
    let mut sensors = sampler::lock(keeper.sensors());
    let instruments = match request.polling_hz {
        Some(hz) => {
            // Whoever has the sensors in hand keeps a run from reading them: it must not be on already.
            if let Some(current) = &keeper.state().current {
                return Err(Failure::Busy { run_id: current.run_id.clone() });
            }
            polling::try_out(&mut sensors, hz)
        }
        None => sensors.instruments().to_vec(),
    };
    drop(sensors);
    drop(hashes);
    let programs = match &keeper.state().current {
        // It would be measured beside that.
        Some(_) => std::collections::BTreeMap::new(),
        None => inspect::programs::ask(&request.programs),
    };
    Ok(Inspected { machine: keeper.machine(), files, snapshot, instruments, programs })
}

fn run_state(keeper: &Keeper, run_id: &str) -> RunState {
    let unsealed = {
        let state = keeper.state();
        match &state.current {
            // Also while its result is being sealed: the event that says so is still to come.
            Some(current) if current.run_id == run_id => return RunState::Running { phase: current.phase },
            _ => state.unsealed.get(run_id).cloned(),
        }
    };
    // Looked at last: a run is sealed before it stops being the current one.
    let run = match keeper.spool.entry(run_id) {
        Some(spool::Entry { run: Err(why), .. }) => return RunState::Lost { reason: why.to_string(), restarted: false },
        Some(spool::Entry { sealed: Some((bytes, sha256)), .. }) => return RunState::Sealed { bytes, sha256 },
        entry => entry.and_then(|entry| entry.run.ok()),
    };
    let restarted = run.is_some_and(|run| run.is_of_another_boot());
    let reason = match unsealed {
        Some(why) => format!("its result could not be written: {why}"),
        None if restarted => "the device was started anew during it".into(),
        None => "its keeper ended before it did".into(),
    };
    RunState::Lost { reason, restarted }
}

fn begin(keeper: &Arc<Keeper>, client: u64, start: Start) -> Result<(), Failure> {
    let mut state = keeper.state();
    if state.closing {
        return Err(about_to_exit());
    }
    if !spool::is_run_id(&start.run_id) {
        return Err(Failure::Other { message: format!("{:?} is not a run id", start.run_id) });
    }
    let task_sha256 = spool::task_sha256(&start);
    let known = match (&state.current, keeper.spool.entry(&start.run_id)) {
        (Some(current), _) if current.run_id == start.run_id => Some(current.task_sha256.clone()),
        (_, Some(entry)) => Some(entry.run.map(|run| run.task_sha256).unwrap_or_default()),
        (Some(current), None) => return Err(Failure::Busy { run_id: current.run_id.clone() }),
        (None, None) => None,
    };
    match &known {
        Some(sha256) if *sha256 != task_sha256 => return Err(Failure::RunDiffers { run_id: start.run_id }),
        Some(_) => {}
        None => {
            if let Some(reason) = state.quarantine.reason() {
                return Err(Failure::Quarantined { reason });
            }
        }
    }
    if let Some(client) = state.clients.get_mut(&client) {
        client.follows = Some(start.run_id.clone());
    }
    if known.is_some() {
        return Ok(());
    }
    // Ahead of what comes to the disk with the run's entry: nothing of it is left to be written in the window.
    copies::note_use();
    keeper.spool.begin(&start).map_err(|e| Failure::StateDirectory {
        path: keeper.dirs.spool().display().to_string(),
        reason: e.to_string(),
        hint: "free space there, or set `state_dir` of the device".into(),
    })?;
    let (cancelled, cancel) = sys::pipe().map_err(|e| Failure::Other { message: e.to_string() })?;
    state.current = Some(Current { run_id: start.run_id.clone(), task_sha256, phase: Phase::Settle, cancel });
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
    // Nothing is behind the end, however far.
    match keeper.spool.read(&entry, offset.min(total), MAX_CHUNK_BYTES) {
        Ok(chunk) => (Reply::Chunk { offset, bytes: chunk.len() as u64, total }, Some(chunk)),
        Err(e) => (Reply::Failed(Failure::Other { message: e.to_string() }), None),
    }
}

fn put(keeper: &Keeper, sha256: &str, offset: u64, bytes: &[u8]) -> Result<Reply, Failure> {
    not_beside_a_run(keeper)?;
    Ok(Reply::Put { offset: keeper.models.put(sha256, offset, bytes)? })
}

/// A disk at work disturbs what is measured.
fn not_beside_a_run(keeper: &Keeper) -> Result<(), Failure> {
    match &keeper.state().current {
        Some(current) => Err(Failure::Busy { run_id: current.run_id.clone() }),
        None => Ok(()),
    }
}

fn end(keeper: &Keeper, client: u64, id: u64) -> Result<(), Failure> {
    let mut state = keeper.state();
    if state.closing {
        return Err(about_to_exit());
    }
    if let Some(current) = &state.current {
        return Err(Failure::Busy { run_id: current.run_id.clone() });
    }
    state.closing = true;
    state.ended_by = Some((client, id));
    drop(state);
    wake(keeper);
    Ok(())
}

fn about_to_exit() -> Failure {
    Failure::Other { message: "the keeper is about to exit".into() }
}
