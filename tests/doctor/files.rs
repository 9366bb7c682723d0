//! What a campaign names and the device has or lacks; whom it asks, and that it leaves everything as it is.

use crate::lab::{Lab, User, eventually, for_each_user};
use crate::machine::{Machine, of};
use regex::Regex;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const CAMPAIGN: &str = "campaign: c
devices: { here: { local: {} } }
models: { there: { path: there.onnx }, gone: { path: models/gone.onnx } }
defaults: { repetitions: 2, prepare: { settle: 3s } }
matrix:
  - { devices: here, backend: builtin, model: [there, gone] }
  - { devices: here, backend: command, argv: [./bench.sh] }
  - { devices: here, backend: command, argv: [./locked.sh] }
  - { devices: here, backend: command, argv: [./lost.py], inputs: ['data/*.bin'] }
  - { devices: here, backend: command, argv: [no-such-tool] }
";

fn lab(user: User) -> Lab {
    let lab = Lab::of(user);
    lab.write("c.yaml", CAMPAIGN);
    lab.write("there.onnx", "model");
    lab.write("bench.sh", "#!/bin/sh\necho >> executed\n");
    lab.write("locked.sh", "#!/bin/sh\n");
    fs::set_permissions(lab.path("locked.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    lab.write("lost.py", "#!/usr/bin/env python9\n");
    lab
}

#[test]
fn what_is_missing_on_the_device_is_named_with_what_to_do() {
    for_each_user(|user| {
        let lab = lab(user);
        let ran = lab.run(&["doctor", "c.yaml", "--json"]).expect(1);
        let models = of(&ran, "model");
        let gone = format!("`gone`: {}: No such file or directory", lab.path("models/gone.onnx").display());
        assert_eq!((models.len(), models[0].0.as_str(), models[0].1.as_str()), (2, "problem", gone.as_str()), "{models:?}");
        assert!(models[0].2.contains("`paths` of the model") && models[1].1.starts_with("1 model is there"), "{models:?}");
        let programs: Vec<String> = of(&ran, "program").into_iter().map(|(outcome, what, _)| format!("{outcome} {what}")).collect();
        assert_eq!(
            programs,
            [
                "problem `./locked.sh`: it can't be executed: Permission denied",
                "problem `./lost.py`: the program that runs this script is missing: no program `python9` in PATH \
                 /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "problem `no-such-tool`: no program `no-such-tool` in PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "ok 1 program is there",
            ]
        );
        assert_eq!(of(&ran, "input")[0].0, "warning");
    });
}

#[test]
fn nothing_is_executed_or_made_but_the_agent_and_nothing_is_left_running() {
    for_each_user(|user| {
        let lab = lab(user);
        let before = lab.all_files();
        lab.run(&["doctor", "c.yaml"]).expect(1);
        let new: Vec<_> = lab.all_files().into_iter().filter(|file| !before.contains(file)).collect();
        assert!(new.iter().all(|file| file.starts_with(lab.path("cache"))), "{new:?}");
        assert!(!lab.path("results").exists() && !lab.path("state/isotherm").exists());
        assert!(lab.processes().is_empty());
    });
}

#[test]
fn people_get_a_page_with_a_line_to_paste() {
    let lab = lab(User::Caller);
    let ran = lab.run(&["doctor", "c.yaml"]).expect(1);
    let page = ran.stdout().replace(lab.path("").display().to_string().trim_end_matches('/'), "[lab]");
    let page = Regex::new(r"here: .*; (\d+ runs)").unwrap().replace_all(&page, "here: [machine]; $1");
    let page = Regex::new(r"[0-9.]+ [GM]iB (free|available)").unwrap().replace_all(&page, "[size] $1");
    let page = Regex::new(r"agent \S+ answers as .*").unwrap().replace_all(&page, "agent [version] answers as [user]");
    let page = Regex::new(r"(?s)  . logout .*?results:").unwrap().replace_all(&page, "  [what this machine is like]\nresults:");
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "../snapshots" }, {
        insta::assert_snapshot!("doctor__page", page);
    });
    assert!(ran.stderr().contains("4 problems · 1 warning"), "{}", ran.stderr());
}

