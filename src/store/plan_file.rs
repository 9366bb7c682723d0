//! `plan.json`: the plan of the last `run`, so that holes and orphans can be seen without the campaign file.

use super::record::{Kind, PointIds};
use super::{Broken, formats};
use crate::config::model::MOST_REPETITIONS;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::Path;

pub const PLAN_VERSION: u32 = formats::PLAN.version();
/// Its name in a results directory.
pub const PLAN_FILE: &str = "plan.json";

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
    #[serde(deserialize_with = "repetitions")]
    pub repetitions: u32,
    /// As of the last contact with the device; `None` before it.
    pub point_identity: Option<String>,
}

/// The plan of a results directory; `None` where there is none.
///
/// # Errors
/// Why the file can't be read as a plan.
pub fn read(dir: &Path) -> Result<Option<StoredPlan>, Broken> {
    formats::read(formats::PLAN, &dir.join(PLAN_FILE)).map_err(|e| Broken { path: PLAN_FILE.into(), why: e.reason() })
}

/// No more runs of a point than a campaign can ask for: there is a row or a mark for each of them.
fn repetitions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        n if n > MOST_REPETITIONS => Err(D::Error::custom(format!("it has {n} repetitions of a point, a campaign at most {MOST_REPETITIONS}"))),
        n => Ok(n),
    }
}
