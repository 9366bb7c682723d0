//! From a spooled result and its manifest to the record. Pure: the same result gives the same record.

use super::manifest::Manifest;
use super::paths::Roots;
use super::{clocking, context, energy, gpu, load, settle};
use crate::backend::output::NOT_WRITTEN;
use crate::backend::{self, ParseSpec, RawOutput, Reading, memory};
use crate::clock::ClockOffset;
use crate::digest::hex;
use crate::plan::identity::point_identity;
use crate::registry::Code;
use crate::store;
use crate::store::record::{
    BackendBlock, Context, DeviceBlock, DuringSummary, Ids, Issue, ModelBlock, Producer, RanFile, RanRole, Raw, RawInvocation, RawStream, Read,
    Reason, Record, SCHEMA_VERSION, Samples, Severity, Status, Time, Validity, Workload, is_run_id,
};
use hmac::{Hmac, KeyInit, Mac};
use isotherm_wire::format::Unread;
use isotherm_wire::inspect::{FileFact, Machine};
use isotherm_wire::model::ModelHeader;
use isotherm_wire::result::{AgentFacts, Captured, CollectedFile, Outcome, PrepareStep, RESULT, RunResult, StepOutcome};
use isotherm_wire::settle::OnTimeout;
use isotherm_wire::telemetry::Series;
use serde_json::Value;
use sha2::Sha256;
use std::collections::BTreeMap;
use std::time::Duration;

/// Suspended for longer than this inside a run, it measured something else.
const MOST_SUSPENDED_MS: f64 = 50.0;

/// The sealed result of a run, as it came from a device.
///
/// # Errors
/// [`Unread`]; of another run than this one, too. The run's id becomes the name of a file.
pub fn result(sealed: &[u8], run_id: &str) -> Result<RunResult, Unread> {
    let result: RunResult = RESULT.read(sealed)?;
    if result.run_id != run_id || !is_run_id(run_id) {
        return Err(Unread::Shape(format!("it is of run {:?}", result.run_id)));
    }
    Ok(result)
}

/// Make the record. `earlier_digest`: the output digest of another repetition of the same point.
#[must_use]
pub fn record(result: RunResult, manifest: Manifest, salt: &str, earlier_digest: Option<&str>) -> Record {
    let roots = roots(&result, &manifest);
    let model = manifest.model.clone().map(|model| ModelBlock { path: roots.token(&model.path), ..model });
    let (failure, mut reading) = judge(&result, &manifest, model.as_ref());
    compare_digest(&mut reading, &manifest.parse, earlier_digest);
    let mut issues = std::mem::take(&mut reading.issues);
    issues.extend(issues_of(&result));
    issues.extend(model.as_ref().and_then(quantization_differs));
    issues.extend(context::issues(&result, &manifest.point.backend));
    issues.extend(load::issues(&result));
    issues.extend(gpu::issues(&result, &manifest.point.backend));
    issues.extend(clocking::issues(&result));
    issues.extend(settle::issues(&result));
    let energy = energy::of_run(&result, &manifest, &reading);
    issues.extend(energy.issues);
    if failure.is_none() {
        energy::add(&mut reading.metrics, energy.metrics);
    }
    let status = match failure {
        None => Status::Ok,
        Some(_) if is_to_be_skipped(&result) => Status::Skipped,
        Some(_) => Status::Failed,
    };
    let validity = validity(status, &issues);
    let (reason, message) = failure.unzip();

    let files = files(&result, &manifest);
    let mut executed = result.executed.clone();
    executed.cwd = roots.token(&executed.cwd);
    executed.env.values_mut().for_each(|value| *value = roots.token(value));
    let time = time(&result, &reading, manifest.clock);
    let mut machine = result.machine.clone();
    machine.hostname = pseudonym(salt, &machine.hostname);
    let settle = settle::block(&result, &manifest);
    let state = context::state(&result, &manifest.point.backend);
    let during = during(&result.samples, result.times.spawn_ns, result.times.exit_ns);
    let headline = context::headline(&result, &during);
    Record {
        schema_version: SCHEMA_VERSION,
        ids: Ids {
            run_id: result.run_id.clone(),
            job_id: manifest.job_id,
            point_identity: point_identity(&manifest.identity),
            identity: manifest.identity,
            campaign: manifest.campaign,
            results_id: manifest.results_id,
            point: manifest.point.clone(),
            kind: manifest.kind,
            repetition: manifest.repetition,
            attempt: manifest.attempt,
            epoch: manifest.epoch,
            pass: manifest.pass,
            position: manifest.position,
            campaign_sha256: manifest.campaign_sha256,
        },
        status,
        reason,
        message,
        validity,
        issues,
        time,
        device: DeviceBlock {
            id: manifest.point.device.clone(),
            transport: manifest.transport,
            machine: Some(machine),
            containment: Some(result.containment.clone()),
            conditions: manifest.conditions,
            ceilings: manifest.ceilings,
            sleep_inhibited: manifest.sleep_inhibited,
        },
        requested: manifest.requested,
        resolved: reading.resolved,
        executed: reading.executed,
        backend: BackendBlock { name: manifest.point.backend, version: reading.version, executed: Some(executed), files },
        workload: Workload { model, inputs: reading.inputs, outputs: reading.outputs, output_digest: reading.output_digest },
        prepare: result.prepare.into_iter().map(prepared).collect(),
        settle,
        context: Context {
            state,
            headline,
            idle: result.idle,
            during,
            before: Some(result.before),
            after: Some(result.after),
            usage: result.usage,
            peak_rss: result.peak_rss,
            competing: result.cpu_time.as_ref().map(load::competing),
            pre_run: result.pre_run.as_ref().map(load::pre_run),
            gpu_processes: result.gpu_processes,
            drm: result.drm,
            clocking_before: result.clocking_before,
            clocking_after: result.clocking_after,
        },
        metrics: reading.metrics,
        iterations: reading.iterations,
        tests: reading.tests,
        energy: energy.figures,
        samples: Samples::Inline(result.samples),
        observer: Some(result.observer),
        raw: Raw {
            wait_status: wait_status(&result.outcome),
            stdout: stream(result.stdout),
            stderr: stream(result.stderr),
            files: result.files.into_iter().map(|(name, file)| (name, collected(file))).collect(),
            warmup: result
                .warmup
                .into_iter()
                .map(|w| RawInvocation { wait_status: w.wait_status, stdout: stream(w.stdout), stderr: stream(w.stderr) })
                .collect(),
        },
        read: exit_code(&result.outcome).map(|_| Read { rules: manifest.parse, again: Vec::new() }),
        exported: None,
        producer: Producer { isotherm: env!("CARGO_PKG_VERSION").into(), agent: Some(result.agent) },
    }
}

