//! Energy over time of one counter or one power monitor: takes readings, gives joules between two moments. Pure; must not know which
//! instrument it is, nor what ran.
//!
//! Between readings a counter grows evenly and power changes evenly: joules are exact for power that is piecewise linear between them.

/// A step of a counter that would mean more power than this is no wrap: no board or server takes 10 kW.
const MOST_W: f64 = 10_000.0;

/// How readings become energy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Joules since some moment.
    Counter {
        /// Where it begins again from 0; `None` = it never does.
        wraps_at_j: Option<f64>,
    },
    /// Watts at that moment.
    Power,
}

/// Readings that succeeded, with the energy since the first one.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    kind: Kind,
    times_ns: Vec<u64>,
    joules: Vec<f64>,
    /// Of a monitor; a counter has none.
    watts: Vec<f64>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Trace {
    /// Times ascending, as many as values; `None` = that read failed.
    ///
    /// # Errors
    /// In words: a counter that went backwards where it doesn't wrap.
    pub fn of(kind: Kind, times_ns: &[u64], values: &[Option<f64>]) -> Result<Trace, String> {
        let mut trace = Trace { kind, times_ns: Vec::new(), joules: Vec::new(), watts: Vec::new() };
        let mut before: Option<(u64, f64)> = None;
        for (&time_ns, value) in times_ns.iter().zip(values.iter().copied()).filter_map(|(time, value)| Some((time, value?))) {
            let since = before.map_or(0.0, |(then_ns, _)| seconds(time_ns - then_ns));
            let joules = match (kind, before) {
                (_, None) => 0.0,
                (Kind::Power, Some((_, earlier))) => (earlier + value) / 2.0 * since,
                (Kind::Counter { wraps_at_j }, Some((_, earlier))) => grown(earlier, value, wraps_at_j, since)?,
            };
            trace.watts.extend((kind == Kind::Power).then_some(value));
            trace.joules.push(trace.joules.last().copied().unwrap_or(0.0) + joules);
            trace.times_ns.push(time_ns);
            before = Some((time_ns, value));
        }
        Ok(trace)
    }

    /// First and last reading; `None` without any.
    #[must_use]
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        self.times_ns.first().copied().zip(self.times_ns.last().copied())
    }

    /// Energy between two moments, J; `None` where readings don't reach so far.
    #[must_use]
    pub fn joules(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        Some(self.energy_at(to_ns)? - self.energy_at(from_ns)?)
    }

    /// Since the first reading.
    fn energy_at(&self, at_ns: u64) -> Option<f64> {
        let (before, after) = self.around(at_ns)?;
        let (start_ns, length_ns) = (self.times_ns[before], self.times_ns[after] - self.times_ns[before]);
        if length_ns == 0 {
            return Some(self.joules[before]);
        }
        let passed_ns = at_ns - start_ns;
        let share = passed_ns as f64 / length_ns as f64;
        Some(match self.kind {
            Kind::Counter { .. } => self.joules[before] + (self.joules[after] - self.joules[before]) * share,
            Kind::Power => {
                let watts = self.watts[before] + (self.watts[after] - self.watts[before]) * share;
                self.joules[before] + (self.watts[before] + watts) / 2.0 * seconds(passed_ns)
            }
        })
    }

    /// The readings next to a moment, at or before it and at or after it.
    fn around(&self, at_ns: u64) -> Option<(usize, usize)> {
        let after = self.times_ns.partition_point(|&time_ns| time_ns < at_ns);
        let exact = self.times_ns.get(after)? == &at_ns;
        Some((if exact { after } else { after.checked_sub(1)? }, after))
    }

    /// How far the nearest reading is from a moment; `None` outside of the readings.
    #[must_use]
    pub fn nearest_ns(&self, at_ns: u64) -> Option<u64> {
        let (before, after) = self.around(at_ns)?;
        Some((at_ns - self.times_ns[before]).min(self.times_ns[after] - at_ns))
    }

    /// The usual time between two readings: their median; `None` with fewer than two.
    #[must_use]
    pub fn spacing_ns(&self) -> Option<u64> {
        let mut gaps: Vec<u64> = self.times_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied()
    }

    /// Readings between two moments.
    #[must_use]
    pub fn readings(&self, from_ns: u64, to_ns: u64) -> usize {
        self.times_ns.iter().filter(|time_ns| (from_ns..=to_ns).contains(time_ns)).count()
    }

    /// How much of the time between two moments was seen. What a counter did between two readings it knows; a monitor that was not read
    /// for three times as long as usual was blind meanwhile.
    #[must_use]
    pub fn seen_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let overlap = |start_ns: u64, end_ns: u64| end_ns.min(to_ns).saturating_sub(start_ns.max(from_ns));
        match self.kind {
            Kind::Counter { .. } => self.span_ns().map_or(0, |(first_ns, last_ns)| overlap(first_ns, last_ns)),
            Kind::Power => {
                let longest_ns = self.spacing_ns().unwrap_or(0).saturating_mul(3);
                let near = self.times_ns.windows(2).filter(|pair| pair[1] - pair[0] <= longest_ns);
                near.map(|pair| overlap(pair[0], pair[1])).sum()
            }
        }
    }
}

