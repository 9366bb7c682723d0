//! The campaign language as one table: every key of every level, what may stand behind it, its built-in value, which backends it is
//! for, and whether this build does it. Decoders, JSON Schema and reference are made from it.

use super::{
    level::{Key, Level, key, level},
    model::MOST_IN_WINDOW,
    shape::{Shape, Word},
};

const fn word(word: &'static str, about: &'static str) -> Word {
    Word { word, built: true, about }
}

const fn later(word: &'static str, about: &'static str) -> Word {
    Word { word, built: false, about }
}

/// A backend by its name.
pub type Backend = Word;

pub static BACKENDS: [Word; 6] = [
    word("builtin", "inference of an ONNX model by the engine inside the agent"),
    word("command", "any program, its numbers read by rules"),
    word("llama-bench", "prefill and decode throughput by llama.cpp's own benchmark"),
    word("llama-server", "latency of streamed requests to llama.cpp's server"),
    later("onnx", "ONNX Runtime, with its execution providers"),
    later("membw", "memory bandwidth of the device"),
];

static ORDERS: [Word; 3] = [
    word("interleaved", "one repetition of every arm per pass, every other pass reversed"),
    word("sequential", "all repetitions of a point, then the next point"),
    later("shuffled", "a new random order in every pass"),
];

static BETTER: [Word; 2] = [word("lower", ""), word("higher", "")];
static TAKES: [Word; 3] = [word("first", "the first match"), word("last", "the last match"), word("all", "every match is a sample")];
static POWER: [Word; 5] = [
    word("off", "it is not measured, and no instrument is read"),
    word("auto", "`together` where the device's instruments take less than a millisecond to read, else `split`"),
    word("split", "in power runs, one after each timing run"),
    word("together", "in the timing runs"),
    word("only", "in power runs, without timing runs"),
];
static PER_MODEL: [Word; 3] = [
    word("on_model_change", "before the first run of a model, until a run of another one comes"),
    word("each", "before every run"),
    word("off", "never"),
];
static FREQUENCIES: [Word; 2] = [word("max", "the highest that the hardware has"), word("min", "the lowest")];
static ON_TIMEOUT: [Word; 3] =
    [word("flag", "the run is made and has an issue"), word("fail", "it is not made, and failed"), word("skip", "it is not made, and skipped")];
static WINDOW_MODES: [Word; 2] = [word("auto", "as many as fill the target"), word("fixed", "as many as a timing run")];
static DOMINANCE_ON: [Word; 3] = [word("oom", ""), word("memory_thrash", ""), word("timeout", "")];
static AUTO: [Word; 1] = [word("auto", "n_prompt + n_gen, rounded up to a multiple of 256, for each of `concurrency`")];
static OFF: [Word; 2] = [word("off", ""), word("false", "")];
static SENSOR_LOSS: [Word; 2] = [word("continue", "it goes on"), word("stop", "it ends; where there is no sensor, it isn't started")];

const SHA256: Shape = Shape::Form("SHA-256", "[0-9a-fA-F]{64}");
const DIRECTORY: Shape = Shape::Form("text", "(~/|/)[A-Za-z0-9._/+-]*");
const HOST: Shape = Shape::Form("text", "[A-Za-z0-9_.:%][A-Za-z0-9_.:%-]*");
const USER: Shape = Shape::Form("text", "[A-Za-z0-9_.][A-Za-z0-9_.@+-]*");
const JUMP: Shape = Shape::Form("text", "[A-Za-z0-9_.:%\\[\\]][A-Za-z0-9_.:%@,\\[\\]-]*");
const CPUS: Shape = Shape::Form("text", "all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*");
const GOVERNOR: Shape = Shape::Form("text", "[a-z_]+");
const FREQUENCY: Shape = Shape::Form("frequency", "[0-9]+(\\.[0-9]+)?(GHz|MHz|kHz)");
const SOURCE: Shape = Shape::Form("text", "stdout|stdout_last_line|stderr|file:.+");
const POINTER: Shape = Shape::Form("text", "(/.*)?");

