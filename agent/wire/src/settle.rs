//! Settling on evidence: what is waited for before a run, and what was found while waiting.
//!
//! Takes nothing, gives plain data types; must not know how anything is read, or what becomes of a run that was waited for in vain.

use crate::telemetry::Series;
use crate::unit::Unit;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Competing CPU that a quiet device has at most, cores.
pub const MOST_COMPETING_CORES: f64 = 0.1;
/// A temperature that changes by no more than this, °C a minute …
pub const STEADY_C_PER_MIN: f64 = 0.2;
/// … over this long, ns, is steady: the device has come as far as it will. Longer where a sensor's steps hide that much in this time.
pub const STEADY_OVER_NS: u64 = 30_000_000_000;
/// Above what it was when the session began, the memory of a GPU counts as free again, bytes: drivers hand it out in pages of 2 MiB, and
/// what a desktop draws comes and goes by a few of them; a compute context that was left behind holds hundreds of MiB with its kernels.
pub const GPU_MEMORY_WITHIN_BYTES: f64 = (32 << 20) as f64;
/// Everything has to be so for this long, ns.
pub const HELD_FOR_NS: u64 = 3_000_000_000;
/// So many time-outs in a row that found the device too warm raise its reference.
pub const TIMEOUTS_THAT_RAISE: usize = 3;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    /// Shortest wait.
    pub min_ms: u64,
    /// Longest wait.
    pub timeout_ms: u64,
    /// Above the reference, at most.
    pub temp_within_c: f64,
    /// What then.
    pub on_timeout: OnTimeout,
}

/// What becomes of a run whose device did not settle in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It is made, and flagged.
    Flag,
    /// It is not made, and has failed.
    Fail,
    /// It is not made, and is skipped.
    Skip,
}

/// How the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The device was as it had been at first.
    Settled,
    /// It was quiet, and its temperature steady above that.
    SettledSteady,
    /// It was not, until the time was up.
    TimedOut,
}

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// A temperature, °C: within reach of its reference, or steady.
    Temperature,
    /// What others use of the CPUs, cores.
    CompetingCpu,
    /// Live throttle bits of the firmware that are set, and how often a CPU has been throttled since the last look.
    Throttle,
    /// Pages read from swap since the last look.
    SwapIn,
    /// cpufreq policies whose limits are narrower than they were in this session.
    FrequencyLimits,
    /// Processes that have a compute context on a GPU.
    GpuProcesses,
    /// Memory of a GPU in use, bytes: at most a little above what it was when the session began.
    GpuMemory,
}

impl Criterion {
    /// Name and unit as a column of telemetry.
    #[must_use]
    pub fn column(self) -> (&'static str, Unit) {
        match self {
            Criterion::Temperature => ("temperature_c", Unit::DegreesCelsius),
            Criterion::CompetingCpu => ("competing_cores", Unit::One),
            Criterion::Throttle => ("throttle_count", Unit::Count),
            Criterion::SwapIn => ("swap_in_pages_count", Unit::Count),
            Criterion::FrequencyLimits => ("narrowed_policies_count", Unit::Count),
            Criterion::GpuProcesses => ("gpu_processes_count", Unit::Count),
            Criterion::GpuMemory => ("gpu_memory_used_bytes", Unit::Bytes),
        }
    }
}

/// One criterion as it was at the end of the wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Which.
    pub criterion: Criterion,
    /// Of which sensor, or GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Whether it was so; `None` = left out, because the device doesn't tell.
    pub met: Option<bool>,
    /// As read last.
    pub value: Option<f64>,
    /// The largest value with which it is so; `None` = there is none, or the criterion is left out.
    pub limit: Option<f64>,
    /// Why it is left out, has no limit or no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Temperatures of a device at rest, as one results directory knows it: those of the first contact, or of a settle that came lower.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reference {
    /// First contact: CLOCK_REALTIME of the device, nanoseconds since 1970, a label.
    pub taken_unix_ns: u64,
    /// Sensor → °C.
    pub values: BTreeMap<String, f64>,
    /// Sensors that gave no value at first contact: why. They are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
    /// How often it was raised, because the device did not come back to it any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub raised: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// What a wait has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub rule: Rule,
    /// `None` = it was ended before there was one.
    pub verdict: Option<Verdict>,
    /// What it was judged by; `None` = it could not be read, `criteria` say why.
    pub reference: Option<Reference>,
    /// How far the sensor that was furthest above its reference was above it at the end; below zero if under it. `None` without either.
    pub offset_c: Option<f64>,
    pub criteria: Vec<Finding>,
    /// One row per look, thinned out where there were many; one column per criterion that isn't left out.
    pub trace: Series,
    /// This wait's time-out was the last of too many: the reference from now on, sensor → °C.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub raised_to: BTreeMap<String, f64>,
}
