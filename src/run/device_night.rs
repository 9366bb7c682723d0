//! The part of a night on one device: its jobs in order, every result sealed in the store before the next.

use super::beside::{self, Beside, Since};
use super::event::{Event, Finished, Settled};
use super::line::Line;
use super::manifest::{self, Manifest};
use super::night::Night;
use super::reparse::{self, ReadAnew, Reparsed, Target};
use super::watch::Ended;
use super::{RunError, Stop, assemble, push};
use crate::backend;
use crate::clock;
use crate::device::{DeviceError, Session, boot_id};
use crate::plan::identity::{DeviceReport, REPORT_VERSION, point_identity};
use crate::plan::power;
use crate::plan::{JobState, PlannedJob, contaminated, diff, files};
use crate::registry::{Code, MetricId};
use crate::schedule::{Doom, Group};
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
    pub(super) line: Line<'n, 'a>,
    pub(super) session: Session,
    /// What it is, if it says so.
    machine: Option<Group>,
    /// Is that the one that this is?
    pub(super) is_here: bool,
    /// Since when nothing is done for others, and what was done all the same by the run that has just ended.
    pub(super) quiet_since: Option<Since>,
    beside: Option<Beside>,
    doom: Doom,
}

impl<'n, 'a> DeviceNight<'n, 'a> {
    /// Do what is to be done on a device, and give it back.
    pub(super) fn work(mut line: Line<'n, 'a>) -> Result<(), Stop> {
        let (night, id) = (line.night, line.device.id.as_str());
        night.check()?;
        let (mut turn, (mut session, given_back)) = loop {
            let (turn, at_work) = (line.turn()?, night.crew.count());
            match line.open(None) {
                Err(Stop::Device(e)) if is_ours(&e, night) && at_work > 1 => {
                    // Another name of the same machine, with a keeper of its own. It ends that one when it is through.
                    drop(turn);
                    night.crew.fewer_than(at_work)?;
                }
                opened => break (turn, opened?),
            }
        };
        if session.welcome().is_err() && !night.options.dry_run {
            (line, session) = relieve(line, session)?;
        }
        night.given_back(id, given_back);
        let machine = line.machine(&session);
        if let Some(machine) = &machine {
            let others = night.crew.join(id, machine);
            if !others.is_empty() {
                night.emit(Event::SameMachine { device: id.to_owned(), others });
                drop(turn);
                turn = line.turn()?;
            }
        }
        let is_here = matches!(&machine, Some(Group::Machine(id)) if boot_id().as_ref() == Some(id));
        let mut part = DeviceNight { line, session, machine, is_here, quiet_since: None, beside: None, doom: Doom::default() };
        let result = part.prepared().and_then(|todo| {
            drop(turn);
            part.run_all(todo)
        });
        // Whatever went wrong here, the device is given back. A run that goes on keeps the keeper: then this is refused, which is right.
        part.give_back();
        let written = night.keep_report(id);
        result?;
        Ok(written?)
    }

    /// Let the keeper go, unless another device of ours is the same machine and still at work.
    fn give_back(self) {
        let (night, id) = (self.line.night, self.line.device.id.clone());
        if self.machine.as_ref().is_some_and(|machine| night.crew.is_shared(&id, machine)) {
            return self.session.detach();
        }
        if let Ok(given_back) = self.session.end() {
            night.state().summary.not_given_back.extend(given_back.failed.iter().map(|what| format!("{id} {what}")));
            night.given_back(&id, given_back);
            night.emit(Event::DeviceReleased { device: id });
        }
    }

