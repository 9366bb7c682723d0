//! Points that are one point of a metric: they differ in nothing that it depends on.
//!
//! Takes points and the axes that a metric doesn't depend on, gives groups of them; must not know how a table is made.

use super::gather::{Point, Run, key};
use crate::plan::identity::point_identity;
use crate::registry::{MetricEntry, MetricId};
use crate::store::record::Identity;
use serde_json::Value;

/// One or more points whose runs are repetitions of each other as far as a metric goes.
pub(super) struct Pool<'a> {
    /// Indices of its points, ascending.
    pub members: Vec<usize>,
    /// All of them in one, named as the first is.
    pub point: Point<'a>,
}

/// What the registry says of a metric; `None` of one that a campaign declares.
pub(super) fn entry(name: &str, definition: &str) -> Option<&'static MetricEntry> {
    MetricId::ALL.iter().map(|id| id.entry()).find(|entry| entry.name == name && entry.definition == definition)
}

/// Groups of these points that differ in `free` axes alone: not in any other part of their identity, nor in declared conditions.
///
/// What a point without records would be is not known beyond its axes: it belongs to those of the same axes, unless there are several.
pub(super) fn pools<'a>(points: &[Point<'a>], members: &[usize], free: &[&str]) -> Vec<Pool<'a>> {
    type Group = (String, Option<(String, String)>, Vec<usize>);
    let mut groups: Vec<Group> = Vec::new();
    let (known, unknown): (Vec<usize>, Vec<usize>) = members.iter().partition(|&&at| !free.is_empty() && !points[at].runs.is_empty());
    for at in known {
        let point = &points[at];
        let (place, content) = (place(point, free), point.runs.first().map(|run| (content(run, free), point.conditions.clone())));
        match groups.iter_mut().find(|(of, has, _)| (of, has) == (&place, &content)) {
            Some((.., group)) => group.push(at),
            None => groups.push((place, content, vec![at])),
        }
    }
    for at in unknown {
        let place = place(&points[at], free);
        let mut alike: Vec<&mut Group> = groups.iter_mut().filter(|(of, ..)| !free.is_empty() && *of == place).collect();
        match alike.as_mut_slice() {
            [(.., group)] => group.push(at),
            _ => groups.push((place, None, vec![at])),
        }
    }
    let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|(.., group)| group).collect();
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups.sort_unstable();
    groups.into_iter().map(|members| Pool { point: merged(points, &members), members }).collect()
}

/// Device, backend, kind and the axes that matter; and whether the plan wants it, because what it doesn't is no repetition of what it does.
fn place(point: &Point<'_>, free: &[&str]) -> String {
    let mut ids = point.ids.clone();
    ids.axes.retain(|name, _| !free.contains(&name.as_str()));
    format!("{} {} {}", key(&ids, point.kind), point.orphan, point.stale)
}

/// Hash of the identity without these axes.
fn content(run: &Run<'_>, free: &[&str]) -> String {
    let Identity { identity_version, mut spec, facts } = run.record.ids.identity.clone();
    if let Some(axes) = spec.get_mut("axes").and_then(Value::as_object_mut) {
        axes.retain(|name, _| !free.contains(&name.as_str()));
    }
    point_identity(&Identity { identity_version, spec, facts })
}

