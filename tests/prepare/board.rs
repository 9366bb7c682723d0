//! A lab whose `isotherm` finds a cpufreq of its own below `/sys`, in a mount namespace, and other files in the place of the kernel's
//! where a test puts them. The files are shared by all who are started there, as the kernel's are.

use crate::lab::{Lab, Ran, User, eventually, is_root};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What lies over what, as far as it is there: `lab file or directory` → place.
const MOUNTS: &str = r#"
mount -t overlay ovl -o lowerdir="$0/sys":/sys /sys && mount --bind "$0/cpufreq" /sys/devices/system/cpu/cpufreq || exit 77
[ ! -e "$0/drop_caches" ] || mount --bind "$0/drop_caches" /proc/sys/vm/drop_caches || exit 77
[ ! -e "$0/boot_id" ] || mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id || exit 77
[ ! -e "$0/usr-bin" ] || mount -t overlay ovl -o lowerdir="$0/usr-bin":/usr/bin /usr/bin || exit 77
exec "$@"
"#;

/// Says which governor it runs under, then waits for its gate.
const WORKLOAD: &str = "#!/bin/sh
cat /sys/devices/system/cpu/cpufreq/policy0/scaling_governor >> seen
while [ ! -e gate.$1 ]; do sleep 0.01; done
";

pub struct Board {
    pub lab: Lab,
}

impl Board {
    /// `None`, and a word, where nothing can be mounted. Two policies with different limits; all gates are shut.
    pub fn of(user: User) -> Option<Board> {
        if !is_root() {
            eprintln!("skipped: a cpufreq laid over /sys (only root may mount)");
            return None;
        }
        let board = Board { lab: Lab::of(user) };
        board.lab.write("sys/devices/system/cpu/cpufreq/.keep", "");
        board.lab.write("sys/devices/system/cpu/cpu0/.keep", "");
        std::os::unix::fs::symlink("../cpufreq/policy0", board.lab.path("sys/devices/system/cpu/cpu0/cpufreq")).unwrap();
        for (policy, governor, max) in [("policy0", "ondemand", "1500000"), ("policy4", "powersave", "2400000")] {
            for (file, value) in [
                ("scaling_governor", governor),
                ("scaling_available_governors", "ondemand performance powersave"),
                ("scaling_min_freq", "600000"),
                ("scaling_max_freq", max),
                ("cpuinfo_min_freq", "600000"),
                ("cpuinfo_max_freq", max),
                ("scaling_cur_freq", max),
            ] {
                board.lab.write(&format!("cpufreq/{policy}/{file}"), format!("{value}\n"));
            }
        }
        board.lab.write("workload.sh", WORKLOAD);
        let trial = board.command(&["--version"]).output().unwrap();
        if trial.status.code() == Some(77) {
            eprintln!("skipped: a cpufreq laid over /sys (mounting is not permitted here)");
            return None;
        }
        Ran(trial).expect(0);
        Some(board)
    }

    /// A campaign whose blocks, one job each, have these steps.
    pub fn campaign(&self, blocks: &[&str]) {
        let block = |(n, prepare): (usize, &&str)| {
            format!(
                "  - {{ devices: here, backend: command, params: {{ job: {n} }}, argv: [./workload.sh, \"{{job}}\"], prepare: {{ settle: 0ms, {prepare} }} }}\n"
            )
        };
        let blocks: String = blocks.iter().enumerate().map(block).collect();
        let text = format!(
            "campaign: c\ndevices: {{ here: {{ local: {{}} }} }}\ndefaults: {{ repetitions: 1, timeout: 60s, warmup: 0 }}\nmatrix:\n{blocks}"
        );
        self.lab.write("c.yaml", text);
    }

    /// `isotherm ARGS` on the board, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let lab = self.lab.path("").display().to_string();
        self.lab.isotherm_inside(&["unshare", "-m", "sh", "-c", MOUNTS, &lab], args)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::by(&mut self.command(args))
    }

    /// `isotherm run c.yaml`, whose first job is executing when this returns.
    pub fn start(&self) -> Child {
        self.start_with(&[])
    }

    pub fn start_with(&self, variables: &[(&str, &str)]) -> Child {
        let before = self.seen().len();
        let mut command = self.command(&["run", "c.yaml"]);
        let controller = command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.executing(before + 1);
        controller
    }

    /// Wait until a workload has been started for the n-th time.
    #[track_caller]
    pub fn executing(&self, n: usize) {
        eventually(&format!("a workload has started {n} times"), || (self.seen().len() >= n).then_some(()));
    }

    /// Let these jobs end, now and whenever they run.
    pub fn open(&self, jobs: &[u32]) {
        for job in jobs {
            self.lab.write(&format!("gate.{job}"), "");
        }
    }

    /// Governors that workloads ran under.
    pub fn seen(&self) -> Vec<String> {
        self.lab.read("seen").lines().map(str::to_owned).collect()
    }

    /// `governor lower–upper limit` of both policies.
    pub fn policies(&self) -> [String; 2] {
        ["policy0", "policy4"].map(|policy| {
            let [governor, min, max] = ["governor", "min_freq", "max_freq"].map(|f| self.lab.read(&format!("cpufreq/{policy}/scaling_{f}")));
            format!("{} {}–{}", governor.trim(), min.trim(), max.trim())
        })
    }

    pub fn journal(&self) -> Option<PathBuf> {
        let machines = fs::read_dir(self.lab.path("state/isotherm")).into_iter().flatten().flatten();
        machines.map(|machine| machine.path().join("restore-journal.json")).find(|path| path.exists())
    }

    /// The board is as it was, and nothing is left that says otherwise.
    #[track_caller]
    pub fn is_as_it_was(&self) {
        eventually("no process of the lab is left", || self.lab.processes().is_empty().then_some(()));
        assert_eq!((self.policies(), self.journal()), (AS_IT_WAS.map(String::from), None));
    }

    /// Records by job.
    pub fn records(&self) -> Vec<Value> {
        let mut records: Vec<Value> = self.lab.records("c").into_iter().map(|(_, record)| record).collect();
        records.sort_by_key(|record| record["ids"]["point"]["axes"]["job"].as_i64());
        records
    }

    /// Their steps: `step outcome`.
    pub fn steps(&self) -> Vec<Vec<String>> {
        let records = self.records();
        let step = |step: &Value| format!("{} {}", step["step"].as_str().unwrap(), step["outcome"].as_str().unwrap());
        records.iter().map(|record| record["prepare"].as_array().unwrap().iter().map(step).collect()).collect()
    }

    /// KILL, and wait until they are gone.
    #[track_caller]
    pub fn kill(&self, pids: &[i32]) {
        assert!(!pids.is_empty(), "nobody to kill: {:?}", self.lab.processes());
        for &pid in pids {
            // SAFETY: plain integers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        eventually("they are gone", || pids.iter().all(|pid| !self.lab.processes().contains(pid)).then_some(()));
    }
}

pub const AS_IT_WAS: [&str; 2] = ["ondemand 600000–1500000", "powersave 600000–2400000"];
pub const BORROWED: [&str; 2] = ["performance 1500000–1500000", "performance 2400000–2400000"];
/// Steps that lead from the one to the other.
pub const PERFORMANCE: &str = "governor: performance, frequency: max";
pub const KEEPER: &str = " keep --state-dir ";
/// The process that empties the page cache.
pub const DROPPING: &str = r#"isotherm-agent alter {"write":{"path":"/proc/sys/vm/drop_caches""#;
