//! The `llama-bench` backend: prefill and decode throughput by llama.cpp's own benchmark.
//!
//! One process measures both, as two tests of its own: `-p N` and `-n M`, each at the depth that is asked for. Which options a build has
//! differs from build to build; nothing is passed that the point doesn't ask for.

mod echo;
mod output;
mod spans;

use super::llama_help::{self, Unknown};
use super::llama_offload::offload;
use super::{MOST_CLOCKS_APART, RawOutput, Reading, last_words, measured, omitted};
use crate::config::model::Settings;
use crate::plan::point::LlamaBenchWork;
use crate::registry::{Code, MetricId};
use crate::store::record::{Issue, LlamaBenchAsked as Asked, LlamaBenchTest, Metric, ModelBlock, Reason};
use indexmap::IndexMap;
use isotherm_wire::model::Gguf;
use isotherm_wire::task::{ProcessTask, Task};
use output::Test;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Share by which the tool's mean may be off that of its samples.
const MOST_MEANS_APART: f64 = 1e-3;
/// The last digit that the tool prints of its mean.
const PRINTED: f64 = 1e-6;
/// What the tool says of a file that it can't use; the same words for every cause.
const CANT_LOAD: &str = "failed to load model";

/// `model`: its path on the device.
pub(super) fn task(work: &LlamaBenchWork, settings: &Settings, model: &str) -> Task {
    // The tool warms up by itself, in the process that it measures in.
    Task::Process(ProcessTask { argv: argv(work, settings.iterations, model), warmup: 0, collect: Vec::new(), stamp_lines: true })
}

fn argv(work: &LlamaBenchWork, iterations: u32, model: &str) -> Vec<String> {
    let LlamaBenchWork { program, n_prompt, n_gen, depth, threads, n_batch, n_ubatch, flags } = work;
    let mut argv = vec![program.clone(), "-m".into(), model.into()];
    let depth = (*depth > 0).then_some(*depth);
    let numbers = [
        ("-p", Some(*n_prompt)),
        ("-n", Some(*n_gen)),
        ("-d", depth),
        ("-t", *threads),
        ("-b", *n_batch),
        ("-ub", *n_ubatch),
        ("-r", Some(iterations)),
    ];
    for (option, number) in numbers {
        argv.extend(number.iter().flat_map(|number| [option.to_owned(), number.to_string()]));
    }
    argv.extend(["-o", "jsonl", "--progress"].map(str::to_owned));
    argv.extend(flags.iter().cloned());
    argv
}

/// Options of a point's command line that a build hasn't, by its help text.
#[must_use]
pub fn unknown_options(work: &LlamaBenchWork, settings: &Settings, help: &str) -> Vec<Unknown> {
    llama_help::unknown(help, &argv(work, settings.iterations, ""))
}

/// What of the campaign's request is this backend's own.
pub(super) fn requested(work: &LlamaBenchWork, settings: &Settings) -> Vec<(&'static str, Value)> {
    let LlamaBenchWork { program: _, n_prompt, n_gen, depth, threads, n_batch, n_ubatch, flags } = work;
    let mut requested =
        vec![("n_prompt", json!(n_prompt)), ("n_gen", json!(n_gen)), ("depth", json!(depth)), ("iterations", json!(settings.iterations))];
    let numbers = [("threads", threads), ("n_batch", n_batch), ("n_ubatch", n_ubatch)];
    requested.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, json!(number.as_ref()?)))));
    if !flags.is_empty() {
        requested.push(("flags", json!(flags)));
    }
    requested
}

/// What a run was asked for, as far as reading its output depends on it.
#[must_use]
pub fn asked(work: &LlamaBenchWork, settings: &Settings) -> Asked {
    let LlamaBenchWork { n_prompt, n_gen, depth, flags, .. } = work;
    let passed = echo::passed(&argv(work, settings.iterations, ""));
    Asked { n_prompt: *n_prompt, n_gen: *n_gen, depth: *depth, samples: settings.iterations, offload: offload(flags), passed }
}

