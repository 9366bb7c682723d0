//! Files of a results directory that are something else, lie elsewhere or say that they do.

use crate::stranger::{POINT, Stranger, sealed};
use isotherm::digest::sha256_hex;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

/// What may stand in the place of a file, and what is said of it.
const INSTEAD: [(&str, &str); 5] = [
    ("a link", "it is a symbolic link, which is not followed"),
    ("a FIFO", "it is no regular file"),
    ("a socket", "it is no regular file"),
    ("a directory", "is a directory"),
    ("enormous", "it has more than 1024 MiB"),
];

/// Put it there, in the place of whatever was there.
fn put(what: &str, path: &Path, outside: &Path) {
    let _ = fs::remove_file(path);
    match what {
        "a link" => symlink(outside, path).unwrap(),
        "a FIFO" => rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap(),
        "a socket" => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
        "a directory" => fs::create_dir(path).unwrap(),
        "enormous" => File::create(path).unwrap().set_len(1 << 42).unwrap(),
        _ => panic!("{what}"),
    }
}

/// A sidecar in the place of the first record's output.
fn with_sidecar(stranger: &Stranger, name: &str, content: &[u8]) {
    let mut record = stranger.record();
    let sidecar = json!({"name": name, "bytes": content.len(), "sha256": sha256_hex(content), "format": "zstd"});
    let stdout = json!({"bytes": 9, "sha256": "", "head": null, "tail": null, "kept_head_bytes": null, "absent": null, "sidecar": sidecar});
    record["raw"]["stdout"] = stdout;
    stranger.put(&record);
}

/// `verify` names the file and why; no other command is held up, and nothing outside is touched.
#[track_caller]
fn is_named(stranger: &Stranger, why: &str) {
    let verified = stranger.run(&["verify", stranger.dir.to_str().unwrap()]).expect(1).stdout();
    assert!(verified.contains("damaged  here/") && verified.contains(why), "{why}: {verified}");
    stranger.every_command();
}

#[test]
fn a_sidecar_that_climbs_is_named_and_not_opened() {
    let stranger = Stranger::new();
    let outside = stranger.lab.write("outside", "secret");
    let outside = outside.to_str().unwrap();
    for name in ["../../../../outside", outside, "..", ".", "", "a/../../../../../outside", "\0", "x\0y"] {
        with_sidecar(&stranger, name, b"secret");
        is_named(&stranger, "is not a bare file name");
    }
    // Bare, odd, and not there.
    for name in ["a\nb", "-rf", "$(id)", "\u{1b}[2J"] {
        with_sidecar(&stranger, name, b"secret");
        is_named(&stranger, "No such file");
    }
}

#[test]
fn a_sidecar_that_is_something_else_is_named_and_neither_followed_nor_waited_for() {
    let stranger = Stranger::new();
    let outside = stranger.lab.write("outside", "secret");
    let place = stranger.path(POINT).join("x.zst");
    with_sidecar(&stranger, "x.zst", b"secret");
    for (what, why) in INSTEAD {
        put(what, &place, &outside);
        // A sidecar is read as far as its record says.
        is_named(&stranger, if what == "enormous" { "its content is not the one" } else { why });
        let _ = fs::remove_file(&place).or_else(|_| fs::remove_dir(&place));
    }
    // Another name of a file outside is a file: its content was given away with the directory.
    fs::hard_link(&outside, &place).unwrap();
    stranger.every_command();
    assert_eq!(stranger.lab.read("outside"), "secret");
}

#[test]
fn a_small_sidecar_that_would_fill_the_memory_is_given_up() {
    let stranger = Stranger::new();
    // 2 GiB of nothing, in frames of 1 MiB.
    let frame = zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap();
    let bomb = frame.repeat(2048);
    with_sidecar(&stranger, "x.zst", &bomb);
    fs::write(stranger.path(POINT).join("x.zst"), &bomb).unwrap();
    let ran = stranger.run(&["reparse", stranger.dir.to_str().unwrap()]).expect(1);
    assert!(ran.stdout().contains("it comes out as more than"), "{}", ran.stdout());
}

#[test]
fn a_record_that_is_something_else_is_neither_followed_nor_waited_for() {
    for (what, why) in INSTEAD {
        let stranger = Stranger::new();
        let outside = stranger.lab.write("outside.json", sealed(&stranger.record()));
        put(what, &stranger.path(POINT).join("timing-r0.json"), &outside);
        let status = stranger.run(&["status", stranger.dir.to_str().unwrap()]).expect(1).stdout();
        assert!(status.contains(if what == "enormous" { why } else { "missing" }), "{what}: {status}");
        stranger.every_command();
    }
}

