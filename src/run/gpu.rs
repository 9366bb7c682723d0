//! What GPUs say of a run: whether one was held back in it, and whether others computed on it before.
//!
//! Takes an agent's readings, gives words and issues; pure. A GPU that a run didn't touch is nothing of its.

use crate::registry::Code;
use crate::store::issue::Issue;
use isotherm_wire::columns::ColumnName;
use isotherm_wire::gpu::{columns, inside, is_listed};
use isotherm_wire::result::{GpuProcess, RunResult};

/// Bits of NVML's clocks-event reasons that mean a GPU is held back for heat or voltage, with what they are called. Bit 2, the power
/// limit, is not among them: at full load most GPUs run at theirs, and that is how they are.
const HELD_BACK: [(u64, &str); 4] =
    [(0x08, "hardware slowdown"), (0x20, "temperature (software)"), (0x40, "temperature (hardware)"), (0x80, "power brake")];
/// Share of time that a GPU may have something to do before a run, %: a desktop takes a few.
const MOST_BUSY_PCT: f64 = 10.0;
/// NVML's utilization is of the last second at the most; what isotherm itself did before that isn't in it, ns.
const OWN_TRACES_NS: u64 = 1_000_000_000;
/// Processes that a message names.
const MOST_NAMED: usize = 3;

/// `None` = no GPU tells; `Some(None)` = none was held back; else which, and by what.
pub fn throttled(result: &RunResult, backend: &str) -> Option<Option<String>> {
    let seen: Vec<(&str, u64)> = columns(result, ColumnName::GpuReasons)
        .filter(|(gpu, _)| used(result, backend, gpu) != Some(false))
        .filter_map(|(gpu, column)| Some((gpu, inside(result, column).map(|(_, bits)| bits as u64).reduce(|all, bits| all | bits)?)))
        .collect();
    let words = |(gpu, bits): &(&str, u64)| {
        let names: Vec<&str> = HELD_BACK.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
        (!names.is_empty()).then(|| format!("{gpu} reports {}", names.join(", ")))
    };
    let held_back: Vec<String> = seen.iter().filter_map(words).collect();
    (!seen.is_empty()).then(|| (!held_back.is_empty()).then(|| held_back.join("; ")))
}

/// Others that used a GPU before the run did.
pub fn issues(result: &RunResult, backend: &str) -> Vec<Issue> {
    let gpus = result.machine.gpus.iter().map(|gpu| gpu.subject.as_str()).filter(|gpu| used(result, backend, gpu) != Some(false));
    gpus.filter_map(|gpu| busy_before(result, gpu)).collect()
}

/// GPUs that the run is known not to have used.
pub fn unused<'r>(result: &'r RunResult, backend: &str) -> Vec<&'r str> {
    result.machine.gpus.iter().map(|gpu| gpu.subject.as_str()).filter(|gpu| used(result, backend, gpu) == Some(false)).collect()
}

fn busy_before(result: &RunResult, gpu: &str) -> Option<Issue> {
    let others: Vec<&GpuProcess> = result.gpu_processes.iter().filter(|p| p.gpu == gpu && p.before && !p.of_run).collect();
    let (message, value) = if others.is_empty() {
        let busy_pct = busy_pct(result, gpu).filter(|pct| *pct > MOST_BUSY_PCT)?;
        (format!("{gpu} was {busy_pct} % busy before the run"), busy_pct.into())
    } else {
        let name = |process: &&GpuProcess| {
            let memory = process.memory_bytes.map_or_else(String::new, |bytes| format!(", {} MiB", bytes >> 20));
            format!("{} (pid {}{memory})", process.name.as_deref().unwrap_or("a process"), process.pid)
        };
        let named: Vec<String> = others.iter().take(MOST_NAMED).map(name).collect();
        let more = others.len().checked_sub(MOST_NAMED).filter(|n| *n > 0).map_or_else(String::new, |n| format!(" and {n} more"));
        (format!("on {gpu} there were {}{more} before the run", named.join(", ")), others.len().into())
    };
    Some(Issue { value: Some(value), subject: Some(gpu.to_owned()), ..Issue::new(Code::GpuBusyBefore, message) })
}

