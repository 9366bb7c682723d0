//! What telemetry says of a run: the state that the machine was in, and what disturbed it.
//!
//! Takes an agent's readings, gives an operating state and issues; pure. Must not know what the run measured.

use super::gpu;
use crate::registry::Code;
use crate::store::issue::Issue;
use crate::store::record::{DuringSummary, Headline, OperatingState};
use isotherm_wire::columns::ColumnName;
use isotherm_wire::headline;
use isotherm_wire::result::RunResult;
use isotherm_wire::telemetry::{Reading, Series, Snapshot, key};
use std::collections::BTreeMap;

/// Bits of the Raspberry Pi's `get_throttled` that stand for now, and those that stand for "since boot", with what they mean.
const LIVE_BITS: u32 = 0xf;
const BITS: [&str; 4] = ["under-voltage", "clock capped", "throttled", "soft temperature limit"];

/// The state of the machine in the window.
pub fn state(result: &RunResult, backend: &str) -> OperatingState {
    OperatingState {
        throttled: throttled(result, backend).map(|by| by.is_some()),
        cgroup_throttled: delta(result, ColumnName::CgroupThrottled).map(|times| times > 0.0),
        on_battery: on_battery(&result.before).zip(on_battery(&result.after)).map(|(before, after)| before || after),
        governor: result.machine.governor.clone(),
    }
}

/// The temperature that speaks for the machine: of the sensors that gave one before the run, or else after it.
pub fn headline(result: &RunResult, during: &BTreeMap<String, DuringSummary>) -> Option<Headline> {
    let read = |snapshot| of(snapshot, ColumnName::Temperature).filter(|reading| reading.value.is_some());
    let named = |snapshot| headline::sensor(read(snapshot).filter_map(|reading| reading.subject.as_deref()));
    let sensor = named(&result.before).or_else(|| named(&result.after))?;
    let at = |snapshot| read(snapshot).find(|reading| reading.subject.as_deref() == Some(sensor)).and_then(|reading| reading.value);
    let during = during.get(&key(ColumnName::Temperature.entry().name, Some(sensor)));
    Some(Headline {
        sensor: sensor.to_owned(),
        start_c: at(&result.before),
        end_c: at(&result.after),
        mean_c: during.map(|during| during.mean),
        max_c: during.map(|during| during.max),
    })
}

/// What disturbed the run, or held it back.
pub fn issues(result: &RunResult, backend: &str) -> Vec<Issue> {
    let mut issues = Vec::new();
    if let Some(Some(by)) = throttled(result, backend) {
        issues.push(Issue::new(Code::Throttled, by));
    }
    let held_back = delta(result, ColumnName::CgroupThrottled).unwrap_or(0.0);
    if held_back > 0.0 {
        let time = delta(result, ColumnName::CgroupThrottledTime).map_or_else(String::new, |us| format!(", {:.0} ms of CPU time", us / 1e3));
        issues.push(Issue::new(Code::CgroupThrottled, format!("the CPU quota of its cgroup held it back in {held_back} periods{time}")));
    }
    let swapped = [ColumnName::SwapIn, ColumnName::SwapOut].map(|column| delta(result, column).unwrap_or(0.0));
    if swapped.iter().any(|pages| *pages > 0.0) {
        issues.push(Issue::new(Code::SwapTraffic, format!("{} pages were read from swap and {} written to it", swapped[0], swapped[1])));
    }
    issues
}

/// `None` = nothing here tells; `Some(None)` = it was not throttled; else by what.
fn throttled(result: &RunResult, backend: &str) -> Option<Option<String>> {
    let bits = of(&result.before, ColumnName::ThrottleBits).next().zip(of(&result.after, ColumnName::ThrottleBits).next());
    let by_bits = bits.and_then(|(before, after)| Some((before.value? as u32, after.value? as u32))).map(|(before, after)| {
        // History is not news: only what is set now, or was set since the run began.
        let sampled = column(&result.samples, ColumnName::ThrottleBits).flatten().fold(0, |all, value| all | value as u32);
        let seen = (sampled | before | after) & LIVE_BITS | ((after & !before) >> 16) & LIVE_BITS;
        let names: Vec<&str> = BITS.iter().enumerate().filter(|(bit, _)| seen & (1 << bit) != 0).map(|(_, name)| *name).collect();
        (!names.is_empty()).then(|| format!("the firmware reports {}", names.join(", ")))
    });
    let counts: Vec<(f64, &str)> = of(&result.before, ColumnName::Throttles)
        .filter_map(|before| {
            let after = of(&result.after, ColumnName::Throttles).find(|after| after.subject == before.subject)?;
            Some((after.value? - before.value?, before.subject.as_deref()?))
        })
        .collect();
    let by_count = (!counts.is_empty()).then(|| {
        let grown = counts.iter().find(|(times, _)| *times > 0.0);
        grown.map(|(times, subject)| format!("{subject} grew by {times}"))
    });
    match (by_bits, by_count, gpu::throttled(result, backend)) {
        (None, None, None) => None,
        (bits, counts, gpus) => Some(bits.flatten().or(counts.flatten()).or(gpus.flatten())),
    }
}

/// Mains are there as long as one supply of them is.
fn on_battery(snapshot: &Snapshot) -> Option<bool> {
    let mut supplies = of(snapshot, ColumnName::Mains).filter_map(|reading| reading.value).peekable();
    supplies.peek()?;
    Some(supplies.all(|online| online == 0.0))
}

