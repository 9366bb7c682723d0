//! Reading maps and scalars of the tree: each getter gives the value, or leaves an error and gives nothing.

use super::{
    diagnose::{Diagnostic, Diagnostics, NOT_YET, Span, listed, nearest, tick},
    level::Level,
    shape, units, vocabulary,
    yaml::{Core, Entry, Kind, Node, Scalar},
};
use std::{collections::HashMap, hash::Hash, ops::RangeInclusive, time::Duration};

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
        self.no_kind(takes, out).hint(format!("write it like `{example}`"));
    }

    fn no_kind<'o>(self, takes: &str, out: &'o mut Diagnostics) -> &'o mut Diagnostic {
        out.error(self.place, format!("{} takes {takes}", tick(self.name))).label(self.label())
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
                match self.as_decimal() {
                    Some(value) => _ = self.no_kind("a whole number", out).hint(format!("write `{value}`")),
                    None => self.mismatch("a whole number", example, out),
                }
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

    /// A whole number that is written as something else: with quotes, with an exponent, or in a form that YAML 1.2 has as text.
    fn as_decimal(self) -> Option<i64> {
        let text = self.node.scalar()?.text.as_str();
        let plain = text.replace('_', "");
        match (text.get(..2), plain.get(2..)) {
            (Some("0o"), Some(digits)) => i64::from_str_radix(digits, 8).ok(),
            (Some("0x"), Some(digits)) => i64::from_str_radix(digits, 16).ok(),
            (Some("0b"), Some(digits)) => i64::from_str_radix(digits, 2).ok(),
            _ => plain.parse().ok().or_else(|| {
                let value: f64 = plain.parse().ok()?;
                #[expect(clippy::cast_possible_truncation, reason = "a whole number of a size that is exact")]
                let whole = (value.fract() == 0.0 && value.abs() < 1e15).then_some(value as i64);
                whole
            }),
        }
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

    pub fn number_within(self, above: f64, at_most: f64, out: &mut Diagnostics) -> Option<f64> {
        let value = self.number(&format!("{}: {}", self.name, if at_most < f64::MAX { at_most } else { above + 1.0 }), out)?;
        if value > above && value <= at_most {
            return Some(value);
        }
        let upper = if at_most < f64::MAX { format!(", at most {at_most}") } else { String::new() };
        self.refuse(format!("{} is out of range", tick(self.name)), format!("more than {above}{upper}"), out);
        None
    }

    pub fn boolean(self, out: &mut Diagnostics) -> Option<bool> {
        if let Some(Core::Bool(value)) = self.node.scalar().map(Scalar::core) {
            return Some(value);
        }
        self.mismatch("`true` or `false`", &format!("{}: true", self.name), out);
        None
    }

    /// A number with a unit, read by one of [`units`].
    fn quantity<T>(self, kind: &str, example: &str, read: impl FnOnce(&str) -> Result<T, units::NoQuantity>, out: &mut Diagnostics) -> Option<T> {
        let Some(scalar) = self.node.scalar().filter(|scalar| scalar.core() != Core::Null) else {
            self.mismatch(kind, &format!("{}: {example}", self.name), out);
            return None;
        };
        match read(&scalar.text) {
            Ok(value) => Some(value),
            Err(fault) => {
                out.error(self.place, format!("{} takes {kind}", tick(self.name))).label(fault.reason).hint(fault.hint);
                None
            }
        }
    }

    /// Degrees Celsius.
    pub fn temperature(self, out: &mut Diagnostics) -> Option<f64> {
        self.quantity("a temperature", "85C", units::temperature, out)
    }

    /// As a fraction: 0.03 for `3%`.
    pub fn percent(self, out: &mut Diagnostics) -> Option<f64> {
        self.quantity("a percentage", "3%", units::percent, out)
    }

    /// Bytes.
    pub fn size(self, out: &mut Diagnostics) -> Option<u64> {
        self.quantity("a size", "4Gi", units::size, out)
    }

    /// kHz.
    pub fn frequency(self, out: &mut Diagnostics) -> Option<u64> {
        self.quantity("a frequency", "1500MHz", units::frequency, out)
    }

    pub fn duration(self, out: &mut Diagnostics) -> Option<Duration> {
        self.quantity("a duration", "10s", units::duration, out)
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
        let error = out.error(self.place, format!("unknown value {} of {}", tick(&scalar.text), tick(self.name)));
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
            Kind::Scalar(_) if self.node.is_null() => Some(Fields { place: self.place, known: Vec::new(), later: Vec::new(), meant: Vec::new() }),
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
    /// Keys that this build knows by name only.
    pub later: Vec<&'a Entry>,
    /// Keys that unknown ones are probably meant to be.
    meant: Vec<&'static str>,
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

    /// All entries with a key: several where several files were put together.
    pub fn all(&self, key: &str) -> Vec<Slot<'a>> {
        self.known.iter().filter(|entry| entry.key.text == key).map(|entry| Slot::of(entry)).collect()
    }

    /// In file order.
    pub fn iter(&self) -> impl Iterator<Item = &'a Entry> + '_ {
        self.known.iter().copied()
    }

    /// Is it there under a name that is nearly its own? Then that is the fault.
    #[must_use]
    pub fn is_meant(&self, key: &str) -> bool {
        self.meant.contains(&key)
    }

    /// The entry of a key that must be there.
    pub fn need(&self, key: &str, of: &str, hint: &str, out: &mut Diagnostics) -> Option<Slot<'a>> {
        let found = self.get(key);
        if found.is_none() && !self.is_meant(key) {
            out.error(self.place, format!("{of} without {}", tick(key))).hint(hint);
        }
        found
    }
}

