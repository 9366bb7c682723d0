//! The `ssh` transport: the user's own OpenSSH client connects, with its configuration, agent and jump hosts; a shell there becomes the agent.
//!
//! One connection has one channel, from the first look for the agent to the last frame of the session. What connects is asynchronous, and
//! stays in this room: the streams are pipes that anybody can read and write.

mod connection;
mod deploy;
mod fault;
mod master;

use super::agents::AgentError;
use super::link::{End, Leave, Link, Role, Unheard, heard, last_words, saying};
use super::{DeviceError, agent};
use crate::config::model::Ssh;
use connection::{Connection, Streams};
use deploy::{Fault, Order};
use fault::Unreachable;
use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A device that takes the agent moves on within this time: it answers, or takes some more of what it is sent. Writing that to a slow card is
/// what takes longest.
const SILENCE: Duration = Duration::from_secs(120);

/// Connect, bring the agent there if it isn't, and start it in a role, unless we are to `leave` before that.
pub fn start(device: &str, ssh: &Ssh, role: Role, nonce: &str, leave: Leave<'_>) -> Result<Link, DeviceError> {
    let left = || DeviceError::Left { device: device.into() };
    let (mut connection, Streams { stdin, stdout, stderr, log }) = Connection::open(ssh, leave).map_err(|fault| match fault {
        connection::Fault::Unreachable(Unreachable { reason, hint, passing }) => {
            DeviceError::Unreachable { device: device.into(), host: ssh.host.clone(), reason, hint, passing }
        }
        connection::Fault::Left => left(),
    })?;
    let order = Order { nonce: nonce.to_owned(), role, bin_dir: ssh.bin_dir.clone(), state_dir: ssh.state_dir.clone() };
    match become_agent(stdin, stdout, order, SILENCE, leave) {
        Ok((stdin, stdout, unfit)) => Ok(Link { stdin, stdout, stderr, log, unfit, end: Box::new(connection) }),
        Err(Fault::Left) => Err(left()),
        Err(fault) => {
            // Its streams are closed by now: what it has to say ends.
            let words = last_words(stderr, &log, &mut connection);
            connection.now();
            Err(match fault {
                Fault::NoAgent(source) => DeviceError::NoAgentFor { device: device.into(), source },
                Fault::Refused(why) => DeviceError::Deploy { device: device.into(), reason: why.join("; ") },
                Fault::Broken(e) => DeviceError::NoAnswer { device: device.into(), reason: saying(e, &words) },
                Fault::Left => left(),
            })
        }
    }
}

/// The streams of an agent, and why it does without a companion that it needs and that is there.
type Started = (File, BufReader<File>, Option<Arc<AgentError>>);

/// In a thread of its own: one that hangs, in a write to a device that takes nothing, is left behind and ends with the connection.
fn become_agent(mut stdin: File, mut stdout: BufReader<File>, order: Order, silence: Duration, leave: Leave<'_>) -> Result<Started, Fault> {
    let (tell, told) = channel();
    thread::Builder::new().name("deploy".into()).spawn(move || {
        let deployed = deploy::deploy(&mut stdin, &mut stdout, &order, deploy::programs, || _ = tell.send(None));
        let _ = tell.send(Some(deployed.map(|unfit| (stdin, stdout, unfit))));
    })?;
    loop {
        match heard(&told, silence, leave) {
            Ok(None) => {}
            Ok(Some(outcome)) => return outcome,
            Err(Unheard::Left) => return Err(Fault::Left),
            Err(_) => {
                let silence = format!("nothing was heard of its shell for {} s", silence.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, silence).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::device::NEVER;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    /// What becomes of a shell that has said this, and then neither says anything nor takes what it is sent.
    fn after(said: &str, silence: Duration, leave: Leave<'_>) -> Fault {
        let ((their_stdin, stdin), (stdout, mut their_stdout)) = (io::pipe().unwrap(), io::pipe().unwrap());
        their_stdout.write_all(said.as_bytes()).unwrap();
        let order = Order { nonce: "0123abcd".into(), role: Role::Serve, bin_dir: None, state_dir: None };
        let stdout = BufReader::new(File::from(OwnedFd::from(stdout)));
        let fault = become_agent(File::from(OwnedFd::from(stdin)), stdout, order, silence, leave).map(|_| ()).unwrap_err();
        drop((their_stdin, their_stdout));
        fault
    }

    #[test]
    fn a_shell_that_falls_silent_is_given_up_and_whoever_is_to_leave_does_not_wait_for_it() {
        let machine = format!("0123abcd machine {} 64 -\n", std::env::consts::ARCH);
        // Before its first word, behind it, and in the middle of a copy: more than a pipe takes.
        for said in [String::new(), machine.clone(), format!("{machine}0123abcd send isotherm-agent\n")] {
            let silent = after(&said, Duration::from_millis(300), NEVER);
            assert_eq!(silent.to_string(), "nothing was heard of its shell for 0 s", "{said}");
            assert!(matches!(after(&said, Duration::from_secs(3600), &|| true), Fault::Left), "{said}");
        }
    }
}
