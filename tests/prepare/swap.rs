//! A real swap area in a file, and the real page cache.

use crate::area::Area;
use crate::lab::Lab;
use std::fs;

const AREA_BYTES: usize = 16 << 20;

#[test]
fn swap_is_emptied_and_on_again_and_an_area_that_was_left_off_comes_back() {
    let lab = Lab::new();
    let Some(area) = Area::in_file(&lab, AREA_BYTES) else { return };
    let pages = area.swapped_out();
    lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {} } }
defaults: { repetitions: 2, warmup: 0, prepare: { settle: 0ms, reset_swap: each, drop_caches: on_model_change } }
matrix:
  - { devices: here, backend: command, argv: [\"true\"] }
",
    );
    lab.run(&["run", "c.yaml"]).expect(0);
    assert_eq!(area.state(), Some((0, 7)));
    let records = lab.records("c");
    let steps = |n: usize| records[n].1["prepare"].as_array().unwrap().clone();
    let outcomes = |n: usize| steps(n).iter().map(|step| step["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!((outcomes(0), outcomes(1)), (vec!["done".into(), "done".into()], vec!["skipped".into(), "skipped".into()]), "{records:?}");
    let [reset, caches] = [&steps(0)[0], &steps(0)[1]];
    assert!(reset["before"]["swap_used_bytes"].as_u64().unwrap() > 0 && reset["after"]["swap_used_bytes"] == 0, "{reset}");
    assert!(caches["before"]["cached_bytes"].as_u64() > Some(0) && caches["after"]["cached_bytes"].as_u64() > Some(0), "{caches}");
    assert_eq!(steps(1)[1]["reason"], "done before an earlier run with this model");
    assert_eq!(u64::from_ne_bytes(pages[4096..4104].try_into().unwrap()), 2);

    // As an agent leaves it that is killed between the two.
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let borrowed = serde_json::json!([{ "kind": "swap_area", "subject": area.path, "original": "7" }]);
    let journal = serde_json::json!({ "journal_version": 1, "boot_id": boot_id.trim(), "borrowed": borrowed });
    let machine = fs::read_dir(lab.path("state/isotherm")).unwrap().flatten().next().unwrap().path();
    fs::write(machine.join("restore-journal.json"), journal.to_string()).unwrap();
    area.switch_off();
    let ran = lab.run(&["run", "c.yaml"]).expect(0);
    assert!(ran.stderr().contains(&format!("here  given back: swap area {}", area.path.display())), "{}", ran.stderr());
    assert_eq!(area.state(), Some((0, 7)));
}
