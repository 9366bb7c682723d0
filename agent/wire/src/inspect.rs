//! What a device says of itself: machine, limits, capabilities, and files by content.

use crate::model::ModelHeader;
use crate::probe::Capability;
use crate::telemetry::Snapshot;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Asks for the machine and for the content of files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InspectRequest {
    pub files: Vec<FileQuery>,
    /// Read energy instruments rarely and this often a second in turn, too, unless a run is executing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling_hz: Option<f64>,
    /// Programs that are asked what they say of themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramQuery>,
}

/// A program to execute for what it says. The answer stands under the same `key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramQuery {
    pub key: String,
    pub program: FileQuery,
    /// After its name: `--help`, say.
    pub args: Vec<String>,
    /// Variables beside the agent's usual ones.
    pub env: BTreeMap<String, String>,
}

/// Kept of each stream of a program that is asked something. As of October 2026 the longest help text, of llama.cpp's server, has 58,884 bytes.
pub const MOST_SAID_BYTES: usize = 256 << 10;

/// The answer to one [`ProgramQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramAnswer {
    /// Its stdout and stderr, one after the other, as far as they are text, the beginning of each; whatever its exit code.
    Said(String),
    /// Why it said nothing: it isn't there, didn't answer in time, or wasn't asked.
    Silent(String),
}

/// One name to look up on the device. The answer stands under the same `key`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileQuery {
    pub key: String,
    /// As written in the campaign; `~` is expanded, a relative path starts at `base`.
    pub path: String,
    pub role: FileRole,
    /// Directory that relative paths start at; `~` is expanded.
    pub base: String,
    /// PATH to look a bare program name up in; `None` = the agent's default PATH.
    pub search_path: Option<String>,
}

/// How a name is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// A program: bare names through PATH; the interpreter of a `#!` script is reported with it.
    Program,
    /// A file that must be there.
    Data,
    /// A pattern; matches nothing or many, sorted by path.
    Glob,
    /// An argument that may be a file.
    Argument,
}

/// The answer to one [`FileQuery`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAnswer {
    /// Regular files, sorted by path; one, unless it was a pattern. A program's interpreter follows it.
    Found(Vec<FileFact>),
    /// Not there or not readable; the words of the operating system.
    Missing(String),
    /// An argument that isn't a regular file: nothing to hash.
    NotAFile,
}

/// A regular file by content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileFact {
    /// Absolute path, links resolved.
    pub path: String,
    /// Of a model the path that it was found by, absolute, where a link led from there to `path`: names of other files may go by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// Size.
    pub bytes: u64,
    /// Time of the last change of its content, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Inode number.
    pub inode: u64,
    /// Hex.
    pub sha256: String,
    /// What the file of a model says of it; `None` = it wasn't asked, or doesn't tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<ModelHeader>,
}

impl FileFact {
    /// Where a program is told to find it.
    #[must_use]
    pub fn place(&self) -> &str {
        self.named.as_deref().unwrap_or(&self.path)
    }
}

/// What inspect returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspected {
    pub machine: Machine,
    pub files: BTreeMap<String, FileAnswer>,
    /// The machine as it was at this moment.
    pub snapshot: Snapshot,
    /// Energy counters and power meters: those that runs can read, and why they can't read the others.
    #[serde(default)]
    pub instruments: Vec<Capability>,
    /// What programs said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, ProgramAnswer>,
}

