//! A bench with a campaign for its board, whose jobs say that they have started, and go on when they may.

use crate::boards::{Bench, Setup};
use crate::lab::{Ran, eventually};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

const WORKLOAD: &str = "#!/bin/sh\necho $1 >> count\nwhile [ ! -e gate.$1 ]; do sleep 0.01; done\necho done $1\n";

pub struct Rig {
    pub bench: Bench,
}

impl Rig {
    /// Jobs 1 and 2, the gate of the second open.
    pub fn new(setup: &Setup<'_>) -> Option<Rig> {
        let rig = Rig { bench: Bench::new(setup)? };
        rig.bench.lab.write("board/home/workload.sh", WORKLOAD);
        rig.campaign("");
        rig.open(2);
        // The board's user appends to it.
        fs::write(rig.bench.lab.path("board/home/count"), "").unwrap();
        std::os::unix::fs::chown(rig.bench.lab.path("board/home/count"), Some(setup.uid), Some(setup.uid)).unwrap();
        Some(rig)
    }

    /// `c.yaml`, its device with these keys of `ssh` as well.
    pub fn campaign(&self, ssh: &str) {
        self.campaign_of(&format!("board: {{ ssh: {{ host: board, config: ssh_config{ssh} }} }}"), "board");
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

    pub fn run(&self) -> Ran {
        self.bench.run(&["run", "c.yaml"])
    }

    /// `isotherm run c.yaml`, which is executing job 1 when this returns. A link without a sign of life is given up within seconds.
    pub fn start(&self) -> Child {
        let before = self.executions(1);
        let mut command = self.bench.isotherm(&["run", "c.yaml"]);
        let controller = command.env("ISOTHERM_SSH_ALIVE_S", "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("job 1 has started", || (self.executions(1) > before).then_some(()));
        controller
    }

    pub fn open(&self, job: u32) {
        self.bench.lab.write(&format!("board/home/gate.{job}"), "");
    }

    pub fn executions(&self, job: u32) -> usize {
        self.bench.lab.read("board/home/count").lines().filter(|line| *line == job.to_string()).count()
    }

    /// Is a result in the board's spool?
    pub fn sealed(&self) -> bool {
        let state = self.bench.lab.path("board/home/.local/state/isotherm");
        let is_result =
            |file: &PathBuf| file.starts_with(&state) && file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("result-"));
        self.bench.lab.all_files().iter().any(is_result)
    }

    /// How often an event of this name is in the journal.
    pub fn events(&self, name: &str) -> usize {
        let journal = fs::read_to_string(self.bench.lab.results("c").join("journal.ndjson")).unwrap_or_default();
        journal.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok_and(|event| event["event"] == name)).count()
    }

    /// Both jobs have one answer each, after so many executions; so many failed attempts are kept beside them, and nothing is left on the board.
    #[track_caller]
    pub fn settled(&self, executions: [usize; 2], attempts: usize) {
        assert_eq!([self.executions(1), self.executions(2)], executions);
        let records = self.bench.lab.records("c");
        let is_attempt = |path: &PathBuf| path.display().to_string().contains(".attempt");
        let answers: Vec<&Value> = records.iter().filter(|(path, _)| !is_attempt(path)).map(|(_, record)| record).collect();
        let mut jobs: Vec<i64> = answers.iter().map(|record| record["ids"]["point"]["axes"]["job"].as_i64().unwrap()).collect();
        jobs.sort_unstable();
        assert_eq!((jobs, records.len()), (vec![1, 2], 2 + attempts), "{records:?}");
        for answer in answers {
            assert_eq!(answer["status"], "ok", "{answer}");
            assert_eq!(answer["raw"]["stdout"]["head"]["data"], format!("done {}\n", answer["ids"]["point"]["axes"]["job"]));
            assert_eq!(answer["device"]["transport"], "ssh");
        }
        self.bench.lab.run(&["verify", "results/c"]).expect(0);
        self.bench.nothing_is_left();
    }
}

/// How a controller that was started ended.
#[track_caller]
pub fn end(mut controller: Child, code: i32) -> Ran {
    eventually("the controller has ended", || controller.try_wait().unwrap());
    Ran(controller.wait_with_output().unwrap()).expect(code)
}
