//! A lab with one small campaign, `c.yaml`, and a script that counts how often it really ran.

use crate::lab::{Lab, Ran, User};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What most tests run: two points, two repetitions each, `bench.sh` with its size.
const CAMPAIGN: &str = r#"campaign: c
devices: { here: { local: {} } }
defaults: { retry_contaminated: 0, repetitions: 2, timeout: 20s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - devices: here
    backend: command
    params: { size: [1, 2] }
    env: { MODE: fast }
    argv: [./bench.sh, "{size}", --quick]
    metrics: { score: { from: stdout_last_line, json: /score, unit: points, better: higher } }
"#;

/// One point, one repetition, no metric of its own.
const ONE: &str = "campaign: c
devices: { here: { local: {} } }
defaults: { retry_contaminated: 0, repetitions: 1, timeout: 20s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - devices: here
    backend: command
";

pub struct Bench {
    pub lab: Lab,
    seen: Cell<usize>,
}

impl Bench {
    /// The standard campaign.
    pub fn new() -> Bench {
        let bench = Bench::empty(User::Caller);
        bench.lab.write("c.yaml", CAMPAIGN);
        bench.script("bench.sh", "echo '{\"score\": '$1'.5}'");
        bench
    }

    /// One point, one repetition; `block` is what comes below `backend: command`, without indentation.
    pub fn one(block: &str) -> Bench {
        Bench::one_of(User::Caller, block)
    }

    pub fn one_of(user: User, block: &str) -> Bench {
        let bench = Bench::empty(user);
        let lines: String = block.lines().map(|line| format!("    {}\n", line.trim_start())).collect();
        bench.lab.write("c.yaml", format!("{ONE}{lines}"));
        bench
    }

    /// One point that runs `bench.sh` with this body, and reads its numbers by these rules.
    pub fn reading(body: &str, metrics: &str) -> Bench {
        let bench = Bench::one(&format!("argv: [./bench.sh]\nmetrics: {{ {metrics} }}"));
        bench.script("bench.sh", body);
        bench
    }

    pub fn empty(user: User) -> Bench {
        Bench { lab: Lab::of(user), seen: Cell::new(0) }
    }

    /// A script that notes its arguments before it does anything else.
    pub fn script(&self, name: &str, body: &str) {
        self.lab.write(name, self.script_text(body));
    }

    pub fn script_text(&self, body: &str) -> String {
        format!("#!/bin/sh\necho \"$@\" >> {}\n{body}\n", self.lab.path("count").display())
    }

    /// Change a file's text; what is to be replaced has to be there.
    #[track_caller]
    pub fn edit(&self, name: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.lab.path(name)).unwrap();
        assert!(text.contains(old), "no {old:?} in {name}:\n{text}");
        self.lab.write(name, text.replace(old, new));
    }

    /// `isotherm run c.yaml ARGS`.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.lab.run(&[&["run", "c.yaml"], args].concat())
    }

    /// First arguments of what ran since the last question, sorted.
    pub fn ran(&self) -> Vec<String> {
        let text = self.lab.read("count");
        let lines: Vec<&str> = text.lines().collect();
        let mut new: Vec<String> = lines[self.seen.get()..].iter().map(|l| l.split(' ').next().unwrap_or_default().to_owned()).collect();
        self.seen.set(lines.len());
        new.sort();
        new
    }

    /// The only record.
    #[track_caller]
    pub fn record(&self) -> Value {
        self.lab.only_record("c")
    }

    /// Path of a record relative to the results directory, which has to be there.
    #[track_caller]
    pub fn place(&self, size: i64, repetition: u64) -> PathBuf {
        let is_it = |r: &Value| r["ids"]["point"]["axes"]["size"] == size && r["ids"]["repetition"] == repetition;
        let found = self.lab.records("c").into_iter().find(|(path, r)| is_it(r) && !path.display().to_string().contains(".attempt"));
        found.unwrap_or_else(|| panic!("no record of size={size} r{repetition}")).0
    }

    /// Names of the files in `superseded/`.
    pub fn superseded(&self) -> BTreeSet<String> {
        let dir = fs::read_dir(self.lab.results("c").join("superseded"));
        dir.into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Events of the journal.
    pub fn journal(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.lab.results("c").join("journal.ndjson")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last event of this name in the journal.
    #[track_caller]
    pub fn last_event(&self, name: &str) -> Value {
        self.journal().into_iter().rfind(|e| e["event"] == name).unwrap_or_else(|| panic!("no {name} in the journal"))
    }

    /// `isotherm ARGS results/c`.
    pub fn look(&self, args: &[&str]) -> Ran {
        self.lab.run(&[args, &["results/c"]].concat())
    }
}

/// `timing-r0.json below which directory`: relative to the results directory, as messages name it.
pub fn relative(path: &Path, results: &Path) -> String {
    path.strip_prefix(results).unwrap().display().to_string()
}

/// Text of a stream in a record.
pub fn text(stream: &Value) -> &str {
    assert_eq!(stream["head"]["encoding"], "utf8", "{stream}");
    stream["head"]["data"].as_str().unwrap()
}

/// Codes of a record's issues.
pub fn issues(record: &Value) -> Vec<&str> {
    record["issues"].as_array().unwrap().iter().map(|i| i["code"].as_str().unwrap()).collect()
}
