//! Does reading energy instruments change what they say? They are read rarely and often in turn, as in runs that leave them alone and in
//! runs that read them.
//!
//! Takes sensors and a rate, gives what each instrument said, slice by slice; must not know how much of a difference matters.

use super::{Definition, Sensors};
use crate::sys;
use isotherm_wire::probe::{Capability, Found, POLLED_SLICE_MS, Polled, PolledPair};
use std::time::Duration;

/// Pairs of slices: as many as tell a shift from chance, when each of them says the same (1 in 128), and 8 s in all …
const PAIRS: usize = 8;
/// … and two more at a time where one of an instrument has no value, for 12 s at the most.
const MOST_PAIRS: usize = 12;
const SLICE_NS: u64 = POLLED_SLICE_MS * 1_000_000;
/// Nothing is measured meanwhile, so a reading has more time than in a sample.
const PATIENCE: Duration = Duration::from_millis(100);

/// Instruments as they were found, with what they said: nothing where they have values too rarely to tell, and then at once.
pub fn try_out(sensors: &mut Sensors, hz: f64) -> Vec<Capability> {
    let mut instruments = sensors.instruments.clone();
    let place = |instrument: &Capability| {
        let keeps_up = instrument.measures_energy() && 2.0 * instrument.rests_ms() <= POLLED_SLICE_MS as f64;
        keeps_up.then(|| sensors.find_place(|it| is_of(it, instrument))).flatten()
    };
    let told = |instrument: &Capability| Told {
        place: place(instrument),
        is_counter: matches!(instrument.unit.as_deref(), Some("uj" | "mj")),
        wraps_at_j: instrument.present().and_then(|present| Some(present.facts.get("wraps_at_uj")?.parse::<f64>().ok()? / 1e6)),
        ..Told::default()
    };
    let mut told: Vec<Told> = instruments.iter().map(told).collect();
    if hz > 0.0 && hz <= super::MOST_HZ && told.iter().any(|told| told.place.is_some()) {
        let were_read = sensors.reads_instruments();
        poll(sensors, hz, &mut told);
        sensors.read_instruments(were_read);
    }
    for (instrument, told) in instruments.iter_mut().zip(told).filter(|(instrument, _)| instrument.measures_energy()) {
        if let Found::Present(present) = &mut instrument.found {
            present.polled = Some(told.polled(hz));
        }
    }
    instruments
}

/// A file is of one sensor; of several GPUs the same library says the same thing.
fn is_of(definition: &Definition, instrument: &Capability) -> bool {
    definition.source == instrument.source && (instrument.source.starts_with('/') || definition.subject.as_deref() == Some(&instrument.name))
}

fn poll(sensors: &mut Sensors, hz: f64, told: &mut [Told]) {
    let step_ns = (1e9 / hz) as u64;
    let mut values = vec![None; sensors.definitions.len()];
    let mut read = |sensors: &mut Sensors, told: &mut [Told], note: fn(&mut Told, Option<(u64, f64)>)| {
        let start_ns = sys::monotonic_ns();
        sensors.ask();
        sensors.take(PATIENCE, &mut values);
        for told in told.iter_mut() {
            let Some((lane, at)) = told.place else { continue };
            // What an earlier round has read is no answer to this one.
            let value = sensors.lanes[lane].latest(at).filter(|(_, read_ns)| *read_ns >= start_ns);
            note(told, value.map(|(value, read_ns)| (read_ns, value)));
        }
    };
    sensors.read_instruments(true);
    read(sensors, told, Told::end);
    for slice in 0..2 * MOST_PAIRS {
        // After four slices as many of either kind lie early as late.
        if slice >= 2 * PAIRS && slice % 4 == 0 && told.iter().all(|told| told.place.is_none() || told.has(PAIRS)) {
            break;
        }
        sensors.read_instruments(is_often(slice));
        // From when the last reading was over: two of them are never closer than they are meant to be.
        let end_ns = sys::monotonic_ns() + SLICE_NS;
        loop {
            let now_ns = sys::monotonic_ns();
            if now_ns + step_ns >= end_ns {
                break;
            }
            sys::poll_readable(&[], Some(step_ns));
            read(sensors, told, Told::hear);
        }
        sys::poll_readable(&[], Some(end_ns.saturating_sub(sys::monotonic_ns())));
        sensors.read_instruments(true);
        read(sensors, told, Told::end);
    }
}

/// Is this a slice in which they are read often? Rarely, often, often, rarely: a drift falls on both alike.
fn is_often(slice: usize) -> bool {
    matches!(slice % 4, 1 | 2)
}

/// What one instrument said.
#[derive(Debug, Default)]
struct Told {
    /// Its lane, and its place there; `None` for one that isn't read.
    place: Option<(usize, usize)>,
    is_counter: bool,
    wraps_at_j: Option<f64>,
    /// At the beginning, and at the end of each slice: when, ns, and what.
    ends: Vec<Option<(u64, f64)>>,
    /// The reading before, of the same slice.
    last: Option<f64>,
    followed: u32,
    new: u32,
}

