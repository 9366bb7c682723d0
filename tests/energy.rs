//! Energy as a record has it: counters and monitors of a board that is laid over this machine's `/sys`, real agent, real processes.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/held.rs"]
mod held;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "device/board.rs"]
mod board;
#[path = "energy/figures.rs"]
mod figures;
#[path = "energy/pmic.rs"]
mod pmic;
#[path = "energy/tokens.rs"]
mod tokens;
