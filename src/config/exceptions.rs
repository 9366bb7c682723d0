//! Points that a block takes out with `exclude`, and those that it adds with `include`.

use super::{
    axes::{AxisKind, FoundAxis, Ids, axis, cpus, flag_value, report_repeated_values, typed},
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    fields::{Slot, known_name, report_repeats},
    model::AxisValue,
    yaml::{Entry, Kind},
};
use indexmap::IndexMap;

/// What `exclude` and `include` may name: axes of the block, and `device`.
pub struct Named<'a> {
    pub axes: Vec<&'a FoundAxis>,
    /// Axes that are there, but have a fault.
    pub unread: &'a [String],
    pub devices: &'a [String],
}

impl Named<'_> {
    fn axis(&self, name: &str) -> Option<&FoundAxis> {
        self.axes.iter().find(|found| found.axis.name == name).copied()
    }

    fn report_unknown(&self, entry: &Entry, out: &mut Diagnostics) {
        let name = entry.key.text.as_str();
        // An axis with a fault of its own: what it has isn't known.
        if self.unread.iter().any(|unread| unread == name) {
            return;
        }
        let names = || self.axes.iter().map(|found| found.axis.name.as_str()).chain(["device"]);
        let error = out.error(entry.key.span, format!("unknown axis {}", tick(name)));
        if let Some(near) = nearest(name, names()) {
            error.label(format!("did you mean `{near}`?"));
        }
        error.hint(format!("axes of this block: {}", listed(names())));
    }
}

/// The maps of `exclude`, each key an axis or `device`, each value one that the axis has.
pub fn exclude(slot: Slot<'_>, named: &Named<'_>, out: &mut Diagnostics) -> Vec<IndexMap<String, AxisValue>> {
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
            let (kind, values) = match named.axis(name) {
                Some(found) => (found.kind, found.axis.values.clone()),
                None if name == "device" => (AxisKind::Text, named.devices.iter().map(|id| AxisValue::Text(id.clone())).collect()),
                None => {
                    named.report_unknown(entry, out);
                    continue;
                }
            };
            if let Some(value) = excluded_value(Slot::of(entry), kind, &values, out) {
                conditions.insert(name.to_owned(), value);
            }
        }
        excluded.push(conditions);
    }
    excluded
}

/// One of the axis' values, with the type that it has there.
fn excluded_value(slot: Slot<'_>, kind: AxisKind, values: &[AxisValue], out: &mut Diagnostics) -> Option<AxisValue> {
    let shown = match (&slot.node.kind, kind) {
        (Kind::Scalar(scalar), _) => scalar.text.clone(),
        // An option that is given several times.
        (Kind::Seq(_), AxisKind::Flag) => "this list".to_owned(),
        _ => {
            out.error(slot.place, format!("{} takes one value here", tick(slot.name)))
                .label(format!("this is {}", slot.node.describe()))
                .hint("write one map for each value");
            return None;
        }
    };
    let value = match kind {
        AxisKind::Flag => Some(flag_value(slot, out)?),
        AxisKind::Cpus => Some(cpus(slot, out)?),
        AxisKind::Model | AxisKind::Build | AxisKind::Text | AxisKind::Policy => Some(AxisValue::Text(shown.clone())),
        // "1" isn't 1.
        AxisKind::Whole(..) | AxisKind::WordOrWhole(..) | AxisKind::Typed => slot.node.scalar().and_then(typed),
    };
    if let Some(found) = values.iter().find(|known| Some(*known) == value.as_ref()) {
        return Some(found.clone());
    }
    let error = out.error(slot.place, format!("{} has no value {}", tick(slot.name), tick(&shown)));
    let alike = values.iter().any(|known| known.to_string() == shown);
    if alike {
        error.label("another type: quotes make it text");
    } else if let Some(near) = nearest(&shown, values.iter().map(AxisValue::to_string).collect::<Vec<_>>().iter().map(String::as_str)) {
        error.label(format!("did you mean `{near}`?"));
    }
    error.hint(format!("values of {}: {}", slot.name, listed(values.iter().map(AxisValue::to_string))));
    None
}

/// One map of `include`.
#[derive(Debug)]
pub struct Included {
    /// `None` = all of the block.
    pub devices: Option<Vec<String>>,
    /// What it gives other values.
    pub axes: Vec<FoundAxis>,
}

impl Included {
    /// Axis or `device` → values.
    #[must_use]
    pub fn fixed(&self) -> IndexMap<String, Vec<AxisValue>> {
        let axes = self.axes.iter().map(|found| (found.axis.name.clone(), found.axis.values.clone()));
        let device = self.devices.iter().map(|ids| ("device".to_owned(), ids.iter().cloned().map(AxisValue::Text).collect()));
        axes.chain(device).collect()
    }

    fn len_of(&self, axis: &str) -> Option<usize> {
        self.axes.iter().find(|found| found.axis.name == axis).map(|found| found.axis.values.len())
    }
}

/// The maps of `include`: each key an axis of the block or `device`, with a value or several that the axis need not have.
/// `groups`: names of axes that are linked.
pub fn include(slot: Slot<'_>, named: &Named<'_>, groups: &[Vec<String>], ids: Ids<'_>, out: &mut Diagnostics) -> Vec<Included> {
    const EXAMPLE: &str = "include: [{ threads: 3 }]";
    let mut all = Vec::new();
    for item in slot.list(EXAMPLE, out).unwrap_or_default() {
        let Kind::Map(entries) = &item.node.kind else {
            item.mismatch("a list of maps", EXAMPLE, out);
            continue;
        };
        if entries.is_empty() {
            item.refuse("an `include` without an axis adds nothing".to_owned(), format!("write it like `{EXAMPLE}`"), out);
        }
        let before = out.count();
        let mut included = Included { devices: None, axes: Vec::new() };
        for entry in entries {
            let name = entry.key.text.as_str();
            if name == "device" {
                let devices: Vec<&str> = named.devices.iter().map(String::as_str).collect();
                let items = Slot::of(entry).one_or_many("device: here", out).map(|found| found.0).unwrap_or_default();
                let found: Vec<(String, Span)> =
                    items.into_iter().filter_map(|item| Some((known_name(item, "device", &devices, "devices", out)?, item.place))).collect();
                report_repeats("device", Clone::clone, found.iter().cloned(), out);
                included.devices = Some(found.into_iter().map(|(id, _)| id).collect());
            } else if let Some(axis_of) = named.axis(name) {
                included.axes.extend(axis(Slot::named(&axis_of.axis.name, entry), axis_of.kind, ids, out));
            } else {
                named.report_unknown(entry, out);
            }
        }
        for found in &included.axes {
            if !groups.iter().flatten().any(|name| *name == found.axis.name) {
                report_repeated_values(found, out);
            }
        }
        if out.count() != before {
            all.push(included);
            continue;
        }
        for group in groups {
            let lengths: Vec<usize> = group.iter().filter_map(|name| included.len_of(name)).collect();
            let all_alike = lengths.len() == group.len() && lengths.iter().all(|len| *len == lengths[0]);
            if !lengths.is_empty() && !all_alike {
                let text = format!("{} turn together", listed(group.iter().map(|name| tick(name))));
                out.error(item.place, text).hint("give all axes of a `zip` group a value, or as many values each, or none of them");
            }
        }
        all.push(included);
    }
    all
}
