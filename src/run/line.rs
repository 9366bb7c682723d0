//! The line to one device: reaches it as often as makes sense, and waits for what comes over it. It must not know jobs.

use super::Stop;
use super::crew::{MyTurn, Outside};
use super::event::Event;
use super::night::Night;
use super::signals::Stopping;
use crate::config::model::{Device, Transport};
use crate::device::{DeviceError, Happening, Session, agents};
use crate::schedule::{Group, Reach};
use isotherm_wire::session::GivenBack;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// An agent on this machine that can't be reached so often never will be: there is no link that could come back. Nor is a device tried more
/// often that is only to be told that nothing is wanted of it any more.
const MOST_TRIES: u32 = 5;

/// A group that another campaign has is asked for this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A moment at which to leave may have been set long before it comes: it is looked for this often.
const LEAVE_AGAIN: Duration = Duration::from_secs(1);

/// What is lost with a device that can't be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stake {
    /// Nothing: every record is stored.
    Nothing,
    /// What is still to be done there.
    Jobs,
    /// The result of a run that has ended.
    Result,
    /// A run that is executing; it has ended then at the latest.
    Run { until: Instant },
}

impl Stake {
    fn until(self) -> Option<Instant> {
        if let Stake::Run { until } = self { Some(until) } else { None }
    }

    /// Whoever wants to leave waits for it.
    pub fn has_run(self) -> bool {
        matches!(self, Stake::Result | Stake::Run { .. })
    }
}

/// A device, from where somebody works on it.
pub(super) struct Line<'n, 'a> {
    pub(super) night: &'n Night<'a>,
    pub(super) device: &'a Device,
    sender: Sender<Happening>,
    happenings: Receiver<Happening>,
    reach: Reach,
    /// Since it was there last.
    tries: u32,
    /// What it is, if it says so.
    pub(super) machine: Option<Group>,
    /// Was it said that it is the same machine as another one?
    is_told: bool,
    /// And that it does without a companion?
    is_told_of_companion: bool,
    /// What others are told that wait for it.
    us: String,
}

impl<'n, 'a> Line<'n, 'a> {
    pub fn new(night: &'n Night<'a>, device: &'a Device, sender: Sender<Happening>, happenings: Receiver<Happening>) -> Line<'n, 'a> {
        let us = format!("campaign `{}` ({})", night.campaign.name, night.holder.controller);
        Line { night, device, sender, happenings, reach: Reach::new(), tries: 0, machine: None, is_told: false, is_told_of_companion: false, us }
    }

    pub fn emit(&self, event: Event) {
        self.night.emit(event);
    }

    /// The next thing that happens; `None` after `limit`.
    pub fn next(&self, limit: Duration) -> Option<Happening> {
        self.happenings.recv_timeout(limit).ok()
    }

    /// Has the user asked us to leave? A run is not left before it has to be.
    fn is_to_leave(&self, has_run: bool) -> bool {
        match self.night.crew.stopping() {
            Stopping::No => false,
            Stopping::Drain | Stopping::Cancel => !has_run,
            Stopping::DetachAt { moment } => !has_run || Instant::now() >= moment,
        }
    }

    /// Wait until then, or until `over` says why not.
    fn pause(&self, until: Instant, has_run: bool, mut over: impl FnMut() -> Option<Stop>) -> Result<(), Stop> {
        loop {
            if self.is_to_leave(has_run) {
                return Err(Stop::Asked);
            }
            if let Some(stop) = over() {
                return Err(stop);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let _ = self.next(left.min(LEAVE_AGAIN));
        }
    }

    /// Let others go first.
    pub fn rest(&self) -> Result<(), Stop> {
        self.pause(Instant::now() + LOOK_AGAIN, false, || None)
    }

    /// Wait for the device's turn, among our own and other campaigns' devices; it lasts as long as what is returned.
    pub fn turn(&self) -> Result<MyTurn<'n>, Stop> {
        let crew = &self.night.crew;
        self.outside(false, || crew.turn(&self.device.id, &self.us))
    }

    /// Ask until it is no other campaign's turn.
    fn outside<T>(&self, has_run: bool, ask: impl Fn() -> Result<Result<T, Outside>, Stop>) -> Result<T, Stop> {
        let mut told = false;
        loop {
            let Outside { group, holder } = match ask()? {
                Ok(turn) => {
                    let fault = self.night.crew.group_fault();
                    fault.into_iter().for_each(|message| self.emit(Event::Warning { message }));
                    return Ok(turn);
                }
                Err(outside) => outside,
            };
            if !std::mem::replace(&mut told, true) {
                self.emit(Event::GroupTaken { device: self.device.id.clone(), group, holder });
            }
            self.pause(Instant::now() + LOOK_AGAIN, has_run, || None)?;
        }
    }

