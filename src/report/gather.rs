//! Sorts what was read into points and their runs.
//!
//! Everything downstream sees one order, whatever order the files were read in.

use super::{
    axes::{Column, Constant, compare_cells, natural},
    beside,
    counts::Fate,
    input::ReportInput,
};
use crate::store::Broken;
use crate::{
    config::model::AxisValue,
    store::record::{Kind, PointIds, Record, Status, Validity},
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

/// All points of a results directory, in plan order; then those outside the plan, by their axes.
pub(super) struct Gathered<'a> {
    /// Points × repetitions of the plan; `None` = no plan.
    pub planned_runs: Option<u32>,
    /// Every column that a point may need, in the order in which the points name them.
    pub columns: Vec<Column<'a>>,
    pub points: Vec<Point<'a>>,
    /// Second records of the same job, attempt and identity; used nowhere.
    pub duplicates: Vec<Run<'a>>,
    /// By path.
    pub broken: Vec<&'a Broken>,
}

/// One identity of one combination of device, backend, axes and kind.
#[derive(Clone)]
pub(super) struct Point<'a> {
    pub ids: &'a PointIds,
    pub kind: Kind,
    /// `None` for a planned point that no device was asked about and nothing was recorded of.
    pub identity: Option<&'a str>,
    /// Runs that the plan wants of this identity; `None` = no plan, or the plan doesn't want it.
    pub planned: Option<u32>,
    /// Not in the plan.
    pub orphan: bool,
    /// The plan wants these axes with another identity.
    pub stale: bool,
    /// Records of the same axes have another identity.
    pub mixed: bool,
    /// By repetition and path; only the last attempt of each.
    pub runs: Vec<Run<'a>>,
    /// Planned repetitions without a record, ascending.
    pub missing: Vec<u32>,
    pub earlier_attempts: u32,
    /// Declared conditions of its runs in words, as far as those of its device's runs differ; see [`super::conditions`].
    pub conditions: String,
    /// What it has beside its axes of what is a column, by name; see [`beside`].
    pub beside: BTreeMap<String, AxisValue>,
}

/// One record and where it lies.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub path: &'a str,
    pub record: &'a Record,
    /// Outside the plan.
    pub orphan: bool,
}

impl Run<'_> {
    pub(super) fn repetition(&self) -> u32 {
        self.record.ids.repetition
    }

    pub(super) fn fate(&self) -> Fate {
        match (self.record.status, self.record.validity) {
            (Status::Failed, _) => Fate::Failed,
            (Status::Skipped, _) => Fate::Skipped,
            (Status::Ok, Validity::Valid) => Fate::Ok,
            (Status::Ok, Validity::Degraded) => Fate::Degraded,
            (Status::Ok, Validity::Invalid) => Fate::Invalid,
        }
    }
}

impl<'a> Gathered<'a> {
    /// Without what points have beside their axes.
    pub(super) fn of_axes(&self) -> Vec<Column<'a>> {
        self.columns.iter().copied().filter(|column| !column.is_beside()).collect()
    }
}

impl<'a> Point<'a> {
    /// Its values in these columns.
    pub(super) fn label(&self, columns: &[Column<'_>]) -> Vec<Constant> {
        let constant = |column: &Column<'_>| Some(Constant { name: column.name(), value: column.cell(self)? });
        columns.iter().filter_map(constant).collect()
    }

    /// Runs that the point's numbers may come from: all of an orphan point, only planned repetitions of a planned one.
    pub(super) fn own_runs(&self) -> impl Iterator<Item = &Run<'a>> {
        self.runs.iter().filter(|run| self.orphan || !run.orphan)
    }
}

/// What a point is called apart from its identity: equal for equal device, backend, kind and axes with their types, in any order.
pub(super) fn key(ids: &PointIds, kind: Kind) -> String {
    let axes: BTreeMap<&str, &AxisValue> = ids.axes.iter().map(|(name, value)| (name.as_str(), value)).collect();
    serde_json::to_string(&(&ids.device, &ids.backend, kind.name(), axes)).expect("texts, numbers and switches are always JSON")
}

