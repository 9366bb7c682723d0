//! Does reading an instrument often change what it says? Takes what it said when it was read rarely and often in turn; gives a verdict. Pure;
//! must not know how it was read, nor what follows.
//!
//! The rule needs no distribution. If reading often changes nothing, each of eight differences between slices side by side is as likely above
//! zero as below it: all eight on one side is a chance of 1 in 128. And whatever the true median of such differences is, the second smallest
//! and the second largest of eight hold it between them in 93 of 100 cases, smallest and largest in 99 (intervals of order statistics for
//! the median, as of the sign test: 1 − 2·9/2⁸ and 1 − 2/2⁸).

use crate::stats;
use isotherm_wire::probe::{Capability, POLLED_SLICE_MS, Polled};
use serde::Serialize;
use std::fmt;

/// Pairs of slices that have a value each: with fewer, neither of the two bounds holds.
const LEAST_PAIRS: usize = 8;
/// A difference of less than this doesn't matter: no instrument here is better than that.
const LEAST_SHARE: f64 = 0.02;
/// One that says something new so often in a slice, on average, has caught up with the slice when it ends.
const LEAST_NEW: f64 = 2.0;

/// What is known of it. Differences are of reading often against rarely, per cent of what it says when it is read rarely.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// All pairs say so, and by as much as matters: median, smallest and largest difference.
    Shift {
        hz: f64,
        median_pct: f64,
        low_pct: f64,
        high_pct: f64,
    },
    /// None that matters: the second smallest and the second largest difference.
    NoShift {
        hz: f64,
        low_pct: f64,
        high_pct: f64,
    },
    NotTold {
        reason: String,
    },
}

/// By what was said when it was polled fastest. `None` for what is no instrument, and where nobody has looked.
#[must_use]
pub fn verdict(instrument: &Capability) -> Option<Verdict> {
    judged(instrument, instrument.present()?.polled.as_ref())
}

/// What counts for runs that read it so often a second: where more readings change nothing, fewer don't. Of more readings than anybody has
/// tried nothing is known, unless already fewer stand against it. So what is said of one rate never changes what was said of a lower one.
#[must_use]
pub fn verdict_at(instrument: &Capability, hz: f64) -> Option<Verdict> {
    let present = instrument.present()?;
    let mut by_rate = present.polled_slower.iter().chain(&present.polled);
    match by_rate.find(|polled| polled.hz >= hz) {
        Some(polled) => judged(instrument, Some(polled)),
        None => verdict(instrument).filter(|verdict| !matches!(verdict, Verdict::NoShift { .. })),
    }
}

/// Is it worth keeping? What lacks values may have them the next time.
#[must_use]
pub fn is_whole(polled: &Polled) -> bool {
    polled.pairs.is_empty() || pairs(polled).count() >= LEAST_PAIRS
}

fn pairs(polled: &Polled) -> impl Iterator<Item = (f64, f64)> {
    polled.pairs.iter().filter_map(|pair| pair.rarely.zip(pair.often))
}

fn judged(instrument: &Capability, polled: Option<&Polled>) -> Option<Verdict> {
    if !instrument.measures_energy() {
        return None;
    }
    let rests_ms = instrument.rests_ms();
    if 2.0 * rests_ms > POLLED_SLICE_MS as f64 {
        let reason = format!("what it says may be {rests_ms:.0} ms old, too much for slices of {POLLED_SLICE_MS} ms");
        return Some(Verdict::NotTold { reason });
    }
    // One whose period is known may well say the same all the time.
    let verdict = |polled| told(polled, rests_ms > 0.0).unwrap_or_else(|reason| Verdict::NotTold { reason });
    polled.map(verdict)
}

