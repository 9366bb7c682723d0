//! The keeper: one per device and campaign session, detached. It holds lease, borrowed state, spool and runs, whatever happens to connections.
//!
//! Takes requests of its campaign's controllers, gives replies, events and sealed results; must not know what a run is for.

mod client;
mod execute;
pub mod lease;
mod outgoing;
pub mod quarantine;

use crate::inspect::{
    self,
    files::{self, HashCache},
};
use crate::models::Cache;
use crate::prepare::Preparation;
use crate::sampler::{Sensors, Sources, Watch};
use crate::spool::Spool;
use crate::{contain, copies, dirs, processes, settle, sys};
use isotherm_wire::codec::write_message;
use isotherm_wire::inspect::{ContainmentCapability, Machine};
use isotherm_wire::probe::Capability;
use isotherm_wire::result::AgentFacts;
use isotherm_wire::session::{Call, Event, Failure, FromAgent, GivenBack, Holder, Phase};
use isotherm_wire::telemetry::Snapshot;
use outgoing::Outgoing;
use quarantine::Quarantine;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Name of the keeper's socket in the state directory.
pub const SOCKET_NAME: &str = "keeper.sock";
/// Followed by why the keeper could not be started in a scope of its own.
pub const NO_SCOPE: &str = "--no-scope";
/// With no client and no live run for this long, the keeper gives the device back and exits.
const LINGER_NS: u64 = 600_000_000_000;

/// What a keeper says to the `serve` that started it, one JSON line.
#[derive(Debug, Serialize, Deserialize)]
pub enum Started {
    Listening,
    /// Another keeper holds this machine.
    Held(lease::Held),
    Failed(Failure),
}

/// First message on a connection to the keeper: is the keeper new to this client? Frozen: who says it may be of a newer version than who
/// hears it.
#[derive(Debug, Serialize, Deserialize)]
struct Introduction {
    call: Call,
    keeper_is_new: bool,
}

/// Hand a controller's hello to the keeper.
pub fn introduce(keeper: &mut UnixStream, call: &Call, keeper_is_new: bool) -> io::Result<()> {
    write_message(keeper, &Introduction { call: call.clone(), keeper_is_new })
}

/// What all threads of the keeper share.
struct Keeper {
    dirs: dirs::StateDir,
    spool: Spool,
    facts: AgentFacts,
    containment: ContainmentCapability,
    /// The machine as it was when somebody first asked.
    make: OnceLock<Machine>,
    holder: Holder,
    hashes: Mutex<HashCache>,
    models: Cache,
    /// Found when they are asked for first.
    sensors: OnceLock<Arc<Mutex<Sensors>>>,
    /// What waits are judged by: known from the first question of a controller that is about to run something, before it is answered.
    settling: OnceLock<Mutex<settle::Session>>,
    /// Used by the run's thread, and by the main one when no run can begin any more.
    preparation: Mutex<Preparation>,
    /// Of what an earlier keeper had borrowed, when this one started.
    given_back: GivenBack,
    /// Why it was started in none, where there should be one.
    no_scope: Option<String>,
    state: Mutex<State>,
    /// Written to when the accept loop has to look at the state.
    wake: File,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// Clients by number, with their streams; events go to those that follow a run.
    clients: HashMap<u64, Client>,
    next_client: u64,
    /// Runs that ended and could not be sealed: in words.
    unsealed: HashMap<String, String>,
    quarantine: Quarantine,
    /// The keeper is about to exit: nobody is taken in and nothing is started any more.
    closing: bool,
    /// A controller ended the session; the number of the client that waits for the reply, and its request's id.
    ended_by: Option<(u64, u64)>,
    idle_since_ns: u64,
}

/// The run that is executing.
struct Current {
    run_id: String,
    task_sha256: String,
    phase: Phase,
    /// Readable for the run's thread once somebody cancels it.
    cancel: File,
}

struct Client {
    outgoing: Outgoing,
    follows: Option<String>,
}

