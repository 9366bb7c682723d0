//! First process of a run: starts the workload, reaps, ends what is left, reports the raw status, dies with the keeper.
//!
//! Takes a [`Launch`] on its control socket (descriptor 0), tells [`Told`] lines back; stdout and stderr are the workload's.
//! In a PID namespace it is PID 1: a workload there as PID 1 would ignore TERM and report `abort` as signal 11.
//! Otherwise it is the subreaper of the workload. Single-threaded: after `unshare(CLONE_NEWPID)` a thread can't be spawned.

use crate::contain::{LEVEL_PID_NAMESPACE, LEVEL_SUBREAPER, Launch, TERMINATE, Told};
use crate::inspect::files::DEFAULT_PATH;
use crate::{processes, sys};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// While something has to be ended, look again this often, ns.
const LOOK_AGAIN_NS: u64 = 20_000_000;

pub fn main(args: Vec<OsString>) -> Result<(), String> {
    let level = match args.as_slice() {
        [flag, level] if flag == "--level" => level.to_string_lossy().into_owned(),
        _ => return Err("usage: isotherm-agent init --level pid_namespace|subreaper".into()),
    };
    let mut control = take_control().map_err(|e| format!("control socket: {e}"))?;
    let launch = read_launch(&mut control).map_err(|e| format!("launch: {e}"))?;
    match level.as_str() {
        LEVEL_PID_NAMESPACE => launch_in_namespace(control, &launch),
        LEVEL_SUBREAPER => {
            if let Err(e) = launch.cgroup.as_deref().map_or(Ok(()), join) {
                return tell(&mut control, &Told::LaunchFailed { message: e.to_string() });
            }
            sys::become_subreaper().map_err(|e| format!("becoming subreaper: {e}"))?;
            supervise(&mut control, &launch, false)
        }
        other => Err(format!("unknown level {other}")),
    }
}

/// Move the control socket away from descriptor 0, close-on-exec, and leave `/dev/null` there.
fn take_control() -> io::Result<UnixStream> {
    // SAFETY: descriptor 0 is the control socket by contract of this role; the duplicate is new and ours.
    unsafe {
        let fd = libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let null = File::open("/dev/null")?;
        libc::dup2(null.as_raw_fd(), 0);
        Ok(UnixStream::from_raw_fd(fd))
    }
}

fn read_launch(control: &mut UnixStream) -> io::Result<Launch> {
    let mut length = [0; 4];
    control.read_exact(&mut length)?;
    let mut payload = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut payload)?;
    Ok(serde_json::from_slice(&payload)?)
}

fn tell(control: &mut UnixStream, told: &Told) -> Result<(), String> {
    let mut line = serde_json::to_vec(told).map_err(|e| e.to_string())?;
    line.push(b'\n');
    // A keeper that is gone can't be told; what it asked for is ended all the same.
    let _ = control.write_all(&line);
    Ok(())
}

/// Move this process into a cgroup.
fn join(group: &str) -> io::Result<()> {
    std::fs::write(format!("{group}/cgroup.procs"), "0").map_err(|e| io::Error::other(format!("joining cgroup {group}: {e}")))
}

/// Fork; the child is born in the cgroup if there is one: moving somebody there makes all of them wait for an RCU grace period, 7 ms and
/// more on Linux 6.18.
fn fork(group: Option<&str>) -> io::Result<i32> {
    let born_there = group.map(|group| File::open(group).and_then(|dir| sys::fork_into(&dir)));
    match (born_there, group) {
        (Some(Ok(child)), _) => return Ok(child),
        // A kernel before 5.7, or a filter of system calls.
        (_, Some(group)) => join(group)?,
        (_, None) => {}
    }
    sys::fork()
}

