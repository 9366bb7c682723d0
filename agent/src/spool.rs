//! The spool: sealed results on the device's disk, kept until a controller says it has stored them.
//!
//! `<spool>/<run_id>/run.json` is there before the run starts; `result-<sha256>.json` appears by one rename when it is complete,
//! so that its name says whether its content is whole. Takes runs and results, gives bytes; must not know what they mean.

use crate::inspect::machine::boot_id;
use crate::{capture, sys};
use isotherm_wire::format::{Format, Unread};
use isotherm_wire::result::RunResult;
use isotherm_wire::session::Start;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Versions of `run.json`.
const RUN: Format = Format::new("spool_version", &[]);

/// Space set aside for a result before its run starts, bytes: both ends of both streams in base64, and samples of hours.
const RESERVED_BYTES: u64 = 8 << 20;
const RESERVE: &str = "reserve";
/// Begins the name of what is being removed; no run id does.
const FORGOTTEN: &str = ".forgotten-";

/// What is known of a run before it has a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunFile {
    pub spool_version: u32,
    pub run_id: String,
    /// sha256 over the run's spec: the same run_id with another task is an error.
    pub task_sha256: String,
    /// Boot that it was started in; `None` = this kernel doesn't say.
    pub boot_id: Option<String>,
    pub manifest: serde_json::Value,
}

impl RunFile {
    /// Has the machine been started anew since the run was? Not where either boot is unknown.
    pub fn is_of_another_boot(&self) -> bool {
        self.boot_id.as_ref().zip(boot_id(Path::new("/"))).is_some_and(|(then, now)| *then != now)
    }
}

/// A run in the spool.
#[derive(Debug, Clone)]
pub struct Entry {
    pub run_id: String,
    /// Where another version noted it, or it is damaged, why it can't be read; it is left alone then.
    pub run: Result<RunFile, Unread>,
    /// Length and sha256 of the sealed result.
    pub sealed: Option<(u64, String)>,
}

pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    pub fn new(dir: PathBuf) -> Spool {
        Spool { dir }
    }

    /// A run's directory; `None` for an id that isn't one.
    fn dir_of(&self, run_id: &str) -> Option<PathBuf> {
        is_run_id(run_id).then(|| self.dir.join(run_id))
    }

    /// Note a run, durably, before it starts, and set space aside for its result: a disk that fills up meanwhile must not cost it, and
    /// on one that is full nothing is measured in vain.
    pub fn begin(&self, start: &Start) -> io::Result<()> {
        let dir = self.dir_of(&start.run_id).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a run id"))?;
        match fs::create_dir(&dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let run = RunFile {
            spool_version: RUN.version(),
            run_id: start.run_id.clone(),
            task_sha256: task_sha256(start),
            boot_id: boot_id(Path::new("/")),
            manifest: start.manifest.clone(),
        };
        let noted = reserve(&dir).and_then(|()| write_durably(&dir, "run.json", &serde_json::to_vec(&run)?));
        if noted.is_err() {
            let _ = fs::remove_dir_all(&dir);
        }
        noted?;
        File::open(&self.dir)?.sync_all()
    }

    /// Seal a result; its length and sha256.
    pub fn seal(&self, result: &RunResult) -> io::Result<(u64, String)> {
        let dir = self.dir_of(&result.run_id).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a run id"))?;
        let bytes = serde_json::to_vec(result)?;
        let sha256 = capture::sha256_hex(&bytes);
        let _ = fs::rename(dir.join(RESERVE), temporary(&dir, &result_name(&sha256)));
        write_durably(&dir, &result_name(&sha256), &bytes)?;
        Ok((bytes.len() as u64, sha256))
    }

    /// Everything in the spool, by run id.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let dirs = fs::read_dir(&self.dir)?.flatten();
        let mut entries: Vec<Entry> = dirs.filter_map(|dir| self.entry(dir.file_name().to_str()?)).collect();
        entries.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        Ok(entries)
    }

    /// Remove what was being forgotten, and what has no `run.json`: it never started. For a keeper that has just come, when nobody is about
    /// to begin a run.
    pub fn drop_unstarted(&self) -> io::Result<()> {
        for dir in fs::read_dir(&self.dir)?.flatten() {
            let is_forgotten = dir.file_name().as_encoded_bytes().starts_with(FORGOTTEN.as_bytes());
            if is_forgotten || !dir.path().join("run.json").exists() {
                let _ = fs::remove_dir_all(dir.path());
            }
        }
        Ok(())
    }

    pub fn entry(&self, run_id: &str) -> Option<Entry> {
        let dir = self.dir_of(run_id)?;
        let run = RUN.read(&fs::read(dir.join("run.json")).ok()?);
        Some(Entry { run_id: run_id.to_owned(), run, sealed: sealed(&dir) })
    }

    /// Bytes of a sealed result from `offset`; fewer than `most` at its end.
    pub fn read(&self, entry: &Entry, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let (_, sha256) = entry.sealed.as_ref().ok_or_else(missing)?;
        let file = File::open(self.dir_of(&entry.run_id).ok_or_else(missing)?.join(result_name(sha256)))?;
        let mut chunk = vec![0; most];
        let mut have = 0;
        while have < most {
            match file.read_at(&mut chunk[have..], offset + have as u64)? {
                0 => break,
                n => have += n,
            }
        }
        chunk.truncate(have);
        Ok(chunk)
    }

    /// Drop a run. By one rename it is gone: without that, one that is interrupted could leave a run without its result.
    pub fn forget(&self, run_id: &str) -> io::Result<()> {
        let dir = self.dir_of(run_id).ok_or(io::ErrorKind::NotFound)?;
        let forgotten = self.dir.join(format!("{FORGOTTEN}{run_id}"));
        fs::rename(dir, &forgotten)?;
        File::open(&self.dir)?.sync_all()?;
        // What is left of it is removed by the next keeper.
        let _ = fs::remove_dir_all(forgotten);
        Ok(())
    }
}