/// How busy a GPU was just before the run. `None` where it isn't told, or where what isotherm itself did is in it: a warm-up, or the run
/// before this one.
fn busy_pct(result: &RunResult, gpu: &str) -> Option<f64> {
    let own_ns = result.times.warmup_end_ns.unwrap_or(result.times.accepted_ns);
    let is_ours = result.before.monotonic_ns.saturating_sub(own_ns) < OWN_TRACES_NS;
    let metric = ColumnName::GpuBusy.entry().name;
    let mut readings = result.before.readings.iter();
    readings.find(|r| !is_ours && r.metric == metric && r.subject.as_deref() == Some(gpu))?.value
}

/// Did the run compute on that GPU? `None` where it can't be told: it was too short, or processes aren't listed, or by the numbers of
/// another machine, as in a container.
fn used(result: &RunResult, backend: &str, gpu: &str) -> Option<bool> {
    if backend == "builtin" {
        // Its engine runs on the CPU alone.
        return Some(false);
    }
    let of_run = |of: Option<&str>| result.gpu_processes.iter().any(|p| p.of_run && of.is_none_or(|gpu| p.gpu == gpu));
    if of_run(None) {
        return Some(of_run(Some(gpu)));
    }
    let on_it = || result.gpu_processes.iter().filter(|p| p.gpu == gpu);
    let is_told = on_it().next().is_some() && on_it().all(|p| p.name.is_some());
    (is_listed(result, gpu) && is_told).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_wire::inspect::{Gpu, Machine};
    use isotherm_wire::result::AgentFacts;
    use isotherm_wire::telemetry::{Column, Reading};

    /// Two GPUs, a run of ten seconds after a pause of two, sampled once a second.
    fn run() -> RunResult {
        let agent = AgentFacts { version: String::new(), sha256: String::new(), target: String::new() };
        let gpus = ["GPU-a", "GPU-b"].map(|subject| Gpu { subject: subject.into(), ..Gpu::default() }).into();
        let mut run = RunResult::unexecuted("r".into(), serde_json::Value::Null, agent, Machine { gpus, ..Machine::default() });
        run.before.monotonic_ns = 2_000_000_000;
        run.samples.monotonic_ns = (3..=13).map(|second| second * 1_000_000_000).collect();
        (run.times.spawn_ns, run.times.exit_ns) = (Some(3_000_000_000), Some(13_000_000_000));
        run
    }

    fn sampled(run: &mut RunResult, name: ColumnName, gpu: &str, value: impl Fn(usize) -> Option<f64>) {
        let (metric, unit) = (name.entry().name.into(), name.entry().unit.symbol().into());
        let values = (0..run.samples.monotonic_ns.len()).map(value).collect();
        run.samples.columns.push(Column { metric, unit, subject: Some(gpu.into()), source: String::new(), values });
    }

    fn process(gpu: &str, pid: u32, name: Option<&str>) -> GpuProcess {
        let name = name.map(str::to_owned);
        GpuProcess { gpu: gpu.into(), pid, name, memory_bytes: Some(64 << 20), before: true, of_run: false }
    }

    fn issues(run: &RunResult) -> Vec<Issue> {
        super::issues(run, "command")
    }

    fn throttled(run: &RunResult) -> Option<Option<String>> {
        super::throttled(run, "command")
    }

    fn messages(run: &RunResult) -> Vec<String> {
        issues(run).into_iter().map(|issue| issue.message).collect()
    }

    #[test]
    fn whoever_computed_before_the_run_is_named_with_what_it_holds() {
        let mut run = run();
        run.gpu_processes = (1..=5).map(|pid| process("GPU-a", pid, (pid > 1).then_some("python3"))).collect();
        let expected = "on GPU-a there were a process (pid 1, 64 MiB), python3 (pid 2, 64 MiB), python3 (pid 3, 64 MiB) and 2 more before the run";
        assert_eq!(messages(&run), [expected]);
        assert_eq!(issues(&run)[0].value, Some(5.into()));
        // Who came during the run is its own, or competes; it wasn't there before.
        run.gpu_processes.iter_mut().for_each(|process| process.before = false);
        assert!(messages(&run).is_empty());
    }

    #[test]
    fn a_gpu_that_the_run_did_not_touch_is_nothing_of_its() {
        let mut run = run();
        run.gpu_processes = vec![process("GPU-a", 7, Some("python3"))];
        sampled(&mut run, ColumnName::GpuProcesses, "GPU-a", |_| Some(1.0));
        sampled(&mut run, ColumnName::GpuReasons, "GPU-a", |_| Some(64.0));
        assert_eq!((messages(&run).len(), throttled(&run)), (0, None), "it computed on none");
        assert_eq!(unused(&run, "command"), ["GPU-a"], "of the other nobody tells");
        run.gpu_processes.push(GpuProcess { of_run: true, before: false, ..process("GPU-b", 9, Some("bench")) });
        assert!(messages(&run).is_empty(), "it computed on the other");
        assert_eq!(unused(&run, "command"), ["GPU-a"]);
        run.gpu_processes.push(GpuProcess { of_run: true, before: false, ..process("GPU-a", 9, Some("bench")) });
        assert_eq!((messages(&run).len(), throttled(&run)), (1, Some(Some("GPU-a reports temperature (hardware)".into()))));
        // In a container the numbers are those of the host: it can't be told whose they are.
        run.gpu_processes = vec![process("GPU-a", 7, None)];
        assert_eq!(messages(&run).len(), 1);
    }

    #[test]
    fn an_engine_on_the_cpu_has_nothing_of_what_a_gpu_does_meanwhile() {
        let mut run = run();
        run.gpu_processes = vec![process("GPU-a", 7, Some("compositor"))];
        sampled(&mut run, ColumnName::GpuReasons, "GPU-a", |_| Some(64.0));
        assert_eq!((issues(&run).len(), throttled(&run).flatten().is_some()), (1, true));
        assert_eq!((super::issues(&run, "builtin").len(), super::throttled(&run, "builtin")), (0, None));
    }

    #[test]
    fn a_busy_gpu_without_a_process_is_seen_unless_isotherm_itself_was_on_it() {
        let mut run = run();
        let (metric, unit) = ("gpu_busy_pct".into(), "pct".into());
        let source = String::new();
        run.before.readings.push(Reading { metric, unit, subject: Some("GPU-a".into()), source, value: Some(45.0), absent: None });
        assert_eq!(messages(&run), ["GPU-a was 45 % busy before the run"]);
        run.times.warmup_end_ns = Some(1_500_000_000);
        assert!(messages(&run).is_empty(), "that was a warm-up");
        run.times.warmup_end_ns = None;
        run.before.readings[0].value = Some(6.0);
        assert!(messages(&run).is_empty(), "that is a desktop");
    }

    #[test]
    fn heat_and_brakes_are_throttling_and_idling_and_the_power_limit_are_not() {
        let reasons = |bits: u64, at: usize| {
            let mut run = run();
            run.samples.monotonic_ns.push(20_000_000_000);
            sampled(&mut run, ColumnName::GpuReasons, "GPU-a", |i| (i != 4).then_some(if i == at { bits as f64 } else { 1.0 }));
            throttled(&run)
        };
        assert_eq!(reasons(0x05, 5), Some(None));
        assert_eq!(reasons(0xa8, 5), Some(Some("GPU-a reports hardware slowdown, temperature (software), power brake".into())));
        assert_eq!(reasons(0x08, 11), Some(None), "that was after its exit");
        assert_eq!(throttled(&run()), None);
    }
}
