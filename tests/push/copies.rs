//! What is copied, and when.

use crate::lab::{User, eventually, for_each_user};
use crate::rig::{Rig, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};

#[test]
fn a_model_is_copied_once_and_runs_use_the_copy() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        rig.run().expect(0);
        rig.ran_with_the_copy();
        assert_eq!(rig.copies(), [rig.model.len() as u64]);
        for place in [rig.cache(), rig.copied().parent().unwrap().to_owned()] {
            assert_eq!(fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o700);
        }
        // The second night has nothing to run, the third one has and finds the model there.
        rig.run().expect(0);
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        rig.ran_with_the_copy();
        assert_eq!(rig.copies().len(), 1);
    });
}

#[test]
fn a_model_that_no_run_needs_is_not_copied() {
    let rig = Rig::new(User::Caller);
    rig.lab.run(&["run", "c.yaml", "--dry-run"]).expect(0);
    assert!(!rig.cache().exists());
    rig.run().expect(0);
    fs::remove_dir_all(rig.cache()).unwrap();
    // Every job has its answer: the identity is the content of the file here, wherever copies lie.
    rig.run().expect(0);
    rig.lab.run(&["status", "results/c"]).expect(0);
    assert_eq!(rig.copies().len(), 1);
    rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
    rig.ran_with_the_copy();
    assert_eq!(rig.copies().len(), 2);
}

#[test]
fn whether_a_model_is_copied_is_no_part_of_the_identity() {
    let rig = Rig::new(User::Caller);
    rig.campaign("c", "path: models/m.bin");
    rig.run().expect(0);
    let own = rig.lab.only_record("c");
    rig.campaign("c", "path: models/m.bin, push: true");
    rig.run().expect(0);
    rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
    rig.ran_with_the_copy();
    assert_eq!(rig.lab.only_record("c")["ids"]["point_identity"], own["ids"]["point_identity"]);
}

#[test]
fn another_content_is_another_model_and_is_copied_beside_the_first() {
    let mut rig = Rig::new(User::Caller);
    rig.run().expect(0);
    let first = rig.copied();
    rig.model.extend(b"more");
    rig.lab.write("models/m.bin", &rig.model);
    rig.run().expect(0);
    rig.ran_with_the_copy();
    assert!(first.exists() && first != rig.copied());
}

#[test]
fn two_names_of_one_machine_get_one_copy() {
    let rig = Rig::new(User::Caller);
    let text = rig.lab.read("c.yaml").replace("here: { local: {} }", "here: { local: {} }, again: { local: {} }");
    rig.lab.write("c.yaml", text.replace("devices: here", "devices: [here, again]"));
    rig.run().expect(0);
    assert_eq!((rig.copies(), rig.lab.records("c").len()), (vec![rig.model.len() as u64], 2));
}

#[test]
fn a_device_with_a_path_of_its_own_gets_no_copy() {
    let rig = Rig::new(User::Caller);
    rig.lab.write("elsewhere/m.bin", &rig.model);
    rig.campaign("c", "path: models/m.bin, push: true, paths: { here: elsewhere/m.bin }");
    rig.run().expect(0);
    assert!(!rig.cache().exists());
    assert!(rig.lab.only_record("c")["raw"]["stdout"]["head"]["data"].as_str().unwrap().ends_with("elsewhere/m.bin\n"));
}

