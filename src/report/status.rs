//! The matrix of points and repetitions with its holes.

use super::{
    axes::{Cell, Constant, part},
    counts::{Counts, Fate, Totals},
    escape::Foreign,
    findings::{repetitions_text, short_identity},
    gather::{Gathered, Point, Run, gather},
    input::ReportInput,
    json,
    layout::{ABSENT, Grid, Part, Tone, cell_text, constants_text, totals_lines},
    terminal,
};
use crate::registry::Code;
use serde::Serialize;
use std::collections::BTreeMap;

/// Version of the matrix's JSON.
pub const STATUS_VERSION: u32 = 1;

/// What is recorded of every point, and what is not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusMatrix {
    pub status_version: u32,
    pub campaign: Foreign,
    /// Without a plan only what is recorded is known: no holes, no orphans.
    pub plan_known: bool,
    pub complete: bool,
    pub totals: Totals,
    /// What is the same in all rows.
    pub constants: Vec<Constant>,
    /// What isn't; the cells of each row are in this order.
    pub columns: Vec<Foreign>,
    /// In plan order; points outside the plan after it, by their axes.
    pub rows: Vec<StatusRow>,
    pub broken: Vec<BrokenFile>,
}

/// One point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusRow {
    /// `None` = the point doesn't have this axis.
    pub cells: Vec<Option<Cell>>,
    pub identity: Option<Foreign>,
    /// Planned repetitions; `None` = no plan, or not wanted by it.
    pub planned: Option<u32>,
    pub orphan: bool,
    /// The plan wants these axes with another identity.
    pub stale: bool,
    /// Records of the same axes have another identity.
    pub mixed_identity: bool,
    pub counts: Counts,
    /// One per repetition from 0 to the last that is planned or recorded.
    pub runs: Vec<MarkedRun>,
}

/// One repetition of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarkedRun {
    pub repetition: u32,
    pub mark: Mark,
    /// Of a failed or skipped run; `contaminated` of one that something else disturbed.
    pub reason: Option<&'static str>,
    /// Recorded, outside the plan.
    pub orphan: bool,
    /// Relative to the results directory.
    pub path: Option<Foreign>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    Ok,
    Degraded,
    Invalid,
    Failed,
    Skipped,
    /// Planned, without a record.
    Missing,
    /// Neither planned nor recorded.
    NotWanted,
}

/// A file that is no record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenFile {
    pub path: Foreign,
    pub why: Foreign,
}

impl Mark {
    /// One column wide.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Mark::Ok => '✓',
            Mark::Degraded => '!',
            Mark::Invalid | Mark::Failed => '✗',
            Mark::Skipped => '–',
            Mark::Missing => '·',
            Mark::NotWanted => ' ',
        }
    }
}

impl StatusMatrix {
    #[must_use]
    pub fn of(input: &ReportInput) -> StatusMatrix {
        let gathered = gather(input);
        // What tells its points apart are their axes; what they have beside them stands in the report.
        let (columns, constants) = part(&gathered.of_axes(), &gathered.points.iter().collect::<Vec<_>>());
        let totals = Totals::of(&gathered);
        let row = |point: &Point<'_>| StatusRow {
            cells: columns.iter().map(|column| column.cell(point)).collect(),
            identity: point.identity.map(Foreign::new),
            planned: point.planned,
            orphan: point.orphan,
            stale: point.stale,
            mixed_identity: point.mixed,
            counts: Counts::of(point),
            runs: marked_runs(point),
        };
        StatusMatrix {
            status_version: STATUS_VERSION,
            campaign: Foreign::new(&input.campaign),
            plan_known: input.plan.is_some(),
            complete: is_complete(&gathered),
            totals,
            constants,
            columns: columns.iter().map(|column| column.name()).collect(),
            rows: gathered.points.iter().map(row).collect(),
            broken: gathered.broken.iter().map(|file| BrokenFile { path: Foreign::new(&file.path), why: Foreign::new(&file.why) }).collect(),
        }
    }

    /// Every planned run has a record of the planned identity that is `ok`, valid or degraded.
    ///
    /// False without a plan: what should be there isn't known. Orphans and broken files don't matter; where one of these files stood for a
    /// planned run, that run is missing.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Prints the matrix for a terminal; `width` and `color` as for the report.
    #[must_use]
    pub fn terminal(&self, width: Option<usize>, color: bool) -> String {
        terminal::print(&self.parts(), width, color)
    }

    /// Prints the matrix as one JSON document.
    #[must_use]
    pub fn json(&self) -> String {
        json::document(self)
    }

    fn parts(&self) -> Vec<Part> {
        let escape = Foreign::terminal;
        let mut parts = vec![Part::Title(format!("Status of {}", escape(&self.campaign)))];
        parts.extend(totals_lines(&self.totals).into_iter().map(Part::Line));
        if !self.constants.is_empty() {
            parts.push(Part::Line(format!("constant: {}", constants_text(&self.constants, escape))));
        }
        if !self.rows.is_empty() {
            let mut header = vec![String::new()];
            header.extend(self.columns.iter().map(escape));
            header.extend(["runs", "answered", "state"].map(str::to_owned));
            let mut align_right = vec![false];
            align_right.extend(
                (0..self.columns.len()).map(|n| self.rows.iter().all(|row| matches!(row.cells[n], None | Some(Cell::Int(_) | Cell::Float(_))))),
            );
            align_right.extend([false, true, false]);
            parts.push(Part::Line(String::new()));
            parts.push(Part::Grid(Grid { header, align_right, rows: self.rows.iter().map(StatusRow::texts).collect(), expendable: None }));
            parts.push(Part::Remark("runs from r0: ✓ ok  ! degraded  ✗ invalid or failed  – skipped  · missing".to_owned()));
        }
        if !self.broken.is_empty() {
            parts.push(Part::Section("Broken files".to_owned(), Tone::Bad));
            parts.extend(self.broken.iter().map(|file| Part::Item(format!("{}: {}", escape(&file.path), escape(&file.why)), Vec::new())));
        }
        parts
    }
}

