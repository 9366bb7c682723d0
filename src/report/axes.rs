//! Axes as columns: their values, their order, and which of them vary.

use super::{escape::Foreign, gather::Point};
use crate::{config::model::AxisValue, store::record::Kind};
use serde::Serialize;
use std::cmp::Ordering;

/// A value on an axis, with its type.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Foreign),
    /// Of points that differ in it and are one for what is shown: `16, 32`.
    Several(Vec<Cell>),
}

impl Cell {
    /// As printed; text goes through `escape`.
    #[must_use]
    pub fn text(&self, escape: fn(&Foreign) -> String) -> String {
        match self {
            Cell::Bool(value) => value.to_string(),
            Cell::Int(value) => value.to_string(),
            Cell::Float(value) => value.to_string(),
            Cell::Text(value) => escape(value),
            Cell::Several(values) => values.iter().map(|value| value.text(escape)).collect::<Vec<_>>().join(", "),
        }
    }

    /// Of several points; `None` where none of them has the axis.
    pub(super) fn of<'p, 'a: 'p>(column: Column<'_>, points: impl Iterator<Item = &'p Point<'a>>) -> Option<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for cell in points.filter_map(|point| column.cell(point)) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        if cells.len() > 1 { Some(Cell::Several(cells)) } else { cells.pop() }
    }
}

impl From<&AxisValue> for Cell {
    fn from(value: &AxisValue) -> Cell {
        match value {
            AxisValue::Bool(value) => Cell::Bool(*value),
            AxisValue::Int(value) => Cell::Int(*value),
            AxisValue::Float(value) => Cell::Float(*value),
            AxisValue::Text(value) => Cell::Text(Foreign::new(value)),
            AxisValue::List(_) => Cell::Text(Foreign::new(value.to_string())),
        }
    }
}

/// What a column of axis values is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column<'a> {
    Device,
    Backend,
    Kind,
    Axis(&'a str),
    /// A variable that is an axis of no point; without `env.`.
    Env(&'a str),
    /// What blocks differ in beyond that, where it is an axis of no point.
    Block(&'static str),
}

impl Column<'_> {
    pub(super) fn name(self) -> Foreign {
        Foreign::new(self.text())
    }

    pub(super) fn text(self) -> String {
        match self {
            Column::Device => "device".to_owned(),
            Column::Backend => "backend".to_owned(),
            Column::Kind => "kind".to_owned(),
            Column::Axis(name) | Column::Block(name) => name.to_owned(),
            Column::Env(name) => format!("env.{name}"),
        }
    }

    /// Is it about something beside the axes of all points?
    pub(super) fn is_beside(self) -> bool {
        matches!(self, Column::Env(_) | Column::Block(_))
    }

    /// `None` where the point doesn't have it, or no record tells.
    pub(super) fn cell(self, point: &Point<'_>) -> Option<Cell> {
        match self {
            Column::Device => Some(Cell::Text(Foreign::new(&point.ids.device))),
            Column::Backend => Some(Cell::Text(Foreign::new(&point.ids.backend))),
            Column::Kind => Some(Cell::Text(Foreign::new(point.kind.name()))),
            Column::Axis(name) => point.ids.axes.get(name).or_else(|| point.beside.get(name)).map(Cell::from),
            Column::Env(_) | Column::Block(_) => point.beside.get(&self.text()).map(Cell::from),
        }
    }
}

/// An axis that has the same value in all rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Constant {
    pub name: Foreign,
    pub value: Cell,
}

/// The columns that some points need, parted into those that vary and those that don't. An axis that no point has is in neither, nor is what
/// is beside all axes where it doesn't vary.
pub(super) fn part<'a>(columns: &[Column<'a>], points: &[&Point<'_>]) -> (Vec<Column<'a>>, Vec<Constant>) {
    let mut varying = Vec::new();
    let mut constants = Vec::new();
    for &column in columns {
        let mut cells = points.iter().map(|point| column.cell(point));
        let Some(first) = cells.next() else { continue };
        match (cells.all(|cell| cell == first), first) {
            (true, None) => {}
            // Of the usual kind nothing has to be said.
            (true, Some(_)) if column == Column::Kind && points.iter().all(|point| point.kind == Kind::Timing) => {}
            (true, Some(_)) if column.is_beside() => {}
            (true, Some(value)) => constants.push(Constant { name: column.name(), value }),
            (false, _) => varying.push(column),
        }
    }
    (varying, constants)
}

