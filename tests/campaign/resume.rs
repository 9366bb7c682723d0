//! What is done stays done; what was lost is done again, and nothing else.

use crate::kit::{Bench, relative};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn a_campaign_leaves_one_sealed_record_per_job_and_then_has_nothing_to_do() {
    let bench = Bench::new();
    let first = bench.run(&[]).expect(0);
    assert!(first.stderr().contains("4 jobs: 4 ok · 0 failed · 0 pending"), "{}", first.stderr());
    assert_eq!(bench.ran(), ["1", "1", "2", "2"]);
    let records = bench.lab.records("c");
    let jobs: BTreeSet<String> = records.iter().map(|(_, r)| r["ids"]["job_id"].to_string()).collect();
    assert_eq!((records.len(), jobs.len()), (4, 4));
    for (path, record) in &records {
        assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"valid".into()));
        let sealed = isotherm::store::seal::open(&fs::read(path).unwrap()).unwrap();
        assert_eq!(sealed.ids.run_id, record["ids"]["run_id"]);
    }

    let second = bench.run(&[]).expect(0);
    assert!(second.stderr().contains("nothing to do: 4 jobs with a valid record"), "{}", second.stderr());
    assert_eq!(second.stdout(), "");
    assert!(bench.ran().is_empty());
    assert_eq!(bench.lab.records("c"), records);
    bench.look(&["verify"]).expect(0);
}

#[test]
fn interleaved_repetitions_run_there_and_back() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    assert_eq!(bench.lab.read("count"), "1 --quick\n2 --quick\n2 --quick\n1 --quick\n");
}

/// A place in a file of this many bytes.
type At = fn(usize) -> usize;

/// One record is harmed; exactly its job runs again, and it is said why.
#[track_caller]
fn comes_back(bench: &Bench, what: &str, harm: impl FnOnce(&[u8]) -> Option<Vec<u8>>, why: &str) {
    bench.run(&[]).expect(0);
    bench.ran();
    let results = bench.lab.results("c");
    let path = bench.place(2, 1);
    let name = relative(&path, &results);
    let others: BTreeSet<String> = bench.lab.records("c").iter().filter(|(p, _)| *p != path).map(|(_, r)| r["ids"]["run_id"].to_string()).collect();
    let harmed = harm(&fs::read(&path).unwrap());
    match &harmed {
        Some(bytes) => fs::write(&path, bytes).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
    let kept_before = bench.superseded();

    let again = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["2"], "{what}");
    let told = format!("{name}{why}");
    assert!(again.stderr().contains(&told), "{what}: {told:?} is not in:\n{}", again.stderr());
    let reasons = bench.last_event("device_planned")["reasons"].clone();
    assert!(reasons.as_object().unwrap().keys().any(|k| k.starts_with(&told)), "{what}: {reasons}");

    let now = bench.lab.records("c");
    assert_eq!(now.len(), 4, "{what}");
    let untouched = now.iter().filter(|(_, r)| others.contains(&r["ids"]["run_id"].to_string())).count();
    assert_eq!(untouched, 3, "{what}");
    let kept: Vec<String> = bench.superseded().difference(&kept_before).cloned().collect();
    match harmed {
        Some(bytes) => {
            assert_eq!(kept.len(), 1, "{what}: {kept:?}");
            assert_eq!(fs::read(results.join("superseded").join(&kept[0])).unwrap(), bytes, "{what}");
        }
        None => assert!(kept.is_empty(), "{what}: {kept:?}"),
    }
    bench.look(&["verify"]).expect(0);
    bench.look(&["status"]).expect(0);
}

#[test]
fn a_deleted_record_is_measured_again() {
    comes_back(&Bench::new(), "deleted", |_| None, " was deleted");
}

