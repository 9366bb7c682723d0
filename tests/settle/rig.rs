//! A quiet board, and a night on it that is followed look by look.

use crate::board::Board;
use crate::driver;
use crate::lab::{Clocks, User, spawn};
use serde_json::Value;
use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout};

pub const LIVE_BITS: &str = "devices/platform/soc/soc:firmware/get_throttled";
const LIMIT: &str = "devices/system/cpu/cpufreq/policy0/scaling_max_freq";

pub struct Rig {
    pub board: Board,
    clock_s: Cell<i64>,
    /// By which a GPU is found, where there is one.
    variables: Vec<(&'static str, PathBuf)>,
}

impl Rig {
    /// A board at 45 °C that nobody works on. Its campaign settles as `settle` says; its workload is over at once.
    pub fn new(user: User, settle: &str) -> Option<Rig> {
        let rig = Rig { board: Board::new(user)?, clock_s: Cell::new(0), variables: Vec::new() };
        rig.board.zone(1, "gpu-thermal", 30_000);
        rig.heat(45_000);
        rig.board.set(LIVE_BITS, "50000");
        rig.board.set("devices/system/cpu/cpufreq/policy0/affected_cpus", "0 1");
        rig.board.set("devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "600000");
        rig.board.set("devices/system/cpu/cpufreq/policy0/scaling_min_freq", "600000");
        rig.cap(1_500_000);
        rig.busy_ticks(0);
        rig.pass(0);
        rig.board.lab.write("workload.sh", "#!/bin/sh\necho >> started\n");
        let campaign = rig.board.lab.read("c.yaml").replace("settle: 0ms", &format!("settle: {settle}"));
        rig.board.lab.write("c.yaml", campaign.replace("sample_hz: 50", "sample_hz: 5"));
        Some(rig)
    }

    /// Such a board with a GPU of NVIDIA.
    pub fn with_gpu(user: User, settle: &str) -> Option<Rig> {
        let mut rig = Rig::new(user, settle)?;
        rig.variables = vec![("ISOTHERM_NVML", driver::library(&rig.board.lab, "gcc", &[]))];
        Some(rig)
    }

    /// Likewise, and `nvidia-smi` is who tells of it.
    pub fn with_smi(user: User, settle: &str) -> Option<Rig> {
        let mut rig = Rig::new(user, settle)?;
        driver::smi(&rig.board.lab);
        let path = format!("{}:/usr/bin:/bin", rig.board.lab.path("bin").display());
        rig.variables = vec![("ISOTHERM_NVML", rig.board.lab.path("none")), ("PATH", path.into())];
        Some(rig)
    }

    pub fn edit(&self, from: &str, to: &str) {
        let text = self.board.lab.read("c.yaml");
        assert!(text.contains(from), "{text}");
        self.board.lab.write("c.yaml", text.replace(from, to));
    }

    pub fn heat(&self, millicelsius: i64) {
        self.board.zone(0, "cpu-thermal", millicelsius);
    }

    /// The upper frequency limit, kHz.
    pub fn cap(&self, khz: u32) {
        self.board.set(LIMIT, &khz.to_string());
    }

    /// What the machine's CPUs have worked since it was booted.
    pub fn busy_ticks(&self, ticks: u64) {
        let stat = format!("cpu  {ticks:012} 0 0 1000 0 0 0 0 0 0\ncpu0 {ticks:012} 0 0 1000 0 0 0 0 0 0\nctxt 1\nintr 1\nprocs_running 1\n");
        self.board.lab.write_in_place("stat", stat);
    }

    /// Let time pass on the board.
    pub fn pass(&self, seconds: i64) {
        self.clock_s.set(self.clock_s.get() + seconds);
        self.board.lab.set_clocks(Clocks::passed(self.clock_s.get()));
    }

    pub fn start(&self) -> Night {
        let variables = self.variables.iter().cloned().chain([self.board.lab.clock()]);
        let mut controller = spawn(self.board.inside(&["run", "c.yaml", "--json"]).envs(variables));
        let events = BufReader::new(controller.stdout.take().unwrap()).lines();
        Night { controller, events, said: Vec::new() }
    }

    /// What the device has kept of its first contact.
    #[track_caller]
    pub fn reference(&self) -> Value {
        let machine = fs::read_dir(self.board.lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path();
        let file = fs::read_dir(machine.join("references")).unwrap().next().unwrap().unwrap().path();
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// All records in the order of their repetitions.
    pub fn records(&self) -> Vec<Value> {
        self.board.lab.records("c").into_iter().map(|(_, record)| record).collect()
    }
}

/// A night on its way.
pub struct Night {
    pub controller: Child,
    events: Lines<BufReader<ChildStdout>>,
    /// Events so far.
    said: Vec<Value>,
}

impl Night {
    /// The next event of one of these names.
    #[track_caller]
    pub fn next(&mut self, names: &[&str]) -> Value {
        for line in self.events.by_ref() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            self.said.push(event.clone());
            if names.iter().any(|name| event["event"] == *name) {
                return event;
            }
        }
        panic!("no more {names:?} after {:#?}", self.said);
    }

    /// Do something after every look of the wait that comes, until it is over; how many looks that were. `look`: number from 1, and the event.
    #[track_caller]
    pub fn each_look(&mut self, mut look: impl FnMut(u32, &Value)) -> u32 {
        let mut n = 0;
        loop {
            let event = self.next(&["settling", "finished"]);
            if event["event"] == "finished" {
                return n;
            }
            n += 1;
            look(n, &event);
        }
    }

    #[track_caller]
    pub fn end(mut self, code: i32) {
        let rest: Vec<String> = self.events.by_ref().map(Result::unwrap).collect();
        let mut stderr = String::new();
        self.controller.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = self.controller.wait().unwrap();
        assert_eq!(status.code(), Some(code), "{stderr}\n{:#?}\n{rest:#?}", self.said);
    }
}

pub fn criterion<'r>(record: &'r Value, name: &str) -> &'r Value {
    let mut criteria = record["settle"]["criteria"].as_array().unwrap().iter();
    criteria.find(|found| found["criterion"] == name).unwrap_or_else(|| panic!("no {name} in {record}"))
}

/// A column of a wait's trace.
pub fn trace(record: &Value, metric: &str) -> Vec<Option<f64>> {
    let columns = record["settle"]["trace"]["columns"].as_array().unwrap();
    let column = columns.iter().find(|column| column["metric"] == metric).unwrap_or_else(|| panic!("no {metric} in {record}"));
    column["values"].as_array().unwrap().iter().map(Value::as_f64).collect()
}

pub fn codes(record: &Value) -> Vec<&str> {
    record["issues"].as_array().unwrap().iter().map(|issue| issue["code"].as_str().unwrap()).collect()
}

/// Let go of a keeper as a crash does.
pub fn kill(pid: i32) {
    // SAFETY: plain integers.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}