fn launch_in_namespace(mut control: UnixStream, launch: &Launch) -> Result<(), String> {
    sys::die_with_parent(libc::SIGKILL).map_err(|e| e.to_string())?;
    // SAFETY: single-threaded; plain flags.
    if unsafe { libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS) } != 0 {
        let message = format!("unshare: {}", io::Error::last_os_error());
        return tell(&mut control, &Told::LaunchFailed { message });
    }
    match fork(launch.cgroup.as_deref()) {
        Err(e) => tell(&mut control, &Told::LaunchFailed { message: format!("fork: {e}") }),
        Ok(0) => {
            if let Err(e) = sys::die_with_parent(libc::SIGKILL).and_then(|()| private_proc()) {
                return tell(&mut control, &Told::LaunchFailed { message: e.to_string() });
            }
            supervise(&mut control, launch, true)
        }
        Ok(first) => {
            drop(control);
            let mut status = 0;
            // Returns when the kernel has ended every process of the namespace.
            // SAFETY: `status` is a valid int and `first` our only child.
            while unsafe { libc::waitpid(first, &mut status, 0) } < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {}
            if status == 0 { Ok(()) } else { Err(format!("first process of the namespace: wait status {status:#06x}")) }
        }
    }
}

/// A `/proc` that shows the namespace and nothing else; the host's stays as it is.
fn private_proc() -> io::Result<()> {
    let mount = |source: &std::ffi::CStr, target: &std::ffi::CStr, kind: &std::ffi::CStr, flags| {
        // SAFETY: valid C strings, no data.
        match unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(io::Error::other(format!("mount {}: {}", target.to_string_lossy(), io::Error::last_os_error()))),
        }
    };
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"proc", c"/proc", c"proc", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn supervise(control: &mut UnixStream, launch: &Launch, whole_namespace: bool) -> Result<(), String> {
    let signals = sys::signal_fd(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP]).map_err(|e| e.to_string())?;
    let mut signals = File::from(signals);
    let (spawn_ns, at_boottime_ns) = (sys::monotonic_ns(), sys::boottime_ns());
    let first = match start(launch) {
        Ok(pid) => pid,
        Err(e) => return tell(control, &Told::SpawnFailed { message: e.to_string(), errno: e.raw_os_error() }),
    };
    tell(control, &Told::Spawned { pid: first, at_ns: spawn_ns, at_boottime_ns })?;

    let grace_ns = sys::limit_ns(launch.grace_ms);
    let mut first_ended = false;
    let mut ended = 0;
    // Moment from which KILL is due; None = nothing has to be ended yet.
    let mut kill_at: Option<u64> = None;
    loop {
        let mut exited = None;
        let drained = loop {
            match sys::wait_any() {
                sys::Waited::Reaped(pid, status) if pid == first && !first_ended => {
                    first_ended = true;
                    exited = Some((status, sys::monotonic_ns()));
                }
                // Before the first TERM it has ended by itself.
                sys::Waited::Reaped(..) => ended += u32::from(kill_at.is_some()),
                sys::Waited::NoneYet => break false,
                sys::Waited::NoChildren => break true,
            }
        };
        if let Some((status, at_ns)) = exited {
            // Together with what had ended before it and nobody waited for.
            tell(control, &Told::Exited { status, at_ns, usage: sys::children_usage() })?;
        }
        if drained {
            return tell(control, &Told::Drained { ended, at_ns: sys::monotonic_ns() });
        }
        if first_ended && kill_at.is_none() {
            ask_all_to_end(whole_namespace);
            kill_at = Some(sys::boottime_ns() + grace_ns);
        }
        if kill_at.is_some_and(|t| sys::boottime_ns() >= t) {
            kill_all(whole_namespace);
        }
        let ready = sys::poll_readable(&[control.as_raw_fd(), signals.as_raw_fd()], kill_at.map(|_| LOOK_AGAIN_NS));
        if ready[0] {
            let mut byte = [0];
            match control.read(&mut byte) {
                Ok(1) if byte[0] == TERMINATE => {
                    ask_all_to_end(whole_namespace);
                    kill_at.get_or_insert(sys::boottime_ns() + grace_ns);
                }
                Ok(1) => {}
                // The keeper is gone: nobody waits for this run any more.
                _ => {
                    kill_all(whole_namespace);
                    kill_at = Some(0);
                }
            }
        }
        if ready[1] {
            let mut info = [0; 128 * 8];
            let n = signals.read(&mut info).unwrap_or(0);
            // ssi_signo is the first u32 of each 128-byte signalfd_siginfo.
            let asked_to_end = info[..n].chunks(128).any(|i| u32::from_ne_bytes([i[0], i[1], i[2], i[3]]) != libc::SIGCHLD as u32);
            if asked_to_end {
                ask_all_to_end(whole_namespace);
                kill_at.get_or_insert(sys::boottime_ns() + grace_ns);
            }
        }
    }
}