impl StatusRow {
    fn texts(&self) -> (Tone, Vec<String>) {
        let Counts { ok, degraded, invalid, failed, skipped, missing, .. } = self.counts;
        let answered = ok + degraded;
        let (tone, sign) = if invalid + failed > 0 {
            (Tone::Bad, Mark::Failed)
        } else if answered == 0 && missing > 0 {
            (Tone::Warning, Mark::Missing)
        } else if degraded + skipped + missing > 0 || self.orphan || self.stale || self.mixed_identity {
            (Tone::Warning, Mark::Degraded)
        } else {
            (Tone::Good, Mark::Ok)
        };
        let mut texts = vec![sign.sign().to_string()];
        texts.extend(self.cells.iter().map(|cell| cell_text(cell.as_ref(), Foreign::terminal)));
        texts.push(self.runs.iter().map(|run| run.mark.sign()).collect());
        let planned = self.planned.map_or_else(|| ABSENT.to_owned(), |planned| planned.to_string());
        texts.push(format!("{answered} of {planned}"));
        texts.push(self.state());
        (tone, texts)
    }

    /// What the signs don't say: reasons with their repetitions, and what is wrong with the row as a whole.
    fn state(&self) -> String {
        let mut groups: BTreeMap<(Mark, Option<&str>), Vec<u32>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| !matches!(run.mark, Mark::Ok | Mark::NotWanted)) {
            groups.entry((run.mark, run.reason)).or_default().push(run.repetition);
        }
        let mut texts: Vec<String> = Vec::new();
        for ((mark, reason), repetitions) in groups {
            let word = match mark {
                Mark::Degraded => "degraded",
                Mark::Invalid => "invalid",
                Mark::Failed => "failed",
                Mark::Skipped => "skipped",
                Mark::Missing => "missing",
                Mark::Ok | Mark::NotWanted => continue,
            };
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            texts.push(format!("{} {word}{reason}", repetitions_text(&repetitions)));
        }
        let orphans: Vec<u32> = self.runs.iter().filter(|run| run.orphan).map(|run| run.repetition).collect();
        if self.orphan {
            texts.push(Code::Orphan.entry().words.to_owned());
        } else if !orphans.is_empty() {
            texts.push(format!("{} {}", repetitions_text(&orphans), Code::Orphan.entry().words));
        }
        let identity = self.identity.as_ref().map_or_else(String::new, |identity| format!(" ({})", short_identity(&identity.terminal()).terminal()));
        if self.mixed_identity {
            texts.push(format!("{}{identity}", Code::MixedIdentity.entry().words));
        }
        if self.stale {
            texts.push(format!("{}{}", Code::StaleIdentity.entry().words, if self.mixed_identity { "" } else { &identity }));
        }
        if self.counts.earlier_attempts > 0 {
            let attempts = if self.counts.earlier_attempts == 1 { "attempt" } else { "attempts" };
            texts.push(format!("{} earlier {attempts}", self.counts.earlier_attempts));
        }
        if texts.is_empty() { "ok".to_owned() } else { texts.join(", ") }
    }
}

