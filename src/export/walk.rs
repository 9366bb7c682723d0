//! Every text of a JSON document, with the name of its field.

use super::secrets::Secrets;
use crate::store::record::Replaced;
use crate::store::sidecar;
use isotherm_wire::result::{Blob, Encoding};
use serde_json::{Map, Value};

/// Fields of closed vocabularies, of makers and of hashes: what stands there is no name of anybody, even where somebody has that name.
const CLOSED: [&str; 37] = [
    "agent_sha256",
    "arch",
    "at",
    "better",
    "board_model",
    "campaign_sha256",
    "code",
    "cpu_model",
    "definition",
    "dtype",
    "encoding",
    "epoch",
    "event",
    "format",
    "isotherm",
    "job_id",
    "kind",
    "level",
    "libc",
    "method",
    "metric",
    "os",
    "point_identity",
    "reason",
    "results_id",
    "role",
    "run_id",
    "salt",
    "seal",
    "severity",
    "sha256",
    "state",
    "status",
    "transport",
    "validity",
    "verdict",
    "what",
];
/// Maps whose keys are names of the campaign's or paths.
const NAMED: [&str; 6] = ["axes", "env", "files", "metrics", "reasons", "tags"];

/// Take everything private out of a document; what was replaced where.
pub fn scrub(value: &mut Value, secrets: &Secrets, field: &str, replaced: &mut Vec<Replaced>) {
    match value {
        Value::String(text) => {
            let (clean, what) = secrets.scrub(text.as_bytes());
            if !what.is_empty() {
                let clean = String::from_utf8_lossy(&clean).into_owned();
                replaced.extend(what.into_iter().map(|what| Replaced { field: field.to_owned(), what: what.to_owned() }));
                *text = clean;
            }
        }
        Value::Array(list) => list.iter_mut().enumerate().for_each(|(i, value)| scrub(value, secrets, &format!("{field}.{i}"), replaced)),
        Value::Object(map) => {
            if is_bytes(map) {
                return;
            }
            for (name, value) in map.iter_mut().filter(|(name, value)| !is_closed(name, value)) {
                scrub(value, secrets, &joined(field, name), replaced);
            }
            if has_names(field) {
                *map = std::mem::take(map).into_iter().map(|(name, value)| (secrets.text(&name), value)).collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The first private thing in a document: field and what it is.
pub fn find(value: &Value, secrets: &Secrets, field: &str) -> Option<(String, &'static str)> {
    match value {
        Value::String(text) => Some((field.to_owned(), secrets.find(text.as_bytes())?)),
        Value::Array(list) => list.iter().enumerate().find_map(|(i, value)| find(value, secrets, &format!("{field}.{i}"))),
        Value::Object(map) if is_bytes(map) => {
            let data = map.get("data").and_then(Value::as_str).unwrap_or_default().to_owned();
            let bytes = sidecar::decode(&Blob { encoding: Encoding::Base64, data }).unwrap_or_default();
            Some((field.to_owned(), secrets.find(&bytes)?))
        }
        Value::Object(map) => {
            let names = has_names(field).then(|| map.keys().find_map(|name| Some((joined(field, name), secrets.find(name.as_bytes())?)))).flatten();
            let open = map.iter().filter(|(name, value)| !is_closed(name, value));
            names.or_else(|| open.into_iter().find_map(|(name, value)| find(value, secrets, &joined(field, name))))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn joined(field: &str, name: &str) -> String {
    if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") }
}

fn is_closed(name: &str, value: &Value) -> bool {
    value.is_string() && CLOSED.contains(&name)
}

fn has_names(field: &str) -> bool {
    NAMED.contains(&field.rsplit('.').next().unwrap_or_default())
}

/// Bytes that are no text, in base64: of which some may by chance look like a name.
fn is_bytes(map: &Map<String, Value>) -> bool {
    map.get("encoding").and_then(Value::as_str) == Some("base64")
}
