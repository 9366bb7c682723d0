//! A lab whose device has the sensors that a test gives it.

use crate::lab::{Lab, Ran, User, is_root};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// Says that it runs, then waits for the end.
const WORKLOAD: &str = "#!/bin/sh\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\n";

/// What lies over what, as far as it is there.
const MOUNTS: &str = r#"
mount -t overlay ovl -o lowerdir="$0/sys":/sys /sys 2> /dev/null || exit 77
[ ! -e "$0/stat" ] || mount --bind "$0/stat" /proc/stat || exit 77
exec "$@"
"#;

pub struct Board {
    pub lab: Lab,
}

impl Board {
    /// `None` where nothing can be laid over `/sys`, which is said.
    pub fn new(user: User) -> Option<Board> {
        let board = Board { lab: Lab::of(user) };
        fs::create_dir_all(board.lab.path("sys/class")).unwrap();
        fs::set_permissions(board.lab.path("sys"), fs::Permissions::from_mode(0o755)).unwrap();
        board.lab.write("workload.sh", WORKLOAD);
        board.lab.write(
            "c.yaml",
            "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, retry_contaminated: 0, timeout: 60s, warmup: 0, prepare: { settle: 0ms }, measure: { sample_hz: 50, power: together } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
",
        );
        if !is_root() || board.inside(&["--version"]).output().is_ok_and(|output| output.status.code() == Some(77)) {
            eprintln!("skipped: laying a board's sensors over /sys needs root and overlayfs");
            return None;
        }
        Some(board)
    }

    /// `isotherm ARGS` on the board, not started yet.
    pub fn inside(&self, args: &[&str]) -> std::process::Command {
        self.lab.isotherm_inside(&["unshare", "--mount", "sh", "-c", MOUNTS, &self.lab.path("").display().to_string()], args)
    }

    pub fn start(&self, args: &[&str]) -> Child {
        self.inside(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran(self.inside(args).output().unwrap())
    }

    /// A file of the board's `/sys`. It is the one that is laid over, so it is only ever written in place.
    pub fn set(&self, path: &str, text: &str) -> PathBuf {
        let path = self.lab.path(&format!("sys/{path}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Of one length, so that nobody reads the rest of what was there, or nothing.
        let text = format!("{text:<24}\n");
        File::options().write(true).create(true).truncate(false).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    }

    pub fn zone(&self, number: u32, name: &str, millicelsius: i64) -> PathBuf {
        self.set(&format!("class/thermal/thermal_zone{number}/type"), name);
        self.set(&format!("class/thermal/thermal_zone{number}/temp"), &millicelsius.to_string())
    }

    /// The only record.
    #[track_caller]
    pub fn record(&self) -> Value {
        self.lab.only_record("c")
    }
}

/// A reading of a snapshot by metric and subject.
#[track_caller]
pub fn reading<'r>(snapshot: &'r Value, metric: &str, subject: &str) -> &'r Value {
    let mut readings = snapshot["readings"].as_array().unwrap().iter();
    readings.find(|r| r["metric"] == metric && r["subject"] == subject).unwrap_or_else(|| panic!("no {metric} of {subject} in {snapshot}"))
}
