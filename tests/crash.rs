//! An end at every system call of writing a record, and of sealing a result: what is there afterwards is the old file or the new one,
//! and the next `run` makes it whole. `strace` ends the process as it enters its n-th call of a kind.
//!
//! 24 calls in CI, 6 elsewhere, chosen by chance; all of them by hand: `ISOTHERM_CRASHES=all cargo test --test crash -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "tests")]

#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[expect(dead_code, reason = "each test binary uses a part of it")]
#[path = "survival/rig.rs"]
mod rig;

use lab::{Lab, Ran, User, eventually};
use rig::Rig;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Calls that change what is on disk, or open what will be.
const CALLS: [&str; 11] = ["openat", "write", "fsync", "fdatasync", "rename", "renameat2", "linkat", "unlink", "mkdir", "ftruncate", "fchmod"];

const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, timeout: 20s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, params: { job: [1, 2] }, argv: [./job.sh, \"{job}\"], metrics: { n: { from: stdout, regex: 'n=(\\d+)', unit: x, better: lower } } }
";

fn has_strace() -> bool {
    let there = Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    assert!(there || std::env::var_os("CI").is_none(), "strace is required in CI");
    if !there {
        eprintln!("skipped: there is no strace");
    }
    there
}

/// `isotherm ARGS` under strace with these options; only its first thread is traced, and nothing that it starts.
fn traced(lab: &Lab, options: &[String], args: &[&str]) -> Command {
    let options = options.iter().map(String::as_str);
    lab.isotherm_inside(&["strace", "-o", "/dev/stderr"].into_iter().chain(options).collect::<Vec<_>>(), args)
}

fn lab() -> Lab {
    let lab = Lab::of(User::Caller);
    lab.write("c.yaml", CAMPAIGN);
    lab.write("job.sh", "#!/bin/sh\necho n=$1\n");
    lab
}

/// How often `isotherm ARGS` makes each call.
fn counted(lab: &Lab, args: &[&str]) -> Vec<(&'static str, usize)> {
    let ran = Ran(traced(lab, &[format!("-etrace={}", CALLS.join(","))], args).output().unwrap());
    assert_eq!(ran.code(), Some(0), "{}", ran.stderr());
    let text = ran.stderr();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for call in text.lines().filter_map(|line| line.split_once('(')).map(|(call, _)| call) {
        if let Some(known) = CALLS.iter().find(|known| **known == call) {
            *counts.entry(known).or_default() += 1;
        }
    }
    counts.into_iter().collect()
}

/// Which of all these calls are tried: call and number, from 1.
fn chosen(counts: &[(&'static str, usize)]) -> Vec<(&'static str, usize)> {
    let all: Vec<(&str, usize)> = counts.iter().flat_map(|(call, n)| (1..=*n).map(move |i| (*call, i))).collect();
    let wanted = match std::env::var("ISOTHERM_CRASHES") {
        Ok(text) if text == "all" => all.len(),
        Ok(text) => text.parse().unwrap(),
        Err(_) if std::env::var_os("CI").is_some() => 24,
        Err(_) => 6,
    };
    // Evenly over all of them, from a place that differs from one time to the next.
    let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos() as usize;
    let wanted = wanted.min(all.len());
    let picked = (0..wanted).map(|i| all[(start + i * all.len() / wanted) % all.len()]);
    picked.collect()
}

#[track_caller]
fn whole(lab: &Lab, what: &str) {
    let again = lab.run(&["run", "c.yaml"]);
    assert_eq!(again.code(), Some(0), "after {what}: {}", again.stderr());
    let records = lab.records("c");
    let mut jobs: Vec<i64> = records.iter().map(|(_, record)| record["ids"]["point"]["axes"]["job"].as_i64().unwrap()).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, [1, 2], "after {what}: {records:?}");
    assert!(records.iter().all(|(_, record)| record["status"] == "ok"), "after {what}");
    let verified = lab.run(&["verify", "results/c"]);
    assert_eq!(verified.code(), Some(0), "after {what}: {}{}", verified.stdout(), verified.stderr());
    eventually("no process is left", || lab.processes().is_empty().then_some(()));
    let results = lab.results("c");
    let third: Vec<_> =
        lab.all_files().into_iter().filter(|file| file.starts_with(&results) && file.extension().is_some_and(|e| e == "tmp")).collect();
    assert!(third.is_empty(), "after {what}: {third:?}");
}

#[test]
fn a_controller_that_ends_at_any_call_of_a_night_leaves_whole_files_and_nothing_lost() {
    if !has_strace() {
        return;
    }
    let counts = counted(&lab(), &["run", "c.yaml"]);
    eprintln!("crash: a night makes {counts:?}");
    for (call, n) in chosen(&counts) {
        let lab = lab();
        let ended = traced(&lab, &[format!("-etrace={call}"), format!("-einject={call}:signal=KILL:when={n}")], &["run", "c.yaml"]).output().unwrap();
        assert!(!ended.status.success() || n > 1, "{call} {n}");
        whole(&lab, &format!("{call} {n}"));
    }
}

#[test]
fn records_that_are_read_again_are_the_old_or_the_new_ones_wherever_it_ends() {
    if !has_strace() {
        return;
    }
    let reread = |lab: &Lab| {
        lab.run(&["run", "c.yaml"]).expect(0);
        lab.write("c.yaml", CAMPAIGN.replace("n=(\\d+)", "n=(\\d)"));
    };
    let first = lab();
    reread(&first);
    let args = ["reparse", "results/c", "--campaign", "c.yaml"];
    let counts = counted(&first, &args);
    eprintln!("crash: reading again makes {counts:?}");
    for (call, n) in chosen(&counts) {
        let lab = lab();
        reread(&lab);
        let _ = traced(&lab, &[format!("-etrace={call}"), format!("-einject={call}:signal=KILL:when={n}")], &args).output().unwrap();
        let verified = lab.run(&["verify", "results/c"]);
        assert_eq!(verified.code(), Some(0), "right after {call} {n}: {}{}", verified.stdout(), verified.stderr());
        whole(&lab, &format!("{call} {n} of reparse"));
        let definitions: Vec<String> = lab.records("c").iter().map(|(_, record)| record["metrics"]["n"]["definition"].to_string()).collect();
        assert_eq!(definitions[0], definitions[1], "both by the new rule after {call} {n}");
    }
}

/// strace attached to a process and all its threads; it ends with the process.
fn attach(pid: i32, call: &str, n: usize) -> Child {
    let mut strace = Command::new("strace")
        .args(["-f", "-p", &pid.to_string(), "-o", "/dev/null", &format!("-etrace={call}"), &format!("-einject={call}:signal=KILL:when={n}")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(strace.stderr.take().unwrap()).lines();
    let attached = lines.next().unwrap().unwrap();
    assert!(attached.contains("attached"), "{attached}");
    // Read on, so that it never waits for us.
    std::thread::spawn(move || lines.for_each(drop));
    strace
}

#[test]
fn a_keeper_that_ends_at_any_call_of_sealing_giving_or_forgetting_a_result_leaves_it_whole_or_not_there() {
    if !has_strace() {
        return;
    }
    // Its threads make about so many of each while they seal a result, hand it over and forget it.
    let counts = [("openat", 40), ("write", 6), ("fsync", 3), ("rename", 3), ("mkdir", 1), ("unlink", 1), ("pread64", 8), ("unlinkat", 4)];
    for (call, n) in chosen(&counts) {
        let rig = Rig::new(User::Caller);
        let mut controller = rig.start();
        let keeper = rig.lab.pids_of(" keep --state-dir ");
        let mut strace = attach(keeper[0], call, n);
        rig.open(1);
        eventually("the controller has ended", || controller.try_wait().unwrap());
        let ran = Ran::of(controller);
        assert_eq!(ran.code(), Some(0), "{call} {n}: {}", ran.stderr());
        strace.wait().unwrap();
        let executions = rig.executions(1);
        assert!((1..=2).contains(&executions), "{call} {n}: {executions}");
        rig.settled([executions, rig.executions(2)], 0);
    }
}
