//! Thin wrappers over system calls: clocks, descriptors, processes. The only file with `unsafe` besides the launcher in `init.rs`.

use crate::clock;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Target triple this agent was built for.
pub const TARGET: &str = env!("ISOTHERM_TARGET");

#[cfg(target_pointer_width = "64")]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec; the clocks used here exist on every supported kernel, so the call can't fail.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Where `long` has 32 bits the C library's `timespec` ends in January 2038: the kernel (as of Linux 5.1) has another call.
#[cfg(target_pointer_width = "32")]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    /// The number is the same on Arm and x86; the `libc` crate doesn't know it.
    const CLOCK_GETTIME64: libc::c_long = 403;
    // `__kernel_timespec`: seconds and nanoseconds, 64 bits each.
    let mut t = [0i64; 2];
    // SAFETY: room for a `__kernel_timespec`; the clocks used here exist on every supported kernel.
    if unsafe { libc::syscall(CLOCK_GETTIME64, clock, t.as_mut_ptr()) } != 0 {
        let mut old = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `old` is a valid timespec. An older kernel has this call alone.
        unsafe { libc::clock_gettime(clock, &mut old) };
        t = [old.tv_sec.into(), old.tv_nsec.into()];
    }
    t[0] as u64 * 1_000_000_000 + t[1] as u64
}

fn shifted_ns(clock: libc::clockid_t) -> u64 {
    clock_ns(clock).saturating_add_signed(clock::shift_ns(clock))
}

/// CLOCK_MONOTONIC, ns: every duration.
pub fn monotonic_ns() -> u64 {
    shifted_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME, ns: runs on while the machine is suspended.
pub fn boottime_ns() -> u64 {
    shifted_ns(libc::CLOCK_BOOTTIME)
}

/// CLOCK_REALTIME, ns since 1970: labels only.
pub fn realtime_ns() -> u64 {
    shifted_ns(libc::CLOCK_REALTIME)
}

/// Time that this machine has been suspended since it was booted, ns: BOOTTIME − MONOTONIC.
pub fn suspended_ns() -> u64 {
    /// Two clocks can't be read at once. A pair that we were not interrupted between is better than this.
    const GOOD_NS: u64 = 100_000;
    let pair = || {
        let (before, boottime, after) = (monotonic_ns(), boottime_ns(), monotonic_ns());
        (after.saturating_sub(before), boottime.saturating_sub(before))
    };
    let mut best = pair();
    for _ in 0..100 {
        if best.0 <= GOOD_NS {
            break;
        }
        best = best.min(pair());
    }
    best.1
}

/// CPU time of this process, all threads, ns.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Steps per second in which the kernel counts CPU time for `/proc`: 100 nearly everywhere.
pub fn ticks_per_s() -> u64 {
    // SAFETY: plain integer; a constant of the C library.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as u64 }
}

/// A limit of time as it came over the wire, ns; one that is absurd is cut to a century, so that sums with a clock don't overflow.
pub fn limit_ns(ms: u64) -> u64 {
    ms.min(3_155_760_000_000) * 1_000_000
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn page_bytes() -> u64 {
    // SAFETY: plain integer; every kernel answers this one.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

pub fn uid() -> u32 {
    // SAFETY: no arguments, can't fail.
    unsafe { libc::geteuid() }
}

/// Make this process the one that orphans below it are given to.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// Do orphans below this process come to it? Where that can't be told they don't: a sandbox or an emulator that refuses to make us a
/// subreaper refuses to answer as well.
pub fn is_subreaper() -> bool {
    let mut is: libc::c_int = 0;
    // SAFETY: the address of an int, which the kernel fills.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is, 0, 0, 0) == 0 && is == 1 }
}

/// Ask the kernel for `signal` when the thread that started us ends. Async-signal-safe.
pub fn die_with_parent(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) }).map(drop)
}

/// Detach from terminal and process group. Async-signal-safe.
pub fn new_session() -> io::Result<()> {
    // SAFETY: no arguments.
    check(unsafe { libc::setsid() }).map(drop)
}

