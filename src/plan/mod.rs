//! Plans: takes a campaign, device reports and what is stored; gives points, jobs, identities and the difference to what is stored.
//! Must not know transports.

pub mod contaminated;
pub mod diff;
pub mod dominance;
pub mod expand;
pub mod files;
pub mod identity;
pub mod names;
pub mod outlook;
pub mod point;
pub mod power;
mod when;

pub use diff::{JobState, PlannedJob};
pub use expand::{Plan, PlanError};
pub use point::{Point, Work};