/// The record of a run that left no result.
#[must_use]
pub fn without_result(manifest: Manifest, run_id: String, reason: Reason, message: String, machine: Machine, salt: &str) -> Record {
    let agent = AgentFacts { version: String::new(), sha256: String::new(), target: String::new() };
    let result = RunResult::unexecuted(run_id, Value::Null, agent, machine);
    let mut record = record(result, manifest, salt, None);
    // What nobody observed is absent, not empty.
    record.reason = Some(reason);
    record.message = Some(message);
    record.time = Time::default();
    record.device.containment = None;
    record.backend.executed = None;
    record.context = Context::default();
    record.observer = None;
    record.producer.agent = None;
    for stream in [&mut record.raw.stdout, &mut record.raw.stderr] {
        *stream = RawStream { absent: Some("the run left no result".into()), ..RawStream::default() };
    }
    record
}

/// The run's failure, if it is one, and what its backend read. A workload that was ended has its output kept, but no numbers.
fn judge(result: &RunResult, manifest: &Manifest, model: Option<&ModelBlock>) -> (Option<(Reason, String)>, Reading) {
    let output = RawOutput::of_result(result);
    let said = |what: String| match backend::last_words(&output) {
        Some(words) => format!("{what}: {words}"),
        None => what,
    };
    let timeout = || {
        let ms = manifest.requested.get("timeout_ms").and_then(Value::as_u64).unwrap_or(0);
        humantime::format_duration(Duration::from_millis(ms)).to_string()
    };
    let failure = match &result.outcome {
        outcome if exit_code(outcome).is_some() => {
            return read(&manifest.parse, &output, exit_code(outcome).unwrap_or_default(), model);
        }
        Outcome::Exited { wait_status } => signal_failure(*wait_status, &output, &said),
        Outcome::SpawnFailed { message, .. } => {
            let program = result.executed.argv.first().map_or("", String::as_str);
            (Reason::Spawn, format!("{program}: {message}"))
        }
        Outcome::TimedOut { .. } => (Reason::Timeout, said(format!("ran into its time-out of {}", timeout()))),
        Outcome::Thrashed { .. } => {
            (Reason::MemoryThrash, said("stopped: for a minute the machine did little else than move memory (PSI `full` above 50 %)".into()))
        }
        Outcome::TooHot { sensor, temperature_mc, .. } => {
            let limit = manifest.requested.get("temp_max_c").and_then(Value::as_f64).map_or_else(String::new, |limit| format!(" of {limit} °C"));
            (Reason::ThermalStop, said(format!("stopped: {sensor} was at {:.1} °C, above the limit{limit}", *temperature_mc as f64 / 1e3)))
        }
        Outcome::SensorLost { .. } => {
            let lost = result.unwatched.as_deref().unwrap_or("the sensor was lost");
            // Not too hot: the next `run` may find the sensor again.
            (Reason::Precondition, said(format!("stopped: {lost}, and its temperature is limited")))
        }
        Outcome::Cancelled { .. } => (Reason::Interrupted, "cancelled by a controller".into()),
        Outcome::WarmupFailed { index, wait_status: None } => {
            (Reason::Timeout, said(format!("warm-up {} ran into its time-out of {}", index + 1, timeout())))
        }
        Outcome::WarmupFailed { index, wait_status: Some(status) } => {
            let (reason, message) = signal_failure(*status, &output, &said);
            (reason, format!("warm-up {}: {message}", index + 1))
        }
        Outcome::InputChanged => (Reason::Precondition, format!("a file changed before the run: {}", result.changed_inputs.join("; "))),
        Outcome::Unmet { message } => (Reason::Precondition, message.clone()),
        Outcome::Unsettled => (Reason::Precondition, result.settle.as_ref().map_or_else(|| "the device did not settle".into(), settle::said)),
        Outcome::AgentError { message } => (Reason::Internal, message.clone()),
    };
    (Some(failure), Reading::default())
}

