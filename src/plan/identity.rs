//! Point identities: the content hash that decides whether a stored record answers a job.
//!
//! `spec` is known from the campaign file alone, `facts` from the device. Every field of a point is named here, without `..`:
//! a new one does not build until it has a class.

use super::files::{self, Answers, Part};
use super::point::{CommandWork, LlamaBenchWork, LlamaServerWork, Point, PointModel, Work};
use super::power::Runs;
use crate::clock::ClockOffset;
use crate::config::model::{AxisValue, Limits, Model, Preparation, Quiet, Settings, Settle};
use crate::digest::sha256_hex;
use crate::store::formats;
use crate::store::record::Identity;
use isotherm_wire::inspect::{FileAnswer, Machine, ProgramAnswer};
use isotherm_wire::probe::Capability;
use isotherm_wire::session::Engine;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Raised when the same point would be hashed differently.
pub const IDENTITY_VERSION: u32 = 1;

/// What is known of a device: kept as `devices/<id>.json`, so that plans can be made without contact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceReport {
    pub report_version: u32,
    /// RFC 3339: facts as of.
    pub taken_at: String,
    pub machine: Machine,
    pub engine: Engine,
    pub files: Answers,
    /// What programs said of themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, ProgramAnswer>,
    /// Energy counters and power meters, those that can't be read among them; `None` = it was never asked about any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruments: Option<Vec<Capability>>,
    /// Its wall clock as the controller saw it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

pub const REPORT_VERSION: u32 = formats::REPORT.version();

/// What the campaign file alone says about a point.
#[must_use]
pub fn spec(point: &Point) -> Value {
    let Point { block: _, ids, swept: _, work, model, env, base: _, cpus: _, transport, limits, settings, conditions: _, ceilings: _, same_as: _ } =
        point;
    let mut spec = Map::new();
    let mut put = |name: &str, value: Value| _ = spec.insert(name.to_owned(), value);
    put("device", json!(ids.device));
    put("transport", json!(transport));
    put("backend", json!(ids.backend));
    // Variables stand in `env` as a whole, options in `argv`, and what tells blocks apart in a field of its own. All CPUs is what a
    // point has that says nothing of them, and so is a context that follows from the rest.
    let elsewhere = |name: &str| ["env.", "flags.", "block."].iter().any(|prefix| name.starts_with(prefix));
    let is_default = |name: &str, value: &AxisValue| match (name, value, work) {
        ("cpus", AxisValue::Text(text), _) => text == "all",
        ("n_ctx", AxisValue::Text(text), Work::LlamaServer(_)) => text == "auto",
        _ => false,
    };
    let own = ids.axes.iter().filter(|(name, value)| !elsewhere(name) && !is_default(name, value));
    let axes: Map<String, Value> = own.map(|(n, v)| (n.clone(), json!(v))).collect();
    put("axes", Value::Object(axes));
    put("env", json!(env));

    // Mutable: time-out, repetitions, order and retries say how often, how long and when, never what.
    // The kinds of run that `power` asks for are beside it in the job, and with power runs their window; that a timing run reads
    // instruments is a fact.
    let Settings {
        repetitions: _,
        timeout: _,
        startup_timeout: _,
        slo: _,
        order: _,
        interleave: _,
        settle,
        prepare,
        limits: _,
        sample_hz,
        power: _,
        window: _,
        warmup,
        rounds,
        iterations,
        cooldown,
        retry_contaminated: _,
        dominance: _,
        conditions: _,
    } = settings.as_ref();
    put("settle_ms", json!(settle.shortest().as_millis() as u64));
    // How long a device may take to settle is mutable, and so is what happens if it takes longer.
    if let Settle::Quiet(Quiet { min: _, timeout: _, temp_within_c, on_timeout: _ }) = settle {
        put("settle", json!({ "temp_within_c": temp_within_c }));
    }
    // Asked for or not at all: what a point had before there were steps stays its identity.
    if *prepare != Preparation::default() {
        put("prepare", json!(prepare));
    }
    if *limits != Limits::default() {
        put("limits", json!(limits));
    }
    put("sample_hz", json!(sample_hz));
    put("warmup", json!(warmup));
    match work {
        Work::Builtin { threads: _ } => {
            put("rounds", json!(rounds));
            put("iterations", json!(iterations));
            put("cooldown_ms", json!(cooldown.as_millis() as u64));
            put("workload_seed", json!(crate::backend::builtin::SEED));
        }
        Work::Command(command) => {
            // Rules are mutable too: they say how what was kept is read, never what ran. See `backend::output::unanswered`.
            let CommandWork { argv, inputs, metrics: _, success: _ } = command.as_ref();
            put("argv", json!(argv));
            put("inputs", json!(**inputs));
        }
        Work::LlamaBench(work) => {
            // Where the program lies means nothing, its content is a fact; the numbers are axes.
            let LlamaBenchWork { program: _, n_prompt: _, n_gen: _, depth: _, threads: _, n_batch: _, n_ubatch: _, flags } = work.as_ref();
            put("flags", json!(flags));
            put("iterations", json!(iterations));
        }
        Work::LlamaServer(work) => {
            // Likewise; the context is what the server gets, whatever rule gives it where it isn't written.
            let LlamaServerWork { program: _, n_prompt: _, n_gen: _, n_ctx: _, concurrency: _, threads: _, n_batch: _, n_ubatch: _, flags } =
                work.as_ref();
            put("n_ctx", json!(crate::backend::llama_server::n_ctx(work)));
            put("flags", json!(flags));
            put("iterations", json!(iterations));
            put("workload_seed", json!(crate::backend::llama_server::SEED));
        }
        Work::Later => put("flags", json!(ids.axes.iter().filter(|(name, _)| name.starts_with("flags.")).collect::<Vec<_>>())),
    }
    if let Some(PointModel { declared, path: _, pushed: _ }) = model {
        // The model is its content, a fact, wherever it lies and however it came there. Quantization and tags describe it; its declared
        // sha256 is checked before anything runs.
        let Model { id: _, path: _, paths: _, quantization: _, tags: _, sha256: _, output_digest, push: _ } = declared.as_ref();
        if let Some(digest) = output_digest {
            put("output_digest", json!(digest));
        }
    }
    Value::Object(spec)
}

