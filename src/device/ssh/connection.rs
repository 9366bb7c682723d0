//! A connection by OpenSSH's client, and the one shell on it: takes how a device is reached, gives three pipes and what ends them.
//!
//! The client runs as a master in the background, on a socket in a private directory, and is told by that to end. It dies by itself when
//! the device is silent for too long, or when we are gone.

use super::agent;
use super::fault::{self, Unreachable};
use crate::config::model::Ssh;
use crate::device::link::{End, Log};
use crate::shell;
use openssh::{ControlPersist, Error, KnownHosts, Session, SessionBuilder};
use std::error::Error as _;
use std::fs::File;
use std::io::{self, BufReader};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Replaces [`ALIVE`], for tests that cut a link.
const ALIVE_VARIABLE: &str = "ISOTHERM_SSH_ALIVE_S";
/// A silent device is asked so often whether it is there; the third question without an answer ends the connection, and so does a first
/// contact that takes longer.
const ALIVE: Duration = Duration::from_secs(15);
/// Through jump hosts and a slow login, at most.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);
/// The connection is there; a shell is a channel of it.
const SHELL_LIMIT: Duration = Duration::from_secs(60);
/// A master that nobody uses ends after so many seconds: that of a controller which was killed.
const IDLE_S: NonZeroUsize = NonZeroUsize::new(10).expect("ten");
/// Longer paths of a directory leave no room for the socket in it: the kernel takes 107 bytes, and the client adds up to 48.
const LONGEST_DIR: usize = 58;
/// A directory without its socket that is older than this was left by somebody: connecting takes less.
const ABANDONED: Duration = Duration::from_secs(3600);
/// What every device is asked to execute. What it means is the same for bash, dash, ash, fish and csh.
const SHELL: &str = "exec /bin/sh";

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
    /// Connect and start a shell.
    ///
    /// # Errors
    /// In ssh's words where it is the one that fails.
    pub fn open(ssh: &Ssh) -> Result<(Connection, Streams), Unreachable> {
        let destination = destination(ssh);
        let ours = |what: &str, e: &dyn std::fmt::Display| Unreachable {
            reason: format!("{what}: {e}"),
            hint: format!("try `ssh {destination}`"),
            passing: true,
        };
        let dir = control_dir().map_err(|e| ours("no directory for ssh's socket", &e))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| ours("no runtime for ssh", &e))?;
        let session = runtime.block_on(async { timeout(CONNECT_LIMIT, builder(ssh, &dir).connect_mux(&ssh.host)).await });
        let session = match session {
            Ok(Ok(session)) => Arc::new(session),
            Ok(Err(Error::Connect(e))) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Unreachable {
                    reason: "there is no program `ssh` here".into(),
                    hint: "install OpenSSH's client: apt install openssh-client".into(),
                    passing: false,
                });
            }
            Ok(Err(Error::Connect(e))) => return Err(fault::unreachable(&e.to_string(), &destination)),
            Ok(Err(e)) => return Err(ours("ssh", &chain(&e))),
            Err(_) => return Err(ours("ssh", &format!("no connection within {} s", CONNECT_LIMIT.as_secs()))),
        };
        let pipes = || -> io::Result<_> { Ok((io::pipe()?, io::pipe()?, io::pipe()?)) };
        let ((their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr)) = pipes().map_err(|e| ours("pipe", &e))?;
        let mut command = Session::to_raw_command(Arc::clone(&session), SHELL);
        command.stdin(OwnedFd::from(their_stdin)).stdout(OwnedFd::from(their_stdout)).stderr(OwnedFd::from(their_stderr));
        let shell = runtime.block_on(async { timeout(SHELL_LIMIT, command.spawn()).await });
        let log = Log(Some(session.control_socket().with_file_name("log")));
        let shell = match shell {
            Ok(Ok(shell)) => shell,
            Ok(Err(e)) => return Err(ours("no shell there", &format!("{}; {}", chain(&e), log.words()))),
            Err(_) => return Err(ours("no shell there", &format!("none within {} s", SHELL_LIMIT.as_secs()))),
        };
        // Only ssh has their ends now: when it closes them, we see it.
        drop(command);
        let file = |fd: OwnedFd| File::from(fd);
        let streams = Streams { stdin: file(stdin.into()), stdout: BufReader::new(file(stdout.into())), stderr: file(stderr.into()), log };
        Ok((Connection { shell: Some(Box::pin(async { _ = shell.wait().await })), session: Some(session), runtime }, streams))
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

fn builder(ssh: &Ssh, dir: &Path) -> SessionBuilder {
    let Ssh { host: _, user, port, identity_file, proxy_jump, config, bin_dir: _, state_dir: _ } = ssh;
    let alive = std::env::var(ALIVE_VARIABLE).ok().and_then(|s| s.parse().ok()).map_or(ALIVE, Duration::from_secs);
    let mut builder = SessionBuilder::default();
    builder.known_hosts_check(KnownHosts::Strict).server_alive_interval(alive).connect_timeout(alive);
    builder.control_directory(dir).control_persist(ControlPersist::IdleFor(IDLE_S));
    user.iter().for_each(|user| _ = builder.user(user.clone()));
    port.iter().for_each(|port| _ = builder.port(*port));
    identity_file.iter().for_each(|file| _ = builder.keyfile(agent::expand_home(file)));
    config.iter().for_each(|file| _ = builder.config_file(agent::expand_home(file)));
    builder.jump_hosts(proxy_jump.iter().flat_map(|hosts| hosts.split(',')));
    builder
}

/// Arguments of `ssh` that reach the device, to be pasted.
fn destination(ssh: &Ssh) -> String {
    let mut words = Vec::new();
    let mut option = |name: &str, value: Option<String>| words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    let file = |path: &Option<PathBuf>| path.as_ref().map(|path| shell::word(agent::expand_home(path)));
    option("-F", file(&ssh.config));
    option("-i", file(&ssh.identity_file));
    option("-p", ssh.port.map(|port| port.to_string()));
    option("-J", ssh.proxy_jump.clone());
    words.push(ssh.user.iter().map(|user| format!("{user}@")).chain([ssh.host.clone()]).collect());
    words.join(" ")
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

    #[test]
    fn what_reaches_a_device_can_be_pasted() {
        let ssh = Ssh {
            host: "pi5".into(),
            user: Some("pi".into()),
            port: Some(2222),
            identity_file: Some("/keys/of the lab".into()),
            proxy_jump: Some("gate,inner".into()),
            config: Some("/lab/ssh_config".into()),
            ..Ssh::default()
        };
        assert_eq!(destination(&ssh), "-F /lab/ssh_config -i '/keys/of the lab' -p 2222 -J gate,inner pi@pi5");
        assert_eq!(destination(&Ssh { host: "pi5".into(), ..Ssh::default() }), "pi5");
    }
}
