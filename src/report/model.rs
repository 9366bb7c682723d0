//! The report as data: what every renderer prints.

use super::{
    axes::{Cell, Constant},
    counts::{Counts, Totals},
    escape::Foreign,
};
use crate::{
    config::model::Better,
    registry::Code,
    store::record::{Kind, Severity},
};
use indexmap::IndexMap;
use serde::Serialize;

/// Version of the model's JSON.
pub const REPORT_VERSION: u32 = 1;

/// A report on one results directory. Equal inputs give equal models, whatever order the records were read in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    pub report_version: u32,
    pub campaign: Foreign,
    /// Without a plan nothing is missing or orphaned, because that can't be known.
    pub plan_known: bool,
    /// Degraded runs were used for headlines.
    pub include_degraded: bool,
    pub totals: Totals,
    /// Names of all axes, in the order in which the points name them.
    pub axes: Vec<Foreign>,
    /// In plan order; points outside the plan after it, by their axes.
    pub points: Vec<PointEntry>,
    /// One per metric name, definition id, unit and direction.
    pub tables: Vec<Table>,
    /// Indices of points that are in no table.
    pub without_table: Vec<usize>,
    /// Failures first.
    pub findings: Vec<Finding>,
}

impl Model {
    /// The points whose runs are in a row.
    pub(super) fn points_of(&self, row: &Row) -> impl Iterator<Item = &PointEntry> {
        row.points().filter_map(|at| self.points.get(at))
    }
}

/// One identity of one combination of device, backend, axes and kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointEntry {
    pub device: Foreign,
    pub backend: Foreign,
    pub kind: Kind,
    pub axes: IndexMap<Foreign, Cell>,
    /// The values that tell this point from the others of the report.
    pub label: Vec<Constant>,
    /// sha256, hex; `None` where nothing was recorded and no device was asked.
    pub identity: Option<Foreign>,
    /// Planned repetitions; `None` = no plan, or not wanted by it.
    pub planned: Option<u32>,
    pub counts: Counts,
    /// Over its runs, by severity (worst first) and code.
    pub issues: Vec<IssueCount>,
}

/// A code and how many runs of a point have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IssueCount {
    pub code: Foreign,
    pub severity: Severity,
    pub runs: u32,
}

/// One metric over all points that could have it. Definitions and units are never mixed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    pub metric: Foreign,
    pub unit: Foreign,
    pub better: Better,
    /// Definition id.
    pub definition: Foreign,
    /// What is the same in all rows.
    pub constants: Vec<Constant>,
    /// What isn't; the cells of each row are in this order.
    pub columns: Vec<Foreign>,
    /// Axes that vary and are no columns, because the metric doesn't depend on them; with all their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub independent_of: Vec<Constant>,
    pub rows: Vec<Row>,
    /// Of decode: what its rates say of the memory, where models of three sizes were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<Fit>,
}

/// Tokens/s = `gb_s` · 10⁹ ÷ bytes of the weights, fitted through the origin over the best point of each model and size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    /// What its points have in common: the device, and what else tells it from the table's other fits.
    pub of: Vec<Constant>,
    /// Rate at which decode reads the weights.
    pub gb_s: f64,
    /// About the mean of the rates; negative where that mean fits better, `None` where all rates are equal.
    pub r_squared: Option<f64>,
    /// Different sizes among its points, 3 or more.
    pub sizes: u32,
    /// By row.
    pub points: Vec<FitPoint>,
}

/// What a fit has of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitPoint {
    /// Index into the rows of the table.
    pub row: usize,
    pub model: Cell,
    /// Those that are read for a token.
    pub weight_bytes: u64,
    pub tokens_per_s: f64,
}

/// One point of the table's metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Index into the points of the model.
    pub point: usize,
    /// Indices of further points whose runs are in it: they differ in nothing that the metric depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pooled: Vec<usize>,
    /// `None` = the point doesn't have this axis.
    pub cells: Vec<Option<Cell>>,
    /// What the tool calls it: `tg128 @ d4096`; `None` where it has no name of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Foreign>,
    /// `None` with an `absent_reason`.
    pub number: Option<Number>,
    pub absent_reason: Option<Foreign>,
    /// Of an energy: by which instrument, of what, in which scope; `None` where no run says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instrument: Option<Foreign>,
    /// Of what its device can do at most; `None` where nothing is declared, or the metric has no such thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<AgainstCeiling>,
    /// What the reader must know about the number; empty = all planned runs are in it.
    pub states: Vec<State>,
}