/// TERM, and CONT after it, so that a stopped process gets to hear it.
fn ask_all_to_end(whole_namespace: bool) {
    for signal in [libc::SIGTERM, libc::SIGCONT] {
        if whole_namespace {
            sys::kill(-1, signal);
        } else {
            for pid in processes::descendants(std::process::id() as i32) {
                sys::kill(pid, signal);
            }
        }
    }
}

fn kill_all(whole_namespace: bool) {
    if whole_namespace {
        sys::kill(-1, libc::SIGKILL);
    } else {
        processes::kill_below_us();
    }
}

/// Start the workload in a session of its own, with nothing inherited but stdout and stderr.
fn start(launch: &Launch) -> io::Result<i32> {
    if !Path::new(&launch.cwd).is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("working directory {} is not there", launch.cwd)));
    }
    if let Some(cpus) = &launch.cpus {
        // Inherited by the workload. This process does nothing while it runs.
        sys::set_affinity(cpus).map_err(|e| io::Error::other(format!("CPUs {cpus:?}: {e}")))?;
    }
    let stdin = match &launch.stdin {
        None => Stdio::null(),
        Some(text) => {
            // Small (a task), so that it fits a pipe's 64 KiB and can be written before anybody reads.
            let (read, mut write) = sys::pipe()?;
            write.write_all(text.as_bytes())?;
            Stdio::from(read)
        }
    };
    let image = Image::of(launch)?;
    let program = image.name.clone();
    let mut command = Command::new(&program);
    command.current_dir(&launch.cwd).stdin(stdin);
    // SAFETY: only async-signal-safe calls: setsid, prctl, signal, umask, setrlimit, open, write, close, execve.
    unsafe {
        command.pre_exec(move || {
            sys::new_session()?;
            sys::die_with_parent(libc::SIGKILL)?;
            sys::standard_conditions();
            // The kernel, short of memory, takes the workload and never the keeper. Raising one's own score is always allowed.
            let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if fd >= 0 {
                libc::write(fd, c"1000".as_ptr().cast(), 4);
                libc::close(fd);
            }
            Err(image.execute())
        });
    }
    command.spawn().map(|child| child.id() as i32).map_err(|e| match e.raw_os_error() {
        // The system says "no such file" of the program, although it means another one.
        Some(libc::ENOENT) if program.contains('/') && Path::new(&launch.cwd).join(&program).exists() => {
            io::Error::other("the interpreter or loader that it names is not there")
        }
        Some(code) => io::Error::from_raw_os_error(code),
        None => e,
    })
}

/// What the workload's process becomes.
struct Image {
    name: String,
    /// Where the program may be, in the order of the workload's PATH.
    paths: Vec<CString>,
    /// Strings that the pointers below point to.
    _strings: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

// SAFETY: the pointers are to heap memory that the same value owns and that nobody writes to.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    fn of(launch: &Launch) -> io::Result<Image> {
        let name = launch.argv.first().ok_or_else(|| io::Error::other("empty argv"))?.clone();
        let paths: Vec<String> = if name.is_empty() {
            Vec::new()
        } else if name.contains('/') {
            vec![name.clone()]
        } else {
            let search = launch.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
            search.split(':').map(|dir| format!("{}/{name}", if dir.is_empty() { "." } else { dir })).collect()
        };
        let c_strings = |texts: Vec<String>| texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let paths = c_strings(paths)?;
        let argv = c_strings(launch.argv.clone())?;
        let env = c_strings(launch.env.iter().map(|(name, value)| format!("{name}={value}")).collect())?;
        let pointers = |strings: &[CString]| strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(Image { name, paths, argv: pointers(&argv), env: pointers(&env), _strings: argv.into_iter().chain(env).collect() })
    }

    /// Replace this process; only returns if that failed, with the reason. Async-signal-safe.
    ///
    /// Not `execvp`: the C library's hands what the kernel doesn't know to `/bin/sh`, so that an empty file would run, and run well.
    fn execute(&self) -> io::Error {
        let mut denied = None;
        for path in &self.paths {
            // SAFETY: valid C strings and arrays of them that end with null.
            unsafe { libc::execve(path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => denied = Some(error),
                _ => return error,
            }
        }
        denied.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}
