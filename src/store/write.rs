//! Writing a record: sidecars first, then the record by one rename; what it replaces is moved, never overwritten.

use super::durable::{self, Existing};
use super::index::{self, Entry, SUPERSEDED};
use super::record::Record;
use super::seal::{self, SealError};
use super::{StoreError, file, formats, io_error, sidecar};
use crate::digest;
use isotherm_wire::format::Unread;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a record belongs, relative to the results directory.
#[must_use]
pub fn place(record: &Record) -> PathBuf {
    let ids = &record.ids;
    let point = format!("{}-{}", ids.point.slug, &ids.point_identity[..8]);
    Path::new(&ids.point.device).join(point).join(format!("{}-r{}.json", ids.kind.name(), ids.repetition))
}

/// What becomes of a valid record of the same job and identity when a new run of it has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Valid {
    /// It goes on answering its job; the failed one is kept beside it as an attempt.
    Stays,
    /// It is superseded.
    Yields,
}

/// A record that was written.
#[derive(Debug)]
pub struct Written {
    pub entry: Entry,
    /// What it took the place of became an earlier attempt: its path from now on.
    pub earlier: Option<String>,
}

/// Write a record durably, what is large of it into sidecars. A record of the same run that is there already is left as it is.
///
/// # Errors
/// [`StoreError::Io`]: then neither the old record nor the run's result on the device is lost.
pub fn write(results: &Path, record: &mut Record, valid: Valid) -> Result<Written, StoreError> {
    let mut place = place(record);
    if valid == Valid::Stays && !record.answers() && index::read_record(&results.join(&place)).is_ok_and(|old| old.answers()) {
        place = free_attempt(results, &place, record.ids.attempt);
    }
    let path = results.join(&place);
    let dir = path.parent().unwrap_or(results).to_owned();
    durable::create_dir_below(results, &dir)?;
    let stem = place.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (name, bytes) in sidecar::take_out(record, &stem) {
        durable::write(&dir.join(name), &bytes, Existing::Replace)?;
    }
    let aside = move_aside(results, &path, &record.ids.run_id)?;
    let bytes = if aside != Aside::IsTheSame {
        // Moving the last record out of it has removed the directory.
        durable::create_dir_below(results, &dir)?;
        let bytes = seal::seal(record);
        durable::write(&path, &bytes, Existing::Keep)?;
        bytes
    } else {
        file::read(&path).map_err(io_error("read", &path))?
    };
    let meta = fs::metadata(&path).map_err(io_error("read", &path))?;
    let earlier = match aside {
        Aside::Attempt(path) => path.strip_prefix(results).ok().map(|path| path.display().to_string()),
        Aside::Gone | Aside::IsTheSame => None,
    };
    Ok(Written { entry: index::entry(record, place.display().to_string(), &meta, &bytes), earlier })
}

/// The name of an attempt: its own number, or the next one that no file has. A name is never a reason to lose a result.
fn free_attempt(results: &Path, place: &Path, attempt: u32) -> PathBuf {
    let name = |k| place.with_extension(format!("attempt{k}.json"));
    (attempt..).map(name).find(|name| !file::is_taken(&results.join(name))).unwrap_or_else(|| name(attempt))
}

/// What became of a record that was in the way.
#[derive(PartialEq, Eq)]
enum Aside {
    /// It is of the run itself, and stays.
    IsTheSame,
    /// There is none any more.
    Gone,
    /// It is an earlier attempt now, of this path.
    Attempt(PathBuf),
}

/// Make room for the record of `run_id`, unless it is there already.
fn move_aside(results: &Path, path: &Path, run_id: &str) -> Result<Aside, StoreError> {
    let bytes = match file::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Aside::Gone),
        Err(e) => return Err(io_error("read", path)(e)),
    };
    match seal::open(&bytes) {
        Ok(old) if old.ids.run_id == run_id => return Ok(Aside::IsTheSame),
        Ok(old) if old.answers() && old.contaminated_by().is_empty() => supersede(results, path, &old)?,
        Ok(old) => {
            let name = free_attempt(Path::new(""), path, old.ids.attempt);
            durable::rename(path, &name, Existing::Keep).map_err(io_error("rename", path))?;
            return Ok(Aside::Attempt(name));
        }
        Err(SealError::Unread(newer @ Unread::Newer { .. })) => return Err(formats::unread(path)(newer)),
        Err(_) => {
            let dir = results.join(SUPERSEDED);
            durable::create_dir_below(results, &dir)?;
            let name = dir.join(format!("damaged.{}.json", &digest::sha256_hex(&bytes)[..16]));
            durable::rename(path, &name, Existing::Replace).map_err(io_error("rename", path))?;
        }
    }
    Ok(Aside::Gone)
}

/// Move a record that no longer answers its job to `superseded/<run_id>.json`, its sidecars with it.
///
/// # Errors
/// [`StoreError::Io`].
pub fn supersede(results: &Path, path: &Path, record: &Record) -> Result<(), StoreError> {
    let to = results.join(SUPERSEDED);
    durable::create_dir_below(results, &to)?;
    let from = path.parent().unwrap_or(results);
    for sidecar in sidecar::of(record) {
        // A name that isn't bare, or a missing file, is for `verify` to report; the record moves all the same.
        if sidecar::read(from, sidecar).is_ok() {
            let old = from.join(&sidecar.name);
            durable::rename(&old, &to.join(&sidecar.name), Existing::Replace).map_err(io_error("move", &old))?;
            // Shared with an earlier reading of the same run, it is there already: such a rename leaves both names.
            let _ = fs::remove_file(&old);
        }
    }
    let new = to.join(format!("{}.json", record.ids.run_id));
    durable::rename(path, &new, Existing::Replace).map_err(io_error("move", path))?;
    durable::sync_dir(&to)?;
    durable::sync_dir(from)?;
    durable::remove_empty_dirs(from, results);
    Ok(())
}
