//! Containment: a workload runs inside what can be emptied, and is proven to be gone before the next one starts.
//!
//! Takes a [`Launch`] and limits of time, gives what the workload printed and how it ended; must not know what a run is for.

use crate::capture::Capture;
use crate::{inspect, sys};
use isotherm_wire::inspect::{ContainmentCapability, ContainmentLevel};
use isotherm_wire::result::{Survivor, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const LEVEL_PID_NAMESPACE: &str = "pid_namespace";
pub const LEVEL_SUBREAPER: &str = "subreaper";
/// Control byte: end the run.
pub const TERMINATE: u8 = b'T';
/// Variable by which a process can be told to belong to a run, also after its parents are gone.
pub const RUN_ID_VARIABLE: &str = "ISOTHERM_RUN_ID";
/// How long after KILL a process may take to be gone before it counts as one that can't be ended, ns.
const UNKILLABLE_NS: u64 = 10_000_000_000;

/// What `init` is to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    pub cwd: String,
    /// Text on the workload's stdin, less than 64 KiB; `None` = `/dev/null`.
    pub stdin: Option<String>,
    pub grace_ms: u64,
    pub cgroup: Option<String>,
}

/// What `init` tells its keeper, one JSON line each. Times are CLOCK_MONOTONIC ns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Told {
    /// This level of containment doesn't work here.
    LaunchFailed {
        message: String,
    },
    SpawnFailed {
        message: String,
        errno: Option<i32>,
    },
    Spawned {
        pid: i32,
        at_ns: u64,
    },
    Exited {
        status: i32,
        at_ns: u64,
        usage: Usage,
    },
    Drained {
        ended: u32,
        at_ns: u64,
    },
}

/// How an invocation went.
#[derive(Default)]
pub struct Ended {
    /// It could not be contained at this level: in words.
    pub launch_failed: Option<String>,
    pub spawn_failed: Option<(String, Option<i32>)>,
    pub wait_status: Option<i32>,
    pub usage: Option<Usage>,
    pub timed_out: bool,
    pub cancelled: bool,
    /// `init` itself was ended from outside.
    pub init_lost: bool,
    pub spawn_ns: Option<u64>,
    pub exit_ns: Option<u64>,
    pub drained_ns: Option<u64>,
    pub ended: u32,
    pub survivors: Vec<Survivor>,
    pub stdout: Option<Capture>,
    pub stderr: Option<Capture>,
}

/// Limits of one invocation, ns.
#[derive(Clone, Copy)]
pub struct Deadline {
    pub timeout_ns: u64,
    pub grace_ns: u64,
}

/// Run one invocation to its end. `cancel` becomes readable when it is to be ended early; `on_spawn` is called once with the pid of
/// `init` when the workload's first process has been started.
pub fn run(
    launch: &Launch,
    level: ContainmentLevel,
    deadline: Deadline,
    cancel: RawFd,
    keep_bytes: usize,
    on_spawn: &mut dyn FnMut(i32),
) -> io::Result<Ended> {
    let (mut control, theirs) = UnixStream::pair()?;
    let (out_read, out_write) = sys::pipe()?;
    let (err_read, err_write) = sys::pipe()?;
    let level = match level {
        ContainmentLevel::PidNamespace => LEVEL_PID_NAMESPACE,
        ContainmentLevel::Subreaper => LEVEL_SUBREAPER,
    };
    let mut init = Command::new("/proc/self/exe")
        .args(["init", "--level", level])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(out_write))
        .stderr(Stdio::from(err_write))
        .spawn()?;
    let payload = serde_json::to_vec(launch)?;
    control.write_all(&(payload.len() as u32).to_be_bytes())?;
    control.write_all(&payload)?;

    let mut ended = Ended { stdout: Some(Capture::new(keep_bytes)), stderr: Some(Capture::new(keep_bytes)), ..Ended::default() };
    watch(&mut ended, &mut control, &out_read, &err_read, &init, deadline, cancel, on_spawn)?;
    if ended.survivors.is_empty() {
        let status = init.wait()?;
        ended.init_lost = ended.drained_ns.is_none() && ended.launch_failed.is_none() && ended.spawn_failed.is_none();
        if ended.init_lost && !status.success() {
            // What it leaves behind is given to us, because the keeper is a subreaper too.
            end_orphans(&mut ended);
        }
        // Every writer is gone, so this ends.
        drain(&out_read, ended.stdout.as_mut());
        drain(&err_read, ended.stderr.as_mut());
    }
    Ok(ended)
}

