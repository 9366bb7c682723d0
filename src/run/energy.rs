//! Energy of a run that has come in, or of a record that is read again: what the energy room is asked, by whose marks, and how much its
//! answer matters.

use super::gpu;
use super::manifest::Manifest;
use crate::energy::{self, Evidence, Timed, Weight};
use crate::registry::MetricId;
use crate::store::energy::EnergyFigure;
use crate::store::issue::Issue;
use crate::store::record::{Iterations, Kind, Metric, Record};
use indexmap::IndexMap;
use isotherm_wire::result::RunResult;

/// What is known of a run's energy; empty where its campaign doesn't ask for it.
#[derive(Debug, Default)]
pub struct Energy {
    pub figures: Vec<EnergyFigure>,
    pub issues: Vec<Issue>,
    /// For a run that is `ok`.
    pub metrics: IndexMap<String, Metric>,
}

/// `iterations`: as they were read out of the run's output.
pub fn of_run(result: &RunResult, manifest: &Manifest, iterations: Option<&Iterations>) -> Energy {
    let weight = match manifest.kind {
        Kind::Power => Weight::OfRecord,
        Kind::Timing if manifest.instruments => Weight::Beside,
        Kind::Timing => return Energy::default(),
    };
    let spans = iterations.map(spans);
    let timed = iterations.zip(spans.as_deref()).map(|(iterations, spans_ns)| Timed {
        spans_ns,
        inferences: iterations.rounds_ns.iter().map(|round| round.len() as u64).sum(),
        busy_ns: iterations.rounds_ns.iter().flatten().sum(),
    });
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
    let metrics = energy::metrics(&figures, evidence.backend, &energy::without(&evidence));
    Energy { issues: energy::issues(&figures, weight), figures, metrics }
}

/// Metrics of a record's stored figures. They don't follow from the tool's output, so another reading of that leaves them as they are.
pub fn metrics_of(record: &Record) -> IndexMap<String, Metric> {
    let power = MetricId::Power.entry();
    let withheld =
        record.metrics.get(power.name).filter(|metric| metric.definition == power.definition).and_then(|metric| metric.omitted_reason.as_ref());
    match (&record.energy[..], withheld) {
        ([], None) => IndexMap::new(),
        (figures, withheld) => energy::metrics(figures, &record.backend.name, withheld.map_or("", String::as_str)),
    }
}

/// Put them beside the backend's; a metric that the campaign declares under such a name is the campaign's.
pub fn add(metrics: &mut IndexMap<String, Metric>, of_energy: IndexMap<String, Metric>) {
    for (name, metric) in of_energy {
        metrics.entry(name).or_insert(metric);
    }
}

/// Stretches of timed inferences without a pause. An agent of before doesn't say where the pauses are.
fn spans(iterations: &Iterations) -> Vec<(u64, u64)> {
    match &iterations.round_spans_ns[..] {
        [] => vec![(iterations.window_start_ns, iterations.window_end_ns)],
        spans => spans.to_vec(),
    }
}
