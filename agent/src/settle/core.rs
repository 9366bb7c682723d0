//! When a device has settled: pure, over looks at it with their times.

use isotherm_wire::settle::{Criterion, Evidence, Finding, HELD_FOR_NS, Reference, Rule, STEADY_C_PER_MIN, STEADY_OVER_NS, Verdict};
use isotherm_wire::telemetry::{Column, Series};
use std::collections::{BTreeMap, VecDeque};

/// Rows that a trace has at most: four minutes at a look a second, every second one of eight.
const MOST_ROWS: usize = 240;

/// Something that is looked at.
#[derive(Debug, Clone)]
pub struct Watched {
    pub criterion: Criterion,
    pub subject: Option<String>,
    pub limit: Limit,
    /// Where its values are from.
    pub source: String,
}

/// What its value is judged by.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    AtMost(f64),
    /// There is nothing to compare it with, and why: it has to be steady.
    Steady(String),
    /// It says nothing here, and why.
    LeftOut(String),
}

/// A value, or why there is none although there was one once.
pub type Value = Result<f64, String>;

/// A wait on its way.
pub struct Settling {
    rule: Rule,
    watched: Vec<Watched>,
    began_ns: u64,
    /// Since when all criteria are met.
    met_since_ns: Option<u64>,
    recent: Vec<Recent>,
    /// Of the last look.
    last: Vec<Value>,
    trace: Trace,
}

impl Settling {
    /// Times are those of one clock that stands still while the machine sleeps: who wakes up is looked at before its time is up.
    pub fn new(rule: Rule, watched: Vec<Watched>, now_ns: u64) -> Settling {
        let n = watched.len();
        let last = vec![Err("nothing was read".to_owned()); n];
        Settling { rule, watched, began_ns: now_ns, met_since_ns: None, recent: vec![Recent::default(); n], last, trace: Trace::default() }
    }

    /// Take the values of all that is watched, in its order; `Some` = the wait is over.
    pub fn look(&mut self, now_ns: u64, values: Vec<Value>) -> Option<Verdict> {
        for (recent, value) in self.recent.iter_mut().zip(&values) {
            recent.add(now_ns, value.as_ref().ok().copied());
        }
        self.trace.add(now_ns, values.iter().map(|value| value.as_ref().ok().copied()).collect());
        self.last = values;
        let met = (0..self.watched.len()).all(|at| self.met(at) != Some(false));
        self.met_since_ns = if met { self.met_since_ns.or(Some(now_ns)) } else { None };
        let waited_ns = now_ns.saturating_sub(self.began_ns);
        let held = self.met_since_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= HELD_FOR_NS);
        if held && waited_ns >= ns(self.rule.min_ms) {
            let by_steadiness = (0..self.watched.len()).any(|at| self.met(at) == Some(true) && !self.is_within(at));
            return Some(if by_steadiness { Verdict::SettledSteady } else { Verdict::Settled });
        }
        (waited_ns >= ns(self.rule.timeout_ms)).then_some(Verdict::TimedOut)
    }

    /// Until the time is up, ns.
    pub fn left_ns(&self, now_ns: u64) -> u64 {
        (self.began_ns + ns(self.rule.timeout_ms)).saturating_sub(now_ns)
    }

    /// The temperature that is furthest above its limit, as it was last, and that limit.
    pub fn temperature(&self) -> (Option<f64>, Option<f64>) {
        let Some(at) = self.warmest() else { return (None, None) };
        (self.value(at), limit(&self.watched[at].limit))
    }

    /// Temperatures as they were last, by sensor.
    pub fn values(&self) -> BTreeMap<String, f64> {
        self.temperatures().filter_map(|at| Some((self.watched[at].subject.clone()?, self.value(at)?))).collect()
    }

    /// Those of them that kept the wait from ending.
    pub fn too_warm(&self) -> BTreeMap<String, f64> {
        let unmet = self.temperatures().filter(|at| self.met(*at) == Some(false));
        unmet.filter_map(|at| Some((self.watched[at].subject.clone()?, self.value(at)?))).collect()
    }

    /// Everything that was found. `reference`: what the limits of temperatures were made of.
    pub fn evidence(self, verdict: Option<Verdict>, reference: Option<Reference>) -> Evidence {
        let finding = |at: usize| {
            let Watched { criterion, subject, limit: by, .. } = &self.watched[at];
            let no_limit = if let Limit::Steady(why) | Limit::LeftOut(why) = by { Some(why) } else { None };
            let no_value = self.last[at].as_ref().err().filter(|_| !matches!(by, Limit::LeftOut(_)));
            Finding {
                criterion: *criterion,
                subject: subject.clone(),
                met: self.met(at),
                value: self.value(at),
                limit: limit(by),
                reason: no_value.or(no_limit).cloned(),
            }
        };
        let offset = |at: usize| Some(self.value(at)? - reference.as_ref()?.values.get(self.watched[at].subject.as_ref()?)?);
        Evidence {
            rule: self.rule,
            verdict,
            offset_c: self.warmest().and_then(offset),
            criteria: (0..self.watched.len()).map(finding).collect(),
            trace: self.trace.series(&self.watched),
            reference,
            raised_to: BTreeMap::new(),
        }
    }

    fn temperatures(&self) -> impl Iterator<Item = usize> {
        let is_one = |(at, watched): (usize, &Watched)| (watched.criterion == Criterion::Temperature && !watched.is_left_out()).then_some(at);
        self.watched.iter().enumerate().filter_map(is_one)
    }

    /// Of several temperatures the one that is waited for longest, as far as they tell.
    fn warmest(&self) -> Option<usize> {
        let above = |at: usize| self.value(at).map_or(f64::NEG_INFINITY, |value| value - limit(&self.watched[at].limit).unwrap_or(0.0));
        self.temperatures().min_by(|a, b| above(*b).total_cmp(&above(*a)))
    }

    fn value(&self, at: usize) -> Option<f64> {
        self.last[at].as_ref().ok().copied().filter(|_| !self.watched[at].is_left_out())
    }

    /// Is it within its limit? What is left out is.
    fn is_within(&self, at: usize) -> bool {
        match &self.watched[at].limit {
            Limit::LeftOut(_) => true,
            Limit::Steady(_) => false,
            Limit::AtMost(limit) => self.value(at).is_some_and(|value| value <= *limit),
        }
    }

    /// `None` = left out.
    fn met(&self, at: usize) -> Option<bool> {
        let watched = &self.watched[at];
        let is_steady = || watched.criterion == Criterion::Temperature && self.recent[at].is_steady();
        (!watched.is_left_out()).then(|| self.is_within(at) || is_steady())
    }
}

