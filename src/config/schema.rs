//! The campaign language as a JSON Schema: completion and checks in an editor, made from the same table as the decoders.

use super::{
    shape::{Shape, Word},
    vocabulary::{ANY_BLOCK, Key, LEVELS, Level, TOP, is_axis},
};
use serde_json::{Map, Value, json};

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
    object
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
        "params" => json!({ "type": "object", "additionalProperties": axis(&typed()) }),
        "env" => json!({ "type": "object", "additionalProperties": nullable(axis(&scalar())) }),
        "flags" => json!({ "type": "object", "additionalProperties": nullable(flag()) }),
        _ => shape(&key.shape),
    };
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

fn typed() -> Value {
    scalar()
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
    json!({ "enum": words.iter().map(|word| word.word).collect::<Vec<_>>() })
}

/// `${VAR}` stands for any text.
fn text_form(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^({pattern})$|\\$\\{{") })
}

fn shape(of: &Shape) -> Value {
    match of {
        Shape::Text => scalar(),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Whole(low, i64::MAX) => json!({ "type": "integer", "minimum": low }),
        Shape::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Shape::Number(low, f64::MAX) => json!({ "type": "number", "exclusiveMinimum": low }),
        Shape::Number(low, high) => json!({ "type": "number", "exclusiveMinimum": low, "maximum": high }),
        Shape::Duration => text_form("([0-9]+(ms|s|m|h))+"),
        Shape::Temperature => text_form("-?[0-9]+(\\.[0-9]+)?(C|°C)"),
        Shape::Percent => text_form("[0-9]+(\\.[0-9]+)?%"),
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
