//! Our own cgroup: memory in use, and time that the CPU quota held it back.

use super::{Definition, OpenFile, Source, count, definition};
use crate::inspect::cgroup::Groups;
use isotherm_wire::columns::ColumnName;
use std::path::{Path, PathBuf};

pub struct Memory {
    path: PathBuf,
    file: OpenFile,
}

impl Memory {
    pub fn open(groups: &Groups) -> Result<Memory, (Vec<Definition>, String)> {
        let path = match (groups.v1.get("memory"), &groups.unified) {
            (Some(dir), _) => dir.join("memory.usage_in_bytes"),
            (None, Some(dir)) => dir.join("memory.current"),
            (None, None) => {
                return Err((vec![definition(ColumnName::CgroupMemory, Path::new(""))], "no cgroup mount with that controller".into()));
            }
        };
        match OpenFile::open(&path, 64) {
            Ok(file) => Ok(Memory { path, file }),
            Err(why) => Err((vec![definition(ColumnName::CgroupMemory, &path)], why)),
        }
    }
}

impl Source for Memory {
    fn definitions(&self) -> Vec<Definition> {
        vec![definition(ColumnName::CgroupMemory, &self.path)]
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values[0] = self.file.text().and_then(count);
    }
}

/// `cpu.stat`: v1 counts `throttled_time` in ns, v2 `throttled_usec`.
pub struct Throttling {
    path: PathBuf,
    file: OpenFile,
}

fn definitions(path: &Path) -> Vec<Definition> {
    vec![definition(ColumnName::CgroupThrottled, path), definition(ColumnName::CgroupThrottledTime, path)]
}

impl Throttling {
    pub fn open(groups: &Groups) -> Result<Throttling, (Vec<Definition>, String)> {
        let Some(dir) = groups.v1.get("cpu").or(groups.unified.as_ref()) else {
            return Err((definitions(Path::new("")), "no cgroup mount with that controller".into()));
        };
        let path = dir.join("cpu.stat");
        match OpenFile::open(&path, 1024) {
            Ok(file) => Ok(Throttling { path, file }),
            Err(why) => Err((definitions(&path), why)),
        }
    }
}

impl Source for Throttling {
    fn definitions(&self) -> Vec<Definition> {
        definitions(&self.path)
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values.fill(None);
        let Some(text) = self.file.text() else { return };
        for (name, number) in text.lines().filter_map(|l| l.split_once(' ')) {
            match name {
                "nr_throttled" => values[0] = count(number),
                "throttled_usec" => values[1] = count(number),
                "throttled_time" => values[1] = count(number).map(|ns| ns / 1000.0),
                _ => {}
            }
        }
    }
}