pub static TOP: Level = level(
    "The file",
    "a campaign",
    "",
    &[
        key("campaign", Shape::Text, "Name of the results directory: letters, digits, `.` `_` `-`, no dot in front, at most 100 characters")
            .default("the file's stem"),
        key("description", Shape::Text, "Free text"),
        key(
            "use",
            Shape::OneOrMany(&Shape::Text),
            "Files with `devices` and `models` that several campaigns share; paths start at this file's directory",
        ),
        key("devices", Shape::MapOf(&Shape::Map(&DEVICE)), "id → device; ids are file names like the above. Required here or in a used file"),
        key("models", Shape::MapOf(&Shape::Map(&MODEL)), "id → model"),
        key("defaults", Shape::Map(&DEFAULTS), "Settings of every block that doesn't say otherwise"),
        key("matrix", Shape::Blocks, "What is run").required(),
    ],
);

/// A file that `use` names.
pub static USED: Level = level(
    "A used file",
    "a used file",
    "",
    &[key("devices", Shape::MapOf(&Shape::Map(&DEVICE)), "id → device"), key("models", Shape::MapOf(&Shape::Map(&MODEL)), "id → model")],
);

pub static DEVICE: Level = level(
    "A device",
    "a device",
    "",
    &[
        key("local", Shape::Map(&LOCAL), "This machine").bare(),
        key("ssh", Shape::Map(&SSH), "A machine that `ssh` reaches"),
        key("pod", Shape::Map(&POD), "A pod that is started for the campaign").later(),
        key("models_dir", Shape::Text, "Where relative model paths start").default("local: the campaign file's directory, ssh: the home there"),
        key("builds", Shape::MapOf(&Shape::MapOf(&Shape::Text)), "id → tools of that build: name → path on the device. `{build.NAME}` in `argv`"),
        key("env", Shape::MapOf(&Shape::Text), "Variables of every workload on this device"),
        key("resource_group", Shape::Text, "Devices of one group run one at a time, across campaigns; a name like a file's"),
        key(
            "ceilings",
            Shape::MapOf(&Shape::Map(&CEILING)),
            "What the hardware can do at most, with the source of that. `dram_read_gb_s`: read bandwidth of the memory, which `decode_gb_s` is held against",
        ),
        key("conditions", Shape::MapOf(&Shape::Text), "What no sensor tells: `{ ambient_c: 22, cooling: fan, psu: 27 W }`, any names"),
        key("limits", Shape::Map(&LIMITS), "What ends a run on it; a block's own win"),
    ],
);

pub static LOCAL: Level = level(
    "local",
    "`local`",
    "local.",
    &[
        key("bin_dir", DIRECTORY, "Where the agent is installed: absolute or `~/…`, of letters, digits and `._/+-`").default("~/.cache/isotherm"),
        key("state_dir", DIRECTORY, "Where its keeper keeps spool, socket and journal; likewise").default("~/.local/state/isotherm"),
    ],
);

pub static SSH: Level = level(
    "ssh",
    "`ssh`",
    "ssh.",
    &[
        key("host", HOST, "A name of `~/.ssh/config`, or a host name or address").required(),
        key("user", USER, "User there"),
        key("port", Shape::Whole(1, 65_535), "Port there"),
        key("identity_file", Shape::Text, "Private key here; no other one is tried"),
        key("proxy_jump", JUMP, "`[user@]host[:port]` to go through; several with commas"),
        key("config", Shape::Text, "ssh's configuration here, instead of `~/.ssh/config` and the system's"),
        key("bin_dir", DIRECTORY, "Where the agent is installed there: absolute or `~/…`, of letters, digits and `._/+-`")
            .default("~/.cache/isotherm"),
        key("state_dir", DIRECTORY, "Where its keeper keeps spool, socket and journal; likewise").default("~/.local/state/isotherm"),
    ],
);

