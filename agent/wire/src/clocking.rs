//! What governs a machine's clock, as its kernel says it: settings, and no clock.

use serde::{Deserialize, Serialize};

/// What is set for the clocks of a machine's CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clocking {
    /// One for all CPUs for which the same is set, by their lowest CPU; empty without cpufreq.
    pub policies: Vec<ClockPolicy>,
    /// Whether clocks above the nominal one are allowed (`cpufreq/boost`, `intel_pstate/no_turbo`).
    pub boost: Option<bool>,
    /// Of the firmware: `low-power`, `balanced`, `performance`, … (`/sys/firmware/acpi/platform_profile`).
    pub platform_profile: Option<String>,
}

/// What is set for some CPUs. `None` = the driver has no such file, or it can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClockPolicy {
    /// As a list like `0-3,6`.
    pub cpus: String,
    /// cpufreq driver.
    pub driver: Option<String>,
    /// Which rule chooses the clock between the limits.
    pub governor: Option<String>,
    /// Lower limit in force.
    pub min_khz: Option<u64>,
    /// Upper limit in force: what the user, the driver and the thermal management allow.
    pub max_khz: Option<u64>,
    /// Lowest clock of the hardware.
    pub hardware_min_khz: Option<u64>,
    /// Highest clock of the hardware.
    pub hardware_max_khz: Option<u64>,
    /// What hardware that chooses clocks by itself is told to prefer: `performance`, `balance_power`, …
    pub energy_preference: Option<String>,
}
