//! What a night will be like, from what earlier records say: how long it takes, what its time limits are worth, which difference it can
//! resolve. Pure.

use super::expand::Plan;
use super::names::job_key;
use super::{PlannedJob, Point};
use crate::config::model::Order;
use crate::stats;
use crate::store::index::{Entry, Scan};
use crate::store::record::Kind;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Share of a time limit from which a run is likely to meet it sooner or later.
const CLOSE_TO_LIMIT: f64 = 0.5;

/// What stored records say of the runs of one kind of a point, each list in any order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Past {
    /// From start to end of a run without its settle, ms.
    pub took_ms: Vec<f64>,
    /// From spawn to exit, ms; what a time limit is for.
    pub measured_ms: Vec<f64>,
    /// Headlines of valid runs, of one metric and unit; above zero.
    pub headlines: Vec<f64>,
}

/// What is known of a point's runs of each kind; one that never ran is missing.
pub type PastRuns = BTreeMap<Kind, Past>;

/// What the records of a results directory say of each point of a plan, in its order.
#[must_use]
pub fn past(plan: &Plan, scan: &Scan) -> Vec<PastRuns> {
    let mut by_place: HashMap<String, BTreeMap<Kind, Vec<&Entry>>> = HashMap::new();
    for entry in &scan.entries {
        by_place.entry(job_key(&entry.point)).or_default().entry(entry.kind).or_default().push(entry);
    }
    let of_kind = |entries: &Vec<&Entry>| {
        let mut headlines: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (definition, value) in entries.iter().filter(|entry| entry.answers()).filter_map(|entry| entry.headline.as_ref()) {
            headlines.entry(definition).or_default().push(*value);
        }
        Past {
            took_ms: entries.iter().filter_map(|entry| entry.took_ms).collect(),
            measured_ms: entries.iter().filter_map(|entry| entry.measured_ms).collect(),
            headlines: headlines.into_values().max_by_key(Vec::len).unwrap_or_default(),
        }
    };
    let of_point = |point: &Point| {
        let kinds = if by_place.is_empty() { None } else { by_place.get(&job_key(&point.ids)) };
        kinds.into_iter().flatten().map(|(kind, entries)| (*kind, of_kind(entries))).collect()
    };
    plan.points.iter().map(of_point).collect()
}

/// Time of a part of a night.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    /// Settle of all jobs, the shortest that is possible.
    pub settle: Duration,
    /// The longest.
    pub settle_at_worst: Duration,
    /// The rest; `None` = nothing like it has run yet.
    pub work: Option<Duration>,
}

impl Times {
    /// All of it, if known.
    #[must_use]
    pub fn total(&self) -> Option<Duration> {
        Some(self.settle + self.work?)
    }
}

/// Time of jobs that have to run. A point that never ran takes what the others of its device and backend took at the median, a power run that
/// none was like as long as a timing run. `past`: by index of the point.
#[must_use]
pub fn times<'a>(plan: &Plan, jobs: impl Iterator<Item = &'a PlannedJob>, past: &[PastRuns]) -> Times {
    let mut alike: BTreeMap<(&str, &str, Kind), Vec<f64>> = BTreeMap::new();
    for (point, runs) in plan.points.iter().zip(past) {
        for (kind, past) in runs {
            alike.entry((&point.ids.device, &point.ids.backend, *kind)).or_default().extend(&past.took_ms);
        }
    }
    let typical: BTreeMap<_, f64> = alike.iter().filter_map(|(like, times)| Some((*like, stats::median(times)?))).collect();
    let own: Vec<BTreeMap<Kind, f64>> =
        past.iter().map(|runs| runs.iter().filter_map(|(kind, past)| Some((*kind, stats::median(&past.took_ms)?))).collect()).collect();
    let mut times = Times { work: Some(Duration::ZERO), ..Times::default() };
    for job in jobs {
        let point = &plan.points[job.slot.point];
        times.settle += point.settings.settle.shortest();
        times.settle_at_worst += point.settings.settle.longest();
        let of = |kind: Kind| {
            let typical = || typical.get(&(point.ids.device.as_str(), point.ids.backend.as_str(), kind));
            own[job.slot.point].get(&kind).or_else(typical).copied()
        };
        let ms = of(job.slot.kind).or_else(|| of(Kind::Timing));
        times.work = times.work.zip(ms).map(|(sum, ms)| sum + Duration::from_secs_f64(ms / 1000.0));
    }
    times
}

