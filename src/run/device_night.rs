//! The part of a night on one device: its jobs in order, every result sealed in the store before the next.

use super::beside::{self, Beside, Since};
use super::event::{Event, Finished, Settled};
use super::line::{Line, Stake};
use super::manifest::{self, Manifest};
use super::reparse;
use super::spool::Lost;
use super::watch::{Ended, OVERDUE};
use super::{RunError, Stop, assemble};
use crate::clock::{self, ClockOffset};
use crate::device::{DeviceError, Session, boot_id};
use crate::plan::point::ArmGroup;
use crate::plan::{JobState, Plan, PlannedJob, Point, Work, contaminated, files};
use crate::registry::MetricId;
use crate::schedule::{Doom, Group};
use crate::store::record::{Kind, RanFile, RanRole, Reason, Record, Status};
use crate::store::write::Valid;
use isotherm_wire::format::Unread;
use isotherm_wire::inspect::FileAnswer;
use isotherm_wire::session::{GivenBack, Start};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a job is started again when its keeper died with it.
const MOST_STARTS: u32 = 2;

/// The part of the night on one device.
pub(super) struct DeviceNight<'n, 'a> {
    pub(super) line: Line<'n, 'a>,
    pub(super) session: Session,
    /// As it was when it was clear what is to be done here: what other devices say of themselves moves the points of later ones.
    pub(super) plan: Arc<Plan>,
    pub(super) stake: Stake,
    /// So many jobs come after the one that is made now; `None` as long as it isn't known what is to be done.
    left: Option<usize>,
    /// Everything is stored, and it was not waited for any longer to tell the device so.
    pub(super) is_left: bool,
    /// Since when nothing is done for others, and what was done all the same by the run that has just ended.
    pub(super) quiet_since: Option<Since>,
    beside: Option<Beside>,
    /// Of the run that is made now.
    needs: Option<String>,
    /// Boot in which it was started, as far as it was seen.
    pub(super) run_boot: Option<String>,
    /// Of the connection over which the device's clock was asked last.
    pub(super) clock_serial: Option<u64>,
    doom: Doom,
}

impl<'n, 'a> DeviceNight<'n, 'a> {
    /// Do what is to be done on a device, and give it back.
    pub(super) fn work(mut line: Line<'n, 'a>) -> Result<(), Stop> {
        let (night, id) = (line.night, line.device.id.as_str());
        night.check()?;
        let (mut turn, mut session, given_back) = line.first()?;
        if session.welcome().is_err() && !night.options.dry_run {
            (line, session) = relieve(line, session)?;
        }
        night.given_back(id, given_back);
        let mut part = DeviceNight::of(line, session);
        let result = (|| {
            // What turns out to be the machine of another one waits for its turn again, which that may have.
            if part.shares_its_machine() {
                drop(turn);
                turn = part.line.turn()?;
            }
            let todo = part.prepared()?;
            drop(turn);
            part.run_all(todo)
        })();
        // Whatever went wrong here, the device is given back. A run that goes on keeps the keeper: then this is refused, which is right.
        part.give_back(&result);
        let written = night.keep_report(id);
        result?;
        Ok(written?)
    }

    pub(super) fn of(line: Line<'n, 'a>, session: Session) -> DeviceNight<'n, 'a> {
        let plan = line.night.plan();
        DeviceNight {
            line,
            session,
            plan,
            stake: Stake::Jobs,
            left: None,
            is_left: false,
            quiet_since: None,
            beside: None,
            needs: None,
            run_boot: None,
            clock_serial: None,
            doom: Doom::default(),
        }
    }

    /// The boot in which the device is, if it says so.
    pub(super) fn boot(&self) -> Option<String> {
        self.session.welcome().ok().and_then(|welcome| welcome.boot_id.clone())
    }

    /// How far the device's clock is off: asked once over each connection, and never into a window, when a run is about to be started.
    fn clock(&mut self) -> Result<Option<ClockOffset>, Stop> {
        let (night, id) = (self.line.night, &self.line.device.id);
        if self.clock_serial != Some(self.session.serial) {
            let clock = self.asking(Session::clock)?;
            self.clock_serial = Some(self.session.serial);
            night.learn_clock(id, clock);
        }
        Ok(night.report(id).and_then(|report| report.clock))
    }

