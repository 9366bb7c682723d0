//! The versions of every file of a results directory, and the steps by which older ones are read. Takes bytes of any version, gives
//! what they say in the current one; must not know what is done with it.
//!
//! A step belongs to the version that it leads to and is never changed afterwards; `tests/recorded/formats/` has files of every version.
//! Whoever writes into a directory reads all of it first: one in which a newer isotherm has left something is refused as a whole, because
//! what that says (that a job has its answer, say) can't be kept true by who doesn't understand it.

use super::journal::JOURNAL_FILE;
use super::plan_file::PLAN_FILE;
use super::{StoreError, file, index, io_error};
use isotherm_wire::format::{Format, Unread};
use serde::de::DeserializeOwned;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// A record. A step must leave `ids.identity` as it is: `point_identity` is its hash. The file keeps its bytes, and its seal is that of
/// these bytes, until it is written anew for another reason.
pub const RECORD: Format = Format::new("schema_version", &[]);
/// `.isotherm-id`.
pub const ID: Format = Format::new("id_version", &[]);
/// `plan.json`.
pub const PLAN: Format = Format::new("plan_version", &[]);
/// `devices/<id>.json`.
pub const REPORT: Format = Format::new("report_version", &[]);
/// A line of `journal.ndjson`; each says its own version.
pub const JOURNAL: Format = Format::new("journal_version", &[]);

/// Read a file; `None` if there is none.
///
/// # Errors
/// `Newer` or `Damaged`, naming the file, and [`StoreError::Io`].
pub fn read<T: DeserializeOwned>(format: Format, path: &Path) -> Result<Option<T>, StoreError> {
    match file::read(path) {
        Ok(bytes) => format.read(&bytes).map(Some).map_err(unread(path)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error("read", path)(e)),
    }
}

/// Names the file that was not read.
pub fn unread(path: &Path) -> impl FnOnce(Unread) -> StoreError {
    let path = path.to_owned();
    |unread| match unread {
        Unread::Newer { found, reads } => StoreError::Newer { path, found, reads },
        Unread::Shape(reason) => StoreError::Damaged { path, reason },
    }
}

/// Is there anything beside the records that a newer isotherm has written? What is damaged or missing is another matter. Records are
/// looked at by [`index::scan`].
///
/// # Errors
/// `Newer`, naming the file.
pub fn none_is_newer(dir: &Path) -> Result<(), StoreError> {
    let reports = fs::read_dir(dir.join(index::DEVICES)).into_iter().flatten().flatten().map(|entry| (REPORT, entry.path()));
    for (format, path) in reports.chain([(PLAN, dir.join(PLAN_FILE))]) {
        refuse_newer(format, &path, &file::read(&path).unwrap_or_default())?;
    }
    let path = dir.join(JOURNAL_FILE);
    let journal = file::read(&path).unwrap_or_default();
    journal.split(|&byte| byte == b'\n').try_for_each(|line| refuse_newer(JOURNAL, &path, line))
}

fn refuse_newer(format: Format, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    match format.check(bytes) {
        Err(newer @ Unread::Newer { .. }) => Err(unread(path)(newer)),
        _ => Ok(()),
    }
}
