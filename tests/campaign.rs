//! Whole campaigns through the real binary, agent and processes: what runs, what doesn't, and what is left behind.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "campaign/kit.rs"]
mod kit;

#[path = "campaign/awake.rs"]
mod awake;
#[path = "campaign/axes.rs"]
mod axes;
#[path = "campaign/builtin.rs"]
mod builtin;
#[path = "campaign/claims.rs"]
mod claims;
#[path = "campaign/conditions.rs"]
mod conditions;
#[path = "campaign/copies.rs"]
mod copies;
#[path = "campaign/dominance.rs"]
mod dominance;
#[path = "campaign/failures.rs"]
mod failures;
#[path = "campaign/fleet.rs"]
mod fleet;
#[path = "campaign/guidance.rs"]
mod guidance;
#[path = "campaign/headers.rs"]
mod headers;
#[path = "campaign/identity.rs"]
mod identity;
#[path = "campaign/language.rs"]
mod language;
#[path = "campaign/options.rs"]
mod options;
#[path = "campaign/reading.rs"]
mod reading;
#[path = "campaign/registry.rs"]
mod registry;
#[path = "campaign/rereading.rs"]
mod rereading;
#[path = "campaign/resume.rs"]
mod resume;
#[path = "campaign/views.rs"]
mod views;
#[path = "campaign/workload.rs"]
mod workload;
