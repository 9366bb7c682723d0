//! From the matrix to points: every combination of axis values on every device, in file order.

use super::files;
use super::identity::{self, DeviceReport};
use super::power;
use crate::config::model::{
    Axis, AxisValue, Backend, Block, Campaign, Device, DigestRule, Limits, Linked, MetricRule, Model, Settings, Success, Template, TextSource,
};
use crate::config::{Condition, Known, Verdict, cpu_list};
use crate::store::record::PointIds;
use indexmap::IndexMap;
use isotherm_wire::inspect::Machine;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use thiserror::Error;

/// Longest directory name of a point, bytes, without its identity.
const MOST_SLUG_BYTES: usize = 80;

/// All points of a campaign in file order.
#[derive(Debug, Clone)]
pub struct Plan {
    pub campaign: String,
    pub points: Vec<Point>,
    /// Points left out by `exclude`.
    pub excluded: usize,
    /// Points left out by `when`.
    pub dropped: Vec<Dropped>,
    /// Points that `when` may still leave out, by the name that isn't known yet.
    pub undecided: BTreeMap<String, usize>,
}

/// A point that a condition leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    pub device: String,
    /// As [`Point::label`].
    pub label: String,
    /// As written.
    pub condition: Arc<str>,
}

/// One operating point: what is measured, with every placeholder replaced.
#[derive(Debug, Clone)]
pub struct Point {
    /// Index of its block in the campaign.
    pub block: usize,
    pub ids: PointIds,
    /// Names of the axes that are swept, in file order.
    pub swept: Vec<String>,
    pub work: Work,
    pub model: Option<PointModel>,
    /// Environment that the campaign declares for the workload; `${secret:NAME}` stands for a secret.
    pub env: IndexMap<String, String>,
    /// CPUs that the workload may use, ascending; `None` = all that the agent may.
    pub cpus: Option<Vec<u32>>,
    /// Directory on the device that relative paths start at.
    pub base: Arc<str>,
    pub transport: &'static str,
    /// The block's, and where it says nothing the device's.
    pub limits: Limits,
    pub settings: Arc<Settings>,
    /// What the campaign declares of the surroundings, its device's and its own.
    pub conditions: IndexMap<String, String>,
    /// Index of an earlier point that is the same, and has other kinds of run.
    pub same_as: Option<usize>,
}

/// What a backend is asked to do at a point.
#[derive(Debug, Clone)]
pub enum Work {
    Builtin {
        threads: u32,
    },
    Command(Box<CommandWork>),
    /// Of a backend that this build knows by name: such a campaign is planned, and never run.
    Later,
}

#[derive(Debug, Clone)]
pub struct CommandWork {
    /// With the options of `flags` at its end.
    pub argv: Vec<String>,
    pub inputs: Arc<Vec<String>>,
    pub metrics: Arc<IndexMap<String, MetricRule>>,
    pub success: Arc<Success>,
}

impl CommandWork {
    /// Files that the program writes and that a rule reads.
    #[must_use]
    pub fn collected(&self) -> Vec<String> {
        let digest = self.success.output_digest.as_ref().map(|DigestRule { from, .. }| from);
        let sources = self.metrics.values().map(|rule| &rule.from).chain(digest);
        let mut files: Vec<String> = sources.filter_map(|from| if let TextSource::File(name) = from { Some(name.clone()) } else { None }).collect();
        files.sort();
        files.dedup();
        files
    }
}

/// The model of a point, with its path on the point's device.
#[derive(Debug, Clone)]
pub struct PointModel {
    pub declared: Arc<Model>,
    /// As written; relative to the device's `models_dir`, else to the point's base.
    pub path: String,
}

