//! The journal: events as they happen, one JSON line each. A help to people, never authority.

use super::formats::{self, JOURNAL};
use super::{StoreError, durable, file, io_error};
use crate::clock;
use isotherm_wire::format::Unread;
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Its name in a results directory.
pub const JOURNAL_FILE: &str = "journal.ndjson";

/// The journal of a results directory, open for appending.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Open it; a torn last line is cut off and kept as `journal.torn.<n>`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(dir: &Path) -> Result<Journal, StoreError> {
        let path = dir.join(JOURNAL_FILE);
        let mut file = file::open(&path, File::options().read(true).write(true).create(true).truncate(false)).map_err(io_error("open", &path))?;
        let bytes = file::content(&file).map_err(io_error("read", &path))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let torn = whole < bytes.len();
        if torn {
            let n = (0..).find(|n| !file::is_taken(&dir.join(format!("journal.torn.{n}")))).unwrap_or(0);
            durable::write(&dir.join(format!("journal.torn.{n}")), &bytes[whole..], durable::Existing::Keep)?;
            file.set_len(whole as u64).map_err(io_error("cut", &path))?;
        }
        file.seek(SeekFrom::End(0)).map_err(io_error("seek in", &path))?;
        let mut journal = Journal { path, file };
        if torn {
            journal.append(&json!({"event": "recovered", "torn_bytes": bytes.len() - whole}))?;
        }
        Ok(journal)
    }

    /// Append an event, durably, with the time of writing.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn append(&mut self, event: &impl Serialize) -> Result<(), StoreError> {
        let at = clock::utc_millis();
        let mut line = json!({"journal_version": JOURNAL.version(), "at": at});
        if let (Value::Object(line), Ok(Value::Object(event))) = (&mut line, serde_json::to_value(event)) {
            line.extend(event);
        }
        self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data()).map_err(io_error("write", &self.path))
    }
}

/// Events of a journal, each in the current version, with the numbers of the lines that are none; a torn last line is not counted.
///
/// # Errors
/// [`StoreError::Io`], but not for a journal that isn't there; `Newer`.
pub fn read(dir: &Path) -> Result<(Vec<Value>, Vec<usize>), StoreError> {
    let path = dir.join(JOURNAL_FILE);
    let text = match file::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        Err(e) => return Err(io_error("read", &path)(e)),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let (mut events, mut bad) = (Vec::new(), Vec::new());
    for (i, line) in whole.lines().enumerate() {
        match JOURNAL.read(line.as_bytes()) {
            Ok(event) => events.push(event),
            Err(newer @ Unread::Newer { .. }) => return Err(formats::unread(&path)(newer)),
            Err(Unread::Shape(_)) => bad.push(i + 1),
        }
    }
    Ok((events, bad))
}

/// A journal from its beginning and on, while another process writes it.
pub struct Follow {
    path: PathBuf,
    file: File,
    /// What was read of a line that isn't whole yet.
    rest: Vec<u8>,
}

impl Follow {
    /// From the first line on.
    ///
    /// # Errors
    /// [`StoreError::Io`], also for a journal that isn't there.
    pub fn open(dir: &Path) -> Result<Follow, StoreError> {
        let path = dir.join(JOURNAL_FILE);
        let file = file::open(&path, File::options().read(true)).map_err(io_error("open", &path))?;
        Ok(Follow { path, file, rest: Vec::new() })
    }

    /// What was written since, each in the current version; lines that are no events are left out.
    ///
    /// # Errors
    /// [`StoreError::Io`]; `Newer`.
    pub fn more(&mut self) -> Result<Vec<Value>, StoreError> {
        // A torn end is cut off by the next controller: what comes is read from where that begins.
        let (at, len) = (self.file.stream_position(), self.file.metadata().map(|meta| meta.len()));
        if let (Ok(at), Ok(len)) = (at, len)
            && len < at
        {
            self.rest.clear();
            self.file.seek(SeekFrom::Start(len)).map_err(io_error("seek in", &self.path))?;
        }
        self.file.read_to_end(&mut self.rest).map_err(io_error("read", &self.path))?;
        let whole = self.rest.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        let mut events = Vec::new();
        for line in lines.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            match JOURNAL.read(line) {
                Ok(event) => events.push(event),
                Err(newer @ Unread::Newer { .. }) => return Err(formats::unread(&self.path)(newer)),
                Err(Unread::Shape(_)) => {}
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs;

    #[test]
    fn a_torn_tail_is_kept_apart_and_the_journal_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        Journal::open(dir.path()).unwrap().append(&json!({"event": "one"})).unwrap();
        File::options().append(true).open(dir.path().join("journal.ndjson")).unwrap().write_all(b"{\"event\": \"tw").unwrap();
        Journal::open(dir.path()).unwrap().append(&json!({"event": "three"})).unwrap();
        let (events, bad) = read(dir.path()).unwrap();
        let names: Vec<&str> = events.iter().map(|e| e["event"].as_str().unwrap()).collect();
        assert_eq!(names, ["one", "recovered", "three"]);
        assert!(bad.is_empty());
        assert_eq!(fs::read(dir.path().join("journal.torn.0")).unwrap(), b"{\"event\": \"tw");
    }

    #[test]
    fn who_follows_hears_every_line_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.append(&json!({"event": "one"})).unwrap();
        let mut follow = Follow::open(dir.path()).unwrap();
        let names = |follow: &mut Follow| follow.more().unwrap().iter().map(|e| e["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&mut follow), ["one"]);
        let mut raw = File::options().append(true).open(dir.path().join(JOURNAL_FILE)).unwrap();
        raw.write_all(b"{\"journal_version\":1,\"event\":\"tw").unwrap();
        assert!(names(&mut follow).is_empty());
        raw.write_all(b"o\"}\n{\"journal_version\":1,\"event\":\"torn").unwrap();
        assert_eq!(names(&mut follow), ["two"]);
        // The next controller cuts it off.
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.append(&json!({"event": "three"})).unwrap();
        assert_eq!(names(&mut follow).last().unwrap(), "three");
    }

    #[test]
    fn a_bad_middle_line_is_named_and_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("journal.ndjson"), "{\"journal_version\":1,\"event\":\"a\"}\nrubbish\n{\"journal_version\":1,\"event\":\"b\"}\n")
            .unwrap();
        let (events, bad) = read(dir.path()).unwrap();
        assert_eq!((events.len(), bad), (2, vec![2]));
    }
}
