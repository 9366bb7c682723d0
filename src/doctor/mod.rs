//! The doctor: takes what a campaign needs and what its devices say of themselves, gives findings, each with what would mend it.
//!
//! Pure: no IO. Must not know how a device is reached, nor how anything is looked at there.

mod checks;
mod device;
mod needs;

pub use checks::{Check, CheckEntry};
pub use device::{Device, Horizon, judge};
pub use needs::needs;

use crate::size::size;
use serde::Serialize;

/// Least space for what a run leaves, bytes: 8 MiB are set aside for its result before it starts, and its scratch comes on top.
pub const RUN_BYTES: u64 = 16 << 20;
/// Less than this is a night that ends early, bytes: some hundred results with their samples.
pub const NIGHT_BYTES: u64 = 256 << 20;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    /// The night can begin, and may be disturbed.
    Warning,
    /// Runs would fail, or be left out.
    Problem,
    /// It can't be told.
    Unknown,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    #[serde(serialize_with = "name")]
    pub check: Check,
    pub outcome: Outcome,
    /// For people; holds text from elsewhere.
    pub what: String,
    /// Something that can be pasted, or the one thing to do.
    pub remedy: Option<String>,
}

impl Finding {
    #[must_use]
    pub fn new(check: Check, outcome: Outcome, what: impl Into<String>) -> Finding {
        Finding { check, outcome, what: what.into(), remedy: None }
    }

    #[must_use]
    pub fn mended_by(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }
}

fn name<S: serde::Serializer>(check: &Check, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(check.entry().name)
}

/// Space at a place, judged for a night's results.
#[must_use]
pub fn space(what: &str, path: &str, free_bytes: Option<u64>, free_files: Option<u64>) -> Finding {
    /// A run makes about ten files, most of them for its own time only.
    const RUN_FILES: u64 = 64;
    let at = format!("{what} {path}");
    let Some(bytes) = free_bytes else {
        return Finding::new(Check::Disk, Outcome::Unknown, format!("{at}: its file system doesn't say what is free"));
    };
    let free = format!("{at}: {} free", size(bytes));
    let clean = format!("df -h {0}   # make room there", crate::shell::word(path));
    match free_files {
        _ if bytes < RUN_BYTES => Finding::new(Check::Disk, Outcome::Problem, format!("{free}, a run needs {}", size(RUN_BYTES))).mended_by(clean),
        Some(files) if files < RUN_FILES => {
            Finding::new(Check::Disk, Outcome::Problem, format!("{at}: room for {files} more files")).mended_by(clean)
        }
        _ if bytes < NIGHT_BYTES => {
            Finding::new(Check::Disk, Outcome::Warning, format!("{free}, a night may need {}", size(NIGHT_BYTES))).mended_by(clean)
        }
        _ => Finding::new(Check::Disk, Outcome::Ok, free),
    }
}

#[cfg(test)]
mod tests;
