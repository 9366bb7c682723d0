//! Models that a device keeps by content: what a controller copies there, what is there already.

use crate::inspect::FileFact;
use serde::{Deserialize, Serialize};

/// A file that is wanted there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Of its content, 64 hex digits in lower case.
    pub sha256: String,
    pub bytes: u64,
    /// Name of the file there, without a directory: tools look at its ending.
    pub name: String,
    /// Of a file of a model in several: what names all of them, in the form of a sha256. They lie beside each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
}

/// How much of a wanted file is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Have {
    /// All of it, with the content that was wanted.
    Whole(FileFact),
    /// Its first `offset` bytes. `free_bytes`: that we may still write there.
    Part { offset: u64, free_bytes: u64 },
}

/// A file that is kept there, or what has been copied of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    /// Of its content; of a model in several files what names all of them.
    pub sha256: String,
    /// Of the first of several. `None` = its copy is not complete.
    pub name: Option<String>,
    /// On disk.
    pub bytes: u64,
    /// By the device's clock, when it was asked for last, or written to: seconds since 1970.
    pub last_used_s: u64,
    /// Campaign that asked for it last; `None` = its copy is not complete, or nobody noted it.
    pub campaign: Option<String>,
}
