//! The `llama-server` backend: latency of streamed requests, as a client sees it, and the rates that llama.cpp's server tells itself.

use super::llama_help::{self, Unknown};
use super::llama_log;
use super::llama_offload::{OFFLOADS, layers_asked_for, offload};
use super::{MOST_CLOCKS_APART, RawOutput, Reading, beyond_trained_context, last_words, measured, memory, omitted, signal_words};
use crate::config::llama_option;
use crate::config::model::Settings;
use crate::plan::point::LlamaServerWork;
use crate::registry::{Code, MetricId};
use crate::store::record::{Issue, Iterations, LlamaServerAsked as Asked, Metric, Reason, Slo};
use indexmap::IndexMap;
use isotherm_wire::served::{Request, ServeFailure, ServeOutput, ServeTask, ServerFacts, context_of_request};
use isotherm_wire::task::Task;
use serde_json::{Value, json};
use std::time::Duration;

/// Of the prompt's tokens and of sampling.
pub const SEED: u64 = 1;
/// A context is as many tokens as are needed, rounded up to a multiple of this: what llama.cpp pads it to anyway.
const CONTEXT_STEP: u64 = 256;
/// From TERM to KILL when a server is stopped.
const GRACE: Duration = Duration::from_secs(5);

/// `model`: its path on the device.
pub(super) fn task(work: &LlamaServerWork, settings: &Settings, model: &str) -> Task {
    Task::Serve(ServeTask {
        argv: argv(work, model),
        model: model.into(),
        startup_timeout_ms: settings.startup_timeout.as_millis() as u64,
        grace_ms: GRACE.as_millis() as u64,
        n_prompt: work.n_prompt,
        n_gen: work.n_gen,
        warmup: settings.warmup,
        requests: settings.iterations,
        concurrency: work.concurrency,
        seed: SEED,
    })
}

/// Port 0: one that is free, chosen by the kernel at the moment at which it is taken.
fn argv(work: &LlamaServerWork, model: &str) -> Vec<String> {
    let LlamaServerWork { program, n_prompt: _, n_gen: _, n_ctx: _, concurrency, threads, n_batch, n_ubatch, flags } = work;
    let mut argv: Vec<String> = [program, "-m", model, "--host", "127.0.0.1", "--port", "0"].map(str::to_owned).to_vec();
    let numbers = [("-c", Some(n_ctx(work))), ("-np", Some(*concurrency)), ("-t", *threads), ("-b", *n_batch), ("-ub", *n_ubatch)];
    for (option, number) in numbers {
        argv.extend(number.iter().flat_map(|number| [option.to_owned(), number.to_string()]));
    }
    argv.extend(flags.iter().cloned());
    argv
}

/// Options of a point's command line that a build hasn't, by its help text.
#[must_use]
pub fn unknown_options(work: &LlamaServerWork, help: &str) -> Vec<Unknown> {
    llama_help::unknown(help, &argv(work, ""))
}

/// Tokens of context, of all requests at a time together: as asked for, else as many as they need.
#[must_use]
pub fn n_ctx(work: &LlamaServerWork) -> u32 {
    let needed = context_of_request(work.n_prompt, work.n_gen).next_multiple_of(CONTEXT_STEP);
    work.n_ctx.unwrap_or_else(|| u32::try_from(needed.saturating_mul(work.concurrency.into())).unwrap_or(u32::MAX))
}

/// What of the campaign's request is this backend's own.
pub(super) fn requested(work: &LlamaServerWork, settings: &Settings) -> Vec<(&'static str, Value)> {
    let LlamaServerWork { program: _, n_prompt, n_gen, n_ctx: _, concurrency, threads, n_batch, n_ubatch, flags } = work;
    let numbers = [
        ("n_prompt", Some(*n_prompt)),
        ("n_gen", Some(*n_gen)),
        ("n_ctx", Some(n_ctx(work))),
        ("concurrency", Some(*concurrency)),
        ("warmup", Some(settings.warmup)),
        ("iterations", Some(settings.iterations)),
        ("threads", *threads),
        ("n_batch", *n_batch),
        ("n_ubatch", *n_ubatch),
    ];
    let mut requested: Vec<(&str, Value)> = numbers.into_iter().filter_map(|(name, number)| Some((name, json!(number?)))).collect();
    requested.push(("startup_timeout_ms", json!(settings.startup_timeout.as_millis() as u64)));
    if !flags.is_empty() {
        requested.push(("flags", json!(flags)));
    }
    requested
}