/// Not made because its device did not settle, and that is what the campaign wants then.
fn is_to_be_skipped(result: &RunResult) -> bool {
    result.outcome == Outcome::Unsettled && result.settle.as_ref().is_some_and(|evidence| evidence.rule.on_timeout == OnTimeout::Skip)
}

/// The exit code of a workload that ended by itself, and not by a signal.
fn exit_code(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Exited { wait_status } => exit_code_of(*wait_status),
        _ => None,
    }
}

/// The exit code in a wait status; `None` for an end by a signal.
pub(super) fn exit_code_of(wait_status: i32) -> Option<i32> {
    (wait_status & 0x7f == 0).then_some((wait_status >> 8) & 0xff)
}

/// Read the output of a workload that ended by itself: its failure, if it is one, and what was found. `model`: as it stands in the record.
pub(super) fn read(rules: &ParseSpec, output: &RawOutput, exit_code: i32, model: Option<&ModelBlock>) -> (Option<(Reason, String)>, Reading) {
    let mut reading = backend::read(rules, output, exit_code);
    let mut failure = reading.failure.take();
    if let Some((reason @ Reason::ExitCode, _)) = &mut failure
        && memory::ran_out(output, exit_code)
    {
        *reason = Reason::Oom;
    }
    if let Some(ModelBlock { sha256: None, id, path, .. }) = model {
        // Whatever ran, it was not this model: nothing is known of what it was.
        let words = failure.take().map_or_else(|| format!("model `{id}` is missing or no regular file: {path}"), |(_, words)| words);
        failure = Some((Reason::ModelMissing, words));
    }
    if let ParseSpec::LlamaBench(asked) = rules {
        reading.issues.extend(model.into_iter().flat_map(|model| backend::llama_bench::issues_with(asked, output, model)));
        reading.metrics.extend(backend::llama_bench::bandwidth(&reading, model));
    }
    (failure, reading)
}

/// Compare the output digest of a `command` with that of another repetition.
pub(super) fn compare_digest(reading: &mut Reading, rules: &ParseSpec, earlier: Option<&str>) {
    if let (ParseSpec::Command { .. }, Some(digest), Some(earlier)) = (rules, &mut reading.output_digest, earlier) {
        digest.expected = Some(earlier.to_owned());
        if digest.value != earlier {
            let message = format!("the output's digest is {}, another repetition's is {earlier}", digest.value);
            reading.issues.push(Issue::new(Code::OutputDiffers, message));
        }
    }
}

/// What a status and the worst issue make of the numbers.
pub(super) fn validity(status: Status, issues: &[Issue]) -> Validity {
    match (status, issues.iter().map(|i| i.severity).max()) {
        (Status::Ok, Some(Severity::Warning)) => Validity::Degraded,
        (Status::Ok, None | Some(Severity::Note)) => Validity::Valid,
        _ => Validity::Invalid,
    }
}

fn signal_failure(wait_status: i32, output: &RawOutput, said: &dyn Fn(String) -> String) -> (Reason, String) {
    let signal = wait_status & 0x7f;
    let (name, means) = backend::signal_words(signal);
    if memory::was_ended(output, signal) {
        let by = if signal == 9 { "ended by the kernel, which was out of memory".into() } else { format!("out of memory, ended by {name}") };
        return (Reason::Oom, said(by));
    }
    (Reason::Signal, said(format!("ended by {name}{means}")))
}

