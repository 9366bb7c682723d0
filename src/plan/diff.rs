//! The difference between what a campaign wants and what is stored: which jobs have an answer, and why the others have none.

use super::contaminated;
use super::dominance::Dominators;
use super::expand::Plan;
use super::files;
use super::identity::{self, DeviceReport, Identified};
use super::names::job_key;
use super::point::Point;
use super::power::{self, Runs};
use crate::backend::{self, ParseSpec, output};
use crate::digest;
use crate::schedule::{self, Slot};
use crate::store::index::{self, Entry, Scan};
use crate::store::record::{Kind, PointIds, Reason, Status};
use indexmap::IndexMap;
use isotherm_wire::inspect::FileAnswer;
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

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
    pub identity: Option<Arc<Identified>>,
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
    /// This record is of the same, and was read by other rules: it will be read again by the new ones, and nothing has to run for that.
    Reread {
        path: String,
    },
    /// This record answers it, and something else disturbed its run, which is to be repeated.
    Contaminated {
        path: String,
        why: String,
    },
    /// The last run failed, or its record is invalid.
    Retry {
        path: String,
        why: String,
    },
    /// The last run failed for a reason that would only come again, or was skipped because of such a failure: `--rerun` tries it.
    Kept {
        path: String,
        status: Status,
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
        matches!(self, JobState::Reused { .. } | JobState::Reread { .. } | JobState::Contaminated { .. } | JobState::Kept { .. })
    }

    /// Does the next `run` run it by itself?
    #[must_use]
    pub fn has_to_run(&self) -> bool {
        !self.is_answered() || matches!(self, JobState::Contaminated { .. })
    }

    /// The word for counts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            JobState::Reused { .. } => "reused",
            JobState::Reread { .. } => "reread",
            JobState::Contaminated { .. } => "contaminated",
            JobState::Retry { .. } => "retry",
            JobState::Kept { .. } => "kept",
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
            JobState::Contaminated { why, .. }
            | JobState::Retry { why, .. }
            | JobState::Kept { why, .. }
            | JobState::Stale { why }
            | JobState::Lost { why }
            | JobState::Unknown { why } => Some(why),
            JobState::Reused { .. } | JobState::Reread { .. } | JobState::New => None,
        }
    }
}

/// Paths of all libraries that records of this directory say were mapped: `inspect` has to ask for them too.
#[must_use]
pub fn libraries(scan: &Scan) -> BTreeSet<String> {
    scan.entries.iter().flat_map(|e| e.libraries.keys().cloned()).collect()
}

/// What a comparison is made from.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub plan: &'a Plan,
    /// Of the plan's points, see [`identity::of_points`].
    pub identities: &'a [Option<Arc<Identified>>],
    /// Device id → what is known of it.
    pub reports: &'a BTreeMap<String, DeviceReport>,
    pub scan: &'a Scan,
    /// The results directory.
    pub results: &'a Path,
    /// Of one device only: its identity is part of every point's, so records of others answer none of its jobs.
    pub device: Option<&'a str>,
}

/// Place of the sweep, kind and repetition.
type JobKey<'a> = (&'a str, Kind, u32);

