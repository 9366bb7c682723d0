//! What others used of the machine: read for the record, and judged.
//!
//! Takes what the agent counted, gives a block of the record and issues; pure. Must not know what the run measured.

use crate::registry::Code;
use crate::store::issue::Issue;
use crate::store::record::{Competing, CompetingProcess, PreRun};
use isotherm_wire::load::{CpuTime, ProcessTime};
use isotherm_wire::result::RunResult;
use std::sync::OnceLock;

/// Cores that others used, on average, above which they disturb …
const MOST_COMPETING_CORES: f64 = 0.25;
/// … which is judged over at least this time, s: the machine's CPU time is counted in samples of 10 ms on every CPU.
const LEAST_JUDGED_S: f64 = 5.0;
/// A process's own is what it had, but for the last tick. So those that are named are judged in shorter runs, by what they had at least, from
/// this time on, s …
const LEAST_NAMED_S: f64 = 0.1;
/// … or from another, by a variable: tests beside each other disturb each other.
const LEAST_NAMED_VARIABLE: &str = "ISOTHERM_JUDGED_FROM_S";
const TICK_NS: u64 = 10_000_000;
/// Below this much, cores, what no process has is within the ticks that CPU time is counted in.
const LEAST_UNNAMED_CORES: f64 = 0.05;

/// What others did that disturbed the run.
pub fn issues(result: &RunResult) -> Vec<Issue> {
    static LEAST: OnceLock<f64> = OnceLock::new();
    let least_named_s = *LEAST.get_or_init(|| std::env::var(LEAST_NAMED_VARIABLE).ok().and_then(|s| s.parse().ok()).unwrap_or(LEAST_NAMED_S));
    let issue = |code, words: &str, cores: f64, time: &CpuTime| Issue {
        value: Some(cores.into()),
        ..Issue::new(code, format!("{words} {cores:.2} cores on average{}", in_words(&competing(time))))
    };
    let before = result.pre_run.as_ref().map(|pre_run| &pre_run.cpu_time);
    let before = before.and_then(|time| Some(issue(Code::BusyBefore, "right before the run other processes used", used(time)?, time)));
    let during = result.cpu_time.as_ref().and_then(|time| match used(time) {
        Some(cores) => Some(issue(Code::CompetingLoad, "other processes used", cores, time)),
        None => Some(issue(Code::CompetingLoad, "other processes used at least", used_at_least(time, least_named_s)?, time)),
    });
    before.into_iter().chain(during).collect()
}

/// Who else used the CPUs.
pub fn competing(time: &CpuTime) -> Competing {
    let process = |p: &ProcessTime| CompetingProcess { name: p.name.clone(), processes: p.processes, cores: time.cores(p.cpu_ns) };
    let cores = time.competing_cores();
    Competing {
        span_s: time.span_ns as f64 / 1e9,
        cores,
        kernel_cores: time.kernel_cores(),
        processes: time.others.iter().map(process).collect(),
        unnamed_cores: cores - time.cores(time.others_ns),
    }
}

/// The machine right before the window.
pub fn pre_run(told: &isotherm_wire::load::PreRun) -> PreRun {
    let span_us = told.cpu_time.span_ns as f64 / 1e3;
    let waited_pct = told.waited_us.iter().map(|(resource, us)| (resource.clone(), *us as f64 / span_us * 100.0)).collect();
    PreRun { competing: competing(&told.cpu_time), waited_pct }
}

/// Cores, by the machine's count; `None` for no more than is allowed, and in a span too short for it.
fn used(time: &CpuTime) -> Option<f64> {
    let is_judged = time.span_ns as f64 / 1e9 >= LEAST_JUDGED_S;
    Some(time.competing_cores()).filter(|cores| is_judged && *cores > MOST_COMPETING_CORES)
}

/// Cores, by what those that are named used at least; `None` likewise.
fn used_at_least(time: &CpuTime, least_s: f64) -> Option<f64> {
    let is_judged = time.span_ns as f64 / 1e9 >= least_s;
    let at_least_ns = time.others.iter().map(|p| p.cpu_ns.saturating_sub(u64::from(p.processes).saturating_mul(TICK_NS))).sum();
    Some(time.cores(at_least_ns)).filter(|cores| is_judged && *cores > MOST_COMPETING_CORES)
}

