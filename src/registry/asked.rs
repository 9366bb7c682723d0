//! Which points a metric is asked of, where their backend alone doesn't say.

use super::{MetricEntry, MetricId};
use crate::{config::model::AxisValue, store::record::PointIds};

/// Axes of which 0 means that there is nothing to measure.
const TOKENS: [&str; 2] = ["n_prompt", "n_gen"];
/// What a run has of its prefill where it generates nothing, and of its decode else.
const OF_PREFILL_ALONE: [MetricId; 2] = [MetricId::EnergyPerPrefillTokenJoined, MetricId::EnergyPerPrefillTokenWindow];

impl MetricEntry {
    /// Could a point of one of its backends have it? A rate or an energy of no tokens is asked of nobody.
    #[must_use]
    pub fn is_asked_of(&self, point: &PointIds) -> bool {
        let is_zero = |axis: &str| point.axes.get(axis) == Some(&AxisValue::Int(0));
        let lacks_tokens = self.conditions.iter().any(|axis| TOKENS.contains(axis) && is_zero(axis));
        let is_of_prefill_alone = OF_PREFILL_ALONE.iter().any(|id| id.entry() == self);
        !lacks_tokens && (!is_of_prefill_alone || is_zero("n_gen"))
    }
}
