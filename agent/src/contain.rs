//! Containment: a workload runs inside what can be emptied, and is proven to be gone before the next one starts.
//!
//! Takes a [`Launch`] and limits of time, gives what the workload printed and how it ended; must not know what a run is for.

use crate::capture::Capture;
use crate::processes::{self, INIT_OF_VARIABLE, RUN_ID_VARIABLE, UNKILLABLE_NS};
use crate::{heat, inspect, sys, thrash};
use isotherm_wire::inspect::{ContainmentCapability, ContainmentLevel};
use isotherm_wire::result::{Survivor, Usage};
use isotherm_wire::task::Secrets;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

pub const LEVEL_PID_NAMESPACE: &str = "pid_namespace";
pub const LEVEL_SUBREAPER: &str = "subreaper";
/// CPU time of runs that reached nobody who waited for it, ns: what ends below a process that ignores its children's ends is in no sum.
static UNWAITED_NS: AtomicU64 = AtomicU64::new(0);
/// Control byte: end the run.
pub const TERMINATE: u8 = b'T';
/// While `init` is waited for, look again this often, ns.
const LOOK_AGAIN_NS: u64 = 2_000_000;
/// Reads of 64 KiB that empty any pipe of an ordinary user (`/proc/sys/fs/pipe-max-size` is 1 MiB), with room.
const MOST_CHUNKS_IN_A_PIPE: u32 = 64;
/// Longest wait at once, ns: deadlines are in BOOTTIME, but the time that a machine is suspended doesn't count towards a wait.
const LONGEST_WAIT_NS: u64 = 30_000_000_000;

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
    /// CPUs that it may use; `None` = those of the agent.
    pub cpus: Option<Vec<u32>>,
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
        /// The same moment by the clock that goes on in a suspend.
        at_boottime_ns: u64,
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
    /// The machine did little else than move memory.
    pub thrashed: bool,
    /// It was about to become too hot, or nobody could tell.
    pub heat: Option<heat::Stop>,
    pub spawn_ns: Option<u64>,
    pub exit_ns: Option<u64>,
    pub drained_ns: Option<u64>,
    pub ended: u32,
    pub survivors: Vec<Survivor>,
    pub stdout: Option<Capture>,
    pub stderr: Option<Capture>,
}

/// A moment of an invocation, told to who runs it as soon as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The workload's first process has been started; the pid of its `init`.
    Spawned(i32),
    /// It has ended.
    Exited,
}

/// Limits of one invocation, ns.
#[derive(Clone, Copy)]
pub struct Deadline {
    pub timeout_ns: u64,
    pub grace_ns: u64,
}

/// What is kept of the output of an invocation.
#[derive(Clone, Copy)]
pub struct Keep<'a> {
    /// Bytes of each end of a stream.
    pub bytes: usize,
    /// Taken out of it.
    pub secrets: &'a Secrets,
    /// Whether lines are stamped.
    pub stamps: bool,
}

impl Keep<'_> {
    pub fn capture(self) -> Capture {
        let capture = Capture::new(self.bytes).without(self.secrets);
        if self.stamps { capture.with_stamps() } else { capture }
    }
}