/// Compare what is wanted with what is stored: every job in the order of the night.
#[must_use]
pub fn diff(known: Known<'_>) -> Vec<PlannedJob> {
    let Known { plan, identities, scan, device, .. } = known;
    let is_meant = |id: &str| device.is_none_or(|device| device == id);
    // Made once for each point: a place is a long text.
    let nothing_stored = scan.entries.is_empty() && scan.gone.is_empty();
    let needs_place = |point: &Point| !nothing_stored && is_meant(&point.ids.device);
    let places: Vec<String> = plan.points.iter().map(|point| if needs_place(point) { job_key(&point.ids) } else { String::new() }).collect();
    let (of_entries, of_gone) = (placed(&scan.entries, is_meant), placed(&scan.gone, is_meant));
    let mut by_job: HashMap<JobKey<'_>, Vec<&Entry>> = HashMap::new();
    let mut by_identity: HashMap<(&str, Kind, u32), Vec<&Entry>> = HashMap::new();
    let mut earlier_by_job: HashMap<JobKey<'_>, Vec<&Entry>> = HashMap::new();
    // The number after the highest of a file of an earlier attempt.
    let mut next_attempt: HashMap<(&str, Kind, u32), u32> = HashMap::new();
    for (place, entry) in &of_entries {
        let (job, identity) = ((place.as_str(), entry.kind, entry.repetition), (entry.point_identity.as_str(), entry.kind, entry.repetition));
        if entry.is_earlier_attempt() {
            earlier_by_job.entry(job).or_default().push(entry);
            let next = next_attempt.entry(identity).or_default();
            *next = (*next).max(entry.attempt + 1);
        } else {
            by_job.entry(job).or_default().push(entry);
            by_identity.entry(identity).or_default().push(entry);
        }
    }
    let gone: HashMap<JobKey<'_>, &Entry> = of_gone.iter().map(|(place, entry)| ((place.as_str(), entry.kind, entry.repetition), *entry)).collect();
    let runs_of = |point: &Point| Runs::of(point.settings.power, point.settings.sample_hz, known.reports.get(&point.ids.device));
    let kinds: Vec<&[Kind]> = plan.points.iter().map(|point| runs_of(point).kinds()).collect();
    let rules: Vec<Rules> = plan.points.iter().map(|_| Rules::new()).collect();
    let dominators = Dominators::of(plan);
    let mut jobs = Vec::new();
    for (position, slot) in schedule::order(&plan.points, &kinds).into_iter().enumerate() {
        let (point, kind) = (&plan.points[slot.point], slot.kind);
        if !is_meant(&point.ids.device) {
            continue;
        }
        let key = (places[slot.point].as_str(), kind, slot.repetition);
        let same_job = by_job.get(&key).map_or(&[][..], Vec::as_slice);
        let mut job = PlannedJob {
            id: job_id(point, kind, slot.repetition),
            slot,
            position: position as u32,
            state: JobState::New,
            identity: identities[slot.point].clone(),
            attempt: 0,
            outdated: Vec::new(),
        };
        let Some(hash) = job.identity.as_ref().map(|i| i.hash.as_str()) else {
            // Without any record of it there is nothing that could turn out to be an answer.
            if !same_job.is_empty() {
                job.state = JobState::Unknown { why: format!("device `{}` has not been asked about it yet", point.ids.device) };
            }
            jobs.push(job);
            continue;
        };
        let candidates = by_identity.get(&(hash, kind, slot.repetition)).map_or(&[][..], Vec::as_slice);
        let found = answer(known, point, &rules[slot.point], candidates);
        let is_answer = |entry: &Entry| matches!(&found, Found::Answer(a) | Found::OtherRules(a) if a.path == entry.path);
        let outdated: Vec<&Entry> = same_job.iter().chain(candidates).copied().filter(|e| !is_answer(e)).collect();
        let next = next_attempt.get(&(hash, kind, slot.repetition)).copied().unwrap_or(0);
        job.attempt = next;
        job.state = match found {
            Found::Answer(entry) if entry.answers() => match contaminated::to_repeat(known.results, scan, entry, point.settings.retry_contaminated) {
                None => JobState::Reused { path: entry.path.clone() },
                Some(by) => {
                    job.attempt = next.max(entry.attempt + 1);
                    JobState::Contaminated { path: entry.path.clone(), why: format!("disturbed: {by}") }
                }
            },
            Found::Answer(entry) => {
                job.attempt = next.max(entry.attempt + 1);
                let dominated = || {
                    let failed = |other: usize| lasting_failures(identities, &by_identity, other, kind, plan.points[other].settings.repetitions);
                    dominators.of_point(plan, slot.point, failed).is_some()
                };
                match (entry.status, entry.reason) {
                    (Status::Failed, Some(reason)) if lasts(reason) => JobState::Kept {
                        path: entry.path.clone(),
                        status: entry.status,
                        why: format!("failed: {}; `--rerun` tries it again", reason.name()),
                    },
                    (Status::Skipped, Some(Reason::Dominated)) if dominated() => JobState::Kept {
                        path: entry.path.clone(),
                        status: entry.status,
                        why: "skipped: a smaller point failed; `--rerun` tries it".into(),
                    },
                    _ => JobState::Retry { path: entry.path.clone(), why: retry_reason(entry) },
                }
            }
            Found::OtherRules(entry) => JobState::Reread { path: entry.path.clone() },
            Found::Unasked(why) => JobState::Unknown { why },
            Found::Changed(why) => JobState::Stale { why },
            Found::Nothing => match outdated.first() {
                Some(entry) => JobState::Stale { why: what_changed(known, slot.point, entry) },
                None => lost(point, &key, scan, &gone),
            },
        };
        if !matches!(job.state, JobState::Unknown { .. }) {
            job.outdated = outdated.iter().map(|e| e.path.clone()).collect();
            // What failed before it was another question goes with the rest.
            let earlier = earlier_by_job.get(&key).into_iter().flatten().filter(|e| e.point_identity != hash);
            job.outdated.extend(earlier.map(|e| e.path.clone()));
            job.outdated.sort();
            job.outdated.dedup();
        }
        jobs.push(job);
    }
    jobs
}

