//! A device that can't be reached: when it is tried again, how long it is waited for, and when the rest of its jobs is hopeless.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So many failures in a row and a device that was never there is tried rarely.
const OPENS_AFTER: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A device that was there is tried this often at least, …
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// … one that never was first after, and at least every …
const FIRST_PROBE: Duration = Duration::from_secs(30);
const LONGEST_PROBE: Duration = Duration::from_secs(600);
/// A link that lasted so long was a good one: losing it counts from the beginning.
const STEADY: Duration = Duration::from_secs(60);
/// One that was there is waited for so long, even where nothing else is left to do.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(30 * 60);

/// How a device has been reached so far.
#[derive(Debug)]
pub struct Reach {
    failures: u32,
    /// When it was reached last.
    reached: Option<Instant>,
    lost: Option<Instant>,
}

impl Reach {
    /// Never tried.
    #[must_use]
    pub fn new() -> Reach {
        Reach { failures: 0, reached: None, lost: None }
    }

    pub fn reached(&mut self, now: Instant) {
        if !self.was_there() {
            self.failures = 0;
        }
        (self.reached, self.lost) = (Some(now), None);
    }

    /// A link is gone.
    pub fn lost(&mut self, now: Instant) {
        if self.reached.is_some_and(|reached| now.saturating_duration_since(reached) >= STEADY) {
            self.failures = 0;
        }
        self.lost.get_or_insert(now);
    }

    /// It could not be reached.
    pub fn failed(&mut self, now: Instant) {
        self.failures += 1;
        self.lost.get_or_insert(now);
    }

    /// Was it ever reached?
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.reached.is_some()
    }

    /// Until it is tried again. `jitter`, 0 … 1, keeps devices that were lost together apart.
    #[must_use]
    pub fn pause(&self, jitter: f64) -> Duration {
        let doubled = |first: Duration, times: u32, most: Duration| first.saturating_mul(1 << times.min(16)).min(most);
        let pause = match self.failures {
            0 => return Duration::ZERO,
            n if !self.was_there() && n >= OPENS_AFTER => doubled(FIRST_PROBE, n - OPENS_AFTER, LONGEST_PROBE),
            n => doubled(FIRST_PAUSE, n - 1, LONGEST_PAUSE),
        };
        pause.mul_f64(0.75 + 0.25 * jitter)
    }

    /// Is it given up? `others`: other devices are still at work, and it costs nothing to go on; `until`: its run may last so long.
    #[must_use]
    pub fn is_hopeless(&self, now: Instant, others: bool, until: Option<Instant>) -> bool {
        let Some(lost) = self.lost else { return false };
        match self.reached {
            _ if others => false,
            None => self.failures >= OPENS_AFTER,
            Some(_) => now >= until.map_or(lost + COMES_BACK_WITHIN, |until| until.max(lost + COMES_BACK_WITHIN)),
        }
    }
}

impl Default for Reach {
    fn default() -> Self {
        Reach::new()
    }
}

/// Has a device what its jobs need? Once three runs that need the same have failed for want of it, and none has had it, no other one that
/// needs it is started.
#[derive(Debug, Default)]
pub struct Doom {
    /// By what is needed: how often it was wanting, or that it was there.
    known: BTreeMap<String, Option<u32>>,
}

impl Doom {
    /// A run has ended; `wanting`: what it needs isn't there.
    pub fn note(&mut self, needs: &str, wanting: bool) {
        let times = self.known.entry(needs.to_owned()).or_insert(Some(0));
        *times = times.filter(|_| wanting).map(|times| times + 1);
    }

    #[must_use]
    pub fn is_certain(&self, needs: &str) -> bool {
        self.known.get(needs).copied().flatten().is_some_and(|times| times >= OPENS_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn pauses(reach: &mut Reach, n: usize, now: Instant) -> Vec<u64> {
        let mut one = || {
            reach.failed(now);
            reach.pause(1.0).as_secs()
        };
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn one_that_was_never_there_is_tried_three_times_and_then_rarely() {
        let now = Instant::now();
        assert_eq!(pauses(&mut Reach::new(), 9, now), [1, 2, 30, 60, 120, 240, 480, 600, 600]);
        let mut reach = Reach::new();
        pauses(&mut reach, 2, now);
        assert!(!reach.is_hopeless(now, false, None));
        reach.failed(now);
        assert!(reach.is_hopeless(now, false, None), "nobody else is at work");
        assert!(!reach.is_hopeless(now + 36_000 * S, true, None));
    }

    #[test]
    fn one_that_was_there_is_tried_again_at_once_and_then_ever_more_rarely() {
        let (now, mut reach) = (Instant::now(), Reach::new());
        pauses(&mut reach, 4, now);
        reach.reached(now);
        reach.lost(now + S);
        assert_eq!(reach.pause(0.5), Duration::ZERO);
        assert_eq!(pauses(&mut reach, 9, now + 100 * S), [1, 2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(reach.pause(0.0), 90 * S, "no two of them at one moment");
        // A link that is lost again and again is given more and more time, and one that has lasted begins anew.
        reach.reached(now + 200 * S);
        reach.lost(now + 203 * S);
        assert_eq!(reach.pause(1.0), 120 * S);
        reach.reached(now + 300 * S);
        reach.lost(now + 400 * S);
        assert_eq!(reach.pause(1.0), Duration::ZERO);
    }

    #[test]
    fn one_that_was_there_is_waited_for_half_an_hour_or_until_its_run_has_ended() {
        let (now, mut reach) = (Instant::now(), Reach::new());
        reach.reached(now);
        assert!(!reach.is_hopeless(now + 36_000 * S, false, None), "it is there");
        reach.lost(now);
        reach.failed(now + S);
        assert!(!reach.is_hopeless(now + 1799 * S, false, None));
        assert!(reach.is_hopeless(now + 1800 * S, false, None));
        assert!(!reach.is_hopeless(now + 3600 * S, false, Some(now + 7200 * S)));
        assert!(!reach.is_hopeless(now + 36_000 * S, true, None));
    }

    #[test]
    fn what_three_runs_have_found_missing_no_other_run_that_needs_it_will_find() {
        let told = |runs: &[bool]| {
            let mut doom = Doom::default();
            runs.iter().for_each(|wanting| doom.note("bench", *wanting));
            (doom.is_certain("bench"), doom.is_certain("other"))
        };
        assert_eq!(told(&[true, true]), (false, false));
        assert_eq!(told(&[true, true, true]), (true, false));
        assert_eq!(told(&[true, false, true, true, true]), (false, false), "it was there once");
    }
}
