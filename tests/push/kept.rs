//! What is kept on a device, and what becomes of it.

use crate::lab::{User, for_each_user};
use crate::rig::Rig;
use serde_json::Value;
use std::fs;

fn listed(ran: &crate::lab::Ran) -> Value {
    serde_json::from_str(&ran.stdout()).unwrap()
}

#[test]
fn models_are_listed_and_evicted_when_somebody_says_so() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let nothing = rig.lab.run(&["models"]).expect(0);
        assert!(nothing.stdout().is_empty() && nothing.stderr().contains("0 models kept"), "{}", nothing.stderr());
        rig.run().expect(0);
        let there = listed(&rig.lab.run(&["models", "c.yaml", "--json"]).expect(0));
        let [model] = &there["kept"].as_array().unwrap()[..] else { panic!("{there}") };
        assert_eq!((&model["sha256"], &model["name"], &model["campaign"]), (&rig.sha256().into(), &"m.bin".into(), &"c".into()));
        assert_eq!(model["bytes"], rig.model.len());
        let line = rig.lab.run(&["models"]).expect(0).stdout();
        assert!(line.starts_with(&rig.sha256()[..12]) && line.ends_with("m.bin  campaign c\n"), "{line}");
        // One that isn't there, and one that could be several: nothing goes.
        for wrong in ["000000", "0", &rig.sha256()[..5]] {
            rig.lab.run(&["models", "--evict", wrong]).expect(2);
        }
        assert!(rig.copied().exists());
        let gone = listed(&rig.lab.run(&["models", "--evict", &rig.sha256()[..8], "--json"]).expect(0));
        assert_eq!((gone["kept"].as_array().unwrap().len(), &gone["evicted"][0]["name"]), (0, &"m.bin".into()));
        assert!(!rig.copied().exists());
        // Whoever needs it again gets it again.
        rig.lab.run(&["run", "c.yaml", "--fresh"]).expect(0);
        rig.ran_with_the_copy();
    });
}

#[test]
fn what_was_copied_in_part_is_listed_and_evicted_too() {
    let rig = Rig::new(User::Caller);
    rig.run().expect(0);
    fs::write(rig.cache().join(format!("{}.part", "ab".repeat(32))), "begun").unwrap();
    let listed = rig.lab.run(&["models"]).expect(0).stdout();
    assert!(listed.contains("(copied in part)") && listed.lines().count() == 2, "{listed}");
    rig.lab.run(&["models", "--evict-all"]).expect(0);
    assert_eq!(fs::read_dir(rig.cache()).unwrap().count(), 0);
}
