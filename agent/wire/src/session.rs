//! Messages of a session. A connection begins with the agent's proof of life, a line
//! `isotherm-agent <nonce> <agent version> <protocol version>`, then frames: requests with an id, each answered by one reply
//! with that id; events come in between, never inside a window.

use crate::inspect::{InspectRequest, Inspected};
use crate::models::{Cached, Have, Wanted};
use crate::task::RunSpec;
use serde::{Deserialize, Serialize};

/// Controller → agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub id: u64,
    pub request: Request,
}

/// What a controller may ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Must be first.
    Hello(Hello),
    Inspect(InspectRequest),
    /// The runs of this device that a controller has not forgotten yet.
    List,
    Start(Box<Start>),
    /// Ask for events of a run that is executing.
    Attach {
        run_id: String,
    },
    /// Bytes of a sealed result from `offset`, at most one chunk; the reply announces its length, a `B` frame follows.
    Collect {
        run_id: String,
        offset: u64,
    },
    /// Drop a result that the controller has stored; the sha256 must be that of the sealed file.
    Forget {
        run_id: String,
        sha256: String,
    },
    /// End a run; its result is sealed as cancelled.
    Cancel {
        run_id: String,
    },
    /// What the device's wall clock says, now.
    Clock,
    /// How much of this model is kept here? One whose last byte has come is looked at as a whole first, and kept or thrown away.
    Have(Wanted),
    /// More of a model: a `B` frame follows at once. Bytes that don't begin where the copy ends change nothing.
    Put {
        sha256: String,
        offset: u64,
    },
    /// The models that are kept here.
    Models,
    /// Remove a model, or what there is of it.
    Evict {
        sha256: String,
    },
    /// End of the session: restore what was borrowed, give the lease back.
    End,
}

impl Request {
    /// Does a keeper of any version answer this to a controller of any version? These requests, their replies and the events of a run stay
    /// as protocol 1 has them, so that a newer controller can finish an older keeper's night. The way to there stays too: the line of
    /// greeting, the frames, `hello` and its refusals.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        use Request::{Attach, Cancel, Clock, Collect, End, Evict, Forget, Have, Hello, Inspect, List, Models, Put, Start};
        match self {
            List | Attach { .. } | Collect { .. } | Forget { .. } | Cancel { .. } | End => true,
            Hello(_) | Inspect(_) | Start(_) | Clock | Have(_) | Put { .. } | Models | Evict { .. } => false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub holder: Holder,
}

/// Who holds a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// UUID of the results directory.
    pub results_id: String,
    pub campaign: String,
    /// `user@host pid N` of the controller, for people.
    pub controller: String,
    /// RFC 3339.
    pub since: String,
}

/// A run as a controller starts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// UUIDv7 given by the controller. Starting the same run twice starts it once.
    pub run_id: String,
    /// Opaque to the agent; sealed with the result.
    pub manifest: serde_json::Value,
    pub spec: RunSpec,
}

/// Agent → controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    Reply { id: u64, reply: Reply },
    Event(Event),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Welcome(Welcome),
    Inspected(Box<Inspected>),
    Listed(Vec<SpoolEntry>),
    Started,
    Attached(RunState),
    /// `bytes` of the sealed file follow in a `B` frame; `total` is its whole length.
    Chunk {
        offset: u64,
        bytes: u64,
        total: u64,
    },
    Forgotten,
    Cancelled,
    /// CLOCK_REALTIME, ns since 1970.
    Clock {
        realtime_ns: u64,
    },
    Have(Have),
    /// The copy of a model ends there now.
    Put {
        offset: u64,
    },
    Models(Vec<Cached>),
    /// So many bytes are free again.
    Evicted {
        bytes: u64,
    },
    Ended,
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub protocol: u32,
    pub agent_version: String,
    pub agent_sha256: String,
    /// False if the keeper was there already.
    pub keeper_is_new: bool,
    /// The inference engine inside the agent.
    pub engine: Engine,
    /// What an earlier keeper had borrowed and left, given back when this one started.
    #[serde(default, skip_serializing_if = "GivenBack::is_empty")]
    pub given_back: GivenBack,
    /// The kernel's, new with every start; `None` = it can't be read, or an agent that didn't say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Why the keeper was not started in a scope of its user's manager, where it should have been: a logout may end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_scope: Option<String>,
}

