//! A printed page before it is printed: the same parts for terminal and Markdown, with all foreign text already escaped for one of them.

use super::{
    axes::{Cell, Constant},
    counts::Totals,
    digits::{Digits, percent},
    escape::Foreign,
    findings::repetitions_text,
    model::{AgainstCeiling, Bounds, Class, Entry, Finding, Fit, Model, Number, Row, State, Table},
};
use crate::config::model::Better;
use crate::registry::{Code, Severity};
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// Absent; the reason stands in a line below.
pub(super) const ABSENT: &str = "—";

/// How serious a part is; decides its colour, never its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

pub(super) enum Part {
    Title(String),
    Section(String, Tone),
    Line(String),
    /// A line that stands apart.
    Remark(String),
    Grid(Grid),
    /// A head and the lines that belong to it.
    Item(String, Vec<String>),
    /// What to do about the items above.
    Hint(String),
}

/// The column between the interval and the number of runs.
const RANGE: &str = "range";

/// A table. Every row is as long as the header; the first column is the mark.
pub(super) struct Grid {
    pub header: Vec<String>,
    pub align_right: Vec<bool>,
    pub rows: Vec<(Tone, Vec<String>)>,
    /// The column that a narrow terminal can do without.
    pub expendable: Option<usize>,
}

impl Grid {
    /// The same without a column.
    pub fn without(&self, column: usize) -> Grid {
        fn others<T: Clone>(all: &[T], column: usize) -> Vec<T> {
            all.iter().enumerate().filter(|(index, _)| *index != column).map(|(_, one)| one.clone()).collect()
        }
        Grid {
            header: others(&self.header, column),
            align_right: others(&self.align_right, column),
            rows: self.rows.iter().map(|(tone, texts)| (*tone, others(texts, column))).collect(),
            expendable: None,
        }
    }
}

pub(super) type Escape = fn(&Foreign) -> String;

/// The pages of a report.
pub(super) fn report(model: &Model, escape: Escape) -> Vec<Part> {
    let mut parts = vec![Part::Title(format!("Report on {}", escape(&model.campaign)))];
    parts.extend(totals_lines(&model.totals).into_iter().map(Part::Line));
    if model.include_degraded {
        parts.push(Part::Line("Degraded runs are in the numbers (--include degraded).".to_owned()));
    }
    for table in &model.tables {
        table_parts(model, table, escape, &mut parts);
    }
    if !model.tables.is_empty() {
        let text = "Number: geometric mean of run headlines. 95 %: t interval on their logs. CoV (ddof 1) and range: of run headlines. \
                    n: runs used of planned. —: absent; the reason stands below the table or among the findings.";
        parts.push(Part::Remark(text.to_owned()));
    }
    if !model.without_table.is_empty() {
        parts.push(Part::Section("Points without any number".to_owned(), Tone::Warning));
        parts.extend(model.without_table.iter().map(|&index| Part::Item(point_label(model, index, escape), Vec::new())));
    }
    for findings in model.findings.chunk_by(|left, right| left.class == right.class) {
        parts.extend(findings.first().map(|first| Part::Section(first.class.heading().to_owned(), tone_of(first.class))));
        parts.extend(findings.iter().map(|finding| finding_part(model, finding, escape)));
        parts.extend(hint_parts(findings, escape));
    }
    parts
}

/// What was planned and what became of it.
pub(super) fn totals_lines(totals: &Totals) -> Vec<String> {
    let runs = &totals.runs;
    let some = |parts: &[(u32, &str)]| {
        let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, words)| format!("{n} {words}")).collect();
        (!parts.is_empty()).then(|| parts.join(" · "))
    };
    let mut fates = format!("{} ok", runs.ok);
    let contaminated = format!("degraded ({} contaminated)", runs.contaminated);
    let others = [
        (runs.degraded, if runs.contaminated > 0 { &contaminated } else { "degraded" }),
        (runs.invalid, "invalid"),
        (runs.failed, "failed"),
        (runs.skipped, "skipped"),
        (runs.missing, "missing"),
    ];
    if let Some(others) = some(&others) {
        fates = format!("{fates} · {others}");
    }
    let mut lines = match totals.planned_runs {
        Some(planned) => vec![format!("{planned} {} planned: {fates}", if planned == 1 { "run" } else { "runs" })],
        None => {
            let recorded = runs.ok + runs.degraded + runs.invalid + runs.failed + runs.skipped;
            vec![format!("{recorded} runs recorded: {fates}"), "No plan.json: what is missing or not wanted can't be known.".to_owned()]
        }
    };
    let plural = |n: u32, one, many| (n, if n == 1 { one } else { many });
    let beside = [
        (runs.orphan, "outside the plan"),
        (totals.stale, "of a stale identity"),
        plural(runs.earlier_attempts, "earlier attempt", "earlier attempts"),
        plural(totals.duplicates, "duplicate", "duplicates"),
        plural(totals.broken, "broken file", "broken files"),
    ];
    lines.extend(some(&beside).map(|beside| format!("Beside these: {beside}")));
    lines
}

