//! Resource groups across campaigns: a file for each, locked as long as a device of it has its turn. The lock dies with its process.

use crate::store::file;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

/// Of a group, while this lives.
pub(super) struct GroupLock(#[expect(dead_code, reason = "closing it gives the lock back")] File);

/// Take a group for a campaign; or who has it, in words.
///
/// # Errors
/// The file can't be made or locked.
pub(super) fn take(group: &str, campaign: &str, controller: &str) -> io::Result<Result<GroupLock, String>> {
    let dir = dir().ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is an absolute path"))?;
    fs::create_dir_all(&dir)?;
    let mut file = file::open(&dir.join(group), File::options().read(true).write(true).create(true).truncate(false))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            file.take(4096).read_to_string(&mut holder)?;
            return Ok(Err(holder.trim().to_owned()));
        }
        Err(e) => return Err(e.into()),
    }
    file.rewind()?;
    file.set_len(0)?;
    writeln!(file, "campaign `{campaign}` ({controller})")?;
    Ok(Ok(GroupLock(file)))
}

fn dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("isotherm/groups"))
}