/// Run one invocation to its end. `cancel` becomes readable when it is to be ended early; `on_mark` is called for each
/// [`Mark`] once, on this thread.
pub fn run(
    launch: &Launch,
    level: ContainmentLevel,
    deadline: Deadline,
    cancel: RawFd,
    keep: Keep<'_>,
    heat: Option<&mut heat::Watch<'_>>,
    on_mark: &mut dyn FnMut(Mark),
) -> io::Result<Ended> {
    let (mut control, theirs) = UnixStream::pair()?;
    let (out_read, out_write) = sys::pipe()?;
    let (err_read, err_write) = sys::pipe()?;
    let used = Used::so_far(launch.cgroup.as_deref());
    let level = match level {
        ContainmentLevel::PidNamespace => LEVEL_PID_NAMESPACE,
        ContainmentLevel::Subreaper => LEVEL_SUBREAPER,
    };
    sys::set_nonblocking(&out_read)?;
    sys::set_nonblocking(&err_read)?;
    let mut init = Command::new("/proc/self/exe")
        .arg0("isotherm-agent")
        .args(["init", "--level", level])
        .env(INIT_OF_VARIABLE, launch.env.get(RUN_ID_VARIABLE).map_or("", String::as_str))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(out_write))
        .stderr(Stdio::from(err_write))
        .spawn()?;
    let mut ended = Ended { stdout: Some(keep.capture()), stderr: Some(keep.capture()), ..Ended::default() };
    // Ahead of the workload: what it does to the machine is counted from its first moment.
    let memory = thrash::Watch::open(Path::new("/"));
    let watched = hand_over(launch, &mut control)
        .and_then(|()| watch(&mut ended, &mut control, &out_read, &err_read, &init, deadline, cancel, memory, heat, on_mark));
    // Nothing of a run outlives this function: an `init` that a workload has stopped, or that hangs, is ended like the rest.
    if !matches!(watched, Ok(Watched::Ended)) {
        let _ = init.kill();
    }
    conclude(&mut init, &mut ended, launch.env.get(RUN_ID_VARIABLE).map(String::as_str));
    used.note();
    // What they wrote is in the pipes. Somebody outside who was given the other end may hold it open, and is not waited for.
    drain(&out_read, ended.stdout.as_mut());
    drain(&err_read, ended.stderr.as_mut());
    match watched {
        Err(e) if ended.survivors.is_empty() => Err(e),
        _ => Ok(ended),
    }
}

/// CPU time of all runs so far that no one who was waited for has, ns; known of those with a cgroup of their own.
pub fn unwaited_ns() -> u64 {
    UNWAITED_NS.load(Ordering::Relaxed)
}

/// CPU time at the start of an invocation: of the run's cgroup, and of everything that was waited for, ns.
struct Used<'a> {
    cgroup: Option<(&'a Path, u64)>,
    waited_ns: u64,
}

impl Used<'_> {
    fn so_far(cgroup: Option<&str>) -> Used<'_> {
        let cgroup = cgroup.map(Path::new).and_then(|dir| Some((dir, inspect::cgroup::used_ns(dir)?)));
        Used { cgroup, waited_ns: sys::waited_ns() }
    }

    /// Once everybody has been waited for: the run used no less than its cgroup.
    fn note(self) {
        let Some((dir, before_ns)) = self.cgroup else { return };
        let used_ns = inspect::cgroup::used_ns(dir).unwrap_or(before_ns).saturating_sub(before_ns);
        UNWAITED_NS.fetch_add(used_ns.saturating_sub(sys::waited_ns() - self.waited_ns), Ordering::Relaxed);
    }
}

/// How watching a run came to its end.
enum Watched {
    /// `init` has ended, or is about to.
    Ended,
    /// It did not end what it was to end in time.
    GaveUp,
}

