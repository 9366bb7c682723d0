//! One invocation of `run`: what all devices of a campaign share, and the devices one after the other.

use super::device_night::DeviceNight;
use super::event::{Event, Summary};
use super::filter::Filter;
use super::manifest::Night as Constants;
use super::selection::Options;
use super::signals::{self, Stopping};
use super::{RunError, Stop, assemble, awake};
use crate::clock;
use crate::config::model::{Campaign, Device};
use crate::device::{DeviceError, Happening, Session, has_local_agent};
use crate::digest;
use crate::plan::dominance::Dominators;
use crate::plan::expand;
use crate::plan::identity::{self, DeviceReport, Identified};
use crate::plan::names::job_key;
use crate::plan::power::Runs;
use crate::plan::{JobState, Plan, PlanError, PlannedJob, Point, contaminated, diff};
use crate::schedule::Slot;
use crate::store::durable::{self, Existing};
use crate::store::index::{self, Entry, Scan};
use crate::store::journal::Journal;
use crate::store::plan_file::{PLAN_FILE, PLAN_VERSION, StoredPlan, StoredPoint};
use crate::store::record::{Kind, Reason, Record, Status, Validity};
use crate::store::results::Results;
use crate::store::{StoreError, formats, write};
use indexmap::IndexMap;
use isotherm_wire::session::{GivenBack, Holder};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Run what has no answer yet. `observer` is told everything as it happens.
///
/// # Errors
/// What prevents the whole campaign; a device or a job that fails is in the summary.
pub fn run(campaign: &Campaign, parent: &Path, options: &Options, observer: &mut dyn FnMut(&Event)) -> Result<Summary, RunError> {
    let dir = parent.join(&campaign.name);
    let mut reports = stored_reports(&dir, campaign);
    // What a device said long ago may leave out everything, or leave a condition without an answer: it is asked again.
    let plan = loop {
        match expand::expand(campaign, &reports) {
            Err(PlanError::Empty { dropped: 1.., .. }) if !reports.is_empty() => reports.clear(),
            Err(PlanError::Condition { device, .. }) if reports.contains_key(&device) => _ = reports.remove(&device),
            plan => break plan?,
        }
    };
    // What a device says now may bring in points that `when` has left out.
    let possible = if plan.dropped.is_empty() || reports.is_empty() { None } else { expand::expand(campaign, &BTreeMap::new()).ok() };
    let possible = possible.as_ref().unwrap_or(&plan);
    options.filter.check(possible)?;
    if let Some(device) = &options.device {
        Filter::parse(&[format!("device={device}")])?.check(possible)?;
    }
    if let Some(rerun) = &options.rerun {
        rerun.check(possible)?;
    }
    if !has_local_agent() {
        let device = plan.points[0].ids.device.clone();
        return Err(RunError::NoAgent(DeviceError::NoAgent { device }));
    }
    let controller = controller();
    let results = Results::open(parent, campaign, &controller)?;
    let (sender, happenings) = channel();
    let attentive = Arc::new(AtomicBool::new(false));
    signals::listen(sender.clone(), Arc::clone(&attentive)).map_err(|source| RunError::Io { what: "listen to signals", source })?;
    // Before anything is written: a record of a newer isotherm ends it here.
    let scan = index::scan(&results.dir)?;
    durable::remove_temporaries(&results.dir);
    let journal = Journal::open(&results.dir)?;
    durable::write(&results.dir.join("campaign.yaml"), campaign.source.as_bytes(), Existing::Replace)?;
    for (n, (_, text)) in campaign.used.iter().enumerate() {
        durable::write(&results.dir.join(format!("campaign.used.{}.yaml", n + 1)), text.as_bytes(), Existing::Replace)?;
    }
    let since = clock::utc_seconds();
    let (_inhibitor, sleep_inhibited) = (!options.dry_run).then(awake::hold).unzip();
    let constants = Constants {
        results_id: results.id.results_id.clone(),
        campaign: campaign.name.clone(),
        campaign_sha256: digest::sha256_hex(campaign.source.as_bytes()),
        epoch: uuid::Uuid::new_v4().to_string(),
        sleep_inhibited,
    };
    let holder = Holder { results_id: results.id.results_id.clone(), campaign: campaign.name.clone(), controller, since };
    let identities = identity::of_points(&plan.points, &reports);
    let dominators = Dominators::of(&plan);
    let mut night = Night {
        campaign,
        identities,
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
        dominators,
        failed_now: BTreeMap::new(),
    };
    night.all_devices()?;
    Ok(night.summary)
}

