//! The top level of the file: devices, models, defaults, and the blocks put together.

use super::{
    Outside,
    axes::{Ids, axes_of, has_value, variable_name},
    block::{self, FoundBlock, Surroundings, Unread, block},
    diagnose::{Diagnostics, tick},
    fields::{Fields, Slot, fields},
    merge,
    model::{Campaign, Ceiling, Device, Model, Settings, Template},
    settings,
    sources::Sources,
    template::{self, Names},
    transport, units, used, variables,
    vocabulary::{self, TOP, USED},
    yaml::{Entry, Kind, Node},
};
use crate::store::index::{DEVICES, SUPERSEDED};
use indexmap::IndexMap;
use std::path::Path;

/// Points of a whole file, before `exclude`.
const MAX_POINTS: u128 = 1_000_000;

/// Of all points of a block, their axes and maps of `exclude`.
const MAX_LOOKS: u128 = 100_000_000;

/// Values that blocks take from `defaults`, in all.
const MAX_INHERITED: usize = 2_000_000;

/// What a campaign is made of besides its own file.
pub struct Parts<'a> {
    pub file: &'a Path,
    pub sources: &'a mut Sources,
    pub outside: &'a Outside<'a>,
}

/// Understands a tree. `None` when the file has errors; not every error makes it `None`.
pub fn campaign(root: &Node, parts: Parts<'_>, out: &mut Diagnostics) -> Option<Campaign> {
    let Parts { file, sources, outside } = parts;
    let Kind::Map(entries) = &root.kind else {
        let error = out.error(root.span, "a campaign is a map");
        error.label(format!("this is {}", root.describe())).hint("start with `devices:` and `matrix:`, each in the first column");
        return None;
    };
    let mut entries = without_notes(entries);
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let dir = absolute.parent().unwrap_or(&absolute).to_owned();
    let mut secrets = variables::replace(&mut entries, outside.variable, out);
    let used = used::read(&entries, &dir, outside, sources, out);
    let mut all_used = used.entries;
    secrets.extend(variables::replace(&mut all_used, outside.variable, out));
    let mut assignments = merge::assignments(outside.set, sources, out);
    secrets.extend(variables::replace_set(&mut assignments, outside.variable, out));

    let fields = fields(&entries, root.span, &TOP, out);
    let name = name(&fields, file, out);
    let description = fields.get("description").and_then(|slot| slot.text(out));
    let used_fields = super::fields::fields(&all_used, root.span, &USED, out);
    let device_example = "devices: { here: { local: {} } }";
    if fields.get("devices").is_none() && used_fields.get("devices").is_none() {
        fields.need("devices", "a campaign", &format!("say where it runs: `{device_example}`"), out);
    }
    let device_entries = sections("devices", [&fields, &used_fields], device_example, out);
    let model_entries = sections("models", [&fields, &used_fields], "models: { digits: { path: models/digits.onnx } }", out);
    let source = sources.text();
    let device_ids: Vec<&str> = device_entries.iter().map(|entry| entry.key.text.as_str()).collect();
    let devices: IndexMap<&str, Option<Device>> =
        device_entries.iter().map(|entry| (entry.key.text.as_str(), device(entry, &dir, source, out))).collect();
    let models: IndexMap<&str, Option<Model>> = model_entries.iter().map(|entry| (entry.key.text.as_str(), model(entry, &device_ids, out))).collect();

    let defaults = fields.get("defaults");
    let default_fields = defaults.and_then(|slot| slot.fields(&vocabulary::DEFAULTS, "defaults: { repetitions: 4 }", out));
    let default_entries = match defaults.map(|slot| &slot.node.kind) {
        Some(Kind::Map(entries)) => entries.as_slice(),
        _ => &[],
    };
    let line_of = |offset: usize| sources.line(offset);
    let unread = Unread { devices: devices.is_empty(), models: fields.is_meant("models") || used_fields.is_meant("models") };
    let around = Surroundings { source, devices, models, unread, defaults: default_entries, set: &assignments, line_of: &line_of };
    let found = matrix(&fields, &around, out);
    check_size(&found, out);
    // Also what every block says otherwise, and what no block takes.
    if let Some(fields) = &default_fields {
        settings::apply(&mut Settings::builtin_defaults("builtin"), fields, out);
        for entry in fields.iter() {
            axes_of(entry, Ids { models: None, builds: &[] }, out);
        }
    }
    if fields.get("matrix").is_some() && found.iter().all(|found| found.backend.is_some()) && !found.is_empty() {
        let backends: Vec<&str> = found.iter().filter_map(|found| found.backend).collect();
        for entry in merge::without_effect(default_entries, &backends) {
            let on = vocabulary::DEFAULTS.key(&entry.key.text).map_or(&[][..], |key| key.on);
            out.warning(entry.key.span, format!("{} has no effect", tick(&entry.key.text)))
                .label(format!("no block uses backend {}", on.iter().map(|backend| tick(backend)).collect::<Vec<_>>().join(" or ")))
                .hint("remove it, or add such a block");
        }
        if let Some(window) = block::own_window(default_entries).filter(|_| !found.iter().any(FoundBlock::fills_windows)) {
            block::no_power_runs(window, "no block of backend `builtin` has power runs", out);
        }
        merge::report_unused(&assignments, &backends, out);
    }
    forget_unused(&device_entries, &model_entries, &found, out);

    let devices = around.devices.into_iter().map(|(id, device)| device.map(|device| (id.to_owned(), device))).collect::<Option<_>>()?;
    let models = around.models.into_iter().map(|(id, model)| model.map(|model| (id.to_owned(), model))).collect::<Option<_>>()?;
    let blocks = found.into_iter().map(|found| found.block).collect::<Option<_>>()?;
    Some(Campaign {
        name: name?,
        description,
        file: file.to_owned(),
        dir,
        source: String::new(),
        used: used.texts,
        set: outside.set.to_vec(),
        secrets,
        devices,
        models,
        blocks,
        warnings: Vec::new(),
    })
}