    /// Is the device the machine that this is?
    pub(super) fn is_here(&self) -> bool {
        matches!(&self.line.machine, Some(Group::Machine(machine)) if boot_id().as_ref() == Some(machine))
    }

    /// Let the keeper go, unless another device of ours is the same machine and still at work.
    fn give_back(mut self, worked: &Result<(), Stop>) {
        let (night, id) = (self.line.night, self.line.device.id.clone());
        if self.line.machine.as_ref().is_some_and(|machine| !night.crew.let_go(&id, machine)) {
            self.session.detach();
            return night.emit(Event::DeviceDone { device: id });
        }
        // Where a run goes on, or something went wrong, that is said already.
        let is_through = matches!(worked, Ok(()) | Err(Stop::Asked)) && !self.stake.has_run();
        match self.end(is_through) {
            Ok(given_back) => {
                night.state().summary.not_given_back.extend(given_back.failed.iter().map(|what| format!("{id} {what}")));
                night.given_back(&id, given_back);
                self.session.detach();
                night.emit(Event::DeviceReleased { device: id.clone() });
            }
            Err(why) if is_through => {
                let what = "its keeper does that by itself when nobody has come for ten minutes, and the next `run` drops what is stored here";
                let message = format!("device `{id}` was not given back ({why}): {what}");
                night.emit(Event::Warning { message });
            }
            Err(_) => {}
        }
        night.emit(Event::DeviceDone { device: id });
    }

    /// End the session, over another link if need be, for which nobody waits for long: what was given back, or in words why nothing was.
    fn end(&mut self, is_through: bool) -> Result<GivenBack, String> {
        match self.session.give_back() {
            Err(DeviceError::LinkLost { reason, .. }) if is_through && !self.is_left => {
                self.stake = Stake::Nothing;
                match self.reconnect(&reason) {
                    Ok(()) => self.session.give_back().map_err(|e| e.to_string()),
                    Err(Stop::Device(e)) => Err(e.to_string()),
                    Err(_) => Err(reason),
                }
            }
            ended => ended.map_err(|e| e.to_string()),
        }
    }

    fn run_all(&mut self, todo: Vec<PlannedJob>) -> Result<(), Stop> {
        // Of the pass that is on.
        let mut disturbed: Vec<PlannedJob> = Vec::new();
        self.left = Some(todo.len());
        for job in todo {
            if disturbed.first().is_some_and(|first| self.pass(first) != self.pass(&job)) {
                self.repeat(std::mem::take(&mut disturbed))?;
            }
            if self.line.night.is_at_limit() {
                break;
            }
            self.left = self.left.map(|left| left - 1);
            self.run(&job)?;
            disturbed.extend(self.disturbed(&job));
        }
        self.repeat(disturbed)
    }

    /// What tells the passes of a night apart: the group of arms and the turn through it.
    fn pass(&self, job: &PlannedJob) -> (ArmGroup<'_>, u32) {
        (self.plan.points[job.slot.point].group(), job.slot.pass)
    }

    /// Make disturbed runs again, in their order, and those again that are disturbed once more, as often as the campaign says.
    fn repeat(&mut self, mut disturbed: Vec<PlannedJob>) -> Result<(), Stop> {
        let plan = Arc::clone(&self.plan);
        let retries = |job: &PlannedJob| plan.points[job.slot.point].settings.retry_contaminated;
        for _ in 0..disturbed.iter().map(retries).max().unwrap_or(0) {
            if disturbed.is_empty() || self.line.night.is_at_limit() {
                break;
            }
            self.line.emit(Event::Repeating { device: self.line.device.id.clone(), runs: disturbed.len() });
            let jobs = std::mem::take(&mut disturbed);
            self.left = self.left.map(|left| left + jobs.len());
            for job in jobs {
                if self.line.night.is_at_limit() {
                    return Ok(());
                }
                self.left = self.left.map(|left| left - 1);
                let begun = self.run(&job)?;
                self.line.night.state().summary.repeated += usize::from(begun);
                disturbed.extend(self.disturbed(&job));
            }
        }
        Ok(())
    }

