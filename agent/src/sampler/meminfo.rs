//! `/proc/meminfo` and `/proc/vmstat`: memory, swap, page faults of the machine.

use super::{Definition, OpenFile, Source, count, definition};
use crate::inspect::machine::kib;
use isotherm_wire::columns::ColumnName;
use std::path::{Path, PathBuf};

const MEMORY: [ColumnName; 5] = [ColumnName::MemAvailable, ColumnName::MemFree, ColumnName::Cached, ColumnName::Dirty, ColumnName::SwapUsed];
/// A column and its name in `/proc/vmstat`.
const FAULTS: [(ColumnName, &str); 4] =
    [(ColumnName::SwapIn, "pswpin"), (ColumnName::SwapOut, "pswpout"), (ColumnName::MajorFaults, "pgmajfault"), (ColumnName::OomKills, "oom_kill")];

pub struct Meminfo {
    path: PathBuf,
    file: OpenFile,
}

fn memory_definitions(path: &Path) -> Vec<Definition> {
    MEMORY.iter().map(|column| definition(*column, path)).collect()
}

impl Meminfo {
    pub fn open(root: &Path) -> Result<Meminfo, (Vec<Definition>, String)> {
        let path = root.join("proc/meminfo");
        match OpenFile::open(&path, 8 << 10) {
            Ok(file) => Ok(Meminfo { path, file }),
            Err(why) => Err((memory_definitions(&path), why)),
        }
    }
}

impl Source for Meminfo {
    fn definitions(&self) -> Vec<Definition> {
        memory_definitions(&self.path)
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values.fill(None);
        let Some(text) = self.file.text() else { return };
        let bytes = |name| kib(text, name);
        values[0] = bytes("MemAvailable").map(|b| b as f64);
        values[1] = bytes("MemFree").map(|b| b as f64);
        values[2] = bytes("Cached").map(|b| b as f64);
        values[3] = bytes("Dirty").map(|b| b as f64);
        values[4] = bytes("SwapTotal").zip(bytes("SwapFree")).and_then(|(total, free)| total.checked_sub(free)).map(|b| b as f64);
    }
}

pub struct Vmstat {
    path: PathBuf,
    file: OpenFile,
}

fn fault_definitions(path: &Path) -> Vec<Definition> {
    FAULTS.iter().map(|(column, _)| definition(*column, path)).collect()
}

impl Vmstat {
    pub fn open(root: &Path) -> Result<Vmstat, (Vec<Definition>, String)> {
        let path = root.join("proc/vmstat");
        match OpenFile::open(&path, 16 << 10) {
            Ok(file) => Ok(Vmstat { path, file }),
            Err(why) => Err((fault_definitions(&path), why)),
        }
    }
}

impl Source for Vmstat {
    fn definitions(&self) -> Vec<Definition> {
        fault_definitions(&self.path)
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values.fill(None);
        let Some(text) = self.file.text() else { return };
        for (name, number) in text.lines().filter_map(|l| l.split_once(' ')) {
            if let Some(i) = FAULTS.iter().position(|(_, n)| *n == name) {
                values[i] = count(number);
            }
        }
    }
}
