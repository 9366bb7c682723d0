//! Executing a tool to see whether it answers: contained like a run, ended by its own pid when its time is over.

use super::COPY;
use super::trial::absent;
use crate::contain::{self, Deadline, Keep, Launch};
use crate::{capture, sys};
use isotherm_wire::inspect::{ContainmentCapability, MOST_SAID_BYTES};
use isotherm_wire::probe::{Absent, Cause};
use isotherm_wire::task::Secrets;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between TERM and KILL of a tool that doesn't answer.
const GRACE_MS: u64 = 500;
/// Output kept of each end of a stream of what is tried, bytes.
const KEPT: usize = 64 << 10;

/// Executes what is to be tried.
pub enum Runner {
    Contained(ContainmentCapability),
    /// Below a root of its own: nothing is executed.
    Nothing,
}

/// What a tool left.
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    /// It exited, and with 0.
    pub ok: bool,
}

impl Runner {
    /// Finds out how a run can be contained here.
    ///
    /// # Errors
    /// Nothing would, in words.
    pub fn contained() -> Result<Runner, String> {
        // What a tool leaves behind comes to us and is ended, as it is by a keeper.
        contain::trial(sys::become_subreaper()).map(Runner::Contained)
    }

    pub fn containment(&self) -> ContainmentCapability {
        match self {
            Runner::Contained(capability) => capability.clone(),
            Runner::Nothing => ContainmentCapability { reasons: vec![COPY.into()], ..ContainmentCapability::default() },
        }
    }

    /// Execute a program with nothing of our environment, and wait for its end.
    pub fn run(&self, argv: &[&str], stdin: Option<String>, limit: Duration) -> Result<Output, Absent> {
        self.launch("/", &BTreeMap::new(), argv, stdin, limit, KEPT)
    }

    /// What it says of itself when it is executed in this directory, with these variables.
    pub fn ask_in(&self, cwd: &str, env: &BTreeMap<String, String>, argv: &[&str], limit: Duration) -> Result<Output, Absent> {
        self.launch(cwd, env, argv, None, limit, MOST_SAID_BYTES)
    }

    fn launch(
        &self,
        cwd: &str,
        own_env: &BTreeMap<String, String>,
        argv: &[&str],
        stdin: Option<String>,
        limit: Duration,
        kept: usize,
    ) -> Result<Output, Absent> {
        let Runner::Contained(capability) = self else { return Err(absent(Cause::NotTried, COPY)) };
        let env = [("PATH", crate::inspect::files::DEFAULT_PATH), ("LANG", "C.UTF-8"), ("RTEN_NUM_THREADS", "1")];
        let launch = Launch {
            argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain(own_env.clone()).collect(),
            cwd: cwd.into(),
            stdin,
            grace_ms: GRACE_MS,
            cgroup: None,
            cpus: None,
        };
        let deadline = Deadline { timeout_ns: limit.as_nanos() as u64, grace_ns: GRACE_MS * 1_000_000 };
        let keep = Keep { bytes: kept, secrets: &Secrets::default(), stamps: false };
        let ended =
            contain::run(&launch, capability.level, deadline, -1, keep, None, &mut |_| {}).map_err(|e| absent(Cause::Failed, &e.to_string()))?;
        if let Some(why) = ended.launch_failed.or(ended.spawn_failed.map(|(why, _)| why)) {
            return Err(absent(Cause::Failed, &why));
        }
        if ended.timed_out {
            return Err(absent(Cause::NoAnswer, &format!("no answer within {} s", limit.as_secs_f64())));
        }
        let text = |capture: Option<capture::Capture>| {
            let head = capture.map(capture::Capture::finish).map(|captured| captured.head);
            head.filter(|blob| blob.encoding == isotherm_wire::result::Encoding::Utf8).map(|blob| blob.data).unwrap_or_default()
        };
        Ok(Output { stdout: text(ended.stdout), stderr: text(ended.stderr), ok: ended.wait_status == Some(0) })
    }
}
