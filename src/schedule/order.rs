//! The order of the night: every repetition of every point once.

use crate::config::model::Order;
use crate::plan::Point;
use crate::store::record::Kind;

/// A job in the order of the night.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index of the point in its plan.
    pub point: usize,
    pub kind: Kind,
    /// From 0.
    pub repetition: u32,
    /// Turn through the arms of its group, from 0.
    pub pass: u32,
}

/// Every repetition of every point once, in order; `kinds`: of the runs of a repetition, by index of the point. They follow each other, so
/// that what is joined later ran on one machine in one state.
///
/// Groups of arms run in file order, so that a large model is not loaded once per pass unless the campaign wants models to take turns.
/// Interleaved, pass p runs each arm once and is reversed when p is odd: with an even number of passes a linear drift of the machine
/// cancels exactly.
#[must_use]
pub fn order(points: &[Point], kinds: &[&[Kind]]) -> Vec<Slot> {
    let mut slots = Vec::new();
    for arms in groups(points) {
        let settings = &points[arms[0]].settings;
        let mut put = |point: usize, pass| slots.extend(kinds[point].iter().map(|&kind| Slot { point, kind, repetition: pass, pass }));
        match settings.order {
            Order::Sequential => arms.iter().for_each(|&point| (0..settings.repetitions).for_each(|pass| put(point, pass))),
            Order::Interleaved => {
                for pass in 0..settings.repetitions {
                    let turn = |at: usize| if pass % 2 == 0 { arms[at] } else { arms[arms.len() - 1 - at] };
                    (0..arms.len()).for_each(|at| put(turn(at), pass));
                }
            }
        }
    }
    slots
}

/// Indices of the points of each group, in file order.
fn groups(points: &[Point]) -> Vec<Vec<usize>> {
    let mut groups: indexmap::IndexMap<_, Vec<usize>> = indexmap::IndexMap::new();
    points.iter().enumerate().for_each(|(i, point)| groups.entry(point.group()).or_default().push(i));
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::path::Path;

    fn points(order: &str, repetitions: u32) -> Vec<Point> {
        points_of(&format!("order: {order}, repetitions: {repetitions}"))
    }

    fn points_of(settings: &str) -> Vec<Point> {
        let text = format!(
            "devices: {{ here: {{ local: {{}} }} }}
models: {{ a: {{ path: a.onnx }}, b: {{ path: b.onnx }} }}
matrix:
  - {{ devices: here, backend: builtin, model: [a, b], threads: [1, 2], {settings} }}
"
        );
        let campaign = crate::config::parse(&text, Path::new("/c/x.yaml")).unwrap();
        crate::plan::expand::expand(&campaign, &std::collections::BTreeMap::new()).unwrap().points
    }

    fn told(order: &str, repetitions: u32) -> Vec<(usize, u32)> {
        super::order(&points(order, repetitions), &[&[Kind::Timing][..]; 4]).iter().map(|s| (s.point, s.repetition)).collect()
    }

    #[test]
    fn interleaved_arms_turn_back_and_forth_one_model_after_the_other() {
        // Points 0 and 1 are model a with 1 and 2 threads, 2 and 3 are model b.
        let a = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)];
        let b = [(2, 0), (3, 0), (3, 1), (2, 1), (2, 2), (3, 2)];
        assert_eq!(told("interleaved", 3), [a, b].concat());
    }

    #[test]
    fn models_take_turns_where_they_are_compared() {
        let slots = super::order(&points_of("repetitions: 2, interleave: [model]"), &[&[Kind::Timing][..]; 4]);
        let told: Vec<(usize, u32)> = slots.iter().map(|slot| (slot.point, slot.pass)).collect();
        assert_eq!(told, [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (2, 1), (1, 1), (0, 1)]);
    }

    #[test]
    fn sequential_runs_all_repetitions_of_a_point_first() {
        assert_eq!(told("sequential", 2), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]);
    }

    #[test]
    fn a_power_run_follows_the_timing_run_that_it_is_joined_with() {
        let kinds: [&[Kind]; 4] = [&[Kind::Timing, Kind::Power], &[Kind::Timing], &[Kind::Power], &[Kind::Power]];
        let slots = super::order(&points("interleaved", 2), &kinds);
        let told: Vec<(usize, Kind, u32)> = slots.iter().map(|slot| (slot.point, slot.kind, slot.repetition)).collect();
        use Kind::{Power, Timing};
        let a = [(0, Timing, 0), (0, Power, 0), (1, Timing, 0), (1, Timing, 1), (0, Timing, 1), (0, Power, 1)];
        let b = [(2, Power, 0), (3, Power, 0), (3, Power, 1), (2, Power, 1)];
        assert_eq!(told, [a.as_slice(), &b].concat());
    }

    #[test]
    fn an_order_is_a_permutation_of_all_jobs() {
        for order in ["sequential", "interleaved"] {
            for repetitions in 1..8 {
                let mut slots = told(order, repetitions);
                slots.sort_unstable();
                let all: Vec<(usize, u32)> = (0..4).flat_map(|p| (0..repetitions).map(move |r| (p, r))).collect();
                assert_eq!(slots, all, "{order} {repetitions}");
            }
        }
    }
}