impl Point {
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.ids.backend
    }

    /// `model=qwen t=4`: the swept axes, for people.
    #[must_use]
    pub fn label(&self) -> String {
        let parts: Vec<String> = self.swept.iter().filter_map(|name| Some(format!("{name}={}", self.ids.axes.get(name)?))).collect();
        if parts.is_empty() { self.ids.backend.clone() } else { parts.join(" ") }
    }
}

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("the same point stands twice in the matrix: {point} on device `{device}`, {}", both(*first, *second))]
    Twice { point: String, device: String, first: usize, second: usize },
    #[error("model `{model}` has no path for device `{device}`")]
    NoModelPath { model: String, device: String },
    #[error("no point is left: {}", left_out(*excluded, *dropped))]
    Empty { excluded: usize, dropped: usize },
    #[error("the condition of the block in line {line} has no answer at `{point}` on device `{device}`: {why}")]
    Condition { line: usize, point: String, device: String, why: String },
}

impl PlanError {
    /// An action for the user.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            PlanError::Twice { .. } => {
                "remove it from one of the blocks, or add an axis that tells them apart; to run a point more often raise `repetitions`".into()
            }
            PlanError::NoModelPath { model, device } => format!("add `{device}: <path>` to `paths` of model `{model}`, or give it a `path`"),
            PlanError::Empty { excluded: 0, .. } => "widen `when`".into(),
            PlanError::Empty { dropped: 0, .. } => "remove an entry of `exclude`".into(),
            PlanError::Empty { .. } => "remove an entry of `exclude`, or widen `when`".into(),
            PlanError::Condition { device, .. } => {
                format!("ask first whether it applies, as in `device.id != \"{device}\" and (…)`: what decides first keeps the rest from being asked")
            }
        }
    }
}

fn both(first: usize, second: usize) -> String {
    if first == second { format!("both in the block at line {first}") } else { format!("in the blocks at lines {first} and {second}") }
}

fn left_out(excluded: usize, dropped: usize) -> String {
    let parts = [("exclude", excluded), ("when", dropped)].into_iter().filter(|(_, n)| *n > 0);
    let parts: Vec<String> = parts.map(|(key, n)| format!("`{key}` leaves out {n}")).collect();
    parts.join(", ")
}

/// Expand the matrix. Deterministic, in file order: blocks, devices, then axes with the last one turning fastest; points of `include` after
/// those of their block. `reports`: device id → what it said last; a condition about a device that never said anything leaves its points in.
///
/// # Errors
/// A point that stands twice, a model without a path on a device, a condition without an answer, or nothing left.
pub fn expand(campaign: &Campaign, reports: &BTreeMap<String, DeviceReport>) -> Result<Plan, PlanError> {
    let mut plan = Plan { campaign: campaign.name.clone(), points: Vec::new(), excluded: 0, dropped: Vec::new(), undecided: BTreeMap::new() };
    // Points that may have the same content → their indices. Within one block the axes differ, unless values of variables come out equal.
    let mut seen: HashMap<u64, Vec<usize>> = HashMap::new();
    let may_repeat = campaign.blocks.len() > 1 || campaign.blocks.iter().any(|block| !block.include.is_empty() || has_texts(block));
    for (index, block) in campaign.blocks.iter().enumerate() {
        let maker = Maker::new(campaign, index);
        let whole = std::iter::once(None).chain(block.include.iter().map(Some));
        for fixed in whole {
            for device in devices_of(block, fixed) {
                for combination in Combinations::of(block, fixed) {
                    if fixed.is_none() && block.exclude.iter().any(|map| excludes(map, device, &combination)) {
                        plan.excluded += 1;
                        continue;
                    }
                    let mut point = maker.point(device, &combination)?;
                    let verdict = match &block.when {
                        Some(condition) if fixed.is_none() => {
                            let verdict = ask(condition, &point, &combination, reports.get(device));
                            let failed = |why| PlanError::Condition { line: block.line, point: point.label(), device: device.to_owned(), why };
                            verdict.map_err(failed)?
                        }
                        _ => Verdict::Keep,
                    };
                    match verdict {
                        Verdict::Keep => {}
                        Verdict::Drop => {
                            let condition = maker.condition.clone().unwrap_or_default();
                            plan.dropped.push(Dropped { device: device.to_owned(), label: point.label(), condition });
                            continue;
                        }
                        Verdict::Unknown(name) => *plan.undecided.entry(format!("{name} of {device}")).or_default() += 1,
                    }
                    if may_repeat {
                        let alike = seen.entry(likeness(&point)).or_default();
                        let spec = |point: &Point| identity::canonical(&identity::spec(point));
                        let kinds = |point: &Point| power::possible(point.settings.power);
                        let same: Vec<usize> = alike.iter().copied().filter(|&index| spec(&plan.points[index]) == spec(&point)).collect();
                        for index in same {
                            let first = &plan.points[index];
                            if kinds(first).iter().any(|kind| kinds(&point).contains(kind)) {
                                let (first, second) = (campaign.blocks[first.block].line, block.line);
                                return Err(PlanError::Twice { point: point.label(), device: device.to_owned(), first, second });
                            }
                            point.same_as = Some(index);
                        }
                        alike.push(plan.points.len());
                    }
                    plan.points.push(point);
                }
            }
        }
    }
    if plan.points.is_empty() {
        return Err(PlanError::Empty { excluded: plan.excluded, dropped: plan.dropped.len() });
    }
    if campaign.blocks.len() > 1 {
        distinguish(&mut plan.points);
    }
    distinguish_slugs(&mut plan.points);
    // One point under one name, in one directory.
    for index in 0..plan.points.len() {
        if let Some(first) = plan.points[index].same_as {
            (plan.points[index].ids, plan.points[index].swept) = (plan.points[first].ids.clone(), plan.points[first].swept.clone());
        }
    }
    Ok(plan)
}

