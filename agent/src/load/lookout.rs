//! What the machine was busy with right before a window: looks at it in the background for as long as there is something to wait for.

use super::Census;
use crate::looking::Looking;
use crate::sys;
use isotherm_wire::load::PreRun;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

/// The shortest span that is told of, ns: CPU time is counted in steps of 10 ms on every CPU.
const SPAN_NS: u64 = 5_000_000_000;
/// Between two looks, ns. What is told of is longer than [`SPAN_NS`] by this at the most.
const LOOK_EVERY_NS: u64 = SPAN_NS / 2;

/// Look at the machine. Gives who used it in the last 5 s and a little more; `None` where it was looked at for less.
///
/// # Errors
/// What the system says.
pub fn watch() -> io::Result<Looking<Option<PreRun>>> {
    Looking::start("lookout", |stopped| {
        let mut looks = Looks::default();
        loop {
            looks.add(Look::take(Path::new("/")));
            if stopped.within(LOOK_EVERY_NS) {
                // Too little to be told of costs no other look.
                if looks.are_long_enough(sys::monotonic_ns()) {
                    looks.add(Look::take(Path::new("/")));
                }
                return looks.told();
            }
        }
    })
}

/// The machine at one moment.
struct Look {
    census: Census,
    /// Resource → time since boot in which some task waited for it, µs; without those that the kernel doesn't tell of.
    waited_us: BTreeMap<&'static str, u64>,
}

impl Look {
    fn take(root: &Path) -> Option<Look> {
        let pressure = |resource| {
            let text = fs::read_to_string(root.join("proc/pressure").join(resource)).ok()?;
            Some((resource, text.lines().find(|line| line.starts_with("some "))?.rsplit_once("total=")?.1.parse().ok()?))
        };
        Some(Look { census: Census::take(root)?, waited_us: ["cpu", "memory", "io"].into_iter().filter_map(pressure).collect() })
    }

    fn since(&self, earlier: &Look) -> Option<PreRun> {
        let grown = |(resource, us): (&&'static str, &u64)| Some(((*resource).to_owned(), us.checked_sub(*earlier.waited_us.get(resource)?)?));
        Some(PreRun { cpu_time: self.census.since(&earlier.census)?, waited_us: self.waited_us.iter().filter_map(grown).collect() })
    }
}

/// The last looks, oldest first: no more than a span needs.
#[derive(Default)]
struct Looks(VecDeque<Look>);

impl Looks {
    fn add(&mut self, look: Option<Look>) {
        let Some(look) = look else { return };
        let is_old_enough = |other: &Look| look.census.monotonic_ns.saturating_sub(other.census.monotonic_ns) >= SPAN_NS;
        while self.0.get(1).is_some_and(is_old_enough) {
            self.0.pop_front();
        }
        self.0.push_back(look);
    }

    /// Is there a span to tell of if it ends now?
    fn are_long_enough(&self, now_ns: u64) -> bool {
        self.0.front().is_some_and(|first| now_ns.saturating_sub(first.census.monotonic_ns) >= SPAN_NS)
    }

    fn told(self) -> Option<PreRun> {
        let told = self.0.back()?.since(self.0.front()?)?;
        (told.cpu_time.span_ns >= SPAN_NS).then_some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(tenths: u64, waited_us: &[(&'static str, u64)]) -> Option<Look> {
        let census = Census { monotonic_ns: tenths * 100_000_000, busy_ticks: 0, interrupt_ticks: 0, agent_ns: 0, processes: None };
        Some(Look { census, waited_us: waited_us.iter().copied().collect() })
    }

    fn span_s(looks_at: &[u64]) -> Option<f64> {
        let mut looks = Looks::default();
        looks_at.iter().for_each(|&tenths| looks.add(look(tenths, &[])));
        assert!(looks.0.len() <= 4);
        looks.told().map(|told| told.cpu_time.span_ns as f64 / 1e9)
    }

    #[test]
    fn the_last_five_seconds_and_a_little_more_are_told_of() {
        assert_eq!(span_s(&[0, 25, 50, 75, 100, 110]), Some(6.0));
        assert_eq!(span_s(&[0, 25, 50]), Some(5.0));
        assert_eq!(span_s(&[0, 25, 49]), None, "too short to be told");
        assert_eq!(span_s(&[0, 0]), None);
    }

    #[test]
    fn what_the_kernel_does_not_tell_of_is_absent() {
        let mut looks = Looks::default();
        looks.add(look(0, &[("cpu", 10), ("io", 7)]));
        looks.add(None);
        looks.add(look(50, &[("cpu", 35), ("memory", 1)]));
        assert_eq!(looks.told().map(|told| told.waited_us), Some(BTreeMap::from([("cpu".to_owned(), 25)])));
    }
}
