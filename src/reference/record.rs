//! `docs/record-fields.md`: every field of a record, from the schema that its types give.

use super::markdown::{Table, codes};
use crate::registry::Unit;
use crate::store::seal;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// As many places are named one by one.
const MOST_PLACES: usize = 6;

pub(super) fn page() -> String {
    let schema = seal::schema();
    let mut walk = Walk { definitions: schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default(), ..Walk::default() };
    let top = walk.fields(&schema, RECORD);
    let sections = walk.sections();
    // Only now is it known where each of the types stands.
    let sections = walk.parents.keys().fold(sections, |text, name| text.replace(&mark(name), &walk.places(name)));
    format!(
        "\
# Fields of a record

What a record is for, how it is written and how it is sealed stands in [record.md](record.md); the same as a JSON Schema in \
[`configs/schema/record.schema.json`](../configs/schema/record.schema.json). A field that may be `null` may be missing, too; both mean the same.

## Record

{top}
{sections}"
    )
}

/// The type that everything else is a part of.
const RECORD: &str = "Record";

/// Goes through the schema from the record down.
#[derive(Default)]
struct Walk {
    definitions: Map<String, Value>,
    /// Types in the order in which they are met; those of one section, until they have sections of their own.
    met: Vec<String>,
    /// Where each of them stands: the type it is a part of, and as which field.
    parents: BTreeMap<String, Vec<(String, String)>>,
}

/// A place in the text that is filled in last.
fn mark(name: &str) -> String {
    format!("\u{0}{name}\u{0}")
}

impl Walk {
    /// Sections of the types that were met, each followed by those of its parts.
    fn sections(&mut self) -> String {
        let mut text = String::new();
        for name in std::mem::take(&mut self.met) {
            text += &self.section(&name);
            text += &self.sections();
        }
        text
    }

    /// The table of an object's fields.
    fn fields(&mut self, object: &Value, owner: &str) -> String {
        let mut table = Table::new(["field", "type", "unit", "`null`", "is"]);
        self.rows(object, owner, "", &mut table);
        table.text()
    }

    fn rows(&mut self, object: &Value, owner: &str, prefix: &str, table: &mut Table) {
        let required: Vec<&str> = object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let shown = format!("{prefix}{name}");
            let is_required = required.contains(&name.as_str());
            let null = match (nullable(field), is_required) {
                (Nullable::Yes, _) | (Nullable::Anything, false) => "yes",
                (Nullable::No, false) => "left out if empty",
                (Nullable::No | Nullable::Anything, true) => "",
            };
            let unit = if name == "bytes" { Some(Unit::Bytes) } else { Unit::of_name(name) };
            // An object without a name of its own is told field by field.
            let is_object = field.get("properties").is_some();
            let kind = if is_object { "object".into() } else { self.kind(field, owner, &shown) };
            table.row([&format!("`{shown}`"), &kind, unit.map_or("", Unit::symbol), null, self.description(field)]);
            if is_object {
                self.rows(field, owner, &format!("{shown}."), table);
            }
        }
    }

    /// The field's own description, else that of its type.
    fn description<'a>(&'a self, field: &'a Value) -> &'a str {
        let of_type = || reference(field).and_then(|name| self.definitions.get(name)).and_then(|definition| definition.get("description"));
        field.get("description").or_else(of_type).and_then(Value::as_str).unwrap_or_default()
    }

    /// What a field's value is, in words; types are links to their section.
    fn kind(&mut self, field: &Value, owner: &str, path: &str) -> String {
        if let Some(name) = field.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix(DEFINITIONS)) {
            return self.link(name, owner, path);
        }
        for alternatives in ["anyOf", "oneOf"] {
            if let Some(list) = field.get(alternatives).and_then(Value::as_array) {
                let kinds = list.iter().filter(|one| one.get("type") != Some(&"null".into())).map(|one| self.kind(one, owner, path));
                return kinds.collect::<Vec<_>>().join(" or ");
            }
        }
        let kind = match field.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default(),
            _ => return "any JSON".into(),
        };
        match (kind, field.get("items"), field.get("additionalProperties")) {
            ("array", Some(items), _) => format!("list of {}", self.kind(items, owner, &format!("{path}[]"))),
            ("object", _, Some(values @ Value::Object(_))) => format!("map to {}", self.kind(values, owner, &format!("{path}.*"))),
            ("object", ..) => "map to any JSON".into(),
            ("string", ..) => "text".into(),
            (other, ..) => other.into(),
        }
    }

    fn link(&mut self, name: &str, owner: &str, path: &str) -> String {
        if !self.parents.contains_key(name) {
            self.met.push(name.to_owned());
        }
        let parents = self.parents.entry(name.to_owned()).or_default();
        let parent = (owner.to_owned(), path.to_owned());
        if !parents.contains(&parent) {
            parents.push(parent);
        }
        link(name)
    }

    /// One type: what it is, where it stands, its fields or words.
    fn section(&mut self, name: &str) -> String {
        let definition = self.definitions.get(name).cloned().unwrap_or_default();
        let description = definition.get("description").and_then(Value::as_str).unwrap_or_default();
        let alternatives = definition.get("oneOf").and_then(Value::as_array).filter(|list| list.iter().any(|one| one.get("properties").is_some()));
        let content = match (definition.get("properties"), alternatives, words(&definition)) {
            (Some(_), ..) => self.fields(&definition, name),
            (None, Some(list), _) => self.alternatives(list, name),
            (None, None, Some(words)) => words,
            (None, None, None) => format!("Value: {}.\n", self.kind(&definition, name, "")),
        };
        format!("## {name}\n\n{description}\n\nStands at {}.\n\n{content}\n", mark(name))
    }

    /// An object with exactly one of several keys.
    fn alternatives(&mut self, list: &[Value], owner: &str) -> String {
        let mut table = Table::new(["one of", "type", "unit", "`null`", "is"]);
        for one in list {
            let mut one = one.clone();
            let description = one.get("description").cloned();
            // Among them may be words by themselves.
            let words = one.get("const").into_iter().chain(one.get("enum").and_then(Value::as_array).into_iter().flatten());
            for word in words.filter_map(Value::as_str) {
                let is = description.as_ref().and_then(Value::as_str).unwrap_or_default();
                table.row([&format!("`\"{word}\"`"), "text", "", "", is]);
            }
            // The words stand at the alternative, not at its key.
            if let (Some(description), Some(properties)) = (description, one.get_mut("properties").and_then(Value::as_object_mut)) {
                for field in properties.values_mut().filter_map(Value::as_object_mut) {
                    field.insert("description".into(), description.clone());
                }
            }
            self.rows(&one, owner, "", &mut table);
        }
        table.text()
    }

    /// Where a type stands, from the record down; as parts of other types where that would be a long list.
    fn places(&self, name: &str) -> String {
        let paths = self.paths(name);
        if paths.len() <= MOST_PLACES {
            return codes(paths.iter().map(String::as_str));
        }
        let parents = self.parents.get(name).into_iter().flatten();
        parents.map(|(owner, field)| format!("`{field}` of {}", link(owner))).collect::<Vec<_>>().join(", ")
    }

    fn paths(&self, name: &str) -> Vec<String> {
        let parents = self.parents.get(name).into_iter().flatten();
        let path = |(owner, field): &(String, String)| match owner.as_str() {
            RECORD => vec![field.clone()],
            owner => self.paths(owner).iter().map(|path| format!("{path}.{field}")).collect(),
        };
        parents.flat_map(path).collect()
    }
}

