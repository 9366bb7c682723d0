//! What a block sweeps: its axes with their values, and the groups that turn together.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    fields::{Slot, known_name, not_yet, report_repeats},
    level::Level,
    model::{Axis, AxisValue},
    shape::{self, Shape, Word},
    units, vocabulary,
    yaml::{Core, Entry, Kind, Scalar},
};

/// An axis and where it stands.
#[derive(Debug, Clone)]
pub struct FoundAxis {
    pub axis: Axis,
    /// As long as `axis.values`.
    pub places: Vec<Span>,
    pub key: Span,
    pub kind: AxisKind,
}

/// Names that values of some axes are taken from.
#[derive(Debug, Clone, Copy)]
pub struct Ids<'a> {
    /// `None` = not known, and said elsewhere.
    pub models: Option<&'a [&'a str]>,
    /// Of all devices of the block.
    pub builds: &'a [&'a str],
}

/// How the values of an axis are read.
#[derive(Debug, Clone, Copy)]
pub enum AxisKind {
    Model,
    Build,
    Cpus,
    Whole(i64, i64),
    WordOrWhole(&'static [Word], i64, i64),
    /// A value with the type it is written with.
    Typed,
    /// Text as written.
    Text,
    Flag,
    Policy,
}

impl AxisKind {
    fn read(self, slot: Slot<'_>, ids: Ids<'_>, out: &mut Diagnostics) -> Option<AxisValue> {
        let example = |low: i64| format!("{}: [{}, {}]", slot.name, low.max(1), low.max(1) * 2);
        match self {
            AxisKind::Model => match ids.models {
                Some(models) => known_name(slot, "model", models, "models", out).map(AxisValue::Text),
                None => slot.text(out).map(AxisValue::Text),
            },
            AxisKind::Build => known_name(slot, "build", ids.builds, "builds", out).map(AxisValue::Text),
            AxisKind::Cpus => cpus(slot, out),
            AxisKind::Whole(low, high) => slot.whole(low..=high, &example(low), out).map(AxisValue::Int),
            AxisKind::WordOrWhole(words, low, high) => match slot.node.scalar().filter(|s| words.iter().any(|w| w.word == s.text)) {
                Some(scalar) => Some(AxisValue::Text(scalar.text.clone())),
                None => slot.whole(low..=high, &example(low), out).map(AxisValue::Int),
            },
            AxisKind::Typed => param_value(slot, out),
            AxisKind::Text => slot.text(out).map(AxisValue::Text),
            AxisKind::Flag => flag_value(slot, out),
            AxisKind::Policy => policy(slot, out),
        }
    }

    fn example(self, name: &str) -> String {
        match self {
            AxisKind::Model | AxisKind::Build | AxisKind::Text | AxisKind::Policy | AxisKind::Flag => format!("{name}: [a, b]"),
            AxisKind::Cpus => format!("{name}: [\"0-3\", all]"),
            AxisKind::Whole(..) | AxisKind::WordOrWhole(..) | AxisKind::Typed => format!("{name}: [1, 2]"),
        }
    }
}

impl FoundAxis {
    /// An axis with one value that a block doesn't say.
    #[must_use]
    pub fn implied(name: &str, value: AxisValue, block: Span) -> FoundAxis {
        let axis = Axis { name: name.to_owned(), swept: false, values: vec![value] };
        FoundAxis { axis, places: vec![block], key: block, kind: AxisKind::Text }
    }
}

/// Reads each value of a slot; `None` unless every one can be read and none is there twice.
pub fn axis(slot: Slot<'_>, kind: AxisKind, ids: Ids<'_>, out: &mut Diagnostics) -> Option<FoundAxis> {
    let name = slot.name;
    let example = match name.split_once('.') {
        Some(("env", _)) => "env: { NAME: [a, b] }".to_owned(),
        Some(("flags", flag)) => format!("flags: {{ {flag}: [\"on\", \"off\"] }}"),
        _ => kind.example(name),
    };
    let (items, swept) = match kind {
        AxisKind::Policy => (slot.list("policy: [{ id: cpu, provider: cpu }]", out)?, true),
        _ => slot.one_or_many(&example, out)?,
    };
    let n_items = items.len();
    let mut values = Vec::with_capacity(n_items);
    let mut places = Vec::with_capacity(n_items);
    for item in items {
        if swept && matches!(item.node.kind, Kind::Seq(_)) && !matches!(kind, AxisKind::Flag) {
            item.refuse(format!("a list inside of the list of {}", tick(name)), format!("one list is the axis: write it like `{example}`"), out);
        } else if let Some(read) = kind.read(item, ids, out) {
            values.push(read);
            places.push(item.place);
        }
    }
    (values.len() == n_items).then(|| FoundAxis { axis: Axis { name: name.to_owned(), swept, values }, places, key: slot.key, kind })
}

/// A value that stands twice on an axis of its own.
pub fn report_repeated_values(found: &FoundAxis, out: &mut Diagnostics) {
    report_same(&found.axis.name, found.axis.values.iter().map(|value| vec![value]).zip(found.places.iter().copied()), out);
}

/// What stands twice with the same types: `1` isn't `"1"`.
fn report_same<'v>(what: &str, values: impl Iterator<Item = (Vec<&'v AxisValue>, Span)>, out: &mut Diagnostics) {
    let shown = |values: &[&AxisValue]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let keyed = values.map(|(values, place)| ((format!("{values:?}"), shown(&values)), place));
    report_repeats(what, |(_, shown)| shown.clone(), keyed, out);
}

