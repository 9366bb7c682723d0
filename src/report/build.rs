//! From points and runs to the model.

use super::{
    axes::{Cell, Column, Constant, part},
    ceiling,
    counts::{Counts, Fate, Totals, count},
    escape::Foreign,
    findings::{epochs, findings, issue_counts, mixed_executed, mixed_libraries, short_identity},
    fit,
    gather::{Gathered, Point, Run, gather},
    input::{ReportInput, ReportOptions},
    join::{self, Joined},
    meter,
    model::{Bounds, Estimator, Model, Number, PointEntry, REPORT_VERSION, Row, State, Table},
    pool::{self, Pool, pools},
};
use crate::{
    config::model::Better,
    registry::{Code, MetricId},
    stats::{Centre, Summary},
    store::record::{Metric, OperatingState, Record, Status},
};
use std::collections::{BTreeMap, BTreeSet};

impl Model {
    /// Builds the report.
    #[must_use]
    pub fn of(input: &ReportInput, options: ReportOptions) -> Model {
        let gathered = gather(input);
        let joined = Joined::of(&gathered, options);
        let tables: Vec<Table> = metric_keys(&gathered.points, &joined).iter().map(|key| table(key, &gathered, &joined, options)).collect();
        let placed: BTreeSet<usize> = tables.iter().flat_map(|table| &table.rows).flat_map(Row::points).collect();
        Model {
            report_version: REPORT_VERSION,
            campaign: Foreign::new(&input.campaign),
            plan_known: input.plan.is_some(),
            include_degraded: options.include_degraded,
            totals: Totals::of(&gathered),
            axes: gathered
                .columns
                .iter()
                .filter(|column| column.is_beside() || matches!(column, Column::Axis(_)))
                .map(|column| column.name())
                .collect(),
            points: point_entries(&gathered),
            tables,
            without_table: (0..gathered.points.len()).filter(|index| !placed.contains(index)).collect(),
            findings: findings(&gathered),
        }
    }
}

fn point_entries(gathered: &Gathered<'_>) -> Vec<PointEntry> {
    let all: Vec<&Point<'_>> = gathered.points.iter().collect();
    let (varying, _) = part(&gathered.of_axes(), &all);
    // A report on one point still has to call it something.
    let varying = if varying.is_empty() { vec![Column::Device] } else { varying };
    gathered
        .points
        .iter()
        .map(|point| PointEntry {
            device: Foreign::new(&point.ids.device),
            backend: Foreign::new(&point.ids.backend),
            kind: point.kind,
            axes: point.ids.axes.iter().chain(&point.beside).map(|(name, value)| (Foreign::new(name), Cell::from(value))).collect(),
            label: point.label(&varying),
            identity: point.identity.map(Foreign::new),
            planned: point.planned,
            counts: Counts::of(point),
            issues: issue_counts(point),
        })
        .collect()
}

/// What numbers of one table have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
struct MetricKey<'a> {
    /// Place at which the name was first seen; keeps the order of the tools.
    name_place: usize,
    name: &'a str,
    definition: &'a str,
    unit: &'a str,
    lower_is_better: bool,
}

impl MetricKey<'_> {
    fn fits(&self, metric: &Metric) -> bool {
        metric.definition == self.definition && metric.unit == self.unit && (metric.better == Better::Lower) == self.lower_is_better
    }

    /// What a run has under this name, whatever its definition, and whether it fits.
    fn of_run<'r>(&self, joined: &'r Joined<'_>, point: usize, run: &'r Run<'_>) -> Option<(&'r Metric, bool)> {
        let named = joined.metrics(point, run).filter(|(name, _)| *name == self.name).map(|(_, metric)| (metric, self.fits(metric)));
        named.max_by_key(|(_, fits)| *fits)
    }
}

/// All tables that the runs call for, by first appearance of the metric's name. What a failed run still reported calls for none.
fn metric_keys<'a>(points: &'a [Point<'_>], joined: &'a Joined<'_>) -> Vec<MetricKey<'a>> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut keys = BTreeSet::new();
    let runs = points.iter().enumerate().flat_map(|(at, point)| point.runs.iter().map(move |run| (at, run)));
    for (at, run) in runs.filter(|(_, run)| run.record.status == Status::Ok) {
        for (name, metric) in joined.metrics(at, run) {
            let next = places.len();
            let name_place = *places.entry(name).or_insert(next);
            let lower_is_better = metric.better == Better::Lower;
            keys.insert(MetricKey { name_place, name, definition: &metric.definition, unit: &metric.unit, lower_is_better });
        }
    }
    keys.into_iter().collect()
}

