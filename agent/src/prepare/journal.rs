//! The restore journal: what was borrowed of a device, on its disk before the first write, until it has been given back.
//!
//! Takes kind, subject and the original as read, sets back just that; must not know why it was changed. A path is derived from kind
//! and subject, and a subject that doesn't have the form of one is not touched.

use super::act::Act;
use super::{Stop, cpufreq, swap};
use crate::inspect::machine::boot_id;
use crate::spool;
use isotherm_wire::format::{Format, Unread};
use isotherm_wire::session::GivenBack;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Versions of the file.
const JOURNAL: Format = Format::new("journal_version", &[]);
pub const FILE: &str = "restore-journal.json";

/// What can be borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Subject: path of the area. Original: its priority.
    SwapArea,
    /// Subject: a cpufreq policy. Original: its governor.
    Governor,
    /// Subject: a cpufreq policy. Original: lower and upper limit in kHz, `600000 1500000`.
    FrequencyLimits,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Borrowed {
    pub kind: Kind,
    pub subject: String,
    /// As it was read; never a guess.
    pub original: String,
}

impl fmt::Display for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Borrowed { kind, subject, original } = self;
        match kind {
            Kind::SwapArea => write!(f, "swap area {subject}"),
            Kind::Governor => write!(f, "governor of {subject}: {original}"),
            Kind::FrequencyLimits => write!(f, "frequency limits of {subject}: {original} kHz"),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    journal_version: u32,
    /// After another boot the kernel's own settings are back; `None` = this kernel doesn't say.
    boot_id: Option<String>,
    borrowed: Vec<Borrowed>,
}

/// Why a journal can't be used. It stays where it is, and nothing is borrowed beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalError {
    Unreadable { path: PathBuf, reason: String },
    Damaged { path: PathBuf, reason: String },
    Newer { path: PathBuf, version: u64 },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Unreadable { path, reason } => write!(f, "the restore journal {} can't be read: {reason}", path.display()),
            JournalError::Damaged { path, reason } => {
                write!(f, "the restore journal {} is damaged ({reason}): set back by hand what it names, then remove it", path.display())
            }
            JournalError::Newer { path, version } => write!(
                f,
                "the restore journal {} has version {version}, this agent knows {}: use the isotherm that wrote it",
                path.display(),
                JOURNAL.version()
            ),
        }
    }
}

#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    boot_id: Option<String>,
    borrowed: Vec<Borrowed>,
}

impl Journal {
    /// What an earlier keeper has left in its state directory, or nothing.
    pub fn open(dir: &Path, root: &Path) -> Result<Journal, JournalError> {
        let path = dir.join(FILE);
        let empty = Journal { dir: dir.to_owned(), boot_id: boot_id(root), borrowed: Vec::new() };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(empty),
            Err(e) => return Err(JournalError::Unreadable { path, reason: e.to_string() }),
        };
        match JOURNAL.read(&bytes) {
            Ok(Stored { journal_version: _, boot_id, borrowed }) => Ok(Journal { boot_id, borrowed, ..empty }),
            Err(Unread::Newer { found, .. }) => Err(JournalError::Newer { path, version: found }),
            Err(Unread::Shape(reason)) => Err(JournalError::Damaged { path, reason }),
        }
    }

    pub fn holds(&self, which: impl Fn(&Borrowed) -> bool) -> bool {
        self.borrowed.iter().any(which)
    }

    /// Note what things are like, durably, before the first of them is changed: subjects with their originals. What is borrowed already
    /// keeps its first original.
    pub fn borrow(&mut self, kind: Kind, things: &[(String, String)]) -> io::Result<()> {
        let before = self.borrowed.len();
        for (subject, original) in things {
            if !self.holds(|b| b.kind == kind && b.subject == *subject) {
                self.borrowed.push(Borrowed { kind, subject: subject.clone(), original: original.clone() });
            }
        }
        if self.borrowed.len() == before {
            return Ok(());
        }
        let written = self.write();
        if written.is_err() {
            self.borrowed.truncate(before);
        }
        written
    }

    /// It is as it was.
    pub fn returned(&mut self, kind: Kind, subject: &str) -> io::Result<()> {
        self.borrowed.retain(|b| b.kind != kind || b.subject != subject);
        self.write()
    }

    /// Set back what `which` takes, the last borrowed first. What can't be stays noted, to be tried again; with it what hangs.
    pub fn give_back(&mut self, root: &Path, act: &mut dyn Act, which: impl Fn(&Borrowed) -> bool) -> (GivenBack, Option<String>) {
        // What is read now is not yet what it will leave: an area is on until its swapoff has ended.
        if let Some(what) = act.unfinished() {
            return (GivenBack { restored: Vec::new(), failed: vec![what.clone()] }, Some(what));
        }
        let (mut given_back, mut hangs) = (GivenBack::default(), None);
        let mut left = Vec::new();
        let rebooted = self.boot_id != boot_id(root);
        for borrowed in std::mem::take(&mut self.borrowed).into_iter().rev() {
            if rebooted {
                // The settings are the kernel's own again, and what is on as swap is for those to say who started the system.
                if borrowed.kind == Kind::SwapArea && !swap::is_on(root, &borrowed.subject) {
                    given_back.failed.push(format!("{borrowed}: it was on, and is not since the machine was booted"));
                }
            } else if !which(&borrowed) {
                left.push(borrowed);
            } else {
                match set_back(root, act, &borrowed) {
                    Ok(()) => given_back.restored.push(borrowed.to_string()),
                    Err(why) => {
                        given_back.failed.push(format!("{borrowed}: {}", why.reason()));
                        left.push(borrowed);
                        if let Stop::Hangs(what) = why {
                            hangs = Some(what);
                        }
                    }
                }
            }
        }
        left.reverse();
        self.borrowed = left;
        if rebooted {
            self.boot_id = boot_id(root);
        }
        if let Err(e) = self.write() {
            given_back.failed.push(format!("the restore journal can't be written: {e}"));
        }
        (given_back, hangs)
    }

    fn write(&self) -> io::Result<()> {
        if self.borrowed.is_empty() {
            return match fs::remove_file(self.dir.join(FILE)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(e) => Err(e),
                Ok(()) => fs::File::open(&self.dir)?.sync_all(),
            };
        }
        let stored = Stored { journal_version: JOURNAL.version(), boot_id: self.boot_id.clone(), borrowed: self.borrowed.clone() };
        spool::write_durably(&self.dir, FILE, &serde_json::to_vec(&stored)?)
    }
}

fn set_back(root: &Path, act: &mut dyn Act, borrowed: &Borrowed) -> Result<(), Stop> {
    let Borrowed { kind, subject, original } = borrowed;
    let no_subject = || Stop::Failed(format!("{subject:?} is no name of such a thing"));
    match kind {
        Kind::SwapArea => {
            let area = swap::as_area(root, subject).ok_or_else(no_subject)?;
            let priority: i32 = original.parse().map_err(|_| Stop::Failed(format!("{original:?} is no priority")))?;
            swap::bring_back(root, act, area, priority)
        }
        Kind::Governor => cpufreq::set_governor(root, act, cpufreq::Policy::named(subject).ok_or_else(no_subject)?, original),
        Kind::FrequencyLimits => {
            let limits = cpufreq::Limits::parse(original).ok_or_else(|| Stop::Failed(format!("{original:?} are no limits")))?;
            cpufreq::set_limits(root, act, cpufreq::Policy::named(subject).ok_or_else(no_subject)?, limits)
        }
    }
}