fn told(polled: &Polled, keeps_up: bool) -> Result<Verdict, String> {
    let pairs: Vec<(f64, f64)> = pairs(polled).collect();
    if pairs.len() < LEAST_PAIRS {
        return Err(format!("only {} of {} pairs of slices have values", pairs.len(), polled.pairs.len()));
    }
    if !keeps_up && f64::from(polled.new) < LEAST_NEW * polled.pairs.len() as f64 {
        return Err(format!("it said something new in {} of {} readings: what it says may be old", polled.new, polled.followed));
    }
    let mut differences: Vec<f64> = pairs.iter().map(|(rarely, often)| often - rarely).collect();
    differences.sort_by(f64::total_cmp);
    let rarely: Vec<f64> = pairs.iter().map(|(rarely, _)| *rarely).collect();
    let (level, middle) =
        stats::median(&rarely).map(f64::abs).zip(stats::median(&differences)).filter(|(level, _)| *level > 0.0).ok_or("it says 0 W")?;
    let (step, least) = (step(&pairs), LEAST_SHARE * level);
    let matters = step.unwrap_or(0.0).max(least);
    let pct = |watts: f64| 100.0 * watts / level;
    let (hz, n) = (polled.hz, differences.len());
    let (smallest, low, high, largest) = (differences[0], differences[1], differences[n - 2], differences[n - 1]);
    if (smallest > 0.0 || largest < 0.0) && middle.abs() >= matters {
        return Ok(Verdict::Shift { hz, median_pct: pct(middle), low_pct: pct(smallest), high_pct: pct(largest) });
    }
    // A shift of less than a step may not be seen at all.
    match step {
        None => return Err(format!("it said {:.2} W each time, and smaller steps than it has aren't seen", pairs[0].0)),
        Some(step) if step > least => return Err(format!("its steps are {:.1} % of what it says", pct(step))),
        Some(_) => {}
    }
    if low > -matters && high < matters {
        return Ok(Verdict::NoShift { hz, low_pct: pct(low), high_pct: pct(high) });
    }
    Err(format!("the difference lies anywhere between {:+.1} and {:+.1} %", pct(low), pct(high)))
}

