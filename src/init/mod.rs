//! A first campaign: takes what a probe found on a device, gives the text of a campaign file and an account of what went into it.
//!
//! Must not know how a campaign is understood (it is checked by whoever writes it), nor how a device is reached.

mod compose;

pub use compose::{Campaign, Device, compose};

/// Most ONNX models in a first campaign, and most that are tried for it.
pub const MOST_ONNX: usize = 4;
pub const MOST_TRIED: usize = 8;
/// Most GGUF models: they are large, and a first run shall end soon.
pub const MOST_GGUF: usize = 2;
