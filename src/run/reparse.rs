//! Reading a results directory again: which records by which rules, in the order of the night, so that answers are compared as they were.

use super::event::Event;
use super::manifest::Manifest;
use super::reread::{Change, Reread, reread};
use crate::backend::{self, ParseSpec};
use crate::config::model::Campaign;
use crate::plan::expand::{self, PlanError};
use crate::plan::identity;
use crate::store::index::{self, Entry, Scan};
use crate::store::journal::Journal;
use crate::store::record::{Identity, RanFile, Status};
use crate::store::results::Results;
use crate::store::{Broken, StoreError, rewrite};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use thiserror::Error;

/// Why nothing could be read again.
#[derive(Debug, Error)]
pub enum ReparseError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A record that reads differently now.
#[derive(Debug, Clone, Serialize)]
pub struct ReadAnew {
    /// Relative to the results directory.
    pub path: String,
    pub run_id: String,
    pub status: Status,
    pub changes: Vec<Change>,
    /// The earlier reading; `None` in a dry run.
    pub earlier: Option<String>,
}

/// What came of reading records again.
#[derive(Debug, Default)]
pub struct Reparsed {
    /// In the order in which they ran.
    pub changed: Vec<ReadAnew>,
    pub unchanged: usize,
    /// As they were, because their output can't be read again: path and why.
    pub left: Vec<Broken>,
    /// Of points that the campaign file doesn't have.
    pub elsewhere: usize,
}

/// A record, by its place in a list of entries, and the rules for it.
pub(super) struct Target {
    pub entry: usize,
    pub rules: ParseSpec,
}

/// Read all records of a results directory again: by the rules of a campaign for the same points, else by their own.
///
/// # Errors
/// The directory is none, is in use, or can't be written; then every record is as it was or as it is to be.
pub fn reparse(dir: &Path, campaign: Option<&Campaign>, controller: &str, dry_run: bool) -> Result<Reparsed, ReparseError> {
    let by_spec = campaign.map(rules_of).transpose()?;
    let results = Results::existing(dir, &format!("its records are read again by {controller}"))?;
    let mut scan = index::scan(dir)?;
    let mut done = Reparsed::default();
    let mut targets = Vec::new();
    for (entry, of) in scan.entries.iter().enumerate() {
        let record = match index::read_record(&dir.join(&of.path)) {
            Ok(record) => record,
            Err(why) => {
                done.left.push(Broken { path: of.path.clone(), why });
                continue;
            }
        };
        if !backend::output::was_read(record.status, record.reason, record.read.is_some()) {
            done.unchanged += 1;
            continue;
        }
        let rules = match &by_spec {
            Some(by_spec) => match by_spec.get(&key(&record.ids.identity)) {
                Some(rules) => rules.clone(),
                None => {
                    done.elsewhere += 1;
                    continue;
                }
            },
            None => match record.read {
                Some(read) => read.rules,
                None => {
                    let why = "it does not say by which rules it was read: name them with `--campaign FILE`".into();
                    done.left.push(Broken { path: of.path.clone(), why });
                    continue;
                }
            },
        };
        targets.push(Target { entry, rules });
    }
    done.left.extend(scan.broken.iter().cloned());
    let mut read_again = again(dir, &mut scan.entries, targets, dry_run)?;
    done.changed = read_again.changed;
    done.unchanged += read_again.unchanged;
    done.left.append(&mut read_again.left);
    done.left.sort();
    if !dry_run && !done.changed.is_empty() {
        let Scan { entries, gone, .. } = &scan;
        index::write_index(&results.dir, entries.iter().chain(gone))?;
        let mut journal = Journal::open(&results.dir)?;
        for ReadAnew { path, run_id, status, earlier, .. } in &done.changed {
            let (path, run_id, earlier) = (path.clone(), run_id.clone(), earlier.clone().unwrap_or_default());
            journal.append(&Event::RecordReadAgain { run_id, path, status: *status, earlier })?;
        }
    }
    Ok(done)
}

/// What the campaign file alone says of a point, as text; the device's facts don't matter for how output is read.
fn key(identity: &Identity) -> String {
    identity::canonical(&identity.spec)
}

