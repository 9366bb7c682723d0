//! One figure: an instrument over a window, and the checks that it has to pass.

use super::ladder::{Channel, Instrument};
use super::trace::Trace;
use crate::store::energy::{CheckName, CheckOutcome, EnergyChannel, EnergyCheck, EnergyFigure, EnergyWindow, Observers, Ran, Scope};

/// A shorter window is none: loading and ending weigh as much as what lies between.
pub const LEAST_GATE_NS: u64 = 1_000_000_000;
/// A counter read within this time of a mark was read at it: at 10 W that is 50 mJ of a window of 10 J and more.
const GATED_WITHIN_NS: u64 = 5_000_000;
/// Readings of a monitor in a window, below which what is between them is guessed.
const LEAST_READINGS: usize = 10;
/// Above this the edges make a figure doubtful …
const MOST_EDGE_ERROR_PCT: f64 = 2.0;
/// … and above this it makes no metric, and is held against nothing.
pub const MOST_EDGE_ERROR_OF_METRIC_PCT: f64 = 5.0;
/// Share of the window that the inferences in it may miss: of ones that were counted and timed one by one.
const MOST_REFERENCE_MISS: f64 = 0.10;
/// As much is a drift between the loop and its inferences, and no other window.
const MOST_REFERENCE_DRIFT: f64 = 0.15;
/// What two clocks of a process and its keeper may differ by.
const ENVELOPE_SLACK_NS: u64 = 250_000_000;
/// A limit that is enforced is not exceeded on average; counters and limits are both inexact by some percent.
const MOST_OF_LIMIT: f64 = 1.2;

/// Inferences that a backend timed one by one.
#[derive(Debug, Clone, Copy)]
pub struct Timed<'a> {
    /// First start and last end of each stretch without a pause, CLOCK_MONOTONIC of the device, ns, ascending.
    pub spans_ns: &'a [(u64, u64)],
    pub inferences: u64,
    /// Sum of their durations.
    pub busy_ns: u64,
}

/// What is integrated.
pub struct Window<'a> {
    parts: Vec<(u64, u64)>,
    ran: Ran,
    /// Too short for more than the energy of the whole invocation.
    too_short: Option<String>,
    timed: Option<Timed<'a>>,
    invocation: (u64, u64),
}