    /// The link is gone. Reach the device again: the same keeper, or a new one where it is gone.
    pub fn reopen(&mut self, reason: &str, stake: Stake) -> Result<(Session, GivenBack), Stop> {
        let (now, crew, id, has_run) = (Instant::now(), &self.night.crew, &self.device.id, stake.has_run());
        self.emit(Event::LinkLost { device: id.clone(), reason: reason.to_owned() });
        self.reach.lost(now);
        // Where nothing runs, nobody has to wait for it.
        crew.lost(id, stake.until().unwrap_or(now));
        let mut again = now + self.reach.pause(jitter());
        let opened = loop {
            self.pause(again, has_run, || None)?;
            self.night.crew.work(&self.device.id)?;
            match self.open(has_run) {
                Ok(opened) => break opened,
                Err(e) => again = self.failed(e, stake)?,
            }
        };
        self.emit(Event::LinkBack { device: id.clone() });
        if !crew.found(id) {
            self.outside(has_run, || crew.again(id, &self.us))?;
        }
        Ok(opened)
    }

    /// Try to reach the device's keeper. What an earlier one had borrowed and this one has given back comes with it. Where no run of ours is
    /// under way there, a user who wants to leave doesn't wait for it.
    pub fn open(&mut self, has_run: bool) -> Result<(Session, GivenBack), DeviceError> {
        let mut session = Session::open(self.device, &self.night.holder, &self.sender, &|| self.is_to_leave(has_run))?;
        self.reach.reached(Instant::now());
        self.tries = 0;
        self.night.crew.set_away(&self.device.id, false);
        self.machine = session.welcome().ok().and_then(|welcome| welcome.boot_id.clone()).map(Group::Machine);
        if let Some(machine) = &self.machine {
            let others = self.night.crew.join(&self.device.id, machine);
            if !others.is_empty() && !std::mem::replace(&mut self.is_told, true) {
                self.emit(Event::SameMachine { device: self.device.id.clone(), others });
            }
        }
        if let Ok(Some(why)) = session.welcome().map(|welcome| welcome.no_scope.as_ref().filter(|_| welcome.keeper_is_new)) {
            let id = &self.device.id;
            self.emit(Event::Warning {
                message: format!("device `{id}`: a logout there may end its keeper, which systemd-run did not start: {why}"),
            });
        }
        if let Some(why) = session.unfit.take()
            && !std::mem::replace(&mut self.is_told_of_companion, true)
        {
            let message = format!("device `{}` {} (hint: {})", self.device.id, agents::without_companion(&why), why.hint());
            self.emit(Event::Warning { message });
        }
        let given_back = session.given_back();
        Ok((session, given_back))
    }

    /// It could not be reached: when to try again, or that there is no sense in it.
    fn failed(&mut self, error: DeviceError, stake: Stake) -> Result<Instant, Stop> {
        if !error.is_transient() {
            return Err(error.into());
        }
        let (now, crew, id) = (Instant::now(), &self.night.crew, &self.device.id);
        self.tries += 1;
        self.reach.failed(now);
        crew.set_away(id, true);
        if self.is_hopeless(stake) {
            return Err(error.into());
        }
        let pause = self.reach.pause(jitter());
        let again_s = pause.as_secs_f64().ceil() as u64;
        self.emit(Event::OutOfReach { device: id.clone(), reason: error.to_string(), again_s });
        // The others may be through before that.
        let mut error = Some(error);
        self.pause(now + pause, stake.has_run(), || if self.is_hopeless(stake) { error.take().map(Stop::Device) } else { None })?;
        Ok(Instant::now())
    }

    /// Reach a device for the first time, having waited for its turn each time that it is tried.
    pub fn first(&mut self) -> Result<(MyTurn<'n>, Session, GivenBack), Stop> {
        loop {
            let (turn, at_work) = (self.turn()?, self.night.crew.count());
            match self.open(false) {
                Ok((session, given_back)) => return Ok((turn, session, given_back)),
                Err(e) if self.is_ours(&e) && at_work > 1 => {
                    // Another name of the same machine, with a keeper of its own. It ends that one when it is through.
                    drop(turn);
                    self.night.crew.fewer_than(at_work)?;
                }
                Err(e) => {
                    drop(turn);
                    self.failed(e, Stake::Jobs)?;
                }
            }
        }
    }

    fn is_hopeless(&self, stake: Stake) -> bool {
        if matches!(self.device.transport, Transport::Local(_)) || stake == Stake::Nothing {
            // Only one that was there may be on its way back.
            return !self.reach.was_there() || self.tries >= MOST_TRIES;
        }
        self.reach.is_hopeless(Instant::now(), self.night.crew.others_are_at_work(&self.device.id), stake.until())
    }

    /// Does this campaign itself hold the device?
    fn is_ours(&self, error: &DeviceError) -> bool {
        error.holder().is_some_and(|holder| holder.results_id == self.night.holder.results_id)
    }
}

impl DeviceError {
    /// May the next attempt succeed, although nothing has changed but the time?
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, DeviceError::NoAnswer { .. } | DeviceError::LinkLost { .. } | DeviceError::Unreachable { passing: true, .. })
    }
}

/// 0 … 1.
fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0
}
