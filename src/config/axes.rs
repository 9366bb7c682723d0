//! What a block sweeps: `model`, `threads`, `params`, `env`, and the points that `exclude` takes out again.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    fields::{Slot, known_name, report_repeats},
    model::{Axis, AxisValue},
    units, vocabulary,
    yaml::{Core, Entry, Kind, Scalar},
};
use indexmap::IndexMap;

/// An axis and where its values stand.
#[derive(Debug)]
pub struct FoundAxis {
    pub axis: Axis,
    /// As long as `axis.values`.
    pub places: Vec<Span>,
}

impl FoundAxis {
    /// `threads: 1` of a block that says nothing about threads.
    #[must_use]
    pub fn single_threaded() -> FoundAxis {
        let axis = Axis { name: "threads".to_owned(), swept: false, values: vec![AxisValue::Int(1)] };
        FoundAxis { axis, places: vec![Span::default()] }
    }
}

/// Reads each value of a slot; `None` unless every one can be read and none is there twice.
fn axis<'a>(
    name: &str,
    slot: Slot<'a>,
    example: &str,
    out: &mut Diagnostics,
    mut value: impl FnMut(Slot<'a>, &mut Diagnostics) -> Option<AxisValue>,
) -> Option<FoundAxis> {
    let (items, swept) = slot.one_or_many(example, out)?;
    let n_items = items.len();
    let mut values = Vec::with_capacity(n_items);
    let mut places = Vec::with_capacity(n_items);
    for item in items {
        if swept && matches!(item.node.kind, Kind::Seq(_)) {
            item.refuse(format!("a list inside of the list of {}", tick(name)), format!("one list is the axis: write it like `{example}`"), out);
        } else if let Some(read) = value(item, out) {
            values.push(read);
            places.push(item.place);
        }
    }
    let texts: Vec<String> = values.iter().map(AxisValue::to_string).collect();
    report_repeats(name, texts.iter().map(String::as_str).zip(places.iter().copied()), out);
    (values.len() == n_items).then(|| FoundAxis { axis: Axis { name: name.to_owned(), swept, values }, places })
}

/// `model: digits`, `model: [a, b]`.
pub fn model_axis(slot: Slot<'_>, models: &[&str], out: &mut Diagnostics) -> Option<FoundAxis> {
    axis("model", slot, "model: [a, b]", out, |item, out| known_name(item, "model", models, "models", out).map(AxisValue::Text))
}

/// `threads: 2`, `threads: [1, 2, 4]`.
pub fn threads_axis(slot: Slot<'_>, out: &mut Diagnostics) -> Option<FoundAxis> {
    axis("threads", slot, "threads: [1, 2]", out, |item, out| item.whole(1..=1024, "threads: [1, 2]", out).map(AxisValue::Int))
}

