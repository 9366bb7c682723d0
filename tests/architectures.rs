//! Agents of other architectures, each on an emulated processor: the same answers as here, and the same life of a run.
//!
//! `ISOTHERM_AGENTS_DIR` names the directory that `scripts/build-agents` filled; qemu's user emulation executes what is in it.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "survival/client.rs"]
mod client;

#[path = "architectures/answers.rs"]
mod answers;
#[path = "architectures/board.rs"]
mod board;
#[path = "architectures/companion.rs"]
mod companion;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "gpu/driver.rs"]
mod driver;
#[path = "support/emulated.rs"]
mod emulated;
#[path = "architectures/files.rs"]
mod files;
#[path = "architectures/life.rs"]
mod life;
