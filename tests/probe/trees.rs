//! What is said of each authored machine in `tests/recorded/probe/`.

use crate::lab::{Lab, User, is_root};
use regex::Regex;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/probe")
}

/// A copy of an authored machine in a lab, with what its `faults` name: Git keeps neither FIFOs nor modes. Has it any that root doesn't meet?
fn copy(tree: &str, to: &Path) -> bool {
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
    copy_dir(&recorded().join(tree), to);
    let faults = fs::read_to_string(to.join("faults")).unwrap_or_default();
    for fault in faults.lines() {
        match fault.split_once(' ').unwrap() {
            ("hung", path) => fifo(&to.join(path)),
            ("unreadable", path) => fs::set_permissions(to.join(path), fs::Permissions::from_mode(0o000)).unwrap(),
            _ => panic!("{tree}: no such fault: {fault}"),
        }
    }
    faults.contains("unreadable ")
}

pub fn fifo(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
}

/// The page of a machine, with what differs from one look to the next taken out.
fn page(tree: &str) -> String {
    let mut lab = Lab::new();
    if copy(tree, &lab.path("tree")) && is_root() {
        lab = Lab::of(User::Ordinary);
        copy(tree, &lab.path("tree"));
    }
    let text = lab.run(&["probe", "--root", "tree"]).expect(0).stdout();
    let text = text.replace(&lab.path("tree").canonicalize().unwrap().display().to_string(), "[dir]");
    let text = Regex::new(r" *[0-9.]+ ms/read").unwrap().replace_all(&text, "  [cost]");
    Regex::new(r"rten, version [0-9.]+").unwrap().replace_all(&text, "rten, version [version]").into_owned()
}

#[test]
fn every_authored_machine_has_its_page_and_moves_no_cursor() {
    for entry in fs::read_dir(recorded()).unwrap() {
        let tree = entry.unwrap().file_name().into_string().unwrap();
        let page = page(&tree);
        assert!(!page.chars().any(|c| c.is_control() && c != '\n'), "{page:?}");
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "../snapshots" }, {
            insta::assert_snapshot!(format!("probe__{}", tree.replace('-', "_")), page);
        });
    }
}

#[test]
fn every_tree_says_whether_it_was_recorded_or_made_up() {
    for entry in fs::read_dir(recorded()).unwrap().flatten() {
        let readme = fs::read_to_string(entry.path().join("README.md")).unwrap();
        let said = readme.lines().nth(2).unwrap_or_default();
        assert!(said.starts_with("Authored") || said.starts_with("Recorded"), "{}: {said}", entry.path().display());
    }
}

#[test]
fn a_root_that_is_not_there_is_a_usage_error() {
    let lab = Lab::new();
    lab.write("file", "");
    lab.run(&["probe", "--root", "file"]).expect(2);
    let ran = lab.run(&["probe", "--root", "none"]).expect(2);
    assert!(ran.stderr().contains("failed to look at none: No such file") && ran.stderr().contains("hint: "), "{}", ran.stderr());
}