/// What became of borrowed state: settings of a device that runs had changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenBack {
    /// Is as it was: `governor of policy0: ondemand`.
    pub restored: Vec<String>,
    /// Is not, and why. What can be tried again stays noted on the device.
    pub failed: Vec<String>,
}

impl GivenBack {
    /// What was tried again since is told of once, as it ended.
    pub fn join(&mut self, later: GivenBack) {
        let thing = |told: &str| told.split(": ").next().unwrap_or(told).to_owned();
        let again: Vec<String> = later.restored.iter().chain(&later.failed).map(|told| thing(told)).collect();
        self.failed.retain(|failed| !again.contains(&thing(failed)));
        self.restored.extend(later.restored);
        self.failed.extend(later.failed);
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.restored.is_empty() && self.failed.is_empty()
    }
}

/// What makes builtin inference of two agents comparable; not the agent's own version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    pub name: String,
    pub version: String,
    /// Our revision of how it is driven.
    pub revision: u32,
}

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Controller and keeper speak different versions. To `hello` it is said by a keeper that goes on with what is frozen; to a request
    /// that isn't frozen, by the same keeper.
    VersionMismatch {
        agent: u32,
        controller: u32,
    },
    LeaseHeld(Holder),
    /// Another run is executing.
    Busy {
        run_id: String,
    },
    /// Nothing known of that run.
    UnknownRun {
        run_id: String,
    },
    /// The same run_id was started with another task.
    RunDiffers {
        run_id: String,
    },
    NotSealed {
        run_id: String,
    },
    /// The sha256 given is not that of the sealed result.
    DigestDiffers {
        expected: String,
        got: String,
    },
    /// A process of an earlier run can't be ended; nothing may run here.
    Quarantined {
        reason: String,
    },
    /// State or scratch directory can't be used: which, why, what to do.
    StateDirectory {
        path: String,
        reason: String,
        hint: String,
    },
    /// A model was copied as a whole, and has another content; the copy is gone.
    ContentDiffers {
        expected: String,
        got: String,
    },
    Other {
        message: String,
    },
}

/// One run in the keeper's spool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpoolEntry {
    pub run_id: String,
    pub state: RunState,
    /// `null` for a run that the keeper can't read, because another version noted it: it is listed as lost with the reason, and stays.
    pub manifest: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running {
        phase: Phase,
    },
    /// On disk; length in bytes and sha256 (hex) of the sealed file.
    Sealed {
        bytes: u64,
        sha256: String,
    },
    /// It was executing when its keeper died, and left no result. None of its processes is left.
    Lost {
        reason: String,
        /// The device has been started anew since the run began.
        #[serde(default)]
        restarted: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Prepare,
    Settle,
    Warmup,
    Measure,
    Collect,
}

/// Live events of a run; what happened before a client attached is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Phase {
        run_id: String,
        phase: Phase,
    },
    /// It settles: temperature of the headline sensor, and what that has to come down to, m°C; `None` where there is none.
    Settling {
        run_id: String,
        temperature_mc: Option<i64>,
        limit_mc: Option<i64>,
    },
    Sealed {
        run_id: String,
        bytes: u64,
        sha256: String,
    },
    /// To who has ended the session, before it is answered: what was given back. Not said where nothing had been borrowed.
    GivenBack(GivenBack),
    /// The run ended and its result could not be sealed (full disk, …): in words.
    SealFailed {
        run_id: String,
        message: String,
    },
}