/// The axes of one entry of a block, or of a group of `zip`; and the names of those that cannot be read.
pub fn axes_of(entry: &Entry, ids: Ids<'_>, out: &mut Diagnostics) -> (Vec<FoundAxis>, Vec<String>) {
    let name = entry.key.text.as_str();
    let Some(key) = vocabulary::ANY_BLOCK.key(name).filter(|key| vocabulary::is_axis(key)) else { return (Vec::new(), Vec::new()) };
    let slot = Slot::of(entry);
    let kind = match (name, &key.shape) {
        ("params", _) => return each(slot, "params: { size: [1, 8] }", param_axis, ids, out),
        ("env", _) => return each(slot, "env: { NAME: value }", env_axis, ids, out),
        ("flags", _) => return each(slot, "flags: { -fa: [\"on\", \"off\"] }", flag_axis, ids, out),
        ("model", _) => AxisKind::Model,
        ("build", _) => AxisKind::Build,
        ("cpus", _) => AxisKind::Cpus,
        ("policy", _) => AxisKind::Policy,
        (_, Shape::Axis(Shape::Whole(low, high))) => AxisKind::Whole(*low, *high),
        (_, Shape::Axis(Shape::WordOr(words, Shape::Whole(low, high)))) => AxisKind::WordOrWhole(words, *low, *high),
        _ => AxisKind::Text,
    };
    match axis(slot, kind, ids, out) {
        Some(found) => (vec![found], Vec::new()),
        None => (Vec::new(), vec![name.to_owned()]),
    }
}

/// The axes of a map whose keys are names that the file gives.
fn each(
    slot: Slot<'_>,
    example: &str,
    read: fn(&Entry, Ids<'_>, &mut Diagnostics) -> Option<FoundAxis>,
    ids: Ids<'_>,
    out: &mut Diagnostics,
) -> (Vec<FoundAxis>, Vec<String>) {
    let (mut axes, mut unread) = (Vec::new(), Vec::new());
    for entry in slot.named_entries(example, out).unwrap_or_default() {
        match read(entry, ids, out) {
            Some(found) => axes.push(found),
            None if slot.name == "params" => unread.push(entry.key.text.clone()),
            None => unread.push(format!("{}.{}", slot.name, entry.key.text)),
        }
    }
    (axes, unread)
}

fn param_axis(entry: &Entry, ids: Ids<'_>, out: &mut Diagnostics) -> Option<FoundAxis> {
    let name = entry.key.text.as_str();
    let taken = vocabulary::RESERVED_AXES.contains(&name) || name.starts_with("env.") || name.starts_with("flags.");
    if taken {
        let text = format!("{} cannot be the name of a parameter", tick(name));
        out.error(entry.key.span, text)
            .label("this name is taken")
            .hint(format!("names with another meaning: {}", listed(vocabulary::RESERVED_AXES)));
    } else if !units::is_identifier(&name.replace('-', "_")) {
        let text = format!("{} cannot be the name of a parameter", tick(name));
        out.error(entry.key.span, text).hint("letters, digits, `_` and `-`, no digit or `-` in front: it is used as `{name}` in `argv`");
    }
    axis(Slot::of(entry), AxisKind::Typed, ids, out)
}

fn env_axis(entry: &Entry, ids: Ids<'_>, out: &mut Diagnostics) -> Option<FoundAxis> {
    let named = variable_name(entry, out);
    let valued = has_value(entry, "to take a variable of `defaults` out, `defaults.env` must have it", out);
    let name = format!("env.{}", entry.key.text);
    if named && valued { axis(Slot::named(&name, entry), AxisKind::Text, ids, out) } else { None }
}

fn flag_axis(entry: &Entry, ids: Ids<'_>, out: &mut Diagnostics) -> Option<FoundAxis> {
    let flag = entry.key.text.as_str();
    let letters = flag.trim_start_matches('-');
    if !flag.starts_with('-') || letters.is_empty() || letters.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=') {
        let error = out.error(entry.key.span, format!("{} is no option", tick(flag)));
        if !flag.starts_with('-') {
            error.label(format!("did you mean `--{letters}`?"));
        }
        error.hint("write it as on the command line: `flags: { -fa: \"on\", --no-repack: true }`");
        return None;
    }
    if entry.value.is_null() {
        out.error(entry.key.span, format!("the option {} has no value", tick(flag)))
            .hint("write `true` for the option alone, `false` to leave it out, `\"\"` for an empty value");
        return None;
    }
    let name = format!("flags.{flag}");
    axis(Slot::named(&name, entry), AxisKind::Flag, ids, out)
}

