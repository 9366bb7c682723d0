//! Files of every version of every format: what is out there is read to the same meaning for ever, and what a newer isotherm has written is
//! left alone by name.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;

#[path = "formats/newer.rs"]
mod newer;
#[path = "formats/recorded.rs"]
mod recorded;

use std::fs;
use std::path::Path;

/// A directory with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
