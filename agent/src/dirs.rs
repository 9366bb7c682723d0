//! Where the agent keeps its state on a device: spool, socket, journal. Durable, private, one directory per machine.

use crate::{inspect, sys};
use isotherm_wire::session::Failure;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Directories of one machine's keeper.
#[derive(Debug, Clone)]
pub struct StateDir {
    /// As configured or found, before the machine's own directory; given to the keeper by `serve`.
    pub root: PathBuf,
    /// `<root>/<machine_key>`.
    pub path: PathBuf,
}

impl StateDir {
    pub fn spool(&self) -> PathBuf {
        self.path.join("spool")
    }

    pub fn scratch(&self) -> PathBuf {
        self.path.join("scratch")
    }

    /// Hashes of files by path and stat.
    pub fn hash_cache(&self) -> PathBuf {
        self.path.join("hashes.json")
    }
}

/// Find or make the state directory: the configured one, or the first usable of the standard places.
///
/// # Errors
/// [`Failure::StateDirectory`] naming the place and what is wrong with it.
pub fn state_dir(configured: Option<&str>) -> Result<StateDir, Failure> {
    if let Some(home) = home().filter(|home| home.to_str().is_none()) {
        // A workload and its record are told of it, as text.
        let hint = "start isotherm with HOME set to a directory whose path is UTF-8 text".into();
        return Err(Failure::StateDirectory { path: home.display().to_string(), reason: "the path in HOME is not UTF-8 text".into(), hint });
    }
    let mut refusals = Vec::new();
    for root in candidates(configured) {
        let path = root.join(inspect::machine_key());
        match usable(&root).and_then(|()| private_dir(&path)).and_then(|()| private_dir(&path.join("spool"))) {
            Ok(()) => return Ok(StateDir { root, path }),
            Err(reason) => refusals.push((root, reason)),
        }
    }
    let (path, reason) = refusals.swap_remove(0);
    let others: Vec<String> = refusals.iter().map(|(p, r)| format!("{}: {r}", p.display())).collect();
    let hint = if others.is_empty() {
        "set `state_dir` of the device to a directory on a local disk".to_owned()
    } else {
        format!("set `state_dir` of the device to a directory on a local disk (also tried {})", others.join("; "))
    };
    Err(Failure::StateDirectory { path: path.display().to_string(), reason, hint })
}

/// Where the state directory is or would be made, by [`state_dir`]'s rules; with it why it can't be there. Nothing is made.
pub fn look(configured: Option<&str>) -> (StateDir, Option<String>) {
    let look = |root: PathBuf| {
        let path = root.join(inspect::machine_key());
        let fault = could_be_made(&root).err();
        (StateDir { root, path }, fault)
    };
    let mut places: Vec<_> = candidates(configured).into_iter().map(look).collect();
    let chosen = places.iter().position(|(_, fault)| fault.is_none()).unwrap_or(0);
    places.swap_remove(chosen)
}

/// Where it may be, best first.
pub fn candidates(configured: Option<&str>) -> Vec<PathBuf> {
    configured.map_or_else(standard_places, |dir| vec![expand_home(dir)])
}

fn standard_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(dir) = std::env::var_os("XDG_STATE_HOME").filter(|d| Path::new(d).is_absolute()) {
        places.push(Path::new(&dir).join("isotherm"));
    }
    if let Some(home) = home() {
        places.push(home.join(".local/state/isotherm"));
    }
    places.push(PathBuf::from(format!("/var/tmp/isotherm-{}", sys::uid())));
    places
}

/// Home directory of the user the agent runs as.
pub fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute())
}

/// `~` and `~/…` of this device; anything else as it is.
pub fn expand_home(path: &str) -> PathBuf {
    match (path.strip_prefix('~'), home()) {
        (Some(""), Some(home)) => home,
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => PathBuf::from(path),
    }
}

fn usable(root: &Path) -> Result<(), String> {
    could_be(root)?;
    private_dir(root)?;
    durable(root)
}

/// First where it would be: nothing is made on a file system that is refused.
fn could_be(root: &Path) -> Result<(), String> {
    if root.to_str().is_none() {
        return Err("its path is not UTF-8 text".into());
    }
    nearest(root).map_or(Ok(()), durable)
}

/// What making it would meet.
fn could_be_made(root: &Path) -> Result<(), String> {
    could_be(root)?;
    let Some(there) = nearest(root) else { return Ok(()) };
    if there == root {
        is_private(root)?;
    }
    sys::may_write(there).map_err(|e| format!("can't be written in: {e}"))
}

/// The directory itself, or the first above it that is there.
pub fn nearest(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| dir.exists())
}

fn durable(root: &Path) -> Result<(), String> {
    let kind = sys::filesystem_type(root).map_err(|e| e.to_string())?;
    // Magic numbers of statfs(2).
    let name = match kind {
        0x0102_1994 => "tmpfs: results would vanish at logout or power loss",
        0x8584_58f6 => "ramfs: results would vanish at power loss",
        0x6969 => "a network file system (NFS): locks and renames aren't durable there",
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "a network file system (SMB): locks and renames aren't durable there",
        _ => return Ok(()),
    };
    Err(format!("is on {name}"))
}

/// Make a directory with mode 0700 and its parents, or check that the one there is ours alone.
pub fn private_dir(path: &Path) -> Result<(), String> {
    if let Some(parent) = path.parent().filter(|p| !p.exists()) {
        fs::create_dir_all(parent).map_err(|e| format!("can't make {}: {e}", parent.display()))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(format!("can't be made: {e}")),
        _ => {}
    }
    is_private(path)
}

fn is_private(path: &Path) -> Result<(), String> {
    let meta = fs::symlink_metadata(path).map_err(|e| e.to_string())?;
    if meta.file_type().is_symlink() {
        return Err("is a symbolic link".into());
    }
    if !meta.is_dir() {
        return Err("is not a directory".into());
    }
    if meta.uid() != sys::uid() {
        return Err(format!("belongs to uid {}, not to us ({})", meta.uid(), sys::uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("can be written by others (mode {:03o})", meta.mode() & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_state_directory_is_private_and_not_a_link() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let place = dir.path().join("a/b");
        private_dir(&place).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
        std::os::unix::fs::symlink(&place, dir.path().join("link")).unwrap();
        assert_eq!(private_dir(&dir.path().join("link")).unwrap_err(), "is a symbolic link");
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(private_dir(&dir.path().join("file")).is_err());
    }

    #[test]
    fn a_state_directory_on_tmpfs_is_refused_by_name() {
        if sys::filesystem_type(Path::new("/dev/shm")).ok() != Some(0x0102_1994) {
            eprintln!("skipped: /dev/shm is not a tmpfs here");
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let place = dir.path().join("state");
        let failure = state_dir(Some(place.to_str().unwrap())).unwrap_err();
        assert!(matches!(&failure, Failure::StateDirectory { reason, .. } if reason.contains("tmpfs")), "{failure:?}");
        assert!(!place.exists());
    }
}
