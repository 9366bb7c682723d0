//! Writing a record: sidecars first, then the record by one rename; what it replaces is moved, never overwritten.

use super::durable::{self, Existing};
use super::index::{self, Entry, SUPERSEDED};
use super::record::Record;
use super::{StoreError, io_error, seal, sidecar};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a record belongs, relative to the results directory.
#[must_use]
pub fn place(record: &Record) -> PathBuf {
    let ids = &record.ids;
    let point = format!("{}-{}", ids.point.slug, &ids.point_identity[..8]);
    Path::new(&ids.point.device).join(point).join(format!("{}-r{}.json", ids.kind.name(), ids.repetition))
}

/// Write a record durably; its index entry. A record of the same run that is there already is left as it is.
///
/// # Errors
/// [`StoreError::Io`]: then neither the old record nor the run's result on the device is lost.
pub fn write(results: &Path, mut record: Record) -> Result<Entry, StoreError> {
    let place = place(&record);
    let path = results.join(&place);
    let dir = path.parent().unwrap_or(results).to_owned();
    durable::create_dir(&dir)?;
    let stem = place.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (name, bytes) in sidecar::take_out(&mut record, &stem) {
        durable::write(&dir.join(name), &bytes, Existing::Replace)?;
    }
    if move_aside(results, &path, &record.ids.run_id)? {
        // Moving the last record out of it has removed the directory.
        durable::create_dir(&dir)?;
        durable::write(&path, &seal::seal(&record), Existing::Keep)?;
    }
    let bytes = fs::read(&path).map_err(io_error("read", &path))?;
    let meta = fs::metadata(&path).map_err(io_error("read", &path))?;
    Ok(index::entry(&record, place.display().to_string(), &meta, &bytes))
}

/// Make room for the record of `run_id`; false if it is there already.
fn move_aside(results: &Path, path: &Path, run_id: &str) -> Result<bool, StoreError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(io_error("read", path)(e)),
    };
    match seal::open(&bytes) {
        Ok(old) if old.ids.run_id == run_id => return Ok(false),
        Ok(old) if old.answers() => supersede(results, path, &old)?,
        Ok(old) => {
            // Its own number, or the next one that no file has: a name is never a reason to lose a result.
            let name = (old.ids.attempt..).map(|k| path.with_extension(format!("attempt{k}.json"))).find(|name| !name.exists());
            durable::rename(path, &name.unwrap_or_default(), Existing::Keep).map_err(io_error("rename", path))?;
        }
        Err(_) => {
            let dir = results.join(SUPERSEDED);
            durable::create_dir(&dir)?;
            let name = dir.join(format!("damaged.{}.json", &seal::sha256_hex(&bytes)[..16]));
            durable::rename(path, &name, Existing::Replace).map_err(io_error("rename", path))?;
        }
    }
    Ok(true)
}

/// Move a record that no longer answers its job to `superseded/<run_id>.json`, its sidecars with it.
///
/// # Errors
/// [`StoreError::Io`].
pub fn supersede(results: &Path, path: &Path, record: &Record) -> Result<(), StoreError> {
    let to = results.join(SUPERSEDED);
    durable::create_dir(&to)?;
    let from = path.parent().unwrap_or(results);
    for sidecar in sidecar::of(record) {
        // A name that isn't bare, or a missing file, is for `verify` to report; the record moves all the same.
        if sidecar::read(from, sidecar).is_ok() {
            let old = from.join(&sidecar.name);
            durable::rename(&old, &to.join(&sidecar.name), Existing::Replace).map_err(io_error("move", &old))?;
        }
    }
    let new = to.join(format!("{}.json", record.ids.run_id));
    durable::rename(path, &new, Existing::Replace).map_err(io_error("move", path))?;
    durable::sync_dir(&to)?;
    durable::sync_dir(from)?;
    durable::remove_empty_dirs(from, results);
    Ok(())
}