/// What a time limit is worth.
#[derive(Debug, Clone, PartialEq)]
pub enum Limit {
    /// Earlier runs took longer than it allows: the longest.
    Below(Duration),
    /// They came close: the longest.
    Close(Duration),
}

/// Points whose time limit is below what earlier runs needed, or close to it, by index.
#[must_use]
pub fn limits(plan: &Plan, past: &[PastRuns]) -> Vec<(usize, Limit)> {
    let judged = |(index, (point, runs)): (usize, (&Point, &PastRuns))| {
        let longest = runs.values().flat_map(|past| &past.measured_ms).copied().fold(0.0, f64::max);
        let timeout = point.settings.timeout.as_secs_f64() * 1000.0;
        let longest_time = Duration::from_secs_f64(longest / 1000.0);
        match longest {
            _ if longest > timeout => Some((index, Limit::Below(longest_time))),
            _ if longest > CLOSE_TO_LIMIT * timeout => Some((index, Limit::Close(longest_time))),
            _ => None,
        }
    };
    plan.points.iter().zip(past).enumerate().filter_map(judged).collect()
}

/// The smallest difference between two points that the campaign can tell from noise, and at how many repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resolution {
    /// As a ratio less 1: 0.023 for 2.3 %.
    pub difference: f64,
    /// The smallest of the campaign.
    pub repetitions: u32,
    /// Points whose spread it is from.
    pub n_points: usize,
}

/// t·√(2/R)·s, with s the pooled standard deviation of the logs of timing runs' headlines of each point and t the two-sided 95 % quantile at
/// 2(R − 1) degrees of freedom. `None` = no point has two earlier headlines, or there is but one repetition.
#[must_use]
pub fn resolution(plan: &Plan, past: &[PastRuns]) -> Option<Resolution> {
    let (mut squares, mut freedom, mut n_points) = (0.0, 0.0, 0);
    // A power run's own time is nothing that points are compared by.
    for past in past.iter().filter_map(|runs| runs.get(&Kind::Timing)) {
        let logs: Vec<f64> = past.headlines.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
        let Some(sd) = stats::standard_deviation(&logs) else { continue };
        let own = logs.len() as f64 - 1.0;
        squares += sd * sd * own;
        freedom += own;
        n_points += 1;
    }
    let repetitions = plan.points.iter().map(|point| point.settings.repetitions).min()?;
    if n_points == 0 || repetitions < 2 {
        return None;
    }
    let runs = f64::from(repetitions);
    let t = stats::t_quantile(0.975, 2 * (repetitions as usize - 1))?;
    let difference = (t * (2.0 / runs).sqrt() * (squares / freedom).sqrt()).exp_m1();
    difference.is_finite().then_some(Resolution { difference, repetitions, n_points })
}

