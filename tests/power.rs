//! Kinds of run: which of them a campaign has on a device, how they are resumed, what reading instruments does to them, and that timing runs
//! leave them alone. A board's `/sys` is laid over that of this machine.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "gpu/bench.rs"]
mod bench;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "device/board.rs"]
mod board;
#[path = "gpu/driver.rs"]
mod driver;
#[path = "power/nights.rs"]
mod nights;
#[path = "power/polling.rs"]
mod polling;
