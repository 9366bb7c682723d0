//! From the matrix to points: every combination of axis values on every device, in file order.

use crate::config::model::{AxisValue, Backend, Block, Campaign, DigestRule, MetricRule, Model, Settings, Success, Template, TextSource};
use crate::store::record::PointIds;
use indexmap::IndexMap;
use std::collections::HashMap;
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
}

/// One operating point: what is measured, with every placeholder replaced.
#[derive(Debug, Clone)]
pub struct Point {
    /// Index of its block in the campaign.
    pub block: usize,
    pub ids: PointIds,
    /// Names of the axes written as lists, in file order.
    pub swept: Vec<String>,
    pub work: Work,
    pub model: Option<PointModel>,
    /// Environment that the campaign declares for the workload.
    pub env: IndexMap<String, String>,
    /// Directory on the device that relative paths start at.
    pub base: String,
    pub transport: &'static str,
    pub settings: Settings,
}

/// What a backend is asked to do at a point.
#[derive(Debug, Clone)]
pub enum Work {
    Builtin { threads: u32 },
    Command(Box<CommandWork>),
}

#[derive(Debug, Clone)]
pub struct CommandWork {
    pub argv: Vec<String>,
    pub inputs: Vec<String>,
    pub metrics: IndexMap<String, MetricRule>,
    pub success: Success,
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
    pub declared: Model,
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
    #[error("the same point stands twice in the matrix: {point} on device `{device}`, in the blocks at lines {first} and {second}")]
    Twice { point: String, device: String, first: usize, second: usize },
    #[error("model `{model}` has no path for device `{device}`")]
    NoModelPath { model: String, device: String },
    #[error("no point is left: `exclude` leaves out all {excluded}")]
    Empty { excluded: usize },
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
            PlanError::Empty { .. } => "remove an entry of `exclude`".into(),
        }
    }
}

/// Expand the matrix. Deterministic, in file order: blocks, devices, then axes with the last one turning fastest.
///
/// # Errors
/// A point that stands twice, a model without a path on a device, or nothing left.
pub fn expand(campaign: &Campaign) -> Result<Plan, PlanError> {
    let mut points: Vec<Point> = Vec::new();
    let mut excluded = 0;
    // device + backend + place → index, to find doubles in one pass
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, block) in campaign.blocks.iter().enumerate() {
        for device in &block.devices {
            for combination in Combinations::of(block) {
                if block.exclude.iter().any(|map| excludes(map, device, &combination)) {
                    excluded += 1;
                    continue;
                }
                let point = point(campaign, index, device, combination)?;
                let key = job_key(&point.ids) + &work_key(&point);
                if let Some(&first) = seen.get(&key) {
                    let line = |p: &Point| campaign.blocks[p.block].line;
                    let error = PlanError::Twice { point: point.label(), device: device.clone(), first: line(&points[first]), second: block.line };
                    return Err(error);
                }
                seen.insert(key, points.len());
                points.push(point);
            }
        }
    }
    if points.is_empty() {
        return Err(PlanError::Empty { excluded });
    }
    distinguish_slugs(&mut points);
    Ok(Plan { campaign: campaign.name.clone(), points, excluded })
}

/// Says which place of the sweep a point is, whatever its identity: two records with one key answer the same job in turn.
#[must_use]
pub fn job_key(ids: &PointIds) -> String {
    let mut axes: Vec<_> = ids.axes.iter().collect();
    axes.sort_by_key(|(name, _)| *name);
    format!("{}\u{0}{}\u{0}{axes:?}", ids.device, ids.backend)
}

/// Two commands with the same axes are the same point, unless their argv differs.
fn work_key(point: &Point) -> String {
    match &point.work {
        Work::Builtin { .. } => String::new(),
        Work::Command(command) => command.argv.join("\u{0}"),
    }
}

/// All combinations of a block's axis values; the last axis turns fastest.
struct Combinations<'a> {
    block: &'a Block,
    next: Option<Vec<usize>>,
}

impl<'a> Combinations<'a> {
    fn of(block: &'a Block) -> Combinations<'a> {
        Combinations { block, next: Some(vec![0; block.axes.len()]) }
    }
}

impl Iterator for Combinations<'_> {
    type Item = IndexMap<String, AxisValue>;

    fn next(&mut self) -> Option<Self::Item> {
        let current = self.next.take()?;
        let axes = &self.block.axes;
        let combination = axes.iter().zip(&current).map(|(axis, &i)| (axis.name.clone(), axis.values[i].clone())).collect();
        let mut following = current;
        for place in (0..axes.len()).rev() {
            following[place] += 1;
            if following[place] < axes[place].values.len() {
                self.next = Some(following);
                break;
            }
            following[place] = 0;
        }
        Some(combination)
    }
}

