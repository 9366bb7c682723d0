//! Which of the planned jobs this invocation runs.

use super::filter::Filter;
use crate::plan::{Plan, PlannedJob};

/// What the user asked of `run`.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub filter: Filter,
    /// Run these again although they have an answer.
    pub rerun: Option<Filter>,
    /// Run everything again.
    pub fresh: bool,
    /// Only this device.
    pub device: Option<String>,
    /// At most so many runs.
    pub limit: Option<usize>,
    /// At most so many devices at once; `None` = all.
    pub jobs: Option<usize>,
    /// Also runs whose model is larger than the memory that is available.
    pub force: bool,
    /// Look, and run nothing.
    pub dry_run: bool,
}

impl Options {
    /// Does this invocation concern itself with the job at all?
    #[must_use]
    pub fn concerns(&self, plan: &Plan, job: &PlannedJob) -> bool {
        let device = &plan.points[job.slot.point].ids.device;
        self.device.as_ref().is_none_or(|d| d == device) && self.filter.takes(plan, job)
    }

    /// Has the job to run?
    #[must_use]
    pub fn wants(&self, plan: &Plan, job: &PlannedJob) -> bool {
        let again = self.fresh || self.rerun.as_ref().is_some_and(|filter| filter.takes(plan, job));
        self.concerns(plan, job) && (again || job.state.has_to_run())
    }
}
