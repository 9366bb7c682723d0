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

/// End of a temporary's name, `.NAME.PID.tmp`.
const TEMPORARY: &str = ".tmp";

/// Temporary → fsync → rename → fsync of the directory.
///
/// # Errors
/// [`StoreError::Io`]; the temporary is removed where that is still possible.
pub fn write(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), StoreError> {
    let dir = parent(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}{TEMPORARY}", std::process::id()));
    let result = (|| {
        // Left by a process of our id that was killed, or put there for us to follow: not written through either way.
        let _ = fs::remove_file(&temporary);
        let mut file = File::create_new(&temporary)?;
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

/// Remove what writers left that were killed, everywhere below a directory that nobody else writes into. Links are not followed; what
/// can't be removed stays.
pub fn remove_temporaries(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_temporaries(&entry.path()),
            Ok(kind) if kind.is_file() && is_temporary(&name) => _ = fs::remove_file(entry.path()),
            _ => {}
        }
    }
}

fn is_temporary(name: &str) -> bool {
    let pid = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(TEMPORARY)?.rsplit_once('.'));
    pid.is_some_and(|(name, pid)| !name.is_empty() && !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()))
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

/// [`create_dir`] for a directory below `top`, on a way without links: what belongs into `top` is not written elsewhere.
///
/// # Errors
/// [`StoreError::Io`]; one that names the link.
pub fn create_dir_below(top: &Path, path: &Path) -> Result<(), StoreError> {
    let below = path.ancestors().take_while(|dir| *dir != top);
    if let Some(link) = below.into_iter().find(|dir| dir.is_symlink()) {
        return Err(io_error("write into", link)(std::io::Error::other("it is a symbolic link, which is not followed")));
    }
    create_dir(path)
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
    fn nothing_is_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (top, elsewhere, victim) = (dir.path().join("top"), dir.path().join("elsewhere"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        [&top, &elsewhere].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        std::os::unix::fs::symlink(&victim, top.join(format!(".r.json.{}.tmp", std::process::id()))).unwrap();
        write(&top.join("r.json"), b"new", Existing::Keep).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");

        std::os::unix::fs::symlink(&elsewhere, top.join("link")).unwrap();
        let error = create_dir_below(&top, &top.join("link/a")).unwrap_err().to_string();
        assert!(error.contains("top/link: it is a symbolic link"), "{error}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        // The way to the directory itself may have links.
        std::os::unix::fs::symlink(&top, dir.path().join("results")).unwrap();
        create_dir_below(&dir.path().join("results"), &dir.path().join("results/a/b")).unwrap();
        assert!(top.join("a/b").is_dir());
    }

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

    #[test]
    fn temporaries_of_the_dead_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("here/point");
        fs::create_dir_all(&below).unwrap();
        let others = ["r.json", ".tmp", "..7.tmp", ".r.json.tmp", ".r.json.x7.tmp", "r.json.7.tmp", ".isotherm-id"];
        for name in others.into_iter().chain([".r.json.4711.tmp"]) {
            fs::write(below.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(&below, dir.path().join("link")).unwrap();
        remove_temporaries(dir.path());
        let mut left: Vec<String> = fs::read_dir(&below).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
        left.sort();
        let mut expected = others.map(str::to_owned);
        expected.sort();
        assert_eq!(left, expected);
    }
}
