//! Decode over the size of models: tokens/s = k ÷ bytes, whose k is the rate at which a device's decode reads its memory.
//!
//! Takes the rows of a table of decode, gives a line for each device and whatever else must not be mixed; must not know how a table is made.

use super::{
    Foreign,
    axes::{Cell, Column, Constant},
    build::rounded,
    findings::{COMPUTED, short_identity},
    gather::{Gathered, Point},
    model::{Fit, FitPoint, Row},
};
use crate::{backend::llama_bench::decode_bytes, config::model::AxisValue, registry::Code, registry::MetricId, stats, store::record::Record};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Axes over which a model's best point is sought: how the same work is spread and cut. All others say what is computed, or where.
const TUNED: [&str; 4] = ["threads", "cpus", "n_batch", "n_ubatch"];
const MODEL: &str = "model";
/// Sizes of models below which a line says nothing.
const LEAST_SIZES: usize = 3;
/// Conditions of a row that no two points of a line may differ in.
const STATES: [Code; 2] = [Code::OperatingState, Code::Conditions];

/// One line for each set of rows that may be compared and has models of three sizes or more.
pub(super) fn fits(definition: &str, gathered: &Gathered<'_>, rows: &[Row]) -> Vec<Fit> {
    let entry = MetricId::DecodeTps.entry();
    if definition != entry.definition {
        return Vec::new();
    }
    let is_over = |name: &str| name == MODEL || TUNED.contains(&name) || entry.independent_of.contains(&name);
    let apart = |column: &Column<'_>| !matches!(column, Column::Axis(name) if is_over(name));
    let columns: Vec<Column<'_>> = gathered.columns.iter().copied().filter(apart).collect();
    // By what they have in common, in the order of their first rows.
    let mut lines: Vec<(Common, Vec<FitPoint>)> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Some((point, record, of)) = point(gathered, at, row) else { continue };
        let common = Common { told: told(&columns, of, row), beyond: beyond(record, is_over) };
        match lines.iter_mut().find(|(of, _)| *of == common) {
            Some((_, points)) => points.push(point),
            None => lines.push((common, vec![point])),
        }
    }
    let all: Vec<Common> = lines.iter().map(|(of, _)| of.clone()).collect();
    lines.into_iter().filter_map(|(of, points)| line(of.named(&all), best(points, rows))).collect()
}

/// What no two points of a line may differ in.
#[derive(Clone, PartialEq)]
struct Common {
    /// What the report tells its points by.
    told: Vec<Constant>,
    /// What their identities say, and the tool of what computed, by name.
    beyond: BTreeMap<String, String>,
}

impl Common {
    /// The device, and what tells this line from all others: of its points' identities only where nothing else does.
    fn named(self, all: &[Common]) -> Vec<Constant> {
        let alike: Vec<&Common> = all.iter().filter(|other| other.told == self.told).collect();
        let differs = |name: &String, value: &String| alike.iter().any(|other| other.beyond.get(name) != Some(value));
        let beyond = self.beyond.iter().filter(|(name, value)| differs(name, value));
        let beyond = beyond.map(|(name, value)| Constant { name: Foreign::new(name), value: Cell::Text(shortened(value)) });
        let names_it = |constant: &Constant| constant.name == Column::Device.name() || all.iter().any(|of| !of.told.contains(constant));
        self.told.into_iter().filter(names_it).chain(beyond).collect()
    }
}

/// Of a hash the first digits.
fn shortened(value: &str) -> Foreign {
    let is_hash = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { short_identity(value) } else { Foreign::new(value) }
}

