//! One entry of `matrix`, with what it inherits.

use super::{
    axes::{self, FoundAxis, Ids, Named},
    command,
    condition::{self, Condition, Known, Verdict},
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    fields::{Fields, Slot, fields, known_name, not_yet, report_repeats},
    merge::{self, Assignment},
    model::{AxisValue, Backend, Block, Device, Dominance, Linked, Model, Settings},
    settings,
    template::{self, Names},
    vocabulary,
    yaml::{Entry, Kind, Node},
};
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// What a block may refer to, and what it inherits.
pub struct Surroundings<'a> {
    /// All texts.
    pub source: &'a str,
    /// All devices; `None` where one has a fault.
    pub devices: IndexMap<&'a str, Option<Device>>,
    /// All models; `None` where one has a fault.
    pub models: IndexMap<&'a str, Option<Model>>,
    pub defaults: &'a [Entry],
    pub set: &'a [Assignment],
    /// 1-based line of a place in its own text.
    pub line_of: &'a dyn Fn(usize) -> usize,
}

/// A block as far as it can be understood.
pub struct FoundBlock {
    pub place: Span,
    /// `None` where it has a fault.
    pub block: Option<Block>,
    pub backend: Option<&'static str>,
    /// Points before `exclude` and `when`.
    pub n_points: u128,
}

pub fn block(node: &Node, around: &Surroundings<'_>, out: &mut Diagnostics) -> Option<FoundBlock> {
    let Kind::Map(entries) = &node.kind else {
        let error = out.error(node.span, "a block of `matrix` is a map");
        error.label(format!("this is {}", node.describe())).hint("write it like `- { devices: [here], backend: builtin, model: digits }`");
        return None;
    };
    let backend = backend(entries, around, out);
    let level = vocabulary::block(backend);
    let entries = merge::block(entries, around.defaults, around.set, level, out);
    let faults_before = out.count();
    let fields = fields(&entries, node.span, level, out);
    fields.need("backend", "a block", "say what executes it: `backend: builtin` or `backend: command`", out);
    let devices = devices(&fields, around, out);
    let mut block_settings = Settings::builtin_defaults(backend.unwrap_or("command"));
    settings::apply(&mut block_settings, &fields, backend.unwrap_or("command"), out);

    let swept = sweep(&fields, backend, level, &devices, around, out);
    check_models(&swept, &devices, around, out);
    check_builds(&swept, &devices, around, out);
    let names = names_of(&swept, fields.get("model").is_some(), &devices, around);
    for found in swept.axes().filter(|found| found.axis.name.starts_with("env.") || found.axis.name.starts_with("flags.")) {
        for (value, place) in found.axis.values.iter().zip(&found.places) {
            let texts = if let AxisValue::List(texts) = value { texts.clone() } else { vec![value.to_string()] };
            for text in texts {
                template::decode(&text, *place, around.source, &names, out);
            }
        }
    }
    let named = Named { axes: swept.axes().collect(), unread: &swept.unread, devices: &devices };
    let exclude = fields.get("exclude").map(|slot| axes::exclude(slot, &named, out)).unwrap_or_default();
    let model_ids: Vec<&str> = around.models.keys().copied().collect();
    let build_ids = build_ids(&devices, around);
    let ids = Ids { models: &model_ids, builds: &build_ids };
    let linked: Vec<Vec<String>> =
        swept.groups.iter().filter(|group| group.len() > 1).map(|group| group.iter().map(|found| found.axis.name.clone()).collect()).collect();
    let include = fields.get("include").map(|slot| axes::include(slot, &named, &linked, ids, out)).unwrap_or_default();
    let when = fields.get("when").filter(|slot| !slot.node.is_null()).and_then(|slot| {
        let axes: BTreeSet<String> = swept.axes().map(|found| found.axis.name.clone()).collect();
        condition::condition(slot, &axes, &swept.unread, axes.contains("model"), out)
    });
    if let Some(slot) = fields.get("dominance") {
        check_dominance(slot, &block_settings, &swept, out);
    }
    if let Some(condition) = &when {
        try_condition(condition, &swept, out);
    }
    let backend_name = backend;
    let backend = match backend {
        Some("builtin") => Some(Backend::Builtin),
        Some("command") => command::command(&fields, &names, around.source, out).map(|command| Backend::Command(Box::new(command))),
        Some(later) => Some(Backend::Later(later)),
        None => None,
    };
    let n_crossed = |groups: &[Vec<FoundAxis>], fixed: &IndexMap<String, Vec<AxisValue>>| {
        let len = |group: &Vec<FoundAxis>| group.first().map_or(1, |found| fixed.get(&found.axis.name).unwrap_or(&found.axis.values).len() as u128);
        let n_devices = fixed.get("device").map_or(devices.len(), Vec::len) as u128;
        groups.iter().map(len).fold(n_devices, u128::saturating_mul)
    };
    let n_points = include.iter().map(|fixed| n_crossed(&swept.groups, fixed)).fold(n_crossed(&swept.groups, &IndexMap::new()), u128::saturating_add);
    let line = (around.line_of)(node.span.start);
    let sweep = swept.groups.into_iter().map(|group| Linked { axes: group.into_iter().map(|found| found.axis).collect() }).collect();
    let block = backend.map(|backend| Block { line, devices, backend, sweep, when, exclude, include, settings: block_settings });
    let block = block.filter(|_| out.count() == faults_before);
    Some(FoundBlock { place: node.span, block, backend: backend_name, n_points })
}

