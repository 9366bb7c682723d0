//! isotherm: a declarative campaign orchestrator for on-device ML inference benchmarks.

pub mod backend;
pub mod cli;
mod clock;
pub mod config;
pub mod device;
pub mod digest;
pub mod doctor;
pub mod energy;
pub mod export;
pub mod hidden;
pub mod init;
pub mod plan;
pub mod probe;
pub mod reference;
pub mod registry;
pub mod report;
pub mod run;
pub mod schedule;
pub mod shell;
pub mod size;
pub mod stats;
pub mod store;

// So that test support can be shared with the tests outside of the library.
#[cfg(test)]
extern crate self as isotherm;