/// Text as written; `true` is the option alone, `false` none; a list is one option that is given several times.
pub fn flag_value(slot: Slot<'_>, out: &mut Diagnostics) -> Option<AxisValue> {
    if let Kind::Seq(_) = slot.node.kind {
        let items = slot.list(&format!("{}: [[a, b]]", slot.name), out)?;
        let n_items = items.len();
        let texts: Vec<String> = items.into_iter().filter_map(|item| item.text(out)).collect();
        return (texts.len() == n_items).then_some(AxisValue::List(texts));
    }
    match slot.node.scalar().map(|scalar| (scalar, scalar.core())) {
        Some((_, Core::Bool(value))) => Some(AxisValue::Bool(value)),
        _ => slot.text(out).map(AxisValue::Text),
    }
}

/// `0-3,6` in the order of the numbers, or `all`.
pub fn cpus(slot: Slot<'_>, out: &mut Diagnostics) -> Option<AxisValue> {
    let text = slot.text(out)?;
    if text == "all" {
        return Some(AxisValue::Text(text));
    }
    match units::cpu_list(&text) {
        Ok(cpus) => Some(AxisValue::Text(units::cpu_text(&cpus))),
        Err(why) => {
            out.error(slot.place, format!("{} is no list of CPUs", tick(&text))).label(why).hint("write it like `\"0-3,6\"`, or `all`");
            None
        }
    }
}

fn policy(slot: Slot<'_>, out: &mut Diagnostics) -> Option<AxisValue> {
    let Some(Shape::List(of)) = vocabulary::ANY_BLOCK.key("policy").map(|key| &key.shape) else { return None };
    let before = out.count();
    shape::check(slot, of, out);
    let Kind::Map(entries) = &slot.node.kind else { return None };
    let id = entries.iter().find(|entry| entry.key.text == "id").and_then(|entry| entry.value.scalar());
    id.filter(|_| out.count() == before).map(|scalar| AxisValue::Text(scalar.text.clone()))
}

/// A value with the type it is written with.
fn param_value(slot: Slot<'_>, out: &mut Diagnostics) -> Option<AxisValue> {
    let Some(scalar) = slot.node.scalar() else {
        slot.mismatch("a value, or a list of values", &format!("{}: [1, 2]", slot.name), out);
        return None;
    };
    let value = typed(scalar);
    match (&value, scalar.core()) {
        (None, Core::Null) => slot.refuse(format!("{} without a value", tick(slot.name)), "quote it to make it text: `\"\"`, `\"null\"`", out),
        (None, _) => slot.refuse(format!("{} is no number that can be kept", tick(&scalar.text)), "quote it to keep it as text", out),
        (Some(value), _) if value.to_string() != scalar.text => {
            let text = format!("{} is passed on as `{value}`", tick(&scalar.text));
            out.warning(slot.place, text).hint("quote it to pass it on as written");
        }
        _ => {}
    }
    value
}

