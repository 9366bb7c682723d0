//! Devices: takes the configuration of one, gives a [`Session`] with its keeper; must not know benchmarks.
//!
//! A transport only starts the agent and moves bytes; everything above is the same for all of them.

mod agent;
pub mod agents;
mod architecture;
mod link;
mod local;
mod probe;
mod session;
mod ssh;

pub use architecture::{Architecture, Userland};
pub use link::Leave;
pub use probe::{Answer, probe};
pub use session::{Happening, Session};

/// Does this build carry an agent for `local` devices? Only one made on Linux does.
#[must_use]
pub fn has_local_agent() -> bool {
    agent::EMBEDDED.is_some()
}

/// What tells this machine, since it was started, from every other one.
#[must_use]
pub fn boot_id() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

use crate::config::model::{Device, Transport};
use crate::size::size;
use agents::AgentError;
use isotherm_wire::session::{Failure, Holder};
use link::{Link, Role};
use thiserror::Error;

/// Of those whom a Ctrl-C ends directly.
pub const NEVER: Leave<'static> = &|| false;

/// Start an agent on the device, unless we are to `leave` before it is there.
fn start(device: &Device, role: Role, nonce: &str, leave: Leave<'_>) -> Result<Link, DeviceError> {
    match &device.transport {
        Transport::Local(local) => local::start(&device.id, local, role, nonce),
        Transport::Ssh(ssh) => ssh::start(&device.id, ssh, role, nonce, leave),
        Transport::Later(kind) => Err(DeviceError::Later { device: device.id.clone(), kind }),
    }
}

/// Why a device could not be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    #[error("device `{device}` is reached by {kind}, which is not in this build yet")]
    Later { device: String, kind: &'static str },
    #[error("this build of isotherm carries no agent, so the device `{device}` can't be used")]
    NoAgent { device: String },
    #[error("device `{device}`: {source}")]
    NoAgentFor { device: String, source: AgentError },
    #[error("device `{device}` (ssh {host}) can't be reached: {reason}")]
    Unreachable {
        device: String,
        host: String,
        reason: String,
        hint: String,
        /// It may be over by itself, as what is wrong with a network is.
        passing: bool,
    },
    #[error("device `{device}` was not waited for any longer")]
    Left { device: String },
    #[error("the agent could not be installed for device `{device}`: {reason}")]
    Deploy { device: String, reason: String },
    #[error("the agent on device `{device}` did not answer: {reason}")]
    NoAnswer { device: String, reason: String },
    #[error("the connection to device `{device}` was lost: {reason}")]
    LinkLost { device: String, reason: String },
    #[error("device `{device}` {}", refusal(.failure))]
    Refused { device: String, failure: Box<Failure> },
    #[error("device `{device}` has no room for the models that its runs need: {} are to be copied, and {} have to stay free; {} are free", size(*.needed_bytes), size(*.reserve_bytes), size(*.free_bytes))]
    NoRoom { device: String, needed_bytes: u64, reserve_bytes: u64, free_bytes: u64 },
    #[error("what device `{device}` sent does not fit what it announced: {reason}")]
    Damaged { device: String, reason: String },
}

impl DeviceError {
    /// The device has no trace of the run that was asked about.
    #[must_use]
    pub fn is_unknown_run(&self) -> bool {
        matches!(self, DeviceError::Refused { failure, .. } if matches!(**failure, Failure::UnknownRun { .. }))
    }

    /// Who holds it.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            DeviceError::Refused { failure, .. } => {
                if let Failure::LeaseHeld(holder) = &**failure {
                    Some(holder)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    /// It is executing a run.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, DeviceError::Refused { failure, .. } if matches!(**failure, Failure::Busy { .. }))
    }

    /// Another campaign holds it, or it is executing a run.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, DeviceError::Refused { failure, .. } if matches!(**failure, Failure::LeaseHeld(_) | Failure::Busy { .. }))
    }

    /// An action for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            DeviceError::NoAgent { .. } => {
                Some("build on Linux with the workspace's `agent/`, or set ISOTHERM_AGENT_BIN to a prebuilt agent while building".into())
            }
            DeviceError::NoAgentFor { source, .. } => Some(source.hint()),
            DeviceError::Unreachable { hint, .. } => Some(hint.clone()),
            DeviceError::Deploy { .. } => Some("set `bin_dir` of the device to a directory that may hold executables".into()),
            DeviceError::Refused { failure, .. } => match failure.as_ref() {
                Failure::LeaseHeld(_) => {
                    Some(
                    "a device runs one campaign at a time: wait until that one has ended; if its controller is gone, run that campaign again to collect \
                     what it left, or wait ten minutes"
                        .into(),
                )
                }
                Failure::StateDirectory { hint, .. } => Some(hint.clone()),
                Failure::VersionMismatch { agent, controller } if agent > controller => Some(
                    "a newer isotherm is at work on this campaign: go on with that one, or wait until its keeper has ended, ten minutes after its last run"
                        .into(),
                ),
                Failure::VersionMismatch { .. } => Some("an older isotherm's keeper is still there: `isotherm run` finishes its runs first".into()),
                Failure::Quarantined { .. } => Some("end what it waits for, such as a file server that does not answer, or reboot the device; then run again".into()),
                _ => None,
            },
            DeviceError::NoRoom { .. } => Some("`isotherm models` lists what is kept there and evicts it; or set `state_dir` of the device to a larger disk".into()),
            DeviceError::NoAnswer { .. } | DeviceError::LinkLost { .. } => {
                Some("run again: what was running goes on or is kept on the device, and is collected first".into())
            }
            DeviceError::Damaged { .. } | DeviceError::Left { .. } | DeviceError::Later { .. } => None,
        }
    }
}

fn refusal(failure: &Failure) -> String {
    match failure {
        Failure::VersionMismatch { agent, controller } => {
            format!("speaks protocol {agent}, this controller speaks {controller}")
        }
        Failure::LeaseHeld(holder) => {
            format!("is held by campaign `{}` ({}) since {}", holder.campaign, holder.controller, holder.since)
        }
        Failure::Busy { run_id } => format!("is executing run {run_id}"),
        Failure::UnknownRun { run_id } => format!("knows no run {run_id}"),
        Failure::RunDiffers { run_id } => format!("has run {run_id} with another task"),
        Failure::NotSealed { run_id } => format!("has no sealed result of run {run_id}"),
        Failure::DigestDiffers { expected, got } => format!("has a result with sha256 {expected}, not {got}"),
        Failure::Quarantined { reason } => format!("is quarantined: {reason}"),
        Failure::StateDirectory { path, reason, .. } => format!("can't keep its state in {path}: {reason}"),
        Failure::ContentDiffers { expected, got } => format!("got a model with sha256 {got} instead of {expected}"),
        Failure::Other { message } => format!("answered: {message}"),
    }
}
