//! `isotherm probe` with the real agent: this machine, authored machines, a machine that is held, tools that hang.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "probe/devices.rs"]
mod devices;
#[path = "probe/live.rs"]
mod live;
#[path = "probe/trees.rs"]
mod trees;
