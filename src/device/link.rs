//! A connection to an agent that was just started: its three streams, and what ends it.
//!
//! A transport gives one. Must not know what is said over it.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

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
        let until = Instant::now() + limit;
        loop {
            match self.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
                ended => return matches!(ended, Ok(Some(_))),
            }
        }
    }

    fn now(&mut self) {
        // By its handle; what it had started itself dies with it, or is a keeper.
        let _ = self.kill().and_then(|()| self.wait());
    }
}