fn rules_of(campaign: &Campaign) -> Result<HashMap<String, ParseSpec>, PlanError> {
    // A condition that only a device could answer leaves its points in: their records are what there is.
    let plan = expand::expand(campaign, &BTreeMap::new())?;
    let built = plan.points.iter().filter(|point| point.is_built());
    Ok(built.map(|point| (identity::canonical(&identity::spec(point)), backend::parse_spec(point))).collect())
}

/// Read these records again and, unless it is a dry run, write those that change. `entries` are all of the directory; they are kept up
/// to date.
pub(super) fn again(dir: &Path, entries: &mut [Entry], mut targets: Vec<Target>, dry_run: bool) -> Result<Reparsed, StoreError> {
    let mut done = Reparsed::default();
    // Run ids are made when a run starts and sort by that.
    targets.sort_by(|a, b| entries[a.entry].run_id.cmp(&entries[b.entry].run_id));
    let of_point = by_identity(entries);
    for Target { entry: at, rules } in targets {
        let entry = &entries[at];
        let path = dir.join(&entry.path);
        let old = match index::read_record(&path) {
            Ok(record) => record,
            Err(why) => {
                done.left.push(Broken { path: entry.path.clone(), why });
                continue;
            }
        };
        let digest = rules.digest();
        let before = of_point[&entry.point_identity].iter().map(|&other| &entries[other]).take_while(|other| other.run_id < entry.run_id);
        let mut before = before.filter(|other| tells_answer(other, entry.repetition, &digest, &entry.libraries));
        let earlier = before.find_map(|other| other.output_digest.clone());
        match reread(&old, &rules, path.parent().unwrap_or(dir), earlier.as_deref()) {
            Reread::Unchanged => done.unchanged += 1,
            Reread::Left(why) => done.left.push(Broken { path: entry.path.clone(), why }),
            Reread::Changed { record, changes } => {
                let mut anew = ReadAnew { path: entry.path.clone(), run_id: entry.run_id.clone(), status: record.status, changes, earlier: None };
                if dry_run {
                    // Later repetitions are compared with what this one would say.
                    let entry = &mut entries[at];
                    (entry.status, entry.rules) = (record.status, Some(digest));
                    entry.output_digest = record.workload.output_digest.map(|digest| digest.value);
                } else {
                    let (entry, earlier) = rewrite::rewrite(dir, &anew.path, &old, *record)?;
                    entries[at] = entry;
                    anew.earlier = Some(earlier);
                }
                done.changed.push(anew);
            }
        }
    }
    Ok(done)
}

/// Records of each identity, by their places in the list, in the order in which they ran.
fn by_identity(entries: &[Entry]) -> HashMap<String, Vec<usize>> {
    let mut of: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        of.entry(entry.point_identity.clone()).or_default().push(at);
    }
    for places in of.values_mut() {
        places.sort_by(|a, b| entries[*a].run_id.cmp(&entries[*b].run_id));
    }
    of
}

/// The output digest of another repetition of a run's point, read by the same rules and measured with the same libraries as far as both
/// were seen. `ran`: the files of the run.
pub(super) fn earlier_digest(entries: &[Entry], manifest: &Manifest, ran: &[RanFile]) -> Option<String> {
    let planned = identity::point_identity(&manifest.identity);
    let rules = manifest.parse.digest();
    let libraries: BTreeMap<String, String> = ran.iter().map(|file| (file.file.path.clone(), file.file.sha256.clone())).collect();
    let of_point = entries.iter().filter(|entry| entry.point_identity == planned);
    of_point.filter(|entry| tells_answer(entry, manifest.repetition, &rules, &libraries)).find_map(|entry| entry.output_digest.clone())
}

/// Can this record say what another repetition of its point must answer? `libraries`: of the other one, path → sha256; they have to be
/// the same as far as both were seen.
fn tells_answer(entry: &Entry, repetition: u32, rules: &str, libraries: &BTreeMap<String, String>) -> bool {
    let another = |(path, sha256): (&String, &String)| entry.libraries.get(path).is_some_and(|own| own != sha256);
    entry.repetition != repetition && entry.status == Status::Ok && entry.rules.as_deref() == Some(rules) && !libraries.iter().any(another)
}
