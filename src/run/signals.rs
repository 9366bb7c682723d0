//! Signals to the controller, and what they ask for.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// After the second Ctrl-C, a third one within this time cancels.
pub const CANCEL_WITHIN: Duration = Duration::from_secs(2);

/// Pass every signal on from now on. `attentive`: somebody listens right now.
///
/// # Errors
/// The handlers could not be installed.
pub fn listen(mut tell: impl FnMut(i32) -> bool + Send + 'static, attentive: Arc<AtomicBool>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut seen = 0;
        for signal in signals.forever() {
            seen += 1;
            // Before the first device and after the last one. Whatever is stored is durable and devices go on without us, so leaving at once
            // is a detach; only a first Ctrl-C waits for the step to end.
            if !attentive.load(Ordering::SeqCst) && (signal != SIGINT || seen > 1) {
                std::process::exit(128 + signal);
            }
            if !tell(signal) {
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
    DetachAt { moment: Instant },
    /// The running one is ended.
    Cancel,
}

impl Stopping {
    /// What a signal makes of it.
    #[must_use]
    pub fn after(self, signal: i32, now: Instant) -> Stopping {
        match (signal, self) {
            (SIGINT, Stopping::No) => Stopping::Drain,
            (SIGINT, Stopping::Drain) => Stopping::DetachAt { moment: now + CANCEL_WITHIN },
            (SIGINT, Stopping::DetachAt { moment, .. }) if now < moment => Stopping::Cancel,
            (SIGINT, left @ Stopping::DetachAt { .. }) => left,
            // Also of one that doesn't end.
            _ => Stopping::DetachAt { moment: now },
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
        assert_eq!(two, Stopping::DetachAt { moment: now + CANCEL_WITHIN });
        assert_eq!(two.after(SIGINT, now + Duration::from_secs(1)), Stopping::Cancel);
        assert_eq!(two.after(SIGINT, now + Duration::from_secs(3)), two);
        // One that can't be cancelled keeps nobody.
        assert_eq!(Stopping::Cancel.after(SIGINT, now), Stopping::DetachAt { moment: now });
    }

    #[test]
    fn term_and_hangup_detach_at_once() {
        let now = Instant::now();
        for signal in [SIGTERM, SIGHUP] {
            assert_eq!(Stopping::No.after(signal, now), Stopping::DetachAt { moment: now });
            assert_eq!(Stopping::Drain.after(signal, now), Stopping::DetachAt { moment: now });
            assert_eq!(Stopping::Cancel.after(signal, now), Stopping::DetachAt { moment: now });
        }
    }
}
