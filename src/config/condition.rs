//! `when`: an expression over a point's axes, its model and what its device says of itself.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    fields::Slot,
    model::AxisValue,
};
use minijinja::{Environment, Expression, UndefinedBehavior, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, LazyLock},
};

/// What a condition can ask about a device.
pub const DEVICE_NAMES: [&str; 6] =
    ["device.id", "device.logical_cpus", "device.physical_cores", "device.effective_cpus", "device.ram_bytes", "device.arch"];

/// What it can ask about a model, besides `model.tags.NAME`.
pub const MODEL_NAMES: [&str; 4] = ["model.id", "model.quantization", "model.path", "model.bytes"];

/// What a device that was never asked may turn out to be: counts, sizes, architecture.
const CONCEIVABLE: [(i64, &str); 6] = [(0, ""), (1, "x86_64"), (6, "aarch64"), (64, "armv7l"), (1 << 33, "riscv64"), (1 << 50, "other")];

/// The language's comparisons and logic, without its functions and filters.
static LANGUAGE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut language = Environment::empty();
    language.set_undefined_behavior(UndefinedBehavior::Strict);
    language
});

/// A condition that was understood.
#[derive(Clone)]
pub struct Condition {
    /// As written.
    pub source: String,
    /// Where it stands in the texts of the campaign.
    pub span: Span,
    /// Dotted names that it asks for.
    names: BTreeSet<String>,
    expression: Arc<Expression<'static, 'static>>,
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({:?})", self.source)
    }
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Known {
    Value(AxisValue),
    /// The device has never said.
    NotYet,
    /// It was asked, and there is no such thing.
    Nothing,
}

/// What a condition says of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    Drop,
    /// This name is not known yet.
    Unknown(String),
}

impl Condition {
    /// Ask it. `known` is called once for each name that it uses.
    ///
    /// # Errors
    /// Values that cannot be compared, or a result that is neither true nor false: in words.
    pub fn evaluate(&self, known: impl Fn(&str) -> Known) -> Result<Verdict, String> {
        let mut values: BTreeMap<&str, Value> = BTreeMap::new();
        let mut unknown: Vec<&str> = Vec::new();
        for name in &self.names {
            match known(name) {
                Known::Value(value) => _ = values.insert(name, as_value(&value)),
                Known::NotYet => unknown.push(name),
                Known::Nothing => _ = values.insert(name, Value::from(())),
            }
        }
        let Some(first) = unknown.first() else { return self.answer(&values) };
        // What is the same for all that could be is known already: `cpus == '0-3' and threads <= device.logical_cpus` for other CPUs.
        let mut verdicts = Vec::new();
        for (number, word) in CONCEIVABLE {
            for name in &unknown {
                values.insert(name, if name.ends_with(".arch") { Value::from(word) } else { Value::from(number) });
            }
            verdicts.push(self.answer(&values)?);
        }
        let agree = verdicts.windows(2).all(|pair| pair[0] == pair[1]);
        Ok(if agree { verdicts.swap_remove(0) } else { Verdict::Unknown((*first).to_owned()) })
    }

    fn answer(&self, values: &BTreeMap<&str, Value>) -> Result<Verdict, String> {
        let value = self.expression.eval(nested(values)).map_err(|error| told(&error))?;
        match value.kind() {
            minijinja::value::ValueKind::Bool => Ok(if value.is_true() { Verdict::Keep } else { Verdict::Drop }),
            _ => Err(format!("it gives {value}, which is neither true nor false")),
        }
    }
}

fn as_value(value: &AxisValue) -> Value {
    match value {
        AxisValue::Bool(value) => Value::from(*value),
        AxisValue::Int(value) => Value::from(*value),
        AxisValue::Float(value) => Value::from(*value),
        AxisValue::Text(text) => Value::from(text.as_str()),
        AxisValue::List(texts) => Value::from(texts.clone()),
    }
}

/// `{"a.b": 1}` → `{"a": {"b": 1}}`.
fn nested(values: &BTreeMap<&str, Value>) -> Value {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Value>> = BTreeMap::new();
    let mut plain: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, value) in values {
        match name.split_once('.') {
            Some((group, rest)) => _ = groups.entry(group).or_default().insert(rest, value.clone()),
            None => _ = plain.insert(name, value.clone()),
        }
    }
    for (group, inner) in groups {
        plain.insert(group, nested(&inner));
    }
    Value::from(plain.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<BTreeMap<String, Value>>())
}

fn told(error: &minijinja::Error) -> String {
    let what = match error.kind() {
        minijinja::ErrorKind::UnknownFunction | minijinja::ErrorKind::UnknownFilter | minijinja::ErrorKind::UnknownTest => {
            "functions, filters and tests are not known here"
        }
        minijinja::ErrorKind::UndefinedError => "it uses a value that isn't there",
        minijinja::ErrorKind::InvalidOperation => "these values cannot be compared",
        _ => "it isn't understood",
    };
    match error.detail() {
        Some(detail) => format!("{what}: {detail}"),
        None => what.to_owned(),
    }
}

const HINT: &str = "a condition is written like `threads <= device.logical_cpus and not (model.id == \"big\" or depth in [4096, 8192])`";