static POD: Level = level(
    "pod",
    "`pod`",
    "pod.",
    &[
        key("namespace", Shape::Text, "Namespace of the pod"),
        key("image", Shape::Text, "Image, with its digest").required(),
        key("cpu", Shape::Text, "CPUs, as request and limit"),
        key("memory", Shape::Size, "Memory, as request and limit"),
        key("node", Shape::Text, "Node that it has to run on"),
        key("mounts", Shape::List(&Shape::Map(&MOUNT)), "Directories of the node"),
    ],
);

static MOUNT: Level = level(
    "pod.mounts",
    "a mount",
    "",
    &[
        key("host", Shape::Text, "Directory on the node").required(),
        key("at", Shape::Text, "Where the pod sees it").required(),
        key("read_only", Shape::Bool, "Whether it may only be read"),
    ],
);

pub static CEILING: Level = level(
    "A ceiling",
    "a ceiling",
    "",
    &[
        key("value", Shape::Number(0.0, f64::MAX), "More than 0, in the unit of its name").required(),
        key("source", Shape::Text, "Where the value is from: `measured`, a data sheet").required(),
    ],
);

pub static LIMITS: Level = level(
    "limits",
    "`limits`",
    "limits.",
    &[
        key("temp_max", Shape::Temperature, "Above it on the headline sensor, the run ends as `thermal_stop`"),
        key("on_sensor_loss", Shape::Choice(&SENSOR_LOSS), "What becomes of a run whose sensor is silent for 10 s").default("continue"),
    ],
);

pub static MODEL: Level = level(
    "A model",
    "a model",
    "",
    &[
        key("path", Shape::Text, "On every device without an entry in `paths`; with `push` of the file here, relative to the campaign file"),
        key("paths", Shape::MapOf(&Shape::Text), "device → path"),
        key(
            "quantization",
            Shape::Text,
            "As in `Q4_K_M`, `fp32`; of a GGUF file its own word counts where nothing is said, and another one is a warning",
        ),
        key("tags", Shape::MapOf(&Shape::Text), "Anything to filter and compare by"),
        key("sha256", SHA256, "A file with another content stops the campaign before anything runs"),
        key("output_digest", SHA256, "Of backend `builtin`: another answer makes the record invalid"),
        key("push", Shape::Bool, "Copy `path` to every device without an entry in `paths`, if a run needs it and it isn't there yet")
            .default("false"),
    ],
);