#[test]
fn every_other_file_that_is_something_else_is_named_by_who_needs_it() {
    for name in [".isotherm-id", "plan.json", "devices/here.json", "journal.ndjson", "index.ndjson", "campaign.yaml", ".lock"] {
        for (what, why) in INSTEAD {
            let stranger = Stranger::new();
            let outside = stranger.lab.write("outside", "secret\n");
            put(what, &stranger.path(name), &outside);
            let ran = stranger.every_command();
            let said: String = ran.iter().map(|ran| ran.stdout() + &ran.stderr()).collect();
            // The index is a help, and done without.
            assert!(name == "index.ndjson" || said.to_lowercase().contains(&why.to_lowercase()), "{name} is {what}: {said}");
            assert_eq!(stranger.lab.read("outside"), "secret\n", "{name} is {what}");
        }
    }
}

#[test]
fn a_directory_that_leads_elsewhere_is_not_written_into() {
    for name in ["superseded", "devices", "here"] {
        let stranger = Stranger::new();
        fs::create_dir(stranger.lab.path("elsewhere")).unwrap();
        let _ = fs::remove_dir_all(stranger.path(name));
        symlink(stranger.lab.path("elsewhere"), stranger.path(name)).unwrap();
        stranger.lab.write("c.yaml", CAMPAIGN);
        stranger.run(&["run", "c.yaml"]);
        stranger.every_command();
        assert_eq!(fs::read_dir(stranger.lab.path("elsewhere")).unwrap().count(), 0, "{name}");
    }
}

/// One job, which none of the records answers.
const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, warmup: 0, prepare: { settle: 0ms } }
matrix: [{ devices: here, backend: command, argv: [/bin/echo, \"1 ms\"], metrics: { m: { from: stdout, regex: '([0-9]+) ms', unit: ms, better: lower } } }]
";

#[test]
fn an_id_of_a_run_that_climbs_names_no_file() {
    for id in ["../../../victim", "/x", "a/b", "..", "", "a\0", "a\nb", "a b"] {
        let stranger = Stranger::new();
        let victim = stranger.lab.write("victim.json", "precious");
        let mut record = stranger.record();
        record["ids"]["run_id"] = id.into();
        // Reading it again would change it: its rules say otherwise now.
        record["status"] = "failed".into();
        record["reason"] = "exit_code".into();
        stranger.put(&record);
        is_named(&stranger, "is no id of a run");
        assert_eq!(fs::read(victim).unwrap(), b"precious");
    }
}

#[test]
fn an_index_with_paths_that_climb_is_only_told_of() {
    let stranger = Stranger::new();
    stranger.lab.write("c.yaml", CAMPAIGN);
    let victim = stranger.lab.write("victim.json", sealed(&stranger.record()));
    stranger.run(&["run", "c.yaml"]).expect(0);
    let index = fs::read_to_string(stranger.path("index.ndjson")).unwrap();
    let climbing: String = index
        .lines()
        .enumerate()
        .map(|(at, line)| {
            let mut entry: Value = serde_json::from_str(line).unwrap();
            entry["path"] = [victim.to_str().unwrap(), "../../victim.json"][at % 2].into();
            format!("{entry}\n")
        })
        .collect();
    fs::write(stranger.path("index.ndjson"), climbing).unwrap();
    stranger.lab.write("c.yaml", CAMPAIGN.replace("1 ms", "2 ms"));
    for args in [&["plan", "c.yaml"][..], &["run", "c.yaml", "--fresh"], &["run", "c.yaml", "--rerun", "device=here"]] {
        stranger.run(args);
    }
    stranger.every_command();
    assert_eq!(fs::read(victim).unwrap(), sealed(&stranger.record()));
}

#[test]
fn a_plan_of_more_runs_than_any_campaign_is_named_and_not_counted_out() {
    let stranger = Stranger::new();
    let plan = fs::read_to_string(stranger.path("plan.json")).unwrap();
    fs::write(stranger.path("plan.json"), plan.replacen("\"repetitions\": 4", "\"repetitions\": 4294967295", 1)).unwrap();
    let ran = stranger.run(&["status", stranger.dir.to_str().unwrap()]);
    assert!(ran.stdout().contains("4294967295 repetitions of a point, a campaign at most 10000"), "{}", ran.stdout());
    stranger.every_command();
}

#[test]
fn a_lock_that_says_anything_is_quoted_as_text() {
    let stranger = Stranger::new();
    // Whoever holds it may have written anything.
    let lock = File::options().create(true).truncate(false).write(true).open(stranger.path(".lock")).unwrap();
    fs::write(stranger.path(".lock"), "\u{1b}[2J\u{9b}\n\n\u{202e}").unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let ran = stranger.run(&["reparse", stranger.dir.to_str().unwrap()]).expect(4);
    assert!(ran.stderr().contains("is in use"), "{}", ran.stderr());
}