/// Understands a condition; its names are `axes` of the block, `model.…` where it has models, and `device.…`.
pub fn condition(slot: Slot<'_>, axes: &BTreeSet<String>, unread: &[String], has_model: bool, out: &mut Diagnostics) -> Option<Condition> {
    let source = slot.some_text(out)?;
    let expression = match LANGUAGE.compile_expression_owned(source.clone()) {
        Ok(expression) => expression,
        Err(error) => {
            let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            out.error(slot.place, "the condition is not understood").label(what).hint(HINT);
            return None;
        }
    };
    let names: BTreeSet<String> = expression.undeclared_variables(true).into_iter().collect();
    let mut all_known = true;
    for name in &names {
        let is_known = DEVICE_NAMES.contains(&name.as_str())
            || has_model && (MODEL_NAMES.contains(&name.as_str()) || name.strip_prefix("model.tags.").is_some_and(|tag| !tag.contains('.')))
            || axes.contains(name) && name != "model";
        if is_known {
            continue;
        }
        // An axis with a fault of its own: what it has isn't known.
        all_known = false;
        if unread.contains(name) {
            continue;
        }
        let known: Vec<&str> = axes
            .iter()
            .map(String::as_str)
            .filter(|axis| *axis != "model")
            .chain(DEVICE_NAMES)
            .chain(if has_model { &MODEL_NAMES[..] } else { &[] }.iter().copied())
            .collect();
        let error = out.error(slot.place, format!("unknown name {} in a condition", tick(name)));
        if name == "model" && has_model {
            error.label("did you mean `model.id`?");
        } else if name == "device" {
            error.label("did you mean `device.id`?");
        } else if let Some(near) = nearest(name, known.iter().copied()) {
            error.label(format!("did you mean `{near}`?"));
        }
        error.hint(format!("names here: {}; texts stand in quotes", listed(known)));
    }
    if names.is_empty() {
        out.error(slot.place, "a condition that is the same for every point").label("it names no axis and nothing of a device or model").hint(HINT);
        return None;
    }
    all_known.then(|| Condition { source, span: slot.place, names, expression: Arc::new(expression) })
}

/// What is wrong with its values, found with those of one point.
pub fn report(condition: &Condition, why: &str, out: &mut Diagnostics) {
    out.error(condition.span, "the condition has no answer").label(why).hint(HINT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::{Kind, Node, Scalar};

    fn understood(source: &str) -> Result<Condition, Vec<String>> {
        let node = Node { span: Span { start: 0, end: source.len() }, kind: Kind::Scalar(Scalar { text: source.to_owned(), quoted: true }) };
        let slot = Slot { name: "when", node: &node, place: node.span, key: node.span };
        let axes = ["threads", "mode", "env.BIND", "model"].map(str::to_owned).into();
        let mut out = Diagnostics::default();
        let found = condition(slot, &axes, &[], true, &mut out);
        found.ok_or_else(|| out.finish().0.iter().map(|d| format!("{} {}", d.message, d.labels[0].1)).collect())
    }

    fn point(name: &str) -> Known {
        match name {
            "threads" => Known::Value(AxisValue::Int(4)),
            "mode" => Known::Value(AxisValue::Text("fast".into())),
            "env.BIND" => Known::Value(AxisValue::Text("close".into())),
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
            ("threads in [1, 2]", Verdict::Drop),
            ("threads * 2 == 8 and mode == 'fast'", Verdict::Keep),
            ("not (mode == \"fast\" or threads == 1)", Verdict::Drop),
            ("env.BIND != 'close'", Verdict::Drop),
            ("model.id == 'big' and device.ram_bytes >= 8 * 1024**3", Verdict::Keep),
            ("model.tags.family == 'qwen'", Verdict::Drop),
            ("threads <= device.logical_cpus", Verdict::Unknown("device.logical_cpus".into())),
            ("mode == 'slow' and threads <= device.logical_cpus", Verdict::Drop),
            ("mode == 'fast' or device.arch == 'aarch64'", Verdict::Keep),
        ] {
            assert_eq!(understood(source).expect(source).evaluate(point), Ok(verdict), "{source}");
        }
    }

    #[test]
    fn what_is_neither_true_nor_false_is_a_fault() {
        for source in ["threads", "threads + 1", "mode|upper == 'x'", "mode < threads + mode"] {
            let condition = understood(source).expect(source);
            assert!(condition.evaluate(point).is_err(), "{source}");
        }
    }

    #[test]
    fn unknown_names_and_broken_conditions_are_told() {
        for (source, message) in [
            ("thread <= 4", "unknown name `thread` in a condition did you mean `threads`?"),
            ("model == 'big'", "unknown name `model` in a condition did you mean `model.id`?"),
            ("device.cpus > 1", "unknown name `device.cpus` in a condition "),
            ("1 < 2", "a condition that is the same for every point it names no axis and nothing of a device or model"),
        ] {
            assert_eq!(understood(source).expect_err(source), [message.to_owned()], "{source}");
        }
        assert!(understood("threads <").expect_err("broken")[0].starts_with("the condition is not understood"));
    }
}
