//! Swap in compressed memory, as boards have it: it is off for as long as a reset takes and no longer, whoever dies meanwhile.

use crate::area::{Area, PRIORITY};
use crate::board::KEEPER;
use crate::lab::{Lab, Ran, eventually};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// So much that taking it back is seen to happen, and nobody misses it.
const BYTES: usize = 512 << 20;
const WORKLOAD: &str = "#!/bin/sh\necho >> started\nwhile [ ! -e gate ]; do sleep 0.01; done\n";
const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, warmup: 0, prepare: { settle: 0ms, reset_swap: each } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
";

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("c.yaml", CAMPAIGN);
    lab.write("workload.sh", WORKLOAD);
    lab
}

fn journal(lab: &Lab) -> Option<PathBuf> {
    let machines = fs::read_dir(lab.path("state/isotherm")).into_iter().flatten().flatten();
    machines.map(|machine| machine.path().join("restore-journal.json")).find(|path| path.exists())
}

fn signal(pids: &[i32], signal: i32) {
    for &pid in pids {
        // SAFETY: plain integers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The keeper, without what it has just forked: that has its command line until it executes something.
fn keeper_of(lab: &Lab) -> Vec<i32> {
    let pids = lab.pids_of(KEEPER);
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    pids.iter().copied().filter(|&pid| parent(pid).is_none_or(|parent| !pids.contains(&parent))).collect()
}

fn start(lab: &Lab, linger_ms: &str) -> Child {
    lab.isotherm(&["run", "c.yaml"]).env("ISOTHERM_LINGER_MS", linger_ms).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A night whose keeper stands still, between the area's being switched off and its being switched on again.
struct Off {
    lab: Lab,
    controller: Child,
    keeper: Vec<i32>,
    _pages: Vec<u8>,
}

/// `None` where it can't be caught there in a few tries.
fn caught_off(area: &Area, linger_ms: &str) -> Option<Off> {
    for _ in 0..20 {
        let lab = lab();
        let pages = area.swapped_out();
        let controller = start(&lab, linger_ms);
        eventually("the area is noted, or the job runs", || (journal(&lab).is_some() || lab.path("started").exists()).then_some(()));
        let keeper = keeper_of(&lab);
        signal(&keeper, libc::SIGSTOP);
        eventually("the step has ended", || lab.pids_of("isotherm-agent alter").is_empty().then_some(()));
        if area.state().is_none() && journal(&lab).is_some() {
            return Some(Off { lab, controller, keeper, _pages: pages });
        }
        signal(&keeper, libc::SIGCONT);
        lab.write("gate", "");
        crate::lab::Ran::of(controller).expect(0);
        eventually("nothing of it is left", || lab.processes().is_empty().then_some(()));
    }
    eprintln!("skipped: a death while the area is off (this machine is too fast for it)");
    None
}

#[track_caller]
fn is_given_back(lab: &Lab, area: &Area) {
    eventually("no process of the lab is left", || lab.processes().is_empty().then_some(()));
    assert_eq!((area.state().map(|(_, priority)| priority), journal(lab)), (Some(PRIORITY), None));
}

#[test]
fn compressed_swap_is_emptied_before_a_run_and_on_again_with_its_priority() {
    let Some(area) = Area::in_zram(64 << 20) else { return };
    let lab = lab();
    let pages = area.swapped_out();
    lab.write("gate", "");
    lab.run(&["run", "c.yaml"]).expect(0);
    is_given_back(&lab, &area);
    let step = &lab.only_record("c")["prepare"][0];
    assert_eq!((&step["step"], &step["outcome"], &step["after"]["swap_used_bytes"]), (&"reset_swap".into(), &"done".into(), &0.into()), "{step}");
    assert_eq!(step["after"]["areas"][0], area.path.to_str().unwrap());
    assert!(step["before"]["swap_used_bytes"].as_u64() > Some(0), "{step}");
    assert_eq!(u64::from_ne_bytes(pages[4096..4104].try_into().unwrap()), 2);
}

#[test]
fn a_keeper_whose_controller_was_killed_while_the_area_was_off_switches_it_on_by_itself() {
    let Some(area) = Area::in_zram(BYTES) else { return };
    let Some(Off { lab, mut controller, keeper, .. }) = caught_off(&area, "1") else { return };
    controller.kill().unwrap();
    controller.wait().unwrap();
    assert_eq!(area.state(), None);
    signal(&keeper, libc::SIGCONT);
    lab.write("gate", "");
    is_given_back(&lab, &area);
    // Its run was made; the next invocation only collects it.
    lab.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((lab.read("started").lines().count(), lab.only_record("c")["prepare"][0]["outcome"].clone()), (1, "done".into()));
}

#[test]
fn an_area_that_a_killed_keeper_left_off_is_switched_on_by_the_next_session() {
    let Some(area) = Area::in_zram(BYTES) else { return };
    let Some(Off { lab, mut controller, keeper, .. }) = caught_off(&area, "600000") else { return };
    controller.kill().unwrap();
    controller.wait().unwrap();
    signal(&keeper, libc::SIGKILL);
    eventually("nothing of it is left", || lab.processes().is_empty().then_some(()));
    assert!(area.state().is_none() && journal(&lab).is_some());
    lab.write("gate", "");
    let ran: Ran = lab.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains(&format!("here  given back: swap area {}", area.path.display())), "{}", ran.stderr());
    is_given_back(&lab, &area);
}
