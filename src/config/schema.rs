//! The campaign language as a JSON Schema: completion and checks in an editor, made from the same table as the decoders.

use super::{
    level::{Key, Level},
    shape::{Shape, Word},
    vocabulary::{ANY_BLOCK, BACKENDS, LEVELS, TOP, is_axis},
};
use serde_json::{Map, Value, json};

/// Names of a map, by its key in a level: as the decoders take them.
const NAMES: [(&str, &str); 8] = [
    ("devices", SAFE),
    ("models", SAFE),
    ("builds", SAFE),
    ("env", VARIABLE),
    ("metrics", VARIABLE),
    ("params", "^[A-Za-z_][A-Za-z0-9_-]*$"),
    ("flags", "^-+[^-\\s=][^\\s=]*$"),
    ("paths", SAFE),
];
/// Part of a file name.
const SAFE: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$";
const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";

/// The JSON Schema (draft 2020-12) of a campaign file.
#[must_use]
pub fn campaign_schema() -> Value {
    let mut levels: Vec<&Level> = LEVELS.to_vec();
    levels.sort_by_key(|level| level.title);
    let mut definitions: Map<String, Value> = levels.into_iter().map(|level| (name(level), object(level))).collect();
    definitions.insert("a_zip_group".into(), zip_group());
    let mut schema = object(&TOP);
    if let Value::Object(map) = &mut schema {
        map.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".into(), json!("isotherm campaign"));
        map.insert("patternProperties".into(), json!({ "^x-": true }));
        map.insert("$defs".into(), Value::Object(definitions));
    }
    schema
}

/// Name of a level among the definitions.
fn name(level: &Level) -> String {
    level.title.to_lowercase().replace([' ', '.', '`'], "_")
}

fn object(level: &Level) -> Value {
    let properties: Map<String, Value> = level.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = level.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if let Some(rules) = rules(level) {
        object["allOf"] = rules;
    }
    object
}

/// What a list of keys cannot say.
fn rules(level: &Level) -> Option<Value> {
    let one_of = |keys: &[&str]| json!({ "anyOf": keys.iter().map(|key| json!({ "required": [key] })).collect::<Vec<_>>() });
    // Without a value a key isn't there.
    let not_both = |a: &str, b: &str| json!({ "not": { "required": [a, b], "properties": { a: { "not": { "type": "null" } }, b: { "not": { "type": "null" } } } } });
    match level.title {
        "A device" => Some(json!([one_of(&["local", "ssh", "pod"]), not_both("local", "ssh"), not_both("local", "pod"), not_both("ssh", "pod")])),
        "A model" => Some(json!([one_of(&["path", "paths"])])),
        "A metric" | "success.output_digest" => Some(json!([one_of(&["json", "regex"]), not_both("json", "regex")])),
        "A block" => Some(json!(BACKENDS.iter().map(|backend| of_backend(backend.word, level)).collect::<Vec<_>>())),
        _ => None,
    }
}

/// Keys that a block with this backend needs, and those that it hasn't.
fn of_backend(backend: &str, level: &Level) -> Value {
    let without: Map<String, Value> =
        level.keys.iter().filter(|key| !key.is_on(Some(backend))).map(|key| (key.name.to_owned(), json!(false))).collect();
    let mut then = json!({ "properties": without });
    match backend {
        "command" => then["required"] = json!(["argv"]),
        "membw" => {}
        // A model may stand in `zip`.
        _ => then["anyOf"] = json!([{ "required": ["model"] }, { "required": ["zip"] }]),
    }
    json!({ "if": { "required": ["backend"], "properties": { "backend": { "const": backend } } }, "then": then })
}

