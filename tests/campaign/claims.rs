//! Who may write where: results directories, devices, and disks that can't be written.

use crate::kit::Bench;
use crate::lab::{User, eventually, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Child;

/// One job that goes on until a file `go` is there, started and running.
fn held() -> (Bench, Child) {
    let bench = Bench::one("argv: [./bench.sh]");
    // The workload itself has to last; nothing is measured by it.
    bench.script("bench.sh", "while [ ! -e go ]; do sleep 0.02; done");
    bench.lab.write("other.yaml", bench.lab.read("c.yaml").replace("campaign: c", "campaign: other").replace("[./bench.sh]", "[./bench.sh, other]"));
    let child = bench.lab.start(&["run", "c.yaml"]);
    eventually("the workload runs", || bench.lab.path("count").exists().then_some(()));
    (bench, child)
}

fn let_go(bench: &Bench, child: &mut Child) {
    bench.lab.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_controller_of_the_same_results_is_told_who_holds_them() {
    let (bench, mut child) = held();
    let refused = bench.run(&[]).expect(4);
    let holder = format!("pid {}", child.id());
    for part in ["results/c is in use", "campaign `c` is run by tester@", &holder, "hint: "] {
        assert!(refused.stderr().contains(part), "{part} is not in {}", refused.stderr());
    }
    // Looking is allowed meanwhile.
    bench.look(&["status"]).expect(1);
    bench.look(&["report"]).expect(0);
    bench.lab.run(&["plan", "c.yaml"]).expect(0);
    let_go(&bench, &mut child);
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 1);
}

#[test]
fn a_second_campaign_on_the_same_device_is_told_who_holds_it() {
    let (bench, mut child) = held();
    let refused = bench.lab.run(&["run", "other.yaml"]).expect(4);
    let holder = format!("pid {}", child.id());
    for part in ["device `here`", "is held by campaign `c`", "tester@", &holder, "hint: "] {
        assert!(refused.stderr().contains(part), "{part} is not in {}", refused.stderr());
    }
    assert!(bench.lab.records("other").is_empty());
    let json = bench.lab.run(&["run", "other.yaml", "--json"]).expect(4);
    assert!(json.stdout().contains("\"event\":\"device_failed\""), "{}", json.stdout());
    bench.lab.run(&["plan", "other.yaml", "--refresh"]).expect(4);

    let_go(&bench, &mut child);
    bench.lab.run(&["run", "other.yaml"]).expect(0);
    assert_eq!(bench.ran(), ["", "other"]);
}

#[test]
fn the_same_campaign_into_other_results_is_a_second_campaign_on_the_device() {
    let (bench, mut child) = held();
    bench.run(&["--results", "elsewhere"]).expect(4);
    let_go(&bench, &mut child);
    bench.run(&["--results", "elsewhere"]).expect(0);
    assert_eq!(bench.ran().len(), 2);
}

#[test]
fn another_campaign_file_may_not_claim_the_same_results() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    bench.lab.write("copy.yaml", bench.lab.read("c.yaml"));
    let refused = bench.lab.run(&["run", "copy.yaml"]).expect(2);
    for part in ["results/c", "c.yaml", "copy.yaml", "hint: ", "`campaign:`"] {
        assert!(refused.stderr().contains(part), "{part} is not in {}", refused.stderr());
    }
    assert!(bench.ran().is_empty());
    bench.run(&[]).expect(0);
}

#[test]
fn a_renamed_campaign_file_keeps_its_results() {
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    bench.ran();
    fs::rename(bench.lab.path("c.yaml"), bench.lab.path("renamed.yaml")).unwrap();
    bench.lab.run(&["run", "renamed.yaml"]).expect(0);
    assert!(bench.ran().is_empty());
    // From now on it is the owner.
    bench.lab.write("c.yaml", bench.lab.read("renamed.yaml"));
    bench.run(&[]).expect(2);
}

/// As a user whom modes concern.
fn ordinary() -> Bench {
    let bench = Bench::one_of(if is_root() { User::Ordinary } else { User::Caller }, "argv: [./bench.sh, \"{n}\"]\nparams: { n: [1, 2] }");
    bench.script("bench.sh", "if [ -e harm ]; then . ./harm; fi");
    bench
}