/// `x-` keys are for anchors.
fn without_notes(entries: &[Entry]) -> Vec<Entry> {
    entries.iter().filter(|entry| !entry.key.text.starts_with("x-")).cloned().collect()
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

/// The entries of `devices` or `models`, of the file and of what it uses: at least one, with safe names, each once.
fn sections<'a>(name: &str, of: [&Fields<'a>; 2], example: &str, out: &mut Diagnostics) -> Vec<&'a Entry> {
    let mut all: Vec<&Entry> = Vec::new();
    for slot in of.into_iter().flat_map(|fields| fields.all(name)) {
        let Some(entries) = slot.named_entries(example, out) else { continue };
        if entries.is_empty() {
            slot.refuse(format!("{} is empty", tick(slot.name)), format!("write it like `{example}`"), out);
        }
        for entry in entries {
            if let Err(reason) = units::safe_name(&entry.key.text) {
                let text = format!("{} cannot be a name in {}", tick(&entry.key.text), tick(slot.name));
                out.error(entry.key.span, text).label(reason).hint("it becomes part of file names: letters, digits, `.`, `_` and `-`");
            }
            match all.iter().find(|earlier| earlier.key.text == entry.key.text) {
                Some(earlier) => {
                    out.error(entry.key.span, format!("{} is there twice in {}", tick(&entry.key.text), tick(name)))
                        .label("again here")
                        .also(earlier.key.span, "first here")
                        .hint("give one of them another name, or remove it");
                }
                None => all.push(entry),
            }
        }
    }
    all
}

