//! A bench with a campaign for its boards, whose jobs say that they have started, and go on when they may.

use crate::boards::{Bench, Setup};
use crate::lab::{Ran, eventually, spawn};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Child;

const WORKLOAD: &str = "#!/bin/sh\necho $1 >> count\nwhile [ ! -e gate.$1 ]; do sleep 0.01; done\necho done $1\n";

pub struct Rig {
    pub bench: Bench,
    /// Homes of the boards, in the lab.
    homes: BTreeSet<String>,
}

impl Rig {
    /// Jobs 1 and 2, the gate of the second open.
    pub fn new(setup: &Setup<'_>) -> Option<Rig> {
        Rig::of(&[*setup])
    }

    /// The same on each of these boards.
    pub fn of(setups: &[Setup<'_>]) -> Option<Rig> {
        let rig = Rig { bench: Bench::of(setups)?, homes: setups.iter().map(Setup::home).collect() };
        for setup in setups {
            rig.bench.lab.write(&format!("{}/workload.sh", setup.home()), WORKLOAD);
            // The board's user appends to it.
            let count = rig.bench.lab.write(&format!("{}/count", setup.home()), "");
            std::os::unix::fs::chown(count, Some(setup.uid), Some(setup.uid)).unwrap();
        }
        rig.campaign("");
        rig.open(2);
        Some(rig)
    }

    /// `c.yaml` for the boards, with these keys of `ssh` as well.
    pub fn campaign(&self, ssh: &str) {
        let device = |name: &&str| format!("{name}: {{ ssh: {{ host: {name}, config: ssh_config{ssh} }} }}");
        self.campaign_of(&self.names().iter().map(device).collect::<Vec<_>>().join(", "), &self.names().join(", "));
    }

    fn names(&self) -> Vec<&str> {
        self.bench.boards.iter().map(|board| &*board.name).collect()
    }

    /// `c.yaml` with these devices, for those of this list.
    pub fn campaign_of(&self, devices: &str, list: &str) {
        let text = format!(
            "devices: {{ {devices} }}
defaults: {{ retry_contaminated: 0, repetitions: 1, timeout: 60s, warmup: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: [{list}], backend: command, params: {{ job: [1, 2] }}, argv: [./workload.sh, \"{{job}}\"] }}
"
        );
        self.bench.lab.write("c.yaml", text);
    }

    /// Before it ends this job says so many bytes on every board.
    pub fn says_much(&self, job: u32, bytes: u64) {
        for home in &self.homes {
            let said = format!("[ $1 != {job} ] || head -c {bytes} /dev/zero | tr '\\0' x >&2\n");
            self.bench.lab.write(&format!("{home}/workload.sh"), format!("{WORKLOAD}{said}"));
        }
    }

    pub fn run(&self) -> Ran {
        self.bench.run(&["run", "c.yaml"])
    }

    /// `isotherm run c.yaml`, which is executing job 1 on a board when this returns. A link without a sign of life is given up within seconds.
    pub fn start(&self) -> Child {
        let before = self.executions(1);
        let controller = self.begin(Some("1"));
        eventually("job 1 has started", || (self.executions(1) > before).then_some(()));
        controller
    }

    /// `isotherm run c.yaml`, which asks a silent device after so many seconds whether it is there, if not as always.
    pub fn begin(&self, alive_s: Option<&str>) -> Child {
        spawn(self.bench.isotherm(&["run", "c.yaml"]).envs(alive_s.map(|seconds| ("ISOTHERM_SSH_ALIVE_S", seconds))))
    }

    /// The board is its own jump host, `gate`; with these lines of its configuration where it isn't.
    pub fn through_itself(&self, more: &str) {
        let config = self.bench.lab.read("ssh_config");
        self.bench.lab.write("ssh_config", format!("{config}{more}Host gate\n{}", config.split_once('\n').unwrap().1));
        self.campaign(", proxy_jump: gate");
    }

    /// Wait until a job is executing, for the first time.
    #[track_caller]
    pub fn has_started(&self, job: u32) {
        eventually(&format!("job {job} has started"), || (self.executions(job) == 1).then_some(()));
    }

    /// Let a job that is executing end on a slow wire, and wait until more than so many bytes of its result have come; what had come over it
    /// before that.
    #[track_caller]
    pub fn fetch_slowly(&self, job: u32, rate: &str, bytes: u64) -> u64 {
        self.has_started(job);
        assert!(self.bench.slow_down(rate), "this kernel has tbf");
        let before = self.bench.received();
        self.open(job);
        eventually("a part of it has come", || (self.bench.received() - before > bytes).then_some(()));
        before
    }

    /// End the server's end of each connection.
    #[track_caller]
    pub fn end_sessions(&self) {
        let sessions = self.bench.processes().into_iter().filter(|(_, line)| line.starts_with("sshd: "));
        self.bench.kill(&sessions.map(|(pid, _)| pid).collect::<Vec<_>>());
    }

    pub fn open(&self, job: u32) {
        for home in &self.homes {
            self.bench.lab.write(&format!("{home}/gate.{job}"), "");
        }
    }

    pub fn executions(&self, job: u32) -> usize {
        let counts = self.homes.iter().map(|home| self.bench.lab.read(&format!("{home}/count")));
        counts.map(|count| count.lines().filter(|line| *line == job.to_string()).count()).sum()
    }

    /// Is a result in a board's spool?
    pub fn sealed(&self) -> bool {
        self.states().iter().any(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("result-")))
    }

    /// Files of the state directories.
    fn states(&self) -> Vec<PathBuf> {
        let states: Vec<PathBuf> = self.homes.iter().map(|home| self.bench.lab.path(home).join(".local/state/isotherm")).collect();
        self.bench.lab.all_files().into_iter().filter(|file| states.iter().any(|state| file.starts_with(state))).collect()
    }

    /// State directories, one for each machine.
    pub fn machines(&self) -> BTreeSet<PathBuf> {
        self.states().into_iter().filter(|file| file.ends_with("keeper.log")).filter_map(|log| Some(log.parent()?.to_owned())).collect()
    }

    /// How often an event of this name is in the journal.
    pub fn events(&self, name: &str) -> usize {
        self.bench.lab.events("c", name).len()
    }

    /// Both jobs have one answer each of every board, after so many executions in all; so many failed attempts are kept beside them, and
    /// nothing is left on any board.
    #[track_caller]
    pub fn settled(&self, executions: [usize; 2], attempts: usize) {
        assert_eq!([self.executions(1), self.executions(2)], executions);
        let answers = self.bench.lab.answered("c", &self.names(), 2, attempts);
        assert!(answers.iter().all(|answer| answer["device"]["transport"] == "ssh"), "{answers:?}");
        let started: BTreeSet<String> = self.bench.lab.events("c", "started").iter().map(|event| event["run_id"].to_string()).collect();
        assert_eq!(started.len(), answers.len() + attempts, "nothing was started twice");
        self.bench.nothing_is_left();
    }
}

/// How a controller that was started ended.
#[track_caller]
pub fn end(mut controller: Child, code: i32) -> Ran {
    eventually("the controller has ended", || controller.try_wait().unwrap());
    Ran::of(controller).expect(code)
}
