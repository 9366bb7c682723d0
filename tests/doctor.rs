//! `isotherm doctor` with the real agent: devices that are fine, and devices on which a night would fail or be disturbed.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "doctor/files.rs"]
mod files;
#[path = "doctor/machine.rs"]
mod machine;
#[path = "doctor/pages.rs"]
mod pages;
#[path = "doctor/system.rs"]
mod system;
