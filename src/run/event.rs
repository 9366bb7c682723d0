//! What happens in a campaign, one after the other: journal, progress and `--json` are made from these and nothing else.

use crate::store::record::{Kind, Metric, Reason, Status, Validity};
use indexmap::IndexMap;
use serde::Serialize;

/// One event. Serialized as `{"event": "<name>", …}`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    CampaignStarted {
        campaign: String,
        results: String,
        epoch: String,
        isotherm: String,
        /// `--set`s of the command line.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        set: Vec<String>,
        jobs: usize,
    },
    /// The device answered; its keeper is there.
    DeviceReady {
        device: String,
        agent_sha256: String,
        keeper_is_new: bool,
        containment: String,
    },
    /// A keeper of an older isotherm holds it for this campaign: what it has and runs comes first, then ours takes its place.
    OlderKeeper {
        device: String,
    },
    /// Its energy instruments are read rarely and so often a second in turn, because runs hang on what that does to what they say.
    Polling {
        device: String,
        hz: f64,
    },
    /// A model is copied there; its first `offset` bytes are there already.
    PushStarted {
        device: String,
        model: String,
        sha256: String,
        bytes: u64,
        offset: u64,
    },
    /// How far that has come. Once a second, and not in the journal.
    Pushing {
        device: String,
        model: String,
        bytes: u64,
        offset: u64,
    },
    /// The model is there, and has been looked at as a whole; so many bytes went there for it.
    Pushed {
        device: String,
        model: String,
        sha256: String,
        copied_bytes: u64,
    },
    /// Nothing can run there: why and what to do.
    DeviceFailed {
        device: String,
        message: String,
        hint: Option<String>,
    },
    /// What is to be done there: jobs by state, and why some have to run again (reason → how many).
    DevicePlanned {
        device: String,
        states: IndexMap<&'static str, usize>,
        to_run: usize,
        reasons: IndexMap<String, usize>,
    },
    /// A result of an earlier controller was there already.
    Collected {
        run_id: String,
        device: String,
        label: String,
        kind: Kind,
        repetition: u32,
    },
    /// Another run of ours is executing there; we wait for it.
    Attached {
        run_id: String,
        device: String,
        label: String,
        kind: Kind,
        repetition: u32,
    },
    /// A run ended with its keeper, without a result.
    RunLost {
        run_id: String,
        device: String,
        label: String,
        kind: Kind,
        repetition: u32,
        why: String,
    },
    /// Written before the run is started.
    Started {
        run_id: String,
        job_id: String,
        device: String,
        label: String,
        kind: Kind,
        repetition: u32,
        attempt: u32,
        settle_ms: u64,
    },
    Phase {
        run_id: String,
        phase: &'static str,
    },
    /// It settles: the headline sensor, and what that has to come down to. Once a second, and not in the journal.
    Settling {
        run_id: String,
        temperature_c: Option<f64>,
        limit_c: Option<f64>,
    },
    Finished(Box<Finished>),
    /// A pass is over, and so many of its runs, which something else disturbed, are made again.
    Repeating {
        device: String,
        runs: usize,
    },
    /// A record moved to `superseded/`, because there is a new one.
    Superseded {
        path: String,
    },
    /// A record's numbers were derived again from its own output; the earlier reading is kept.
    RecordReadAgain {
        run_id: String,
        path: String,
        status: Status,
        earlier: String,
    },
    /// So many records of a device were read by other rules than the campaign's, and have been read again by these.
    ReadAgain {
        device: String,
        records: usize,
    },
    /// The connection is gone; the run goes on.
    LinkLost {
        device: String,
        reason: String,
    },
    /// The connection was made again.
    LinkBack {
        device: String,
    },
    /// It could not be reached, and will be tried again.
    OutOfReach {
        device: String,
        reason: String,
        again_s: u64,
    },
    /// Another campaign has the resource group: it is waited for.
    GroupTaken {
        device: String,
        group: String,
        holder: String,
    },
    /// It turns out to be the same machine as these, so that their runs take turns.
    SameMachine {
        device: String,
        others: Vec<String>,
    },
    /// A signal was taken: what happens now.
    Stopping {
        how: &'static str,
    },
    /// What runs had borrowed of the device's settings, or an earlier night: what is as it was, and what could not be set back.
    GivenBack {
        device: String,
        restored: Vec<String>,
        failed: Vec<String>,
    },
    /// Nothing more is to be done there, or can be.
    DeviceDone {
        device: String,
    },
    /// The device was given back.
    DeviceReleased {
        device: String,
    },
    Warning {
        message: String,
    },
    CampaignEnded(Summary),
}

/// A run with its record.
#[derive(Debug, Clone, Serialize)]
pub struct Finished {
    pub run_id: String,
    pub device: String,
    pub label: String,
    pub kind: Kind,
    pub repetition: u32,
    pub attempt: u32,
    pub status: Status,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub validity: Validity,
    /// Codes of its issues.
    pub issues: Vec<String>,
    /// The first metric by name; of a power run its mean power.
    pub headline: Option<(String, Metric)>,
    /// How its device settled; not for a fixed wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<Settled>,
    /// Headline sensor before and after the run, °C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<(f64, f64)>,
    /// Relative to the results directory.
    pub path: String,
}

/// How a wait with evidence ended.
#[derive(Debug, Clone, Serialize)]
pub struct Settled {
    /// As in the record.
    pub verdict: String,
    pub after_s: f64,
}

/// How it stands at the end.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    pub jobs: usize,
    pub ok: usize,
    pub degraded: usize,
    /// How many of the degraded ones something else disturbed.
    pub contaminated: usize,
    pub failed: usize,
    /// Not run, because another failure made them needless.
    pub skipped: usize,
    pub pending: usize,
    /// Its run goes on without a controller; the next `run` collects it.
    pub left_running: usize,
    /// Runs made by this invocation, and those of an earlier one that it collected.
    pub ran: usize,
    /// How many of these were repeats of disturbed runs.
    pub repeated: usize,
    pub collected: usize,
    /// Records read again by changed rules; nothing ran for them.
    pub read_again: usize,
    pub failures: Vec<String>,
    /// Runs again of answered jobs that failed or came out invalid: the valid records stay.
    pub failed_reruns: usize,
    /// What devices keep of what they were lent: it could not be set back, and stays noted there.
    pub not_given_back: Vec<String>,
    /// Devices that were to be used, and those of them that could not be.
    pub devices: usize,
    pub devices_failed: usize,
    /// Those on which nothing ran because the campaign asks their programs for what these can't do, and what that is.
    pub devices_refused: Vec<String>,
    /// Signal that ended it early.
    pub interrupted_by: Option<i32>,
}
