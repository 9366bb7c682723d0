//! Whoever dies in the middle of a run: every job gets one record, nothing with a result runs twice, and nothing is left behind.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "survival/chaos.rs"]
mod chaos;
#[path = "survival/client.rs"]
mod client;
#[path = "survival/clocks.rs"]
mod clocks;
#[path = "survival/deaths.rs"]
mod deaths;
#[path = "survival/disks.rs"]
mod disks;
#[path = "survival/frozen.rs"]
mod frozen;
#[path = "survival/phases.rs"]
mod phases;
#[path = "survival/places.rs"]
mod places;
#[path = "survival/restarts.rs"]
mod restarts;
#[path = "survival/rig.rs"]
mod rig;
#[path = "survival/signals.rs"]
mod signals;
#[path = "survival/strangers.rs"]
mod strangers;
#[path = "survival/versions.rs"]
mod versions;
#[path = "survival/wire.rs"]
mod wire;
