//! One invocation of `run`: devices one after the other, on each its jobs in order, every result sealed in the store before the next.

use super::event::{Event, Finished, Summary};
use super::manifest::{self, Manifest, Night as Constants};
use super::selection::Options;
use super::signals::{self, Stopping};
use super::watch::Ended;
use super::{RunError, Stop, assemble};
use crate::config::model::{Campaign, Device};
use crate::device::{DeviceError, Happening, Session};
use crate::plan::identity::{DeviceReport, REPORT_VERSION};
use crate::plan::{JobState, Plan, PlannedJob, diff, expand, files};
use crate::store::durable::{self, Existing};
use crate::store::index::{self, Entry, Scan};
use crate::store::journal::Journal;
use crate::store::plan_file::{PLAN_VERSION, StoredPlan, StoredPoint};
use crate::store::record::{Kind, RanFile, RanRole, Record, Status, Validity};
use crate::store::results::Results;
use crate::store::{StoreError, seal, write};
use indexmap::IndexMap;
use isotherm_wire::inspect::{FileAnswer, FileQuery};
use isotherm_wire::result::RunResult;
use isotherm_wire::session::{Holder, RunState, Start};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How often a job is started again when its keeper died with it.
const MOST_STARTS: u32 = 2;
/// How long a run of an earlier controller is waited for before it is asked about again.
const ATTACHED_DEADLINE: Duration = Duration::from_secs(3600);

/// Run what has no answer yet. `observer` is told everything as it happens.
///
/// # Errors
/// What prevents the whole campaign; a device or a job that fails is in the summary.
pub fn run(campaign: &Campaign, parent: &Path, options: &Options, observer: &mut dyn FnMut(&Event)) -> Result<Summary, RunError> {
    let plan = expand::expand(campaign)?;
    options.filter.check(&plan)?;
    if let Some(rerun) = &options.rerun {
        rerun.check(&plan)?;
    }
    let controller = controller();
    let results = Results::open(parent, campaign, &controller)?;
    let (sender, happenings) = channel();
    let attentive = Arc::new(AtomicBool::new(false));
    signals::listen(sender.clone(), Arc::clone(&attentive)).map_err(|source| RunError::Io { what: "listen to signals", source })?;
    let journal = Journal::open(&results.dir)?;
    durable::write(&results.dir.join("campaign.yaml"), campaign.source.as_bytes(), Existing::Replace)?;
    let scan = index::scan(&results.dir)?;
    let reports = stored_reports(&results.dir, campaign);
    let since = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let constants = Constants {
        results_id: results.id.results_id.clone(),
        campaign: campaign.name.clone(),
        campaign_sha256: seal::sha256_hex(campaign.source.as_bytes()),
        epoch: uuid::Uuid::new_v4().to_string(),
    };
    let holder = Holder { results_id: results.id.results_id.clone(), campaign: campaign.name.clone(), controller, since };
    let mut night = Night {
        campaign,
        plan,
        results,
        options,
        constants,
        holder,
        journal,
        scan,
        reports,
        happenings,
        sender,
        attentive,
        stopping: Stopping::No,
        observer,
        summary: Summary::default(),
        fatal: None,
        left_running: None,
    };
    night.all_devices()?;
    Ok(night.summary)
}

/// `user@host pid 12`: for people who find a device or a directory in use.
fn controller() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", rustix::process::geteuid().as_raw()));
    format!("{user}@{} pid {}", rustix::system::uname().nodename().to_string_lossy(), std::process::id())
}

/// Last reports of the campaign's devices; one that can't be read counts as not there.
#[must_use]
pub fn stored_reports(results: &Path, campaign: &Campaign) -> BTreeMap<String, DeviceReport> {
    let read = |id: &String| {
        let bytes = fs::read(results.join(index::DEVICES).join(format!("{id}.json"))).ok()?;
        let report: DeviceReport = serde_json::from_slice(&bytes).ok()?;
        (report.report_version == REPORT_VERSION).then(|| (id.clone(), report))
    };
    campaign.devices.keys().filter_map(read).collect()
}