impl Row {
    /// Indices of all points whose runs are in it.
    pub fn points(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.point).chain(self.pooled.iter().copied())
    }
}

/// A number against the most that its device can do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgainstCeiling {
    pub name: Foreign,
    /// In the unit of the table.
    pub value: f64,
    pub source: Foreign,
    /// Never cut off at 100; `None` with an `omitted_reason`.
    pub utilization_pct: Option<f64>,
    pub omitted_reason: Option<Foreign>,
}

/// A point's headline in the unit of its table, rounded to 12 significant digits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    pub value: f64,
    pub estimator: Estimator,
    /// 95 %; `None` for one run.
    pub interval: Option<Bounds>,
    /// Coefficient of variation of the run headlines (ddof 1); `None` for one run or a mean of 0.
    pub cov_pct: Option<f64>,
    /// Range of the run headlines.
    pub range: Bounds,
    /// Runs in it.
    pub runs: u32,
    /// How many of them are degraded.
    pub degraded: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bounds {
    pub low: f64,
    pub high: f64,
}

/// Which mean of the run headlines a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// Interval: t on the logs.
    GeometricMean,
    /// A run headline is zero or negative; interval: t on the values.
    ArithmeticMean,
}

impl Estimator {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Estimator::GeometricMean => "geometric_mean",
            Estimator::ArithmeticMean => "arithmetic_mean",
        }
    }
}

/// One thing to know about a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
    pub code: Code,
    /// How many runs it is about; `None` = the row as a whole.
    pub runs: Option<u32>,
    /// Reasons of failures; the identity's first digits.
    pub detail: Option<Foreign>,
}

/// Something found, with the records that show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub class: Class,
    /// Reason of a failure, or code of an issue or remark.
    pub code: Foreign,
    /// The identity's first digits.
    pub detail: Option<Foreign>,
    /// Index into the points of the model.
    pub point: Option<usize>,
    /// Ascending.
    pub repetitions: Vec<u32>,
    pub entries: Vec<Entry>,
    /// What to do: what all its records say, else what the registry says of the code; `None` for a code that it doesn't know.
    pub hint: Option<Foreign>,
}

/// One record or file of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub repetition: Option<u32>,
    /// Relative to the results directory.
    pub path: Option<Foreign>,
    /// The beginning of it.
    pub message: Option<Foreign>,
    /// As it stands in the record.
    pub hint: Option<Foreign>,
}

/// Kinds of findings, in the order in which they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    Failed,
    /// Issues of severity `error`.
    Invalid,
    /// Issues of severity `warning`.
    Degraded,
    Missing,
    Broken,
    MixedIdentity,
    StaleIdentity,
    Orphan,
    Duplicate,
    Skipped,
    /// Issues of severity `note`, and `mixed_epochs`.
    Note,
}

impl Class {
    /// What its findings have in common; `None` for notes, of which each has a code of its own.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        match self {
            Class::Failed => Some(Code::Failed),
            Class::Invalid => Some(Code::Invalid),
            Class::Degraded => Some(Code::DegradedLeftOut),
            Class::Missing => Some(Code::Missing),
            Class::Broken => Some(Code::BrokenFile),
            Class::MixedIdentity => Some(Code::MixedIdentity),
            Class::StaleIdentity => Some(Code::StaleIdentity),
            Class::Orphan => Some(Code::Orphan),
            Class::Duplicate => Some(Code::Duplicate),
            Class::Skipped => Some(Code::Skipped),
            Class::Note => None,
        }
    }

    /// The heading of its list.
    #[must_use]
    pub fn heading(self) -> &'static str {
        match self {
            Class::Failed => "Failed",
            Class::Invalid => "Invalid",
            Class::Degraded => "Degraded",
            Class::Missing => "Missing",
            Class::Broken => "Broken files",
            Class::MixedIdentity => "Mixed identity",
            Class::StaleIdentity => "Stale identity",
            Class::Orphan => "Orphans (not in the plan)",
            Class::Duplicate => "Duplicates",
            Class::Skipped => "Skipped",
            Class::Note => "Notes",
        }
    }
}
