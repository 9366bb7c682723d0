//! Quarantine: takes processes that could not be ended, gives a reason as long as one of them is there, to this keeper and to the next
//! ones of this boot; must not know how anything is ended.

use crate::inspect::machine::boot_id;
use crate::{prepare, processes, spool};
use isotherm_wire::format::Format;
use isotherm_wire::result::Survivor;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Versions of the file.
const QUARANTINE: Format = Format::new("quarantine_version", &[]);
const FILE: &str = "quarantine.json";

/// What nothing may run beside.
#[derive(Debug, Default)]
pub struct Quarantine {
    dir: PathBuf,
    held: Option<Held>,
    /// An earlier keeper noted something that this one can't read: why.
    unread: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    quarantine_version: u32,
    /// After another boot none of them is there; `None` = this kernel doesn't say.
    boot_id: Option<String>,
    run_id: String,
    processes: Vec<Stuck>,
}

/// One process, told from a later one with its pid by the time it was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stuck {
    pid: i32,
    /// Clock ticks after boot.
    started: u64,
    state: String,
    wchan: Option<String>,
}

impl Quarantine {
    /// What an earlier keeper has noted in its state directory.
    pub fn open(dir: &Path) -> Quarantine {
        let (held, unread) = match fs::read(dir.join(FILE)).map(|bytes| QUARANTINE.read(&bytes)) {
            Ok(Ok(held)) => (Some(held), None),
            Ok(Err(why)) => (None, Some(why.to_string())),
            Err(_) => (None, None),
        };
        Quarantine { dir: dir.to_owned(), held, unread }
    }

    /// These processes of a run could not be ended. Noted on disk where that can be written; this keeper knows it anyway.
    pub fn hold(&mut self, run_id: &str, survivors: &[Survivor]) {
        let stuck = |survivor: &Survivor| {
            let started = processes::start_ticks(survivor.pid)?;
            Some(Stuck { pid: survivor.pid, started, state: survivor.state.clone(), wchan: survivor.wchan.clone() })
        };
        let stuck: Vec<Stuck> = survivors.iter().filter_map(stuck).collect();
        let held = Held { quarantine_version: QUARANTINE.version(), boot_id: boot_id(Path::new("/")), run_id: run_id.to_owned(), processes: stuck };
        if self.unread.is_none()
            && let Ok(bytes) = serde_json::to_vec(&held)
        {
            let _ = spool::write_durably(&self.dir, FILE, &bytes);
        }
        self.held = Some(held);
    }

    /// Why nothing may run here; `None` once all of them are gone, and no step of preparation is still at it.
    pub fn reason(&mut self) -> Option<String> {
        let reason = self.look();
        if reason.is_none() && self.held.take().is_some() {
            let _ = fs::remove_file(self.dir.join(FILE));
        }
        reason
    }

    /// The same, leaving what is noted as it is.
    pub fn look(&mut self) -> Option<String> {
        if let Some(what) = prepare::act::unfinished(&self.dir) {
            return Some(what);
        }
        if let Some(why) = &self.unread {
            let file = self.dir.join(FILE);
            return Some(format!(
                "{} names processes that could not be ended, but {why}; remove it once the device was booted again",
                file.display()
            ));
        }
        let held = self.held.as_mut()?;
        let boot_changed = held.boot_id.is_some() && held.boot_id != boot_id(Path::new("/"));
        held.processes.retain(|stuck| !boot_changed && processes::start_ticks(stuck.pid) == Some(stuck.started));
        // One that the kernel holds, rather than one that waits for it.
        if let Some(stuck) = held.processes.iter().find(|stuck| stuck.state == "D").or(held.processes.first()) {
            let place = stuck.wchan.as_deref().unwrap_or("?");
            return Some(format!("process {} of run {} can't be ended (state {}, waiting in {place})", stuck.pid, held.run_id, stuck.state));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::process::{Child, Command};

    fn alive() -> (Child, Survivor) {
        let child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        (child, Survivor { pid, state: "D".into(), wchan: Some("rpc_wait".into()) })
    }

    #[test]
    fn it_lasts_as_long_as_its_processes_and_not_longer() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, survivor) = alive();
        Quarantine::open(dir.path()).hold("0192-aa", &[survivor]);
        // Another keeper.
        let mut quarantine = Quarantine::open(dir.path());
        assert!(quarantine.reason().unwrap().contains("of run 0192-aa can't be ended (state D, waiting in rpc_wait)"));
        child.kill().unwrap();
        let _ = child.wait();
        assert_eq!(quarantine.reason(), None);
        assert_eq!(Quarantine::open(dir.path()).reason(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_that_a_newer_keeper_has_noted_holds_and_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), r#"{"quarantine_version": 2, "stuck": []}"#).unwrap();
        let mut quarantine = Quarantine::open(dir.path());
        assert!(quarantine.reason().unwrap().contains("by a newer isotherm (version 2, this one reads up to 1)"));
        let (mut child, survivor) = alive();
        quarantine.hold("0192-aa", &[survivor]);
        assert!(fs::read_to_string(dir.path().join(FILE)).unwrap().contains("\"stuck\""));
        child.kill().unwrap();
        let _ = child.wait();
        assert!(quarantine.reason().is_some());
    }

    #[test]
    fn a_boot_ends_it_and_so_does_another_process_with_the_same_pid() {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, survivor) = alive();
        let mut quarantine = Quarantine::open(dir.path());
        quarantine.hold("0192-aa", std::slice::from_ref(&survivor));
        quarantine.held.as_mut().unwrap().boot_id = Some("another".into());
        assert_eq!(quarantine.reason(), None);
        quarantine.hold("0192-aa", &[survivor]);
        quarantine.held.as_mut().unwrap().processes[0].started += 1;
        assert_eq!(quarantine.reason(), None);
        child.kill().unwrap();
        let _ = child.wait();
    }
}