    /// The job of a run that was just made, if something else disturbed that and it is to be repeated.
    fn disturbed(&self, job: &PlannedJob) -> Option<PlannedJob> {
        let (plan, state, dir) = (&self.plan, self.line.night.state(), &self.line.night.results.dir);
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

    /// Wait for a run; should we leave before it ends, the summary says so.
    pub(super) fn follow(&mut self, run_id: &str, job_id: &str, deadline: Duration) -> Result<Ended, Stop> {
        self.line.night.state().left_running.insert(job_id.to_owned());
        let ended = self.wait(run_id, deadline);
        self.beside = self.quiet_since.take().map(Since::until_now);
        self.line.night.crew.set_quiet(&self.line.device.id, false);
        if !matches!(ended, Err(Stop::Asked)) {
            self.line.night.state().left_running.remove(job_id);
        }
        ended
    }

    /// Let the device drop a run; one that it doesn't know any more is dropped.
    pub(super) fn forget(&mut self, run_id: &str, sha256: &str) -> Result<(), Stop> {
        self.asking(|session| match session.forget(run_id, sha256) {
            Err(e) if e.is_unknown_run() => Ok(()),
            other => other,
        })
    }

    /// Run one job to its record.
    ///
    /// False: as many as may be begun have been.
    fn run(&mut self, job: &PlannedJob) -> Result<bool, Stop> {
        let night = self.line.night;
        let mut turn = self.line.turn()?;
        night.check()?;
        self.stake = Stake::Jobs;
        self.beside = None;
        let plan = Arc::clone(&self.plan);
        let point = &plan.points[job.slot.point];
        let Some(report) = night.report(&self.line.device.id) else { return Ok(true) };
        let Some(mut manifest) = manifest::manifest(&night.constants, job, point, &report) else { return Ok(true) };
        if let Some((by, reason)) = night.dominated(point, job.slot.kind) {
            return self.skip(manifest, &format!("{by} failed: {}", reason.name()), Reason::Dominated).map(|()| true);
        }
        let needs = needs(point);
        if self.doom.is_certain(&needs) {
            let message = &format!("three runs have failed here for want of what this one needs too: {needs}");
            return self.skip(manifest, message, Reason::Precondition).map(|()| true);
        }
        if !night.begin_job() {
            return Ok(false);
        }
        self.needs = Some(needs);
        let spec = manifest::spec(point, &manifest, &report, &night.campaign.secrets, night.options.force);
        let deadline = Duration::from_millis(manifest::deadline_ms(&spec));
        // A valid record of a job that has to run all the same is of something else, such as another library.
        let valid = if job.state.is_answered() { Valid::Stays } else { Valid::Yields };
        let mut deaths = 0;
        let (run_id, reason, message) = loop {
            manifest.clock = self.clock()?;
            self.run_boot = self.boot();
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
            self.stake = Stake::Run { until: Instant::now() + deadline + OVERDUE };
            let ended = match self.start(start) {
                // Of an earlier controller, by another name of this machine, which sees to it in its own turn.
                Err(Stop::Device(e)) if e.is_busy() && self.shares_its_machine() => {
                    self.stake = Stake::Jobs;
                    drop(turn);
                    self.line.rest()?;
                    turn = self.line.turn()?;
                    continue;
                }
                started => started?,
            };
            let ended = match ended {
                Some(ended) => ended,
                None => {
                    // It is executing, in whichever boot this is; a clock that was asked in another one tells nothing of it.
                    let boot = self.boot();
                    manifest.clock = manifest.clock.filter(|_| boot == self.run_boot);
                    self.run_boot = boot;
                    self.follow(&run_id, &job.id, deadline)?
                }
            };
            self.stake = Stake::Jobs;
            match ended {
                Ended::Sealed { bytes, sha256 } => {
                    self.store(&run_id, bytes, &sha256, manifest, valid)?;
                    self.line.night.state().summary.ran += 1;
                    return self.supersede(job, &run_id).map(|()| true);
                }
                Ended::Unsealed { reason } => break (run_id, Reason::Internal, format!("the device could not write the result: {reason}")),
                Ended::Lost { reason, restarted } => match self.lost(&run_id, &manifest, reason, restarted)? {
                    Lost::Recorded(Reason::Interrupted) => manifest.attempt += 1,
                    Lost::Recorded(_) => {
                        self.line.night.state().summary.ran += 1;
                        return self.supersede(job, &run_id).map(|()| true);
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
        self.supersede(job, &run_id)?;
        self.dismiss(&run_id, "").map(|()| true)
    }

    fn shares_its_machine(&self) -> bool {
        self.line.machine.as_ref().is_some_and(|machine| self.line.night.crew.is_shared(&self.line.device.id, machine))
    }

    /// A record of a job without a result.
    pub(super) fn without_result(&self, manifest: Manifest, run_id: &str, reason: Reason, message: String) -> Record {
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
        self.attach(&start.run_id)
    }

    /// Libraries that a run had mapped are files of its point from now on.
    fn learn_libraries(&mut self, ran: Vec<RanFile>, base: &str) {
        let libraries = ran.into_iter().filter(|file| file.role == RanRole::Library);
        let answers = libraries.map(|library| (files::library(&library.file.path, base).key, FileAnswer::Found(vec![library.file])));
        self.line.night.learn_files(&self.line.device.id, answers);
    }

    /// Fetch a sealed result, make its record, write it, and only then let the device forget it.
    pub(super) fn store(&mut self, run_id: &str, bytes: u64, sha256: &str, manifest: Manifest, valid: Valid) -> Result<(), Stop> {
        let job_id = manifest.job_id.clone();
        self.stake = Stake::Result;
        self.line.night.state().left_running.insert(job_id.clone());
        let stored = self.fetch(run_id, bytes, sha256, manifest, valid);
        if !matches!(stored, Err(Stop::Asked)) {
            self.line.night.state().left_running.remove(&job_id);
        }
        if !stored? {
            return Ok(());
        }
        self.dismiss(run_id, sha256)
    }

    /// Let the device drop a run whose record is stored. Where nothing else is to be done there, it is not waited for long.
    pub(super) fn dismiss(&mut self, run_id: &str, sha256: &str) -> Result<(), Stop> {
        self.stake = if self.left == Some(0) || self.line.night.is_at_limit() { Stake::Nothing } else { Stake::Jobs };
        match self.forget(run_id, sha256) {
            // The next `run` does it.
            Err(Stop::Asked) => Ok(()),
            Err(Stop::Device(e)) if self.stake == Stake::Nothing && e.is_transient() => {
                self.is_left = true;
                Ok(())
            }
            other => other,
        }
    }

    /// False: the result stays where it is.
    fn fetch(&mut self, run_id: &str, bytes: u64, sha256: &str, manifest: Manifest, valid: Valid) -> Result<bool, Stop> {
        let (label, device) = (manifest.label.clone(), self.line.device.id.clone());
        let is_known = self.line.night.state().scan.entries.iter().any(|e| e.run_id == run_id);
        if !is_known {
            let mut result = Vec::new();
            while self.asking(|session| session.collect_more(run_id, bytes, sha256, &mut result))? {}
            self.line.night.crew.work(&device)?;
            let result = match assemble::result(&result, run_id) {
                Ok(result) => result,
                Err(newer @ Unread::Newer { .. }) => {
                    let message = format!("the result of run {run_id} stays on device `{device}`: {newer}");
                    self.line.emit(Event::Warning { message });
                    return Ok(false);
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
        Ok(true)
    }

    /// Write a record and say so.
    pub(super) fn keep(&mut self, mut record: Record, label: String, valid: Valid) -> Result<(), Stop> {
        self.line.night.crew.work(&self.line.device.id)?;
        let written = self.line.night.results.write(&mut record, valid)?;
        let event = finished(&record, label, written.entry.path.clone());
        self.line.night.note_failure(&record);
        if let (Some(needs), true) = (&self.needs, record.status != Status::Skipped) {
            self.doom.note(needs, lacks_something(&record));
        }
        self.line.night.state().scan.put(written);
        self.line.emit(event);
        Ok(())
    }
}

/// What a point needs of its device, in words: its program and its model.
fn needs(point: &Point) -> String {
    let program = match &point.work {
        Work::Command(command) => command.argv.first().cloned().unwrap_or_default(),
        Work::LlamaBench(work) => work.program.clone(),
        Work::LlamaServer(work) => work.program.clone(),
        Work::Builtin { .. } => "builtin".to_owned(),
        Work::Later => String::new(),
    };
    point.model.as_ref().map_or(program.clone(), |model| format!("{program} and {}", model.path))
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
    let mut part = DeviceNight::of(line, session);
    // What has to stay in its spool is said by the next one.
    let collected = part.collect_spool();
    let DeviceNight { mut line, session, .. } = part;
    let ended = session.end();
    collected?;
    night.given_back(&line.device.id, ended?);
    let (session, given_back) = line.open(false)?;
    night.given_back(&line.device.id, given_back);
    Ok((line, session))
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