/// Everything of one invocation.
pub(super) struct Night<'a> {
    campaign: &'a Campaign,
    plan: Plan,
    results: Results,
    options: &'a Options,
    constants: Constants,
    pub(super) holder: Holder,
    journal: Journal,
    scan: Scan,
    reports: BTreeMap<String, DeviceReport>,
    pub(super) happenings: Receiver<Happening>,
    pub(super) sender: Sender<Happening>,
    /// True while signals are looked at as they come.
    attentive: Arc<AtomicBool>,
    pub(super) stopping: Stopping,
    observer: &'a mut dyn FnMut(&Event),
    summary: Summary,
    /// The journal can't be written: nothing new is started.
    fatal: Option<StoreError>,
    /// Job whose run goes on without us.
    left_running: Option<String>,
}

impl<'a> Night<'a> {
    /// Journal and observer hear it; what the journal can't take stops the night at the next step.
    pub(super) fn emit(&mut self, event: Event) {
        if !matches!(event, Event::Phase { .. })
            && let Err(e) = self.journal.append(&event)
        {
            self.fatal.get_or_insert(e);
        }
        (self.observer)(&event);
    }

    /// Can a new step begin?
    fn check(&mut self) -> Result<(), Stop> {
        while let Ok(happening) = self.happenings.try_recv() {
            if let Happening::Signal(signal) = happening {
                self.signal(signal);
            }
        }
        match self.fatal.take() {
            Some(e) => Err(e.into()),
            None if self.stopping == Stopping::No => Ok(()),
            None => Err(Stop::Asked),
        }
    }

    pub(super) fn signal(&mut self, signal: i32) {
        self.stopping = self.stopping.after(signal, Instant::now());
        self.summary.interrupted_by = Some(signal);
        self.emit(Event::Stopping { how: self.stopping.told() });
    }

    /// The next happening; `None` after `limit`. While waiting, signals are looked at as they come.
    pub(super) fn next(&mut self, limit: Duration) -> Option<Happening> {
        self.attentive.store(true, Ordering::SeqCst);
        let happening = self.happenings.recv_timeout(limit);
        self.attentive.store(false, Ordering::SeqCst);
        happening.ok()
    }