    /// The turn is ours: what the machine is, what it has for us, what is to be done.
    fn prepared(&mut self) -> Result<Vec<PlannedJob>, Stop> {
        self.inspect()?;
        if !self.line.night.options.dry_run {
            for message in self.collect_spool()? {
                self.line.emit(Event::Warning { message });
            }
            self.read_again()?;
        }
        let jobs = self.jobs();
        // Left over from a night that ended between a record and the move of the one it replaces.
        for job in jobs.iter().filter(|j| j.state.is_answered() && !self.line.night.options.dry_run) {
            self.line.night.supersede(&job.outdated)?;
        }
        let unread = |job: &PlannedJob| matches!(job.state, JobState::Reread { .. }) && !self.line.night.options.dry_run;
        let plan = self.line.night.plan();
        let todo: Vec<PlannedJob> = jobs.iter().filter(|job| self.line.night.options.wants(&plan, job) || unread(job)).cloned().collect();
        let mut reasons: IndexMap<String, usize> = IndexMap::new();
        for why in todo.iter().filter_map(|job| job.state.why()) {
            *reasons.entry(why.to_owned()).or_insert(0) += 1;
        }
        let missing = self.missing(&todo);
        self.line.emit(Event::DevicePlanned {
            device: self.line.device.id.clone(),
            states: diff::counts(jobs.iter()),
            to_run: todo.len().min(self.line.night.left()),
            reasons,
        });
        missing.into_iter().chain(self.shortfalls()).for_each(|message| self.line.emit(Event::Warning { message }));
        if self.line.night.options.dry_run {
            return Ok(Vec::new());
        }
        self.push(&todo)?;
        Ok(todo)
    }

    fn run_all(&mut self, todo: Vec<PlannedJob>) -> Result<(), Stop> {
        // Of the pass that is on.
        let mut disturbed: Vec<PlannedJob> = Vec::new();
        for job in todo {
            if disturbed.first().is_some_and(|first| self.pass(first) != self.pass(&job)) {
                self.repeat(std::mem::take(&mut disturbed))?;
            }
            if self.line.night.is_at_limit() {
                break;
            }
            self.run(&job)?;
            disturbed.extend(self.disturbed(&job));
        }
        self.repeat(disturbed)
    }

    /// What tells the passes of a night apart: the group of arms and the turn through it.
    fn pass(&self, job: &PlannedJob) -> (usize, Option<String>, u32) {
        let point = &self.line.night.plan().points[job.slot.point];
        (point.block, point.model.as_ref().map(|model| model.declared.id.clone()), job.slot.pass)
    }

    /// Make disturbed runs again, in their order, and those again that are disturbed once more, as often as the campaign says.
    fn repeat(&mut self, mut disturbed: Vec<PlannedJob>) -> Result<(), Stop> {
        let plan = self.line.night.plan();
        let retries = |job: &PlannedJob| plan.points[job.slot.point].settings.retry_contaminated;
        for _ in 0..disturbed.iter().map(retries).max().unwrap_or(0) {
            if disturbed.is_empty() || self.line.night.is_at_limit() {
                break;
            }
            self.line.emit(Event::Repeating { device: self.line.device.id.clone(), runs: disturbed.len() });
            for job in std::mem::take(&mut disturbed) {
                if self.line.night.is_at_limit() {
                    return Ok(());
                }
                self.run(&job)?;
                self.line.night.state().summary.repeated += 1;
                disturbed.extend(self.disturbed(&job));
            }
        }
        Ok(())
    }

    /// The job of a run that was just made, if something else disturbed that and it is to be repeated.
    fn disturbed(&self, job: &PlannedJob) -> Option<PlannedJob> {
        let (plan, state, dir) = (self.line.night.plan(), self.line.night.state(), &self.line.night.results.dir);
        let scan = &state.scan;
        let identity = &job.identity.as_ref()?.hash;
        let runs = || scan.entries.iter().filter(|entry| contaminated::is_of(entry, identity, job.slot.kind, job.slot.repetition));
        let last = runs().map(|entry| entry.attempt).max().filter(|attempt| *attempt >= job.attempt)?;
        let entry = runs().find(|entry| !entry.is_earlier_attempt())?;
        let retries = plan.points[job.slot.point].settings.retry_contaminated;
        let why = contaminated::to_repeat(dir, scan, entry, retries)?;
        let state = JobState::Contaminated { path: entry.path.clone(), why };
        Some(PlannedJob { state, attempt: last + 1, outdated: Vec::new(), ..job.clone() })
    }