/// Settings of `defaults` and of every block.
static SETTINGS: [Key; 20] = [
    key(
        "repetitions",
        Shape::Whole(1, 10_000),
        "Runs of every point, each a fresh process. From 20 on a warning asks whether `iterations` was meant",
    )
    .default("4"),
    key("timeout", Shape::Duration, "From spawn of the workload to its exit. Every warm-up invocation has the same limit").default("1h"),
    key("startup_timeout", Shape::Duration, "From spawn of a server until it is ready").default("10m").on(&["llama-server"]),
    key("prepare", Shape::Map(&PREPARE), "What is done to the device before a point"),
    key("measure", Shape::Map(&MEASURE), "How it is measured"),
    key("order", Shape::Choice(&ORDERS), "How the arms of a group follow each other").default("interleaved"),
    key("order_seed", Shape::Whole(0, i64::MAX), "Seed of `shuffled`").later(),
    key("interleave", Shape::List(&Shape::Text), "Axes whose values take turns, too: with `model`, all points of a block on a device are one group of arms"),
    key("control", Shape::Map(&CONTROL), "A point that runs as two arms, for the noise floor").later(),
    key(
        "warmup",
        Shape::Whole(0, 1_000_000),
        "`command`: whole invocations before the measured one; else inferences, requests or passes before the timed ones",
    )
    .default("builtin: 10, command and llama-server: 1")
    .on(&["builtin", "command", "llama-server", "onnx", "membw"]),
    key("rounds", Shape::Whole(1, 1_000_000), "Blocks of iterations in a run").default("12").on(&["builtin", "onnx", "membw"]),
    key(
        "iterations",
        Shape::Whole(1, 1_000_000),
        "Timed inferences in a round; repetitions inside the tool for `llama-bench`; requests of each client for `llama-server`",
    )
    .default("builtin: 60, llama-bench: 3, llama-server: 10")
    .on(&["builtin", "llama-bench", "llama-server", "onnx", "membw"]),
    key("cooldown", Shape::Duration, "Pause between rounds").default("500ms").on(&["builtin", "onnx"]),
    key("stable", Shape::WordOr(&OFF, &Shape::Map(&STABLE)), "Rounds until the number is stable").later().on(&["builtin", "onnx"]),
    key("slo", Shape::Map(&SLO), "What a request may take to count as served well: `goodput_rps`").on(&["llama-server"]),
    key("limits", Shape::Map(&LIMITS), "What ends a run"),
    key(
        "retry_contaminated",
        Shape::Whole(0, 10),
        "How often a run that something else disturbed (`competing_load`, `busy_before`, `gpu_busy_before`, `swap_traffic`, `gpu_busy_before`, `suspended`) is repeated at the end of its pass",
    )
    .default("1"),
    key(
        "dominance",
        Shape::Map(&DOMINANCE),
        "After a failure for one of these reasons, points that differ in nothing but a larger value of the axis are skipped",
    ),
    key("cpus", Shape::Axis(&CPUS), "Affinity of the workload, set by the agent: `0-3,6`, or `all` that the agent may use").default("all"),
    key("conditions", Shape::MapOf(&Shape::Text), "As of a device, over what that has; for runs from now on, stored records keep theirs"),
];

/// Variables and options: maps whose entries are axes where they are lists.
static MAPS: [Key; 2] = [
    key("env", Shape::MapOf(&Shape::Axis(&Shape::Text)), "Variables of the workload, text as written, with placeholders; a list is the axis `env.NAME`"),
    key("flags", Shape::MapOf(&Shape::Axis(&Shape::Text)), "Options at the end of the command line: text as written, `true` = the option alone, `false` = left out, a list = axis, a list inside of it = one option given several times")
        .on(&["command", "llama-bench", "llama-server"]),
];

