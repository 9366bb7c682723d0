//! Who else used the machine, as it stands in a record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What others used of the CPUs over a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Competing {
    /// How long.
    pub span_s: f64,
    /// Cores in use on average by whatever is neither the run nor the agent, nor the kernel's own. Around 0 on a quiet machine, a little
    /// below it too: CPU time is counted in ticks.
    pub cores: f64,
    /// Cores that kernel threads and interrupts used; `None` where kernel threads can't be seen, as in a container: then they are in `cores`.
    pub kernel_cores: Option<f64>,
    /// The busiest three by name, of those that were there at the end.
    pub processes: Vec<CompetingProcess>,
    /// Cores of `cores` that belong to no process which was there at the end: it came and went, or can't be seen.
    pub unnamed_cores: f64,
}

/// The processes of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompetingProcess {
    /// What they call themselves (`comm`), as it is.
    pub name: String,
    /// How many there were.
    pub processes: u32,
    /// Cores that they used together on average.
    pub cores: f64,
}

/// What the machine was busy with right before the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreRun {
    /// The last 5 s of settle and preparation, or a little more.
    pub competing: Competing,
    /// `cpu`, `memory`, `io` → share of that time in which some task waited for it, percent (PSI `some`); without those that the kernel
    /// doesn't tell of.
    pub waited_pct: BTreeMap<String, f64>,
}
