//! A campaign as understood from its file: names checked, defaults merged into every block, nothing expanded yet.

mod settings;

pub use super::transport::{Local, Ssh, Transport};
pub use settings::{
    Dominance, FatalReason, Frequency, Limits, MOST_IN_WINDOW, MOST_REPETITIONS, OnSensorLoss, OnTimeout, Order, Power, Preparation, Quiet, Settings,
    Settle, Slo, When, Window,
};

use super::condition::Condition;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// One campaign file.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// `campaign:`, else the file's stem. Names the results directory.
    pub name: String,
    pub description: Option<String>,
    /// The file as given on the command line, and its directory, absolute.
    pub file: PathBuf,
    pub dir: PathBuf,
    /// The file's text, kept in the results directory as it was.
    pub source: String,
    /// Files that `use` names, as given there, with their texts.
    pub used: Vec<(String, String)>,
    /// `--set`s of the command line, as given.
    pub set: Vec<String>,
    /// Variables that `${secret:NAME}` in `env` stands for.
    pub secrets: IndexMap<String, Secret>,
    pub devices: IndexMap<String, Device>,
    pub models: IndexMap<String, Model>,
    /// Blocks of the matrix in file order.
    pub blocks: Vec<Block>,
    /// Located remarks that stop nothing, rendered, one per entry.
    pub warnings: Vec<String>,
}

/// Where runs execute.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub id: String,
    pub transport: Transport,
    /// Directory on the device that relative model paths start at.
    pub models_dir: Option<String>,
    /// Variables of every workload on this device; a block's `env` wins.
    pub env: IndexMap<String, Template>,
    /// build id → tool → path on the device.
    pub builds: IndexMap<String, IndexMap<String, String>>,
    /// What no sensor tells, by names that the user chooses.
    pub conditions: IndexMap<String, String>,
    /// Of every run on this device; a block's own win.
    pub limits: Limits,
    /// Devices of one group run one at a time.
    pub resource_group: Option<String>,
    /// What it can do at most, by name.
    pub ceilings: IndexMap<String, Ceiling>,
}

/// The most that some hardware can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// In the unit of its name; above 0.
    pub value: f64,
    /// Where it is from, as declared: `measured`, a data sheet.
    pub source: String,
}

impl Ceiling {
    /// Read bandwidth of the memory, GB/s.
    pub const DRAM_READ: &str = "dram_read_gb_s";
}

/// A value that never shows: not in records, not in messages, not in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(value: String) -> Secret {
        Secret(value)
    }

    /// The value, for the workload and for nobody else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A model file and what is declared about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub id: String,
    /// On every device without an entry in `paths`.
    pub path: Option<String>,
    /// device id → path.
    pub paths: IndexMap<String, String>,
    pub quantization: Option<String>,
    pub tags: IndexMap<String, String>,
    /// Hex; a file with another content is an error before anything runs.
    pub sha256: Option<String>,
    /// Hex; the digest that the `builtin` backend's output must have, else the record is invalid.
    pub output_digest: Option<String>,
    /// `path` is that of the controller's file, which devices without an entry in `paths` get a copy of.
    pub push: bool,
}

impl Model {
    /// Does this device get a copy of it?
    #[must_use]
    pub fn is_pushed_to(&self, device: &str) -> bool {
        self.push && !self.paths.contains_key(device)
    }
}

/// One entry of `matrix`.
#[derive(Debug, Clone)]
pub struct Block {
    /// 1-based line where it starts in the file.
    pub line: usize,
    pub devices: Vec<String>,
    pub backend: Backend,
    /// Everything that may be swept, in file order: `model`, `threads`, each of `params`, each of `env` as `env.NAME`, of `flags` as
    /// `flags.NAME`. The last one turns fastest.
    pub sweep: Vec<Linked>,
    /// A point for which it is false is left out.
    pub when: Option<Condition>,
    /// A point that agrees with all entries of one map is left out. Keys are axis names or `device`.
    pub exclude: Vec<IndexMap<String, AxisValue>>,
    /// Further points: these axes (and `device`) have these values, the others their own. Neither `when` nor `exclude` apply.
    pub include: Vec<IndexMap<String, Vec<AxisValue>>>,
    pub settings: Settings,
}