pub fn typed(scalar: &Scalar) -> Option<AxisValue> {
    match scalar.core() {
        Core::Bool(value) => Some(AxisValue::Bool(value)),
        Core::Int(value) => Some(AxisValue::Int(value)),
        Core::Float(value) => Some(AxisValue::Float(value)),
        Core::Text => Some(AxisValue::Text(scalar.text.clone())),
        Core::Null | Core::Unfit => None,
    }
}

/// Checks the name of a variable.
pub fn variable_name(entry: &Entry, out: &mut Diagnostics) -> bool {
    let fits = units::is_identifier(&entry.key.text);
    if !fits {
        let text = format!("{} cannot be the name of a variable", tick(&entry.key.text));
        out.error(entry.key.span, text).hint("letters, digits and `_`, no digit in front");
    }
    fits
}

/// A variable without a value is neither empty nor unset.
pub fn has_value(entry: &Entry, otherwise: &str, out: &mut Diagnostics) -> bool {
    let missing = entry.value.is_null();
    if missing {
        let text = format!("the variable {} has no value", tick(&entry.key.text));
        out.error(entry.key.span, text).hint(format!("write `\"\"` for an empty one, `\"null\"` for the word\n{otherwise}"));
    }
    !missing
}

/// The groups of `zip`: each has the axes that turn together.
pub fn zip(slot: Slot<'_>, level: &'static Level, ids: Ids<'_>, out: &mut Diagnostics) -> (Vec<Vec<FoundAxis>>, Vec<String>) {
    const EXAMPLE: &str = "zip: [{ n_batch: [512, 256], n_ubatch: [128, 64] }]";
    let (mut groups, mut unread) = (Vec::new(), Vec::new());
    for item in slot.list(EXAMPLE, out).unwrap_or_default() {
        let Kind::Map(entries) = &item.node.kind else {
            item.mismatch("a list of maps", EXAMPLE, out);
            continue;
        };
        let mut group = Vec::new();
        let before = out.count();
        for entry in entries {
            match level.key(&entry.key.text).filter(|key| vocabulary::is_axis(key) && key.is_on(level.backend)) {
                Some(key) if key.built => {
                    let (axes, bad) = axes_of(entry, ids, out);
                    group.extend(axes);
                    unread.extend(bad);
                }
                Some(key) => not_yet(entry.key.span, &tick(key.name), "take it out of `zip`", out),
                None => {
                    let names = || level.keys.iter().filter(|key| vocabulary::is_axis(key) && key.is_on(level.backend)).map(|key| key.name);
                    let error = out.error(entry.key.span, format!("{} is no axis that can be linked", tick(&entry.key.text)));
                    if let Some(near) = nearest(&entry.key.text, names()) {
                        error.label(format!("did you mean `{near}`?"));
                    }
                    error.hint(format!("keys of a group of `zip`: {}; free axes stand in `params`", listed(names())));
                }
            }
        }
        if out.count() != before {
            unread.extend(group.into_iter().map(|found| found.axis.name));
            continue;
        }
        let longest = group.iter().max_by_key(|found| found.axis.values.len());
        let shortest = group.iter().min_by_key(|found| found.axis.values.len());
        match (longest, shortest) {
            (Some(long), Some(short)) if group.len() > 1 => {
                let (n_long, n_short) = (long.axis.values.len(), short.axis.values.len());
                if n_long != n_short {
                    out.error(short.key, format!("linked axes of different length: {} and {}", tick(&short.axis.name), tick(&long.axis.name)))
                        .label(format!("{n_short} here"))
                        .also(long.key, format!("{n_long} here"))
                        .hint("the lists of one group turn together: give each the same number of values");
                    unread.extend(group.into_iter().map(|found| found.axis.name));
                    continue;
                }
            }
            _ => {
                item.refuse("a group of `zip` has at least two axes".to_owned(), format!("write it like `{EXAMPLE}`"), out);
                unread.extend(group.into_iter().map(|found| found.axis.name));
                continue;
            }
        }
        // Linked, a value may come again beside others; all of them together may not.
        let n_values = group[0].axis.values.len();
        let turns = (0..n_values).map(|i| group.iter().map(|found| &found.axis.values[i]).collect());
        report_same("zip", turns.zip(group[0].places.iter().copied()), out);
        groups.push(group);
    }
    (groups, unread)
}
