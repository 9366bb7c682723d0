//! Those who work on the devices of a night, a thread each: waits for turns and pauses that a user who wants to leave ends.

use super::Stop;
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
        Crew { turns, changed: Condvar::new(), stopping, bells: Mutex::new(Vec::new()) }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change what turns go by, and let everybody look again.
    fn change<T>(&self, change: impl FnOnce(&mut Turns) -> T) -> T {
        let changed = change(&mut self.turns());
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
    }

    /// How far a user has asked to stop.
    pub fn stopping(&self) -> Stopping {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everybody hears of it.
    pub fn stop(&self, stopping: Stopping) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = stopping;
        for bell in self.bells.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = bell.send(Happening::Woken);
        }
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

    /// Wait for the device's turn, which lasts as long as what is returned.
    pub fn turn<'c>(&'c self, device: &'c str) -> Result<MyTurn<'c>, Stop> {
        let mine = MyTurn { crew: self, device };
        self.ask(device, |stopping| stopping != Stopping::No)?;
        Ok(mine)
    }

    fn ask(&self, device: &str, leave: impl Fn(Stopping) -> bool) -> Result<(), Stop> {
        self.wait(leave, |turns| {
            // Beginning anything is work for the controller.
            if !turns.may_work(device) {
                return Err(None);
            }
            match turns.ask(device, Instant::now()) {
                Turn::Yours => Ok(()),
                Turn::Wait { again, .. } => Err(again),
            }
        })
    }

    /// Wait until nothing is measured on the controller's own machine but by this device.
    pub fn work(&self, device: &str) -> Result<(), Stop> {
        self.wait(leaves_runs, |turns| if turns.may_work(device) { Ok(()) } else { Err(None) })
    }

    /// Is nothing measured on the controller's own machine but by this device?
    pub fn may_work(&self, device: &str) -> bool {
        self.turns().may_work(device)
    }

    /// Out of reach in its turn; what it runs has ended at `until`.
    pub fn lost(&self, device: &str, until: Instant) {
        self.change(|turns| {
            turns.lost(device, until);
            turns.set_away(device, true);
        });
    }

    /// It is back, and has its turn again, or waits for it.
    pub fn found(&self, device: &str) -> Result<(), Stop> {
        match self.change(|turns| turns.found(device, Instant::now())) {
            true => Ok(()),
            false => self.ask(device, leaves_runs),
        }
    }

    pub fn set_away(&self, device: &str, away: bool) {
        self.change(|turns| turns.set_away(device, away));
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
