//! `plan.json`: the plan of the last `run`, so that holes and orphans can be seen without the campaign file.

use super::record::{Kind, PointIds};
use serde::{Deserialize, Serialize};

pub const PLAN_VERSION: u32 = 1;

/// All points and jobs of a campaign as last run, in plan order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPlan {
    pub plan_version: u32,
    pub campaign: String,
    pub campaign_sha256: String,
    pub points: Vec<StoredPoint>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPoint {
    pub point: PointIds,
    /// Names of the axes written as lists, in file order.
    pub swept: Vec<String>,
    pub kind: Kind,
    /// Repetitions 0 … n−1 are planned.
    pub repetitions: u32,
    /// As of the last contact with the device; `None` before it.
    pub point_identity: Option<String>,
}
