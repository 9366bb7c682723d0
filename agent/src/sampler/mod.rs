//! Telemetry: one file per source, files held open, `pread` into fixed buffers, raw values.
//!
//! Takes a root, gives snapshots and series; must not know what a reading means for a run.

mod cgroup;
mod gpu;
mod idle;
mod lane;
mod meminfo;
mod pmic;
pub mod polling;
mod pressure;
pub mod sensors;
mod stat;

use crate::{aside, inspect, sys};
pub use gpu::Watch;
pub use idle::Idle;
use isotherm_wire::columns::ColumnName;
use isotherm_wire::headline;
use isotherm_wire::probe::{Capability, Family, is_of_a_battery};
use isotherm_wire::telemetry::{Column, Observer, Reading, Series, Snapshot};
use lane::Lane;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// One metric of a source.
#[derive(Debug, Clone)]
pub struct Definition {
    pub column: ColumnName,
    /// Which of several.
    pub subject: Option<String>,
    pub source: String,
}

impl Definition {
    fn reading(&self, value: Option<f64>, absent: Option<String>) -> Reading {
        let entry = self.column.entry();
        let (metric, unit) = (entry.name.into(), entry.unit.symbol().into());
        Reading { metric, unit, subject: self.subject.clone(), source: self.source.clone(), value, absent }
    }
}

/// A file, or a few of one kind, that are read together.
pub trait Source: Send {
    fn definitions(&self) -> Vec<Definition>;
    /// One value per definition, in their order; `None` where this read failed. Allocates nothing.
    fn read(&mut self, values: &mut [Option<f64>]);
}

/// A source, or what it would have defined and why it isn't there.
pub type Opened = Result<Box<dyn Source>, (Vec<Definition>, String)>;

/// How one source is opened; on any thread, so that one that hangs can be given up.
pub struct Opener {
    /// Unique among them.
    pub name: &'static str,
    pub open: Box<dyn FnOnce() -> Opened + Send>,
}

/// Every source that there is, below `root`.
pub fn openers(root: &Path) -> Vec<Opener> {
    fn boxed<S: Source + 'static>(opened: Result<S, (Vec<Definition>, String)>) -> Opened {
        opened.map(|source| Box::new(source) as Box<dyn Source>)
    }
    let opener = |name, open: fn(&Path) -> Opened| {
        let root = root.to_owned();
        Opener { name, open: Box::new(move || open(&root)) }
    };
    vec![
        opener("stat", |root| boxed(stat::Stat::open(root))),
        opener("loadavg", |root| boxed(stat::LoadAverage::open(root))),
        opener("meminfo", |root| boxed(meminfo::Meminfo::open(root))),
        opener("vmstat", |root| boxed(meminfo::Vmstat::open(root))),
        opener("pressure_cpu", |root| boxed(pressure::Pressure::open(root, "cpu"))),
        opener("pressure_memory", |root| boxed(pressure::Pressure::open(root, "memory"))),
        opener("pressure_io", |root| boxed(pressure::Pressure::open(root, "io"))),
        opener("cgroup_memory", |root| boxed(cgroup::Memory::open(&inspect::cgroup::locate(root)))),
        opener("cgroup_throttling", |root| boxed(cgroup::Throttling::open(&inspect::cgroup::locate(root)))),
    ]
}

/// All sources that exist here, and why the others don't; by default none.
#[derive(Default)]
pub struct Sources {
    /// With the number of its definitions.
    sources: Vec<(usize, Box<dyn Source>)>,
    definitions: Vec<Definition>,
    absent: Vec<(Definition, String)>,
}

impl Sources {
    /// Open everything below `root`; `/` on a real machine.
    pub fn open(root: &Path) -> Sources {
        let mut all = Sources { sources: Vec::new(), definitions: Vec::new(), absent: Vec::new() };
        for opener in openers(root) {
            all.add((opener.open)());
        }
        all
    }

