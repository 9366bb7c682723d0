//! The campaign that is shipped with its results: whole, anonymous, and what `configs/reference.yaml` asks for, whatever its numbers are.
#![expect(clippy::unwrap_used, reason = "tests")]

use isotherm::store::index;
use isotherm::store::record::{Record, Status};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn reference() -> PathBuf {
    repository().join("results/reference")
}

/// `isotherm ARGS results/reference` at the top of the repository, as a reader would.
fn look(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isotherm")).args(args).arg("results/reference").current_dir(repository()).output().unwrap()
}

#[track_caller]
fn stdout(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn records() -> Vec<(String, Record)> {
    let all = index::read_all(&reference()).unwrap();
    assert!(all.broken.is_empty(), "{:?}", all.broken);
    all.records
}

#[test]
fn it_is_whole_and_complete() {
    let records = records();
    assert!(stdout(&look(&["verify"])).contains(" 0 damaged"));
    stdout(&look(&["status"]));
    assert!(records.iter().all(|(_, r)| r.status == Status::Ok), "a reference has nothing failed");
    let bytes: u64 = files(&reference()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes < 500_000, "{bytes} bytes are too many for a repository: shorten configs/reference.yaml");
}

#[test]
fn its_report_has_the_tables_of_the_campaign() {
    let report: Value = serde_json::from_str(&stdout(&look(&["report", "--json"]))).unwrap();
    let mut told = String::new();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for table in report["tables"].as_array().unwrap() {
        writeln!(
            told,
            "{} in {}, {} is better ({})",
            text(&table["metric"]),
            text(&table["unit"]),
            text(&table["better"]),
            text(&table["definition"])
        )
        .unwrap();
        for row in table["rows"].as_array().unwrap() {
            let cells: Vec<String> = row["cells"].as_array().unwrap().iter().map(text).collect();
            let number = &row["number"];
            assert!(number["value"].is_number(), "{row}");
            writeln!(told, "  {}: of {} runs", cells.join(" "), number["runs"]).unwrap();
        }
    }
    // Another machine has other numbers, and the same tables.
    insta::assert_snapshot!(told);
}

#[test]
fn a_reader_sees_every_table_in_every_format() {
    for format in ["terminal", "markdown", "csv"] {
        let report = stdout(&look(&["report", "--format", format]));
        for metric in ["latency_ms", "throughput_ips", "throughput_mb_s", "ratio"] {
            assert!(report.contains(metric), "{metric} is not in\n{report}");
        }
    }
}

#[test]
fn it_says_what_was_replaced_and_nothing_of_where_it_was_made() {
    for (path, record) in records() {
        let exported = record.exported.unwrap_or_else(|| panic!("{path} is no public copy"));
        let fields: BTreeSet<&str> = exported.replaced.iter().map(|r| r.field.as_str()).collect();
        for field in ["device.machine.hostname", "device.machine.machine_key", "ids.point_identity"] {
            assert!(fields.contains(field), "{path}: {field} is not among {fields:?}");
        }
        let machine = record.device.machine.unwrap();
        assert!(machine.hostname.starts_with("hmac:") && machine.machine_key.starts_with("hmac:"), "{path}");
        let env = record.backend.executed.unwrap().env;
        assert_eq!((env["HOME"].as_str(), env["USER"].as_str()), ("~", "<redacted>"), "{path}");
    }
    // Paths of this repository stand for those of the machine that made it, where that is this one.
    let here = repository().display().to_string();
    let mac = regex::Regex::new(r"(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b").unwrap();
    for file in files(&reference()) {
        let bytes = fs::read(&file).unwrap();
        let bytes = if file.extension().is_some_and(|e| e == "zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
        let text = String::from_utf8_lossy(&bytes);
        for private in ["/home/", "/root", "/Users/", here.as_str()] {
            assert!(!text.contains(private), "{private} is in {}", file.display());
        }
        assert!(!mac.is_match(&text), "a MAC address is in {}", file.display());
        let absolute = text
            .split('"')
            .find(|part| part.starts_with('/') && !["/usr/", "/lib", "/bin/", "/proc", "/sys/"].iter().any(|system| part.starts_with(system)));
        assert!(absolute.is_none_or(is_no_path), "{absolute:?} is in {}", file.display());
    }
}

/// A JSON pointer, a unit: what begins like a path and has one part.
fn is_no_path(text: &str) -> bool {
    text.matches('/').count() == 1
}

#[test]
fn it_was_made_from_the_campaign_that_is_shipped() {
    let (ours, theirs) =
        (fs::read_to_string(repository().join("configs/reference.yaml")).unwrap(), fs::read_to_string(reference().join("campaign.yaml")).unwrap());
    assert_eq!(theirs, ours, "configs/reference.yaml has changed since: scripts/make_reference");
    let axes: BTreeSet<String> = records().iter().map(|(_, r)| r.ids.point.slug.clone()).collect();
    assert_eq!(axes.len(), 6, "{axes:?}");
}

#[test]
fn its_numbers_can_be_read_again_from_its_own_output() {
    // In a copy: reading takes the lock.
    let dir = tempfile::tempdir().unwrap();
    for file in files(&reference()) {
        let to = dir.path().join(file.strip_prefix(reference()).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&file, to).unwrap();
    }
    let done = Command::new(env!("CARGO_BIN_EXE_isotherm")).args(["reparse", "--dry-run"]).arg(dir.path()).output().unwrap();
    assert_eq!(stdout(&done), "", "another reading than the stored one: scripts/make_reference");
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}