/// Growth of a counter from before the run to after it.
fn delta(result: &RunResult, column: ColumnName) -> Option<f64> {
    let value = |snapshot: &Snapshot| snapshot.value(column.entry().name);
    Some(value(&result.after)? - value(&result.before)?)
}

/// Readings of a column.
fn of(snapshot: &Snapshot, column: ColumnName) -> impl Iterator<Item = &Reading> {
    snapshot.readings.iter().filter(move |reading| reading.metric == column.entry().name)
}

/// Values of the first column of that name.
fn column(series: &Series, column: ColumnName) -> impl Iterator<Item = Option<f64>> {
    let found = series.columns.iter().find(|c| c.metric == column.entry().name);
    found.into_iter().flat_map(|c| c.values.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_wire::result::AgentFacts;
    use isotherm_wire::telemetry::Column;

    fn reading(column: ColumnName, subject: Option<&str>, value: f64) -> Reading {
        let (metric, unit) = (column.entry().name.into(), column.entry().unit.symbol().into());
        Reading { metric, unit, subject: subject.map(str::to_owned), source: String::new(), value: Some(value), absent: None }
    }

    /// A run with these readings before and after it.
    fn run(readings: &[(ColumnName, Option<&str>, f64, f64)]) -> RunResult {
        let agent = AgentFacts { version: String::new(), sha256: String::new(), target: String::new() };
        let mut run = RunResult::unexecuted("r".into(), serde_json::Value::Null, agent, Default::default());
        run.before.readings = readings.iter().map(|(column, subject, before, _)| reading(*column, *subject, *before)).collect();
        run.after.readings = readings.iter().map(|(column, subject, _, after)| reading(*column, *subject, *after)).collect();
        run
    }

    fn state(run: &RunResult) -> OperatingState {
        super::state(run, "command")
    }

    fn issues(run: &RunResult) -> Vec<Issue> {
        super::issues(run, "command")
    }

    fn codes(run: &RunResult) -> Vec<String> {
        issues(run).iter().map(|issue| issue.code.to_string()).collect()
    }

    fn sampled(run: &mut RunResult, name: ColumnName, values: &[f64]) {
        run.samples.monotonic_ns = (0..values.len() as u64).map(|second| second * 1_000_000_000).collect();
        let (metric, unit) = (name.entry().name.into(), name.entry().unit.symbol().into());
        let values = values.iter().copied().map(Some).collect();
        run.samples.columns = vec![Column { metric, unit, subject: None, source: String::new(), values }];
    }

    #[test]
    fn the_pis_history_is_no_throttling_and_news_are() {
        let bits = |before: u32, after: u32| run(&[(ColumnName::ThrottleBits, Some("firmware"), before.into(), after.into())]);
        assert_eq!(state(&bits(0x50000, 0x50000)).throttled, Some(false));
        assert!(codes(&bits(0x50000, 0x50000)).is_empty());
        for (before, after) in [(0x50000, 0x50005), (0x10000, 0x50000), (0, 0x80008)] {
            assert_eq!((state(&bits(before, after)).throttled, codes(&bits(before, after))), (Some(true), vec!["throttled".to_owned()]));
        }
        assert_eq!(issues(&bits(0x10000, 0x50000))[0].message, "the firmware reports throttled");
        // Over before the end: only the samples have it, and the sticky bit was set already.
        let mut run = bits(0x40000, 0x40000);
        sampled(&mut run, ColumnName::ThrottleBits, &[0x40000.into(), 0x40004.into(), 0x40000.into()]);
        assert_eq!(state(&run).throttled, Some(true));
    }

    #[test]
    fn a_throttle_count_that_grows_is_throttling_and_one_that_is_there_is_not() {
        let counts = |after: f64| run(&[(ColumnName::Throttles, Some("package throttle count (cpu0)"), 3.0, after)]);
        assert_eq!(state(&counts(3.0)).throttled, Some(false));
        assert_eq!(state(&counts(5.0)).throttled, Some(true));
        assert_eq!(issues(&counts(5.0))[0].message, "package throttle count (cpu0) grew by 2");
        assert_eq!(state(&run(&[])), OperatingState::default());
    }

    #[test]
    fn a_supply_that_went_away_means_battery() {
        let supplies = |ac: (f64, f64), usb: (f64, f64)| {
            state(&run(&[(ColumnName::Mains, Some("AC"), ac.0, ac.1), (ColumnName::Mains, Some("USB"), usb.0, usb.1)])).on_battery
        };
        assert_eq!(supplies((1.0, 1.0), (0.0, 0.0)), Some(false));
        assert_eq!(supplies((1.0, 0.0), (0.0, 0.0)), Some(true));
        assert_eq!(supplies((0.0, 0.0), (2.0, 2.0)), Some(false));
    }

    #[test]
    fn swapping_and_a_quota_are_seen_in_their_counters() {
        let run = run(&[
            (ColumnName::SwapIn, None, 10.0, 12.0),
            (ColumnName::SwapOut, None, 5.0, 5.0),
            (ColumnName::CgroupThrottled, None, 7.0, 9.0),
            (ColumnName::CgroupThrottledTime, None, 0.0, 41_500.0),
        ]);
        assert_eq!(codes(&run), ["cgroup_throttled", "swap_traffic"]);
        assert_eq!(issues(&run)[0].message, "the CPU quota of its cgroup held it back in 2 periods, 42 ms of CPU time");
        assert_eq!(issues(&run)[1].message, "2 pages were read from swap and 0 written to it");
    }
}
