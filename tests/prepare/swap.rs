//! A real swap area and the real page cache, where the kernel lets us have them and has no other swap that this would disturb.

use crate::lab::{Lab, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const AREA_BYTES: usize = 16 << 20;

/// A swap area in a lab, on until this is dropped.
struct Area(PathBuf);

impl Area {
    /// `None`, and a word, where there can be none.
    fn on(lab: &Lab) -> Option<Area> {
        let path = lab.path("swap");
        fs::write(&path, vec![0; AREA_BYTES]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let reason = if !is_root() {
            "only root may switch it on"
        } else if swaps().lines().count() > 1 {
            "this machine has swap of its own"
        } else if !does("mkswap", &[], &path) || !does("swapon", &["-p", "7"], &path) {
            "mkswap or swapon is not permitted here"
        } else {
            return Some(Area(path));
        };
        eprintln!("skipped: a real swap area ({reason})");
        None
    }

    /// `(used KiB, priority)`; `None` if it is off.
    fn state(&self) -> Option<(u64, i32)> {
        let text = swaps();
        let line = text.lines().find(|line| line.starts_with(&*self.0.to_string_lossy()))?;
        let mut fields = line.split_whitespace().skip(3);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        does("swapoff", &[], &self.0);
    }
}

fn swaps() -> String {
    fs::read_to_string("/proc/swaps").unwrap_or_default()
}

fn does(program: &str, options: &[&str], area: &Path) -> bool {
    let path = "/usr/sbin:/sbin:/usr/bin:/bin";
    Command::new("env").arg(format!("PATH={path}")).arg(program).args(options).arg(area).output().is_ok_and(|output| output.status.success())
}

/// Pages of this process that are in the swap area until they are asked for.
fn swapped_out(area: &Area) -> Vec<u8> {
    let mut pages = vec![0u8; AREA_BYTES / 2];
    for (n, page) in pages.chunks_mut(4096).enumerate() {
        // No two alike, so that nothing is compressed away.
        page[..8].copy_from_slice(&(n as u64 + 1).to_ne_bytes());
    }
    let first = pages.as_mut_ptr().wrapping_add(pages.as_ptr().align_offset(4096));
    // SAFETY: whole pages inside of a vector that lives on; their content stays what it is.
    unsafe { libc::madvise(first.cast(), AREA_BYTES / 2 - 4096, libc::MADV_PAGEOUT) };
    assert!(area.state().unwrap().0 > 0, "{}", swaps());
    pages
}

/// One test, because there is one swap.
#[test]
fn swap_is_emptied_and_on_again_and_an_area_that_was_left_off_comes_back() {
    let lab = Lab::new();
    let Some(area) = Area::on(&lab) else { return };
    let pages = swapped_out(&area);
    lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 2, warmup: 0, prepare: { settle: 0ms, reset_swap: each, drop_caches: on_model_change } }
matrix:
  - { devices: here, backend: command, argv: [\"true\"] }
",
    );
    lab.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(area.state(), Some((0, 7)));
    let records = lab.records("c");
    let steps = |n: usize| records[n].1["prepare"].as_array().unwrap().clone();
    let outcomes = |n: usize| steps(n).iter().map(|step| step["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!((outcomes(0), outcomes(1)), (vec!["done".into(), "done".into()], vec!["skipped".into(), "skipped".into()]), "{records:?}");
    let [reset, caches] = [&steps(0)[0], &steps(0)[1]];
    assert!(reset["before"]["swap_used_bytes"].as_u64().unwrap() > 0 && reset["after"]["swap_used_bytes"] == 0, "{reset}");
    assert!(caches["before"]["cached_bytes"].as_u64() > Some(0) && caches["after"]["cached_bytes"].as_u64() > Some(0), "{caches}");
    assert_eq!(steps(1)[1]["reason"], "done before an earlier run with this model");
    assert_eq!(u64::from_ne_bytes(pages[4096..4104].try_into().unwrap()), 2);

    // As an agent leaves it that is killed between the two.
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let borrowed = serde_json::json!([{ "kind": "swap_area", "subject": area.0, "original": "7" }]);
    let journal = serde_json::json!({ "journal_version": 1, "boot_id": boot_id.trim(), "borrowed": borrowed });
    let machine = fs::read_dir(lab.path("state/isotherm")).unwrap().flatten().next().unwrap().path();
    fs::write(machine.join("restore-journal.json"), journal.to_string()).unwrap();
    assert!(does("swapoff", &[], &area.0));
    let ran = lab.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains(&format!("here  given back: swap area {}", area.0.display())), "{}", ran.stderr());
    assert_eq!(area.state(), Some((0, 7)));
}