/// What a line takes from a row, and a record of it with its point; `None` of one that is in none.
fn point<'g, 'a>(gathered: &'g Gathered<'a>, at: usize, row: &Row) -> Option<(FitPoint, &'a Record, &'g Point<'a>)> {
    let tokens_per_s = row.number.as_ref()?.value;
    // Any of its points may have no run at all.
    let mut runs = row.points().map(|at| &gathered.points[at]).flat_map(|of| of.own_runs().map(move |run| (run.record, of)));
    let (record, of) = runs.find(|(record, _)| record.executed.contains_key("model_size"))?;
    let is_empty = of.ids.axes.get("depth") == Some(&AxisValue::Int(0));
    let weight_bytes = decode_bytes(&record.executed, record.workload.model.as_ref()).ok()?;
    let is_of_one = row.states.iter().all(|state| state.code != Code::MixedExecuted);
    let is_wanted = is_empty && is_of_one && !of.stale && !of.orphan && experts(record).is_none();
    let model = Cell::from(of.ids.axes.get(MODEL)?);
    is_wanted.then_some((FitPoint { row: at, model, weight_bytes, tokens_per_s }, record, of))
}

/// Of a mixture of experts how many there are, as far as the model's file was read.
fn experts(record: &Record) -> Option<u64> {
    record.workload.model.as_ref().and_then(|model| model.gguf()?.experts).filter(|experts| *experts > 0)
}

