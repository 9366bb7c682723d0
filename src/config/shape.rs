//! Shapes of values: what may stand behind a key. One table says it for the checks of keys that this build only knows by name, for
//! the JSON Schema and for the reference.

use super::{
    diagnose::{Diagnostics, listed},
    fields::Slot,
    level::Level,
    yaml::Kind,
};

/// What may stand behind a key.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Any scalar, as written.
    Text,
    /// Text of a form that a decoder of its own checks: how it is spoken of, and a pattern for the schema.
    Form(&'static str, &'static str),
    Bool,
    /// Inclusive bounds.
    Whole(i64, i64),
    /// Above the first, at most the second.
    Number(f64, f64),
    Duration,
    /// `85C`; a difference is written alike.
    Temperature,
    /// `3%`.
    Percent,
    /// `4Gi`.
    Size,
    /// One of these words.
    Choice(&'static [Word]),
    /// A word of a set, or another shape.
    WordOr(&'static [Word], &'static Shape),
    /// One value is a constant, a list is an axis.
    Axis(&'static Shape),
    /// A list with at least one item.
    List(&'static Shape),
    /// One or a list of them.
    OneOrMany(&'static Shape),
    /// A map with names that the file gives.
    MapOf(&'static Shape),
    /// A map with a fixed set of keys.
    Map(&'static Level),
    /// A duration, or a map with a fixed set of keys.
    DurationOr(&'static Level),
    /// Understood by a decoder of its own; for the schema: a list of maps.
    ListOfMaps,
    /// Blocks of a matrix.
    Blocks,
}

/// One word of a set.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    pub word: &'static str,
    /// Understood by this build.
    pub built: bool,
    pub about: &'static str,
}

impl Shape {
    /// How it is spoken of in the reference: "whole number, 1 to 10000".
    #[must_use]
    pub fn told(&self) -> String {
        match self {
            Shape::Text => "text".into(),
            Shape::Form(told, _) => (*told).into(),
            Shape::Bool => "true or false".into(),
            Shape::Whole(low, i64::MAX) => format!("whole number, at least {low}"),
            Shape::Whole(low, high) => format!("whole number, {low} to {high}"),
            Shape::Number(low, high) if *high == f64::MAX => format!("number above {low}"),
            Shape::Number(low, high) => format!("number above {low}, at most {high}"),
            Shape::Duration => "duration".into(),
            Shape::Temperature => "temperature".into(),
            Shape::Percent => "percent".into(),
            Shape::Size => "size".into(),
            Shape::Choice(words) => words.iter().map(|w| format!("`{}`", w.word)).collect::<Vec<_>>().join(", "),
            Shape::WordOr(words, other) => format!("{}, or {}", Shape::Choice(words).told(), other.told()),
            Shape::Axis(of) => format!("axis: {}", of.told()),
            Shape::List(of) => format!("list: {}", of.told()),
            Shape::OneOrMany(of) => format!("{}, or a list", of.told()),
            Shape::MapOf(of) => format!("name → {}", of.told()),
            Shape::Map(level) => format!("map, see [{}](#{})", level.title, level.anchor()),
            Shape::DurationOr(level) => format!("duration, or map, see [{}](#{})", level.title, level.anchor()),
            Shape::ListOfMaps => "list of maps".into(),
            Shape::Blocks => "list of [blocks](#a-block)".into(),
        }
    }
}

/// Checks a value that nothing else reads: faults are reported, nothing is given.
pub fn check(slot: Slot<'_>, shape: &'static Shape, out: &mut Diagnostics) {
    // `null` goes back to what would be there without the key.
    if slot.node.is_null() {
        return;
    }
    match shape {
        Shape::Text | Shape::Form(..) => _ = slot.text(out),
        Shape::Bool => _ = slot.boolean(out),
        Shape::Whole(low, high) => _ = slot.whole(*low..=*high, &format!("{}: {}", slot.name, (*low).max(1)), out),
        Shape::Number(low, high) => _ = slot.number_within(*low, *high, out),
        Shape::Duration => _ = slot.duration(out),
        Shape::Temperature => _ = slot.temperature(out),
        Shape::Percent => _ = slot.percent(out),
        Shape::Size => _ = slot.size(out),
        Shape::Choice(words) => choice(slot, words, out),
        Shape::WordOr(words, other) => {
            let is_word = slot.node.scalar().is_some_and(|scalar| words.iter().any(|w| w.word == scalar.text));
            if !is_word {
                check(slot, other, out);
            }
        }
        Shape::Axis(of) | Shape::OneOrMany(of) => {
            for item in slot.one_or_many(&format!("{}: [a, b]", slot.name), out).map(|found| found.0).unwrap_or_default() {
                check(item, of, out);
            }
        }
        Shape::List(of) => {
            for item in slot.list(&format!("{}: [a, b]", slot.name), out).unwrap_or_default() {
                check(item, of, out);
            }
        }
        Shape::MapOf(of) => {
            for entry in slot.named_entries(&format!("{}: {{ name: value }}", slot.name), out).unwrap_or_default() {
                check(Slot::of(entry), of, out);
            }
        }
        Shape::Map(level) => check_level(slot, level, out),
        Shape::DurationOr(level) => {
            if matches!(slot.node.kind, Kind::Map(_)) {
                check_level(slot, level, out);
            } else {
                slot.duration(out);
            }
        }
        Shape::ListOfMaps | Shape::Blocks => {}
    }
}

/// One of a set's words; whether this build does it is said with the key.
fn choice(slot: Slot<'_>, words: &[Word], out: &mut Diagnostics) {
    let choices: Vec<(&str, ())> = words.iter().map(|w| (w.word, ())).collect();
    slot.choice(&choices, &[], out);
}

fn check_level(slot: Slot<'_>, level: &'static Level, out: &mut Diagnostics) {
    let example = format!("{}: {{ {}: … }}", slot.name, level.keys.first().map_or("key", |key| key.name));
    let Some(fields) = slot.fields(level, &example, out) else { return };
    for entry in fields.iter() {
        if let Some(key) = level.key(&entry.key.text) {
            check(Slot::of(entry), &key.shape, out);
        }
    }
    let missing: Vec<&str> =
        level.keys.iter().filter(|key| key.required && fields.get(key.name).is_none() && !fields.is_meant(key.name)).map(|key| key.name).collect();
    if !missing.is_empty() {
        let names = listed(missing.iter().map(|name| format!("`{name}`")));
        out.error(slot.place, format!("{} without {names}", level.what)).hint(format!("keys of {}: {}", level.what, listed(level.names())));
    }
}
