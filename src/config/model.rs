//! A campaign as understood from its file: names checked, defaults merged into every block, nothing expanded yet.

use super::condition::Condition;
pub use super::transport::{Local, Ssh, Transport};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, time::Duration};

/// No point is asked for more often.
pub const MOST_REPETITIONS: u32 = 10_000;

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

/// What a block runs with, after `defaults`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub repetitions: u32,
    /// From spawn of the workload to its exit.
    pub timeout: Duration,
    /// `llama-server` only: from its spawn until it is ready.
    pub startup_timeout: Duration,
    /// `llama-server` only: what a request may take.
    pub slo: Option<Slo>,
    /// The wait before each run.
    pub settle: Settle,
    /// What is done to the device before that.
    pub prepare: Preparation,
    /// What ends a run.
    pub limits: Limits,
    /// Telemetry rate, Hz; more than 0, at most 100.
    pub sample_hz: f64,
    /// Whether energy is measured, and in which runs.
    pub power: Power,
    /// `builtin` only: how long its power runs measure.
    pub window: Window,
    pub order: Order,
    /// Axes whose values are arms of one group; all but `model` are in any case.
    pub interleave: Vec<String>,
    /// `command`: invocations before the measured one; `builtin`: inferences before the first timed one.
    pub warmup: u32,
    /// `builtin` only.
    pub rounds: u32,
    /// `builtin`: timed inferences per round; `llama-bench`: samples of each test; `llama-server`: requests of each client.
    pub iterations: u32,
    /// `builtin` only: pause between rounds.
    pub cooldown: Duration,
    /// How often a disturbed run is repeated.
    pub retry_contaminated: u32,
    /// Which points a failed one makes needless.
    pub dominance: Option<Dominance>,
    /// What no sensor tells, over that of the device.
    pub conditions: IndexMap<String, String>,
}

/// What a request may take to count as served well; a limit that isn't there is kept by all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slo {
    /// Until its first token.
    pub ttft: Option<Duration>,
    /// For each token after it.
    pub tpot: Option<Duration>,
}

/// The wait before a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Settle {
    /// That long.
    Fixed(Duration),
    /// Until the device is as quiet as it was at first contact.
    Quiet(Quiet),
}

/// A wait with evidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quiet {
    pub min: Duration,
    /// At least `min`.
    pub timeout: Duration,
    /// Above the reference, at most; °C.
    pub temp_within_c: f64,
    pub on_timeout: OnTimeout,
}

/// What becomes of a run whose device did not settle in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    Flag,
    Fail,
    Skip,
}

impl Settle {
    #[must_use]
    pub fn shortest(self) -> Duration {
        match self {
            Settle::Fixed(wait) => wait,
            Settle::Quiet(quiet) => quiet.min,
        }
    }

    #[must_use]
    pub fn longest(self) -> Duration {
        match self {
            Settle::Fixed(wait) => wait,
            Settle::Quiet(quiet) => quiet.timeout,
        }
    }
}

impl Quiet {
    /// Where nothing is said, and for what a map leaves out.
    pub const BUILTIN: Quiet =
        Quiet { min: Duration::from_secs(10), timeout: Duration::from_secs(180), temp_within_c: 3.0, on_timeout: OnTimeout::Flag };
}

/// What ends a run, as far as it is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Of the headline sensor, °C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temp_max_c: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_sensor_loss: Option<OnSensorLoss>,
}

/// What becomes of a run whose sensor falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSensorLoss {
    Continue,
    Stop,
}

impl Limits {
    /// What isn't said here is as there.
    #[must_use]
    pub fn or(self, other: Limits) -> Limits {
        Limits { temp_max_c: self.temp_max_c.or(other.temp_max_c), on_sensor_loss: self.on_sensor_loss.or(other.on_sensor_loss) }
    }
}

/// Steps before the settle, in the order in which they are done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Preparation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_swap: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_caches: Option<When>,
    /// Of every cpufreq policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// What both limits of every cpufreq policy are set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency: Option<Frequency>,
}

/// `reset_swap=each governor=performance frequency=1500000kHz`; empty where nothing is asked for.
impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Preparation { reset_swap, drop_caches, governor, frequency } = self;
        let often = |name: &str, when: &Option<When>| {
            let word = match when.as_ref()? {
                When::OnModelChange => "on_model_change",
                When::Each => "each",
            };
            Some(format!("{name}={word}"))
        };
        let frequency = frequency.map(|frequency| match frequency {
            Frequency::Max => "frequency=max".to_owned(),
            Frequency::Min => "frequency=min".to_owned(),
            Frequency::Khz(khz) => format!("frequency={khz}kHz"),
        });
        let steps =
            [often("reset_swap", reset_swap), often("drop_caches", drop_caches), governor.as_ref().map(|g| format!("governor={g}")), frequency];
        f.write_str(&steps.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// How often a step is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    OnModelChange,
    Each,
}

/// A clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Frequency {
    /// The highest or lowest that the hardware of each policy has.
    Max,
    Min,
    Khz(u64),
}

/// After a failure for one of these reasons, points with a larger value of the axis are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dominance {
    pub axis: String,
    pub on: Vec<FatalReason>,
}

/// A reason of a failure that a larger point would only meet again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FatalReason {
    Oom,
    MemoryThrash,
    Timeout,
}

impl Settings {
    /// Built-in defaults of a backend.
    #[must_use]
    pub fn builtin_defaults(backend: &str) -> Settings {
        Settings {
            repetitions: 4,
            timeout: Duration::from_secs(3600),
            startup_timeout: Duration::from_secs(600),
            slo: None,
            settle: Settle::Quiet(Quiet::BUILTIN),
            prepare: Preparation::default(),
            limits: Limits::default(),
            sample_hz: 10.0,
            power: Power::Off,
            window: Window::default(),
            order: Order::Interleaved,
            interleave: Vec::new(),
            warmup: match backend {
                "builtin" => 10,
                // Its own, in the process that measures.
                "llama-bench" => 0,
                _ => 1,
            },
            rounds: 12,
            iterations: match backend {
                "llama-bench" => 3,
                "llama-server" => 10,
                _ => 60,
            },
            cooldown: Duration::from_millis(500),
            retry_contaminated: 1,
            dominance: None,
            conditions: IndexMap::new(),
        }
    }
}

/// Whether energy is measured, and in which runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Power {
    Off,
    /// As the device's instruments allow.
    Auto,
    /// In runs of their own, one for each timing run.
    Split,
    /// In the timing runs.
    Together,
    /// In runs of their own, without timing runs.
    Only,
}

impl Power {
    /// May there be runs of their own?
    #[must_use]
    pub fn has_own_runs(self) -> bool {
        matches!(self, Power::Auto | Power::Split | Power::Only)
    }
}

/// Most inferences of a power run: the time of each is kept, and more would not fit into what is kept of its output.
pub const MOST_IN_WINDOW: u32 = 100_000;

/// How long a power run measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// As many inferences as fill the target; else as many as a timing run has.
    pub fills: bool,
    /// `None` = as long as the sampling needs.
    pub target: Option<Duration>,
    /// Inferences.
    pub min: u32,
    pub max: u32,
}

impl Default for Window {
    fn default() -> Window {
        Window { fills: true, target: None, min: 1, max: MOST_IN_WINDOW }
    }
}

/// How the arms of a group follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All repetitions of a point, then the next point.
    Sequential,
    /// One repetition of every arm per pass, every other pass reversed.
    Interleaved,
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
