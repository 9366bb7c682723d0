//! How many runs became what.

use super::gather::{Gathered, Point};
use serde::Serialize;
use std::ops::AddAssign;

/// What became of a run: status and validity in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    Ok,
    Degraded,
    Invalid,
    Failed,
    Skipped,
}

impl Fate {
    /// As it is serialized.
    pub(super) fn name(self) -> &'static str {
        match self {
            Fate::Ok => "ok",
            Fate::Degraded => "degraded",
            Fate::Invalid => "invalid",
            Fate::Failed => "failed",
            Fate::Skipped => "skipped",
        }
    }
}

/// How many runs of each fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Status ok, validity valid.
    pub ok: u32,
    pub degraded: u32,
    /// How many of the degraded ones something else disturbed.
    pub contaminated: u32,
    pub invalid: u32,
    pub failed: u32,
    pub skipped: u32,
    /// Planned, without a record.
    pub missing: u32,
    /// Recorded, outside the plan. Of a point that is outside as a whole they are counted by fate too.
    pub orphan: u32,
    /// Runs that were repeated; in none of the other counts.
    pub earlier_attempts: u32,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let Counts { ok, degraded, contaminated, invalid, failed, skipped, missing, orphan, earlier_attempts } = other;
        self.ok += ok;
        self.degraded += degraded;
        self.contaminated += contaminated;
        self.invalid += invalid;
        self.failed += failed;
        self.skipped += skipped;
        self.missing += missing;
        self.orphan += orphan;
        self.earlier_attempts += earlier_attempts;
    }
}

impl Counts {
    pub(super) fn of(point: &Point<'_>) -> Counts {
        let mut counts = Counts {
            missing: count(point.missing.len()),
            orphan: count(point.runs.iter().filter(|run| run.orphan).count()),
            earlier_attempts: point.earlier_attempts,
            ..Counts::default()
        };
        for run in point.own_runs() {
            match run.fate() {
                Fate::Ok => counts.ok += 1,
                Fate::Degraded => {
                    counts.degraded += 1;
                    counts.contaminated += u32::from(!run.record.contaminated_by().is_empty());
                }
                Fate::Invalid => counts.invalid += 1,
                Fate::Failed => counts.failed += 1,
                Fate::Skipped => counts.skipped += 1,
            }
        }
        counts
    }

    /// Runs that its numbers may come from, whatever became of them.
    pub(super) fn recorded(&self) -> u32 {
        self.ok + self.degraded + self.invalid + self.failed + self.skipped
    }
}

/// A number of files or runs; more than four thousand million are not told apart.
pub(super) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Counts over a whole results directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// Rows: identities of combinations of device, backend, axes and kind.
    pub points: u32,
    /// `None` without a plan.
    pub planned_runs: Option<u32>,
    /// Of the runs that the plan wants; without a plan of all runs.
    pub runs: Counts,
    /// Records whose point identity isn't the one that the plan wants.
    pub stale: u32,
    /// Second records of the same run.
    pub duplicates: u32,
    /// Files that are no records.
    pub broken: u32,
}

impl Totals {
    pub(super) fn of(gathered: &Gathered<'_>) -> Totals {
        let mut totals = Totals {
            points: count(gathered.points.len()),
            planned_runs: gathered.planned_runs,
            duplicates: count(gathered.duplicates.len()),
            broken: count(gathered.broken.len()),
            ..Totals::default()
        };
        for point in &gathered.points {
            let Counts { orphan, earlier_attempts, .. } = Counts::of(point);
            let is_wanted = !point.stale && !point.orphan;
            totals.runs += if is_wanted { Counts::of(point) } else { Counts { orphan, earlier_attempts, ..Counts::default() } };
            if point.stale {
                totals.stale += count(point.own_runs().count());
            }
        }
        totals
    }
}
