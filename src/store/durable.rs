//! Writing files so that after any interruption the old or the new content is there, never a third thing.

use super::{StoreError, io_error};
use rustix::fs::{RenameFlags, renameat_with};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What happens to a file of that name that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Replace,
    /// It is an error; nothing is overwritten.
    Keep,
}

/// Temporary → fsync → rename → fsync of the directory.
///
/// # Errors
/// [`StoreError::Io`]; the temporary is removed where that is still possible.
pub fn write(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), StoreError> {
    let dir = parent(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    let result = (|| {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        rename(&temporary, path, existing)
    })();
    result.map_err(|e| {
        let _ = fs::remove_file(&temporary);
        io_error("write", path)(e)
    })?;
    sync_dir(dir)
}

/// Rename on one file system; with [`Existing::Keep`] a file of the new name is an error.
///
/// # Errors
/// What the system says.
pub fn rename(from: &Path, to: &Path, existing: Existing) -> std::io::Result<()> {
    if existing == Existing::Replace {
        return fs::rename(from, to);
    }
    match renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, RenameFlags::NOREPLACE) {
        // A file system without that flag: a hard link refuses an existing name as well.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::hard_link(from, to).and_then(|()| fs::remove_file(from)),
        other => Ok(other?),
    }
}

/// Make a directory and its parents, durably.
///
/// # Errors
/// [`StoreError::Io`].
pub fn create_dir(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    create_dir(above)?;
    match fs::create_dir(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(io_error("make", path)(e)),
        _ => {}
    }
    sync_dir(above)
}

/// fsync a directory, so that names in it survive a power failure.
///
/// # Errors
/// [`StoreError::Io`].
pub fn sync_dir(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io_error("sync", path))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Remove a directory and its parents below `top` as long as they are empty.
pub fn remove_empty_dirs(path: &Path, top: &Path) {
    let mut dir: PathBuf = path.to_owned();
    while dir != top && dir.starts_with(top) && fs::remove_dir(&dir).is_ok() {
        dir.pop();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_file_is_not_overwritten_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        write(&path, b"old", Existing::Keep).unwrap();
        assert!(write(&path, b"new", Existing::Keep).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, b"new", Existing::Replace).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary is left");
    }
}
