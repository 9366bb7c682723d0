//! A connection to an agent that was just started: its three streams, and what ends it.
//!
//! A transport gives one. Must not know what is said over it.

use super::agents::AgentError;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// An agent that has closed its streams or was killed is gone within this time; how long one that hangs in the kernel is waited for.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// What an agent said on stderr goes into an error up to here, bytes.
const LONGEST_WORDS: u64 = 4096;
/// And of a transport's own words, from their end, bytes.
const LONGEST_LOG: usize = 1024;

/// Whoever waits for a device that has no run of ours yet is to give up as soon as this says so.
pub type Leave<'a> = &'a dyn Fn() -> bool;
/// So often it is asked.
pub const LEAVE_AGAIN: Duration = Duration::from_millis(200);

/// Why nothing came.
#[derive(Debug, PartialEq, Eq)]
pub enum Unheard {
    /// Within the limit.
    Late,
    /// Whoever was to send it is gone.
    Gone,
    /// Asked to leave meanwhile.
    Left,
}

/// What comes within the limit, unless we are to leave before that.
pub fn heard<T>(from: &Receiver<T>, limit: Duration, leave: Leave<'_>) -> Result<T, Unheard> {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(LEAVE_AGAIN)) {
            Ok(it) => return Ok(it),
            Err(RecvTimeoutError::Disconnected) => return Err(Unheard::Gone),
            Err(RecvTimeoutError::Timeout) if leave() => return Err(Unheard::Left),
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Err(Unheard::Late),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

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
    pub log: Log,
    /// Why the agent does without a companion that it needs and that is there.
    pub unfit: Option<Arc<AgentError>>,
    pub end: Box<dyn End>,
}

/// What a transport writes of itself while it holds a link: a file, or nothing. It is gone with the link.
#[derive(Debug, Clone, Default)]
pub struct Log(pub Option<PathBuf>);

impl Log {
    /// Its last words.
    pub fn words(&self) -> String {
        let log = self.0.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LONGEST_LOG)..]).trim().to_owned()
    }
}

/// What holds a link open. Dropping it leaves the keeper, and a run, as they are.
pub trait End: Send {
    /// Wait until the agent has ended by itself, so long at the most: has it?
    fn within(&mut self, limit: Duration) -> bool;

    /// End it.
    fn now(&mut self);
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
        Ok(Link { stdin, stdout, stderr, log: Log::default(), unfit: None, end: Box::new(child) })
    }
}

/// Told when a process has ended; it is still there to be reaped.
pub fn end_of(child: &Child) -> io::Result<Receiver<()>> {
    let id = WaitId::Pid(Pid::from_child(child));
    let (sender, ended) = channel();
    // A thread waits, which every system and kernel can. It ends with the process.
    let wait = move || {
        let _ = retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
        let _ = sender.send(());
    };
    thread::Builder::new().name("ended".into()).spawn(wait)?;
    Ok(ended)
}

impl End for Child {
    fn within(&mut self, limit: Duration) -> bool {
        let _ = end_of(self).map(|ended| ended.recv_timeout(limit));
        matches!(self.try_wait(), Ok(Some(_)))
    }

    fn now(&mut self) {
        // By its handle; what it had started itself dies with it, or is a keeper.
        let _ = self.kill().and_then(|()| self.wait());
    }
}

/// What an agent that has ended said; nothing of one that lives on.
pub fn last_words(stderr: File, log: &Log, end: &mut dyn End) -> String {
    let mut text = Vec::new();
    if end.within(END_TIMEOUT) {
        let _ = stderr.take(LONGEST_WORDS).read_to_end(&mut text);
    }
    joined([String::from_utf8_lossy(&text).trim(), &log.words()])
}

/// A reason, and what there is of words with it.
pub fn saying(reason: impl fmt::Display, words: &str) -> String {
    if words.is_empty() { reason.to_string() } else { format!("{reason}; it said: {words}") }
}

/// What there is of two texts.
pub fn joined(texts: [&str; 2]) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::process::Command;

    #[test]
    fn who_is_to_leave_waits_for_nothing_any_more() {
        let (sender, receiver) = channel();
        let long = Duration::from_secs(3600);
        assert_eq!(heard(&receiver, long, &|| true), Err(Unheard::Left));
        assert_eq!(heard(&receiver, Duration::ZERO, &|| false), Err(Unheard::Late));
        sender.send(7).unwrap();
        assert_eq!(heard(&receiver, long, &|| true), Ok(7), "what has come is taken");
        drop(sender);
        assert_eq!(heard(&receiver, long, &|| false), Err(Unheard::Gone));
    }

    #[test]
    fn a_process_is_waited_for_until_it_has_ended_or_the_time_is_over() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!child.within(Duration::from_millis(1)));
        child.kill().unwrap();
        assert!(child.within(Duration::from_secs(60)));
        assert!(child.within(Duration::from_secs(60)), "whoever asks again hears the same");
    }
}