/// What is known about one key before it is parted by identity.
#[derive(Default)]
struct Slot<'a> {
    /// Place in the plan, and the planned point.
    planned: Option<(usize, &'a crate::store::plan_file::StoredPoint)>,
    runs: Vec<Run<'a>>,
}

pub(super) fn gather(input: &ReportInput) -> Gathered<'_> {
    let mut slots: BTreeMap<String, Slot<'_>> = BTreeMap::new();
    for (index, point) in input.plan.iter().flat_map(|plan| plan.points.iter().enumerate()) {
        slots.entry(key(&point.point, point.kind)).or_default().planned.get_or_insert((index, point));
    }
    for (path, record) in &input.records {
        let slot = slots.entry(key(&record.ids.point, record.ids.kind)).or_default();
        let orphan = input.plan.is_some() && slot.planned.is_none_or(|(_, point)| record.ids.repetition >= point.repetitions);
        slot.runs.push(Run { path, record, orphan });
    }

    let mut slots: Vec<(String, Slot<'_>)> = slots.into_iter().collect();
    let mut duplicates = Vec::new();
    for (_, slot) in &mut slots {
        slot.runs.sort_by(|a, b| by_repetition(a, b));
    }
    let mut columns = columns(&slots);
    slots.sort_by(|a, b| by_place(&columns, a, b));
    let mut points: Vec<Point<'_>> = slots.iter().flat_map(|(_, slot)| points_of(slot, input.plan.is_some(), &mut duplicates)).collect();
    super::conditions::tell(&mut points);
    let others = beside::tell(&mut points, &columns);
    columns.extend(others);
    duplicates.sort_by(by_repetition_of_path);

    let mut broken: Vec<&Broken> = input.broken.iter().collect();
    broken.sort();
    let planned_runs = input.plan.is_some().then(|| slots.iter().filter_map(|(_, slot)| slot.planned).map(|(_, point)| point.repetitions).sum());
    Gathered { planned_runs, columns, points, duplicates, broken }
}

fn by_repetition(a: &Run<'_>, b: &Run<'_>) -> Ordering {
    let (x, y) = (&a.record.ids, &b.record.ids);
    x.repetition.cmp(&y.repetition).then_with(|| natural(a.path, b.path)).then_with(|| x.run_id.cmp(&y.run_id))
}

fn by_repetition_of_path(a: &Run<'_>, b: &Run<'_>) -> Ordering {
    natural(a.path, b.path).then_with(|| a.record.ids.run_id.cmp(&b.record.ids.run_id))
}

fn ids_of<'a>(slot: &Slot<'a>) -> Option<(&'a PointIds, Kind)> {
    match (slot.planned, slot.runs.first()) {
        (Some((_, point)), _) => Some((&point.point, point.kind)),
        (None, Some(run)) => Some((&run.record.ids.point, run.record.ids.kind)),
        (None, None) => None,
    }
}

/// Device, backend, kind, then the axes as planned points name them, then as the others do.
fn columns<'a>(slots: &[(String, Slot<'a>)]) -> Vec<Column<'a>> {
    let mut order: Vec<&(String, Slot<'a>)> = slots.iter().collect();
    order.sort_by_key(|(_, slot)| slot.planned.map_or(usize::MAX, |(index, _)| index));
    let mut columns = vec![Column::Device, Column::Backend, Column::Kind];
    let mut seen = BTreeSet::new();
    for (ids, _) in order.into_iter().filter_map(|(_, slot)| ids_of(slot)) {
        columns.extend(ids.axes.keys().filter(|name| seen.insert(name.as_str())).map(|name| Column::Axis(name)));
    }
    columns
}