    fn add(&mut self, opened: Opened) {
        match opened {
            Ok(source) => {
                let definitions = source.definitions();
                self.sources.push((definitions.len(), source));
                self.definitions.extend(definitions);
            }
            Err((definitions, reason)) => self.absent.extend(definitions.into_iter().map(|d| (d, reason.clone()))),
        }
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        let mut rest = values;
        for (width, source) in &mut self.sources {
            let (own, others) = rest.split_at_mut(*width);
            source.read(own);
            rest = others;
        }
    }

    /// Everything once, absent sources with their reason; sensors last.
    pub fn snapshot(&mut self, sensors: &mut Sensors) -> Snapshot {
        let monotonic_ns = sys::monotonic_ns();
        let mut values = vec![None; self.definitions.len()];
        self.read(&mut values);
        let mut readings = readings(&self.definitions, &values);
        readings.extend(self.absent.iter().map(|(d, reason)| d.reading(None, Some(reason.clone()))));
        readings.extend(sensors.readings());
        Snapshot { monotonic_ns, readings }
    }
}

fn readings(definitions: &[Definition], values: &[Option<f64>]) -> Vec<Reading> {
    let reading = |(d, value): (&Definition, &Option<f64>)| d.reading(*value, value.is_none().then(|| "this read failed".to_owned()));
    definitions.iter().zip(values).map(reading).collect()
}

/// The sensors of a machine, with the lanes that read them. Found once: what a driver lets hang, it lets hang again.
pub struct Sensors {
    /// Of files, and of GPUs where there are any: whoever hangs in one delays none in the other.
    lanes: Vec<Lane>,
    /// Those of one lane after those of the other.
    definitions: Vec<Definition>,
    /// What is there and could not be read when it was tried.
    absent: Vec<Reading>,
    /// Energy counters and power meters, as they were found.
    instruments: Vec<Capability>,
    gpus: gpu::Watch,
}

impl Sensors {
    /// Try everything below `root` once. Takes some milliseconds, and longer where something hangs or a GPU has to wake.
    pub fn find(root: &Path) -> Sensors {
        let mut capabilities = crate::probe::sensors(root);
        let (mut found, mut absent) = sensors::of(root, &capabilities);
        // In this order they are read: what is counted or multiplied by time is worth most close to the time of its sample.
        found.sort_by_key(|sensor| !sensor.column.is_instrument());
        let mut sensors = Sensors::reading(found);
        // Of a copy of a machine's files nobody can be asked.
        if let Some(of_gpus) = (root == Path::new("/")).then(gpu::find).flatten() {
            sensors.definitions.extend(of_gpus.sensors.iter().map(sensors::Sensor::definition));
            sensors.lanes.push(Lane::with(of_gpus.sensors, of_gpus.give_up_ns, of_gpus.open));
            absent.extend(of_gpus.absent);
            capabilities.extend(of_gpus.capabilities);
            sensors.gpus = of_gpus.watch;
        }
        if let Some(of_pmic) = pmic::find(root) {
            sensors.definitions.extend(of_pmic.sensors.iter().map(sensors::Sensor::definition));
            sensors.lanes.push(Lane::with(of_pmic.sensors, pmic::GIVE_UP_NS, of_pmic.open));
            capabilities.extend(of_pmic.capabilities);
        }
        capabilities.retain(|capability| capability.family == Family::Energy);
        Sensors { absent, instruments: capabilities, ..sensors }
    }

    /// The frequency limits of every cpufreq policy, which are no telemetry: twice a policy, `policy0 min` and `policy0 max`.
    pub fn frequency_limits(root: &Path) -> Sensors {
        Sensors::reading(sensors::frequency_limits(root))
    }

    fn reading(found: Vec<sensors::Sensor>) -> Sensors {
        let definitions = found.iter().map(sensors::Sensor::definition).collect();
        Sensors { lanes: vec![Lane::start(found)], definitions, absent: Vec::new(), instruments: Vec::new(), gpus: gpu::Watch::default() }
    }

    /// Energy counters and power meters, those that can't be read among them.
    pub fn instruments(&self) -> &[Capability] {
        &self.instruments
    }

