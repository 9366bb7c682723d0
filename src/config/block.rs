//! One entry of `matrix`, with what it inherits.

use super::{
    axes::{self, FoundAxis, Ids},
    command,
    condition::{self, Offered},
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    exceptions::{self, Included, Named},
    fields::{Fields, Slot, fields, known_name, not_yet, report_repeats},
    level::Level,
    llama_bench, llama_server,
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
    pub unread: Unread,
    pub defaults: &'a [Entry],
    pub set: &'a [Assignment],
    /// 1-based line of a place in its own text.
    pub line_of: &'a dyn Fn(usize) -> usize,
}

/// Sections without an entry that can be read, which is said elsewhere: what names one isn't a fault of its own.
#[derive(Debug, Clone, Copy)]
pub struct Unread {
    pub devices: bool,
    pub models: bool,
}

/// A block as far as it can be understood.
pub struct FoundBlock {
    pub place: Span,
    /// `None` where it has a fault.
    pub block: Option<Block>,
    pub backend: Option<&'static str>,
    /// Points before `exclude` and `when`.
    pub n_points: u128,
    /// Axes and maps of `exclude`.
    pub n_looks: u128,
}

/// Backends that fill a window.
const OF_WINDOWS: [&str; 2] = ["builtin", "onnx"];

impl FoundBlock {
    /// May it have runs that fill a window?
    pub fn fills_windows(&self) -> bool {
        self.backend.is_none_or(|backend| OF_WINDOWS.contains(&backend))
            && self.block.as_ref().is_none_or(|block| block.settings.power.has_own_runs())
    }
}

/// Where a block itself, or the defaults, say `measure.window`; what a block inherits is meant for others.
pub fn own_window(entries: &[Entry]) -> Option<Span> {
    let inner = |entries: &[Entry], name: &str| entries.iter().find(|entry| entry.key.text == name).cloned();
    match inner(entries, "measure")?.value.kind {
        Kind::Map(measure) => inner(&measure, "window").map(|window| window.key.span),
        _ => None,
    }
}

