//! The controller's wall clock: for labels and for the order of ids, never for a duration.
//!
//! Takes the clock parameter from the environment, gives times as they are written; must not know what they label.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds, which may be negative, that the controller's clock is off.
const CLOCK_VARIABLE: &str = "ISOTHERM_CONTROLLER_CLOCK_S";

fn now() -> SystemTime {
    static SHIFT_S: OnceLock<i64> = OnceLock::new();
    let shift = *SHIFT_S.get_or_init(|| std::env::var(CLOCK_VARIABLE).ok().and_then(|s| s.parse().ok()).unwrap_or(0));
    let by = Duration::from_secs(shift.unsigned_abs());
    if shift < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
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

/// An id for a new run (UUIDv7): later ones sort after earlier ones as long as the clock isn't set back, on which nothing relies.
#[must_use]
pub fn new_run_id() -> String {
    let since_1970 = now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = uuid::Timestamp::from_unix(uuid::NoContext, since_1970.as_secs(), since_1970.subsec_nanos());
    uuid::Uuid::new_v7(time).to_string()
}
