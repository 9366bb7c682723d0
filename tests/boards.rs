//! Devices over ssh: real sshds on boards of the tests' own making, the real client, real cuts.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "support/boards.rs"]
mod boards;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/emulated.rs"]
mod emulated;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "boards/contact.rs"]
mod contact;
#[path = "boards/copies.rs"]
mod copies;
#[path = "boards/faults.rs"]
mod faults;
#[path = "boards/foreign.rs"]
mod foreign;
#[path = "boards/leaving.rs"]
mod leaving;
#[path = "boards/lingering.rs"]
mod lingering;
#[path = "boards/models.rs"]
mod models;
#[path = "boards/others.rs"]
mod others;
#[path = "boards/quiet.rs"]
mod quiet;
#[path = "boards/rig.rs"]
mod rig;
#[path = "boards/several.rs"]
mod several;