fn tone_of(class: Class) -> Tone {
    match class.code().map(|code| code.entry().severity) {
        Some(Severity::Error) => Tone::Bad,
        Some(Severity::Warning) => Tone::Warning,
        Some(Severity::Note) | None => Tone::Plain,
    }
}

/// A cell, with a text without characters made visible.
pub(super) fn cell_text(cell: Option<&Cell>, escape: Escape) -> String {
    match cell {
        None => ABSENT.to_owned(),
        Some(cell) => Some(cell.text(escape)).filter(|text| !text.is_empty()).unwrap_or_else(|| "\"\"".to_owned()),
    }
}

/// `name=value, name=value`.
pub(super) fn constants_text(constants: &[Constant], escape: Escape) -> String {
    let texts: Vec<String> =
        constants.iter().map(|constant| format!("{}={}", escape(&constant.name), cell_text(Some(&constant.value), escape))).collect();
    texts.join(", ")
}

fn point_label(model: &Model, index: usize, escape: Escape) -> String {
    model.points.get(index).map_or_else(String::new, |point| constants_text(&point.label, escape))
}

fn table_parts(model: &Model, table: &Table, escape: Escape, parts: &mut Vec<Part>) {
    let better = match table.better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    };
    let (metric, unit) = (escape(&table.metric), escape(&table.unit));
    // A ratio is a number alone: "in 1" says nothing.
    let is_plain = unit == "1";
    let in_unit = if is_plain { String::new() } else { format!(" in {unit}") };
    parts.push(Part::Section(format!("{metric}{in_unit} ({better} is better), definition {}", escape(&table.definition)), Tone::Plain));
    if !table.constants.is_empty() {
        parts.push(Part::Line(format!("constant: {}", constants_text(&table.constants, escape))));
    }
    if !table.independent_of.is_empty() {
        let axes: Vec<String> =
            table.independent_of.iter().map(|axis| format!("{} ({})", escape(&axis.name), cell_text(Some(&axis.value), escape))).collect();
        parts.push(Part::Line(format!("it doesn't depend on {}: runs that differ in nothing else are in one row", axes.join(" and "))));
    }
    if model.include_degraded {
        parts.push(Part::Line("degraded runs included".to_owned()));
    }
    parts.extend(one_instrument(table).map(|instrument| Part::Line(format!("measured by {}", escape(instrument)))));
    let digits = Digits::of(table.rows.iter().filter_map(|row| row.number.as_ref()).map(|number| number.value));
    let mut header = vec![String::new()];
    header.extend(table.columns.iter().map(escape));
    let labelled = table.rows.iter().any(|row| row.label.is_some());
    header.extend(labelled.then(|| "label".to_owned()));
    header.extend([
        if is_plain { metric } else { format!("{metric} ({unit})") },
        "95 %".to_owned(),
        "CoV".to_owned(),
        RANGE.to_owned(),
        "n".to_owned(),
        "state".to_owned(),
    ]);
    let mut align_right = vec![false];
    align_right.extend((0..table.columns.len()).map(|column| table.rows.iter().all(|row| is_number(row.cells[column].as_ref()))));
    align_right.extend(labelled.then_some(false));
    align_right.extend([true, false, true, false, true, false]);
    let rows = table.rows.iter().map(|row| table_row(model, row, labelled, digits, escape)).collect();
    let expendable = header.iter().rposition(|name| name == RANGE);
    parts.push(Part::Grid(Grid { header, align_right, rows, expendable }));

    for row in &table.rows {
        if let Some(reason) = &row.absent_reason {
            parts.push(Part::Line(format!("{ABSENT} {}: {}", row_label(model, table, row, escape), escape(reason))));
        }
    }
    if one_instrument(table).is_none() {
        for (row, instrument) in table.rows.iter().filter_map(|row| Some((row, row.instrument.as_ref()?))) {
            parts.push(Part::Line(format!("{}: measured by {}", row_label(model, table, row, escape), escape(instrument))));
        }
    }
    for (row, ceiling) in table.rows.iter().filter_map(|row| Some((row, row.ceiling.as_ref()?))) {
        let AgainstCeiling { name, value, source, utilization_pct, omitted_reason } = ceiling;
        let share = match (utilization_pct, omitted_reason) {
            (Some(pct), _) => format!("{} of", percent(*pct)),
            (None, why) => format!("no share ({}) of", why.as_ref().map_or_else(String::new, escape)),
        };
        let of = format!("{share} {} {value} {} ({})", escape(name), escape(&table.unit), escape(source));
        parts.push(Part::Line(format!("{}: {of}", row_label(model, table, row, escape))));
    }
    parts.extend(table.fits.iter().map(|fit| Part::Line(fit_text(table, fit, escape))));
    let mut without: Vec<&Row> = table.rows.iter().filter(|row| row.cells.iter().any(Option::is_none)).collect();
    if !without.is_empty() {
        // What a point has beside its axes is known from its records alone.
        without.retain(|row| model.points_of(row).all(|point| point.counts.recorded() == 0));
        let or = if without.is_empty() { "" } else { ", or has no run that tells" };
        parts.push(Part::Line(format!("{ABSENT} in the column of an axis: the point doesn't have it{or}")));
    }
    if table.rows.iter().filter_map(|row| row.number.as_ref()).any(|number| number.runs == 1) {
        parts.push(Part::Line(format!("{ABSENT} under 95 % and CoV: one run has neither")));
    }
}