fn is_complete(gathered: &Gathered<'_>) -> bool {
    let answers = |point: &Point<'_>| {
        let Counts { ok, degraded, .. } = Counts::of(point);
        point.planned.is_none_or(|planned| ok + degraded == planned)
    };
    gathered.planned_runs.is_some() && gathered.points.iter().all(answers)
}

fn marked_runs(point: &Point<'_>) -> Vec<MarkedRun> {
    let recorded = point.runs.iter().map(|run| u64::from(run.repetition()) + 1).max().unwrap_or(0);
    // A damaged repetition number must not make a row of four thousand million marks.
    const MOST: u64 = 10_000;
    let length = recorded.min(MOST).max(u64::from(point.planned.unwrap_or(0)));
    let beyond = point.runs.iter().map(Run::repetition).filter(|&repetition| u64::from(repetition) >= length);
    let repetitions = (0..length).filter_map(|repetition| u32::try_from(repetition).ok()).chain(beyond);
    repetitions.map(|repetition| marked_run(point, repetition)).collect()
}

fn marked_run(point: &Point<'_>, repetition: u32) -> MarkedRun {
    match point.runs.iter().find(|run| run.repetition() == repetition) {
        Some(run) => MarkedRun {
            repetition,
            mark: match run.fate() {
                Fate::Ok => Mark::Ok,
                Fate::Degraded => Mark::Degraded,
                Fate::Invalid => Mark::Invalid,
                Fate::Failed => Mark::Failed,
                Fate::Skipped => Mark::Skipped,
            },
            reason: run.record.reason.map(|reason| reason.name()).or_else(|| (!run.record.contaminated_by().is_empty()).then_some("contaminated")),
            orphan: run.orphan,
            path: Some(Foreign::new(run.path)),
        },
        None => {
            let mark = if point.missing.contains(&repetition) { Mark::Missing } else { Mark::NotWanted };
            MarkedRun { repetition, mark, reason: None, orphan: false, path: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::model::AxisValue,
        report::records::{plan, point, run},
        store::record::{PointIds, Reason, Record, Severity},
    };

    fn threads(n: i64) -> PointIds {
        point(&[("threads", AxisValue::Int(n))])
    }

    fn planned(repetitions: u32, records: Vec<(String, Record)>) -> StatusMatrix {
        StatusMatrix::of(&ReportInput { plan: Some(plan(&[threads(1)], repetitions)), records, ..ReportInput::default() })
    }

    fn marks(row: &StatusRow) -> String {
        row.runs.iter().map(|run| run.mark.sign()).collect()
    }

    #[test]
    fn a_matrix_is_complete_when_every_planned_run_is_ok() {
        let degraded = run(&threads(1), 1).issue("competing_load", Severity::Warning, "busy").stored();
        let status = planned(2, vec![run(&threads(1), 0).stored(), degraded]);
        assert_eq!((status.complete(), marks(&status.rows[0])), (true, "✓!".to_owned()));
    }

    #[test]
    fn a_failed_invalid_or_missing_run_leaves_it_incomplete() {
        let ok = || run(&threads(1), 0).stored();
        assert!(!planned(2, vec![ok()]).complete());
        assert!(!planned(2, vec![ok(), run(&threads(1), 1).failed(Reason::Oom, "x").stored()]).complete());
        assert!(!planned(2, vec![ok(), run(&threads(1), 1).issue("input_changed", Severity::Error, "x").stored()]).complete());
        assert!(!planned(2, vec![ok(), run(&threads(1), 1).identity('b').stored()]).complete());
    }

    #[test]
    fn an_orphan_does_not_make_it_incomplete() {
        let status = planned(1, vec![run(&threads(1), 0).stored(), run(&threads(1), 1).stored(), run(&threads(2), 0).stored()]);
        assert!(status.complete());
        assert_eq!((status.rows[0].counts.orphan, status.rows[1].orphan), (1, true));
    }

    #[test]
    fn an_absurd_repetition_does_not_fill_the_memory() {
        let status = planned(1, vec![run(&threads(2), u32::MAX).stored()]);
        let runs = &status.rows[1].runs;
        assert_eq!((runs.len(), runs.last().map(|run| run.repetition)), (10_001, Some(u32::MAX)));
    }

    #[test]
    fn an_empty_directory_has_an_empty_matrix() {
        let status = StatusMatrix::of(&ReportInput::default());
        assert!(!status.complete() && status.rows.is_empty());
        assert!(status.terminal(None, false).contains("No plan.json"));
    }
}
