//! Energy in a record: what was integrated by what, over which window, and how far it can be trusted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Energy by one instrument over one window. A figure that can't be had is `null` with its reason, never 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnergyFigure {
    /// Rung of the ladder that it comes from.
    pub instrument: Rung,
    /// What of the machine.
    pub measures: Measures,
    /// The one that `power_w` and `energy_per_inference_j` are of; the others stand beside it.
    pub of_record: bool,
    pub scope: Scope,
    /// What ran in the window.
    pub ran: Ran,
    pub window: EnergyWindow,
    /// Gross energy over the window.
    pub joules: Option<f64>,
    /// Gross mean power over the window.
    pub mean_w: Option<f64>,
    /// Why there are no joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_reason: Option<String>,
    /// Why `mean_w` is not the run's `power_w` where it is of record: too few readings, or edges that weigh too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_omitted_reason: Option<String>,
    /// What is left of it without what the device takes when idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetEnergy>,
    /// Why nothing is known of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net_omitted_reason: Option<String>,
    /// Gross energy ÷ inferences of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_inference_j: Option<f64>,
    /// Why there is none per inference, although inferences are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_inference_omitted_reason: Option<String>,
    /// Largest relative error that the edges of the window can have brought in; `None` = it can't be told.
    pub edge_error_pct: Option<f64>,
    pub observers: Observers,
    /// Questions that were put to it, in that order.
    pub checks: Vec<EnergyCheck>,
    /// Another rung's energy of the same thing over the same window; `None` where no other measures it, or the edges of one of them may have
    /// brought in more than 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
    /// What was added up, each by its driver's name.
    pub channels: Vec<EnergyChannel>,
}

/// A figure without what the same instrument measured while the device waited for the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetEnergy {
    /// Gross energy less idle power over the window.
    pub joules: f64,
    /// Gross mean power less idle power.
    pub mean_w: f64,
    /// Mean power while it waited.
    pub idle_w: f64,
    /// For so long that was looked at.
    pub idle_ns: u64,
}

/// Instruments, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// An energy counter of a hwmon driver.
    HwmonEnergyCounter,
    /// The GPU's own counter.
    NvmlEnergyCounter,
    /// RAPL, package domains only.
    RaplEnergyCounter,
    /// Rails of the Raspberry Pi's power controller, voltage × current.
    PiPmicSamples,
    /// Power of a hwmon or IIO monitor, integrated.
    HwmonPowerSamples,
    /// The GPU's power by NVML, integrated.
    NvmlIntegratedSamples,
    /// The same by `nvidia-smi`.
    NvidiaSmiInstantaneous,
}

impl Rung {
    /// As it is serialized.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rung::HwmonEnergyCounter => "hwmon_energy_counter",
            Rung::NvmlEnergyCounter => "nvml_energy_counter",
            Rung::RaplEnergyCounter => "rapl_energy_counter",
            Rung::PiPmicSamples => "pi_pmic_samples",
            Rung::HwmonPowerSamples => "hwmon_power_samples",
            Rung::NvmlIntegratedSamples => "nvml_integrated_samples",
            Rung::NvidiaSmiInstantaneous => "nvidia_smi_instantaneous",
        }
    }
}

/// What an instrument measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measures {
    /// Everything that the board or module takes in.
    Board,
    /// CPU packages; memory and the rest of the machine are not in it.
    CpuPackages,
    /// One GPU.
    Gpu,
    /// The rails that the board's power controller makes; not what hangs at the board's input directly.
    PmicRails,
    /// One rail. How it stands to others is not known.
    Rail,
}

impl Measures {
    /// As it is serialized.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Measures::Board => "board",
            Measures::CpuPackages => "cpu_packages",
            Measures::Gpu => "gpu",
            Measures::PmicRails => "pmic_rails",
            Measures::Rail => "rail",
        }
    }
}

/// What was integrated, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// A counter was read at both edges of the window.
    OnDeviceGated,
    /// Samples were cut at the window's marks on the agent's clock.
    AgentTimedWindow,
    /// No window qualified: the energy is that of the whole invocation, and none of a single inference.
    FreeFormCapture,
}

impl Scope {
    /// As it is serialized.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scope::OnDeviceGated => "on_device_gated",
            Scope::AgentTimedWindow => "agent_timed_window",
            Scope::FreeFormCapture => "free_form_capture",
        }
    }
}

/// What ran in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ran {
    /// Timed inferences, round by round; pauses, loading and warm-up are left out.
    TimedInferences,
    /// The measured process from spawn to exit, with all that it does before and after its work.
    Invocation,
}

/// Who saw the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Observers {
    /// Workload and instrument were timed by one clock, so that comparing their clocks proves nothing.
    SameClock,
}

/// The interval of time that a figure describes, CLOCK_MONOTONIC of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnergyWindow {
    /// Its first edge.
    pub start_ns: u64,
    /// Its last edge.
    pub end_ns: u64,
    /// What of it was integrated: less than the whole where there are pauses.
    pub integrated_ns: u64,
    /// In how many parts.
    pub parts: u32,
    /// Inferences completed in it, of `llama-bench` tokens; `None` where nobody counts them.
    pub inferences: Option<u64>,
}

/// A question put to a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnergyCheck {
    /// Which.
    pub check: CheckName,
    /// Its answer.
    pub outcome: CheckOutcome,
    /// What was seen.
    pub found: String,
}

/// Checks, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckName {
    /// Did time pass while inferences were completed?
    Frozen,
    /// Does the window fit into the invocation?
    Envelope,
    /// Do the inferences fill the window?
    Reference,
    /// Did the instrument see all of the window?
    Observers,
    /// Is the energy one that can be?
    Plausible,
    /// How much can the edges have brought in?
    Edges,
}

/// Answer of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    Passed,
    Failed,
    /// It could not be made, which is not passing it.
    Inoperative,
}

/// The same energy by another rung.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrossCheck {
    /// The other one.
    pub instrument: Rung,
    /// Its joules ÷ those of this figure.
    pub ratio: f64,
}

/// One counter or monitor of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnergyChannel {
    /// The column of `samples` that was integrated, with `subject`.
    pub metric: String,
    /// Which of several: package or rail, by its driver's name.
    pub subject: String,
    /// Path of the file it was read from, or what else gave it.
    pub source: String,
    /// Name of the driver or chip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Its part of the figure.
    pub joules: Option<f64>,
    /// Where the counter begins again from 0; `None` = none is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wraps_at_j: Option<f64>,
    /// How often it has something new to say; `None` = it doesn't tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<f64>,
    /// The highest power limit enforced on it; `None` = none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_w: Option<f64>,
}