impl Block {
    pub fn axes(&self) -> impl Iterator<Item = &Axis> {
        self.sweep.iter().flat_map(|linked| &linked.axes)
    }

    /// Can this build run it?
    #[must_use]
    pub fn is_built(&self) -> bool {
        !matches!(self.backend, Backend::Later(_))
    }
}

/// Axes that turn together: one, or a group of `zip`. At least one, each with as many values as the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Linked {
    pub axes: Vec<Axis>,
}

impl Linked {
    /// Values of each of its axes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.axes.first().map_or(0, |axis| axis.values.len())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What executes a point.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Inference by the engine inside the agent.
    Builtin,
    Command(Box<Command>),
    /// llama.cpp's own benchmark.
    LlamaBench,
    /// llama.cpp's server.
    LlamaServer,
    /// Known by name: it can be planned, and is never run.
    Later(&'static str),
}

impl Backend {
    /// The name as written in the campaign.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Backend::Builtin => "builtin",
            Backend::Command(_) => "command",
            Backend::LlamaBench => "llama-bench",
            Backend::LlamaServer => "llama-server",
            Backend::Later(name) => name,
        }
    }
}

/// Any program, with rules for reading its numbers.
#[derive(Debug, Clone)]
pub struct Command {
    pub argv: Vec<Template>,
    /// Patterns of files whose content is part of the identity.
    pub inputs: Vec<String>,
    pub metrics: IndexMap<String, MetricRule>,
    pub success: Success,
}

/// How one metric is read from what the program left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricRule {
    pub from: TextSource,
    pub pick: Pick,
    /// As declared.
    pub unit: String,
    pub better: Better,
}

/// Where a value is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextSource {
    /// All of stdout.
    Stdout,
    /// The last line of stdout that isn't blank.
    StdoutLastLine,
    /// All of stderr.
    Stderr,
    /// A file the program writes, relative to its working directory. Written `file:NAME` in a campaign.
    File(String),
}

/// How it is picked out of the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// RFC 6901 pointer into the text parsed as JSON.
    Json(String),
    /// Regular expression with one capture group.
    Regex {
        /// As written.
        pattern: String,
        /// Which of several matches.
        take: Take,
    },
}

/// Which match counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    First,
    #[default]
    Last,
    /// Every match is a sample.
    All,
}

/// Direction of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Lower,
    Higher,
}

/// When an invocation counts as done well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Success {
    /// Exit codes that are not a failure.
    pub exit: Vec<i32>,
    /// What must be the same in every repetition of a point.
    pub output_digest: Option<DigestRule>,
}

impl Default for Success {
    fn default() -> Self {
        Success { exit: vec![0], output_digest: None }
    }
}

/// Which part of the output is digested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DigestRule {
    pub from: TextSource,
    pub pick: Pick,
}

/// One parameter of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub name: String,
    /// Written as a list. A scalar is a constant: it is part of the point, but not of the sweep.
    pub swept: bool,
    /// At least one, no value twice. Values of `env.*` are text.
    pub values: Vec<AxisValue>,
}

/// One value on an axis, with the type it was written with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AxisValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// An option that is given several times.
    List(Vec<String>),
}

impl fmt::Display for AxisValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisValue::Bool(v) => v.fmt(f),
            AxisValue::Int(v) => v.fmt(f),
            // A float stays one: `1.0`, not `1`.
            AxisValue::Float(v) => write!(f, "{v:?}"),
            AxisValue::Text(v) => f.write_str(v),
            AxisValue::List(v) => f.write_str(&v.join(" ")),
        }
    }
}

/// Text with `{name}` placeholders; `{{` and `}}` are literal braces. A placeholder is replaced inside its element and never splits it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// As written.
    pub source: String,
    pub parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    Literal(String),
    Name(String),
    /// `${secret:NAME}`: replaced where the workload is started, and nowhere before.
    Secret(String),
}