impl Told {
    /// A reading within a slice; there is none where it is left alone.
    fn hear(&mut self, said: Option<(u64, f64)>) {
        let Some((_, value)) = said else { return };
        if let Some(last) = self.last.replace(value) {
            self.followed += 1;
            self.new += u32::from(value != last);
        }
    }

    /// The one at the end of a slice.
    fn end(&mut self, said: Option<(u64, f64)>) {
        self.hear(said);
        self.last = None;
        self.ends.push(said);
    }

    /// What a counter has grown by in a slice, or a monitor said at its end, W.
    fn watts(&self, slice: usize) -> Option<f64> {
        let (now_ns, after) = self.ends[slice + 1]?;
        if !self.is_counter {
            return Some(after);
        }
        let (then_ns, before) = self.ends[slice]?;
        // One that starts anew has not grown by most of what it can hold.
        let wrapped = || self.wraps_at_j.map(|range| (after + range - before, range)).filter(|(joules, range)| (0.0..range / 2.0).contains(joules));
        let joules = if after >= before { after - before } else { wrapped()?.0 };
        (now_ns > then_ns).then(|| joules / (now_ns - then_ns) as f64 * 1e9)
    }

    /// Does it have so many pairs by now?
    fn has(&self, pairs: usize) -> bool {
        let slices = self.ends.len().saturating_sub(1);
        (0..slices / 2).filter(|pair| self.watts(2 * pair).is_some() && self.watts(2 * pair + 1).is_some()).count() >= pairs
    }

    fn polled(&self, hz: f64) -> Polled {
        let pair = |first: usize| {
            let (rarely, often) = if is_often(first) { (first + 1, first) } else { (first, first + 1) };
            PolledPair { rarely: self.watts(rarely), often: self.watts(often) }
        };
        Polled { hz, pairs: (0..self.ends.len().saturating_sub(1)).step_by(2).map(pair).collect(), followed: self.followed, new: self.new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Told at the end of each half second.
    fn told(ends: &[Option<f64>], is_counter: bool) -> Told {
        let mut told = Told { is_counter, ..Told::default() };
        ends.iter().zip(0..).for_each(|(value, half)| told.end(value.map(|value| (half * SECOND / 2, value))));
        told
    }

    #[test]
    fn pairs_have_what_a_monitor_says_at_the_end_of_a_slice_and_what_a_counter_grows_by_in_it() {
        let ends = [Some(100.0), Some(101.0), Some(103.0), Some(106.0), Some(107.0)];
        let pairs = |is_counter| told(&ends, is_counter).polled(10.0).pairs;
        let pair = |rarely, often| PolledPair { rarely: Some(rarely), often: Some(often) };
        assert_eq!(pairs(false), [pair(101.0, 103.0), pair(107.0, 106.0)]);
        assert_eq!(pairs(true), [pair(2.0, 4.0), pair(2.0, 6.0)]);
    }

    #[test]
    fn a_slice_without_a_value_and_a_counter_that_goes_back_have_none() {
        let ends = [Some(100.0), None, Some(103.0), Some(2.0), Some(3.0)];
        let pairs = |is_counter| told(&ends, is_counter).polled(10.0).pairs;
        assert_eq!(pairs(false)[0], PolledPair { rarely: None, often: Some(103.0) });
        assert_eq!(pairs(true), [PolledPair { rarely: None, often: None }, PolledPair { rarely: Some(2.0), often: None }]);
    }

    #[test]
    fn a_counter_that_wraps_goes_on_and_one_that_starts_anew_does_not() {
        let watts = |before, after| Told { wraps_at_j: Some(100.0), ..told(&[Some(before), Some(after)], true) }.watts(0);
        assert_eq!((watts(97.0, 3.0), watts(40.0, 3.0)), (Some(12.0), None));
    }

    #[test]
    fn a_pair_that_lacks_a_value_is_none() {
        let ends: Vec<Option<f64>> = (0..=16).map(|at| (at != 5).then_some(f64::from(at))).collect();
        // Of a counter it is missed on both of its sides, which are of one pair.
        assert_eq!([false, true].map(|is_counter| (told(&ends, is_counter).has(7), told(&ends, is_counter).has(8))), [(true, false); 2]);
    }

    #[test]
    fn what_is_new_is_told_within_a_slice() {
        let mut told = Told::default();
        for value in [5.0, 5.0, 6.0] {
            told.hear(Some((0, value)));
        }
        told.hear(None);
        told.end(Some((0, 7.0)));
        // The first one of the next slice follows none.
        told.hear(Some((0, 8.0)));
        assert_eq!((told.followed, told.new), (3, 2));
    }

    #[test]
    fn as_many_slices_of_either_kind_lie_early_as_late() {
        let sum = |often: bool| (0..2 * PAIRS).filter(|slice| is_often(*slice) == often).sum::<usize>();
        assert_eq!(sum(true), sum(false));
    }
}
