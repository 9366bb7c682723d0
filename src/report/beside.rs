//! What a campaign's blocks say beside their axes: variables, arguments, how often something is done. Where points of a backend differ in
//! it, it is shown as if it were an axis.
//!
//! Takes points and what the identities in their records say of them; must not know how a table is made.

use super::{
    axes::Column,
    gather::{Point, Run},
};
use crate::{config::model::AxisValue, store::record::Record};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Of an identity's `spec`, and what they are called as columns.
const SETTINGS: [(&str, &str); 4] =
    [("warmup", "block.warmup"), ("rounds", "block.rounds"), ("iterations", "block.iterations"), ("prepare", "block.prepare")];
const ARGV: &str = "block.argv";

/// What the record of a point says of it.
struct Said<'a> {
    settings: BTreeMap<&'static str, AxisValue>,
    env: BTreeMap<&'a str, String>,
    argv: Vec<&'a str>,
    /// `argv` without the options that are axes of some point.
    rest: Vec<&'a str>,
    /// What placeholders stand for: axes, the device, the model.
    filled: BTreeMap<&'a str, String>,
}

/// Fill in what each point has beside its axes of what is a column; gives the columns that `axes`, those of the points' axes, lack.
pub(super) fn tell<'a>(points: &mut [Point<'a>], axes: &[Column<'a>]) -> Vec<Column<'a>> {
    let names: BTreeSet<&str> = axes.iter().filter_map(|column| if let Column::Axis(name) = column { Some(*name) } else { None }).collect();
    let options: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("flags.")).collect();
    let said: Vec<Option<Said<'a>>> = points.iter().map(|point| Some(said(point, point.own_runs().next()?, &options))).collect();
    // What two points may differ in is known where they are of one backend; each is held against the first.
    let mut first: BTreeMap<&str, &Said<'a>> = BTreeMap::new();
    let mut columns: BTreeSet<Column<'a>> = BTreeSet::new();
    for (point, of) in points.iter().zip(&said).filter_map(|(point, said)| Some((point, said.as_ref()?))) {
        let other = *first.entry(&point.ids.backend).or_insert(of);
        columns
            .extend(SETTINGS.map(|(_, name)| name).into_iter().filter(|name| of.settings.get(name) != other.settings.get(name)).map(Column::Block));
        let variables = of.env.keys().chain(other.env.keys()).copied().filter(|name| of.env.get(name) != other.env.get(name));
        let differs = |name: &&str| !of.env.get(name).zip(other.env.get(name)).is_some_and(|(a, b)| of.is_alike(other, &[a], &[b]));
        columns.extend(variables.filter(differs).map(Column::Env));
        columns.extend((!of.is_alike(other, &of.rest, &other.rest)).then_some(Column::Block(ARGV)));
    }
    columns.retain(|column| match column {
        Column::Env(name) => !names.contains(format!("env.{name}").as_str()),
        Column::Block(name) => !names.contains(name),
        Column::Device | Column::Backend | Column::Kind | Column::Axis(_) => false,
    });
    for (point, said) in points.iter_mut().zip(said).filter_map(|(point, said)| Some((point, said?))) {
        let of_axes = names.iter().filter_map(|name| Some(((*name).to_owned(), said.named(name, &said.argv)?)));
        let of_others = columns.iter().map(|column| column.text()).filter_map(|name| Some((name.clone(), said.named(&name, &said.rest)?)));
        point.beside = of_axes.chain(of_others).filter(|(name, _)| !point.ids.axes.contains_key(name)).collect();
    }
    columns.into_iter().collect()
}

fn said<'a>(point: &Point<'a>, run: &Run<'a>, options: &[&str]) -> Said<'a> {
    let record: &'a Record = run.record;
    let spec = &record.ids.identity.spec;
    let argv: Vec<&str> = ["argv", "flags"].iter().filter_map(|name| spec[*name].as_array()).flatten().filter_map(Value::as_str).collect();
    let mut filled: BTreeMap<&str, String> = point.ids.axes.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect();
    filled.insert("device.id", point.ids.device.clone());
    if let Some(model) = &record.workload.model {
        filled.insert("model.path", model.path.clone());
        filled.extend(model.quantization.clone().map(|quantization| ("model.quantization", quantization)));
    }
    Said {
        settings: SETTINGS.into_iter().filter_map(|(field, name)| Some((name, setting(spec.get(field)?)?))).collect(),
        env: spec["env"].as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), text(value))).collect(),
        rest: without(&argv, options),
        argv,
        filled,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A number, or steps with how each is done.