/// The same for points of the same content; quick, and seldom the same for others.
fn likeness(point: &Point) -> u64 {
    let hash = |value: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        value(&mut hasher);
        hasher.finish()
    };
    let argv = if let Work::Command(work) = &point.work { work.argv.as_slice() } else { &[] };
    // The order of variables means nothing.
    let env = point.env.iter().map(|(name, value)| hash(&|h| (name, value).hash(h))).fold(0, u64::wrapping_add);
    hash(&|h| (place(&point.ids, false), argv, env).hash(h))
}

/// Which place of the sweep it is: equal for points with the same device, backend and axes, in whatever order; `all`: with those that
/// stand in the environment and on the command line as well.
fn place(ids: &PointIds, all: bool) -> u64 {
    let elsewhere = |name: &str| !all && (name.starts_with("env.") || name.starts_with("flags."));
    let hash = |(name, value): (&String, &AxisValue)| {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        match value {
            AxisValue::Bool(value) => (0, value).hash(&mut hasher),
            AxisValue::Int(value) => (1, value).hash(&mut hasher),
            AxisValue::Float(value) => (2, value.to_bits()).hash(&mut hasher),
            AxisValue::Text(value) => (3, value).hash(&mut hasher),
            AxisValue::List(value) => (4, value).hash(&mut hasher),
        }
        hasher.finish()
    };
    let axes = ids.axes.iter().filter(|(name, _)| !elsewhere(name)).map(hash).fold(0, u64::wrapping_add);
    let mut hasher = DefaultHasher::new();
    (&ids.device, &ids.backend, axes).hash(&mut hasher);
    hasher.finish()
}

/// Does it sweep variables or options? Their values may come out equal once placeholders are replaced.
fn has_texts(block: &Block) -> bool {
    block.axes().any(|axis| axis.swept && (axis.name.starts_with("env.") || axis.name.starts_with("flags.")))
}

/// The devices of a block, or those that an `include` names.
fn devices_of<'a>(block: &'a Block, fixed: Option<&'a Fixed>) -> Vec<&'a str> {
    match fixed.and_then(|fixed| fixed.get("device")) {
        None => block.devices.iter().map(String::as_str).collect(),
        Some(named) => named.iter().filter_map(|value| if let AxisValue::Text(id) = value { Some(id.as_str()) } else { None }).collect(),
    }
}

