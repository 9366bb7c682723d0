//! The resume scan: every record of a results directory, by its index where the file's stat is unchanged, else read and checked.
//!
//! The index is rebuildable and never authority: losing it costs time.

use super::Broken;
use super::durable::{self, Existing};
use super::record::{Kind, PointIds, RanRole, Reason, Record, SCHEMA_VERSION, Status, Validity};
use super::seal::{self, SealError};
use super::write::Written;
use super::{StoreError, file, formats, io_error};
use crate::backend::WINDOW;
use crate::digest;
use isotherm_wire::format::Unread;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Raised with the record's: a line of a newer isotherm is not to be trusted in place of a record that can't be read here. One of
/// another version costs a read of its record.
const INDEX_VERSION: u32 = 1 + SCHEMA_VERSION;
const INDEX_FILE: &str = "index.ndjson";
/// Directory of records that no longer answer a job.
pub const SUPERSEDED: &str = "superseded";
/// Directory of device reports.
pub const DEVICES: &str = "devices";

/// What a plan needs to know of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub index_version: u32,
    /// Relative to the results directory.
    pub path: String,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub inode: u64,
    /// Of the whole file, hex.
    pub sha256: String,
    pub run_id: String,
    pub point: PointIds,
    pub point_identity: String,
    pub kind: Kind,
    pub repetition: u32,
    pub attempt: u32,
    pub status: Status,
    pub reason: Option<Reason>,
    pub validity: Validity,
    /// Libraries that were mapped: path → sha256.
    pub libraries: BTreeMap<String, String>,
    /// Digest of the output, to be the same in every repetition.
    pub output_digest: Option<String>,
    /// Digest of the rules by which its output was read; `None` where the record doesn't say or nothing was read.
    pub rules: Option<String>,
    /// The window that a power run was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Value>,
    /// Time on the device without the settle, ms.
    pub took_ms: Option<f64>,
    /// From spawn to exit of the measured invocation, ms: what a time limit is for.
    pub measured_ms: Option<f64>,
    /// Definition id and value of the record's first metric.
    pub headline: Option<(String, f64)>,
}

impl Entry {
    /// Does the record answer its job for good?
    #[must_use]
    pub fn answers(&self) -> bool {
        self.status == Status::Ok && self.validity != Validity::Invalid
    }

    /// It was repeated, and its file renamed to `….attempt<k>.json`.
    #[must_use]
    pub fn is_earlier_attempt(&self) -> bool {
        // Of the file's name: a point's directory may well be called that.
        self.path.rsplit('/').next().is_some_and(|name| name.contains(".attempt"))
    }
}

/// What is in a results directory.
#[derive(Debug, Default)]
pub struct Scan {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    pub broken: Vec<Broken>,
    /// In the index, but the file is gone.
    pub gone: Vec<Entry>,
    pub read: usize,
}

impl Scan {
    /// A record that has just been written, in place of what its path named before.
    pub fn put(&mut self, Written { entry, earlier }: Written) {
        match (self.entries.iter_mut().find(|other| other.path == entry.path), earlier) {
            // Its stat is another one now, too: the next scan reads it anew.
            (Some(other), Some(path)) => other.path = path,
            _ => self.entries.retain(|other| other.path != entry.path),
        }
        self.entries.push(entry);
    }
}

/// Look at every record below `dir`, without `superseded/`.
///
/// # Errors
/// [`StoreError::Io`] for a directory that can't be read, `Newer` for a record that may answer a job and can't be read here; a bad one is
/// in `broken`.
pub fn scan(dir: &Path) -> Result<Scan, StoreError> {
    let mut known: HashMap<String, Entry> = read_index(dir).into_iter().map(|e| (e.path.clone(), e)).collect();
    let mut scan = Scan::default();
    let mut files = Vec::new();
    record_files(dir, dir, &mut files)?;
    files.sort();
    for path in files {
        let name = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
        let indexed = known.remove(&name);
        let Ok(meta) = fs::metadata(&path) else { continue };
        if let Some(entry) = indexed
            && (entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode) == stat(&meta)
        {
            scan.entries.push(entry);
            continue;
        }
        scan.read += 1;
        match read(&path) {
            Ok((record, bytes)) => scan.entries.push(entry(&record, name, &meta, &bytes)),
            Err(newer @ StoreError::Newer { .. }) => return Err(newer),
            Err(why) => scan.broken.push(Broken { path: name, why: why.reason() }),
        }
    }
    scan.gone = known.into_values().collect();
    scan.gone.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(scan)
}

