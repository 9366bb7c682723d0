//! Reading maps and scalars of the tree: each getter gives the value, or leaves an error and gives nothing.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    units,
    vocabulary::{self, Level},
    yaml::{Core, Entry, Kind, Node, Scalar},
};
use std::{ops::RangeInclusive, time::Duration};

/// A value together with how to speak of it.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    pub name: &'a str,
    pub node: &'a Node,
    /// The value, or its key where there is no value to see.
    pub place: Span,
    pub key: Span,
}

impl<'a> Slot<'a> {
    #[must_use]
    pub fn of(entry: &'a Entry) -> Slot<'a> {
        Slot::named(&entry.key.text, entry)
    }

    /// An entry under another name than its key.
    #[must_use]
    pub fn named(name: &'a str, entry: &'a Entry) -> Slot<'a> {
        Slot { name, node: &entry.value, place: seen(&entry.value, entry.key.span), key: entry.key.span }
    }

    /// An item of this slot's list.
    #[must_use]
    pub fn item(self, node: &'a Node) -> Slot<'a> {
        Slot { name: self.name, node, place: seen(node, self.key), key: self.key }
    }

    /// The value isn't of the kind that is taken here.
    pub fn mismatch(self, takes: &str, example: &str, out: &mut Diagnostics) {
        let name = tick(self.name);
        out.error(self.place, format!("{name} takes {takes}")).label(self.label()).hint(format!("write it like `{example}`"));
    }

    fn label(self) -> String {
        if self.node.is_null() { "there is no value".to_owned() } else { format!("this is {}", self.node.describe()) }
    }

    /// The value is of the right kind, but not one of those that are taken.
    pub fn refuse(self, message: String, hint: impl Into<String>, out: &mut Diagnostics) {
        out.error(self.place, message).hint(hint);
    }

    /// Any scalar, as written; a missing value is an error.
    pub fn text(self, out: &mut Diagnostics) -> Option<String> {
        match self.node.scalar() {
            Some(scalar) if scalar.core() != Core::Null => Some(scalar.text.clone()),
            Some(_) => {
                let text = format!("{} takes text", tick(self.name));
                out.error(self.place, text).label(self.label()).hint("write a value; in quotes, `\"\"` is the empty text and `\"null\"` the word");
                None
            }
            None => {
                self.mismatch("text", &format!("{}: text", self.name), out);
                None
            }
        }
    }

    /// [`text`](Self::text) with at least one character.
    pub fn some_text(self, out: &mut Diagnostics) -> Option<String> {
        let text = self.text(out)?;
        if text.trim().is_empty() {
            self.refuse(format!("{} is empty", tick(self.name)), "write a value, or leave the key out", out);
            return None;
        }
        Some(text)
    }

    pub fn whole(self, range: RangeInclusive<i64>, example: &str, out: &mut Diagnostics) -> Option<i64> {
        let value = match self.node.scalar().map(Scalar::core) {
            Some(Core::Int(value)) => value,
            Some(Core::Unfit) => i64::MAX,
            _ => {
                self.mismatch("a whole number", example, out);
                return None;
            }
        };
        if !range.contains(&value) {
            let bounds = format!("at least {}, at most {}", range.start(), range.end());
            self.refuse(format!("{} is out of range", tick(self.name)), bounds, out);
            return None;
        }
        Some(value)
    }

    pub fn count(self, at_least: u32, at_most: u32, out: &mut Diagnostics) -> Option<u32> {
        let value = self.whole(i64::from(at_least)..=i64::from(at_most), &format!("{}: {}", self.name, at_least.max(4)), out)?;
        u32::try_from(value).ok()
    }

    pub fn number(self, example: &str, out: &mut Diagnostics) -> Option<f64> {
        match self.node.scalar().map(Scalar::core) {
            #[expect(clippy::cast_precision_loss, reason = "a number that large is refused by its range")]
            Some(Core::Int(value)) => Some(value as f64),
            Some(Core::Float(value)) => Some(value),
            _ => {
                self.mismatch("a number", example, out);
                None
            }
        }
    }

    pub fn duration(self, out: &mut Diagnostics) -> Option<Duration> {
        let Some(scalar) = self.node.scalar().filter(|scalar| scalar.core() != Core::Null) else {
            self.mismatch("a duration", &format!("{}: 10s", self.name), out);
            return None;
        };
        match units::duration(&scalar.text) {
            Ok(duration) => Some(duration),
            Err(fault) => {
                out.error(self.place, format!("{} takes a duration", tick(self.name))).label(fault.reason).hint(fault.hint);
                None
            }
        }
    }

    /// One word of a set; `later` are words that this build doesn't know yet.
    pub fn choice<T: Copy>(self, choices: &[(&str, T)], later: &[&str], out: &mut Diagnostics) -> Option<T> {
        let words = || listed(choices.iter().map(|choice| choice.0));
        let Some(scalar) = self.node.scalar().filter(|scalar| scalar.core() != Core::Null) else {
            self.mismatch(&format!("one of {}", words()), &format!("{}: {}", self.name, choices.first().map_or("", |c| c.0)), out);
            return None;
        };
        if let Some(choice) = choices.iter().find(|choice| choice.0 == scalar.text) {
            return Some(choice.1);
        }
        if later.contains(&scalar.text.as_str()) {
            not_yet(self.place, &tick(&format!("{}: {}", self.name, scalar.text)), &format!("choices in this build: {}", words()), out);
            return None;
        }
        let error = out.error(self.place, format!("unknown {} {}", self.name, tick(&scalar.text)));
        if let Some(near) = nearest(&scalar.text, choices.iter().map(|choice| choice.0)) {
            error.label(format!("did you mean `{near}`?"));
        }
        error.hint(format!("choices: {}", words()));
        None
    }

    /// The items of a list, or the scalar alone; and whether it was a list. An empty list is an error.
    pub fn one_or_many(self, example: &str, out: &mut Diagnostics) -> Option<(Vec<Slot<'a>>, bool)> {
        match &self.node.kind {
            Kind::Scalar(_) => Some((vec![self], false)),
            Kind::Map(_) => {
                self.mismatch("a value, or a list of values", example, out);
                None
            }
            Kind::Seq(_) => Some((self.list(example, out)?, true)),
        }
    }

    /// The items of a list with at least one.
    pub fn list(self, example: &str, out: &mut Diagnostics) -> Option<Vec<Slot<'a>>> {
        let Kind::Seq(items) = &self.node.kind else {
            self.mismatch("a list", example, out);
            return None;
        };
        if items.is_empty() {
            self.refuse(format!("{} is an empty list", tick(self.name)), format!("write it like `{example}`"), out);
            return None;
        }
        Some(items.iter().map(|node| self.item(node)).collect())
    }

