//! isotherm: a declarative campaign orchestrator for on-device ML inference benchmarks.

pub mod config;
pub mod store;
