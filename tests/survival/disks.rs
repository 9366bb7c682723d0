//! Disks that are full, can't be written or lose files under a running campaign: whatever was measured stays, and is taken up again.

use crate::lab::{Lab, User, eventually, for_each_user, is_root};
use crate::rig::{Rig, end};
use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;

/// A file system of its own at a place in the lab, for as long as this lives.
struct Disk(PathBuf);

impl Disk {
    /// A tmpfs of so many KiB; `None`, said aloud, where this test may not mount.
    fn tmpfs(lab: &Lab, user: User, place: &str, kib: u32) -> Option<Disk> {
        Disk::mount(lab, user, place, &["-t", "tmpfs", "-o", &format!("size={kib}k"), "isotherm-lab"])
    }

    /// An ext4 in an image of so many MiB: state is refused on a tmpfs.
    fn ext4(lab: &Lab, user: User, place: &str, mib: u64) -> Option<Disk> {
        let image = lab.path("disk.img");
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-m", "0", "-F"]).arg(&image).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no mkfs.ext4 here");
            return None;
        }
        Disk::mount(lab, user, place, &["-o", "loop", image.to_str().unwrap()])
    }

    fn mount(lab: &Lab, user: User, place: &str, args: &[&str]) -> Option<Disk> {
        let dir = lab.path(place);
        fs::create_dir_all(&dir).unwrap();
        if !is_root() || !Command::new("mount").args(args).arg(&dir).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        if user == User::Ordinary {
            chown(&dir, Some(65534), Some(65534)).unwrap();
        }
        Some(Disk(dir))
    }

    /// Leave not a byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("fill")).unwrap();
        let (large, small) = (vec![7; 1 << 16], [7]);
        while file.write_all(&large).is_ok() {}
        while file.write_all(&small).is_ok() {}
        let _ = file.sync_all();
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }

    fn remount(&self, how: &str) {
        assert!(Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_results_disk_stops_the_campaign_and_costs_no_result() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let Some(disk) = Disk::tmpfs(&rig.lab, user, "results", 512) else { return };
        let controller = rig.start();
        disk.fill();
        rig.open(1);
        let stopped = end(controller, Some(5));
        assert!(stopped.stderr().contains("No space left"), "{}", stopped.stderr());
        assert_eq!(rig.spooled().iter().filter(|(_, sealed)| *sealed).count(), 1, "the result waits on its device");
        let again = rig.run().expect(5);
        assert!(again.stderr().contains("No space left"), "{}", again.stderr());
        disk.free();
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_results_disk_that_becomes_read_only_stops_the_campaign_and_costs_no_result() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let Some(disk) = Disk::tmpfs(&rig.lab, user, "results", 4096) else { return };
        let controller = rig.start();
        // Open files keep a file system from becoming read-only in place; a view of it that is lies over it instead.
        let view = Disk::mount(&rig.lab, user, "results", &["--bind", disk.0.to_str().unwrap()]).unwrap();
        view.remount("bind,ro");
        rig.open(1);
        end(controller, Some(5));
        drop(view);
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn results_that_can_not_be_written_are_an_error_before_anything_is_started() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let Some(disk) = Disk::tmpfs(&rig.lab, user, "results", 512) else { return };
        disk.remount("ro");
        let refused = rig.run().expect(5);
        assert!(refused.stderr().contains("Read-only file system"), "{}", refused.stderr());
        assert_eq!(rig.executions(1), 0);
        disk.remount("rw");
        rig.open(1);
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_state_disk_that_fills_up_during_a_run_costs_nothing() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let Some(disk) = Disk::ext4(&rig.lab, user, "state", 32) else { return };
        let controller = rig.start();
        disk.fill();
        rig.open(1);
        // The space set aside for one result serves the next run's after it.
        end(controller, Some(0));
        disk.free();
        rig.settled([1, 1], 0);
    });
}

#[test]
fn on_a_full_state_disk_nothing_is_measured_in_vain() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let Some(disk) = Disk::ext4(&rig.lab, user, "state", 32) else { return };
        rig.open(1);
        rig.lab.run(&["run", "c.yaml", "--filter", "job=2"]).expect(0);
        rig.nothing_is_left();
        disk.fill();
        let refused = rig.run().expect(4);
        assert!(refused.stderr().contains("No space left"), "{}", refused.stderr());
        assert_eq!(rig.executions(1), 0);
        rig.nothing_is_left();
        disk.free();
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    });
}

#[test]
fn a_results_directory_that_is_deleted_under_a_campaign_loses_nothing_that_is_not_yet_in_it() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        fs::remove_dir_all(rig.lab.path("results/c")).unwrap();
        rig.open(1);
        let stopped = end(controller, Some(5));
        assert!(stopped.stderr().contains("results/c was deleted"), "{}", stopped.stderr());
        assert!(!rig.lab.path("results/c").exists(), "nothing is begun anew by a controller that has lost its lock");
        eventually("the result is sealed", || rig.spooled().iter().any(|(_, sealed)| *sealed).then_some(()));
        rig.lab.run(&["collect", "--into", "rescued"]).expect(0);
        assert_eq!(rig.lab.records("../rescued/c").len(), 1);
        rig.nothing_is_left();
    });
}

#[test]
fn a_record_that_is_deleted_under_a_campaign_is_measured_again_by_the_next() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.open(1);
        rig.run().expect(0);
        let (path, _) = rig.lab.records("c").remove(0);
        fs::remove_file(&path).unwrap();
        rig.run().expect(0);
        assert_eq!(rig.executions(1) + rig.executions(2), 3);
        rig.lab.run(&["verify", "results/c"]).expect(0);
    });
}
