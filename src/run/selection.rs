//! Which of the planned jobs this invocation runs.

use super::RunError;
use super::filter::Filter;
use crate::plan::{Plan, PlannedJob, power};
use crate::schedule::Slot;
use std::collections::BTreeSet;

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
        self.takes(plan, &job.slot)
    }

    fn takes(&self, plan: &Plan, slot: &Slot) -> bool {
        let device = &plan.points[slot.point].ids.device;
        self.device.as_ref().is_none_or(|d| d == device) && self.filter.takes(plan, slot)
    }

    /// Has the job to run?
    #[must_use]
    pub fn wants(&self, plan: &Plan, job: &PlannedJob) -> bool {
        let again = self.fresh || self.rerun.as_ref().is_some_and(|filter| filter.takes(plan, &job.slot));
        self.concerns(plan, job) && (again || job.state.has_to_run())
    }

    /// What of the plan is left out because this build can't run it, in words; `None` = nothing.
    ///
    /// # Errors
    /// A job is asked for that this build can't run.
    pub fn left_out(&self, plan: &Plan) -> Result<Option<String>, RunError> {
        // Both kinds of run, as far as nobody knows yet which there are.
        let asked_for = |&at: &usize| {
            let settings = &plan.points[at].settings;
            let slots = (0..settings.repetitions).flat_map(|repetition| {
                power::possible(settings.power).iter().map(move |&kind| Slot { point: at, kind, repetition, pass: repetition })
            });
            slots.into_iter().any(|slot| self.takes(plan, &slot))
        };
        let later: Vec<usize> = (0..plan.points.len()).filter(|&at| !plan.points[at].is_built()).collect();
        let backends = |points: &mut dyn Iterator<Item = usize>| points.map(|at| plan.points[at].backend().to_owned()).collect::<BTreeSet<_>>();
        let refused = backends(&mut later.iter().copied().filter(asked_for));
        if !refused.is_empty() {
            let built = backends(&mut (0..plan.points.len()).filter(|&at| plan.points[at].is_built()).filter(asked_for));
            let rest =
                (!built.is_empty() && !self.filter.names("backend")).then(|| format!("backend={}", built.into_iter().collect::<Vec<_>>().join(",")));
            return Err(RunError::Later { backends: refused.into_iter().collect(), rest });
        }
        let names: Vec<String> = backends(&mut later.iter().copied()).iter().map(|name| format!("`{name}`")).collect();
        let points = if later.len() == 1 { "1 point".to_owned() } else { format!("{} points", later.len()) };
        Ok((!later.is_empty()).then(|| format!("left out: {points} of backend {}, not in this build yet", names.join(" and "))))
    }
}
