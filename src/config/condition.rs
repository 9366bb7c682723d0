//! `when`: an expression over a point's axes, its model and what its device says of itself.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    expression::{Expression, Fault, Kinds, Known},
    fields::Slot,
    model::AxisValue,
};
use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

/// What a condition can ask about a device.
pub const DEVICE_NAMES: [&str; 6] =
    ["device.id", "device.logical_cpus", "device.physical_cores", "device.effective_cpus", "device.ram_bytes", "device.arch"];

/// What it can ask about a model, besides `model.tags.NAME`.
pub const MODEL_NAMES: [&str; 4] = ["model.id", "model.quantization", "model.path", "model.bytes"];

const HINT: &str = "a condition is written like `threads <= device.logical_cpus and not (model.id == \"big\" or depth in [4096, 8192])`";

/// A condition that was understood.
#[derive(Clone)]
pub struct Condition {
    /// As written.
    pub source: String,
    expression: Arc<Expression>,
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({:?})", self.source)
    }
}

/// What a condition says of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    Drop,
    /// This name is not known yet, and decides.
    Unknown(String),
}

impl Condition {
    /// Asks it about a point.
    ///
    /// # Errors
    /// Values that cannot be compared, in words.
    pub fn evaluate(&self, known: impl Fn(&str) -> Known) -> Result<Verdict, String> {
        Ok(match self.expression.ask(&known)? {
            Ok(true) => Verdict::Keep,
            Ok(false) => Verdict::Drop,
            Err(name) => Verdict::Unknown(name),
        })
    }
}

/// What a condition of a block can name.
pub struct Offered<'a> {
    /// axis → its values.
    pub axes: BTreeMap<&'a str, &'a [AxisValue]>,
    /// Axes that are there, but have a fault: what they have isn't known.
    pub unread: &'a [String],
}

impl Offered<'_> {
    fn has_model(&self) -> bool {
        self.axes.contains_key("model")
    }

    fn knows(&self, name: &str) -> bool {
        let of_model = || MODEL_NAMES.contains(&name) || name.strip_prefix("model.tags.").is_some_and(|tag| !tag.is_empty());
        DEVICE_NAMES.contains(&name) || self.has_model() && of_model() || name != "model" && self.axes.contains_key(name)
    }

    /// For a message.
    fn names(&self) -> Vec<&str> {
        let own = self.axes.keys().copied().filter(|axis| *axis != "model");
        own.chain(DEVICE_NAMES).chain(if self.has_model() { &MODEL_NAMES[..] } else { &[] }.iter().copied()).collect()
    }

    fn kinds(&self, name: &str) -> Kinds {
        match name {
            "device.id" | "device.arch" | "model.id" | "model.path" | "model.quantization" => Kinds::TEXT,
            _ if name.starts_with("model.tags.") => Kinds::TEXT,
            _ if name.starts_with("device.") || name == "model.bytes" => Kinds::NUMBER,
            _ => self.axes.get(name).and_then(|values| values.iter().map(Kinds::of).reduce(Kinds::or)).unwrap_or(Kinds::ANY),
        }
    }
}

/// Understands a condition. `source`: all texts, for the place of a fault inside of it.
pub fn condition(slot: Slot<'_>, offered: &Offered<'_>, source: &str, out: &mut Diagnostics) -> Option<Condition> {
    let written = slot.some_text(out)?;
    // A condition that is written plainly, or quoted without escapes, has its parts where they stand.
    let start = source.get(slot.place.start..slot.place.end).and_then(|text| text.find(&written)).map(|at| slot.place.start + at);
    let place = |at: Range<usize>| start.map_or(slot.place, |start| Span { start: start + at.start, end: start + at.end });
    let axes: Vec<&str> = offered.axes.keys().copied().chain(offered.unread.iter().map(String::as_str)).collect();
    let expression = match Expression::parse(&written, axes) {
        Ok(expression) => expression,
        Err(Fault { at, message }) => {
            out.error(place(at), "the condition is not understood").label(message).hint(HINT);
            return None;
        }
    };
    let used = expression.names();
    if used.is_empty() {
        out.error(slot.place, "a condition that is the same for every point").label("it names no axis and nothing of a device or model").hint(HINT);
        return None;
    }
    let mut all_known = true;
    for (name, at) in used {
        if offered.knows(name) {
            continue;
        }
        all_known = false;
        if offered.unread.iter().any(|unread| unread == name || name.starts_with("model.") && unread == "model") {
            continue;
        }
        report_unknown(name, place(at), offered, out);
    }
    if let Err(Fault { at, message }) = expression.check(&|name| offered.kinds(name)) {
        out.error(place(at), "the condition has no answer").label(message).hint(HINT);
        return None;
    }
    for (name, text, at) in expression.compared_texts() {
        let Some(values) = offered.axes.get(name) else { continue };
        let texts: Vec<&str> = values.iter().filter_map(|value| if let AxisValue::Text(text) = value { Some(text.as_str()) } else { None }).collect();
        let has = texts.iter().any(|value| *value == text || value.contains('{'));
        if let Some(near) = nearest(text, texts.iter().copied()).filter(|_| !has) {
            let warning = out.warning(place(at), format!("{} has no value {}", tick(name), tick(text)));
            warning.label(format!("did you mean `{near}`?")).hint(format!("values of {name}: {}", listed(&texts)));
        }
    }
    all_known.then(|| Condition { source: written, expression: Arc::new(expression) })
}

