//! The eyes of a wait: once a second everything that it looks at, and the wait itself.

use super::core::{Limit, Settling, Value, Watched};
use super::reference::Kept;
use super::usage::Usage;
use crate::load::Census;
use crate::sampler::Sensors;
use crate::sys;
use isotherm_wire::columns::ColumnName;
use isotherm_wire::headline;
use isotherm_wire::settle::{Criterion, Evidence, GPU_MEMORY_WITHIN_BYTES, MOST_COMPETING_CORES, Rule, Verdict};
use isotherm_wire::telemetry::{Reading, Snapshot};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// Between two looks, ns.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// Bits of the Raspberry Pi's `get_throttled` that stand for now.
const LIVE_BITS: u32 = 0xf;

/// Lower and upper frequency limit of a policy, kHz.
type Limits = (f64, f64);

/// What is the same for all waits of a keeper.
pub struct Session {
    root: PathBuf,
    limits: Sensors,
    /// By policy, the widest limits that it had without our doing.
    widest: BTreeMap<String, Limits>,
    kept: Kept,
    /// What GPUs said when it began.
    began: Vec<Reading>,
    pub usage: Usage,
}

impl Session {
    /// For when nothing has been done to the machine yet, and everything is given back that an earlier keeper had borrowed. `now`: what its
    /// sensors say.
    pub fn open(root: &Path, kept: Kept, now: Vec<Reading>) -> Session {
        let (limits, usage) = (Sensors::frequency_limits(root), Usage::default());
        let mut session = Session { root: root.to_owned(), limits, widest: BTreeMap::new(), kept, began: now, usage };
        session.widest = known(&session.read_limits());
        session
    }

    fn read_limits(&mut self) -> BTreeMap<String, Result<Limits, String>> {
        let mut by_policy: BTreeMap<String, Result<Limits, String>> = BTreeMap::new();
        // The lower one of a policy comes first, then its upper one.
        for pair in self.limits.readings().chunks_exact(2) {
            let [min, max] = pair else { continue };
            let policy = min.subject.as_deref().and_then(|subject| subject.split(' ').next()).unwrap_or_default().to_owned();
            by_policy.insert(policy, value(min).and_then(|min| Ok((min, value(max)?))));
        }
        by_policy
    }
}

fn known(limits: &BTreeMap<String, Result<Limits, String>>) -> BTreeMap<String, Limits> {
    limits.iter().filter_map(|(policy, limits)| Some((policy.clone(), *limits.as_ref().ok()?))).collect()
}

/// The surroundings of one wait.
pub struct Wait<'a> {
    pub session: &'a mut Session,
    /// Everything that telemetry has, once.
    pub snapshot: &'a mut dyn FnMut() -> Snapshot,
    /// The run has set the frequency limits itself: they are to stay as they are when the wait begins.
    pub limits_are_set: bool,
    /// Every GPU; `None` = it is waited for, else why not.
    pub gpus: BTreeMap<String, Option<String>>,
    /// Becomes readable when the wait is to be given up.
    pub cancelled: RawFd,
    /// Told after each look: the temperature, and what it has to come down to.
    pub told: &'a mut dyn FnMut(Option<f64>, Option<f64>),
}

/// Wait until the device has settled, the time is up, or it is cancelled. What is learnt of the reference is kept.
pub fn wait(wait: Wait<'_>, rule: Rule) -> Evidence {
    let Wait { session, snapshot, limits_are_set, gpus, cancelled, told } = wait;
    let (mut eyes, watched) = Eyes::open(session, snapshot(), limits_are_set, gpus, rule);
    let mut settling = Settling::new(rule, watched, sys::monotonic_ns());
    let verdict = loop {
        let pause_ns = LOOK_EVERY_NS.min(settling.left_ns(sys::monotonic_ns()));
        if sys::poll_readable(&[cancelled], Some(pause_ns))[0] {
            break None;
        }
        let values = eyes.look(snapshot());
        let verdict = settling.look(sys::monotonic_ns(), values);
        let (celsius, limit) = settling.temperature();
        told(celsius, limit);
        if verdict.is_some() {
            break verdict;
        }
    };
    let kept = &mut session.kept;
    let reference = kept.reference().ok().cloned();
    let (values, too_warm) = (settling.values(), settling.too_warm());
    let mut evidence = settling.evidence(verdict, reference);
    match verdict {
        Some(Verdict::Settled | Verdict::SettledSteady) => kept.settled(&values),
        Some(Verdict::TimedOut) => evidence.raised_to = kept.timed_out(&values, &too_warm),
        None => {}
    }
    evidence
}