#[test]
fn a_device_that_a_campaign_holds_is_left_alone_and_one_that_nobody_knows_is_a_usage_error() {
    let lab = Lab::new();
    lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} }, there: { local: { bin_dir: /dev/null } } }
defaults: { repetitions: 1, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, argv: [./workload.sh] }
",
    );
    lab.write("workload.sh", "#!/bin/sh\necho >> started\nwhile [ ! -e gate ]; do sleep 0.01; done\n");
    let controller = lab.start(&["run", "c.yaml"]);
    eventually("the job runs", || lab.path("started").exists().then_some(()));
    let held = lab.run(&["doctor", "c.yaml"]).expect(4);
    assert!(held.stdout().contains("✗ reach  device `here` is held by campaign `c`"), "{}", held.stdout());
    lab.write("gate", "");
    crate::lab::Ran::of(controller).expect(0);
    eventually("the keeper is gone", || lab.processes().is_empty().then_some(()));

    // Everything has an answer now.
    assert!(lab.run(&["doctor", "c.yaml"]).expect(0).stdout().contains("; nothing to run\n"));
    let other = lab.run(&["doctor", "c.yaml", "--device", "there"]).expect(4);
    assert!(other.stdout().contains("✗ reach") && other.stdout().contains("→ set `bin_dir`"), "{}", other.stdout());
    assert!(lab.run(&["doctor", "c.yaml", "--device", "here", "--device", "there", "--json"]).expect(1).stdout().contains("\"there\""));
    assert!(lab.run(&["doctor", "c.yaml", "--device", "moon"]).expect(2).stderr().contains("here, there"));
    lab.run(&["doctor", "none.yaml"]).expect(2);
}

#[test]
fn a_campaign_of_a_later_build_is_looked_at_and_is_no_success() {
    let lab = Lab::new();
    lab.write("c.yaml", "campaign: c\ndevices: { here: { local: {} } }\nmatrix:\n  - { devices: here, backend: llama-server, model: m, server_args: {} }\nmodels: { m: { path: m.gguf } }\n");
    let ran = lab.run(&["doctor", "c.yaml"]).expect(2);
    assert!(ran.stderr().contains("llama-server"), "{}", ran.stderr());
}

#[test]
fn a_small_disk_and_one_that_forgets_are_problems() {
    for_each_user(|user| {
        let Some(machine) = Machine::of(user) else { return };
        let state = |dir: &str| {
            let place = machine.lab.path(dir);
            let text = machine.lab.read("c.yaml").replace("local: {}", &format!("local: {{ state_dir: {} }}", place.join("state").display()));
            machine.lab.write("c.yaml", text);
        };
        for dir in ["disk", "tmp"] {
            fs::create_dir(machine.lab.path(dir)).unwrap();
        }
        machine.lab.write("tmpfs", "64m");
        state("tmp");
        let Some(forgets) = machine.findings("disk", 1) else { return };
        assert!(forgets[0].0 == "problem" && forgets[0].1.contains("is on tmpfs"), "{forgets:?}");
        assert!(forgets[0].2.contains("`state_dir`"));

        fs::File::create(machine.lab.path("image")).unwrap().set_len(8 << 20).unwrap();
        let made = std::process::Command::new("mkfs.ext4")
            .args(["-q", "-m", "0", "-F", "-E", &format!("root_owner={0}:{0}", if user == User::Ordinary { 65534 } else { 0 })])
            .arg(machine.lab.path("image"))
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("skipped: a small disk (no mkfs.ext4)");
            return;
        }
        machine.campaign("");
        state("disk");
        let Some(small) = machine.findings("disk", 1) else { return };
        assert!(small[0].0 == "problem" && small[0].1.contains("a run needs 16 MiB"), "{small:?}");
    });
}
