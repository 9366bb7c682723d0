//! Memory that a workload's processes hold together: their resident sets, added up twice a second.
//!
//! Takes the run's `init` and gives the largest sum; must not know what is measured. What is held for less than that can be missed; the
//! kernel's own peak of a single process can't.

use crate::looking::Looking;
use crate::{processes, sys};
use isotherm_wire::inspect::ContainmentLevel;
use isotherm_wire::result::{PeakRss, PeakRssBy, Usage};
use std::fs;
use std::io;

/// Before the first look and between all others, ns.
const EVERY_NS: u64 = 500_000_000;
/// A look at many processes is followed by a pause this many times as long.
const PAUSE_PER_LOOK: u64 = 200;

/// Look at the processes below `init`. Gives the largest sum, bytes; `None` if no look met a process.
pub fn watch(init: i32, level: ContainmentLevel) -> io::Result<Looking<Option<u64>>> {
    // The first process of a namespace is ours, and passes its signals on.
    let ours = usize::from(level == ContainmentLevel::PidNamespace);
    Looking::start("resident", move |stopped| {
        let mut peak = None;
        let mut wait = EVERY_NS;
        while !stopped.within(wait) {
            let before_ns = sys::monotonic_ns();
            peak = peak.max(sum(processes::descendants(init).into_iter().skip(ours)));
            wait = EVERY_NS.max((sys::monotonic_ns() - before_ns).saturating_mul(PAUSE_PER_LOOK));
        }
        peak
    })
}

/// The larger of what was looked at and what the kernel says of a single process: each is a lower bound.
pub fn peak(looked: Option<u64>, usage: Option<&Usage>) -> Option<PeakRss> {
    let looks = looked.map(|bytes| PeakRss { bytes, by: PeakRssBy::Looks });
    let process = usage.map(|usage| PeakRss { bytes: usage.max_rss_bytes, by: PeakRssBy::LargestProcess });
    looks.into_iter().chain(process).max_by_key(|peak| peak.bytes)
}

fn sum(pids: impl Iterator<Item = i32>) -> Option<u64> {
    pids.filter_map(resident).reduce(|sum, bytes| sum.saturating_add(bytes))
}

/// Resident set of a process, bytes; `None` if it is gone.
fn resident(pid: i32) -> Option<u64> {
    // Pages: size resident …
    let pages: u64 = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(sys::page_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_sets_are_added_up_and_who_is_gone_has_none() {
        let own = std::process::id() as i32;
        let [one, two] = [1, 2].map(|n| sum(std::iter::repeat_n(own, n)).unwrap_or_default());
        assert!(one > 100_000 && two > one + one / 2, "{one} {two}");
        assert_eq!(sum([i32::MAX].into_iter()), None);
    }

    #[test]
    fn the_larger_of_two_lower_bounds_stands() {
        let usage = |max_rss_bytes| Usage { max_rss_bytes, ..Usage::default() };
        let told = |looked, usage: Option<Usage>| peak(looked, usage.as_ref()).map(|peak| (peak.bytes, peak.by));
        assert_eq!(told(Some(9), Some(usage(5))), Some((9, PeakRssBy::Looks)));
        assert_eq!(told(Some(5), Some(usage(9))), Some((9, PeakRssBy::LargestProcess)));
        assert_eq!(told(None, Some(usage(9))), Some((9, PeakRssBy::LargestProcess)));
        assert_eq!(told(None, None), None);
    }
}
