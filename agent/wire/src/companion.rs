//! What the agent asks of who looks at GPUs for it: frames on that process's stdin and stdout, one answer to each question, in their order.
//!
//! It says what a library or a tool says, in its units; it interprets nothing. It ends with its input.

use crate::inspect::Gpu;
use crate::probe::Absent;
use serde::{Deserialize, Serialize};

/// Version of questions and answers; first word of what it says of itself.
pub const COMPANION_VERSION: u32 = 1;
/// Where the companion lies on the device: set for the agent by whoever starts it.
pub const COMPANION_VARIABLE: &str = "ISOTHERM_COMPANION";
/// NVIDIA's management library, if it isn't where the loader and the usual directories have it.
pub const NVML_VARIABLE: &str = "ISOTHERM_NVML";

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Which GPUs there are, and what they are.
    Gpus,
    Read {
        /// As numbered by the answer to `Gpus`.
        gpu: u32,
        getter: Getter,
    },
    /// Processes that have a compute context on a GPU.
    Processes { gpu: u32 },
}

/// The answer to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Gpus(Gpus),
    /// In the getter's unit.
    Value(u64),
    Processes(Vec<ComputeProcess>),
    /// This one thing is not to be had; everything else may be.
    Absent(Absent),
}

/// All GPUs of a driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpus {
    pub companion_version: u32,
    /// What was asked: the library's or the tool's path, or its name where the loader found it.
    pub source: String,
    /// Version of the driver, as it says.
    pub driver: Option<String>,
    pub gpus: Vec<Gpu>,
}

/// What can be read of a GPU again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Getter {
    /// mJ since the driver was loaded.
    Energy,
    /// mW.
    Power,
    /// °C.
    Temperature,
    /// MHz.
    GraphicsClock,
    /// MHz.
    MemoryClock,
    /// Bits: why the clock is not higher.
    Reasons,
    /// Per cent of the last sample period in which the GPU worked.
    Busy,
    /// Bytes.
    MemoryUsed,
}

impl Getter {
    pub const ALL: [Getter; 8] = [
        Getter::Energy,
        Getter::Power,
        Getter::Temperature,
        Getter::GraphicsClock,
        Getter::MemoryClock,
        Getter::Reasons,
        Getter::Busy,
        Getter::MemoryUsed,
    ];
}

/// A process with a compute context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeProcess {
    /// As the driver numbers it: inside a container it may be one of the host.
    pub pid: u32,
    /// Memory of the GPU that it holds; `None` where the driver doesn't tell.
    pub memory_bytes: Option<u64>,
}
