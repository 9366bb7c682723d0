//! The wait before a run, as it stands in a record.

use isotherm_wire::settle::{Finding, Rule};
use isotherm_wire::telemetry::Series;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The wait before the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The fixed wait asked for, or the shortest one.
    pub requested_ms: u64,
    /// `fixed_wait`, or `not_reached`; of a wait with evidence `settled`, `settled_steady` or `timed_out`.
    pub verdict: String,
    /// Until when it was to be waited; `None` for a fixed wait, and so is all that follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Temperatures of the device at rest, which the wait was judged by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// How far the sensor that was furthest above its reference was above it at the end of the wait; below zero if under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_c: Option<f64>,
    /// What the run began from; `None` where no temperature tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regime: Option<Regime>,
    /// Everything that was looked at, as it was at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<Finding>,
    /// The looks themselves, one a second, thinned out evenly to at most 240.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Series>,
}

/// Temperatures of a device at rest, as one results directory knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Sensor → °C: the lower of the first contact's reading and the lowest with which a wait ended well.
    pub values: BTreeMap<String, f64>,
    /// Sensors that gave no value at first contact, and why; they are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
    /// First contact: RFC 3339, the device's clock.
    pub taken_at: String,
    /// How often it had been raised, because the device did not come back to it any more.
    pub raised: u32,
}

/// What a run began from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Regime {
    /// A device as cool as at rest.
    Burst,
    /// One that was warmer.
    Sustained,
}