fn mode(bench: &Bench, name: &str, mode: u32) {
    fs::set_permissions(bench.lab.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn results_that_cannot_be_written_are_an_error_that_names_them_and_lose_nothing() {
    let bench = ordinary();
    bench.run(&["--limit", "1"]).expect(1);
    bench.ran();
    let before = bench.lab.records("c");
    mode(&bench, "results/c", 0o555);
    let refused = bench.run(&[]).expect(5);
    assert!(refused.stderr().contains("results/c") && refused.stderr().contains("Permission denied"), "{}", refused.stderr());
    assert!(bench.ran().is_empty());
    bench.look(&["report"]).expect(0);
    bench.look(&["status"]).expect(1);
    bench.look(&["verify"]).expect(0);
    mode(&bench, "results/c", 0o755);
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["2"]);
    assert!(bench.lab.records("c").iter().any(|r| *r == before[0]));
}

#[test]
fn a_place_where_no_results_can_be_made_is_an_error_that_names_it() {
    let bench = ordinary();
    fs::create_dir(bench.lab.path("results")).unwrap();
    mode(&bench, "results", 0o555);
    if is_root() {
        std::os::unix::fs::chown(bench.lab.path("results"), Some(65534), Some(65534)).unwrap();
    }
    let refused = bench.run(&[]).expect(5);
    assert!(refused.stderr().contains("results/c") && refused.stderr().contains("Permission denied"), "{}", refused.stderr());
    assert!(bench.ran().is_empty());
}

#[test]
fn a_result_that_cannot_be_stored_waits_on_its_device_for_the_next_run() {
    let bench = ordinary();
    // The first run itself makes the place of the records read-only.
    bench.lab.write("harm", "mkdir -p results/c/here; chmod 555 results/c/here");
    let refused = bench.run(&[]).expect(5);
    assert!(refused.stderr().contains("results/c/here") && refused.stderr().contains("Permission denied"), "{}", refused.stderr());
    assert_eq!(bench.ran(), ["1"]);
    assert!(bench.lab.records("c").is_empty());

    fs::remove_file(bench.lab.path("harm")).unwrap();
    mode(&bench, "results/c/here", 0o755);
    let again = bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["2"], "the first is collected, not measured again");
    assert!(again.stderr().contains("ran meanwhile: collected"), "{}", again.stderr());
    assert_eq!(bench.lab.records("c").len(), 2);
    bench.look(&["status"]).expect(0);
}

#[test]
fn an_ordinary_user_leaves_the_same_records() {
    let bench = ordinary();
    bench.run(&[]).expect(0);
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1", "2"]);
    bench.look(&["status"]).expect(0);
    bench.look(&["verify"]).expect(0);
}

#[test]
fn no_process_outlives_a_campaign() {
    for user in crate::lab::Lab::users() {
        let bench = Bench::one_of(user, "argv: [true]");
        bench.run(&[]).expect(0);
        eventually("the keeper is gone", || bench.lab.processes().is_empty().then_some(()));
    }
}

#[test]
fn results_of_another_campaign_stay_on_the_device() {
    // Two campaigns share a device's spool; what one left there is not the other's to take.
    let bench = Bench::new();
    bench.run(&[]).expect(0);
    let state = fs::read_dir(bench.lab.path("state/isotherm")).unwrap().flatten().next().unwrap().path();
    let foreign = state.join("spool/01932f5e-0000-7000-8000-000000000001");
    fs::create_dir(&foreign).unwrap();
    let journal = bench.lab.read("results/c/journal.ndjson");
    assert!(journal.contains("campaign_ended"));
    let run = r#"{"spool_version":1,"run_id":"01932f5e-0000-7000-8000-000000000001","task_sha256":"x","manifest":{"made":"by something else"}}"#;
    fs::write(foreign.join("run.json"), run).unwrap();
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("stays on device `here`"), "{}", again.stderr());
    assert!(foreign.join("run.json").exists());
}