fn device(entry: &Entry, dir: &Path, source: &str, out: &mut Diagnostics) -> Option<Device> {
    let id = entry.key.text.clone();
    let slot = Slot::of(entry);
    let fields = slot.fields(&vocabulary::DEVICE, &format!("{id}: {{ local: {{}} }}"), out)?;
    let transport = transport::decode(&id, entry.key.span, &fields, dir, out);
    if [SUPERSEDED, DEVICES].contains(&id.as_str()) {
        out.error(entry.key.span, format!("{} cannot be the name of a device", tick(&id)))
            .hint("every results directory has a directory of that name already: choose another one");
    }
    let models_dir = fields.get("models_dir").and_then(|slot| slot.some_text(out));
    let mut env = IndexMap::new();
    for entry in fields.get("env").and_then(|slot| slot.named_entries("env: { NAME: value }", out)).unwrap_or_default() {
        env.extend(device_variable(entry, source, out).map(|value| (entry.key.text.clone(), value)));
    }
    let builds = fields.get("builds").map(|slot| builds(slot, out)).unwrap_or_default();
    let conditions = fields.get("conditions").map(|slot| settings::conditions(slot, out)).unwrap_or_default();
    let limits = fields.get("limits").and_then(|slot| settings::limits(slot, out)).unwrap_or_default();
    let resource_group = fields.get("resource_group").and_then(|slot| resource_group(slot, out));
    let ceilings = fields.get("ceilings").map(|slot| ceilings(slot, out)).unwrap_or_default();
    Some(Device { id, transport, models_dir, env, builds, conditions, limits, resource_group, ceilings })
}

/// name → value with its source.
fn ceilings(slot: Slot<'_>, out: &mut Diagnostics) -> IndexMap<String, Ceiling> {
    const EXAMPLE: &str = "ceilings: { dram_read_gb_s: { value: 13.98, source: measured } }";
    let mut ceilings = IndexMap::new();
    for entry in slot.named_entries(EXAMPLE, out).unwrap_or_default() {
        let name = entry.key.text.as_str();
        if name != Ceiling::DRAM_READ {
            let error = out.error(entry.key.span, format!("unknown ceiling {}", tick(name)));
            error.hint(format!("nothing is held against another one than {}", tick(Ceiling::DRAM_READ)));
        }
        let Some(fields) = Slot::of(entry).fields(&vocabulary::CEILING, EXAMPLE, out).map(|fields| fields.at(entry.key.span)) else { continue };
        let hint = format!("write it like `{EXAMPLE}`");
        let value = fields.need("value", "a ceiling", &hint, out).and_then(|slot| slot.number_within(0.0, f64::MAX, out));
        let source = fields.need("source", "a ceiling", &hint, out).and_then(|slot| slot.some_text(out));
        ceilings.extend(value.zip(source).map(|(value, source)| (name.to_owned(), Ceiling { value, source })));
    }
    ceilings
}

fn resource_group(slot: Slot<'_>, out: &mut Diagnostics) -> Option<String> {
    let place = slot.place;
    let name = slot.some_text(out)?;
    if let Err(reason) = units::safe_name(&name) {
        // It becomes a file, by which campaigns keep out of each other's way.
        out.error(place, format!("{} cannot be the name of a group", tick(&name))).label(reason).hint("letters, digits, `.`, `_` and `-`");
        return None;
    }
    Some(name)
}