/// What the device says about a point. `None` = something was never asked: unknown until contact.
///
/// Libraries that a run had mapped are not among them: which of them were seen depends on when one looked. A record names its own with
/// their sha256, and answers only as long as they are the same.
#[must_use]
pub fn facts(point: &Point, report: &DeviceReport) -> Option<Value> {
    let mut hashes: BTreeMap<String, Value> = BTreeMap::new();
    let mut model = Value::Null;
    for file in files::of_point(point) {
        let answer = report.files.get(&file.query.key)?;
        match (&file.part, answer) {
            (Part::Model, FileAnswer::Found(facts)) => model = json!(facts.first().map(|f| &f.sha256)),
            (Part::Model, _) => model = json!("missing"),
            (Part::OfModel(number), FileAnswer::Found(facts)) => {
                hashes.insert(format!("model[{number}]"), json!(facts.first().map(|f| &f.sha256)));
            }
            (Part::OfModel(number), _) => _ = hashes.insert(format!("model[{number}]"), json!("missing")),
            (Part::Program, FileAnswer::Found(facts)) => {
                for (name, fact) in ["argv[0]", "interpreter"].iter().zip(facts) {
                    hashes.insert((*name).into(), json!(fact.sha256));
                }
            }
            (Part::Program, _) => _ = hashes.insert("argv[0]".into(), json!("missing")),
            (Part::Argument(i), FileAnswer::Found(facts)) => {
                hashes.insert(format!("argv[{i}]"), json!(facts.first().map(|f| &f.sha256)));
            }
            (Part::Flag(i), FileAnswer::Found(facts)) => _ = hashes.insert(format!("flags[{i}]"), json!(facts.first().map(|f| &f.sha256))),
            (Part::Listed(path), FileAnswer::Found(facts)) => _ = hashes.insert(format!("flags {path}"), json!(facts.first().map(|f| &f.sha256))),
            (Part::Argument(_) | Part::Flag(_) | Part::Listed(_), _) => {}
            (Part::Inputs(pattern), FileAnswer::Found(facts)) => {
                for fact in facts {
                    let name = fact.path.strip_prefix(&*point.base).unwrap_or(&fact.path).trim_start_matches('/');
                    hashes.insert(format!("input {name}"), json!(fact.sha256));
                }
                if facts.is_empty() {
                    hashes.insert(format!("input {pattern}"), json!("none"));
                }
            }
            (Part::Inputs(pattern), _) => _ = hashes.insert(format!("input {pattern}"), json!("missing")),
        }
    }
    let machine = &report.machine;
    let limits = &machine.limits;
    let mut facts = json!({
        "machine": {
            "machine_key": machine.machine_key,
            "board_model": machine.board_model,
            "cpu_model": machine.cpu_model,
            "ram_gib": machine.ram_bytes.map(|bytes| bytes.div_ceil(1 << 30)),
        },
        "limits": {
            "quota_cpus": limits.quota_cpus,
            "cpuset_cpus": limits.cpuset_cpus,
            "affinity_cpus": limits.affinity_cpus,
            "memory_bytes": limits.memory_bytes,
        },
        "files": hashes,
        "model": model,
    });
    if let (Work::Builtin { .. }, Value::Object(map)) = (&point.work, &mut facts) {
        let Engine { name, version, revision } = &report.engine;
        map.insert("engine".into(), json!(format!("{name}@{version}+{revision}")));
    }
    if let (Work::LlamaServer(_), Value::Object(map)) = (&point.work, &mut facts) {
        map.insert("driver".into(), json!(format!("served+{}", isotherm_wire::served::REVISION)));
    }
    // As with steps: what timing runs are as a rule stays their identity.
    if let (Runs::Together, Value::Object(map)) = (Runs::of(point.settings.power, point.settings.sample_hz, Some(report)), &mut facts) {
        map.insert("power".into(), json!("together"));
    }
    Some(facts)
}