    /// Models that aren't there, said before the jobs that need them fail one by one.
    fn missing(&self, todo: &[PlannedJob]) -> Vec<String> {
        let Some(report) = self.line.night.report(&self.line.device.id) else { return Vec::new() };
        let plan = self.line.night.plan();
        let mut missing: IndexMap<(&str, String), (String, usize)> = IndexMap::new();
        for job in todo {
            let point = &plan.points[job.slot.point];
            if let (Some(model), Some(Err(why))) = (&point.model, files::model(point, &report.files)) {
                let path = match model.pushed {
                    Some(_) => push::source(&self.line.night.campaign.dir, &model.path),
                    None => Path::new(&*point.base).join(&*model.path),
                };
                let path = path.display().to_string();
                missing.entry((&model.declared.id, path)).or_insert((why, 0)).1 += 1;
            }
        }
        let device = &self.line.device.id;
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
        let (plan, report) = (self.line.night.plan(), self.line.night.report(&self.line.device.id));
        let points = plan.points.iter().filter(|point| point.ids.device == self.line.device.id);
        let told: BTreeSet<String> = points.filter_map(|point| power::shortfall(point.settings.power, report.as_ref())).collect();
        told.into_iter().map(|what| format!("device `{}` has {what}; `isotherm probe` says what would mend it", self.line.device.id)).collect()
    }

    /// The jobs of this device that this invocation is about.
    fn jobs(&self) -> Vec<PlannedJob> {
        let plan = self.line.night.plan();
        let mine = |job: &PlannedJob| plan.points[job.slot.point].ids.device == self.line.device.id;
        let mut jobs = self.line.night.jobs();
        jobs.retain(|job| mine(job) && self.line.night.options.concerns(&plan, job));
        jobs
    }

    /// Records that were read by other rules than the campaign's are read again by these, before anything is counted.
    fn read_again(&mut self) -> Result<(), Stop> {
        let (jobs, plan) = (self.jobs(), self.line.night.plan());
        if !jobs.iter().any(|job| matches!(job.state, JobState::Reread { .. })) {
            return Ok(());
        }
        let mut state = self.line.night.state();
        let places: HashMap<&str, usize> = state.scan.entries.iter().enumerate().map(|(at, e)| (e.path.as_str(), at)).collect();
        let target = |job: &PlannedJob| {
            let JobState::Reread { path } = &job.state else { return None };
            Some(Target { entry: *places.get(path.as_str())?, rules: backend::parse_spec(&plan.points[job.slot.point]) })
        };
        let targets = jobs.iter().filter_map(target).collect();
        let Reparsed { changed, left, .. } = reparse::again(&self.line.night.results.dir, &mut state.scan.entries, targets, false)?;
        drop(state);
        for Broken { path, why } in left {
            // Then nothing answers the job, and it runs.
            self.line.emit(Event::Warning { message: format!("{path} can't be read again: {why}") });
        }
        let (device, records) = (self.line.device.id.clone(), changed.len());
        for ReadAnew { path, run_id, status, earlier, .. } in changed {
            self.line.emit(Event::RecordReadAgain { run_id, path, status, earlier: earlier.unwrap_or_default() });
        }
        self.line.night.state().summary.read_again += records;
        if records > 0 {
            self.line.emit(Event::ReadAgain { device, records });
        }
        Ok(())
    }