pub fn block(node: &Node, around: &Surroundings<'_>, out: &mut Diagnostics) -> Option<FoundBlock> {
    let Kind::Map(entries) = &node.kind else {
        let error = out.error(node.span, "a block of `matrix` is a map");
        error.label(format!("this is {}", node.describe())).hint("write it like `- { devices: [here], backend: builtin, model: digits }`");
        return None;
    };
    let first_remark = out.len();
    let backend = backend(entries, around, out);
    let window = own_window(entries);
    if let Some(window) = window.filter(|_| backend.is_some_and(|backend| !OF_WINDOWS.contains(&backend))) {
        out.error(window, "`measure.window` has no effect here")
            .label("this is for backend `builtin`")
            .hint("leave it out: a power run of another backend does what its timing runs do");
    }
    let level = vocabulary::block(backend);
    let entries = merge::block(entries, around.defaults, around.set, level, out);
    let faults_before = out.count();
    let fields = fields(&entries, node.span, level, out);
    fields.need("backend", "a block", "say what executes it: `backend: builtin` or `backend: command`", out);
    let devices = devices(&fields, around, out);
    let mut block_settings = Settings::builtin_defaults(backend.unwrap_or("command"));
    settings::apply(&mut block_settings, &fields, out);
    if let Some(window) = window.filter(|_| backend.is_some_and(|backend| OF_WINDOWS.contains(&backend)) && !block_settings.power.has_own_runs()) {
        no_power_runs(window, "this block has no power runs", out);
    }
    if let Some(slot) = fields.get("limits") {
        check_limits(slot, &block_settings, &devices, around, out);
    }

    let model_ids: Vec<&str> = around.models.keys().copied().collect();
    let build_ids = build_ids(&devices, around);
    let ids = Ids { models: (!around.unread.models).then_some(model_ids.as_slice()), builds: &build_ids };
    let swept = sweep(&fields, backend, level, ids, out);
    let named = Named { axes: swept.axes().collect(), unread: &swept.unread, devices: &devices };
    let exclude = fields.get("exclude").map(|slot| exceptions::exclude(slot, &named, out)).unwrap_or_default();
    let linked: Vec<Vec<String>> =
        swept.groups.iter().filter(|group| group.len() > 1).map(|group| group.iter().map(|found| found.axis.name.clone()).collect()).collect();
    let include = fields.get("include").map(|slot| exceptions::include(slot, &named, &linked, ids, out)).unwrap_or_default();
    let cases = cases(&swept, &devices, &include);
    check_models(&cases, around, out);
    check_builds(&cases, backend, around, out);
    let names = names_of(&swept, fields.get("model").is_some(), &cases, around);
    check_texts(&swept, &include, &names, around, out);
    let when = fields.get("when").and_then(|slot| {
        let axes = swept.axes().map(|found| (found.axis.name.as_str(), found.axis.values.as_slice())).collect();
        condition::condition(slot, &Offered { axes, unread: &swept.unread }, around.source, out)
    });
    if let Some(slot) = fields.get("dominance") {
        check_dominance(slot, &block_settings, &swept, out);
    }
    if let Some(slot) = fields.get("interleave") {
        check_interleave(slot, &block_settings, &swept, out);
    }
    let backend_name = backend;
    let backend = match backend {
        Some("builtin") => Some(Backend::Builtin),
        Some("command") => command::command(&fields, &names, around.source, out).map(|command| Backend::Command(Box::new(command))),
        Some("llama-bench") => Some(Backend::LlamaBench),
        Some("llama-server") => Some(Backend::LlamaServer),
        Some(later) => Some(Backend::Later(later)),
        None => None,
    };
    let include: Vec<IndexMap<String, Vec<AxisValue>>> = include.iter().map(Included::fixed).collect();
    let n_points = include.iter().map(Some).chain([None]).map(|fixed| n_crossed(&swept, &devices, fixed)).fold(0, u128::saturating_add);
    let n_looks = (swept.axes().count() + exclude.len()) as u128;
    let line = (around.line_of)(node.span.start);
    let sweep = swept.groups.into_iter().map(|group| Linked { axes: group.into_iter().map(|found| found.axis).collect() }).collect();
    let block = backend.map(|backend| Block { line, devices, backend, sweep, when, exclude, include, settings: block_settings });
    let block = block.filter(|_| out.count() == faults_before);
    if block.as_ref().is_some_and(|block| !block.is_built()) {
        out.of_later_block(node.span, first_remark);
    }
    Some(FoundBlock { place: node.span, block, backend: backend_name, n_points, n_looks })
}

/// A word on a window that nothing fills.
pub fn no_power_runs(window: Span, why: &str, out: &mut Diagnostics) {
    let warning = out.warning(window, "`measure.window` has no effect");
    warning.label(why).hint("it says how long power runs measure: ask for them with `power: split`, or leave it out");
}

/// A word on a watch that nobody keeps.
fn check_limits(slot: Slot<'_>, settings: &Settings, devices: &[String], around: &Surroundings<'_>, out: &mut Diagnostics) {
    let is_limited = |id: &String| around.devices.get(id.as_str()).is_none_or(|device| device.as_ref().is_none_or(|d| d.limits.temp_max_c.is_some()));
    if settings.limits.on_sensor_loss.is_some() && settings.limits.temp_max_c.is_none() && !devices.iter().any(is_limited) {
        slot.refuse("`on_sensor_loss` without a temperature that is watched".into(), "say which one is too much: `temp_max: 85C`", out);
    }
}

