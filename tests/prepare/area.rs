//! A real swap area, in a file or in compressed memory, where the kernel lets us have one and has no other swap that this would disturb.

use crate::lab::{Lab, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// There is one swap: tests that use it take turns.
static SWAP: Mutex<()> = Mutex::new(());

pub const PRIORITY: i32 = 7;
const ZRAM: &str = "/sys/class/zram-control";

/// On until this is dropped.
pub struct Area {
    pub path: PathBuf,
    /// Number of the zram device.
    zram: Option<String>,
    bytes: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Area {
    /// In a file of a lab; `None`, and a word, where there can be none.
    pub fn in_file(lab: &Lab, bytes: usize) -> Option<Area> {
        let turn = may_have_one()?;
        let path = lab.path("swap");
        fs::write(&path, vec![0; bytes]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Area { path, zram: None, bytes, _turn: turn }.switched_on()
    }

    /// In compressed memory; likewise.
    pub fn in_zram(bytes: usize) -> Option<Area> {
        let turn = may_have_one()?;
        // Where it is a module: loading one that is there already does nothing.
        let _ = Command::new("modprobe").arg("zram").env("PATH", PATH).output();
        let Ok(number) = fs::read_to_string(format!("{ZRAM}/hot_add")) else {
            eprintln!("skipped: a real zram area (this kernel has no zram)");
            return None;
        };
        let number = number.trim().to_owned();
        let area = Area { path: format!("/dev/zram{number}").into(), zram: Some(number.clone()), bytes, _turn: turn };
        if fs::write(format!("/sys/block/zram{number}/disksize"), bytes.to_string()).is_err() {
            eprintln!("skipped: a real zram area (it can't be given a size)");
            return None;
        }
        area.switched_on()
    }

    fn switched_on(self) -> Option<Area> {
        if does(&["mkswap"], &self) && does(&["swapon", "-p", &PRIORITY.to_string()], &self) {
            return Some(self);
        }
        eprintln!("skipped: a real swap area (mkswap or swapon is not permitted here)");
        None
    }

    pub fn switch_off(&self) {
        assert!(does(&["swapoff"], self), "{}", swaps());
    }

    /// `(used KiB, priority)`; `None` if it is off.
    pub fn state(&self) -> Option<(u64, i32)> {
        let text = swaps();
        let line = text.lines().find(|line| line.split_whitespace().next() == self.path.to_str())?;
        let mut fields = line.split_whitespace().skip(3);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }

    /// Pages of this process, half of the area, that are in it until they are asked for.
    pub fn swapped_out(&self) -> Vec<u8> {
        let mut pages = vec![0u8; self.bytes / 2];
        for (n, page) in pages.chunks_mut(4096).enumerate() {
            // No two alike, so that nothing is compressed away.
            page[..8].copy_from_slice(&(n as u64 + 1).to_ne_bytes());
        }
        let first = pages.as_mut_ptr().wrapping_add(pages.as_ptr().align_offset(4096));
        // SAFETY: whole pages inside of a vector that lives on; their content stays what it is.
        unsafe { libc::madvise(first.cast(), self.bytes / 2 - 4096, libc::MADV_PAGEOUT) };
        assert!(self.state().unwrap().0 > 0, "{}", swaps());
        pages
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if self.state().is_some() {
            does(&["swapoff"], self);
        }
        if let Some(number) = &self.zram {
            let _ = fs::write(format!("/sys/block/zram{number}/reset"), "1");
            let _ = fs::write(format!("{ZRAM}/hot_remove"), number);
        }
    }
}

fn may_have_one() -> Option<MutexGuard<'static, ()>> {
    let turn = SWAP.lock().unwrap_or_else(PoisonError::into_inner);
    let reason = if !is_root() {
        "only root may switch it on"
    } else if swaps().lines().count() > 1 {
        "this machine has swap of its own"
    } else {
        return Some(turn);
    };
    eprintln!("skipped: a real swap area ({reason})");
    None
}

fn swaps() -> String {
    fs::read_to_string("/proc/swaps").unwrap_or_default()
}

const PATH: &str = "/usr/sbin:/sbin:/usr/bin:/bin";

fn does(command: &[&str], area: &Area) -> bool {
    Command::new("env").arg(format!("PATH={PATH}")).args(command).arg(&area.path).output().is_ok_and(|output| output.status.success())
}