impl<'a> Window<'a> {
    /// The timed inferences where there are any and they took long enough, else the invocation.
    pub fn of(invocation: (u64, u64), timed: Option<Timed<'a>>) -> Window<'a> {
        let length = |parts: &[(u64, u64)]| parts.iter().map(|(start, end)| end.saturating_sub(*start)).sum::<u64>();
        let whole = |ran_ns: u64, what: &str| {
            let too_short = (ran_ns < LEAST_GATE_NS).then(|| format!("{what} took {:.3} s, less than 1 s", seconds(ran_ns)));
            Window { parts: vec![invocation], ran: Ran::Invocation, too_short, timed, invocation }
        };
        match timed {
            None => whole(length(&[invocation]), "the invocation"),
            Some(Timed { spans_ns: [], .. }) => {
                let unknown = "when in it the timed inferences ran is not known".to_owned();
                Window { parts: vec![invocation], ran: Ran::Invocation, too_short: Some(unknown), timed, invocation }
            }
            Some(Timed { spans_ns, .. }) if length(spans_ns) >= LEAST_GATE_NS => {
                Window { parts: spans_ns.to_vec(), ran: Ran::TimedInferences, too_short: None, timed, invocation }
            }
            Some(Timed { spans_ns, .. }) => whole(length(spans_ns), "the timed inferences"),
        }
    }

    fn integrated_ns(&self) -> u64 {
        self.parts.iter().map(|(start, end)| end.saturating_sub(*start)).sum()
    }

    fn described(&self) -> EnergyWindow {
        EnergyWindow {
            start_ns: self.parts.first().map_or(0, |part| part.0),
            end_ns: self.parts.last().map_or(0, |part| part.1),
            integrated_ns: self.integrated_ns(),
            parts: self.parts.len() as u32,
            inferences: self.inferences(),
        }
    }

    /// Completed in it, where it is theirs.
    fn inferences(&self) -> Option<u64> {
        self.timed.filter(|_| self.ran == Ran::TimedInferences).map(|timed| timed.inferences)
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A channel's readings as energy over time, or why they are none.
struct Read<'a> {
    channel: &'a Channel<'a>,
    trace: Result<Trace, String>,
}

impl Read<'_> {
    /// Over all parts of the window, J.
    fn joules(&self, window: &Window<'_>) -> Option<f64> {
        let trace = self.trace.as_ref().ok()?;
        window.parts.iter().map(|&(start, end)| trace.joules(start, end)).sum()
    }
}

pub fn figure<'a>(instrument: &'a Instrument<'a>, window: &Window<'_>, times_ns: &[u64]) -> EnergyFigure {
    let read = |channel: &'a Channel<'a>| Read { channel, trace: channel.trace(times_ns, &channel.column.values) };
    let reads: Vec<Read<'_>> = instrument.channels.iter().map(read).collect();
    let parts: Vec<Option<f64>> = reads.iter().map(|read| read.joules(window)).collect();
    let joules: Option<f64> = parts.iter().copied().sum();
    let mean_w = joules.map(|joules| joules / seconds(window.integrated_ns())).filter(|watts| watts.is_finite());
    let edge_error_pct = mean_w.and_then(|watts| edge_error_pct(&reads, window, watts));
    let checks = [
        Some(frozen(window)),
        Some(envelope(window)),
        reference(window),
        Some(observers(&reads, window)),
        Some(plausible(&reads, joules, mean_w)),
        Some(edges(edge_error_pct, joules)),
    ];
    let checks: Vec<EnergyCheck> = checks.into_iter().flatten().collect();
    let failed = |of: &[CheckName]| checks.iter().find(|check| of.contains(&check.check) && check.outcome != CheckOutcome::Passed);
    let withheld = failed(&[CheckName::Frozen, CheckName::Envelope, CheckName::Observers, CheckName::Plausible]);
    let omitted_reason = withheld.map(|check| check.found.clone());
    let counter = instrument.channels.iter().all(Channel::is_counter);
    let scope = match window {
        Window { too_short: Some(_), .. } => Scope::FreeFormCapture,
        Window { ran: Ran::Invocation, .. } if counter && is_gated(&reads, window) => Scope::OnDeviceGated,
        _ => Scope::AgentTimedWindow,
    };
    let few = reads.iter().filter(|read| !read.channel.is_counter()).filter_map(|read| readings(read, window)).min();
    let few = few.filter(|n| *n < LEAST_READINGS).map(|n| format!("only {n} readings fell into the window"));
    // A counter has no least number of readings: where it was read at both edges, their error is next to nothing.
    let doubt = few.or_else(|| match edge_error_pct {
        Some(pct) => (pct > MOST_EDGE_ERROR_OF_METRIC_PCT).then(|| format!("its edges may have brought in {pct:.1} %")),
        None => Some("what its edges may have brought in can't be told".into()),
    });
    let refused = omitted_reason.clone().or_else(|| window.too_short.clone());
    let power_omitted_reason = doubt.clone().filter(|_| refused.is_none());
    let per_inference = window.timed.map(|timed| {
        let refused = refused.or(doubt).or_else(|| drift(window).filter(|miss| *miss > MOST_REFERENCE_DRIFT).map(said_of_drift));
        match (refused, joules) {
            (None, Some(joules)) if timed.inferences > 0 => Ok(joules / timed.inferences as f64),
            (refused, _) => Err(refused.unwrap_or_else(|| "no inference was completed".into())),
        }
    });
    let (per_inference_j, per_inference_omitted_reason) = per_inference.map_or((None, None), |it| (it.as_ref().ok().copied(), it.err()));
    EnergyFigure {
        instrument: instrument.rung,
        measures: instrument.measures,
        of_record: false,
        scope,
        ran: window.ran,
        window: window.described(),
        joules: joules.filter(|_| omitted_reason.is_none()),
        mean_w: mean_w.filter(|_| omitted_reason.is_none()),
        omitted_reason,
        power_omitted_reason,
        net: None,
        net_omitted_reason: None,
        per_inference_j,
        per_inference_omitted_reason,
        edge_error_pct,
        observers: Observers::SameClock,
        checks,
        cross_check: None,
        channels: reads.iter().zip(parts).map(|(read, joules)| described(read.channel, joules)).collect(),
    }
}