/// What a workload starts with, whoever started us: no signal blocked (Rust's `Command` hands ours on) or ignored (`nohup` and a
/// shell's `&` do that), the usual file modes, and no core dump, which would be written next to what is measured; a workload may raise
/// that limit again. Async-signal-safe.
pub fn standard_conditions() {
    // SAFETY: plain integers and structs on the stack. A zeroed sigaction, of whatever size the kernel's is, means the default action;
    // by system call, because the C library keeps two signals for itself. What can't be set is refused without harm.
    unsafe {
        let default = [0u64; 16];
        for signal in 1..=64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), 8);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::umask(0o022);
        let mut core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_CORE, &mut core) == 0 {
            core.rlim_cur = 0;
            libc::setrlimit(libc::RLIMIT_CORE, &core);
        }
    }
}

/// Close every descriptor from 3 on: what a keeper inherits from a shell or an ssh daemon isn't its own.
pub fn close_inherited() {
    // SAFETY: called first thing in a process role, before any descriptor of ours above 2 exists.
    if unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) } != 0 {
        for fd in 3..4096 {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// Outcome of one `waitpid`.
pub enum Waited {
    /// pid and raw wait status.
    Reaped(i32, i32),
    /// Children exist, none has ended.
    NoneYet,
    /// There is no child: for a subreaper or the first process of a namespace, no descendant either.
    NoChildren,
}

pub fn wait_any() -> Waited {
    let mut status = 0;
    // SAFETY: `status` is a valid int.
    match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
        0 => Waited::NoneYet,
        pid if pid > 0 => Waited::Reaped(pid, status),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => Waited::NoChildren,
        _ => Waited::NoneYet,
    }
}

/// Send a signal to one process, or with −1 to all of our PID namespace.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: plain integers; a process that is gone already is no error here.
    unsafe { libc::kill(pid, signal) };
}

/// A handle on a process that can't come to mean another one.
pub struct PidFd(OwnedFd);

impl PidFd {
    pub fn open(pid: i32) -> io::Result<PidFd> {
        // SAFETY: plain integers; the result is a new descriptor or −1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        check(fd as libc::c_int)?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a live pidfd, no siginfo.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, std::ptr::null::<libc::siginfo_t>(), 0) };
    }
}

impl AsRawFd for PidFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Fork as a child of our own parent: what goes on in `child` is a copy of this thread alone, may do only what is async-signal-safe, and
/// ends with it. With the pid a handle on it, which kernels before 5.2 don't give.
pub fn start_sibling(child: impl FnOnce()) -> io::Result<(i32, Option<PidFd>)> {
    const NONE: RawFd = -1;
    let mut fd = NONE;
    let flags = (libc::CLONE_PARENT | libc::CLONE_PIDFD) as libc::c_ulong;
    // SAFETY: without a stack and without sharing memory it is a fork; the third argument is the same on all our architectures.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut fd, 0, 0) };
    match pid {
        0 => {
            child();
            // SAFETY: ends this process; nothing of its parent's is run or flushed.
            unsafe { libc::_exit(127) }
        }
        1.. => {
            // SAFETY: a fresh descriptor that nobody else owns.
            let handle = (fd != NONE).then(|| PidFd(unsafe { OwnedFd::from_raw_fd(fd) }));
            Ok((pid as i32, handle))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Fork a process with one thread, so that the child may go on with all of Rust's runtime; 0 in the child.
pub fn fork() -> io::Result<i32> {
    // SAFETY: that of the contract.
    check(unsafe { libc::fork() })
}

/// The same, the child in this cgroup (v2) from its first moment.
///
/// # Errors
/// What the system says, such as a kernel before 5.7.
pub fn fork_into(cgroup: &File) -> io::Result<i32> {
    /// `CLONE_INTO_CGROUP` of `<linux/sched.h>`.
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    /// `struct clone_args` as of Linux 5.7, see clone(2).
    #[repr(C)]
    #[derive(Default)]
    struct Arguments {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        cgroup: u64,
    }
    let arguments = Arguments { flags: INTO_CGROUP, exit_signal: libc::SIGCHLD as u64, cgroup: cgroup.as_raw_fd() as u64, ..Arguments::default() };
    // SAFETY: without a stack and without sharing memory it is a fork of a process with one thread.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<Arguments>()) };
    check(pid as libc::c_int)
}

/// CPU time of another process, all threads, ns; `None` if there is none.
pub fn cpu_ns_of(pid: i32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: plain integers and structs on the stack, filled by the call.
    unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        let told = libc::clock_getcpuclockid(pid, &mut clock) == 0 && libc::clock_gettime(clock, &mut t) == 0;
        told.then_some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }
}

/// Whoever ends of our children leaves nothing: for a process that waits for none of them.
pub fn ignore_children() {
    // SAFETY: plain integers; no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Resource usage of all children waited for so far.
pub fn children_usage() -> isotherm_wire::result::Usage {
    // SAFETY: rusage is plain data, zero is valid, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    isotherm_wire::result::Usage {
        user_us: us(usage.ru_utime),
        system_us: us(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss as u64 * 1024,
        major_faults: usage.ru_majflt as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    }
}

/// CPU time of all children waited for so far, ns.
pub fn waited_ns() -> u64 {
    let usage = children_usage();
    (usage.user_us + usage.system_us) * 1000
}

/// Do this when a signal comes, and go on; it has to be async-signal-safe. What is executed later has the signal's default again.
pub fn on_signal(signal: i32, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is an empty mask; the handler is a function that lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        check(libc::sigaction(signal, &action, std::ptr::null_mut())).map(drop)
    }
}

/// A descriptor that becomes readable when one of `signals` is pending; they are blocked for this thread from now on.
pub fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; the result is a new descriptor or −1.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Longest wait of one `ppoll`, ns: a `time_t` of 32 bits ends at 68 years.
const LONGEST_POLL_NS: u64 = 1_000_000_000_000_000_000;

/// Wait until one of the descriptors is readable or hung up, or the time is over; true per descriptor that is. `None` = wait for ever.
/// A wait of more than 31 years ends early.
pub fn poll_readable(fds: &[RawFd], timeout_ns: Option<u64>) -> Vec<bool> {
    let mut list: Vec<libc::pollfd> = fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = timeout_ns.map(|ns| ns.min(LONGEST_POLL_NS));
    let limit = limit.map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as libc::time_t, tv_nsec: (ns % 1_000_000_000) as _ });
    // SAFETY: `list` and `limit` live through the call; an interrupted wait reads as "nothing yet".
    let n = unsafe { libc::ppoll(list.as_mut_ptr(), list.len() as libc::nfds_t, limit.as_ref().map_or(std::ptr::null(), |l| l), std::ptr::null()) };
    list.iter().map(|p| n > 0 && p.revents != 0).collect()
}