/// `user@host pid 12`: for people who find a device or a directory in use.
#[must_use]
pub fn controller() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", rustix::process::geteuid().as_raw()));
    format!("{user}@{} pid {}", rustix::system::uname().nodename().to_string_lossy(), std::process::id())
}

/// Last reports of the campaign's devices; one that can't be read counts as not there.
#[must_use]
pub fn stored_reports(results: &Path, campaign: &Campaign) -> BTreeMap<String, DeviceReport> {
    let read = |id: &String| {
        let report = formats::read(formats::REPORT, &results.join(index::DEVICES).join(format!("{id}.json"))).ok()??;
        Some((id.clone(), report))
    };
    campaign.devices.keys().filter_map(read).collect()
}

/// Everything of one invocation.
pub(super) struct Night<'a> {
    pub(super) campaign: &'a Campaign,
    pub(super) plan: Plan,
    pub(super) results: Results,
    pub(super) options: &'a Options,
    pub(super) constants: Constants,
    pub(super) holder: Holder,
    journal: Journal,
    pub(super) scan: Scan,
    pub(super) reports: BTreeMap<String, DeviceReport>,
    /// Of the plan's points, from these reports.
    identities: Vec<Option<Arc<Identified>>>,
    pub(super) happenings: Receiver<Happening>,
    pub(super) sender: Sender<Happening>,
    /// True while signals are looked at as they come.
    attentive: Arc<AtomicBool>,
    pub(super) stopping: Stopping,
    observer: &'a mut dyn FnMut(&Event),
    pub(super) summary: Summary,
    /// The journal can't be written: nothing new is started.
    fatal: Option<StoreError>,
    /// Job whose run goes on without us.
    pub(super) left_running: Option<String>,
    /// Which points a failed one makes needless, and what failed in this invocation by identity.
    dominators: Dominators,
    failed_now: BTreeMap<String, Vec<(Kind, Reason)>>,
}

impl<'a> Night<'a> {
    /// Journal and observer hear it; what the journal can't take stops the night at the next step.
    pub(super) fn emit(&mut self, event: Event) {
        if !matches!(event, Event::Phase { .. } | Event::Settling { .. })
            && let Err(e) = self.results.still_there().and_then(|()| self.journal.append(&event))
        {
            self.fatal.get_or_insert(e);
        }
        (self.observer)(&event);
    }