/// Plan order; what isn't planned comes after it, by its axes.
fn by_place(columns: &[Column<'_>], (key_a, a): &(String, Slot<'_>), (key_b, b): &(String, Slot<'_>)) -> Ordering {
    match (a.planned, b.planned) {
        (Some((a, _)), Some((b, _))) => return a.cmp(&b),
        (Some(_), None) => return Ordering::Less,
        (None, Some(_)) => return Ordering::Greater,
        (None, None) => {}
    }
    let (Some((a, kind_a)), Some((b, kind_b))) = (ids_of(a), ids_of(b)) else { return key_a.cmp(key_b) };
    let by_column = |column: &Column<'_>| match *column {
        Column::Device => natural(&a.device, &b.device),
        Column::Backend => natural(&a.backend, &b.backend),
        Column::Kind => kind_a.cmp(&kind_b),
        Column::Axis(name) => compare_cells(a.axes.get(name), b.axes.get(name)),
        Column::Env(_) | Column::Block(_) => Ordering::Equal,
    };
    columns.iter().map(by_column).find(|order| order.is_ne()).unwrap_or_else(|| key_a.cmp(key_b))
}

/// One point per identity; the one that the plan wants first.
fn points_of<'a>(slot: &Slot<'a>, plan_known: bool, duplicates: &mut Vec<Run<'a>>) -> Vec<Point<'a>> {
    let Some((ids, kind)) = ids_of(slot) else { return Vec::new() };
    // Attempts are counted within an identity: after a change the first one may be better than the third one before it.
    // A file at the job's own name stands for it, whatever failed beside it since; among others the last attempt.
    let rank = |run: &Run<'_>| {
        let file = run.path.rsplit('/').next().unwrap_or_default();
        (!file.contains(".attempt"), run.record.ids.attempt)
    };
    let mut highest: BTreeMap<(&str, u32), (bool, u32)> = BTreeMap::new();
    for run in &slot.runs {
        let best = highest.entry((&run.record.ids.point_identity, run.repetition())).or_default();
        *best = (*best).max(rank(run));
    }
    let is_last = |run: &Run<'_>| highest.get(&(run.record.ids.point_identity.as_str(), run.repetition())) == Some(&rank(run));

    let mut by_identity: BTreeMap<&str, Vec<Run<'a>>> = BTreeMap::new();
    for run in slot.runs.iter().filter(|run| is_last(run)) {
        let runs = by_identity.entry(&run.record.ids.point_identity).or_default();
        match runs.last() {
            Some(previous) if previous.repetition() == run.repetition() => duplicates.push(*run),
            _ => runs.push(*run),
        }
    }
    let mixed = by_identity.len() > 1;
    let wanted = slot.planned.and_then(|(_, point)| point.point_identity.as_deref());
    if let Some(wanted) = wanted {
        by_identity.entry(wanted).or_default();
    }

    let recorded: BTreeSet<u32> = by_identity.values().flatten().map(Run::repetition).collect();
    let missing_but = |recorded: &BTreeSet<u32>| -> Vec<u32> {
        slot.planned.map_or_else(Vec::new, |(_, point)| (0..point.repetitions).filter(|r| !recorded.contains(r)).collect())
    };
    let mut points: Vec<Point<'a>> = by_identity
        .into_iter()
        .map(|(identity, runs)| {
            let stale = wanted.is_some_and(|wanted| wanted != identity);
            let own: BTreeSet<u32> = runs.iter().map(Run::repetition).collect();
            Point {
                ids,
                kind,
                identity: Some(identity),
                planned: slot.planned.filter(|_| !stale).map(|(_, point)| point.repetitions),
                orphan: plan_known && slot.planned.is_none(),
                stale,
                mixed: mixed && !runs.is_empty(),
                missing: if wanted == Some(identity) { missing_but(&own) } else { Vec::new() },
                runs,
                earlier_attempts: 0,
                conditions: String::new(),
                beside: BTreeMap::new(),
            }
        })
        .collect();
    points.sort_by_key(|point| point.stale);
    if points.is_empty() {
        let planned = slot.planned.map(|(_, point)| point.repetitions);
        let (runs, missing) = (Vec::new(), missing_but(&recorded));
        let point = Point {
            ids,
            kind,
            identity: None,
            planned,
            orphan: false,
            stale: false,
            mixed,
            runs,
            missing,
            earlier_attempts: 0,
            conditions: String::new(),
            beside: BTreeMap::new(),
        };
        points.push(point);
    } else if wanted.is_none()
        && let Some(first) = points.first_mut()
    {
        // Which identity the plan wants is unknown: a repetition is missing if no identity has it.
        first.missing = missing_but(&recorded);
    }

    // An earlier attempt counts where the run is that took its place.
    for run in slot.runs.iter().filter(|run| !is_last(run)) {
        let of = Some(run.record.ids.point_identity.as_str());
        let successor = points.iter_mut().find(|point| point.identity == of && point.runs.iter().any(|o| o.repetition() == run.repetition()));
        if let Some(point) = successor {
            point.earlier_attempts += 1;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        counts::Counts,
        records::{identity, plan, point, run, text},
    };

    fn threads(n: i64) -> PointIds {
        point(&[("threads", AxisValue::Int(n))])
    }

    fn runs_of(gathered: &Gathered<'_>, index: usize) -> Vec<(u32, u32)> {
        gathered.points[index].runs.iter().map(|run| (run.repetition(), run.record.ids.attempt)).collect()
    }

    #[test]
    fn points_stand_in_plan_order_and_orphans_after_them() {
        let input = ReportInput {
            plan: Some(plan(&[threads(8), threads(2)], 1)),
            records: [16, 2, 3, 8].map(|n| run(&threads(n), 0).stored()).to_vec(),
            ..ReportInput::default()
        };
        let gathered = gather(&input);
        let order: Vec<_> = gathered.points.iter().map(|point| (point.ids.axes["threads"].clone(), point.orphan)).collect();
        let expected = [(8, false), (2, false), (3, true), (16, true)];
        assert_eq!(order, expected.map(|(n, orphan)| (AxisValue::Int(n), orphan)));
    }

    #[test]
    fn without_a_plan_points_sort_by_their_axes_and_nothing_is_missing() {
        let records = [10, 9, 1].map(|n| run(&threads(n), 3).stored()).to_vec();
        let input = ReportInput { records, ..ReportInput::default() };
        let gathered = gather(&input);
        let order: Vec<_> = gathered.points.iter().map(|point| point.ids.axes["threads"].clone()).collect();
        assert_eq!(order, [1, 9, 10].map(AxisValue::Int));
        assert_eq!(gathered.planned_runs, None);
        assert!(gathered.points.iter().all(|point| point.missing.is_empty() && !point.orphan && point.planned.is_none()));
    }

    #[test]
    fn only_the_last_attempt_counts() {
        let first = run(&threads(1), 0).stored_as_attempt();
        let second = run(&threads(1), 0).attempt(1).stored_as_attempt();
        let third = run(&threads(1), 0).attempt(2).stored();
        let input = ReportInput { records: vec![third, first, second], ..ReportInput::default() };
        let gathered = gather(&input);
        assert_eq!(runs_of(&gathered, 0), [(0, 2)]);
        assert_eq!(gathered.points[0].earlier_attempts, 2);
    }

    #[test]
    fn a_failed_repeat_does_not_take_the_place_of_a_valid_record() {
        let valid = run(&threads(1), 0).stored();
        let repeat = run(&threads(1), 0).attempt(3).stored_as_attempt();
        let input = ReportInput { plan: Some(plan(&[threads(1)], 1)), records: vec![repeat, valid], ..ReportInput::default() };
        let gathered = gather(&input);
        assert_eq!((runs_of(&gathered, 0), gathered.points[0].earlier_attempts), (vec![(0, 0)], 1));
    }

    #[test]
    fn attempts_before_a_change_do_not_hide_the_first_one_after_it() {
        let before = run(&threads(1), 0).identity('b').attempt(3).stored();
        let after = run(&threads(1), 0).stored();
        let input = ReportInput { plan: Some(plan(&[threads(1)], 1)), records: vec![before, after], ..ReportInput::default() };
        let gathered = gather(&input);
        assert_eq!((runs_of(&gathered, 0), &gathered.points[0].missing), (vec![(0, 0)], &vec![]));
    }

    #[test]
    fn a_copy_of_a_record_is_no_second_run() {
        let (path, record) = run(&threads(1), 0).stored();
        let records = vec![(path.clone(), record.clone()), (format!("copy/{path}"), record)];
        let input = ReportInput { records, ..ReportInput::default() };
        let gathered = gather(&input);
        assert_eq!(runs_of(&gathered, 0), [(0, 0)]);
        assert_eq!(gathered.duplicates.len(), 1);
    }

    #[test]
    fn an_axis_value_keeps_its_type() {
        let records = vec![run(&threads(1), 0).stored(), run(&point(&[("threads", text("1"))]), 0).stored()];
        let input = ReportInput { records, ..ReportInput::default() };
        assert_eq!(gather(&input).points.len(), 2);
    }

    #[test]
    fn the_order_of_axes_does_not_part_a_point() {
        let (a, b) = (("a", AxisValue::Int(1)), ("b", AxisValue::Int(2)));
        let records = vec![run(&point(&[a.clone(), b.clone()]), 0).stored(), run(&point(&[b, a]), 1).stored()];
        let input = ReportInput { records, ..ReportInput::default() };
        assert_eq!(gather(&input).points.len(), 1);
    }

    #[test]
    fn another_identity_leaves_the_planned_runs_missing() {
        let records = (0..2).map(|repetition| run(&threads(1), repetition).identity('b').stored()).collect();
        let input = ReportInput { plan: Some(plan(&[threads(1)], 2)), records, ..ReportInput::default() };
        let gathered = gather(&input);
        let points: Vec<_> = gathered.points.iter().map(|p| (p.identity, p.stale, p.mixed, p.missing.clone(), p.planned)).collect();
        let (wanted, stored) = (identity('a'), identity('b'));
        assert_eq!(points, [(Some(wanted.as_str()), false, false, vec![0, 1], Some(2)), (Some(stored.as_str()), true, false, vec![], None)]);
    }

    #[test]
    fn a_repetition_is_missing_only_if_no_identity_has_it_where_the_plan_names_none() {
        let mut unasked = plan(&[threads(1), threads(2)], 3);
        unasked.points.iter_mut().for_each(|point| point.point_identity = None);
        let records = vec![run(&threads(1), 0).stored(), run(&threads(1), 1).identity('b').stored()];
        let input = ReportInput { plan: Some(unasked), records, ..ReportInput::default() };
        let gathered = gather(&input);
        let missing: Vec<_> = gathered.points.iter().map(|point| (point.mixed, point.missing.clone())).collect();
        assert_eq!(missing, [(true, vec![2]), (true, vec![]), (false, vec![0, 1, 2])]);
        assert_eq!(gathered.planned_runs, Some(6));
    }

    #[test]
    fn a_repetition_beyond_the_plan_is_an_orphan() {
        let records = (0..3).map(|repetition| run(&threads(1), repetition).stored()).collect();
        let input = ReportInput { plan: Some(plan(&[threads(1)], 2)), records, ..ReportInput::default() };
        let gathered = gather(&input);
        assert_eq!(gathered.points[0].own_runs().count(), 2);
        assert_eq!(Counts::of(&gathered.points[0]).orphan, 1);
    }
}