pub(super) fn read(asked: &Asked, raw: &RawOutput, exit_code: i32) -> Reading {
    let mut reading = Reading::default();
    let tests = output::tests(&String::from_utf8_lossy(&raw.stdout.kept));
    reading.failure = failure(asked, &tests, raw, exit_code);
    for test in &tests {
        reading.metrics.extend(metrics(test));
    }
    reading.metrics.extend(raw.peak_rss.map(|peak| measured(MetricId::PeakRss, &[peak.bytes as f64])));
    if let Some(first) = tests.first() {
        reading.version = Some(format!("llama.cpp {} (build {})", first.build_commit, first.build_number));
        reading.executed.clone_from(&first.settings);
        reading.issues.extend(cpu_fallback(asked, first));
        reading.issues.extend(echo::differs(&asked.passed, &tests));
    }
    if let Some(test) = tests.iter().find(|test| test.n_gen > 0 && test.n_depth > 0) {
        let message = format!("what {} reads of the context is not in `decode_gb_s`", test.name());
        reading.issues.push(Issue::new(Code::KvTrafficExcluded, message));
    }
    reading.issues.extend(outside_run(&tests, raw));
    reading.issues.extend(tests.iter().filter_map(mean_differs));
    let spans = spans::of(&tests, &raw.stdout, &raw.stderr, raw.window.map_or(u64::MAX, |(_, exit_ns)| exit_ns));
    reading.tests = tests.iter().zip(spans).map(|(test, spans_ns)| test.recorded(spans_ns)).collect();
    reading
}

/// Why the run is not `ok` although, or because, it ended by itself.
fn failure(asked: &Asked, tests: &[Test], raw: &RawOutput, exit_code: i32) -> Option<(Reason, String)> {
    if exit_code != 0 {
        let words = last_words(raw).map_or_else(String::new, |words| format!(": {words}"));
        let why = if words.contains(CANT_LOAD) {
            " (a file that is damaged, cut short, without weights, one of several under another name, or of a kind that this build doesn't \
             know; `-v` by hand says more)"
        } else {
            ""
        };
        return Some((Reason::ExitCode, format!("exit code {exit_code}{words}{why}")));
    }
    if raw.stdout.cut_at.is_some() {
        return Some((Reason::Parse, format!("its output has {} bytes, of which only the ends were kept", raw.stdout.bytes)));
    }
    let wanted: Vec<(u64, u64)> =
        [(asked.n_prompt, 0), (0, asked.n_gen)].into_iter().filter(|test| *test != (0, 0)).map(|(p, n)| (p.into(), n.into())).collect();
    let is_wanted = |test: &&Test| test.n_depth == u64::from(asked.depth) && wanted.contains(&(test.n_prompt, test.n_gen));
    let parse = |why: String| Some((Reason::Parse, format!("exit code 0, and {why}")));
    if tests.is_empty() {
        return parse("no test in its output".into());
    }
    if let Some(other) = tests.iter().find(|test| !is_wanted(test)) {
        return parse(format!("a test in its output that was not asked for: {}", other.name()));
    }
    let names: BTreeSet<String> = tests.iter().map(Test::name).collect();
    if tests.len() > names.len() {
        return parse(format!("more than one result of a test: {}", tests.iter().map(Test::name).collect::<Vec<_>>().join(", ")));
    }
    if names.len() < wanted.len() {
        return parse(format!("only one of the tests that were asked for: {}", names.into_iter().collect::<Vec<_>>().join(", ")));
    }
    tests.iter().find_map(|test| {
        let n = test.samples_ns.len();
        if n == 0 || n != asked.samples as usize {
            parse(format!("{n} samples of {} where {} were asked for", test.name(), asked.samples))
        } else if test.samples_ns.contains(&0) {
            parse(format!("a sample of {} that took no time", test.name()))
        } else {
            None
        }
    })
}

/// The metrics of one test; none of one that is neither prefill alone nor decode alone.
fn metrics(test: &Test) -> Vec<(String, Metric)> {
    let (rate, by_tool) = match (test.n_prompt, test.n_gen) {
        (_, 0) => (MetricId::PrefillTps, MetricId::PrefillLlamaBenchAvgTs),
        (0, _) => (MetricId::DecodeTps, MetricId::DecodeLlamaBenchAvgTs),
        _ => return Vec::new(),
    };
    let rates = test.rates();
    if rates.is_empty() {
        return Vec::new();
    }
    let label = Some(test.name());
    let (name, metric) = measured(rate, &rates);
    let mut metrics = vec![(name, Metric { samples: rates.clone(), label: label.clone(), ..metric })];
    let (name, metric) = measured(by_tool, &rates);
    metrics.push((name, Metric { value: Some(test.avg_ts), label: label.clone(), ..metric }));
    metrics
}