/// Points of one make: those that have the same metrics, or would have them had they run.
fn make<'a>(point: &Point<'a>) -> (&'a str, crate::store::record::Kind, BTreeSet<&'a str>) {
    (&point.ids.backend, point.kind, point.ids.axes.keys().map(String::as_str).collect())
}

fn table(key: &MetricKey<'_>, gathered: &Gathered<'_>, joined: &Joined<'_>, options: ReportOptions) -> Table {
    let has_it = |at: usize, run: &Run<'_>| run.record.status == Status::Ok && key.of_run(joined, at, run).is_some_and(|(_, fits)| fits);
    let points = || gathered.points.iter().enumerate();
    let makes: BTreeSet<_> = points().filter(|(at, point)| point.runs.iter().any(|run| has_it(*at, run))).map(|(_, point)| make(point)).collect();
    let entry = pool::entry(key.name, key.definition);
    let asks = |point: &Point<'_>| entry.is_none_or(|entry| entry.is_asked_of(point.ids));
    let has_row = |at: usize, point: &Point<'_>| makes.contains(&make(point)) && joined.shows(at, key.definition) && asks(point);
    let members: Vec<usize> = points().filter(|(at, point)| has_row(*at, point)).map(|(at, _)| at).collect();
    let of_members: Vec<&Point<'_>> = members.iter().map(|&at| &gathered.points[at]).collect();
    // What follows from two runs is of neither kind.
    let candidates: Vec<Column<'_>> =
        gathered.columns.iter().copied().filter(|column| *column != Column::Kind || !join::is_joined(key.definition)).collect();
    let (mut columns, constants) = part(&candidates, &of_members);
    let free = entry.map_or(&[][..], |entry| entry.independent_of);
    let pools = pools(&gathered.points, &members, free);
    let of_pool = |pool: &Pool<'_>, columns: &[Column<'_>]| -> Vec<Option<Cell>> {
        let points = || pool.members.iter().map(|&at| &gathered.points[at]);
        columns.iter().map(|column| Cell::of(*column, points())).collect()
    };
    let needed: Vec<Column<'_>> = columns.iter().copied().filter(|column| !matches!(column, Column::Axis(name) if free.contains(name))).collect();
    // Where nothing else tells two rows apart, such an axis has to.
    let told = |pool: &Pool<'_>| format!("{:?}{:?}", of_pool(pool, &needed), (pool.point.orphan, pool.point.stale));
    let are_told_apart = pools.iter().map(told).collect::<BTreeSet<_>>().len() == pools.len();
    let mut left_out = Vec::new();
    if are_told_apart {
        let values = |column: &Column<'_>| Some(Constant { name: column.name(), value: Cell::of(*column, of_members.iter().copied())? });
        left_out.extend(columns.iter().filter(|column| !needed.contains(column)).filter_map(values));
        columns = needed;
    }
    let sheet = Sheet { key, joined, options };
    let rows: Vec<Row> = pools.iter().flat_map(|pool| rows(pool, of_pool(pool, &columns), &sheet)).collect();
    Table {
        metric: Foreign::new(key.name),
        unit: Foreign::new(key.unit),
        better: if key.lower_is_better { Better::Lower } else { Better::Higher },
        definition: Foreign::new(key.definition),
        constants,
        fits: fit::fits(key.definition, gathered, &rows),
        rows,
        columns: columns.iter().map(|column| column.name()).collect(),
        independent_of: left_out,
    }
}

/// What all rows of a table are made with.
#[derive(Clone, Copy)]
struct Sheet<'t> {
    key: &'t MetricKey<'t>,
    joined: &'t Joined<'t>,
    options: ReportOptions,
}

