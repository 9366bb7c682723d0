//! The probe as people read it: takes what a device found by trying, gives rows with values in words, causes and remedies.
//!
//! Pure: no IO. Must not know how a device is reached, nor how anything is tried there.

mod machine;
mod remedy;
mod rows;
mod values;

pub use machine::machine_line;
pub use remedy::remedy;
pub use rows::{Row, Section, sections};
pub use values::throttle_words;
