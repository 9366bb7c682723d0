//! What a run uses of a GPU by way of the kernel's display drivers. The device is a file that lies over `/dev`; what its driver tells of
//! the workload lies over that process's own `fdinfo`, where the keeper looks.

use crate::held::{self, has_started};
use crate::lab::{Lab, User, eventually, for_each_user, is_root, spawn};
use serde_json::json;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

const MOUNT: &str = r#"mount -t overlay ovl -o lowerdir="$0/dev":/dev /dev 2> /dev/null || exit 77; exec "$@""#;
/// Has the device open as its third descriptor, and what it starts inherits it.
const WORKLOAD: &str = "#!/bin/sh\nexec 3< /dev/dri/renderD128\necho >> started\nwhile [ ! -e end ]; do sleep 0.01; done\n";

fn inside(lab: &Lab, args: &[&str]) -> Command {
    lab.isotherm_inside(&["unshare", "--mount", "sh", "-c", MOUNT, &lab.path("").display().to_string()], args)
}

fn lab(user: User) -> Option<Lab> {
    let lab = Lab::of(user);
    held::campaign(&lab);
    lab.write("workload.sh", WORKLOAD);
    lab.write("dev/dri/renderD128", "");
    if !is_root() || inside(&lab, &["--version"]).output().unwrap().status.code() == Some(77) {
        eprintln!("skipped: laying a device over /dev needs root and overlayfs");
        return None;
    }
    Some(lab)
}

/// What the driver tells of the client from now on; until it was looked at.
fn tells(lab: &Lab, gfx_ns: u64, vram_kib: u64) {
    let text = format!(
        "pos:\t0\nflags:\t02100000\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t{vram_kib} KiB\n\
         drm-engine-gfx:\t{gfx_ns} ns\n"
    );
    is_read(&lab.write("fdinfo/3", text));
}

/// Wait until somebody has read the file and closed it.
fn is_read(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a descriptor of its own, which is owned from here on; a valid C string.
    let mut watch = unsafe {
        let fd = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
        assert!(fd >= 0 && libc::inotify_add_watch(fd, path.as_ptr(), libc::IN_CLOSE_NOWRITE) >= 0);
        File::from_raw_fd(fd)
    };
    eventually("the driver is asked", || watch.read(&mut [0; 256]).ok());
}

#[test]
fn a_record_has_the_time_and_the_most_memory_that_its_run_had_of_a_gpu() {
    for_each_user(|user| {
        let Some(lab) = lab(user) else { return };
        let controller = spawn(&mut inside(&lab, &["run", "c.yaml"]));
        has_started(&lab);
        let keeper = eventually("there is a keeper", || lab.pids_of(" keep ").first().copied());
        let workload = eventually("it is seen", || lab.pids_of("workload.sh").first().copied());
        fs::create_dir(lab.path("fdinfo")).unwrap();
        let mut over = Command::new("nsenter");
        over.arg(format!("--mount=/proc/{keeper}/ns/mnt")).args(["mount", "--bind"]).arg(lab.path("fdinfo")).arg(format!("/proc/{workload}/fdinfo"));
        assert!(over.status().unwrap().success());
        tells(&lab, 1000, 2048);
        // It has worked on, and holds less.
        tells(&lab, 9000, 512);
        held::end(&lab, controller).expect(0);
        let record = lab.only_record("c");
        let [used] = &record["context"]["drm"].as_array().unwrap()[..] else { panic!("one device: {}", record["context"]["drm"]) };
        assert_eq!((&used["driver"], &used["device"]), (&json!("amdgpu"), &json!("0000:03:00.0")));
        assert_eq!((&used["engines_ns"], &used["memory_bytes"]), (&json!({ "gfx": 9000 }), &json!({ "vram": 2 << 20 })));
        let mark = |name: &str| record["time"][name].as_u64().unwrap();
        assert!((mark("spawn_monotonic_ns")..=mark("exit_monotonic_ns")).contains(&used["seen_ns"].as_u64().unwrap()), "{used}");
    });
}
