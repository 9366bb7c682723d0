//! The part of a night on one device: its jobs in order, every result sealed in the store before the next.

use super::event::{Event, Finished};
use super::manifest::{self, Manifest};
use super::night::Night;
use super::watch::Ended;
use super::{RunError, Stop, assemble};
use crate::config::model::Device;
use crate::device::{DeviceError, Session};
use crate::plan::identity::{self, DeviceReport, REPORT_VERSION};
use crate::plan::{PlannedJob, diff, files};
use crate::store::index::Entry;
use crate::store::record::{RanFile, RanRole, Record, Status};
use crate::store::write;
use indexmap::IndexMap;
use isotherm_wire::inspect::{FileAnswer, FileQuery, FileRole};
use isotherm_wire::result::RunResult;
use isotherm_wire::session::{RunState, Start};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often a job is started again when its keeper died with it.
const MOST_STARTS: u32 = 2;
/// How long a run of an earlier controller is waited for before it is asked about again.
const ATTACHED_DEADLINE: Duration = Duration::from_secs(3600);

/// The part of the night on one device.
pub(super) struct DeviceNight<'n, 'a> {
    pub(super) night: &'n mut Night<'a>,
    pub(super) device: &'a Device,
    pub(super) session: Session,
}

impl DeviceNight<'_, '_> {
    pub(super) fn everything(&mut self) -> Result<(), Stop> {
        self.inspect()?;
        if !self.night.options.dry_run {
            self.collect_spool()?;
        }
        let mine = |night: &Night<'_>, job: &PlannedJob| night.plan.points[job.slot.point].ids.device == self.device.id;
        let mut jobs = self.night.jobs();
        jobs.retain(|job| mine(self.night, job) && self.night.options.concerns(&self.night.plan, job));
        // Left over from a night that ended between a record and the move of the one it replaces.
        for job in jobs.iter().filter(|j| j.state.is_answered()) {
            self.night.supersede(&job.outdated)?;
        }
        let todo: Vec<PlannedJob> = jobs.iter().filter(|job| self.night.options.wants(&self.night.plan, job)).cloned().collect();
        let left = self.night.options.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.night.summary.ran));
        let mut reasons: IndexMap<String, usize> = IndexMap::new();
        for why in todo.iter().filter_map(|job| job.state.why()) {
            *reasons.entry(why.to_owned()).or_insert(0) += 1;
        }
        self.night.emit(Event::DevicePlanned {
            device: self.device.id.clone(),
            states: diff::counts(jobs.iter()),
            to_run: todo.len().min(left),
            reasons,
        });
        if self.night.options.dry_run {
            return Ok(());
        }
        for job in todo.into_iter().take(left) {
            self.night.check()?;
            self.run(&job)?;
        }
        Ok(())
    }

    /// Ask the device what it is and what the campaign's files contain; keep the answer as `devices/<id>.json`.
    fn inspect(&mut self) -> Result<(), Stop> {
        let id = &self.device.id;
        let points: Vec<_> = self.night.plan.points.iter().filter(|p| p.ids.device == *id).collect();
        let mut queries: BTreeMap<String, FileQuery> = BTreeMap::new();
        let mut warnings = Vec::new();
        for query in points.iter().flat_map(|p| files::of_point(p)).map(|f| f.query) {
            queries.insert(query.key.clone(), query);
        }
        for path in diff::libraries(&self.night.scan) {
            for base in points.iter().map(|p| p.base.as_str()).collect::<BTreeSet<_>>() {
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
        for point in points {
            let (Some(model), Some(Ok(fact))) = (&point.model, files::model(point, &inspected.files)) else { continue };
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
        warnings.into_iter().for_each(|warning| self.night.emit(warning));
        let containment = &inspected.machine.containment;
        let level = serde_json::to_value(containment.level).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        let welcome = &self.session.welcome;
        self.night.emit(Event::DeviceReady {
            device: id.clone(),
            agent_sha256: welcome.agent_sha256.clone(),
            keeper_is_new: welcome.keeper_is_new,
            containment: if containment.cgroup { format!("{level} + cgroup") } else { level },
        });
        let report = DeviceReport {
            report_version: REPORT_VERSION,
            taken_at: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            machine: inspected.machine,
            engine: welcome.engine.clone(),
            files: inspected.files,
        };
        self.night.reports.insert(id.clone(), report);
        self.night.write_report(id)?;
        self.night.write_plan()?;
        Ok(())
    }

    /// What an earlier controller left: sealed results are collected, a running job is waited for.
    fn collect_spool(&mut self) -> Result<(), Stop> {
        let mut others: BTreeMap<String, usize> = BTreeMap::new();
        for entry in self.session.list()? {
            let run_id = entry.run_id;
            let manifest: Manifest = match serde_json::from_value(entry.manifest) {
                Ok(manifest) => manifest,
                Err(e) => {
                    let message =
                        format!("run {run_id} on device `{}` was started by another version of isotherm and stays there: {e}", self.device.id);
                    self.night.emit(Event::Warning { message });
                    continue;
                }
            };
            if manifest.results_id != self.night.constants.results_id {
                *others.entry(manifest.campaign).or_insert(0usize) += 1;
                continue;
            }
            let (label, repetition) = (manifest.label.clone(), manifest.repetition);
            let (bytes, sha256) = match entry.state {
                RunState::Sealed { bytes, sha256 } => (bytes, sha256),
                RunState::Running { .. } => {
                    self.night.emit(Event::Attached { run_id: run_id.clone(), label: label.clone(), repetition });
                    let ended = match self.session.attach(&run_id)? {
                        RunState::Sealed { bytes, sha256 } => Ended::Sealed { bytes, sha256 },
                        RunState::Lost { reason } => Ended::Lost { reason },
                        RunState::Running { .. } => self.follow(&run_id, &manifest.job_id, ATTACHED_DEADLINE)?,
                    };
                    match ended {
                        Ended::Sealed { bytes, sha256 } => (bytes, sha256),
                        Ended::Lost { reason } => {
                            self.lost(&run_id, label, repetition, reason)?;
                            continue;
                        }
                    }
                }
                RunState::Lost { reason } => {
                    self.lost(&run_id, label, repetition, reason)?;
                    continue;
                }
            };
            self.night.summary.collected += 1;
            self.night.emit(Event::Collected { run_id: run_id.clone(), label, repetition });
            self.store(&run_id, bytes, &sha256, manifest)?;
        }
        for (campaign, n) in others {
            let device = &self.device.id;
            let message = format!("device `{device}` keeps {n} results of campaign `{campaign}` until a `run` of that campaign collects them");
            self.night.emit(Event::Warning { message });
        }
        Ok(())
    }

    /// Wait for a run; should we leave before it ends, the summary says so.
    fn follow(&mut self, run_id: &str, job_id: &str, deadline: Duration) -> Result<Ended, Stop> {
        self.night.left_running = Some(job_id.to_owned());
        let ended = self.wait(run_id, deadline)?;
        self.night.left_running = None;
        Ok(ended)
    }

    fn lost(&mut self, run_id: &str, label: String, repetition: u32, why: String) -> Result<(), Stop> {
        self.night.emit(Event::RunLost { run_id: run_id.to_owned(), label, repetition, why });
        match self.session.forget(run_id, "") {
            Err(e) if !e.is_unknown_run() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Run one job to its record.
    fn run(&mut self, job: &PlannedJob) -> Result<(), Stop> {
        let point = self.night.plan.points[job.slot.point].clone();
        let answers = self.night.reports.get(&self.device.id).map(|r| r.files.clone()).unwrap_or_default();
        let Some(manifest) = manifest::manifest(&self.night.constants, job, &point, &answers) else { return Ok(()) };
        let spec = manifest::spec(&point, &manifest, &answers);
        let deadline = Duration::from_millis(manifest::deadline_ms(&spec));
        for _ in 0..MOST_STARTS {
            let run_id = uuid::Uuid::now_v7().to_string();
            self.night.emit(Event::Started {
                run_id: run_id.clone(),
                job_id: job.id.clone(),
                device: self.device.id.clone(),
                label: manifest.label.clone(),
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
                    self.store(&run_id, bytes, &sha256, manifest)?;
                    self.night.summary.ran += 1;
                    self.night.supersede(&job.outdated)?;
                    return Ok(());
                }
                Ended::Lost { reason } => self.lost(&run_id, manifest.label.clone(), manifest.repetition, reason)?,
            }
        }
        let reason = format!("its keeper died {MOST_STARTS} times while {} was running", manifest.label);
        Err(DeviceError::NoAnswer { device: self.device.id.clone(), reason }.into())
    }

    /// Starting is idempotent, so a link that is lost in between costs a reconnect and nothing else. `Some` = it has been started before
    /// the link was lost, and has ended since.
    fn start(&mut self, start: Start) -> Result<Option<Ended>, Stop> {
        match self.session.start(start.clone()) {
            Err(DeviceError::LinkLost { reason, .. }) => {
                self.reconnect(&reason)?;
                let run_id = start.run_id.clone();
                self.session.start(start)?;
                Ok(super::watch::ended(self.session.attach(&run_id)?))
            }
            other => Ok(other.map(|()| None)?),
        }
    }

    /// Libraries that a run had mapped are files of its point from now on.
    fn learn_libraries(&mut self, ran: Vec<RanFile>, base: &str) {
        let Some(report) = self.night.reports.get_mut(&self.device.id) else { return };
        for library in ran.into_iter().filter(|file| file.role == RanRole::Library) {
            report.files.insert(files::library(&library.file.path, base).key, FileAnswer::Found(vec![library.file]));
        }
    }

    /// Fetch a sealed result, make its record, write it, and only then let the device forget it.
    fn store(&mut self, run_id: &str, bytes: u64, sha256: &str, manifest: Manifest) -> Result<(), Stop> {
        let (label, device) = (manifest.label.clone(), self.device.id.clone());
        if !self.night.scan.entries.iter().any(|e| e.run_id == run_id) {
            let result = self.session.collect(run_id, bytes, sha256)?;
            let result: RunResult =
                serde_json::from_slice(&result).map_err(|e| DeviceError::Damaged { device, reason: format!("result of run {run_id}: {e}") })?;
            let (ran, identity) = assemble::files_and_identity(&result, &manifest);
            let executed = identity::point_identity(&identity);
            let earlier = |e: &&Entry| e.point_identity == executed && e.repetition != manifest.repetition && e.status == Status::Ok;
            let digest = self.night.scan.entries.iter().filter(earlier).find_map(|e| e.output_digest.clone());
            self.learn_libraries(ran, &manifest.base);
            let record = assemble::record(result, manifest, &self.night.results.id.salt, digest.as_deref());
            let entry = write::write(&self.night.results.dir, record.clone())?;
            self.night.scan.entries.retain(|e| e.path != entry.path);
            let event = finished(&record, label, entry.path.clone());
            self.night.scan.entries.push(entry);
            self.night.emit(event);
        }
        Ok(self.session.forget(run_id, sha256)?)
    }
}

fn finished(record: &Record, label: String, path: String) -> Event {
    Event::Finished(Box::new(Finished {
        run_id: record.ids.run_id.clone(),
        device: record.ids.point.device.clone(),
        label,
        repetition: record.ids.repetition,
        attempt: record.ids.attempt,
        status: record.status,
        reason: record.reason,
        message: record.message.clone(),
        validity: record.validity,
        issues: record.issues.iter().map(|i| i.code.clone()).collect(),
        headline: record.metrics.iter().next().map(|(name, metric)| (name.clone(), metric.clone())),
        path,
    }))
}
