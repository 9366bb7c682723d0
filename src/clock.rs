//! The controller's wall clock: for labels, for the order of ids, and for how far a device's is off; never for a duration.
//!
//! Takes the clock parameter from the environment, gives times as they are written; must not know what they label.

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds, which may be negative, that the controller's clock is off.
const CLOCK_VARIABLE: &str = "ISOTHERM_CONTROLLER_CLOCK_S";

/// How far a device's wall clock was ahead of its controller's when it was asked, of several questions the one that was answered
/// soonest. With it, runs of several devices can be put beside each other in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockOffset {
    pub offset_ms: f64,
    /// Half of the time that the answer took: the offset is within ± this.
    pub uncertainty_ms: f64,
}

fn now() -> SystemTime {
    static SHIFT_S: OnceLock<i64> = OnceLock::new();
    let shift = *SHIFT_S.get_or_init(|| std::env::var(CLOCK_VARIABLE).ok().and_then(|s| s.parse().ok()).unwrap_or(0));
    let by = Duration::from_secs(shift.unsigned_abs());
    if shift < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
}

/// ns since 1970; 0 before that.
#[must_use]
pub fn realtime_ns() -> u64 {
    now().duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

/// RFC 3339 in UTC, to the second.
#[must_use]
pub fn utc_seconds() -> String {
    humantime::format_rfc3339_seconds(now()).to_string()
}

/// RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn utc_millis() -> String {
    humantime::format_rfc3339_millis(now()).to_string()
}

/// RFC 3339 in UTC of a time that somebody else's clock gave, seconds since 1970.
#[must_use]
pub fn utc_of(seconds: u64) -> String {
    // No later than what can be written.
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799))).to_string()
}

/// An id for a new run (UUIDv7): later ones sort after earlier ones as long as the clock isn't set back, on which nothing relies.
#[must_use]
pub fn new_run_id() -> String {
    let since_1970 = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = uuid::Timestamp::from_unix(uuid::NoContext, since_1970.as_secs(), since_1970.subsec_nanos());
    uuid::Uuid::new_v7(time).to_string()
}