fn setting(value: &Value) -> Option<AxisValue> {
    match value {
        Value::Object(steps) => {
            let steps: Vec<String> = steps.iter().map(|(step, how)| format!("{step}={}", text(how))).collect();
            Some(AxisValue::Text(steps.join(" ")))
        }
        other => other.as_i64().map(AxisValue::Int),
    }
}

impl Said<'_> {
    /// What is called so, as an axis would have it; `None` where it isn't there.
    fn named(&self, name: &str, argv: &[&str]) -> Option<AxisValue> {
        match name.split_once('.') {
            Some(("env", variable)) => self.env.get(variable).cloned().map(AxisValue::Text),
            Some(("flags", option)) => value_of(&self.argv, option),
            _ if name == ARGV && !argv.is_empty() => Some(AxisValue::Text(argv.join(" "))),
            _ => self.settings.get(name).cloned(),
        }
    }

    /// Are these texts the same but for what placeholders may have been replaced by?
    fn is_alike<T: AsRef<str>>(&self, other: &Said<'_>, own: &[T], others: &[T]) -> bool {
        let differing = self.filled.iter().filter_map(|(name, value)| Some((name, value, other.filled.get(name)?)));
        let differing: Vec<_> = differing.filter(|(_, a, b)| a != b && !a.is_empty() && !b.is_empty()).collect();
        // Files lie elsewhere on another device, and so do those of another build or model.
        let lie_elsewhere = differing.iter().any(|(name, ..)| ["device.id", "build", "model"].contains(name));
        let mut pairs: Vec<(&str, &str)> = differing.iter().map(|(_, a, b)| (a.as_str(), b.as_str())).collect();
        pairs.sort_by_key(|(a, _)| std::cmp::Reverse(a.len()));
        let is_alike = |(a, b): (&T, &T)| {
            let (a, b) = (a.as_ref(), b.as_ref());
            a == b || lie_elsewhere && a.contains('/') && b.contains('/') || is_replaced(a, b, &pairs)
        };
        own.len() == others.len() && own.iter().zip(others).all(is_alike)
    }
}

/// Does the one text become the other where the first of each pair is replaced by the second?
fn is_replaced(mut a: &str, mut b: &str, pairs: &[(&str, &str)]) -> bool {
    loop {
        if let Some((x, y)) = pairs.iter().find(|(x, y)| a.starts_with(x) && b.starts_with(y)) {
            (a, b) = (&a[x.len()..], &b[y.len()..]);
            continue;
        }
        let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else { return a.is_empty() && b.is_empty() };
        if x != y {
            return false;
        }
        (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
    }
}

/// Is it the value of the option before it? A negative number is one.
fn is_value(word: &str) -> bool {
    word.strip_prefix('-').is_none_or(|rest| rest.starts_with(|char: char| char.is_ascii_digit()))
}

/// Without these options and their values.
fn without<'a>(argv: &[&'a str], options: &[&str]) -> Vec<&'a str> {
    let is_of = |at: usize| options.contains(&argv[at]) || at > 0 && options.contains(&argv[at - 1]) && is_value(argv[at]);
    (0..argv.len()).filter(|at| !is_of(*at)).map(|at| argv[at]).collect()
}