const DEFINITIONS: &str = "#/$defs/";

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

/// The type that a field refers to, `null` or not.
fn reference(field: &Value) -> Option<&str> {
    let direct = field.get("$ref");
    let nullable = || field.get("anyOf").and_then(Value::as_array).and_then(|list| list.iter().find_map(|one| one.get("$ref")));
    direct.or_else(nullable).and_then(Value::as_str).and_then(|reference| reference.strip_prefix(DEFINITIONS))
}

enum Nullable {
    No,
    Yes,
    /// The schema sets no bounds.
    Anything,
}

fn nullable(field: &Value) -> Nullable {
    let is_null = |kind: &Value| kind == "null";
    let null = match (field.get("type"), field.get("anyOf")) {
        (Some(Value::Array(kinds)), _) => kinds.iter().any(is_null),
        (Some(_), _) => false,
        (None, Some(Value::Array(list))) => list.iter().any(|one| one.get("type").is_some_and(is_null)),
        _ if field.get("$ref").is_some() || field.get("oneOf").is_some() => false,
        _ => return Nullable::Anything,
    };
    if null { Nullable::Yes } else { Nullable::No }
}

/// The words of a closed set with what they mean.
fn words(definition: &Value) -> Option<String> {
    let mut table = Table::new(["word", "means"]);
    let mut described = false;
    let single = [definition.clone()];
    let list = definition.get("oneOf").and_then(Value::as_array).map_or(single.as_slice(), Vec::as_slice);
    let mut all = Vec::new();
    for one in list {
        let description = one.get("description").and_then(Value::as_str).filter(|_| one.get("const").is_some());
        let words = one.get("const").into_iter().chain(one.get("enum").and_then(Value::as_array).into_iter().flatten());
        for word in words.filter_map(Value::as_str) {
            described |= description.is_some();
            table.row([&format!("`{word}`"), description.unwrap_or_default()]);
            all.push(word);
        }
    }
    match (all.is_empty(), described) {
        (true, _) => None,
        (false, true) => Some(table.text()),
        (false, false) => Some(format!("One of {}.\n", codes(all))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields and types of the record that say nothing of themselves.
    fn silent(schema: &Value) -> Vec<String> {
        let walk = Walk { definitions: schema["$defs"].as_object().cloned().unwrap_or_default(), ..Walk::default() };
        let mut silent = Vec::new();
        for (name, object) in walk.definitions.iter().map(|(name, object)| (name.as_str(), object)).chain([(RECORD, schema)]) {
            if object.get("description").is_none() {
                silent.push(name.to_owned());
            }
            silent_fields(&walk, name, object, false, &mut silent);
            for one in object.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
                silent_fields(&walk, name, one, true, &mut silent);
            }
        }
        silent
    }

    fn silent_fields(walk: &Walk, name: &str, object: &Value, is_alternative: bool, silent: &mut Vec<String>) {
        let described = object.get("description").is_some();
        for (field, schema) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let path = format!("{name}.{field}");
            // Of an alternative, the words stand beside its key.
            if walk.description(schema).is_empty() && !(is_alternative && described) {
                silent.push(path.clone());
            }
            silent_fields(walk, &path, schema, false, silent);
        }
    }

    #[test]
    fn every_field_and_type_of_a_record_says_what_it_is() {
        assert_eq!(silent(&seal::schema()), Vec::<String>::new());
    }

    #[test]
    fn the_page_speaks_json_and_not_rust() {
        let page = page();
        for word in ["`None`", "Option", "[`"] {
            assert!(!page.contains(&format!("{word} ")) && !page.contains(&format!("{word}.")), "{word}");
        }
        assert!(page.contains("`null` with an `omitted_reason`"));
    }
}
