//! The part of a night on one device: its jobs in order, every result sealed in the store before the next.

use super::event::{Event, Finished, Settled};
use super::manifest::{self, Manifest};
use super::night::Night;
use super::reparse::{self, ReadAnew, Reparsed, Target};
use super::watch::Ended;
use super::{RunError, Stop, assemble};
use crate::backend;
use crate::clock;
use crate::config::model::Device;
use crate::device::{DeviceError, Session};
use crate::plan::identity::{DeviceReport, REPORT_VERSION, point_identity};
use crate::plan::power;
use crate::plan::{JobState, PlannedJob, contaminated, diff, files};
use crate::registry::{Code, MetricId};
use crate::store::Broken;
use crate::store::index::{self, Entry};
use crate::store::issue::Issue;
use crate::store::record::{Kind, RanFile, RanRole, Reason, Record, Status};
use crate::store::write::Valid;
use indexmap::IndexMap;
use isotherm_wire::format::Unread;
use isotherm_wire::inspect::{FileAnswer, FileQuery, FileRole};
use isotherm_wire::session::{RunState, SpoolEntry, Start};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

/// How often a job is started again when its keeper died with it.
const MOST_STARTS: u32 = 2;
/// How long past its own limits a run of an earlier controller is waited for before it is asked about again.
const ATTACHED_DEADLINE: Duration = Duration::from_secs(3600);

/// The part of the night on one device.
pub(super) struct DeviceNight<'n, 'a> {
    pub(super) night: &'n mut Night<'a>,
    pub(super) device: &'a Device,
    pub(super) session: Session,
    /// Links that were lost again soon after they were made, without a good one in between.
    pub(super) flaps: usize,
}