/// The rows of a point: one for each operating state that its runs found, and of an energy for each instrument, because numbers of different
/// ones are never averaged.
fn rows(pool: &Pool<'_>, cells: Vec<Option<Cell>>, sheet: &Sheet<'_>) -> Vec<Row> {
    let (point, options) = (&pool.point, sheet.options);
    let usable: Vec<&Run<'_>> = point
        .own_runs()
        .filter(|run| match run.fate() {
            Fate::Ok => true,
            Fate::Degraded => options.include_degraded,
            Fate::Invalid | Fate::Failed | Fate::Skipped => false,
        })
        .collect();
    let governors: BTreeSet<&String> = usable.iter().filter_map(|run| run.record.context.state.governor.as_ref()).collect();
    let instruments: BTreeSet<String> =
        usable.iter().filter(|_| meter::measures(sheet.key.definition)).filter_map(|run| meter::of_run(run)).collect();
    let mut by_state: BTreeMap<(String, Option<String>), Vec<&Run<'_>>> = BTreeMap::new();
    for run in usable {
        let instrument = meter::of_run(run).filter(|_| instruments.len() > 1);
        by_state.entry((operating_state(&run.record.context.state, governors.len() > 1), instrument)).or_default().push(run);
    }
    if by_state.is_empty() {
        return vec![row(pool, cells, sheet, &[], states(point, &Counts::of(point), options))];
    }
    let several = by_state.keys().map(|(state, _)| state).collect::<BTreeSet<_>>().len() > 1;
    let rows = by_state.into_iter().enumerate().map(|(place, ((state, _), runs))| {
        // What is to be known of the point as a whole stands in its first row.
        let mut states = if place == 0 { states(point, &Counts::of(point), options) } else { Vec::new() };
        if several || !state.is_empty() {
            let detail = Foreign::new(if state.is_empty() { "nominal".to_owned() } else { state });
            states.push(State { code: Code::OperatingState, runs: Some(count(runs.len())), detail: Some(detail) });
        }
        row(pool, cells.clone(), sheet, &runs, states)
    });
    rows.collect()
}

/// In words; empty where nothing holds the machine back. The governor counts where it tells runs apart.
pub(super) fn operating_state(state: &OperatingState, governor_tells: bool) -> String {
    let OperatingState { throttled, cgroup_throttled, on_battery, governor } = state;
    let held = [(throttled, "throttled"), (cgroup_throttled, "cgroup-throttled"), (on_battery, "on battery")];
    let words = held.iter().filter(|(is, _)| **is == Some(true)).map(|(_, word)| (*word).to_owned());
    let governor = governor_tells.then(|| format!("governor {}", governor.as_deref().unwrap_or("unknown")));
    words.chain(governor).collect::<Vec<_>>().join(", ")
}

/// One row, from these runs of its points.
fn row(pool: &Pool<'_>, cells: Vec<Option<Cell>>, sheet: &Sheet<'_>, usable: &[&Run<'_>], mut states: Vec<State>) -> Row {
    let Sheet { key, joined, options } = *sheet;
    let Pool { members, point } = pool;
    // Which of its metrics a run shows is the same for all of them: they are in one table.
    let index = members[0];
    let value_of = |run: &Run<'_>| {
        let (metric, _) = key.of_run(joined, index, run).filter(|(_, fits)| *fits)?;
        metric.value.filter(|value| value.is_finite())
    };
    let used: Vec<&Run<'_>> = usable.iter().copied().filter(|run| value_of(run).is_some()).collect();
    let values: Vec<f64> = used.iter().filter_map(|run| value_of(run)).collect();
    let degraded_used = count(used.iter().filter(|run| run.fate() == Fate::Degraded).count());
    let counts = Counts::of(point);
    let is_joined = join::is_joined(key.definition);
    let degraded_left_out = match is_joined {
        true => members.iter().map(|&at| joined.left_out(at)).sum(),
        false if options.include_degraded => 0,
        false => counts.degraded,
    };
    // One run that escaped the contamination of all others is not a point's number.
    let withheld = degraded_left_out > 0 && values.len() == 1;
    let apart = joined.withheld(members).filter(|_| is_joined);

    let number = Summary::of(&values).filter(|_| !withheld && apart.is_none()).map(|summary| number(&summary, degraded_used));
    let absent_reason = match &number {
        Some(_) => None,
        None if let Some(why) = apart => Some(Foreign::new(why)),
        None if withheld => {
            let (one, others) = if is_joined { ("repetition", "with a degraded run") } else { ("run", "degraded") };
            let s = if degraded_left_out == 1 { "" } else { "s" };
            Some(Foreign::new(format!("withheld: 1 valid {one} left, {degraded_left_out} {one}{s} {others}; --include degraded uses all")))
        }
        None if !values.is_empty() => Some(Foreign::new("too large for a mean")),
        None => Some(why_absent(pool, sheet, usable, &counts)),
    };
    let unused: Vec<&Run<'_>> = usable.iter().copied().filter(|run| value_of(run).is_none()).collect();
    if apart.is_some() {
        states.push(State { code: Code::RatesDiffer, runs: None, detail: None });
    } else if !unused.is_empty() {
        // Where no run has a value, the reason stands for itself.
        let detail = (!used.is_empty()).then(|| why_absent(pool, sheet, &unused, &counts));
        states.push(State { code: Code::WithoutValue, runs: Some(count(unused.len())), detail });
    }
    let unsteady = used.iter().filter(|run| key.of_run(joined, index, run).is_some_and(|(metric, _)| is_unsteady(run.record, metric))).count();
    if number.as_ref().is_some_and(spread_is_high) {
        states.push(State { code: Code::SpreadHigh, runs: None, detail: None });
    } else if unsteady > 0 {
        states.push(State { code: Code::SpreadHigh, runs: Some(count(unsteady)), detail: None });
    }
    let executed: Vec<&str> = mixed_executed(point, &used).into_iter().map(|(name, _)| name).collect();
    if !executed.is_empty() {
        states.push(State { code: Code::MixedExecuted, runs: None, detail: Some(Foreign::new(executed.join(", "))) });
    }
    let mut push = |condition, code| {
        if condition {
            states.push(State { code, runs: None, detail: None });
        }
    };
    push(withheld && apart.is_none(), Code::Withheld);
    push(number.as_ref().is_some_and(|number| number.estimator == Estimator::ArithmeticMean), Code::ArithmeticMean);
    let label = point.own_runs().find_map(|run| key.of_run(joined, index, run)?.0.label.as_ref()).map(Foreign::new);
    let instrument = meter::of_runs(&used).filter(|_| meter::measures(key.definition)).map(Foreign::new);
    let ceiling = number.as_ref().and_then(|number| ceiling::of_row(key.definition, number, &used));
    if ceiling.as_ref().and_then(|ceiling| ceiling.utilization_pct).is_some_and(|pct| pct > 100.0) {
        states.push(State { code: Code::CeilingTooLow, runs: None, detail: None });
    }
    Row { point: index, pooled: members[1..].to_vec(), cells, label, number, absent_reason, instrument, ceiling, states }
}