/// Ask a condition about a point.
fn ask(condition: &Condition, point: &Point, axes: &Combination, report: Option<&DeviceReport>) -> Result<Verdict, String> {
    let text = |text: &str| Known::Value(AxisValue::Text(text.to_owned()));
    let declared = |value: Option<&String>| value.map_or(Known::Nothing, |value| text(value));
    condition.evaluate(|name| {
        // Variables and options as the workload gets them, with their placeholders replaced.
        if let Some(value) = name.strip_prefix("env.").and_then(|name| point.env.get(name)) {
            return text(value);
        }
        if let Some(value) = point.ids.axes.get(name).or_else(|| axes.get(name).copied()) {
            return Known::Value(value.clone());
        }
        match (name.split_once('.'), &point.model) {
            (Some(("device", "id")), _) => text(&point.ids.device),
            (Some(("device", fact)), _) => report.map_or(Known::NotYet, |report| fact_of(&report.machine, fact)),
            (Some(("model", "id")), Some(model)) => text(&model.declared.id),
            (Some(("model", "path")), Some(model)) => text(&model.path),
            (Some(("model", "quantization")), Some(model)) => declared(model.declared.quantization.as_ref()),
            (Some(("model", "bytes")), Some(_)) => match report.map(|report| files::model(point, &report.files)) {
                None | Some(None) => Known::NotYet,
                Some(Some(Ok(file))) => i64::try_from(file.bytes).map_or(Known::Nothing, |bytes| Known::Value(AxisValue::Int(bytes))),
                Some(Some(Err(_))) => Known::Nothing,
            },
            (Some(("model", rest)), Some(model)) => declared(rest.strip_prefix("tags.").and_then(|tag| model.declared.tags.get(tag))),
            _ => Known::Nothing,
        }
    })
}

/// What a device says of itself.
fn fact_of(machine: &Machine, fact: &str) -> Known {
    let int = |value: Option<u64>| value.and_then(|v| i64::try_from(v).ok()).map_or(Known::Nothing, |v| Known::Value(AxisValue::Int(v)));
    match fact {
        "logical_cpus" => int(Some(machine.logical_cpus.into())),
        "physical_cores" => int(machine.physical_cores.map(Into::into)),
        "ram_bytes" => int(machine.ram_bytes),
        "arch" => Known::Value(AxisValue::Text(machine.arch.clone())),
        "effective_cpus" => {
            let limits = &machine.limits;
            let counts = [machine.online_cpus, limits.cpuset_cpus, limits.affinity_cpus].into_iter().flatten().map(f64::from);
            let least = counts.chain(limits.quota_cpus).fold(f64::from(machine.logical_cpus), f64::min);
            Known::Value(AxisValue::Float(least))
        }
        _ => Known::Nothing,
    }
}

/// Says which place of the sweep a point is, whatever its identity: two records with one key answer the same job in turn.
#[must_use]
pub fn job_key(ids: &PointIds) -> String {
    let mut axes: Vec<_> = ids.axes.iter().collect();
    axes.sort_by_key(|(name, _)| *name);
    format!("{}\u{0}{}\u{0}{axes:?}", ids.device, ids.backend)
}

/// Points of several blocks with the same axes differ in something that isn't one: make what differs visible as `env.NAME` or `block.…`,
/// so that tables can tell them apart. It is no part of their identity, where it stands in its own field.
fn distinguish(points: &mut [Point]) {
    let mut groups: IndexMap<u64, Vec<usize>> = IndexMap::new();
    for (i, point) in points.iter().enumerate().filter(|(_, point)| point.same_as.is_none()) {
        groups.entry(place(&point.ids, true)).or_default().push(i);
    }
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let names: BTreeSet<String> = group.iter().flat_map(|&i| points[i].env.keys().cloned()).collect();
        let mut differing: IndexMap<String, Vec<AxisValue>> = IndexMap::new();
        let mut offer = |name: String, values: Vec<AxisValue>| {
            if values.iter().any(|v| *v != values[0]) {
                differing.insert(name, values);
            }
        };
        for name in names {
            let text = |&i: &usize| AxisValue::Text(points[i].env.get(&name).cloned().unwrap_or_default());
            offer(format!("env.{name}"), group.iter().map(text).collect());
        }
        let number = |f: fn(&Settings) -> u32| group.iter().map(|&i| AxisValue::Int(f(&points[i].settings).into())).collect();
        offer("block.warmup".into(), number(|s| s.warmup));
        offer("block.rounds".into(), number(|s| s.rounds));
        offer("block.iterations".into(), number(|s| s.iterations));
        let prepare = |&i: &usize| AxisValue::Text(points[i].settings.prepare.to_string());
        offer("block.prepare".into(), group.iter().map(prepare).collect());
        let argv = |&i: &usize| match &points[i].work {
            Work::Builtin { .. } | Work::Later => AxisValue::Text(String::new()),
            Work::Command(work) => AxisValue::Text(work.argv.join(" ")),
        };
        offer("block.argv".into(), group.iter().map(argv).collect());
        let tuples: BTreeSet<String> = (0..group.len()).map(|k| format!("{:?}", differing.values().map(|v| &v[k]).collect::<Vec<_>>())).collect();
        if tuples.len() < group.len() {
            differing.insert("block.number".into(), group.iter().map(|&i| AxisValue::Int(points[i].block as i64 + 1)).collect());
        }
        for (name, values) in differing {
            for (&i, value) in group.iter().zip(values) {
                points[i].ids.axes.insert(name.clone(), value);
                points[i].swept.push(name.clone());
            }
        }
    }
}

