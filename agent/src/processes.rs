//! Processes of a run: who is below another one, who carries a run's id, and ending all of them.
//!
//! Takes pids and run ids, gives pids; must not know what they execute.

use crate::sys;
use isotherm_wire::result::Survivor;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Variable by which a process can be told to belong to a run, also after its parents are gone.
pub const RUN_ID_VARIABLE: &str = "ISOTHERM_RUN_ID";
/// The same for the run's `init`, which is no part of the workload and ends by itself once its keeper is gone.
pub const INIT_OF_VARIABLE: &str = "ISOTHERM_INIT_OF";
/// How long after KILL a process may take to be gone before it counts as one that can't be ended, ns.
pub const UNKILLABLE_NS: u64 = 10_000_000_000;
/// Looks for processes that were started while others were being ended, without a pause in between.
const MOST_LOOKS: u32 = 1000;

/// All processes below `root`, without it, parents before children.
pub fn descendants(root: i32) -> Vec<i32> {
    static KERNEL_LISTS_CHILDREN: OnceLock<bool> = OnceLock::new();
    // A kernel built without CONFIG_PROC_CHILDREN, as those of some boards, has no such file: then every process is asked for its parent.
    let listed = *KERNEL_LISTS_CHILDREN.get_or_init(|| Path::new("/proc/thread-self/children").exists());
    if listed { below(root, children) } else { descendants_by_parent(root) }
}

fn below(root: i32, children: impl Fn(i32) -> Vec<i32>) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    let mut seen: BTreeSet<i32> = BTreeSet::from([root]);
    let mut next = 0;
    let mut parent = root;
    loop {
        found.extend(children(parent).into_iter().filter(|&pid| seen.insert(pid)));
        match found.get(next) {
            Some(&pid) => parent = pid,
            None => return found,
        }
        next += 1;
    }
}

fn children(parent: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists: Vec<String> = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

fn descendants_by_parent(root: i32) -> Vec<i32> {
    let mut by_parent: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all() {
        if let Some(parent) = after_name(pid).and_then(|fields| fields.split_whitespace().nth(1)?.parse().ok()) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    below(root, |parent| by_parent.get(&parent).cloned().unwrap_or_default())
}

fn all() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Fields of `/proc/<pid>/stat` after the command's name, which may hold anything: state, parent, ….
fn after_name(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.trim_start().to_owned())
}

/// What the kernel calls a process; `None` if there is none.
pub fn name(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// Is a process one of those below this one?
pub fn is_below_us(pid: i32) -> bool {
    let own = std::process::id() as i32;
    let parent = |pid: &i32| after_name(*pid)?.split_whitespace().nth(1)?.parse::<i32>().ok();
    std::iter::successors(parent(&pid), parent).take_while(|&pid| pid > 1).any(|pid| pid == own)
}

/// When a process was started, clock ticks after boot; `None` if there is none, or only what its parent has not waited for.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let fields = after_name(pid)?;
    let mut fields = fields.split_whitespace();
    // Fields 3 and 22 of proc_pid_stat(5).
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !dead)
}

/// CPU time of all that a process has waited for, with what those had waited for, clock ticks; `None` if there is no such process.
pub fn children_ticks(pid: i32) -> Option<u64> {
    let fields = after_name(pid)?;
    // Fields 16 and 17 of proc_pid_stat(5); a signed number there, which never is below zero.
    fields.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Send KILL to all processes below this one, and to what they start meanwhile.
pub fn kill_below_us() {
    let mut signalled = BTreeSet::new();
    for _ in 0..MOST_LOOKS {
        let new: Vec<i32> = descendants(std::process::id() as i32).into_iter().filter(|&pid| signalled.insert(pid)).collect();
        if new.is_empty() {
            return;
        }
        for pid in new {
            sys::kill(pid, libc::SIGKILL);
        }
    }
}

/// What is left below this process.
pub fn survivors() -> Vec<Survivor> {
    described(descendants(std::process::id() as i32))
}

/// Processes that could not be ended: who, in which state, and where the kernel holds it.
pub fn described(pids: Vec<i32>) -> Vec<Survivor> {
    let read = |pid: i32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    pids.into_iter()
        .map(|pid| Survivor {
            pid,
            state: after_name(pid).and_then(|fields| fields.chars().next()).map(String::from).unwrap_or_default(),
            wchan: read(pid, "wchan").filter(|w| !w.is_empty() && w != "0"),
        })
        .collect()
}

/// End every process that carries the id of a run whose keeper is gone, and wait for the run's `init`; the number ended, or who could
/// not be.
///
/// Found by the variable that we put into its environment, signalled through a pidfd after a second look: never another process.
pub fn sweep(run_id: &str) -> Result<u32, Vec<i32>> {
    let (of_workload, of_init) = (format!("{RUN_ID_VARIABLE}={run_id}"), format!("{INIT_OF_VARIABLE}={run_id}"));
    let carries = |pid: i32, marker: &str| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| env.split(|&b| b == 0).any(|entry| entry == marker.as_bytes()))
    };
    let own = std::process::id() as i32;
    let now = sys::boottime_ns();
    let give_up_at = now + UNKILLABLE_NS;
    // Whoever cleared its environment is known to `init` alone, which is ending it: only one that hangs is ended itself.
    let init_hangs_at = now + UNKILLABLE_NS / 2;
    let mut ended = BTreeSet::new();
    let mut quiet_looks = 0;
    loop {
        let mut left = Vec::new();
        for pid in all().filter(|&pid| pid != own) {
            let is_init = carries(pid, &of_init);
            let marker = if is_init { &of_init } else { &of_workload };
            if let Ok(handle) = sys::PidFd::open(pid)
                && carries(pid, marker)
            {
                if !is_init || sys::boottime_ns() >= init_hangs_at {
                    handle.signal(libc::SIGKILL);
                    ended.insert(pid);
                }
                left.push(pid);
            }
        }
        // A process in the middle of exec shows no environment for an instant: one look without any is not enough.
        quiet_looks = if left.is_empty() { quiet_looks + 1 } else { 0 };
        if quiet_looks == 2 {
            return Ok(ended.len() as u32);
        }
        if sys::boottime_ns() >= give_up_at {
            return Err(left);
        }
        sys::poll_readable(&[], Some(10_000_000));
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_are_found_below_a_process() {
        let mut child = Command::new("/bin/sh").args(["-c", "sleep 60 & wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let root = child.id() as i32;
        let found = loop {
            let found = descendants(root);
            if !found.is_empty() {
                break found;
            }
            std::thread::yield_now();
        };
        assert!(descendants(std::process::id() as i32).contains(&found[0]));
        assert!(is_below_us(found[0]) && !is_below_us(std::process::id() as i32) && !is_below_us(1));
        assert_eq!(name(root).as_deref(), Some("sh"));
        assert_eq!(descendants_by_parent(root), found, "a kernel that lists no children");
        sys::kill(found[0], libc::SIGKILL);
        child.wait().unwrap();
    }

    #[test]
    fn a_sweep_ends_what_carries_the_run_id_and_nothing_else() {
        let spawn = |id: &str| Command::new("/bin/sleep").arg("60").env(RUN_ID_VARIABLE, id).spawn().unwrap();
        let (mut ours, mut other) = (spawn("0192-sweep-ours"), spawn("0192-sweep-other"));
        // A zombie has no environment any more, so the sweep sees it as gone although this test reaps it later.
        assert_eq!(sweep("0192-sweep-ours"), Ok(1));
        assert!(!ours.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
