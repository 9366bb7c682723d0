//! A lab with one hostile workload, `workload.sh`, and a peaceful one that is to run after it.

use crate::lab::{Lab, Ran, User, eventually};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Blocks until it is ended; says in the file `started` that it is there.
const SLEEPER: &str = "#!/bin/sh\necho $$ >> started\nread line < fifo\n";

pub struct Ward {
    pub lab: Lab,
    pub user: User,
}

impl Ward {
    /// The hostile workload is `#!/bin/sh` with this body.
    pub fn new(user: User, timeout: &str, body: &str) -> Ward {
        let ward = Ward { lab: Lab::of(user), user };
        ward.lab.write("workload.sh", format!("#!/bin/sh\n{body}\n"));
        ward.lab.write("sleeper.sh", SLEEPER);
        ward.fifo("fifo");
        ward.campaign(timeout, "./{which}.sh", &["workload", "next"]);
        ward.lab.write("next.sh", "#!/bin/sh\necho fine\n");
        ward
    }

    /// A named pipe that everybody may use.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.lab.path(name);
        let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(c_path.as_ptr(), 0o666) }, 0);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// One point per value of `which`, in this order.
    pub fn campaign(&self, timeout: &str, program: &str, which: &[&str]) {
        let text = format!(
            "campaign: c
devices: {{ here: {{ local: {{}} }} }}
defaults: {{ repetitions: 1, timeout: {timeout}, warmup: 0, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: here, backend: command, params: {{ which: {which:?} }}, argv: [\"{program}\"] }}
"
        );
        self.lab.write("c.yaml", text);
    }

    /// Run everything; the record of the hostile workload. The peaceful one has run after it, and nothing is left.
    #[track_caller]
    pub fn run(&self) -> Value {
        self.finish(Ran::by(&mut self.lab.isotherm(&["run", "c.yaml"])))
    }

    #[track_caller]
    pub fn finish(&self, ran: Ran) -> Value {
        let talk = format!("{:?}\n{}\n{}", self.user, ran.stdout(), ran.stderr());
        let next = self.record("next").unwrap_or_else(|| panic!("the next job did not run: {talk}"));
        assert_eq!((&next["status"], text(&next["raw"]["stdout"])), (&"ok".into(), "fine\n"), "{talk}");
        let record = self.record("workload").unwrap_or_else(|| panic!("no record: {talk}"));
        assert_eq!(ran.code(), Some(i32::from(record["status"] != "ok")), "{talk}");
        assert!(record["device"]["containment"]["survivors"].as_array().unwrap().is_empty(), "{record}");
        assert_eq!(record["device"]["containment"]["level"], self.level());
        self.nothing_is_left();
        record
    }

    pub fn record(&self, which: &str) -> Option<Value> {
        self.lab.records("c").into_iter().map(|(_, r)| r).find(|r| r["ids"]["point"]["axes"]["which"] == which)
    }

    /// How this user's workloads are contained.
    pub fn level(&self) -> &'static str {
        if crate::lab::is_root() && self.user == User::Caller { "pid_namespace" } else { "subreaper" }
    }

    /// Every process of the lab ends; also one that has cleared its environment, and the keeper, which has given the device back.
    #[track_caller]
    pub fn nothing_is_left(&self) {
        eventually("no process of the lab is left", || (self.lab.processes().is_empty() && self.named().is_empty()).then_some(()));
    }

    /// Live processes with the lab's path in their command line.
    pub fn named(&self) -> Vec<i32> {
        let marker = self.lab.path("sleeper.sh").display().to_string().into_bytes();
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.windows(marker.len()).any(|w| w == marker))).collect()
    }

    /// Absolute path of the sleeper, so that it can be found by its command line.
    pub fn sleeper(&self) -> PathBuf {
        self.lab.path("sleeper.sh")
    }
}

/// Text of a stream in a record.
#[track_caller]
pub fn text(stream: &Value) -> &str {
    assert_eq!(stream["head"]["encoding"], "utf8", "{stream}");
    stream["head"]["data"].as_str().unwrap()
}
