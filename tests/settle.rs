//! Waiting until a device has settled, and ending a run that heats it too much. A board's `/sys` and `/proc/stat` are laid over those of
//! this machine; its clock goes as fast as a test wants.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "device/board.rs"]
mod board;
#[path = "gpu/driver.rs"]
mod driver;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "settle/gpus.rs"]
mod gpus;
#[path = "settle/limits.rs"]
mod limits;
#[path = "settle/plans.rs"]
mod plans;
#[path = "settle/rig.rs"]
mod rig;
#[path = "settle/waits.rs"]
mod waits;
