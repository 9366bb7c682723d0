//! Metrics: name, unit, direction and definition id of every number that a backend gives.

use super::Unit;
use crate::config::model::Better;

/// One way of obtaining one metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricEntry {
    /// As in a record; ends with the suffix of its unit.
    pub name: &'static str,
    pub unit: Unit,
    pub better: Better,
    /// Names the way: what is computed otherwise has another one. Several metrics that are read out of one measurement share theirs.
    pub definition: &'static str,
    /// Backends that give it.
    pub backends: &'static [&'static str],
    pub given: Given,
    /// What it is, one sentence or a few.
    pub is: &'static str,
    /// Axes whose value belongs to the name, because the number means nothing without: `prefill_tps{n_prompt,depth}`.
    pub conditions: &'static [&'static str],
    /// Axes that it doesn't depend on. Points that differ in nothing else are one point of this metric.
    pub independent_of: &'static [&'static str],
    /// What it doesn't say, or says wrongly; `-` where nothing is known.
    pub defects: &'static str,
}

/// Whether this build has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    Yes,
    /// Name, unit and definition id are settled; no backend gives it yet.
    NotYet,
}

/// Definition id of a metric that a campaign declares; `NAME` is its name there, `RULE` of its rule.
pub const DECLARED: &str = "command.NAME.RULE";

const NONE_KNOWN: &str = "-";