/// The smallest difference between two things that it said; `None` where it said but one.
fn step(pairs: &[(f64, f64)]) -> Option<f64> {
    let mut values: Vec<f64> = pairs.iter().flat_map(|(rarely, often)| [*rarely, *often]).collect();
    values.sort_by(f64::total_cmp);
    values.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step > 0.0).reduce(f64::min)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Shift { hz, median_pct, low_pct, high_pct } => {
                let way = if *median_pct > 0.0 { "more" } else { "less" };
                write!(f, "read {hz} times a second it says {:.1} % {way} ({low_pct:+.1} … {high_pct:+.1} %)", median_pct.abs())
            }
            Verdict::NoShift { hz, low_pct, high_pct } => {
                write!(f, "read {hz} times a second it says the same ({low_pct:+.1} … {high_pct:+.1} %)")
            }
            Verdict::NotTold { reason } => write!(f, "whether reading it often changes it can't be told: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::energy::ladder::tests::known;
    use isotherm_wire::probe::{Found, PolledPair};

    /// A monitor that said this, rarely and often.
    fn monitor(pairs: &[(f64, f64)], new: u32, facts: &[(&str, &str)]) -> Capability {
        let mut monitor = Capability { unit: Some("uw".into()), ..known("/sys/class/hwmon/hwmon0/power1_input", facts) };
        let Found::Present(present) = &mut monitor.found else { panic!("it is there") };
        let pairs = pairs.iter().map(|&(rarely, often)| PolledPair { rarely: Some(rarely), often: Some(often) }).collect();
        present.cost_ns = Some(2000);
        present.polled = Some(Polled { hz: 10.0, pairs, followed: 32, new });
        monitor
    }

    /// What a lively monitor is found to do that is read rarely at 10 W and has these differences.
    fn of(differences: &[f64]) -> Verdict {
        // No two levels alike, so that its step is small.
        let pairs: Vec<(f64, f64)> =
            differences.iter().zip(0..).map(|(by, at)| (10.0 + f64::from(at) * 1e-4, 10.0 + f64::from(at) * 1e-4 + by)).collect();
        verdict(&monitor(&pairs, 32, &[])).unwrap()
    }

    fn reason(verdict: &Verdict) -> &str {
        let Verdict::NotTold { reason } = verdict else { panic!("{verdict}") };
        reason
    }

    #[test]
    fn a_shift_is_what_every_pair_says_and_by_as_much_as_matters() {
        let shift = of(&[0.5, 0.4, 0.6, 0.5, 0.45, 0.55, 0.5, 0.9]);
        assert!(matches!(shift, Verdict::Shift { median_pct, .. } if (median_pct - 5.0).abs() < 0.01), "{shift}");
        assert!(matches!(of(&[-0.5, -0.4, -0.6, -0.5, -0.45, -0.55, -0.5, -0.9]), Verdict::Shift { median_pct, .. } if median_pct < 0.0));
        // One that says otherwise is enough to doubt it, and nothing to deny it by.
        assert!(reason(&of(&[0.5, 0.4, 0.6, 0.5, 0.45, 0.55, 0.5, -0.01])).ends_with("between +4.0 and +5.5 %"));
        // Every pair says so, and it is too small to matter.
        assert!(matches!(of(&[0.1, 0.09, 0.11, 0.1, 0.1, 0.12, 0.1, 0.1]), Verdict::NoShift { .. }));
    }

    #[test]
    fn there_is_none_where_all_but_one_on_either_side_are_small() {
        let none = of(&[0.1, -0.1, 0.15, -0.12, 0.0, 0.05, 9.0, -9.0]);
        assert_eq!(none.to_string(), "read 10 times a second it says the same (-1.2 … +1.5 %)");
        assert!(reason(&of(&[0.1, -0.1, 0.15, -0.12, 0.0, 0.3, 9.0, -9.0])).contains("between -1.2 and +3.0 %"));
    }

    #[test]
    fn less_than_a_step_can_not_be_seen_and_a_large_step_is_no_shift_unless_every_pair_has_it() {
        let coarse = |oftens: [f64; 8]| {
            let pairs: Vec<(f64, f64)> = oftens.iter().map(|often| (10.0, *often)).collect();
            verdict(&monitor(&pairs, 0, &[("period_ms", "100")])).unwrap()
        };
        assert!(matches!(coarse([11.0; 8]), Verdict::Shift { median_pct, .. } if median_pct == 10.0));
        assert_eq!(reason(&coarse([10.0; 8])), "it said 10.00 W each time, and smaller steps than it has aren't seen");
        assert_eq!(reason(&coarse([10.0, 10.0, 10.0, 11.0, 10.0, 10.0, 9.0, 10.0])), "its steps are 10.0 % of what it says");
        let fine = [10.0, 10.0, 10.0, 10.2, 10.0, 10.0, 9.9, 10.0];
        assert!(matches!(coarse(fine), Verdict::NoShift { .. }));
        assert!(reason(&coarse([10.3, 10.0, 10.4, 10.2, 10.0, 10.0, 9.9, 10.0])).ends_with("between +0.0 and +3.0 %"));
    }

    #[test]
    fn what_may_be_old_or_is_not_there_tells_nothing() {
        let still = [10.0, 10.1, 10.0, 10.1, 10.0, 10.1, 10.0, 10.1].map(|watts| (watts, watts));
        let told = |pairs: &[(f64, f64)], new, facts: &[(&str, &str)]| verdict(&monitor(pairs, new, facts)).unwrap();
        assert_eq!(reason(&told(&still, 15, &[])), "it said something new in 15 of 32 readings: what it says may be old");
        assert!(matches!(told(&still, 16, &[]), Verdict::NoShift { .. }));
        assert!(matches!(told(&still, 0, &[("period_ms", "250")]), Verdict::NoShift { .. }));
        assert_eq!(reason(&told(&still, 32, &[("period_ms", "251")])), "what it says may be 251 ms old, too much for slices of 500 ms");
        assert_eq!(reason(&told(&still[1..], 32, &[])), "only 7 of 7 pairs of slices have values");
        assert_eq!(reason(&told(&[(0.0, 0.0); 8], 32, &[])), "it says 0 W");
        let mut gaps = monitor(&still, 32, &[]);
        let Found::Present(present) = &mut gaps.found else { panic!("it is there") };
        present.polled.as_mut().unwrap().pairs[3].rarely = None;
        assert_eq!(reason(&verdict(&gaps).unwrap()), "only 7 of 8 pairs of slices have values");
    }

    #[test]
    fn what_is_said_of_one_rate_holds_for_lower_ones_and_leaves_those_alone_that_have_their_own() {
        let lively = |often: f64| (0..8).map(|at| (10.0 + f64::from(at) * 1e-3, often + f64::from(at) * 1e-3)).collect::<Vec<_>>();
        let polled = |hz, often| Polled { hz, ..monitor(&lively(often), 32, &[]).present().unwrap().polled.clone().unwrap() };
        let of = |polls: &[Polled], hz| {
            let mut monitor = monitor(&[], 0, &[]);
            let Found::Present(present) = &mut monitor.found else { panic!("it is there") };
            present.polled_slower = polls.to_vec();
            present.polled = present.polled_slower.pop();
            verdict_at(&monitor, hz).map(|verdict| matches!(verdict, Verdict::Shift { .. }))
        };
        let (harmless, harmful) = (polled(10.0, 10.0), polled(20.0, 11.0));
        assert_eq!([10.0, 20.0].map(|hz| of(std::slice::from_ref(&harmless), hz)), [Some(false), None]);
        assert_eq!([10.0, 20.0, 50.0].map(|hz| of(&[harmless.clone(), harmful.clone()], hz)), [Some(false), Some(true), Some(true)]);
        assert_eq!([5.0, 50.0].map(|hz| of(std::slice::from_ref(&harmful), hz)), [Some(true); 2]);
        assert!(is_whole(&harmless) && !is_whole(&Polled { pairs: harmless.pairs[1..].to_vec(), ..harmless.clone() }));
    }

    /// Of 1000 monitors of 10 W whose slices differ by this standard deviation, and by this shift when they are read often, both in per cent:
    /// which shift, which don't, and which can't tell.
    fn trials(deviation_pct: f64, shift_pct: f64) -> [u32; 3] {
        // Sebastiano Vigna's splitmix64; twelve uniform numbers make a normal one.
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) as f64 / 2_f64.powi(64)
        };
        let mut watts = |shift_pct: f64| {
            let normal = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            10.0 + (deviation_pct * normal + shift_pct) / 10.0
        };
        let mut counts = [0; 3];
        for _ in 0..1000 {
            let pairs: Vec<(f64, f64)> = (0..8).map(|_| (watts(0.0), watts(shift_pct))).collect();
            counts[match verdict(&monitor(&pairs, 32, &[])).unwrap() {
                Verdict::Shift { .. } => 0,
                Verdict::NoShift { .. } => 1,
                Verdict::NotTold { .. } => 2,
            }] += 1;
        }
        counts
    }

    #[test]
    fn a_shift_is_rarely_found_where_there_is_none_and_a_large_one_is_never_overlooked() {
        for deviation_pct in [0.3, 1.0, 2.0, 5.0, 10.0] {
            let ([found, ..], [_, overlooked, _]) = (trials(deviation_pct, 0.0), trials(deviation_pct, 5.0));
            // 1 in 128 by sign alone, whatever its size.
            assert!(found <= 16 && overlooked <= 1, "{deviation_pct}: {found} {overlooked}");
        }
        // What docs/probe.md says of it.
        let [quiet, noisy] = [1.0, 5.0].map(|deviation_pct| trials(deviation_pct, 5.0).map(|n| (f64::from(n) / 10.0).round()));
        assert_eq!((quiet, trials(1.0, 0.0).map(|n| (f64::from(n) / 10.0).round())), ([100.0, 0.0, 0.0], [0.0, 74.0, 26.0]));
        assert_eq!(noisy, [12.0, 0.0, 88.0]);
    }

    #[test]
    fn where_nobody_has_looked_there_is_a_verdict_only_of_what_would_not_tell() {
        let unlooked = |facts: &[(&str, &str)]| {
            let mut monitor = monitor(&[], 0, facts);
            let Found::Present(present) = &mut monitor.found else { panic!("it is there") };
            present.polled = None;
            verdict(&monitor)
        };
        assert_eq!(unlooked(&[]), None);
        assert!(matches!(unlooked(&[("period_ms", "1000")]), Some(Verdict::NotTold { .. })));
    }
}
