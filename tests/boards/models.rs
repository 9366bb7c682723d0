//! Models that are copied to a board.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use isotherm::digest::sha256_hex;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

#[test]
fn a_copy_over_a_link_that_is_cut_goes_on_when_it_is_back() {
    let Some(rig) = Rig::new(&Setup { uid: 1000, ..Setup::default() }) else { return };
    let lab = &rig.bench.lab;
    let model: Vec<u8> = (0..20_000_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    lab.write("models/m.bin", &model);
    lab.write("board/home/workload.sh", "#!/bin/sh\nsha256sum < \"$1\"\n");
    let text = "devices: { board: { ssh: { host: board, config: ssh_config } } }
models: { m: { path: models/m.bin, push: true } }
defaults: { repetitions: 1, timeout: 60s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: board, backend: command, model: m, argv: [./workload.sh, \"{model.path}\"] }
";
    lab.write("c.yaml", text);
    let mut command = rig.bench.isotherm(&["run", "c.yaml"]);
    let controller = command.env("ISOTHERM_SSH_ALIVE_S", "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let cache = lab.path("board/home/.local/state/isotherm/models");
    let part: PathBuf = cache.join(format!("{}.part", sha256_hex(&model)));
    let copied = || fs::metadata(&part).map_or(0, |meta| meta.len());
    eventually("some of it is copied", || (copied() > 0).then_some(()));
    // Held, so that the cut is in the middle.
    // SAFETY: plain integers.
    let signal = |signal| assert_eq!(unsafe { libc::kill(i32::try_from(controller.id()).unwrap(), signal) }, 0);
    signal(libc::SIGSTOP);
    assert!((1..model.len() as u64).contains(&copied()), "held too late");
    rig.bench.cut();
    signal(libc::SIGCONT);
    eventually("the link counts as lost", || (rig.events("link_lost") == 1).then_some(()));
    rig.bench.mend();
    end(controller, 0);
    // Begun once, and gone on with.
    assert_eq!((rig.events("push_started"), rig.events("pushed")), (1, 1));
    let record = lab.only_record("c");
    assert_eq!(record["raw"]["stdout"]["head"]["data"], format!("{}  -\n", sha256_hex(&model)), "{record}");
    assert_eq!(fs::read(cache.join(sha256_hex(&model)).join("m.bin")).unwrap(), model);
    rig.bench.nothing_is_left();
    let listed = rig.bench.run(&["models", "c.yaml", "--evict-all"]).expect(0);
    assert!(listed.stderr().contains("0 models kept on `board`"), "{}", listed.stderr());
    assert_eq!(fs::read_dir(cache).unwrap().count(), 0);
}

#[test]
fn two_boards_with_one_home_may_be_given_a_model_at_once() {
    let Some(rig) = Rig::of(&["a", "b"].map(|name| Setup { name, home: Some("shared"), ..Setup::default() })) else { return };
    let lab = &rig.bench.lab;
    let model: Vec<u8> = (0..2_000_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    lab.write("models/m.bin", &model);
    lab.write("shared/workload.sh", "#!/bin/sh\nsha256sum < \"$1\"\n");
    let text = "devices: { a: { ssh: { host: a, config: ssh_config } }, b: { ssh: { host: b, config: ssh_config } } }
models: { m: { path: models/m.bin, push: true } }
defaults: { repetitions: 1, timeout: 60s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: [a, b], backend: command, model: m, argv: [./workload.sh, \"{model.path}\"] }
";
    lab.write("c.yaml", text);
    let cache = lab.path("shared/.local/state/isotherm/models");
    for round in 1..=3 {
        rig.bench.run(&["run", "c.yaml", "--fresh"]).expect(0);
        let records = lab.records("c");
        let latest: Vec<_> = records.iter().map(|(_, record)| record).filter(|record| record["raw"]["stdout"]["head"]["data"] != "").collect();
        assert!(latest.len() >= 2 && latest.iter().all(|record| record["raw"]["stdout"]["head"]["data"] == format!("{}  -\n", sha256_hex(&model))));
        let kept: BTreeSet<_> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(kept, [sha256_hex(&model)].into(), "round {round}");
        fs::remove_dir_all(&cache).unwrap();
    }
    rig.bench.nothing_is_left();
}