/// What only a block has.
static OF_BLOCK: [Key; 22] = [
    key("devices", Shape::OneOrMany(&Shape::Text), "Where it runs").required(),
    key("backend", Shape::Choice(&BACKENDS), "What executes it").required(),
    key(
        "model",
        Shape::Axis(&Shape::Text),
        "Ids of `models`. Required but for `command`; there its content becomes part of the identity and `{model.path}` can be used",
    )
    .on(&["builtin", "command", "llama-bench", "llama-server", "onnx"]),
    key("build", Shape::Axis(&Shape::Text), "Ids of the device's `builds`. Can be left out where there is just one").on(&[
        "command",
        "llama-bench",
        "llama-server",
        "onnx",
    ]),
    key(
        "threads",
        Shape::Axis(&Shape::Whole(1, 1024)),
        "`builtin`: size of the engine's pool. `llama-bench`, `llama-server`: `-t`. `command`: a value for `{threads}`, nothing else",
    )
    .default("builtin: 1"),
    key("n_prompt", Shape::Axis(&Shape::Whole(0, 1 << 30)), "Tokens of the prompt; for `llama-bench` at least 32 where tokens are generated")
        .default("512")
        .on(&["llama-bench", "llama-server"]),
    key("n_gen", Shape::Axis(&Shape::Whole(0, 1 << 30)), "Tokens generated").default("128").on(&["llama-bench", "llama-server"]),
    key("depth", Shape::Axis(&Shape::Whole(0, 1 << 30)), "Tokens in the context before").default("0").on(&["llama-bench"]),
    key(
        "n_ctx",
        Shape::Axis(&Shape::WordOr(&AUTO, &Shape::Whole(1, 1 << 30))),
        "Tokens of context (`-c`), of all requests at a time together; `auto`: as many as they need",
    )
    .default("auto")
    .on(&["llama-server"]),
    key("n_batch", Shape::Axis(&Shape::Whole(1, 1 << 30)), "Logical batch").on(&["llama-bench", "llama-server"]),
    key("n_ubatch", Shape::Axis(&Shape::Whole(1, 1 << 30)), "Physical batch").on(&["llama-bench", "llama-server"]),
    key(
        "concurrency",
        Shape::Axis(&Shape::Whole(1, isotherm_wire::served::MOST_CLIENTS as i64)),
        "Clients that send requests at a time, and slots of the server (`-np`)",
    )
    .default("1")
    .on(&["llama-server"]),
    key("tensor_batch", Shape::Axis(&Shape::Whole(1, 1 << 20)), "First dimension of the inputs").on(&["onnx"]),
    key("policy", Shape::List(&Shape::Map(&POLICY)), "Execution providers; a list is an axis").on(&["onnx"]),
    key("params", Shape::MapOf(&Shape::Axis(&Shape::Text)), "Free axes. Values keep their type: `1`, `1.0`, `true`, `\"1\"` are four values")
        .on(&["command"]),
    key("argv", Shape::List(&Shape::Text), "Program and arguments, a value and never an axis, with placeholders. No shell is involved. Required")
        .on(&["command"]),
    key("inputs", Shape::OneOrMany(&Shape::Text), "Patterns; the content of what they match enters the identity").on(&["command"]),
    key("metrics", Shape::MapOf(&Shape::Map(&METRIC)), "name → rule").on(&["command"]),
    key("success", Shape::Map(&SUCCESS), "When an invocation counts as done well").on(&["command"]),
    key(
        "zip",
        Shape::ListOfMaps,
        "Groups of linked axes: lists of one length that turn together. Keys as in a block: axes, `params`, `env`, `flags`",
    ),
    key("when", Shape::Text, "Condition; a point for which it is false is left out"),
    key("exclude", Shape::ListOfMaps, "Maps of axis values (and `device`); a point that agrees with all of one map is left out"),
];

static INCLUDE: [Key; 1] = [key(
    "include",
    Shape::ListOfMaps,
    "Further points: a map gives axes (and `device`) other values, the axes that it leaves open keep theirs; `when` and `exclude` don't apply",
)];

/// Puts tables together at compile time.
const fn joined<const A: usize, const B: usize, const C: usize>(a: &[Key; A], b: &[Key; B]) -> [Key; C] {
    assert!(A + B == C);
    let mut all = [a[0]; C];
    let mut i = 0;
    while i < C {
        all[i] = if i < A { a[i] } else { b[i - A] };
        i += 1;
    }
    all
}

static DEFAULT_KEYS: [Key; 22] = joined::<20, 2, 22>(&SETTINGS, &MAPS);
static BLOCK_KEYS: [Key; 45] = joined::<23, 22, 45>(&joined::<22, 1, 23>(&OF_BLOCK, &INCLUDE), &joined::<2, 20, 22>(&MAPS, &SETTINGS));

pub static DEFAULTS: Level = level("defaults", "`defaults`", "", &DEFAULT_KEYS);

/// A block whose backend is missing or unknown: the keys of all of them.
pub static ANY_BLOCK: Level = level("A block", "a block", "", &BLOCK_KEYS);

static BLOCKS: [Level; 6] = [
    of_backend("builtin", "a block with backend `builtin`"),
    of_backend("command", "a block with backend `command`"),
    of_backend("llama-bench", "a block with backend `llama-bench`"),
    of_backend("llama-server", "a block with backend `llama-server`"),
    of_backend("onnx", "a block with backend `onnx`"),
    of_backend("membw", "a block with backend `membw`"),
];