/// The index entry of a record in its file.
#[must_use]
pub fn entry(record: &Record, path: String, meta: &fs::Metadata, bytes: &[u8]) -> Entry {
    let (size, mtime_ns, ctime_ns, inode) = stat(meta);
    let ids = &record.ids;
    let of_libraries = record.backend.files.iter().filter(|f| f.role == RanRole::Library);
    let libraries = of_libraries.map(|f| (f.file.path.clone(), f.file.sha256.clone())).collect();
    let time = &record.time;
    // Loading and warming up of `builtin` are inside of the measured process.
    let apart = if record.raw.warmup.is_empty() { None } else { time.warmup_ms };
    let phases = [apart, time.measure_ms, time.drain_ms];
    let headline = record.metrics.values().next().and_then(|metric| Some((metric.definition.clone(), metric.value?)));
    Entry {
        index_version: INDEX_VERSION,
        path,
        size,
        mtime_ns,
        ctime_ns,
        inode,
        sha256: digest::sha256_hex(bytes),
        run_id: ids.run_id.clone(),
        point: ids.point.clone(),
        point_identity: ids.point_identity.clone(),
        kind: ids.kind,
        repetition: ids.repetition,
        attempt: ids.attempt,
        status: record.status,
        reason: record.reason,
        validity: record.validity,
        libraries,
        output_digest: record.workload.output_digest.as_ref().map(|d| d.value.clone()),
        rules: record.read.as_ref().map(|read| read.rules.digest()),
        window: record.requested.get(WINDOW).cloned(),
        took_ms: time.measure_ms.map(|_| phases.iter().flatten().sum()),
        measured_ms: time.measure_ms,
        headline,
    }
}

fn stat(meta: &fs::Metadata) -> (u64, i64, i64, u64) {
    let ns = |s: i64, ns: i64| s * 1_000_000_000 + ns;
    (meta.len(), ns(meta.mtime(), meta.mtime_nsec()), ns(meta.ctime(), meta.ctime_nsec()), meta.ino())
}

/// `<device>/<point>/<kind>-r<n>[.attempt<k>].json`; nothing else in the tree is a record.
fn record_files(top: &Path, dir: &Path, files: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    let depth = dir.strip_prefix(top).map_or(0, |d| d.components().count());
    for entry in fs::read_dir(dir).map_err(io_error("read", dir))? {
        let entry = entry.map_err(io_error("read", dir))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth < 2 && !(depth == 0 && (name == SUPERSEDED || name == DEVICES)) {
            record_files(top, &entry.path(), files)?;
        } else if kind.is_file() && depth == 2 && name.ends_with(".json") && !name.starts_with('.') {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn read_index(dir: &Path) -> Vec<Entry> {
    let text = file::read(&dir.join(INDEX_FILE)).unwrap_or_default();
    // Later lines win, which is what a map makes of them; a line that isn't understood costs a read of its record.
    let lines = text.split(|&b| b == b'\n').filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
    let by_path: BTreeMap<String, Entry> = lines.filter(|e| e.index_version == INDEX_VERSION).map(|e| (e.path.clone(), e)).collect();
    by_path.into_values().collect()
}

/// Write the index anew.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write_index<'a>(dir: &Path, entries: impl Iterator<Item = &'a Entry>) -> Result<(), StoreError> {
    let path = dir.join(INDEX_FILE);
    let mut bytes = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut bytes, entry).map_err(|e| StoreError::Damaged { path: path.clone(), reason: e.to_string() })?;
        bytes.push(b'\n');
    }
    durable::write(&path, &bytes, Existing::Replace)
}

/// Records with their paths relative to the results directory, and files that can't be read as such.
#[derive(Debug, Default)]
pub struct AllRecords {
    pub records: Vec<(String, Record)>,
    pub broken: Vec<Broken>,
    /// Whole as far as their seal says, and of a newer isotherm.
    pub newer: Vec<(String, StoreError)>,
}

impl AllRecords {
    /// Read one more file.
    pub fn read(&mut self, name: String, path: &Path) {
        match read(path) {
            Ok((record, _)) => self.records.push((name, record)),
            Err(newer @ StoreError::Newer { .. }) => self.newer.push((name, newer)),
            Err(why) => self.broken.push(Broken { path: name, why: why.reason() }),
        }
    }
}

/// All records with their paths, and the files that are none: for report and verify. Reads and checks every one.
///
/// # Errors
/// [`StoreError::Io`] for a directory that can't be read.
pub fn read_all(dir: &Path) -> Result<AllRecords, StoreError> {
    let mut files = Vec::new();
    record_files(dir, dir, &mut files)?;
    files.sort();
    let mut all = AllRecords::default();
    for path in files {
        let name = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
        all.read(name, &path);
    }
    Ok(all)
}

/// One record; why it is none, in words.
///
/// # Errors
/// Not readable, no seal, another shape.
pub fn read_record(path: &Path) -> Result<Record, String> {
    read(path).map(|(record, _)| record).map_err(|e| e.reason())
}

/// A record, and the bytes of its file.
fn read(path: &Path) -> Result<(Record, Vec<u8>), StoreError> {
    let bytes = file::read(path).map_err(io_error("read", path))?;
    match seal::open(&bytes) {
        Ok(record) => Ok((record, bytes)),
        Err(SealError::Unread(newer @ Unread::Newer { .. })) => Err(formats::unread(path)(newer)),
        Err(why) => Err(StoreError::Damaged { path: path.to_owned(), reason: why.to_string() }),
    }
}