#[expect(clippy::too_many_arguments, reason = "one loop over everything that can happen to an invocation")]
fn watch(
    ended: &mut Ended,
    control: &mut UnixStream,
    out: &File,
    err: &File,
    init: &Child,
    deadline: Deadline,
    cancel: RawFd,
    on_spawn: &mut dyn FnMut(i32),
) -> io::Result<()> {
    let mut lines = Vec::new();
    let mut timeout_at: Option<u64> = None;
    let mut give_up_at: Option<u64> = None;
    let (mut out_open, mut err_open) = (true, true);
    let mut chunk = vec![0; 64 << 10];
    loop {
        let now = sys::boottime_ns();
        if timeout_at.is_some_and(|t| now >= t) && give_up_at.is_none() {
            ended.timed_out = true;
            let _ = control.write_all(&[TERMINATE]);
            give_up_at = Some(now + deadline.grace_ns + UNKILLABLE_NS);
        }
        if give_up_at.is_some_and(|t| now >= t) {
            ended.survivors = survivors(init.id() as i32);
            return Ok(());
        }
        let wait = [timeout_at.filter(|_| give_up_at.is_none()), give_up_at].into_iter().flatten().min().map(|t| t.saturating_sub(now));
        let none = -1;
        let ready = sys::poll_readable(
            &[
                control.as_raw_fd(),
                if out_open { out.as_raw_fd() } else { none },
                if err_open { err.as_raw_fd() } else { none },
                if give_up_at.is_none() { cancel } else { none },
            ],
            wait,
        );
        if ready[1] {
            out_open = take_chunk(out, ended.stdout.as_mut(), &mut chunk);
        }
        if ready[2] {
            err_open = take_chunk(err, ended.stderr.as_mut(), &mut chunk);
        }
        if ready[3] {
            ended.cancelled = true;
            let _ = control.write_all(&[TERMINATE]);
            give_up_at = Some(sys::boottime_ns() + deadline.grace_ns + UNKILLABLE_NS);
        }
        if ready[0] {
            let n = match control.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => 0,
                Err(e) => return Err(e),
            };
            if n == 0 {
                return Ok(());
            }
            lines.extend_from_slice(&chunk[..n]);
            while let Some(end) = lines.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = lines.drain(..=end).collect();
                match serde_json::from_slice(&line)? {
                    Told::LaunchFailed { message } => ended.launch_failed = Some(message),
                    Told::SpawnFailed { message, errno } => ended.spawn_failed = Some((message, errno)),
                    Told::Spawned { at_ns, .. } => {
                        ended.spawn_ns = Some(at_ns);
                        timeout_at = Some(sys::boottime_ns() + deadline.timeout_ns);
                        on_spawn(init.id() as i32);
                    }
                    Told::Exited { status, at_ns, usage } => {
                        ended.wait_status = Some(status);
                        ended.exit_ns = Some(at_ns);
                        ended.usage = Some(usage);
                        timeout_at = None;
                        give_up_at.get_or_insert(sys::boottime_ns() + deadline.grace_ns + UNKILLABLE_NS);
                    }
                    Told::Drained { ended: n, at_ns } => {
                        ended.ended = n;
                        ended.drained_ns = Some(at_ns);
                    }
                }
            }
        }
    }
}

fn take_chunk(mut pipe: &File, capture: Option<&mut Capture>, chunk: &mut [u8]) -> bool {
    match pipe.read(chunk) {
        Ok(0) => false,
        Ok(n) => {
            if let Some(capture) = capture {
                capture.push(&chunk[..n]);
            }
            true
        }
        Err(e) => e.kind() == io::ErrorKind::Interrupted,
    }
}

fn drain(pipe: &File, mut capture: Option<&mut Capture>) {
    let mut chunk = vec![0; 64 << 10];
    while take_chunk(pipe, capture.as_deref_mut(), &mut chunk) {}
}

/// End everything below this process. Only the keeper's run thread has children, and `init` has been waited for.
fn end_orphans(ended: &mut Ended) {
    let give_up_at = sys::boottime_ns() + UNKILLABLE_NS;
    loop {
        for pid in descendants(std::process::id() as i32) {
            sys::kill(pid, libc::SIGKILL);
        }
        loop {
            match sys::wait_any() {
                sys::Waited::Reaped(..) => ended.ended += 1,
                sys::Waited::NoneYet => break,
                sys::Waited::NoChildren => {
                    ended.drained_ns = Some(sys::monotonic_ns());
                    return;
                }
            }
        }
        if sys::boottime_ns() >= give_up_at {
            ended.survivors = survivors(std::process::id() as i32);
            return;
        }
        sys::poll_readable(&[], Some(10_000_000));
    }
}