impl Watched {
    fn is_left_out(&self) -> bool {
        matches!(self.limit, Limit::LeftOut(_))
    }
}

fn limit(limit: &Limit) -> Option<f64> {
    if let Limit::AtMost(limit) = limit { Some(*limit) } else { None }
}

fn ns(ms: u64) -> u64 {
    crate::sys::limit_ns(ms)
}

/// Steps of the coarsest sensor, °C. Whatever a sensor's values look like, its steps may be as large until a smaller one was seen.
const COARSEST_STEP_C: f64 = 1.0;
/// The slope of such a sensor is looked at over twice as long as it has to stand still to be steady, ns.
const KEPT_NS: u64 = 2 * known_after_ns(COARSEST_STEP_C);

/// When a slope is known well enough: within one step over this long it is at most [`STEADY_C_PER_MIN`], ns.
const fn known_after_ns(step_c: f64) -> u64 {
    let ns = (step_c / STEADY_C_PER_MIN * 60e9) as u64;
    if ns > STEADY_OVER_NS { ns } else { STEADY_OVER_NS }
}

/// Readings of one sensor, those of the last [`KEPT_NS`].
#[derive(Debug, Clone)]
struct Recent {
    readings: VecDeque<(u64, f64)>,
    /// Smallest step between two of them, °C: what is below it the sensor doesn't tell.
    step_c: f64,
    /// Since when the last of them are flat.
    flat_since_ns: Option<u64>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { readings: VecDeque::new(), step_c: COARSEST_STEP_C, flat_since_ns: None }
    }
}

impl Recent {
    fn add(&mut self, now_ns: u64, value: Option<f64>) {
        let Some(value) = value else {
            self.readings.clear();
            self.flat_since_ns = None;
            return;
        };
        if let Some((_, before)) = self.readings.back().filter(|(_, before)| *before != value) {
            self.step_c = self.step_c.min((value - before).abs());
        }
        self.readings.push_back((now_ns, value));
        while self.readings.front().is_some_and(|(at_ns, _)| now_ns.saturating_sub(*at_ns) > KEPT_NS) {
            self.readings.pop_front();
        }
        self.flat_since_ns = self.flat_since_ns.or(Some(now_ns)).filter(|_| self.are_flat());
    }

