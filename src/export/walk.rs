//! Every text of a JSON document, with the name of its field.

use super::secrets::{NAMED_TEXT, Secrets};
use crate::store::record::Replaced;
use crate::store::sidecar;
use isotherm_wire::result::{Blob, Encoding};
use serde_json::{Map, Value};

/// Fields of closed vocabularies and of hashes: a single word there is no name of anybody, even where somebody has that name.
const CLOSED: [&str; 31] = [
    "agent_sha256",
    "at",
    "better",
    "campaign_sha256",
    "code",
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
    "method",
    "metric",
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
];
/// Fields of a machine that its makers wrote.
const MAKES: [&str; 5] = ["arch", "board_model", "cpu_model", "libc", "os"];
/// Maps whose keys are names of the campaign's, paths, or of sensors.
const NAMED: [&str; 10] = ["absent", "axes", "during", "env", "files", "metrics", "programs", "reasons", "tags", "values"];

/// A text without where a cgroup is, which names a container or a user's session; the last part of a path stays. `None` = there is none.
fn without_cgroups(text: &str) -> Option<String> {
    const MOUNT: &str = "/sys/fs/cgroup/";
    let (mut clean, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(MOUNT) {
        let path = &rest[start..];
        let end = path.find(|c: char| c.is_whitespace() || ":,;\"')".contains(c)).unwrap_or(path.len());
        clean += &rest[..start];
        clean += "$CGROUP/";
        clean += path[..end].rsplit('/').next().unwrap_or_default();
        rest = &path[end..];
    }
    (!clean.is_empty()).then(|| clean + rest)
}

/// Take everything private out of a document; what was replaced where.
pub fn scrub(value: &mut Value, secrets: &Secrets, field: &str, replaced: &mut Vec<Replaced>) {
    match value {
        Value::String(text) => {
            if let Some(clean) = without_cgroups(text) {
                replaced.push(Replaced { field: field.to_owned(), what: "path of a cgroup".into() });
                *text = clean;
            }
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
            for (name, value) in map.iter_mut() {
                match class(field, name, value) {
                    Class::Open => scrub(value, secrets, &joined(field, name), replaced),
                    Class::Closed => {}
                    Class::Make => {
                        let Some(text) = value.as_str().and_then(|text| secrets.without_named(text)) else { continue };
                        replaced.push(Replaced { field: joined(field, name), what: NAMED_TEXT.into() });
                        *value = Value::String(text);
                    }
                }
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
            names.or_else(|| {
                map.iter().find_map(|(name, value)| match class(field, name, value) {
                    Class::Open => find(value, secrets, &joined(field, name)),
                    Class::Closed => None,
                    Class::Make => value.as_str().and_then(|text| secrets.without_named(text)).map(|_| (joined(field, name), NAMED_TEXT)),
                })
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn joined(field: &str, name: &str) -> String {
    if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") }
}

/// How a field is searched.
enum Class {
    Open,
    Closed,
    /// For what `--redact` names, and for nothing else.
    Make,
}

fn class(field: &str, name: &str, value: &Value) -> Class {
    let Value::String(text) = value else { return Class::Open };
    let within = |of: &str| field.rsplit('.').next() == Some(of);
    // Where names are the campaign's own, `level` or `state` is one of them.
    let is_word = || text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:+-".contains(&b));
    if within("machine") && MAKES.contains(&name) {
        Class::Make
    } else if name == "definition" && text.starts_with("command.") {
        // It has the campaign's name of a metric in it.
        Class::Open
    } else if (CLOSED.contains(&name) && !has_names(field) && is_word()) || (name == "what" && field.starts_with("exported.replaced.")) {
        Class::Closed
    } else {
        Class::Open
    }
}

fn has_names(field: &str) -> bool {
    NAMED.contains(&field.rsplit('.').next().unwrap_or_default())
}

/// Bytes that are no text, in base64: of which some may by chance look like a name.
fn is_bytes(map: &Map<String, Value>) -> bool {
    map.len() == 2 && map.contains_key("data") && map.get("encoding").and_then(Value::as_str) == Some("base64")
}
