//! Results on disk: takes records, gives sealed files, index, resume scan, journal; must not know statistics.

pub mod durable;
pub mod energy;
pub mod file;
pub mod formats;
pub mod index;
pub mod issue;
pub mod journal;
pub mod load;
pub mod lock;
pub mod outcome;
pub mod plan_file;
mod provenance;
mod raw;
pub mod record;
pub mod results;
pub mod rewrite;
pub mod seal;
pub mod settle;
pub mod sidecar;
pub mod write;

use isotherm_wire::format::Unread;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why results could not be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("failed to {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} is in use: {holder}")]
    Locked { path: PathBuf, holder: String },
    #[error("{path} belongs to the campaign file {owner}, not to {claimant}")]
    OtherCampaign { path: PathBuf, owner: String, claimant: String },
    #[error("{path} is not a results directory: it has no .isotherm-id")]
    NotResults { path: PathBuf },
    #[error("{path} is a public copy: nothing can be run into it")]
    PublicCopy { path: PathBuf },
    #[error("{path} was deleted, moved or replaced while it was written to")]
    Gone { path: PathBuf },
    #[error("{path} was written by a newer isotherm (version {found}, this one reads up to {reads})")]
    Newer { path: PathBuf, found: u64, reads: u32 },
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
}

impl StoreError {
    /// What is wrong with a file, without its name.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            StoreError::Io { source, .. } => source.to_string(),
            StoreError::Newer { found, reads, .. } => Unread::Newer { found: *found, reads: *reads }.to_string(),
            StoreError::Damaged { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }

    /// An action for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            StoreError::Locked { .. } => Some("wait until it has ended; `isotherm status` can be used meanwhile".into()),
            StoreError::OtherCampaign { path, owner, .. } => Some(format!(
                "give this campaign another name (`campaign:`), another place (`--results DIR`), or, if {owner} was renamed to it, put the new name into {}",
                path.join(results::ID_FILE).display()
            )),
            StoreError::PublicCopy { .. } => Some("name another place with `--results DIR`, or give the campaign another name (`campaign:`)".into()),
            StoreError::NotResults { path } => Some(results::nearby(path)),
            StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Some("free space there; nothing is lost, run again to go on".into())
            }
            StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Some("make it readable and writable for this user, or name another place with `--results DIR`".into())
            }
            StoreError::Io { source, .. } if matches!(source.kind(), std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists) => {
                Some("name a directory with `--results DIR`".into())
            }
            StoreError::Gone { .. } => Some(
                "put it back and run again to go on; without it, `isotherm collect --into DIR` fetches what waits on a device, and `run` measures the rest".into(),
            ),
            StoreError::Newer { .. } => Some("use a newer isotherm here, or name another place with `--results DIR`; nothing was changed".into()),
            StoreError::Damaged { path, .. } => Some(format!("put back a copy of {}, or move the directory away to begin anew", path.display())),
            StoreError::Io { .. } => None,
        }
    }
}

/// Adds what and where to an IO error.
pub(crate) fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> StoreError + 'a {
    move |source| StoreError::Io { what, path: path.to_owned(), source }
}

/// A file of a results directory that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Broken {
    /// Relative to the results directory.
    pub path: String,
    /// Torn, edited, of a newer version …
    pub why: String,
}