fn report_unknown(name: &str, place: Span, offered: &Offered<'_>, out: &mut Diagnostics) {
    let known = offered.names();
    let error = out.error(place, format!("unknown name {} in a condition", tick(name)));
    if name == "model" && offered.has_model() {
        error.label("did you mean `model.id`?");
    } else if name == "device" {
        error.label("did you mean `device.id`?");
    } else if let Some(near) = near_name(name, &known) {
        error.label(format!("did you mean `{near}`?"));
    }
    error.hint(format!("names here: {}; texts stand in quotes", listed(known)));
}

/// What is in front of the last dot says little of what was meant.
fn near_name<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let Some((group, last)) = name.rsplit_once('.') else { return nearest(name, known.iter().copied()) };
    let of_group = known.iter().filter_map(|known| known.rsplit_once('.').filter(|(of, _)| *of == group));
    let near = nearest(last, of_group.map(|(_, last)| last))?;
    known.iter().copied().find(|known| known.rsplit_once('.') == Some((group, near)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::{Kind, Node, Scalar};

    fn understood(source: &str) -> (Option<Condition>, Vec<String>) {
        let node = Node { span: Span { start: 0, end: source.len() }, kind: Kind::Scalar(Scalar { text: source.to_owned(), quoted: true }) };
        let slot = Slot { name: "when", node: &node, place: node.span, key: node.span };
        let text = |text: &str| AxisValue::Text(text.to_owned());
        let values = [
            ("threads", vec![AxisValue::Int(4)]),
            ("mode", vec![text("fast"), text("slow")]),
            ("n_ctx", vec![text("auto"), AxisValue::Int(8)]),
            ("model", vec![text("big")]),
        ];
        let offered = Offered { axes: values.iter().map(|(name, values)| (*name, values.as_slice())).collect(), unread: &["faulty".to_owned()] };
        let mut out = Diagnostics::default();
        let found = condition(slot, &offered, source, &mut out);
        let (errors, warnings) = out.finish();
        let told = errors
            .iter()
            .chain(&warnings)
            .map(|d| format!("{} | {} | {}", d.message, &source[d.labels[0].0.start..d.labels[0].0.end], d.labels[0].1));
        (found, told.collect())
    }

    fn point(name: &str) -> Known {
        match name {
            "threads" => Known::Value(AxisValue::Int(4)),
            "mode" => Known::Value(AxisValue::Text("fast".into())),
            "n_ctx" | "model.quantization" => Known::Value(AxisValue::Text("auto".into())),
            "model.id" => Known::Value(AxisValue::Text("big".into())),
            "model.tags.family" => Known::Nothing,
            "device.ram_bytes" => Known::Value(AxisValue::Int(8 << 30)),
            _ => Known::NotYet,
        }
    }

    #[test]
    fn conditions_compare_axes_models_and_devices() {
        for (source, verdict) in [
            ("threads <= 4", Verdict::Keep),
            ("threads > 4", Verdict::Drop),
            ("threads * 2 == 8 and mode == 'fast'", Verdict::Keep),
            ("model.id == 'big' and device.ram_bytes >= 8 * 1024**3", Verdict::Keep),
            ("model.tags.family == 'qwen'", Verdict::Drop),
            ("n_ctx == 'auto' or n_ctx < 4096", Verdict::Keep),
            ("threads <= device.logical_cpus", Verdict::Unknown("device.logical_cpus".into())),
            ("device.physical_cores == 4", Verdict::Unknown("device.physical_cores".into())),
            ("mode == 'slow' and threads <= device.logical_cpus", Verdict::Drop),
            ("mode == 'fast' or device.arch == 'aarch64'", Verdict::Keep),
        ] {
            let (condition, told) = understood(source);
            assert!(told.is_empty(), "{source}: {told:?}");
            assert_eq!(condition.expect(source).evaluate(point), Ok(verdict), "{source}");
        }
        assert!(understood("n_ctx < 4096").0.expect("a condition").evaluate(point).is_err());
    }

    #[test]
    fn a_fault_is_shown_at_its_place_inside_of_the_condition() {
        for (source, told) in [
            ("thread <= 4", "unknown name `thread` in a condition | thread | did you mean `threads`?"),
            ("model == 'big'", "unknown name `model` in a condition | model | did you mean `model.id`?"),
            ("threads == 4 and device.cpus > 1", "unknown name `device.cpus` in a condition | device.cpus | "),
            ("1 < 2", "a condition that is the same for every point | 1 < 2 | it names no axis and nothing of a device or model"),
            ("device.arch == 64", "the condition has no answer | 64 | this is a number, and never equal to text: put it in quotes"),
            ("threads <", "the condition is not understood | < | a name, a number or a text in quotes is missing behind this"),
            ("mode == 'fats'", "`mode` has no value `fats` | 'fats' | did you mean `fast`?"),
        ] {
            assert_eq!(understood(source).1, [told], "{source}");
        }
        assert!(understood("faulty > 4").1.is_empty(), "its own fault is reported where it is");
    }
}
