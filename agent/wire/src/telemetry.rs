//! Telemetry as read: raw values with name, unit and source path. Nothing is interpreted or clamped.

use serde::{Deserialize, Serialize};

/// What takes longer than this to read, ns, …
pub const COSTLY_NS: u64 = 5_000_000;
/// … is sampled only this often, ns.
pub const COSTLY_EVERY_NS: u64 = 1_000_000_000;

/// One value read once. Unit is the suffix of `metric` and stands in `unit` too (`bytes`, `us`, `s`, `count`, `1`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reading {
    /// e.g. `mem_available_bytes`, `psi_memory_full_us`.
    pub metric: String,
    /// The suffix of `metric`, or `1`.
    pub unit: String,
    /// Which of several it is of: a sensor, a clock's CPUs, a rail, by the name that its driver gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Path of the file it was read from.
    pub source: String,
    /// `None` where it could not be read; then `absent` says why.
    pub value: Option<f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// `metric`, or `metric{subject}`: what tells one column of a run from the others.
#[must_use]
pub fn key(metric: &str, subject: Option<&str>) -> String {
    subject.map_or_else(|| metric.to_owned(), |subject| format!("{metric}{{{subject}}}"))
}

/// All readings of one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// CLOCK_MONOTONIC of the device, nanoseconds.
    pub monotonic_ns: u64,
    /// One per column, absent ones too.
    pub readings: Vec<Reading>,
}

impl Snapshot {
    /// The value of a metric; `None` if it is not there or was absent.
    #[must_use]
    pub fn value(&self, metric: &str) -> Option<f64> {
        self.readings.iter().find(|r| r.metric == metric).and_then(|r| r.value)
    }
}

/// One sampled metric over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Column {
    /// As in the table of columns.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which of several it is of; see [`Reading::subject`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Path of the file it was read from.
    pub source: String,
    /// As many as the series has times, in time order; `None` = that read failed.
    pub values: Vec<Option<f64>>,
}

/// Samples of a run as columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// CLOCK_MONOTONIC of the device at the start of each sample, nanoseconds, ascending.
    pub monotonic_ns: Vec<u64>,
    /// One per column that could be read at the start.
    pub columns: Vec<Column>,
}

/// What observing cost, so that a reader can judge whether it disturbed the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observer {
    /// Rate asked for, Hz.
    pub requested_hz: f64,
    /// Samples taken ÷ time sampled, Hz; `None` with fewer than two samples.
    pub achieved_hz: Option<f64>,
    /// Samples taken.
    pub samples: u64,
    /// Sample times that passed while the previous sample was still being taken.
    pub missed_samples: u64,
    /// Wall time of one sample over all sources, nanoseconds.
    pub read_cost_mean_ns: Option<u64>,
    /// The longest of them.
    pub read_cost_max_ns: Option<u64>,
    /// Sensors that cost so much that they are read once a second only, with their cost in ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowed: Vec<(String, u64)>,
    /// Sensors that stopped answering, and were not asked again: why, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<(String, String)>,
    /// CPU time of the agent process (all threads), and of who looks at GPUs for it, from spawn to exit of the workload, nanoseconds.
    pub agent_cpu_ns: u64,
    /// Packets in and out of the device's network links, all but the loopback, from just before the workload's spawn to just after its end,
    /// whoever sent them: the workload's own as well, and one that is passed on from link to link once for each. `None` where the kernel
    /// doesn't tell, there is no link, or one went away meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_packets: Option<u64>,
    /// CPU time of the controller from the warm-up, or else the spawn, to the end of the run, ms, where it is on the same machine; it fills
    /// this in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_cpu_ms: Option<f64>,
}
