//! Records made by hand: synthetic, valid in form, with nothing measured. Used by unit tests and by tests outside of the library.

use isotherm::{
    config::model::{AxisValue, Better},
    store::{
        plan_file::{PLAN_VERSION, StoredPlan, StoredPoint},
        record::{
            BackendBlock, Context, DeviceBlock, Identity, Ids, Kind, Metric, ModelBlock, PointIds, Producer, Raw, RawStream, Reason, Record,
            SCHEMA_VERSION, Samples, Settle, Severity, Status, Time, Validity, Workload,
        },
    },
};
use isotherm_wire::model::{Gguf, ModelHeader};
use serde_json::{Map, Value, json};

/// A point on device `here`, backend `builtin`.
pub fn point(axes: &[(&str, AxisValue)]) -> PointIds {
    let axes = axes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    PointIds { device: "here".into(), backend: "builtin".into(), axes, slug: "point".into() }
}

pub fn text(value: &str) -> AxisValue {
    AxisValue::Text(value.to_owned())
}

/// A plan that wants every point so often, with identity `aaaa…`.
pub fn plan(points: &[PointIds], repetitions: u32) -> StoredPlan {
    let planned = |point: &PointIds| StoredPoint {
        point: point.clone(),
        swept: point.axes.keys().cloned().collect(),
        kind: Kind::Timing,
        repetitions,
        point_identity: Some(identity('a')),
    };
    StoredPlan {
        plan_version: PLAN_VERSION,
        campaign: "synthetic".into(),
        campaign_sha256: "c".repeat(64),
        points: points.iter().map(planned).collect(),
    }
}

pub fn identity(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A record in the making: ok, valid, without metrics, identity `aaaa…`, first attempt, until told otherwise.
#[derive(Clone)]
pub struct Run {
    record: Record,
    dir: String,
}

pub fn run(point: &PointIds, repetition: u32) -> Run {
    let nothing = || RawStream { absent: Some("synthetic".into()), ..RawStream::default() };
    let record = Record {
        schema_version: SCHEMA_VERSION,
        ids: Ids {
            run_id: format!("run-{}-{repetition}", point.slug),
            job_id: format!("job-{}-{repetition}", point.slug),
            point_identity: identity('a'),
            identity: Identity { identity_version: 1, spec: Value::Object(Map::new()), facts: Value::Object(Map::new()) },
            campaign: "synthetic".into(),
            results_id: "results".into(),
            point: point.clone(),
            kind: Kind::Timing,
            repetition,
            attempt: 0,
            epoch: "epoch-1".into(),
            pass: repetition,
            position: 0,
            campaign_sha256: "c".repeat(64),
        },
        status: Status::Ok,
        reason: None,
        message: None,
        validity: Validity::Valid,
        issues: Vec::new(),
        time: Time::default(),
        device: DeviceBlock {
            id: point.device.clone(),
            transport: "local".into(),
            machine: None,
            containment: None,
            conditions: Default::default(),
            ceilings: Default::default(),
            sleep_inhibited: None,
        },
        requested: Default::default(),
        resolved: Default::default(),
        executed: Default::default(),
        backend: BackendBlock { name: point.backend.clone(), version: None, executed: None, files: Vec::new() },
        workload: Workload::default(),
        prepare: Vec::new(),
        settle: Settle { verdict: "fixed_wait".into(), ..Settle::default() },
        context: Context::default(),
        metrics: Default::default(),
        iterations: None,
        tests: Vec::new(),
        energy: Vec::new(),
        samples: Samples::Inline(Default::default()),
        observer: None,
        raw: Raw { wait_status: None, stdout: nothing(), stderr: nothing(), files: Default::default(), warmup: Vec::new() },
        read: None,
        exported: None,
        producer: Producer { isotherm: "0.0.0".into(), agent: None },
    };
    let axes: Vec<String> = point.axes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Run { record, dir: format!("{}/{}", point.device, axes.join(",")) }
}

impl Run {
    /// A latency in ms, definition `inference.wall.v1`.
    pub fn latency(self, value: f64) -> Run {
        self.metric("latency_ms", Some(value), "ms", "inference.wall.v1", Better::Lower)
    }

    /// Without a value it is omitted because `the tool did not print it`.
    pub fn metric(mut self, name: &str, value: Option<f64>, unit: &str, definition: &str, better: Better) -> Run {
        let metric = Metric {
            value,
            unit: unit.into(),
            better,
            n: 1,
            spread: None,
            definition: definition.into(),
            label: None,
            omitted_reason: value.is_none().then(|| "the tool did not print it".into()),
            samples: Vec::new(),
            samples_sidecar: None,
        };
        self.record.metrics.insert(name.into(), metric);
        self
    }

    /// Of a model whose file says this.
    pub fn model(mut self, gguf: Gguf) -> Run {
        let header = Some(ModelHeader::Gguf(Box::new(gguf)));
        let (id, path) = ("m".into(), "m.gguf".into());
        self.record.workload.model = Some(ModelBlock { id, path, sha256: None, bytes: None, quantization: None, tags: Default::default(), header });
        self
    }

    pub fn failed(mut self, reason: Reason, message: &str) -> Run {
        (self.record.status, self.record.validity) = (Status::Failed, Validity::Invalid);
        (self.record.reason, self.record.message) = (Some(reason), Some(message.into()));
        self
    }

    /// Also sets the validity that the severity calls for.
    pub fn issue(mut self, code: &str, severity: Severity, message: &str) -> Run {
        // As read from a file: of any version, registered or not.
        let issue = serde_json::from_value(json!({"code": code, "severity": severity, "message": message})).expect("an issue");
        self.record.issues.push(issue);
        match severity {
            Severity::Note => {}
            Severity::Warning => self.record.validity = Validity::Degraded,
            Severity::Error => self.record.validity = Validity::Invalid,
        }
        self
    }

    pub fn identity(mut self, digit: char) -> Run {
        self.record.ids.point_identity = identity(digit);
        self
    }

    pub fn attempt(mut self, attempt: u32) -> Run {
        self.record.ids.attempt = attempt;
        self
    }

    pub fn epoch(mut self, epoch: &str) -> Run {
        self.record.ids.epoch = epoch.into();
        self
    }

    /// A power run with this mean power in W.
    pub fn power(mut self, value: f64) -> Run {
        self.record.ids.kind = Kind::Power;
        self.metric("power_w", Some(value), "W", "power.mean.v1", Better::Lower)
    }

    /// Under its own name.
    pub fn stored(self) -> (String, Record) {
        let name = format!("{}-r{}.json", self.record.ids.kind.name(), self.record.ids.repetition);
        self.stored_as(&name)
    }

    /// Under the name of an attempt that was repeated.
    pub fn stored_as_attempt(self) -> (String, Record) {
        let name = format!("{}-r{}.attempt{}.json", self.record.ids.kind.name(), self.record.ids.repetition, self.record.ids.attempt);
        self.stored_as(&name)
    }

    fn stored_as(self, name: &str) -> (String, Record) {
        (format!("{}-{}/{name}", self.dir, &self.record.ids.point_identity[..8]), self.record)
    }
}
