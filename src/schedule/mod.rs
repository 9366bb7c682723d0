//! Schedules: takes points, and what devices want, do and fail at; gives the order of jobs, whose turn it is, when to try again; must not
//! know records, or how a device is reached. Pure: no IO, no clock; moments are passed in.

mod order;
mod reach;
mod turns;

pub use order::{Slot, order};
pub use reach::{Doom, Reach};
pub use turns::{Group, Turn, Turns};