const fn of_backend(backend: &'static str, what: &'static str) -> Level {
    Level { title: "A block", what, prefix: "", keys: &BLOCK_KEYS, backend: Some(backend) }
}

/// The keys of a block with this backend.
#[must_use]
pub fn block(backend: Option<&str>) -> &'static Level {
    BLOCKS.iter().find(|level| level.backend == backend && backend.is_some()).unwrap_or(&ANY_BLOCK)
}

/// Can a group of `zip` have it?
#[must_use]
pub fn is_axis(key: &Key) -> bool {
    matches!(key.shape, Shape::Axis(_)) || ["params", "env", "flags", "policy"].contains(&key.name)
}

pub static PREPARE: Level = level(
    "prepare",
    "`prepare`",
    "prepare.",
    &[
        key(
            "settle",
            Shape::DurationOr(&SETTLE),
            "Wait before each run until the device is as quiet as it was at first contact; a duration: for that long",
        )
        .default("{ min: 10s, timeout: 3m, on_timeout: flag, temp_within: 3C }"),
        key("reset_swap", Shape::Choice(&PER_MODEL), "Swap areas that are in use off and on again, where memory allows it").default("off"),
        key("drop_caches", Shape::Choice(&PER_MODEL), "`sync`, then empty the page cache").default("off"),
        key("governor", GOVERNOR, "cpufreq governor of every CPU, such as `performance`. Given back afterwards"),
        key("frequency", Shape::WordOr(&FREQUENCIES, &FREQUENCY), "Both frequency limits of every CPU. Given back afterwards"),
    ],
);

pub static SETTLE: Level = level(
    "prepare.settle",
    "`settle`",
    "settle.",
    &[
        key("min", Shape::Duration, "Shortest wait").default("10s"),
        key("timeout", Shape::Duration, "Longest wait").default("3m"),
        key("on_timeout", Shape::Choice(&ON_TIMEOUT), "What then").default("flag"),
        key("temp_within", Shape::Temperature, "Above its reference, at most; a temperature that stays steady above that will do, too").default("3C"),
    ],
);

pub static MEASURE: Level = level(
    "measure",
    "`measure`",
    "measure.",
    &[
        key("sample_hz", Shape::Number(0.0, 100.0), "Telemetry samples a second").default("10"),
        key("power", Shape::Choice(&POWER), "Whether energy is measured, and in which runs").default("off"),
        key("window", Shape::Map(&WINDOW), "`builtin`: how long a power run measures"),
    ],
);

pub static WINDOW: Level = level(
    "measure.window",
    "`window`",
    "window.",
    &[
        key("mode", Shape::Choice(&WINDOW_MODES), "How many inferences a power run has").default("auto"),
        key("target", Shape::Duration, "Length aimed at").default("100 samples, 20 values of a slow instrument, at least 5s"),
        key("min", Shape::Whole(1, MOST_IN_WINDOW as i64), "Fewest inferences").default("1"),
        key("max", Shape::Whole(1, MOST_IN_WINDOW as i64), "Most inferences: the time of each is kept").default("100000"),
    ],
);

static STABLE: Level = level(
    "stable",
    "`stable`",
    "stable.",
    &[
        key("rounds", Shape::Whole(1, 1_000_000), "Most rounds").default("12"),
        key("min_rounds", Shape::Whole(1, 1_000_000), "Fewest rounds").default("8"),
        key("iters_per_round", Shape::Whole(1, 1_000_000), "Iterations in a round").default("60"),
        key("cooldown", Shape::Duration, "Pause between rounds").default("500ms"),
        key("target", Shape::Percent, "CoV of round medians that counts as stable").default("3%"),
        key("patience", Shape::Whole(1, 1000), "How often in a row").default("2"),
        key("max_time", Shape::Duration, "Longest time for all of it"),
    ],
);