/// `(read end, write end)`, close-on-exec.
pub fn pipe() -> io::Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors; both are new and ours.
    unsafe {
        check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])))
    }
}

/// Give a file this many bytes of blocks, really; `EOPNOTSUPP` where its file system can't.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: a valid descriptor and plain integers.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads of this end never wait; the other end isn't touched.
pub fn set_nonblocking(file: &File) -> io::Result<()> {
    // SAFETY: a live descriptor and plain integers.
    unsafe {
        let flags = check(libc::fcntl(file.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK)).map(drop)
    }
}

/// Is there a byte to read, which stays there? False at the end of the stream. Waits for one of the two.
pub fn has_more(stream: &UnixStream) -> bool {
    let mut byte = 0u8;
    // SAFETY: a live socket and a buffer of one byte.
    unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK) > 0 }
}

/// Open a regular file for reading. Anything else is an error at once: a FIFO without a writer, say, would hold us for ever.
pub fn open_regular(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// Read at offset 0 without moving the file's position; the number of bytes read.
pub fn pread(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    use std::os::unix::fs::FileExt;
    file.read_at(buffer, 0)
}

/// Connect to a socket in a directory, however long its path is (`sun_path` holds 108 bytes).
pub fn connect_in(dir: &Path, name: &str) -> io::Result<UnixStream> {
    let dir = File::open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Listen on a socket in a directory, replacing one whose owner is gone. The caller holds the lease, so nobody else listens there.
pub fn listen_in(dir: &Path, name: &str) -> io::Result<UnixListener> {
    match std::fs::remove_file(dir.join(name)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let handle = File::open(dir)?;
    // SAFETY: plain integers. Only this process's file creation in this instant; the keeper is still single-threaded here.
    let old = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd()));
    // SAFETY: as above.
    unsafe { libc::umask(old) };
    listener
}

/// File system type of a path, `f_type` of statfs(2): 32 bits on every architecture, whatever type and sign it has there.
pub fn filesystem_type(path: &Path) -> io::Result<u32> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a valid C string and a buffer that the kernel fills.
    unsafe {
        // The 64-bit form: the other one refuses large file systems where `long` has 32 bits.
        let mut buffer: libc::statfs64 = std::mem::zeroed();
        check(libc::statfs64(path.as_ptr(), &mut buffer))?;
        Ok(buffer.f_type as u32)
    }
}

