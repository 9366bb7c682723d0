//! What a run was and what became of it: closed sets of words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the run was allowed to disturb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Nothing but the run's own telemetry.
    Timing,
    /// Energy instruments are read, whatever that does to its time.
    Power,
}

impl Kind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Timing => "timing",
            Kind::Power => "power",
        }
    }

    /// What follows a repetition in a line for people: nothing for the usual kind.
    #[must_use]
    pub fn after_label(self) -> &'static str {
        match self {
            Kind::Timing => "",
            Kind::Power => " power",
        }
    }
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The workload ended by itself and well.
    Ok,
    /// It did not, or its numbers could not be read; the reason says why.
    Failed,
    /// It was not run, on purpose; the reason says why.
    Skipped,
}

impl Status {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Failed => "failed",
            Status::Skipped => "skipped",
        }
    }
}

/// Why a run is not `ok`: a closed set. `isotherm explain REASON` says when each is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Oom,
    Timeout,
    ExitCode,
    Signal,
    Transport,
    Parse,
    MemoryThrash,
    ThermalStop,
    Precondition,
    CapabilityAbsent,
    ModelMissing,
    Spawn,
    Interrupted,
    DeviceLost,
    Dominated,
    Internal,
}

impl Reason {
    /// Every reason there is.
    pub const ALL: &[Reason] = &[
        Reason::Oom,
        Reason::Timeout,
        Reason::ExitCode,
        Reason::Signal,
        Reason::Transport,
        Reason::Parse,
        Reason::MemoryThrash,
        Reason::ThermalStop,
        Reason::Precondition,
        Reason::CapabilityAbsent,
        Reason::ModelMissing,
        Reason::Spawn,
        Reason::Interrupted,
        Reason::DeviceLost,
        Reason::Dominated,
        Reason::Internal,
    ];

    /// The word as it stands in a record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Oom => "oom",
            Reason::Timeout => "timeout",
            Reason::ExitCode => "exit_code",
            Reason::Signal => "signal",
            Reason::Transport => "transport",
            Reason::Parse => "parse",
            Reason::MemoryThrash => "memory_thrash",
            Reason::ThermalStop => "thermal_stop",
            Reason::Precondition => "precondition",
            Reason::CapabilityAbsent => "capability_absent",
            Reason::ModelMissing => "model_missing",
            Reason::Spawn => "spawn",
            Reason::Interrupted => "interrupted",
            Reason::DeviceLost => "device_lost",
            Reason::Dominated => "dominated",
            Reason::Internal => "internal",
        }
    }
}

/// Whether a record's numbers may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// No warning and no error.
    Valid,
    /// A warning stands in `issues`.
    Degraded,
    /// An error stands in `issues`, or the run is not `ok`.
    Invalid,
}

impl Validity {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::Degraded => "degraded",
            Validity::Invalid => "invalid",
        }
    }
}
