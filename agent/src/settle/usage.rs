//! Which GPUs a run is likely to compute on: those that earlier runs of the results directory did.
//!
//! Takes what a run executes and, later, who computed while it did; gives every GPU, with the reason where it is not waited for; must not
//! know what is waited for, nor where this is kept.

use crate::capture;
use isotherm_wire::gpu::is_off;
use isotherm_wire::result::RunResult;
use isotherm_wire::task::{RunSpec, Task};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// By command, the GPUs that its last run computed on, of those of which it was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Usage(BTreeMap<String, BTreeSet<String>>);

/// What a GPU is to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It may compute on it as its last one did, or one like it.
    Expected,
    /// Nobody knows.
    Unknown,
    /// It is not thought to, and why.
    Off(&'static str),
}

impl Usage {
    /// These GPUs, and those that the command was on though they are gone.
    ///
    /// Of a command that has not run yet nobody knows. It may be like any other of its campaign, so it has their GPUs. One that none of
    /// them was on is no warmer than whoever else uses it makes it, and a run on the CPU would wait for that in vain.
    pub fn of<'g>(&self, spec: &RunSpec, there: impl IntoIterator<Item = &'g str>) -> BTreeMap<String, Use> {
        let known = command(spec).map(|command| self.0.get(&command));
        let there = there.into_iter().map(str::to_owned).chain(known.flatten().into_iter().flatten().cloned());
        let of = |gpu: &String| match known {
            None => Use::Off("the engine runs on the CPU"),
            Some(Some(on)) if on.contains(gpu) => Use::Expected,
            Some(Some(_)) => Use::Off("the last run of this command did not compute on it"),
            Some(None) if self.0.values().any(|on| on.contains(gpu)) => Use::Expected,
            Some(None) => Use::Unknown,
        };
        there.map(|gpu| (gpu.clone(), of(&gpu))).collect()
    }

    /// A run is over. `well`: by itself, with exit code 0; one that failed may have done so before it came to the GPU.
    pub fn learn(&mut self, spec: &RunSpec, result: &RunResult, well: bool) {
        let Some(command) = command(spec) else { return };
        let on: BTreeSet<String> = result.gpu_processes.iter().filter(|process| process.of_run).map(|process| process.gpu.clone()).collect();
        // To be seen on none means something only where others were seen, for a run that was looked at for long enough, and where nobody came
        // who may have worked for it.
        let mut known = self.0.values().flatten().peekable();
        let mut is_off_all =
            || known.peek().is_some() && known.all(|gpu| is_off(result, gpu)) && result.gpu_processes.iter().all(|process| process.before);
        match well {
            true if !on.is_empty() || is_off_all() => _ = self.0.insert(command, on),
            false if !on.is_empty() => self.0.entry(command).or_default().extend(on),
            _ => {}
        }
    }
}

/// What tells one command from another: its arguments and variables, which are too many to be kept as they are. `None` = it is not one.
fn command(spec: &RunSpec) -> Option<String> {
    match &spec.task {
        Task::Process(process) => Some(capture::sha256_hex(&serde_json::to_vec(&(&process.argv, &spec.env)).unwrap_or_default())[..16].to_owned()),
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
        usage.of(spec, THERE).into_iter().filter(|(_, it)| *it == Use::Expected).map(|(gpu, _)| gpu).collect()
    }

    #[test]
    fn a_command_is_waited_for_where_it_was_and_a_new_one_where_any_was() {
        let mut usage = Usage::default();
        assert!(waited_for(&usage, &command("cuda")).is_empty());
        assert_eq!(usage.of(&command("cuda"), THERE)["GPU-a"], Use::Unknown);
        // What others do there is nothing of it.
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]), true);
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
        assert_eq!(waited_for(&usage, &command("other")), ["GPU-a"], "nobody knows it yet");
        usage.learn(&command("other"), &run(5, &[]), true);
        assert!(waited_for(&usage, &command("other")).is_empty());
        assert_eq!(usage.of(&command("other"), THERE)["GPU-a"], Use::Off("the last run of this command did not compute on it"));
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
        // One that has fallen off its bus is missed by whoever was on it, and by nobody else.
        assert_eq!(usage.of(&command("cuda"), [])["GPU-a"], Use::Expected);
        assert!(usage.of(&command("new"), []).is_empty());
    }

    #[test]
    fn a_run_that_was_seen_nowhere_says_nothing_if_it_was_short_or_nobody_ever_was_seen() {
        let mut usage = Usage::default();
        usage.learn(&command("in a container"), &run(5, &[]), true);
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]), true);
        usage.learn(&command("short"), &run(0, &[]), true);
        for name in ["in a container", "short"] {
            assert_eq!(waited_for(&usage, &command(name)), ["GPU-a"], "{name}");
        }
        // So does a short one of a command that is known.
        usage.learn(&command("cuda"), &run(0, &[]), true);
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
    }

    #[test]
    fn a_run_that_did_not_end_well_takes_no_gpu_from_its_command() {
        let mut usage = Usage::default();
        usage.learn(&command("cuda"), &run(5, &["GPU-a", "GPU-b"]), true);
        for on in [&[][..], &["GPU-a"]] {
            usage.learn(&command("cuda"), &run(5, on), false);
            assert_eq!(waited_for(&usage, &command("cuda")), THERE);
        }
        // Where it was seen it was all the same, however it ended.
        usage.learn(&command("other"), &run(5, &["GPU-b"]), false);
        assert_eq!(waited_for(&usage, &command("other")), ["GPU-b"]);
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]), true);
        assert_eq!(waited_for(&usage, &command("cuda")), ["GPU-a"]);
    }

    #[test]
    fn a_command_under_which_somebody_came_to_a_gpu_is_not_thought_to_be_off_it() {
        let mut usage = Usage::default();
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]), true);
        for gpu in THERE {
            let mut in_a_container = run(5, &[]);
            in_a_container.gpu_processes.push(GpuProcess {
                gpu: gpu.into(),
                pid: 9,
                name: Some("bench".into()),
                memory_bytes: None,
                before: false,
                of_run: false,
            });
            usage.learn(&command("docker"), &in_a_container, true);
            assert_eq!(waited_for(&usage, &command("docker")), ["GPU-a"]);
        }
    }

    #[test]
    fn an_engine_on_the_cpu_waits_for_no_gpu() {
        let mut usage = Usage::default();
        usage.learn(&command("cuda"), &run(5, &["GPU-a"]), true);
        let infer = r#"{"infer": {"model": "m", "threads": 1, "warmup": 0, "rounds": 1, "iterations": 1, "cooldown_ms": 0, "seed": 1}}"#;
        assert!(waited_for(&usage, &spec(infer)).is_empty());
        assert_eq!(usage.of(&spec(infer), THERE).len(), 2, "and says so of each");
    }
}
