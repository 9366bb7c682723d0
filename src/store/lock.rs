//! Files that one process at a time has. Takes paths, gives the file or who has it, in that one's words; must not know what it stands for.
//!
//! A lock dies with its process.

use super::file;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;

/// Take a file, without waiting; made if it isn't there. Its text is still that of who had it last.
///
/// `Err` = what it says of who has it now; may be empty, for an instant.
///
/// # Errors
/// What the system says.
pub fn take(path: &Path) -> io::Result<Result<File, String>> {
    let file = file::open(path, File::options().read(true).write(true).create(true).truncate(false))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Ok(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Err(text(&file)?)),
        Err(e) => Err(e.into()),
    }
}

/// What is still to be read of it.
///
/// # Errors
/// What the system says.
pub fn text(file: &File) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&file::content(file)?).trim().to_owned())
}

/// Say who has it now.
///
/// # Errors
/// What the system says.
pub fn say(mut file: &File, who: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{who}")
}
