//! What a results directory says.
//!
//! Takes the records of a results directory and the plan stored with them ([`ReportInput`]), nothing else; gives a [`Model`] and its
//! renderers, and the matrix of what is recorded and what is not ([`StatusMatrix`]). Must not know the campaign file, files or devices, and
//! prints no time and no absolute path of its own: equal inputs give equal bytes, whatever order the records were read in.
//!
//! Rows are point identities, never directories. A number is the geometric mean of run headlines over runs that are `ok` and `valid`;
//! everything that is left out of it, and everything missing, is counted beside it and listed below it with the path of its record.
//! A table never mixes units or definitions.

mod axes;
mod beside;
mod build;
mod ceiling;
mod conditions;
mod counts;
mod csv;
mod digits;
mod escape;
mod findings;
mod fit;
mod gather;
mod input;
mod join;
mod json;
mod layout;
mod markdown;
mod meter;
mod model;
mod pool;
mod status;
mod terminal;

pub use crate::store::Broken;
pub use axes::{Cell, Constant};
pub use counts::{Counts, Fate, Totals};
pub use csv::csv;
pub use escape::Foreign;
pub use input::{ReportInput, ReportOptions};
pub use json::{document, json, line};
pub use markdown::markdown;
pub use model::{Bounds, Class, Entry, Estimator, Finding, Fit, FitPoint, IssueCount, Model, Number, PointEntry, REPORT_VERSION, Row, State, Table};
pub use status::{Mark, MarkedRun, STATUS_VERSION, StatusMatrix, StatusRow};
pub use terminal::terminal;

#[cfg(test)]
#[path = "../../tests/support/records.rs"]
pub(crate) mod records;