impl DeviceNight<'_, '_> {
    pub(super) fn everything(&mut self) -> Result<(), Stop> {
        self.inspect()?;
        if !self.night.options.dry_run {
            for message in self.collect_spool()? {
                self.night.emit(Event::Warning { message });
            }
            self.read_again()?;
        }
        let jobs = self.jobs();
        // Left over from a night that ended between a record and the move of the one it replaces.
        for job in jobs.iter().filter(|j| j.state.is_answered() && !self.night.options.dry_run) {
            self.night.supersede(&job.outdated)?;
        }
        let unread = |job: &PlannedJob| matches!(job.state, JobState::Reread { .. }) && !self.night.options.dry_run;
        let todo: Vec<PlannedJob> = jobs.iter().filter(|job| self.night.options.wants(&self.night.plan, job) || unread(job)).cloned().collect();
        let left = self.night.options.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.night.summary.ran));
        let mut reasons: IndexMap<String, usize> = IndexMap::new();
        for why in todo.iter().filter_map(|job| job.state.why()) {
            *reasons.entry(why.to_owned()).or_insert(0) += 1;
        }
        let missing = self.missing(&todo);
        self.night.emit(Event::DevicePlanned {
            device: self.device.id.clone(),
            states: diff::counts(jobs.iter()),
            to_run: todo.len().min(left),
            reasons,
        });
        missing.into_iter().chain(self.shortfalls()).for_each(|message| self.night.emit(Event::Warning { message }));
        if self.night.options.dry_run {
            return Ok(());
        }
        // Of the pass that is on.
        let mut disturbed: Vec<PlannedJob> = Vec::new();
        for job in todo {
            if disturbed.first().is_some_and(|first| self.pass(first) != self.pass(&job)) {
                self.repeat(std::mem::take(&mut disturbed))?;
            }
            if self.is_at_limit() {
                break;
            }
            self.night.check()?;
            self.run(&job)?;
            disturbed.extend(self.disturbed(&job));
        }
        self.repeat(disturbed)
    }

    /// Were as many runs made as this invocation may, repeats among them?
    fn is_at_limit(&self) -> bool {
        self.night.options.limit.is_some_and(|limit| self.night.summary.ran >= limit)
    }

    /// What tells the passes of a night apart: the group of arms and the turn through it.
    fn pass(&self, job: &PlannedJob) -> (usize, Option<&str>, u32) {
        let point = &self.night.plan.points[job.slot.point];
        (point.block, point.model.as_ref().map(|model| model.declared.id.as_str()), job.slot.pass)
    }

    /// Make disturbed runs again, in their order, and those again that are disturbed once more, as often as the campaign says.
    fn repeat(&mut self, mut disturbed: Vec<PlannedJob>) -> Result<(), Stop> {
        let retries = |job: &PlannedJob| self.night.plan.points[job.slot.point].settings.retry_contaminated;
        for _ in 0..disturbed.iter().map(retries).max().unwrap_or(0) {
            if disturbed.is_empty() || self.is_at_limit() {
                break;
            }
            self.night.emit(Event::Repeating { device: self.device.id.clone(), runs: disturbed.len() });
            for job in std::mem::take(&mut disturbed) {
                if self.is_at_limit() {
                    return Ok(());
                }
                self.night.check()?;
                self.run(&job)?;
                self.night.summary.repeated += 1;
                disturbed.extend(self.disturbed(&job));
            }
        }
        Ok(())
    }

    /// The job of a run that was just made, if something else disturbed that and it is to be repeated.
    fn disturbed(&self, job: &PlannedJob) -> Option<PlannedJob> {
        let (scan, dir) = (&self.night.scan, &self.night.results.dir);
        let identity = &job.identity.as_ref()?.hash;
        let runs = || scan.entries.iter().filter(|entry| contaminated::is_of(entry, identity, job.slot.kind, job.slot.repetition));
        let last = runs().map(|entry| entry.attempt).max().filter(|attempt| *attempt >= job.attempt)?;
        let entry = runs().find(|entry| !entry.is_earlier_attempt())?;
        let retries = self.night.plan.points[job.slot.point].settings.retry_contaminated;
        let why = contaminated::to_repeat(dir, scan, entry, retries)?;
        let state = JobState::Contaminated { path: entry.path.clone(), why };
        Some(PlannedJob { state, attempt: last + 1, outdated: Vec::new(), ..job.clone() })
    }

    /// Models that aren't there, said before the jobs that need them fail one by one.
    fn missing(&self, todo: &[PlannedJob]) -> Vec<String> {
        let Some(report) = self.night.reports.get(&self.device.id) else { return Vec::new() };
        let mut missing: IndexMap<(&str, String), (String, usize)> = IndexMap::new();
        for job in todo {
            let point = &self.night.plan.points[job.slot.point];
            if let (Some(model), Some(Err(why))) = (&point.model, files::model(point, &report.files)) {
                let path = Path::new(&*point.base).join(&*model.path).display().to_string();
                missing.entry((&model.declared.id, path)).or_insert((why, 0)).1 += 1;
            }
        }
        let device = &self.device.id;
        let jobs = |n: usize| if n == 1 { "its job".to_owned() } else { format!("its {n} jobs") };
        missing
            .into_iter()
            .map(|((model, path), (why, n))| {
                format!("model `{model}` on device `{device}`: {path}: {}; {} will fail", why.split(" (os error").next().unwrap_or(&why), jobs(n))
            })
            .collect()
    }

    /// What it can't do of the energy that the campaign asks for.
    fn shortfalls(&self) -> Vec<String> {
        let report = self.night.reports.get(&self.device.id);
        let points = self.night.plan.points.iter().filter(|point| point.ids.device == self.device.id);
        let told: BTreeSet<String> = points.filter_map(|point| power::shortfall(point.settings.power, report)).collect();
        told.into_iter().map(|what| format!("device `{}` has {what}; `isotherm probe` says what would mend it", self.device.id)).collect()
    }

    /// The jobs of this device that this invocation is about.
    fn jobs(&self) -> Vec<PlannedJob> {
        let mine = |job: &PlannedJob| self.night.plan.points[job.slot.point].ids.device == self.device.id;
        let mut jobs = self.night.jobs();
        jobs.retain(|job| mine(job) && self.night.options.concerns(&self.night.plan, job));
        jobs
    }

    /// Records that were read by other rules than the campaign's are read again by these, before anything is counted.
    fn read_again(&mut self) -> Result<(), Stop> {
        let places: HashMap<&str, usize> = self.night.scan.entries.iter().enumerate().map(|(at, e)| (e.path.as_str(), at)).collect();
        let mut targets = Vec::new();
        for job in self.jobs() {
            let JobState::Reread { path } = &job.state else { continue };
            let Some(&entry) = places.get(path.as_str()) else { continue };
            targets.push(Target { entry, rules: backend::parse_spec(&self.night.plan.points[job.slot.point]) });
        }
        if targets.is_empty() {
            return Ok(());
        }
        let Reparsed { changed, left, .. } = reparse::again(&self.night.results.dir, &mut self.night.scan.entries, targets, false)?;
        for Broken { path, why } in left {
            // Then nothing answers the job, and it runs.
            self.night.emit(Event::Warning { message: format!("{path} can't be read again: {why}") });
        }
        let (device, records) = (self.device.id.clone(), changed.len());
        for ReadAnew { path, run_id, status, earlier, .. } in changed {
            self.night.emit(Event::RecordReadAgain { run_id, path, status, earlier: earlier.unwrap_or_default() });
        }
        self.night.summary.read_again += records;
        if records > 0 {
            self.night.emit(Event::ReadAgain { device, records });
        }
        Ok(())
    }

    /// Ask the device what it is and what the campaign's files contain; keep the answer as `devices/<id>.json`.
    fn inspect(&mut self) -> Result<(), Stop> {
        let id = &self.device.id;
        let points = self.night.possible_points(id);
        let mut queries: BTreeMap<String, FileQuery> = BTreeMap::new();
        let mut warnings = Vec::new();
        for query in points.iter().flat_map(files::of_point).map(|f| f.query) {
            queries.insert(query.key.clone(), query);
        }
        for path in diff::libraries(&self.night.scan) {
            for base in points.iter().map(|p| &*p.base).collect::<BTreeSet<_>>() {
                let query = files::library(&path, base);
                queries.insert(query.key.clone(), query);
            }
        }
        let patterns: Vec<FileQuery> = queries.values().filter(|q| q.role == FileRole::Glob).cloned().collect();
        let inspected = self.session.inspect(queries.into_values().collect())?;
        for pattern in patterns {
            if matches!(inspected.files.get(&pattern.key), Some(FileAnswer::Found(files)) if files.is_empty()) {
                let message = format!("`inputs` pattern `{}` matches no file on device `{id}` (below {})", pattern.path, pattern.base);
                warnings.push(Event::Warning { message });
            }
        }
        warnings.into_iter().for_each(|warning| self.night.emit(warning));
        let containment = &inspected.machine.containment;
        let level = serde_json::to_value(containment.level).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let welcome = self.session.welcome()?;
        let engine = welcome.engine.clone();
        self.night.emit(Event::DeviceReady {
            device: id.clone(),
            agent_sha256: welcome.agent_sha256.clone(),
            keeper_is_new: welcome.keeper_is_new,
            containment: if containment.cgroup { format!("{level} + cgroup") } else { level },
        });
        let earlier = self.night.reports.get(id).and_then(|report| report.instruments.as_deref()).unwrap_or_default();
        let mut instruments = power::remembered(inspected.instruments, earlier);
        if let Some(hz) = power::polling_hz(&points, &instruments) {
            self.night.emit(Event::Polling { device: id.clone(), hz });
            instruments = power::remembered(self.session.try_polling(hz)?, &instruments);
        }
        let report = DeviceReport {
            report_version: REPORT_VERSION,
            taken_at: clock::utc_seconds(),
            machine: inspected.machine,
            engine,
            files: inspected.files,
            instruments: Some(instruments),
        };
        self.night.learn(id, report)?;
        self.check_models()
    }

    /// Every model that is run here has the content that the campaign declares.
    fn check_models(&self) -> Result<(), Stop> {
        let id = &self.device.id;
        let Some(report) = self.night.reports.get(id) else { return Ok(()) };
        for point in self.night.plan.points.iter().filter(|point| point.ids.device == *id) {
            let (Some(model), Some(Ok(fact))) = (&point.model, files::model(point, &report.files)) else { continue };
            if let Some(declared) = model.declared.sha256.as_ref().filter(|d| **d != fact.sha256) {
                return Err(Stop::Fatal(RunError::OtherModel {
                    model: model.declared.id.clone(),
                    device: id.clone(),
                    path: fact.path,
                    found: fact.sha256,
                    declared: declared.clone(),
                }));
            }
        }
        Ok(())
    }

    /// What an earlier controller left: sealed results are collected, a running job is waited for. What stays there, in words.
    pub(super) fn collect_spool(&mut self) -> Result<Vec<String>, Stop> {
        let mut stays = Vec::new();
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for SpoolEntry { run_id, state, manifest } in self.asking(Session::list)? {
            let manifest = match Manifest::of(manifest, &state) {
                Ok(manifest) => manifest,
                Err(why) => {
                    stays.push(format!("run {run_id} stays on device `{}`: {why}", self.device.id));
                    continue;
                }
            };
            if manifest.results_id != self.night.constants.results_id {
                *others.entry(manifest.campaign).or_insert(0usize) += 1;
                continue;
            }
            let (label, kind, repetition) = (manifest.label.clone(), manifest.kind, manifest.repetition);
            let (bytes, sha256) = match state {
                RunState::Sealed { bytes, sha256 } => (bytes, sha256),
                RunState::Running { .. } => {
                    self.night.emit(Event::Attached { run_id: run_id.clone(), label: label.clone(), kind, repetition });
                    let ended = match self.asking(|session| session.attach(&run_id))? {
                        RunState::Sealed { bytes, sha256 } => Ended::Sealed { bytes, sha256 },
                        RunState::Lost { reason, restarted } => Ended::Lost { reason, restarted },
                        RunState::Running { .. } => self.follow(&run_id, &manifest.job_id, ATTACHED_DEADLINE + longest(&manifest))?,
                    };
                    match ended {
                        Ended::Sealed { bytes, sha256 } => (bytes, sha256),
                        Ended::Lost { reason, restarted } => {
                            self.lost(&run_id, &manifest, reason, restarted)?;
                            continue;
                        }
                        Ended::Unsealed { reason } => {
                            self.lost(&run_id, &manifest, reason, false)?;
                            continue;
                        }
                    }
                }
                RunState::Lost { reason, restarted } => {
                    self.lost(&run_id, &manifest, reason, restarted)?;
                    continue;
                }
            };
            self.night.summary.collected += 1;
            self.night.emit(Event::Collected { run_id: run_id.clone(), label, kind, repetition });
            self.store(&run_id, bytes, &sha256, manifest, Valid::Stays)?;
        }
        for (campaign, n) in others {
            let device = &self.device.id;
            let results = if n == 1 { "result" } else { "results" };
            stays.push(format!("device `{device}` keeps {n} {results} of campaign `{campaign}` until a `run` of that campaign collects them"));
        }
        Ok(stays)
    }

    /// Wait for a run; should we leave before it ends, the summary says so.
    fn follow(&mut self, run_id: &str, job_id: &str, deadline: Duration) -> Result<Ended, Stop> {
        self.night.left_running = Some(job_id.to_owned());
        let ended = self.wait(run_id, deadline);
        if !matches!(ended, Err(Stop::Asked)) {
            self.night.left_running = None;
        }
        ended
    }

    /// A run that left no result. One that its device didn't survive has a record all the same, so that it is tried twice and not for ever.
    fn lost(&mut self, run_id: &str, manifest: &Manifest, why: String, restarted: bool) -> Result<Lost, Stop> {
        // The machine of its record isn't known from an older keeper; our own finds the run there as well.
        if restarted && self.session.welcome().is_err() {
            return Ok(Lost::Unrecorded);
        }
        let Manifest { label, kind, repetition, .. } = manifest.clone();
        self.night.emit(Event::RunLost { run_id: run_id.to_owned(), label, kind, repetition, why: why.clone() });
        let known = self.night.scan.entries.iter().any(|e| e.run_id == run_id);
        let lost = match restarted && !known {
            false => Lost::Unrecorded,
            true if self.restarted_before(manifest) => Lost::Recorded(Reason::DeviceLost),
            true => Lost::Recorded(Reason::Interrupted),
        };
        if let Lost::Recorded(reason) = lost {
            let again = if reason == Reason::DeviceLost { ", for the second time" } else { "" };
            let mut record = self.without_result(manifest.clone(), run_id, reason, format!("{why}{again}"));
            record.issues.push(Issue::new(Code::DeviceRestarted, why));
            self.keep(record, manifest.label.clone(), Valid::Stays)?;
        }
        self.forget(run_id, "")?;
        Ok(lost)
    }

    /// Has this job, as it is now, met a start of its device before?
    fn restarted_before(&self, manifest: &Manifest) -> bool {
        let identity = point_identity(&manifest.identity);
        let is_of_job = |e: &&Entry| {
            let same = e.point_identity == identity && (e.kind, e.repetition) == (manifest.kind, manifest.repetition);
            same && matches!(e.reason, Some(Reason::Interrupted | Reason::DeviceLost))
        };
        let records = self.night.scan.entries.iter().filter(is_of_job).map(|e| index::read_record(&self.night.results.dir.join(&e.path)));
        records.flatten().any(|record| record.issues.iter().any(|issue| issue.code == Code::DeviceRestarted))
    }

    /// Let the device drop a run; one that it doesn't know any more is dropped.
    fn forget(&mut self, run_id: &str, sha256: &str) -> Result<(), Stop> {
        self.asking(|session| match session.forget(run_id, sha256) {
            Err(e) if e.is_unknown_run() => Ok(()),
            other => other,
        })
    }

    /// Run one job to its record.
    fn run(&mut self, job: &PlannedJob) -> Result<(), Stop> {
        let point = &self.night.plan.points[job.slot.point];
        let Some(report) = self.night.reports.get(&self.device.id) else { return Ok(()) };
        let Some(mut manifest) = manifest::manifest(&self.night.constants, job, point, report) else { return Ok(()) };
        if let Some((by, reason)) = self.night.dominated(job.slot) {
            return self.skip(manifest, &by, reason);
        }
        let spec = manifest::spec(point, &manifest, report, &self.night.campaign.secrets, self.night.options.force);
        let deadline = Duration::from_millis(manifest::deadline_ms(&spec));
        // A valid record of a job that has to run all the same is of something else, such as another library.
        let valid = if job.state.is_answered() { Valid::Stays } else { Valid::Yields };
        let mut deaths = 0;
        let (run_id, reason, message) = loop {
            let run_id = clock::new_run_id();
            self.night.emit(Event::Started {
                run_id: run_id.clone(),
                job_id: job.id.clone(),
                device: self.device.id.clone(),
                label: manifest.label.clone(),
                kind: manifest.kind,
                repetition: manifest.repetition,
                attempt: manifest.attempt,
                settle_ms: manifest.settle_ms,
            });
            self.night.check()?;
            let as_json = serde_json::to_value(&manifest).map_err(|e| RunError::Io { what: "write a manifest", source: e.into() });
            let start = Start { run_id: run_id.clone(), manifest: as_json.map_err(Stop::Fatal)?, spec: spec.clone() };
            let ended = match self.start(start)? {
                Some(ended) => ended,
                None => self.follow(&run_id, &job.id, deadline)?,
            };
            match ended {
                Ended::Sealed { bytes, sha256 } => {
                    self.store(&run_id, bytes, &sha256, manifest, valid)?;
                    self.night.summary.ran += 1;
                    return self.supersede(job, &run_id);
                }
                Ended::Unsealed { reason } => {
                    self.forget(&run_id, "")?;
                    break (run_id, Reason::Internal, format!("the device could not write the result: {reason}"));
                }
                Ended::Lost { reason, restarted } => match self.lost(&run_id, &manifest, reason, restarted)? {
                    Lost::Recorded(Reason::Interrupted) => manifest.attempt += 1,
                    Lost::Recorded(_) => {
                        self.night.summary.ran += 1;
                        return self.supersede(job, &run_id);
                    }
                    Lost::Unrecorded => {
                        deaths += 1;
                        if deaths == MOST_STARTS {
                            break (run_id, Reason::Interrupted, format!("its keeper died with it {MOST_STARTS} times"));
                        }
                    }
                },
            }
        };
        // One bad point doesn't stop the rest.
        let label = manifest.label.clone();
        let record = self.without_result(manifest, &run_id, reason, message);
        self.keep(record, label, valid)?;
        self.night.summary.ran += 1;
        self.supersede(job, &run_id)
    }

    /// A record of a job without a result.
    fn without_result(&self, manifest: Manifest, run_id: &str, reason: Reason, message: String) -> Record {
        let machine = self.night.reports.get(&self.device.id).map(|r| r.machine.clone()).unwrap_or_default();
        assemble::without_result(manifest, run_id.to_owned(), reason, message, machine, &self.night.results.id.salt)
    }

    /// A record instead of a run that would only fail as a smaller one did.
    fn skip(&mut self, manifest: Manifest, by: &str, reason: Reason) -> Result<(), Stop> {
        let message = format!("{by} failed: {}", reason.name());
        let label = manifest.label.clone();
        let mut record = self.without_result(manifest, &clock::new_run_id(), Reason::Dominated, message);
        record.status = Status::Skipped;
        self.keep(record, label, Valid::Stays)
    }

    /// Move away what the record of a new run replaces; it may have taken the place of one of these already.
    fn supersede(&mut self, job: &PlannedJob, run_id: &str) -> Result<(), Stop> {
        // One whose result stays on its device, because it can't be read here, replaces nothing.
        let Some(new) = self.night.scan.entries.iter().find(|e| e.run_id == run_id) else { return Ok(()) };
        self.night.summary.failed_reruns += usize::from(new.is_earlier_attempt() && job.state.is_answered());
        let outdated: Vec<String> = job.outdated.iter().filter(|path| **path != new.path).cloned().collect();
        Ok(self.night.supersede(&outdated)?)
    }

    /// `Some` = the link was lost meanwhile, and the run has ended since.
    fn start(&mut self, start: Start) -> Result<Option<Ended>, Stop> {
        let before = self.session.serial;
        self.asking(|session| session.start(start.clone()))?;
        if self.session.serial == before {
            return Ok(None);
        }
        Ok(super::watch::ended(self.asking(|session| session.attach(&start.run_id))?))
    }

    /// Libraries that a run had mapped are files of its point from now on.
    fn learn_libraries(&mut self, ran: Vec<RanFile>, base: &str) {
        let Some(report) = self.night.reports.get_mut(&self.device.id) else { return };
        for library in ran.into_iter().filter(|file| file.role == RanRole::Library) {
            report.files.insert(files::library(&library.file.path, base).key, FileAnswer::Found(vec![library.file]));
        }
    }

    /// Fetch a sealed result, make its record, write it, and only then let the device forget it.
    fn store(&mut self, run_id: &str, bytes: u64, sha256: &str, manifest: Manifest, valid: Valid) -> Result<(), Stop> {
        let (label, device) = (manifest.label.clone(), self.device.id.clone());
        if !self.night.scan.entries.iter().any(|e| e.run_id == run_id) {
            let result = self.asking(|session| session.collect(run_id, bytes, sha256))?;
            let result = match assemble::result(&result, run_id) {
                Ok(result) => result,
                Err(newer @ Unread::Newer { .. }) => {
                    let message = format!("the result of run {run_id} stays on device `{device}`: {newer}");
                    self.night.emit(Event::Warning { message });
                    return Ok(());
                }
                Err(Unread::Shape(why)) => return Err(DeviceError::Damaged { device, reason: format!("result of run {run_id}: {why}") }.into()),
            };
            let ran = assemble::files(&result, &manifest);
            let digest = reparse::earlier_digest(&self.night.scan.entries, &manifest, &ran);
            self.learn_libraries(ran, &manifest.base);
            let record = assemble::record(result, manifest, &self.night.results.id.salt, digest.as_deref());
            self.keep(record, label, valid)?;
        }
        self.forget(run_id, sha256)
    }

    /// Write a record and say so.
    fn keep(&mut self, mut record: Record, label: String, valid: Valid) -> Result<(), Stop> {
        let written = self.night.results.write(&mut record, valid)?;
        let event = finished(&record, label, written.entry.path.clone());
        self.night.note_failure(&record);
        self.night.scan.put(written);
        self.night.emit(event);
        Ok(())
    }
}