fn wait_status(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Exited { wait_status } => Some(*wait_status),
        Outcome::TimedOut { wait_status }
        | Outcome::Thrashed { wait_status }
        | Outcome::TooHot { wait_status, .. }
        | Outcome::SensorLost { wait_status }
        | Outcome::Cancelled { wait_status }
        | Outcome::WarmupFailed { wait_status, .. } => *wait_status,
        Outcome::SpawnFailed { .. } | Outcome::InputChanged | Outcome::Unmet { .. } | Outcome::Unsettled | Outcome::AgentError { .. } => None,
    }
}

/// What went on around the run, whatever its outcome.
fn issues_of(result: &RunResult) -> Vec<Issue> {
    let mut issues = Vec::new();
    for changed in &result.changed_inputs {
        issues.push(Issue::new(Code::InputChanged, format!("a file of the run changed: {changed}")));
    }
    let suspended_ms = result.times.suspended_ns as f64 / 1e6;
    if suspended_ms > MOST_SUSPENDED_MS {
        issues.push(Issue::new(Code::Suspended, format!("the machine was suspended for {suspended_ms:.0} ms during the run")));
    }
    let kinds = [
        (StepOutcome::Unsupported, Code::PrepareUnsupported),
        (StepOutcome::Denied, Code::PrepareDenied),
        (StepOutcome::Failed, Code::PrepareFailed),
    ];
    for (outcome, code) in kinds {
        let steps = result.prepare.iter().filter(|step| step.outcome == outcome);
        let told: Vec<String> = steps.map(|step| format!("{}: {}", step.step.name(), step.reason.as_deref().unwrap_or("?"))).collect();
        if !told.is_empty() {
            issues.push(Issue::new(code, told.join("; ")));
        }
    }
    if let Some(why) = &result.unwatched {
        issues.push(Issue::new(Code::SensorLost, format!("the temperature was not watched all the time: {why}")));
    }
    for survivor in &result.containment.survivors {
        let place = survivor.wchan.as_deref().unwrap_or("?");
        issues
            .push(Issue::new(Code::UnkillableProcess, format!("process {} could not be ended (state {}, in {place})", survivor.pid, survivor.state)));
    }
    let by_itself = matches!(result.outcome, Outcome::Exited { .. });
    if result.containment.ended > 0 && by_itself {
        let left = result.containment.ended;
        let were = if left == 1 { "process was" } else { "processes were" };
        let message = format!("{left} {were} still there after the run's own had ended, and had to be ended");
        issues.push(Issue::new(Code::LeftProcesses, message));
    }
    issues
}

/// What is declared of a model and what its file says.
fn quantization_differs(model: &ModelBlock) -> Option<Issue> {
    let Some(ModelHeader::Gguf(gguf)) = &model.header else { return None };
    let (told, declared) = gguf.quantization.as_ref().zip(model.quantization.as_ref())?;
    let plain = |text: &str| text.to_ascii_uppercase().replace('-', "_").replace("FP", "F");
    // A family of types is what all of them are.
    let agrees = plain(told).strip_prefix(&plain(declared)).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    let message = || format!("model `{}` is declared as {declared}, and its file says {told}", model.id);
    (!agrees).then(|| Issue::new(Code::QuantizationDiffers, message()))
}

/// Where paths of this run may start.
fn roots(result: &RunResult, manifest: &Manifest) -> Roots {
    let env = |name: &str| result.executed.env.get(name).map(String::as_str);
    // A home that the campaign declares is not the one that `~` means on the device.
    let declared = |name: &str| manifest.identity.spec.pointer(&format!("/env/{name}")).is_some();
    let state = env("TMPDIR").filter(|_| !declared("TMPDIR")).and_then(|t| t.split("/scratch/").next());
    let home = env("HOME").filter(|_| !declared("HOME"));
    Roots::new(&manifest.base, state, home)
}

/// Files that ran, the libraries among them.
pub fn files(result: &RunResult, manifest: &Manifest) -> Vec<RanFile> {
    let roots = roots(result, manifest);
    let mut files = manifest.files.clone();
    files.extend(libraries(result, manifest));
    for file in &mut files {
        file.file.path = roots.token(&file.file.path);
        file.file.named = file.file.named.as_deref().map(|named| roots.token(named));
        file.name = roots.token(&file.name);
    }
    files
}