    /// Those that are read.
    pub fn instruments_read(&self) -> Vec<Capability> {
        let all = if self.reads_instruments() { &self.instruments[..] } else { &[] };
        all.iter().filter(|instrument| instrument.present().is_some()).cloned().collect()
    }

    /// Are they read from now on?
    pub fn read_instruments(&self, are_read: bool) {
        self.lanes.iter().for_each(|lane| lane.read_instruments(are_read));
    }

    fn reads_instruments(&self) -> bool {
        self.lanes.iter().all(Lane::reads_instruments)
    }

    /// Why none of them can be read; `None` = one can.
    pub fn no_instrument(&self) -> Option<String> {
        if self.definitions.iter().any(|definition| definition.column.is_instrument() && !is_of_a_battery(&definition.source)) {
            return None;
        }
        let why = |instrument: &Capability| Some(format!("{}: {}", instrument.name, instrument.absent()?.reason));
        let reasons: Vec<String> = self.instruments.iter().filter_map(why).collect();
        Some(if reasons.is_empty() { "none was found".into() } else { reasons.join("; ") })
    }

    /// The GPUs, and who computes on them.
    pub fn gpus(&self) -> &gpu::Watch {
        &self.gpus
    }

    /// A new run: who was given up is asked once more, unless it has hung too often.
    pub fn try_again(&self) {
        self.lanes.iter().for_each(Lane::try_again);
    }

    /// Begin a round in every lane.
    fn ask(&mut self) {
        self.lanes.iter_mut().for_each(Lane::ask);
    }

    /// Values by definition; all lanes together are waited for this long. Are the rounds over, but for those that take their time?
    fn take(&self, patience: Duration, values: &mut [Option<f64>]) -> bool {
        let mut are_over = true;
        let until_ns = sys::monotonic_ns() + patience.as_nanos() as u64;
        let mut rest = values;
        for lane in &self.lanes {
            let (own, others) = rest.split_at_mut(lane.width());
            are_over &= lane.take(Duration::from_nanos(until_ns.saturating_sub(sys::monotonic_ns())), own) || !lane.is_prompt();
            rest = others;
        }
        are_over
    }

    fn slowed(&self) -> Vec<(String, u64)> {
        self.lanes.iter().flat_map(Lane::slowed).collect()
    }

    /// Those that stopped answering, by name, with what happened.
    fn given_up(&self) -> Vec<(String, String)> {
        self.lanes.iter().flat_map(Lane::given_up).collect()
    }

    /// The temperature that speaks for the machine, by name.
    pub fn headline(&self) -> Option<String> {
        let temperatures = self.definitions.iter().filter(|definition| definition.column == ColumnName::Temperature);
        headline::sensor(temperatures.filter_map(|definition| definition.subject.as_deref())).map(str::to_owned)
    }

    /// What a temperature was when it was read last, whoever has asked for it, and when that was.
    pub fn latest(&self, sensor: &str) -> Option<(f64, u64)> {
        let (lane, at) = self.place(sensor)?;
        self.lanes[lane].latest(at)
    }

    /// Read a temperature, with what shares its lane, and don't wait for it.
    pub fn ask_for(&mut self, sensor: &str) {
        if let Some((lane, _)) = self.place(sensor) {
            self.lanes[lane].ask();
        }
    }

    /// What a temperature is now, °C, or why nobody can tell. Everything else is read with it.
    pub fn temperature(&mut self, sensor: &str) -> Result<f64, String> {
        let is_it = |reading: &Reading| reading.metric == ColumnName::Temperature.entry().name && reading.subject.as_deref() == Some(sensor);
        let reading = self.readings().into_iter().find(is_it).ok_or("it is gone")?;
        reading.value.ok_or_else(|| reading.absent.unwrap_or_else(|| "it gave no value".into()))
    }

    /// Lane of a temperature, and its place there.
    fn place(&self, sensor: &str) -> Option<(usize, usize)> {
        self.find_place(|definition| definition.column == ColumnName::Temperature && definition.subject.as_deref() == Some(sensor))
    }

