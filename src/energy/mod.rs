//! Energy of a run: takes telemetry, the facts of its instruments and the marks of what ran; gives figures with their scope, their checks
//! and the issues that follow, and metrics. Pure; must not know how anything was read, or what a campaign asked for beyond how much a
//! broken figure matters.

mod figure;
mod ladder;
mod net;
pub mod polling;
mod trace;

pub use figure::Timed;
pub use ladder::{may_be_of_record, period};

use crate::config::model::AxisValue;
use crate::registry::{Code, MetricId};
use crate::store::energy::{CheckName, CheckOutcome, CrossCheck, EnergyFigure, Scope};
use crate::store::issue::{Issue, Severity};
use crate::store::record::{Metric, PointIds};
use figure::{LEAST_GATE_NS, MOST_EDGE_ERROR_OF_METRIC_PCT, Window};
use indexmap::IndexMap;
use isotherm_wire::probe::Capability;
use isotherm_wire::telemetry::{Column, Reading, Series, Snapshot};

/// Two instruments for the same thing that differ by more than this are not both right: a GPU's power and energy are good to 5 % each by
/// NVML's documentation, and RAPL against a meter at the socket was found within some percent.
const MOST_DISAGREEMENT: f64 = 0.10;

/// What there is to go by.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub backend: &'a str,
    /// Samples beside the run.
    pub series: &'a Series,
    /// The same columns once ahead of it and once after it: an instrument that is read rarely may have no sample at its edges.
    pub around: [&'a Snapshot; 2],
    /// What is known of the instruments among its columns.
    pub instruments: &'a [Capability],
    /// GPUs that the run is known not to have used, as columns call them.
    pub unused_gpus: &'a [&'a str],
    /// The same instruments while the device waited for the run; `None` where they were not read.
    pub idle: Option<&'a Series>,
    /// Spawn and exit of the measured invocation, ns.
    pub invocation: Option<(u64, u64)>,
    /// Inferences in it, where the backend times them.
    pub timed: Option<Timed<'a>>,
}

/// What energy is to a run that is asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// One number beside others that don't depend on it.
    Beside,
    /// What the run was made for.
    OfRecord,
}

/// One figure per instrument, best first. None without an instrument, or where nothing was invoked.
#[must_use]
pub fn figures(evidence: &Evidence<'_>) -> Vec<EnergyFigure> {
    let Some(invocation) = evidence.invocation else { return Vec::new() };
    let series = with_readings_around(evidence.series, evidence.around);
    let instruments = ladder::instruments(&series, evidence.instruments);
    let of_record = ladder::of_record(&instruments, evidence.backend, evidence.unused_gpus).ok();
    let window = Window::of(invocation, evidence.timed);
    let mut figures: Vec<EnergyFigure> = instruments.iter().map(|instrument| figure::figure(instrument, &window, &series.monotonic_ns)).collect();
    for (at, instrument) in instruments.iter().enumerate() {
        figures[at].of_record = of_record == Some(at);
        match net::net(instrument, &figures[at], evidence.idle) {
            Ok(net) => figures[at].net = Some(net),
            Err(why) => figures[at].net_omitted_reason = Some(why),
        }
        let has_edges = |at: usize| figures[at].edge_error_pct.is_none_or(|pct| pct <= MOST_EDGE_ERROR_OF_METRIC_PCT);
        let fits = |other: usize| other != at && instrument.is_like(&instruments[other]) && figures[other].joules.is_some() && has_edges(other);
        let other = (0..instruments.len()).find(|&other| has_edges(at) && fits(other));
        figures[at].cross_check = other.and_then(|other| {
            let ratio = figures[other].joules? / figures[at].joules?;
            Some(CrossCheck { instrument: figures[other].instrument, ratio })
        });
    }
    figures
}

/// Samples of instruments with a reading more at either end.
fn with_readings_around(series: &Series, [before, after]: [&Snapshot; 2]) -> Series {
    let is_before = series.monotonic_ns.first().is_some_and(|first_ns| before.monotonic_ns < *first_ns);
    let is_after = series.monotonic_ns.last().is_some_and(|last_ns| after.monotonic_ns > *last_ns);
    let ends = |before: Option<f64>, values: &[Option<f64>], after: Option<f64>| {
        is_before.then_some(before).into_iter().chain(values.iter().copied()).chain(is_after.then_some(after)).collect()
    };
    let times = is_before.then_some(before.monotonic_ns).into_iter().chain(series.monotonic_ns.iter().copied());
    let column = |column: &Column| {
        let of = |snapshot: &Snapshot| {
            let same = |reading: &&Reading| reading.metric == column.metric && reading.subject == column.subject && reading.source == column.source;
            snapshot.readings.iter().find(same).and_then(|reading| reading.value)
        };
        Column { values: ends(of(before), &column.values, of(after)), ..column.clone() }
    };
    Series {
        monotonic_ns: times.chain(is_after.then_some(after.monotonic_ns)).collect(),
        columns: series.columns.iter().filter(|column| ladder::METRICS.contains(&column.metric.as_str())).map(column).collect(),
    }
}