/// `: apt-get 0.40, 2 × dpkg 0.15`, the names as they are.
fn in_words(competing: &Competing) -> String {
    let told = |cores: f64| cores >= 0.005;
    let name = |p: &CompetingProcess| if p.processes == 1 { p.name.clone() } else { format!("{} × {}", p.processes, p.name) };
    let mut parts: Vec<String> = competing.processes.iter().filter(|p| told(p.cores)).map(|p| format!("{} {:.2}", name(p), p.cores)).collect();
    if competing.unnamed_cores >= LEAST_UNNAMED_CORES {
        parts.push(format!("{:.2} by what came and went or can't be seen", competing.unnamed_cores));
    }
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::result::AgentFacts;

    fn codes(run: &RunResult) -> Vec<String> {
        issues(run).iter().map(|issue| issue.code.to_string()).collect()
    }

    fn run() -> RunResult {
        let agent = AgentFacts { version: String::new(), sha256: String::new(), target: String::new() };
        RunResult::unexecuted("r".into(), serde_json::Value::Null, agent, Default::default())
    }

    fn busy(seconds: u64, cores: f64, others: &[(&str, u32, f64)]) -> RunResult {
        let ns = |cores: f64| (cores * seconds as f64 * 1e9) as u64;
        let other = |&(name, processes, cores): &(&str, u32, f64)| ProcessTime { name: name.into(), processes, cpu_ns: ns(cores) };
        let time = CpuTime {
            span_ns: seconds * 1_000_000_000,
            busy_ns: ns(1.5 + cores),
            interrupts_ns: 0,
            kernel_threads_ns: Some(ns(0.5)),
            agent_ns: ns(1.0),
            others_ns: others.iter().map(|other| ns(other.2)).sum(),
            others: others.iter().map(other).collect(),
        };
        RunResult { cpu_time: Some(time), ..run() }
    }

    #[test]
    fn what_nobody_is_known_to_have_used_is_judged_over_five_seconds_and_more() {
        assert_eq!(codes(&busy(10, 0.5, &[])), ["competing_load"]);
        assert_eq!(issues(&busy(10, 0.5, &[]))[0].value, Some(0.5.into()));
        assert!(codes(&busy(10, 0.25, &[])).is_empty());
        assert!(codes(&busy(4, 1.5, &[])).is_empty(), "too short to be told");
        assert!(codes(&run()).is_empty(), "nothing is known");
    }

    #[test]
    fn who_is_named_is_judged_in_a_short_run_by_what_he_used_at_least() {
        let of = |ms: u64, processes: u32, cpu_ms: u64| {
            let mut run = busy(1, 0.0, &[("rustc", processes, cpu_ms as f64 / 1e3)]);
            run.cpu_time.as_mut().unwrap().span_ns = ms * 1_000_000;
            codes(&run)
        };
        assert_eq!([of(1000, 1, 270), of(170, 1, 180), of(100, 1, 40)].concat(), ["competing_load"; 3]);
        // A tick each may be from before; the machine's own count says nothing here.
        assert!([of(1000, 1, 260), of(1000, 5, 300), of(100, 1, 30), of(50, 1, 50)].concat().is_empty());
    }

    #[test]
    fn work_right_before_a_run_is_told_apart() {
        let mut run = busy(10, 0.5, &[]);
        let waited_us = [("io".to_owned(), 2_500_000)].into();
        run.pre_run = run.cpu_time.clone().map(|cpu_time| isotherm_wire::load::PreRun { cpu_time, waited_us });
        assert_eq!(codes(&run), ["busy_before", "competing_load"]);
        assert_eq!(
            issues(&run)[0].message,
            "right before the run other processes used 0.50 cores on average: 0.50 by what came and went or can't be seen"
        );
        assert_eq!(pre_run(run.pre_run.as_ref().unwrap()).waited_pct["io"], 25.0);
    }

    #[test]
    fn competitors_are_named() {
        let message = |cores, others: &[_]| issues(&busy(10, cores, others))[0].message.clone();
        let named = [("apt-get", 1, 0.4), ("dpkg", 2, 0.15), ("cron", 1, 0.001)];
        assert_eq!(message(0.551, &named), "other processes used 0.55 cores on average: apt-get 0.40, 2 × dpkg 0.15");
        let most = "other processes used 0.80 cores on average: apt-get 0.40, 0.40 by what came and went or can't be seen";
        assert_eq!(message(0.8, &named[..1]), most);
        assert_eq!(message(0.4, &named[..1]), "other processes used 0.40 cores on average: apt-get 0.40");
    }
}
