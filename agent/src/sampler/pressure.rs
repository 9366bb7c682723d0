//! `/proc/pressure`: time that tasks stood waiting for a resource, microseconds since boot.

use super::{Definition, OpenFile, Source, definition};
use std::path::{Path, PathBuf};

pub struct Pressure {
    path: PathBuf,
    file: OpenFile,
    metrics: [&'static str; 2],
}

impl Pressure {
    /// `resource` is `cpu`, `memory` or `io`. `some`: at least one task waits; `full`: all of them (0 for cpu by definition).
    pub fn open(root: &Path, resource: &str) -> Result<Pressure, (Vec<Definition>, String)> {
        let path = root.join("proc/pressure").join(resource);
        let metrics = match resource {
            "cpu" => ["psi_cpu_some_us", "psi_cpu_full_us"],
            "memory" => ["psi_memory_some_us", "psi_memory_full_us"],
            _ => ["psi_io_some_us", "psi_io_full_us"],
        };
        match OpenFile::open(&path, 256) {
            Ok(file) => Ok(Pressure { path, file, metrics }),
            Err(why) => Err((metrics.iter().map(|m| definition(m, "us", &path)).collect(), why)),
        }
    }
}

impl Source for Pressure {
    fn definitions(&self) -> Vec<Definition> {
        self.metrics.iter().map(|m| definition(m, "us", &self.path)).collect()
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values.fill(None);
        let Some(text) = self.file.text() else { return };
        for line in text.lines() {
            let slot = usize::from(line.starts_with("full "));
            values[slot] = line.rsplit_once("total=").and_then(|(_, n)| n.parse().ok());
        }
    }
}
