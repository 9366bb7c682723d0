//! Files of a results directory, opened for reading. Takes paths, gives bytes; must not know what is in them.
//!
//! Whoever gave the directory away may have put anything there: no link is followed, nothing but a regular file is waited for, and none is
//! read without end.

use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// No file of a results directory is larger, bytes: the plan of a million points is smaller, and samples of a week at 10 Hz far.
pub const MOST_BYTES: u64 = 1 << 30;

/// Open a regular file that is no link, as these options say.
///
/// # Errors
/// What the system says, or what the file is instead.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    // Non-blocking: a FIFO would be waited for, and some devices act on being opened.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path).map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => io::Error::other("it is a symbolic link, which is not followed"),
        Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => no_regular_file(),
        _ => error,
    })?;
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(no_regular_file()),
    }
}

fn no_regular_file() -> io::Error {
    io::Error::other("it is no regular file")
}

/// The whole content.
///
/// # Errors
/// Those of [`open`], or a file larger than [`MOST_BYTES`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    content(&open(path, File::options().read(true))?)
}

/// What of a file is still to be read.
///
/// # Errors
/// More than [`MOST_BYTES`], or what the system says.
pub fn content(file: &File) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {} MiB", MOST_BYTES >> 20));
    let length = file.metadata()?.len();
    if length > MOST_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES { Err(too_large()) } else { Ok(bytes) }
}

/// Is there something of that name, be it a link that leads nowhere?
#[must_use]
pub fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_regular_file_of_bounded_size_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| dir.path().join(name);
        fs::write(place("file"), "x").unwrap();
        symlink(place("file"), place("link")).unwrap();
        symlink("/dev/zero", place("zero")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, place("fifo"), rustix::fs::Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
        File::create(place("large")).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(read(&place("file")).unwrap(), b"x");
        let told = |name| read(&place(name)).unwrap_err().to_string();
        for (name, why) in [
            ("link", "symbolic link"),
            ("zero", "symbolic link"),
            ("fifo", "no regular file"),
            ("socket", "no regular file"),
            (".", "directory"),
            ("large", "more than 1024 MiB"),
        ] {
            assert!(told(name).contains(why), "{name}: {}", told(name));
        }
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().to_string(), "it is no regular file");
    }
}
