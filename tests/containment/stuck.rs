//! A process that no signal ends: it waits inside the kernel for a file system that does not answer, as one does for an NFS server that
//! is gone. The device runs nothing until it has ended.

use crate::lab::{Lab, for_each_user, is_root};
use crate::ward::Ward;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::thread::{self, JoinHandle};

/// A FUSE file system that has greeted the kernel and then answers nothing, so that whoever looks up a name in it waits in state D. When
/// this is dropped, what waits gets an error.
struct Mute {
    dir: CString,
    /// Holds the kernel's side open.
    _server: JoinHandle<File>,
}

impl Mute {
    /// `None`, said aloud, where this test may not mount.
    fn mount(lab: &Lab, place: &str) -> Option<Mute> {
        let dir = lab.path(place);
        fs::create_dir(&dir).unwrap();
        let Some(mut device) = File::options().read(true).write(true).open("/dev/fuse").ok().filter(|_| is_root()) else {
            eprintln!("skipped: no FUSE for us here");
            return None;
        };
        let options = CString::new(format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd())).unwrap();
        let dir = CString::new(dir.to_str().unwrap()).unwrap();
        // SAFETY: valid C strings.
        let mounted = unsafe { libc::mount(c"isotherm-lab".as_ptr(), dir.as_ptr(), c"fuse".as_ptr(), 0, options.as_ptr().cast()) };
        assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
        let server = thread::spawn(move || {
            let mut request = vec![0; 1 << 16];
            let n = device.read(&mut request).unwrap();
            device.write_all(&greeting(&request[..n])).unwrap();
            // Taken by us, a lookup can't be withdrawn by a signal any more.
            assert!(device.read(&mut request).unwrap() > 0);
            device
        });
        Some(Mute { dir, _server: server })
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        // SAFETY: a valid C string.
        unsafe { libc::umount2(self.dir.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
    }
}

/// The reply to FUSE_INIT (linux/fuse.h): `fuse_out_header` {len, error, unique}, `fuse_init_out` {major, minor, …}.
fn greeting(request: &[u8]) -> Vec<u8> {
    let unique = &request[8..16];
    let mut body = vec![0; 64];
    body[..4].copy_from_slice(&7u32.to_ne_bytes());
    body[4..8].copy_from_slice(&31u32.to_ne_bytes());
    body[20..24].copy_from_slice(&4096u32.to_ne_bytes());
    let mut reply = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
    reply.extend([0; 4]);
    reply.extend(unique);
    reply.extend(body);
    reply
}

#[test]
fn what_no_signal_ends_quarantines_the_device_until_it_has_ended() {
    for_each_user(|user| {
        let ward = Ward::new(user, "1s", "echo begun\nexec cat stuck/file");
        let Some(mute) = Mute::mount(&ward.lab, "stuck") else { return };
        let ran = ward.lab.run(&["run", "c.yaml"]).expect(1);
        assert!(ran.stderr().contains("is quarantined: process") && ran.stderr().contains("state D"), "{}", ran.stderr());
        assert!(ward.record("next").is_none(), "nothing is measured beside it");
        let record = ward.record("workload").unwrap();
        assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &"timeout".into()), "{record}");
        let survivors = record["device"]["containment"]["survivors"].as_array().unwrap();
        assert!(survivors.iter().any(|survivor| survivor["state"] == "D"), "{survivors:?}");
        assert!(record["issues"].as_array().unwrap().iter().any(|issue| issue["code"] == "unkillable_process"), "{record}");

        // Neither another keeper nor another campaign forgets it.
        for _ in 0..2 {
            let again = ward.lab.run(&["run", "c.yaml"]).expect(4);
            assert!(again.stderr().contains("is quarantined: process"), "{}", again.stderr());
        }
        assert!(ward.record("next").is_none());

        drop(mute);
        ward.lab.run(&["run", "c.yaml", "--filter", "which=next"]).expect(0);
        assert_eq!(ward.record("next").unwrap()["status"], "ok");
        ward.nothing_is_left();
    });
}