fn told(columns: &[Column<'_>], of: &Point<'_>, row: &Row) -> Vec<Constant> {
    let mut told = of.label(columns);
    let states = row.states.iter().filter(|state| STATES.contains(&state.code)).filter_map(|state| state.detail.clone());
    told.extend(states.map(|detail| Constant { name: Foreign::new("state"), value: Cell::Text(detail) }));
    told
}

/// All that a run's identity says but the axes that a line is over and the content of the model; and what the tool says that computed.
fn beyond(record: &Record, is_over: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    fn leaves(name: &str, value: &Value, into: &mut BTreeMap<String, String>) {
        let text = match value {
            Value::Object(fields) => {
                let name_of = |field: &str| if ["", "axes", "files"].contains(&name) { field.to_owned() } else { format!("{name}.{field}") };
                return fields.iter().for_each(|(field, value)| leaves(&name_of(field), value, into));
            }
            Value::Array(values) => {
                values.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect::<Vec<_>>().join(" ")
            }
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        into.insert(name.to_owned(), text);
    }
    let mut said = BTreeMap::new();
    leaves("", &record.ids.identity.spec, &mut said);
    leaves("", &record.ids.identity.facts, &mut said);
    let is_of_model = |name: &str| name == "output_digest" || name.starts_with("model[");
    said.retain(|name, _| !is_over(name) && !is_of_model(name));
    COMPUTED.iter().filter_map(|name| Some((name, record.executed.get(*name)?))).for_each(|(name, value)| leaves(name, value, &mut said));
    said
}

/// Of each model and size the fastest among the steady ones, of which there may be none: the fastest of many that vary is so by chance.
fn best(points: Vec<FitPoint>, rows: &[Row]) -> Vec<FitPoint> {
    let rank = |point: &FitPoint| (rows[point.row].states.iter().all(|state| state.code != Code::SpreadHigh), point.tokens_per_s);
    let mut best: BTreeMap<(String, u64), FitPoint> = BTreeMap::new();
    for point in points {
        let key = (format!("{:?}", point.model), point.weight_bytes);
        match best.get(&key) {
            Some(other) if rank(other) >= rank(&point) => {}
            _ => _ = best.insert(key, point),
        }
    }
    let mut best: Vec<FitPoint> = best.into_values().collect();
    best.sort_by_key(|point| point.row);
    best
}

fn line(of: Vec<Constant>, points: Vec<FitPoint>) -> Option<Fit> {
    let sizes: BTreeSet<u64> = points.iter().map(|point| point.weight_bytes).collect();
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().map(|point| (1e9 / point.weight_bytes as f64, point.tokens_per_s)).unzip();
    let fit = stats::proportional(&x, &y).filter(|_| sizes.len() >= LEAST_SIZES)?;
    Some(Fit { of, gb_s: rounded(fit.slope), r_squared: fit.r_squared.map(rounded), sizes: super::counts::count(sizes.len()), points })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::config::model::{AxisValue, Better};
    use crate::report::{
        Cell, Fit, Foreign, Model, ReportInput, ReportOptions, csv, markdown,
        records::{self, point, run, text},
        terminal,
    };
    use crate::store::record::{OperatingState, PointIds, Record, Severity};
    use isotherm_wire::model::{Gguf, ModelHeader};
    use serde_json::json;

    fn at(device: &str, model: &str, threads: i64, depth: i64) -> PointIds {
        let axes = [("model", text(model)), ("threads", AxisValue::Int(threads)), ("n_gen", AxisValue::Int(128)), ("depth", AxisValue::Int(depth))];
        PointIds { device: device.into(), backend: "llama-bench".into(), ..point(&axes) }
    }

    fn rate(point: &PointIds, bytes: u64, tps: f64) -> (String, Record) {
        told(run(point, 0).metric("decode_tps", Some(tps), "tokens/s", "llama_bench.tg.v1", Better::Higher), bytes)
    }

    fn told(run: records::Run, bytes: u64) -> (String, Record) {
        let (path, mut record) = run.model(Gguf { lookup_bytes: Some(0), ..Gguf::default() }).stored();
        record.executed.insert("model_size".into(), bytes.into());
        (path, record)
    }

    fn model_of(records: Vec<(String, Record)>) -> Model {
        Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default())
    }

    fn fits(model: &Model) -> &[Fit] {
        &model.tables[0].fits
    }

    /// Models of 1, 0.5 and 1/3 GB, that is of 1, 2 and 3 per GB, at 2, 4 and 5 tokens/s.
    fn three(device: &str) -> Vec<(String, Record)> {
        [("big", 1_000_000_000, 2.0), ("half", 500_000_000, 4.0), ("third", 333_333_333, 5.0)]
            .map(|(model, bytes, tps)| rate(&at(device, model, 4, 0), bytes, tps))
            .to_vec()
    }

    #[test]
    fn the_rate_of_the_memory_is_the_slope_over_the_best_point_of_each_model() {
        // Slower with one thread: not the best. At depth the context is read, too.
        let mut records = three("here");
        records.push(rate(&at("here", "big", 1, 0), 1_000_000_000, 0.5));
        records.push(rate(&at("here", "big", 4, 4096), 1_000_000_000, 1.0));
        let model = model_of(records);
        let [fit] = fits(&model) else { panic!("{:?}", fits(&model)) };
        // 25/14 and 1 − (5/14) ÷ (14/3): see `stats::proportional`.
        assert!((fit.gb_s - 25.0 / 14.0).abs() < 1e-8 && (fit.r_squared.unwrap() - 0.923_469_387_755).abs() < 1e-8, "{fit:?}");
        let points: Vec<_> = fit.points.iter().map(|point| (point.model.text(Foreign::terminal), point.tokens_per_s)).collect();
        assert_eq!(points, [("big".to_owned(), 2.0), ("half".to_owned(), 4.0), ("third".to_owned(), 5.0)]);
        let said = "device=here: decode = k ÷ bytes of the weights, k = 1.786 GB/s, R² = 0.923 (best of each model, 3 points, 3 sizes)";
        assert!(terminal(&model, None, false).contains(said) && markdown(&model).contains(said), "{}", terminal(&model, None, false));
        let sheet = csv(&model);
        assert!(sheet.lines().next().unwrap().ends_with(",fit_gb_s,fit_r_squared"), "{sheet}");
        assert_eq!(sheet.lines().filter(|line| line.ends_with(&format!(",{},{}", fit.gb_s, fit.r_squared.unwrap()))).count(), 3, "{sheet}");
    }

    fn gguf(record: &mut Record) -> &mut Gguf {
        let Some(ModelHeader::Gguf(gguf)) = record.workload.model.as_mut().unwrap().header.as_mut() else { panic!("no header") };
        gguf
    }

    #[test]
    fn tables_of_which_a_token_takes_single_rows_are_not_in_the_bytes() {
        let plain = model_of(three("here"));
        let mut untied = three("here");
        untied[1].1.executed.insert("model_size".into(), 900_000_000.into());
        gguf(&mut untied[1].1).lookup_bytes = Some(400_000_000);
        assert_eq!(fits(&model_of(untied)), fits(&plain));
    }

    #[test]
    fn a_row_that_varies_is_taken_where_no_steady_one_is_and_the_line_says_so() {
        let repeated = |threads, tps: [f64; 2]| {
            let of = |(repetition, tps): (u32, f64)| {
                let run = run(&at("here", "third", threads, 0), repetition);
                told(run.metric("decode_tps", Some(tps), "tokens/s", "llama_bench.tg.v1", Better::Higher), 333_333_333)
            };
            [of((0, tps[0])), of((1, tps[1]))]
        };
        let third = |model: &Model| fits(model)[0].points[2].tokens_per_s;
        let both = model_of([&three("here")[..2], &repeated(1, [5.0, 5.0]), &repeated(4, [5.0, 9.0])].concat());
        assert!((third(&both) - 5.0).abs() < 1e-9 && !terminal(&both, None, false).contains("of these"));
        let varies = model_of([&three("here")[..2], &repeated(4, [5.0, 9.0])].concat());
        assert!((third(&varies) - 45f64.sqrt()).abs() < 1e-9);
        let said = "(best of each model, 3 points, 3 sizes; of these 1 spread_high)";
        assert!(terminal(&varies, None, false).contains(said) && markdown(&varies).contains(said), "{}", terminal(&varies, None, false));
    }

    #[test]
    fn two_sizes_are_no_line_and_neither_is_what_must_not_be_mixed() {
        assert!(fits(&model_of(three("here")[..2].to_vec())).is_empty());
        // Three models of two sizes.
        let mut same = three("here");
        same[2].1.executed.insert("model_size".into(), 500_000_000.into());
        assert!(fits(&model_of(same)).is_empty());
        // Another device for one of them, another state, no size, degraded, a mixture of experts, a file that doesn't tell of its tables.
        let spoilt = |spoil: fn(&mut Record)| {
            let mut records = three("here");
            spoil(&mut records[2].1);
            fits(&model_of(records)).len()
        };
        assert_eq!(spoilt(|_| {}), 1);
        assert_eq!(spoilt(|record| record.ids.point.device = "there".into()), 0);
        assert_eq!(spoilt(|record| record.context.state = OperatingState { throttled: Some(true), ..OperatingState::default() }), 0);
        assert_eq!(spoilt(|record| record.executed.clear()), 0);
        assert_eq!(spoilt(|record| _ = record.executed.insert("gpu_info".into(), "NVIDIA A2".into())), 0);
        assert_eq!(spoilt(|record| record.metrics["decode_tps"].definition = "llama_bench.tg.v2".into()), 0);
        assert_eq!(spoilt(|record| _ = record.ids.point.axes.insert("flags.-ngl".into(), AxisValue::Int(99))), 0);
        assert_eq!(spoilt(|record| gguf(record).experts = Some(8)), 0);
        assert_eq!(spoilt(|record| gguf(record).lookup_bytes = None), 0);
        let mut degraded = three("here");
        let again = run(&at("here", "third", 4, 0), 0).metric("decode_tps", Some(5.0), "tokens/s", "llama_bench.tg.v1", Better::Higher);
        degraded[2] = told(again.issue("competing_load", Severity::Warning, "busy"), 333_333_333);
        assert!(fits(&model_of(degraded)).is_empty());
    }

    /// Its identity says this of options, variables and the program; the model and what a line is over differ in it, too.
    fn identified(mut records: Vec<(String, Record)>, flags: &[&str], env: serde_json::Value, program: &str) -> Vec<(String, Record)> {
        for (at, (_, record)) in records.iter_mut().enumerate() {
            let identity = &mut record.ids.identity;
            identity.spec = json!({ "axes": record.ids.point.axes, "flags": flags, "env": env, "output_digest": format!("{at:064x}") });
            identity.facts = json!({ "model": format!("{at:064x}"), "files": { "argv[0]": program, "model[2]": format!("{at:064x}") } });
        }
        records
    }

    #[test]
    fn models_that_ran_with_other_options_variables_or_programs_are_no_line() {
        let plain = || identified(three("here"), &["-fa", "on"], json!({ "A": "1" }), &"b".repeat(64));
        assert_eq!(fits(&model_of(plain())).len(), 1, "the model's own content is what a line is over");
        let spoilt = |flags: &[&str], env, program: &str| {
            let mut records = plain();
            records[2] = identified(vec![records[2].clone()], flags, env, program).remove(0);
            fits(&model_of(records)).len()
        };
        assert_eq!(spoilt(&["-fa", "on"], json!({ "A": "1" }), &"b".repeat(64)), 1);
        assert_eq!(spoilt(&["-fa", "off"], json!({ "A": "1" }), &"b".repeat(64)), 0);
        assert_eq!(spoilt(&["-fa", "on"], json!({ "A": "2" }), &"b".repeat(64)), 0);
        assert_eq!(spoilt(&["-fa", "on"], json!({}), &"b".repeat(64)), 0);
        assert_eq!(spoilt(&["-fa", "on"], json!({ "A": "1" }), &"c".repeat(64)), 0);
    }

    #[test]
    fn a_line_names_what_only_its_identities_tell_it_apart_by() {
        let other = |program: &str| {
            let named = |(path, mut record): (String, Record)| {
                let other = record.ids.point.axes["model"].to_string() + "-other";
                _ = record.ids.point.axes.insert("model".into(), text(&other));
                (format!("other-{path}"), record)
            };
            identified(three("here").into_iter().map(named).collect(), &["-fa", "on"], json!({}), program)
        };
        let model = model_of([identified(three("here"), &["-fa", "on"], json!({}), &"b".repeat(64)), other(&"c".repeat(64))].concat());
        let said = |program: &str| format!("device=here, argv[0]={program}: decode = k ÷ bytes of the weights");
        let page = terminal(&model, None, false);
        assert!(page.contains(&said("bbbbbbbb")) && page.contains(&said("cccccccc")), "{page}");
    }

    #[test]
    fn a_model_is_in_the_line_whichever_point_of_its_row_has_the_runs() {
        let with_prompt = |model: &str, n_prompt: i64| {
            let mut ids = at("here", model, 4, 0);
            ids.axes.insert("n_prompt".into(), AxisValue::Int(n_prompt));
            ids
        };
        let stored = |model, n_prompt, bytes, tps| rate(&with_prompt(model, n_prompt), bytes, tps);
        let records = vec![
            stored("big", 64, 1_000_000_000, 2.0),
            stored("big", 128, 1_000_000_000, 2.0),
            stored("half", 128, 500_000_000, 4.0),
            stored("third", 64, 333_333_333, 5.0),
        ];
        let points = ["big", "half", "third"].iter().flat_map(|model| [64, 128].map(|n| with_prompt(model, n)));
        let plan = records::plan(&points.collect::<Vec<_>>(), 1);
        let model = Model::of(&ReportInput { plan: Some(plan), records, ..ReportInput::default() }, ReportOptions::default());
        let [fit] = fits(&model) else { panic!("{:?}", fits(&model)) };
        assert_eq!(fit.points.iter().map(|point| point.row).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn each_device_has_its_own_line() {
        let model = model_of([three("a"), three("b")].concat());
        let of: Vec<_> = fits(&model).iter().map(|fit| fit.of.iter().map(|of| of.value.clone()).collect::<Vec<_>>()).collect();
        assert_eq!(of, ["a", "b"].map(|device| vec![Cell::Text(Foreign::new(device))]));
    }
}