fn described(channel: &Channel<'_>, joules: Option<f64>) -> EnergyChannel {
    EnergyChannel {
        metric: channel.column.metric.clone(),
        subject: channel.subject().to_owned(),
        source: channel.column.source.clone(),
        driver: channel.driver().map(str::to_owned),
        joules,
        wraps_at_j: channel.wraps_at_j(),
        period_ms: channel.period_ms(),
        limit_w: channel.limit_w(),
    }
}

fn check(check: CheckName, outcome: CheckOutcome, found: String) -> EnergyCheck {
    EnergyCheck { check, outcome, found }
}

fn passed(condition: bool) -> CheckOutcome {
    if condition { CheckOutcome::Passed } else { CheckOutcome::Failed }
}

fn frozen(window: &Window<'_>) -> EnergyCheck {
    let (ns, inferences) = (window.integrated_ns(), window.timed.map_or(0, |timed| timed.inferences));
    // Too short is another matter than none at all.
    let timed_ns = window.timed.map_or(ns, |timed| timed.spans_ns.iter().map(|(start, end)| end.saturating_sub(*start)).sum());
    let is_known = window.timed.is_none_or(|timed| !timed.spans_ns.is_empty());
    let stands = timed_ns == 0 && is_known && (inferences > 0 || window.timed.is_none());
    check(CheckName::Frozen, passed(!stands), format!("{:.3} s passed over {inferences} inferences", seconds(timed_ns)))
}

fn envelope(window: &Window<'_>) -> EnergyCheck {
    let host_ns = window.invocation.1.saturating_sub(window.invocation.0);
    let found = format!("a window of {:.3} s in an invocation of {:.3} s", seconds(window.integrated_ns()), seconds(host_ns));
    check(CheckName::Envelope, passed(window.integrated_ns() <= host_ns + ENVELOPE_SLACK_NS), found)
}

/// Share of the window that its inferences don't account for; `None` where none are counted in it.
fn drift(window: &Window<'_>) -> Option<f64> {
    let busy_ns = window.timed.filter(|_| window.ran == Ran::TimedInferences)?.busy_ns;
    (busy_ns > 0).then(|| (window.integrated_ns() as f64 - busy_ns as f64).abs() / busy_ns as f64)
}

fn said_of_drift(miss: f64) -> String {
    format!("the window is {:.1} % off the sum of its inferences", miss * 100.0)
}

/// `None` where none are counted in the window.
fn reference(window: &Window<'_>) -> Option<EnergyCheck> {
    let (miss, inferences) = drift(window).zip(window.inferences())?;
    // Half an inference is nothing of many.
    let half = if inferences > 1 { 0.5 / inferences as f64 } else { 0.0 };
    Some(check(CheckName::Reference, passed(miss <= MOST_REFERENCE_MISS.max(half)), said_of_drift(miss)))
}

/// What the instrument saw against what ran.
fn observers(reads: &[Read<'_>], window: &Window<'_>) -> EnergyCheck {
    let ran_ns = window.integrated_ns();
    let outcome = |read: &Read<'_>| {
        let trace = read.trace.as_ref().map_err(Clone::clone)?;
        let seen_ns: u64 = window.parts.iter().map(|&(start, end)| trace.seen_ns(start, end)).sum();
        let found = format!("{} was seen for {:.3} of {:.3} s", read.channel.subject(), seconds(seen_ns), seconds(ran_ns));
        let inside = read.channel.is_counter() || readings(read, window).is_some_and(|n| n > 0);
        let tolerance_ns = seen_ns / 100 + 2 * read.channel.period_ns().max(trace.spacing_ns().unwrap_or(0));
        let is_whole = read.joules(window).is_some();
        Ok::<_, String>((inside && is_whole && ran_ns.abs_diff(seen_ns) <= tolerance_ns, found))
    };
    let mut said = Vec::new();
    for outcome in reads.iter().map(outcome) {
        match outcome {
            Ok((true, found)) => said.push(found),
            Ok((false, found)) => return check(CheckName::Observers, CheckOutcome::Failed, found),
            // What makes no trace is for the check of what is plausible.
            Err(why) => return check(CheckName::Observers, CheckOutcome::Inoperative, why),
        }
    }
    check(CheckName::Observers, CheckOutcome::Passed, said.join("; "))
}

