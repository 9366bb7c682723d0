//! Resource groups across campaigns: files that are locked as long as a device of a group has its turn. Locks die with their process.
//!
//! A second file keeps the queue: who waits holds it, and everybody passes it before the first one, so that no campaign is overtaken twice.

use crate::store::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Groups that this campaign has, or is the next one for.
#[derive(Debug, Default)]
pub(super) struct Groups {
    held: BTreeMap<String, Held>,
    /// Why a group could not be kept from others; they are not waited for either.
    pub fault: Option<String>,
}

#[derive(Debug, Default)]
struct Held {
    /// The queue's, until the group itself is there.
    next: Option<File>,
    group: Option<File>,
}

impl Groups {
    /// Take a group. `us`: what others are told.
    ///
    /// # Errors
    /// Who has it, in words.
    pub fn take(&mut self, name: &str, us: &str) -> Result<(), String> {
        self.try_take(name, us).unwrap_or_else(|e| {
            self.fault = Some(format!("resource group `{name}` can't be kept from other campaigns: {e}"));
            Ok(())
        })
    }

    fn try_take(&mut self, name: &str, us: &str) -> io::Result<Result<(), String>> {
        let held = self.held.entry(name.to_owned()).or_default();
        if held.group.is_some() {
            return Ok(Ok(()));
        }
        let dir = dir().ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is an absolute path"))?;
        fs::create_dir_all(&dir)?;
        if held.next.is_none() {
            match take(&dir.join(format!("{name}.next")), us)? {
                Ok(file) => held.next = Some(file),
                Err(holder) => return Ok(Err(holder)),
            }
        }
        match take(&dir.join(name), us)? {
            Ok(file) => (held.group, held.next) = (Some(file), None),
            Err(holder) => return Ok(Err(holder)),
        }
        Ok(Ok(()))
    }

    /// Give back all but these.
    pub fn keep_only(&mut self, wanted: &BTreeSet<String>) {
        self.held.retain(|name, _| wanted.contains(name));
    }
}

fn take(path: &Path, us: &str) -> io::Result<Result<File, String>> {
    let taken = lock::take(path)?;
    if let Ok(file) = &taken {
        lock::say(file, us)?;
    }
    Ok(taken)
}

fn dir() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("isotherm/groups"))
}
