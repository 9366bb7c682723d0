//! What a workload may do, and that nothing of it is left when the next one starts. Each as root and as an ordinary user.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "containment/agent.rs"]
mod agent;
#[path = "containment/conditions.rs"]
mod conditions;
#[path = "containment/endings.rs"]
mod endings;
#[path = "containment/memory.rs"]
mod memory;
#[path = "containment/stuck.rs"]
mod stuck;
#[path = "containment/ward.rs"]
mod ward;