/// What became of a run without a result.
enum Lost {
    /// Its job is as if it had not been started.
    Unrecorded,
    Recorded(Reason),
}

/// The time that a run of an earlier controller was given, at most.
fn longest(manifest: &Manifest) -> Duration {
    let requested = |name: &str| manifest.requested.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let settle_ms = manifest.settle.map_or(manifest.settle_ms, |rule| rule.timeout_ms);
    Duration::from_millis(requested("timeout_ms").saturating_mul(requested("warmup").saturating_add(1)).saturating_add(settle_ms))
}

fn finished(record: &Record, label: String, path: String) -> Event {
    // Its time is that of a run that was disturbed.
    let own = (record.ids.kind == Kind::Power).then(|| record.metrics.get_key_value(MetricId::Power.entry().name)).flatten();
    let headline = own.or_else(|| record.metrics.first()).map(|(name, metric)| (name.clone(), metric.clone()));
    Event::Finished(Box::new(Finished {
        run_id: record.ids.run_id.clone(),
        device: record.ids.point.device.clone(),
        label,
        kind: record.ids.kind,
        repetition: record.ids.repetition,
        attempt: record.ids.attempt,
        status: record.status,
        reason: record.reason,
        message: record.message.clone(),
        validity: record.validity,
        issues: record.issues.iter().map(|i| i.code.to_string()).collect(),
        headline,
        settle: settled(record),
        temperature_c: record.context.headline.as_ref().and_then(|headline| headline.start_c.zip(headline.end_c)),
        path,
    }))
}

fn settled(record: &Record) -> Option<Settled> {
    let after_s = record.time.settle_ms? / 1000.0;
    record.settle.trace.as_ref().map(|_| Settled { verdict: record.settle.verdict.clone(), after_s })
}
