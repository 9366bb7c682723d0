//! Those who work on the devices of a night, a thread each: waits for turns and pauses that a user who wants to leave ends.

use super::Stop;
use super::groups::Groups;
use super::signals::Stopping;
use crate::device::Happening;
use crate::schedule::{Group, Turn, Turns};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Everybody waits at least this long before looking again, should nobody have said anything.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What all of them share.
pub(super) struct Crew {
    turns: Mutex<Turns>,
    /// Locked behind `turns`.
    groups: Mutex<Groups>,
    /// Rung when `turns` or `stopping` have changed.
    changed: Condvar,
    stopping: Mutex<Stopping>,
    /// One for each of them.
    bells: Mutex<Vec<Sender<Happening>>>,
}

impl Crew {
    /// At most so many devices at once.
    pub fn new(most: usize) -> Crew {
        let (turns, stopping) = (Mutex::new(Turns::new(most)), Mutex::new(Stopping::No));
        Crew { turns, groups: Mutex::default(), changed: Condvar::new(), stopping, bells: Mutex::default() }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change what turns go by, and let everybody look again.
    fn change<T>(&self, change: impl FnOnce(&mut Turns) -> T) -> T {
        let mut turns = self.turns();
        let changed = change(&mut turns);
        self.groups().keep_only(&turns.wanted(Instant::now()));
        drop(turns);
        self.changed.notify_all();
        changed
    }

    /// Take in who works on a device; `bell` ends its waiting.
    pub fn enter(&self, device: &str, groups: impl IntoIterator<Item = Group>, bell: Sender<Happening>) {
        self.turns().enter(device, groups);
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(bell);
    }

    pub fn leave(&self, device: &str) {
        self.change(|turns| turns.leave(device));
        // Whoever is away may be the last one now.
        self.wake();
    }

    fn wake(&self) {
        for bell in self.bells.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = bell.send(Happening::Woken);
        }
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far a user has asked to stop.
    pub fn stopping(&self) -> Stopping {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everybody hears of it.
    pub fn stop(&self, stopping: Stopping) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = stopping;
        self.wake();
        // Nobody is between having looked and waiting.
        drop(self.turns());
        self.changed.notify_all();
    }

    /// Wait until `ready`, whose moment is when to look again; a user who is to `leave` ends it.
    fn wait(&self, leave: impl Fn(Stopping) -> bool, mut ready: impl FnMut(&mut Turns) -> Result<(), Option<Instant>>) -> Result<(), Stop> {
        let mut turns = self.turns();
        loop {
            if leave(self.stopping()) {
                return Err(Stop::Asked);
            }
            let again = match ready(&mut turns) {
                Ok(()) => return Ok(()),
                Err(again) => again.map_or(LOOK_AGAIN, |again| again.saturating_duration_since(Instant::now()).min(LOOK_AGAIN)),
            };
            turns = self.changed.wait_timeout(turns, again).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wait for the device's turn, which lasts as long as what is returned; or until it is clear that another campaign has it, which is then
    /// asked for again.
    pub fn turn<'c>(&'c self, device: &'c str, us: &str) -> Result<Result<MyTurn<'c>, Outside>, Stop> {
        let asked = self.ask(device, us, |stopping| stopping != Stopping::No)?;
        Ok(asked.map(|()| MyTurn { crew: self, device }))
    }

    fn ask(&self, device: &str, us: &str, leave: impl Fn(Stopping) -> bool) -> Result<Result<(), Outside>, Stop> {
        let mut outside = None;
        let asked = self.wait(leave, |turns| {
            // Beginning anything is work for the controller.
            if !turns.may_work(device) {
                return Err(None);
            }
            match turns.ask(device, Instant::now()) {
                Turn::Wait(again) => return Err(again),
                Turn::Yours => {}
            }
            for group in turns.named(device) {
                if let Err(holder) = self.groups().take(&group, us) {
                    outside = Some(Outside { group, holder });
                    turns.outside(device);
                    return Ok(());
                }
            }
            turns.take(device);
            Ok(())
        });
        if asked.is_err() {
            self.change(|turns| turns.done(device));
        }
        asked.map(|()| outside.map_or(Ok(()), Err))
    }

    /// Wait until nothing is measured on the controller's own machine but by this device.
    pub fn work(&self, device: &str) -> Result<(), Stop> {
        self.wait(leaves_runs, |turns| if turns.may_work(device) { Ok(()) } else { Err(None) })
    }

    /// Is nothing measured on the controller's own machine but by this device?
    pub fn may_work(&self, device: &str) -> bool {
        self.turns().may_work(device)
    }

    /// Why groups aren't kept from other campaigns, once.
    pub fn group_fault(&self) -> Option<String> {
        self.groups().fault.take()
    }

    /// Out of reach in its turn; what it runs has ended at `until`.
    pub fn lost(&self, device: &str, until: Instant) {
        self.change(|turns| {
            turns.lost(device, until);
            turns.set_away(device, true);
        });
    }

    /// It is back, and has its turn still; or has to wait for it like any other.
    pub fn found(&self, device: &str) -> bool {
        self.change(|turns| turns.found(device, Instant::now()))
    }

    /// Wait for the turn of a device whose run may still go on.
    pub fn again(&self, device: &str, us: &str) -> Result<Result<(), Outside>, Stop> {
        self.ask(device, us, leaves_runs)
    }

    pub fn set_away(&self, device: &str, away: bool) {
        self.change(|turns| turns.set_away(device, away));
        if away {
            self.wake();
        }
    }

    pub fn others_are_at_work(&self, device: &str) -> bool {
        self.turns().others_are_at_work(device)
    }

    /// The device measures on this machine from now on, or doesn't any more.
    pub fn set_quiet(&self, device: &str, quiet: bool) {
        self.change(|turns| turns.set_quiet(device, quiet));
    }

    /// Has somebody something to do on a device of this name?
    pub fn is_at_work(&self, device: &str) -> bool {
        self.turns().is_in(device)
    }

    /// A device says which machine it is: those that are the same one.
    pub fn join(&self, device: &str, machine: &Group) -> Vec<String> {
        self.change(|turns| turns.join(device, machine))
    }

    /// How many have something to do.
    pub fn count(&self) -> usize {
        self.turns().count()
    }

    /// Wait until that are fewer.
    pub fn fewer_than(&self, count: usize) -> Result<(), Stop> {
        self.wait(|stopping| stopping != Stopping::No, |turns| if turns.count() < count { Ok(()) } else { Err(None) })
    }

    /// Does another device that is there and still has something to do use its keeper?
    pub fn is_shared(&self, device: &str, machine: &Group) -> bool {
        self.turns().is_shared(device, machine)
    }

    /// The device needs its machine's keeper no more; true = nobody does.
    pub fn let_go(&self, device: &str, machine: &Group) -> bool {
        self.change(|turns| turns.let_go(device, machine))
    }
}

/// The group that another campaign has, and which one that is.
pub(super) struct Outside {
    pub group: String,
    pub holder: String,
}

/// Whoever only drains, or cancels, still sees its run to the end.
fn leaves_runs(stopping: Stopping) -> bool {
    matches!(stopping, Stopping::DetachAt { .. })
}

/// The turn of a device.
pub(super) struct MyTurn<'c> {
    crew: &'c Crew,
    device: &'c str,
}

impl Drop for MyTurn<'_> {
    fn drop(&mut self) {
        self.crew.change(|turns| turns.done(self.device));
    }
}
