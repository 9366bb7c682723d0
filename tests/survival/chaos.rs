//! Who is killed, and when, is left to chance. Afterwards one `run` has to leave one sealed record for every job and nothing else.
//!
//! 50 rounds in CI, 8 elsewhere; by hand `ISOTHERM_CHAOS=1000 cargo test --test survival chaos -- --nocapture`. A round that fails names
//! its seed: `ISOTHERM_CHAOS_SEED=<seed> ISOTHERM_CHAOS=1` repeats its choices, though not the scheduler's.

use crate::lab::{Lab, User, eventually, is_root};
use crate::rig::signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

const JOBS: u64 = 4;

/// Leaves a child of its child behind, in a session of its own, and works for as long as it is told.
const WORKLOAD: &str = "#!/bin/sh
(setsid sleep 300 > /dev/null 2>&1 &)
i=0
while [ $i -lt $2 ]; do i=$((i + 1)); done
echo done $1
";

/// Who is ended with KILL.
const VICTIMS: [(&str, &[&str]); 7] = [
    ("controller", &["isotherm run"]),
    ("connection", &[" serve --nonce "]),
    ("keeper", &[" keep --state-dir "]),
    ("init", &[" init --level "]),
    ("workload", &["./workload.sh"]),
    ("keeper and init", &[" keep --state-dir ", " init --level "]),
    ("everything", &["isotherm run", " serve --nonce ", " keep --state-dir ", " init --level ", "./workload.sh"]),
];

/// SplitMix64 (Steele, Lea, Flood 2014): a choice can be repeated.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn whoever_is_killed_at_whatever_moment_every_job_gets_one_record() {
    let in_ci = std::env::var_os("CI").is_some();
    let rounds = number("ISOTHERM_CHAOS").unwrap_or(if in_ci { 50 } else { 8 });
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("ISOTHERM_CHAOS_SEED").unwrap_or(since_1970.as_nanos() as u64);
    eprintln!("chaos: {rounds} rounds from seed {seed}");
    for round in 0..rounds {
        let seed = seed.wrapping_add(round);
        let told =
            std::panic::catch_unwind(|| play(seed)).unwrap_or_else(|_| panic!("round {round} failed: ISOTHERM_CHAOS_SEED={seed} ISOTHERM_CHAOS=1"));
        if rounds > 50 && round % 50 == 49 {
            eprintln!("chaos: {} rounds; the last: {told}", round + 1);
        }
    }
}

/// One campaign with up to three deaths in it; what happened, in words.
fn play(seed: u64) -> String {
    let mut chance = Chance(seed);
    let user = if is_root() && chance.below(2) == 0 { User::Ordinary } else { User::Caller };
    let lab = Lab::of(user);
    lab.write("workload.sh", WORKLOAD);
    let length = 1 + chance.below(40_000);
    lab.write(
        "c.yaml",
        format!(
            "campaign: c
devices: {{ here: {{ local: {{}} }} }}
defaults: {{ repetitions: 1, timeout: 60s, warmup: {}, prepare: {{ settle: {}ms }} }}
matrix:
  - {{ devices: here, backend: command, params: {{ job: [1, 2, 3, 4] }}, argv: [./workload.sh, \"{{job}}\", \"{length}\"] }}
",
            chance.below(2),
            chance.below(2) * 20
        ),
    );
    let mut told = format!("{user:?}, work {length}");
    let mut controller = lab.start(&["run", "c.yaml"]);
    for _ in 0..=chance.below(3) {
        // A moment of the night: a line of the journal, and a little later.
        let (line, later) = (chance.below(3 * JOBS), chance.below(60_000));
        let journal = lab.results("c").join("journal.ndjson");
        let lines = || fs::read(&journal).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count() as u64);
        eventually("the moment has come, or the night is over", || (lines() >= line || controller.try_wait().unwrap().is_some()).then_some(()));
        for _ in 0..later {
            std::hint::spin_loop();
        }
        let (name, texts) = VICTIMS[chance.below(VICTIMS.len() as u64) as usize];
        let pids: Vec<i32> = texts.iter().flat_map(|text| lab.pids_of(text)).collect();
        signal(&pids, libc::SIGKILL);
        let _ = write!(told, "; {name} ({} processes) after line {line}", pids.len());
    }
    // Whatever became of it, it comes to an end.
    eventually("the controller has ended", || controller.try_wait().unwrap());
    let again = lab.run(&["run", "c.yaml"]);
    let context = || format!("{told}\nseed {seed}\nstdout:\n{}\nstderr:\n{}\njournal:\n{}", again.stdout(), again.stderr(), journal(&lab));
    assert_eq!(again.code(), Some(0), "{}", context());
    let records = lab.records("c");
    let is_attempt = |path: &PathBuf| path.display().to_string().contains(".attempt");
    let answers: Vec<&Value> = records.iter().filter(|(path, _)| !is_attempt(path)).map(|(_, record)| record).collect();
    let mut jobs: Vec<u64> = answers.iter().map(|record| record["ids"]["point"]["axes"]["job"].as_u64().unwrap()).collect();
    jobs.sort_unstable();
    assert_eq!(jobs, (1..=JOBS).collect::<Vec<_>>(), "{}", context());
    for answer in answers {
        let said = format!("done {}\n", answer["ids"]["point"]["axes"]["job"]);
        assert_eq!((&answer["status"], &answer["raw"]["stdout"]["head"]["data"]), (&"ok".into(), &said.into()), "{}", context());
    }
    let run_ids: BTreeSet<&str> = records.iter().map(|(_, record)| record["ids"]["run_id"].as_str().unwrap()).collect();
    assert_eq!(run_ids.len(), records.len(), "a run has two records: {}", context());
    assert_eq!(lab.run(&["verify", "results/c"]).code(), Some(0), "{}", context());
    eventually("no process of the lab is left", || lab.processes().is_empty().then_some(()));
    told
}

fn journal(lab: &Lab) -> String {
    fs::read_to_string(lab.results("c").join("journal.ndjson")).unwrap_or_default()
}
