//! OpenSSH's client as the master of a connection: takes how a device is reached, gives the directory of its socket once it is connected.
//!
//! It has a process group of its own: a terminal's Ctrl-C is for us to hear, and with it ends what it has started to get through jump hosts.

use super::agent;
use crate::config::model::Ssh;
use crate::device::link::{Leave, Unheard, end_of, heard};
use crate::shell;
use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Replaces [`ALIVE`], for tests that cut a link.
const ALIVE_VARIABLE: &str = "ISOTHERM_SSH_ALIVE_S";
/// A silent device is asked so often whether it is there; a first contact that takes longer ends.
const ALIVE: Duration = Duration::from_secs(15);
/// So many questions in a row without an answer end a connection.
const UNANSWERED: u32 = 3;
/// Through jump hosts and a slow login, at most.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(120);
/// A master that nobody uses ends after so many seconds: that of a controller which was killed.
const IDLE_S: u32 = 10;
/// Begin of the name of a master's directory.
const PREFIX: &str = "master-";
/// Nothing is asked, by nobody's window and by no jump host: what would ask says no.
const NO_QUESTIONS: [(&str, &str); 2] = [("SSH_ASKPASS", "false"), ("SSH_ASKPASS_REQUIRE", "force")];

/// Why there is no connection.
#[derive(Debug)]
pub enum Fault {
    /// There is no such program here.
    NoSsh,
    /// It ended, with these words.
    Refused(String),
    Late,
    Left,
    Broken(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        if error.kind() == io::ErrorKind::NotFound { Fault::NoSsh } else { Fault::Broken(error) }
    }
}

/// Connect, with the socket of the master in a directory of its own below `dir`.
///
/// # Errors
/// [`Fault`]; nothing of it is left.
pub fn start(ssh: &Ssh, dir: &Path, leave: Leave<'_>) -> Result<TempDir, Fault> {
    let place = tempfile::Builder::new().prefix(PREFIX).tempdir_in(dir).map_err(Fault::Broken)?;
    let mut command = Command::new("ssh");
    command.args(arguments(ssh, place.path())).envs(NO_QUESTIONS).process_group(0);
    // Whoever ends us while it connects ends it as well. Once it is connected it has left us, and nobody's death is told to it.
    // SAFETY: one system call, and no memory of ours is touched.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
    // What it says before it has opened its log belongs there, too.
    let log = place.path().join("log");
    let stderr = File::options().create(true).append(true).open(&log).map_err(Fault::Broken)?;
    let mut client = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn()?;
    // It goes into the background as soon as it is connected.
    match end_of(&client).map(|ended| heard(&ended, CONNECT_LIMIT, leave)) {
        Ok(Ok(()) | Err(Unheard::Gone)) => {
            if client.wait()?.success() {
                return Ok(place);
            }
            let said = fs::read(log).map_err(Fault::Broken)?;
            Err(Fault::Refused(String::from_utf8_lossy(&said).into_owned()))
        }
        Ok(Err(why)) => {
            end(&mut client);
            Err(if why == Unheard::Left { Fault::Left } else { Fault::Late })
        }
        Err(e) => {
            end(&mut client);
            Err(Fault::Broken(e))
        }
    }
}

/// With what it has started. It was not reaped yet, so the group is its own.
fn end(client: &mut Child) {
    let _ = kill_process_group(Pid::from_child(client), Signal::KILL);
    let _ = client.wait();
}

fn arguments(ssh: &Ssh, place: &Path) -> Vec<OsString> {
    let alive = std::env::var(ALIVE_VARIABLE).ok().and_then(|s| s.parse().ok()).unwrap_or(ALIVE.as_secs());
    let mut arguments = vec!["-E".into(), place.join("log").into(), "-S".into(), place.join("master").into()];
    arguments.extend(["-M", "-f", "-N"].map(OsString::from));
    let mut set = |option: &str, value: &str| arguments.extend(["-o".to_owned(), format!("{option}={value}")].map(OsString::from));
    set("ControlPersist", &format!("{IDLE_S}s"));
    set("BatchMode", "yes");
    set("StrictHostKeyChecking", "yes");
    set("ConnectTimeout", &alive.to_string());
    set("ServerAliveInterval", &alive.to_string());
    set("ServerAliveCountMax", &UNANSWERED.to_string());
    // What it says is told, whatever the user has it say elsewhere, and no traffic but ours is in a window.
    set("LogLevel", "INFO");
    set("ClearAllForwardings", "yes");
    if ssh.identity_file.is_some() {
        // That one, and no other that an agent may have.
        set("IdentitiesOnly", "yes");
    }
    arguments.extend(target(ssh));
    arguments
}

/// Arguments of `ssh` that reach the device.
fn target(ssh: &Ssh) -> Vec<OsString> {
    let Ssh { host, user, port, identity_file, proxy_jump, config, bin_dir: _, state_dir: _ } = ssh;
    let file = |path: &Option<_>| path.as_ref().map(|path| agent::expand_home(path).into_os_string());
    let options = [
        ("-F", file(config)),
        ("-i", file(identity_file)),
        ("-p", port.map(|port| port.to_string().into())),
        ("-J", proxy_jump.clone().map(OsString::from)),
    ];
    let options = options.into_iter().filter_map(|(name, value)| Some([name.into(), value?])).flatten();
    let machine = user.iter().map(|user| format!("{user}@")).chain([host.clone()]).collect::<String>();
    options.chain([machine.into()]).collect()
}

/// The same, to be pasted.
pub fn destination(ssh: &Ssh) -> String {
    target(ssh).iter().map(shell::word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
