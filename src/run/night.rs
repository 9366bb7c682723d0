//! One invocation of `run`: what all devices of a campaign share, and its beginning and end.

use super::crew::Crew;
use super::event::{Event, Summary};
use super::filter::Filter;
use super::manifest::Night as Constants;
use super::push::Contents;
use super::selection::Options;
use super::signals::{self, Stopping};
use super::{RunError, Stop, assemble, awake};
use crate::clock::{self, ClockOffset};
use crate::config::model::Campaign;
use crate::device::{DeviceError, has_local_agent};
use crate::digest;
use crate::plan::dominance::Dominators;
use crate::plan::expand;
use crate::plan::identity::{self, DeviceReport, Identified};
use crate::plan::names::job_key;
use crate::plan::power::Runs;
use crate::plan::{JobState, Plan, PlanError, PlannedJob, Point, contaminated, diff};
use crate::store::durable::{self, Existing};
use crate::store::index::{self, Entry, Scan};
use crate::store::journal::Journal;
use crate::store::plan_file::{PLAN_FILE, PLAN_VERSION, StoredPlan, StoredPoint};
use crate::store::record::{Kind, Reason, Record, Status, Validity};
use crate::store::results::Results;
use crate::store::{StoreError, formats, write};
use indexmap::IndexMap;
use isotherm_wire::inspect::FileAnswer;
use isotherm_wire::session::{GivenBack, Holder};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Run what has no answer yet. `observer` is told everything as it happens.
///
/// # Errors
/// What prevents the whole campaign; a device or a job that fails is in the summary.
pub fn run(campaign: &Campaign, parent: &Path, options: &Options, observer: &mut (dyn FnMut(&Event) + Send)) -> Result<Summary, RunError> {
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
    let left_out = options.left_out(possible)?;
    // It runs where the controller does.
    let local = plan.points.iter().find(|point| point.transport == "local" && point.is_built());
    if let Some(point) = local.filter(|_| !has_local_agent()) {
        return Err(RunError::NoAgent(DeviceError::NoAgent { device: point.ids.device.clone() }));
    }
    let controller = controller();
    let results = Results::open(parent, campaign, &controller)?;
    let (tell, told) = channel();
    let attentive = Arc::new(AtomicBool::new(false));
    let pass_on = {
        let tell = tell.clone();
        move |signal| tell.send(Told::Signal(signal)).is_ok()
    };
    signals::listen(pass_on, Arc::clone(&attentive)).map_err(|source| RunError::Io { what: "listen to signals", source })?;
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
    let state = State {
        identities: identity::of_points(&plan.points, &reports),
        dominators: Dominators::of(&plan),
        plan: Arc::new(plan),
        journal,
        scan,
        reports,
        observer,
        summary: Summary::default(),
        begun: 0,
        fatal: None,
        left_running: BTreeSet::new(),
        failed_now: BTreeMap::new(),
    };
    let crew = Crew::new(options.jobs.unwrap_or(usize::MAX));
    let contents = Contents::default();
    let night = Night { campaign, results, options, constants, holder, crew, contents, state: Mutex::new(state) };
    night.begin()?;
    left_out.into_iter().for_each(|message| night.emit(Event::Warning { message }));
    let worked = night.all_devices(&tell, &told, &attentive);
    let finished = night.finish();
    // The first thing that went wrong explains the rest.
    let mut state = night.state();
    worked.and(state.fatal.take().map_or(Ok(()), |e| Err(e.into())))?;
    finished?;
    Ok(state.summary.clone())
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

/// What the one who listens is told.
pub(super) enum Told {
    Signal(i32),
    /// Nobody works on the device any more.
    Ended {
        device: String,
        how: Result<(), Stop>,
    },
}

/// Everything of one invocation.
pub(super) struct Night<'a> {
    pub(super) campaign: &'a Campaign,
    pub(super) results: Results,
    pub(super) options: &'a Options,
    pub(super) constants: Constants,
    pub(super) holder: Holder,
    pub(super) crew: Crew,
    /// Of files here that devices get copies of.
    pub(super) contents: Contents,
    state: Mutex<State<'a>>,
}