/// Derived figures are rounded to 12 significant digits: the last bits of `exp` and `ln` differ between C libraries.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.11e}").parse().unwrap_or(value)
}

fn number(summary: &Summary, degraded: u32) -> Number {
    Number {
        value: rounded(summary.headline),
        estimator: match summary.centre {
            Centre::Geometric => Estimator::GeometricMean,
            Centre::Arithmetic => Estimator::ArithmeticMean,
        },
        interval: summary.interval.map(|interval| Bounds { low: rounded(interval.low), high: rounded(interval.high) }),
        cov_pct: summary.cov.map(|cov| rounded(100.0 * cov)),
        range: Bounds { low: summary.min, high: summary.max },
        runs: count(summary.n),
        degraded,
    }
}

/// CoV of three or more values beyond which they don't agree, %.
const HIGH_SPREAD_PCT: f64 = 10.0;

/// Of two values, whose CoV is as uncertain as can be: where that of many is 10 %, it is above this in one of twenty pairs.
const HIGH_SPREAD_OF_TWO_PCT: f64 = 20.0;

/// More than 10 % among three or more run headlines, more than 20 % among two.
///
/// Where a backend has no rounds there is no other judgement on its steadiness.
fn spread_is_high(number: &Number) -> bool {
    let limit = if number.runs > 2 { HIGH_SPREAD_PCT } else { HIGH_SPREAD_OF_TWO_PCT };
    number.cov_pct.is_some_and(|cov| cov > limit)
}

/// More than 10 % among three or more samples of a run of llama.cpp, which has no rounds to be judged by. Requests that compete with each
/// other vary by what they are, and so do gaps between tokens.
fn is_unsteady(record: &Record, metric: &Metric) -> bool {
    let has_no_rounds = ["llama-bench", "llama-server"].contains(&record.ids.point.backend.as_str());
    let competes = record.requested.get("concurrency").and_then(serde_json::Value::as_u64).is_some_and(|clients| clients > 1);
    let is_gap = metric.definition == MetricId::Itl.entry().definition;
    let cov_pct = metric.spread.as_ref().and_then(|spread| spread.cov_pct);
    has_no_rounds && !competes && !is_gap && metric.n >= 3 && cov_pct.is_some_and(|cov| cov > HIGH_SPREAD_PCT)
}

