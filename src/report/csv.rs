//! For spreadsheets and scripts: one line per point and metric, every axis a column.

use super::{
    counts::Counts,
    escape::Foreign,
    model::{Model, PointEntry, Table},
};
use crate::{config::model::Better, store::record::Severity};
use std::{cmp::Reverse, collections::BTreeMap};

const BEFORE_AXES: [&str; 8] = ["campaign", "metric", "unit", "better", "definition", "device", "backend", "kind"];
const AFTER_AXES: [&str; 23] = [
    "point_identity",
    "value",
    "estimator",
    "interval_95_low",
    "interval_95_high",
    "cov_pct",
    "min",
    "max",
    "runs_used",
    "degraded_used",
    "runs_planned",
    "ok",
    "degraded",
    "invalid",
    "failed",
    "skipped",
    "missing",
    "orphan",
    "earlier_attempts",
    "states",
    "issues",
    "absent_reason",
    "degraded_included",
];

const OF_FITS: [&str; 2] = ["fit_gb_s", "fit_r_squared"];
const OF_CEILINGS: [&str; 3] = ["ceiling", "ceiling_source", "utilization_pct"];

/// Prints the report. Absent is an empty field; where a number is absent, `absent_reason` says why.
///
/// Axis columns are named `axis.NAME`, so that an axis can't hide another column. Text that a spreadsheet would take for a formula has a `'`
/// in front. What differs between the points of a line, because its metric doesn't depend on it, stands in one field with `;` between.
#[must_use]
pub fn csv(model: &Model) -> String {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let mut lines: Vec<Vec<String>> = vec![header(model)];
    for table in &model.tables {
        lines.extend(table.rows.iter().enumerate().map(|(at, row)| line(model, &model.points_of(row).collect::<Vec<_>>(), Some((table, at)))));
    }
    lines.extend(model.without_table.iter().filter_map(|index| Some(line(model, &[model.points.get(*index)?], None))));
    for line in lines {
        writer.write_record(&line).expect("writing to memory doesn't fail, and all lines are as long as the header");
    }
    let bytes = writer.into_inner().expect("writing to memory doesn't fail");
    String::from_utf8(bytes).expect("fields are text")
}

fn header(model: &Model) -> Vec<String> {
    let mut header: Vec<String> = BEFORE_AXES.map(str::to_owned).to_vec();
    header.extend(model.axes.iter().map(|axis| format!("axis.{}", axis.csv())));
    header.extend(AFTER_AXES.map(str::to_owned));
    header.extend(has_instruments(model).then(|| "instrument".to_owned()));
    header.extend(has_ceilings(model).then_some(OF_CEILINGS).into_iter().flatten().map(str::to_owned));
    header.extend(has_labels(model).then(|| "label".to_owned()));
    header.extend(has_fits(model).then_some(OF_FITS).into_iter().flatten().map(str::to_owned));
    header
}

/// Has any number a name of its tool's? Only then there is a column for it.
fn has_labels(model: &Model) -> bool {
    model.tables.iter().flat_map(|table| &table.rows).any(|row| row.label.is_some())
}

/// Do rates of decode say anything of the memory? Only then there are columns for it.
fn has_fits(model: &Model) -> bool {
    model.tables.iter().any(|table| !table.fits.is_empty())
}

/// Is anything held against a ceiling? Only then there are columns for it.
fn has_ceilings(model: &Model) -> bool {
    model.tables.iter().flat_map(|table| &table.rows).any(|row| row.ceiling.is_some())
}

/// Was energy measured? Only then there is a column for by what.
fn has_instruments(model: &Model) -> bool {
    model.tables.iter().flat_map(|table| &table.rows).any(|row| row.instrument.is_some())
}