/// What a counter has counted from one reading to the next.
fn grown(earlier: f64, now: f64, wraps_at_j: Option<f64>, since_s: f64) -> Result<f64, String> {
    if now >= earlier {
        return Ok(now - earlier);
    }
    let wrapped = wraps_at_j.map(|range| range - earlier + now).filter(|joules| (0.0..=MOST_W * since_s).contains(joules));
    wrapped.ok_or_else(|| match wraps_at_j {
        Some(range) => format!("it went back from {earlier} to {now} J, which is no wrap at {range} J"),
        None => format!("it went back from {earlier} to {now} J"),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn all(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    fn every_second(kind: Kind, values: &[f64]) -> Result<Trace, String> {
        let times: Vec<u64> = (0..values.len() as u64).map(|second| second * SECOND).collect();
        Trace::of(kind, &times, &all(values))
    }

    /// Sebastiano Vigna's splitmix64.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        fn below(&mut self, most: u64) -> u64 {
            self.next() % most
        }
    }

    /// Power that is linear between corners, in closed form.
    struct Corners(Vec<(u64, f64)>);

    impl Corners {
        fn watts(&self, at_ns: u64) -> f64 {
            let after = self.0.partition_point(|(time, _)| *time < at_ns).max(1);
            let ((t0, p0), (t1, p1)) = (self.0[after - 1], self.0[after]);
            p0 + (p1 - p0) * (at_ns - t0) as f64 / (t1 - t0) as f64
        }

        /// Simpson's rule, which is exact for straight lines, from corner to corner.
        fn joules(&self, from_ns: u64, to_ns: u64) -> f64 {
            let inner = self.0.iter().map(|(time, _)| *time).filter(|time| (from_ns + 1..to_ns).contains(time));
            let edges: Vec<u64> = [from_ns].into_iter().chain(inner).chain([to_ns]).collect();
            let part = |pair: &[u64]| {
                let middle = self.watts(pair[0]) / 2.0 + self.watts(pair[1]) / 2.0;
                (self.watts(pair[0]) + 4.0 * middle + self.watts(pair[1])) / 6.0 * seconds(pair[1] - pair[0])
            };
            edges.windows(2).map(part).sum()
        }
    }

    #[test]
    fn power_that_is_linear_between_samples_is_integrated_exactly_whatever_the_window() {
        let mut numbers = Numbers(1);
        for _ in 0..300 {
            let mut at_ns = numbers.below(SECOND);
            let corners: Vec<(u64, f64)> = (0..2 + numbers.below(20))
                .map(|_| {
                    at_ns += 1 + numbers.below(3 * SECOND);
                    (at_ns, numbers.below(80_000) as f64 / 1e3)
                })
                .collect();
            let (first, last) = (corners[0].0, corners[corners.len() - 1].0);
            let corners = Corners(corners);
            // Samples at every corner, and at any other times.
            let mut times: Vec<u64> = corners.0.iter().map(|(time, _)| *time).collect();
            times.extend((0..numbers.below(10)).map(|_| first + numbers.below(last - first)));
            times.sort_unstable();
            times.dedup();
            let watts: Vec<f64> = times.iter().map(|&time| corners.watts(time)).collect();
            let trace = Trace::of(Kind::Power, &times, &all(&watts)).unwrap();
            let mut edges = [first + numbers.below(last - first + 1), first + numbers.below(last - first + 1)];
            edges.sort_unstable();
            let [from, to] = edges;
            let (found, expected) = (trace.joules(from, to).unwrap(), corners.joules(from, to));
            assert!(
                (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
                "{found} J, expected {expected} J from {from} to {to} of {:?}",
                corners.0
            );
            // A window is the sum of its parts.
            let middle = from + (to - from) / 2;
            let parts = trace.joules(from, middle).unwrap() + trace.joules(middle, to).unwrap();
            assert!((found - parts).abs() <= 1e-9 * expected.abs().max(1.0));
        }
    }

    #[test]
    fn a_counter_gives_what_was_counted_however_often_it_wraps() {
        let mut numbers = Numbers(2);
        for _ in 0..300 {
            let range = 10.0 + numbers.below(1000) as f64;
            let (mut at_ns, mut total) = (0, numbers.below(100) as f64);
            let mut truth = Vec::new();
            for _ in 0..2 + numbers.below(40) {
                at_ns += SECOND / 10 + numbers.below(SECOND);
                // Never a whole range between two readings: that can't be told.
                total += numbers.below(1000) as f64 / 1000.0 * range * 0.9;
                truth.push((at_ns, total));
            }
            let times: Vec<u64> = truth.iter().map(|(time, _)| *time).collect();
            let read: Vec<f64> = truth.iter().map(|(_, total)| total % range).collect();
            let trace = Trace::of(Kind::Counter { wraps_at_j: Some(range) }, &times, &all(&read)).unwrap();
            let (first, last) = (truth[0], truth[truth.len() - 1]);
            let found = trace.joules(first.0, last.0).unwrap();
            assert!((found - (last.1 - first.1)).abs() < 1e-6, "{found} J of {truth:?}, range {range}");
        }
    }

    #[test]
    fn a_counter_is_read_evenly_between_two_readings() {
        let trace = every_second(Kind::Counter { wraps_at_j: None }, &[100.0, 110.0, 140.0]).unwrap();
        assert_eq!(trace.joules(SECOND / 2, SECOND * 3 / 2), Some(20.0));
        assert_eq!((trace.joules(0, 2 * SECOND), trace.joules(0, 2 * SECOND + 1)), (Some(40.0), None));
        assert_eq!((trace.nearest_ns(SECOND / 4), trace.nearest_ns(SECOND), trace.nearest_ns(3 * SECOND)), (Some(SECOND / 4), Some(0), None));
    }

    #[test]
    fn a_counter_that_starts_anew_has_not_wrapped() {
        let restarted = [100.0, 110.0, 0.5];
        let said = every_second(Kind::Counter { wraps_at_j: Some(262_143.0) }, &restarted).unwrap_err();
        assert_eq!(said, "it went back from 110 to 0.5 J, which is no wrap at 262143 J");
        assert_eq!(every_second(Kind::Counter { wraps_at_j: None }, &restarted).unwrap_err(), "it went back from 110 to 0.5 J");
        // Beyond its own range, and back.
        assert!(every_second(Kind::Counter { wraps_at_j: Some(50.0) }, &restarted).is_err());
    }

    #[test]
    fn a_monitor_is_blind_while_it_is_not_read_and_a_counter_is_not() {
        let times: Vec<u64> = [0, 1, 2, 3, 9, 10].map(|second| second * SECOND).to_vec();
        let values = all(&[5.0; 6]);
        let seen = |kind| Trace::of(kind, &times, &values).unwrap().seen_ns(SECOND / 2, 12 * SECOND);
        assert_eq!(seen(Kind::Power), SECOND * 5 / 2 + SECOND);
        assert_eq!(seen(Kind::Counter { wraps_at_j: None }), SECOND * 19 / 2);
    }

    #[test]
    fn reads_that_failed_are_not_there() {
        let trace = Trace::of(Kind::Power, &[0, SECOND, 2 * SECOND], &[Some(4.0), None, Some(8.0)]).unwrap();
        assert_eq!(trace.joules(0, 2 * SECOND), Some(12.0));
        let none = Trace::of(Kind::Power, &[0, SECOND], &[None, None]).unwrap();
        assert_eq!((none.joules(0, 1), none.spacing_ns(), none.seen_ns(0, SECOND)), (None, None, 0));
    }
}