/// What an `include` says: axis or `device` → values.
type Fixed = IndexMap<String, Vec<AxisValue>>;

/// axis → value.
type Combination<'a> = IndexMap<&'a str, &'a AxisValue>;

/// All combinations of a block's axis values; the last axis turns fastest. Axes that an `include` names have its values.
struct Combinations<'a> {
    groups: Vec<Vec<(&'a Axis, &'a [AxisValue])>>,
    next: Option<Vec<usize>>,
}

impl<'a> Combinations<'a> {
    fn of(block: &'a Block, fixed: Option<&'a Fixed>) -> Combinations<'a> {
        let values = |axis: &'a Axis| fixed.and_then(|fixed| fixed.get(&axis.name)).unwrap_or(&axis.values).as_slice();
        let group = |linked: &'a Linked| linked.axes.iter().map(|axis| (axis, values(axis))).collect();
        Combinations { groups: block.sweep.iter().map(group).collect(), next: Some(vec![0; block.sweep.len()]) }
    }
}

impl<'a> Iterator for Combinations<'a> {
    type Item = Combination<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let current = self.next.take()?;
        let mut combination = IndexMap::with_capacity(current.len());
        for (group, &i) in self.groups.iter().zip(&current) {
            combination.extend(group.iter().map(|(axis, values)| (axis.name.as_str(), &values[i])));
        }
        let mut following = current;
        for place in (0..self.groups.len()).rev() {
            following[place] += 1;
            if following[place] < self.groups[place].first().map_or(1, |(_, values)| values.len()) {
                self.next = Some(following);
                break;
            }
            following[place] = 0;
        }
        Some(combination)
    }
}

fn excludes(map: &IndexMap<String, AxisValue>, device: &str, axes: &Combination<'_>) -> bool {
    let agrees = |(name, value): (&String, &AxisValue)| {
        if name == "device" { matches!(value, AxisValue::Text(id) if id == device) } else { axes.get(name.as_str()).is_some_and(|has| *has == value) }
    };
    map.iter().all(agrees)
}

/// Makes the points of one block.
struct Maker<'a> {
    campaign: &'a Campaign,
    index: usize,
    block: &'a Block,
    swept: Vec<String>,
    base: Arc<str>,
    settings: Arc<Settings>,
    models: HashMap<&'a str, Arc<Model>>,
    condition: Option<Arc<str>>,
    inputs: Arc<Vec<String>>,
    metrics: Arc<IndexMap<String, MetricRule>>,
    success: Arc<Success>,
}