fn hand_over(launch: &Launch, control: &mut UnixStream) -> io::Result<()> {
    let payload = serde_json::to_vec(launch)?;
    control.write_all(&(payload.len() as u32).to_be_bytes())?;
    control.write_all(&payload)
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
    mut memory: thrash::Watch,
    mut heat: Option<&mut heat::Watch<'_>>,
    on_mark: &mut dyn FnMut(Mark),
) -> io::Result<Watched> {
    let mut lines = Vec::new();
    // Until the workload has been spawned: one that can't be, say from a disk that doesn't answer, is given up, too.
    let mut timeout_at: Option<u64> = Some(sys::boottime_ns() + deadline.timeout_ns + UNKILLABLE_NS);
    let mut give_up_at: Option<u64> = None;
    let (mut out_open, mut err_open) = (true, true);
    let mut chunk = vec![0; 64 << 10];
    loop {
        let now = sys::boottime_ns();
        if give_up_at.is_none() {
            ended.timed_out = timeout_at.is_some_and(|t| now >= t);
            ended.thrashed = !ended.timed_out && memory.thrashes();
            ended.heat = heat.as_mut().filter(|_| !ended.timed_out && !ended.thrashed).and_then(|heat| heat.look());
            if ended.timed_out || ended.thrashed || ended.heat.is_some() {
                let _ = control.write_all(&[TERMINATE]);
                give_up_at = Some(now + deadline.grace_ns + UNKILLABLE_NS);
            }
        }
        if give_up_at.is_some_and(|t| now >= t) {
            return Ok(Watched::GaveUp);
        }
        let look = if give_up_at.is_none() { memory.pause_ns().min(heat.as_ref().map_or(u64::MAX, |heat| heat.pause_ns())) } else { u64::MAX };
        let wait = give_up_at.or(timeout_at).map_or(LONGEST_WAIT_NS, |t| t.saturating_sub(now)).min(LONGEST_WAIT_NS).min(look);
        let none = -1;
        let ready = sys::poll_readable(
            &[
                control.as_raw_fd(),
                if out_open { out.as_raw_fd() } else { none },
                if err_open { err.as_raw_fd() } else { none },
                if give_up_at.is_none() { cancel } else { none },
            ],
            Some(wait),
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
                return Ok(Watched::Ended);
            }
            lines.extend_from_slice(&chunk[..n]);
            while let Some(end) = lines.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = lines.drain(..=end).collect();
                match serde_json::from_slice(&line)? {
                    Told::LaunchFailed { message } => ended.launch_failed = Some(message),
                    Told::SpawnFailed { message, errno } => ended.spawn_failed = Some((message, errno)),
                    Told::Spawned { at_ns, at_boottime_ns, .. } => {
                        ended.spawn_ns = Some(at_ns);
                        // From then on, however late we hear of it.
                        timeout_at = Some(at_boottime_ns + deadline.timeout_ns);
                        on_mark(Mark::Spawned(init.id() as i32));
                    }
                    Told::Exited { status, at_ns, usage } => {
                        ended.wait_status = Some(status);
                        ended.exit_ns = Some(at_ns);
                        ended.usage = Some(usage);
                        on_mark(Mark::Exited);
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

/// Take what is there, without waiting; false once every writer is gone. A workload may read from its own pipe, so that nothing is
/// there although something was.
fn take_chunk(mut pipe: &File, capture: Option<&mut Capture>, chunk: &mut [u8]) -> bool {
    match pipe.read(chunk) {
        Ok(0) => false,
        Ok(n) => {
            if let Some(capture) = capture {
                capture.push(&chunk[..n]);
            }
            true
        }
        Err(e) => matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
    }
}

/// Take what a pipe can hold at most, so that an outsider who goes on writing into it ends nothing.
fn drain(pipe: &File, mut capture: Option<&mut Capture>) {
    let mut chunk = vec![0; 64 << 10];
    for _ in 0..MOST_CHUNKS_IN_A_PIPE {
        if !sys::poll_readable(&[pipe.as_raw_fd()], Some(0))[0] || !take_chunk(pipe, capture.as_deref_mut(), &mut chunk) {
            return;
        }
    }
}

/// Wait for `init`, which says nothing any more, and end what it leaves: that is given to us, because the keeper is a subreaper too.
/// Only the keeper's run thread has children, and this is on it.
fn conclude(init: &mut Child, ended: &mut Ended, run_id: Option<&str>) {
    let give_up_at = sys::boottime_ns() + UNKILLABLE_NS;
    // Readable once it has ended; before Linux 5.2 it is looked for again and again.
    let handle = sys::PidFd::open(init.id() as i32).ok();
    let mut gone = false;
    loop {
        // By its handle first, so that its status isn't taken for that of an orphan.
        gone = gone || !matches!(init.try_wait(), Ok(None));
        if gone && reap(&mut ended.ended) {
            // Where nothing is given to us, having no child proves nothing: look for the run's id instead.
            if let Some(run_id) = run_id.filter(|_| !sys::is_subreaper()) {
                match processes::sweep(run_id) {
                    Ok(n) => ended.ended += n,
                    Err(pids) => {
                        ended.survivors = processes::described(pids);
                        return;
                    }
                }
            }
            ended.drained_ns.get_or_insert(sys::monotonic_ns());
            return;
        }
        if sys::boottime_ns() >= give_up_at {
            ended.survivors = processes::survivors();
            return;
        }
        if gone {
            processes::kill_below_us();
        }
        let end = handle.as_ref().filter(|_| !gone).map_or(-1, AsRawFd::as_raw_fd);
        sys::poll_readable(&[end], Some(LOOK_AGAIN_NS));
    }
}

/// Take the status of every child that has ended, counting them; true once there is no child any more.
fn reap(ended: &mut u32) -> bool {
    loop {
        match sys::wait_any() {
            sys::Waited::Reaped(..) => *ended += 1,
            sys::Waited::NoneYet => return false,
            sys::Waited::NoChildren => return true,
        }
    }
}

/// Take the status of what an earlier run could not end and what has ended since: it is none of the next run's.
pub fn reap_leftovers() {
    reap(&mut 0);
}

/// What containment is permitted here, found by trying it; `reaping` is whether orphans come to this process.
///
/// # Errors
/// Nothing would contain a run, in words.
pub fn trial(reaping: io::Result<()>) -> Result<ContainmentCapability, String> {
    let mut capability = trial_of_levels();
    if let Err(e) = reaping {
        // A PID namespace ends all of a run by itself; where there is none either, nothing would.
        if capability.level != ContainmentLevel::PidNamespace {
            capability.reasons.push(format!("no subreaper: {e}"));
            return Err(format!("no run could be contained here: {}", capability.reasons.join("; ")));
        }
        capability.reasons.push(format!("the keeper is no subreaper: {e}"));
    }
    Ok(capability)
}

fn trial_of_levels() -> ContainmentCapability {
    let mut reasons = Vec::new();
    let launch = Launch {
        argv: vec!["/proc/self/exe".into(), "--version".into()],
        env: BTreeMap::new(),
        cwd: "/".into(),
        stdin: None,
        grace_ms: 1000,
        cgroup: None,
        cpus: None,
    };
    let deadline = Deadline { timeout_ns: 10_000_000_000, grace_ns: 1_000_000_000 };
    let keep = Keep { bytes: 4096, secrets: &Secrets::default(), stamps: false };
    let level = match run(&launch, ContainmentLevel::PidNamespace, deadline, -1, keep, None, &mut |_| {}) {
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
    let cgroup = match make_cgroup(&format!("trial-{}", std::process::id())) {
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
    let dir = cgroup_dir(name).ok_or("no cgroup v2 mount")?;
    match fs::create_dir(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(format!("{}: {e}", dir.display())),
        _ => Ok(dir),
    }
}

/// End and remove what a lost run had as its cgroup, if it had one.
pub fn end_cgroup(run_id: &str) {
    if let Some(dir) = cgroup_dir(run_id).filter(|dir| dir.exists()) {
        // As of Linux 5.14. Reaches also who cleared its environment and hasn't an `init` any more.
        let _ = fs::write(dir.join("cgroup.kill"), "1");
        let give_up_at = sys::boottime_ns() + UNKILLABLE_NS;
        while fs::remove_dir(&dir).is_err() && sys::boottime_ns() < give_up_at {
            sys::poll_readable(&[], Some(LOOK_AGAIN_NS));
        }
    }
}

fn cgroup_dir(name: &str) -> Option<PathBuf> {
    Some(inspect::cgroup::locate(Path::new("/")).unified?.join(format!("isotherm-{name}")))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_nobody_waited_for_is_known_from_the_cgroup() {
        let group = tempfile::tempdir().unwrap();
        let has_used = |s: u64| fs::write(group.path().join("cpu.stat"), format!("usage_usec {}\nuser_usec 1\n", s * 1_000_000)).unwrap();
        has_used(10);
        let (before_ns, used) = (unwaited_ns(), Used::so_far(group.path().to_str()));
        has_used(20);
        used.note();
        // Less what was waited for meanwhile, if anything was.
        assert!((5_000_000_000..=10_000_000_000).contains(&(unwaited_ns() - before_ns)));
        fs::remove_file(group.path().join("cpu.stat")).unwrap();
        Used::so_far(group.path().to_str()).note();
        Used::so_far(None).note();
        assert!(unwaited_ns() - before_ns <= 10_000_000_000);
    }
}
