//! Waiting for a run to end: its events, the user's signals, a lost link.

use super::Stop;
use super::beside::Since;
use super::device_night::DeviceNight;
use super::event::Event;
use super::signals::Stopping;
use crate::device::{DeviceError, Happening, Session};
use isotherm_wire::session::{Event as AgentEvent, Phase, RunState};
use std::time::{Duration, Instant};

/// So often something is asked over links that are lost before the answer is there.
const MOST_ASKED: usize = 6;
/// A run that is out of sight has ended so long after all that it may take.
pub(super) const OVERDUE: Duration = Duration::from_secs(60);

/// How a run ended, as far as its controller can tell.
pub enum Ended {
    Sealed {
        bytes: u64,
        sha256: String,
    },
    /// Its keeper died with it, and perhaps the whole device.
    Lost {
        reason: String,
        restarted: bool,
    },
    /// It ended, and the device could not write its result.
    Unsealed {
        reason: String,
    },
}

impl DeviceNight<'_, '_> {
    /// Wait until the run has a sealed result. It is asked for again when nothing was heard for `deadline`.
    pub(super) fn wait(&mut self, run_id: &str, deadline: Duration) -> Result<Ended, Stop> {
        let mut ask_at = Instant::now() + deadline;
        let mut asked = 0;
        let mut cancelled = false;
        loop {
            let now = Instant::now();
            let stopping = self.line.night.crew.stopping();
            match stopping {
                Stopping::DetachAt { moment } if now >= moment => return Err(Stop::Asked),
                Stopping::Cancel if !cancelled => {
                    match self.session.cancel(run_id) {
                        // Asked for again once it is back.
                        Err(DeviceError::LinkLost { reason, .. }) => {
                            if let Some(ended) = self.come_back(run_id, &reason)? {
                                return Ok(ended);
                            }
                        }
                        Err(e) if !e.is_unknown_run() => return Err(e.into()),
                        _ => cancelled = true,
                    }
                }
                _ => {}
            }
            let until = match stopping {
                Stopping::DetachAt { moment } => moment.min(ask_at),
                _ => ask_at,
            };
            match self.line.next(until.saturating_duration_since(now)) {
                Some(Happening::Event(AgentEvent::Phase { run_id: of, phase })) if of == run_id => self.enters(of, phase),
                Some(Happening::Event(AgentEvent::Settling { run_id: of, temperature_mc, limit_mc })) if of == run_id && self.may_draw() => {
                    let celsius = |mc: Option<i64>| mc.map(|mc| mc as f64 / 1e3);
                    self.line.emit(Event::Settling { run_id: of, temperature_c: celsius(temperature_mc), limit_c: celsius(limit_mc) });
                }
                Some(Happening::Event(AgentEvent::Sealed { run_id: of, bytes, sha256 })) if of == run_id => {
                    return Ok(Ended::Sealed { bytes, sha256 });
                }
                Some(Happening::Event(AgentEvent::SealFailed { run_id: of, message })) if of == run_id => {
                    return Ok(Ended::Unsealed { reason: message });
                }
                Some(Happening::LinkLost { session, reason }) if session == self.session.serial => {
                    if let Some(ended) = self.come_back(run_id, &reason)? {
                        return Ok(ended);
                    }
                    ask_at = Instant::now() + deadline;
                }
                None if Instant::now() >= ask_at => {
                    asked += 1;
                    if asked > 2 {
                        let device = self.line.device.id.clone();
                        return Err(
                            DeviceError::NoAnswer { device, reason: format!("run {run_id} is long past its time-outs and doesn't end") }.into()
                        );
                    }
                    if let Some(ended) = self.attach(run_id)? {
                        return Ok(ended);
                    }
                    ask_at = Instant::now() + deadline;
                }
                // Of an earlier run or an earlier connection.
                Some(_) | None => {}
            }
        }
    }

    /// A run is in another phase. On a machine that we share with a device nothing is drawn when a window is about to begin, of whatever
    /// device, and as long as it lasts nothing is done for others.
    fn enters(&mut self, run_id: String, phase: Phase) {
        let (crew, id) = (&self.line.night.crew, &self.line.device.id);
        if self.is_here() && matches!(phase, Phase::Warmup | Phase::Measure) {
            crew.set_quiet(id, true);
            self.quiet_since.get_or_insert_with(Since::now);
        }
        if phase != Phase::Measure && self.may_draw() {
            self.line.emit(Event::Phase { run_id, phase: phase_name(phase) });
        }
    }

    fn may_draw(&self) -> bool {
        self.line.night.crew.may_work(&self.line.device.id)
    }

    /// Reconnect and follow the run again; `Some` if it has ended meanwhile.
    fn come_back(&mut self, run_id: &str, reason: &str) -> Result<Option<Ended>, Stop> {
        self.reconnect(reason)?;
        match self.attach(run_id) {
            Err(Stop::Device(e)) if e.is_unknown_run() => {
                Ok(Some(Ended::Lost { reason: "the device knows nothing of it any more".into(), restarted: false }))
            }
            other => other,
        }
    }

    /// Follow a run from where it is; `Some` if it has ended.
    pub(super) fn attach(&mut self, run_id: &str) -> Result<Option<Ended>, Stop> {
        Ok(match self.asking(|session| session.attach(run_id))? {
            RunState::Running { phase } => {
                self.enters(run_id.to_owned(), phase);
                None
            }
            RunState::Sealed { bytes, sha256 } => Some(Ended::Sealed { bytes, sha256 }),
            RunState::Lost { reason, restarted } => Some(Ended::Lost { reason, restarted }),
        })
    }

    /// Ask the keeper something that may be asked twice, as everything may: a link that is lost costs a reconnect and nothing else. Not while
    /// this machine is measured for another device.
    pub(super) fn asking<T>(&mut self, mut ask: impl FnMut(&mut Session) -> Result<T, DeviceError>) -> Result<T, Stop> {
        for _ in 1..MOST_ASKED {
            self.line.night.crew.work(&self.line.device.id)?;
            match ask(&mut self.session) {
                Err(DeviceError::LinkLost { reason, .. }) => self.reconnect(&reason)?,
                other => return Ok(other?),
            }
        }
        Ok(ask(&mut self.session)?)
    }

    /// A new connection to the same keeper, or to a new one where it is gone.
    pub(super) fn reconnect(&mut self, reason: &str) -> Result<(), Stop> {
        let (session, given_back) = self.line.reopen(reason, self.stake)?;
        (self.session, self.is_left) = (session, false);
        self.line.night.given_back(&self.line.device.id, given_back);
        if self.session.welcome().is_ok() {
            self.line.night.learn_boot(&self.line.device.id, self.boot());
        }
        Ok(())
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Prepare => "preparing",
        Phase::Settle => "settling",
        Phase::Warmup => "warming up",
        Phase::Measure => "measuring",
        Phase::Collect => "collecting",
    }
}
