//! `tests/recorded/formats/v<N>`: a night as the isotherm of that version left it. A new version adds a directory, and its snapshots differ
//! from those before it only where it says more.

use crate::copy;
use crate::lab::Lab;
use isotherm::plan::identity::DeviceReport;
use isotherm::store::index::AllRecords;
use isotherm::store::record::Record;
use isotherm::store::{formats, index, journal, plan_file, results, sidecar};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

fn versions() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/formats");
    let mut versions: Vec<PathBuf> = fs::read_dir(top).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with('v'));
    versions.sort();
    assert!(!versions.is_empty());
    versions
}

/// A snapshot for each version, under its name.
fn for_each_version(what: &str, said: impl Fn(&Path) -> String) {
    for version in versions() {
        let name = format!("{}_{what}", version.file_name().unwrap().to_str().unwrap());
        insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../snapshots/formats", omit_expression => true }, {
            insta::assert_snapshot!(name, said(&version));
        });
    }
}

/// All that is done by means of a record.
fn meaning(path: &str, record: &Record) -> String {
    let Record { ids, status, reason, message, validity, issues, time, device, backend, workload, settle, metrics, iterations, raw, read, .. } =
        record;
    let meaning = json!({
        "run_id": ids.run_id, "identity": ids.point_identity, "axes": ids.point.axes, "repetition": ids.repetition, "attempt": ids.attempt,
        "status": status, "reason": reason, "message": message, "validity": validity, "issues": issues,
        "start_utc": time.start_utc, "measure_ms": time.measure_ms,
        "kernel": device.machine.as_ref().map(|m| &m.kernel), "containment": device.containment.as_ref().map(|c| c.level),
        "argv": backend.executed.as_ref().map(|e| &e.argv), "files": backend.files.iter().map(|f| &f.file.sha256).collect::<Vec<_>>(),
        "model": workload.model.as_ref().map(|m| &m.sha256), "answer": workload.output_digest, "settle": settle,
        "metrics": metrics.iter().map(|(name, m)| (name, (m.value, &m.unit, m.n, &m.definition))).collect::<Vec<_>>(),
        "timed": iterations.as_ref().map(|i| &i.rounds_ns), "stdout": (raw.stdout.bytes, &raw.stdout.sha256),
        "read_again": read.as_ref().map(|r| r.again.len()), "sidecars": sidecar::of(record).iter().map(|s| &s.name).collect::<Vec<_>>(),
    });
    format!("{path}\n{meaning:#}\n")
}

#[test]
fn every_record_says_what_it_said_and_has_the_seal_that_it_had() {
    for_each_version("records", |version| {
        let dir = version.join("results");
        let mut all = index::read_all(&dir).unwrap();
        for entry in fs::read_dir(dir.join(index::SUPERSEDED)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "json") {
                all.read(path.strip_prefix(&dir).unwrap().display().to_string(), &path);
            }
        }
        let AllRecords { mut records, broken, newer } = all;
        assert!(broken.is_empty() && newer.is_empty(), "{broken:?} {newer:?}");
        records.sort_by(|a, b| a.0.cmp(&b.0));
        records.iter().map(|(path, record)| meaning(path, record)).collect()
    });
}

#[test]
fn everything_beside_the_records_says_what_it_said() {
    for_each_version("beside", |version| {
        let dir = version.join("results");
        let id = results::read_id(&dir).unwrap();
        let plan = plan_file::read(&dir).unwrap().unwrap();
        let report: DeviceReport = formats::read(formats::REPORT, &dir.join("devices/here.json")).unwrap().unwrap();
        let (events, bad) = journal::read(&dir).unwrap();
        assert!(bad.is_empty());
        let points = plan.points.iter().map(|p| json!([p.point.slug, p.swept, p.repetitions, p.point_identity]));
        let beside = json!({
            "results_id": id.results_id, "campaign": id.campaign, "campaign_file": id.campaign_file,
            "plan": points.collect::<Vec<_>>(),
            "device": { "taken_at": report.taken_at, "machine": report.machine, "engine": report.engine, "files": report.files.len() },
            "journal": events.iter().map(|e| json!([e["at"], e["event"], e["run_id"]]).to_string()).collect::<Vec<_>>(),
        });
        format!("{beside:#}")
    });
}

#[test]
fn its_report_is_the_same_and_verify_finds_it_whole() {
    for_each_version("report", |version| {
        let lab = Lab::new();
        copy(&version.join("results"), &lab.results("night"));
        lab.run(&["verify", "results/night"]).expect(0);
        lab.run(&["status", "results/night"]).expect(0);
        lab.run(&["report", "--format", "csv", "results/night"]).expect(0).stdout()
    });
}

#[test]
fn its_index_tells_of_a_record_that_is_gone() {
    for version in versions() {
        let lab = Lab::new();
        copy(&version.join("results"), &lab.results("night"));
        let all = index::scan(&lab.results("night")).unwrap();
        assert_eq!((all.gone.len(), all.read), (0, all.entries.len()), "no time of a copy is that of its index");
        fs::remove_file(lab.results("night").join(&all.entries[0].path)).unwrap();
        let scan = index::scan(&lab.results("night")).unwrap();
        // An index of an earlier version is made anew instead.
        let current = fs::read_to_string(version.join("results/index.ndjson")).unwrap().contains("\"index_version\":2,");
        let gone: Vec<&str> = scan.gone.iter().map(|e| e.run_id.as_str()).collect();
        assert_eq!(gone, if current { vec![all.entries[0].run_id.as_str()] } else { vec![] });
    }
}

#[test]
fn reading_it_again_changes_no_byte_of_it() {
    for version in versions() {
        let lab = Lab::new();
        copy(&version.join("results"), &lab.results("night"));
        let before = lab.records("night");
        let bytes: Vec<Vec<u8>> = before.iter().map(|(path, _)| fs::read(path).unwrap()).collect();
        lab.run(&["reparse", "results/night"]).expect(0);
        for ((path, _), old) in before.iter().zip(bytes) {
            assert_eq!(fs::read(path).unwrap(), old, "{}", path.display());
        }
        lab.run(&["verify", "results/night"]).expect(0);
    }
}

/// The state directory of a lab's machine, once something has run there.
fn state(lab: &Lab) -> PathBuf {
    let campaign = "campaign: c\ndevices: { here: { local: {} } }\ndefaults: { prepare: { settle: 0ms } }\nmatrix:\n  - { devices: here, backend: command, warmup: 0, argv: [\"true\"] }\n";
    lab.write("c.yaml", campaign);
    lab.run(&["run", "c.yaml"]).expect(0);
    fs::read_dir(lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_result_in_its_spool_becomes_a_record() {
    for_each_version("collected", |version| {
        let lab = Lab::new();
        copy(&version.join("spool"), &state(&lab).join("spool"));
        lab.run(&["collect", "--into", "results"]).expect(0);
        lab.run(&["verify", "results/left"]).expect(0);
        let all = index::read_all(&lab.results("left")).unwrap();
        assert_eq!(fs::read_dir(state(&lab).join("spool")).unwrap().count(), 0, "what is stored is dropped");
        all.records.iter().map(|(path, record)| meaning(path, record)).collect()
    });
}

#[test]
fn its_quarantine_is_understood_and_ends_with_its_boot() {
    for version in versions() {
        let lab = Lab::new();
        let state = state(&lab);
        fs::copy(version.join("quarantine.json"), state.join("quarantine.json")).unwrap();
        lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        assert!(!state.join("quarantine.json").exists());
    }
}
