//! From the matrix to points: every combination of axis values on every device, in file order.

use super::identity;
use crate::config::model::{AxisValue, Backend, Block, Campaign, DigestRule, MetricRule, Model, Settings, Success, Template, TextSource};
use crate::store::record::PointIds;
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashMap};
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
    // spec → index, to find doubles in one pass
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, block) in campaign.blocks.iter().enumerate() {
        for device in &block.devices {
            for combination in Combinations::of(block) {
                if block.exclude.iter().any(|map| excludes(map, device, &combination)) {
                    excluded += 1;
                    continue;
                }
                let point = point(campaign, index, device, combination)?;
                let spec = identity::canonical(&identity::spec(&point));
                if let Some(&first) = seen.get(&spec) {
                    let line = |p: &Point| campaign.blocks[p.block].line;
                    let error = PlanError::Twice { point: point.label(), device: device.clone(), first: line(&points[first]), second: block.line };
                    return Err(error);
                }
                seen.insert(spec, points.len());
                points.push(point);
            }
        }
    }
    if points.is_empty() {
        return Err(PlanError::Empty { excluded });
    }
    distinguish(&mut points);
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

/// Points of several blocks with the same axes differ in something that isn't one: make what differs visible as `env.NAME` or `block.…`,
/// so that tables can tell them apart. It is no part of their identity, where it stands in its own field.
fn distinguish(points: &mut [Point]) {
    let mut groups: IndexMap<String, Vec<usize>> = IndexMap::new();
    for (i, point) in points.iter().enumerate() {
        groups.entry(job_key(&point.ids)).or_default().push(i);
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
        let argv = |&i: &usize| match &points[i].work {
            Work::Builtin { .. } => AxisValue::Text(String::new()),
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
    Ok(Point {
        block: index,
        ids: PointIds { device: device_id.to_owned(), backend: block.backend.name().to_owned(), axes, slug: String::new() },
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

/// Name every point's directory; where two names come out equal, the later one gets a number.
fn distinguish_slugs(points: &mut [Point]) {
    for point in points.iter_mut() {
        point.ids.slug = slug(&point.swept, &point.ids.axes, &point.ids.backend);
    }
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
        expand(&crate::config::parse(&format!("{head}{matrix}"), Path::new("/c/x.yaml")).unwrap())
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
    fn points_that_differ_only_in_a_variable_are_two_points() {
        // Two blocks with different constants of the environment: not the same point.
        let block = |value: &str| format!("  - {{ devices: a, backend: command, argv: [p], env: {{ X: {value} }} }}\n");
        assert!(matches!(plan(&[block("1"), block("1")].concat()), Err(PlanError::Twice { .. })));
        assert_eq!(plan(&[block("1"), block("2")].concat()).unwrap().points.len(), 2);
    }
}
