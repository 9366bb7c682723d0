//! What llama-bench prints of a test: one JSON object, on a line of its own (`-o jsonl`) or in a list (`-o json`), with whatever a debugger
//! prints around it.

use indexmap::IndexMap;
use serde_json::{Deserializer, Map, Value};

/// Fields that are results or name the test; all others are what it was executed with.
const NO_SETTINGS: [&str; 14] = [
    "build_commit",
    "build_number",
    "model_filename",
    "n_prompt",
    "n_gen",
    "n_depth",
    "test_time",
    "avg_ns",
    "stddev_ns",
    "avg_ts",
    "stddev_ts",
    "samples_ns",
    "samples_ts",
    "cpu_info",
];

/// One test of the tool, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    pub build_commit: String,
    pub build_number: i64,
    pub n_prompt: u64,
    pub n_gen: u64,
    /// Builds of before early 2025 know no depth: it is 0.
    pub n_depth: u64,
    /// Duration of each repetition.
    pub samples_ns: Vec<u64>,
    /// The tool's own mean of rates, tokens/s.
    pub avg_ts: f64,
    /// Bytes of all tensors.
    pub model_size: Option<u64>,
    /// Path of the model, as the tool had it.
    pub model_filename: Option<String>,
    /// As the tool names them; builds add some and drop others.
    pub settings: IndexMap<String, Value>,
}

impl Test {
    /// As the tool names it in its tables: `pp512`, `tg128 @ d4096`, `pp512+tg128`.
    #[must_use]
    pub fn name(&self) -> String {
        let part = |what: &str, n: u64| (n > 0).then(|| format!("{what}{n}"));
        let parts: Vec<String> = [part("pp", self.n_prompt), part("tg", self.n_gen)].into_iter().flatten().collect();
        let depth = if self.n_depth > 0 { format!(" @ d{}", self.n_depth) } else { String::new() };
        parts.join("+") + &depth
    }

    /// Rate of each sample, tokens/s; none where a sample took no time.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        if self.samples_ns.contains(&0) {
            return Vec::new();
        }
        let tokens = (self.n_prompt + self.n_gen) as f64;
        self.samples_ns.iter().map(|&ns| 1e9 * tokens / ns as f64).collect()
    }

    /// `None` = an object that is no test.
    fn of(fields: Map<String, Value>) -> Option<Test> {
        let number = |name: &str| fields.get(name).and_then(Value::as_u64);
        let samples = fields.get("samples_ns")?.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
        Some(Test {
            build_commit: fields.get("build_commit")?.as_str()?.to_owned(),
            build_number: fields.get("build_number")?.as_i64()?,
            n_prompt: number("n_prompt")?,
            n_gen: number("n_gen")?,
            n_depth: number("n_depth").unwrap_or(0),
            samples_ns: samples,
            // It prints `nan` or `-nan` of no samples, which is no JSON.
            avg_ts: fields.get("avg_ts")?.as_f64()?,
            model_size: number("model_size"),
            model_filename: fields.get("model_filename").and_then(Value::as_str).map(str::to_owned),
            settings: fields.into_iter().filter(|(name, _)| !NO_SETTINGS.contains(&name.as_str())).collect(),
        })
    }
}

/// The tests that are whole, in the order in which they were printed.
#[must_use]
pub fn tests(text: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        rest = &rest[at..];
        let mut objects = Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
        match objects.next() {
            Some(Ok(fields)) => {
                rest = &rest[objects.byte_offset()..];
                tests.extend(Test::of(fields));
            }
            // What isn't whole, or is no JSON, ends with its line.
            _ => rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
        }
    }
    tests
}