/// What is looked at, always in this order: the headline sensor, competing CPU, throttling, swap, frequency limits; GPUs.
struct Eyes<'a> {
    session: &'a mut Session,
    sensor: Option<String>,
    /// Those that gave a value when the wait began.
    throttle: Vec<Reading>,
    /// Limits that the run has set, `None` = those of the session hold.
    set_limits: Option<BTreeMap<String, Limits>>,
    /// What of which GPU.
    gpus: Vec<(ColumnName, String)>,
    before: Snapshot,
    census: Option<Census>,
}

impl<'a> Eyes<'a> {
    fn open(
        session: &'a mut Session,
        first: Snapshot,
        limits_are_set: bool,
        gpus: BTreeMap<String, Option<String>>,
        rule: Rule,
    ) -> (Eyes<'a>, Vec<Watched>) {
        let (sensor, temperature) = temperature(&session.kept, &first, rule.temp_within_c);
        let is_throttle = |reading: &&Reading| [ColumnName::ThrottleBits, ColumnName::Throttles].iter().any(|column| is_of(reading, *column));
        let throttle: Vec<Reading> = first.readings.iter().filter(is_throttle).filter(|reading| reading.value.is_some()).cloned().collect();
        session.limits.try_again();
        let limits = session.read_limits();
        let census = Census::take(&session.root);
        let source = |found: Option<&Reading>| found.map(|reading| reading.source.clone()).unwrap_or_default();
        let at_most = |limit: f64, there: bool, why: &str| if there { Limit::AtMost(limit) } else { Limit::LeftOut(why.to_owned()) };
        let watched = |criterion, limit, source| Watched { criterion, subject: None, limit, source };
        let swap = first.readings.iter().find(|reading| is_of(reading, ColumnName::SwapIn) && reading.value.is_some());
        let of_limits = "/sys/devices/system/cpu/cpufreq/policy*/scaling_{min,max}_freq".to_owned();
        let mut all = vec![
            Watched {
                subject: sensor.clone(),
                source: source(sensor.as_deref().and_then(|s| of_subject(&first.readings, ColumnName::Temperature, s))),
                ..watched(Criterion::Temperature, temperature, String::new())
            },
            watched(Criterion::CompetingCpu, at_most(MOST_COMPETING_CORES, census.is_some(), "/proc/stat can't be read"), "/proc/stat".into()),
            watched(Criterion::Throttle, at_most(0.0, !throttle.is_empty(), "nothing here tells"), source(throttle.first())),
            watched(Criterion::SwapIn, at_most(0.0, swap.is_some(), "/proc/vmstat can't be read"), source(swap)),
            watched(Criterion::FrequencyLimits, at_most(0.0, !limits.is_empty(), "no cpufreq"), of_limits),
        ];
        let set_limits = limits_are_set.then(|| known(&limits));
        let mut of_gpus = Vec::new();
        for (gpu, left_out) in gpus {
            for (criterion, column, limit) in of_gpu(session, &first, &gpu, left_out, rule.temp_within_c) {
                let source = source(of_subject(&first.readings, column, &gpu));
                all.push(Watched { criterion, subject: Some(gpu.clone()), limit, source });
                of_gpus.push((column, gpu.clone()));
            }
        }
        (Eyes { session, sensor, throttle, set_limits, gpus: of_gpus, before: first, census }, all)
    }

    fn look(&mut self, now: Snapshot) -> Vec<Value> {
        let census = Census::take(&self.session.root);
        let time = self.census.as_ref().zip(census.as_ref()).and_then(|(before, now)| now.since(before));
        let of = |column, subject: &str| of_subject(&now.readings, column, subject).map_or_else(|| Err("it is gone".to_owned()), value);
        let of_gpus: Vec<Value> = self.gpus.iter().map(|(column, gpu)| of(*column, gpu)).collect();
        let mut values = vec![
            self.sensor.as_ref().map_or_else(|| Err("no sensor".to_owned()), |sensor| of(ColumnName::Temperature, sensor)),
            time.map(|time| time.competing_cores()).ok_or_else(|| "/proc/stat can't be read".to_owned()),
            self.throttled(&now),
            grown(&self.before, &now, ColumnName::SwapIn),
            self.narrowed(),
        ];
        values.extend(of_gpus);
        (self.before, self.census) = (now, census);
        values
    }

    /// Live bits, and how much counts have grown.
    fn throttled(&self, now: &Snapshot) -> Value {
        let of = |snapshot: &Snapshot, known: &Reading| {
            let found = snapshot.readings.iter().find(|reading| reading.metric == known.metric && reading.subject == known.subject);
            found.map_or_else(|| Err("it is gone".to_owned()), value)
        };
        self.throttle.iter().try_fold(0.0, |sum, known| {
            let value = of(now, known)?;
            Ok(sum
                + if is_of(known, ColumnName::ThrottleBits) {
                    f64::from((value as u32 & LIVE_BITS).count_ones())
                } else {
                    value - of(&self.before, known).unwrap_or(value)
                })
        })
    }

