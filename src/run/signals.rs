//! Signals to the controller, as happenings in the same queue as those of the devices.

use crate::device::Happening;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// After the second Ctrl-C, a third one within this time cancels.
pub const CANCEL_WITHIN: Duration = Duration::from_secs(2);

/// Send every signal into the queue from now on. `attentive`: somebody looks at the queue right now.
///
/// # Errors
/// The handlers could not be installed.
pub fn listen(happenings: Sender<Happening>, attentive: Arc<AtomicBool>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut seen = 0;
        for signal in signals.forever() {
            seen += 1;
            // Busy with something long, such as a device that hashes its models. Whatever is stored is durable and the device goes
            // on without us, so leaving at once is a detach; only a first Ctrl-C waits for the step to end.
            if !attentive.load(Ordering::SeqCst) && (signal != SIGINT || seen > 1) {
                std::process::exit(128 + signal);
            }
            if happenings.send(Happening::Signal(signal)).is_err() {
                break;
            }
        }
    })?;
    Ok(())
}

/// How far a user has asked to stop. Pure: moments are passed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stopping {
    #[default]
    No,
    /// No new jobs; the running one is waited for.
    Drain,
    /// The running one goes on without us, unless a third Ctrl-C comes before this moment.
    DetachAt { moment: Instant, signal: i32 },
    /// The running one is ended.
    Cancel,
}

impl Stopping {
    /// What a signal makes of it.
    #[must_use]
    pub fn after(self, signal: i32, now: Instant) -> Stopping {
        match (signal, self) {
            (SIGINT, Stopping::No) => Stopping::Drain,
            (SIGINT, Stopping::Drain) => Stopping::DetachAt { moment: now + CANCEL_WITHIN, signal },
            (SIGINT, Stopping::DetachAt { moment, .. }) if now < moment => Stopping::Cancel,
            (SIGINT, other) => other,
            (_, Stopping::Cancel) => Stopping::Cancel,
            (signal, _) => Stopping::DetachAt { moment: now, signal },
        }
    }

    /// What a person is told.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Stopping::No => "going on",
            Stopping::Drain => "no new jobs; waiting for the running one (Ctrl-C again to leave it running)",
            Stopping::DetachAt { .. } => "leaving the running job to its device; the next `run` collects it (Ctrl-C again now to cancel it)",
            Stopping::Cancel => "ending the running job",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ctrl_c_drains_two_detach_three_cancel() {
        let now = Instant::now();
        let one = Stopping::No.after(SIGINT, now);
        assert_eq!(one, Stopping::Drain);
        let two = one.after(SIGINT, now);
        assert_eq!(two, Stopping::DetachAt { moment: now + CANCEL_WITHIN, signal: SIGINT });
        assert_eq!(two.after(SIGINT, now + Duration::from_secs(1)), Stopping::Cancel);
        assert_eq!(two.after(SIGINT, now + Duration::from_secs(3)), two);
    }

    #[test]
    fn term_and_hangup_detach_at_once() {
        let now = Instant::now();
        for signal in [SIGTERM, SIGHUP] {
            assert_eq!(Stopping::No.after(signal, now), Stopping::DetachAt { moment: now, signal });
            assert_eq!(Stopping::Drain.after(signal, now), Stopping::DetachAt { moment: now, signal });
        }
    }
}
