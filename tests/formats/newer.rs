//! What a newer isotherm has written: named with its version and what to do, never measured over, moved, dropped or changed.

use crate::copy;
use crate::lab::{Lab, eventually};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 2, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, warmup: 0, argv: [./job.sh] }
";

fn night() -> Lab {
    let lab = Lab::new();
    lab.write("c.yaml", CAMPAIGN);
    lab.write("job.sh", "#!/bin/sh\necho x >> count\n");
    lab.run(&["run", "c.yaml"]).expect(0);
    lab
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Every file with its content, but for who looked last.
fn contents(dir: &Path, of: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents(&path, of);
        } else if path.file_name().unwrap() != ".lock" {
            of.insert(path.clone(), fs::read(path).unwrap());
        }
    }
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// What makes a file one of a newer version.
type Edit<'a> = &'a dyn Fn(&Path);

/// Give a record another content, and the seal that fits it.
fn edit_sealed(path: &Path, from: &str, to: &str) {
    edit(path, from, to);
    let mut bytes = fs::read(path).unwrap();
    bytes.truncate(bytes.len() - 75);
    let seal = format!("\"seal\":\"{}\"}}\n", hex(&bytes));
    bytes.extend(seal.bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn nothing_is_written_into_a_directory_in_which_a_newer_isotherm_has_written_anything() {
    let lab = night();
    copy(&lab.results("c"), &lab.path("good"));
    let record = lab.records("c").remove(1).0;
    let files: [(&Path, Edit<'_>); 5] = [
        (record.strip_prefix(lab.results("c")).unwrap(), &|path| edit_sealed(path, "\"schema_version\":1", "\"schema_version\":2")),
        (Path::new(".isotherm-id"), &|path| edit(path, "\"id_version\": 1", "\"id_version\": 2")),
        (Path::new("plan.json"), &|path| edit(path, "\"plan_version\": 1", "\"plan_version\": 2")),
        (Path::new("devices/here.json"), &|path| edit(path, "\"report_version\": 1", "\"report_version\": 2")),
        (Path::new("journal.ndjson"), &|path| edit(path, "\"journal_version\":1", "\"journal_version\":2")),
    ];
    for (file, newer) in files {
        fs::remove_dir_all(lab.results("c")).unwrap();
        copy(&lab.path("good"), &lab.results("c"));
        newer(&lab.results("c").join(file));
        let mut before = BTreeMap::new();
        contents(&lab.results("c"), &mut before);
        for args in [
            &["run", "c.yaml"][..],
            &["run", "c.yaml", "--fresh"],
            &["plan", "--refresh", "c.yaml"],
            &["reparse", "results/c"],
            &["cancel", "c.yaml"],
        ] {
            // Ending a run needs no record.
            if args[0] == "cancel" && file.starts_with("here") {
                continue;
            }
            let refused = lab.run(args).expect(2).stderr();
            let told = format!("results/c/{} was written by a newer isotherm (version 2, this one reads up to 1)", file.display());
            assert!(refused.contains(&told) && refused.contains("hint: use a newer isotherm here"), "{args:?}: {refused}");
        }
        let mut after = BTreeMap::new();
        contents(&lab.results("c"), &mut after);
        assert!(before == after, "{}", file.display());
    }
    assert_eq!(lab.read("count").lines().count(), 2, "nothing was measured again");
}

#[test]
fn a_newer_record_is_shown_as_such_and_not_as_damaged() {
    let lab = night();
    let record = lab.records("c").remove(1).0;
    edit_sealed(&record, "\"schema_version\":1", "\"schema_version\":2");
    let verified = lab.run(&["verify", "results/c"]).expect(1).stdout();
    assert!(verified.contains("newer    here/") && verified.ends_with("2 files checked: 1 whole, 0 damaged, 1 of a newer isotherm\n"), "{verified}");
    let json: Value = serde_json::from_str(&lab.run(&["verify", "results/c", "--json"]).expect(1).stdout()).unwrap();
    assert_eq!((json["damaged"].as_array().unwrap().len(), json["newer"].as_array().unwrap().len()), (0, 1));
    for args in [["report", "results/c"], ["status", "results/c"]] {
        let shown = lab.run(&args);
        assert!(shown.stdout().contains("written by a newer isotherm (version"), "{}", shown.stdout());
    }
    for args in [&["plan", "c.yaml"][..], &["export", "results/c", "--public", "copy"]] {
        let refused = lab.run(args);
        assert!(refused.code() != Some(0) && refused.stderr().contains("was written by a newer isotherm"), "{}", refused.stderr());
    }
}

#[test]
fn a_field_that_the_version_does_not_have_is_named_and_its_record_kept() {
    let lab = night();
    let record = lab.records("c").remove(1).0;
    edit_sealed(&record, "\"schema_version\":1,", "\"schema_version\":1,\n\"moon\":true,");
    let verified = lab.run(&["verify", "results/c"]).expect(1).stdout();
    assert!(verified.contains("unknown field `moon`"), "{verified}");
    let run = lab.run(&["run", "c.yaml"]).expect(0);
    assert!(run.stderr().contains("1 lost") && run.stderr().contains("unknown field `moon`"), "{}", run.stderr());
    let kept = fs::read_dir(lab.results("c").join("superseded")).unwrap().next().unwrap().unwrap().path();
    assert!(fs::read_to_string(kept).unwrap().contains("\"moon\":true"));
}

/// The directory of a run in the spool that nobody has collected.
fn left(lab: &Lab) -> PathBuf {
    lab.write("job.sh", "#!/bin/sh\necho x >> count\nwhile [ ! -e go ]; do sleep 0.01; done\n");
    let mut controller = lab.start(&["run", "c.yaml"]);
    eventually("it runs", || (lab.read("count").lines().count() == 3).then_some(()));
    controller.kill().unwrap();
    controller.wait().unwrap();
    lab.write("go", "");
    let machine = fs::read_dir(lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path();
    let run = fs::read_dir(machine.join("spool")).unwrap().next().unwrap().unwrap().path();
    let is_sealed = |run: &Path| fs::read_dir(run).unwrap().flatten().any(|f| f.file_name().to_string_lossy().starts_with("result-"));
    eventually("it is sealed", || is_sealed(&run).then_some(()));
    run
}

/// Give the sealed result another content, and the name that fits it.
fn edit_result(run: &Path, from: &str, to: &str) {
    let file = fs::read_dir(run).unwrap().flatten().map(|f| f.path()).find(|f| f.file_name().unwrap().to_string_lossy().starts_with("result-"));
    let file = file.unwrap();
    edit(&file, from, to);
    fs::rename(&file, run.join(format!("result-{}.json", hex(&fs::read(&file).unwrap())))).unwrap();
}

#[test]
fn what_a_newer_isotherm_has_left_in_a_spool_stays_there_with_a_warning() {
    let lab = night();
    let run = left(&lab);
    let spool = run.parent().unwrap();
    copy(&run, &lab.path("left"));
    let edits: [&dyn Fn(); 3] = [
        &|| edit(&run.join("run.json"), "\"spool_version\":1", "\"spool_version\":2"),
        &|| edit(&run.join("run.json"), "\"manifest_version\":1", "\"manifest_version\":2"),
        &|| edit_result(&run, "\"result_version\":1", "\"result_version\":2"),
    ];
    for newer in edits {
        fs::remove_dir_all(&run).unwrap();
        copy(&lab.path("left"), &run);
        newer();
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        contents(spool, &mut before);
        assert!(before.keys().any(|path| path.starts_with(&run)));
        let told = "it was written by a newer isotherm (version 2, this one reads up to 1)";
        // The rest of the night goes on.
        let ran = lab.run(&["run", "c.yaml"]).expect(0);
        assert!(ran.stderr().contains("stays on device `here`") && ran.stderr().contains(told), "{}", ran.stderr());
        eventually("the keeper has ended", || lab.processes().is_empty().then_some(()));
        let collected = lab.run(&["collect", "--into", "rescued"]).expect(1);
        assert!(collected.stderr().contains("left: ") && collected.stderr().contains(told), "{}", collected.stderr());
        contents(spool, &mut after);
        assert!(before == after, "{after:?}");
    }
}

#[test]
fn a_device_that_a_newer_keeper_has_quarantined_is_not_used() {
    let lab = night();
    let machine = fs::read_dir(lab.path("state/isotherm")).unwrap().next().unwrap().unwrap().path();
    fs::write(machine.join("quarantine.json"), "{\"quarantine_version\":2,\"pids\":[1]}").unwrap();
    let refused = lab.run(&["run", "c.yaml", "--fresh"]).expect(4);
    let told = "names processes that could not be ended, but it was written by a newer isotherm (version 2, this one reads up to 1)";
    assert!(refused.stderr().contains(told), "{}", refused.stderr());
    assert!(machine.join("quarantine.json").exists());
}
