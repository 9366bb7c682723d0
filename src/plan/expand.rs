//! From the matrix to points: every combination of axis values on every device, in file order.

use super::identity::{self, DeviceReport};
use super::names::{self, place};
use super::point::{Combination, MOST_TIMED_TOKENS, Maker, Point, Work};
use super::{power, when};
use crate::config::Verdict;
use crate::config::model::{Axis, AxisValue, Block, Campaign, Linked};
use indexmap::IndexMap;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use thiserror::Error;

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

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("the same point stands twice in the matrix: {point} on device `{device}`, {}", both(*first, *second))]
    Twice { point: String, device: String, first: usize, second: usize },
    #[error("model `{model}` has no path for device `{device}`")]
    NoModelPath { model: String, device: String },
    #[error("no point is left: {}", left_out(*excluded, *dropped))]
    Empty { excluded: usize, dropped: usize },
    #[error("{} (block in line {line})", no_prompt(*n_prompt, *n_gen))]
    Prompt { line: usize, n_prompt: u32, n_gen: u32 },
    #[error("a request of the block in line {line} has {n_prompt} tokens of prompt and generates {n_gen}")]
    Request { line: usize, n_prompt: u32, n_gen: u32 },
    #[error("a run of the block in line {line} generates {tokens} tokens, and the time of each is kept, of {MOST_TIMED_TOKENS} at most")]
    TooManyTokens { line: usize, tokens: u64 },
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
            PlanError::Prompt { .. } => "write `n_prompt: 32` or more beside `n_gen`, or leave `n_gen` at 0 to measure prefill alone".into(),
            PlanError::TooManyTokens { .. } => "lower `n_gen`, `iterations` or `concurrency`, or make several blocks of it".into(),
            PlanError::Request { .. } => "a request needs at least one of each: raise `n_prompt` or `n_gen`".into(),
            PlanError::Condition { device, .. } => {
                format!("ask first whether it applies, as in `device.id != \"{device}\" and (…)`: what decides first keeps the rest from being asked")
            }
        }
    }
}

fn both(first: usize, second: usize) -> String {
    if first == second { format!("both in the block at line {first}") } else { format!("in the blocks at lines {first} and {second}") }
}

fn no_prompt(n_prompt: u32, n_gen: u32) -> String {
    if n_gen == 0 {
        "`n_prompt` and `n_gen` are both 0: nothing to measure".into()
    } else {
        format!(
            "`n_prompt` is {n_prompt} where {n_gen} tokens are generated: without a real prompt the weights are read for the first time while decode is measured"
        )
    }
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
                            let verdict = when::ask(condition, &point, &combination, reports.get(device));
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
        names::distinguish(&mut plan.points);
    }
    names::distinguish_slugs(&mut plan.points);
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
    let argv = match &point.work {
        Work::Command(work) => work.argv.as_slice(),
        Work::LlamaBench(work) => work.flags.as_slice(),
        Work::LlamaServer(work) => work.flags.as_slice(),
        Work::Builtin { .. } | Work::Later => &[],
    };
    // The order of variables means nothing.
    let env = point.env.iter().map(|(name, value)| hash(&|h| (name, value).hash(h))).fold(0, u64::wrapping_add);
    hash(&|h| (place(&point.ids, false), argv, env).hash(h))
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