impl Keeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sensors(&self) -> &Arc<Mutex<Sensors>> {
        self.sensors.get_or_init(|| Arc::new(Mutex::new(Sensors::find(Path::new("/")))))
    }

    /// Everything that is sampled, once.
    fn snapshot(&self, sources: &mut Sources) -> Snapshot {
        sources.snapshot(&mut self.sensors().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of the energy instruments that are read now.
    fn instruments_read(&self) -> Vec<Capability> {
        self.sensors().lock().unwrap_or_else(PoisonError::into_inner).instruments_read()
    }

    /// Held as long as a run waits.
    fn settling(&self) -> &Mutex<settle::Session> {
        let open = || {
            let now = self.sensors().lock().unwrap_or_else(PoisonError::into_inner).readings();
            let kept = settle::Kept::open(&self.dirs.path, &self.holder.results_id, || now.clone());
            Mutex::new(settle::Session::open(Path::new("/"), kept, now))
        };
        self.settling.get_or_init(open)
    }

    /// Tell those who follow this run, without waiting for anybody.
    fn tell(&self, run_id: &str, event: Event) {
        for client in self.state().clients.values().filter(|c| c.follows.as_deref() == Some(run_id)) {
            client.outgoing.tell(FromAgent::Event(event.clone()));
        }
    }

    fn gpus(&self) -> Watch {
        self.sensors().lock().unwrap_or_else(PoisonError::into_inner).gpus().clone()
    }

    /// Whoever looks at something for the keeper ends with it; one that hangs has to be ended.
    fn end_who_looks_on(&self) {
        if let Some(sensors) = self.sensors.get() {
            sensors.lock().unwrap_or_else(PoisonError::into_inner).gpus().end();
        }
    }

    /// What the machine is, now.
    fn machine(&self) -> Machine {
        let make = self.make.get_or_init(|| inspect::machine::inspect(Path::new("/"), &self.containment));
        Machine { gpus: self.gpus().gpus(), ..inspect::machine::again(Path::new("/"), make) }
    }

    fn enter(&self, run_id: &str, phase: Phase) {
        if let Some(current) = &mut self.state().current {
            current.phase = phase;
        }
        self.tell(run_id, Event::Phase { run_id: run_id.to_owned(), phase });
        if phase == Phase::Measure {
            // The window is quiet: what is on its way to those who read is gone before it begins.
            let ways: Vec<Outgoing> = self.state().clients.values().map(|c| c.outgoing.clone()).collect();
            outgoing::flush(&ways);
        }
    }
}

pub fn main(args: Vec<OsString>) -> Result<(), String> {
    sys::close_inherited();
    // Where it is permitted: short of memory the kernel takes others first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-900");
    let (root, no_scope) = match args.as_slice() {
        [flag, root] if flag == "--state-dir" => (root, None),
        [flag, root, no_scope, why] if flag == "--state-dir" && no_scope == NO_SCOPE => (root, Some(why.to_string_lossy().into_owned())),
        _ => return Err("usage: isotherm-agent keep --state-dir DIR".into()),
    };
    let root = root.to_string_lossy().into_owned();
    let mut holder = String::new();
    io::stdin().read_to_string(&mut holder).map_err(|e| e.to_string())?;
    let holder: Holder = serde_json::from_str(&holder).map_err(|e| format!("holder: {e}"))?;
    let started = |started: &Started| {
        let line = serde_json::to_string(started).unwrap_or_default();
        let _ = writeln!(io::stdout(), "{line}");
    };
    let lease = match lease::take(&holder, &root) {
        Ok(lease) => lease,
        Err(lease::Refused::Held(other)) => {
            started(&Started::Held(other));
            return Ok(());
        }
        Err(lease::Refused::Failed(e)) => {
            started(&Started::Failed(Failure::Other { message: format!("taking the lease: {e}") }));
            return Ok(());
        }
    };
    match set_up(&root, holder, no_scope) {
        Ok((keeper, listener, wakened)) => {
            started(&Started::Listening);
            // `serve` reads to the end of our stdout; let it go.
            detach_stdout();
            copies::note_use();
            copies::prune();
            client::accept_loop(&keeper, &listener, &wakened, lease);
            Ok(())
        }
        Err(failure) => {
            started(&Started::Failed(failure));
            Ok(())
        }
    }
}

fn set_up(root: &str, holder: Holder, no_scope: Option<String>) -> Result<(Arc<Keeper>, std::os::unix::net::UnixListener, File), Failure> {
    let other = |what: &str, e: &dyn std::fmt::Display| Failure::Other { message: format!("{what}: {e}") };
    let dirs = dirs::state_dir(Some(root))?;
    // Orphans of a run whose `init` is killed come to us.
    let reaping = sys::become_subreaper();
    let spool = Spool::new(dirs.spool());
    let mut quarantine = Quarantine::open(&dirs.path);
    end_lost_runs(&spool, &mut quarantine).map_err(|e| other("reading the spool", &e))?;
    // Of runs that were lost: nobody uses it any more.
    let _ = std::fs::remove_dir_all(dirs.scratch());
    let containment = contain::trial(reaping).map_err(|message| Failure::Other { message })?;
    let sha256 = File::open("/proc/self/exe").and_then(|exe| files::hash(&exe)).map_err(|e| other("reading our own executable", &e))?;
    let facts = AgentFacts { version: env!("CARGO_PKG_VERSION").into(), sha256, target: sys::TARGET.into() };
    let mut preparation = Preparation::open(&dirs.path);
    let given_back = preparation.give_back();
    let listener = sys::listen_in(&dirs.path, SOCKET_NAME).map_err(|e| other("listening on the keeper's socket", &e))?;
    let (wakened, wake) = sys::pipe().map_err(|e| other("pipe", &e))?;
    let keeper = Keeper {
        hashes: Mutex::new(HashCache::open(dirs.hash_cache())),
        models: Cache::below(&dirs.root),
        make: OnceLock::new(),
        sensors: OnceLock::new(),
        settling: OnceLock::new(),
        preparation: Mutex::new(preparation),
        given_back,
        no_scope,
        spool,
        dirs,
        facts,
        containment,
        holder,
        state: Mutex::new(State { quarantine, idle_since_ns: sys::boottime_ns(), ..State::default() }),
        wake,
    };
    Ok((Arc::new(keeper), listener, wakened))
}

/// Runs without a result whose keeper is gone: end what is left of them.
fn end_lost_runs(spool: &Spool, quarantine: &mut Quarantine) -> io::Result<()> {
    spool.drop_unstarted()?;
    for entry in spool.entries()?.iter().filter(|e| e.sealed.is_none()) {
        contain::end_cgroup(&entry.run_id);
        if let Err(pids) = processes::sweep(&entry.run_id) {
            quarantine.hold(&entry.run_id, &processes::described(pids));
            break;
        }
    }
    Ok(())
}

fn detach_stdout() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for fd in [0, 1] {
            // SAFETY: both descriptors are ours; the old ones are closed by this.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::session::{Hello, Request};

    #[test]
    fn an_introduction_is_what_it_always_was() {
        let holder = Holder { results_id: "r".into(), campaign: "c".into(), controller: "me".into(), since: "now".into() };
        let call = Call { id: 1, request: Request::Hello(Hello { protocol: 7, holder }) };
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        introduce(&mut ours, &call, false).unwrap();
        drop(ours);
        let mut said = Vec::new();
        theirs.read_to_end(&mut said).unwrap();
        let text = r#"{"call":{"id":1,"request":{"hello":{"protocol":7,"holder":{"results_id":"r","campaign":"c","controller":"me","since":"now"}}}},"keeper_is_new":false}"#;
        assert_eq!(said, [&(text.len() as u32).to_be_bytes()[..], b"J", text.as_bytes()].concat());
    }
}
