//! What else is asked of a device: the same over ssh.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use serde_json::Value;

#[test]
fn a_board_is_probed_and_looked_over_and_planned_where_it_is() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let probe: Value = serde_json::from_str(&rig.bench.run(&["probe", "c.yaml", "--json"]).expect(0).stdout()).unwrap();
    assert_eq!(probe["devices"][0]["device"], "board");
    assert_eq!(probe["devices"][0]["machine"]["hostname"], "board");
    let doctor = rig.bench.run(&["doctor", "c.yaml", "--json"]).stdout();
    let doctor: Value = serde_json::from_str(&doctor).unwrap();
    let of_board = |check: &str| {
        let findings = doctor["findings"].as_array().unwrap().iter();
        findings.filter(|finding| finding["device"] == "board" && finding["check"] == check).cloned().collect::<Vec<_>>()
    };
    assert!(of_board("reach")[0]["what"].as_str().unwrap().contains("answers as root"), "{doctor}");
    // The program is looked for there, and not here.
    assert!(of_board("program").iter().any(|finding| finding["outcome"] == "ok"), "{doctor}");
    assert!(!rig.bench.lab.path("workload.sh").exists());
    let plan = rig.bench.run(&["plan", "c.yaml", "--refresh"]).expect(0);
    assert!(plan.stdout().contains("2 new"), "{}", plan.stdout());
    rig.bench.nothing_is_left();
}

#[test]
fn a_run_on_a_board_is_cancelled_from_elsewhere() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    rig.bench.run(&["cancel", "c.yaml"]).expect(0);
    // The second job is run all the same.
    end(controller, 1);
    let records = rig.bench.lab.records("c");
    assert_eq!((records.len(), &records[0].1["reason"]), (2, &"interrupted".into()), "{records:?}");
    rig.bench.nothing_is_left();
}

#[test]
fn results_of_a_directory_that_is_gone_are_collected_from_the_board() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let mut controller = rig.start();
    controller.kill().unwrap();
    controller.wait().unwrap();
    std::fs::remove_dir_all(rig.bench.lab.results("c")).unwrap();
    let held = rig.bench.run(&["collect", "c.yaml", "--into", "rescued"]).expect(4).stderr();
    assert!(held.contains("device `board` is held by campaign `c`"), "{held}");
    rig.open(1);
    // Its keeper waits ten minutes for its controller; this one is ended like a loss of power ends it.
    eventually("the run is sealed", || rig.sealed().then_some(()));
    let keepers: Vec<i32> = rig.bench.processes().into_iter().filter(|(_, line)| line.contains(" keep ")).map(|(pid, _)| pid).collect();
    rig.bench.kill(&keepers);
    rig.bench.run(&["collect", "c.yaml", "--into", "rescued"]).expect(0);
    assert!(rig.bench.lab.path("rescued/c").is_dir());
    let nothing = rig.bench.run(&["restore", "c.yaml"]).expect(0);
    assert!(nothing.stderr().contains("nothing") || nothing.stdout().contains("nothing"), "{}{}", nothing.stdout(), nothing.stderr());
    rig.bench.nothing_is_left();
}

#[test]
fn a_public_copy_does_not_tell_how_a_board_is_reached() {
    let Some(rig) = Rig::new(&Setup { uid: 1777, ..Setup::default() }) else { return };
    rig.open(1);
    let known = rig.bench.lab.read("known_hosts");
    rig.bench.lab.write("known_hosts", "");
    rig.campaign(", user: pi, identity_file: key");
    rig.run().expect(4);
    rig.bench.lab.write("known_hosts", known);
    rig.campaign(", user: pi, port: 2, identity_file: key");
    rig.run().expect(4);
    rig.campaign(", user: pi, identity_file: key");
    rig.run().expect(0);
    let journal = rig.bench.lab.read("results/c/journal.ndjson");
    assert!(journal.contains("connect to host 10.79.0.2 port 2"), "{journal}");
    rig.bench.lab.run(&["export", "results/c", "--public", "copy"]).expect(0);
    rig.bench.lab.run(&["verify", "copy"]).expect(0);
    for name in ["copy/campaign.yaml", "copy/journal.ndjson"] {
        let text = rig.bench.lab.read(name);
        assert!(!text.is_empty() && !text.contains("10.79.0.") && !text.contains("user: pi,"), "{name}: {text}");
    }
}

#[test]
fn a_first_campaign_of_a_board_has_what_was_found_there_and_runs() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let model = std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models/tiny-cnn.onnx")).unwrap();
    rig.bench.lab.write("board/home/models/there.onnx", &model);
    rig.bench.lab.write("board/home/broken.onnx", "no model at all");
    // What lies here is another machine's.
    rig.bench.lab.write("models/mine.onnx", &model);
    // The client has no other way to be told of the board than the system's configuration.
    let init = |args: &[&str]| {
        let script = "mount --bind ssh_config /etc/ssh/ssh_config && exec \"$@\"";
        let mut command = rig.bench.inside(&["unshare", "--mount", "sh", "-c", script, "sh"], args);
        command.output().map(crate::lab::Ran).unwrap()
    };
    let first = init(&["init", "root@board", "--models", "/srv/nowhere", "--output", "first.yaml"]).expect(0);
    for part in ["found     /home/models/there.onnx", "broken.onnx: not an ONNX file", "left out  /srv/nowhere: No such file"] {
        assert!(first.stderr().contains(part), "{part}: {}", first.stderr());
    }
    let text = rig.bench.lab.read("first.yaml");
    assert!(text.contains("board: { ssh: { host: \"board\", user: \"root\" } }") && !text.contains("mine"), "{text}");
    init(&["run", "first.yaml", "--set", "retry_contaminated=0", "--set", "repetitions=1", "--filter", "threads=1"]).expect(0);
    let records = rig.bench.lab.records("first");
    assert_eq!((records.len(), &records[0].1["status"], &records[0].1["device"]["transport"]), (1, &"ok".into(), &"ssh".into()), "{records:?}");
    rig.bench.nothing_is_left();
}