    /// Ask the device what it is and what the campaign's files contain; keep the answer as `devices/<id>.json`.
    fn inspect(&mut self) -> Result<(), Stop> {
        let id = &self.line.device.id;
        let points = self.line.night.possible_points(id);
        let mut queries: BTreeMap<String, FileQuery> = BTreeMap::new();
        let mut warnings = Vec::new();
        let pushed = self.contents(&points)?;
        for query in points.iter().flat_map(files::of_point).filter(|f| !f.is_pushed).map(|f| f.query) {
            queries.insert(query.key.clone(), query);
        }
        let libraries = diff::libraries(&self.line.night.state().scan);
        for path in libraries {
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
        warnings.into_iter().for_each(|warning| self.line.emit(warning));
        let containment = &inspected.machine.containment;
        let level = serde_json::to_value(containment.level).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let welcome = self.session.welcome()?;
        let engine = welcome.engine.clone();
        self.line.emit(Event::DeviceReady {
            device: id.clone(),
            agent_sha256: welcome.agent_sha256.clone(),
            keeper_is_new: welcome.keeper_is_new,
            containment: if containment.cgroup { format!("{level} + cgroup") } else { level },
        });
        let earlier = self.line.night.report(id).and_then(|report| report.instruments).unwrap_or_default();
        let mut instruments = power::remembered(inspected.instruments, &earlier);
        if let Some(hz) = power::polling_hz(&points, &instruments) {
            self.line.emit(Event::Polling { device: id.clone(), hz });
            instruments = power::remembered(self.session.try_polling(hz)?, &instruments);
        }
        let report = DeviceReport {
            report_version: REPORT_VERSION,
            taken_at: clock::utc_seconds(),
            machine: inspected.machine,
            engine,
            files: inspected.files.into_iter().chain(pushed).collect(),
            instruments: Some(instruments),
            clock: self.session.clock()?,
        };
        self.line.night.learn(id, report)?;
        self.check_models()
    }

    /// Every model that is run here has the content that the campaign declares.
    fn check_models(&self) -> Result<(), Stop> {
        let id = &self.line.device.id;
        let Some(report) = self.line.night.report(id) else { return Ok(()) };
        for point in self.line.night.plan().points.iter().filter(|point| point.ids.device == *id) {
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
                    stays.push(format!("run {run_id} stays on device `{}`: {why}", self.line.device.id));
                    continue;
                }
            };
            if manifest.results_id != self.line.night.constants.results_id {
                *others.entry(manifest.campaign).or_insert(0usize) += 1;
                continue;
            }
            // Of another name of this machine, whose turn it will be.
            if manifest.point.device != self.line.device.id && self.line.night.crew.is_at_work(&manifest.point.device) {
                continue;
            }
            let (label, kind, repetition) = (manifest.label.clone(), manifest.kind, manifest.repetition);
            let (bytes, sha256) = match state {
                RunState::Sealed { bytes, sha256 } => (bytes, sha256),
                RunState::Running { .. } => {
                    self.line.emit(Event::Attached { run_id: run_id.clone(), label: label.clone(), kind, repetition });
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
            self.line.night.state().summary.collected += 1;
            self.line.emit(Event::Collected { run_id: run_id.clone(), label, kind, repetition });
            self.store(&run_id, bytes, &sha256, manifest, Valid::Stays)?;
        }
        for (campaign, n) in others {
            let device = &self.line.device.id;
            let results = if n == 1 { "result" } else { "results" };
            stays.push(format!("device `{device}` keeps {n} {results} of campaign `{campaign}` until a `run` of that campaign collects them"));
        }
        Ok(stays)
    }

    /// Wait for a run; should we leave before it ends, the summary says so.
    fn follow(&mut self, run_id: &str, job_id: &str, deadline: Duration) -> Result<Ended, Stop> {
        self.line.night.state().left_running.insert(job_id.to_owned());
        let ended = self.wait(run_id, deadline);
        self.beside = self.quiet_since.take().map(Since::until_now);
        self.line.night.crew.set_quiet(&self.line.device.id, false);
        if !matches!(ended, Err(Stop::Asked)) {
            self.line.night.state().left_running.remove(job_id);
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
        self.line.emit(Event::RunLost { run_id: run_id.to_owned(), label, kind, repetition, why: why.clone() });
        let known = self.line.night.state().scan.entries.iter().any(|e| e.run_id == run_id);
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
        let state = self.line.night.state();
        let records = state.scan.entries.iter().filter(is_of_job).map(|e| index::read_record(&self.line.night.results.dir.join(&e.path)));
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
        let night = self.line.night;
        let _turn = self.line.turn()?;
        night.check()?;
        let plan = night.plan();
        let point = &plan.points[job.slot.point];
        let Some(report) = night.report(&self.line.device.id) else { return Ok(()) };
        let Some(mut manifest) = manifest::manifest(&night.constants, job, point, &report) else { return Ok(()) };
        if let Some((by, reason)) = self.line.night.dominated(job.slot) {
            return self.skip(manifest, &format!("{by} failed: {}", reason.name()), Reason::Dominated);
        }
        if self.doom.is_certain() {
            let message = "the first runs here have all failed for want of what they need";
            return self.skip(manifest, message, Reason::Precondition);
        }
        if !night.begin_job() {
            return Ok(());
        }
        let spec = manifest::spec(point, &manifest, &report, &night.campaign.secrets, night.options.force);
        let deadline = Duration::from_millis(manifest::deadline_ms(&spec));
        // A valid record of a job that has to run all the same is of something else, such as another library.
        let valid = if job.state.is_answered() { Valid::Stays } else { Valid::Yields };
        let mut deaths = 0;
        let (run_id, reason, message) = loop {
            let run_id = clock::new_run_id();
            self.line.emit(Event::Started {
                run_id: run_id.clone(),
                job_id: job.id.clone(),
                device: self.line.device.id.clone(),
                label: manifest.label.clone(),
                kind: manifest.kind,
                repetition: manifest.repetition,
                attempt: manifest.attempt,
                settle_ms: manifest.settle_ms,
            });
            self.line.night.check()?;
            let as_json = serde_json::to_value(&manifest).map_err(|e| RunError::Io { what: "write a manifest", source: e.into() });
            let start = Start { run_id: run_id.clone(), manifest: as_json.map_err(Stop::Fatal)?, spec: spec.clone() };
            let ended = match self.start(start)? {
                Some(ended) => ended,
                None => self.follow(&run_id, &job.id, deadline)?,
            };
            match ended {
                Ended::Sealed { bytes, sha256 } => {
                    self.store(&run_id, bytes, &sha256, manifest, valid)?;
                    self.line.night.state().summary.ran += 1;
                    return self.supersede(job, &run_id);
                }
                Ended::Unsealed { reason } => {
                    self.forget(&run_id, "")?;
                    break (run_id, Reason::Internal, format!("the device could not write the result: {reason}"));
                }
                Ended::Lost { reason, restarted } => match self.lost(&run_id, &manifest, reason, restarted)? {
                    Lost::Recorded(Reason::Interrupted) => manifest.attempt += 1,
                    Lost::Recorded(_) => {
                        self.line.night.state().summary.ran += 1;
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
        self.line.night.state().summary.ran += 1;
        self.supersede(job, &run_id)
    }

    /// A record of a job without a result.
    fn without_result(&self, manifest: Manifest, run_id: &str, reason: Reason, message: String) -> Record {
        let machine = self.line.night.report(&self.line.device.id).map(|r| r.machine).unwrap_or_default();
        assemble::without_result(manifest, run_id.to_owned(), reason, message, machine, &self.line.night.results.id.salt)
    }

    /// A record instead of a run that would only fail as another one did.
    fn skip(&mut self, manifest: Manifest, why: &str, reason: Reason) -> Result<(), Stop> {
        let label = manifest.label.clone();
        let mut record = self.without_result(manifest, &clock::new_run_id(), reason, why.to_owned());
        record.status = Status::Skipped;
        self.keep(record, label, Valid::Stays)
    }

    /// Move away what the record of a new run replaces; it may have taken the place of one of these already.
    fn supersede(&mut self, job: &PlannedJob, run_id: &str) -> Result<(), Stop> {
        // One whose result stays on its device, because it can't be read here, replaces nothing.
        let mut state = self.line.night.state();
        let Some(new) = state.scan.entries.iter().find(|e| e.run_id == run_id) else { return Ok(()) };
        let failed = new.is_earlier_attempt() && job.state.is_answered();
        let outdated: Vec<String> = job.outdated.iter().filter(|path| **path != new.path).cloned().collect();
        state.summary.failed_reruns += usize::from(failed);
        drop(state);
        Ok(self.line.night.supersede(&outdated)?)
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
        let libraries = ran.into_iter().filter(|file| file.role == RanRole::Library);
        let answers = libraries.map(|library| (files::library(&library.file.path, base).key, FileAnswer::Found(vec![library.file])));
        self.line.night.learn_files(&self.line.device.id, answers);
    }

    /// Fetch a sealed result, make its record, write it, and only then let the device forget it.
    fn store(&mut self, run_id: &str, bytes: u64, sha256: &str, manifest: Manifest, valid: Valid) -> Result<(), Stop> {
        let (label, device) = (manifest.label.clone(), self.line.device.id.clone());
        self.line.night.crew.work(&device)?;
        let is_known = self.line.night.state().scan.entries.iter().any(|e| e.run_id == run_id);
        if !is_known {
            let result = self.asking(|session| session.collect(run_id, bytes, sha256))?;
            let result = match assemble::result(&result, run_id) {
                Ok(result) => result,
                Err(newer @ Unread::Newer { .. }) => {
                    let message = format!("the result of run {run_id} stays on device `{device}`: {newer}");
                    self.line.emit(Event::Warning { message });
                    return Ok(());
                }
                Err(Unread::Shape(why)) => return Err(DeviceError::Damaged { device, reason: format!("result of run {run_id}: {why}") }.into()),
            };
            let ran = assemble::files(&result, &manifest);
            let digest = reparse::earlier_digest(&self.line.night.state().scan.entries, &manifest, &ran);
            self.learn_libraries(ran, &manifest.base);
            let mut record = assemble::record(result, manifest, &self.line.night.results.id.salt, digest.as_deref());
            if let Some(beside) = self.beside.take() {
                beside::note(&mut record, beside);
            }
            self.keep(record, label, valid)?;
        }
        self.forget(run_id, sha256)
    }

    /// Write a record and say so.
    fn keep(&mut self, mut record: Record, label: String, valid: Valid) -> Result<(), Stop> {
        let written = self.line.night.results.write(&mut record, valid)?;
        let event = finished(&record, label, written.entry.path.clone());
        self.line.night.note_failure(&record);
        if record.status != Status::Skipped {
            self.doom.note(lacks_something(&record));
        }
        self.line.night.state().scan.put(written);
        self.line.emit(event);
        Ok(())
    }
}

/// Does this campaign itself hold the device?
fn is_ours(error: &DeviceError, night: &Night<'_>) -> bool {
    error.holder().is_some_and(|holder| holder.results_id == night.holder.results_id)
}

/// What the job needs isn't there, and won't be for others.
fn lacks_something(record: &Record) -> bool {
    record.status == Status::Failed && matches!(record.reason, Some(Reason::Spawn | Reason::ModelMissing | Reason::CapabilityAbsent))
}

/// An older isotherm's keeper has the device: what it has left is collected, what it runs is waited for, and a keeper of our own takes its
/// place.
fn relieve<'n, 'a>(line: Line<'n, 'a>, session: Session) -> Result<(Line<'n, 'a>, Session), Stop> {
    let night = line.night;
    line.emit(Event::OlderKeeper { device: line.device.id.clone() });
    let mut part = DeviceNight { line, session, machine: None, is_here: false, quiet_since: None, beside: None, doom: Doom::default() };
    // What has to stay in its spool is said by the next one.
    let collected = part.collect_spool();
    let DeviceNight { mut line, session, .. } = part;
    let ended = session.end();
    collected?;
    night.given_back(&line.device.id, ended?);
    let (session, given_back) = line.open(None)?;
    night.given_back(&line.device.id, given_back);
    Ok((line, session))
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
