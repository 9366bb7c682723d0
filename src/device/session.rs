//! A session with a device's keeper: requests and their replies, events, sealed results by offset.

use super::DeviceError;
use super::agents::AgentError;
use super::link::{Leave, Link, Process, Role, Unheard, Words, heard, saying};
use crate::clock::{self, ClockOffset};
use crate::config::model::Device;
use crate::digest::sha256_hex;
use isotherm_wire::codec::{Frame, read_frame, write_bytes, write_message};
use isotherm_wire::inspect::{FileQuery, InspectRequest, Inspected, ProgramQuery};
use isotherm_wire::models::{Cached, Have, Wanted};
use isotherm_wire::probe::Capability;
use isotherm_wire::session::{Call, Event, Failure, FromAgent, GivenBack, Hello, Holder, Reply, Request, RunState, SpoolEntry, Start, Welcome};
use isotherm_wire::{GREETING_WORD, protocol_version};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// A request is answered within this time, or the link counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// An agent whose input is closed is gone within this time.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Hashing models of many gigabytes takes its time.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(4 * 3600);
/// A slow card takes its time over the bytes that are to be on it before it takes more.
const PUT_TIMEOUT: Duration = Duration::from_secs(600);
/// Answers that wait for somebody to ask for them: a reply and its bytes are two, what is left over from a call that gave up some more.
/// Who sends on without being asked is not read any further.
const MOST_WAITING: usize = 8;
/// No sealed result is larger: it is held in memory until its hash is known.
const MOST_RESULT_BYTES: u64 = 1 << 30;
/// At the end of a session everything borrowed is given back before the answer, and by a new keeper ahead of its first one what another
/// has left: a minute for each thing at most.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(600);

/// The offset of a clock is known to half of the quickest answer of so many.
const CLOCK_QUESTIONS: usize = 5;

/// What comes to the controller by itself.
#[derive(Debug)]
pub enum Happening {
    Event(Event),
    /// The connection is over; the run, if there is one, goes on.
    LinkLost {
        session: u64,
        reason: String,
    },
    /// Something else is to be looked at.
    Woken,
}

enum Answer {
    Reply {
        id: u64,
        reply: Reply,
    },
    Bytes(Vec<u8>),
    /// Comes before the reply to `End`.
    GivenBack(GivenBack),
}

/// One connection. Dropping it leaves the keeper, and a run, as they are.
pub struct Session {
    device: String,
    stdin: File,
    process: Process,
    words: Words,
    answers: Receiver<Answer>,
    next_id: u64,
    /// Tells this connection's [`Happening::LinkLost`] from that of an earlier one.
    pub serial: u64,
    pub opened: Instant,
    /// Or what an older isotherm's keeper says instead: it answers what is frozen and nothing else.
    welcome: Result<Welcome, Failure>,
    given_back: GivenBack,
    /// Why the agent does without a companion that it needs and that is there.
    pub unfit: Option<Arc<AgentError>>,
}