impl<'a> Maker<'a> {
    fn new(campaign: &'a Campaign, index: usize) -> Maker<'a> {
        let block = &campaign.blocks[index];
        // A constant that an `include` gives another value tells points apart like an axis.
        let varies = |axis: &&Axis| axis.swept || block.include.iter().any(|fixed| fixed.contains_key(&axis.name));
        let (inputs, metrics, success) = match &block.backend {
            Backend::Command(command) => (command.inputs.clone(), command.metrics.clone(), command.success.clone()),
            Backend::Builtin | Backend::Later(_) => Default::default(),
        };
        Maker {
            campaign,
            index,
            block,
            swept: block.axes().filter(varies).map(|axis| axis.name.clone()).collect(),
            base: campaign.dir.display().to_string().into(),
            settings: Arc::new(block.settings.clone()),
            models: campaign.models.iter().map(|(id, model)| (id.as_str(), Arc::new(model.clone()))).collect(),
            condition: block.when.as_ref().map(|condition| condition.source.as_str().into()),
            inputs: Arc::new(inputs),
            metrics: Arc::new(metrics),
            success: Arc::new(success),
        }
    }

    fn point(&self, device_id: &str, axes: &Combination<'_>) -> Result<Point, PlanError> {
        let device = &self.campaign.devices[device_id];
        let model = match axes.get("model") {
            Some(AxisValue::Text(id)) => Some(self.model(id, device)?),
            _ => None,
        };
        let fill = |template: &Template| render(template, device, model.as_ref(), axes);
        let filled = |text: &str| Template::parse(text).map_or_else(|_| text.to_owned(), |template| fill(&template));
        let mut env: IndexMap<String, String> = device.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
        let mut flags = Vec::new();
        let mut kept = IndexMap::with_capacity(axes.len());
        for (&name, &value) in axes {
            // A constant variable or option is no part of the sweep; it stands in the environment or in argv.
            let varies = self.swept.iter().any(|swept| swept == name);
            if let Some(variable) = name.strip_prefix("env.") {
                let text = filled(&value.to_string());
                if varies {
                    kept.insert(name.to_owned(), AxisValue::Text(text.clone()));
                }
                env.insert(variable.to_owned(), text);
            } else if let Some(flag) = name.strip_prefix("flags.") {
                let value = match value {
                    AxisValue::List(texts) => AxisValue::List(texts.iter().map(|text| filled(text)).collect()),
                    AxisValue::Text(text) => AxisValue::Text(filled(text)),
                    other => other.clone(),
                };
                flags.extend(option(flag, &value));
                if varies {
                    kept.insert(name.to_owned(), value);
                }
            } else {
                kept.insert(name.to_owned(), value.clone());
            }
        }
        let work = match &self.block.backend {
            Backend::Builtin => {
                let threads = axes.get("threads").and_then(|t| if let AxisValue::Int(n) = t { u32::try_from(*n).ok() } else { None });
                Work::Builtin { threads: threads.unwrap_or(1) }
            }
            Backend::Command(command) => Work::Command(Box::new(CommandWork {
                argv: command.argv.iter().map(fill).chain(flags).collect(),
                inputs: Arc::clone(&self.inputs),
                metrics: Arc::clone(&self.metrics),
                success: Arc::clone(&self.success),
            })),
            Backend::Later(_) => Work::Later,
        };
        let cpus = match axes.get("cpus") {
            Some(AxisValue::Text(list)) if list != "all" => cpu_list(list).ok(),
            _ => None,
        };
        Ok(Point {
            block: self.index,
            ids: PointIds { device: device_id.to_owned(), backend: self.block.backend.name().to_owned(), axes: kept, slug: String::new() },
            swept: self.swept.clone(),
            work,
            model,
            env,
            cpus,
            base: Arc::clone(&self.base),
            transport: device.transport.kind(),
            limits: self.settings.limits.or(device.limits),
            settings: Arc::clone(&self.settings),
            conditions: device.conditions.iter().chain(&self.settings.conditions).map(|(name, value)| (name.clone(), value.clone())).collect(),
            same_as: None,
        })
    }

    fn model(&self, id: &str, device: &Device) -> Result<PointModel, PlanError> {
        let declared = Arc::clone(&self.models[id]);
        let path = declared.paths.get(&device.id).or(declared.path.as_ref()).cloned();
        let path = path.ok_or_else(|| PlanError::NoModelPath { model: declared.id.clone(), device: device.id.clone() })?;
        let path = match &device.models_dir {
            Some(dir) if !path.starts_with(['/', '~']) => format!("{}/{path}", dir.trim_end_matches('/')),
            _ => path,
        };
        Ok(PointModel { declared, path })
    }
}

/// An option on the command line.
fn option(flag: &str, value: &AxisValue) -> Vec<String> {
    match value {
        AxisValue::Bool(false) => Vec::new(),
        AxisValue::Bool(true) => vec![flag.to_owned()],
        AxisValue::List(texts) => texts.iter().flat_map(|text| [flag.to_owned(), text.clone()]).collect(),
        other => vec![flag.to_owned(), other.to_string()],
    }
}

/// Replace placeholders; the configuration has checked that every name is known.
fn render(template: &Template, device: &Device, model: Option<&PointModel>, axes: &Combination<'_>) -> String {
    let tool = |tool: &str| device.builds.get(&axes.get("build")?.to_string())?.get(tool).cloned();
    let value = |name: &str| match (name, model) {
        ("device.id", _) => Some(device.id.clone()),
        ("model.id", Some(model)) => Some(model.declared.id.clone()),
        ("model.path", Some(model)) => Some(model.path.clone()),
        ("model.quantization", Some(model)) => model.declared.quantization.clone(),
        _ => match name.strip_prefix("build.") {
            Some(name) => tool(name),
            None => axes.get(name).map(ToString::to_string),
        },
    };
    template.fill(value).expect("the configuration has checked every name")
}

/// For people: `model=qwen-threads=4` in `[a-z0-9._=-]`, at most 80 bytes.
#[must_use]
pub fn slug(swept: &[String], axes: &IndexMap<String, AxisValue>, backend: &str) -> String {
    let mut text: String = swept
        .iter()
        .filter_map(|name| Some(format!("{}={}", name.strip_prefix("env.").unwrap_or(name), axes.get(name)?)))
        .collect::<Vec<_>>()
        .join("-");
    if text.is_empty() {
        backend.clone_into(&mut text);
    }
    let mut slug = in_slug(&text);
    slug.truncate(MOST_SLUG_BYTES);
    if slug.starts_with('.') {
        slug.replace_range(..1, "_");
    }
    slug
}

/// A text in the letters of a slug.
#[must_use]
pub fn in_slug(text: &str) -> String {
    let safe = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '=' | '-') => c,
        _ => '_',
    };
    text.chars().map(safe).collect()
}

