//! What a report is made from.

use crate::store::Broken;
use crate::store::{plan_file::StoredPlan, record::Record};

/// Everything that was read from one results directory.
///
/// Superseded records stay out. Earlier attempts (`<kind>-r<n>.attempt<k>.json`) are in, and are told by their `ids.attempt`.
#[derive(Debug, Clone, Default)]
pub struct ReportInput {
    pub campaign: String,
    /// `None` = there is no readable `plan.json`: holes can't be known.
    pub plan: Option<StoredPlan>,
    /// Path relative to the results directory and the record, in any order.
    pub records: Vec<(String, Record)>,
    /// Files that should be records and aren't.
    pub broken: Vec<Broken>,
}

/// What the reader of a report asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportOptions {
    /// Use degraded runs for the headline too; the report says so.
    pub include_degraded: bool,
}
