//! Memory that a workload's processes hold together: their resident sets, added up twice a second.
//!
//! Takes the run's `init` and gives the largest sum; must not know what is measured. What is held for less than that can be missed; the
//! kernel's own peak of a single process can't.

use crate::looking::Looking;
use crate::{processes, sys};
use isotherm_wire::inspect::ContainmentLevel;
use isotherm_wire::result::{PeakRss, PeakRssBy};
use isotherm_wire::task::Task;
use std::fs;
use std::io;

/// Before the first look and between all others, ns.
const EVERY_NS: u64 = 500_000_000;
/// A look at many processes is followed by a pause this many times as long.
const PAUSE_PER_LOOK: u64 = 200;

/// Look at the workload's processes below `init`. Gives the largest sum, bytes; `None` if no look met a process.
pub fn watch(init: i32, level: ContainmentLevel, task: &Task) -> io::Result<Looking<Option<u64>>> {
    let ours = ours(level, task);
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

/// How many of the first processes below an `init` are ours, and no part of what is measured: that of a namespace, which passes its signals on,
/// and the one that asks a server.
fn ours(level: ContainmentLevel, task: &Task) -> usize {
    usize::from(level == ContainmentLevel::PidNamespace) + usize::from(matches!(task, Task::Serve(_)))
}

/// The larger of what was looked at and what the kernel says of a single process, bytes: each is a lower bound.
pub fn peak(looked: Option<u64>, process: Option<u64>) -> Option<PeakRss> {
    let looks = looked.map(|bytes| PeakRss { bytes, by: PeakRssBy::Looks });
    let process = process.map(|bytes| PeakRss { bytes, by: PeakRssBy::LargestProcess });
    looks.into_iter().chain(process).max_by_key(|peak| peak.bytes)
}

/// The kernel's peak of the largest of these processes, of what is executed in it since, bytes; `None` if none is there.
pub fn largest(pids: impl IntoIterator<Item = i32>) -> Option<u64> {
    let peak = |pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
        kib.checked_mul(1024)
    };
    pids.into_iter().filter_map(peak).max()
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
    use isotherm_wire::served::ServeTask;
    use isotherm_wire::task::ProcessTask;

    #[test]
    fn resident_sets_are_added_up_and_who_is_gone_has_none() {
        let own = std::process::id() as i32;
        let [one, two] = [1, 2].map(|n| sum(std::iter::repeat_n(own, n)).unwrap_or_default());
        assert!(one > 100_000 && two > one + one / 2, "{one} {two}");
        assert_eq!(sum([i32::MAX].into_iter()), None);
    }

    #[test]
    fn who_asks_a_server_is_no_part_of_what_it_holds() {
        let serve = Task::Serve(ServeTask {
            argv: Vec::new(),
            model: String::new(),
            startup_timeout_ms: 0,
            grace_ms: 0,
            n_prompt: 1,
            n_gen: 1,
            warmup: 0,
            requests: 1,
            concurrency: 1,
            seed: 1,
        });
        let process = Task::Process(ProcessTask { argv: Vec::new(), warmup: 0, collect: Vec::new(), stamp_lines: false });
        let of = |level| (ours(level, &process), ours(level, &serve));
        assert_eq!((of(ContainmentLevel::PidNamespace), of(ContainmentLevel::Subreaper)), ((1, 2), (0, 1)));
    }

    #[test]
    fn the_larger_of_two_lower_bounds_stands() {
        let told = |looked, process| peak(looked, process).map(|peak| (peak.bytes, peak.by));
        assert_eq!(told(Some(9), Some(5)), Some((9, PeakRssBy::Looks)));
        assert_eq!(told(Some(5), Some(9)), Some((9, PeakRssBy::LargestProcess)));
        assert_eq!(told(None, Some(9)), Some((9, PeakRssBy::LargestProcess)));
        assert_eq!(told(None, None), None);
    }

    #[test]
    fn the_kernels_peak_is_no_less_than_what_a_process_holds_and_who_is_gone_has_none() {
        let own = std::process::id() as i32;
        assert!(largest([own, i32::MAX]).is_some_and(|peak| peak > 100_000));
        assert_eq!(largest([i32::MAX]), None);
    }
}
