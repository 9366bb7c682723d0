//! Model files that are looked for on a device: for a first campaign of it.

use serde::{Deserialize, Serialize};

/// Where to look for model files, and how many of them to try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// In the order in which they are looked at.
    pub places: Vec<Place>,
    /// So many ONNX models, the smallest, are tried by one inference.
    pub most_tried: usize,
}

/// A directory, and how many more below each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Absolute, or below `~`.
    pub dir: String,
    pub depth: usize,
    /// Somebody named it: that it can't be looked into is worth a word.
    pub named: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Onnx,
    Gguf,
}

/// A model file, links resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFile {
    pub format: Format,
    pub path: String,
    pub bytes: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The smallest first: a first campaign shall end soon.
    pub models: Vec<ModelFile>,
    /// Files, and directories that were named, that can't be used, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Not everything was looked at.
    pub cut_short: bool,
}

/// Of one format, the first few; and how many are left.
#[must_use]
pub fn first_of(models: &[ModelFile], format: Format, most: usize) -> (Vec<&ModelFile>, usize) {
    let all: Vec<&ModelFile> = models.iter().filter(|model| model.format == format).collect();
    let left = all.len().saturating_sub(most);
    (all.into_iter().take(most).collect(), left)
}
