//! The `ssh` transport: the user's own OpenSSH client connects, with its configuration, agent and jump hosts; a shell there becomes the agent.
//!
//! One connection has one channel, from the first look for the agent to the last frame of the session. What connects is asynchronous, and
//! stays in this room: the streams are pipes that anybody can read and write.

mod connection;
mod deploy;
mod fault;

use super::agents::AgentError;
use super::link::{End, Link, Role, last_words, saying};
use super::{DeviceError, agent};
use crate::config::model::Ssh;
use connection::{Connection, Streams};
use deploy::{Fault, Order};
use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A device that takes the agent moves on within this time: it answers, or takes some more of what it is sent. Writing that to a slow card is
/// what takes longest.
const SILENCE: Duration = Duration::from_secs(120);

/// Connect, bring the agent there if it isn't, and start it in a role.
pub fn start(device: &str, ssh: &Ssh, role: Role, nonce: &str) -> Result<Link, DeviceError> {
    let unreachable = |fault::Unreachable { reason, hint, passing }| DeviceError::Unreachable {
        device: device.into(),
        host: ssh.host.clone(),
        reason,
        hint,
        passing,
    };
    let (mut connection, Streams { stdin, stdout, stderr, log }) = Connection::open(ssh).map_err(unreachable)?;
    let order = Order { nonce: nonce.to_owned(), role, bin_dir: ssh.bin_dir.clone(), state_dir: ssh.state_dir.clone() };
    match become_agent(stdin, stdout, order) {
        Ok((stdin, stdout, unfit)) => Ok(Link { stdin, stdout, stderr, log, unfit, end: Box::new(connection) }),
        Err(fault) => {
            // Its streams are closed by now: what it has to say ends.
            let words = last_words(stderr, &log, &mut connection);
            connection.now();
            Err(match fault {
                Fault::NoAgent(source) => DeviceError::NoAgentFor { device: device.into(), source },
                Fault::Refused(why) => DeviceError::Deploy { device: device.into(), reason: why.join("; ") },
                Fault::Broken(e) => DeviceError::NoAnswer { device: device.into(), reason: saying(e, &words) },
            })
        }
    }
}

/// The streams of an agent, and why it does without a companion that it needs and that is there.
type Started = (File, BufReader<File>, Option<Arc<AgentError>>);

/// In a thread of its own: one that hangs, in a write to a device that takes nothing, is left behind and ends with the connection.
fn become_agent(mut stdin: File, mut stdout: BufReader<File>, order: Order) -> Result<Started, Fault> {
    let (tell, told) = channel();
    thread::Builder::new().name("deploy".into()).spawn(move || {
        let deployed = deploy::deploy(&mut stdin, &mut stdout, &order, deploy::programs, || _ = tell.send(None));
        let _ = tell.send(Some(deployed.map(|unfit| (stdin, stdout, unfit))));
    })?;
    loop {
        match told.recv_timeout(SILENCE) {
            Ok(None) => {}
            Ok(Some(outcome)) => return outcome,
            Err(_) => {
                let silence = format!("nothing was heard of its shell for {} s", SILENCE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, silence).into());
            }
        }
    }
}
