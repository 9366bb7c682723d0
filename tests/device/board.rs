//! A lab whose device has the sensors that a test gives it.

use crate::held;
use crate::lab::{Lab, Ran, User, is_root, spawn};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;

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
        held::campaign(&board.lab);
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
        spawn(&mut self.inside(args))
    }

    /// Let the workload end, and the campaign with it.
    pub fn end(&self, controller: Child) -> Ran {
        held::end(&self.lab, controller)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::by(&mut self.inside(args))
    }

    /// A file of the board's `/sys`. It is the one that is laid over, so it is only ever written in place.
    pub fn set(&self, path: &str, text: &str) -> PathBuf {
        self.lab.write_in_place(&format!("sys/{path}"), format!("{text:<24}\n"))
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