/// The backend as the block or the command line says.
fn backend(entries: &[Entry], around: &Surroundings<'_>, out: &mut Diagnostics) -> Option<&'static str> {
    let set = around.set.iter().rev().find(|set| set.path.len() == 1 && set.path[0].text == "backend");
    let set = set.map(|set| Entry { key: set.path[0].clone(), value: set.value.clone() });
    let entry = set.as_ref().or_else(|| entries.iter().find(|entry| entry.key.text == "backend"))?;
    let choices: Vec<(&str, &vocabulary::Backend)> = vocabulary::BACKENDS.iter().map(|word| (word.word, word)).collect();
    let slot = Slot::of(entry);
    let word = slot.choice(&choices, &[], out)?;
    if !word.built {
        let built: Vec<&str> = vocabulary::BACKENDS.iter().filter(|word| word.built).map(|word| word.word).collect();
        let hint = format!("`isotherm plan` shows what it expands to; backends of this build: {}", listed(built));
        not_yet(slot.place, &tick(&format!("backend: {}", word.word)), &hint, out);
    }
    Some(word.word)
}

fn devices(fields: &Fields<'_>, around: &Surroundings<'_>, out: &mut Diagnostics) -> Vec<String> {
    let ids: Vec<&str> = around.devices.keys().copied().collect();
    let hint = format!("say where it runs: `devices: [{}]`", ids.first().unwrap_or(&"here"));
    let Some(slot) = fields.need("devices", "a block", &hint, out) else { return Vec::new() };
    let items = slot.one_or_many("devices: [here]", out).map(|found| found.0).unwrap_or_default();
    let named: Vec<(String, Span)> =
        items.into_iter().filter_map(|item| Some((known_name(item, "device", &ids, "devices", out)?, item.place))).collect();
    report_repeats("devices", named.iter().map(|(id, place)| (id.as_str(), *place)), out);
    named.into_iter().map(|(id, _)| id).collect()
}

/// What a block turns through.
struct Swept {
    /// In file order; a group of one axis, or of linked ones.
    groups: Vec<Vec<FoundAxis>>,
    /// Axes that are there, but have a fault.
    unread: Vec<String>,
}

impl Swept {
    fn axes(&self) -> impl Iterator<Item = &FoundAxis> {
        self.groups.iter().flatten()
    }
}

fn sweep(
    fields: &Fields<'_>,
    backend: Option<&'static str>,
    level: &'static vocabulary::Level,
    devices: &[String],
    around: &Surroundings<'_>,
    out: &mut Diagnostics,
) -> Swept {
    let model_ids: Vec<&str> = around.models.keys().copied().collect();
    let build_ids = build_ids(devices, around);
    let ids = Ids { models: &model_ids, builds: &build_ids };
    let mut swept = Swept { groups: Vec::new(), unread: Vec::new() };
    for entry in fields.iter() {
        let (groups, unread) = match entry.key.text.as_str() {
            "zip" if !entry.value.is_null() => axes::zip(Slot::of(entry), level, ids, out),
            _ => {
                let (found, unread) = axes::axes_of(entry, ids, out);
                found.iter().for_each(|axis| axes::report_repeated_values(axis, out));
                (found.into_iter().map(|axis| vec![axis]).collect(), unread)
            }
        };
        swept.groups.extend(groups);
        swept.unread.extend(unread);
    }
    report_twice(&swept, out);
    let needs_model = backend.is_some_and(|backend| !["command", "membw"].contains(&backend));
    let has = |swept: &Swept, name: &str| swept.axes().any(|found| found.axis.name == name) || swept.unread.iter().any(|unread| unread == name);
    if needs_model && !has(&swept, "model") {
        let hint =
            if model_ids.is_empty() { "describe it under `models`, then name it here".to_owned() } else { format!("models: {}", listed(&model_ids)) };
        fields.need("model", &format!("backend `{}`", backend.unwrap_or_default()), &hint, out);
    }
    if backend == Some("builtin") && !has(&swept, "threads") {
        let after_model = swept.groups.iter().position(|group| group[0].axis.name == "model").map_or(0, |at| at + 1);
        swept.groups.insert(after_model, vec![FoundAxis::implied("threads", AxisValue::Int(1))]);
    }
    if !has(&swept, "build") {
        implied_build(&mut swept, fields, backend, devices, around, out);
    }
    swept
}

/// An axis stands once: on its own or in one group.
fn report_twice(swept: &Swept, out: &mut Diagnostics) {
    let mut first: IndexMap<&str, Span> = IndexMap::new();
    for found in swept.axes() {
        let name = found.axis.name.as_str();
        if let Some(earlier) = first.get(name) {
            out.error(found.key, format!("the axis {} is there twice", tick(name)))
                .label("again here")
                .also(*earlier, "first here")
                .hint("an axis stands on its own or in one group of `zip`");
        } else {
            first.insert(name, found.key);
        }
    }
}

/// Ids of builds of these devices, each once.
fn build_ids<'a>(devices: &[String], around: &'a Surroundings<'_>) -> Vec<&'a str> {
    let all = devices.iter().filter_map(|id| around.devices.get(id.as_str())?.as_ref()).flat_map(|device| device.builds.keys());
    let mut seen = BTreeSet::new();
    all.map(String::as_str).filter(|id| seen.insert(*id)).collect()
}

/// A block that says nothing of builds has the only one there is; with several it has to say which.
fn implied_build(
    swept: &mut Swept,
    fields: &Fields<'_>,
    backend: Option<&'static str>,
    devices: &[String],
    around: &Surroundings<'_>,
    out: &mut Diagnostics,
) {
    let asks = |node: &Node| matches!(&node.kind, Kind::Scalar(scalar) if scalar.text.contains("{build"));
    let argv = fields.get("argv").map(|slot| &slot.node.kind);
    let uses = match backend {
        Some("command") => matches!(argv, Some(Kind::Seq(items)) if items.iter().any(asks)),
        Some("llama-bench" | "llama-server" | "onnx") => true,
        _ => false,
    };
    let ids = build_ids(devices, around);
    match ids.as_slice() {
        [] => {}
        _ if !uses => {}
        [only] => swept.groups.push(vec![FoundAxis::implied("build", AxisValue::Text((*only).to_owned()))]),
        several => {
            out.error(fields.place, "a block that doesn't say which build")
                .label(format!("its devices have {}", listed(several.iter().map(|id| tick(id)))))
                .hint(format!("compare them with `build: [{}]`, or name one", listed(several)));
        }
    }
}

fn models_of(swept: &Swept) -> impl Iterator<Item = (&str, Span)> {
    values_of(swept, "model")
}

fn values_of<'a>(swept: &'a Swept, axis: &str) -> impl Iterator<Item = (&'a str, Span)> {
    let axis = swept.axes().find(|found| found.axis.name == axis);
    axis.into_iter().flat_map(|found| found.axis.values.iter().zip(&found.places)).filter_map(|(value, place)| match value {
        AxisValue::Text(id) => Some((id.as_str(), *place)),
        _ => None,
    })
}

