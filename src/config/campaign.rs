//! The top level of the file: devices, models, defaults, and the blocks put together.

use super::{
    axes::{has_value, variable_name},
    block::{FoundBlock, Surroundings, block},
    diagnose::{Diagnostics, tick},
    fields::{Fields, Slot, fields},
    model::{Campaign, Device, Local, Model, Settings, Template, Transport},
    settings,
    template::{self, Names},
    units,
    vocabulary::{self, TOP},
    yaml::{Entry, Kind, Node},
};
use crate::store::index::{DEVICES, SUPERSEDED};
use indexmap::IndexMap;
use std::path::Path;

/// Points of a whole file, before `exclude`.
const MAX_POINTS: u128 = 1_000_000;

/// Understands a tree. `None` when the file has errors; not every error makes it `None`.
pub fn campaign(root: &Node, source: &str, file: &Path, out: &mut Diagnostics) -> Option<Campaign> {
    let Kind::Map(entries) = &root.kind else {
        let error = out.error(root.span, "a campaign is a map");
        error.label(format!("this is {}", root.describe())).hint("start with `devices:` and `matrix:`, each in the first column");
        return None;
    };
    let entries: Vec<Entry> = entries.iter().filter(|entry| !entry.key.text.starts_with("x-")).cloned().collect();
    report_variables(&entries, out);
    let fields = fields(&entries, root.span, &TOP, out);
    let name = name(&fields, file, out);
    let description = fields.get("description").and_then(|slot| slot.text(out));
    let device_entries = section(
        fields.need("devices", "a campaign", "say where it runs: `devices: { here: { local: {} } }`", out),
        "devices: { here: { local: {} } }",
        out,
    );
    let model_entries = section(fields.get("models"), "models: { digits: { path: models/digits.onnx } }", out);
    let device_ids: Vec<&str> = device_entries.iter().map(|entry| entry.key.text.as_str()).collect();
    let devices: Vec<Option<Device>> = device_entries.iter().map(|entry| device(entry, source, out)).collect();
    let models: IndexMap<&str, Option<Model>> = model_entries.iter().map(|entry| (entry.key.text.as_str(), model(entry, &device_ids, out))).collect();

    let defaults = fields.get("defaults").and_then(|slot| slot.fields(&vocabulary::DEFAULTS, "defaults: { repetitions: 4 }", out));
    let defaults_env = defaults.as_ref().and_then(|defaults| defaults.get("env")).filter(|slot| !slot.node.is_null());
    let defaults_env = defaults_env.and_then(|slot| slot.named_entries("env: { NAME: value }", out)).unwrap_or_default();
    let around = Surroundings { source, devices: device_ids, models, defaults, defaults_env };
    let found = matrix(&fields, &around, out);
    check_size(&found, out);
    check_defaults(&fields, &around, &found, out);

    let devices = devices.into_iter().map(|device| device.map(|device| (device.id.clone(), device))).collect::<Option<_>>()?;
    let models = around.models.into_iter().map(|(id, model)| model.map(|model| (id.to_owned(), model))).collect::<Option<_>>()?;
    let blocks = found.into_iter().map(|found| found.block).collect::<Option<_>>()?;
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let dir = absolute.parent().unwrap_or(&absolute).to_owned();
    Some(Campaign { name: name?, description, file: file.to_owned(), dir, source: source.to_owned(), devices, models, blocks, warnings: Vec::new() })
}

/// `${VAR}` is for a later build, wherever a value is. Texts that no one reads as a value, and patterns, may contain it.
fn report_variables(entries: &[Entry], out: &mut Diagnostics) {
    for entry in entries {
        if !matches!(entry.key.text.as_str(), "description" | "regex") {
            report_variables_in(&entry.value, out);
        }
    }
}

fn report_variables_in(node: &Node, out: &mut Diagnostics) {
    match &node.kind {
        Kind::Seq(items) => items.iter().for_each(|item| report_variables_in(item, out)),
        Kind::Map(entries) => report_variables(entries, out),
        Kind::Scalar(scalar) => {
            if let Some(variable) = template::variable_in(&scalar.text) {
                let text = format!("{} is not in this build yet", tick(variable));
                out.error(node.span, text)
                    .label("a variable of the environment")
                    .hint("write the value itself; placeholders of a point are written `{name}`")
                    .conclusive();
            }
        }
    }
}