    /// Can a new step begin?
    pub(super) fn check(&mut self) -> Result<(), Stop> {
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
            set: self.campaign.set.clone(),
            jobs: self.plan.points.iter().map(|p| self.kinds(p).len() * p.settings.repetitions as usize).sum(),
        };
        self.emit(event);
        self.write_plan()?;
        // Not the devices of the plan's points, as above.
        let used: BTreeSet<&str> = self.campaign.blocks.iter().flat_map(|block| &block.devices).map(String::as_str).collect();
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
                Err(Stop::Condition(e)) => {
                    self.summary.devices_failed += 1;
                    self.emit(Event::DeviceFailed { device: id, message: e.to_string(), hint: Some(e.hint()) });
                }
                Err(Stop::Fatal(e)) => {
                    fatal = Some(e);
                    break;
                }
                Err(Stop::Asked) => break,
            }
        }
        let finished = self.finish();
        // The first thing that went wrong explains the rest.
        fatal.or_else(|| self.fatal.take().map(Into::into)).map_or(Ok(()), Err)?;
        Ok(finished?)
    }

    fn one_device(&mut self, id: &str) -> Result<(), Stop> {
        self.check()?;
        let device = &self.campaign.devices[id];
        let mut session = Session::open(device, &self.holder, &self.sender)?;
        if session.welcome().is_err() && !self.options.dry_run {
            session = self.relieve(device, session)?;
        }
        self.given_back(id, session.given_back());
        let mut part = DeviceNight { night: self, device, session, flaps: 0 };
        let result = part.everything();
        let DeviceNight { session, night, .. } = part;
        let written = night.write_report(id);
        // Whatever went wrong here, the device is given back. A run that goes on keeps the keeper: then this is refused, which is right.
        if let Ok(given_back) = session.end() {
            self.summary.not_given_back.extend(given_back.failed.iter().map(|what| format!("{id} {what}")));
            self.given_back(id, given_back);
            self.emit(Event::DeviceReleased { device: id.to_owned() });
        }
        result?;
        Ok(written?)
    }

    /// An older isotherm's keeper has the device: what it has left is collected, what it runs is waited for, and a keeper of our own takes
    /// its place.
    fn relieve(&mut self, device: &'a Device, session: Session) -> Result<Session, Stop> {
        self.emit(Event::OlderKeeper { device: device.id.clone() });
        let mut part = DeviceNight { night: self, device, session, flaps: 0 };
        // What has to stay in its spool is said by the next one.
        let collected = part.collect_spool();
        let DeviceNight { session, night, .. } = part;
        let ended = session.end();
        collected?;
        night.given_back(&device.id, ended?);
        Ok(Session::open(device, &night.holder, &night.sender)?)
    }

    /// Say what of a device's settings was given back, if anything was borrowed.
    pub(super) fn given_back(&mut self, device: &str, given_back: GivenBack) {
        if !given_back.is_empty() {
            let GivenBack { restored, failed } = given_back;
            self.emit(Event::GivenBack { device: device.to_owned(), restored, failed });
        }
    }

    /// The runs of a repetition of a point, as far as its device is known.
    fn kinds(&self, point: &Point) -> &'static [Kind] {
        Runs::of(point.settings.power, self.reports.get(&point.ids.device)).kinds()
    }

    pub(super) fn jobs(&self) -> Vec<PlannedJob> {
        let Night { plan, identities, reports, scan, .. } = self;
        diff::diff(diff::Known { plan, identities, reports, scan, results: &self.results.dir })
    }

    /// Remember a failure that may make other points needless.
    pub(super) fn note_failure(&mut self, record: &Record) {
        let (Status::Failed, Some(reason), false) = (record.status, record.reason, self.dominators.is_empty()) else { return };
        self.failed_now.entry(record.ids.point_identity.clone()).or_default().push((record.ids.kind, reason));
    }

    /// The failure that makes a point needless: of this invocation, or one that is not tried again by itself.
    pub(super) fn dominated(&self, slot: Slot) -> Option<(String, Reason)> {
        let failed = |other: usize| {
            let Some(hash) = self.identities[other].as_ref().map(|identified| identified.hash.as_str()) else { return Vec::new() };
            // What was repeated since says nothing any more.
            let is_one = |e: &&Entry| e.point_identity == hash && e.status == Status::Failed && !e.is_earlier_attempt();
            let stored = self.scan.entries.iter().filter(is_one);
            let lasting = stored.filter_map(|e| Some((e.kind, e.reason?))).filter(|(_, reason)| diff::lasts(*reason));
            let all = lasting.chain(self.failed_now.get(hash).into_iter().flatten().copied());
            all.filter(|(kind, _)| diff::tells_of(*kind, slot.kind)).map(|(_, reason)| reason).collect()
        };
        let (by, reason) = self.dominators.of_point(&self.plan, slot.point, failed)?;
        Some((self.plan.points[by].label(), reason))
    }

    /// What a device said of itself and of the campaign's files.
    pub(super) fn learn(&mut self, id: &str, report: DeviceReport) -> Result<(), Stop> {
        let earlier = self.reports.insert(id.to_owned(), report);
        if self.has_conditions() {
            match expand::expand(self.campaign, &self.reports) {
                Ok(plan) => {
                    self.dominators = Dominators::of(&plan);
                    self.plan = plan;
                }
                // The other devices go on with what is known without it.
                Err(error @ PlanError::Condition { .. }) => {
                    self.reports.remove(id);
                    self.reports.extend(earlier.map(|report| (id.to_owned(), report)));
                    return Err(Stop::Condition(error));
                }
                Err(error) => return Err(Stop::Fatal(error.into())),
            }
        }
        self.identities = identity::of_points(&self.plan.points, &self.reports);
        self.write_report(id)?;
        Ok(self.write_plan()?)
    }

    /// The points that a device may have, whatever it says of itself: those that an earlier answer has left out come back with another.
    pub(super) fn possible_points(&self, id: &str) -> Vec<Point> {
        let mut reports = self.reports.clone();
        let fresh = match reports.remove(id) {
            Some(_) if self.has_conditions() => expand::expand(self.campaign, &reports).ok(),
            _ => None,
        };
        let points = fresh.map_or_else(|| self.plan.points.clone(), |plan| plan.points);
        points.into_iter().filter(|point| point.ids.device == id).collect()
    }

    fn has_conditions(&self) -> bool {
        self.campaign.blocks.iter().any(|block| block.when.is_some())
    }

    /// Move records away that a newer one replaces.
    pub(super) fn supersede(&mut self, outdated: &[String]) -> Result<(), StoreError> {
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

    fn write_plan(&self) -> Result<(), StoreError> {
        let point = |(i, p): (usize, &Point)| {
            let stored = |&kind: &Kind| StoredPoint {
                point: p.ids.clone(),
                swept: p.swept.clone(),
                kind,
                repetitions: p.settings.repetitions,
                point_identity: self.identities[i].as_ref().map(|identified| identified.hash.clone()),
            };
            self.kinds(p).iter().map(stored).collect::<Vec<_>>()
        };
        let plan = StoredPlan {
            plan_version: PLAN_VERSION,
            campaign: self.campaign.name.clone(),
            campaign_sha256: self.constants.campaign_sha256.clone(),
            points: self.plan.points.iter().enumerate().flat_map(point).collect(),
        };
        self.write_json(PLAN_FILE, &plan)
    }

    fn write_json(&self, name: &str, value: &impl serde::Serialize) -> Result<(), StoreError> {
        let path = self.results.dir.join(name);
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| StoreError::Damaged { path: path.clone(), reason: e.to_string() })?;
        bytes.push(b'\n');
        durable::write(&path, &bytes, Existing::Replace)
    }

    /// `devices/<id>.json`; the host's name is of no use there.
    pub(super) fn write_report(&self, id: &str) -> Result<(), StoreError> {
        let Some(mut report) = self.reports.get(id).cloned() else { return Ok(()) };
        report.machine.hostname = assemble::pseudonym(&self.results.id.salt, &report.machine.hostname);
        self.results.still_there()?;
        durable::create_dir_below(&self.results.dir, &self.results.dir.join(index::DEVICES))?;
        self.write_json(&format!("{}/{id}.json", index::DEVICES), &report)
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let jobs = self.jobs();
        self.scan.entries.sort_by(|a, b| a.path.cmp(&b.path));
        // What was deleted stays known until its job has an answer again.
        let place = |job: &PlannedJob| (job_key(&self.plan.points[job.slot.point].ids), job.slot.kind, job.slot.repetition);
        let answered: BTreeSet<(String, Kind, u32)> = jobs.iter().filter(|job| job.state.is_answered()).map(place).collect();
        let gone = self.scan.gone.iter().filter(|e| !answered.contains(&(job_key(&e.point), e.kind, e.repetition)));
        let stored = self.write_plan().and_then(|()| index::write_index(&self.results.dir, self.scan.entries.iter().chain(gone)));
        let degraded: BTreeMap<&str, &Entry> =
            self.scan.entries.iter().filter(|e| e.validity == Validity::Degraded).map(|e| (e.path.as_str(), e)).collect();
        let mut failures: IndexMap<String, Vec<u32>> = IndexMap::new();
        for job in jobs.iter().filter(|job| self.options.concerns(&self.plan, job)) {
            self.summary.jobs += 1;
            match &job.state {
                _ if self.left_running.as_ref() == Some(&job.id) => self.summary.left_running += 1,
                JobState::Reused { path } | JobState::Contaminated { path, .. } => {
                    self.summary.ok += 1;
                    self.summary.degraded += usize::from(degraded.contains_key(path.as_str()));
                    let is_contaminated = |entry: &&Entry| !contaminated::by(&self.results.dir, entry).is_empty();
                    self.summary.contaminated += usize::from(degraded.get(path.as_str()).is_some_and(is_contaminated));
                }
                JobState::Kept { status: Status::Skipped, .. } => self.summary.skipped += 1,
                JobState::Retry { why, .. } | JobState::Kept { why, .. } => {
                    self.summary.failed += 1;
                    let point = &self.plan.points[job.slot.point];
                    let why = why.strip_prefix("failed: ").unwrap_or(why);
                    let what = format!("{} {}{}: {why}", point.ids.device, point.label(), job.slot.kind.after_label());
                    failures.entry(what).or_default().push(job.slot.repetition);
                }
                _ => self.summary.pending += 1,
            }
        }
        let runs = |list: &[u32]| list.iter().map(|r| format!("r{r}")).collect::<Vec<_>>().join(" ");
        self.summary.failures = failures.iter().map(|(what, list)| format!("{what} ({})", runs(list))).collect();
        let summary = self.summary.clone();
        self.emit(Event::CampaignEnded(summary));
        stored
    }
}
