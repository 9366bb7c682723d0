//! The manifest: what a controller sends with a task, so that any controller can make the record from the spooled result alone.

use crate::backend::{self, ParseSpec};
use crate::clock::ClockOffset;
use crate::config::model::{Ceiling, Frequency, Limits, OnSensorLoss, OnTimeout, Preparation, Quiet, Secret, Settle, When};
use crate::config::safe_name;
use crate::plan::files;
use crate::plan::identity::DeviceReport;
use crate::plan::power::{self, Runs};
use crate::plan::{PlannedJob, Point};
use crate::store::record::{Identity, Kind, ModelBlock, PointIds, RanFile, SleepInhibited};
use indexmap::IndexMap;
use isotherm_wire::format::Format;
use isotherm_wire::model::ModelHeader;
use isotherm_wire::session::RunState;
use isotherm_wire::settle::{self, Rule};
use isotherm_wire::task::{self, Instruments, Prepare, RunSpec, Task, WatchedFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Versions of the manifest, which lies in a spool until any controller makes the record.
const MANIFEST: Format = Format::new("manifest_version", &[]);
/// From TERM to KILL when a workload has to be ended, ms.
const GRACE_MS: u64 = 5000;
/// Share of the available memory that a model's file may have; what else a tool needs is not known.
pub const MOST_OF_MEMORY: f64 = 0.95;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub manifest_version: u32,
    pub results_id: String,
    pub campaign: String,
    pub campaign_sha256: String,
    pub epoch: String,
    pub job_id: String,
    pub identity: Identity,
    pub point: PointIds,
    pub label: String,
    pub transport: String,
    pub kind: Kind,
    pub repetition: u32,
    pub attempt: u32,
    pub pass: u32,
    pub position: u32,
    pub parse: ParseSpec,
    pub requested: IndexMap<String, Value>,
    pub model: Option<ModelBlock>,
    pub files: Vec<RanFile>,
    /// Fixed wait, or the shortest one.
    pub settle_ms: u64,
    /// Until when it is waited instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Rule>,
    /// Directory that relative paths of the campaign start at on the device.
    pub base: String,
    /// Energy instruments are read in this run, where there are any.
    #[serde(default)]
    pub instruments: bool,
    /// Of the surroundings, as declared.
    #[serde(default)]
    pub conditions: IndexMap<String, String>,
    /// What the device can do at most, as declared.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub ceilings: IndexMap<String, Ceiling>,
    /// Whether its controller keeps the device from sleeping, where it is on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_inhibited: Option<SleepInhibited>,
    /// The device's wall clock as its controller saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

impl Manifest {
    /// Of a run in a spool, of which its keeper says `state`. It comes from a disk that others may have written to: what becomes a path
    /// has the form of one.
    ///
    /// # Errors
    /// In words: of another version or shape, or a name that is none. Such a run stays where it is.
    pub fn of(manifest: Value, state: &RunState) -> Result<Manifest, String> {
        let manifest: Manifest = match (manifest, state) {
            // The keeper itself couldn't read it.
            (Value::Null, RunState::Lost { reason, .. }) => return Err(reason.clone()),
            (manifest, _) => MANIFEST.upgrade(manifest).map_err(|why| format!("its manifest can't be read: {why}"))?,
        };
        let slug = &manifest.point.slug;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._=-".contains(c);
        let slug_fits = !slug.is_empty() && !slug.starts_with('.') && slug.chars().all(plain);
        for name in [&manifest.campaign, &manifest.point.device] {
            safe_name(name).map_err(|why| format!("{name:?}: {why}"))?;
        }
        if slug_fits { Ok(manifest) } else { Err(format!("{slug:?} is no name of a point")) }
    }
}

/// What is the same for every run of one invocation.
#[derive(Debug, Clone)]
pub struct Night {
    pub results_id: String,
    pub campaign: String,
    pub campaign_sha256: String,
    pub epoch: String,
    /// Of this machine.
    pub sleep_inhibited: Option<SleepInhibited>,
}

/// The manifest of a job's next run; `None` for a job whose identity isn't known.
#[must_use]
pub fn manifest(night: &Night, job: &PlannedJob, point: &Point, report: &DeviceReport) -> Option<Manifest> {
    let found = files::model(point, &report.files);
    let model = point.model.as_ref().map(|model| {
        let fact = found.as_ref().and_then(|f| f.as_ref().ok());
        let header = fact.and_then(|f| f.header.clone());
        let told = if let Some(ModelHeader::Gguf(gguf)) = &header { gguf.quantization.clone() } else { None };
        ModelBlock {
            id: model.declared.id.clone(),
            path: fact.map_or_else(|| model.path.clone(), |f| f.place().to_owned()),
            sha256: fact.map(|f| f.sha256.clone()),
            bytes: fact.map(|f| f.bytes),
            quantization: model.declared.quantization.clone().or(told),
            tags: model.declared.tags.clone(),
            header,
        }
    });
    Some(Manifest {
        manifest_version: MANIFEST.version(),
        results_id: night.results_id.clone(),
        campaign: night.campaign.clone(),
        campaign_sha256: night.campaign_sha256.clone(),
        epoch: night.epoch.clone(),
        job_id: job.id.clone(),
        identity: job.identity.as_ref()?.identity.clone(),
        point: point.ids.clone(),
        label: point.label(),
        transport: point.transport.into(),
        kind: job.slot.kind,
        repetition: job.slot.repetition,
        attempt: job.attempt,
        pass: job.slot.pass,
        position: job.position,
        parse: backend::parse_spec(point),
        requested: backend::requested(point, job.slot.kind, power::period(&point.ids.backend, Some(report))),
        model,
        files: files::ran(point, &report.files),
        settle_ms: point.settings.settle.shortest().as_millis() as u64,
        settle: rule(point.settings.settle),
        base: point.base.to_string(),
        instruments: Runs::of(point.settings.power, point.settings.sample_hz, Some(report)).read_instruments(job.slot.kind),
        conditions: point.conditions.clone(),
        ceilings: point.ceilings.clone(),
        sleep_inhibited: night.sleep_inhibited.clone().filter(|_| point.transport == "local"),
        clock: report.clock,
    })
}

/// What the agent is to execute. `force`: whatever memory there is.
#[must_use]
pub fn spec(point: &Point, manifest: &Manifest, report: &DeviceReport, secrets: &IndexMap<String, Secret>, force: bool) -> RunSpec {
    // The engine gets the model's path as found, and so does a command if the model was copied; else it gets its argv as written and starts
    // in the base directory.
    let as_written = point.model.as_ref().map(|m| if m.path.starts_with(['/', '~']) { m.path.clone() } else { format!("{}/{}", point.base, m.path) });
    let model_path = manifest.model.as_ref().filter(|m| m.sha256.is_some()).map(|m| m.path.clone()).or(as_written);
    let model = files::model(point, &report.files).and_then(Result::ok);
    let of_run = manifest.files.iter().map(|f| &f.file).chain(&model);
    let mut watched: Vec<WatchedFile> =
        of_run.map(|f| WatchedFile { path: f.place().to_owned(), bytes: f.bytes, mtime_ns: f.mtime_ns, inode: f.inode }).collect();
    watched.sort_by(|a, b| a.path.cmp(&b.path));
    watched.dedup();
    RunSpec {
        task: backend::task(point, manifest.kind, model_path.as_deref(), power::period(&point.ids.backend, Some(report))),
        prepare: steps(&point.settings.prepare),
        model: manifest.model.as_ref().map(|model| model.sha256.clone().unwrap_or_else(|| model.path.clone())),
        settle_ms: manifest.settle_ms,
        settle: manifest.settle,
        limits: limits(point.limits),
        timeout_ms: point.settings.timeout.as_millis() as u64,
        grace_ms: GRACE_MS,
        sample_hz: point.settings.sample_hz,
        instruments: match manifest.kind {
            Kind::Power => Instruments::Required,
            Kind::Timing if manifest.instruments => Instruments::On,
            Kind::Timing => Instruments::Off,
        },
        env: point.texts(model_path.as_deref()).env.into_iter().collect::<BTreeMap<_, _>>(),
        secrets: secrets.iter().map(|(name, secret)| (name.clone(), secret.expose().to_owned())).collect(),
        needs_bytes: files::model_bytes(point, &report.files).filter(|_| !force).map(|bytes| (bytes as f64 / MOST_OF_MEMORY).ceil() as u64),
        cpus: point.cpus.clone(),
        cwd: point.base.to_string(),
        watched,
    }
}

fn rule(settle: Settle) -> Option<Rule> {
    let Settle::Quiet(Quiet { min, timeout, temp_within_c, on_timeout }) = settle else { return None };
    let on_timeout = match on_timeout {
        OnTimeout::Flag => settle::OnTimeout::Flag,
        OnTimeout::Fail => settle::OnTimeout::Fail,
        OnTimeout::Skip => settle::OnTimeout::Skip,
    };
    Some(Rule { min_ms: min.as_millis() as u64, timeout_ms: timeout.as_millis() as u64, temp_within_c, on_timeout })
}

fn limits(limits: Limits) -> Option<isotherm_wire::limits::Limits> {
    let on_sensor_loss = match limits.on_sensor_loss {
        None | Some(OnSensorLoss::Continue) => isotherm_wire::limits::OnSensorLoss::Continue,
        Some(OnSensorLoss::Stop) => isotherm_wire::limits::OnSensorLoss::Stop,
    };
    Some(isotherm_wire::limits::Limits { temp_max_c: limits.temp_max_c?, on_sensor_loss })
}

/// Always in this order: each leaves what the next one starts from.
#[must_use]
pub fn steps(asked_for: &Preparation) -> Vec<Prepare> {
    let Preparation { reset_swap, drop_caches, governor, frequency } = asked_for;
    let when = |when: &When| match when {
        When::OnModelChange => task::When::OnModelChange,
        When::Each => task::When::Each,
    };
    let frequency = frequency.map(|frequency| match frequency {
        Frequency::Max => task::Frequency::Max,
        Frequency::Min => task::Frequency::Min,
        Frequency::Khz(khz) => task::Frequency::Khz(khz),
    });
    let steps = [
        reset_swap.as_ref().map(when).map(Prepare::ResetSwap),
        drop_caches.as_ref().map(when).map(Prepare::DropCaches),
        governor.clone().map(Prepare::Governor),
        frequency.map(Prepare::Frequency),
    ];
    steps.into_iter().flatten().collect()
}

/// Longest time that a run may take on the device before its controller asks again, ms.
#[must_use]
pub fn deadline_ms(spec: &RunSpec) -> u64 {
    let invocations = match &spec.task {
        Task::Process(task) => u64::from(task.warmup) + 1,
        Task::Infer(_) | Task::Serve(_) => 1,
    };
    let prepare_ms: u64 = spec.prepare.iter().map(Prepare::most_ms).sum();
    let settle_ms = spec.settle.map_or(spec.settle_ms, |rule| rule.timeout_ms);
    prepare_ms + settle_ms + (spec.timeout_ms + spec.grace_ms + 10_000) * invocations + 30_000
}
