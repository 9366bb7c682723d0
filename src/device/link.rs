//! A connection to an agent that was just started: its three streams, and what ends it.
//!
//! A transport gives one. Must not know what is said over it.

use super::agents::AgentError;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An agent that has closed its streams or was killed is gone, and heard out, within this time; how long one that hangs is waited for.
pub const END_TIMEOUT: Duration = Duration::from_secs(1);
/// So much is kept of what it says on stderr, bytes.
const LONGEST_WORDS: usize = 4096;

/// Whoever waits for a device that has no run of ours yet is to give up as soon as this says so.
pub type Leave<'a> = &'a dyn Fn() -> bool;
/// So often it is asked.
const ASK_AGAIN: Duration = Duration::from_millis(200);

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
        match from.recv_timeout(left.min(ASK_AGAIN)) {
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

/// The streams of an agent, and the process that holds them open. It has not answered yet.
pub struct Link {
    pub stdin: File,
    pub stdout: BufReader<File>,
    pub words: Words,
    /// Why the agent does without a companion that it needs and that is there.
    pub unfit: Option<Arc<AgentError>>,
    pub process: Process,
}

impl Link {
    /// Of a process of this machine, started with pipes for all three, and in a process group of its own.
    ///
    /// # Errors
    /// One of its streams is no pipe, or there is no thread to listen.
    pub fn of_child(child: Child) -> io::Result<Link> {
        let gone = || io::Error::other("its streams are not there");
        let mut process = Process(child);
        let Process(child) = &mut process;
        let stdin = OwnedFd::from(child.stdin.take().ok_or_else(gone)?).into();
        let stdout = BufReader::new(OwnedFd::from(child.stdout.take().ok_or_else(gone)?).into());
        let words = Words::of(child.stderr.take().ok_or_else(gone)?)?;
        Ok(Link { stdin, stdout, words, unfit: None, process })
    }
}

/// What holds a link open: the agent, or who brings its streams here. Dropped, it is ended; the keeper, and a run, stay as they are.
pub struct Process(Child);

impl Process {
    /// How it has ended by itself, which is waited for so long at the most.
    pub fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        let id = WaitId::Pid(Pid::from_child(&self.0));
        let (sender, ended) = channel();
        // A thread waits, which every system and kernel can. It ends with the process, which is still there to be reaped then.
        let wait = move || {
            let _ = retry_on_intr(|| waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
            let _ = sender.send(());
        };
        let _ = thread::Builder::new().name("ended".into()).spawn(wait).map(|_| ended.recv_timeout(limit));
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // As long as it was not reaped, the group is its own: with what it has started itself, but for a keeper, which has left it.
        if let Ok(None) = self.0.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// What is said on stderr, by an agent and whoever brings its streams here: the last of it.
#[derive(Clone)]
pub struct Words(Arc<(Mutex<Said>, Condvar)>);

#[derive(Default)]
struct Said {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Words {
    /// Listen from now on.
    fn of(mut stderr: impl Read + Send + 'static) -> io::Result<Words> {
        let words = Words(Arc::default());
        let Words(heard) = words.clone();
        let listen = move || {
            let mut chunk = [0; 4096];
            loop {
                let n = stderr.read(&mut chunk).unwrap_or(0);
                let mut said = heard.0.lock().unwrap_or_else(PoisonError::into_inner);
                said.bytes.extend_from_slice(&chunk[..n]);
                let excess = said.bytes.len().saturating_sub(LONGEST_WORDS);
                said.bytes.drain(..excess);
                said.is_over = n == 0;
                if said.is_over {
                    return heard.1.notify_all();
                }
            }
        };
        thread::Builder::new().name("agent-stderr".into()).spawn(listen)?;
        Ok(words)
    }

    /// All that is kept. Whoever has just ended may not have been heard out yet.
    pub fn last(&self) -> String {
        let Words(heard) = self;
        let said = heard.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, _) = heard.1.wait_timeout_while(said, END_TIMEOUT, |said| !said.is_over).unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said.bytes).trim().to_owned()
    }

    /// What was said so far is no reason for what may come.
    pub fn forget(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.clear();
    }
}

/// A reason, and what there is of words with it.
pub fn saying(reason: impl fmt::Display, words: &str) -> String {
    if words.is_empty() { reason.to_string() } else { format!("{reason}; it said: {words}") }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::BufRead;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

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

    /// A process of this machine with its streams.
    fn link(script: &str) -> Link {
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).process_group(0);
        Link::of_child(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).unwrap()
    }

    #[test]
    fn a_process_is_waited_for_until_it_has_ended_or_the_time_is_over() {
        let Link { stdin, mut process, .. } = link("read -r line; exit 3");
        assert_eq!(process.ended(Duration::from_millis(1)), None);
        drop(stdin);
        for _ in 0..2 {
            assert_eq!(process.ended(Duration::from_secs(60)).unwrap().code(), Some(3), "whoever asks again hears the same");
        }
    }

    #[test]
    fn who_lets_go_of_a_process_ends_it_and_what_it_has_started() {
        // Neither ends by itself, and both hold the stream.
        let Link { mut stdout, process, .. } = link("sleep 1000 & echo there; wait");
        stdout.read_line(&mut String::new()).unwrap();
        drop(process);
        assert_eq!(stdout.read_to_string(&mut String::new()).unwrap(), 0);
    }

    #[test]
    fn the_last_words_are_heard_out_however_late_they_come_and_those_before_may_be_forgotten() {
        let Link { stdin, mut stdout, words, process: _process, .. } =
            link("echo welcome >&2; echo; read -r line; exec >&-; sleep 0.05; echo no room for it >&2");
        stdout.read_line(&mut String::new()).unwrap();
        while words.0.0.lock().unwrap().bytes.is_empty() {
            thread::yield_now();
        }
        words.forget();
        drop(stdin);
        assert_eq!(stdout.read_to_string(&mut String::new()).unwrap(), 0);
        assert_eq!(words.last(), "no room for it");
    }
}
