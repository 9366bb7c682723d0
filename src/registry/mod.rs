//! What numbers and codes mean: takes nothing, gives one table each of metrics, of issues and remarks, and of reasons. Must not know how a
//! number is read, how a run is judged, or how anything is shown.
//!
//! Whoever makes a metric or an issue names its row; a name without a row does not build. The table of telemetry's columns stands in the
//! wire, because the agent names its columns by it.

mod asked;
mod codes;
mod issues;
mod metrics;
mod reasons;

pub use crate::store::issue::Severity;
pub use codes::{Headline, IssueEntry, Stands};
pub use isotherm_wire::columns::{ColumnEntry, ColumnKind, ColumnName};
pub use isotherm_wire::unit::Unit;
pub use issues::Code;
pub use metrics::{DECLARED, Given, MetricEntry, MetricId};
pub use reasons::{ReasonEntry, reason};