/// What options and variables say of where the model is to be computed: a server takes both, and an option before its variable.
fn placing(work: &LlamaServerWork, env: &IndexMap<String, String>) -> Vec<String> {
    let variables = OFFLOADS.iter().filter(|(names, _)| !has_any(&work.flags, names)).flat_map(|(names, _)| names.iter().copied());
    let of_variables = variables.filter_map(|name| Some([name.to_owned(), env.get(name)?.clone()])).flatten();
    of_variables.chain(work.flags.iter().cloned()).collect()
}

fn has_any(words: &[String], names: &[&str]) -> bool {
    words.iter().any(|word| names.contains(&&*llama_option(word)))
}

/// What a run was asked for, as far as reading its output depends on it. `env`: variables that the campaign declares.
#[must_use]
pub fn asked(work: &LlamaServerWork, settings: &Settings, env: &IndexMap<String, String>) -> Asked {
    let placing = placing(work, env);
    let ms = |limit: Duration| limit.as_secs_f64() * 1e3;
    let slo = settings.slo.map(|slo| Slo { ttft_ms: slo.ttft.map(ms), tpot_ms: slo.tpot.map(ms) });
    Asked {
        n_prompt: work.n_prompt,
        n_gen: work.n_gen,
        requests: settings.iterations.saturating_mul(work.concurrency),
        startup_timeout_ms: settings.startup_timeout.as_millis() as u64,
        slo,
        offload: offload(&placing),
        offload_unsaid: !OFFLOADS.iter().any(|(names, _)| has_any(&placing, names)),
        concurrency: Some(work.concurrency),
        n_ctx: Some(n_ctx(work)),
        threads: work.threads,
    }
}

