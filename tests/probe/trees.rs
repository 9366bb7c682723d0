//! What is said of each authored machine in `tests/recorded/probe/`.

use crate::lab::{Lab, User, is_root};
use regex::Regex;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A copy of an authored machine in a lab: Git keeps neither FIFOs nor modes.
pub fn copy(tree: &str, to: &Path) {
    fn copy_dir(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let (source, target) = (entry.path(), to.join(entry.file_name()));
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                copy_dir(&source, &target);
            } else if kind.is_symlink() {
                symlink(fs::read_link(&source).unwrap(), &target).unwrap();
            } else {
                fs::copy(&source, &target).unwrap();
                let mode = fs::metadata(&source).unwrap().permissions().mode();
                fs::set_permissions(&target, fs::Permissions::from_mode(mode | 0o444)).unwrap();
            }
        }
    }
    copy_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/probe").join(tree), to);
}

pub fn fifo(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
}

/// The page of a machine, with what differs from one look to the next taken out.
fn page(lab: &Lab) -> String {
    let text = lab.run(&["probe", "--root", "tree"]).expect(0).stdout();
    let text = text.replace(&lab.path("tree").canonicalize().unwrap().display().to_string(), "[dir]");
    let text = Regex::new(r" *[0-9.]+ ms/read").unwrap().replace_all(&text, "  [cost]");
    Regex::new(r"rten, version [0-9.]+").unwrap().replace_all(&text, "rten, version [version]").into_owned()
}

macro_rules! snapshot {
    ($name:literal, $page:expr) => {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "../snapshots" }, {
            insta::assert_snapshot!($name, $page);
        });
    };
}

#[test]
fn a_raspberry_pi_5() {
    let lab = Lab::new();
    copy("pi5", &lab.path("tree"));
    snapshot!("probe__pi5", page(&lab));
}

#[test]
fn a_server_of_whose_counters_one_is_unreadable() {
    // Root can read everything.
    let lab = Lab::of(if is_root() { User::Ordinary } else { User::Caller });
    copy("two-packages", &lab.path("tree"));
    let counter = lab.path("tree/sys/class/powercap/intel-rapl:1/energy_uj");
    fs::set_permissions(&counter, fs::Permissions::from_mode(0o000)).unwrap();
    snapshot!("probe__two_packages", page(&lab));
}

#[test]
fn a_laptop_on_battery() {
    let lab = Lab::new();
    copy("laptop", &lab.path("tree"));
    snapshot!("probe__laptop", page(&lab));
}

#[test]
fn a_machine_with_nothing() {
    let lab = Lab::new();
    copy("nothing", &lab.path("tree"));
    snapshot!("probe__nothing", page(&lab));
}

#[test]
fn a_hostile_machine_hangs_nothing_and_moves_no_cursor() {
    let lab = Lab::new();
    copy("hostile", &lab.path("tree"));
    fifo(&lab.path("tree/sys/class/thermal/thermal_zone6/temp"));
    let page = page(&lab);
    assert!(!page.chars().any(|c| c.is_control() && c != '\n'), "{page:?}");
    snapshot!("probe__hostile", page);
}

#[test]
fn a_root_that_is_not_there_is_a_usage_error() {
    let lab = Lab::new();
    lab.write("file", "");
    lab.run(&["probe", "--root", "file"]).expect(2);
    let ran = lab.run(&["probe", "--root", "none"]).expect(2);
    assert!(ran.stderr().contains("failed to look at none: No such file") && ran.stderr().contains("hint: "), "{}", ran.stderr());
}