/// What an `include` says: axis or `device` → values.
type Fixed = IndexMap<String, Vec<AxisValue>>;

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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::files::{self, Part};
    use super::super::identity;
    use super::super::point::Texts;
    use super::*;
    use isotherm_wire::inspect::{FileAnswer, FileFact};
    use isotherm_wire::model::{Gguf, ModelHeader, Split};
    use std::path::Path;

    fn plan(matrix: &str) -> Result<Plan, PlanError> {
        let head = "devices: { a: { local: {} }, b: { local: {}, models_dir: store } }
models: { m: { path: m.bin, quantization: q4 }, n: { paths: { a: /abs/n.bin, b: n.bin } }, p: { path: p.bin, paths: { a: /abs/p.bin }, push: true } }
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
    fn texts_have_the_path_of_a_copied_model_once_it_is_known_and_are_hashed_as_written() {
        let matrix = "  - { devices: [a, b], backend: command, model: p, env: { M: '{model.path}' }, argv: [run, '-m={model.path}', '{model.path}', p.bin] }\n";
        let plan = plan(matrix).unwrap();
        let texts = |point: usize, path| {
            let Texts { argv, env } = plan.points[point].texts(path);
            format!("{} M={}", argv.join(" "), env["M"])
        };
        // A device with a path of its own gets no copy.
        assert_eq!(texts(0, Some("/there/p.bin")), "run -m=/abs/p.bin /abs/p.bin p.bin M=/abs/p.bin");
        assert_eq!(texts(1, Some("/there/p.bin")), "run -m=/there/p.bin /there/p.bin p.bin M=/there/p.bin");
        // Behind no `models_dir`: the file is here.
        assert_eq!(texts(1, None), "run -m=p.bin p.bin p.bin M=p.bin");
        assert_eq!(identity::spec(&plan.points[1])["argv"], serde_json::json!(["run", "-m=p.bin", "p.bin", "p.bin"]));
        let pushed =
            |point: usize| files::of_point(&plan.points[point]).into_iter().filter(|file| file.is_pushed).map(|file| file.part).collect::<Vec<_>>();
        assert_eq!((pushed(0), pushed(1)), (vec![], vec![Part::Model, Part::Argument(2)]));
    }

    #[test]
    fn files_that_options_of_llama_cpp_name_are_files_of_the_point() {
        for backend in ["llama-bench", "llama-server"] {
            let plan = plan(&format!("  - {{ devices: a, backend: {backend}, model: m, flags: {{ --lora: adapter.gguf }} }}\n")).unwrap();
            let files = files::of_point(&plan.points[0]).into_iter().map(|file| (file.part, file.query.path)).collect::<Vec<_>>();
            assert_eq!(files.last(), Some(&(Part::Flag(1), "adapter.gguf".to_owned())));
        }
        let flags = "flags: { --lora-scaled: [[\"a.gguf:0.5,b.gguf\"]], -md: d-00001-of-00002.gguf }, env: { LLAMA_ARG_MMPROJ: p.gguf, X: x.gguf }";
        let plan = plan(&format!("  - {{ devices: a, backend: llama-server, model: m, {flags} }}\n")).unwrap();
        let files = files::of_point(&plan.points[0]);
        let listed: Vec<&str> = files.iter().filter(|file| matches!(file.part, Part::Listed(_))).map(|file| &*file.query.path).collect();
        assert_eq!(listed, ["a.gguf", "b.gguf", "d-00002-of-00002.gguf", "p.gguf"]);
    }

    #[test]
    fn a_context_that_is_auto_is_the_one_that_is_not_written() {
        let point = |n_ctx: &str| plan(&format!("  - {{ devices: a, backend: llama-server, model: m{n_ctx} }}\n")).unwrap().points.remove(0);
        let [none, auto, number] = ["", ", n_ctx: auto", ", n_ctx: 4096"].map(point);
        let work = |point: &Point| if let Work::LlamaServer(work) = &point.work { work.n_ctx } else { panic!() };
        assert_eq!([work(&none), work(&auto), work(&number)], [None, None, Some(4096)]);
        assert_eq!(identity::spec(&none), identity::spec(&auto));
        assert_ne!(identity::spec(&none), identity::spec(&number));
    }

    #[test]
    fn a_model_in_several_files_is_all_of_them() {
        let mut point = plan("  - { devices: a, backend: llama-bench, model: m }\n").unwrap().points.remove(0);
        let mut of = |path: &str| {
            point.model.as_mut().unwrap().path = path.into();
            let others = files::of_point(&point).into_iter().filter(|file| matches!(file.part, Part::OfModel(_)));
            others.map(|file| file.query.path).collect::<Vec<_>>()
        };
        assert_eq!(of("/m/big-00001-of-00003.gguf"), ["/m/big-00002-of-00003.gguf", "/m/big-00003-of-00003.gguf"]);
        for whole in ["/m/big.gguf", "/m/big-00002-of-00003.gguf", "/m/big-00001-of-3.gguf", "/m/big-00001-of-000x3.gguf"] {
            assert!(of(whole).is_empty(), "{whole}");
        }
    }

    #[test]
    fn a_model_in_several_files_is_as_large_as_all_of_them_and_not_there_without_one() {
        let mut point = plan("  - { devices: a, backend: llama-bench, model: m }\n").unwrap().points.remove(0);
        point.model.as_mut().unwrap().path = "/m/big-00001-of-00003.gguf".into();
        let found = |file: files::PointFile, bytes| {
            let fact = FileFact { path: file.query.path, named: None, bytes, mtime_ns: 0, inode: 0, sha256: String::new(), header: None };
            (file.query.key, FileAnswer::Found(vec![fact]))
        };
        let of_model = files::of_point(&point).into_iter().filter(|file| matches!(file.part, Part::Model | Part::OfModel(_)));
        let mut answers: files::Answers = of_model.zip([5, 7, 11]).map(|(file, bytes)| found(file, bytes)).collect();
        assert_eq!(files::model(&point, &answers).unwrap().unwrap().path, "/m/big-00001-of-00003.gguf");
        assert_eq!(files::model_bytes(&point, &answers), Some(23));
        let last = answers.values_mut().find(|answer| matches!(answer, FileAnswer::Found(facts) if facts[0].bytes == 11)).unwrap();
        *last = FileAnswer::Missing("No such file".into());
        assert_eq!(files::model(&point, &answers), Some(Err("/m/big-00003-of-00003.gguf: No such file".into())));
        assert_eq!(files::model_bytes(&point, &answers), None);
        answers.pop_last();
        assert_eq!(files::model(&point, &answers), None);
        // A file of several under a name by which the others can't be found.
        point.model.as_mut().unwrap().path = "/m/big.gguf".into();
        let (key, mut answer) = found(files::of_point(&point).remove(0), 5);
        let FileAnswer::Found(facts) = &mut answer else { unreachable!() };
        let split = Some(Split { part: 1, of: 3 });
        facts[0].header = Some(ModelHeader::Gguf(Box::new(Gguf { split, ..Gguf::default() })));
        let why = files::model(&point, &[(key, answer)].into()).unwrap().unwrap_err();
        assert!(why.contains("file 1 of 3") && why.contains("NAME-00001-of-00003.gguf"), "{why}");
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
