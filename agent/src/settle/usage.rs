//! Which GPUs a run is likely to compute on: those that earlier runs of the session did.
//!
//! Takes what a run executes and, later, who computed while it did; gives every GPU, with the reason where it is not waited for; must not
//! know what is waited for.

use isotherm_wire::gpu::is_listed;
use isotherm_wire::result::RunResult;
use isotherm_wire::task::{RunSpec, Task};
use std::collections::{BTreeMap, BTreeSet};

/// Arguments and variables, which tell one command from another.
type Command = (Vec<String>, BTreeMap<String, String>);

/// By command, the GPUs that its last run computed on, of those of which it was seen.
#[derive(Debug, Default)]
pub struct Usage(BTreeMap<Command, BTreeSet<String>>);

impl Usage {
    /// These GPUs, and those that the command was on though they are gone: `None` = the run may compute on it, else why it is not thought to.
    ///
    /// Of a command that has not run yet nobody knows. It may be like any other of its campaign, so it has their GPUs. One that none of
    /// them was on is no warmer than whoever else uses it makes it, and a run on the CPU would wait for that in vain.
    pub fn of<'g>(&self, spec: &RunSpec, there: impl IntoIterator<Item = &'g str>) -> BTreeMap<String, Option<String>> {
        let known = command(spec).map(|command| self.0.get(&command));
        let there = there.into_iter().map(str::to_owned).chain(known.flatten().into_iter().flatten().cloned());
        let why = |gpu: &String| match known {
            None => Some("the engine runs on the CPU"),
            Some(Some(on)) => (!on.contains(gpu)).then_some("the last run of this command did not compute on it"),
            Some(None) => (!self.0.values().any(|on| on.contains(gpu))).then_some("no run of this session was seen to compute on it"),
        };
        there.map(|gpu| (gpu.clone(), why(&gpu).map(str::to_owned))).collect()
    }

    /// A run is over.
    pub fn learn(&mut self, spec: &RunSpec, result: &RunResult) {
        let Some(command) = command(spec) else { return };
        let on: BTreeSet<String> = result.gpu_processes.iter().filter(|process| process.of_run).map(|process| process.gpu.clone()).collect();
        // To be seen on none means something only where others were seen, and for a run that was looked at for long enough.
        let mut known = self.0.values().flatten().peekable();
        if !on.is_empty() || known.peek().is_some() && known.all(|gpu| is_listed(result, gpu)) {
            self.0.insert(command, on);
        }
    }
}

/// `None` = it is not one.
fn command(spec: &RunSpec) -> Option<Command> {
    match &spec.task {
        Task::Process(process) => Some((process.argv.clone(), spec.env.clone())),
        Task::Serve(serve) => Some((serve.argv.clone(), spec.env.clone())),
        Task::Infer(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::columns::ColumnName;
    use isotherm_wire::inspect::Machine;
    use isotherm_wire::result::{AgentFacts, GpuProcess};
    use isotherm_wire::telemetry::Column;

    const THERE: [&str; 2] = ["GPU-a", "GPU-b"];

    fn spec(task: &str) -> RunSpec {
        let spec = serde_json::json!({
            "task": serde_json::from_str::<serde_json::Value>(task).unwrap(), "settle_ms": 0, "timeout_ms": 1, "grace_ms": 1, "sample_hz": 1.0,
            "env": {}, "cwd": "/", "watched": [],
        });
        serde_json::from_value(spec).unwrap()
    }

    fn command(name: &str) -> RunSpec {
        spec(&format!(r#"{{"process": {{"argv": ["{name}"], "warmup": 0, "collect": []}}}}"#))
    }

    /// A run of some seconds that was listed on these GPUs among all.
    fn run(seconds: u64, on: &[&str]) -> RunResult {
        let agent = AgentFacts { version: String::new(), sha256: String::new(), target: String::new() };
        let mut run = RunResult::unexecuted("r".into(), serde_json::Value::Null, agent, Machine::default());
        (run.times.spawn_ns, run.times.exit_ns) = (Some(0), Some(seconds * 1_000_000_000));
        run.samples.monotonic_ns = (0..=seconds).map(|second| second * 1_000_000_000).collect();
        run.samples.columns = THERE.map(|gpu| of_gpu(gpu, seconds as usize + 1)).into();
        let process = |of_run: bool, gpu: &str| GpuProcess { gpu: gpu.into(), pid: 7, name: None, memory_bytes: None, before: !of_run, of_run };
        run.gpu_processes = on.iter().map(|gpu| process(true, gpu)).chain([process(false, "GPU-b")]).collect();
        run
    }

    fn of_gpu(gpu: &str, n: usize) -> Column {
        let metric = ColumnName::GpuProcesses.entry().name.into();
        Column { metric, unit: "count".into(), subject: Some(gpu.into()), source: String::new(), values: vec![Some(1.0); n] }
    }

    fn waited_for(usage: &Usage, spec: &RunSpec) -> Vec<String> {
        usage.of(spec, THERE).into_iter().filter(|(_, left_out)| left_out.is_none()).map(|(gpu, _)| gpu).collect()
    }

    #[test]
    fn a_command_is_waited_for_where_it_was_and_a_new_one_where_any_was() {
        let mut usage = Usage::default();
        assert!(waited_for(&usage, &command("cuda")).is_empty());
        assert_eq!(usage.of(&command("cuda"), THERE)["GPU-a"].as_deref(), Some("no run of this session was seen to compute on it"));
        // What others do there is nothing of it.
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]));
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
        assert_eq!(waited_for(&usage, &command("other")), ["GPU-a"], "nobody knows it yet");
        usage.learn(&command("other"), &run(5, &[]));
        assert!(waited_for(&usage, &command("other")).is_empty());
        assert_eq!(usage.of(&command("other"), THERE)["GPU-a"].as_deref(), Some("the last run of this command did not compute on it"));
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
        // One that has fallen off its bus is missed by whoever was on it, and by nobody else.
        assert_eq!(usage.of(&command("cuda"), [])["GPU-a"], None);
        assert!(usage.of(&command("new"), []).is_empty());
    }

    #[test]
    fn a_run_that_was_seen_nowhere_says_nothing_if_it_was_short_or_nobody_ever_was_seen() {
        let mut usage = Usage::default();
        usage.learn(&command("in a container"), &run(5, &[]));
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]));
        usage.learn(&command("short"), &run(0, &[]));
        for name in ["in a container", "short"] {
            assert_eq!(waited_for(&usage, &command(name)), ["GPU-a"], "{name}");
        }
        // So does a short one of a command that is known.
        usage.learn(&command("cuda"), &run(0, &[]));
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
    }

    #[test]
    fn an_engine_on_the_cpu_waits_for_no_gpu() {
        let mut usage = Usage::default();
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]));
        let infer = r#"{"infer": {"model": "m", "threads": 1, "warmup": 0, "rounds": 1, "iterations": 1, "cooldown_ms": 0, "seed": 1}}"#;
        assert!(waited_for(&usage, &spec(infer)).is_empty());
        assert_eq!(usage.of(&spec(infer), THERE).len(), 2, "and says so of each");
    }
}
