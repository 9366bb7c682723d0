//! Asking a device what it can measure: an agent of its own for one question and one answer, beside whatever keeper there is.

use super::agents::AgentError;
use super::link::{END_TIMEOUT, Link, Role, saying};
use super::{DeviceError, session};
use crate::config::model::Device;
use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::probe::{ProbeAnswer, ProbeRequest, Probed};
use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// All trials end within 20 s, a handful of tools within 8 s each, containment is tried within 20 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);
/// And each model within 20 s and what ending it takes.
const MODEL_TIMEOUT: Duration = Duration::from_secs(25);
/// And looking for them: a directory with thousands of files on a slow card.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(120);
/// And what a campaign needs, within 20 s, what executes tools for it not counted.
const NEEDS_TIMEOUT: Duration = Duration::from_secs(60);

/// What a device said.
pub struct Answer {
    pub probed: Probed,
    /// Why its agent did without a companion that it needs and that is there.
    pub unfit: Option<Arc<AgentError>>,
}

/// Probe a device.
///
/// # Errors
/// See [`DeviceError`]; a device that a campaign holds is `Refused` with the holder unless the request says `force`.
pub fn probe(device: &Device, request: &ProbeRequest) -> Result<Answer, DeviceError> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let Link { stdin, stdout, words, unfit, mut process } = super::start(device, Role::Probe, &nonce, super::NEVER)?;
    let models = request.models.len() + request.search.as_ref().map_or(0, |search| search.most_tried);
    let timeout = ANSWER_TIMEOUT + MODEL_TIMEOUT * u32::try_from(models).unwrap_or(u32::MAX);
    let timeout = timeout + request.search.as_ref().map_or(Duration::ZERO, |_| SEARCH_TIMEOUT);
    let timeout = timeout + request.needs.as_ref().map_or(Duration::ZERO, |_| NEEDS_TIMEOUT);
    let answer = ask(stdin, stdout, request, nonce, timeout);
    process.ended(END_TIMEOUT);
    match answer {
        Ok(ProbeAnswer::Probed(probed)) => Ok(Answer { probed: *probed, unfit }),
        Ok(ProbeAnswer::Refused(failure)) => Err(DeviceError::Refused { device: device.id.clone(), failure: Box::new(failure) }),
        Err(reason) => Err(DeviceError::NoAnswer { device: device.id.clone(), reason: saying(reason, &words.last()) }),
    }
}

fn ask(mut stdin: File, mut stdout: BufReader<File>, request: &ProbeRequest, nonce: String, timeout: Duration) -> io::Result<ProbeAnswer> {
    let (answer, answered) = channel();
    thread::Builder::new().name("probe-reader".into()).spawn(move || {
        let read = session::greeting(&mut stdout, &nonce).and_then(|()| {
            let frame = read_frame(&mut stdout)?.ok_or_else(|| io::Error::other("it ended without an answer"))?;
            frame.message::<ProbeAnswer>()
        });
        let _ = answer.send(read);
    })?;
    write_message(&mut stdin, request)?;
    match answered.recv_timeout(timeout) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", timeout.as_secs()))),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("it ended without an answer")),
    }
}
