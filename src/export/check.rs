//! The last search: every file of a copy as it lies on the disk, its name included, before it may be called one.

use super::ExportError;
use super::secrets::Secrets;
use super::walk;
use crate::store::{io_error, sidecar};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// # Errors
/// `Found`, naming file and field; `Stopped`; a file that can't be read.
pub fn search(top: &Path, secrets: &Secrets, stopped: &dyn Fn() -> bool) -> Result<(), ExportError> {
    below(top, top, secrets, stopped)
}

fn below(top: &Path, dir: &Path, secrets: &Secrets, stopped: &dyn Fn() -> bool) -> Result<(), ExportError> {
    for entry in fs::read_dir(dir).map_err(io_error("read", dir))? {
        let path = entry.map_err(io_error("read", dir))?.path();
        if stopped() {
            return Err(ExportError::Stopped);
        }
        let file = path.strip_prefix(top).unwrap_or(&path).display().to_string();
        let found = |what: &'static str, field: &str| ExportError::Found { what, file: file.clone(), field: field.to_owned() };
        if let Some(what) = secrets.find_in_name(path.file_name().unwrap_or_default().as_encoded_bytes()) {
            return Err(found(what, "its name"));
        }
        if path.is_dir() {
            below(top, &path, secrets, stopped)?;
            continue;
        }
        let mut bytes = fs::read(&path).map_err(io_error("read", &path))?;
        if file.ends_with(".zst") {
            bytes = sidecar::decompress(&bytes).map_err(io_error("decompress", &path))?;
        }
        // Whole documents, or one a line; what is neither is searched as it is.
        let documents: Option<Vec<Value>> = match serde_json::from_slice(&bytes) {
            Ok(document) => Some(vec![document]),
            Err(_) if file.ends_with(".ndjson") => {
                bytes.split(|&b| b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).ok()).collect()
            }
            Err(_) => None,
        };
        let hit = match documents {
            Some(documents) => documents.iter().find_map(|document| walk::find(document, secrets, "")),
            None => secrets.find(&bytes).map(|what| ("its text".to_owned(), what)),
        };
        if let Some((field, what)) = hit {
            return Err(found(what, &field));
        }
    }
    Ok(())
}
