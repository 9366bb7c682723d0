//! The contract between controller and agent: message types, frame codec, versions, and what the columns of telemetry mean.
//!
//! Takes nothing, gives plain data types; must not know how a task is planned (controller) or executed (agent).
//! Units stand in the field names. Absent is `None`, and what is absent for a reason carries the reason.

pub mod clocking;
pub mod codec;
pub mod columns;
pub mod companion;
pub mod format;
pub mod gpu;
pub mod headline;
pub mod inspect;
pub mod limits;
pub mod load;
pub mod model;
pub mod models;
pub mod probe;
pub mod readiness;
pub mod result;
pub mod search;
pub mod served;
pub mod session;
pub mod settle;
mod table;
pub mod task;
pub mod telemetry;
pub mod unit;

/// Version of the session protocol. A keeper answers a controller of another one with `VersionMismatch` and then what is frozen only, see
/// [`session::Request::is_frozen`].
pub const PROTOCOL_VERSION: u32 = 1;
/// Makes a process speak another version: the only way to have keepers of two versions without two builds. For tests.
pub const PROTOCOL_VARIABLE: &str = "ISOTHERM_PROTOCOL";
/// First word of the line that an agent prints as proof of life.
pub const GREETING_WORD: &str = "isotherm-agent";

/// The version that this process speaks.
#[must_use]
pub fn protocol_version() -> u32 {
    std::env::var(PROTOCOL_VARIABLE).ok().and_then(|version| version.parse().ok()).unwrap_or(PROTOCOL_VERSION)
}
