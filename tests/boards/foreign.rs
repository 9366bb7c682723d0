//! A board with another processor than the controller's, over a real sshd.
//!
//! Of that architecture are, executed by qemu's user emulation: the agent with all it starts of itself, the shell that takes it and every
//! tool of it (Debian's busybox), and the companion. This machine's are kernel, `/sys`, sshd, and what a workload finds on its `PATH`.

use crate::boards::Setup;
use crate::emulated::{Agent, foreign};
use crate::lab::{Ran, copy_executable, eventually};
use crate::rig::{Rig, end};
use isotherm::device::{Architecture, agents};
use isotherm::digest::sha256_hex;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The agent for it, and busybox beside that.
fn aarch64() -> Option<(Agent, PathBuf)> {
    let agent = foreign().into_iter().find(|agent| agent.architecture == Architecture::Aarch64)?;
    let busybox = agent.path.with_file_name("busybox-aarch64");
    if !busybox.exists() {
        assert!(std::env::var_os("CI").is_none(), "required in CI: {}", busybox.display());
        eprintln!("skipped: no {}; scripts/foreign-busybox makes it", busybox.display());
        return None;
    }
    Some((agent, busybox))
}

/// What the first process does before it becomes sshd: it goes into a user namespace, which has a `binfmt_misc` of its own. Outside of it
/// nothing is changed. What is mounted inside covers no file for a run's own `/proc`, which the kernel would not allow otherwise.
fn before(agent: &Agent, busybox: &Path, more: &str) -> String {
    format!(
        "cp {} /mnt/busybox
        {more}
        umount /proc/sys/kernel/random/boot_id
        echo 22 > /proc/sys/net/ipv4/ip_unprivileged_port_start
        (until [ \"$(readlink /proc/1/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do :; done
        echo 0 0 65536 > /proc/1/gid_map
        echo 0 0 65536 > /proc/1/uid_map) &
        exec unshare --user --keep-caps --mount --propagation private sh -ec '
            until [ $(id -u) = 0 ]; do :; done
            mount --bind /mnt/boot_id /proc/sys/kernel/random/boot_id
            mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
            printf %s \"$1\" > /proc/sys/fs/binfmt_misc/register
            mkdir -p /mnt/tools
            /mnt/busybox --install -s /mnt/tools
            mount --bind /mnt/busybox $(readlink -f /bin/sh)
            read -r wired
            exec /usr/sbin/sshd -D -f /mnt/sshd_config -E /mnt/sshd.log' sh '{}'",
        busybox.display(),
        agent.registration()
    )
}

/// Its login shell and tools.
const TOOLS: &str = "SetEnv PATH=/mnt/tools";

/// `isotherm ARGS`, which has the agents of this directory, with this exit code.
#[track_caller]
fn ran(rig: &Rig, agents: &Path, args: &[&str], code: i32) -> Ran {
    Ran(rig.bench.isotherm(args).env(agents::AGENTS_DIR_VARIABLE, agents).output().unwrap()).expect(code)
}

#[test]
fn a_board_of_another_architecture_gets_its_own_agent_and_gives_records() {
    let Some((agent, busybox)) = aarch64() else { return };
    let before = before(&agent, &busybox, "");
    let Some(rig) = Rig::new(&Setup { before: &before, sshd: TOOLS, ..Setup::default() }) else { return };
    let agents = agent.path.parent().unwrap();
    rig.open(1);
    ran(&rig, agents, &["run", "c.yaml"], 0);
    rig.settled([1, 1], 0);
    let sha256 = sha256_hex(&fs::read(&agent.path).unwrap());
    for (_, record) in rig.bench.lab.records("c") {
        let device = &record["device"];
        assert_eq!(device["machine"]["arch"], "aarch64", "{device}");
        let facts = &record["producer"]["agent"];
        assert_eq!((&facts["target"], &facts["sha256"]), (&agent.architecture.triple().into(), &sha256.as_str().into()), "{device}");
        assert_eq!(device["containment"]["level"], "pid_namespace", "{device}");
    }
    let installed: Vec<_> = fs::read_dir(rig.bench.lab.path("board/home/.cache/isotherm")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(installed, [format!("isotherm-agent-{}", &sha256[..12]).as_str()]);

    // Inference there answers what it answers here.
    let smoke = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/configs/smoke.yaml")).unwrap();
    let digest = smoke.split_once("output_digest: ").unwrap().1.lines().next().unwrap();
    rig.bench.lab.write("m.onnx", fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/configs/models/tiny-cnn.onnx")).unwrap());
    rig.bench.lab.write(
        "inference.yaml",
        format!(
            "devices: {{ board: {{ ssh: {{ host: board, config: ssh_config }} }} }}
models: {{ m: {{ path: m.onnx, push: true, output_digest: {digest} }} }}
defaults: {{ retry_contaminated: 0, repetitions: 1, timeout: 60s, prepare: {{ settle: 0ms }} }}
matrix:
  - {{ devices: board, backend: builtin, model: m, threads: 1, warmup: 1, rounds: 1, iterations: 2 }}
"
        ),
    );
    ran(&rig, agents, &["run", "inference.yaml"], 0);
    assert_eq!(rig.bench.lab.only_record("inference")["status"], "ok");
    rig.bench.nothing_is_left();
}

#[test]
fn a_companion_that_can_not_be_used_is_named_by_whoever_asks_its_board_and_once_a_night() {
    let Some((agent, busybox)) = aarch64() else { return };
    let driver = "mkdir -p /mnt/dev && mount -t tmpfs tmpfs /mnt/dev && mkdir /mnt/dev/shm
        for node in null zero full random urandom tty; do touch /mnt/dev/$node; mount --bind /dev/$node /mnt/dev/$node; done
        touch /mnt/dev/nvidiactl
        mount --move /mnt/dev /dev";
    let before = before(&agent, &busybox, driver);
    let Some(rig) = Rig::new(&Setup { before: &before, sshd: TOOLS, ..Setup::default() }) else { return };
    let agents = rig.bench.lab.path("agents");
    fs::create_dir(&agents).unwrap();
    copy_executable(&agent.path, &agents.join(agents::file_name(agent.architecture)));
    let companion = format!("agents/{}", agents::companion_name(agent.architecture));
    rig.bench.lab.write(&companion, "");
    let words = "does without a companion, which asks NVIDIA's library: the companion ";
    let probe = ran(&rig, &agents, &["probe", "c.yaml"], 0).stderr();
    assert!(probe.contains(&format!("warning: `board` {words}")) && probe.contains("scripts/build-agents --out "), "{probe}");
    let doctor: Value = serde_json::from_slice(
        &rig.bench.isotherm(&["doctor", "c.yaml", "--json"]).env(agents::AGENTS_DIR_VARIABLE, &agents).output().unwrap().stdout,
    )
    .unwrap();
    let finding = doctor["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "companion").unwrap();
    assert_eq!(finding["outcome"], "warning");
    assert!(finding["what"].as_str().unwrap().starts_with(words), "{finding}");

    let controller = crate::lab::spawn(rig.bench.isotherm(&["run", "c.yaml"]).env(agents::AGENTS_DIR_VARIABLE, &agents));
    rig.has_started(1);
    rig.end_sessions();
    eventually("the run is followed again", || (rig.events("link_back") == 1).then_some(()));
    rig.open(1);
    let told = end(controller, 0).stderr();
    assert_eq!(told.matches(words).count(), 1, "{told}");
    rig.settled([1, 1], 0);
}