/// Every model of the block has a path on every device of the block.
fn check_models(swept: &Swept, devices: &[String], around: &Surroundings<'_>, out: &mut Diagnostics) {
    for (id, place) in models_of(swept) {
        let Some(Some(model)) = around.models.get(id) else { continue };
        let without: Vec<&String> = devices.iter().filter(|device| model.path.is_none() && !model.paths.contains_key(*device)).collect();
        if !without.is_empty() {
            let text = format!("model {} has no path on {}", tick(id), listed(without.iter().map(|id| tick(id))));
            out.error(place, text).hint("add `path` to the model for every other device, or the device to its `paths`");
        }
    }
}

/// Every build of the block is there on every device of the block.
fn check_builds(swept: &Swept, devices: &[String], around: &Surroundings<'_>, out: &mut Diagnostics) {
    for (id, place) in values_of(swept, "build") {
        for device in devices.iter().filter_map(|id| around.devices.get(id.as_str())?.as_ref()) {
            if !device.builds.contains_key(id) {
                out.error(place, format!("device {} has no build {}", tick(&device.id), tick(id)))
                    .hint(format!("add it to `builds` of the device, or make a block of its own for {}", tick(&device.id)));
            }
        }
    }
}

fn names_of(swept: &Swept, has_model: bool, devices: &[String], around: &Surroundings<'_>) -> Names {
    let own = swept.axes().map(|found| &found.axis.name).chain(&swept.unread);
    let own = own.filter(|name| *name != "model" && !name.starts_with("env.") && !name.starts_with("flags.")).cloned();
    let has_model = has_model || swept.axes().any(|found| found.axis.name == "model");
    let unquantized = models_of(swept)
        .filter(|(id, _)| around.models.get(id).is_some_and(|model| model.as_ref().is_some_and(|model| model.quantization.is_none())));
    // A tool that every build of the block has on every device.
    let devices: Vec<&Device> = devices.iter().filter_map(|id| around.devices.get(id.as_str())?.as_ref()).collect();
    let builds: Vec<_> = values_of(swept, "build").flat_map(|(id, _)| devices.iter().filter_map(move |device| device.builds.get(id))).collect();
    let tools = builds.first().map(|build| build.keys().filter(|tool| builds.iter().all(|build| build.contains_key(*tool))).cloned().collect());
    Names::of_block(own, has_model, unquantized.map(|(id, _)| id.to_owned()).collect(), &tools.unwrap_or_else(Vec::new))
}

