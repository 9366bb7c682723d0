//! From a task to what is launched: argv, whole environment, working directory.

use crate::capture::KEPT_BYTES;
use crate::processes::RUN_ID_VARIABLE;
use crate::{dirs, inspect::files::DEFAULT_PATH};
use isotherm_wire::served::ServeTask;
use isotherm_wire::task::{InferTask, ProcessTask, RunSpec, Task};
use std::collections::BTreeMap;
use std::path::Path;

/// Invocations of a run, the warm-up ones first.
pub struct Invocation {
    pub argv: Vec<String>,
    /// What is said to have been executed: of a served workload the server, and not who asks it.
    pub executed: Vec<String>,
    pub stdin: Option<String>,
    /// How often it is invoked before the measured time.
    pub warmup: u32,
    /// Files that belong to the result, as asked.
    pub collect: Vec<String>,
    /// When lines arrived belongs to it, too.
    pub stamp_lines: bool,
    /// Bytes kept of each end of its output.
    pub keep: usize,
}

/// Each request of a served workload leaves a number for each of its tokens.
const KEPT_BYTES_OF_SERVED: usize = 4 << 20;

/// What a task invokes. Builtin tasks are the agent executing itself, so that time-outs, containment and crashes are one mechanism.
pub fn invocation(task: &Task) -> Result<Invocation, String> {
    match task {
        Task::Process(ProcessTask { argv, warmup, collect, stamp_lines }) => {
            let mut argv = argv.clone();
            // `~` of the program is the device's; arguments are the program's own business.
            if let Some(program) = argv.first_mut().filter(|p| p.starts_with('~')) {
                *program = dirs::expand_home(program).display().to_string();
            }
            let executed = argv.clone();
            Ok(Invocation { argv, executed, stdin: None, warmup: *warmup, collect: collect.clone(), stamp_lines: *stamp_lines, keep: KEPT_BYTES })
        }
        Task::Infer(infer) => Ok(itself("infer", None, infer_input(infer)?, KEPT_BYTES)),
        Task::Serve(serve) => {
            let home = |text: &String| if text.starts_with('~') { dirs::expand_home(text).display().to_string() } else { text.clone() };
            let is_path = |n: usize, text: &String| n == 0 || *text == serve.model;
            let argv: Vec<String> = serve.argv.iter().enumerate().map(|(n, text)| if is_path(n, text) { home(text) } else { text.clone() }).collect();
            let task = ServeTask { argv: argv.clone(), model: home(&serve.model), ..serve.clone() };
            let input = serde_json::to_string(&task).map_err(|e| e.to_string())?;
            Ok(itself("served", Some(argv), input, KEPT_BYTES_OF_SERVED))
        }
    }
}

/// The agent in a role of its own, which has its task on stdin.
fn itself(role: &str, executed: Option<Vec<String>>, stdin: String, keep: usize) -> Invocation {
    let argv = vec!["/proc/self/exe".to_owned(), role.to_owned()];
    Invocation {
        executed: executed.unwrap_or_else(|| argv.clone()),
        argv,
        stdin: Some(stdin),
        warmup: 0,
        collect: Vec::new(),
        stamp_lines: false,
        keep,
    }
}

fn infer_input(task: &InferTask) -> Result<String, String> {
    let model = dirs::expand_home(&task.model).display().to_string();
    serde_json::to_string(&InferTask { model, ..task.clone() }).map_err(|e| e.to_string())
}

/// The whole environment of a workload: nothing inherited, a few standard names, what the campaign declares.
pub fn environment(spec: &RunSpec, run_id: &str, scratch: &Path) -> BTreeMap<String, String> {
    let home = dirs::home().unwrap_or_else(|| "/".into());
    let user = std::env::var("USER").unwrap_or_else(|_| crate::sys::uid().to_string());
    let mut env: BTreeMap<String, String> = [
        ("PATH", DEFAULT_PATH.to_owned()),
        ("HOME", home.display().to_string()),
        ("USER", user),
        ("LANG", "C.UTF-8".to_owned()),
        ("TMPDIR", scratch.display().to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    if matches!(spec.task, Task::Infer(_)) {
        // rten 0.27 starts a default pool of its own beside the one it is given: keep it to one idle thread.
        env.insert("RTEN_NUM_THREADS".into(), "1".into());
    }
    env.extend(spec.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    // Last, so that nothing can take it away: what is left of a run is found by it.
    env.insert(RUN_ID_VARIABLE.into(), run_id.into());
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_empty_but_for_what_is_declared() {
        let task = Task::Process(ProcessTask { argv: vec!["x".into()], warmup: 0, collect: vec![], stamp_lines: false });
        let env = [("PATH".to_owned(), "/opt".to_owned()), ("ISOTHERM_RUN_ID".to_owned(), "other".to_owned())].into();
        let spec = RunSpec {
            prepare: Vec::new(),
            model: None,
            task,
            settle_ms: 0,
            settle: None,
            limits: None,
            timeout_ms: 1,
            grace_ms: 1,
            sample_hz: 1.0,
            instruments: Default::default(),
            env,
            secrets: Default::default(),
            cpus: None,
            needs_bytes: None,
            cwd: "/".into(),
            watched: vec![],
        };
        let env = environment(&spec, "0192", Path::new("/scratch"));
        let names: Vec<&str> = env.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "ISOTHERM_RUN_ID", "LANG", "PATH", "TMPDIR", "USER"]);
        assert_eq!((env["PATH"].as_str(), env["ISOTHERM_RUN_ID"].as_str(), env["LANG"].as_str()), ("/opt", "0192", "C.UTF-8"));
    }
}