/// Does this look like a UUID? So that no request climbs out of the spool.
pub fn is_run_id(text: &str) -> bool {
    text.len() <= 64 && !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Identifies the task of a run.
pub fn task_sha256(start: &Start) -> String {
    capture::sha256_hex(&serde_json::to_vec(&start.spec).unwrap_or_default())
}

fn result_name(sha256: &str) -> String {
    format!("result-{sha256}.json")
}

fn sealed(dir: &Path) -> Option<(u64, String)> {
    fs::read_dir(dir).ok()?.flatten().find_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let sha256 = name.strip_prefix("result-")?.strip_suffix(".json")?.to_owned();
        Some((file.metadata().ok()?.len(), sha256))
    })
}

fn temporary(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.tmp"))
}

/// Blocks for a result; where a file system can't set any aside, it may do without.
fn reserve(dir: &Path) -> io::Result<()> {
    match sys::allocate(&File::create(dir.join(RESERVE))?, RESERVED_BYTES) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        allocated => allocated,
    }
}

/// Temporary, fsync, rename, fsync of the directory: the file is there whole or not at all. A temporary that is there is written over,
/// in the blocks that it has.
pub fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(dir, name);
    let mut file = File::options().write(true).create(true).truncate(false).open(&temporary)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(name))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn run(id: &str) -> RunFile {
        RunFile { spool_version: 1, run_id: id.into(), task_sha256: "t".into(), boot_id: None, manifest: serde_json::json!({"job": 1}) }
    }

    #[test]
    fn a_torn_result_is_no_result() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().into());
        let own = dir.path().join("0192-aa");
        fs::create_dir(&own).unwrap();
        write_durably(&own, "run.json", &serde_json::to_vec(&run("0192-aa")).unwrap()).unwrap();
        fs::write(own.join(".result-abc.json.tmp"), "{\"half").unwrap();
        assert!(spool.entry("0192-aa").unwrap().sealed.is_none());
        write_durably(&own, &result_name("abc"), b"0123456789").unwrap();
        let entry = spool.entry("0192-aa").unwrap();
        assert_eq!(entry.sealed, Some((10, "abc".into())));
        assert_eq!(spool.read(&entry, 6, 100).unwrap(), b"6789");
        spool.forget("0192-aa").unwrap();
        assert!(spool.entries().unwrap().is_empty());
    }

    #[test]
    fn a_run_that_a_newer_keeper_has_noted_is_there_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().into());
        let own = dir.path().join("0192-aa");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("run.json"), r#"{"spool_version": 2, "id": "0192-aa"}"#).unwrap();
        spool.drop_unstarted().unwrap();
        let [entry] = &spool.entries().unwrap()[..] else { panic!() };
        assert_eq!((entry.run_id.as_str(), entry.run.as_ref().unwrap_err()), ("0192-aa", &Unread::Newer { found: 2, reads: 1 }));
    }

    #[test]
    fn a_run_that_was_being_forgotten_is_gone_whatever_is_left_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().into());
        let left = dir.path().join(format!("{FORGOTTEN}0192-aa"));
        fs::create_dir(&left).unwrap();
        write_durably(&left, "run.json", &serde_json::to_vec(&run("0192-aa")).unwrap()).unwrap();
        assert!(spool.entries().unwrap().is_empty() && spool.entry("0192-aa").is_none());
        spool.drop_unstarted().unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn a_run_id_can_not_climb_out_of_the_spool() {
        let spool = Spool::new("/tmp".into());
        for id in ["..", "../x", "a/b", "", "/etc"] {
            assert!(spool.dir_of(id).is_none(), "{id:?}");
        }
        assert!(spool.dir_of("01932f5e-0000-7000-8000-000000000001").is_some());
    }
}