    /// Policies whose limits are narrower than the yardstick.
    fn narrowed(&mut self) -> Value {
        let now = self.session.read_limits();
        if self.set_limits.is_none() {
            for (policy, (min, max)) in known(&now) {
                let widest = self.session.widest.entry(policy).or_insert((min, max));
                *widest = (widest.0.min(min), widest.1.max(max));
            }
        }
        let yardstick = self.set_limits.as_ref().unwrap_or(&self.session.widest);
        let is_narrower = |(policy, widest): (&String, &Limits)| {
            let (min, max) = now.get(policy).cloned().unwrap_or_else(|| Err("it is gone".to_owned())).map_err(|why| format!("{policy}: {why}"))?;
            Ok(f64::from(min > widest.0 || max < widest.1))
        };
        yardstick.iter().map(is_narrower).sum()
    }
}

/// The sensor that speaks for the device, and what it is judged by.
fn temperature(kept: &Kept, now: &Snapshot, within_c: f64) -> (Option<String>, Limit) {
    let none = || Limit::LeftOut("no sensor here speaks for the CPU".into());
    match kept.reference() {
        Ok(reference) => match headline::sensor(reference.values.keys().map(String::as_str)) {
            Some(sensor) => (Some(sensor.to_owned()), Limit::AtMost(reference.values[sensor] + within_c)),
            None => match headline::sensor(reference.absent.keys().map(String::as_str)) {
                Some(sensor) => (Some(sensor.to_owned()), Limit::LeftOut(format!("not read at first contact: {}", reference.absent[sensor]))),
                None => (None, none()),
            },
        },
        Err(why) => {
            let read = now.readings.iter().filter(|reading| is_of(reading, ColumnName::Temperature) && reading.value.is_some());
            match headline::sensor(read.filter_map(|reading| reading.subject.as_deref())) {
                Some(sensor) => (Some(sensor.to_owned()), Limit::Steady(why.to_owned())),
                None => (None, none()),
            }
        }
    }
}

/// What is looked at of a GPU, and what it is judged by.
fn of_gpu(session: &Session, now: &Snapshot, gpu: &str, left_out: Option<String>, within_c: f64) -> Vec<(Criterion, ColumnName, Limit)> {
    use ColumnName::{GpuMemory, GpuProcesses, Temperature};
    if let Some(why) = left_out {
        return vec![(Criterion::Temperature, Temperature, Limit::LeftOut(why))];
    }
    let temperature = match session.kept.reference() {
        Ok(reference) => match (reference.values.get(gpu), reference.absent.get(gpu)) {
            (Some(celsius), _) => Limit::AtMost(celsius + within_c),
            (None, Some(why)) => Limit::LeftOut(format!("not read at first contact: {why}")),
            (None, None) => Limit::LeftOut("not there at first contact".into()),
        },
        Err(why) => match of_subject(&now.readings, Temperature, gpu).map(value) {
            Some(Ok(_)) => Limit::Steady(why.to_owned()),
            _ => Limit::LeftOut("no temperature is told".into()),
        },
    };
    let since_it_began = |column, limit: fn(f64) -> f64| match of_subject(&session.began, column, gpu).map(value) {
        Some(Ok(began)) => Limit::AtMost(limit(began)),
        Some(Err(why)) => Limit::LeftOut(format!("not read when the session began: {why}")),
        None => Limit::LeftOut("not there when the session began".into()),
    };
    vec![
        (Criterion::Temperature, Temperature, temperature),
        (Criterion::GpuProcesses, GpuProcesses, since_it_began(GpuProcesses, |_| 0.0)),
        (Criterion::GpuMemory, GpuMemory, since_it_began(GpuMemory, |bytes| bytes + GPU_MEMORY_WITHIN_BYTES)),
    ]
}

fn is_of(reading: &Reading, column: ColumnName) -> bool {
    reading.metric == column.entry().name
}

fn of_subject<'r>(readings: &'r [Reading], column: ColumnName, subject: &str) -> Option<&'r Reading> {
    readings.iter().find(|reading| is_of(reading, column) && reading.subject.as_deref() == Some(subject))
}

fn value(reading: &Reading) -> Value {
    reading.value.ok_or_else(|| reading.absent.clone().unwrap_or_else(|| "it gave no value".into()))
}

fn grown(before: &Snapshot, now: &Snapshot, column: ColumnName) -> Value {
    let of = |snapshot: &Snapshot| snapshot.value(column.entry().name);
    of(now).map(|value| value - of(before).unwrap_or(value)).ok_or_else(|| "it can't be read any more".to_owned())
}