#[test]
fn a_truncated_record_is_kept_apart_and_measured_again() {
    let bench = Bench::new();
    let cuts: [(&str, At); 6] = [
        ("empty", |_| 0),
        ("one byte", |_| 1),
        ("a third", |n| n / 3),
        ("before the seal", |n| n - 76),
        ("in the seal", |n| n - 20),
        ("without its end", |n| n - 1),
    ];
    for (what, cut) in cuts {
        comes_back(&bench, what, |bytes| Some(bytes[..cut(bytes.len())].to_vec()), ": it has no seal at its end");
    }
}

#[test]
fn a_record_with_one_byte_edited_is_kept_apart_and_measured_again() {
    let bench = Bench::new();
    let places: [(&str, At); 3] = [("first", |_| 0), ("middle", |n| n / 2), ("in the seal", |n| n - 30)];
    for (what, at) in places {
        let flip = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let at = at(bytes.len());
            bytes[at] ^= 1;
            Some(bytes)
        };
        comes_back(&bench, what, flip, ": its seal does not fit its content");
    }
}

#[test]
fn a_whole_points_directory_may_be_deleted() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    fs::remove_dir_all(bench.place(1, 0).parent().unwrap()).unwrap();
    let again = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1", "1"]);
    assert!(again.stderr().contains("was deleted"), "{}", again.stderr());
}

#[test]
fn the_index_is_no_authority() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    let before = bench.lab.records("c");
    let index = bench.lab.results("c").join("index.ndjson");
    let right = fs::read(&index).unwrap();
    let half = &right[..right.len() / 2];
    let rubbish: [&[u8]; 4] = [b"", b"\xff\x00 rubbish\n{}\n[1]\n", half, &[half, b"\n", &right].concat()];
    for content in rubbish {
        fs::write(&index, content).unwrap();
        bench.run(&[]).expect(0);
        assert!(bench.ran().is_empty());
        assert_eq!(String::from_utf8(fs::read(&index).unwrap()).unwrap(), String::from_utf8_lossy(&right), "it is rebuilt");
    }
    fs::remove_file(&index).unwrap();
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    assert_eq!(bench.lab.records("c"), before);
}

#[test]
fn an_index_that_promises_a_record_does_not_make_one() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    // The same length and times as the real one: only the change time can tell.
    let path = bench.place(1, 1);
    let bytes = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut edited = bytes.clone();
    let half = edited.len() / 2;
    edited[half] ^= 1;
    fs::write(&path, edited).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1"]);
}

#[test]
fn a_torn_last_line_of_the_journal_is_cut_off_and_kept() {
    let bench = Bench::new();
    bench.run(&["--limit", "1"]).expect(1);
    let path = bench.lab.results("c").join("journal.ndjson");
    let whole = fs::read(&path).unwrap();
    let torn = b"{\"journal_version\":1,\"at\":\"20";
    fs::write(&path, [&whole[..], torn].concat()).unwrap();
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 4);
    assert_eq!(fs::read(bench.lab.results("c").join("journal.torn.0")).unwrap(), torn);
    let recovered = bench.last_event("recovered");
    assert_eq!(recovered["torn_bytes"], torn.len());
    assert!(fs::read(&path).unwrap().starts_with(&whole));
}

#[test]
fn the_journal_is_no_authority() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    let path = bench.lab.results("c").join("journal.ndjson");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, whole.replacen('\n', "\nrubbish in the middle\n", 1)).unwrap();
    bench.run(&[]).expect(0);
    fs::remove_file(&path).unwrap();
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn the_stored_plan_is_no_authority() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    for name in ["plan.json", "devices/here.json", "campaign.yaml"] {
        fs::write(bench.lab.results("c").join(name), "rubbish").unwrap();
    }
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
    let plan: Value = serde_json::from_slice(&fs::read(bench.lab.results("c").join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["points"].as_array().unwrap().len(), 2);
}

#[test]
fn results_can_be_moved_with_their_campaign() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    fs::rename(bench.lab.path("results"), bench.lab.path("archive")).unwrap();
    bench.run(&["--results", "archive"]).expect(0);
    assert!(bench.ran().is_empty());
}