    /// The entries of a map whose keys are names that the file gives.
    pub fn named_entries(self, example: &str, out: &mut Diagnostics) -> Option<&'a [Entry]> {
        match &self.node.kind {
            Kind::Map(entries) => Some(entries),
            _ => {
                self.mismatch("a map", example, out);
                None
            }
        }
    }

    /// The entries of a map with a fixed set of keys. Without a value it is an empty map.
    pub fn fields(self, level: &'static Level, example: &str, out: &mut Diagnostics) -> Option<Fields<'a>> {
        match &self.node.kind {
            Kind::Map(entries) => Some(fields(entries, self.place, level, out)),
            Kind::Scalar(_) if self.node.is_null() => Some(Fields { place: self.place, known: Vec::new(), n_later: 0 }),
            _ => {
                self.mismatch("a map", example, out);
                None
            }
        }
    }
}

fn seen(node: &Node, key: Span) -> Span {
    if node.span.start == node.span.end { key } else { node.span }
}

/// The known entries of a map.
#[derive(Debug)]
pub struct Fields<'a> {
    /// Where a missing key is reported.
    pub place: Span,
    known: Vec<&'a Entry>,
    /// Keys that this build doesn't know yet.
    pub n_later: usize,
}

impl<'a> Fields<'a> {
    /// The same, with another place for what is missing.
    #[must_use]
    pub fn at(mut self, place: Span) -> Fields<'a> {
        self.place = place;
        self
    }

    #[must_use]
    pub fn get(&self, key: &str) -> Option<Slot<'a>> {
        self.known.iter().find(|entry| entry.key.text == key).map(|entry| Slot::of(entry))
    }

    /// In file order.
    pub fn iter(&self) -> impl Iterator<Item = &'a Entry> + '_ {
        self.known.iter().copied()
    }

    /// The entry of a key that must be there.
    pub fn need(&self, key: &str, of: &str, hint: &str, out: &mut Diagnostics) -> Option<Slot<'a>> {
        let found = self.get(key);
        if found.is_none() {
            out.error(self.place, format!("{of} without {}", tick(key))).hint(hint);
        }
        found
    }
}