pub(super) fn read(asked: &Asked, raw: &RawOutput, exit_code: i32) -> Reading {
    let mut reading = Reading::default();
    if exit_code != 0 {
        let words = last_words(raw).unwrap_or_else(|| "it said nothing".into());
        reading.failure = Some((Reason::ExitCode, format!("what asks the server ended with exit code {exit_code}: {words}")));
        return reading;
    }
    let read = match raw.stdout.cut_at {
        None => serde_json::from_slice::<ServeOutput>(&raw.stdout.kept).map_err(|e| format!("were not understood: {e}")),
        Some(_) => Err(format!("have {} bytes, of which only the ends were kept", raw.stdout.bytes)),
    };
    let output = match read {
        Ok(output) => output,
        Err(why) => {
            reading.failure = Some((Reason::Parse, format!("the times of its requests {why}")));
            return reading;
        }
    };
    reading.load_ms = output.spawn_ns.zip(output.ready_ns).and_then(|(spawn, ready)| ready.checked_sub(spawn)).map(ms);
    let (warmup_start, warmup_end) = window(&output.warmup);
    reading.warmup_ms = (!output.warmup.is_empty()).then(|| ms(warmup_end - warmup_start));
    if let Some(server) = &output.server {
        reading.version = server.build.as_ref().map(|build| format!("llama.cpp {build}"));
        let facts = [
            ("n_ctx_of_a_request", json!(server.n_ctx)),
            ("slots", json!(server.slots)),
            ("n_ctx_train", json!(server.context_trained)),
            ("n_vocab", json!(server.vocabulary)),
            ("n_params", json!(server.parameters)),
            ("model_size", json!(server.weight_bytes)),
            ("model_ftype", json!(server.quantization)),
        ];
        reading.executed.extend(facts.into_iter().filter(|(_, fact)| !fact.is_null()).map(|(name, fact)| (name.to_owned(), fact)));
    }
    reading.executed.insert("warmup".into(), output.warmup.len().into());
    reading.executed.insert("requests".into(), output.requests.len().into());
    reading.executed.extend(output.prompt_sha256.clone().map(|sha256| ("prompt_sha256".to_owned(), sha256.into())));
    reading.failure = failure(asked, &output, raw);
    let log = llama_log::beginning(&raw.stderr);
    reading.executed.extend(llama_log::n_threads(&log).map(|threads| ("n_threads".to_owned(), threads.into())));
    reading.executed.extend(llama_log::context(&log).unified.map(|unified| ("kv_unified".to_owned(), unified.into())));
    reading.issues.extend(output.server.as_ref().and_then(|server| differs(asked, server, &log)));
    reading.issues.extend(prompt_cached(&output.requests));
    reading.issues.extend(outside_run(&output.requests));
    reading.issues.extend(more_events_than_tokens(&output.requests));
    let offloaded = offloaded(raw);
    if let Some((offloaded, layers)) = offloaded {
        reading.executed.extend([("layers_offloaded", offloaded), ("layers", layers)].map(|(name, number)| (name.to_owned(), number.into())));
    }
    reading.issues.extend(cpu_fallback(asked, raw, offloaded));
    let tokens = u64::from(asked.n_prompt) + u64::from(asked.n_gen);
    reading.issues.extend(output.server.as_ref().and_then(|server| beyond_trained_context(tokens, server.context_trained?)));
    if reading.failure.is_none() {
        reading.metrics.extend(metrics(asked, &output.requests));
    }
    reading.metrics.extend(raw.peak_rss.map(|peak| measured(MetricId::PeakRss, &[peak.bytes as f64])));
    reading.iterations = iterations(&output);
    reading
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Why the run is not `ok`.
fn failure(asked: &Asked, output: &ServeOutput, raw: &RawOutput) -> Option<(Reason, String)> {
    let said = |what: String| words(raw).map_or(what.clone(), |words| format!("{what}: {words}"));
    let Some(failure) = &output.failure else { return incomplete(asked, &output.requests) };
    Some(match failure {
        ServeFailure::Spawn { message, .. } => (Reason::Spawn, format!("the server could not be started: {message}")),
        ServeFailure::EndedAtStart { wait_status } => ended(*wait_status, "before it was ready", raw, &said),
        ServeFailure::Ended { during, wait_status } => ended(*wait_status, &format!("in {during}"), raw, &said),
        ServeFailure::StartupTimeout { last } => {
            let limit = humantime::format_duration(Duration::from_millis(asked.startup_timeout_ms));
            (Reason::Timeout, said(format!("the server was not ready within its start-up time-out of {limit} ({last})")))
        }
        ServeFailure::NoModel { said } => (Reason::ModelMissing, format!("the server is ready without a model, to load some later: {said}")),
        ServeFailure::OtherModel { path } => (Reason::ModelMissing, format!("the server has another model than the one asked for: {path}")),
        ServeFailure::ContextTooSmall { n_ctx } => (Reason::Precondition, context_too_small(asked, *n_ctx, output)),
        ServeFailure::TooFewClients { clients, message } => {
            (Reason::Internal, format!("no more than {clients} clients could be started on the device: {message}"))
        }
        ServeFailure::Cut { during, events } => {
            (Reason::Parse, said(format!("the server ended the connection of {during} after {events} events with content, and went on itself")))
        }
        ServeFailure::Refused { during, status, said } => (Reason::Parse, format!("the server refused {during}, status {status}: {said}")),
        ServeFailure::NotUnderstood { during, why } => (Reason::Parse, format!("the server's answer to {during} was not understood: {why}")),
    })
}

/// Nothing was asked of a server whose context wouldn't have held the answer.
fn context_too_small(asked: &Asked, n_ctx: u64, output: &ServeOutput) -> String {
    let needed = context_of_request(asked.n_prompt, asked.n_gen);
    let what = match output.server.as_ref().and_then(|server| server.context_trained).filter(|trained| *trained < needed) {
        Some(trained) => format!("the model was trained for {trained} tokens, write fewer as `n_prompt` or `n_gen`"),
        None => "give more of it by `n_ctx`, which all requests at a time share, or write fewer as `n_prompt` or `n_gen`".to_owned(),
    };
    format!(
        "a request needs {needed} tokens of context ({} of prompt, {} generated, and 1), and the server has {n_ctx} for it: {what}",
        asked.n_prompt, asked.n_gen
    )
}

/// A server that ended by itself.
fn ended(wait_status: i32, when: &str, raw: &RawOutput, said: &dyn Fn(String) -> String) -> (Reason, String) {
    let signal = wait_status & 0x7f;
    if signal == 0 {
        let exit_code = (wait_status >> 8) & 0xff;
        let reason = if memory::ran_out(raw, exit_code) { Reason::Oom } else { Reason::ExitCode };
        return (reason, said(format!("the server ended {when} with exit code {exit_code}")));
    }
    let (name, means) = signal_words(signal);
    let reason = if memory::was_ended(raw, signal) { Reason::Oom } else { Reason::Signal };
    let kernel = if reason == Reason::Oom && signal == 9 { " by the kernel, which was out of memory" } else { "" };
    (reason, said(format!("the server was ended {when} by {name}{kernel}{means}")))
}

/// Requests that are not what was asked for.
fn incomplete(asked: &Asked, requests: &[Request]) -> Option<(Reason, String)> {
    let wrong = |n: usize, what: &str, got: Option<u64>, wanted: u32| {
        let got = got.map_or_else(|| "no number".into(), |got| got.to_string());
        Some((Reason::Parse, format!("request {} has {got} {what} by the server's count, and {wanted} were asked for", n + 1)))
    };
    if requests.is_empty() || requests.len() != asked.requests as usize {
        return Some((Reason::Parse, format!("{} requests were answered, and {} were to be", requests.len(), asked.requests)));
    }
    requests.iter().enumerate().find_map(|(n, request)| match request {
        Request { prompt_tokens, .. } if *prompt_tokens != Some(asked.n_prompt.into()) => {
            wrong(n, "tokens in its prompt", *prompt_tokens, asked.n_prompt)
        }
        // By `--context-shift` it goes on with less.
        Request { truncated: true, .. } => {
            Some((Reason::Parse, format!("the context of request {} was too small and was cut in its course: give more of it by `n_ctx`", n + 1)))
        }
        Request { tokens, .. } if *tokens != Some(asked.n_gen.into()) => wrong(n, "tokens in its answer", *tokens, asked.n_gen),
        Request { timings: Some(timings), .. } if timings.predicted_n != u64::from(asked.n_gen) => {
            wrong(n, "tokens in the timings of its answer", Some(timings.predicted_n), asked.n_gen)
        }
        _ => None,
    })
}

/// What the server says of itself, against what it was passed.
fn differs(asked: &Asked, server: &ServerFacts, log: &str) -> Option<Issue> {
    let (concurrency, n_ctx) = (u64::from(asked.concurrency?), u64::from(asked.n_ctx?));
    let mut said = Vec::new();
    // 0 leaves it to the server.
    let threads = asked.threads.map(u64::from).filter(|threads| *threads > 0);
    if let Some((threads, told)) = threads.zip(llama_log::n_threads(log)).filter(|(threads, told)| threads != told) {
        said.push(format!("`-t {threads}` was passed, and the server says `n_threads` {told}"));
    }
    if let Some(slots) = server.slots.filter(|slots| *slots != concurrency) {
        said.push(format!("`-np {concurrency}` was passed, and the server has {slots} slots"));
    }
    // A request has its part, or may take all of it (`--kv-unified`), either rounded up, and never more than the model was trained for.
    let context = llama_log::context(log);
    let whole = n_ctx.next_multiple_of(CONTEXT_STEP);
    let (part, rounded_part) = (n_ctx.checked_div(concurrency)?, whole.checked_div(concurrency)?.next_multiple_of(CONTEXT_STEP));
    let (least, most, how) = match context.unified {
        Some(false) => (part, rounded_part, ", of its own"),
        Some(true) => (n_ctx, whole, ", which all share"),
        None => (part, whole.max(rounded_part), ""),
    };
    let least = least.min(server.context_trained.unwrap_or(u64::MAX));
    // 0 leaves it to the server.
    let told = context.before_limit.or(server.n_ctx).filter(|told| n_ctx > 0 && !(least..=most).contains(told));
    if let Some(told) = told {
        said.push(format!("`-c {n_ctx}` was passed for {concurrency} requests at a time, and the server has {told} tokens of context for each{how}"));
    }
    (!said.is_empty()).then(|| Issue::new(Code::ExecutedDiffers, said.join("; ")))
}

/// Some of a prompt had not to be computed: then its prefill was measured on less.
fn prompt_cached(requests: &[Request]) -> Option<Issue> {
    let cached: Vec<u64> = requests.iter().filter_map(|request| request.timings?.cache_n).filter(|tokens| *tokens > 0).collect();
    if let Some(most) = cached.iter().max() {
        let message = format!("the server had up to {most} tokens of the prompt already, {}", of_all(&cached, requests));
        return Some(Issue::new(Code::PromptCached, message));
    }
    // Not every build tells what it had.
    let computed = requests.iter().filter_map(|request| Some((request.timings?.prompt_n, request.prompt_tokens?)));
    let others: Vec<(u64, u64)> = computed.filter(|(computed, tokens)| computed != tokens).collect();
    let (computed, tokens) = others.iter().min()?;
    let message = format!("the server's timings are those of {computed} tokens of the prompt, which has {tokens}, {}", of_all(&others, requests));
    Some(Issue::new(Code::PromptCached, message))
}

/// The server works on a request after it was sent and before its final event.
fn outside_run(requests: &[Request]) -> Option<Issue> {
    let both = requests.iter().filter_map(|request| Some((request.timings?, ms(request.end_ns))));
    let both = both.map(|(timings, seen_ms)| (timings.prompt_ms + timings.predicted_ms, seen_ms));
    let longer: Vec<(f64, f64)> = both.filter(|(own_ms, seen_ms)| *own_ms > seen_ms * (1.0 + MOST_CLOCKS_APART)).collect();
    let (own_ms, seen_ms) = longer.first()?;
    let message =
        format!("`prompt_ms` and `predicted_ms` are {own_ms:.3} ms together of a request that took {seen_ms:.3} ms, {}", of_all(&longer, requests));
    Some(Issue::new(Code::WindowOutsideRun, message))
}

/// An event is that of one token or of several.
fn more_events_than_tokens(requests: &[Request]) -> Option<Issue> {
    let both = requests.iter().filter_map(|request| Some((request.content_ns.len() as u64, request.tokens?)));
    let more: Vec<(u64, u64)> = both.filter(|(events, tokens)| events > tokens).collect();
    let (events, tokens) = more.first()?;
    let message = format!("{events} events with content came of a request with {tokens} tokens by the server's count, {}", of_all(&more, requests));
    Some(Issue::new(Code::SamplesDiffer, message))
}

fn of_all<T>(some: &[T], requests: &[Request]) -> String {
    format!("in {} of {} requests", some.len(), requests.len())
}

/// `load_tensors: offloaded 20/33 layers to GPU`, as builds for a GPU log it, of October 2026 from `-lv 4` on. One that tries first what fits
/// (`-fit`) says it again of the model that it serves; a draft model comes after that.
fn offloaded(raw: &RawOutput) -> Option<(u64, u64)> {
    let log = String::from_utf8_lossy(&raw.stderr.kept);
    let mut said = log.lines().filter_map(|line| {
        let (offloaded, layers) = line.split_once("load_tensors: offloaded ")?.1.split_once(" layers to GPU")?.0.split_once('/')?;
        Some((offloaded.parse().ok()?, layers.parse().ok()?))
    });
    let first: (u64, u64) = said.next()?;
    Some(said.rfind(|(_, layers)| *layers == first.1).unwrap_or(first))
}

/// A GPU was asked for and none was there, or one with room for fewer layers: the server goes on with the CPU, and says so in its log alone.
fn cpu_fallback(asked: &Asked, raw: &RawOutput, offloaded: Option<(u64, u64)>) -> Option<Issue> {
    const NO_GPU: &str = "no usable GPU found";
    let who = match &asked.offload {
        Some(flags) => format!("`{flags}` asks for a GPU"),
        // It says so whatever number of layers is asked for, 0 as well.
        None if asked.offload_unsaid => "something beside `flags` and `env` says how many layers a GPU gets".into(),
        None => return None,
    };
    let log = String::from_utf8_lossy(&raw.stderr.kept);
    let issue = |what: String| Some(Issue::new(Code::CpuFallback, format!("{who}, and the server {what}")));
    if let Some(said) = log.lines().find(|line| line.contains(NO_GPU) && !line.contains("draft")) {
        return issue(format!("used none: {}", said.trim()));
    }
    let flags = asked.offload.as_ref()?;
    let (offloaded, layers) = offloaded?;
    // The model's own number of layers is all that can be asked for.
    let wanted = layers_asked_for(flags).map(|asked| asked.min(layers));
    match wanted {
        _ if offloaded == 0 => issue(format!("put none of the model's {layers} layers there")),
        Some(wanted) if offloaded < wanted => issue(format!("put {offloaded} of the model's {layers} layers there, not {wanted}")),
        _ => None,
    }
}

/// At least one request, each with the tokens that were asked for.
fn metrics(asked: &Asked, requests: &[Request]) -> Vec<(String, Metric)> {
    let n = requests.len();
    let ttft = |request: &Request| request.content_ns.first().map(|ns| ms(*ns));
    // The first event may have been that of several tokens.
    let after_first = |request: &Request| request.tokens?.checked_sub(request.first_tokens.filter(|tokens| *tokens > 0).unwrap_or(1));
    let tpot = |request: &Request| {
        let after_first = after_first(request).filter(|tokens| *tokens > 0)?;
        Some((ms(request.end_ns) - ttft(request)?) / after_first as f64)
    };
    let rate = |tokens: u64, ms: f64| (ms > 0.0).then(|| tokens as f64 / ms * 1e3);
    let prefill = |request: &Request| request.timings.and_then(|timings| rate(timings.prompt_n, timings.prompt_ms));
    // The first token's time is in `prompt_ms`: of that one alone there is nothing left in `predicted_ms`.
    let decode = |request: &Request| {
        let timings = request.timings.filter(|timings| timings.predicted_n > 1)?;
        rate(timings.predicted_n, timings.predicted_ms)
    };
    let gaps = requests.iter().flat_map(|request| request.content_ns.windows(2).map(|pair| ms(pair[1] - pair[0])));
    // One value for each request, or none and why.
    let of_each = |id: MetricId, of: &dyn Fn(&Request) -> Option<f64>, why: &str| {
        let values: Vec<f64> = requests.iter().filter_map(of).collect();
        if values.len() == n { sampled(id, values) } else { absent(id, format!("{why} in {} of {n} requests", n - values.len())) }
    };
    let mut metrics = vec![
        of_each(MetricId::Ttft, &ttft, "no event with content"),
        match gaps.collect::<Vec<f64>>() {
            gaps if gaps.is_empty() => absent(MetricId::Itl, "no request has two events with content".into()),
            gaps => sampled(MetricId::Itl, gaps),
        },
        of_each(MetricId::Tpot, &tpot, "no token after the first event with content"),
        of_each(MetricId::E2e, &|request| Some(ms(request.end_ns)), ""),
        of_each(MetricId::ServerPrefillTps, &prefill, "no timings of the server"),
        of_each(MetricId::ServerDecodeTps, &decode, if asked.n_gen > 1 { "no timings of the server" } else { "no token after the first" }),
    ];
    let (start, end) = window(requests);
    let seconds = end.saturating_sub(start) as f64 / 1e9;
    let of_all = |id: MetricId, counted: f64| {
        let (name, metric) = measured(id, &[counted / seconds]);
        (name, Metric { n: n as u32, spread: None, ..metric })
    };
    metrics.push(match requests.iter().map(|request| request.tokens).sum::<Option<u64>>() {
        Some(tokens) if seconds > 0.0 => of_all(MetricId::ServedTps, tokens as f64),
        _ => absent(MetricId::ServedTps, "the server tells no number of tokens, or no time passed".into()),
    });
    if let Some(slo) = asked.slo {
        let keeps = |value: Option<f64>, limit: Option<f64>| limit.is_none_or(|limit| value.is_some_and(|value| value <= limit));
        // Without a token after the first there is nothing that could be late.
        let keeps_tpot = |request: &Request| after_first(request) == Some(0) || keeps(tpot(request), slo.tpot_ms);
        let good = requests.iter().filter(|request| keeps(ttft(request), slo.ttft_ms) && keeps_tpot(request)).count();
        let (name, metric) = of_all(MetricId::Goodput, good as f64);
        metrics.push((name, Metric { label: Some(slo.to_string()), ..metric }));
    }
    metrics
}

/// First request sent, last one answered.
fn window(requests: &[Request]) -> (u64, u64) {
    let start = requests.iter().map(|request| request.sent_ns).min().unwrap_or(0);
    (start, requests.iter().map(|request| request.sent_ns + request.end_ns).max().unwrap_or(start))
}

fn sampled(id: MetricId, values: Vec<f64>) -> (String, Metric) {
    let (name, metric) = measured(id, &values);
    (name, Metric { samples: if values.len() > 1 { values } else { Vec::new() }, ..metric })
}

fn absent(id: MetricId, why: String) -> (String, Metric) {
    let entry = id.entry();
    (entry.name.into(), omitted(entry.unit.symbol(), entry.better, entry.definition, why))
}

/// Whole requests; a client is a round, because its requests follow each other.
fn iterations(output: &ServeOutput) -> Option<Iterations> {
    let clients = output.requests.iter().map(|request| request.client).max()? + 1;
    let of = |client: u32| output.requests.iter().filter(move |request| request.client == client);
    let (window_start_ns, window_end_ns) = window(&output.requests);
    Some(Iterations {
        warmup_ns: output.warmup.iter().map(|request| request.end_ns).collect(),
        rounds_ns: (0..clients).map(|client| of(client).map(|request| request.end_ns).collect()).collect(),
        round_spans_ns: (0..clients).map(|client| window(&of(client).cloned().collect::<Vec<_>>())).collect(),
        window_start_ns,
        window_end_ns,
    })
}

/// What the server's log says of a failure: its first lines of errors, each once, else the last lines that there are. Its stdout is ours.
fn words(raw: &RawOutput) -> Option<String> {
    const LINES: usize = 4;
    const CHARS: usize = 500;
    let log = String::from_utf8_lossy(&raw.stderr.kept).into_owned();
    let mut errors: Vec<&str> = Vec::new();
    for line in log.lines().filter_map(error_line) {
        if !errors.contains(&line) && errors.len() < LINES {
            errors.push(line);
        }
    }
    let log_alone = || RawOutput { stderr: raw.stderr.clone(), ..RawOutput::default() };
    if errors.is_empty() { last_words(&log_alone()) } else { Some(errors.join(" / ").chars().take(CHARS).collect()) }
}

/// `0.00.008.382 E gguf_init_from_file: failed …` without its time and level; or what is said of a command line, before there is a log.
fn error_line(line: &str) -> Option<&str> {
    if line.starts_with("error") {
        return Some(line.trim());
    }
    let (time, rest) = line.split_once(' ')?;
    let is_time = time.contains('.') && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    rest.strip_prefix("E ").filter(|_| is_time).map(str::trim)
}
