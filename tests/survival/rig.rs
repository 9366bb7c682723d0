//! A lab with a campaign whose jobs say that they have started, and go on when they may.

use crate::lab::{Lab, Ran, User, eventually};
use std::fs;
use std::path::PathBuf;
use std::process::Child;

/// Notes that it runs, then waits for its gate.
const WORKLOAD: &str = "#!/bin/sh\necho $1 >> count\nwhile [ ! -e gate.$1 ]; do sleep 0.01; done\necho done $1\n";

pub struct Rig {
    pub lab: Lab,
    pub user: User,
}

impl Rig {
    /// Jobs 1 and 2; the gate of the second is open.
    pub fn new(user: User) -> Rig {
        let rig = Rig { lab: Lab::of(user), user };
        rig.lab.write("workload.sh", WORKLOAD);
        rig.campaign("c", "local: {}");
        rig.open(2);
        rig
    }

    /// A campaign file with this name and device.
    pub fn campaign(&self, name: &str, device: &str) {
        let text = format!(
            "campaign: {name}
devices: {{ here: {{ {device} }} }}
defaults: {{ repetitions: 1, timeout: 60s, warmup: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: here, backend: command, params: {{ job: [1, 2] }}, argv: [./workload.sh, \"{{job}}\"] }}
"
        );
        self.lab.write(&format!("{name}.yaml"), text);
    }

    /// `isotherm run c.yaml`, which is executing job 1 when this returns.
    pub fn start(&self) -> Child {
        let before = self.executions(1);
        let controller = self.lab.start(&["run", "c.yaml"]);
        self.executing(1, before + 1);
        controller
    }

    pub fn run(&self) -> Ran {
        self.lab.run(&["run", "c.yaml"])
    }

    /// Wait until a job has been started for the n-th time.
    #[track_caller]
    pub fn executing(&self, job: u32, n: usize) {
        eventually(&format!("job {job} has started {n} times"), || (self.executions(job) >= n).then_some(()));
    }

    /// Let a job end, now and whenever it runs.
    pub fn open(&self, job: u32) {
        self.lab.write(&format!("gate.{job}"), "");
    }

    /// How often a job has been started.
    pub fn executions(&self, job: u32) -> usize {
        self.lab.read("count").lines().filter(|line| *line == job.to_string()).count()
    }

    /// Both jobs have one answer each, and these numbers of executions; a failed attempt is kept beside it. Nothing is left, and the
    /// device is free.
    #[track_caller]
    pub fn settled(&self, executions: [usize; 2], attempts: usize) {
        assert_eq!([self.executions(1), self.executions(2)], executions, "{:?}", self.user);
        self.lab.answered("c", &["here"], 2, attempts);
        assert!(self.spooled().is_empty(), "{:?}", self.spooled());
        self.nothing_is_left();
        self.device_is_free();
    }

    #[track_caller]
    pub fn nothing_is_left(&self) {
        eventually("no process of the lab is left", || self.lab.processes().is_empty().then_some(()));
    }

    /// Another campaign gets the device at once.
    #[track_caller]
    pub fn device_is_free(&self) {
        self.campaign("other", "local: {}");
        fs::write(self.lab.path("gate.1"), "").unwrap();
        let counted = self.lab.read("count");
        self.lab.run(&["run", "other.yaml"]).expect(0);
        self.lab.write("count", counted);
        self.nothing_is_left();
    }

    /// Runs in the spool of this lab's device, each with whether its result is sealed.
    pub fn spooled(&self) -> Vec<(PathBuf, bool)> {
        let machines = fs::read_dir(self.lab.path("state/isotherm")).into_iter().flatten().flatten();
        let runs = machines.flat_map(|machine| fs::read_dir(machine.path().join("spool")).into_iter().flatten().flatten());
        let sealed = |dir: &PathBuf| {
            let mut files = fs::read_dir(dir).into_iter().flatten().flatten();
            files.any(|f| f.file_name().to_string_lossy().starts_with("result-"))
        };
        runs.map(|run| run.path()).map(|dir| (dir.clone(), sealed(&dir))).collect()
    }

    /// Wait until the only run in the spool is sealed; its directory.
    #[track_caller]
    pub fn sealed(&self) -> PathBuf {
        eventually("the run is sealed", || match &self.spooled()[..] {
            [(dir, true)] => Some(dir.clone()),
            _ => None,
        })
    }

    /// KILL, and wait until it is gone (its parent may not have waited for it yet).
    #[track_caller]
    pub fn kill(&self, pids: &[i32]) {
        assert!(!pids.is_empty(), "nobody to kill: {:?}", self.lab.processes());
        signal(pids, libc::SIGKILL);
        eventually("they are gone", || pids.iter().all(|pid| !self.lab.processes().contains(pid)).then_some(()));
    }

    /// How often an event of this name is in the journal.
    pub fn events(&self, name: &str) -> usize {
        self.lab.events("c", name).len()
    }
}

pub fn signal(pids: &[i32], signal: i32) {
    for &pid in pids {
        // SAFETY: plain integers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// How a controller that was started ended.
#[track_caller]
pub fn end(mut controller: Child, code: Option<i32>) -> Ran {
    eventually("the controller has ended", || controller.try_wait().unwrap());
    let ran = Ran::of(controller);
    assert_eq!(ran.code(), code, "stdout:\n{}\nstderr:\n{}", ran.stdout(), ran.stderr());
    ran
}
