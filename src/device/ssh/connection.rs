//! A connection by OpenSSH's client, and the one shell on it: takes how a device is reached, gives three pipes and what ends them.
//!
//! The client runs as a master in the background, on a socket in a private directory, and is told by that to end. It dies by itself when
//! the device is silent for too long, or when we are gone.

use super::fault::{self, Unreachable};
use super::{agent, master};
use crate::config::model::Ssh;
use crate::device::link::{End, LEAVE_AGAIN, Leave, Log, Unheard};
use openssh::{Error, Session};
use std::error::Error as _;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The connection is there; a shell is a channel of it.
const SHELL_LIMIT: Duration = Duration::from_secs(60);
/// Longer paths of a directory leave no room for the socket in it: the kernel takes 107 bytes, and the client adds up to 48.
const LONGEST_DIR: usize = 58;
/// A directory without its socket that is older than this was left by somebody: connecting takes less.
const ABANDONED: Duration = Duration::from_secs(3600);
/// What every device is asked to execute. What it means is the same for bash, dash, ash, fish and csh.
const SHELL: &str = "exec /bin/sh";

/// Why there is no shell.
pub enum Fault {
    Unreachable(Unreachable),
    Left,
}

/// The streams of the shell.
pub struct Streams {
    pub stdin: File,
    pub stdout: BufReader<File>,
    pub stderr: File,
    /// What the client says of itself.
    pub log: Log,
}

/// Dropped, it ends: the channel first, then the master.
pub struct Connection {
    /// Its end; `None` once it was seen.
    shell: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    session: Option<Arc<Session>>,
    runtime: Runtime,
}

impl Connection {
    /// Connect and start a shell, unless we are to `leave` before that.
    ///
    /// # Errors
    /// In ssh's words where it is the one that fails.
    pub fn open(ssh: &Ssh, leave: Leave<'_>) -> Result<(Connection, Streams), Fault> {
        let destination = master::destination(ssh);
        let ours = |what: &str, e: &dyn std::fmt::Display| {
            Fault::Unreachable(Unreachable { reason: format!("{what}: {e}"), hint: format!("try `ssh {destination}`"), passing: true })
        };
        let dir = control_dir().map_err(|e| ours("no directory for ssh's socket", &e))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| ours("no runtime for ssh", &e))?;
        let place = master::start(ssh, &dir, leave).map_err(|fault| match fault {
            master::Fault::NoSsh => Fault::Unreachable(Unreachable {
                reason: "there is no program `ssh` here".into(),
                hint: "install OpenSSH's client: apt install openssh-client".into(),
                passing: false,
            }),
            master::Fault::Refused(words) => Fault::Unreachable(fault::unreachable(&words, &destination)),
            master::Fault::Late => ours("ssh", &format!("no connection within {} s", master::CONNECT_LIMIT.as_secs())),
            master::Fault::Left => Fault::Left,
            master::Fault::Broken(e) => ours("ssh", &e),
        })?;
        let log = Log(Some(place.path().join("log")));
        let session = Arc::new(Session::new_native_mux(place));
        let pipes = || -> io::Result<_> { Ok((io::pipe()?, io::pipe()?, io::pipe()?)) };
        let ((their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr)) = pipes().map_err(|e| ours("pipe", &e))?;
        let mut command = Session::to_raw_command(Arc::clone(&session), SHELL);
        command.stdin(OwnedFd::from(their_stdin)).stdout(OwnedFd::from(their_stdout)).stderr(OwnedFd::from(their_stderr));
        let shell = match runtime.block_on(finished(command.spawn(), SHELL_LIMIT, leave)) {
            Ok(Ok(shell)) => shell,
            Ok(Err(e)) => return Err(ours("no shell there", &format!("{}; {}", chain(&e), log.words()))),
            Err(Unheard::Left) => return Err(Fault::Left),
            Err(_) => return Err(ours("no shell there", &format!("none within {} s", SHELL_LIMIT.as_secs()))),
        };
        // Only ssh has their ends now: when it closes them, we see it.
        drop(command);
        let file = |fd: OwnedFd| File::from(fd);
        let streams = Streams { stdin: file(stdin.into()), stdout: BufReader::new(file(stdout.into())), stderr: file(stderr.into()), log };
        Ok((Connection { shell: Some(Box::pin(async { _ = shell.wait().await })), session: Some(session), runtime }, streams))
    }
}

/// What comes of it within the limit, unless we are to leave before that.
async fn finished<T>(work: impl Future<Output = T>, limit: Duration, leave: Leave<'_>) -> Result<T, Unheard> {
    let mut work = pin!(work);
    let until = Instant::now() + limit;
    loop {
        match timeout(LEAVE_AGAIN, &mut work).await {
            Ok(done) => return Ok(done),
            Err(_) if leave() => return Err(Unheard::Left),
            Err(_) if Instant::now() >= until => return Err(Unheard::Late),
            Err(_) => {}
        }
    }
}

impl End for Connection {
    fn within(&mut self, limit: Duration) -> bool {
        let Some(shell) = &mut self.shell else { return true };
        let ended = self.runtime.block_on(async { timeout(limit, shell).await }).is_ok();
        if ended {
            self.shell = None;
        }
        ended
    }

    fn now(&mut self) {
        self.shell = None;
        self.session = None;
    }
}

/// An error with what is behind it.
fn chain(error: &Error) -> String {
    let behind = std::iter::successors(error.source(), |&error| error.source());
    behind.fold(error.to_string(), |told, error| format!("{told}: {error}"))
}

/// Where sockets of masters lie: ours alone, with a short path.
fn control_dir() -> io::Result<PathBuf> {
    let name = format!("isotherm-{}", rustix::process::geteuid().as_raw());
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join(&name));
    let dir = given.filter(|dir| dir.is_absolute() && dir.as_os_str().as_bytes().len() <= LONGEST_DIR && dir.parent().is_some_and(Path::is_dir));
    let dir = dir.unwrap_or_else(|| Path::new("/tmp").join(&name));
    agent::private_dir(&dir).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", dir.display())))?;
    remove_abandoned(&dir);
    Ok(dir)
}

/// What controllers that were killed have left: the socket goes with its master, the directory around it stays.
fn remove_abandoned(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > ABANDONED) && !entry.path().join("master").exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs::{self, FileTimes};

    #[test]
    fn directories_of_masters_that_are_gone_are_removed_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        for (name, has_socket, is_old) in [("gone", false, true), ("alive", true, true), ("starting", false, false)] {
            let place = dir.path().join(name);
            fs::create_dir(&place).unwrap();
            if has_socket {
                fs::write(place.join("master"), "").unwrap();
            }
            let age = if is_old { ABANDONED * 2 } else { Duration::ZERO };
            let times = FileTimes::new().set_modified(std::time::SystemTime::now() - age);
            File::open(&place).unwrap().set_times(times).unwrap();
        }
        remove_abandoned(dir.path());
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["alive", "starting"]);
    }
}
