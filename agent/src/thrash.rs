//! Thrashing: a machine that does little else than move memory is stopped before nobody reaches it any more.
//!
//! Takes the kernel's count of stalls and times, gives whether that is the case; must not know what is running.

use crate::sys;
use std::fs::File;
use std::path::Path;

/// Share of the time in which every task that could run waits for memory, beyond which a machine thrashes …
const MOST_STALLED: f64 = 0.5;
/// … over this long, ns.
const OVER_NS: u64 = 60_000_000_000;
/// Time between two looks, ns: one small read, which no workload notices.
const LOOK_EVERY_NS: u64 = 5_000_000_000;

/// Looks at `/proc/pressure/memory` now and then; where a kernel has none, nothing is ever seen.
pub struct Watch {
    file: Option<File>,
    stalls: Stalls,
    look_at_ns: u64,
}

impl Watch {
    pub fn open(root: &Path) -> Watch {
        let mut watch = Watch { file: File::open(root.join("proc/pressure/memory")).ok(), stalls: Stalls::default(), look_at_ns: 0 };
        watch.thrashes();
        watch
    }

    /// Time until the next look, ns.
    pub fn pause_ns(&self) -> u64 {
        match self.file {
            Some(_) => self.look_at_ns.saturating_sub(sys::monotonic_ns()),
            None => u64::MAX,
        }
    }

    /// Look, if it is time to.
    pub fn thrashes(&mut self) -> bool {
        let now_ns = sys::monotonic_ns();
        let Some(file) = self.file.as_ref().filter(|_| now_ns >= self.look_at_ns) else { return false };
        self.look_at_ns = now_ns + LOOK_EVERY_NS;
        let mut buffer = [0; 256];
        let text = sys::pread(file, &mut buffer).ok().and_then(|n| std::str::from_utf8(&buffer[..n]).ok());
        text.and_then(full_us).is_some_and(|full_us| self.stalls.add(now_ns, full_us))
    }
}

/// Time since boot in which all tasks stood still for memory, µs: `total` of the line `full` (Documentation/accounting/psi.rst).
fn full_us(text: &str) -> Option<u64> {
    text.lines().find(|line| line.starts_with("full "))?.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Readings of the last [`OVER_NS`] and one before: time, ns, and µs stalled until then.
#[derive(Default)]
struct Stalls(Vec<(u64, u64)>);

impl Stalls {
    /// Add a reading; true if more than [`MOST_STALLED`] of the last [`OVER_NS`] was lost.
    fn add(&mut self, now_ns: u64, full_us: u64) -> bool {
        self.0.push((now_ns, full_us));
        let is_old = |reading: &(u64, u64)| now_ns.saturating_sub(reading.0) >= OVER_NS;
        let Some(last_old) = self.0.iter().rposition(is_old) else { return false };
        self.0.drain(..last_old);
        let (then_ns, then_us) = self.0[0];
        full_us.saturating_sub(then_us) as f64 * 1e3 > MOST_STALLED * (now_ns - then_ns) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Seconds and the share stalled until the next one; the second in which it was seen.
    fn seen(shares: impl IntoIterator<Item = (u64, f64)>) -> Option<u64> {
        let (mut stalls, mut full_us) = (Stalls::default(), 7_000_000.0);
        shares.into_iter().find_map(|(second, share)| {
            let seen = stalls.add(second * SECOND_NS, full_us as u64);
            full_us += share * 1e6;
            seen.then_some(second)
        })
    }

    #[test]
    fn a_minute_of_more_than_half_is_thrashing_and_less_is_not() {
        assert_eq!(seen((100..1000).map(|s| (s, 0.6))), Some(160));
        assert_eq!(seen((100..1000).map(|s| (s, 0.5))), None);
        // A model being loaded over 40 s, then work.
        assert_eq!(seen((0..1000).map(|s| (s, if s < 40 { 0.7 } else { 0.01 }))), None);
        assert_eq!(seen((0..1000).map(|s| (s, if s < 500 { 0.01 } else { 1.0 }))), Some(530));
    }

    #[test]
    fn looks_that_come_late_are_judged_by_the_time_between_them() {
        assert!(Stalls(vec![(0, 0)]).add(600 * SECOND_NS, 301_000_000));
        assert!(!Stalls(vec![(0, 0)]).add(600 * SECOND_NS, 299_000_000));
    }

    #[test]
    fn the_count_is_read_from_the_line_of_all_tasks() {
        let text = "some avg10=0.00 avg60=0.28 avg300=0.51 total=3013974\nfull avg10=0.00 avg60=0.26 avg300=0.48 total=2782455\n";
        assert_eq!(full_us(text), Some(2_782_455));
        assert_eq!((full_us("some avg10=0.00 total=1\n"), full_us("")), (None, None));
    }
}
