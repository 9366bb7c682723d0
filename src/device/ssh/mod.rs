//! The `ssh` transport: the user's own OpenSSH client connects, with its configuration, agent and jump hosts; a shell there becomes the agent.
//!
//! One client has one connection with one channel, from the first look for the agent to the last frame of the session.

mod client;
mod deploy;
mod fault;

use super::agents::AgentError;
use super::link::{END_TIMEOUT, Leave, Link, Role, Unheard, heard, saying};
use super::{DeviceError, agent};
use crate::config::model::Ssh;
use deploy::{Fault, Order};
use fault::Unreachable;
use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A device that takes the agent moves on within this time: it is connected and answers, or takes some more of what it is sent. Writing that
/// to a slow card is what takes longest, and a login through jump hosts.
const SILENCE: Duration = Duration::from_secs(120);
/// What the client itself ends with; all else is its shell's.
const NO_CONNECTION: i32 = 255;

/// Connect, bring the agent there if it isn't, and start it in a role, unless we are to `leave` before that.
pub fn start(device: &str, ssh: &Ssh, role: Role, nonce: &str, leave: Leave<'_>) -> Result<Link, DeviceError> {
    let unreachable =
        |Unreachable { reason, hint, passing }| DeviceError::Unreachable { device: device.into(), host: ssh.host.clone(), reason, hint, passing };
    let destination = client::destination(ssh);
    let client = client::start(ssh).and_then(Link::of_child).map_err(|e| unreachable(fault::not_started(&e, &destination)))?;
    let Link { stdin, stdout, words, mut process, .. } = client;
    let order = Order { nonce: nonce.to_owned(), role, bin_dir: ssh.bin_dir.clone(), state_dir: ssh.state_dir.clone() };
    match become_agent(stdin, stdout, order, SILENCE, leave) {
        Ok((stdin, stdout, unfit)) => Ok(Link { stdin, stdout, words, unfit, process }),
        Err(NoAgent::Left) => Err(DeviceError::Left { device: device.into() }),
        Err(NoAgent::Because(fault, is_connected)) => {
            // Its streams are closed by now: what it has to say ends.
            let (status, said) = (process.ended(END_TIMEOUT), words.last());
            Err(match fault {
                Fault::NoAgent(source) => DeviceError::NoAgentFor { device: device.into(), source },
                Fault::Refused(why) => DeviceError::Deploy { device: device.into(), reason: why.join("; ") },
                Fault::Broken(_) if !is_connected && status.is_some_and(|status| status.code().unwrap_or(NO_CONNECTION) == NO_CONNECTION) => {
                    unreachable(fault::unreachable(&said, &destination))
                }
                Fault::Broken(e) => DeviceError::NoAnswer { device: device.into(), reason: saying(e, &said) },
            })
        }
    }
}

/// The streams of an agent, and why it does without a companion that it needs and that is there.
type Started = (File, BufReader<File>, Option<Arc<AgentError>>);

#[derive(Debug)]
enum NoAgent {
    Left,
    /// And whether anything has come from there.
    Because(Fault, bool),
}

/// In a thread of its own: one that hangs, in a write to a device that takes nothing, is left behind and ends with the connection.
fn become_agent(mut stdin: File, mut stdout: BufReader<File>, order: Order, silence: Duration, leave: Leave<'_>) -> Result<Started, NoAgent> {
    let (tell, told) = channel();
    let work = move || {
        let deployed = deploy::deploy(&mut stdin, &mut stdout, &order, deploy::programs, || _ = tell.send(None));
        let _ = tell.send(Some(deployed.map(|unfit| (stdin, stdout, unfit))));
    };
    thread::Builder::new().name("deploy".into()).spawn(work).map_err(|e| NoAgent::Because(e.into(), false))?;
    let mut is_connected = false;
    loop {
        match heard(&told, silence, leave) {
            Ok(None) => is_connected = true,
            Ok(Some(outcome)) => return outcome.map_err(|fault| NoAgent::Because(fault, is_connected)),
            Err(Unheard::Left) => return Err(NoAgent::Left),
            Err(_) => {
                let silence = format!("nothing was heard of its shell for {} s", silence.as_secs());
                return Err(NoAgent::Because(io::Error::new(io::ErrorKind::TimedOut, silence).into(), is_connected));
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
    fn after(said: &str, silence: Duration, leave: Leave<'_>) -> NoAgent {
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
            let NoAgent::Because(silent, is_connected) = after(&said, Duration::from_millis(300), NEVER) else { panic!("{said}") };
            assert_eq!((silent.to_string().as_str(), is_connected), ("nothing was heard of its shell for 0 s", !said.is_empty()));
            assert!(matches!(after(&said, Duration::from_secs(3600), &|| true), NoAgent::Left), "{said}");
        }
    }
}