/// Order of two values on an axis: absent, switches, numbers by size, text with its numbers by size.
pub(super) fn compare_cells(left: Option<&AxisValue>, right: Option<&AxisValue>) -> Ordering {
    fn rank(value: Option<&AxisValue>) -> u8 {
        match value {
            None => 0,
            Some(AxisValue::Bool(_)) => 1,
            Some(AxisValue::Int(_) | AxisValue::Float(_)) => 2,
            Some(AxisValue::Text(_)) => 3,
            Some(AxisValue::List(_)) => 4,
        }
    }
    // Integers beyond 2^53 that share a float differ by their exact value; without that the order would not be total.
    fn number(value: &AxisValue) -> Option<(f64, i64)> {
        match value {
            AxisValue::Int(value) => Some((*value as f64, *value)),
            AxisValue::Float(value) => Some((*value, i64::MIN)),
            _ => None,
        }
    }
    match (left, right) {
        (Some(AxisValue::Bool(left)), Some(AxisValue::Bool(right))) => left.cmp(right),
        (Some(AxisValue::Text(left)), Some(AxisValue::Text(right))) => natural(left, right),
        (Some(AxisValue::List(left)), Some(AxisValue::List(right))) => natural(&left.join(" "), &right.join(" ")),
        _ => rank(left).cmp(&rank(right)).then_with(|| match (left.and_then(number), right.and_then(number)) {
            (Some(left), Some(right)) => left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)),
            _ => Ordering::Equal,
        }),
    }
}

/// Order of two texts in which runs of digits count as numbers: `q4` before `q16`. Equal only for equal texts.
pub(super) fn natural(left: &str, right: &str) -> Ordering {
    let (mut a, mut b) = (left, right);
    loop {
        let (Some(x), Some(y)) = (a.chars().next(), b.chars().next()) else {
            return a.len().cmp(&b.len()).then_with(|| left.cmp(right));
        };
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_a, rest_a) = split_number(a);
            let (number_b, rest_b) = split_number(b);
            // Without leading zeros the longer number is the larger one.
            match number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b)) {
                Ordering::Equal => (a, b) = (rest_a, rest_b),
                unequal => return unequal,
            }
        } else if x == y {
            (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
        } else {
            return x.cmp(&y);
        }
    }
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].trim_start_matches('0'), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        ReportInput,
        gather::gather,
        records::{point, run},
    };

    #[test]
    fn numbers_in_text_sort_by_size() {
        let mut names = ["q16", "q4", "q4_1", "q04", "", "7b", "13b"];
        names.sort_by(|left, right| natural(left, right));
        assert_eq!(names, ["", "7b", "13b", "q04", "q4", "q4_1", "q16"]);
    }

    #[test]
    fn values_sort_by_type_and_then_by_size() {
        let mut values = [
            Some(AxisValue::Text("10".into())),
            Some(AxisValue::Int(10)),
            Some(AxisValue::Float(2.5)),
            Some(AxisValue::Text("9".into())),
            Some(AxisValue::Bool(true)),
            Some(AxisValue::Int(2)),
            None,
        ];
        values.sort_by(|left, right| compare_cells(left.as_ref(), right.as_ref()));
        assert_eq!(
            values,
            [
                None,
                Some(AxisValue::Bool(true)),
                Some(AxisValue::Int(2)),
                Some(AxisValue::Float(2.5)),
                Some(AxisValue::Int(10)),
                Some(AxisValue::Text("9".into())),
                Some(AxisValue::Text("10".into())),
            ]
        );
    }

    #[test]
    fn an_axis_that_only_some_points_have_varies() {
        let of = |axes: &[(&str, AxisValue)]| run(&point(axes), 0).stored();
        let records = vec![of(&[("threads", AxisValue::Int(1))]), of(&[])];
        let input = ReportInput { records, ..ReportInput::default() };
        let gathered = gather(&input);
        let (varying, constants) = part(&[Column::Device, Column::Axis("threads")], &gathered.points.iter().collect::<Vec<_>>());
        assert_eq!(varying, [Column::Axis("threads")]);
        assert_eq!(constants, [Constant { name: Foreign::new("device"), value: Cell::Text(Foreign::new("here")) }]);
    }
}
