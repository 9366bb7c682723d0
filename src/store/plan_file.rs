//! `plan.json`: the plan of the last `run`, so that holes and orphans can be seen without the campaign file.

use super::record::{Kind, PointIds};
use super::{Broken, file};
use crate::config::model::MOST_REPETITIONS;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

pub const PLAN_VERSION: u32 = 1;
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
    pub repetitions: u32,
    /// As of the last contact with the device; `None` before it.
    pub point_identity: Option<String>,
}

/// The plan of a results directory; `None` where there is none.
///
/// # Errors
/// Why the file is no plan.
pub fn read(dir: &Path) -> Result<Option<StoredPlan>, Broken> {
    match file::read(&dir.join(PLAN_FILE)) {
        Ok(bytes) => parse(&bytes).map(Some),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
    .map_err(|why| Broken { path: PLAN_FILE.into(), why })
}

/// # Errors
/// In words: of another version or shape, or with more runs of a point than any campaign can ask for.
pub fn parse(bytes: &[u8]) -> Result<StoredPlan, String> {
    let plan: StoredPlan = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if plan.plan_version != PLAN_VERSION {
        return Err(format!("its version is {}, this isotherm reads {PLAN_VERSION}", plan.plan_version));
    }
    match plan.points.iter().map(|point| point.repetitions).max() {
        Some(most) if most > MOST_REPETITIONS => Err(format!("it has {most} repetitions of a point, a campaign at most {MOST_REPETITIONS}")),
        _ => Ok(plan),
    }
}
