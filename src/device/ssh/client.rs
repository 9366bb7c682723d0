//! OpenSSH's client: takes how a device is reached, gives a process whose streams are those of a shell there once it is connected.

use super::agent;
use crate::config::model::Ssh;
use crate::shell;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Replaces [`ALIVE`], for tests that cut a link.
const ALIVE_VARIABLE: &str = "ISOTHERM_SSH_ALIVE_S";
/// A silent device is asked so often whether it is there; a first contact that takes longer ends.
const ALIVE: Duration = Duration::from_secs(15);
/// So many questions in a row without an answer end a connection.
const UNANSWERED: u32 = 3;
/// What every device is asked to execute. What it means is the same for bash, dash, ash, fish and csh.
const SHELL: &str = "exec /bin/sh";
/// Nothing is asked, by nobody's window and by no jump host: what would ask says no.
const NO_QUESTIONS: [(&str, &str); 2] = [("SSH_ASKPASS", "false"), ("SSH_ASKPASS_REQUIRE", "force")];

/// Start to connect. A terminal's Ctrl-C is for us to hear, so the client has a process group of its own, with what it starts to get through
/// jump hosts.
///
/// Whatever ends the calling thread ends it: a connection stays with who has opened it.
///
/// # Errors
/// There is no such program here, or no process more.
pub fn start(ssh: &Ssh) -> io::Result<Child> {
    let mut command = Command::new("ssh");
    command.args(arguments(ssh)).envs(NO_QUESTIONS).process_group(0);
    // SAFETY: one system call, and no memory of ours is touched.
    unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?)) };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn arguments(ssh: &Ssh) -> Vec<OsString> {
    let alive = std::env::var(ALIVE_VARIABLE).ok().and_then(|s| s.parse().ok()).unwrap_or(ALIVE.as_secs());
    // A connection of its own, and on it the shell alone: no terminal, no agent, no windows, no commands of the user's.
    let mut arguments: Vec<OsString> = ["-S", "none", "-T", "-a", "-x"].map(OsString::from).into();
    let mut set = |option: &str, value: &str| arguments.extend(["-o".to_owned(), format!("{option}={value}")].map(OsString::from));
    set("RemoteCommand", "none");
    set("PermitLocalCommand", "no");
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
    arguments.push(SHELL.into());
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
