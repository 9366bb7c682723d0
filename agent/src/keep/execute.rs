//! One run from preparation to its sealed result. From the spawn of the workload to its exit nothing is sent and no file is written.

use super::Keeper;
use crate::capture::{Capture, KEPT_BYTES};
use crate::contain::{self, Deadline, Ended, Keep, Launch, Mark};
use crate::inspect::files::Stat;
use crate::inspect::links::Links;
use crate::load::{Census, lookout};
use crate::looking::Looking;
use crate::sampler::{self, Idle, Sampler, Sources};
use crate::task::process::{Invocation, environment, invocation};
use crate::{dirs, gpu, heat, inspect, prepare, settle, sys};
use isotherm_wire::limits::{OnSensorLoss, SILENT_NS};
use isotherm_wire::result::{Captured, CollectedFile, Executed, Outcome, PrepareStep, RunResult, StepOutcome, Times, WarmupInvocation};
use isotherm_wire::served::ServeOutput;
use isotherm_wire::session::{Event, Phase, Start};
use isotherm_wire::settle::{OnTimeout, Rule, Verdict};
use isotherm_wire::task::{Instruments, RunSpec, Secrets, Step, Task, WatchedFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Output kept of each end of a warm-up invocation.
const WARMUP_KEPT_BYTES: usize = 64 << 10;
/// A file that is collected from a run may be this large; its ends are kept, all of it is hashed.
const MOST_COLLECTED_BYTES: u64 = 1 << 30;
/// Between two looks at energy instruments during a fixed wait, ns.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// Memory for samples set aside before a run starts; a longer run takes more as it goes.
const MOST_EXPECTED_SAMPLES: usize = 6000;

pub(super) fn execute(keeper: &Keeper, start: &Start, cancelled: &File) {
    let run_id = &start.run_id;
    contain::reap_leftovers();
    let result = Run::new(keeper, start, cancelled).execute();
    if !result.containment.survivors.is_empty() {
        keeper.state().quarantine.hold(run_id, &result.containment.survivors);
    }
    let sealed = keeper.spool.seal(&result);
    let event = match sealed {
        Ok((bytes, sha256)) => Event::Sealed { run_id: run_id.clone(), bytes, sha256 },
        Err(e) => Event::SealFailed { run_id: run_id.clone(), message: e.to_string() },
    };
    {
        let mut state = keeper.state();
        if let Event::SealFailed { message, .. } = &event {
            state.unsealed.insert(run_id.clone(), message.clone());
        }
        state.current = None;
        state.idle_since_ns = sys::boottime_ns();
    }
    keeper.tell(run_id, event);
}

/// A run on its way: what is known so far becomes its result whatever happens.
struct Run<'a> {
    keeper: &'a Keeper,
    start: &'a Start,
    spec: &'a RunSpec,
    cancelled: &'a File,
    scratch: PathBuf,
    result: RunResult,
    suspended_before_ns: u64,
}

