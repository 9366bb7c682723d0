//! The agent as it is installed on a device: one file that needs nothing of the system it comes to.

use crate::lab::{Lab, Ran, User, is_root};
use crate::ward::Ward;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A lab in which a campaign has run, and the agent that it installed.
fn installed() -> (Ward, PathBuf) {
    let ward = Ward::new(User::Caller, "20s", "true");
    ward.run();
    let agents: Vec<PathBuf> = fs::read_dir(ward.lab.path("cache/isotherm")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(agents.len(), 1, "one agent and no temporary file: {agents:?}");
    (ward, agents[0].clone())
}

#[test]
fn it_is_static() {
    let (_ward, agent) = installed();
    let output = Command::new("ldd").arg(&agent).env("LC_ALL", "C").output().unwrap();
    let said = Ran(output);
    let said = said.stdout() + &said.stderr();
    assert!(said.contains("statically linked") || said.contains("not a dynamic executable"), "{said}");
}

#[test]
fn it_says_its_version_and_infers_in_an_empty_root() {
    if !is_root() {
        assert!(std::env::var_os("CI").is_none(), "this has to run where CI is set, and chroot needs root");
        eprintln!("skipped: chroot needs root");
        return;
    }
    let (ward, agent) = installed();
    let root = ward.lab.path("root");
    fs::create_dir(&root).unwrap();
    fs::copy(&agent, root.join("agent")).unwrap();
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/models/tiny-cnn.onnx"), root.join("m.onnx")).unwrap();
    let chroot = |argument: &str| {
        let mut command = Command::new("chroot");
        command.arg(&root).args(["/agent", argument]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let version = Ran(chroot("--version").output().unwrap()).expect(0).stdout();
    assert!(version.starts_with("isotherm-agent ") && version.contains("-linux-"), "{version}");

    let task = isotherm_wire::task::InferTask {
        model: "/m.onnx".into(),
        threads: 1,
        warmup: 1,
        rounds: 1,
        iterations: 2,
        window: None,
        cooldown_ms: 0,
        seed: 1,
    };
    let mut infer = chroot("infer").spawn().unwrap();
    infer.stdin.take().unwrap().write_all(&serde_json::to_vec(&task).unwrap()).unwrap();
    let said = Ran::of(infer).expect(0);
    let output: isotherm_wire::task::InferOutput = serde_json::from_str(&said.stdout()).unwrap();
    assert_eq!((output.rounds_ns.len(), output.rounds_ns[0].len(), output.warmup_ns.len()), (1, 2, 1));
    assert!(!output.outputs.is_empty());
}

#[test]
fn it_is_there_once_for_all_campaigns_and_an_unusable_copy_is_replaced() {
    let (ward, agent) = installed();
    let whole = fs::read(&agent).unwrap();
    for damaged in [&b""[..], b"#!/bin/sh\nexit 0\n", &whole[..whole.len() / 2]] {
        fs::write(&agent, damaged).unwrap();
        fs::remove_dir_all(ward.lab.results("c")).unwrap();
        ward.run();
        assert!(fs::read(&agent).unwrap() == whole, "copied again");
    }
    let lab: &Lab = &ward.lab;
    assert_eq!(fs::read_dir(lab.path("cache/isotherm")).unwrap().count(), 1);
}
