//! `/proc/stat` and `/proc/loadavg`: CPU time of the machine, context switches, interrupts, load.

use super::{Definition, OpenFile, Source, count, definition};
use crate::sys;
use isotherm_wire::columns::ColumnName;
use std::path::{Path, PathBuf};

pub struct Stat {
    path: PathBuf,
    file: OpenFile,
    ticks_per_s: f64,
}

fn definitions(path: &Path) -> Vec<Definition> {
    use ColumnName::{ContextSwitches, CpuBusy, CpuIdle, CpuSteal, Interrupts, ProcsRunning};
    [CpuBusy, CpuIdle, CpuSteal, ContextSwitches, Interrupts, ProcsRunning].map(|column| definition(column, path)).to_vec()
}

impl Stat {
    pub fn open(root: &Path) -> Result<Stat, (Vec<Definition>, String)> {
        let path = root.join("proc/stat");
        // 1 KiB a CPU line at most, and the interrupt line, which is cut: only its first number counts.
        let file = OpenFile::open(&path, 256 << 10).map_err(|why| (definitions(&path), why))?;
        Ok(Stat { path, file, ticks_per_s: sys::ticks_per_s() as f64 })
    }
}

impl Source for Stat {
    fn definitions(&self) -> Vec<Definition> {
        definitions(&self.path)
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values.fill(None);
        let ticks_per_s = self.ticks_per_s;
        let Some(text) = self.file.text() else { return };
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("cpu") => {
                    let mut ticks = [None; 8];
                    for (slot, word) in ticks.iter_mut().zip(words) {
                        *slot = word.parse::<u64>().ok();
                    }
                    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
                    let sum = |parts: &[Option<u64>]| parts.iter().copied().sum::<Option<u64>>().map(|t| t as f64 / ticks_per_s);
                    values[0] = sum(&[user, nice, system, irq, softirq]);
                    values[1] = sum(&[idle, iowait]);
                    values[2] = sum(&[steal]);
                }
                Some("ctxt") => values[3] = words.next().and_then(count),
                Some("intr") => values[4] = words.next().and_then(count),
                Some("procs_running") => values[5] = words.next().and_then(count),
                _ => {}
            }
        }
    }
}

pub struct LoadAverage {
    path: PathBuf,
    file: OpenFile,
}

impl LoadAverage {
    pub fn open(root: &Path) -> Result<LoadAverage, (Vec<Definition>, String)> {
        let path = root.join("proc/loadavg");
        match OpenFile::open(&path, 128) {
            Ok(file) => Ok(LoadAverage { path, file }),
            Err(why) => Err((vec![definition(ColumnName::Load, &path)], why)),
        }
    }
}

impl Source for LoadAverage {
    fn definitions(&self) -> Vec<Definition> {
        vec![definition(ColumnName::Load, &self.path)]
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        let load = self.file.text().and_then(|t| t.split(' ').next()?.parse::<f64>().ok());
        values[0] = load.filter(|load| load.is_finite() && *load >= 0.0);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn cpu_time_is_summed_without_counting_guests_twice() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let text = "cpu  100 10 40 1000 50 3 7 20 90 5\ncpu0 1 2\nintr 77 1 2 3\nctxt 55\nprocs_running 2\n";
        std::fs::write(dir.path().join("proc/stat"), text).unwrap();
        let mut stat = Stat::open(dir.path()).ok().unwrap();
        stat.ticks_per_s = 100.0;
        let mut values = [None; 6];
        stat.read(&mut values);
        assert_eq!(values, [Some(1.6), Some(10.5), Some(0.2), Some(55.0), Some(77.0), Some(2.0)]);
    }

    #[test]
    fn a_garbled_line_is_absent_and_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        std::fs::write(dir.path().join("proc/stat"), "cpu  1 2 x 4\nctxt many\n").unwrap();
        let mut values = [Some(9.0); 6];
        Stat::open(dir.path()).ok().unwrap().read(&mut values);
        assert_eq!(values, [None; 6]);
    }
}
