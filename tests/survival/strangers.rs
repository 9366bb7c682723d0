//! Results and runs of a campaign whose controller, or whose directory, is gone.

use crate::lab::{eventually, for_each_user};
use crate::rig::{Rig, end};
use serde_json::Value;
use std::fs;

const KEEPER: &str = " keep --state-dir ";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Job 1 sealed on the device, its controller and keeper gone.
fn abandoned(rig: &Rig) {
    let controller = rig.start();
    rig.kill(&[controller.id() as i32]);
    end(controller, None);
    rig.open(1);
    rig.sealed();
    rig.kill(&rig.lab.pids_of(KEEPER));
}

#[test]
fn results_of_a_directory_that_is_gone_become_records_elsewhere() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        abandoned(&rig);
        fs::remove_dir_all(rig.lab.path("results")).unwrap();
        let collected = rig.lab.run(&["collect", "--into", "rescued", "--json"]).expect(0);
        let told = json(&collected.stdout());
        assert_eq!((told["stored"].as_array().unwrap().len(), &told["left"]), (1, &serde_json::json!([])), "{told}");
        assert_eq!(told["stored"][0]["status"], "ok");
        assert!(rig.spooled().is_empty(), "what is stored is dropped on the device");
        rig.lab.run(&["verify", "rescued/c"]).expect(0);
        let report = rig.lab.run(&["report", "rescued/c"]).expect(0);
        assert!(report.stdout().contains("wall_s"), "{}", report.stdout());
        rig.nothing_is_left();
        // Once more there is nothing, and that is no error.
        let again = rig.lab.run(&["collect", "--into", "rescued"]).expect(0);
        assert!(again.stderr().contains("0 results collected"), "{}", again.stderr());
        rig.nothing_is_left();
    });
}

#[test]
fn a_campaign_takes_up_the_directory_that_its_results_were_collected_into() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        abandoned(&rig);
        fs::remove_dir_all(rig.lab.path("results")).unwrap();
        rig.lab.run(&["collect", "--into", "results"]).expect(0);
        let run = rig.run().expect(0);
        assert!(run.stderr().contains("1 reused"), "{}", run.stderr());
        rig.settled([1, 1], 0);
    });
}

#[test]
fn kept_results_can_be_collected_again_and_beside_a_directory_of_others() {
    let rig = Rig::new(crate::lab::User::Caller);
    abandoned(&rig);
    fs::remove_dir_all(rig.lab.path("results")).unwrap();
    fs::create_dir_all(rig.lab.path("rescued/c")).unwrap();
    rig.lab.run(&["collect", "--into", "rescued", "--keep"]).expect(0);
    assert_eq!(rig.spooled().len(), 1);
    let again = rig.lab.run(&["collect", "c.yaml", "--device", "here", "--into", "rescued", "--json"]).expect(0);
    let dir = json(&again.stdout())["stored"][0]["results"].as_str().unwrap().to_owned();
    assert!(dir.starts_with("rescued/c-") && dir.len() == "rescued/c-".len() + 8, "{dir}");
    assert!(rig.spooled().is_empty());
    assert!(fs::read_dir(rig.lab.path("rescued/c")).unwrap().next().is_none(), "an unknown directory is left alone");
    rig.lab.run(&["verify", &dir]).expect(0);
    rig.nothing_is_left();
}

#[test]
fn a_device_that_is_held_is_not_collected_from() {
    let rig = Rig::new(crate::lab::User::Caller);
    let controller = rig.start();
    let refused = rig.lab.run(&["collect", "--into", "rescued"]).expect(4);
    assert!(refused.stderr().contains("is held by campaign `c`") && refused.stderr().contains("hint: wait"), "{}", refused.stderr());
    rig.open(1);
    end(controller, Some(0));
    rig.settled([1, 1], 0);
}

#[test]
fn a_manifest_that_names_a_place_outside_is_left_on_the_device() {
    let rig = Rig::new(crate::lab::User::Caller);
    abandoned(&rig);
    let (run, _) = rig.spooled().remove(0);
    let text = fs::read_to_string(run.join("run.json")).unwrap();
    assert!(text.contains("\"campaign\":\"c\""), "{text}");
    fs::write(run.join("run.json"), text.replace("\"campaign\":\"c\"", "\"campaign\":\"../../c\"")).unwrap();
    let collected = rig.lab.run(&["collect", "--into", "deep/rescued"]).expect(1);
    assert!(collected.stderr().contains("left: run ") && collected.stderr().contains("../../c"), "{}", collected.stderr());
    assert_eq!(rig.spooled().len(), 1);
    assert!(!rig.lab.path("c").exists());
    rig.nothing_is_left();
}

#[test]
fn a_running_job_is_cancelled_with_its_controller_alive_or_dead() {
    for_each_user(|user| {
        let rig = Rig::new(user);
        let controller = rig.start();
        rig.kill(&[controller.id() as i32]);
        end(controller, None);
        let cancelled = rig.lab.run(&["cancel", "c.yaml"]).expect(0);
        assert!(cancelled.stderr().contains("cancelled on `here`: job=1"), "{}", cancelled.stderr());
        assert_eq!(rig.lab.pids_of("./workload.sh").len(), 0);
        let nothing = rig.lab.run(&["cancel", "c.yaml"]).expect(0);
        assert!(nothing.stderr().contains("nothing of this campaign runs on `here`"), "{}", nothing.stderr());
        rig.open(1);
        rig.run().expect(0);
        rig.settled([2, 1], 1);

        let rig = Rig::new(user);
        let controller = rig.start();
        rig.lab.run(&["cancel", "c.yaml"]).expect(0);
        // It goes on with the next job, and says that one failed.
        end(controller, Some(1));
        rig.open(1);
        eventually("the keeper is gone", || rig.lab.processes().is_empty().then_some(()));
        rig.run().expect(0);
        rig.settled([2, 1], 1);
    });
}

#[test]
fn nothing_is_cancelled_without_results_or_of_another_campaign() {
    let rig = Rig::new(crate::lab::User::Caller);
    rig.lab.run(&["cancel", "c.yaml"]).expect(2);
    let controller = rig.start();
    rig.campaign("other", "local: {}");
    fs::create_dir_all(rig.lab.path("results/other")).unwrap();
    let id = fs::read_to_string(rig.lab.results("c").join(".isotherm-id")).unwrap();
    let other = id.replace(json(&id)["results_id"].as_str().unwrap(), "00000000-0000-4000-8000-000000000000");
    fs::write(rig.lab.path("results/other/.isotherm-id"), other).unwrap();
    let refused = rig.lab.run(&["cancel", "other.yaml"]).expect(4);
    assert!(refused.stderr().contains("is held by campaign `c`"), "{}", refused.stderr());
    rig.open(1);
    end(controller, Some(0));
}