/// What decode takes out of memory, of a reading whose model is known; `None` where nothing was decoded.
#[must_use]
pub fn bandwidth(reading: &Reading, model: Option<&ModelBlock>) -> Option<(String, Metric)> {
    let decode = reading.metrics.get(MetricId::DecodeTps.entry().name)?;
    let entry = MetricId::DecodeBandwidth.entry();
    let (name, metric) = match decode_bytes(&reading.executed, model) {
        Ok(bytes) => measured(MetricId::DecodeBandwidth, &decode.samples.iter().map(|tps| tps * bytes as f64 / 1e9).collect::<Vec<_>>()),
        Err(why) => (entry.name.to_owned(), omitted(entry.unit.symbol(), entry.better, entry.definition, why.into())),
    };
    Some((name, Metric { label: decode.label.clone(), ..metric }))
}

/// Bytes of weights that are read for a token: all tensors, without the tables of which a token takes single rows, and without the experts that
/// are not at work for it.
///
/// The tool's sum and the file's may differ: older builds count a table of embeddings twice that is the output matrix, too, and a build may
/// leave tensors unused. The smaller one is without either.
///
/// # Errors
/// Why it isn't known.
pub fn decode_bytes(executed: &IndexMap<String, Value>, model: Option<&ModelBlock>) -> Result<u64, &'static str> {
    let of_tool =
        executed.get("model_size").and_then(Value::as_u64).filter(|bytes| *bytes > 0).ok_or("the tool tells no bytes of the model's tensors")?;
    let gguf =
        model.and_then(ModelBlock::gguf).ok_or("the header of the model's file was not read, which tells what of its tensors is read for a token")?;
    let of_file = gguf.weight_bytes.unwrap_or(of_tool);
    let looked_up = match gguf.lookup_bytes {
        Some(bytes) => bytes,
        None if gguf.split.is_some() => {
            return Err("not every header of the model's files was read, which tell what of its tensors is read for a token");
        }
        None => return Err("the header of the model's file does not tell what of its tensors is read for a token"),
    };
    let idle = match gguf.experts {
        Some(_) if of_tool < of_file => {
            return Err("the tool leaves tensors of the model's file unused, and which experts are among them is not known");
        }
        Some(experts) => {
            idle_bytes(gguf, experts).ok_or("the header of the model's file does not tell what its experts have, and how many a token needs")?
        }
        None => 0,
    };
    let read = of_tool.min(of_file).checked_sub(looked_up).and_then(|bytes| bytes.checked_sub(idle));
    read.filter(|bytes| *bytes > 0).ok_or("the tool tells of fewer bytes than the tables and idle experts in the model's file have")
}

/// Of a mixture of experts, bytes of those that a token doesn't need: all are equal.
fn idle_bytes(gguf: &Gguf, experts: u64) -> Option<u64> {
    let all = gguf.expert_bytes.filter(|bytes| *bytes > 0)?;
    let idle = experts.checked_sub(gguf.experts_used?)?;
    u64::try_from(u128::from(all) * u128::from(idle) / u128::from(experts)).ok()
}

/// A GPU was asked for and none was there: the tool goes on with the CPU and says so by what it doesn't print.
fn cpu_fallback(asked: &Asked, test: &Test) -> Option<Issue> {
    let text = |name: &str| test.settings.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_cpu = text("gpu_info").is_empty() || text("backends") == "CPU";
    let flags = asked.offload.as_ref().filter(|_| is_cpu)?;
    let message = format!("`{flags}` asks for a GPU, and the tool used none: backends {:?}, gpu_info {:?}", text("backends"), text("gpu_info"));
    Some(Issue::new(Code::CpuFallback, message))
}

/// Samples can't take longer than the process that took them.
fn outside_run(tests: &[Test], raw: &RawOutput) -> Option<Issue> {
    let (spawn_ns, exit_ns) = raw.window?;
    let run_s = exit_ns.saturating_sub(spawn_ns) as f64 / 1e9;
    let samples_s = tests.iter().flat_map(|test| &test.samples_ns).map(|&ns| ns as f64).sum::<f64>() / 1e9;
    let message = format!("its samples take {samples_s:.3} s together, and its process took {run_s:.3} s");
    (samples_s > run_s * (1.0 + MOST_CLOCKS_APART)).then(|| Issue::new(Code::WindowOutsideRun, message))
}

