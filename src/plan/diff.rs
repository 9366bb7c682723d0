//! The difference between what a campaign wants and what is stored: which jobs have an answer, and why the others have none.

use super::expand::{Plan, Point, job_key};
use super::identity::{self, DeviceReport};
use crate::schedule::{self, Slot};
use crate::store::index::{self, Entry, Scan};
use crate::store::record::{Identity, Kind, PointIds, Status};
use crate::store::seal;
use indexmap::IndexMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// A job with its place in the night and what is stored for it.
#[derive(Debug, Clone)]
pub struct PlannedJob {
    /// The same for every attempt: 16 hex digits.
    pub id: String,
    pub slot: Slot,
    /// In the whole night, from 0.
    pub position: u32,
    pub state: JobState,
    /// `None` until the device has been asked.
    pub identity: Option<Identity>,
    /// Attempt number of the next run.
    pub attempt: u32,
    /// Records and earlier attempts of this job under another identity, relative to the results directory: superseded once there is a
    /// new one.
    pub outdated: Vec<String>,
}

/// What is stored for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// This record answers it.
    Reused {
        path: String,
    },
    /// The last run failed, or its record is invalid.
    Retry {
        path: String,
        why: String,
    },
    /// A record is there, of something else: what changed, in words.
    Stale {
        why: String,
    },
    /// A record was there and can't be used any more: deleted, cut, edited.
    Lost {
        why: String,
    },
    New,
    /// The device was never asked: it may have an answer or not.
    Unknown {
        why: String,
    },
}

impl JobState {
    #[must_use]
    pub fn is_answered(&self) -> bool {
        matches!(self, JobState::Reused { .. })
    }

    /// The word for counts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            JobState::Reused { .. } => "reused",
            JobState::Retry { .. } => "retry",
            JobState::Stale { .. } => "stale",
            JobState::Lost { .. } => "lost",
            JobState::New => "new",
            JobState::Unknown { .. } => "unknown",
        }
    }

    /// Why the job has to run; `None` for an answered or a new one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            JobState::Retry { why, .. } | JobState::Stale { why } | JobState::Lost { why } | JobState::Unknown { why } => Some(why),
            JobState::Reused { .. } | JobState::New => None,
        }
    }
}

/// Paths of all libraries that records of this directory say were mapped: `inspect` has to ask for them too.
#[must_use]
pub fn libraries(scan: &Scan) -> BTreeSet<String> {
    scan.entries.iter().flat_map(|e| e.libraries.iter().cloned()).collect()
}

/// Compare. `reports`: device id → what is known of it.
#[must_use]
pub fn diff(plan: &Plan, reports: &BTreeMap<String, DeviceReport>, scan: &Scan, results: &Path) -> Vec<PlannedJob> {
    let mut by_job: HashMap<(String, Kind, u32), Vec<&Entry>> = HashMap::new();
    let mut by_identity: HashMap<(&str, Kind, u32), Vec<&Entry>> = HashMap::new();
    let mut earlier_by_job: HashMap<(String, Kind, u32), Vec<&Entry>> = HashMap::new();
    // The number after the highest of a file of an earlier attempt.
    let mut next_attempt: HashMap<(&str, Kind, u32), u32> = HashMap::new();
    for entry in &scan.entries {
        let (job, identity) = ((job_key(&entry.point), entry.kind, entry.repetition), (entry.point_identity.as_str(), entry.kind, entry.repetition));
        if entry.is_earlier_attempt() {
            earlier_by_job.entry(job).or_default().push(entry);
            let next = next_attempt.entry(identity).or_default();
            *next = (*next).max(entry.attempt + 1);
        } else {
            by_job.entry(job).or_default().push(entry);
            by_identity.entry(identity).or_default().push(entry);
        }
    }
    let gone: HashMap<(String, u32), &Entry> = scan.gone.iter().map(|e| ((job_key(&e.point), e.repetition), e)).collect();
    let mut known = Known { plan, reports, results, identities: HashMap::new() };
    let kind = Kind::Timing;
    let mut jobs = Vec::new();
    for (position, slot) in schedule::order(&plan.points).into_iter().enumerate() {
        let point = &plan.points[slot.point];
        let key = job_key(&point.ids);
        let same_job = by_job.get(&(key.clone(), kind, slot.repetition)).map_or(&[][..], Vec::as_slice);
        let mut job = PlannedJob {
            id: job_id(point, kind, slot.repetition),
            slot,
            position: position as u32,
            state: JobState::New,
            identity: None,
            attempt: 0,
            outdated: Vec::new(),
        };
        let libraries: BTreeSet<String> = same_job.iter().flat_map(|e| e.libraries.iter().cloned()).collect();
        let Some((identity, hash)) = known.identity(slot.point, &libraries) else {
            job.state = JobState::Unknown { why: format!("device `{}` has not been asked about it yet", point.ids.device) };
            job.outdated = Vec::new();
            jobs.push(job);
            continue;
        };
        // A record answers by its own libraries as they are now, so each is compared with what the point would be with just those.
        let mut answer = by_identity.get(&(hash.as_str(), kind, slot.repetition)).and_then(|list| list.first().copied());
        for entry in same_job {
            let own: BTreeSet<String> = entry.libraries.iter().cloned().collect();
            if answer.is_none() && known.identity(slot.point, &own).is_some_and(|(_, hash)| hash == entry.point_identity) {
                answer = Some(entry);
            }
        }
        let outdated: Vec<&&Entry> = same_job.iter().filter(|e| answer.is_none_or(|a| a.path != e.path)).collect();
        job.outdated = outdated.iter().map(|e| e.path.clone()).collect();
        // What failed before it was another question goes with the rest.
        for entry in earlier_by_job.get(&(key.clone(), kind, slot.repetition)).into_iter().flatten() {
            let own: BTreeSet<String> = entry.libraries.iter().cloned().collect();
            if known.identity(slot.point, &own).is_some_and(|(_, hash)| hash != entry.point_identity) {
                job.outdated.push(entry.path.clone());
            }
        }
        let next = |identity: &str| next_attempt.get(&(identity, kind, slot.repetition)).copied().unwrap_or(0);
        job.attempt = next(&hash).max(answer.map_or(0, |a| next(&a.point_identity)));
        job.state = match answer {
            Some(entry) if entry.answers() => JobState::Reused { path: entry.path.clone() },
            Some(entry) => {
                job.attempt = job.attempt.max(entry.attempt + 1);
                JobState::Retry { path: entry.path.clone(), why: retry_reason(entry) }
            }
            None => match outdated.first() {
                Some(entry) => JobState::Stale { why: known.what_changed(slot.point, entry) },
                None => lost(point, &key, slot.repetition, scan, &gone),
            },
        };
        job.identity = Some(identity);
        jobs.push(job);
    }
    jobs
}

