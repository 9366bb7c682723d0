//! What a block runs with, whatever its backend: how often and how long, the wait and the steps before a run, what ends it, whether energy is measured.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// No point is asked for more often.
pub const MOST_REPETITIONS: u32 = 10_000;

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