fn plausible(reads: &[Read<'_>], joules: Option<f64>, mean_w: Option<f64>) -> EnergyCheck {
    let outcome = |outcome, found: String| check(CheckName::Plausible, outcome, found);
    if let Some(why) = reads.iter().find_map(|read| read.trace.as_ref().err()) {
        return outcome(CheckOutcome::Failed, why.clone());
    }
    let (Some(joules), Some(mean_w)) = (joules, mean_w) else {
        return outcome(CheckOutcome::Inoperative, "there is no energy to judge".into());
    };
    if joules <= 0.0 {
        return outcome(
            CheckOutcome::Failed,
            if joules == 0.0 { "the instrument stood still".into() } else { format!("{joules:.3} J over the window") },
        );
    }
    let limit: Option<f64> = reads.iter().map(|read| read.channel.limit_w()).sum();
    match limit {
        Some(limit) => outcome(passed(mean_w <= MOST_OF_LIMIT * limit), format!("{mean_w:.2} W on average, with a limit of {limit:.2} W")),
        None => outcome(CheckOutcome::Passed, format!("{mean_w:.2} W on average; no limit is known")),
    }
}

fn edges(edge_error_pct: Option<f64>, joules: Option<f64>) -> EnergyCheck {
    match edge_error_pct {
        Some(pct) => check(CheckName::Edges, passed(pct <= MOST_EDGE_ERROR_PCT), format!("the edges may have brought in {pct:.2} %")),
        None => {
            let why = if joules.is_some() { "power at the edges can't be told" } else { "there is no energy to judge" };
            check(CheckName::Edges, CheckOutcome::Inoperative, why.into())
        }
    }
}

/// (Δ ÷ T) · max(|P first − P̄|, |P last − P̄|) ÷ P̄, for each part of the window, all against its mean. Δ is what of a reading's time lies
/// on the other side of an edge at most, and the instrument's own period or what it averages over.
fn edge_error_pct(reads: &[Read<'_>], window: &Window<'_>, mean_w: f64) -> Option<f64> {
    let mut joules = 0.0;
    for &(start_ns, end_ns) in &window.parts {
        for read in reads {
            let mut largest: f64 = 0.0;
            let trace = read.trace.as_ref().ok()?;
            let spacing_ns = trace.spacing_ns()?.max(1);
            let inside_ns = spacing_ns.min(end_ns - start_ns).max(1);
            let part_w = read.joules(window)? / seconds(window.integrated_ns());
            let first_w = trace.joules(start_ns, start_ns + inside_ns)? / seconds(inside_ns);
            let last_w = trace.joules(end_ns - inside_ns, end_ns)? / seconds(inside_ns);
            for (edge_ns, watts) in [(start_ns, first_w), (end_ns, last_w)] {
                let delta_ns =
                    read.channel.period_ns() + if read.channel.is_counter() { (2 * trace.nearest_ns(edge_ns)?).min(spacing_ns) } else { spacing_ns };
                largest = largest.max(seconds(delta_ns) * (watts - part_w).abs());
            }
            joules += largest;
        }
    }
    let pct = 100.0 * joules / (seconds(window.integrated_ns()) * mean_w);
    pct.is_finite().then_some(pct.abs())
}

/// Readings of a monitor inside of the window.
fn readings(read: &Read<'_>, window: &Window<'_>) -> Option<usize> {
    let trace = read.trace.as_ref().ok()?;
    Some(window.parts.iter().map(|&(start, end)| trace.readings(start, end)).sum())
}

/// Was every counter read at both edges?
fn is_gated(reads: &[Read<'_>], window: &Window<'_>) -> bool {
    let near = |trace: &Trace, at_ns| trace.nearest_ns(at_ns).is_some_and(|ns| ns <= GATED_WITHIN_NS);
    reads.iter().all(|read| {
        let edges = window.parts.iter().flat_map(|&(start, end)| [start, end]);
        read.trace.as_ref().is_ok_and(|trace| edges.into_iter().all(|edge| near(trace, edge)))
    })
}
