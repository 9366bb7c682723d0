//! Processes beside the keeper: they look at something for it while a run is on, and are none of its children.
//!
//! That nothing of a run is left is proven by the keeper having no child any more, so whoever looks on must not be one: it is started as
//! a child of the keeper's own parent. Takes a program, gives its stdin and stdout and a handle that ends it; must not know what it does.

use crate::{processes, sys};
use std::ffi::{CString, c_char};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them: what they cost is the agent's.
static ALL: Mutex<All> = Mutex::new(All { pids: Vec::new(), ended_ns: 0 });

struct All {
    pids: Vec<i32>,
    /// CPU time of those that were ended.
    ended_ns: u64,
}

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// CPU time that all of them have used, with what they executed and waited for, ns.
pub fn cpu_ns() -> u64 {
    let all = all();
    all.pids.iter().filter_map(|pid| used_ns(*pid)).fold(all.ended_ns, u64::saturating_add)
}

fn used_ns(pid: i32) -> Option<u64> {
    let children = processes::children_ticks(pid)?.saturating_mul(1_000_000_000 / sys::ticks_per_s());
    Some(sys::cpu_ns_of(pid)?.saturating_add(children))
}

/// Is it one of them?
pub fn is_one(pid: u32) -> bool {
    all().pids.iter().any(|&one| one as u32 == pid)
}

/// A process beside this one. It has to end with its stdin; whoever hangs is ended by [`Handle::kill`].
pub struct Aside {
    pub stdin: File,
    pub stdout: File,
    pub handle: Arc<Handle>,
}

/// Ends a process beside this one: that one, and never another that has its number.
pub struct Handle {
    /// `None` before Linux 5.2, where closing its stdin has to do.
    pidfd: Option<sys::PidFd>,
    pid: i32,
}

impl Handle {
    pub fn kill(&self) {
        let mut all = all();
        if all.pids.contains(&self.pid) {
            all.ended_ns += used_ns(self.pid).unwrap_or(0);
            all.pids.retain(|&pid| pid != self.pid);
        }
        if let Some(pidfd) = &self.pidfd {
            pidfd.signal(libc::SIGKILL);
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.handle.kill();
    }
}

impl Aside {
    /// Start it with our environment; its stderr is `/dev/null`, so that it writes nothing while a run is measured.
    ///
    /// # Errors
    /// What the system says of starting it, in the words of exec(3) where that failed.
    pub fn start(program: &Path, args: &[&str]) -> io::Result<Aside> {
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let path = text(program.as_os_str().as_bytes().to_vec())?;
        let arguments = [Ok(path.clone())].into_iter().chain(args.iter().map(|arg| text(arg.as_bytes().to_vec()))).collect::<io::Result<Vec<_>>>()?;
        let variables = std::env::vars_os().map(|(name, value)| text([name.into_vec(), value.into_vec()].join(&b'=')));
        let variables = variables.collect::<io::Result<Vec<_>>>()?;
        let (argv, envp) = (pointers(&arguments), pointers(&variables));
        let (their_stdin, stdin) = sys::pipe()?;
        let (stdout, their_stdout) = sys::pipe()?;
        let (mut failed, their_failure) = sys::pipe()?;
        let null = File::options().write(true).open("/dev/null")?;
        let streams = [their_stdin.as_raw_fd(), their_stdout.as_raw_fd(), null.as_raw_fd()];
        let (pid, pidfd) = sys::start_sibling(|| {
            // Only what is async-signal-safe: the keeper has other threads, which are not here.
            // SAFETY: descriptors that are open, C strings and null-terminated lists that outlive the call.
            unsafe {
                for (to, from) in streams.into_iter().enumerate() {
                    libc::dup2(from, to as libc::c_int);
                }
                sys::standard_conditions();
                libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
                let errno = (*libc::__errno_location()).to_ne_bytes();
                libc::write(their_failure.as_raw_fd(), errno.as_ptr().cast(), errno.len());
            }
        })?;
        all().pids.push(pid);
        let aside = Aside { stdin, stdout, handle: Arc::new(Handle { pidfd, pid }) };
        drop(their_failure);
        let mut errno = [0; 4];
        // Closed by exec: then there is nothing to read.
        match failed.read_exact(&mut errno) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            Err(_) => Ok(aside),
        }
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::Write;

    #[test]
    fn who_looks_on_is_nobodys_child_here_and_ends_with_its_input_or_its_handle() {
        let mut aside = Aside::start(Path::new("/bin/cat"), &[]).unwrap();
        let pid = aside.handle.pid;
        aside.stdin.write_all(b"seen").unwrap();
        let mut seen = [0; 4];
        aside.stdout.read_exact(&mut seen).unwrap();
        assert_eq!((&seen, is_one(pid as u32)), (b"seen", true));
        assert!(!crate::processes::descendants(std::process::id() as i32).contains(&pid));
        aside.stdin = File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(aside.stdout.read(&mut seen).unwrap(), 0, "it ended with its input");
        let mut hangs = Aside::start(Path::new("/bin/sleep"), &["1000"]).unwrap();
        hangs.handle.kill();
        assert_eq!(hangs.stdout.read(&mut seen).unwrap(), 0);
    }

    #[test]
    fn what_one_of_them_executes_is_part_of_what_they_cost() {
        // Its child works for 10 ticks of its own time, then is waited for.
        let burn = "while read -r _ _ _ _ _ _ _ _ _ _ _ _ _ ticks _ < /proc/$$/stat; [ $ticks -lt 10 ]; do \
                    i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; done";
        let program = format!("sh -c '{burn}'; echo done; read end");
        let mut aside = Aside::start(Path::new("/bin/sh"), &["-c", &program]).unwrap();
        let mut said = [0; 4];
        aside.stdout.read_exact(&mut said).unwrap();
        let burnt_ns = 10 * 1_000_000_000 / sys::ticks_per_s();
        assert!(used_ns(aside.handle.pid).unwrap() >= sys::cpu_ns_of(aside.handle.pid).unwrap() + burnt_ns);
        assert!(cpu_ns() >= burnt_ns);
        drop(aside);
        assert!(cpu_ns() >= burnt_ns, "also after its end");
    }

    #[test]
    fn what_can_not_be_executed_is_an_error_with_the_systems_words() {
        let refused = |path: &str| Aside::start(Path::new(path), &[]).err().unwrap().kind();
        assert_eq!(refused("/nonexistent"), io::ErrorKind::NotFound);
        assert_eq!(refused("/"), io::ErrorKind::PermissionDenied);
    }
}