    /// Likewise, of whatever it is.
    fn find_place(&self, is_it: impl Fn(&Definition) -> bool) -> Option<(usize, usize)> {
        let mut at = self.definitions.iter().position(is_it)?;
        let lane = self.lanes.iter().position(|lane| {
            let is_in_it = at < lane.width();
            at -= if is_in_it { 0 } else { lane.width() };
            is_in_it
        })?;
        Some((lane, at))
    }

    /// Each of them once, with the reason where one has no value.
    pub fn readings(&mut self) -> Vec<Reading> {
        let mut values = vec![None; self.definitions.len()];
        let mut rest = &mut values[..];
        for lane in &mut self.lanes {
            let (own, others) = rest.split_at_mut(lane.width());
            lane.all(own);
            rest = others;
        }
        let mut readings = readings(&self.definitions, &values);
        let left_alone = !self.reads_instruments();
        for ((reading, definition), why) in readings.iter_mut().zip(&self.definitions).zip(self.lanes.iter().flat_map(Lane::why_given_up)) {
            let why = why.or_else(|| (left_alone && definition.column.is_instrument()).then(|| NOT_READ.to_owned()));
            reading.absent = why.or(reading.absent.take());
        }
        readings.extend(self.absent.iter().cloned());
        readings
    }
}

/// What is said of instruments that are left alone.
const NOT_READ: &str = "not read: energy isn't measured in this run";

/// How long a sample waits for sensors that are slower than everything else; those that aren't through by then have no value in it.
const PATIENCE: Duration = Duration::from_millis(20);

pub fn lock(sensors: &Mutex<Sensors>) -> MutexGuard<'_, Sensors> {
    sensors.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reading all sources takes some 0.1 ms: nothing comes faster.
const MOST_HZ: f64 = 10_000.0;

/// Samples in the background until it is stopped.
pub struct Sampler {
    thread: thread::JoinHandle<(Series, Observer)>,
    control: File,
}

/// Control bytes: a sample now, beside those that are due; the end.
const MARK: u8 = b'M';
const STOP: u8 = b'S';