fn zip_group() -> Value {
    let axes = ANY_BLOCK.keys.iter().filter(|key| is_axis(key));
    let properties: Map<String, Value> = axes.map(|key| (key.name.to_owned(), property(key))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn property(key: &Key) -> Value {
    let mut about = key.about.to_owned();
    if !key.default.is_empty() {
        about += &format!(". Built-in: {}", key.default);
    }
    if !key.on.is_empty() {
        about += &format!(". Backend: {}", key.on.join(", "));
    }
    if !key.built {
        about += ". Not in this build yet";
    }
    let mut schema = match key.name {
        "zip" => json!({ "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/a_zip_group" } }),
        "params" => json!({ "type": "object", "additionalProperties": axis(&scalar()) }),
        "when" => json!({ "type": "string" }),
        "env" => json!({ "type": "object", "additionalProperties": nullable(axis(&scalar())) }),
        "flags" => json!({ "type": "object", "additionalProperties": nullable(flag()) }),
        _ => shape(&key.shape),
    };
    if let Some((_, pattern)) = NAMES.iter().find(|(name, _)| *name == key.name && schema["type"] == "object") {
        schema["propertyNames"] = json!({ "pattern": pattern });
    }
    // `null` goes back to what holds without the key.
    if !key.required {
        schema = nullable(schema);
    }
    if let Value::Object(map) = &mut schema {
        map.insert("description".into(), json!(about));
    }
    schema
}

/// Text as written: YAML gives its values types that a text doesn't care for.
fn scalar() -> Value {
    json!({ "type": ["string", "number", "boolean"] })
}

fn axis(of: &Value) -> Value {
    json!({ "anyOf": [of, { "type": "array", "minItems": 1, "items": of }] })
}

/// A list inside of a list is one option that is given several times.
fn flag() -> Value {
    json!({ "anyOf": [scalar(), { "type": "array", "minItems": 1, "items": axis(&scalar()) }] })
}

fn nullable(schema: Value) -> Value {
    match schema {
        Value::Object(mut map) if map.get("type").is_some_and(Value::is_string) && !map.contains_key("enum") => {
            let kind = map.get("type").cloned().unwrap_or_default();
            map.insert("type".into(), json!([kind, "null"]));
            Value::Object(map)
        }
        other => json!({ "anyOf": [other, { "type": "null" }] }),
    }
}

fn words(words: &[Word]) -> Value {
    // A word that YAML takes for a truth value.
    let truth = words.iter().any(|word| word.word == "false").then_some(json!(false));
    json!({ "enum": words.iter().map(|word| json!(word.word)).chain(truth).collect::<Vec<_>>() })
}

/// `${VAR}` stands for any text.
fn text_form(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^({pattern})$|\\$\\{{") })
}

fn shape(of: &Shape) -> Value {
    match of {
        Shape::Text => scalar(),
        Shape::Form(_, pattern) => json!({ "type": ["string", "number"], "pattern": format!("^({pattern})$|\\$\\{{") }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Whole(low, i64::MAX) => json!({ "type": "integer", "minimum": low }),
        Shape::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Shape::Number(low, f64::MAX) => json!({ "type": "number", "exclusiveMinimum": low }),
        Shape::Number(low, high) => json!({ "type": "number", "exclusiveMinimum": low, "maximum": high }),
        Shape::Duration => text_form("([0-9]+(ms|s|m|h))+"),
        Shape::Temperature => text_form("[-+]?[0-9.]+(C|°C)"),
        Shape::Percent => text_form("[0-9.]+%"),
        Shape::Size => text_form("[0-9]+[KMGT]i?"),
        Shape::Choice(of) => words(of),
        Shape::WordOr(of, other) => json!({ "anyOf": [words(of), shape(other)] }),
        Shape::Axis(of) | Shape::OneOrMany(of) => axis(&shape(of)),
        Shape::List(of) => json!({ "type": "array", "minItems": 1, "items": shape(of) }),
        Shape::MapOf(of) => json!({ "type": "object", "additionalProperties": shape(of) }),
        Shape::Map(level) => json!({ "$ref": format!("#/$defs/{}", name(level)) }),
        Shape::DurationOr(level) => json!({ "anyOf": [shape(&Shape::Duration), { "$ref": format!("#/$defs/{}", name(level)) }] }),
        Shape::ListOfMaps => json!({ "type": "array", "minItems": 1, "items": { "type": "object", "minProperties": 1 } }),
        Shape::Blocks => json!({ "type": "array", "minItems": 1, "items": { "$ref": format!("#/$defs/{}", name(&ANY_BLOCK)) } }),
    }
}