    /// Flat long enough to be no turning point, which grows with the time that is looked at as [`HELD_FOR_NS`] does with the shortest.
    fn is_steady(&self) -> bool {
        let Some((now_ns, since_ns)) = self.readings.back().map(|(at_ns, _)| *at_ns).zip(self.flat_since_ns) else { return false };
        let held_ns = known_after_ns(self.step_c) / (STEADY_OVER_NS / HELD_FOR_NS);
        now_ns.saturating_sub(since_ns) >= held_ns.saturating_sub(HELD_FOR_NS)
    }

    /// Are they known to change by no more than [`STEADY_C_PER_MIN`]? What a sensor hides within a step over some time counts as slope.
    fn are_flat(&self) -> bool {
        let Some(&(now_ns, now)) = self.readings.back() else { return false };
        let least_ns = known_after_ns(self.step_c);
        let mut line = Line::default();
        let mut spans = self.readings.iter().rev().filter_map(|(at_ns, value)| {
            let span_ns = now_ns.saturating_sub(*at_ns);
            let minutes = span_ns as f64 / 60e9;
            line.add(-minutes, value - now);
            (span_ns >= least_ns).then(|| (line.slope().abs(), self.step_c / minutes, span_ns))
        });
        // Over a longer time what rose and fell again comes to nothing: the shortest one has to be flat, too.
        let Some((shortest, hidden, _)) = spans.next() else { return false };
        shortest <= STEADY_C_PER_MIN
            && (shortest + hidden <= STEADY_C_PER_MIN
                || spans.take_while(|(.., span_ns)| *span_ns <= 2 * least_ns).any(|(slope, hidden, _)| slope + hidden <= STEADY_C_PER_MIN))
    }
}

/// The line of least squares through points.
#[derive(Debug, Default)]
struct Line {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Line {
    fn add(&mut self, x: f64, y: f64) {
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// Of at least two points that don't lie above each other.
    fn slope(&self) -> f64 {
        (self.n * self.xy - self.x * self.y) / (self.n * self.xx - self.x * self.x)
    }
}

/// Looks in the order of time. Of too many every second one is dropped, and from then on only every second one taken.
#[derive(Debug, Default)]
struct Trace {
    rows: Vec<(u64, Vec<Option<f64>>)>,
    n_looks: usize,
    /// One look in 2^this is taken.
    thinned: u32,
}

impl Trace {
    fn add(&mut self, now_ns: u64, row: Vec<Option<f64>>) {
        if self.n_looks.is_multiple_of(1 << self.thinned) {
            self.rows.push((now_ns, row));
        }
        self.n_looks += 1;
        if self.rows.len() > MOST_ROWS {
            let mut at = 0;
            self.rows.retain(|_| (at % 2 == 0, at += 1).0);
            self.thinned += 1;
        }
    }