/// What is larger can be said of numbers.
fn check_dominance(slot: Slot<'_>, settings: &Settings, swept: &Swept, out: &mut Diagnostics) {
    let Some(Dominance { axis, .. }) = &settings.dominance else { return };
    if swept.unread.contains(axis) {
        return;
    }
    match swept.axes().find(|found| found.axis.name == *axis) {
        None => {
            let names = || swept.axes().map(|found| found.axis.name.as_str());
            let error = out.error(slot.place, format!("unknown axis {} in `dominance`", tick(axis)));
            if let Some(near) = nearest(axis, names()) {
                error.label(format!("did you mean `{near}`?"));
            }
            error.hint(format!("axes of this block: {}", listed(names())));
        }
        Some(found) if found.axis.values.iter().any(|value| !matches!(value, AxisValue::Int(_) | AxisValue::Float(_))) => {
            out.error(slot.place, format!("{} is no axis of numbers", tick(axis)))
                .also(found.key, "its values")
                .hint("`dominance` skips larger values, and texts are none");
        }
        Some(_) => {}
    }
}

/// Asks a condition about a point of the block and a device that could be, so that its faults show before anything runs.
fn try_condition(condition: &Condition, swept: &Swept, out: &mut Diagnostics) {
    let known = |name: &str| match name {
        "device.id" | "device.arch" | "model.id" | "model.path" => Known::Value(AxisValue::Text(String::new())),
        "device.logical_cpus" | "device.physical_cores" | "device.ram_bytes" | "model.bytes" => Known::Value(AxisValue::Int(1)),
        "device.effective_cpus" => Known::Value(AxisValue::Float(1.0)),
        _ if name.starts_with("model.") => Known::Value(AxisValue::Text(String::new())),
        _ => swept.axes().find(|found| found.axis.name == name).map_or(Known::Nothing, |found| Known::Value(found.axis.values[0].clone())),
    };
    if let Err(why) = condition.evaluate(known).map(|verdict| verdict == Verdict::Keep) {
        condition::report(condition, &why, out);
    }
}
