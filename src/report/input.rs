//! What a report is made from.

use crate::config::model::Campaign;
use crate::store::Broken;
use crate::store::{
    plan_file::StoredPlan,
    record::{PointIds, Record},
};
use std::collections::HashMap;

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

impl ReportInput {
    /// Put it together. A record that answers a planned point goes by that point's names: what was a constant when it was measured may be
    /// an axis now.
    #[must_use]
    pub fn new(campaign: String, plan: Option<StoredPlan>, mut records: Vec<(String, Record)>, broken: Vec<Broken>) -> ReportInput {
        let points = plan.iter().flat_map(|plan| &plan.points);
        let by_identity: HashMap<&str, &PointIds> = points.filter_map(|p| Some((p.point_identity.as_deref()?, &p.point))).collect();
        for (_, record) in &mut records {
            if let Some(point) = by_identity.get(record.ids.point_identity.as_str()) {
                record.ids.point = (*point).clone();
            }
        }
        ReportInput { campaign, plan, records, broken }
    }
}

impl ReportInput {
    /// With what a campaign says of its devices now, instead of what it said when they were measured.
    #[must_use]
    pub fn annotated(mut self, campaign: &Campaign) -> ReportInput {
        for (_, record) in &mut self.records {
            if let Some(device) = campaign.devices.get(&record.device.id) {
                record.device.ceilings.clone_from(&device.ceilings);
            }
        }
        self
    }
}

/// What the reader of a report asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportOptions {
    /// Use degraded runs for the headline too; the report says so.
    pub include_degraded: bool,
}