impl Sampler {
    /// Start sampling at `hz`: returns with the first sample taken, so that what begins then is sampled from before its beginning. Memory
    /// for `expected_samples` is set aside now.
    ///
    /// # Errors
    /// A rate that is none, or what the system says.
    pub fn start(mut sources: Sources, sensors: &Arc<Mutex<Sensors>>, hz: f64, expected_samples: usize) -> std::io::Result<Sampler> {
        if !(hz > 0.0 && hz <= MOST_HZ) {
            return Err(std::io::Error::other(format!("{hz:e} samples a second are asked for, more than 0 and at most {MOST_HZ} are possible")));
        }
        let (mut told, control) = sys::pipe()?;
        let (begin, begun) = channel();
        let cpu_before = sys::process_cpu_ns() + aside::cpu_ns();
        let sensors = Arc::clone(sensors);
        let mut definitions = sources.definitions.clone();
        definitions.extend(lock(&sensors).definitions.iter().cloned());
        let thread = thread::Builder::new().name("sampler".into()).spawn(move || {
            let period_ns = (1e9 / hz) as u64;
            let width = definitions.len();
            let mut times: Vec<u64> = Vec::with_capacity(expected_samples);
            let mut values: Vec<Option<f64>> = vec![None; width];
            let mut table: Vec<Option<f64>> = Vec::with_capacity(expected_samples * width);
            let (mut cost_sum, mut cost_max, mut missed) = (0u64, 0u64, 0u64);
            // Samples beside those that are due; is this one for a mark? The first one is for the beginning.
            let (mut marks, mut marked) = (0u64, true);
            let mut due = sys::monotonic_ns();
            loop {
                let start = sys::monotonic_ns();
                // The sensors' thread reads while this one does.
                lock(&sensors).ask();
                let (own, of_sensors) = values.split_at_mut(sources.definitions.len());
                sources.read(own);
                let is_whole = lock(&sensors).take(PATIENCE, of_sensors);
                times.push(start);
                table.extend_from_slice(&values);
                let end = sys::monotonic_ns();
                cost_sum += end - start;
                cost_max = cost_max.max(end - start);
                if end >= due {
                    let passed = (end - due) / period_ns;
                    missed += passed;
                    // A rate of nearly nothing is one sample: its next one is never due.
                    due = due.saturating_add((passed + 1).saturating_mul(period_ns));
                }
                if marked && !is_whole {
                    // A mark is there for the sensors: what they say to it comes with the next sample.
                    marks += 1;
                    continue;
                }
                marked = false;
                let _ = begin.send(());
                if sys::poll_readable(&[told.as_raw_fd()], Some(due.saturating_sub(end)))[0] {
                    let mut byte = [STOP];
                    if told.read(&mut byte).is_err() || byte[0] != MARK {
                        break;
                    }
                    marked = true;
                    marks += 1;
                }
            }
            let samples = times.len() as u64;
            let span = times.last().copied().unwrap_or(0) - times.first().copied().unwrap_or(0);
            let (slowed, given_up, reads_instruments, cpu_after) = {
                let sensors = lock(&sensors);
                let cpu_ns = sys::process_cpu_ns() + aside::cpu_ns();
                (sensors.slowed(), sensors.given_up(), sensors.reads_instruments(), cpu_ns)
            };
            let observer = Observer {
                requested_hz: hz,
                achieved_hz: (samples > marks + 1).then(|| (samples - marks - 1) as f64 * 1e9 / span as f64),
                samples,
                missed_samples: missed,
                read_cost_mean_ns: cost_sum.checked_div(samples),
                read_cost_max_ns: (samples > 0).then_some(cost_max),
                slowed,
                given_up,
                agent_cpu_ns: cpu_after.saturating_sub(cpu_before),
                link_packets: None,
                controller_cpu_ms: None,
            };
            let columns = definitions
                .iter()
                .enumerate()
                .filter(|(_, d)| reads_instruments || !d.column.is_instrument())
                .map(|(i, d)| Column {
                    metric: d.column.entry().name.into(),
                    unit: d.column.entry().unit.symbol().into(),
                    subject: d.subject.clone(),
                    source: d.source.clone(),
                    values: table.iter().skip(i).step_by(width.max(1)).copied().collect(),
                })
                .collect();
            (Series { monotonic_ns: times, columns }, observer)
        })?;
        // Its sender is gone should the thread have ended.
        let _ = begun.recv();
        Ok(Sampler { thread, control })
    }

    /// Take a sample now: at an edge of the run, which rarely falls on one that is due.
    pub fn mark(&self) {
        let _ = (&self.control).write_all(&[MARK]);
    }

    /// Stop at once and take what was sampled.
    pub fn stop(self) -> (Series, Observer) {
        let _ = (&self.control).write_all(&[STOP]);
        self.thread.join().unwrap_or_default()
    }
}

/// An open file with a buffer of its own.
struct OpenFile {
    file: File,
    buffer: Box<[u8]>,
}

impl OpenFile {
    /// Open it and prove by one read that it can be read.
    fn open(path: &Path, capacity: usize) -> Result<OpenFile, String> {
        let open = || -> std::io::Result<OpenFile> {
            let file = File::open(path)?;
            sys::pread(&file, &mut [0; 1])?;
            Ok(OpenFile { file, buffer: vec![0; capacity].into_boxed_slice() })
        };
        open().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The file's text now; `None` if it can't be read. Cut at the buffer's capacity.
    fn text(&mut self) -> Option<&str> {
        let n = sys::pread(&self.file, &mut self.buffer).ok()?;
        match std::str::from_utf8(&self.buffer[..n]) {
            Ok(text) => Some(text),
            Err(e) => std::str::from_utf8(&self.buffer[..e.valid_up_to()]).ok(),
        }
    }
}

/// A whole number from 0 on; `f64` alone would also take `nan`, `inf` and what is below zero.
fn count(text: &str) -> Option<f64> {
    text.trim().parse::<u64>().ok().map(|n| n as f64)
}

fn definition(column: ColumnName, source: &Path) -> Definition {
    Definition { column, subject: None, source: source.display().to_string() }
}

#[cfg(test)]
mod tests;
