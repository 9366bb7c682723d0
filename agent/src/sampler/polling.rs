//! Does reading energy instruments change what they say? They are read rarely and often in turn, as in runs that leave them alone and in
//! runs that read them.
//!
//! Takes sensors and a rate, gives what each instrument said, slice by slice; must not know how much of a difference matters.

use super::{Definition, Sensors};
use crate::sys;
use isotherm_wire::probe::{Capability, Found, POLLED_SLICE_MS, Polled, PolledPair};
use std::time::Duration;

/// Pairs of slices: as many as tell a shift from chance, when each of them says the same (1 in 128), and 8 s in all.
const PAIRS: usize = 8;
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
    let mut told: Vec<Told> = instruments.iter().map(|instrument| Told { place: place(instrument), ..Told::default() }).collect();
    if hz > 0.0 && hz <= super::MOST_HZ && told.iter().any(|told| told.place.is_some()) {
        let were_read = sensors.reads_instruments();
        poll(sensors, hz, &mut told);
        sensors.read_instruments(were_read);
    }
    for (instrument, told) in instruments.iter_mut().zip(told).filter(|(instrument, _)| instrument.measures_energy()) {
        let is_counter = matches!(instrument.unit.as_deref(), Some("uj" | "mj"));
        if let Found::Present(present) = &mut instrument.found {
            present.polled = Some(told.polled(is_counter, hz));
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
    let mut read = |sensors: &mut Sensors, note: fn(&mut Told, Option<(u64, f64)>)| {
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
    read(sensors, Told::end);
    for slice in 0..2 * PAIRS {
        sensors.read_instruments(is_often(slice));
        // From when the last reading was over: two of them are never closer than they are meant to be.
        let end_ns = sys::monotonic_ns() + SLICE_NS;
        loop {
            let now_ns = sys::monotonic_ns();
            if now_ns + step_ns >= end_ns {
                break;
            }
            sys::poll_readable(&[], Some(step_ns));
            read(sensors, Told::hear);
        }
        sys::poll_readable(&[], Some(end_ns.saturating_sub(sys::monotonic_ns())));
        sensors.read_instruments(true);
        read(sensors, Told::end);
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

    fn polled(&self, is_counter: bool, hz: f64) -> Polled {
        let watts = |slice: usize| {
            let ((then_ns, before), (now_ns, after)) = (self.ends[slice]?, self.ends[slice + 1]?);
            (after >= before && now_ns > then_ns).then(|| (after - before) / (now_ns - then_ns) as f64 * 1e9)
        };
        let of = |slice: usize| if is_counter { watts(slice) } else { self.ends[slice + 1].map(|(_, watts)| watts) };
        let pair = |first: usize| {
            let (rarely, often) = if is_often(first) { (first + 1, first) } else { (first, first + 1) };
            PolledPair { rarely: of(rarely), often: of(often) }
        };
        Polled { hz, pairs: (0..self.ends.len().saturating_sub(1)).step_by(2).map(pair).collect(), followed: self.followed, new: self.new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Told at the end of each half second.
    fn told(ends: &[Option<f64>]) -> Told {
        let mut told = Told::default();
        ends.iter().zip(0..).for_each(|(value, half)| told.end(value.map(|value| (half * SECOND / 2, value))));
        told
    }

    #[test]
    fn pairs_have_what_a_monitor_says_at_the_end_of_a_slice_and_what_a_counter_grows_by_in_it() {
        let ends = [Some(100.0), Some(101.0), Some(103.0), Some(106.0), Some(107.0)];
        let pairs = |is_counter| told(&ends).polled(is_counter, 10.0).pairs;
        let pair = |rarely, often| PolledPair { rarely: Some(rarely), often: Some(often) };
        assert_eq!(pairs(false), [pair(101.0, 103.0), pair(107.0, 106.0)]);
        assert_eq!(pairs(true), [pair(2.0, 4.0), pair(2.0, 6.0)]);
    }

    #[test]
    fn a_slice_without_a_value_and_a_counter_that_goes_back_have_none() {
        let ends = [Some(100.0), None, Some(103.0), Some(2.0), Some(3.0)];
        let pairs = |is_counter| told(&ends).polled(is_counter, 10.0).pairs;
        assert_eq!(pairs(false)[0], PolledPair { rarely: None, often: Some(103.0) });
        assert_eq!(pairs(true), [PolledPair { rarely: None, often: None }, PolledPair { rarely: Some(2.0), often: None }]);
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
