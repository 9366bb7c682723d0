//! Settling: wait, with evidence, until the device is as quiet as it was at first contact.
//!
//! Takes a rule, readings and the reference of a results directory, gives a verdict with all that was looked at; must not know what is
//! measured afterwards, or what a time-out means for it.
//!
//! `core` decides on numbers and times alone, `eyes` gets them from the machine, `reference` is what outlives both, `usage` which GPUs are
//! looked at.

mod core;
mod eyes;
mod reference;
mod usage;

pub use self::eyes::{Session, Wait, wait};
pub use self::reference::Kept;