impl<'a> Run<'a> {
    fn new(keeper: &'a Keeper, start: &'a Start, cancelled: &'a File) -> Run<'a> {
        let spec = &start.spec;
        let scratch = keeper.dirs.scratch().join(&start.run_id);
        let executed = Executed {
            argv: Vec::new(),
            env: environment(spec, &start.run_id, &scratch),
            cwd: dirs::expand_home(&spec.cwd).display().to_string(),
            affinity: spec
                .cpus
                .clone()
                .map(|cpus| cpus.iter().map(|&cpu| cpu as usize).collect())
                .or_else(sys::affinity)
                .map(|cpus| sys::cpu_list(&cpus)),
            nice: Some(sys::nice()),
        };
        let accepted_ns = sys::monotonic_ns();
        let machine = keeper.machine();
        let result = RunResult {
            times: Times { start_unix_ns: sys::realtime_ns(), accepted_ns, ..Times::default() },
            executed,
            stdout: Capture::new(0).finish(),
            stderr: Capture::new(0).finish(),
            ..RunResult::unexecuted(start.run_id.clone(), start.manifest.clone(), keeper.facts.clone(), machine)
        };
        Run { keeper, start, spec, cancelled, scratch, result, suspended_before_ns: sys::suspended_ns() }
    }

    fn execute(mut self) -> RunResult {
        self.result.outcome = self.stages().unwrap_or_else(|stopped| stopped);
        self.keeper.enter(&self.start.run_id, Phase::Collect);
        if self.result.times.spawn_ns.is_some() {
            self.result.changed_inputs = changed(&self.spec.watched);
        }
        let _ = fs::remove_dir_all(&self.scratch);
        let times = &mut self.result.times;
        times.end_unix_ns = sys::realtime_ns();
        times.suspended_ns = sys::suspended_ns().saturating_sub(self.suspended_before_ns);
        self.result
    }

    /// The run's stages in order; `Err` = it stops here, with this outcome.
    fn stages(&mut self) -> Result<Outcome, Outcome> {
        let agent_error = |what: &str, e: &dyn std::fmt::Display| Outcome::AgentError { message: format!("{what}: {e}") };
        let invocation = invocation(&self.spec.task).map_err(|e| agent_error("task", &e))?;
        self.result.executed.argv.clone_from(&invocation.executed);
        self.check_cpus()?;
        // What hung in an earlier run may have recovered; whoever hangs again does it ahead of the window.
        sampler::lock(self.keeper.sensors()).try_again();
        self.check_instruments()?;
        self.check_sensor()?;
        let waits = self.spec.settle.is_some() || self.spec.settle_ms > 0 || !self.spec.prepare.is_empty();
        let lookout = waits.then(lookout::watch);
        self.prepare()?;
        // What the run is measured under, not what it found.
        self.result.machine.governor = inspect::machine::governor(Path::new("/"));
        self.check_memory()?;
        fs::create_dir_all(&self.scratch).map_err(|e| agent_error(&format!("making {}", self.scratch.display()), &e))?;
        self.settle()?;
        self.result.pre_run = lookout.and_then(Result::ok).and_then(Looking::stop).flatten();
        self.result.changed_inputs = changed(&self.spec.watched);
        if !self.result.changed_inputs.is_empty() {
            return Err(Outcome::InputChanged);
        }
        self.warm_up(&invocation)?;
        let stats: Vec<Option<Stat>> = invocation.collect.iter().map(|f| stat(&self.in_cwd(f)).ok()).collect();
        let outcome = self.measure(&invocation)?;
        for (asked, before) in invocation.collect.iter().zip(stats) {
            let file = collect(&self.in_cwd(asked), before, &self.spec.secrets);
            self.result.files.insert(asked.clone(), file);
        }
        Ok(outcome)
    }

    /// CPUs that the run asks for and this process may not use.
    fn check_cpus(&self) -> Result<(), Outcome> {
        let (Some(wanted), Some(allowed)) = (&self.spec.cpus, sys::affinity()) else { return Ok(()) };
        let absent: Vec<usize> = wanted.iter().map(|&cpu| cpu as usize).filter(|cpu| !allowed.contains(cpu)).collect();
        if absent.is_empty() {
            return Ok(());
        }
        let message = format!("CPUs {} are not there or not allowed: the device allows {}", sys::cpu_list(&absent), sys::cpu_list(&allowed));
        Err(Outcome::Unmet { message })
    }

    /// From here on energy is measured or left alone, as the run asks.
    fn check_instruments(&self) -> Result<(), Outcome> {
        let sensors = self.keeper.sensors().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sensors.read_instruments(self.spec.instruments.are_read());
        match sensors.no_instrument() {
            Some(why) if self.spec.instruments == Instruments::Required => {
                Err(Outcome::Unmet { message: format!("no energy instrument can be read here: {why}") })
            }
            _ => Ok(()),
        }
    }

    /// A temperature that is limited, and that nothing here tells; where a run is to stop for that, nothing now.
    fn check_sensor(&mut self) -> Result<(), Outcome> {
        let Some(limits) = self.spec.limits else { return Ok(()) };
        let mut sensors = sampler::lock(self.keeper.sensors());
        let message = match (sensors.headline(), limits.on_sensor_loss) {
            (None, _) => "no sensor here speaks for the CPU, whose temperature is limited".to_owned(),
            (Some(_), OnSensorLoss::Continue) => return Ok(()),
            (Some(sensor), OnSensorLoss::Stop) => match sensors.temperature(&sensor) {
                Ok(_) => return Ok(()),
                Err(why) => format!("{sensor} can't be read ({why}), and its temperature is limited"),
            },
        };
        self.result.unwatched = Some(message.clone());
        match limits.on_sensor_loss {
            OnSensorLoss::Continue => Ok(()),
            OnSensorLoss::Stop => Err(Outcome::Unmet { message }),
        }
    }

    /// What is to be done to the device before the run. It stops for a cancel, and for a change of the machine that doesn't end.
    fn prepare(&mut self) -> Result<(), Outcome> {
        let mut preparation = self.keeper.preparation.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !preparation.has_work(self.spec) {
            return Ok(());
        }
        self.keeper.enter(&self.start.run_id, Phase::Prepare);
        self.result.times.prepare_start_ns = Some(sys::monotonic_ns());
        let is_cancelled = || sys::poll_readable(&[self.cancelled.as_raw_fd()], Some(0))[0];
        let ended = preparation.before_run(&self.spec.prepare, is_cancelled, &mut self.result.prepare);
        self.result.times.prepare_end_ns = Some(sys::monotonic_ns());
        ended.map_err(|ended| match ended {
            prepare::Ended::Cancelled => Outcome::Cancelled { wait_status: None },
            prepare::Ended::Hangs(what) => Outcome::AgentError { message: what },
        })
    }

    /// A model that hardly fits drives the machine into swap and takes others down with it.
    fn check_memory(&self) -> Result<(), Outcome> {
        let Some(needed) = self.spec.needs_bytes else { return Ok(()) };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let limit = self.result.machine.limits.memory_bytes;
        // What can't be told is no reason to refuse.
        let Some(available) = [inspect::machine::kib(&meminfo, "MemAvailable"), limit].into_iter().flatten().min() else { return Ok(()) };
        if needed <= available {
            return Ok(());
        }
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let message = format!("{} MiB of memory are needed for the model, and {} MiB are available", mib(needed), mib(available));
        Err(Outcome::Unmet { message })
    }

    /// The environment with its secrets; only for the workload.
    fn environment(&self) -> BTreeMap<String, String> {
        let mut env = self.result.executed.env.clone();
        for (name, secret) in &self.spec.secrets.0 {
            let token = Secrets::token(name);
            env.values_mut().filter(|value| value.contains(&token)).for_each(|value| *value = value.replace(&token, secret));
        }
        env
    }

    fn in_cwd(&self, path: &str) -> PathBuf {
        Path::new(&self.result.executed.cwd).join(path)
    }

    /// Wait before the run; a cancel ends it.
    fn settle(&mut self) -> Result<(), Outcome> {
        self.keeper.enter(&self.start.run_id, Phase::Settle);
        self.result.times.settle_start_ns = Some(sys::monotonic_ns());
        let mut idle = Idle::default();
        let ended = match self.spec.settle {
            Some(rule) => self.wait_until_settled(rule, &mut idle),
            None => self.wait_for_settle_ms(&mut idle),
        };
        self.result.idle = idle.series();
        if !matches!(ended, Err(Outcome::Cancelled { .. })) {
            self.result.times.settle_end_ns = Some(sys::monotonic_ns());
        }
        ended
    }

    fn wait_until_settled(&mut self, rule: Rule, idle: &mut Idle) -> Result<(), Outcome> {
        let (keeper, run_id) = (self.keeper, &self.start.run_id);
        let mut sources = Sources::open(Path::new("/"));
        let is_set = |step: &PrepareStep| step.step == Step::Frequency && matches!(step.outcome, StepOutcome::Done | StepOutcome::Skipped);
        let session = &mut *keeper.settling().lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let wait = settle::Wait {
            gpus: session.usage.of(self.spec, self.result.machine.gpus.iter().map(|gpu| gpu.subject.as_str())),
            session,
            snapshot: &mut || {
                let snapshot = keeper.snapshot(&mut sources);
                idle.add(&snapshot);
                snapshot
            },
            limits_are_set: self.result.prepare.iter().any(is_set),
            cancelled: self.cancelled.as_raw_fd(),
            told: &mut |celsius, limit| {
                let mc = |celsius: f64| (celsius * 1e3).round() as i64;
                let (temperature_mc, limit_mc) = (celsius.map(mc), limit.map(mc));
                keeper.tell(run_id, Event::Settling { run_id: run_id.clone(), temperature_mc, limit_mc });
            },
        };
        let evidence = self.result.settle.insert(settle::wait(wait, rule));
        match evidence.verdict {
            None => Err(Outcome::Cancelled { wait_status: None }),
            Some(Verdict::TimedOut) if rule.on_timeout != OnTimeout::Flag => Err(Outcome::Unsettled),
            Some(_) => Ok(()),
        }
    }

    fn wait_for_settle_ms(&self, idle: &mut Idle) -> Result<(), Outcome> {
        let looks = self.spec.instruments.are_read() && self.spec.settle_ms > 0;
        let mut look = || {
            if looks {
                idle.add(&self.keeper.snapshot(&mut Sources::default()));
            }
        };
        // The wait lies between the first look and the last one, so that what was seen is as long as what was asked for.
        look();
        let until = sys::boottime_ns() + sys::limit_ns(self.spec.settle_ms);
        loop {
            let left = until.saturating_sub(sys::boottime_ns());
            if sys::poll_readable(&[self.cancelled.as_raw_fd()], Some(if looks { left.min(LOOK_EVERY_NS) } else { left }))[0] {
                return Err(Outcome::Cancelled { wait_status: None });
            }
            let is_over = sys::boottime_ns() >= until;
            look();
            if is_over {
                return Ok(());
            }
        }
    }

    fn warm_up(&mut self, invocation: &Invocation) -> Result<(), Outcome> {
        if invocation.warmup == 0 {
            return Ok(());
        }
        self.keeper.enter(&self.start.run_id, Phase::Warmup);
        self.result.times.warmup_start_ns = Some(sys::monotonic_ns());
        for index in 0..invocation.warmup {
            let (mut ended, _) = self.invoke(invocation, WARMUP_KEPT_BYTES, None)?;
            let outcome = outcome(&ended);
            let (stdout, stderr) = take_output(&mut ended);
            // Whether an exit code is a good one is for the campaign to say, of the measured invocation; a signal never is.
            let well = matches!(outcome, Outcome::Exited { wait_status } if wait_status & 0x7f == 0);
            if !well {
                // What it printed tells why: keep it where a failed run's words are looked for.
                (self.result.stdout, self.result.stderr) = (stdout.clone(), stderr.clone());
            }
            self.result.warmup.push(WarmupInvocation {
                wait_status: ended.wait_status,
                spawn_ns: ended.spawn_ns.unwrap_or(0),
                exit_ns: ended.exit_ns.unwrap_or(0),
                stdout,
                stderr,
            });
            match outcome {
                // The measured invocation would run beside it.
                _ if !ended.survivors.is_empty() => {
                    return Err(Outcome::AgentError { message: format!("a process of warm-up {} can't be ended", index + 1) });
                }
                _ if well => {}
                Outcome::Exited { wait_status } => return Err(Outcome::WarmupFailed { index, wait_status: Some(wait_status) }),
                Outcome::TimedOut { .. } => return Err(Outcome::WarmupFailed { index, wait_status: None }),
                stopped => return Err(stopped),
            }
        }
        self.result.times.warmup_end_ns = Some(sys::monotonic_ns());
        Ok(())
    }

    fn measure(&mut self, invocation: &Invocation) -> Result<Outcome, Outcome> {
        let agent_error = |what: &str, e: &dyn std::fmt::Display| Outcome::AgentError { message: format!("{what}: {e}") };
        let mut sources = Sources::open(Path::new("/"));
        self.result.before = self.keeper.snapshot(&mut sources);
        let gpus = self.keeper.gpus();
        gpus.begin();
        self.result.machine.gpus = gpus.gpus();
        self.result.clocking_before = inspect::clocking::read(Path::new("/"));
        let expected = (self.spec.timeout_ms as f64 / 1000.0 * self.spec.sample_hz) as usize;
        self.keeper.enter(&self.start.run_id, Phase::Measure);
        let census = Census::take(Path::new("/"));
        // Last, so that as little as possible of what told of the window is in it.
        let links = Links::read(Path::new("/"));
        // The window: from here to the exit nothing is sent and nothing is written.
        let expected = expected.min(MOST_EXPECTED_SAMPLES) + 2;
        let sampler = Sampler::start(sources, self.keeper.sensors(), self.spec.sample_hz, expected).map_err(|e| agent_error("sampler", &e))?;
        let invoked = self.invoke(invocation, invocation.keep, Some(&sampler));
        (self.result.samples, self.result.observer) = sampler.stop();
        self.result.observer.link_packets = links.and_then(|before| Links::read(Path::new("/"))?.since(&before));
        self.result.cpu_time = census.and_then(|before| Census::take(Path::new("/"))?.since(&before));
        self.result.instruments = self.keeper.instruments_read();
        self.result.gpu_processes = gpus.processes();
        if invoked.as_ref().is_ok_and(|(ended, _)| ended.spawn_ns.is_some()) {
            // Ahead of what is done with its files: meanwhile the device cools, and reading them may cost others their memory.
            self.result.after = self.keeper.snapshot(&mut Sources::open(Path::new("/")));
            self.result.clocking_after = inspect::clocking::read(Path::new("/"));
        }
        let (mut ended, mapped) = invoked?;
        let outcome = outcome(&ended);
        (self.result.stdout, self.result.stderr) = take_output(&mut ended);
        if let Task::Serve(_) = self.spec.task {
            let output = serde_json::from_str::<ServeOutput>(&self.result.stdout.head.data).ok();
            let own = inspect::resident::peak(None, output.and_then(|output| output.peak_rss_bytes));
            self.result.peak_rss = self.result.peak_rss.into_iter().chain(own).max_by_key(|peak| peak.bytes);
        }
        self.result.usage = ended.usage.take();
        let times = &mut self.result.times;
        (times.spawn_ns, times.exit_ns, times.drained_ns) = (ended.spawn_ns, ended.exit_ns, ended.drained_ns);
        let mut hashes = self.keeper.hashes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.result.mapped = mapped.iter().filter_map(|path| hashes.fact(path).ok()).collect();
        self.keeper.settling().lock().unwrap_or_else(std::sync::PoisonError::into_inner).usage.learn(self.spec, &self.result);
        Ok(outcome)
    }

    /// One invocation, contained; a sample is taken at its marks. With it the files that it had mapped from outside the system.
    fn invoke(&mut self, invocation: &Invocation, keep: usize, sampler: Option<&Sampler>) -> Result<(Ended, BTreeSet<PathBuf>), Outcome> {
        let cgroup = self.keeper.containment.cgroup.then(|| contain::make_cgroup(&self.start.run_id).ok()).flatten();
        let launch = Launch {
            argv: invocation.argv.clone(),
            env: self.environment(),
            cwd: self.result.executed.cwd.clone(),
            stdin: invocation.stdin.clone(),
            grace_ms: self.spec.grace_ms,
            cgroup: cgroup.as_ref().map(|c| c.display().to_string()),
            cpus: self.spec.cpus.clone(),
        };
        let keep = Keep { bytes: keep, secrets: &self.spec.secrets, stamps: invocation.stamp_lines && sampler.is_some() };
        let deadline = Deadline { timeout_ns: sys::limit_ns(self.spec.timeout_ms), grace_ns: sys::limit_ns(self.spec.grace_ms) };
        let (mut mapped, mut drm, mut resident) = (None, None, None);
        let level = self.result.containment.level;
        let mut heat = self.spec.limits.and_then(|limits| heat::Watch::open(self.keeper.sensors(), limits));
        let ended = contain::run(&launch, level, deadline, self.cancelled.as_raw_fd(), keep, heat.as_mut(), &mut |mark| {
            // What a counter says at the edges is what the run took.
            sampler.inspect(|sampler| sampler.mark());
            if let (Mark::Spawned(init), Task::Process(_) | Task::Serve(_)) = (mark, &self.spec.task) {
                // The builtin engine maps nothing but the agent.
                mapped = inspect::mapped::watch(init).ok();
                drm = gpu::drm::watch(init).and_then(Result::ok);
                // And is one process, whose peak the kernel knows.
                resident = inspect::resident::watch(init, level, &self.spec.task).ok();
            }
        });
        if let Some(sensor) = heat.as_ref().and_then(heat::Watch::lost) {
            self.result.unwatched = Some(format!("{sensor} gave no value for {} s", SILENT_NS / 1_000_000_000));
        }
        let mapped = mapped.and_then(Looking::stop).unwrap_or_default();
        // Of warm-up invocations, too; the measured one is the last.
        self.result.drm = drm.and_then(Looking::stop).unwrap_or_default();
        let resident = resident.and_then(Looking::stop).flatten();
        if cgroup.is_some() {
            contain::end_cgroup(&self.start.run_id);
        }
        let ended = ended.map_err(|e| Outcome::AgentError { message: format!("containing the workload: {e}") })?;
        // Who asks a server has waited for it, so that one number is that of both: the server's own stands in the output.
        let process = ended.usage.as_ref().filter(|_| !matches!(self.spec.task, Task::Serve(_))).map(|usage| usage.max_rss_bytes);
        self.result.peak_rss = inspect::resident::peak(resident, process).filter(|_| sampler.is_some());
        let containment = &mut self.result.containment;
        containment.cgroup = launch.cgroup;
        containment.ended += ended.ended;
        containment.survivors.extend(ended.survivors.iter().cloned());
        Ok((ended, mapped))
    }
}

fn outcome(ended: &Ended) -> Outcome {
    let wait_status = ended.wait_status;
    if let Some((message, errno)) = &ended.spawn_failed {
        return Outcome::SpawnFailed { message: message.clone(), errno: *errno };
    }
    if let Some(message) = &ended.launch_failed {
        return Outcome::AgentError { message: format!("containing the workload: {message}") };
    }
    match &ended.heat {
        Some(heat::Stop::TooHot { sensor, celsius }) => {
            return Outcome::TooHot { wait_status, sensor: sensor.clone(), temperature_mc: (celsius * 1e3).round() as i64 };
        }
        Some(heat::Stop::SensorLost) => return Outcome::SensorLost { wait_status },
        None => {}
    }
    match wait_status {
        _ if ended.cancelled => Outcome::Cancelled { wait_status },
        _ if ended.timed_out => Outcome::TimedOut { wait_status },
        _ if ended.thrashed => Outcome::Thrashed { wait_status },
        Some(wait_status) => Outcome::Exited { wait_status },
        None => Outcome::AgentError { message: "the run's first process was ended from outside; everything below it has been ended too".into() },
    }
}

fn take_output(ended: &mut Ended) -> (Captured, Captured) {
    let take = |capture: Option<Capture>| capture.unwrap_or_else(|| Capture::new(0)).finish();
    (take(ended.stdout.take()), take(ended.stderr.take()))
}

/// Watched files that are not what was hashed, with what is different.
fn changed(watched: &[WatchedFile]) -> Vec<String> {
    let difference = |file: &WatchedFile| match fs::metadata(&file.path) {
        Err(e) => Some(format!("{}: {e}", file.path)),
        Ok(meta) => {
            let now = Stat::of(&meta);
            let same = (now.bytes, now.mtime_ns, now.inode) == (file.bytes, file.mtime_ns, file.inode);
            (!same).then(|| format!("{}: was written or replaced", file.path))
        }
    };
    watched.iter().filter_map(difference).collect()
}

fn stat(path: &Path) -> std::io::Result<Stat> {
    fs::metadata(path).map(|meta| Stat::of(&meta))
}

/// A file the run was to write; the one from before the run doesn't count.
fn collect(path: &Path, before: Option<Stat>, secrets: &Secrets) -> CollectedFile {
    match stat(path) {
        Err(e) => CollectedFile::Missing(e.to_string()),
        Ok(now) if Some(&now) == before.as_ref() => CollectedFile::NotWritten,
        Ok(_) => {
            let read = || -> std::io::Result<Captured> {
                let mut file = sys::open_regular(path)?;
                if file.metadata()?.len() > MOST_COLLECTED_BYTES {
                    return Err(std::io::Error::other(format!("larger than {MOST_COLLECTED_BYTES} bytes")));
                }
                let mut capture = Keep { bytes: KEPT_BYTES, secrets, stamps: false }.capture();
                let mut chunk = vec![0; 64 << 10];
                loop {
                    match file.read(&mut chunk)? {
                        0 => return Ok(capture.finish()),
                        n => capture.push(&chunk[..n]),
                    }
                }
            };
            read().map_or_else(|e| CollectedFile::Missing(e.to_string()), CollectedFile::Written)
        }
    }
}
