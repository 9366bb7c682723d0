//! What a wait has found, as a record has it, and what it makes of the run.
//!
//! Takes an agent's evidence, gives the record's block, issues and words; pure. Must not know what the run measured.

use super::manifest::Manifest;
use crate::registry::Code;
use crate::store::issue::Issue;
use crate::store::settle::{Reference, Regime, Settle};
use isotherm_wire::result::RunResult;
use isotherm_wire::settle::{Criterion, Evidence, Finding, OnTimeout, Verdict};
use std::time::{Duration, UNIX_EPOCH};

/// The block of a record.
pub fn block(result: &RunResult, manifest: &Manifest) -> Settle {
    let requested_ms = manifest.settle_ms;
    let verdict = |word: &str| word.to_owned();
    let Some(evidence) = &result.settle else {
        let reached = result.times.settle_end_ns.is_some();
        return Settle {
            requested_ms,
            verdict: verdict(if reached { "fixed_wait" } else { "not_reached" }),
            rule: manifest.settle,
            ..Settle::default()
        };
    };
    let reference = evidence.reference.as_ref().map(|found| Reference {
        values: found.values.clone(),
        absent: found.absent.clone(),
        taken_at: humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(found.taken_unix_ns)).to_string(),
        raised: found.raised,
    });
    Settle {
        requested_ms,
        verdict: verdict(match evidence.verdict {
            None => "not_reached",
            Some(Verdict::Settled) => "settled",
            Some(Verdict::SettledSteady) => "settled_steady",
            Some(Verdict::TimedOut) => "timed_out",
        }),
        rule: Some(evidence.rule),
        reference,
        offset_c: evidence.offset_c,
        regime: regime(evidence),
        criteria: evidence.criteria.clone(),
        trace: Some(evidence.trace.clone()),
    }
}

/// Whether the device was as cool as at rest when the wait was over; `None` where it wasn't, or no temperature tells.
fn regime(evidence: &Evidence) -> Option<Regime> {
    evidence.verdict?;
    let temperatures = evidence.criteria.iter().filter(|found| found.criterion == Criterion::Temperature && found.met.is_some());
    let are_cool: Option<Vec<bool>> = temperatures.map(|found| Some(found.value? <= found.limit?)).collect();
    let are_cool = are_cool.filter(|all| !all.is_empty())?;
    Some(if are_cool.into_iter().all(|is_cool| is_cool) { Regime::Burst } else { Regime::Sustained })
}

/// What a time-out says of a run that was made all the same.
pub fn issues(result: &RunResult) -> Vec<Issue> {
    let Some(evidence) = result.settle.as_ref().filter(|evidence| evidence.verdict == Some(Verdict::TimedOut)) else { return Vec::new() };
    let mut issues = Vec::new();
    if evidence.rule.on_timeout == OnTimeout::Flag {
        let issue = Issue::new(Code::SettleTimeout, said(evidence));
        issues.push(Issue { value: evidence.offset_c.map(Into::into), ..issue });
    }
    if !evidence.raised_to.is_empty() {
        let raised: Vec<String> = evidence.raised_to.iter().map(|(sensor, celsius)| format!("{sensor} {celsius:.1} °C")).collect();
        issues.push(Issue::new(Code::ReferenceRaised, format!("from now on the device counts as being at rest at {}", raised.join(", "))));
    }
    issues
}

/// `it did not settle within 3m: cpu-thermal 61.2 °C (at most 48.3), competing CPU 0.40 cores (at most 0.1)`.
pub fn said(evidence: &Evidence) -> String {
    let unmet: Vec<String> = evidence.criteria.iter().filter(|found| found.met == Some(false)).map(unmet).collect();
    // Each of them was met at times, never all of them for long enough.
    let why = if unmet.is_empty() { "it was not quiet for three seconds on end".into() } else { unmet.join(", ") };
    format!("the device did not settle within {}: {why}", humantime::format_duration(Duration::from_millis(evidence.rule.timeout_ms)))
}

fn unmet(found: &Finding) -> String {
    let (what, unit, decimals, one) = match found.criterion {
        Criterion::Temperature => (None, " °C", 1, 1.0),
        Criterion::CompetingCpu => (Some("competing CPU"), " cores", 2, 1.0),
        Criterion::Throttle => (Some("throttled"), "", 0, 1.0),
        Criterion::SwapIn => (Some("pages read from swap"), "", 0, 1.0),
        Criterion::FrequencyLimits => (Some("policies with narrower frequency limits"), "", 0, 1.0),
        Criterion::GpuProcesses => (Some("compute processes"), "", 0, 1.0),
        Criterion::GpuMemory => (Some("memory in use"), " MiB", 1, f64::from(1 << 20)),
    };
    let name = [found.subject.as_deref(), what].into_iter().flatten().collect::<Vec<_>>().join(" ");
    match (found.value.map(|value| value / one), found.limit.map(|limit| limit / one)) {
        (Some(value), Some(limit)) => format!("{name} {value:.decimals$}{unit} (at most {limit:.decimals$})"),
        (Some(value), None) => format!("{name} {value:.decimals$}{unit}, not steady"),
        (None, _) => format!("{name}: {}", found.reason.as_deref().unwrap_or("no value")),
    }
}