    fn series(&self, watched: &[Watched]) -> Series {
        let column = |(at, watched): (usize, &Watched)| {
            let (metric, unit) = watched.criterion.column();
            Column {
                metric: metric.into(),
                unit: unit.symbol().into(),
                subject: watched.subject.clone(),
                source: watched.source.clone(),
                values: self.rows.iter().map(|(_, row)| row[at]).collect(),
            }
        };
        Series {
            monotonic_ns: self.rows.iter().map(|(at_ns, _)| *at_ns).collect(),
            columns: watched.iter().enumerate().filter(|(_, watched)| !watched.is_left_out()).map(column).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::settle::OnTimeout;

    const S: u64 = 1_000_000_000;
    const BEGAN: u64 = 7_000 * S;
    const RULE: Rule = Rule { min_ms: 10_000, timeout_ms: 180_000, temp_within_c: 3.0, on_timeout: OnTimeout::Flag };

    fn watched(criterion: Criterion, limit: Limit) -> Watched {
        let subject = (criterion == Criterion::Temperature).then(|| "cpu-thermal".to_owned());
        Watched { criterion, subject, limit, source: String::new() }
    }

    /// A board with a reference of 45 °C, and nothing else to look at but what competes.
    fn board() -> Vec<Watched> {
        vec![watched(Criterion::Temperature, Limit::AtMost(48.0)), watched(Criterion::CompetingCpu, Limit::AtMost(0.1))]
    }

    /// Second and verdict of a wait with these values by second, a look every second.
    fn waited(rule: Rule, watched: Vec<Watched>, values: impl Fn(u64) -> Vec<Value>) -> (u64, Verdict, Evidence) {
        let mut settling = Settling::new(rule, watched, BEGAN);
        let (second, verdict) = (1..100_000).find_map(|second| Some((second, settling.look(BEGAN + second * S, values(second))?))).unwrap();
        let reference = Reference { values: [("cpu-thermal".to_owned(), 45.0)].into(), ..Reference::default() };
        (second, verdict, settling.evidence(Some(verdict), Some(reference)))
    }

    fn cooling(from: f64, to: f64, seconds: f64) -> impl Fn(u64) -> f64 {
        move |second| to + (from - to) * (-(second as f64) / seconds).exp()
    }

    #[test]
    fn a_board_that_cools_has_settled_when_it_was_within_reach_for_three_seconds() {
        let temperature = cooling(70.0, 44.0, 30.0);
        let (second, verdict, evidence) = waited(RULE, board(), |s| vec![Ok(temperature(s)), Ok(0.02)]);
        let reached = (1..).find(|&s| temperature(s) <= 48.0).unwrap();
        assert_eq!((second, verdict), (reached + 3, Verdict::Settled));
        assert_eq!(evidence.offset_c, Some(temperature(second) - 45.0));
        let column = &evidence.trace.columns[0];
        assert_eq!((column.metric.as_str(), column.values.len()), ("temperature_c", second as usize));
        assert!(column.values.is_sorted_by(|a, b| a > b), "{column:?}");
        assert_eq!(evidence.criteria[0].met, Some(true));
        assert_eq!((evidence.criteria[0].limit, evidence.criteria[0].value), (Some(48.0), Some(temperature(second))));
    }

    #[test]
    fn a_board_at_rest_waits_as_long_as_it_must_and_no_longer() {
        let at_rest = |_| vec![Ok(45.0), Ok(0.0)];
        assert_eq!(waited(RULE, board(), at_rest).0, 10);
        // One look opens the three seconds, another one ends them.
        assert_eq!(waited(Rule { min_ms: 0, ..RULE }, board(), at_rest).0, 4);
    }

    #[test]
    fn each_disturbance_begins_the_three_seconds_anew() {
        for disturbed in [8, 10, 12] {
            let noise = |s| if s == disturbed { 0.4 } else { 0.0 };
            let (second, ..) = waited(RULE, board(), |s| vec![Ok(45.0), Ok(noise(s))]);
            assert_eq!(
                second,
                if disturbed < 10 {
                    12
                } else if disturbed == 10 {
                    14
                } else {
                    10
                },
                "{disturbed}"
            );
        }
    }

    #[test]
    fn every_criterion_alone_keeps_a_wait_from_ending() {
        use Criterion::{CompetingCpu, FrequencyLimits, GpuMemory, GpuProcesses, SwapIn, Temperature, Throttle};
        let all = [Temperature, CompetingCpu, Throttle, SwapIn, FrequencyLimits, GpuProcesses, GpuMemory];
        for (at, criterion) in all.iter().enumerate() {
            let watched: Vec<Watched> = all.iter().map(|c| watched(*c, Limit::AtMost(0.0))).collect();
            // A temperature that wanders is not steady either.
            let values = |s: u64| (0..all.len()).map(|i| Ok(if i == at { 1.0 + s as f64 } else { 0.0 })).collect();
            let (second, verdict, evidence) = waited(RULE, watched, values);
            assert_eq!((second, verdict), (180, Verdict::TimedOut), "{criterion:?}");
            let unmet: Vec<Criterion> = evidence.criteria.iter().filter(|f| f.met == Some(false)).map(|f| f.criterion).collect();
            assert_eq!(unmet, [*criterion]);
        }
    }

    #[test]
    fn a_board_that_stays_warmer_than_it_was_has_settled_once_it_is_steady() {
        // A heat sink in the sun: 6 °C above the reference is as far as it comes.
        let temperature = cooling(60.0, 51.0, 12.0);
        let (second, verdict, evidence) = waited(RULE, board(), |s| vec![Ok(temperature(s)), Ok(0.0)]);
        assert_eq!(verdict, Verdict::SettledSteady);
        assert!((40..120).contains(&second), "{second}");
        assert!((evidence.offset_c.unwrap() - 6.0).abs() < 0.1, "{evidence:?}");
    }

    #[test]
    fn of_two_sensors_both_are_waited_for_and_the_one_further_off_is_shown() {
        let gpu = Watched { subject: Some("GPU-5b3c7f00".into()), ..watched(Criterion::Temperature, Limit::AtMost(38.0)) };
        let both = vec![watched(Criterion::Temperature, Limit::AtMost(48.0)), gpu];
        let (cpu, gpu) = (cooling(70.0, 44.0, 10.0), cooling(80.0, 34.0, 30.0));
        let mut settling = Settling::new(RULE, both.clone(), BEGAN);
        settling.look(BEGAN + S, vec![Ok(cpu(1)), Ok(gpu(1))]);
        assert_eq!(settling.temperature(), (Some(gpu(1)), Some(38.0)));
        assert_eq!(settling.too_warm().len(), 2);
        settling.look(BEGAN + 2 * S, vec![Ok(70.0), Err("it is gone".into())]);
        assert_eq!(settling.temperature(), (Some(70.0), Some(48.0)), "the other tells nothing");
        let (second, verdict, _) = waited(RULE, both, |s| vec![Ok(cpu(s)), Ok(gpu(s))]);
        let reached = (1..).find(|&s| gpu(s) <= 38.0 && cpu(s) <= 48.0).unwrap();
        assert_eq!((second, verdict), (reached + 3, Verdict::Settled));
    }

    #[test]
    fn a_temperature_that_still_falls_is_not_steady_however_slowly() {
        for c_per_min in [0.3, 1.0, 5.0] {
            let (second, verdict, _) = waited(RULE, board(), |s| vec![Ok(70.0 - c_per_min * s as f64 / 60.0), Ok(0.0)]);
            assert_eq!((second, verdict), (180, Verdict::TimedOut), "{c_per_min}");
        }
        let (second, verdict, _) = waited(RULE, board(), |s| vec![Ok(70.0 - 0.19 * s as f64 / 60.0), Ok(0.0)]);
        // Half a minute of readings, then three seconds of being so.
        assert_eq!((second, verdict), (34, Verdict::SettledSteady));
    }

    #[test]
    fn no_board_counts_as_steady_while_it_changes_faster_than_it_may_whatever_its_sensor_hides() {
        let rule = Rule { timeout_ms: 4 * 3_600_000, ..RULE };
        for (seed, step_c) in (0..60).flat_map(|seed| [1.0, 0.487, 0.125, 0.001].map(|step_c| (seed, step_c))) {
            let of = |what: u64| noise(seed * 7919 + what * 104_729 + 1);
            let (rest, above, minutes) = (50.0 + 20.0 * of(1), 1.0 + 39.0 * of(2), 0.3 + 20.0 * of(3));
            // Some warm up instead, as in the sun.
            let above = if seed % 5 == 0 { -above / 4.0 } else { above };
            let actual = |second: u64| rest + above * (-(second as f64) / 60.0 / minutes).exp();
            let read = |second: u64| ((actual(second) / step_c + of(4)).floor() * step_c * 1e3).round() / 1e3;
            let (second, verdict, _) = waited(rule, board(), |s| vec![Ok(read(s)), Ok(0.0)]);
            let c_per_min = (actual(second) - rest).abs() / minutes;
            assert_eq!(verdict, Verdict::SettledSteady, "{seed} {step_c}");
            assert!(c_per_min <= STEADY_C_PER_MIN * 1.01, "{c_per_min} °C a minute, seed {seed}, steps of {step_c} °C, second {second}");
            assert!(second >= if step_c == 1.0 { 328 } else { 34 }, "{seed} {step_c}: {second}");
        }
    }

    #[test]
    fn a_whole_degree_that_flickers_is_steady_after_a_while_and_what_rises_and_falls_is_not() {
        let rule = Rule { timeout_ms: 3_600_000, ..RULE };
        let (second, verdict, _) = waited(rule, board(), |s| vec![Ok(60.0 + f64::from(u8::from(noise(s) < 0.3))), Ok(0.0)]);
        assert_eq!(verdict, Verdict::SettledSteady);
        assert!((328..660).contains(&second), "{second}");
        // Ten minutes up, ten minutes down, a degree a minute.
        let triangle = |s: u64| (70.0 - ((s % 1200) as f64 / 60.0 - 10.0).abs()).floor();
        assert_eq!(waited(rule, board(), |s| vec![Ok(triangle(s)), Ok(0.0)]).1, Verdict::TimedOut);
    }

    #[test]
    fn a_sensor_that_is_lost_is_unmet_and_says_why() {
        let lost = |s| if s < 5 { Ok(45.0) } else { Err("no answer within 250 ms".to_owned()) };
        let (second, verdict, evidence) = waited(RULE, board(), |s| vec![lost(s), Ok(0.0)]);
        assert_eq!((second, verdict), (180, Verdict::TimedOut));
        let Finding { met, value, reason, .. } = &evidence.criteria[0];
        assert_eq!((*met, *value, reason.as_deref()), (Some(false), None, Some("no answer within 250 ms")));
        assert_eq!(evidence.offset_c, None);
    }

    #[test]
    fn what_a_device_does_not_tell_is_left_out_with_its_reason() {
        let watched =
            vec![watched(Criterion::Temperature, Limit::LeftOut("no thermal zones".into())), watched(Criterion::CompetingCpu, Limit::AtMost(0.1))];
        let (second, verdict, evidence) = waited(RULE, watched, |_| vec![Err("no thermal zones".into()), Ok(0.0)]);
        assert_eq!((second, verdict), (10, Verdict::Settled));
        assert_eq!((evidence.criteria[0].met, evidence.criteria[0].reason.as_deref()), (None, Some("no thermal zones")));
        assert_eq!(evidence.trace.columns.len(), 1);
    }

    #[test]
    fn without_a_reference_only_a_steady_temperature_will_do() {
        let watched = vec![watched(Criterion::Temperature, Limit::Steady("it was written by a newer isotherm".into()))];
        let (second, verdict, evidence) = waited(RULE, watched.clone(), |s| vec![Ok(30.0 + (s % 2) as f64 / 100.0)]);
        assert_eq!((second, verdict), (34, Verdict::SettledSteady));
        assert!(evidence.criteria[0].reason.as_ref().unwrap().contains("newer"));
        let (_, verdict, _) = waited(RULE, watched, |s| vec![Ok(30.0 + s as f64)]);
        assert_eq!(verdict, Verdict::TimedOut);
    }

    /// Small and repeatable; no statistics are asked of it.
    fn noise(seed: u64) -> f64 {
        let mixed = (seed ^ (seed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn whatever_is_read_a_settled_board_was_quiet_for_three_seconds_and_a_wait_ends_in_time() {
        for seed in 0..500 {
            let value = |s: u64| if noise(seed * 7919 + s) < 0.1 { Err("lost".to_owned()) } else { Ok(44.0 + 6.0 * noise(seed * 104_729 + s)) };
            let busy = |s: u64| noise(seed * 15_485_863 + s) * 0.15;
            let rule = Rule { min_ms: seed % 20 * 1000, timeout_ms: 60_000, ..RULE };
            let (second, verdict, _) = waited(rule, board(), |s| vec![value(s), Ok(busy(s))]);
            assert!(second * 1000 >= rule.min_ms && second <= 60, "{seed}");
            let quiet = |s: u64| value(s).is_ok_and(|c| c <= 48.0) && busy(s) <= 0.1;
            match verdict {
                Verdict::Settled => assert!((second - 3..=second).all(quiet), "{seed}"),
                Verdict::SettledSteady => {}
                Verdict::TimedOut => assert!(second == 60, "{seed}"),
            }
        }
    }

    #[test]
    fn a_trace_stays_short_and_keeps_its_whole_length() {
        let mut trace = Trace::default();
        for second in 0..36_000 {
            trace.add(second * S, vec![Some(second as f64)]);
            assert!(trace.rows.len() <= MOST_ROWS);
        }
        let times: Vec<u64> = trace.rows.iter().map(|(at_ns, _)| at_ns / S).collect();
        let step = times[1];
        assert!(times.len() > MOST_ROWS / 2 && times.iter().enumerate().all(|(i, at)| *at == i as u64 * step), "{times:?}");
        assert!(times.last().unwrap() + step >= 36_000);
    }
}
