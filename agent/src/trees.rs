//! The authored machines of `tests/recorded/probe`, as tests need them: a copy of each, with what Git can't keep put in its place.
//!
//! A tree's file `faults` has a line for each such thing: `hung PATH` is a FIFO, which a read waits at for ever, and `unreadable PATH` a
//! file that only root can open.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// One machine.
pub struct Tree {
    pub name: String,
    pub root: PathBuf,
    /// Its FIFOs.
    pub hung: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

/// Every machine there is, by name.
pub fn all() -> Vec<Tree> {
    let mut names: Vec<String> = fs::read_dir(recorded()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.iter().map(|name| tree(name)).collect()
}

pub fn tree(name: &str) -> Tree {
    let dir = tempfile::tempdir().unwrap();
    // The agent names its files by the real path.
    let root = dir.path().canonicalize().unwrap().join(name);
    copy(&recorded().join(name), &root);
    let mut hung = Vec::new();
    for line in fs::read_to_string(root.join("faults")).unwrap_or_default().lines() {
        match line.split_once(' ').unwrap() {
            ("hung", path) => {
                fifo(&root.join(path));
                hung.push(root.join(path));
            }
            ("unreadable", path) => fs::set_permissions(root.join(path), fs::Permissions::from_mode(0o000)).unwrap(),
            _ => panic!("{name}: no such fault: {line}"),
        }
    }
    Tree { name: name.to_owned(), root, hung, _dir: dir }
}

/// A machine of which these files are all there is, by path and content.
pub fn of_files<C: AsRef<[u8]>>(files: &[(&str, C)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.hung.iter().for_each(|path| release(path));
    }
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recorded/probe")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&source, &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source).unwrap(), &target).unwrap();
        } else {
            fs::copy(&source, &target).unwrap();
        }
    }
}

pub fn fifo(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
}

/// Let those go on who wait for the FIFO's other end, so that hundreds of threads don't pile up.
pub fn release(path: &Path) {
    let _ = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
}