impl Session {
    /// Start the agent on the device, reach its keeper, and hold the device for this campaign.
    ///
    /// A keeper of an older isotherm is taken as it is: [`Session::welcome`] says so. Until it is asked, we may `leave`: nothing was begun.
    ///
    /// # Errors
    /// See [`DeviceError`]; a device that another campaign, or a newer isotherm, holds is `Refused`.
    pub fn open(device: &Device, holder: &Holder, happenings: &Sender<Happening>, leave: Leave<'_>) -> Result<Session, DeviceError> {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let Link { stdin, mut stdout, words, unfit, process } = super::start(device, Role::Serve, &nonce, leave)?;
        let no_answer = |reason: String| DeviceError::NoAnswer { device: device.id.clone(), reason };
        let (answer, answers) = sync_channel(MOST_WAITING);
        let (greet, greeted) = channel();
        let (happenings, said) = (happenings.clone(), words.clone());
        let spawned = thread::Builder::new().name("agent-reader".into()).spawn(move || {
            let greeting = greeting(&mut stdout, &nonce);
            let alive = greeting.is_ok();
            if alive {
                // What a login prints ends no session.
                said.forget();
            }
            let _ = greet.send(greeting);
            if alive {
                let reason = saying(read_on(&mut stdout, &answer, &happenings), &said.last());
                let _ = happenings.send(Happening::LinkLost { session: serial, reason });
            }
        });
        spawned.map_err(|e| no_answer(e.to_string()))?;
        let welcome = Err(Failure::Other { message: "it was not greeted yet".into() });
        let given_back = GivenBack::default();
        let mut session = Session {
            device: device.id.clone(),
            stdin,
            process,
            words,
            answers,
            next_id: 0,
            serial,
            opened: Instant::now(),
            welcome,
            given_back,
            unfit,
        };
        match heard(&greeted, ANSWER_TIMEOUT, leave) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(no_answer(session.with_words(&e.to_string()))),
            Err(Unheard::Left) => return Err(DeviceError::Left { device: device.id.clone() }),
            Err(_) => return Err(no_answer(session.with_words("no proof of life in time"))),
        }
        let ours = protocol_version();
        session.welcome = match session.call(Request::Hello(Hello { protocol: ours, holder: holder.clone() }), GIVE_BACK_TIMEOUT) {
            Ok(Reply::Welcome(mut welcome)) => {
                session.given_back = std::mem::take(&mut welcome.given_back);
                Ok(welcome)
            }
            Ok(other) => return Err(session.unexpected(&other)),
            Err(DeviceError::Refused { failure, .. }) if matches!(*failure, Failure::VersionMismatch { agent, .. } if agent < ours) => Err(*failure),
            Err(e) => return Err(e),
        };
        Ok(session)
    }

    /// What the keeper says of itself.
    ///
    /// # Errors
    /// `Refused` for one of an older isotherm.
    pub fn welcome(&self) -> Result<&Welcome, DeviceError> {
        self.welcome.as_ref().map_err(|failure| DeviceError::Refused { device: self.device.clone(), failure: Box::new(failure.clone()) })
    }

    /// What was given back of an earlier keeper's when this one started; told once.
    pub fn given_back(&mut self) -> GivenBack {
        std::mem::take(&mut self.given_back)
    }

    fn with_words(&self, reason: &str) -> String {
        saying(reason, &self.words.last())
    }

    fn lost(&self, reason: &str) -> DeviceError {
        DeviceError::LinkLost { device: self.device.clone(), reason: self.with_words(reason) }
    }

    fn unexpected(&self, reply: &Reply) -> DeviceError {
        DeviceError::Damaged { device: self.device.clone(), reason: format!("an answer to another question: {reply:?}") }
    }

    fn call(&mut self, request: Request, timeout: Duration) -> Result<Reply, DeviceError> {
        self.call_with(request, None, timeout)
    }

    /// With bytes that follow the request.
    fn call_with(&mut self, request: Request, bytes: Option<&[u8]>, timeout: Duration) -> Result<Reply, DeviceError> {
        self.next_id += 1;
        let id = self.next_id;
        let said = write_message(&mut self.stdin, &Call { id, request });
        let said = said.and_then(|()| bytes.map_or(Ok(()), |bytes| write_bytes(&mut self.stdin, bytes)));
        said.map_err(|e| self.lost(&e.to_string()))?;
        let until = Instant::now() + timeout;
        loop {
            match self.answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Answer::Reply { id: of, reply: Reply::Failed(failure) }) if of == id => {
                    return Err(DeviceError::Refused { device: self.device.clone(), failure: Box::new(failure) });
                }
                Ok(Answer::Reply { id: of, reply }) if of == id => return Ok(reply),
                Ok(Answer::GivenBack(given_back)) => self.given_back.join(given_back),
                // Left over from a call that gave up.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.lost("no answer in time")),
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost("the agent's connection ended")),
            }
        }
    }

    /// The machine, the files asked for by content, and what programs say of themselves.
    pub fn inspect(&mut self, files: Vec<FileQuery>, programs: Vec<ProgramQuery>) -> Result<Inspected, DeviceError> {
        self.ask_what_it_is(InspectRequest { files, programs, polling_hz: None })
    }

    /// Energy instruments, with what they say when they are read rarely and so often a second in turn.
    pub fn try_polling(&mut self, hz: f64) -> Result<Vec<Capability>, DeviceError> {
        Ok(self.ask_what_it_is(InspectRequest { polling_hz: Some(hz), ..InspectRequest::default() })?.instruments)
    }

    fn ask_what_it_is(&mut self, request: InspectRequest) -> Result<Inspected, DeviceError> {
        match self.call(Request::Inspect(request), INSPECT_TIMEOUT)? {
            Reply::Inspected(inspected) => Ok(*inspected),
            other => Err(self.unexpected(&other)),
        }
    }

    /// How far the device's wall clock is off ours; `None` if its keeper, of an earlier build, can't be asked.
    pub fn clock(&mut self) -> Result<Option<ClockOffset>, DeviceError> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..CLOCK_QUESTIONS {
            let (asked_ns, asked) = (clock::realtime_ns(), Instant::now());
            let realtime_ns = match self.call(Request::Clock, ANSWER_TIMEOUT) {
                Ok(Reply::Clock { realtime_ns }) => realtime_ns,
                Ok(other) => return Err(self.unexpected(&other)),
                Err(DeviceError::Refused { .. }) => return Ok(None),
                Err(e) => return Err(e),
            };
            let uncertainty_ms = asked.elapsed().as_secs_f64() * 1e3 / 2.0;
            let offset_ms = (i128::from(realtime_ns) - i128::from(asked_ns)) as f64 / 1e6 - uncertainty_ms;
            if best.is_none_or(|best| uncertainty_ms < best.uncertainty_ms) {
                best = Some(ClockOffset { offset_ms, uncertainty_ms });
            }
        }
        Ok(best)
    }

    /// Runs that the keeper has and no controller has forgotten.
    pub fn list(&mut self) -> Result<Vec<SpoolEntry>, DeviceError> {
        match self.call(Request::List, ANSWER_TIMEOUT)? {
            Reply::Listed(entries) => Ok(entries),
            other => Err(self.unexpected(&other)),
        }
    }

    pub fn start(&mut self, start: Start) -> Result<(), DeviceError> {
        match self.call(Request::Start(Box::new(start)), ANSWER_TIMEOUT)? {
            Reply::Started => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Follow a run; its state now.
    pub fn attach(&mut self, run_id: &str) -> Result<RunState, DeviceError> {
        match self.call(Request::Attach { run_id: run_id.into() }, ANSWER_TIMEOUT)? {
            Reply::Attached(state) => Ok(state),
            other => Err(self.unexpected(&other)),
        }
    }

    pub fn cancel(&mut self, run_id: &str) -> Result<(), DeviceError> {
        match self.call(Request::Cancel { run_id: run_id.into() }, ANSWER_TIMEOUT)? {
            Reply::Cancelled => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Fetch a sealed result whole and compare it with what was announced.
    pub fn collect(&mut self, run_id: &str, bytes: u64, sha256: &str) -> Result<Vec<u8>, DeviceError> {
        let mut result = Vec::new();
        while self.collect_more(run_id, bytes, sha256, &mut result)? {}
        Ok(result)
    }

    /// Fetch the next piece of a sealed result, or look at it as a whole when there is none left: then false. What was fetched over another link
    /// counts.
    pub fn collect_more(&mut self, run_id: &str, bytes: u64, sha256: &str, result: &mut Vec<u8>) -> Result<bool, DeviceError> {
        let damaged = |device: &str, reason: String| DeviceError::Damaged { device: device.to_owned(), reason };
        if bytes > MOST_RESULT_BYTES {
            return Err(damaged(&self.device, format!("run {run_id}: a result of {bytes} bytes, the most is {MOST_RESULT_BYTES}")));
        }
        if (result.len() as u64) < bytes {
            let offset = result.len() as u64;
            let announced = match self.call(Request::Collect { run_id: run_id.into(), offset }, ANSWER_TIMEOUT)? {
                Reply::Chunk { bytes, .. } => bytes,
                other => return Err(self.unexpected(&other)),
            };
            match self.answers.recv_timeout(ANSWER_TIMEOUT) {
                Ok(Answer::Bytes(chunk)) if chunk.len() as u64 == announced && announced > 0 => result.extend_from_slice(&chunk),
                Ok(_) => return Err(damaged(&self.device, format!("run {run_id}: a chunk at {offset} of another length"))),
                Err(_) => return Err(self.lost("a chunk did not come")),
            }
            return Ok(true);
        }
        let got = sha256_hex(result);
        if result.len() as u64 != bytes || got != sha256 {
            return Err(damaged(
                &self.device,
                format!("run {run_id}: {} bytes with sha256 {got}, announced were {bytes} with {sha256}", result.len()),
            ));
        }
        Ok(false)
    }

    /// Let the keeper drop a result that is stored here.
    pub fn forget(&mut self, run_id: &str, sha256: &str) -> Result<(), DeviceError> {
        match self.call(Request::Forget { run_id: run_id.into(), sha256: sha256.into() }, ANSWER_TIMEOUT)? {
            Reply::Forgotten => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// How much of a model is there; one whose last byte has come is looked at as a whole first.
    pub fn have(&mut self, wanted: &Wanted) -> Result<Have, DeviceError> {
        match self.call(Request::Have(wanted.clone()), INSPECT_TIMEOUT)? {
            Reply::Have(have) => Ok(have),
            other => Err(self.unexpected(&other)),
        }
    }

    /// More of a model, a chunk at most; where its copy ends now.
    pub fn put(&mut self, sha256: &str, offset: u64, bytes: &[u8]) -> Result<u64, DeviceError> {
        match self.call_with(Request::Put { sha256: sha256.into(), offset }, Some(bytes), PUT_TIMEOUT)? {
            Reply::Put { offset } => Ok(offset),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Models that were copied to the device.
    pub fn models(&mut self) -> Result<Vec<Cached>, DeviceError> {
        match self.call(Request::Models, ANSWER_TIMEOUT)? {
            Reply::Models(models) => Ok(models),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Remove one of them; bytes that are free again.
    pub fn evict(&mut self, sha256: &str) -> Result<u64, DeviceError> {
        match self.call(Request::Evict { sha256: sha256.into() }, PUT_TIMEOUT)? {
            Reply::Evicted { bytes } => Ok(bytes),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Give the device back: the keeper restores what was borrowed, ends the lease and exits.
    pub fn end(mut self) -> Result<GivenBack, DeviceError> {
        let given_back = self.give_back()?;
        self.detach();
        Ok(given_back)
    }

    /// The same; a session that was lost meanwhile may be followed by another one.
    pub fn give_back(&mut self) -> Result<GivenBack, DeviceError> {
        match self.call(Request::End, GIVE_BACK_TIMEOUT)? {
            Reply::Ended => Ok(std::mem::take(&mut self.given_back)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Leave the device as it is: the keeper holds it, a run goes on.
    pub fn detach(mut self) {
        drop(self.stdin);
        // It ends with its input; one that doesn't is not waited for all night.
        self.process.ended(LEAVE_TIMEOUT);
    }
}

/// Read past whatever was printed before, up to the agent's own line with our nonce.
pub(super) fn greeting(stdout: &mut impl BufRead, nonce: &str) -> io::Result<()> {
    let mut seen = Vec::new();
    loop {
        let mut line = Vec::new();
        if stdout.by_ref().take(64 << 10).read_until(b'\n', &mut line)? == 0 {
            let said = match String::from_utf8_lossy(&seen) {
                text if text.is_empty() => "and said nothing".to_owned(),
                text => format!("after {text:?}"),
            };
            return Err(io::Error::other(format!("it ended without proof of life, {said}")));
        }
        let text = String::from_utf8_lossy(&line);
        let mut words = text.split_whitespace();
        if words.next() == Some(GREETING_WORD) && words.next() == Some(nonce) {
            let ours = protocol_version();
            return match words.nth(1).and_then(|version| version.parse::<u32>().ok()) {
                Some(theirs) if theirs == ours => Ok(()),
                theirs => {
                    let theirs = theirs.map_or_else(|| "no protocol".to_owned(), |version| format!("protocol {version}"));
                    Err(io::Error::other(format!("it is the agent of another isotherm: it speaks {theirs}, this controller {ours}")))
                }
            };
        }
        seen.extend_from_slice(&line);
        seen.truncate(400);
    }
}

/// Sort what comes until the stream ends; then why it did.
fn read_on(stdout: &mut impl Read, answers: &SyncSender<Answer>, happenings: &Sender<Happening>) -> String {
    loop {
        let frame = match read_frame(stdout) {
            Ok(Some(frame)) => frame,
            Ok(None) => return "the agent's connection ended".into(),
            Err(e) => return e.to_string(),
        };
        let sent = match frame {
            Frame::Bytes(chunk) => answers.send(Answer::Bytes(chunk)).is_ok(),
            json @ Frame::Json(_) => match json.message::<FromAgent>() {
                Ok(FromAgent::Reply { id, reply }) => answers.send(Answer::Reply { id, reply }).is_ok(),
                Ok(FromAgent::Event(Event::GivenBack(given_back))) => answers.send(Answer::GivenBack(given_back)).is_ok(),
                Ok(FromAgent::Event(event)) => happenings.send(Happening::Event(event)).is_ok(),
                Err(e) => return e.to_string(),
            },
        };
        if !sent {
            return "nobody listens any more".into();
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_a_login_script_prints_is_skipped_and_the_nonce_must_be_ours() {
        let mut stream = "Welcome to this board!\nisotherm-agent other 0.1 1\nisotherm-agent abc 0.1.0 1\nrest".as_bytes();
        greeting(&mut stream, "abc").unwrap();
        assert_eq!(stream, b"rest");
        let error = greeting(&mut "isotherm-agent abc 0.9.0 99\n".as_bytes(), "abc").unwrap_err();
        assert!(error.to_string().contains("it speaks protocol 99, this controller 1"), "{error}");
        let error = greeting(&mut "exec format error\n".as_bytes(), "abc").unwrap_err();
        assert!(error.to_string().contains("exec format error"), "{error}");
    }

    #[test]
    fn what_runs_well_and_says_nothing_is_not_alive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        // What is left of a copy that was cut by a power failure: a shell runs it, and its exit status is 0.
        std::fs::write(&path, "").unwrap();
        let output = std::process::Command::new("/bin/sh").arg(&path).args(["serve", "--nonce", "abc"]).output().unwrap();
        assert!(output.status.success());
        let error = greeting(&mut output.stdout.as_slice(), "abc").unwrap_err();
        assert_eq!(error.to_string(), "it ended without proof of life, and said nothing");
    }
}