fn excludes(map: &IndexMap<String, AxisValue>, device: &str, axes: &IndexMap<String, AxisValue>) -> bool {
    map.iter().all(|(name, value)| if name == "device" { *value == AxisValue::Text(device.to_owned()) } else { axes.get(name) == Some(value) })
}

fn point(campaign: &Campaign, index: usize, device_id: &str, axes: IndexMap<String, AxisValue>) -> Result<Point, PlanError> {
    let block = &campaign.blocks[index];
    let device = &campaign.devices[device_id];
    let model = match axes.get("model") {
        None => None,
        Some(id) => {
            let declared = campaign.models[&id.to_string()].clone();
            let path = declared.paths.get(device_id).or(declared.path.as_ref()).cloned();
            let path = path.ok_or_else(|| PlanError::NoModelPath { model: declared.id.clone(), device: device_id.to_owned() })?;
            let path = match &device.models_dir {
                Some(dir) if !path.starts_with(['/', '~']) => format!("{}/{path}", dir.trim_end_matches('/')),
                _ => path,
            };
            Some(PointModel { declared, path })
        }
    };
    let fill = |template: &Template| render(template, device_id, model.as_ref(), &axes);
    let mut env: IndexMap<String, String> = device.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
    let mut kept = IndexMap::new();
    for axis in &block.axes {
        let value = &axes[&axis.name];
        match axis.name.strip_prefix("env.") {
            None => _ = kept.insert(axis.name.clone(), value.clone()),
            Some(name) => {
                let text = value.to_string();
                let text = Template::parse(&text).map_or(text, |template| fill(&template));
                env.insert(name.to_owned(), text.clone());
                // A constant variable is no part of the sweep; it stands in the environment.
                if axis.swept {
                    kept.insert(axis.name.clone(), AxisValue::Text(text));
                }
            }
        }
    }
    let work = match &block.backend {
        Backend::Builtin => {
            let threads = axes.get("threads").and_then(|t| if let AxisValue::Int(n) = t { u32::try_from(*n).ok() } else { None });
            Work::Builtin { threads: threads.unwrap_or(1) }
        }
        Backend::Command(command) => Work::Command(Box::new(CommandWork {
            argv: command.argv.iter().map(fill).collect(),
            inputs: command.inputs.clone(),
            metrics: command.metrics.clone(),
            success: command.success.clone(),
        })),
    };
    let swept: Vec<String> = block.axes.iter().filter(|a| a.swept).map(|a| a.name.clone()).collect();
    let axes = kept;
    let slug = slug(&swept, &axes, block.backend.name());
    Ok(Point {
        block: index,
        ids: PointIds { device: device_id.to_owned(), backend: block.backend.name().to_owned(), axes, slug },
        swept,
        work,
        model,
        env,
        base: campaign.dir.display().to_string(),
        transport: device.transport.kind(),
        settings: block.settings.clone(),
    })
}

/// Replace placeholders; the configuration has checked that every name is known.
fn render(template: &Template, device: &str, model: Option<&PointModel>, axes: &IndexMap<String, AxisValue>) -> String {
    let value = |name: &str| match (name, model) {
        ("device.id", _) => Some(device.to_owned()),
        ("model.id", Some(model)) => Some(model.declared.id.clone()),
        ("model.path", Some(model)) => Some(model.path.clone()),
        ("model.quantization", Some(model)) => model.declared.quantization.clone(),
        _ => axes.get(name).map(ToString::to_string),
    };
    template.fill(value).expect("the configuration has checked every name")
}

/// For people: `model=qwen,threads=4` in `[a-z0-9._=-]`, at most 80 bytes.
fn slug(swept: &[String], axes: &IndexMap<String, AxisValue>, backend: &str) -> String {
    let mut text: String = swept
        .iter()
        .filter_map(|name| Some(format!("{}={}", name.strip_prefix("env.").unwrap_or(name), axes.get(name)?)))
        .collect::<Vec<_>>()
        .join("-");
    if text.is_empty() {
        backend.clone_into(&mut text);
    }
    let safe = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.' | '_' | '=' | '-') => c,
        _ => '_',
    };
    let mut slug: String = text.chars().map(safe).take(MOST_SLUG_BYTES).collect();
    if slug.starts_with('.') {
        slug.replace_range(..1, "_");
    }
    slug
}

/// Points whose slugs came out equal stay apart by their identity; nothing to do but keep them readable.
fn distinguish_slugs(points: &mut [Point]) {
    let mut count: HashMap<(String, String), usize> = HashMap::new();
    for point in points {
        let n = count.entry((point.ids.device.clone(), point.ids.slug.clone())).or_insert(0);
        *n += 1;
        if *n > 1 {
            let suffix = format!("-{n}");
            point.ids.slug.truncate(MOST_SLUG_BYTES - suffix.len());
            point.ids.slug.push_str(&suffix);
        }
    }
}