fn merged<'a>(points: &[Point<'a>], members: &[usize]) -> Point<'a> {
    let mut merged = points[members[0]].clone();
    for other in members[1..].iter().map(|&at| &points[at]) {
        merged.identity = None;
        merged.planned = merged.planned.zip(other.planned).map(|(a, b)| a + b);
        merged.mixed |= other.mixed;
        merged.runs.extend(&other.runs);
        merged.missing.extend(&other.missing);
        merged.earlier_attempts += other.earlier_attempts;
    }
    merged
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::config::model::{AxisValue, Better};
    use crate::registry::Code;
    use crate::report::{
        Model, ReportInput, ReportOptions, Table, csv, markdown,
        records::{self, plan, point, run},
        terminal,
    };
    use crate::store::record::{OperatingState, PointIds, Reason, Record, Severity};
    use serde_json::json;

    fn at(n_prompt: i64, n_gen: i64, depth: i64) -> PointIds {
        let axes = [("n_prompt", n_prompt), ("n_gen", n_gen), ("depth", depth)].map(|(name, n)| (name, AxisValue::Int(n)));
        PointIds { backend: "llama-bench".into(), ..point(&axes) }
    }

    fn rates(point: &PointIds, repetition: u32, prefill: f64, decode: Option<f64>) -> records::Run {
        let run = run(point, repetition).metric("prefill_tps", Some(prefill), "tokens/s", "llama_bench.pp.v1", Better::Higher);
        match decode {
            Some(tps) => run.metric("decode_tps", Some(tps), "tokens/s", "llama_bench.tg.v1", Better::Higher),
            None => run,
        }
    }

    /// Its spec is that of the point; `sample_hz` is something that may differ in it.
    fn specified(run: records::Run, sample_hz: u32) -> (String, Record) {
        let (path, mut record) = run.stored();
        record.ids.identity.spec = json!({ "axes": record.ids.point.axes, "sample_hz": sample_hz });
        (path, record)
    }

    fn model_of(records: Vec<(String, Record)>) -> Model {
        Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default())
    }

    fn table<'m>(model: &'m Model, metric: &str) -> &'m Table {
        model.tables.iter().find(|table| table.metric.terminal() == metric).unwrap()
    }

    /// Of a row: its cells, its value with its runs, all of its points.
    type Shown = (Vec<String>, Option<(f64, u32)>, Vec<usize>);

    fn rows(table: &Table) -> Vec<Shown> {
        let cells = |row: &crate::report::Row| row.cells.iter().flatten().map(|cell| cell.text(crate::report::Foreign::terminal)).collect();
        let number = |row: &crate::report::Row| row.number.as_ref().map(|number| (number.value, number.runs));
        table.rows.iter().map(|row| (cells(row), number(row), row.points().collect())).collect()
    }

    #[test]
    fn points_that_differ_in_nothing_that_a_metric_depends_on_are_one_row_of_all_their_runs() {
        // Prefill at 100 and 400, then at 25; decode at 10 and 40 of 16 tokens, at 20 of 32.
        let records = [(64, 16, 100.0, 10.0), (64, 32, 400.0, 20.0), (128, 16, 25.0, 40.0)];
        let stored = records.map(|(p, n, prefill, decode)| specified(rates(&at(p, n, 0), 0, prefill, Some(decode)), 3));
        let input =
            ReportInput { plan: Some(plan(&[at(64, 16, 0), at(64, 32, 0), at(128, 16, 0)], 1)), records: stored.to_vec(), ..ReportInput::default() };
        let model = Model::of(&input, ReportOptions::default());
        let prefill = table(&model, "prefill_tps");
        assert_eq!(rows(prefill), [(vec!["64".into()], Some((200.0, 2)), vec![0, 1]), (vec!["128".into()], Some((25.0, 1)), vec![2])]);
        let decode = table(&model, "decode_tps");
        assert_eq!(rows(decode), [(vec!["16".into()], Some((20.0, 2)), vec![0, 2]), (vec!["32".into()], Some((20.0, 1)), vec![1])]);
        assert!(model.without_table.is_empty());

        let said = "it doesn't depend on n_gen (16, 32): runs that differ in nothing else are in one row";
        assert!(terminal(&model, None, false).contains(said) && markdown(&model).contains(said), "{}", terminal(&model, None, false));
        let lines: Vec<String> = terminal(&model, None, false).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(lines.iter().any(|line| line.starts_with("! 64 200") && line.ends_with("2 of 2 spread_high")), "{lines:#?}");
        let sheet = csv(&model);
        let (header, line) = (sheet.lines().next().unwrap(), sheet.lines().nth(1).unwrap());
        let field = |name: &str| line.split(',').nth(header.split(',').position(|field| field == name).unwrap()).unwrap();
        let fields = ["metric", "axis.n_prompt", "axis.n_gen", "value", "runs_used", "runs_planned", "ok", "missing"].map(field);
        assert_eq!(fields, ["prefill_tps", "64", "16;32", "200", "2", "2", "2", "0"]);
    }

    #[test]
    fn what_else_differs_keeps_points_apart_and_the_axis_in_the_table() {
        let of = |n_gen, sample_hz| specified(rates(&at(64, n_gen, 0), 0, 100.0, None), sample_hz);
        let model = model_of(vec![of(16, 3), of(32, 5), of(64, 3)]);
        let told: Vec<_> = rows(table(&model, "prefill_tps")).into_iter().map(|(cells, _, points)| (cells, points)).collect();
        assert_eq!(told, [(vec!["16, 64".to_owned()], vec![0, 2]), (vec!["32".to_owned()], vec![1])]);
        assert!(table(&model, "prefill_tps").independent_of.is_empty());

        // Unless what differs is a column by itself.
        let mut records = vec![of(16, 3), of(32, 3), of(64, 3)];
        records.iter_mut().zip([3, 5, 3]).for_each(|((_, record), iterations)| record.ids.identity.spec["iterations"] = json!(iterations));
        let model = model_of(records);
        let told: Vec<_> = rows(table(&model, "prefill_tps")).into_iter().map(|(cells, _, points)| (cells, points)).collect();
        assert_eq!(told, [(vec!["3".to_owned()], vec![0, 2]), (vec!["5".to_owned()], vec![1])]);

        let declared = |n_gen, supply: &str| {
            let (path, mut record) = of(n_gen, 3);
            record.device.conditions.insert("psu".into(), supply.into());
            (path, record)
        };
        let model = model_of(vec![declared(16, "27 W"), declared(32, "15 W")]);
        assert_eq!(table(&model, "prefill_tps").rows.len(), 2);

        let throttled = |n_gen| {
            let (path, mut record) = of(n_gen, 3);
            record.context.state = OperatingState { throttled: Some(n_gen > 16), ..OperatingState::default() };
            (path, record)
        };
        let model = model_of(vec![throttled(16), throttled(32), throttled(64)]);
        let runs: Vec<_> = table(&model, "prefill_tps").rows.iter().map(|row| row.number.as_ref().unwrap().runs).collect();
        assert_eq!(runs, [1, 2], "a state of its own, whichever point found it");
    }

    #[test]
    fn what_is_to_be_known_of_any_of_its_points_stands_in_their_row() {
        let records = vec![
            specified(rates(&at(64, 16, 0), 0, 100.0, None), 3),
            specified(rates(&at(64, 16, 0), 1, 100.0, None).failed(Reason::Oom, "x"), 3),
            specified(rates(&at(64, 32, 0), 0, 100.0, None).issue("competing_load", Severity::Warning, "busy"), 3),
            specified(rates(&at(64, 32, 0), 1, 100.0, None).epoch("later"), 3),
        ];
        let input = ReportInput { plan: Some(plan(&[at(64, 16, 0), at(64, 32, 0), at(64, 64, 0)], 2)), records, ..ReportInput::default() };
        let model = Model::of(&input, ReportOptions::default());
        let row = &table(&model, "prefill_tps").rows[0];
        let states: Vec<_> = row.states.iter().map(|state| (state.code, state.runs)).collect();
        let expected = [(Code::Failed, Some(1)), (Code::DegradedLeftOut, Some(1)), (Code::Missing, Some(2)), (Code::MixedEpochs, None)];
        assert_eq!((row.number.as_ref().unwrap().runs, states), (2, expected.to_vec()));
        assert_eq!(row.points().collect::<Vec<_>>(), [0, 1, 2], "a point without records is where its axes are");
        assert!(terminal(&model, None, false).contains("2 of 6"));
    }

    #[test]
    fn a_point_that_generates_nothing_has_no_row_in_a_table_of_decode() {
        let model = model_of(vec![specified(rates(&at(64, 0, 0), 0, 100.0, None), 3), specified(rates(&at(64, 16, 0), 0, 100.0, Some(10.0)), 3)]);
        assert_eq!(rows(table(&model, "decode_tps")), [(vec![], Some((10.0, 1)), vec![1])]);
        assert_eq!(rows(table(&model, "prefill_tps")), [(vec![], Some((100.0, 2)), vec![0, 1])]);
    }

    #[test]
    fn depth_and_metrics_that_depend_on_everything_are_not_pooled() {
        let with_rss = |n_gen, depth| {
            let run = rates(&at(64, n_gen, depth), 0, 100.0, None);
            specified(run.metric("peak_rss_bytes", Some(1e6), "bytes", "process_tree.peak_rss.v1", Better::Lower), 3)
        };
        let model = model_of(vec![with_rss(16, 0), with_rss(32, 0), with_rss(16, 128)]);
        assert_eq!(rows(table(&model, "prefill_tps")).len(), 2);
        assert_eq!(rows(table(&model, "peak_rss_bytes")).len(), 3);
    }
}
