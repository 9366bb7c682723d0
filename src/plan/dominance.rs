//! Which points a failed one makes needless: after a context of 64k tokens ran out of memory, 128k and 256k would take the device down
//! for nothing. Pure.

use super::expand::Plan;
use super::point::Point;
use crate::config::model::{AxisValue, Dominance, FatalReason};
use crate::store::record::Reason;
use std::collections::HashMap;

/// For points of blocks with `dominance`: who is smaller.
#[derive(Debug, Default)]
pub struct Dominators {
    /// Index of a point → indices of the points that differ from it in nothing but a smaller value of the axis, the largest first.
    smaller: HashMap<usize, Vec<usize>>,
}

impl Dominators {
    #[must_use]
    pub fn of(plan: &Plan) -> Dominators {
        let mut groups: HashMap<String, Vec<(f64, usize)>> = HashMap::new();
        for (index, point) in plan.points.iter().enumerate() {
            let Some(Dominance { axis, .. }) = &point.settings.dominance else { continue };
            if let Some(value) = point.ids.axes.get(axis).and_then(number) {
                groups.entry(others(point, axis)).or_default().push((value, index));
            }
        }
        let mut smaller: HashMap<usize, Vec<usize>> = HashMap::new();
        for mut group in groups.into_values() {
            group.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (at, &(value, index)) in group.iter().enumerate() {
                smaller.insert(index, group[at + 1..].iter().filter(|other| other.0 < value).map(|other| other.1).collect());
            }
        }
        Dominators { smaller }
    }

    /// No point is made needless by another.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.smaller.is_empty()
    }

    /// The first smaller point, from the largest down, that failed for a reason which makes this one needless. `failed`: reasons of the
    /// runs of a point that count.
    #[must_use]
    pub fn of_point(&self, plan: &Plan, index: usize, failed: impl Fn(usize) -> Vec<Reason>) -> Option<(usize, Reason)> {
        let Dominance { on, .. } = plan.points[index].settings.dominance.as_ref()?;
        // A point that takes its device down twice is out of bounds, whatever the campaign looks for.
        let fatal = |reason: &Reason| *reason == Reason::DeviceLost || on.iter().any(|on| is(*on, *reason));
        self.smaller.get(&index)?.iter().find_map(|&other| Some((other, failed(other).into_iter().find(fatal)?)))
    }
}

fn is(on: FatalReason, reason: Reason) -> bool {
    matches!(
        (on, reason),
        (FatalReason::Oom, Reason::Oom) | (FatalReason::MemoryThrash, Reason::MemoryThrash) | (FatalReason::Timeout, Reason::Timeout)
    )
}

/// Everything of a point but one axis.
fn others(point: &Point, axis: &str) -> String {
    let axes: Vec<_> = point.ids.axes.iter().filter(|(name, _)| *name != axis).collect();
    format!("{}\u{0}{}\u{0}{axes:?}", point.block, point.ids.device)
}

fn number(value: &AxisValue) -> Option<f64> {
    match value {
        AxisValue::Int(value) => Some(*value as f64),
        AxisValue::Float(value) => Some(*value),
        AxisValue::Bool(_) | AxisValue::Text(_) | AxisValue::List(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::collections::BTreeMap;
    use std::path::Path;

    #[test]
    fn a_failed_point_dominates_the_larger_ones_that_differ_in_nothing_else() {
        let text = "devices: { here: { local: {} } }
matrix:
  - { devices: here, backend: command, threads: [1, 2], params: { depth: [0, 4096, 16384, 8192] }, argv: [x], dominance: { axis: depth, on: [oom, timeout] } }
";
        let campaign = crate::config::parse(text, Path::new("/c/x.yaml")).unwrap();
        let plan = crate::plan::expand::expand(&campaign, &BTreeMap::new()).unwrap();
        // Points 0 to 3: one thread, depths 0, 4096, 16384, 8192; 4 to 7 the same with two threads.
        let failed = |index: usize| match index {
            1 => vec![Reason::Oom],
            5 => vec![Reason::ExitCode],
            7 => vec![Reason::ExitCode, Reason::Timeout],
            _ => Vec::new(),
        };
        let dominators = Dominators::of(&plan);
        let found: Vec<_> = (0..8).map(|index| dominators.of_point(&plan, index, failed)).collect();
        let by_oom = Some((1, Reason::Oom));
        assert_eq!(found, [None, None, by_oom, by_oom, None, None, Some((7, Reason::Timeout)), None]);
    }
}