/// `points`: whose runs are in it, one or more.
fn line(model: &Model, points: &[&PointEntry], place: Option<(&Table, usize)>) -> Vec<String> {
    let first = points[0];
    let row = place.and_then(|(table, at)| table.rows.get(at));
    let number = row.and_then(|row| row.number.as_ref());
    let mut line = vec![model.campaign.csv()];
    line.extend(match place {
        Some((table, _)) => {
            let better = if table.better == Better::Lower { "lower" } else { "higher" };
            [table.metric.csv(), table.unit.csv(), better.to_owned(), table.definition.csv()]
        }
        None => [(); 4].map(|()| String::new()),
    });
    line.extend([first.device.csv(), first.backend.csv(), first.kind.name().to_owned()]);
    line.extend(model.axes.iter().map(|axis| distinct(points, |point| point.axes.get(axis).map(|cell| cell.text(Foreign::csv)))));
    line.push(distinct(points, |point| point.identity.as_ref().map(Foreign::csv)));
    line.push(optional(number.map(|number| number.value)));
    line.push(optional(number.map(|number| number.estimator.name())));
    let interval = number.and_then(|number| number.interval);
    line.push(optional(interval.map(|interval| interval.low)));
    line.push(optional(interval.map(|interval| interval.high)));
    line.push(optional(number.and_then(|number| number.cov_pct)));
    line.push(optional(number.map(|number| number.range.low)));
    line.push(optional(number.map(|number| number.range.high)));
    line.push(number.map_or(0, |number| number.runs).to_string());
    line.push(number.map_or(0, |number| number.degraded).to_string());
    line.push(optional(points.iter().map(|point| point.planned).sum::<Option<u32>>()));
    let mut counts = Counts::default();
    points.iter().for_each(|point| counts += point.counts);
    let Counts { ok, degraded, contaminated: _, invalid, failed, skipped, missing, orphan, earlier_attempts } = counts;
    // Without a plan neither holes nor orphans can be known, and unknown is not 0.
    let by_plan = |n: u32| optional(model.plan_known.then_some(n));
    line.extend([ok, degraded, invalid, failed, skipped].map(|n| n.to_string()));
    line.extend([by_plan(missing), by_plan(orphan), earlier_attempts.to_string()]);
    let mut issues: BTreeMap<(Reverse<Severity>, &Foreign), u32> = BTreeMap::new();
    for issue in points.iter().flat_map(|point| &point.issues) {
        *issues.entry((Reverse(issue.severity), &issue.code)).or_default() += issue.runs;
    }
    let issues: Vec<String> = issues.into_iter().map(|((_, code), runs)| format!("{}:{runs}", code.csv())).collect();
    line.push(optional(row.map(|row| super::layout::states_text(&row.states, Foreign::csv))));
    line.push(issues.join(";"));
    let absent = match row {
        Some(row) => row.absent_reason.as_ref().map(Foreign::csv),
        None => Some("no run reports any metric".to_owned()),
    };
    line.push(optional(absent));
    line.push(model.include_degraded.to_string());
    let instrument = || optional(row.and_then(|row| row.instrument.as_ref()).map(Foreign::csv));
    line.extend(has_instruments(model).then(instrument));
    let ceiling = row.and_then(|row| row.ceiling.as_ref());
    let of_ceiling = || {
        let value = optional(ceiling.map(|ceiling| ceiling.value));
        [value, optional(ceiling.map(|ceiling| ceiling.source.csv())), optional(ceiling.and_then(|ceiling| ceiling.utilization_pct))]
    };
    line.extend(has_ceilings(model).then(of_ceiling).into_iter().flatten());
    line.extend(has_labels(model).then(|| optional(row.and_then(|row| row.label.as_ref()).map(Foreign::csv))));
    let fit = place.and_then(|(table, at)| table.fits.iter().find(|fit| fit.points.iter().any(|point| point.row == at)));
    let of_fit = || [optional(fit.map(|fit| fit.gb_s)), optional(fit.and_then(|fit| fit.r_squared))];
    line.extend(has_fits(model).then(of_fit).into_iter().flatten());
    line
}

/// What these points have, each value once; empty where none of them has any.
fn distinct(points: &[&PointEntry], value: impl Fn(&PointEntry) -> Option<String>) -> String {
    let mut values: Vec<String> = Vec::new();
    for value in points.iter().filter_map(|point| value(point)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.join(";")
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}
