//! The devices of a night beside each other: a thread works on each, this one listens to signals and to those that end.

use super::device_night::DeviceNight;
use super::event::Event;
use super::line::Line;
use super::night::{Night, Told};
use super::signals::Stopping;
use super::{RunError, Stop};
use crate::config::model::Transport;
use crate::device::boot_id;
use crate::schedule::Group;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Who is to leave does so within this time, or the night ends without it: whatever is stored is durable, and devices go on by themselves.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

impl<'a> Night<'a> {
    /// Work on all devices until nothing is left to do there, or a user wants to leave.
    ///
    /// # Errors
    /// What ends the whole night; a device that fails is in the summary.
    pub(super) fn all_devices(&self, tell: &Sender<Told>, told: &Receiver<Told>, attentive: &AtomicBool) -> Result<(), RunError> {
        // Not the devices of the plan's points: what a device says now may bring in points that its last report has left out.
        let built = self.campaign.blocks.iter().filter(|block| block.is_built());
        let used: BTreeSet<&str> = built.flat_map(|block| &block.devices).map(String::as_str).collect();
        let chosen = |id: &&String| used.contains(id.as_str()) && self.options.device.as_ref().is_none_or(|d| d == *id);
        let devices: Vec<&String> = self.campaign.devices.keys().filter(chosen).collect();
        self.state().summary.devices = devices.len();
        let mut lines = Vec::new();
        for id in devices {
            let device = &self.campaign.devices[id];
            let (sender, happenings) = channel();
            let named = device.resource_group.clone().map(Group::Named);
            let here = matches!(device.transport, Transport::Local(_)).then(boot_id).flatten().map(Group::Machine);
            self.crew.enter(id, named.into_iter().chain(here), sender.clone());
            lines.push(Line::new(self, device, sender, happenings));
        }
        attentive.store(true, Ordering::SeqCst);
        let result = thread::scope(|scope| {
            let mut at_work = 0;
            let mut result = Ok(());
            for line in lines {
                let (id, tell) = (line.device.id.clone(), tell.clone());
                let work = move || {
                    let mut leaving = Leaving { night: self, tell, device: id, result: None };
                    leaving.result = Some(DeviceNight::work(line));
                };
                match thread::Builder::new().name("device".into()).spawn_scoped(scope, work) {
                    Ok(_) => at_work += 1,
                    Err(source) => result = Err(RunError::Io { what: "start a thread", source }),
                }
            }
            if result.is_err() {
                self.leave_at_once();
            }
            self.listen(told, at_work, result)
        });
        attentive.store(false, Ordering::SeqCst);
        result
    }

    fn listen(&self, told: &Receiver<Told>, mut at_work: usize, mut result: Result<(), RunError>) -> Result<(), RunError> {
        while at_work > 0 {
            let next = match self.crew.stopping() {
                Stopping::DetachAt { moment, .. } => {
                    let until = moment + LEAVE_WITHIN;
                    match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                        Ok(next) => next,
                        Err(_) => self.end_without_them(result),
                    }
                }
                // As long as somebody works, somebody will tell.
                _ => match told.recv() {
                    Ok(next) => next,
                    Err(_) => return result,
                },
            };
            match next {
                Told::Signal(signal) => {
                    let stopping = self.crew.stopping().after(signal, Instant::now());
                    self.state().summary.interrupted_by = Some(signal);
                    self.emit(Event::Stopping { how: stopping.told() });
                    self.crew.stop(stopping);
                }
                Told::Ended { device, how } => {
                    at_work -= 1;
                    if let Err(e) = self.ended(device, how) {
                        self.leave_at_once();
                        result = result.and(Err(e));
                    }
                }
            }
        }
        result
    }

    /// The work on a device is over.
    fn ended(&self, device: String, how: Result<(), Stop>) -> Result<(), RunError> {
        let (message, hint) = match how {
            Ok(()) | Err(Stop::Asked) => return Ok(()),
            Err(Stop::Fatal(e)) => return Err(e),
            Err(Stop::Device(e)) => (e.to_string(), e.hint()),
            Err(Stop::Condition(e)) => (e.to_string(), Some(e.hint())),
            Err(Stop::Option(unknown)) => {
                let error = RunError::UnknownOption(unknown);
                // Nobody else is there to go on.
                if self.state().summary.devices == 1 {
                    return Err(error);
                }
                self.state().summary.devices_refused.push(error.to_string());
                (error.to_string(), error.hint())
            }
        };
        self.state().summary.devices_failed += 1;
        self.emit(Event::DeviceFailed { device, message, hint });
        Ok(())
    }

    /// Nothing can be stored any more: results stay on their devices.
    fn leave_at_once(&self) {
        self.crew.stop(Stopping::DetachAt { moment: Instant::now() });
    }

    /// Somebody hangs in something long, such as a device that hashes its models, and there is no way to return before it does.
    fn end_without_them(&self, result: Result<(), RunError>) -> ! {
        let finished = self.finish().map_err(RunError::from);
        let fault = self.state().fatal.take().map(RunError::from);
        let error = result.and(fault.map_or(Ok(()), Err)).and(finished).err();
        if let Some(error) = &error {
            self.emit(Event::Warning { message: error.to_string() });
        }
        let interrupted = self.state().summary.interrupted_by;
        std::process::exit(match (error, interrupted) {
            (Some(error), _) => error.exit_code().into(),
            (None, signal) => 128 + signal.unwrap_or(0),
        })
    }
}

/// Whoever works on a device says so when it doesn't any more, whatever happened to it.
struct Leaving<'n, 'a> {
    night: &'n Night<'a>,
    tell: Sender<Told>,
    device: String,
    /// `None` = it panicked.
    result: Option<Result<(), Stop>>,
}

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        self.night.crew.leave(&self.device);
        let how = self.result.take().unwrap_or(Err(Stop::Asked));
        let _ = self.tell.send(Told::Ended { device: self.device.clone(), how });
    }
}
