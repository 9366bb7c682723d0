//! Which devices are asked, which may be, and what the exit code says of it.

use crate::lab::{Lab, eventually};
use crate::live::json;
use serde_json::Value;
use std::fs;

const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 1, timeout: 60s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
";

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("c.yaml", CAMPAIGN);
    lab.write("workload.sh", "#!/bin/sh\necho >> started\nwhile [ ! -e gate ]; do sleep 0.01; done\n");
    lab
}

#[test]
fn a_device_that_a_campaign_holds_is_left_alone_unless_forced() {
    let lab = lab();
    let controller = lab.start(&["run", "c.yaml"]);
    eventually("the job runs", || lab.path("started").exists().then_some(()));

    let refused = lab.run(&["probe", "--json"]).expect(4);
    for part in ["device `here` is held by campaign `c`", "hint: ", "--force"] {
        assert!(refused.stderr().contains(part), "{part} is not in {}", refused.stderr());
    }
    let probe = json(&refused);
    assert!(probe["devices"][0]["error"].as_str().unwrap().contains("is held"), "{probe}");

    let forced = lab.run(&["probe", "--json", "--force"]).expect(0);
    assert!(forced.stderr().contains("warning: `here` is held by campaign `c`"), "{}", forced.stderr());
    assert_eq!(json(&forced)["devices"][0]["held_by"]["campaign"], "c");

    // The run went on under its keeper, and a machine that nobody holds is probed without a word.
    lab.write("gate", "");
    crate::lab::Ran::of(controller).expect(0);
    eventually("the keeper is gone", || lab.processes().is_empty().then_some(()));
    assert_eq!(json(&lab.run(&["probe", "--json"]).expect(0))["devices"][0]["held_by"], Value::Null);
}

#[test]
fn files_elsewhere_can_be_looked_at_while_the_machine_is_held() {
    let lab = lab();
    let controller = lab.start(&["run", "c.yaml"]);
    eventually("the job runs", || lab.path("started").exists().then_some(()));
    fs::create_dir(lab.path("tree")).unwrap();
    lab.run(&["probe", "--root", "tree"]).expect(0);
    lab.write("gate", "");
    crate::lab::Ran::of(controller).expect(0);
}

#[test]
fn the_devices_of_a_campaign_are_asked_one_by_one() {
    let lab = lab();
    lab.write("bad", "a file, and no directory");
    let bad = lab.path("bad").display().to_string();
    let devices = format!("devices: {{ here: {{ local: {{}} }}, there: {{ local: {{ bin_dir: {bad} }} }} }}");
    let campaign = CAMPAIGN.replace("devices: { here: { local: {} } }", &devices).replace("devices: here", "devices: [here, there]");
    lab.write("c.yaml", campaign);

    let both = lab.run(&["probe", "c.yaml", "--json"]).expect(1);
    let probe = json(&both);
    assert_eq!((&probe["devices"][0]["device"], &probe["devices"][1]["device"]), (&"here".into(), &"there".into()));
    assert!(probe["devices"][0]["capabilities"].is_array() && probe["devices"][1]["error"].is_string(), "{probe}");
    assert!(both.stderr().contains("device `there`") && both.stderr().contains("bin_dir"), "{}", both.stderr());

    // One that no block names is asked only by its name.
    lab.write("d.yaml", CAMPAIGN.replace("devices: { here: { local: {} } }", &devices));
    lab.run(&["probe", "d.yaml"]).expect(0);
    lab.run(&["probe", "d.yaml", "--device", "there"]).expect(4);
    lab.run(&["probe", "c.yaml", "--device", "here"]).expect(0);
    lab.run(&["probe", "c.yaml", "--device", "there"]).expect(4);
    let unknown = lab.run(&["probe", "c.yaml", "--device", "moon"]).expect(2);
    assert!(unknown.stderr().contains("devices of this campaign: here, there"), "{}", unknown.stderr());
    lab.run(&["probe", "--device", "here"]).expect(2);
    lab.run(&["probe", "none.yaml"]).expect(2);
}