/// Entries of the devices that are meant, each with its place.
fn placed(entries: &[Entry], is_meant: impl Fn(&str) -> bool) -> Vec<(String, &Entry)> {
    entries.iter().filter(|entry| is_meant(&entry.point.device)).map(|entry| (job_key(&entry.point), entry)).collect()
}

/// Would the same run fail the same way again, and cost the device a lot?
#[must_use]
pub fn lasts(reason: Reason) -> bool {
    matches!(reason, Reason::Oom | Reason::MemoryThrash | Reason::ThermalStop | Reason::DeviceLost)
}

type ByIdentity<'a> = HashMap<(&'a str, Kind, u32), Vec<&'a Entry>>;

/// Does a failure of one kind of run make runs of another needless? What a power run does not survive, a shorter one without instruments may.
#[must_use]
pub fn tells_of(failed: Kind, other: Kind) -> bool {
    failed == Kind::Timing || failed == other
}

/// Failures of a point's repetitions that are not tried again by themselves, as far as they tell of this kind of run.
fn lasting_failures(identities: &[Option<Arc<Identified>>], by_identity: &ByIdentity<'_>, point: usize, kind: Kind, repetitions: u32) -> Vec<Reason> {
    let Some(hash) = identities[point].as_ref().map(|identified| identified.hash.as_str()) else { return Vec::new() };
    let kinds = [Kind::Timing, Kind::Power].into_iter().filter(move |failed| tells_of(*failed, kind));
    let places = kinds.flat_map(|failed| (0..repetitions).map(move |repetition| (failed, repetition)));
    let entries = places.filter_map(|(failed, repetition)| by_identity.get(&(hash, failed, repetition))).flatten();
    entries.filter(|entry| entry.status == Status::Failed).filter_map(|entry| entry.reason.filter(|reason| lasts(*reason))).collect()
}