/// What is wrong with the figure of record. Its severity is that of the code where the figure is what the run was made for; else the
/// run's other numbers stand, and it is a note. So it is of a window that is too short: there is no number that could be wrong, and another
/// run would be as short. A clock that is wrong may be right the next time.
#[must_use]
pub fn issues(figures: &[EnergyFigure], weight: Weight) -> Vec<Issue> {
    let Some(figure) = figures.iter().find(|figure| figure.of_record) else { return Vec::new() };
    let mut found = Vec::new();
    for check in &figure.checks {
        let code = match (check.check, check.outcome) {
            (_, CheckOutcome::Passed) => continue,
            (_, CheckOutcome::Inoperative) => Code::CheckInoperative,
            (CheckName::Frozen, _) => Code::WindowClockFrozen,
            (CheckName::Envelope, _) => Code::WindowClockExceedsHost,
            (CheckName::Reference, _) => Code::ReferenceDrift,
            (CheckName::Observers, _) => Code::WindowObserverMismatch,
            (CheckName::Plausible, _) => Code::EnergyImplausible,
            (CheckName::Edges, _) => Code::EdgeError,
        };
        found.push((code, check.found.clone()));
    }
    if let Some(CrossCheck { instrument, ratio }) = &figure.cross_check
        && (ratio - 1.0).abs() > MOST_DISAGREEMENT
    {
        found.push((Code::InstrumentsDisagree, format!("{} has {ratio:.3} times the energy of {}", instrument.name(), figure.instrument.name())));
    }
    let issue = |(code, message): (Code, String)| {
        let is_of_clock = matches!(code, Code::WindowClockFrozen | Code::WindowClockExceedsHost);
        let issue = Issue { subject: Some(figure.instrument.name().into()), ..Issue::new(code, message) };
        let matters = weight == Weight::OfRecord && (is_of_clock || figure.scope != Scope::FreeFormCapture);
        let severity = if matters { issue.severity } else { Severity::Note };
        Issue { severity, ..issue }
    };
    found.into_iter().map(issue).collect()
}

/// The metrics of the figure of record. Without one they are `null`, and say why.
#[must_use]
pub fn metrics(figures: &[EnergyFigure], point: &PointIds, none: &str) -> IndexMap<String, Metric> {
    let figure = figures.iter().find(|figure| figure.of_record);
    let power = match figure {
        None => Err(none.to_owned()),
        Some(EnergyFigure { scope: Scope::FreeFormCapture, joules, .. }) => {
            let rest = if joules.is_some() { ": the whole energy stands in the record" } else { "" };
            Err(format!("no window of {} s and more{rest}", LEAST_GATE_NS / 1_000_000_000))
        }
        Some(EnergyFigure { power_omitted_reason: Some(why), .. }) => Err(why.clone()),
        Some(figure) => figure.mean_w.ok_or_else(|| reason(figure.omitted_reason.as_ref())),
    };
    let mut metrics = IndexMap::from([metric(MetricId::Power, power)]);
    // What is counted in a window are inferences, tokens, or requests of `n_gen` tokens each; in J or in mJ.
    let tokens = if let Some(AxisValue::Int(n_gen @ 1..)) = point.axes.get("n_gen") { Some(*n_gen as f64) } else { None };
    let counted = [
        (MetricId::EnergyPerInferenceWindow, Some(1.0)),
        (MetricId::EnergyPerTokenWindow, Some(1000.0)),
        (MetricId::EnergyPerPrefillTokenWindow, Some(1000.0)),
        (MetricId::EnergyPerServedTokenWindow, tokens.map(|tokens| 1000.0 / tokens)),
    ];
    for (id, of_a_joule) in counted.into_iter().filter_map(|(id, of_a_joule)| Some((id, of_a_joule?))) {
        if id.entry().backends.contains(&point.backend.as_str()) && id.entry().is_asked_of(point) {
            let energy = match figure {
                None => Err(none.to_owned()),
                Some(figure) => figure.per_inference_j.ok_or_else(|| reason(figure.per_inference_omitted_reason.as_ref())),
            };
            metrics.extend([metric(id, energy.map(|joules| joules * of_a_joule))]);
        }
    }
    metrics
}

fn reason(omitted: Option<&String>) -> String {
    omitted.cloned().unwrap_or_else(|| "no inferences were counted".into())
}

fn metric(id: MetricId, value: Result<f64, String>) -> (String, Metric) {
    let entry = id.entry();
    let metric = Metric {
        n: u32::from(value.is_ok()),
        value: value.as_ref().ok().copied(),
        unit: entry.unit.symbol().into(),
        better: entry.better,
        spread: None,
        definition: entry.definition.into(),
        label: None,
        omitted_reason: value.err(),
        samples: Vec::new(),
        samples_sidecar: None,
    };
    (entry.name.into(), metric)
}

/// Why a run has no figure of record: what stands in the way of choosing one, and which instruments could not be read.
#[must_use]
pub fn without(evidence: &Evidence<'_>) -> String {
    let instruments = ladder::instruments(evidence.series, evidence.instruments);
    let why = match ladder::of_record(&instruments, evidence.backend, evidence.unused_gpus) {
        Ok(_) => return "the run was not measured".into(),
        Err(why) => why,
    };
    let is_instrument = |reading: &&Reading| ladder::METRICS.contains(&reading.metric.as_str());
    let why_absent = |reading: &Reading| Some(format!("{}: {}", reading.subject.as_deref()?, reading.absent.as_deref()?));
    let absent: Vec<String> = evidence.around[0].readings.iter().filter(is_instrument).filter_map(why_absent).collect();
    if absent.is_empty() { why } else { format!("{why} ({}; `isotherm probe` says what mends that)", absent.join("; ")) }
}

#[cfg(test)]
mod tests;
