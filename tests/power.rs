//! Kinds of run: which of them a campaign has on a device, how they are resumed, and that timing runs leave instruments alone. A board's
//! `/sys` is laid over that of this machine.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "device/board.rs"]
mod board;
#[path = "power/nights.rs"]
mod nights;
