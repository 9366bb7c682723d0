//! The probe: what a device can measure, found by trying it, and why it can't measure the rest.
//!
//! A role of the agent of its own, beside any keeper: one question, one answer. Raw entries in the system's words; what would mend
//! an absence is for the controller to say.

use crate::inspect::Machine;
use crate::readiness::{Needs, Readiness};
use crate::search::{Finding, Search};
use crate::session::{Engine, Failure, Holder};
use crate::telemetry::{COSTLY_EVERY_NS, COSTLY_NS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the probe's question and answer.
pub const PROBE_VERSION: u32 = 1;

/// The question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeRequest {
    pub probe_version: u32,
    /// Probe although a campaign holds the device.
    pub force: bool,
    /// Directory whose `proc`, `sys`, … are looked at; `/` on a real machine. Below any other nothing is executed or tried out.
    pub root: String,
    /// ONNX files that the builtin engine is to try, absolute.
    pub models: Vec<String>,
    /// Look for model files, and try some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// Look at what a campaign needs as well.
    #[serde(default)]
    pub needs: Option<Needs>,
    /// Read energy instruments rarely and this often a second in turn, too; takes some ten seconds where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling_hz: Option<f64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeAnswer {
    Probed(Box<Probed>),
    /// [`Failure::LeaseHeld`] while a campaign holds the device, or why there is no answer.
    Refused(Failure),
}

/// Everything that a probe found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    pub probe_version: u32,
    pub agent_version: String,
    /// Directory that was looked at.
    pub root: String,
    pub machine: Machine,
    /// The inference engine inside the agent.
    pub engine: Engine,
    /// Who holds the device while it was probed all the same.
    pub held_by: Option<Holder>,
    /// In the order in which they were tried: by family, then by name.
    pub capabilities: Vec<Capability>,
    /// As asked for, in that order, then those that were found.
    pub models: Vec<TriedModel>,
    /// Only where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Finding>,
    /// Only where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
}

/// One thing that a device may be able to measure or do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// Unique and stable on one machine: `temperature.thermal_zone0`.
    pub id: String,
    pub family: Family,
    /// As kernel, driver or tool call it: `cpu-thermal`.
    pub name: String,
    /// Unit of `value`, as it is read: `millicelsius`, `khz`, `uj`, …
    pub unit: Option<String>,
    /// Path it is read from, or where it was looked for.
    pub source: String,
    /// The sampler of this agent reads it in every run.
    pub recorded: bool,
    pub found: Found,
}

/// Families, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// CPU time, load.
    Load,
    Memory,
    /// Pressure stall information.
    Pressure,
    Cgroup,
    Temperature,
    Clock,
    Throttling,
    Energy,
    PowerSource,
    Gpu,
    Inference,
    /// What the agent may do to the machine.
    Permission,
}

/// Outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    Present(Present),
    Absent(Absent),
}

/// It is there, and answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Present {
    /// Wall time of one read with the file open, median of a few, nanoseconds; `None` = nothing was read again.
    pub cost_ns: Option<u64>,
    /// As read, in `unit`; nothing is clamped. `None` where there is no single number, or no trial was possible.
    pub value: Option<f64>,
    /// What else was found, in the system's words: `governor`, `version`, `wraps_at_uj`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// Reads that failed beside one that succeeded: the last failure.
    pub flaky: Option<String>,
    /// Of an energy instrument, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled: Option<Polled>,
    /// The same at lower rates, ascending: what runs at these go by. Only where a controller keeps it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub polled_slower: Vec<Polled>,
}

/// Length of a slice in which an instrument is read once or often, ms.
pub const POLLED_SLICE_MS: u64 = 500;

/// What an energy instrument said when it was read rarely and when it was read often, in turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Polled {
    /// Readings a second in a slice in which it was read often.
    pub hz: f64,
    /// In the order of time; in every second one the slice that was read often came first. None of what has values too rarely to tell.
    pub pairs: Vec<PolledPair>,
    /// Readings that followed another one in their slice, and how many of them said something new.
    pub followed: u32,
    pub new: u32,
}

/// Two slices side by side, W: of a monitor what it said at the end, of a counter what it grew by per second. `None` = it gave no value, or
/// went back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PolledPair {
    /// Read once, at the end.
    pub rarely: Option<f64>,
    pub often: Option<f64>,
}

/// It is not there, or gave nothing to go by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    pub cause: Cause,
    /// In the system's words; never empty.
    pub reason: String,
}

/// Kinds of absence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No such file, directory, device or program.
    NotThere,
    /// There, and not for this user.
    NotPermitted,
    /// It did not answer in time: a hung sensor, a dead network file system, a tool that doesn't return.
    NoAnswer,
    /// The system returned an error.
    Failed,
    /// What was read is not what it should be.
    Garbage,
    /// A number that can't be true, or that stands for "off".
    OutOfRange,
    /// It was not tried; the reason says why.
    NotTried,
}

/// How the builtin engine got on with a model: one inference in a child of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedModel {
    pub path: String,
    pub outcome: ModelOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelOutcome {
    /// Wall time of loading and of the second inference with one thread, nanoseconds.
    Runs {
        load_ns: u64,
        inference_ns: u64,
    },
    Fails(Absent),
}

impl Capability {
    /// The trial's outcome if it is there.
    #[must_use]
    pub fn present(&self) -> Option<&Present> {
        match &self.found {
            Found::Present(present) => Some(present),
            Found::Absent(_) => None,
        }
    }

    /// Does it tell what the machine takes? A battery's own meter tells nothing of that on mains.
    #[must_use]
    pub fn measures_energy(&self) -> bool {
        self.family == Family::Energy && self.present().is_some() && !is_of_a_battery(&self.source)
    }

    /// How long an energy instrument goes by one value, as far as that is known, ms: its own period, or what it averages over.
    #[must_use]
    pub fn period_ms(&self) -> f64 {
        let period = self.present().and_then(|present| present.facts.get("period_ms")?.parse::<f64>().ok()).filter(|ms| ms.is_finite());
        // NVML's reference of nvmlDeviceGetPowerUsage: from Ampere on (but for GA100) it is the mean of the last second.
        let averaged = if self.source == "nvml:power" { 1000.0 } else { 0.0 };
        period.unwrap_or(0.0).max(averaged)
    }

    /// How old its value may be in samples, likewise: that, or how rarely it is sampled because a read takes its time. Of a counter only its
    /// own period counts: what it did since the last read it knows.
    #[must_use]
    pub fn rests_ms(&self) -> f64 {
        let present = self.present();
        let is_counter = matches!(self.unit.as_deref(), Some("uj" | "mj"));
        let by_program = !self.source.starts_with('/') && !self.source.starts_with("nvml:");
        let is_costly = || present.and_then(|present| present.cost_ns).is_none_or(|ns| ns > COSTLY_NS);
        let sampled = if !is_counter && (by_program || is_costly()) { COSTLY_EVERY_NS as f64 / 1e6 } else { 0.0 };
        sampled.max(self.period_ms())
    }

    /// Why it is not there.
    #[must_use]
    pub fn absent(&self) -> Option<&Absent> {
        match &self.found {
            Found::Present(_) => None,
            Found::Absent(absent) => Some(absent),
        }
    }
}

/// Is it a battery's own meter that is read from there?
#[must_use]
pub fn is_of_a_battery(source: &str) -> bool {
    source.starts_with("/sys/class/power_supply/")
}
