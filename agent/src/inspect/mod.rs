//! What a device says of itself: machine, limits, files by content.
//!
//! Takes roots and names, gives facts as read; must not know what they are compared with.

pub mod cgroup;
pub mod clocking;
pub mod files;
pub mod gguf;
pub mod links;
pub mod machine;
pub mod mapped;
pub mod programs;
pub mod resident;

use crate::{capture, sys};
use std::fs;
use std::path::Path;

/// First 12 hex digits of sha256 over machine-id, board serial or DMI uuid, and host name: keeps boards with a shared home apart.
pub fn machine_key() -> String {
    let read = |path: &str| fs::read_to_string(path).map(|t| t.trim_end_matches(['\0', '\n']).to_owned());
    let id = read("/etc/machine-id").unwrap_or_default();
    let board = read("/sys/firmware/devicetree/base/serial-number").or_else(|_| read("/sys/class/dmi/id/product_uuid")).unwrap_or_default();
    capture::sha256_hex(format!("{id}\n{board}\n{}\n", sys::uname().hostname).as_bytes())[..12].to_owned()
}

/// Text of a file without its trailing newline and NULs; `None` if it isn't there, isn't readable or is empty.
pub fn text(root: &Path, path: &str) -> Option<String> {
    let text = fs::read(root.join(path)).ok()?;
    let text = String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n', ' ']).to_owned();
    (!text.is_empty()).then_some(text)
}