/// Sorts a map's keys into known, not yet, misplaced and unknown.
pub fn fields<'a>(entries: &'a [Entry], place: Span, level: &'static Level, out: &mut Diagnostics) -> Fields<'a> {
    let mut found = Fields { place, known: Vec::new(), n_later: 0 };
    for entry in entries {
        let key = entry.key.text.as_str();
        if level.keys.contains(&key) {
            found.known.push(entry);
        } else if level.later.contains(&key) {
            found.n_later += 1;
            not_yet(
                entry.key.span,
                &tick(&format!("{}{key}", level.prefix)),
                &format!("keys of {} in this build: {}", level.what, listed(level.keys)),
                out,
            );
        } else if let Some((_, backend)) = level.foreign.iter().find(|(foreign, _)| *foreign == key) {
            let error = out.error(entry.key.span, format!("{} has no meaning here", tick(key)));
            error.label(format!("this is for backend `{backend}`")).hint(format!("keys of {}: {}", level.what, listed(level.keys)));
        } else {
            let error = out.error(entry.key.span, format!("unknown key {}", tick(key)));
            if let Some(near) = nearest(key, level.keys.iter().copied()) {
                error.label(format!("did you mean `{near}`?"));
            } else if let Some(home) = vocabulary::home_of(key) {
                error.label(format!("this belongs to {home}"));
            }
            error.hint(format!("keys of {}: {}", level.what, listed(level.keys)));
        }
    }
    found
}

/// Something of the design that a later build will know.
pub fn not_yet(place: Span, what: &str, hint: &str, out: &mut Diagnostics) {
    out.error(place, format!("{what} is not in this build yet")).hint(hint);
}

/// The first of two items that are the same, for each that comes again.
pub fn report_repeats<'s>(what: &str, items: impl IntoIterator<Item = (&'s str, Span)>, out: &mut Diagnostics) {
    let mut first = std::collections::HashMap::new();
    for (text, span) in items {
        if let Some(earlier) = first.get(text) {
            let message = format!("{} is there twice in {}", tick(text), tick(what));
            out.error(span, message).label("again here").also(*earlier, "first here").hint("remove one of them");
        } else {
            first.insert(text, span);
        }
    }
}

/// One of the names that the file defines elsewhere.
pub fn known_name(slot: Slot<'_>, kind: &str, known: &[&str], section: &str, out: &mut Diagnostics) -> Option<String> {
    let name = slot.text(out)?;
    if known.contains(&name.as_str()) {
        return Some(name);
    }
    let error = out.error(slot.place, format!("unknown {kind} {}", tick(&name)));
    if let Some(near) = nearest(&name, known.iter().copied()) {
        error.label(format!("did you mean `{near}`?"));
    }
    if known.is_empty() {
        error.hint(format!("describe it under `{section}`"));
    } else {
        error.hint(format!("{section} of this file: {}", listed(known)));
    }
    None
}
