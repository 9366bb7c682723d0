//! Copies of the agent and its companion that isotherms have left on this device: notes which are used, removes what nobody needs.
//!
//! They lie beside our own executable, under names with their hash. Machines may share the directory, and see nothing of each other's
//! processes: so a copy is told by when it was used last, which is its time of access, set by whoever uses it. Whatever their own clocks
//! say, it is the clock of the file system that all of them go by.

use crate::sys;
use isotherm_wire::companion::COMPANION_VARIABLE;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Of each program so many stay, the ones that were used last: those of controllers that take turns with a device.
const MOST: usize = 3;
/// And whatever was used within this time: by a machine that shares the directory, say, whose keeper notes it with every run.
const IN_USE: Duration = Duration::from_secs(24 * 3600);
/// So far ahead a use is noted: more than a tick of any file system's clock.
const AHEAD: Duration = Duration::from_secs(2);
const PROGRAMS: [&str; 2] = ["isotherm-agent-", "isotherm-companion-"];

#[derive(Debug, PartialEq)]
struct Copy {
    path: PathBuf,
    used: SystemTime,
    /// By a process of this machine.
    is_executing: bool,
}

/// We use ours, now. It is on the disk when this returns: nothing of it is left to be written in a run's window.
pub fn note_use() {
    for path in own() {
        let _ = note(&path);
    }
}

fn note(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    sys::note_access(&file)?;
    // Ahead of the change that this is: with `relatime` the next execution, which begins a run, would be noted by the kernel otherwise.
    file.set_times(FileTimes::new().set_accessed(file.metadata()?.accessed()? + AHEAD))?;
    file.sync_all()
}

/// Remove those that nobody needs, ours having been noted as used just now; says which, on stderr.
pub fn prune() {
    let [agent, ..] = &*own() else { return };
    let Some(dir) = agent.parent() else { return };
    let Ok(now) = fs::metadata(agent).and_then(|meta| meta.accessed()) else { return };
    let executing = executing();
    for program in PROGRAMS {
        for path in unneeded(copies(dir, program, &executing), now) {
            match fs::remove_file(&path) {
                Ok(()) => eprintln!("{} was removed: it was not used for a day, and {MOST} others were used since", path.display()),
                Err(e) => eprintln!("{} could not be removed: {e}", path.display()),
            }
        }
    }
}

/// The agent, if it is such a copy, and with it the companion.
fn own() -> Vec<PathBuf> {
    let agent = fs::read_link("/proc/self/exe").ok().filter(|path| is_copy(path, PROGRAMS[0]));
    let companion = agent.as_ref().and_then(|_| std::env::var_os(COMPANION_VARIABLE)).map(PathBuf::from);
    agent.into_iter().chain(companion).collect()
}

fn is_copy(path: &Path, program: &str) -> bool {
    let hash = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(program));
    hash.is_some_and(|hash| hash.len() == 12 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
}

fn copies(dir: &Path, program: &str, executing: &HashSet<PathBuf>) -> Vec<Copy> {
    let copy = |entry: fs::DirEntry| {
        let (path, meta) = (entry.path(), entry.metadata().ok().filter(fs::Metadata::is_file)?);
        let used = meta.accessed().ok()?.max(meta.modified().ok()?);
        let is_executing = executing.contains(&path);
        is_copy(&path, program).then_some(Copy { path, used, is_executing })
    };
    fs::read_dir(dir).into_iter().flatten().flatten().filter_map(copy).collect()
}

/// What processes execute. By name: nothing is asked of a file system, which may not answer.
fn executing() -> HashSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok()).collect()
}

fn unneeded(mut copies: Vec<Copy>, now: SystemTime) -> Vec<PathBuf> {
    copies.sort_by(|a, b| (b.used, &b.path).cmp(&(a.used, &a.path)));
    // A time that is still to come is of another clock.
    let is_old = |copy: &Copy| now.duration_since(copy.used).is_ok_and(|age| age > IN_USE);
    copies.into_iter().skip(MOST).filter(|copy| is_old(copy) && !copy.is_executing).map(|copy| copy.path).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn copy(name: &str, used: SystemTime, is_executing: bool) -> Copy {
        Copy { path: name.into(), used, is_executing }
    }

    #[test]
    fn the_ones_used_last_and_what_is_used_stay() {
        let now = SystemTime::now();
        let ago = |hours: u32| now - HOUR * hours;
        let old = |name: &str, days: u32| copy(name, ago(24 * days), false);
        assert!(unneeded(vec![old("a", 400), old("b", 300), old("c", 200)], now).is_empty(), "so many may stay");
        let copies = vec![old("oldest", 30), copy("executing", ago(24 * 20), true), old("old", 10), copy("tomorrow", now + 24 * HOUR, false)];
        let young = (0..4).map(|n| copy(&format!("young{n}"), ago(n), false));
        let gone = unneeded(copies.into_iter().chain(young).collect(), now);
        assert_eq!(gone, [Path::new("old"), Path::new("oldest")]);
    }

    #[test]
    fn a_use_is_noted_by_the_clock_of_the_file_system_and_changes_no_time_but_that_of_access() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create_new(dir.path().join("copy")).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + 24 * HOUR;
        file.set_times(FileTimes::new().set_accessed(long_ago).set_modified(long_ago)).unwrap();
        note(&dir.path().join("copy")).unwrap();
        let other = File::create_new(dir.path().join("other")).unwrap().metadata().unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.modified().unwrap(), long_ago);
        assert!(meta.accessed().unwrap() <= other.modified().unwrap() + AHEAD && meta.accessed().unwrap() > long_ago + HOUR);
    }

    #[test]
    fn a_copy_is_a_file_with_the_name_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let name = "isotherm-agent-0123456789ab";
        for other in
            ["isotherm-agent-0123456789AB", "isotherm-agent-0123456789a", "isotherm-agent-0123456789abc", "isotherm-companion-0123456789ab", "x"]
        {
            fs::write(dir.path().join(other), "").unwrap();
        }
        fs::create_dir(dir.path().join("isotherm-agent-aaaaaaaaaaaa")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("x"), dir.path().join("isotherm-agent-bbbbbbbbbbbb")).unwrap();
        fs::write(dir.path().join(name), "").unwrap();
        let found = copies(dir.path(), PROGRAMS[0], &HashSet::from([dir.path().join(name)]));
        assert_eq!(found.iter().map(|copy| (copy.path.clone(), copy.is_executing)).collect::<Vec<_>>(), [(dir.path().join(name), true)]);
    }
}