/// What changes in the course of it. Never held while a device is asked or waited for.
pub(super) struct State<'a> {
    plan: Arc<Plan>,
    /// Of the plan's points, from these reports.
    identities: Vec<Option<Arc<Identified>>>,
    reports: BTreeMap<String, DeviceReport>,
    pub(super) scan: Scan,
    journal: Journal,
    observer: &'a mut (dyn FnMut(&Event) + Send),
    pub(super) summary: Summary,
    /// Jobs that were begun.
    begun: usize,
    /// The journal can't be written: nothing new is started.
    pub(super) fatal: Option<StoreError>,
    /// Jobs whose runs go on without us.
    pub(super) left_running: BTreeSet<String>,
    /// Which points a failed one makes needless, and what failed in this invocation by identity.
    dominators: Dominators,
    failed_now: BTreeMap<String, Vec<(Kind, Reason)>>,
}

impl<'a> Night<'a> {
    pub(super) fn state(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.state().plan)
    }

    /// What a device said of itself last.
    pub(super) fn report(&self, id: &str) -> Option<DeviceReport> {
        self.state().reports.get(id).cloned()
    }

    /// Journal and observer hear it; what the journal can't take stops the night at the next step.
    pub(super) fn emit(&self, event: Event) {
        let mut state = self.state();
        if !matches!(event, Event::Phase { .. } | Event::Settling { .. } | Event::Pushing { .. })
            && let Err(e) = self.results.still_there().and_then(|()| state.journal.append(&event))
        {
            state.fatal.get_or_insert(e);
        }
        (state.observer)(&event);
    }

    /// Can a new step begin?
    pub(super) fn check(&self) -> Result<(), Stop> {
        match self.state().fatal.take() {
            Some(e) => Err(e.into()),
            None if self.crew.stopping() == Stopping::No => Ok(()),
            None => Err(Stop::Asked),
        }
    }

    /// Were as many jobs begun as this invocation may, repeats among them?
    pub(super) fn is_at_limit(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.state().begun >= limit)
    }

    /// One more is begun; false = it would be one too many.
    pub(super) fn begin_job(&self) -> bool {
        let mut state = self.state();
        let may = self.options.limit.is_none_or(|limit| state.begun < limit);
        state.begun += usize::from(may);
        may
    }

    /// So many more may be begun.
    pub(super) fn left(&self) -> usize {
        self.options.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.state().begun))
    }

    fn begin(&self) -> Result<(), StoreError> {
        let event = Event::CampaignStarted {
            campaign: self.campaign.name.clone(),
            results: self.results.dir.display().to_string(),
            epoch: self.constants.epoch.clone(),
            isotherm: env!("CARGO_PKG_VERSION").into(),
            set: self.campaign.set.clone(),
            jobs: {
                let state = self.state();
                state.plan.points.iter().map(|p| state.kinds(p).len() * p.settings.repetitions as usize).sum()
            },
        };
        self.emit(event);
        self.write_plan(&self.state())
    }

    /// Say what of a device's settings was given back, if anything was borrowed.
    pub(super) fn given_back(&self, device: &str, given_back: GivenBack) {
        if !given_back.is_empty() {
            let GivenBack { restored, failed } = given_back;
            self.emit(Event::GivenBack { device: device.to_owned(), restored, failed });
        }
    }

    /// Those of a device, with the plan that they are of.
    pub(super) fn jobs(&self, device: &str) -> (Arc<Plan>, Vec<PlannedJob>) {
        let state = self.state();
        (Arc::clone(&state.plan), state.jobs(&self.results.dir, Some(device)))
    }

    /// Remember a failure that may make other points needless.
    pub(super) fn note_failure(&self, record: &Record) {
        let mut state = self.state();
        let (Status::Failed, Some(reason), false) = (record.status, record.reason, state.dominators.is_empty()) else { return };
        state.failed_now.entry(record.ids.point_identity.clone()).or_default().push((record.ids.kind, reason));
    }

    /// The failure that makes a point needless: of this invocation, or one that is not tried again by itself.
    pub(super) fn dominated(&self, point: &Point, kind: Kind) -> Option<(String, Reason)> {
        let state = self.state();
        if state.dominators.is_empty() {
            return None;
        }
        // Its place may be another one by now.
        let point = state.plan.points.iter().position(|other| other.ids == point.ids)?;
        let failed = |other: usize| {
            let Some(hash) = state.identities[other].as_ref().map(|identified| identified.hash.as_str()) else { return Vec::new() };
            // What was repeated since says nothing any more.
            let is_one = |e: &&Entry| e.point_identity == hash && e.status == Status::Failed && !e.is_earlier_attempt();
            let stored = state.scan.entries.iter().filter(is_one);
            let lasting = stored.filter_map(|e| Some((e.kind, e.reason?))).filter(|(_, reason)| diff::lasts(*reason));
            let all = lasting.chain(state.failed_now.get(hash).into_iter().flatten().copied());
            all.filter(|(failed, _)| diff::tells_of(*failed, kind)).map(|(_, reason)| reason).collect()
        };
        let (by, reason) = state.dominators.of_point(&state.plan, point, failed)?;
        Some((state.plan.points[by].label(), reason))
    }

    /// What a device said of itself and of the campaign's files.
    pub(super) fn learn(&self, id: &str, report: DeviceReport) -> Result<(), Stop> {
        let mut state = self.state();
        let before = Arc::clone(&state.plan);
        let earlier = state.reports.insert(id.to_owned(), report);
        if self.has_conditions() {
            match expand::expand(self.campaign, &state.reports) {
                Ok(plan) => {
                    state.dominators = Dominators::of(&plan);
                    state.plan = Arc::new(plan);
                }
                // The other devices go on with what is known without it.
                Err(error @ PlanError::Condition { .. }) => {
                    state.reports.remove(id);
                    state.reports.extend(earlier.map(|report| (id.to_owned(), report)));
                    return Err(Stop::Condition(error));
                }
                Err(error) => return Err(Stop::Fatal(error.into())),
            }
        }
        let State { plan, identities, reports, .. } = &mut *state;
        if Arc::ptr_eq(plan, &before) {
            // Nothing has changed for the others.
            for (point, identity) in plan.points.iter().zip(identities.iter_mut()).filter(|(point, _)| point.ids.device == id) {
                *identity = identity::of_point(point, reports);
            }
        } else {
            *identities = identity::of_points(&plan.points, reports);
        }
        self.write_report(&state, id)?;
        Ok(self.write_plan(&state)?)
    }

    /// More files of its points: libraries that a run had mapped, models where they lie now.
    pub(super) fn learn_files(&self, id: &str, files: impl IntoIterator<Item = (String, FileAnswer)>) {
        if let Some(report) = self.state().reports.get_mut(id) {
            report.files.extend(files);
        }
    }

    /// A device that was reached again may have been started anew.
    pub(super) fn learn_boot(&self, id: &str, boot_id: Option<String>) {
        if let Some(report) = self.state().reports.get_mut(id) {
            report.machine.boot_id = boot_id;
        }
    }

    /// How far a device's clock is off by now.
    pub(super) fn learn_clock(&self, id: &str, clock: Option<ClockOffset>) {
        if let Some(report) = self.state().reports.get_mut(id) {
            report.clock = clock;
        }
    }

    /// Keep what is known of a device by now.
    pub(super) fn keep_report(&self, id: &str) -> Result<(), StoreError> {
        self.write_report(&self.state(), id)
    }

    /// The points that a device may have of this build, whatever it says of itself: those that an earlier answer has left out come back with
    /// another.
    pub(super) fn possible_points(&self, id: &str) -> Vec<Point> {
        let state = self.state();
        let fresh = (self.has_conditions() && state.reports.contains_key(id)).then(|| {
            let others = state.reports.iter().filter(|(other, _)| *other != id).map(|(id, report)| (id.clone(), report.clone())).collect();
            expand::expand(self.campaign, &others).ok()
        });
        let points = fresh.flatten().map_or_else(|| Arc::clone(&state.plan), Arc::new);
        points.points.iter().filter(|point| point.ids.device == id && point.is_built()).cloned().collect()
    }

    fn has_conditions(&self) -> bool {
        self.campaign.blocks.iter().any(|block| block.when.is_some())
    }

    /// Move records away that a newer one replaces.
    pub(super) fn supersede(&self, outdated: &[String]) -> Result<(), StoreError> {
        for path in outdated {
            let file = self.results.dir.join(path);
            if let Ok(record) = index::read_record(&file) {
                write::supersede(&self.results.dir, &file, &record)?;
                self.state().scan.entries.retain(|e| e.path != *path);
                self.emit(Event::Superseded { path: path.clone() });
            }
        }
        Ok(())
    }

    fn write_plan(&self, state: &State<'_>) -> Result<(), StoreError> {
        let point = |(i, p): (usize, &Point)| {
            let stored = |&kind: &Kind| StoredPoint {
                point: p.ids.clone(),
                swept: p.swept.clone(),
                kind,
                repetitions: p.settings.repetitions,
                point_identity: state.identities[i].as_ref().map(|identified| identified.hash.clone()),
            };
            state.kinds(p).iter().map(stored).collect::<Vec<_>>()
        };
        let plan = StoredPlan {
            plan_version: PLAN_VERSION,
            campaign: self.campaign.name.clone(),
            campaign_sha256: self.constants.campaign_sha256.clone(),
            points: state.plan.points.iter().enumerate().flat_map(point).collect(),
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
    fn write_report(&self, state: &State<'_>, id: &str) -> Result<(), StoreError> {
        let Some(mut report) = state.reports.get(id).cloned() else { return Ok(()) };
        report.machine.hostname = assemble::pseudonym(&self.results.id.salt, &report.machine.hostname);
        self.results.still_there()?;
        durable::create_dir_below(&self.results.dir, &self.results.dir.join(index::DEVICES))?;
        self.write_json(&format!("{}/{id}.json", index::DEVICES), &report)
    }

    /// Store plan and index, and count how it stands.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        let jobs = state.jobs(&self.results.dir, None);
        state.scan.entries.sort_by(|a, b| a.path.cmp(&b.path));
        // What was deleted stays known until its job has an answer again.
        let place = |job: &PlannedJob| (job_key(&state.plan.points[job.slot.point].ids), job.slot.kind, job.slot.repetition);
        let answered: BTreeSet<(String, Kind, u32)> = jobs.iter().filter(|job| job.state.is_answered()).map(place).collect();
        let gone = state.scan.gone.iter().filter(|e| !answered.contains(&(job_key(&e.point), e.kind, e.repetition)));
        let stored = self.write_plan(&state).and_then(|()| index::write_index(&self.results.dir, state.scan.entries.iter().chain(gone)));
        self.count(&mut state, &jobs);
        let summary = state.summary.clone();
        drop(state);
        self.emit(Event::CampaignEnded(summary));
        stored
    }

    fn count(&self, state: &mut State<'_>, jobs: &[PlannedJob]) {
        let State { plan, scan, summary, left_running, .. } = state;
        let degraded: BTreeMap<&str, &Entry> =
            scan.entries.iter().filter(|e| e.validity == Validity::Degraded).map(|e| (e.path.as_str(), e)).collect();
        let mut failures: IndexMap<String, Vec<u32>> = IndexMap::new();
        for job in jobs.iter().filter(|job| self.options.concerns(plan, job)) {
            summary.jobs += 1;
            match &job.state {
                _ if left_running.contains(&job.id) => summary.left_running += 1,
                JobState::Reused { path } | JobState::Contaminated { path, .. } => {
                    summary.ok += 1;
                    summary.degraded += usize::from(degraded.contains_key(path.as_str()));
                    let is_contaminated = |entry: &&Entry| !contaminated::by(&self.results.dir, entry).is_empty();
                    summary.contaminated += usize::from(degraded.get(path.as_str()).is_some_and(is_contaminated));
                }
                JobState::Kept { status: Status::Skipped, .. } => summary.skipped += 1,
                JobState::Retry { why, .. } | JobState::Kept { why, .. } => {
                    summary.failed += 1;
                    let point = &plan.points[job.slot.point];
                    let why = why.strip_prefix("failed: ").unwrap_or(why);
                    let what = format!("{} {}{}: {why}", point.ids.device, point.label(), job.slot.kind.after_label());
                    failures.entry(what).or_default().push(job.slot.repetition);
                }
                _ => summary.pending += 1,
            }
        }
        let runs = |list: &[u32]| list.iter().map(|r| format!("r{r}")).collect::<Vec<_>>().join(" ");
        summary.failures = failures.iter().map(|(what, list)| format!("{what} ({})", runs(list))).collect();
    }
}

impl State<'_> {
    /// The runs of a repetition of a point, as far as its device is known.
    fn kinds(&self, point: &Point) -> &'static [Kind] {
        Runs::of(point.settings.power, point.settings.sample_hz, self.reports.get(&point.ids.device)).kinds()
    }

    fn jobs(&self, results: &Path, device: Option<&str>) -> Vec<PlannedJob> {
        let State { plan, identities, reports, scan, .. } = self;
        diff::diff(diff::Known { plan, identities, reports, scan, results, device })
    }
}
