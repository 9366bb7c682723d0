//! Models that are copied to a device: once, by content, as far as they are not there yet, and never removed by themselves.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "push/copies.rs"]
mod copies;
#[path = "push/kept.rs"]
mod kept;
#[path = "push/rig.rs"]
mod rig;
#[path = "push/trouble.rs"]
mod trouble;