/// Is there a group of interleaved arms whose number of passes is odd? Then a part of a linear drift stays in the comparison.
#[must_use]
pub fn leaves_drift(points: &[&Point]) -> bool {
    points.iter().any(|point| point.settings.order == Order::Interleaved && point.settings.repetitions > 1 && point.settings.repetitions % 2 == 1)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::plan::JobState;
    use crate::schedule::Slot;
    use std::path::Path;

    fn plan() -> Plan {
        let text = "devices: { here: { local: {} } }
matrix:
  - { devices: here, backend: command, threads: [1, 2, 3], argv: [x], timeout: 10s, prepare: { settle: 2s }, repetitions: 4 }
";
        let campaign = crate::config::parse(text, Path::new("/c/x.yaml")).unwrap();
        crate::plan::expand::expand(&campaign, &BTreeMap::new()).unwrap()
    }

    fn past(took_ms: &[f64], measured_ms: &[f64], headlines: &[f64]) -> PastRuns {
        let past = Past { took_ms: took_ms.to_vec(), measured_ms: measured_ms.to_vec(), headlines: headlines.to_vec() };
        [(Kind::Timing, past)].into()
    }

    fn job(point: usize, kind: Kind) -> PlannedJob {
        let slot = Slot { point, kind, repetition: 0, pass: 0 };
        PlannedJob { id: String::new(), slot, position: 0, state: JobState::New, identity: None, attempt: 0, outdated: Vec::new() }
    }

    #[test]
    fn a_point_that_never_ran_takes_what_the_others_took() {
        let jobs = [0, 1, 2].map(|point| job(point, Kind::Timing));
        let known = [past(&[1000.0, 3000.0], &[], &[]), past(&[4000.0], &[], &[]), PastRuns::new()];
        let times = times(&plan(), jobs.iter(), &known);
        // Own medians 2 s and 4 s, and the median of 1, 3 and 4 s for the third; 2 s settle each.
        assert_eq!(times, Times { settle: Duration::from_secs(6), settle_at_worst: Duration::from_secs(6), work: Some(Duration::from_secs(9)) });
        assert_eq!(times.total(), Some(Duration::from_secs(15)));
        let unknown = super::times(&plan(), jobs.iter(), &[PastRuns::new(), PastRuns::new(), PastRuns::new()]);
        assert_eq!((unknown.work, unknown.total()), (None, None));
    }

    #[test]
    fn a_power_run_takes_what_power_runs_took_and_as_long_as_there_was_none_what_timing_runs_did() {
        let mut known = [past(&[1000.0], &[], &[100.0, 101.0]), past(&[2000.0], &[], &[]), PastRuns::new()];
        let took = |known: &[PastRuns]| times(&plan(), [job(0, Kind::Power), job(1, Kind::Power)].iter(), known).work;
        assert_eq!(took(&known), Some(Duration::from_secs(3)));
        known[0].insert(Kind::Power, Past { took_ms: vec![7000.0], headlines: vec![1.0, 9.0], ..Past::default() });
        assert_eq!(took(&known), Some(Duration::from_secs(14)));
        // And what a power run says of its own time is no spread of anything.
        assert_eq!(resolution(&plan(), &known).unwrap().n_points, 1);
    }

    #[test]
    fn a_limit_is_judged_by_the_longest_run() {
        let known = [past(&[], &[4000.0, 4900.0], &[]), past(&[], &[5100.0], &[]), past(&[], &[2000.0, 12_000.0], &[])];
        let expected = [(1, Limit::Close(Duration::from_millis(5100))), (2, Limit::Below(Duration::from_secs(12)))];
        assert_eq!(limits(&plan(), &known), expected);
    }

    #[test]
    fn the_resolution_is_that_of_a_t_test() {
        // Printed by SciPy 1.17.1: expm1(t.ppf(.975, 6) * sqrt(2/4) * sqrt((var(log([100, 102, 98]), ddof=1)*2 + var(log([10, 10.1]), ddof=1)) / 3)).
        let known = [past(&[], &[], &[100.0, 102.0, 98.0]), past(&[], &[], &[10.0, 10.1]), past(&[], &[], &[5.0])];
        let resolution = resolution(&plan(), &known).unwrap();
        assert!((resolution.difference - 0.029_547_824_946_865_06).abs() < 1e-12, "{}", resolution.difference);
        assert_eq!((resolution.repetitions, resolution.n_points), (4, 2));
        assert_eq!(super::resolution(&plan(), &[PastRuns::new(), PastRuns::new(), past(&[], &[], &[1.0])]), None);
    }
}