/// What the records of one identity are for their job.
enum Found<'a> {
    Answer(&'a Entry),
    /// It would be the answer, were it read by the campaign's rules.
    OtherRules(&'a Entry),
    /// A library that ran is another one now, or its output can't be read by the new rules.
    Changed(String),
    /// A library that ran has not been asked about.
    Unasked(String),
    Nothing,
}

/// A point's rules with their digest, once a record has to be compared with them.
type Rules = OnceCell<(ParseSpec, String)>;

fn answer<'a>(known: Known<'_>, point: &Point, rules: &Rules, candidates: &[&'a Entry]) -> Found<'a> {
    let mut found = Found::Nothing;
    for &entry in candidates {
        let change = library_change(known, point, entry).or_else(|| window_change(known, point, entry));
        let this = change.unwrap_or_else(|| by_rules(known, point, rules, entry));
        found = match (found, this) {
            (Found::Answer(old), Found::Answer(new)) => Found::Answer(if old.answers() { old } else { new }),
            (Found::Answer(old), _) => Found::Answer(old),
            (Found::OtherRules(old), this) if !matches!(this, Found::Answer(_)) => Found::OtherRules(old),
            (_, this) => this,
        };
    }
    found
}

/// The record as an answer: as it is, once it has been read again, or not at all, because what it keeps doesn't tell.
fn by_rules<'a>(known: Known<'_>, point: &Point, rules: &Rules, entry: &'a Entry) -> Found<'a> {
    let (rules, digest) = rules.get_or_init(|| {
        let rules = backend::parse_spec(point);
        let digest = rules.digest();
        (rules, digest)
    });
    if !output::was_read(entry.status, entry.reason, entry.rules.is_some()) || entry.rules.as_ref() == Some(digest) {
        return Found::Answer(entry);
    }
    let path = known.results.join(&entry.path);
    let unanswered = match index::read_record(&path) {
        Ok(record) => output::unanswered(rules, &record, path.parent().unwrap_or(known.results)),
        Err(why) => Some(why),
    };
    match unanswered {
        None => Found::OtherRules(entry),
        Some(why) => Found::Changed(format!("metric rule changed and the stored output can't answer it: {why}")),
    }
}

/// `None` = every library that the record names is what it was.
fn library_change(known: Known<'_>, point: &Point, entry: &Entry) -> Option<Found<'static>> {
    let report = known.reports.get(&point.ids.device)?;
    entry.libraries.iter().find_map(|(path, sha256)| match report.files.get(&files::library(path, &point.base).key) {
        None => Some(Found::Unasked(format!("device `{}` has not been asked about {path} yet", point.ids.device))),
        Some(FileAnswer::Found(facts)) => {
            let now = facts.first().map_or("", |f| f.sha256.as_str());
            (now != sha256).then(|| Found::Changed(format!("{path} changed ({:.4}… → {now:.4}…)", sha256)))
        }
        Some(_) => Some(Found::Changed(format!("{path} is gone"))),
    })
}

/// `None` = it is no power run, or one of as long a window as is wanted.
fn window_change(known: Known<'_>, point: &Point, entry: &Entry) -> Option<Found<'static>> {
    let period = power::period(&point.ids.backend, known.reports.get(&point.ids.device));
    let wanted = match entry.kind {
        Kind::Power => backend::requested(point, Kind::Power, period).swap_remove(backend::WINDOW),
        Kind::Timing => return None,
    };
    // One that the campaign leaves open hangs on the instruments that answer at the time: it may have been longer.
    let suffices = |had: &Value, wanted: &Value| {
        let same = ["min", "max"].iter().all(|bound| had[bound] == wanted[bound]);
        same && point.settings.window.target.is_none() && had["target_ms"].as_u64() >= wanted["target_ms"].as_u64()
    };
    let is_answer = entry.window == wanted || entry.window.as_ref().zip(wanted.as_ref()).is_some_and(|(had, wanted)| suffices(had, wanted));
    let told = |window: &Option<Value>| window.as_ref().map_or("fixed".to_owned(), Value::to_string);
    (!is_answer).then(|| Found::Changed(format!("window changed ({} → {})", told(&entry.window), told(&wanted))))
}

fn what_changed(known: Known<'_>, index: usize, entry: &Entry) -> String {
    let Some(new) = &known.identities[index] else { return "unknown until contact".into() };
    match index::read_record(&known.results.join(&entry.path)) {
        Ok(record) => identity::differences(&record.ids.identity, &new.identity, 3).join("; "),
        Err(why) => format!("its record can't be read any more: {why}"),
    }
}

fn retry_reason(entry: &Entry) -> String {
    match (entry.status, entry.reason) {
        (Status::Ok, _) => "its record is invalid".into(),
        (status, Some(reason)) => format!("{}: {}", status.name(), reason.name()),
        (status, None) => status.name().into(),
    }
}

fn lost(point: &Point, key: &JobKey<'_>, scan: &Scan, gone: &HashMap<JobKey<'_>, &Entry>) -> JobState {
    // A file that can't be read can only be told by its place: <device>/<slug>-<8 hex digits>/<kind>-r<n>.json
    let (before, after) = (format!("{}/{}-", point.ids.device, point.ids.slug), format!("/{}-r{}.json", key.1.name(), key.2));
    let is_ours = |path: &str| path.strip_prefix(&before).and_then(|p| p.strip_suffix(&after)).is_some_and(|hex| hex.len() == 8);
    if let Some(broken) = scan.broken.iter().find(|b| is_ours(&b.path)) {
        return JobState::Lost { why: format!("{}: {}", broken.path, broken.why) };
    }
    match gone.get(key) {
        Some(entry) => JobState::Lost { why: format!("{} was deleted", entry.path) },
        None => JobState::New,
    }
}

fn job_id(point: &Point, kind: Kind, repetition: u32) -> String {
    let PointIds { device, slug, .. } = &point.ids;
    digest::sha256_hex(format!("{device}\u{0}{slug}\u{0}{}\u{0}{repetition}", kind.name()).as_bytes())[..16].to_owned()
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
