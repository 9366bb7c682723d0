//! One entry of `matrix`.

use super::{
    axes::{self, FoundAxis},
    command,
    diagnose::{Diagnostics, Span, listed, tick},
    fields::{Fields, Slot, fields, known_name, report_repeats},
    model::{AxisValue, Backend, Block, Model, Settings},
    settings,
    template::{self, Names},
    vocabulary,
    yaml::{Entry, Kind, Node},
};
use indexmap::IndexMap;

/// What a block may refer to, and what it inherits.
pub struct Surroundings<'a> {
    pub source: &'a str,
    /// Ids of all devices, of those with a fault too.
    pub devices: Vec<&'a str>,
    /// All models; `None` where one has a fault.
    pub models: IndexMap<&'a str, Option<Model>>,
    pub defaults: Option<Fields<'a>>,
    pub defaults_env: &'a [Entry],
}

/// A block as far as it can be understood.
pub struct FoundBlock {
    pub place: Span,
    /// `None` where it has a fault.
    pub block: Option<Block>,
    /// Points before `exclude`.
    pub n_points: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Builtin,
    Command,
}

pub fn block(node: &Node, around: &Surroundings<'_>, out: &mut Diagnostics) -> Option<FoundBlock> {
    let Kind::Map(entries) = &node.kind else {
        let error = out.error(node.span, "a block of `matrix` is a map");
        error.label(format!("this is {}", node.describe())).hint("write it like `- { devices: [here], backend: builtin, model: digits }`");
        return None;
    };
    let backend_entry = entries.iter().find(|entry| entry.key.text == "backend");
    let choices = [("builtin", Kinds::Builtin), ("command", Kinds::Command)];
    let backend = backend_entry.and_then(|entry| Slot::of(entry).choice(&choices, vocabulary::LATER_BACKENDS, out));
    let level = match backend {
        Some(Kinds::Builtin) => &vocabulary::BUILTIN_BLOCK,
        Some(Kinds::Command) => &vocabulary::COMMAND_BLOCK,
        None => &vocabulary::ANY_BLOCK,
    };
    let fields = fields(entries, node.span, level, out);
    fields.need("backend", "a block", "say what executes it: `backend: builtin` or `backend: command`", out);
    let devices = devices(&fields, around, out);

    let name = if backend == Some(Kinds::Builtin) { "builtin" } else { "command" };
    let mut block_settings = Settings::builtin_defaults(name);
    if let Some(defaults) = &around.defaults {
        settings::apply(&mut block_settings, defaults, name, out);
    }
    settings::apply(&mut block_settings, &fields, name, out);

    let swept = axes_of(&fields, backend, around, out);
    check_models(&swept, &devices, around, out);
    let names = names_of(&swept, fields.get("model").is_some(), around);
    for found in swept.axes.iter().filter(|found| found.axis.name.starts_with("env.")) {
        for (value, place) in found.axis.values.iter().zip(&found.places) {
            template::decode(&value.to_string(), *place, around.source, &names, out);
        }
    }
    let exclude = fields.get("exclude").map(|slot| axes::exclude(slot, &swept.axes, &swept.unread, &devices, out)).unwrap_or_default();
    let backend = match backend {
        Some(Kinds::Builtin) => Some(Backend::Builtin),
        Some(Kinds::Command) => command::command(&fields, &names, around.source, out).map(|command| Backend::Command(Box::new(command))),
        None => None,
    };
    let axes: Vec<_> = swept.axes.into_iter().map(|found| found.axis).collect();
    let n_points = axes.iter().map(|axis| axis.values.len() as u128).fold(devices.len() as u128, u128::saturating_mul);
    let line = around.source.get(..node.span.start).map_or(0, |before| before.matches('\n').count()) + 1;
    let block = backend.map(|backend| Block { line, devices, backend, axes, exclude, settings: block_settings });
    Some(FoundBlock { place: node.span, block, n_points })
}

fn devices(fields: &Fields<'_>, around: &Surroundings<'_>, out: &mut Diagnostics) -> Vec<String> {
    let hint = format!("say where it runs: `devices: [{}]`", around.devices.first().unwrap_or(&"here"));
    let Some(slot) = fields.need("devices", "a block", &hint, out) else { return Vec::new() };
    let items = slot.one_or_many("devices: [here]", out).map(|found| found.0).unwrap_or_default();
    let named: Vec<(String, Span)> =
        items.into_iter().filter_map(|item| Some((known_name(item, "device", &around.devices, "devices", out)?, item.place))).collect();
    report_repeats("devices", named.iter().map(|(id, place)| (id.as_str(), *place)), out);
    named.into_iter().map(|(id, _)| id).collect()
}

struct Swept {
    /// In file order; what comes from `defaults` last.
    axes: Vec<FoundAxis>,
    /// Axes that are there, but have a fault.
    unread: Vec<String>,
}

fn axes_of(fields: &Fields<'_>, backend: Option<Kinds>, around: &Surroundings<'_>, out: &mut Diagnostics) -> Swept {
    let model_ids: Vec<&str> = around.models.keys().copied().collect();
    let mut axes: Vec<FoundAxis> = Vec::new();
    let mut named: Vec<String> = Vec::new();
    for entry in fields.iter() {
        let slot = Slot::of(entry);
        match slot.name {
            "model" => {
                named.push("model".to_owned());
                axes.extend(axes::model_axis(slot, &model_ids, out));
            }
            "threads" => {
                named.push("threads".to_owned());
                axes.extend(axes::threads_axis(slot, out));
            }
            "params" if backend != Some(Kinds::Builtin) => {
                let (params, names) = axes::param_axes(slot, out);
                axes.extend(params);
                named.extend(names);
            }
            "env" => axes.extend(axes::env_axes(Some(slot), around.defaults_env, out)),
            _ => {}
        }
    }
    if fields.get("env").is_none() {
        axes.extend(axes::env_axes(None, around.defaults_env, out));
    }
    named.extend(
        fields
            .get("env")
            .iter()
            .filter_map(|slot| slot.named_entries("", &mut Diagnostics::default()))
            .flatten()
            .map(|entry| format!("env.{}", entry.key.text)),
    );
    if backend == Some(Kinds::Builtin) {
        let hint =
            if model_ids.is_empty() { "describe it under `models`, then name it here".to_owned() } else { format!("models: {}", listed(&model_ids)) };
        fields.need("model", "backend `builtin`", &hint, out);
        if fields.get("threads").is_none() {
            let after_model = axes.iter().position(|found| found.axis.name == "model").map_or(0, |at| at + 1);
            axes.insert(after_model, FoundAxis::single_threaded());
        }
    }
    let unread = named.into_iter().filter(|name| !axes.iter().any(|found| found.axis.name == *name)).collect();
    Swept { axes, unread }
}

fn models_of(swept: &Swept) -> impl Iterator<Item = (&str, Span)> {
    let axis = swept.axes.iter().find(|found| found.axis.name == "model");
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

fn names_of(swept: &Swept, has_model: bool, around: &Surroundings<'_>) -> Names {
    let own = swept.axes.iter().map(|found| &found.axis.name).chain(&swept.unread);
    let own = own.filter(|name| *name != "model" && !name.starts_with("env.")).cloned();
    let unquantized = models_of(swept)
        .filter(|(id, _)| around.models.get(id).is_some_and(|model| model.as_ref().is_some_and(|model| model.quantization.is_none())));
    Names::of_block(own, has_model, unquantized.map(|(id, _)| id.to_owned()).collect())
}