/// Put both parts together.
#[must_use]
pub fn identity(spec: Value, facts: Value) -> Identity {
    Identity { identity_version: IDENTITY_VERSION, spec, facts }
}

/// An identity with its hash.
#[derive(Debug)]
pub struct Identified {
    pub identity: Identity,
    /// sha256, hex.
    pub hash: String,
}

/// Identities of all points, in their order; `None` = unknown until contact. `reports`: device id → what is known of it.
#[must_use]
pub fn of_points(points: &[Point], reports: &BTreeMap<String, DeviceReport>) -> Vec<Option<Arc<Identified>>> {
    points.iter().map(|point| of_point(point, reports)).collect()
}

/// The identity of one of them; what one of a backend of a later build is, that build knows.
#[must_use]
pub fn of_point(point: &Point, reports: &BTreeMap<String, DeviceReport>) -> Option<Arc<Identified>> {
    if !point.is_built() {
        return None;
    }
    let facts = facts(point, reports.get(&point.ids.device)?)?;
    let identity = identity(spec(point), facts);
    let hash = point_identity(&identity);
    Some(Arc::new(Identified { identity, hash }))
}

/// sha256 (hex) over the canonical JSON of an identity.
///
/// # Panics
/// Never: an identity is plain JSON.
#[must_use]
pub fn point_identity(identity: &Identity) -> String {
    let value = serde_json::to_value(identity).expect("an identity is plain JSON");
    sha256_hex(canonical(&value).as_bytes())
}

/// JSON with sorted keys and no white space.
#[must_use]
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries.into_iter().map(|(k, v)| format!("{}:{}", Value::String(k.clone()), canonical(v))).collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// Where two identities differ, in words: `model sha256 changed (1f3a… → 9c0e…)`; in the order of the fields, at most `most`.
#[must_use]
pub fn differences(old: &Identity, new: &Identity, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    if old.identity_version != new.identity_version {
        found.push(format!("identity version {} → {}", old.identity_version, new.identity_version));
    }
    walk("", &old.facts, &new.facts, &mut found);
    walk("", &old.spec, &new.spec, &mut found);
    let more = found.len().saturating_sub(most);
    found.truncate(most);
    if more > 0 {
        found.push(format!("{more} more"));
    }
    found
}

fn walk(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(&path, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), found);
            }
        }
        (a, b) if a != b => {
            let path = path.strip_prefix("files.").unwrap_or(path);
            found.push(format!("{path} changed ({} → {})", short(a), short(b)));
        }
        _ => {}
    }
}

/// A value in a few characters; a hash by its first four.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) => format!("{}…", &text[..4]),
        other => {
            let text = other.to_string();
            if text.chars().count() > 60 { text.chars().take(60).collect::<String>() + "…" } else { text }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_does_not_change_an_identity() {
        let a = json!({"b": [1, {"y": 1, "x": "é"}], "a": null});
        let b = json!({"a": null, "b": [1, {"x": "é", "y": 1}]});
        assert_eq!(canonical(&a), canonical(&b));
        assert_eq!(canonical(&a), r#"{"a":null,"b":[1,{"x":"é","y":1}]}"#);
    }

    #[test]
    fn differences_name_the_field_and_both_values() {
        let old = identity(json!({"warmup": 1}), json!({"model": "a".repeat(64), "files": {"argv[0]": "b".repeat(64)}}));
        let new = identity(json!({"warmup": 2}), json!({"model": "c".repeat(64), "files": {}}));
        let found = differences(&old, &new, 8);
        assert_eq!(found, ["argv[0] changed (bbbb… → none)", "model changed (aaaa… → cccc…)", "warmup changed (1 → 2)"]);
        assert_eq!(differences(&old, &new, 1), ["argv[0] changed (bbbb… → none)", "2 more"]);
    }
}
