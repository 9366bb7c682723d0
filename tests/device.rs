//! The device as it is: what its sensors say stands in the records. A board's `/sys` is laid over that of this machine, in a mount
//! namespace of the controller and what it starts.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "device/board.rs"]
mod board;
#[path = "device/sensors.rs"]
mod sensors;
#[path = "device/settings.rs"]
mod settings;