/// Points of a block, or of one map of its `include`.
fn n_crossed(swept: &Swept, devices: &[String], fixed: Option<&IndexMap<String, Vec<AxisValue>>>) -> u128 {
    let fixed = |name: &str| fixed.and_then(|fixed| fixed.get(name));
    let n_devices = fixed("device").map_or(devices.len(), Vec::len) as u128;
    let len = |group: &Vec<FoundAxis>| group.first().map_or(1, |found| fixed(&found.axis.name).unwrap_or(&found.axis.values).len() as u128);
    swept.groups.iter().map(len).fold(n_devices, u128::saturating_mul)
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
    let named: Vec<(String, Span)> = items
        .into_iter()
        .filter_map(|item| {
            Some((if around.unread.devices { item.text(out)? } else { known_name(item, "device", &ids, "devices", out)? }, item.place))
        })
        .collect();
    report_repeats("devices", Clone::clone, named.iter().cloned(), out);
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

fn sweep(fields: &Fields<'_>, backend: Option<&'static str>, level: &'static Level, ids: Ids<'_>, out: &mut Diagnostics) -> Swept {
    let mut swept = Swept { groups: Vec::new(), unread: Vec::new() };
    for entry in fields.iter() {
        let (groups, unread) = match entry.key.text.as_str() {
            "zip" => axes::zip(Slot::of(entry), level, ids, out),
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
        let hint = match ids.models {
            None | Some([]) => "describe it under `models`, then name it here".to_owned(),
            Some(models) => format!("models: {}", listed(models)),
        };
        fields.need("model", &format!("backend `{}`", backend.unwrap_or_default()), &hint, out);
    }
    if backend == Some("builtin") && !has(&swept, "threads") {
        let after_model = swept.groups.iter().position(|group| group[0].axis.name == "model").map_or(0, |at| at + 1);
        swept.groups.insert(after_model, vec![FoundAxis::implied("threads", AxisValue::Int(1), fields.place)]);
    }
    let of_llama = match backend {
        Some("llama-bench") => Some((llama_bench::IMPLIED, llama_bench::TAKEN)),
        Some("llama-server") => Some((llama_server::IMPLIED, llama_server::TAKEN)),
        _ => None,
    };
    if let Some((implied, taken)) = of_llama {
        for (axis, value) in implied {
            if !has(&swept, axis) {
                swept.groups.push(vec![FoundAxis::implied(axis, AxisValue::Int(value), fields.place)]);
            }
        }
        llama_bench::check_flags(backend.unwrap_or_default(), swept.axes(), taken, out);
    }
    if !has(&swept, "build") {
        implied_build(&mut swept, fields, backend, ids.builds, out);
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
fn implied_build(swept: &mut Swept, fields: &Fields<'_>, backend: Option<&'static str>, ids: &[&str], out: &mut Diagnostics) {
    let uses = match backend {
        Some("command") => ["argv", "flags", "env", "zip"].iter().any(|key| fields.get(key).is_some_and(|slot| asks_for_build(slot.node))),
        Some("llama-bench" | "llama-server" | "onnx") => true,
        _ => false,
    };
    match ids {
        [] => {}
        _ if !uses => {}
        [only] => swept.groups.push(vec![FoundAxis::implied("build", AxisValue::Text((*only).to_owned()), fields.place)]),
        several => {
            out.error(fields.place, "a block that doesn't say which build")
                .label(format!("its devices have {}", listed(several.iter().map(|id| tick(id)))))
                .hint(format!("compare them with `build: [{}]`, or name one", listed(several)));
            // What its tools are can't be said.
            swept.unread.push("build".to_owned());
        }
    }
}

fn asks_for_build(node: &Node) -> bool {
    match &node.kind {
        Kind::Scalar(scalar) => scalar.text.contains("{build"),
        Kind::Seq(items) => items.iter().any(asks_for_build),
        Kind::Map(entries) => entries.iter().any(|entry| asks_for_build(&entry.value)),
    }
}

/// What is turned through together: the block as it stands, or as one map of `include` changes it.
struct Case<'a> {
    devices: &'a [String],
    axes: Vec<&'a FoundAxis>,
}

impl<'a> Case<'a> {
    /// The texts of an axis, with their places.
    fn texts(&self, axis: &str) -> impl Iterator<Item = (&'a str, Span)> + use<'a> {
        let axis = self.axes.iter().find(|found| found.axis.name == axis).copied();
        axis.into_iter().flat_map(|found| found.axis.values.iter().zip(&found.places)).filter_map(|(value, place)| match value {
            AxisValue::Text(id) => Some((id.as_str(), *place)),
            _ => None,
        })
    }
}

fn cases<'a>(swept: &'a Swept, devices: &'a [String], include: &'a [Included]) -> Vec<Case<'a>> {
    let whole = Case { devices, axes: swept.axes().collect() };
    let changed = include.iter().map(|included| {
        let own = swept.axes().filter(|found| !included.axes.iter().any(|changed| changed.axis.name == found.axis.name));
        Case { devices: included.devices.as_deref().unwrap_or(devices), axes: included.axes.iter().chain(own).collect() }
    });
    std::iter::once(whole).chain(changed).collect()
}

/// Every model of the block has a path on every device that it runs on.
fn check_models(cases: &[Case<'_>], around: &Surroundings<'_>, out: &mut Diagnostics) {
    for case in cases {
        for (id, place) in case.texts("model") {
            let Some(Some(model)) = around.models.get(id) else { continue };
            // Said there.
            if model.path.is_none() && model.paths.is_empty() {
                continue;
            }
            let without: Vec<&String> = case.devices.iter().filter(|device| model.path.is_none() && !model.paths.contains_key(*device)).collect();
            if !without.is_empty() {
                let text = format!("model {} has no path on {}", tick(id), listed(without.iter().map(|id| tick(id))));
                out.error(place, text).hint("add `path` to the model for every other device, or the device to its `paths`");
            }
        }
    }
}

/// Every build of the block is there on every device that it runs on.
fn check_builds(cases: &[Case<'_>], backend: Option<&str>, around: &Surroundings<'_>, out: &mut Diagnostics) {
    let needed = match backend {
        Some("llama-bench") => Some(llama_bench::TOOL),
        Some("llama-server") => Some(llama_server::TOOL),
        _ => None,
    };
    for case in cases {
        for (id, place) in case.texts("build") {
            for device in case.devices.iter().filter_map(|id| around.devices.get(id.as_str())?.as_ref()) {
                let Some(tools) = device.builds.get(id) else {
                    out.error(place, format!("device {} has no build {}", tick(&device.id), tick(id)))
                        .hint(format!("add it to `builds` of the device, or make a block of its own for {}", tick(&device.id)));
                    continue;
                };
                if let Some(tool) = needed.filter(|tool| !tools.contains_key(*tool)) {
                    out.error(place, format!("the build {} of device {} has no {}", tick(id), tick(&device.id), tick(tool)))
                        .hint(format!("add its path: `builds: {{ {id}: {{ {tool}: ~/llama.cpp/build/bin/{} }} }}`", tool.replace('_', "-")));
                }
            }
        }
    }
}

/// Values of variables and options are templates.
fn check_texts(swept: &Swept, include: &[Included], names: &Names, around: &Surroundings<'_>, out: &mut Diagnostics) {
    let all = swept.axes().chain(include.iter().flat_map(|included| &included.axes));
    for found in all.filter(|found| found.axis.name.starts_with("env.") || found.axis.name.starts_with("flags.")) {
        for (value, place) in found.axis.values.iter().zip(&found.places) {
            let texts = if let AxisValue::List(texts) = value { texts.clone() } else { vec![value.to_string()] };
            for text in texts {
                template::decode(&text, *place, around.source, names, out);
            }
        }
    }
}

fn names_of(swept: &Swept, has_model: bool, cases: &[Case<'_>], around: &Surroundings<'_>) -> Names {
    let own = swept.axes().map(|found| &found.axis.name).chain(&swept.unread);
    let own = own.filter(|name| *name != "model" && !name.starts_with("env.") && !name.starts_with("flags.")).cloned();
    let has_model = has_model || swept.axes().any(|found| found.axis.name == "model");
    let mut unquantized: Vec<String> = Vec::new();
    // build → its tools, on each of its devices.
    let mut builds: Vec<(&str, &IndexMap<String, String>)> = Vec::new();
    for case in cases {
        let lacks = |id: &str| around.models.get(id).is_some_and(|model| model.as_ref().is_some_and(|model| model.quantization.is_none()));
        for (id, _) in case.texts("model").filter(|(id, _)| lacks(id)) {
            if !unquantized.iter().any(|known| known == id) {
                unquantized.push(id.to_owned());
            }
        }
        for (id, _) in case.texts("build") {
            let devices = case.devices.iter().filter_map(|device| around.devices.get(device.as_str())?.as_ref());
            builds.extend(devices.filter_map(|device| Some((id, device.builds.get(id)?))));
        }
    }
    // tool → builds without it.
    let mut tools: IndexMap<String, Vec<String>> = IndexMap::new();
    for tool in builds.iter().flat_map(|(_, tools)| tools.keys()) {
        let without: BTreeSet<&str> = builds.iter().filter(|(_, tools)| !tools.contains_key(tool)).map(|(id, _)| *id).collect();
        tools.insert(tool.clone(), without.into_iter().map(str::to_owned).collect());
    }
    Names::of_block(
        own,
        template::Model { has_model, unquantized },
        template::Build { tools, unread: swept.unread.iter().any(|name| name == "build") },
    )
}

/// Arms are told apart by axes of the block.
fn check_interleave(slot: Slot<'_>, settings: &Settings, swept: &Swept, out: &mut Diagnostics) {
    let is_axis = |name: &String| swept.unread.contains(name) || swept.axes().any(|found| found.axis.name == *name);
    for name in settings.interleave.iter().filter(|name| !is_axis(name)) {
        if name == "device" {
            not_yet(slot.place, "`interleave: [device]`", "devices of one `resource_group` take turns without it", out);
        } else {
            unknown_axis(name, slot, swept, out);
        }
    }
    if !settings.interleave.is_empty() && settings.interleave.iter().all(|name| name != "model" && is_axis(name)) {
        let warning = out.warning(slot.place, "`interleave` has no effect");
        warning.label("these take turns in any case").hint("only models don't: `interleave: [model]`");
    }
}

fn unknown_axis(name: &str, slot: Slot<'_>, swept: &Swept, out: &mut Diagnostics) {
    let names = || swept.axes().map(|found| found.axis.name.as_str());
    let error = out.error(slot.place, format!("unknown axis {} in {}", tick(name), tick(slot.name)));
    if let Some(near) = nearest(name, names()) {
        error.label(format!("did you mean `{near}`?"));
    }
    let no_axis = names().next().is_none();
    error.hint(if no_axis { "this block has no axis".to_owned() } else { format!("axes of this block: {}", listed(names())) });
}

/// What is larger can be said of numbers.
fn check_dominance(slot: Slot<'_>, settings: &Settings, swept: &Swept, out: &mut Diagnostics) {
    let Some(Dominance { axis, .. }) = &settings.dominance else { return };
    if swept.unread.contains(axis) {
        return;
    }
    match swept.axes().find(|found| found.axis.name == *axis) {
        None => unknown_axis(axis, slot, swept, out),
        Some(found) if found.axis.values.iter().any(|value| !matches!(value, AxisValue::Int(_) | AxisValue::Float(_))) => {
            out.error(slot.place, format!("{} is no axis of numbers", tick(axis)))
                .also(found.key, "its values")
                .hint("`dominance` skips larger values, and texts are none");
        }
        Some(_) => {}
    }
}