/// The tool's own mean is that of its samples, or one of the two is made up.
fn mean_differs(test: &Test) -> Option<Issue> {
    let rates = test.rates();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let message = format!("{}: the tool says `avg_ts` {}, and the mean of its samples is {mean:.6}", test.name(), test.avg_ts);
    ((test.avg_ts - mean).abs() > MOST_MEANS_APART * mean + PRINTED).then(|| Issue::new(Code::SamplesDiffer, message))
}

/// What the model's file says against what was asked for and what the tool says it had: more tokens than it was trained for, of which the tool
/// says nothing, and another model.
#[must_use]
pub fn issues_with(asked: &Asked, raw: &RawOutput, model: &ModelBlock) -> Vec<Issue> {
    let tokens = u64::from(asked.depth) + u64::from(asked.n_prompt.max(asked.n_gen));
    let beyond = model.gguf().and_then(|gguf| super::beyond_trained_context(tokens, gguf.context_length?));
    let other = echo::other_model(&raw.argv, &output::tests(&String::from_utf8_lossy(&raw.stdout.kept)));
    beyond.into_iter().chain(other).collect()
}

impl Test {
    fn recorded(&self, spans_ns: Vec<(u64, u64)>) -> LlamaBenchTest {
        LlamaBenchTest {
            name: self.name(),
            n_prompt: self.n_prompt,
            n_gen: self.n_gen,
            depth: self.n_depth,
            samples_ns: self.samples_ns.clone(),
            spans_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::model::ModelHeader;

    /// Of a model of 1000 bytes, as the tool says, whose header says this.
    fn read_of(gguf: Option<Gguf>) -> Result<u64, &'static str> {
        let header = gguf.map(|gguf| ModelHeader::Gguf(Box::new(gguf)));
        let (id, path) = ("m".to_owned(), "m.gguf".to_owned());
        let model = ModelBlock { id, path, sha256: None, bytes: None, quantization: None, tags: Default::default(), header };
        decode_bytes(&[("model_size".to_owned(), json!(1000))].into(), Some(&model))
    }

    #[test]
    fn a_token_reads_what_no_table_is_and_without_a_word_of_the_header_nobody_knows_what_that_is() {
        let of = |lookup_bytes| read_of(Some(Gguf { lookup_bytes, ..Gguf::default() }));
        assert_eq!([of(Some(0)), of(Some(364))], [Ok(1000), Ok(636)]);
        let of_file = |weight_bytes| read_of(Some(Gguf { weight_bytes: Some(weight_bytes), lookup_bytes: Some(0), ..Gguf::default() }));
        assert_eq!([of_file(800), of_file(1200)], [Ok(800), Ok(1000)]);
        let split = serde_json::from_value(json!({ "part": 1, "of": 2 })).unwrap();
        let part = read_of(Some(Gguf { split: Some(split), ..Gguf::default() }));
        // Headers of earlier builds' records have no such field.
        let mut earlier = serde_json::to_value(Gguf::default()).unwrap();
        earlier.as_object_mut().unwrap().remove("lookup_bytes").unwrap();
        let earlier = read_of(Some(serde_json::from_value(earlier).unwrap()));
        let said = [earlier, part, read_of(None), of(Some(1001)), decode_bytes(&IndexMap::new(), None)].map(Result::unwrap_err);
        for (said, words) in said.iter().zip(["does not tell", "not every header", "was not read", "fewer bytes", "tells no bytes"]) {
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn of_a_mixture_of_experts_a_token_reads_those_at_work_for_it() {
        let whole = Gguf {
            weight_bytes: Some(1000),
            lookup_bytes: Some(100),
            experts: Some(8),
            experts_used: Some(2),
            expert_bytes: Some(800),
            ..Gguf::default()
        };
        assert_eq!(read_of(Some(whole.clone())), Ok(1000 - 100 - 600));
        // A build that counts a table twice, and one that leaves a layer out.
        assert_eq!(read_of(Some(Gguf { weight_bytes: Some(950), ..whole.clone() })), Ok(950 - 100 - 600));
        let said = |gguf: Gguf| read_of(Some(gguf)).unwrap_err();
        assert!(said(Gguf { weight_bytes: Some(1001), ..whole.clone() }).contains("unused"));
        for untold in [
            Gguf { expert_bytes: None, ..whole.clone() },
            Gguf { expert_bytes: Some(0), ..whole.clone() },
            Gguf { experts_used: None, ..whole.clone() },
            Gguf { experts_used: Some(9), ..whole.clone() },
        ] {
            assert!(said(untold).contains("experts"));
        }
    }
}
