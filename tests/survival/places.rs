//! Places that can't be used, each named; and a lease that something else holds.

use crate::lab::{Lab, User, eventually, for_each_user, is_root};
use crate::rig::Rig;
use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

/// A directory on a tmpfs that the lab's user may write to; `None` where there is no such thing.
fn on_tmpfs(user: User) -> Option<tempfile::TempDir> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    if !mounts.lines().any(|line| line.split(' ').nth(1) == Some("/dev/shm") && line.split(' ').nth(2) == Some("tmpfs")) {
        eprintln!("skipped: /dev/shm is not a tmpfs here");
        return None;
    }
    let dir = tempfile::Builder::new().prefix("isotherm-lab-").tempdir_in("/dev/shm").unwrap();
    if user == User::Ordinary {
        chown(dir.path(), Some(65534), Some(65534)).unwrap();
    }
    Some(dir)
}

#[test]
fn a_state_directory_that_would_vanish_is_refused_and_the_next_place_is_taken() {
    for_each_user(|user| {
        let Some(tmpfs) = on_tmpfs(user) else { return };
        let rig = Rig::new(user);
        rig.open(1);
        let output = rig.lab.isotherm(&["run", "c.yaml"]).env("XDG_STATE_HOME", tmpfs.path()).output().unwrap();
        crate::lab::Ran(output).expect(0);
        assert!(rig.lab.path("home/.local/state/isotherm").is_dir());
        assert_eq!(fs::read_dir(tmpfs.path()).unwrap().count(), 0, "nothing is made there");
        rig.settled([1, 1], 0);
    });
}

#[test]
fn without_a_usable_home_the_state_is_in_var_tmp() {
    for_each_user(|user| {
        let Some(tmpfs) = on_tmpfs(user) else { return };
        let rig = Rig::new(user);
        rig.open(1);
        let uid = if user == User::Ordinary { 65534 } else { fs::metadata("/proc/self").unwrap().uid() };
        let fallback = PathBuf::from(format!("/var/tmp/isotherm-{uid}"));
        let names = || fs::read_dir(&fallback).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<PathBuf>>();
        let before = names();
        let mut command = rig.lab.isotherm(&["run", "c.yaml"]);
        command.env("XDG_STATE_HOME", tmpfs.path()).env("HOME", "/proc/nowhere");
        crate::lab::Ran(command.output().unwrap()).expect(0);
        assert!(names().iter().any(|path| path.join("spool").is_dir()));
        rig.settled([1, 1], 0);
        // What was there, or comes meanwhile, belongs to somebody else.
        names().iter().filter(|path| path.is_dir() && !before.contains(path)).for_each(|path| fs::remove_dir_all(path).unwrap());
        let _ = fs::remove_dir(&fallback);
    });
}

#[test]
fn a_configured_state_directory_that_can_not_be_used_is_an_error_that_names_it() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let refused = |dir: &Path, words: &str| {
            rig.campaign("c", &format!("local: {{ state_dir: {:?} }}", dir.display().to_string()));
            let ran = rig.run().expect(4);
            let said = ran.stderr();
            assert!(said.contains(&dir.display().to_string()) && said.contains(words) && said.contains("hint:"), "{said}");
        };
        if let Some(tmpfs) = on_tmpfs(user) {
            refused(&tmpfs.path().join("x"), "tmpfs");
        }
        let open = rig.lab.path("open");
        fs::create_dir(&open).unwrap();
        if user == User::Ordinary {
            chown(&open, Some(65534), Some(65534)).unwrap();
        }
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        refused(&open, "can be written by others");
        std::os::unix::fs::symlink(rig.lab.path("state"), rig.lab.path("link")).unwrap();
        refused(&rig.lab.path("link"), "symbolic link");
        rig.lab.write("file", "");
        refused(&rig.lab.path("file"), "is not a directory");
        refused(Path::new("/proc/none"), "can't be made");
        assert!(rig.lab.processes().is_empty());
        assert_eq!(rig.executions(1), 0);
    });
}

#[test]
fn a_file_system_that_executes_nothing_is_named() {
    if !is_root() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let rig = Rig::new(User::Caller);
    rig.open(1);
    let bin = rig.lab.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o700)).unwrap();
    rig.campaign("c", &format!("local: {{ bin_dir: {:?} }}", bin.display().to_string()));
    let script = format!("mount -t tmpfs -o noexec,mode=700 none {} && exec \"$@\"", bin.display());
    let mut command = rig.lab.isotherm_inside(&["unshare", "--mount", "sh", "-c", &script, "sh"], &["run", "c.yaml"]);
    let ran = crate::lab::Ran(command.output().unwrap()).expect(4);
    let said = ran.stderr();
    assert!(said.contains(&bin.display().to_string()) && said.contains("Permission denied") && said.contains("bin_dir"), "{said}");
    // Where it isn't mounted like that, it is installed and runs.
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

/// Something on the lab's lease that is no keeper.
fn squat(lab: &Lab) -> UnixListener {
    let name = lab.path("x").parent().unwrap().file_name().unwrap().to_owned();
    let address = SocketAddr::from_abstract_name(name.as_encoded_bytes()).unwrap();
    // A process that another test is starting may hold the one before for a moment.
    eventually("the name is free", || UnixListener::bind_addr(&address).ok())
}

#[test]
fn a_stranger_on_the_lease_is_an_error_and_not_a_wait() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let refused = || {
            let said = rig.run().expect(4).stderr();
            assert!(said.contains("no keeper of isotherm holds the socket @isotherm-lab-"), "{said}");
            assert!(rig.lab.processes().is_empty());
        };
        let rubbish: [&'static [u8]; 2] = [b"\xff\x00HTTP/1.1 400 Bad Request\r\n\r\n", b"{\"results_id\": 7}\n"];
        for answer in rubbish {
            let squatter = squat(&rig.lab);
            std::thread::scope(|scope| {
                scope.spawn(|| squatter.accept().unwrap().0.write_all(answer).unwrap());
                refused();
            });
        }
        // One that never accepts, and one that goes on for ever.
        let silent = squat(&rig.lab);
        refused();
        drop(silent);
        let endless = squat(&rig.lab);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut asker = endless.accept().unwrap().0;
                while asker.write_all(b"x").is_ok() {
                    std::thread::yield_now();
                }
            });
            refused();
        });
        drop(endless);
        rig.open(1);
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}