    /// Wait; a user who wants to leave ends it.
    pub(super) fn pause(&mut self, time: Duration) -> Result<(), Stop> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            if let Some(Happening::Signal(signal)) = self.next(left) {
                self.signal(signal);
                if !matches!(self.stopping, Stopping::No | Stopping::Drain) {
                    return Err(Stop::Asked);
                }
            }
        }
    }

    fn all_devices(&mut self) -> Result<(), RunError> {
        let event = Event::CampaignStarted {
            campaign: self.campaign.name.clone(),
            results: self.results.dir.display().to_string(),
            epoch: self.constants.epoch.clone(),
            isotherm: env!("CARGO_PKG_VERSION").into(),
            jobs: self.plan.points.iter().map(|p| p.settings.repetitions as usize).sum(),
        };
        self.emit(event);
        self.write_plan()?;
        let used: BTreeSet<&str> = self.plan.points.iter().map(|p| p.ids.device.as_str()).collect();
        let chosen = |id: &String| used.contains(id.as_str()) && self.options.device.as_ref().is_none_or(|d| d == id);
        let devices: Vec<String> = self.campaign.devices.keys().filter(|id| chosen(id)).cloned().collect();
        let mut fatal = None;
        self.summary.devices = devices.len();
        for id in devices {
            match self.one_device(&id) {
                Ok(()) => {}
                Err(Stop::Device(e)) => {
                    self.summary.devices_failed += 1;
                    self.emit(Event::DeviceFailed { device: id, message: e.to_string(), hint: e.hint() });
                }
                Err(Stop::Fatal(e)) => {
                    fatal = Some(e);
                    break;
                }
                Err(Stop::Asked) => break,
            }
        }
        self.finish()?;
        fatal.or_else(|| self.fatal.take().map(Into::into)).map_or(Ok(()), Err)
    }

    fn one_device(&mut self, id: &str) -> Result<(), Stop> {
        self.check()?;
        let device = &self.campaign.devices[id];
        let session = Session::open(device, &self.holder, &self.sender)?;
        let mut part = DeviceNight { night: self, device, session };
        let result = part.everything();
        let DeviceNight { session, night, .. } = part;
        night.write_report(id)?;
        // A run that goes on keeps the keeper: then this is refused, which is right.
        let released = session.end().is_ok();
        if released {
            self.emit(Event::DeviceReleased { device: id.to_owned() });
        }
        result
    }

    fn jobs(&self) -> Vec<PlannedJob> {
        diff::diff(&self.plan, &self.reports, &self.scan, &self.results.dir)
    }

    /// Move records away that a newer one replaces.
    fn supersede(&mut self, outdated: &[String]) -> Result<(), StoreError> {
        for path in outdated {
            let file = self.results.dir.join(path);
            if let Ok(record) = index::read_record(&file) {
                write::supersede(&self.results.dir, &file, &record)?;
                self.scan.entries.retain(|e| e.path != *path);
                self.emit(Event::Superseded { path: path.clone() });
            }
        }
        Ok(())
    }

    fn write_plan(&mut self) -> Result<(), StoreError> {
        let mut identities: BTreeMap<usize, String> = BTreeMap::new();
        for job in self.jobs() {
            if let Some(identity) = &job.identity {
                identities.entry(job.slot.point).or_insert_with(|| crate::plan::identity::point_identity(identity));
            }
        }
        let point = |(i, p): (usize, &crate::plan::Point)| StoredPoint {
            point: p.ids.clone(),
            swept: p.swept.clone(),
            kind: Kind::Timing,
            repetitions: p.settings.repetitions,
            point_identity: identities.get(&i).cloned(),
        };
        let plan = StoredPlan {
            plan_version: PLAN_VERSION,
            campaign: self.campaign.name.clone(),
            campaign_sha256: self.constants.campaign_sha256.clone(),
            points: self.plan.points.iter().enumerate().map(point).collect(),
        };
        self.write_json("plan.json", &plan)
    }

    fn write_json(&self, name: &str, value: &impl serde::Serialize) -> Result<(), StoreError> {
        let path = self.results.dir.join(name);
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| StoreError::Damaged { path: path.clone(), reason: e.to_string() })?;
        bytes.push(b'\n');
        durable::write(&path, &bytes, Existing::Replace)
    }

    /// `devices/<id>.json`; the host's name is of no use there.
    fn write_report(&self, id: &str) -> Result<(), StoreError> {
        let Some(mut report) = self.reports.get(id).cloned() else { return Ok(()) };
        report.machine.hostname = assemble::pseudonym(&self.results.id.salt, &report.machine.hostname);
        durable::create_dir(&self.results.dir.join(index::DEVICES))?;
        self.write_json(&format!("{}/{id}.json", index::DEVICES), &report)
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        self.write_plan()?;
        self.scan.entries.sort_by(|a, b| a.path.cmp(&b.path));
        index::write_index(&self.results.dir, &self.scan.entries)?;
        let jobs = self.jobs();
        let mut failures: IndexMap<String, Vec<u32>> = IndexMap::new();
        for job in jobs.iter().filter(|job| self.options.concerns(&self.plan, job)) {
            self.summary.jobs += 1;
            match &job.state {
                _ if self.left_running.as_ref() == Some(&job.id) => self.summary.left_running += 1,
                JobState::Reused { path } => {
                    self.summary.ok += 1;
                    let degraded = self.scan.entries.iter().any(|e| e.path == *path && e.validity == Validity::Degraded);
                    self.summary.degraded += usize::from(degraded);
                }
                JobState::Retry { why, .. } => {
                    self.summary.failed += 1;
                    let point = &self.plan.points[job.slot.point];
                    failures.entry(format!("{} {}: {why}", point.ids.device, point.label())).or_default().push(job.slot.repetition);
                }
                _ => self.summary.pending += 1,
            }
        }
        let runs = |list: &[u32]| list.iter().map(|r| format!("r{r}")).collect::<Vec<_>>().join(" ");
        self.summary.failures = failures.iter().map(|(what, list)| format!("{what} ({})", runs(list))).collect();
        let summary = self.summary.clone();
        self.emit(Event::CampaignEnded(summary));
        Ok(())
    }
}

/// The part of the night on one device.
pub(super) struct DeviceNight<'n, 'a> {
    pub(super) night: &'n mut Night<'a>,
    pub(super) device: &'a Device,
    pub(super) session: Session,
}

impl DeviceNight<'_, '_> {
    fn everything(&mut self) -> Result<(), Stop> {
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
        for query in points.iter().flat_map(|p| files::of_point(p)).map(|f| f.query) {
            queries.insert(query.key.clone(), query);
        }
        for path in diff::libraries(&self.night.scan) {
            for base in points.iter().map(|p| p.base.as_str()).collect::<BTreeSet<_>>() {
                let query = files::library(&path, base);
                queries.insert(query.key.clone(), query);
            }
        }
        let inspected = self.session.inspect(queries.into_values().collect())?;
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
            let executed = crate::plan::identity::point_identity(&identity);
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
