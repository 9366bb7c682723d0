//! First contact of a night with a device: what it is, what it has for us, what is to be done there.

use super::device_night::DeviceNight;
use super::event::Event;
use super::push;
use super::reparse::{self, ReadAnew, Reparsed, Target};
use super::{RunError, Stop, UnknownOption};
use crate::backend;
use crate::clock;
use crate::device::Session;
use crate::plan::identity::{DeviceReport, REPORT_VERSION};
use crate::plan::power;
use crate::plan::{JobState, PlannedJob, Work, diff, files};
use crate::store::Broken;
use indexmap::IndexMap;
use isotherm_wire::inspect::{FileAnswer, FileQuery, FileRole, MOST_SAID_BYTES, ProgramQuery};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

impl DeviceNight<'_, '_> {
    /// The turn is ours: what the machine is, what it has for us, what is to be done.
    pub(super) fn prepared(&mut self) -> Result<Vec<PlannedJob>, Stop> {
        self.inspect()?;
        if !self.line.night.options.dry_run {
            for message in self.collect_spool()? {
                self.line.emit(Event::Warning { message });
            }
        }
        self.find_out_polling()?;
        if !self.line.night.options.dry_run {
            self.read_again()?;
        }
        let jobs = self.jobs();
        let plan = Arc::clone(&self.plan);
        // Left over from a night that ended between a record and the move of the one it replaces.
        for job in jobs.iter().filter(|j| j.state.is_answered() && !self.line.night.options.dry_run) {
            self.line.night.supersede(&job.outdated)?;
        }
        let unread = |job: &PlannedJob| matches!(job.state, JobState::Reread { .. }) && !self.line.night.options.dry_run;
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

    /// Models that aren't there, said before the jobs that need them fail one by one.
    fn missing(&self, todo: &[PlannedJob]) -> Vec<String> {
        let Some(report) = self.line.night.report(&self.line.device.id) else { return Vec::new() };
        let plan = Arc::clone(&self.plan);
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
        let (plan, report) = (&self.plan, self.line.night.report(&self.line.device.id));
        let points = plan.points.iter().filter(|point| point.ids.device == self.line.device.id && point.is_built());
        let told: BTreeSet<String> = points.filter_map(|point| power::shortfall(point.settings.power, report.as_ref())).collect();
        told.into_iter().map(|what| format!("device `{}` has {what}; `isotherm probe` says what would mend it", self.line.device.id)).collect()
    }

    /// The jobs of this device that this invocation is about.
    fn jobs(&mut self) -> Vec<PlannedJob> {
        let night = self.line.night;
        let (plan, mut jobs) = night.jobs(&self.line.device.id);
        jobs.retain(|job| night.options.concerns(&plan, job));
        self.plan = plan;
        jobs
    }

    /// Records that were read by other rules than the campaign's are read again by these, before anything is counted.
    fn read_again(&mut self) -> Result<(), Stop> {
        let jobs = self.jobs();
        let plan = Arc::clone(&self.plan);
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
        let queries: Vec<FileQuery> = queries.into_values().collect();
        let programs: BTreeMap<String, ProgramQuery> = points.iter().flat_map(files::asked).map(|query| (query.key.clone(), query)).collect();
        let programs: Vec<ProgramQuery> = programs.into_values().collect();
        let inspected = self.asking(|session| session.inspect(queries.clone(), programs.clone()))?;
        self.line.night.crew.work(&self.line.device.id)?;
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
        let instruments = power::remembered(inspected.instruments, &earlier);
        let report = DeviceReport {
            report_version: REPORT_VERSION,
            taken_at: clock::utc_seconds(),
            machine: inspected.machine,
            engine,
            files: inspected.files.into_iter().chain(pushed).collect(),
            programs: inspected.programs,
            instruments: Some(instruments),
            clock: self.asking(Session::clock)?,
        };
        self.clock_serial = Some(self.session.serial);
        self.line.night.learn(id, report)?;
        self.check_models()?;
        self.check_options()
    }

    /// What reading its instruments does to them, where runs hang on that. Nothing of ours is executing any more.
    fn find_out_polling(&mut self) -> Result<(), Stop> {
        let (night, id) = (self.line.night, self.line.device.id.clone());
        let Some(report) = night.report(&id) else { return Ok(()) };
        let instruments = report.instruments.clone().unwrap_or_default();
        let Some(hz) = power::polling_hz(&night.possible_points(&id), &instruments) else { return Ok(()) };
        self.line.emit(Event::Polling { device: id.clone(), hz });
        match self.asking(|session| session.try_polling(hz)) {
            Ok(now) => night.learn(&id, DeviceReport { instruments: Some(power::remembered(now, &instruments)), ..report }),
            Err(Stop::Device(e)) if e.is_in_use() => {
                let message = format!("what reading the energy instruments of device `{id}` does to them was not found out: {e}");
                self.line.emit(Event::Warning { message });
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Every model that is run here has the content that the campaign declares.
    fn check_models(&self) -> Result<(), Stop> {
        let id = &self.line.device.id;
        let Some(report) = self.line.night.report(id) else { return Ok(()) };
        let plan = self.line.night.plan();
        for point in plan.points.iter().filter(|point| point.ids.device == *id) {
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

    /// Every option that points of this device ask for is one of their build's, as far as anybody wants to run them.
    fn check_options(&self) -> Result<(), Stop> {
        let id = &self.line.device.id;
        let Some(report) = self.line.night.report(id) else { return Ok(()) };
        let (plan, jobs) = self.line.night.jobs(id);
        let wanted: BTreeSet<usize> = jobs.iter().filter(|job| self.line.night.options.concerns(&plan, job)).map(|job| job.slot.point).collect();
        let mut cut = BTreeSet::new();
        for point in wanted.into_iter().map(|point| &plan.points[point]) {
            let Some(help) = files::said(point, files::HELP, &report) else { continue };
            if help.len() >= MOST_SAID_BYTES {
                let program = files::asked(point).first().map_or_else(String::new, |query| query.program.path.clone());
                if cut.insert(program.clone()) {
                    let kib = MOST_SAID_BYTES >> 10;
                    let message = format!("the help of `{program}` on device `{id}` is longer than {kib} KiB: its options are not checked");
                    self.line.emit(Event::Warning { message });
                }
                continue;
            }
            let (program, unknown) = match &point.work {
                Work::LlamaBench(work) => (&work.program, backend::llama_bench::unknown_options(work, &point.settings, help)),
                Work::LlamaServer(work) => (&work.program, backend::llama_server::unknown_options(work, help)),
                Work::Builtin { .. } | Work::Command(_) | Work::Later => continue,
            };
            if let Some(unknown) = unknown.into_iter().next() {
                let version = files::said(point, files::VERSION, &report).and_then(backend::llama_help::version);
                return Err(Stop::Option(Box::new(UnknownOption {
                    option: unknown.option,
                    nearest: unknown.nearest,
                    program: program.clone(),
                    version: version.map(str::to_owned),
                    device: id.clone(),
                })));
            }
        }
        Ok(())
    }
}
