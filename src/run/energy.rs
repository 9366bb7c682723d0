//! Energy of a run that has come in, or of a record that is read again: what the energy room is asked, by whose marks, and how much its
//! answer matters.

use super::gpu;
use super::manifest::Manifest;
use crate::backend::{ParseSpec, Reading};
use crate::energy::{self, Evidence, Timed, Weight};
use crate::registry::MetricId;
use crate::store::energy::EnergyFigure;
use crate::store::issue::Issue;
use crate::store::record::{Iterations, Kind, LlamaBenchTest, Metric, Record};
use indexmap::IndexMap;
use isotherm_wire::result::RunResult;

/// What lies between two samples of llama.cpp's benchmark where nothing but bookkeeping does.
const NO_PAUSE_NS: u64 = 5_000_000;

/// What is known of a run's energy; empty where its campaign doesn't ask for it.
#[derive(Debug, Default)]
pub struct Energy {
    pub figures: Vec<EnergyFigure>,
    pub issues: Vec<Issue>,
    /// For a run that is `ok`.
    pub metrics: IndexMap<String, Metric>,
}

/// `reading`: what was read out of the run's output.
pub fn of_run(result: &RunResult, manifest: &Manifest, reading: &Reading) -> Energy {
    let weight = match manifest.kind {
        Kind::Power => Weight::OfRecord,
        Kind::Timing if manifest.instruments => Weight::Beside,
        Kind::Timing => return Energy::default(),
    };
    let of_rounds = if let ParseSpec::LlamaServer(_) = manifest.parse { of_requests } else { of_iterations };
    let window = reading.iterations.as_ref().map(of_rounds).or_else(|| of_tests(&reading.tests));
    let timed = window.as_ref().map(|window| Timed { spans_ns: &window.spans_ns, inferences: window.inferences, busy_ns: window.busy_ns });
    let unused_gpus = gpu::unused(result, &manifest.point.backend);
    let evidence = Evidence {
        backend: &manifest.point.backend,
        series: &result.samples,
        around: [&result.before, &result.after],
        instruments: &result.instruments,
        unused_gpus: &unused_gpus,
        idle: result.idle.as_ref(),
        invocation: result.times.spawn_ns.zip(result.times.exit_ns),
        timed,
    };
    let figures = energy::figures(&evidence);
    let metrics = energy::metrics(&figures, &manifest.point, &energy::without(&evidence));
    Energy { issues: energy::issues(&figures, weight), figures, metrics }
}

/// Metrics of a record's stored figures. They don't follow from the tool's output, so another reading of that leaves them as they are.
pub fn metrics_of(record: &Record) -> IndexMap<String, Metric> {
    let power = MetricId::Power.entry();
    let withheld =
        record.metrics.get(power.name).filter(|metric| metric.definition == power.definition).and_then(|metric| metric.omitted_reason.as_ref());
    match (&record.energy[..], withheld) {
        ([], None) => IndexMap::new(),
        (figures, withheld) => energy::metrics(figures, &record.ids.point, withheld.map_or("", String::as_str)),
    }
}

/// Put them beside the backend's; a metric that the campaign declares under such a name is the campaign's.
pub fn add(metrics: &mut IndexMap<String, Metric>, of_energy: IndexMap<String, Metric>) {
    for (name, metric) in of_energy {
        metrics.entry(name).or_insert(metric);
    }
}

/// What a backend timed: as [`Timed`].
struct Window {
    spans_ns: Vec<(u64, u64)>,
    inferences: u64,
    busy_ns: u64,
}

/// An agent of before doesn't say where the pauses are.
fn of_iterations(iterations: &Iterations) -> Window {
    let spans_ns = match &iterations.round_spans_ns[..] {
        [] => vec![(iterations.window_start_ns, iterations.window_end_ns)],
        spans => spans.to_vec(),
    };
    let rounds = &iterations.rounds_ns;
    Window { spans_ns, inferences: rounds.iter().map(|round| round.len() as u64).sum(), busy_ns: rounds.iter().flatten().sum() }
}

/// Requests, of which several may be under way: from the first one sent to the last one answered.
fn of_requests(iterations: &Iterations) -> Window {
    let span = (iterations.window_start_ns, iterations.window_end_ns);
    let requests = iterations.rounds_ns.iter().map(|client| client.len() as u64).sum();
    Window { spans_ns: vec![span], inferences: requests, busy_ns: span.1.saturating_sub(span.0) }
}

/// Tokens of llama.cpp's benchmark: those of decode, or of prefill where that is all. Both in one window would be a mean of two workloads.
fn of_tests(tests: &[LlamaBenchTest]) -> Option<Window> {
    let test = tests.iter().find(|test| test.n_gen > 0).or_else(|| tests.first())?;
    let mut spans_ns: Vec<(u64, u64)> = Vec::new();
    for &(start_ns, end_ns) in &test.spans_ns {
        match spans_ns.last_mut() {
            Some(last) if start_ns.saturating_sub(last.1) <= NO_PAUSE_NS => last.1 = end_ns,
            _ => spans_ns.push((start_ns, end_ns)),
        }
    }
    let tokens = test.n_prompt + test.n_gen;
    Some(Window { spans_ns, inferences: tokens * test.samples_ns.len() as u64, busy_ns: test.samples_ns.iter().sum() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_window_of_a_benchmark_is_its_decode_and_samples_without_a_pause_are_one_stretch() {
        let ms = |ms: u64| ms * 1_000_000;
        let test = |n_prompt, n_gen, spans: &[(u64, u64)]| LlamaBenchTest {
            name: String::new(),
            n_prompt,
            n_gen,
            depth: 0,
            samples_ns: spans.iter().map(|(start, end)| ms(end - start)).collect(),
            spans_ns: spans.iter().map(|(start, end)| (ms(*start), ms(*end))).collect(),
        };
        let (prefill, decode) = (test(64, 0, &[(0, 100), (101, 200)]), test(0, 16, &[(300, 400), (400, 510), (600, 700)]));
        let window = of_tests(&[prefill.clone(), decode]).unwrap();
        assert_eq!((window.spans_ns, window.inferences, window.busy_ns), (vec![(ms(300), ms(510)), (ms(600), ms(700))], 48, ms(310)));
        let alone = of_tests(&[prefill]).unwrap();
        assert_eq!((alone.spans_ns, alone.inferences), (vec![(0, ms(200))], 128));
        assert!(of_tests(&[]).is_none());
    }
}