fn value_of(argv: &[&str], option: &str) -> Option<AxisValue> {
    let values = (0..argv.len()).filter(|at| argv[*at] == option).map(|at| argv.get(at + 1).filter(|word| is_value(word)));
    let values: Vec<Option<&&str>> = values.collect();
    match values.as_slice() {
        [] => None,
        [None] => Some(AxisValue::Bool(true)),
        [Some(value)] => Some(value.parse().map_or_else(|_| AxisValue::Text((**value).to_owned()), AxisValue::Int)),
        several => Some(AxisValue::List(several.iter().flatten().map(|value| (**value).to_owned()).collect())),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::config::model::{AxisValue, Better};
    use crate::report::{
        Foreign, Model, ReportInput, ReportOptions, csv, markdown,
        records::{self, point, run, text},
        terminal,
    };
    use crate::store::record::{PointIds, Record};
    use serde_json::{Value, json};

    fn ids(axes: &[(&str, AxisValue)]) -> PointIds {
        PointIds { backend: "llama-bench".into(), ..point(axes) }
    }

    fn threads(n: i64) -> PointIds {
        ids(&[("threads", AxisValue::Int(n))])
    }

    /// A run of the point, by this spec.
    fn by(ids: &PointIds, spec: Value) -> (String, Record) {
        let (path, mut record) = run(ids, 0).metric("decode_tps", Some(5.0), "tokens/s", "llama_bench.tg.v1", Better::Higher).stored();
        record.ids.identity.spec = spec;
        (path, record)
    }

    fn model(records: Vec<(String, Record)>) -> Model {
        Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default())
    }

    /// Columns of the table, and the cells of each row.
    fn shown(model: &Model) -> (Vec<String>, Vec<Vec<String>>) {
        let table = &model.tables[0];
        let cell = |cell: &Option<crate::report::Cell>| cell.as_ref().map_or_else(|| "—".to_owned(), |cell| cell.text(Foreign::terminal));
        let cells = table.rows.iter().map(|row| row.cells.iter().map(cell).collect()).collect();
        (table.columns.iter().map(Foreign::terminal).collect(), cells)
    }

    fn expected(columns: &[&str], rows: &[&[&str]]) -> (Vec<String>, Vec<Vec<String>>) {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        (texts(columns), rows.iter().map(|row| texts(row)).collect())
    }

    #[test]
    fn what_constants_of_two_blocks_differ_in_is_a_column_whatever_their_axes() {
        let model = model(vec![
            by(&threads(1), json!({ "flags": ["-fa", "on"], "iterations": 3, "warmup": 0, "env": { "A": "1" } })),
            by(&threads(2), json!({ "flags": ["-fa", "off", "-ctk", "bf16"], "iterations": 5, "warmup": 0, "env": { "A": "1", "B": "2" } })),
        ]);
        let rows: [&[&str]; 2] = [&["1", "—", "-fa on", "3"], &["2", "2", "-fa off -ctk bf16", "5"]];
        assert_eq!(shown(&model), expected(&["threads", "env.B", "block.argv", "block.iterations"], &rows));
        assert!(terminal(&model, None, false).contains("— in the column of an axis: the point doesn't have it\n"));
        assert!(markdown(&model).contains("block.argv"));
        let sheet = csv(&model);
        assert!(sheet.lines().next().unwrap().contains("axis.threads,axis.env.B,axis.block.argv,axis.block.iterations"), "{sheet}");
        // What is the same in all rows stays unsaid.
        assert!(model.tables[0].constants.iter().all(|constant| !constant.name.terminal().starts_with("block.")));
    }

    #[test]
    fn a_point_that_has_as_a_constant_what_others_have_as_an_axis_shows_it() {
        let of = |axes: &[(&str, AxisValue)], flags: &[&str], iterations: u32| {
            by(&ids(axes), json!({ "flags": flags, "iterations": iterations, "env": { "A": "1" } }))
        };
        let model = model(vec![
            of(&[("threads", AxisValue::Int(1))], &["-ngl", "0", "-v"], 3),
            of(&[("threads", AxisValue::Int(2)), ("flags.-ngl", AxisValue::Int(99)), ("flags.-v", AxisValue::Bool(true))], &["-ngl", "99", "-v"], 3),
            of(&[("threads", AxisValue::Int(3)), ("block.iterations", AxisValue::Int(5)), ("env.A", text("1"))], &[], 5),
        ]);
        let columns = ["threads", "block.iterations", "flags.-ngl", "flags.-v"];
        let rows: [&[&str]; 3] = [&["1", "3", "0", "true"], &["2", "3", "99", "true"], &["3", "5", "—", "—"]];
        assert_eq!(shown(&model), expected(&columns, &rows));
    }

    #[test]
    fn what_placeholders_make_of_one_text_is_no_difference() {
        let of = |threads: i64, model: &str, argv: &[&str]| {
            let ids = ids(&[("threads", AxisValue::Int(threads)), ("model", text(model))]);
            by(&ids, json!({ "argv": argv, "env": { "N": format!("n{threads}") } }))
        };
        let columns = |records| shown(&model(records)).0;
        let first = || of(1, "a", &["run1", "-t1", "/m/a.gguf"]);
        assert_eq!(columns(vec![first(), of(16, "b", &["run1", "-t16", "/m/b.gguf"])]), ["threads", "model"]);
        assert_eq!(columns(vec![first(), of(16, "b", &["run1", "-t8", "/m/b.gguf"])]), ["threads", "model", "block.argv"]);
        assert_eq!(columns(vec![first(), of(1, "a", &["run1", "-t1", "/m/a.gguf"])]), Vec::<String>::new());
    }

    #[test]
    fn of_a_point_without_runs_is_not_said_that_it_lacks_what_no_record_tells() {
        let records = vec![by(&threads(1), json!({ "iterations": 3 })), by(&threads(2), json!({ "iterations": 5 }))];
        let plan = records::plan(&[threads(1), threads(2), threads(4)], 1);
        let model = Model::of(&ReportInput { plan: Some(plan), records, ..ReportInput::default() }, ReportOptions::default());
        assert_eq!(shown(&model).1[2], ["4", "—"]);
        let said = "— in the column of an axis: the point doesn't have it, or has no run that tells";
        assert!(terminal(&model, None, false).contains(said), "{}", terminal(&model, None, false));
    }
}
