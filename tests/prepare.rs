//! What a campaign borrows of a device is given back, whoever dies, and what it may not do is said and stops nothing.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "prepare/area.rs"]
mod area;
#[path = "prepare/board.rs"]
mod board;
#[path = "prepare/deaths.rs"]
mod deaths;
#[path = "prepare/nights.rs"]
mod nights;
#[path = "prepare/restore.rs"]
mod restore;
#[path = "prepare/swap.rs"]
mod swap;
#[path = "prepare/zram.rs"]
mod zram;
