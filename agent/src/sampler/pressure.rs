//! `/proc/pressure`: time that tasks stood waiting for a resource, microseconds since boot.

use super::{Definition, OpenFile, Source, count, definition};
use isotherm_wire::columns::ColumnName;
use std::path::{Path, PathBuf};

pub struct Pressure {
    path: PathBuf,
    file: OpenFile,
    columns: [ColumnName; 2],
}

impl Pressure {
    /// `resource` is `cpu`, `memory` or `io`. `some`: at least one task waits; `full`: all of them (0 for cpu by definition).
    pub fn open(root: &Path, resource: &str) -> Result<Pressure, (Vec<Definition>, String)> {
        let path = root.join("proc/pressure").join(resource);
        let columns = match resource {
            "cpu" => [ColumnName::PsiCpuSome, ColumnName::PsiCpuFull],
            "memory" => [ColumnName::PsiMemorySome, ColumnName::PsiMemoryFull],
            _ => [ColumnName::PsiIoSome, ColumnName::PsiIoFull],
        };
        match OpenFile::open(&path, 256) {
            Ok(file) => Ok(Pressure { path, file, columns }),
            Err(why) => Err((columns.iter().map(|column| definition(*column, &path)).collect(), why)),
        }
    }
}

impl Source for Pressure {
    fn definitions(&self) -> Vec<Definition> {
        self.columns.iter().map(|column| definition(*column, &self.path)).collect()
    }

    fn read(&mut self, values: &mut [Option<f64>]) {
        values.fill(None);
        let Some(text) = self.file.text() else { return };
        for line in text.lines() {
            let slot = usize::from(line.starts_with("full "));
            values[slot] = line.rsplit_once("total=").and_then(|(_, n)| count(n));
        }
    }
}