fn name(fields: &Fields<'_>, file: &Path, out: &mut Diagnostics) -> Option<String> {
    if let Some(slot) = fields.get("campaign") {
        let name = slot.text(out)?;
        return match units::safe_name(&name) {
            Ok(()) => Some(name),
            Err(reason) => {
                out.error(slot.place, format!("{} cannot name a results directory", tick(&name)))
                    .label(reason)
                    .hint(format!("write `campaign: {}`", units::made_safe(&name)));
                None
            }
        };
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if let Err(reason) = units::safe_name(&stem) {
        let text = format!("the file's name {} cannot name a results directory: {reason}", tick(&stem));
        out.file_error(text).hint(format!("add a line `campaign: {}`", units::made_safe(&stem)));
        return None;
    }
    Some(stem)
}

/// The entries of `devices` or `models`: at least one, with safe names.
fn section<'a>(slot: Option<Slot<'a>>, example: &str, out: &mut Diagnostics) -> &'a [Entry] {
    let Some(slot) = slot else { return &[] };
    let Some(entries) = slot.named_entries(example, out) else { return &[] };
    if entries.is_empty() {
        slot.refuse(format!("{} is empty", tick(slot.name)), format!("write it like `{example}`"), out);
    }
    for entry in entries {
        if let Err(reason) = units::safe_name(&entry.key.text) {
            let text = format!("{} cannot be a name in {}", tick(&entry.key.text), tick(slot.name));
            out.error(entry.key.span, text).label(reason).hint("it becomes part of file names: letters, digits, `.`, `_` and `-`");
        }
    }
    entries
}

fn device(entry: &Entry, source: &str, out: &mut Diagnostics) -> Option<Device> {
    let id = entry.key.text.clone();
    let slot = Slot::of(entry);
    let fields = slot.fields(&vocabulary::DEVICE, &format!("{id}: {{ local: {{}} }}"), out)?;
    let local = fields.get("local").map(|slot| local(slot, out)).unwrap_or_default();
    if fields.get("local").is_none() && fields.n_later == 0 {
        out.error(entry.key.span, format!("device {} without a transport", tick(&id)))
            .hint(format!("say how it is reached: `{id}: {{ local: {{}} }}` is this machine"));
    }
    if [SUPERSEDED, DEVICES].contains(&id.as_str()) {
        out.error(entry.key.span, format!("{} cannot be the name of a device", tick(&id)))
            .hint("every results directory has a directory of that name already: choose another one");
    }
    let models_dir = fields.get("models_dir").and_then(|slot| slot.some_text(out));
    let mut env = IndexMap::new();
    for entry in fields.get("env").and_then(|slot| slot.named_entries("env: { NAME: value }", out)).unwrap_or_default() {
        env.extend(device_variable(entry, source, out).map(|value| (entry.key.text.clone(), value)));
    }
    Some(Device { id, transport: Transport::Local(local), models_dir, env })
}

fn local(slot: Slot<'_>, out: &mut Diagnostics) -> Local {
    let Some(fields) = slot.fields(&vocabulary::LOCAL, "local: {}", out) else { return Local::default() };
    let mut directory = |key: &str| {
        let slot = fields.get(key)?;
        let place = slot.place;
        let text = slot.some_text(out)?;
        // It is used on the device, where there is no directory that it could be relative to.
        let plain = |c: char| c.is_ascii_alphanumeric() || "._/+-".contains(c);
        let fits = text.strip_prefix("~/").or_else(|| text.strip_prefix('/')).is_some_and(|rest| rest.chars().all(plain));
        if !fits {
            out.error(place, format!("{} is no directory that a device can be given", tick(&text)))
                .hint("write an absolute path, or one that begins with `~/`; letters, digits and `._/+-` only");
        }
        fits.then_some(text)
    };
    Local { bin_dir: directory("bin_dir"), state_dir: directory("state_dir") }
}

fn device_variable(entry: &Entry, source: &str, out: &mut Diagnostics) -> Option<Template> {
    let named = variable_name(entry, out);
    if !has_value(entry, "to leave it out, remove the line", out) || !named {
        return None;
    }
    let slot = Slot::of(entry);
    let Some(scalar) = slot.node.scalar() else {
        let error = out.error(slot.place, format!("the variable {} of a device has one value", tick(slot.name)));
        error.label(format!("this is {}", slot.node.describe())).hint("to sweep it, put it into `env` of a block");
        return None;
    };
    template::decode(&scalar.text, slot.node.span, source, &Names::of_device(), out)
}

