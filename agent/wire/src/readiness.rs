//! Readiness: what could spoil a night on a device before it begins. Asked and answered with a probe; raw facts, judged by the controller.

use crate::inspect::FileQuery;
use crate::models::Cached;
use crate::probe::Absent;
use crate::task::{Prepare, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a campaign needs of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// Files that its points name. They are looked at, and not hashed.
    pub files: Vec<FileQuery>,
    /// State directory as configured; `None` = the standard places.
    pub state_dir: Option<String>,
    /// Steps that some point asks for.
    pub steps: Vec<Prepare>,
    /// Names of processes to look for, as in `/proc/<pid>/comm`.
    pub processes: Vec<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Readiness {
    /// By the query's key.
    pub files: BTreeMap<String, FileLook>,
    /// Where the agent is installed.
    pub bin: Place,
    /// Where results will lie until they are collected; the first standard place where none can be used.
    pub state: Place,
    /// That were copied there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<Cached>,
    /// What an earlier run has left there that nothing may run beside, in words.
    pub quarantine: Option<String>,
    /// Borrowed settings that nobody has given back.
    pub borrowed: bool,
    /// `MemAvailable`.
    pub mem_available_bytes: Option<u64>,
    /// CPUs that a run may use, ascending; `None` = the kernel doesn't say.
    pub cpus: Option<Vec<u32>>,
    /// In the order in which they were asked for.
    pub steps: Vec<StepLook>,
    pub login: Login,
    pub scheduled: Scheduled,
    /// Of the processes asked for, those that are there: name and pid.
    pub processes: Vec<(String, i32)>,
    /// Passive trip points: from there on the kernel holds the clock back.
    pub trip_points: Vec<TripPoint>,
}

/// A file as it lies there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileLook {
    /// Regular files that can be read, and executed where it is a program: number, and bytes of all of them.
    Found { files: u64, bytes: u64 },
    /// Not there or not usable; why.
    Missing(String),
    /// It could not be looked at; why.
    Unknown(String),
}

/// A directory of the agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// As it is, or as it will be made.
    pub path: String,
    /// Bytes that we may still write there; `None` = the file system doesn't say.
    pub free_bytes: Option<u64>,
    /// Files that may still be made there; `None` = the file system has no such limit, or doesn't say.
    pub free_files: Option<u64>,
    /// Why it can't be used.
    pub fault: Option<String>,
}

/// Whether a step of preparation is permitted. Nothing of it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLook {
    pub step: Step,
    pub may: May,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum May {
    Directly,
    /// By the commands that sudo lists as permitted.
    BySudo,
    /// The device has no such thing.
    Unsupported(String),
    /// Why not.
    Denied(String),
}

/// What happens to our processes when whoever started them logs out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// systemd runs the machine.
    pub systemd: bool,
    pub uid: u32,
    /// Name of that user, if it has one.
    pub user: Option<String>,
    /// The agent's own group in systemd's hierarchy: `/user.slice/user-1000.slice/session-3.scope`.
    pub group: Option<String>,
    /// The user's processes may outlive its last session.
    pub linger: bool,
    /// A keeper is started in a scope of the user's manager, which a logout leaves alone then.
    #[serde(default)]
    pub scope: bool,
    /// Settings of logind that stand in its files, those that stand there as a comment being its own defaults.
    pub logind: BTreeMap<String, String>,
}

/// What begins by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduled {
    /// As systemd plans it, and the device's own time when it was asked, µs since 1970.
    Timers {
        now_us: u64,
        timers: Vec<Timer>,
    },
    /// No systemd, and a cron that runs: names of its daily and weekly jobs.
    Cron(Vec<String>),
    /// Neither.
    Nothing,
    Unknown(Absent),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// `apt-daily.timer`
    pub unit: String,
    /// µs since 1970; `None` = not planned.
    pub next_us: Option<u64>,
}

/// A temperature at which the kernel begins to cool by slowing down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TripPoint {
    /// Directory of its zone: `thermal_zone0`.
    pub zone: String,
    pub name: String,
    pub millicelsius: i64,
    /// What the zone reads now.
    pub now_millicelsius: Option<i64>,
}