/// Identities of points by what they depend on, computed once each.
struct Known<'a> {
    plan: &'a Plan,
    reports: &'a BTreeMap<String, DeviceReport>,
    results: &'a Path,
    /// By point and libraries.
    identities: HashMap<(usize, BTreeSet<String>), Option<Hashed>>,
}

/// An identity and its hash.
type Hashed = (Identity, String);

impl Known<'_> {
    fn identity(&mut self, index: usize, libraries: &BTreeSet<String>) -> Option<Hashed> {
        let compute = || {
            let point = &self.plan.points[index];
            let report = self.reports.get(&point.ids.device)?;
            let facts = identity::facts(point, report, libraries.iter().map(String::as_str))?;
            let identity = identity::identity(identity::spec(point), facts);
            let hash = identity::point_identity(&identity);
            Some((identity, hash))
        };
        self.identities.entry((index, libraries.clone())).or_insert_with(compute).clone()
    }

    fn what_changed(&mut self, index: usize, entry: &Entry) -> String {
        let own: BTreeSet<String> = entry.libraries.iter().cloned().collect();
        let Some((new, _)) = self.identity(index, &own) else { return "unknown until contact".into() };
        match index::read_record(&self.results.join(&entry.path)) {
            Ok(record) => identity::differences(&record.ids.identity, &new, 3).join("; "),
            Err(why) => format!("its record can't be read any more: {why}"),
        }
    }
}

fn retry_reason(entry: &Entry) -> String {
    match (entry.status, entry.reason) {
        (Status::Ok, _) => "its record is invalid".into(),
        (status, Some(reason)) => format!("{}: {}", status.name(), reason.name()),
        (status, None) => status.name().into(),
    }
}

fn lost(point: &Point, key: &str, repetition: u32, scan: &Scan, gone: &HashMap<(String, u32), &Entry>) -> JobState {
    // A file that can't be read can only be told by its place: <device>/<slug>-<8 hex digits>/<kind>-r<n>.json
    let (before, after) = (format!("{}/{}-", point.ids.device, point.ids.slug), format!("/{}-r{repetition}.json", Kind::Timing.name()));
    let is_ours = |path: &str| path.strip_prefix(&before).and_then(|p| p.strip_suffix(&after)).is_some_and(|hex| hex.len() == 8);
    if let Some(broken) = scan.broken.iter().find(|b| is_ours(&b.path)) {
        return JobState::Lost { why: format!("{}: {}", broken.path, broken.why) };
    }
    match gone.get(&(key.to_owned(), repetition)) {
        Some(entry) => JobState::Lost { why: format!("{} was deleted", entry.path) },
        None => JobState::New,
    }
}

fn job_id(point: &Point, kind: Kind, repetition: u32) -> String {
    let PointIds { device, slug, .. } = &point.ids;
    seal::sha256_hex(format!("{device}\u{0}{slug}\u{0}{}\u{0}{repetition}", kind.name()).as_bytes())[..16].to_owned()
}

/// Jobs by state, in the order of first appearance.
#[must_use]
pub fn counts<'a>(jobs: impl Iterator<Item = &'a PlannedJob>) -> IndexMap<&'static str, usize> {
    let mut counts = IndexMap::new();
    for job in jobs {
        *counts.entry(job.state.name()).or_insert(0) += 1;
    }
    counts
}
