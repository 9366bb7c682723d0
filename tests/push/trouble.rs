//! What can be wrong with a file, a copy, or the place for it.

use crate::lab::{User, for_each_user, is_root};
use crate::rig::{Rig, signal};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

#[test]
fn a_copy_that_is_damaged_is_made_anew() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.run().expect(0);
        // What was copied in part, and as if nothing of it were right.
        fs::remove_dir_all(rig.copied().parent().unwrap()).unwrap();
        fs::write(rig.part(), vec![7; 1 << 20]).unwrap();
        if user == User::Ordinary {
            chown(rig.part(), Some(65534), Some(65534)).unwrap();
        }
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        rig.ran_with_the_copy();
        assert_eq!(rig.events("push_started")[1]["offset"], 1 << 20);
        // What was complete, and never looked at.
        fs::rename(rig.copied(), rig.part()).unwrap();
        fs::write(rig.part(), vec![7; rig.model.len()]).unwrap();
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        rig.ran_with_the_copy();
        // What was whole, and isn't any more.
        fs::write(rig.copied(), vec![7; rig.model.len()]).unwrap();
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        rig.ran_with_the_copy();
        let total = rig.model.len() as u64;
        assert_eq!(rig.copies(), [total, 2 * total - (1 << 20), total, total]);
    });
}

#[test]
fn a_file_with_another_content_than_declared_is_copied_nowhere() {
    let rig = Rig::new(User::Caller);
    rig.campaign("c", &format!("path: models/m.bin, push: true, sha256: {}", "0".repeat(64)));
    let refused = rig.run().expect(2);
    assert!(refused.stderr().contains(&rig.sha256()) && refused.stderr().contains("the campaign declares 0000"), "{}", refused.stderr());
    assert!(!rig.cache().exists());
}

#[test]
fn a_file_that_is_not_here_fails_its_runs_as_one_that_is_not_there_would() {
    let rig = Rig::new(User::Caller);
    fs::remove_file(rig.lab.path("models/m.bin")).unwrap();
    fs::create_dir(rig.lab.path("models/m.bin")).unwrap();
    let failed = rig.run().expect(1);
    assert!(failed.stderr().contains("not a regular file; its job will fail"), "{}", failed.stderr());
    assert_eq!(rig.lab.only_record("c")["status"], "failed");
}

#[test]
fn a_file_that_changes_while_it_is_copied_stops_the_campaign_and_is_named() {
    let mut rig = Rig::new(User::Caller);
    let controller = rig.copying();
    let mut file = fs::File::options().append(true).open(rig.lab.path("models/m.bin")).unwrap();
    file.write_all(b"more").unwrap();
    signal(&controller, libc::SIGCONT);
    let stopped = crate::lab::Ran::of(controller).expect(2);
    assert!(stopped.stderr().contains("models/m.bin has changed since the campaign began"), "{}", stopped.stderr());
    assert!(rig.lab.records("c").is_empty() && !rig.copied().exists());
}

#[test]
fn without_room_for_it_the_jobs_stay_pending() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let image = rig.lab.path("disk.img");
        fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-m", "0", "-F"]).arg(&image).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").status();
        let place = rig.lab.path("state");
        let mount = || Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&place).status();
        if !is_root() || !made.is_ok_and(|made| made.success()) || !mount().is_ok_and(|mounted| mounted.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return;
        }
        if user == User::Ordinary {
            chown(&place, Some(65534), Some(65534)).unwrap();
        }
        let looked = rig.lab.run(&["doctor", "c.yaml"]).expect(1).stdout();
        let refused = rig.run().expect(4);
        assert!(Command::new("umount").arg("-l").arg(&place).status().unwrap().success());
        let said = refused.stderr();
        assert!(said.contains("3 MiB are to be copied, and 64 MiB have to stay free; ") && said.contains("isotherm models"), "{said}");
        assert!(looked.contains("✗ disk") && looked.contains("1 model has to be copied to "), "{looked}");
        assert!(said.contains("1 pending") && rig.lab.records("c").is_empty() && rig.copies().is_empty(), "{said}");
    });
}

#[test]
fn a_cache_that_can_not_be_written_is_named() {
    let rig = Rig::new(if is_root() { User::Ordinary } else { User::Caller });
    rig.run().expect(0);
    fs::remove_dir_all(rig.copied().parent().unwrap()).unwrap();
    fs::set_permissions(rig.cache(), fs::Permissions::from_mode(0o500)).unwrap();
    let refused = rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(4);
    fs::set_permissions(rig.cache(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(refused.stderr().contains("/models: Permission denied"), "{}", refused.stderr());
}

#[test]
fn links_in_the_cache_lead_nowhere() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let outside = rig.lab.path("outside");
        fs::create_dir(&outside).unwrap();
        rig.run().expect(0);
        let own = rig.copied().parent().unwrap().to_owned();
        fs::remove_dir_all(&own).unwrap();
        symlink(&outside, &own).unwrap();
        let refused = rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(4);
        assert!(refused.stderr().contains("is a symbolic link"), "{}", refused.stderr());
        rig.lab.run(&["models", "--evict-all"]).expect(0);
        assert!(fs::symlink_metadata(&own).is_err());
        symlink(outside.join("victim"), rig.part()).unwrap();
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(4);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        fs::remove_file(rig.part()).unwrap();
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        rig.ran_with_the_copy();
    });
}
