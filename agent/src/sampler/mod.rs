//! Telemetry: one file per source, files held open, `pread` into fixed buffers, raw values.
//!
//! Takes a root, gives snapshots and series; must not know what a reading means for a run.

mod cgroup;
mod meminfo;
mod pressure;
mod stat;

use crate::{inspect, sys};
use isotherm_wire::columns::ColumnName;
use isotherm_wire::telemetry::{Column, Observer, Reading, Series, Snapshot};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// One metric of a source.
#[derive(Debug, Clone)]
pub struct Definition {
    pub column: ColumnName,
    pub source: String,
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

/// All sources that exist here, and why the others don't.
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

    /// Everything once, absent sources with their reason.
    pub fn snapshot(&mut self) -> Snapshot {
        let monotonic_ns = sys::monotonic_ns();
        let mut values = vec![None; self.definitions.len()];
        self.read(&mut values);
        let reading = |d: &Definition, value: Option<f64>, absent: Option<String>| Reading {
            metric: d.column.entry().name.into(),
            unit: d.column.entry().unit.symbol().into(),
            source: d.source.clone(),
            value,
            absent,
        };
        let mut readings: Vec<Reading> =
            self.definitions.iter().zip(values).map(|(d, value)| reading(d, value, value.is_none().then(|| "this read failed".to_owned()))).collect();
        readings.extend(self.absent.iter().map(|(d, reason)| reading(d, None, Some(reason.clone()))));
        Snapshot { monotonic_ns, readings }
    }
}

/// Samples in the background until it is stopped.
pub struct Sampler {
    thread: thread::JoinHandle<(Series, Observer)>,
    stop: File,
}

impl Sampler {
    /// Start sampling at `hz`. Memory for `expected_samples` is set aside now.
    pub fn start(mut sources: Sources, hz: f64, expected_samples: usize) -> std::io::Result<Sampler> {
        let (stopped, stop) = sys::pipe()?;
        let cpu_before = sys::process_cpu_ns();
        let definitions = Arc::new(sources.definitions.clone());
        let thread = thread::Builder::new().name("sampler".into()).spawn(move || {
            let period_ns = (1e9 / hz) as u64;
            let width = definitions.len();
            let mut times: Vec<u64> = Vec::with_capacity(expected_samples);
            let mut values: Vec<Option<f64>> = vec![None; width];
            let mut table: Vec<Option<f64>> = Vec::with_capacity(expected_samples * width);
            let (mut cost_sum, mut cost_max, mut missed) = (0u64, 0u64, 0u64);
            let mut due = sys::monotonic_ns();
            loop {
                let start = sys::monotonic_ns();
                sources.read(&mut values);
                times.push(start);
                table.extend_from_slice(&values);
                let end = sys::monotonic_ns();
                cost_sum += end - start;
                cost_max = cost_max.max(end - start);
                due += period_ns;
                if end > due {
                    let late = (end - due) / period_ns + 1;
                    missed += late;
                    due += late * period_ns;
                }
                if sys::poll_readable(&[stopped.as_raw_fd()], Some(due.saturating_sub(end)))[0] {
                    break;
                }
            }
            let samples = times.len() as u64;
            let span = times.last().copied().unwrap_or(0) - times.first().copied().unwrap_or(0);
            let observer = Observer {
                requested_hz: hz,
                achieved_hz: (samples > 1).then(|| (samples - 1) as f64 * 1e9 / span as f64),
                samples,
                missed_samples: missed,
                read_cost_mean_ns: cost_sum.checked_div(samples),
                read_cost_max_ns: (samples > 0).then_some(cost_max),
                agent_cpu_ns: sys::process_cpu_ns() - cpu_before,
            };
            let columns = definitions
                .iter()
                .enumerate()
                .map(|(i, d)| Column {
                    metric: d.column.entry().name.into(),
                    unit: d.column.entry().unit.symbol().into(),
                    source: d.source.clone(),
                    values: table.iter().skip(i).step_by(width.max(1)).copied().collect(),
                })
                .collect();
            (Series { monotonic_ns: times, columns }, observer)
        })?;
        Ok(Sampler { thread, stop })
    }

    /// Stop at once and take what was sampled.
    pub fn stop(mut self) -> (Series, Observer) {
        let _ = self.stop.write_all(&[0]);
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

fn definition(column: ColumnName, source: &Path) -> Definition {
    Definition { column, source: source.display().to_string() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn this_machine_is_read_and_what_is_absent_says_why() {
        let snapshot = Sources::open(Path::new("/")).snapshot();
        assert!(snapshot.value("mem_available_bytes").unwrap() > 0.0);
        assert!(snapshot.value("cpu_idle_s").unwrap() > 0.0);
        assert!(snapshot.readings.iter().all(|r| r.value.is_some() != r.absent.is_some()));
    }

    #[test]
    fn a_machine_without_sources_gives_absent_readings_with_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = Sources::open(dir.path()).snapshot();
        assert!(snapshot.readings.iter().any(|r| r.metric == "psi_cpu_some_us"));
        assert!(snapshot.readings.iter().all(|r| r.value.is_none() && r.absent.is_some()));
    }

    #[test]
    fn every_column_of_the_table_is_read_or_said_to_be_absent() {
        let dir = tempfile::tempdir().unwrap();
        for root in [Path::new("/"), dir.path()] {
            let mut found: Vec<(String, String)> = Sources::open(root).snapshot().readings.into_iter().map(|r| (r.metric, r.unit)).collect();
            let mut all: Vec<(String, String)> =
                ColumnName::ALL.iter().map(|column| (column.entry().name.into(), column.entry().unit.symbol().into())).collect();
            found.sort();
            all.sort();
            assert_eq!(found, all);
        }
    }

    #[test]
    fn a_series_has_one_value_per_time_and_at_least_one_sample() {
        let (series, observer) = Sampler::start(Sources::open(Path::new("/")), 100.0, 16).unwrap().stop();
        assert!(!series.monotonic_ns.is_empty());
        assert!(series.columns.iter().all(|c| c.values.len() == series.monotonic_ns.len()));
        assert_eq!(observer.samples, series.monotonic_ns.len() as u64);
    }
}