/// Each parameter of a command, in file order. A parameter whose values cannot be read still has its name in the second list.
pub fn param_axes(slot: Slot<'_>, out: &mut Diagnostics) -> (Vec<FoundAxis>, Vec<String>) {
    let mut axes = Vec::new();
    let mut names = Vec::new();
    for entry in slot.named_entries("params: { size: [1, 8] }", out).unwrap_or_default() {
        let name = entry.key.text.as_str();
        names.push(name.to_owned());
        if vocabulary::RESERVED_AXES.contains(&name) || name.starts_with("env.") {
            let text = format!("{} cannot be the name of a parameter", tick(name));
            out.error(entry.key.span, text)
                .label("this name is taken")
                .hint(format!("names with another meaning: {}, env.*", listed(vocabulary::RESERVED_AXES)));
        } else if !units::is_identifier(&name.replace('-', "_")) {
            let text = format!("{} cannot be the name of a parameter", tick(name));
            out.error(entry.key.span, text).hint("letters, digits, `_` and `-`, no digit or `-` in front: it is used as `{name}` in `argv`");
        }
        axes.extend(axis(name, Slot::of(entry), &format!("{name}: [1, 2]"), out, param_value));
    }
    (axes, names)
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

fn typed(scalar: &Scalar) -> Option<AxisValue> {
    match scalar.core() {
        Core::Bool(value) => Some(AxisValue::Bool(value)),
        Core::Int(value) => Some(AxisValue::Int(value)),
        Core::Float(value) => Some(AxisValue::Float(value)),
        Core::Text => Some(AxisValue::Text(scalar.text.clone())),
        Core::Null | Core::Unfit => None,
    }
}

/// A block's variables in file order, then those of `defaults` that it doesn't name. `null` takes one of `defaults` out; `env: null` all.
pub fn env_axes(block: Option<Slot<'_>>, defaults: &[Entry], out: &mut Diagnostics) -> Vec<FoundAxis> {
    if block.is_some_and(|slot| slot.node.is_null()) {
        return Vec::new();
    }
    let own = block.and_then(|slot| slot.named_entries("env: { NAME: value }", out)).unwrap_or_default();
    let is_default = |name: &str| defaults.iter().any(|entry| entry.key.text == name);
    let reset = |entry: &&Entry| !(entry.value.is_null() && is_default(&entry.key.text));
    let inherited = defaults.iter().filter(|entry| !own.iter().any(|own| own.key.text == entry.key.text));
    let mut axes = Vec::new();
    for entry in own.iter().filter(reset).chain(inherited) {
        let name = format!("env.{}", entry.key.text);
        if variable_name(entry, out) && has_value(entry, "to take a variable of `defaults` out, `defaults.env` must have it", out) {
            axes.extend(axis(&name, Slot::named(&name, entry), "env: { NAME: [a, b] }", out, |item, out| item.text(out).map(AxisValue::Text)));
        }
    }
    axes
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

/// The maps of `exclude`, each key an axis or `device`, each value one that the axis has.
pub fn exclude(slot: Slot<'_>, axes: &[FoundAxis], unread: &[String], devices: &[String], out: &mut Diagnostics) -> Vec<IndexMap<String, AxisValue>> {
    const EXAMPLE: &str = "exclude: [{ threads: 1, device: here }]";
    let mut excluded = Vec::new();
    for item in slot.list(EXAMPLE, out).unwrap_or_default() {
        let Kind::Map(entries) = &item.node.kind else {
            item.mismatch("a list of maps", EXAMPLE, out);
            continue;
        };
        if entries.is_empty() {
            item.refuse("an `exclude` without conditions leaves nothing".to_owned(), format!("write it like `{EXAMPLE}`"), out);
        }
        let mut conditions = IndexMap::new();
        for entry in entries {
            let name = entry.key.text.as_str();
            let known = if name == "device" {
                Some(devices.iter().map(|id| AxisValue::Text(id.clone())).collect::<Vec<_>>())
            } else {
                axes.iter().find(|found| found.axis.name == name).map(|found| found.axis.values.clone())
            };
            match known {
                Some(values) => {
                    if let Some(value) = excluded_value(Slot::of(entry), &values, out) {
                        conditions.insert(name.to_owned(), value);
                    }
                }
                // An axis with a fault of its own: what it has isn't known.
                None if unread.iter().any(|unread| unread == name) => {}
                None => {
                    let names = || axes.iter().map(|found| found.axis.name.as_str()).chain(["device"]);
                    let error = out.error(entry.key.span, format!("unknown axis {}", tick(name)));
                    if let Some(near) = nearest(name, names()) {
                        error.label(format!("did you mean `{near}`?"));
                    }
                    error.hint(format!("axes of this block: {}", listed(names())));
                }
            }
        }
        excluded.push(conditions);
    }
    excluded
}

/// A scalar that is one of the axis' values, with the type that it has there.
fn excluded_value(slot: Slot<'_>, values: &[AxisValue], out: &mut Diagnostics) -> Option<AxisValue> {
    let Some(scalar) = slot.node.scalar() else {
        out.error(slot.place, format!("{} takes one value here", tick(slot.name)))
            .label(format!("this is {}", slot.node.describe()))
            .hint("write one map for each value");
        return None;
    };
    let as_text = AxisValue::Text(scalar.text.clone());
    // An axis of texts has them as written; elsewhere the type decides, so that "1" isn't 1.
    let all_text = values.iter().all(|value| matches!(value, AxisValue::Text(_)));
    let value = if all_text { Some(as_text) } else { typed(scalar) };
    if let Some(found) = value.as_ref().and_then(|value| values.iter().find(|known| *known == value)) {
        return Some(found.clone());
    }
    let error = out.error(slot.place, format!("{} has no value {}", tick(slot.name), tick(&scalar.text)));
    error.hint(format!("values of {}: {}", slot.name, listed(values.iter().map(AxisValue::to_string))));
    None
}