/// build id → tool → path.
fn builds(slot: Slot<'_>, out: &mut Diagnostics) -> IndexMap<String, IndexMap<String, String>> {
    const EXAMPLE: &str = "builds: { old: { bench: ~/old/bench }, new: { bench: ~/new/bench } }";
    let mut builds = IndexMap::new();
    for entry in slot.named_entries(EXAMPLE, out).unwrap_or_default() {
        if let Err(reason) = units::safe_name(&entry.key.text) {
            let text = format!("{} cannot be the name of a build", tick(&entry.key.text));
            out.error(entry.key.span, text).label(reason).hint("letters, digits, `.`, `_` and `-`");
        }
        let mut tools = IndexMap::new();
        let inner = Slot::of(entry);
        for tool in inner.named_entries(EXAMPLE, out).unwrap_or_default() {
            if !units::is_identifier(&tool.key.text) {
                let text = format!("{} cannot be the name of a tool", tick(&tool.key.text));
                out.error(tool.key.span, text).hint("letters, digits and `_`: it is used as `{build.NAME}` in `argv`");
            }
            tools.extend(Slot::of(tool).some_text(out).map(|path| (tool.key.text.clone(), path)));
        }
        if matches!(&inner.node.kind, Kind::Map(entries) if entries.is_empty()) {
            inner.refuse(format!("the build {} has no tools", tick(inner.name)), format!("write it like `{EXAMPLE}`"), out);
        }
        builds.insert(entry.key.text.clone(), tools);
    }
    builds
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
    if !fields.is_meant("path")
        && fields.get("path").is_none()
        && fields.get("paths").is_none_or(|slot| matches!(&slot.node.kind, Kind::Map(entries) if entries.is_empty()))
    {
        out.error(entry.key.span, format!("model {} without a path", tick(&id)))
            .hint(format!("write `{id}: {{ path: models/{id}.onnx }}`, or `paths` with a path for each device"));
    }
    let push = fields.get("push").and_then(|slot| Some((slot, slot.boolean(out)?))).filter(|(_, push)| *push);
    if let Some((slot, _)) = push.filter(|_| path.is_none() && !fields.is_meant("path") && fields.get("path").is_none()) {
        slot.refuse("`push` without `path`".into(), "`path` is the file here that is copied; devices in `paths` use their own", out);
    }
    let mut tags = IndexMap::new();
    for entry in fields.get("tags").and_then(|slot| slot.named_entries("tags: { family: qwen2.5 }", out)).unwrap_or_default() {
        tags.extend(Slot::of(entry).text(out).map(|text| (entry.key.text.clone(), text)));
    }
    let quantization = fields.get("quantization").and_then(|slot| slot.some_text(out));
    let sha256 = fields.get("sha256").and_then(|slot| digest(slot, out));
    let output_digest = fields.get("output_digest").and_then(|slot| digest(slot, out));
    Some(Model { id, path, paths, quantization, tags, sha256, output_digest, push: push.is_some() })
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
    let inherited: usize = around.defaults.iter().map(|entry| entry.value.weight()).sum();
    if inherited.saturating_mul(blocks.len()) > MAX_INHERITED {
        slot.refuse(
            format!("{} blocks that each inherit {inherited} values", blocks.len()),
            "write what differs as an axis of one block, or fewer `defaults`",
            out,
        );
        return Vec::new();
    }
    blocks.into_iter().filter_map(|item| block(item.node, around, out)).collect()
}

/// How often one point is looked at: for each of its axes, and for each map of `exclude`.
fn check_size(found: &[FoundBlock], out: &mut Diagnostics) {
    for block in found.iter().filter(|block| block.n_points <= MAX_POINTS && block.n_points.saturating_mul(block.n_looks) > MAX_LOOKS) {
        let text = format!("{} points with {} axes and maps of `exclude` are too many", block.n_points, block.n_looks);
        out.error(block.place, text).hint("sweep fewer axes at once, or write `exclude` as a condition: `when: not (…)`");
    }
    let n_points = found.iter().fold(0, |sum: u128, block| sum.saturating_add(block.n_points));
    let Some(largest) = found.iter().max_by_key(|block| block.n_points).filter(|_| n_points > MAX_POINTS) else { return };
    let error = out.error(largest.place, format!("the matrix has {n_points} points, and at most {MAX_POINTS} are possible"));
    error
        .label(format!("{} of them in this block", largest.n_points))
        .hint("sweep fewer axes at once, or shorten their lists; `exclude` comes after this count");
}

/// What this build cannot do of a device or model stops only campaigns that use it: a shared file has more than one of them needs. Likewise
/// only the blocks that use it.
fn forget_unused(devices: &[&Entry], models: &[&Entry], found: &[FoundBlock], out: &mut Diagnostics) {
    let Some(blocks) = found.iter().map(|found| found.block.as_ref()).collect::<Option<Vec<_>>>() else { return };
    for entry in devices {
        let mut using = blocks.iter().filter(|block| block.devices.contains(&entry.key.text)).peekable();
        if using.peek().is_none() {
            out.forget_unused(entry.value.span);
        } else if !using.any(|block| block.is_built()) {
            out.of_later_block(entry.value.span, 0);
        }
    }
    let models_of =
        |block: &&super::model::Block| block.axes().filter(|axis| axis.name == "model").flat_map(|axis| axis.values.clone()).collect::<Vec<_>>();
    for entry in models {
        if !blocks.iter().any(|block| models_of(block).iter().any(|id| id.to_string() == entry.key.text)) {
            out.forget_unused(entry.value.span);
        }
    }
}
