//! Running a campaign: takes a campaign, sessions and a store; drives everything and emits linear [`Event`]s; must not know rendering.

pub mod assemble;
mod awake;
mod beside;
mod clocking;
mod collect;
mod contact;
mod context;
mod crew;
mod device_night;
mod energy;
pub mod event;
pub mod filter;
mod gpu;
mod groups;
mod line;
mod load;
pub mod manifest;
mod models;
mod night;
mod paths;
mod push;
mod reparse;
mod reread;
mod restore;
pub mod selection;
mod settle;
pub mod signals;
mod spool;
mod watch;
mod workers;

pub use collect::{CollectError, Collected, Stored, cancel, collect};
pub use event::{Event, Finished, Settled, Summary};
pub use filter::{Filter, FilterError};
pub use models::{Evict, Models, ModelsError, models};
pub use night::{controller, run, stored_reports};
pub use push::{RESERVE_BYTES, look_here};
pub use reparse::{ReadAnew, ReparseError, Reparsed, reparse};
pub use reread::Change;
pub use restore::restore;
pub use selection::Options;

use crate::device::DeviceError;
use crate::plan::PlanError;
use crate::store::StoreError;
use thiserror::Error;

/// An option that a point asks for and its build hasn't.
#[derive(Debug, Error)]
#[error("`{program}` on device `{device}`{} has no option `{option}`", version.as_ref().map_or_else(String::new, |version| format!(" (version {version})")))]
pub struct UnknownOption {
    pub option: String,
    /// Options that it has, the most alike first.
    pub nearest: Vec<String>,
    pub program: String,
    /// As it says itself.
    pub version: Option<String>,
    pub device: String,
}

/// Why a campaign could not be run at all, or had to stop.
#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The campaign's file can be planned, and not all of it run.
    #[error("backend {} is not in this build yet", backends.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and "))]
    Later {
        backends: Vec<String>,
        /// The filter that takes what is asked for without it; `None` = nothing else is.
        rest: Option<String>,
    },
    #[error("model `{model}` on device `{device}` ({path}) has sha256 {found}, the campaign declares {declared}")]
    OtherModel { model: String, device: String, path: String, found: String, declared: String },
    #[error(transparent)]
    UnknownOption(Box<UnknownOption>),
    #[error("model `{model}` was not copied to device `{device}`: {path} {why}")]
    Unpushed { model: String, device: String, path: String, why: String },
    /// A `local` device in a build without an agent: nothing of the campaign can run.
    #[error(transparent)]
    NoAgent(DeviceError),
    #[error("failed to {what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
}

impl RunError {
    /// Of the process that it ends: 2 it was asked for the wrong thing, 4 others have the directory, 5 something broke.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            RunError::Plan(_)
            | RunError::NoAgent(_)
            | RunError::Filter(_)
            | RunError::Later { .. }
            | RunError::OtherModel { .. }
            | RunError::UnknownOption(_)
            | RunError::Unpushed { .. }
            | RunError::Store(StoreError::OtherCampaign { .. } | StoreError::PublicCopy { .. } | StoreError::Newer { .. }) => 2,
            RunError::Store(StoreError::Locked { .. }) => 4,
            RunError::Store(_) | RunError::Io { .. } => 5,
        }
    }

    /// An action for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            RunError::Plan(e) => Some(e.hint()),
            RunError::Store(e) => e.hint(),
            RunError::OtherModel { .. } => Some("put the right file there, or correct `sha256` in the campaign".into()),
            RunError::UnknownOption(unknown) => {
                let UnknownOption { nearest, program, .. } = unknown.as_ref();
                let nearest: Vec<String> = nearest.iter().map(|option| format!("`{option}`")).collect();
                Some(format!("the nearest that it has: {}; `{program} --help` on the device names all", nearest.join(", ")))
            }
            RunError::Unpushed { .. } => Some("leave the file as it is while a campaign runs, and run again".into()),
            RunError::NoAgent(e) => e.hint(),
            RunError::Later { rest, .. } => Some(rest.as_ref().map_or_else(
                || "leave out what asks for it; `isotherm plan` shows what it expands to".into(),
                |rest| format!("`--filter {rest}` runs what is built"),
            )),
            RunError::Filter(_) | RunError::Io { .. } => None,
        }
    }
}

/// What ends a device's part of the night early.
enum Stop {
    /// Nothing more can run there; its jobs stay pending.
    Device(DeviceError),
    /// What it says of itself leaves a condition without an answer; likewise.
    Condition(PlanError),
    /// A program there lacks an option that it would be given; likewise, and nothing has run.
    Option(Box<UnknownOption>),
    /// The controller ends, too.
    Fatal(RunError),
    /// The user asked for it.
    Asked,
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Stop {
        match error {
            DeviceError::Left { .. } => Stop::Asked,
            other => Stop::Device(other),
        }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Fatal(error.into())
    }
}
