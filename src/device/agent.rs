//! The agent that this controller carries, with its companion, and their installation under content-addressed names.

use crate::digest::sha256_hex;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/embedded_agent.rs"));

/// sha256 (hex) of the embedded agent; `None` if this build carries none.
pub fn embedded_sha256() -> Option<&'static str> {
    static SHA256: OnceLock<Option<String>> = OnceLock::new();
    SHA256.get_or_init(|| EMBEDDED.map(sha256_hex)).as_deref()
}

/// Directories that may hold the agent on this machine, best first.
pub fn bin_dirs(configured: Option<&str>) -> Vec<PathBuf> {
    if let Some(dir) = configured {
        return vec![expand_home(dir)];
    }
    let uid = rustix::process::geteuid().as_raw();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|d| d.is_absolute());
    let cache = cache.or_else(|| Some(home()?.join(".cache")));
    let places = [format!("/var/tmp/isotherm-{uid}"), format!("/dev/shm/isotherm-{uid}")].map(PathBuf::from);
    cache.map(|c| c.join("isotherm")).into_iter().chain(places).collect()
}

fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute())
}

/// `~/…` of this machine; anything else as it is.
pub fn expand_home(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    match (path.strip_prefix("~"), home()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Name of the agent's file, ahead of its hash.
pub const AGENT: &str = "isotherm-agent";
/// And of the companion's.
pub const COMPANION: &str = "isotherm-companion";

/// A program's path in `dir`, installed there if it isn't yet, whole and executable.
///
/// # Errors
/// In words that name the place: not ours, not writable, full.
pub fn install(dir: &Path, name: &str, bytes: &[u8], sha256: &str) -> Result<PathBuf, String> {
    private_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let path = dir.join(format!("{name}-{}", &sha256[..12]));
    // Present means that its content matches: a cut copy has the right name as well.
    if fs::read(&path).is_ok_and(|there| sha256_hex(&there) == sha256) {
        return Ok(path);
    }
    let temporary = dir.join(format!(".{name}-{}-{}", &sha256[..12], std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&temporary);
        format!("{}: {e}", path.display())
    })?;
    Ok(path)
}

/// Make a directory with mode 0700 and its parents, or check that the one there is ours alone.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let meta = fs::symlink_metadata(dir)?;
    let ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if ours { Ok(()) } else { Err(io::Error::other("is a link, or others may write there")) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_cut_copy_is_copied_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("bin");
        let sha256 = sha256_hex(b"agent");
        let path = install(&place, AGENT, b"agent", &sha256).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(install(&place, AGENT, b"agent", &sha256).unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"agent");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(install(dir.path(), AGENT, b"agent", &sha256_hex(b"agent")).unwrap_err().contains("others may write"));
    }
}