/// What a fit says, on one line, and what there is to know about its points.
fn fit_text(table: &Table, fit: &Fit, escape: Escape) -> String {
    let Fit { of, gb_s, r_squared, sizes, points } = fit;
    let r_squared = r_squared.map_or_else(|| ABSENT.to_owned(), |r| format!("{r:.3}"));
    let k = Digits::of([*gb_s]).text(*gb_s);
    let n = points.len();
    // In the order in which they stand in the rows; a row says a thing more than once where it has several details.
    let mut known: IndexMap<&str, BTreeSet<usize>> = IndexMap::new();
    for point in points {
        for state in &table.rows[point.row].states {
            known.entry(state.code.entry().words).or_default().insert(point.row);
        }
    }
    let known: Vec<String> = known.iter().map(|(words, rows)| format!("{} {words}", rows.len())).collect();
    let known = if known.is_empty() { String::new() } else { format!("; of these {}", known.join(", ")) };
    format!(
        "{}: decode = k ÷ bytes of the weights, k = {k} GB/s, R² = {r_squared} (best of each model, {n} points, {sizes} sizes{known})",
        constants_text(of, escape)
    )
}

/// The instrument of all rows that have one, if it is the same.
fn one_instrument(table: &Table) -> Option<&Foreign> {
    let mut instruments = table.rows.iter().filter_map(|row| row.instrument.as_ref());
    let first = instruments.next()?;
    instruments.all(|other| other == first).then_some(first)
}

fn row_label(model: &Model, table: &Table, row: &Row, escape: Escape) -> String {
    let label: Vec<String> =
        table.columns.iter().zip(&row.cells).map(|(name, cell)| format!("{}={}", escape(name), cell_text(cell.as_ref(), escape))).collect();
    if !label.is_empty() {
        return label.join(", ");
    }
    let of_point = model.points.get(row.point).map_or(&[][..], |point| &point.label);
    let is_free = |constant: &&Constant| table.independent_of.iter().any(|axis| axis.name == constant.name);
    let label: Vec<Constant> = of_point.iter().filter(|constant| !is_free(constant)).cloned().collect();
    if label.is_empty() { escape(&table.metric) } else { constants_text(&label, escape) }
}

fn is_number(cell: Option<&Cell>) -> bool {
    matches!(cell, None | Some(Cell::Int(_) | Cell::Float(_)))
}