/// Mapped files that nothing else of the run names; without those that the run itself put into its scratch directory, which are gone
/// with it and could never be compared.
fn libraries<'a>(result: &'a RunResult, manifest: &'a Manifest) -> impl Iterator<Item = RanFile> + 'a {
    let is_model = |file: &FileFact| manifest.model.as_ref().is_some_and(|m| m.sha256.as_ref() == Some(&file.sha256));
    let named = move |file: &FileFact| manifest.files.iter().any(|f| f.file.path == file.path) || is_model(file);
    let library = |file: &FileFact| RanFile { role: RanRole::Library, name: file.path.clone(), file: file.clone() };
    let scratch = manifest.identity.spec.pointer("/env/TMPDIR").is_none().then(|| result.executed.env.get("TMPDIR")).flatten();
    let passing = move |file: &FileFact| scratch.is_some_and(|dir| std::path::Path::new(&file.path).starts_with(dir));
    result.mapped.iter().filter(move |file| !named(file) && !passing(file)).map(library)
}

fn time(result: &RunResult, reading: &Reading, clock: Option<ClockOffset>) -> Time {
    let times = &result.times;
    let ms = |from: Option<u64>, to: Option<u64>| from.zip(to).and_then(|(from, to)| to.checked_sub(from)).map(|ns| ns as f64 / 1e6);
    let utc = |unix_ns: u64| humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string();
    Time {
        start_utc: Some(utc(times.start_unix_ns)),
        end_utc: Some(utc(times.end_unix_ns)),
        prepare_ms: ms(times.prepare_start_ns, times.prepare_end_ns),
        settle_ms: ms(times.settle_start_ns, times.settle_end_ns),
        load_ms: reading.load_ms,
        warmup_ms: reading.warmup_ms.or_else(|| ms(times.warmup_start_ns, times.warmup_end_ns)),
        measure_ms: ms(times.spawn_ns, times.exit_ns),
        drain_ms: ms(times.exit_ns, times.drained_ns),
        suspended_ms: Some(times.suspended_ns as f64 / 1e6),
        spawn_monotonic_ns: times.spawn_ns,
        exit_monotonic_ns: times.exit_ns,
        clock_offset_ms: clock.map(|clock| clock.offset_ms),
        clock_offset_uncertainty_ms: clock.map(|clock| clock.uncertainty_ms),
    }
}

/// Summaries over the samples between spawn and exit.
fn during(series: &Series, spawn: Option<u64>, exit: Option<u64>) -> BTreeMap<String, DuringSummary> {
    let (Some(spawn), Some(exit)) = (spawn, exit) else { return BTreeMap::new() };
    let summary = |column: &isotherm_wire::telemetry::Column| {
        let inside = |t: &u64| (spawn..=exit).contains(t);
        let values: Vec<f64> = series.monotonic_ns.iter().zip(&column.values).filter(|(t, _)| inside(t)).filter_map(|(_, v)| *v).collect();
        let (first, last) = (*values.first()?, *values.last()?);
        let summary = DuringSummary {
            unit: column.unit.clone(),
            n: values.len() as u32,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            delta: last - first,
        };
        Some((isotherm_wire::telemetry::key(&column.metric, column.subject.as_deref()), summary))
    };
    series.columns.iter().filter_map(summary).collect()
}

fn prepared(step: PrepareStep) -> store::record::PrepareStep {
    let PrepareStep { step, outcome, reason, before, after, duration_ns } = step;
    store::record::PrepareStep { step, outcome, reason, before, after, duration_ms: duration_ns as f64 / 1e6 }
}

fn stream(captured: Captured) -> RawStream {
    let kept = crate::store::sidecar::decode(&captured.head).map(|b| b.len() as u64).ok();
    RawStream {
        bytes: captured.bytes,
        sha256: captured.sha256,
        kept_head_bytes: captured.tail.as_ref().and(kept),
        head: Some(captured.head),
        tail: captured.tail,
        sidecar: None,
        absent: None,
        redacted: (captured.redacted > 0).then_some(captured.redacted),
        line_ns: captured.line_ns,
    }
}

fn collected(file: CollectedFile) -> RawStream {
    match file {
        CollectedFile::Written(captured) => stream(captured),
        CollectedFile::NotWritten => RawStream { absent: Some(NOT_WRITTEN.into()), ..RawStream::default() },
        CollectedFile::Missing(why) => RawStream { absent: Some(why), ..RawStream::default() },
    }
}

/// A name that is the same within one results directory and says nothing outside of it: HMAC-SHA256 with its salt, 16 hex digits.
#[must_use]
pub fn pseudonym(salt: &str, name: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(salt.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(name.as_bytes());
    format!("hmac:{}", hex(&mac.finalize().into_bytes()[..8]))
}