fn model(entry: &Entry, device_ids: &[&str], out: &mut Diagnostics) -> Option<Model> {
    let id = entry.key.text.clone();
    let fields = Slot::of(entry).fields(&vocabulary::MODEL, &format!("{id}: {{ path: models/{id}.onnx }}"), out)?;
    let path = fields.get("path").and_then(|slot| slot.some_text(out));
    let mut paths = IndexMap::new();
    if let Some(slot) = fields.get("paths") {
        let entries = slot.named_entries("paths: { here: /models/m.onnx }", out).unwrap_or_default();
        for entry in entries {
            if !device_ids.contains(&entry.key.text.as_str()) {
                let error = out.error(entry.key.span, format!("unknown device {}", tick(&entry.key.text)));
                if let Some(near) = super::diagnose::nearest(&entry.key.text, device_ids.iter().copied()) {
                    error.label(format!("did you mean `{near}`?"));
                }
                error.hint(format!("devices of this file: {}", super::diagnose::listed(device_ids)));
            }
            paths.extend(Slot::of(entry).some_text(out).map(|path| (entry.key.text.clone(), path)));
        }
    }
    if fields.get("path").is_none() && fields.get("paths").is_none_or(|slot| matches!(&slot.node.kind, Kind::Map(entries) if entries.is_empty())) {
        out.error(entry.key.span, format!("model {} without a path", tick(&id)))
            .hint(format!("write `{id}: {{ path: models/{id}.onnx }}`, or `paths` with a path for each device"));
    }
    let mut tags = IndexMap::new();
    for entry in fields.get("tags").and_then(|slot| slot.named_entries("tags: { family: qwen2.5 }", out)).unwrap_or_default() {
        tags.extend(Slot::of(entry).text(out).map(|text| (entry.key.text.clone(), text)));
    }
    let quantization = fields.get("quantization").and_then(|slot| slot.some_text(out));
    let sha256 = fields.get("sha256").and_then(|slot| digest(slot, out));
    let output_digest = fields.get("output_digest").and_then(|slot| digest(slot, out));
    Some(Model { id, path, paths, quantization, tags, sha256, output_digest })
}

/// 64 hex digits, kept in lower case.
fn digest(slot: Slot<'_>, out: &mut Diagnostics) -> Option<String> {
    let text = slot.text(out)?;
    if !units::is_sha256(&text) {
        let error = out.error(slot.place, format!("{} takes a SHA-256", tick(slot.name)));
        error.label(format!("{} characters", text.chars().count())).hint("64 hex digits, as `sha256sum FILE` prints them");
        return None;
    }
    Some(text.to_ascii_lowercase())
}

fn matrix(fields: &Fields<'_>, around: &Surroundings<'_>, out: &mut Diagnostics) -> Vec<FoundBlock> {
    let hint = "list what is run: `matrix: [{ devices: [here], backend: builtin, model: digits }]`";
    let Some(slot) = fields.need("matrix", "a campaign", hint, out) else { return Vec::new() };
    let blocks = slot.list("matrix: [{ devices: [here], backend: builtin, model: digits }]", out).unwrap_or_default();
    blocks.into_iter().filter_map(|item| block(item.node, around, out)).collect()
}

fn check_size(found: &[FoundBlock], out: &mut Diagnostics) {
    let n_points = found.iter().fold(0, |sum: u128, block| sum.saturating_add(block.n_points));
    let Some(largest) = found.iter().max_by_key(|block| block.n_points).filter(|_| n_points > MAX_POINTS) else { return };
    let error = out.error(largest.place, format!("the matrix has {n_points} points, and at most {MAX_POINTS} are possible"));
    error
        .label(format!("{} of them in this block", largest.n_points))
        .hint("sweep fewer axes at once, or shorten their lists; `exclude` comes after this count");
}

/// `defaults` has its faults found where no block does it, and settings that reach no block are named.
fn check_defaults(fields: &Fields<'_>, around: &Surroundings<'_>, found: &[FoundBlock], out: &mut Diagnostics) {
    let Some(defaults) = &around.defaults else { return };
    if found.is_empty() {
        settings::apply(&mut Settings::builtin_defaults("builtin"), defaults, "builtin", out);
    }
    let all_understood = fields.get("matrix").is_some() && found.iter().all(|found| found.block.is_some());
    let any_builtin = found.iter().filter_map(|found| found.block.as_ref()).any(|block| block.backend.name() == "builtin");
    for key in settings::BUILTIN_ONLY {
        if let Some(slot) = defaults.get(key).filter(|_| all_understood && !any_builtin) {
            out.warning(slot.key, format!("{} has no effect", tick(key)))
                .label("no block uses backend `builtin`")
                .hint("remove it, or add such a block");
        }
    }
}
