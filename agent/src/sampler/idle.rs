//! What the energy instruments say while a device waits for its run: takes snapshots, gives the last of them as a series. Must not know
//! what is waited for.

use isotherm_wire::columns::ColumnName;
use isotherm_wire::telemetry::{Column, Reading, Series, Snapshot};
use std::collections::VecDeque;

/// Looks that are kept, one a second: the end of a wait is the part in which a device is idle.
const MOST_LOOKS: usize = 31;

/// The last looks, oldest first.
#[derive(Default)]
pub struct Idle(VecDeque<(u64, Vec<Reading>)>);

impl Idle {
    pub fn add(&mut self, snapshot: &Snapshot) {
        let is_instrument = |reading: &&Reading| ColumnName::ALL.iter().any(|column| column.is_instrument() && column.entry().name == reading.metric);
        let readings: Vec<Reading> = snapshot.readings.iter().filter(is_instrument).filter(|reading| reading.value.is_some()).cloned().collect();
        if readings.is_empty() {
            return;
        }
        if self.0.len() == MOST_LOOKS {
            self.0.pop_front();
        }
        self.0.push_back((snapshot.monotonic_ns, readings));
    }

    /// `None` where no instrument was read.
    pub fn series(self) -> Option<Series> {
        let (_, first) = self.0.front()?;
        let of = |readings: &[Reading], known: &Reading| {
            readings.iter().find(|reading| reading.metric == known.metric && reading.subject == known.subject).and_then(|reading| reading.value)
        };
        let column = |known: &Reading| Column {
            metric: known.metric.clone(),
            unit: known.unit.clone(),
            subject: known.subject.clone(),
            source: known.source.clone(),
            values: self.0.iter().map(|(_, readings)| of(readings, known)).collect(),
        };
        Some(Series { monotonic_ns: self.0.iter().map(|(ns, _)| *ns).collect(), columns: first.iter().map(column).collect() })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn snapshot(second: u64, values: &[(ColumnName, Option<f64>)]) -> Snapshot {
        let reading = |(column, value): &(ColumnName, Option<f64>)| Reading {
            metric: column.entry().name.into(),
            unit: column.entry().unit.symbol().into(),
            subject: Some("a".into()),
            source: String::new(),
            value: *value,
            absent: value.is_none().then(|| "gone".into()),
        };
        Snapshot { monotonic_ns: second, readings: values.iter().map(reading).collect() }
    }

    #[test]
    fn the_last_looks_at_instruments_are_a_series_and_nothing_else_is() {
        let mut idle = Idle::default();
        for second in 0..40 {
            let joules = (second != 35).then_some(second as f64);
            idle.add(&snapshot(second, &[(ColumnName::Temperature, Some(40.0)), (ColumnName::Energy, joules), (ColumnName::Power, Some(2.0))]));
        }
        let series = idle.series().unwrap();
        assert_eq!((series.monotonic_ns.len(), series.monotonic_ns[0], series.columns.len()), (31, 9, 2));
        assert_eq!((series.columns[0].values[0], series.columns[0].values[26], series.columns[1].values[26]), (Some(9.0), None, Some(2.0)));
        let mut unread = Idle::default();
        unread.add(&snapshot(0, &[(ColumnName::Energy, None), (ColumnName::Temperature, Some(1.0))]));
        assert!(unread.series().is_none());
    }
}