/// Sorts a map's keys into known, not yet, misplaced and unknown.
pub fn fields<'a>(entries: &'a [Entry], place: Span, level: &'static Level, out: &mut Diagnostics) -> Fields<'a> {
    let mut found = Fields { place, known: Vec::new(), later: Vec::new(), meant: Vec::new() };
    let all = || format!("keys of {}: {}", level.what, listed(level.names()));
    for entry in entries {
        let name = entry.key.text.as_str();
        match level.key(name) {
            Some(key) if !key.is_on(level.backend) => {
                let backends = key.on.iter().map(|backend| format!("`{backend}`")).collect::<Vec<_>>().join(", ");
                let error = out.error(entry.key.span, format!("{} has no meaning here", tick(name)));
                error.label(format!("this is for backend {backends}"));
                error.hint("remove it, or move it to a block with that backend; `isotherm reference campaign` has the keys of each");
            }
            // What has no value is as if it weren't there.
            Some(key) if entry.value.is_null() && !key.required && !key.bare => {}
            Some(key) if key.built => found.known.push(entry),
            Some(key) => {
                found.later.push(entry);
                let hint = format!("keys of {} in this build: {}", level.what, listed(level.names()));
                not_yet(entry.key.span, &tick(&format!("{}{name}", level.prefix)), &hint, out);
                shape::check(Slot::of(entry), &key.shape, out);
            }
            None => {
                let error = out.error(entry.key.span, format!("unknown key {}", tick(name)));
                if let Some(near) = nearest(name, level.keys.iter().filter(|key| key.is_on(level.backend)).map(|key| key.name)) {
                    error.label(format!("did you mean `{near}`?"));
                    found.meant.push(near);
                } else if let Some(home) = vocabulary::home_of(name) {
                    error.label(format!("this belongs to {home}"));
                }
                error.hint(all());
            }
        }
    }
    found
}

/// Something of the design that a later build will know: it stops a run, and not the understanding of the rest.
pub fn not_yet(place: Span, what: &str, hint: &str, out: &mut Diagnostics) {
    out.error(place, format!("{what}{NOT_YET}")).hint(hint).later();
}

/// The first of two items that are the same, for each that comes again. `shown`: an item in a message.
pub fn report_repeats<T: Eq + Hash>(what: &str, shown: impl Fn(&T) -> String, items: impl IntoIterator<Item = (T, Span)>, out: &mut Diagnostics) {
    let mut first: HashMap<T, Span> = HashMap::new();
    for (item, span) in items {
        if let Some(earlier) = first.get(&item) {
            let message = format!("{} is there twice in {}", tick(&shown(&item)), tick(what));
            out.error(span, message).label("again here").also(*earlier, "first here").hint("remove one of them");
        } else {
            first.insert(item, span);
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
