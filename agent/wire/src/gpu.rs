//! What a result tells of GPUs that both sides have to read alike.
//!
//! Takes a result, gives its columns of GPUs; must not know what is made of them.

use crate::columns::ColumnName;
use crate::result::RunResult;
use crate::telemetry::Column;

/// A run that was sampled for so long without a compute context of its own has none, ns.
const LONG_ENOUGH_NS: u64 = 1_000_000_000;

/// Columns of that name with the GPU that they are of.
pub fn columns(result: &RunResult, name: ColumnName) -> impl Iterator<Item = (&str, &Column)> {
    let named = result.samples.columns.iter().filter(move |column| column.metric == name.entry().name);
    named.filter_map(|column| Some((column.subject.as_deref()?, column)))
}

/// Values of a column between spawn and exit, with their times.
pub fn inside<'r>(result: &'r RunResult, column: &'r Column) -> impl DoubleEndedIterator<Item = (u64, f64)> + 'r {
    let window = result.times.spawn_ns.zip(result.times.exit_ns).map(|(spawn, exit)| spawn..=exit);
    let values = result.samples.monotonic_ns.iter().zip(&column.values).filter_map(|(time, value)| Some((*time, (*value)?)));
    values.filter(move |(time, _)| window.as_ref().is_some_and(|window| window.contains(time)))
}

/// Was it listed for long enough who computes on that GPU, so that a run which was not among them did not?
#[must_use]
pub fn is_listed(result: &RunResult, gpu: &str) -> bool {
    let Some((_, column)) = columns(result, ColumnName::GpuProcesses).find(|(of, _)| *of == gpu) else { return false };
    let mut listed = inside(result, column).map(|(time, _)| time);
    listed.next().zip(listed.next_back()).is_some_and(|(first, last)| last - first >= LONG_ENOUGH_NS)
}