fn table_row(model: &Model, row: &Row, labelled: bool, digits: Digits, escape: Escape) -> (Tone, Vec<String>) {
    let planned: Option<u32> = model.points_of(row).map(|point| point.planned).sum();
    let planned = planned.map_or_else(|| ABSENT.to_owned(), |planned| planned.to_string());
    let only_missing = row.states.iter().all(|state| state.code == Code::Missing);
    let (tone, mark) = match &row.number {
        Some(_) if row.states.is_empty() => (Tone::Good, "✓"),
        Some(_) => (Tone::Warning, "!"),
        None if only_missing => (Tone::Warning, "·"),
        None => (Tone::Bad, "✗"),
    };
    let mut texts = vec![mark.to_owned()];
    texts.extend(row.cells.iter().map(|cell| cell_text(cell.as_ref(), escape)));
    texts.extend(labelled.then(|| row.label.as_ref().map_or_else(|| ABSENT.to_owned(), escape)));
    texts.extend(match &row.number {
        Some(number) => number_texts(number, digits),
        None => [(); 4].map(|()| ABSENT.to_owned()),
    });
    texts.push(format!("{} of {planned}", row.number.as_ref().map_or(0, |number| number.runs)));
    texts.push(states_text(&row.states, escape));
    (tone, texts)
}

/// Number, interval, CoV, range.
fn number_texts(number: &Number, digits: Digits) -> [String; 4] {
    let interval = number.interval.map(|Bounds { low, high }| format!("[{}, {}]", digits.text(low), digits.text(high)));
    let Bounds { low, high } = number.range;
    [
        digits.text(number.value),
        interval.unwrap_or_else(|| ABSENT.to_owned()),
        number.cov_pct.map_or_else(|| ABSENT.to_owned(), percent),
        format!("{} … {}", digits.text(low), digits.text(high)),
    ]
}

/// `ok`, or everything to know, in words.
pub(super) fn states_text(states: &[State], escape: Escape) -> String {
    if states.is_empty() {
        return "ok".to_owned();
    }
    let text = |state: &State| {
        let runs = state.runs.map_or_else(String::new, |runs| format!("{runs} "));
        let detail = state.detail.as_ref().map_or_else(String::new, |detail| format!(" ({})", escape(detail)));
        format!("{runs}{}{detail}", state.code.entry().words)
    };
    states.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn finding_part(model: &Model, finding: &Finding, escape: Escape) -> Part {
    let Finding { class: _, code, detail, point, repetitions, entries, hint } = finding;
    let mut head: Vec<String> = Vec::new();
    head.extend(point.map(|index| point_label(model, index, escape)));
    if !heading_says(finding) {
        head.push(escape(code));
    }
    head.extend(detail.as_ref().map(|identity| format!("identity {}", escape(identity))));
    if !repetitions.is_empty() {
        head.push(repetitions_text(repetitions));
    }
    match entries.as_slice() {
        [only] if head.is_empty() => Part::Item(entry_text(only, hint.as_ref(), escape), Vec::new()),
        _ => {
            let head = if head.is_empty() { "records of a run that has one already; not used".to_owned() } else { head.join(": ") };
            Part::Item(head, entries.iter().map(|entry| entry_text(entry, hint.as_ref(), escape)).collect())
        }
    }
}

/// Is its code the one that its heading stands for?
fn heading_says(finding: &Finding) -> bool {
    finding.class.code().is_some_and(|code| finding.code == Foreign::new(code.entry().code))
}

/// What to do about findings of one class: each hint once, with the code that it is for where the heading doesn't say it.
fn hint_parts(findings: &[Finding], escape: Escape) -> Vec<Part> {
    let mut hints: Vec<(&Foreign, &Foreign, bool)> = Vec::new();
    for finding in findings {
        if let Some(hint) = finding.hint.as_ref().filter(|hint| !hints.iter().any(|(code, seen, _)| *code == &finding.code && seen == hint)) {
            hints.push((&finding.code, hint, heading_says(finding)));
        }
    }
    let part = |(code, hint, said): (&Foreign, &Foreign, bool)| {
        let code = if said { String::new() } else { format!(" ({})", escape(code)) };
        Part::Hint(format!("hint{code}: {}", escape(hint)))
    };
    hints.into_iter().map(part).collect()
}

/// `path: message; hint: …`, as far as they are there and not said of all.
fn entry_text(entry: &Entry, common: Option<&Foreign>, escape: Escape) -> String {
    let texts: Vec<String> = [&entry.path, &entry.message].into_iter().flatten().map(escape).collect();
    let hint = entry.hint.as_ref().filter(|hint| Some(*hint) != common).map_or_else(String::new, |hint| format!("; hint: {}", escape(hint)));
    format!("{}{hint}", texts.join(": "))
}