/// May we make files in this directory?
pub fn may_write(dir: &Path) -> io::Result<()> {
    access(dir, libc::W_OK | libc::X_OK)
}

/// May we execute this file?
pub fn may_execute(file: &Path) -> io::Result<()> {
    access(file, libc::X_OK)
}

fn access(path: &Path, mode: libc::c_int) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a valid C string and plain integers.
    check(unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) }).map(drop)
}

/// Its time of access is now, by the clock of the file system that it lies on.
pub fn note_access(file: &File) -> io::Result<()> {
    let [now, as_it_is] = [libc::UTIME_NOW, libc::UTIME_OMIT].map(|tv_nsec| libc::timespec { tv_sec: 0, tv_nsec });
    // SAFETY: the kernel reads two times.
    check(unsafe { libc::futimens(file.as_raw_fd(), [now, as_it_is].as_ptr()) }).map(drop)
}

/// Room on the file system of a path, as `df` tells it, without what is kept for root: bytes, and files where it counts them.
pub fn free_space(path: &Path) -> io::Result<(u64, Option<u64>)> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a valid C string and a buffer that the kernel fills.
    let stat = unsafe {
        let mut buffer: libc::statvfs64 = std::mem::zeroed();
        check(libc::statvfs64(path.as_ptr(), &mut buffer))?;
        buffer
    };
    // A word where it is the size of a block: 32 bits on armv7.
    #[cfg_attr(target_pointer_width = "64", expect(clippy::useless_conversion, reason = "u32 elsewhere"))]
    let block = u64::from(stat.f_frsize);
    Ok((stat.f_bavail.saturating_mul(block), (stat.f_files > 0).then_some(stat.f_favail)))
}

/// CPUs of our affinity mask, ascending.
pub fn affinity() -> Option<Vec<usize>> {
    // SAFETY: cpu_set_t is plain data that the kernel fills.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return None;
        }
        Some((0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect())
    }
}

/// Keep this process, and what it starts, to these CPUs; all of them, or it is an error.
pub fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    let wanted: Vec<usize> = cpus.iter().map(|&cpu| cpu as usize).collect();
    if let Some(absent) = wanted.iter().find(|&&cpu| cpu >= libc::CPU_SETSIZE as usize) {
        return Err(io::Error::other(format!("there is no CPU {absent}")));
    }
    // SAFETY: cpu_set_t is plain data; the indices are below its size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in &wanted {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel leaves out, without a word, what the cpuset doesn't have.
    match affinity() {
        Some(now) if now == wanted => Ok(()),
        now => Err(io::Error::other(format!("the system allows {}", now.map_or_else(|| "unknown CPUs".into(), |now| cpu_list(&now))))),
    }
}

pub fn nice() -> i32 {
    // SAFETY: plain integers; −1 is a legal answer.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

pub struct Uname {
    pub release: String,
    pub version: String,
    pub machine: String,
    pub hostname: String,
}

pub fn uname() -> Uname {
    // SAFETY: utsname is plain data; the kernel ends each field with NUL.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        name
    };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> = field.iter().take_while(|&&c| c != 0).map(|c| c.to_ne_bytes()[0]).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Uname { release: text(&name.release), version: text(&name.version), machine: text(&name.machine), hostname: text(&name.nodename) }
}

/// `0-3,6` from an ascending list.
pub fn cpu_list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> = ranges.iter().map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    texts.join(",")
}

/// Number of CPUs in a list like `0-3,6`; `None` if it isn't one.
pub fn cpu_count(list: &str) -> Option<u32> {
    let list = list.trim();
    if list.is_empty() {
        return None;
    }
    list.split(',').try_fold(0u32, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_written_and_counted() {
        assert_eq!(cpu_list(&[0, 1, 2, 6, 8, 9]), "0-2,6,8-9");
        assert_eq!(cpu_count("0-2,6,8-9\n"), Some(6));
        for none in ["", "3-1", "0-4294967295", "0-4294967294,0", "-1"] {
            assert_eq!(cpu_count(none), None, "{none}");
        }
    }
}