/// Why a point has no number of this metric.
fn why_absent(pool: &Pool<'_>, sheet: &Sheet<'_>, usable: &[&Run<'_>], counts: &Counts) -> Foreign {
    let (Sheet { key, joined, .. }, Pool { members, point }) = (*sheet, pool);
    if point.runs.is_empty() {
        return Foreign::new("no record");
    }
    if usable.is_empty() {
        let parts = [
            (counts.degraded, "degraded"),
            (counts.invalid, "invalid"),
            (counts.failed, "failed"),
            (counts.skipped, "skipped"),
            (counts.missing, "missing"),
            (if point.orphan { 0 } else { counts.orphan }, "orphan"),
        ];
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
        return Foreign::new(format!("no valid run: {}", parts.join(", ")));
    }
    let mut reasons: Vec<String> = Vec::new();
    for run in usable {
        let reason = match key.of_run(joined, members[0], run) {
            None => "not reported".to_owned(),
            Some((metric, false)) => format!("reported as {} in {}", metric.definition, metric.unit),
            Some((Metric { value: Some(_), .. }, _)) => "not a finite number".to_owned(),
            Some((metric, _)) => metric.omitted_reason.clone().unwrap_or_else(|| "omitted without a reason in the record".to_owned()),
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    Foreign::new(reasons.join("; "))
}

/// What a reader must know about any number of this point.
fn states(point: &Point<'_>, counts: &Counts, options: ReportOptions) -> Vec<State> {
    let reasons = |fate: Fate| {
        let reasons: BTreeSet<&str> =
            point.own_runs().filter(|run| run.fate() == fate).filter_map(|run| run.record.reason).map(|reason| reason.name()).collect();
        (!reasons.is_empty()).then(|| Foreign::new(reasons.into_iter().collect::<Vec<_>>().join(", ")))
    };
    let identity = || point.identity.map(short_identity);
    let degraded = if options.include_degraded { Code::DegradedUsed } else { Code::DegradedLeftOut };
    let mut states = Vec::new();
    let mut runs = |n: u32, code, detail| {
        if n > 0 {
            states.push(State { code, runs: Some(n), detail });
        }
    };
    runs(counts.failed, Code::Failed, reasons(Fate::Failed));
    runs(counts.skipped, Code::Skipped, reasons(Fate::Skipped));
    runs(counts.invalid, Code::Invalid, None);
    let contaminated = (counts.contaminated > 0).then(|| Foreign::new(format!("{} contaminated", counts.contaminated)));
    runs(counts.degraded, degraded, contaminated);
    runs(counts.missing, Code::Missing, None);
    runs(if point.orphan { 0 } else { counts.orphan }, Code::OrphanLeftOut, None);
    let mut whole = |condition, code, detail| {
        if condition {
            states.push(State { code, runs: None, detail });
        }
    };
    whole(point.mixed, Code::MixedIdentity, identity());
    whole(!mixed_libraries(point).is_empty(), Code::MixedLibraries, None);
    whole(point.stale, Code::StaleIdentity, if point.mixed { None } else { identity() });
    whole(point.orphan, Code::Orphan, None);
    whole(epochs(point).len() > 1, Code::MixedEpochs, None);
    whole(!point.conditions.is_empty(), Code::Conditions, Some(Foreign::new(&point.conditions)));
    states
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{
        config::model::AxisValue,
        report::{
            model::Class,
            records::{self, plan, point, run},
        },
        store::record::{PointIds, Reason, Record, Severity, Validity},
    };

    fn threads(n: i64) -> PointIds {
        point(&[("threads", AxisValue::Int(n))])
    }

    fn model(records: Vec<(String, Record)>) -> Model {
        Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default())
    }

    fn number(model: &Model, table: usize, row: usize) -> &Number {
        model.tables[table].rows[row].number.as_ref().unwrap()
    }

    fn codes(row: &Row) -> Vec<Code> {
        row.states.iter().map(|state| state.code).collect()
    }

    fn noisy(run: records::Run) -> records::Run {
        run.issue("competing_load", Severity::Warning, "busy")
    }

    #[test]
    fn the_headline_is_the_geometric_mean_of_ok_and_valid_runs() {
        let point = threads(1);
        let model = model(vec![
            run(&point, 0).latency(4.0).stored(),
            run(&point, 1).latency(9.0).stored(),
            noisy(run(&point, 2).latency(1000.0)).stored(),
            run(&point, 3).latency(1000.0).issue("input_changed", Severity::Error, "x").stored(),
            run(&point, 4).latency(1000.0).failed(Reason::Timeout, "x").stored(),
        ]);
        let number = number(&model, 0, 0);
        assert_eq!((number.value, number.runs, number.estimator), (6.0, 2, Estimator::GeometricMean));
        assert_eq!(number.range, Bounds { low: 4.0, high: 9.0 });
        assert_eq!(codes(&model.tables[0].rows[0]), [Code::Failed, Code::Invalid, Code::DegradedLeftOut, Code::SpreadHigh]);
    }

    #[test]
    fn one_run_that_escaped_contamination_is_withheld() {
        let point = threads(1);
        let records = vec![run(&point, 0).latency(4.0).stored(), noisy(run(&point, 1).latency(9.0)).stored()];
        let input = ReportInput { records, ..ReportInput::default() };
        let row = &Model::of(&input, ReportOptions::default()).tables[0].rows[0];
        assert_eq!(row.number, None);
        assert_eq!(row.absent_reason, Some(Foreign::new("withheld: 1 valid run left, 1 run degraded; --include degraded uses all")));

        let all = Model::of(&input, ReportOptions { include_degraded: true });
        let number = number(&all, 0, 0);
        assert_eq!((number.value, number.runs, number.degraded), (6.0, 2, 1));
        assert_eq!(codes(&all.tables[0].rows[0]), [Code::DegradedUsed, Code::SpreadHigh]);
    }

    #[test]
    fn a_single_planned_run_has_a_number_without_interval_or_spread() {
        let model = model(vec![run(&threads(1), 0).latency(4.0).stored()]);
        let number = number(&model, 0, 0);
        assert_eq!((number.value, number.interval, number.cov_pct), (4.0, None, None));
    }

    #[test]
    fn a_value_without_a_log_makes_the_number_arithmetic_and_the_row_says_so() {
        let point = threads(1);
        let model = model(vec![run(&point, 0).latency(0.0).stored(), run(&point, 1).latency(5.0).stored()]);
        assert_eq!((number(&model, 0, 0).value, number(&model, 0, 0).estimator), (2.5, Estimator::ArithmeticMean));
        assert_eq!(codes(&model.tables[0].rows[0]), [Code::SpreadHigh, Code::ArithmeticMean]);
    }

    #[test]
    fn units_and_definitions_are_never_mixed() {
        let point = threads(1);
        let rate = |repetition, unit, definition| run(&point, repetition).metric("rate", Some(5.0), unit, definition, Better::Higher).stored();
        let model = model(vec![rate(0, "1/s", "a.v1"), rate(1, "1/s", "a.v2"), rate(2, "1/min", "a.v2"), rate(3, "1/s", "a.v1")]);
        let tables: Vec<_> = model.tables.iter().map(|table| (table.definition.terminal(), table.unit.terminal())).collect();
        let expected = [("a.v1", "1/s"), ("a.v2", "1/min"), ("a.v2", "1/s")];
        assert_eq!(tables, expected.map(|(definition, unit)| (definition.to_owned(), unit.to_owned())));
        assert_eq!(number(&model, 0, 0).runs, 2);
    }

    #[test]
    fn a_failed_point_has_a_row_in_the_tables_of_its_like() {
        let model = model(vec![run(&threads(1), 0).latency(4.0).stored(), run(&threads(2), 0).failed(Reason::Oom, "x").stored()]);
        let row = &model.tables[0].rows[1];
        assert_eq!(row.absent_reason, Some(Foreign::new("no valid run: 1 failed")));
        assert_eq!(row.states[0].detail, Some(Foreign::new("oom")));
        assert!(model.without_table.is_empty());
    }

    #[test]
    fn a_point_unlike_any_with_a_number_is_listed_apart() {
        let other = point(&[("mode", AxisValue::Bool(true))]);
        let model = model(vec![run(&threads(1), 0).latency(4.0).stored(), run(&other, 0).failed(Reason::Spawn, "x").stored()]);
        assert_eq!(model.tables[0].rows.len(), 1);
        assert_eq!(model.without_table.len(), 1);
        assert_eq!(model.findings[0].class, Class::Failed);
    }

    #[test]
    fn a_metric_without_values_shows_why() {
        let point = threads(1);
        let none = |repetition| run(&point, repetition).latency(4.0).metric("score", None, "points", "command.v1", Better::Higher).stored();
        let model = model(vec![none(0), none(1)]);
        let row = &model.tables[1].rows[0];
        assert_eq!((row.number.as_ref(), row.absent_reason.clone()), (None, Some(Foreign::new("the tool did not print it"))));
    }

    #[test]
    fn a_number_that_is_not_finite_is_not_used() {
        let point = threads(1);
        let model = model(vec![run(&point, 0).latency(f64::INFINITY).stored(), run(&point, 1).latency(4.0).stored()]);
        assert_eq!(number(&model, 0, 0).runs, 1);
        assert_eq!(codes(&model.tables[0].rows[0]), [Code::WithoutValue]);
    }

    #[test]
    fn a_planned_point_without_records_is_a_visible_hole() {
        let input = ReportInput {
            plan: Some(plan(&[threads(1), threads(2)], 2)),
            records: vec![run(&threads(1), 0).latency(4.0).stored(), run(&threads(1), 1).latency(5.0).stored()],
            ..ReportInput::default()
        };
        let model = Model::of(&input, ReportOptions::default());
        assert_eq!(codes(&model.tables[0].rows[1]), [Code::Missing]);
        assert_eq!(model.tables[0].rows[1].absent_reason, Some(Foreign::new("no record")));
        assert_eq!((model.findings[0].class, &model.findings[0].repetitions), (Class::Missing, &vec![0, 1]));
    }

    #[test]
    fn runs_of_several_epochs_are_noted() {
        let point = threads(1);
        let model = model(vec![run(&point, 0).latency(4.0).stored(), run(&point, 1).latency(5.0).epoch("later").stored()]);
        assert_eq!(codes(&model.tables[0].rows[0]), [Code::MixedEpochs]);
        assert_eq!(model.findings[0].code, Foreign::new("mixed_epochs"));
    }

    #[test]
    fn runs_that_other_things_computed_are_flagged() {
        let told = |point: &PointIds, executed: [&[(&str, &str)]; 2]| {
            let records = executed.iter().zip(0..).map(|(executed, repetition)| {
                let (path, mut record) = run(point, repetition).latency(4.0).stored();
                record.executed = executed.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
                (path, record)
            });
            model(records.collect())
        };
        let gpu: &[(&str, &str)] = &[("gpu_info", "NVIDIA A2"), ("backends", "CUDA")];
        let cpu: &[(&str, &str)] = &[("gpu_info", ""), ("backends", "CUDA")];
        let mixed = told(&threads(1), [gpu, cpu]);
        let state = &mixed.tables[0].rows[0].states[0];
        assert_eq!((state.code, state.detail.clone()), (Code::MixedExecuted, Some(Foreign::new("gpu_info"))));
        assert_eq!(mixed.findings[0].code, Foreign::new("mixed_executed"));
        assert_eq!(mixed.findings[0].entries[0].message, Some(Foreign::new("the tool says gpu_info \"NVIDIA A2\" and \"\"")));
        let codes = |point: &PointIds, executed| codes(&told(point, executed).tables[0].rows[0]);
        assert_eq!(codes(&threads(1), [gpu, gpu]), []);
        assert_eq!(codes(&threads(1), [gpu, &[]]), [], "a field that isn't there says nothing");
        let [two, four]: [&[(&str, &str)]; 2] = [&[("n_threads", "2")], &[("n_threads", "4")]];
        assert_eq!(codes(&point(&[]), [two, four]), [Code::MixedExecuted]);
        assert_eq!(codes(&threads(1), [two, four]), [], "told by the axis, and held against it in the record");
    }

    #[test]
    fn headlines_that_vary_too_much_are_flagged() {
        let point = threads(1);
        let values = |values: &[f64]| {
            let records = values.iter().zip(0..).map(|(value, repetition)| run(&point, repetition).latency(*value).stored());
            codes(&model(records.collect()).tables[0].rows[0])
        };
        assert_eq!(values(&[4.0, 5.0, 6.0]), [Code::SpreadHigh]);
        assert_eq!(values(&[4.0, 4.1, 4.2]), []);
        assert_eq!(values(&[4.0, 6.0]), [Code::SpreadHigh]);
        assert_eq!(values(&[4.0, 5.0]), []);
    }

    #[test]
    fn samples_of_a_run_of_llama_cpp_that_vary_by_more_than_ten_percent_are_flagged() {
        let flagged = |backend: &str, clients: u64, samples: &[f64]| {
            let point = PointIds { backend: backend.into(), ..threads(1) };
            let mut stored = run(&point, 0).latency(4.0).stored();
            let metric = &mut stored.1.metrics["latency_ms"];
            metric.n = samples.len() as u32;
            metric.spread = crate::backend::spread(samples, samples);
            stored.1.requested.insert("concurrency".into(), clients.into());
            let row = &model(vec![stored]).tables[0].rows[0];
            row.states.iter().find(|state| state.code == Code::SpreadHigh).map(|state| state.runs)
        };
        assert_eq!(flagged("llama-bench", 1, &[4.0, 5.0, 6.0]), Some(Some(1)));
        assert_eq!(flagged("llama-bench", 1, &[4.0, 6.0]), None);
        assert_eq!(flagged("llama-bench", 1, &[4.0, 4.1, 4.2]), None);
        assert_eq!(flagged("llama-server", 4, &[4.0, 5.0, 6.0]), None, "they compete");
        assert_eq!(flagged("builtin", 1, &[4.0, 5.0, 6.0]), None, "judged by its rounds");
    }

    #[test]
    fn a_validity_without_an_issue_is_still_found() {
        let (path, mut record) = run(&threads(1), 0).latency(4.0).stored();
        record.validity = Validity::Degraded;
        let model = model(vec![(path, record)]);
        assert_eq!((model.findings[0].class, model.findings[0].code.clone()), (Class::Degraded, Foreign::new("unexplained")));
    }

    #[test]
    fn issues_are_counted_once_per_run_worst_first() {
        let point = threads(1);
        let twice = noisy(noisy(run(&point, 0).latency(4.0).issue("swap_in_use", Severity::Note, "x"))).stored();
        let model = model(vec![twice, noisy(run(&point, 1).latency(4.0)).stored()]);
        let issues: Vec<_> = model.points[0].issues.iter().map(|issue| (issue.code.terminal(), issue.runs)).collect();
        assert_eq!(issues, [("competing_load".to_owned(), 2), ("swap_in_use".to_owned(), 1)]);
    }

    #[test]
    fn runs_of_different_operating_states_are_different_rows() {
        let point = threads(1);
        let in_state = |repetition: u32, latency: f64, state: OperatingState| {
            let (path, mut record) = run(&point, repetition).latency(latency).stored();
            record.context.state = state;
            (path, record)
        };
        let hot = || OperatingState { throttled: Some(true), ..OperatingState::default() };
        let cool = || OperatingState { throttled: Some(false), ..OperatingState::default() };
        let records = (0..4).map(|r| in_state(r, 4.0, cool())).chain((4..6).map(|r| in_state(r, 9.0, hot()))).collect();
        let table = &model(records).tables[0];
        let told: Vec<_> = table.rows.iter().map(|row| (row.number.as_ref().unwrap().value, row.number.as_ref().unwrap().runs)).collect();
        assert_eq!(told, [(4.0, 4), (9.0, 2)]);
        let detail = |row: &Row| row.states[0].detail.clone().unwrap();
        assert_eq!((detail(&table.rows[0]), detail(&table.rows[1])), (Foreign::new("nominal"), Foreign::new("throttled")));
        // All of one state: one row, which says so.
        let table = &model((0..2).map(|r| in_state(r, 9.0, hot())).collect()).tables[0];
        assert_eq!((table.rows.len(), codes(&table.rows[0])), (1, vec![Code::OperatingState]));
        // What can't be told is not another state, and a governor is one only where it changes.
        let unknown = |r| in_state(r, 4.0, OperatingState::default());
        assert_eq!(model(vec![unknown(0), in_state(1, 4.0, cool())]).tables[0].rows.len(), 1);
        let governed = |r, governor: &str| in_state(r, 4.0, OperatingState { governor: Some(governor.into()), ..cool() });
        assert_eq!(codes(&model(vec![governed(0, "powersave"), governed(1, "powersave")]).tables[0].rows[0]), []);
        assert_eq!(model(vec![governed(0, "powersave"), governed(1, "performance")]).tables[0].rows.len(), 2);
    }

    #[test]
    fn derived_figures_have_twelve_significant_digits() {
        assert_eq!(rounded(12.000_000_000_000_002), 12.0);
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(rounded(1.0 / 3.0), 0.333_333_333_333);
    }
}