isotherm_wire::table! {
    /// A metric with its definition.
    MetricId of MetricEntry {
        Latency {
            name: "latency_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "inference.wall.v1",
            backends: &["builtin"],
            given: Given::Yes,
            is: "Median of the round medians of one call of the engine, after warm-up. \
                 `n` counts all timed iterations; `cov_pct` is that of the round medians, the rest of `spread` is over all iterations",
            conditions: &[],
            independent_of: &[],
            defects: "Sits above the floor that an undisturbed machine would reach",
        }
        Throughput {
            name: "throughput_ips",
            unit: Unit::InferencesPerSecond,
            better: Better::Higher,
            definition: "inference.ips.v1",
            backends: &["builtin"],
            given: Given::Yes,
            is: "Median over rounds of 1000 ÷ round median. \
                 One inference is one call with the shapes the model declares; an open dimension is 1. `n` counts rounds",
            conditions: &[],
            independent_of: &[],
            defects: "Follows from latency: one inference at a time, no overlap",
        }
        Load {
            name: "load_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "session.load.v1",
            backends: &["builtin"],
            given: Given::Yes,
            is: "Reading the file and preparing the model",
            conditions: &[],
            independent_of: &[],
            defects: "The file is usually in the page cache, so storage is not in it",
        }
        FirstInference {
            name: "first_inference_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "inference.first.v1",
            backends: &["builtin"],
            given: Given::Yes,
            is: "The very first call after loading: the first warm-up, or the first timed one without warm-up",
            conditions: &[],
            independent_of: &[],
            defects: "One value a run, with whatever the machine did at that moment",
        }
        Wall {
            name: "wall_s",
            unit: Unit::Seconds,
            better: Better::Lower,
            definition: "process.wall.v1",
            backends: &["command"],
            given: Given::Yes,
            is: "Spawn → exit of the measured invocation's first process. Not added if the campaign has a metric of that name",
            conditions: &[],
            independent_of: &[],
            defects: "Starting the program is in it, and with a short program little else",
        }
        MaxRss {
            name: "max_rss_bytes",
            unit: Unit::Bytes,
            better: Better::Lower,
            definition: "process.max_rss.v1",
            backends: &["command"],
            given: Given::Yes,
            is: "Largest resident set of a single process among those that the run's first process waited for, and itself. \
                 Not added if the campaign has a metric of that name",
            conditions: &[],
            independent_of: &[],
            defects: "No sum over processes that ran at the same time; pages of files count while they are mapped",
        }
        PrefillTps {
            name: "prefill_tps",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "llama_bench.pp.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "Median over samples of `n_prompt` ÷ sample time; shown as `pp512 @ d0`",
            conditions: &["n_prompt", "depth"],
            independent_of: &["n_gen"],
            defects: NONE_KNOWN,
        }
        DecodeTps {
            name: "decode_tps",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "llama_bench.tg.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "Median over samples of `n_gen` ÷ sample time, at KV depth `depth`",
            conditions: &["n_gen", "depth"],
            independent_of: &["n_prompt"],
            defects: "Not what follows a prompt of n_prompt tokens: the tool generates at the given depth",
        }
        PrefillLlamaBenchAvgTs {
            name: "prefill_llama_bench_avg_ts",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "llama_bench.avg_ts.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "The tool's own mean of rates of `prefill_tps`, equal to its printout",
            conditions: &["n_prompt", "depth"],
            independent_of: &["n_gen"],
            defects: "A mean of rates lies above the rate of the mean time as soon as samples differ",
        }
        DecodeLlamaBenchAvgTs {
            name: "decode_llama_bench_avg_ts",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "llama_bench.avg_ts.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "The tool's own mean of rates of `decode_tps`, equal to its printout",
            conditions: &["n_gen", "depth"],
            independent_of: &["n_prompt"],
            defects: "A mean of rates lies above the rate of the mean time as soon as samples differ",
        }
        DecodeBandwidth {
            name: "decode_gb_s",
            unit: Unit::GigabytesPerSecond,
            better: Better::Higher,
            definition: "llama_bench.decode_gb_s.v3",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "`decode_tps` × bytes of the model's tensors as the tool or its file counts them, without tables of which a token takes single rows and \
                 experts that are not at work for it, ÷ 10⁹: what decode reads of the weights",
            conditions: &["n_gen", "depth"],
            independent_of: &["n_prompt"],
            defects: "Reading the KV cache isn't in it, which counts at depth. Which tables and experts those are is in the headers of the model's files: \
                      omitted where they don't tell",
        }
        Ttft {
            name: "ttft_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "client.first_content.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Time to first token: request sent → first non-empty content; median over requests",
            conditions: &[],
            independent_of: &[],
            defects: "The first content may be that of several tokens, if those before show nothing: then it is the time of all of them",
        }
        Itl {
            name: "itl_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "client.itl.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Inter-token latency: gaps between content events; median over those of all requests, the raw series is kept",
            conditions: &[],
            independent_of: &[],
            defects: "An event may carry several tokens, or none that shows",
        }
        Tpot {
            name: "tpot_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "client.tpot_excl_first.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Time per output token without the first: (e2e − ttft) ÷ (n − k), `n` tokens by the server's count, `k` of them by the first non-empty content, nearly always 1; median over requests",
            conditions: &[],
            independent_of: &[],
            defects: "Undefined without a token after the first content. A client that gets all of an answer at once sees the wire's time alone",
        }
        E2e {
            name: "e2e_ms",
            unit: Unit::Milliseconds,
            better: Better::Lower,
            definition: "client.e2e.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Request sent → final event; median over requests",
            conditions: &[],
            independent_of: &[],
            defects: NONE_KNOWN,
        }
        ServerPrefillTps {
            name: "server_prefill_tps",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "llama_server.timings.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Prefill rate by the server's own timings: median over requests of `prompt_n` ÷ `prompt_ms`",
            conditions: &[],
            independent_of: &[],
            defects: "The server's word; queueing and the wire are not in it",
        }
        ServerDecodeTps {
            name: "server_decode_tps",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "llama_server.timings.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Decode rate by the server's own timings: median over requests of `predicted_n` ÷ `predicted_ms`",
            conditions: &[],
            independent_of: &[],
            defects: "The server's word; queueing and the wire are not in it. `predicted_ms` begins at the first token, which `predicted_n` counts: \
                      too high by the factor n ÷ (n − 1) for n tokens, so that few tell little, and undefined for one",
        }
        ServedTps {
            name: "served_tps",
            unit: Unit::TokensPerSecond,
            better: Better::Higher,
            definition: "client.served.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Tokens generated for all requests ÷ seconds from the first one sent to the last one answered, prefill of the prompts included",
            conditions: &["n_prompt", "n_gen"],
            independent_of: &[],
            defects: "Depends on how long the prompts are; at the end not all clients are busy",
        }
        Goodput {
            name: "goodput_rps",
            unit: Unit::RequestsPerSecond,
            better: Better::Higher,
            definition: "client.goodput.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Requests that kept the declared `slo: {ttft, tpot}` ÷ seconds from the first one sent to the last one answered",
            conditions: &["ttft", "tpot"],
            independent_of: &[],
            defects: "Says nothing of by how much the others missed it. A request without a token after the first keeps any limit of `tpot`",
        }
        EnergyPerInferenceJoined {
            name: "energy_per_inference_j",
            unit: Unit::Joules,
            better: Better::Lower,
            definition: "energy.joined.v1",
            backends: &["builtin", "onnx"],
            given: Given::Yes,
            is: "Power of the power run ÷ inferences/s of the timing run of the same repetition",
            conditions: &[],
            independent_of: &[],
            defects: "Two runs; withheld where the means of their own times for an inference differ by more than 5 %. Of what the instrument measures",
        }
        EnergyPerInferenceWindow {
            name: "energy_per_inference_j",
            unit: Unit::Joules,
            better: Better::Lower,
            definition: "energy.window.v1",
            backends: &["builtin"],
            given: Given::Yes,
            is: "Gross energy of the timed inferences, without the pauses between rounds, ÷ their number. In runs in which instruments are read",
            conditions: &[],
            independent_of: &[],
            defects: "Of what the instrument measures: packages, a board, rails; `energy[]` of the record names it. Withheld where the window or its edges are too uncertain",
        }
        EnergyPerTokenJoined {
            name: "energy_per_token_mj",
            unit: Unit::Millijoules,
            better: Better::Lower,
            definition: "energy.joined.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "Of a token that is generated: power of the power run ÷ `decode_tps` of the timing run of the same repetition",
            conditions: &["n_gen", "depth"],
            independent_of: &["n_prompt"],
            defects: "Two runs; withheld where the means of their own times for a token differ by more than 5 %. Of what the instrument measures",
        }
        EnergyPerPrefillTokenJoined {
            name: "energy_per_token_mj",
            unit: Unit::Millijoules,
            better: Better::Lower,
            definition: "energy.prefill_joined.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "Of a token of the prompt, where nothing is generated: power of the power run ÷ `prefill_tps` of the timing run of the same repetition",
            conditions: &["n_prompt", "depth"],
            independent_of: &[],
            defects: "Two runs; withheld where the means of their own times for a token differ by more than 5 %. Of what the instrument measures",
        }
        EnergyPerTokenWindow {
            name: "energy_per_token_mj",
            unit: Unit::Millijoules,
            better: Better::Lower,
            definition: "energy.window.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "Of a token that is generated: gross energy of the samples of decode ÷ their tokens. In runs in which instruments are read",
            conditions: &["n_gen", "depth"],
            independent_of: &["n_prompt"],
            defects: "Of what the instrument measures; where a sample lies is known by when the tool's lines arrived. Withheld where the window or its edges are too uncertain",
        }
        EnergyPerPrefillTokenWindow {
            name: "energy_per_token_mj",
            unit: Unit::Millijoules,
            better: Better::Lower,
            definition: "energy.prefill_window.v1",
            backends: &["llama-bench"],
            given: Given::Yes,
            is: "Of a token of the prompt, where nothing is generated: gross energy of the samples of prefill ÷ their tokens. In runs in which instruments are read",
            conditions: &["n_prompt", "depth"],
            independent_of: &[],
            defects: "Of what the instrument measures; where a sample lies is known by when the tool's lines arrived. Withheld where the window or its edges are too uncertain",
        }
        EnergyPerServedTokenJoined {
            name: "energy_per_token_mj",
            unit: Unit::Millijoules,
            better: Better::Lower,
            definition: "energy.served_joined.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Power of the power run ÷ `served_tps` of the timing run of the same repetition: prefill of the prompts is in it",
            conditions: &["n_prompt", "n_gen"],
            independent_of: &[],
            defects: "Depends on how long the prompts are. Two runs; withheld where the means of their own times for a token differ by more than 5 %. Of what the instrument measures",
        }
        EnergyPerServedTokenWindow {
            name: "energy_per_token_mj",
            unit: Unit::Millijoules,
            better: Better::Lower,
            definition: "energy.served_window.v1",
            backends: &["llama-server"],
            given: Given::Yes,
            is: "Gross energy from the first request sent to the last one answered ÷ tokens generated for all of them: prefill of the prompts is in it. In runs in \
                 which instruments are read",
            conditions: &["n_prompt", "n_gen"],
            independent_of: &[],
            defects: "Depends on how long the prompts are. Of what the instrument measures. Withheld where the window or its edges are too uncertain",
        }
        Power {
            name: "power_w",
            unit: Unit::Watts,
            better: Better::Lower,
            definition: "power.mean.v1",
            backends: &["builtin", "command", "llama-bench", "llama-server"],
            given: Given::Yes,
            is: "Gross energy of the window ÷ its length: of `builtin` the timed inferences, of `llama-bench` the samples of decode, or of prefill where that is all, \
                 of `llama-server` the time from the first request sent to the last one answered, of `command` the invocation from spawn to exit. In runs in which \
                 instruments are read; not added if the campaign has a metric of that name",
            conditions: &[],
            independent_of: &[],
            defects: "What the machine draws when idle is in it, and of what is measured only what the instrument measures",
        }
        ReadBandwidth {
            name: "read_bandwidth_gb_s",
            unit: Unit::GigabytesPerSecond,
            better: Better::Higher,
            definition: "membw.read.v1",
            backends: &["membw"],
            given: Given::NotYet,
            is: "Best read kernel; 1 GB = 10⁹ bytes",
            conditions: &["threads", "page_size"],
            independent_of: &[],
            defects: NONE_KNOWN,
        }
        PeakRss {
            name: "peak_rss_bytes",
            unit: Unit::Bytes,
            better: Better::Lower,
            definition: "process_tree.peak_rss.v1",
            backends: &["builtin", "command", "onnx", "llama-bench", "llama-server"],
            given: Given::Yes,
            is: "Largest resident set of the run's processes together, added up twice a second, of hundreds of processes more rarely, or the kernel's peak of the largest single one if that is more; \
                 `context.peak_rss` says which. Of a server, without the process that asks it. Not added if the campaign has a metric of that name",
            conditions: &[],
            independent_of: &[],
            defects: "Pages that processes share are counted once for each; what several processes hold for less than half a second, or hundreds of them for less than some seconds, can be missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn entries() -> impl Iterator<Item = &'static MetricEntry> {
        MetricId::ALL.iter().map(|id| id.entry())
    }

    #[test]
    fn every_name_ends_with_the_suffix_of_its_unit() {
        for entry in entries() {
            assert_eq!(Unit::of_name(entry.name), Some(entry.unit), "{}", entry.name);
        }
    }

    #[test]
    fn a_name_has_one_unit_and_direction_and_one_definition_per_backend_unless_they_are_told_apart() {
        let mut meanings: BTreeMap<&str, (Unit, bool)> = BTreeMap::new();
        let mut ways = BTreeSet::new();
        for entry in entries() {
            let meaning = (entry.unit, entry.better == Better::Lower);
            assert_eq!(*meanings.entry(entry.name).or_insert(meaning), meaning, "{}", entry.name);
            assert!(ways.insert((entry.name, entry.definition)), "{} {}", entry.name, entry.definition);
        }
        // What a backend gives is found by its name alone; energy comes from one kind of run or from two.
        let mut of_backend: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for entry in entries() {
            for backend in entry.backends {
                of_backend.entry((backend, entry.name)).or_default().push(entry.definition);
            }
        }
        for ((backend, name), definitions) in of_backend {
            assert!(definitions.len() == 1 || definitions.iter().all(|id| id.starts_with("energy.")), "{backend} {name}: {definitions:?}");
        }
    }

    #[test]
    fn a_definition_id_is_of_one_metric_unless_one_measurement_gives_several() {
        let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for entry in entries() {
            names.entry(entry.definition).or_default().push(entry.name);
        }
        names.retain(|_, names| names.len() > 1);
        let expected = [
            ("energy.joined.v1", vec!["energy_per_inference_j", "energy_per_token_mj"]),
            ("energy.window.v1", vec!["energy_per_inference_j", "energy_per_token_mj"]),
            ("llama_bench.avg_ts.v1", vec!["prefill_llama_bench_avg_ts", "decode_llama_bench_avg_ts"]),
            ("llama_server.timings.v1", vec!["server_prefill_tps", "server_decode_tps"]),
        ];
        assert_eq!(names, BTreeMap::from(expected));
    }

    #[test]
    fn a_definition_id_has_a_version_and_is_none_that_a_campaign_can_declare() {
        for entry in entries() {
            let (stem, version) = entry.definition.rsplit_once(".v").unwrap_or_default();
            assert!(!stem.is_empty() && version.parse::<u32>().is_ok(), "{}", entry.definition);
            assert!(!entry.definition.starts_with("command."), "{}", entry.definition);
        }
    }

    #[test]
    fn every_metric_says_what_it_is_and_who_gives_it() {
        for entry in entries() {
            assert!(!entry.is.is_empty() && !entry.defects.is_empty() && !entry.backends.is_empty(), "{}", entry.name);
            assert!(entry.conditions.iter().all(|axis| !entry.independent_of.contains(axis)), "{}", entry.name);
        }
    }
}