/// Name every point's directory; where two names come out equal, the later one gets a number.
fn distinguish_slugs(points: &mut [Point]) {
    for point in points.iter_mut() {
        point.ids.slug = slug(&point.swept, &point.ids.axes, &point.ids.backend);
    }
    let mut count: HashMap<(String, String), usize> = HashMap::new();
    for point in points.iter_mut().filter(|point| point.same_as.is_none()) {
        let n = count.entry((point.ids.device.clone(), point.ids.slug.clone())).or_insert(0);
        *n += 1;
        if *n > 1 {
            let suffix = format!("-{n}");
            point.ids.slug.truncate(MOST_SLUG_BYTES - suffix.len());
            point.ids.slug.push_str(&suffix);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::path::Path;

    fn plan(matrix: &str) -> Result<Plan, PlanError> {
        let head = "devices: { a: { local: {} }, b: { local: {}, models_dir: store } }
models: { m: { path: m.bin, quantization: q4 }, n: { paths: { a: /abs/n.bin, b: n.bin } } }
matrix:
";
        expand(&crate::config::parse(&format!("{head}{matrix}"), Path::new("/c/x.yaml")).unwrap(), &BTreeMap::new())
    }

    fn labels(plan: &Plan) -> Vec<String> {
        plan.points.iter().map(|p| format!("{} {}", p.ids.device, p.label())).collect()
    }

    #[test]
    fn every_combination_on_every_device_in_file_order_the_last_axis_fastest() {
        // 2 devices × 2 sizes × 2 modes = 8; `threads` is a constant and turns nothing.
        let plan = plan("  - { devices: [b, a], backend: command, threads: 3, params: { size: [1, 8], mode: [x, y] }, argv: [p] }\n").unwrap();
        let expected = ["b size=1 mode=x", "b size=1 mode=y", "b size=8 mode=x", "b size=8 mode=y"];
        assert_eq!(labels(&plan)[..4], expected);
        assert_eq!(plan.points.len(), 8);
        assert_eq!(plan.points[7].ids.axes["threads"], AxisValue::Int(3));
    }

    #[test]
    fn exclude_takes_out_just_the_points_that_agree_with_all_its_entries() {
        // 2 devices × 3 thread counts = 6, less (a, 1) and every 4: 2 devices × 1 and one more = 6 − 1 − 2 = 3.
        let matrix =
            "  - { devices: [a, b], backend: command, threads: [1, 2, 4], argv: [p], exclude: [{ device: a, threads: 1 }, { threads: 4 }] }\n";
        let plan = plan(matrix).unwrap();
        assert_eq!(labels(&plan), ["a threads=2", "b threads=1", "b threads=2"]);
        assert_eq!(plan.excluded, 3);
    }

    #[test]
    fn placeholders_are_replaced_inside_their_element_and_env_is_an_axis_only_as_a_list() {
        let matrix = "  - devices: b
    backend: command
    model: [m]
    threads: [2]
    params: { s: 'a b' }
    env: { N: '{threads}', BIND: [close, spread] }
    argv: [run, '--m={model.path}', '{s} {{literal}}', '{model.quantization}@{device.id}']
";
        let plan = plan(matrix).unwrap();
        let Work::Command(work) = &plan.points[1].work else { panic!() };
        assert_eq!(work.argv, ["run", "--m=store/m.bin", "a b {literal}", "q4@b"]);
        assert_eq!(plan.points[1].env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(), ["N=2", "BIND=spread"]);
        assert!(plan.points[1].ids.axes.contains_key("env.BIND") && !plan.points[1].ids.axes.contains_key("env.N"));
        assert_eq!(plan.points[1].ids.slug, "model=m-threads=2-bind=spread");
    }

    #[test]
    fn model_paths_are_those_of_the_device() {
        let plan = plan("  - { devices: [a, b], backend: builtin, model: n }\n").unwrap();
        let paths: Vec<&str> = plan.points.iter().map(|p| p.model.as_ref().unwrap().path.as_str()).collect();
        assert_eq!(paths, ["/abs/n.bin", "store/n.bin"]);
    }

    #[test]
    fn a_point_that_stands_twice_names_both_blocks() {
        let block = "  - { devices: a, backend: builtin, model: m, threads: [1, 2] }\n";
        let error = plan(&[block, block].concat()).unwrap_err();
        assert!(matches!(error, PlanError::Twice { first: 4, second: 5, .. }), "{error}");
    }

    #[test]
    fn a_point_may_have_its_power_runs_in_a_block_of_its_own() {
        let block = |power: &str, threads: &str| {
            format!("  - {{ devices: a, backend: builtin, model: m, threads: {threads}, measure: {{ power: {power} }} }}\n")
        };
        let points = plan(&[block("off", "[1, 2]"), block("only", "2")].concat()).unwrap().points;
        assert_eq!((points.len(), points[2].same_as), (3, Some(1)));
        assert_eq!((&points[2].ids, points[2].label()), (&points[1].ids, "threads=2".to_owned()));
        for twice in [("off", "split"), ("only", "auto"), ("together", "off")] {
            let error = plan(&[block(twice.0, "1"), block(twice.1, "1")].concat());
            assert!(matches!(error, Err(PlanError::Twice { .. })), "{twice:?}");
        }
    }

    #[test]
    fn points_that_differ_only_in_a_variable_are_two_points() {
        // Two blocks with different constants of the environment: not the same point.
        let block = |value: &str| format!("  - {{ devices: a, backend: command, argv: [p], env: {{ X: {value} }} }}\n");
        assert!(matches!(plan(&[block("1"), block("1")].concat()), Err(PlanError::Twice { .. })));
        assert_eq!(plan(&[block("1"), block("2")].concat()).unwrap().points.len(), 2);
    }
}
