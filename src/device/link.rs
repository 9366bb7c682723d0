//! A connection to an agent that was just started: its three streams, and what ends it.
//!
//! A transport gives one. Must not know what is said over it.

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// What an agent is started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The near end of a session with the keeper.
    Serve,
    /// One question and one answer, beside whatever keeper there is.
    Probe,
}

/// The streams of an agent, and what holds them open. It has not answered yet.
pub struct Link {
    pub stdin: File,
    pub stdout: BufReader<File>,
    pub stderr: File,
    pub end: Box<dyn End>,
}

/// What holds a link open. Dropping it leaves the keeper, and a run, as they are.
pub trait End: Send {
    /// Wait until the agent has ended by itself, so long at the most: has it?
    fn within(&mut self, limit: Duration) -> bool;

    /// End it.
    fn now(&mut self);

    /// What the transport itself has to say of how it went; mostly nothing.
    fn words(&self) -> String {
        String::new()
    }
}

impl Link {
    /// Of a process of this machine, started with pipes for all three.
    ///
    /// # Errors
    /// One of its streams is no pipe.
    pub fn of_child(mut child: Child) -> io::Result<Link> {
        let gone = || io::Error::other("its streams are not there");
        let stdin = OwnedFd::from(child.stdin.take().ok_or_else(gone)?).into();
        let stdout = BufReader::new(OwnedFd::from(child.stdout.take().ok_or_else(gone)?).into());
        let stderr = OwnedFd::from(child.stderr.take().ok_or_else(gone)?).into();
        Ok(Link { stdin, stdout, stderr, end: Box::new(child) })
    }
}

impl End for Child {
    fn within(&mut self, limit: Duration) -> bool {
        let id = WaitId::Pid(Pid::from_child(self));
        let (sender, ended) = channel();
        // A thread waits, which every system and kernel can. It reaps nothing, and ends with the process.
        let wait = move || {
            let _ = retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
            let _ = sender.send(());
        };
        if thread::Builder::new().name("ended".into()).spawn(wait).is_ok() {
            let _ = ended.recv_timeout(limit);
        }
        matches!(self.try_wait(), Ok(Some(_)))
    }

    fn now(&mut self) {
        // By its handle; what it had started itself dies with it, or is a keeper.
        let _ = self.kill().and_then(|()| self.wait());
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_waited_for_until_it_has_ended_or_the_time_is_over() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!child.within(Duration::from_millis(1)));
        child.kill().unwrap();
        assert!(child.within(Duration::from_secs(60)));
        assert!(child.within(Duration::from_secs(60)), "whoever asks again hears the same");
    }
}