pub static SLO: Level =
    level("slo", "`slo`", "slo.", &[key("ttft", Shape::Duration, "Until the first token"), key("tpot", Shape::Duration, "Per token after it")]);

static CONTROL: Level = level("control", "`control`", "control.", &[key("point", Shape::Text, "`first`: the first arm of every group").required()]);

pub static DOMINANCE: Level = level(
    "dominance",
    "`dominance`",
    "dominance.",
    &[
        key("axis", Shape::Text, "Axis of numbers whose larger values are skipped").required(),
        key("on", Shape::OneOrMany(&Shape::Choice(&DOMINANCE_ON)), "Failures that do it").required(),
    ],
);

static POLICY: Level = level(
    "A policy",
    "a policy",
    "",
    &[
        key("id", Shape::Text, "Its name as a value of the axis `policy`").required(),
        key("provider", Shape::Text, "Execution provider").required(),
        key("device", Shape::Text, "Device of the provider"),
        key("options", Shape::MapOf(&Shape::Text), "Options of the provider"),
    ],
);

pub static METRIC: Level = level(
    "A metric",
    "a metric",
    "",
    &[
        key("from", SOURCE, "`stdout`, `stdout_last_line` (the last that isn't blank), `stderr` or `file:NAME`").required(),
        key("json", POINTER, "RFC 6901 pointer into that text as JSON; an array gives samples"),
        key("regex", Shape::Text, "Regular expression with one capture group"),
        key("take", Shape::Choice(&TAKES), "Which match counts").default("last"),
        key("unit", Shape::Text, "Of the value").required(),
        key("better", Shape::Choice(&BETTER), "Direction").required(),
    ],
);

pub static SUCCESS: Level = level(
    "success",
    "`success`",
    "success.",
    &[
        key("exit", Shape::OneOrMany(&Shape::Whole(0, 255)), "Exit codes that are no failure").default("[0]"),
        key("output_digest", Shape::Map(&OUTPUT_DIGEST), "What must be equal in all repetitions of a point"),
    ],
);

pub static OUTPUT_DIGEST: Level = level(
    "success.output_digest",
    "`output_digest`",
    "success.output_digest.",
    &[
        key("from", SOURCE, "As for a metric").default("stdout_last_line"),
        key("json", POINTER, "As for a metric"),
        key("regex", Shape::Text, "As for a metric"),
    ],
);

/// Levels in the order of the reference.
pub static LEVELS: [&Level; 24] = [
    &TOP,
    &USED,
    &DEVICE,
    &LOCAL,
    &SSH,
    &POD,
    &MOUNT,
    &CEILING,
    &MODEL,
    &DEFAULTS,
    &ANY_BLOCK,
    &PREPARE,
    &SETTLE,
    &MEASURE,
    &WINDOW,
    &STABLE,
    &SLO,
    &CONTROL,
    &LIMITS,
    &DOMINANCE,
    &POLICY,
    &METRIC,
    &SUCCESS,
    &OUTPUT_DIGEST,
];

/// Names of a block's parameters that mean something else already.
pub const RESERVED_AXES: &[&str] = &["threads", "model", "device", "repetition", "env", "flags", "build", "cpus", "backend", "block"];

/// Where a key that is unknown at its place would be at home.
#[must_use]
pub fn home_of(key: &str) -> Option<&'static str> {
    let levels = [
        (&TOP, "the top level"),
        (&DEVICE, "a device"),
        (&MODEL, "a model"),
        (&PREPARE, "`prepare`"),
        (&MEASURE, "`measure`"),
        (&DEFAULTS, "`defaults` or a block of `matrix`"),
        (&ANY_BLOCK, "a block of `matrix`"),
        (&METRIC, "a metric"),
        (&SUCCESS, "`success`"),
    ];
    levels.into_iter().find(|(level, _)| level.key(key).is_some_and(|key| key.built)).map(|(_, home)| home)
}