/// Identity and make of a machine. `None` = the source is not there or not readable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// First 12 hex digits of sha256 over machine-id, board serial or DMI uuid, and host name.
    pub machine_key: String,
    /// The kernel's id of this boot.
    pub boot_id: Option<String>,
    /// Name of the machine.
    pub hostname: String,
    /// `/sys/firmware/devicetree/base/model`, else DMI vendor and product.
    pub board_model: Option<String>,
    /// As in `/proc/cpuinfo`; on Arm, where the kernel gives no name, implementer and part.
    pub cpu_model: Option<String>,
    /// ISA features that select inference kernels (avx2, avx512f, asimd, …), sorted.
    pub cpu_features: Vec<String>,
    /// As the kernel names it: `x86_64`, `aarch64`, …
    pub arch: String,
    /// CPUs that are present, threads of one core counted apart.
    pub logical_cpus: u32,
    /// CPUs that are switched on.
    pub online_cpus: Option<u32>,
    /// Cores, threads of one core counted once.
    pub physical_cores: Option<u32>,
    /// NUMA nodes that are online.
    pub numa_nodes: Option<u32>,
    /// Whether cores run several threads at once.
    pub smt_active: Option<bool>,
    /// `MemTotal`: memory that the kernel has to give.
    pub ram_bytes: Option<u64>,
    /// `SwapTotal`.
    pub swap_bytes: Option<u64>,
    /// `PRETTY_NAME` of os-release.
    pub os: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `/proc/cmdline`.
    pub kernel_cmdline: Option<String>,
    /// Version of the system's C library where it can be told.
    pub libc: Option<String>,
    /// Revision of the CPU's microcode.
    pub microcode: Option<String>,
    /// name → state from `/sys/devices/system/cpu/vulnerabilities`.
    pub mitigations: BTreeMap<String, String>,
    /// `always`, `madvise` or `never`.
    pub transparent_hugepages: Option<String>,
    /// cpufreq governor of CPU 0.
    pub governor: Option<String>,
    /// User id the agent runs as.
    pub uid: u32,
    /// GPUs whose driver says what they are; empty where there is none, or nothing to ask it with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    pub limits: Limits,
    pub containment: ContainmentCapability,
}

/// A GPU in its driver's words. `None` = it doesn't tell; then `absent` has the reason.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// What telemetry calls it: `GPU-` with the first eight digits of its UUID, or `GPU` with its number where it has none.
    pub subject: String,
    /// Its number at the driver, from 0.
    pub index: u32,
    /// As sold.
    pub name: Option<String>,
    /// The driver's id of this very GPU.
    pub uuid: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// CUDA compute capability, `8.7`.
    pub compute_capability: Option<String>,
    /// All of its memory.
    pub memory_bytes: Option<u64>,
    /// PCIe generation of its link at that moment; an idle GPU may lower it.
    pub pcie_generation: Option<u32>,
    /// PCIe lanes of its link at that moment.
    pub pcie_width: Option<u32>,
    /// The highest generation that GPU and slot can do.
    pub pcie_max_generation: Option<u32>,
    /// The most lanes that they can do.
    pub pcie_max_width: Option<u32>,
    /// The limit that is in force, W.
    pub power_limit_w: Option<f64>,
    /// The limit after a reset, W.
    pub power_limit_default_w: Option<f64>,
    /// Is its memory corrected by ECC?
    pub ecc: Option<bool>,
    /// Does the driver stay loaded without a client?
    pub persistence: Option<bool>,
    /// field → reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
}

impl Gpu {
    /// The subject of its columns.
    #[must_use]
    pub fn subject_of(index: u32, uuid: Option<&str>) -> String {
        // `GPU-5b3c7f0a-…`; the whole of it would make tables unreadable.
        let short = uuid.and_then(|uuid| uuid.strip_prefix("GPU-")?.get(..8));
        short.map_or_else(|| format!("GPU {index}"), |digits| format!("GPU-{digits}"))
    }
}

/// Effective limits on this process. `None` with an entry in `unknown` = could not be told; `None` without one = unlimited.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// `v1`, `v2` or `hybrid`; `None` = no cgroup mount found.
    pub cgroup: Option<String>,
    /// quota ÷ period, CPUs.
    pub quota_cpus: Option<f64>,
    /// CPUs in the cpuset.
    pub cpuset_cpus: Option<u32>,
    /// CPUs in the affinity mask of the agent.
    pub affinity_cpus: Option<u32>,
    /// Smallest memory limit from our own group upwards, bytes.
    pub memory_bytes: Option<u64>,
    /// field → reason.
    pub unknown: BTreeMap<String, String>,
}

/// How a run can be contained here, found by trying it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContainmentCapability {
    pub level: ContainmentLevel,
    /// A cgroup of its own for each run.
    pub cgroup: bool,
    /// Why it is not more, in the system's words.
    pub reasons: Vec<String>,
}

/// Levels of containment, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContainmentLevel {
    /// A PID namespace with a private `/proc`: the kernel ends all of it with its first process.
    PidNamespace,
    /// A subreaper that walks and ends its descendants until the kernel says there are none.
    #[default]
    Subreaper,
}