#[test]
fn the_engine_of_builtin_reads_the_copy() {
    let rig = Rig::new(User::Caller);
    rig.lab.write("m.onnx", fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/configs/models/tiny-cnn.onnx")).unwrap());
    let text = "campaign: b\ndevices: { here: { local: {} } }\nmodels: { m: { path: m.onnx, push: true } }\ndefaults: { repetitions: 1, prepare: { settle: 0ms }, rounds: 1, iterations: 1, warmup: 0 }\nmatrix:\n  - { devices: here, backend: builtin, model: m }\n";
    rig.lab.write("b.yaml", text);
    rig.lab.run(&["run", "b.yaml"]).expect(0);
    let record = rig.lab.only_record("b");
    assert_eq!(record["status"], "ok", "{record}");
    assert!(record["workload"]["model"]["path"].as_str().unwrap().contains("/models/"), "{}", record["workload"]["model"]);
}

#[test]
fn who_stops_a_copy_finds_it_gone_on_with_by_the_next_run() {
    let mut rig = Rig::new(User::Caller);
    let mut controller = rig.copying();
    // The device takes no more until the signal has been heard, else what is left of the copy may be faster.
    let keepers = rig.lab.pids_of(" keep ");
    // SAFETY: plain integers.
    let to_keepers = |signal| keepers.iter().for_each(|pid| assert_eq!(unsafe { libc::kill(*pid, signal) }, 0));
    to_keepers(libc::SIGSTOP);
    signal(&controller, libc::SIGINT);
    signal(&controller, libc::SIGCONT);
    let (mut stderr, mut said) = (BufReader::new(controller.stderr.take().unwrap()), String::new());
    while !said.contains("no new jobs") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    to_keepers(libc::SIGCONT);
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(controller.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("1 pending") && rig.copies().is_empty(), "{said}");
    let before = rig.copied_bytes();
    rig.run().expect(0);
    rig.ran_with_the_copy();
    assert_eq!(rig.copies(), [rig.model.len() as u64 - before]);
}

#[test]
fn a_copy_that_was_cut_goes_on_where_it_ended_whoever_was_killed() {
    for_each_user(|user| {
        let mut rig = Rig::new(user);
        let mut controller = rig.copying();
        controller.kill().unwrap();
        controller.wait().unwrap();
        let (before, total) = (rig.copied_bytes(), rig.model.len() as u64);
        // The next one's keeper is killed, and the connection with it: it comes back and goes on.
        let controller = rig.lab.start(&["run", "c.yaml"]);
        eventually("it goes on", || (rig.copied_bytes() > before || rig.copied().exists()).then_some(()));
        for pid in rig.lab.pids_of(" keep ") {
            // SAFETY: plain integers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        crate::lab::Ran::of(controller).expect(0);
        rig.ran_with_the_copy();
        let started = rig.events("push_started");
        let offset = started[1]["offset"].as_u64().unwrap();
        assert!(started.len() == 2 && started[0]["offset"] == 0 && offset >= before, "{started:?}");
        // A chunk whose answer was lost is said twice, and written once.
        let [sent] = rig.copies()[..] else { panic!() };
        assert!((total - offset..=total - offset + (512 << 10)).contains(&sent), "{sent} of {total}, from {offset} on");
    });
}

const PARTS: [&str; 3] = ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"];

/// A model in three files, the last of which is as the first, and a run that says what lies beside the one that it is given.
fn in_parts(user: User, model: &str) -> Rig {
    let rig = Rig::new(user);
    for (part, content) in PARTS.iter().zip(["the first", "another one", "the first"]) {
        rig.lab.write(&format!("models/{part}"), content);
    }
    rig.lab.write("workload.sh", "#!/bin/sh\ncd \"$(dirname \"$1\")\" && cat m-*-of-00003.gguf\n");
    rig.campaign("c", model);
    rig
}

#[test]
fn all_files_of_a_model_are_copied_beside_each_other() {
    for_each_user(|user| {
        let rig = in_parts(user, "path: models/m-00001-of-00003.gguf");
        rig.run().expect(0);
        let own = rig.lab.only_record("c");
        rig.campaign("c", "path: models/m-00001-of-00003.gguf, push: true");
        rig.run().expect(0);
        assert!(!rig.cache().exists(), "the same content is the same point, wherever it lies");
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        let record = rig.lab.only_record("c");
        assert_eq!((&record["status"], &record["ids"]["point_identity"]), (&"ok".into(), &own["ids"]["point_identity"]));
        assert_eq!(record["raw"]["stdout"]["head"]["data"], "the firstanother onethe first");
        assert_eq!(rig.copies(), [9, 11, 9]);
        // For people it is one model.
        let kept = || {
            serde_json::from_str::<serde_json::Value>(&rig.lab.run(&["models", "--json"]).expect(0).stdout()).unwrap()["kept"]
                .as_array()
                .unwrap()
                .clone()
        };
        assert_eq!((kept().len(), &kept()[0]["name"], &kept()[0]["bytes"]), (1, &PARTS[0].into(), &29.into()));
        // A file of it that is gone or another one is copied again, and no other.
        let set = fs::read_dir(rig.cache()).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(set.join(PARTS[2])).unwrap();
        fs::write(set.join(PARTS[1]), "rotten").unwrap();
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        assert_eq!(rig.copies(), [9, 11, 9, 11, 9]);
        // Another content of one file is another model.
        rig.lab.write("models/m-00002-of-00003.gguf", "a third one");
        let changed = rig.run().expect(0);
        assert!(changed.stderr().contains("model[2] changed"), "{}", changed.stderr());
        assert_eq!(kept().len(), 2);
        rig.lab.run(&["models", "--evict", &set.file_name().unwrap().to_str().unwrap()[..8]]).expect(0);
        assert!(kept().len() == 1 && !set.exists());
        // What has come of a file goes on where it ended.
        rig.lab.write("models/m-00002-of-00003.gguf", "another one");
        let begun = rig.cache().join(format!("{}.part", isotherm::digest::sha256_hex(b"another one")));
        fs::write(&begun, "another").unwrap();
        if user == User::Ordinary {
            chown(&begun, Some(65534), Some(65534)).unwrap();
        }
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        assert_eq!(rig.copies()[8..], [9, 4, 9]);
        assert!(set.join(PARTS[1]).exists() && !begun.exists());
    });
}

#[test]
fn a_model_without_one_of_its_files_is_copied_nowhere() {
    let rig = in_parts(User::Caller, "path: models/m-00001-of-00003.gguf, push: true");
    fs::remove_file(rig.lab.path("models/m-00003-of-00003.gguf")).unwrap();
    let failed = rig.run().expect(1);
    assert!(failed.stderr().contains("models/m-00003-of-00003.gguf: No such file or directory; its job will fail"), "{}", failed.stderr());
    assert!(!rig.cache().exists());
    let doctor = rig.lab.run(&["doctor", "c.yaml"]).expect(1);
    assert!(doctor.stdout().contains("models/m-00003-of-00003.gguf here, to be copied"), "{}", doctor.stdout());
}
