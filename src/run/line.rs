//! The line to one device: reaches it as often as makes sense, and waits for what comes over it. It must not know jobs.

use super::Stop;
use super::crew::MyTurn;
use super::event::Event;
use super::groups::{self, GroupLock};
use super::night::Night;
use super::signals::Stopping;
use crate::config::model::{Device, Transport};
use crate::device::{DeviceError, Happening, Session};
use crate::schedule::{Group, Reach};
use isotherm_wire::session::GivenBack;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// An agent on this machine that can't be reached so often never will be: there is no link that could come back.
const MOST_TRIES_HERE: u32 = 5;

/// A group that another campaign has is asked for this often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A device, from where somebody works on it.
pub(super) struct Line<'n, 'a> {
    pub(super) night: &'n Night<'a>,
    pub(super) device: &'a Device,
    sender: Sender<Happening>,
    happenings: Receiver<Happening>,
    reach: Reach,
    tries: u32,
}

impl<'n, 'a> Line<'n, 'a> {
    pub fn new(night: &'n Night<'a>, device: &'a Device, sender: Sender<Happening>, happenings: Receiver<Happening>) -> Line<'n, 'a> {
        Line { night, device, sender, happenings, reach: Reach::new(), tries: 0 }
    }

    pub fn emit(&self, event: Event) {
        self.night.emit(event);
    }

    /// The next thing that happens; `None` after `limit`.
    pub fn next(&self, limit: Duration) -> Option<Happening> {
        self.happenings.recv_timeout(limit).ok()
    }

    /// Wait; a user who wants to leave ends it.
    fn pause(&self, time: Duration) -> Result<(), Stop> {
        let until = Instant::now() + time;
        loop {
            if !matches!(self.night.crew.stopping(), Stopping::No | Stopping::Drain) {
                return Err(Stop::Asked);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let _ = self.next(left);
        }
    }

    /// Wait for the device's turn, among our own and other campaigns' devices; it lasts as long as what is returned.
    pub fn turn(&self) -> Result<(Option<GroupLock>, MyTurn<'n>), Stop> {
        let turn = self.night.crew.turn(&self.device.id)?;
        Ok((self.group()?, turn))
    }

    fn group(&self) -> Result<Option<GroupLock>, Stop> {
        let Some(group) = &self.device.resource_group else { return Ok(None) };
        let mut told = false;
        loop {
            let night = self.night;
            let holder = match groups::take(group, &night.campaign.name, &night.holder.controller) {
                Ok(Ok(lock)) => return Ok(Some(lock)),
                Ok(Err(holder)) => holder,
                Err(e) => {
                    let message = format!("resource group `{group}` can't be kept from other campaigns: {e}");
                    self.emit(Event::Warning { message });
                    return Ok(None);
                }
            };
            if !told {
                told = true;
                self.emit(Event::GroupTaken { device: self.device.id.clone(), group: group.clone(), holder });
            }
            self.pause(LOOK_AGAIN)?;
            self.night.check()?;
        }
    }

    /// The link is gone; a run of this device ends at `until` at the latest. Reach it again: the same keeper, or a new one where it is gone.
    pub fn reopen(&mut self, reason: &str, until: Option<Instant>) -> Result<(Session, GivenBack), Stop> {
        let now = Instant::now();
        self.emit(Event::LinkLost { device: self.device.id.clone(), reason: reason.to_owned() });
        self.reach.lost(now);
        // Where nothing runs, nobody has to wait for it.
        self.night.crew.lost(&self.device.id, until.unwrap_or(now));
        self.tries = 0;
        let opened = self.open(until)?;
        self.night.crew.found(&self.device.id)?;
        self.emit(Event::LinkBack { device: self.device.id.clone() });
        Ok(opened)
    }

    /// Reach the device's keeper. What an earlier one had borrowed and this one has given back comes with it.
    pub fn open(&mut self, until: Option<Instant>) -> Result<(Session, GivenBack), Stop> {
        let id = &self.device.id;
        loop {
            self.pause(self.reach.pause(jitter()))?;
            self.night.crew.work(id)?;
            let error = match Session::open(self.device, &self.night.holder, &self.sender) {
                Ok(mut session) => {
                    self.reach.reached(Instant::now());
                    self.night.crew.set_away(id, false);
                    let given_back = session.given_back();
                    return Ok((session, given_back));
                }
                Err(e) => e,
            };
            self.tries += 1;
            let now = Instant::now();
            self.reach.failed(now);
            self.night.crew.set_away(id, true);
            let here = matches!(self.device.transport, Transport::Local(_));
            let hopeless = if here {
                // Only one that was there may be on its way back.
                !self.reach.was_there() || self.tries >= MOST_TRIES_HERE
            } else {
                self.reach.is_hopeless(now, self.night.crew.others_are_at_work(id), until)
            };
            if hopeless || !error.is_transient() {
                return Err(error.into());
            }
            let (device, again_s) = (id.clone(), self.reach.pause(0.0).as_secs());
            self.emit(Event::OutOfReach { device, reason: error.to_string(), again_s });
        }
    }

    /// The machine that it is.
    pub fn machine(&self, session: &Session) -> Option<Group> {
        session.welcome().ok().and_then(|welcome| welcome.boot_id.clone()).map(Group::Machine)
    }
}

impl DeviceError {
    /// May the next attempt succeed, although nothing has changed but the time?
    fn is_transient(&self) -> bool {
        matches!(self, DeviceError::NoAnswer { .. } | DeviceError::LinkLost { .. } | DeviceError::Unreachable { passing: true, .. })
    }
}

/// 0 … 1.
fn jitter() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0
}