/// All processes below `root`, without it, parents before children.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    let mut next = 0;
    let mut parent = root;
    loop {
        if let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) {
            for thread in threads.flatten() {
                let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
                for pid in children.split_whitespace().filter_map(|p| p.parse().ok()) {
                    if !found.contains(&pid) {
                        found.push(pid);
                    }
                }
            }
        }
        match found.get(next) {
            Some(&pid) => parent = pid,
            None => return found,
        }
        next += 1;
    }
}

fn survivors(root: i32) -> Vec<Survivor> {
    let read = |pid: i32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    descendants(root)
        .into_iter()
        .map(|pid| Survivor {
            pid,
            // Third field of stat, after the command in parentheses.
            state: read(pid, "stat").and_then(|s| s.rsplit_once(')').map(|(_, r)| r.trim_start()[..1].to_owned())).unwrap_or_default(),
            wchan: read(pid, "wchan").filter(|w| !w.is_empty() && w != "0"),
        })
        .collect()
}

/// End every process that carries the id of a run whose keeper is gone; the number ended, or who could not be.
///
/// Found by the variable that we put into its environment, signalled through a pidfd after a second look: never another process.
pub fn sweep(run_id: &str) -> Result<u32, Vec<i32>> {
    let marker = format!("{RUN_ID_VARIABLE}={run_id}");
    let carries = |pid: i32| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| env.split(|&b| b == 0).any(|entry| entry == marker.as_bytes()));
    let give_up_at = sys::boottime_ns() + UNKILLABLE_NS;
    let mut ended = std::collections::BTreeSet::new();
    loop {
        let mut left = Vec::new();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
            if pid == std::process::id() as i32 || !carries(pid) {
                continue;
            }
            if let Ok(handle) = sys::PidFd::open(pid)
                && carries(pid)
            {
                handle.signal(libc::SIGKILL);
                ended.insert(pid);
                left.push(pid);
            }
        }
        if left.is_empty() {
            return Ok(ended.len() as u32);
        }
        if sys::boottime_ns() >= give_up_at {
            return Err(left);
        }
        sys::poll_readable(&[], Some(10_000_000));
    }
}

/// What containment is permitted here, found by trying it.
pub fn trial() -> ContainmentCapability {
    let mut reasons = Vec::new();
    let launch = Launch {
        argv: vec!["/proc/self/exe".into(), "--version".into()],
        env: BTreeMap::new(),
        cwd: "/".into(),
        stdin: None,
        grace_ms: 1000,
        cgroup: None,
    };
    let deadline = Deadline { timeout_ns: 10_000_000_000, grace_ns: 1_000_000_000 };
    let level = match run(&launch, ContainmentLevel::PidNamespace, deadline, -1, 4096, &mut |_| {}) {
        Ok(ended) if ended.drained_ns.is_some() && ended.wait_status == Some(0) => ContainmentLevel::PidNamespace,
        Ok(ended) => {
            let why = ended.launch_failed.or(ended.spawn_failed.map(|(m, _)| m)).unwrap_or_else(|| "the trial did not end well".into());
            reasons.push(format!("no PID namespace: {why}"));
            ContainmentLevel::Subreaper
        }
        Err(e) => {
            reasons.push(format!("no PID namespace: {e}"));
            ContainmentLevel::Subreaper
        }
    };
    let cgroup = match make_cgroup("trial") {
        Ok(dir) => fs::remove_dir(dir).is_ok(),
        Err(why) => {
            reasons.push(format!("no cgroup of its own: {why}"));
            false
        }
    };
    ContainmentCapability { level, cgroup, reasons }
}

/// Make a cgroup below our own for one run.
pub fn make_cgroup(name: &str) -> Result<PathBuf, String> {
    let own = inspect::cgroup::locate(Path::new("/")).unified.ok_or("no cgroup v2 mount")?;
    let dir = own.join(format!("isotherm-{}-{name}", std::process::id()));
    fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn descendants_are_found_below_a_process() {
        let mut child = Command::new("/bin/sh").args(["-c", "sleep 60 & wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let below = loop {
            let below = descendants(child.id() as i32);
            if !below.is_empty() {
                break below;
            }
            std::thread::yield_now();
        };
        assert!(descendants(std::process::id() as i32).contains(&below[0]));
        sys::kill(below[0], libc::SIGKILL);
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
