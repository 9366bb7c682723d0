//! The campaign language where it meets a device: affinity, secrets, builds, options, conditions, `--set`, used files.

use crate::kit::{Bench, text};
use std::fs;

#[test]
fn a_workload_runs_on_the_cpus_it_was_given_and_the_record_says_which() {
    let bench = Bench::one("cpus: [\"0\", all]\nargv: [./bench.sh]");
    bench.script("bench.sh", "grep Cpus_allowed_list /proc/self/status");
    bench.run(&[]).expect(0);
    let records = bench.lab.records("c");
    let of = |cpus: &str| &records.iter().find(|(_, record)| record["ids"]["point"]["axes"]["cpus"] == cpus).unwrap().1;
    let pinned = of("0");
    assert_eq!(text(&pinned["raw"]["stdout"]).trim(), "Cpus_allowed_list:\t0");
    assert_eq!(pinned["backend"]["executed"]["affinity"], "0");
    assert_eq!(pinned["requested"]["cpus"], "0");
    assert_ne!(of("all")["ids"]["point_identity"], pinned["ids"]["point_identity"]);
    let allowed = text(&of("all")["raw"]["stdout"]).trim().split('\t').nth(1).unwrap().to_owned();
    assert_eq!(of("all")["backend"]["executed"]["affinity"], allowed);
}

#[test]
fn cpus_that_are_not_there_are_a_failed_precondition_and_nothing_runs() {
    let bench = Bench::one("cpus: \"0,4000\"\nargv: [./bench.sh]");
    bench.script("bench.sh", "true");
    bench.run(&[]).expect(1);
    assert!(bench.ran().is_empty());
    let record = bench.record();
    assert_eq!((record["status"].as_str(), record["reason"].as_str()), (Some("failed"), Some("precondition")));
    assert!(record["message"].as_str().unwrap().starts_with("CPUs 4000 are not there or not allowed"), "{}", record["message"]);
}

#[test]
fn a_secret_reaches_the_workload_and_nothing_that_is_kept() {
    let secret = "s3cr3t-of-the-lab";
    let block = "env: { TOKEN: \"${secret:LAB_TOKEN}\", AUTH: \"Bearer ${secret:LAB_TOKEN}\" }\nargv: [./bench.sh]\nmetrics: { length: { from: \"file:out.txt\", regex: 'n=(\\d+)', unit: bytes, better: lower } }";
    let bench = Bench::one(block);
    bench.script("bench.sh", "echo \"$AUTH\"; echo \"$TOKEN\" >&2; printf 'n=%s %s' ${#TOKEN} \"$TOKEN\" > out.txt");
    let unset = bench.run(&[]).expect(2);
    assert!(unset.stderr().contains("the secret `LAB_TOKEN` is not set"), "{}", unset.stderr());
    let ran = bench.lab.run_with(&["run", "c.yaml"], &[("LAB_TOKEN", secret)]).expect(0);
    assert!(!format!("{}{}", ran.stdout(), ran.stderr()).contains(secret));
    let record = bench.record();
    assert_eq!(text(&record["raw"]["stdout"]), "Bearer ${secret:LAB_TOKEN}\n");
    assert_eq!(text(&record["raw"]["stderr"]), "${secret:LAB_TOKEN}\n");
    assert_eq!((&record["raw"]["stdout"]["redacted"], &record["raw"]["warmup"]), (&1.into(), &serde_json::json!([])));
    assert_eq!(record["metrics"]["length"]["value"], secret.len() as f64, "the workload had the value itself");
    assert_eq!(record["backend"]["executed"]["env"]["AUTH"], "Bearer ${secret:LAB_TOKEN}");
    // Nowhere: results, spool, sockets, journal.
    for file in bench.lab.all_files() {
        let bytes = fs::read(&file).unwrap_or_default();
        let leaks = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!leaks || file.ends_with("out.txt"), "{}", file.display());
    }
    // Another value is not another point.
    bench.ran();
    let again = bench.lab.run_with(&["run", "c.yaml"], &[("LAB_TOKEN", "another-secret-value")]).expect(0);
    assert!(again.stderr().contains("1 reused"), "{}", again.stderr());
}

#[test]
fn builds_are_compared_by_what_they_contain() {
    let bench = Bench::new();
    bench.lab.write(
        "c.yaml",
        "campaign: c
devices: { here: { local: {}, builds: { old: { bench: ./old.sh }, new: { bench: ./new.sh } } } }
defaults: { retry_contaminated: 0, repetitions: 2, timeout: 20s, warmup: 0, prepare: { settle: 0ms } }
matrix:
  - { devices: here, backend: command, build: [old, new], argv: [\"{build.bench}\", \"{build}\"], flags: { -n: [\"1\", \"2\"], --quiet: true } }
",
    );
    bench.script("old.sh", "true");
    bench.script("new.sh", "true");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["new", "new", "new", "new", "old", "old", "old", "old"]);
    let argv: Vec<String> = bench.lab.records("c").iter().map(|(_, record)| record["backend"]["executed"]["argv"].to_string()).collect();
    assert!(argv.contains(&"[\"./old.sh\",\"old\",\"-n\",\"2\",\"--quiet\"]".to_owned()), "{argv:?}");
    // Only the build that changed runs again.
    bench.script("new.sh", "true # another build");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["new", "new", "new", "new"]);
    let report = bench.look(&["report"]).expect(0);
    assert!(report.stdout().contains("build") && report.stdout().contains("flags.-n"), "{}", report.stdout());
}

#[test]
fn a_condition_about_the_device_is_decided_at_contact() {
    let bench = Bench::one("params: { size: [1, 2, 3] }\nwhen: size < 2 or device.logical_cpus > 100000\nargv: [./bench.sh, \"{size}\"]");
    bench.script("bench.sh", "true");
    let before = bench.lab.run(&["plan", "c.yaml"]).expect(0);
    assert!(before.stdout().contains("3 points"), "{}", before.stdout());
    assert!(before.stdout().contains("2 points more may be left out: device.logical_cpus of here is not known yet"), "{}", before.stdout());
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1"]);
    let after = bench.lab.run(&["plan", "c.yaml"]).expect(0);
    assert!(after.stdout().contains("1 point,"), "{}", after.stdout());
    assert!(after.stdout().contains("left out by `when`: 2 points (size < 2 or device.logical_cpus > 100000)"), "{}", after.stdout());
    assert!(bench.look(&["status"]).expect(0).stdout().contains('1'));
}

#[test]
fn set_changes_one_run_of_a_campaign_and_stands_in_the_journal() {
    let bench = Bench::new();
    bench.run(&["--set", "repetitions=1", "--set", "params.size=[7]"]).expect(0);
    assert_eq!(bench.ran(), ["7"]);
    assert_eq!(bench.last_event("campaign_started")["set"], serde_json::json!(["repetitions=1", "params.size=[7]"]));
    let wrong = bench.run(&["--set", "repetitons=1"]).expect(2);
    assert!(wrong.stderr().contains("did you mean `repetitions`?"), "{}", wrong.stderr());
}

#[test]
fn a_used_file_is_kept_with_the_results() {
    let bench = Bench::new();
    bench.edit("c.yaml", "devices: { here: { local: {} } }", "use: lab.yaml");
    bench.lab.write("lab.yaml", "devices: { here: { local: {} } } # the lab\n");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 4);
    let kept = fs::read_to_string(bench.lab.results("c").join("campaign.used.1.yaml")).unwrap();
    assert!(kept.contains("# the lab"));
    bench.lab.run(&["status", "results/c"]).expect(0);
    bench.lab.run(&["verify", "results/c"]).expect(0);
}

#[test]
fn what_this_build_cannot_do_is_planned_and_refused_before_anything_is_touched() {
    let bench = Bench::new();
    bench.edit("c.yaml", "local: {}", "pod: { image: bench }");
    let plan = bench.lab.run(&["plan", "c.yaml"]).expect(2);
    assert!(plan.stdout().contains("2 points, 4 runs on 1 device"), "{}", plan.stdout());
    assert!(plan.stderr().contains("what this build can't do yet") && plan.stderr().contains("  `pod`  c.yaml:2\n"), "{}", plan.stderr());
    let run = bench.run(&[]).expect(2);
    assert!(run.stderr().contains("`pod` is not in this build yet"), "{}", run.stderr());
    assert!(!bench.lab.path("results").exists());
}

/// Two devices on this machine; `when` is the condition of the block.
fn two_devices(when: &str) -> Bench {
    let bench = Bench::new();
    let (a, b) = (bench.lab.path("state-a"), bench.lab.path("state-b"));
    let devices = format!("devices: {{ a: {{ local: {{ state_dir: {} }} }}, b: {{ local: {{ state_dir: {} }} }} }}", a.display(), b.display());
    bench.edit("c.yaml", "devices: { here: { local: {} } }", &devices);
    bench.edit("c.yaml", "devices: here\n", &format!("devices: [a, b]\n    when: {when}\n"));
    bench
}

#[test]
fn a_device_that_leaves_a_condition_without_an_answer_does_not_stop_the_others() {
    let bench = two_devices("device.id == 'b' or size / (device.logical_cpus - device.logical_cpus) > 1");
    let ran = bench.run(&[]).expect(1);
    assert_eq!(bench.ran(), ["1", "1", "2", "2"], "on `b`");
    assert!(ran.stderr().contains("has no answer at `size=1` on device `a`: `1` is divided by zero"), "{}", ran.stderr());
    assert!(ran.stderr().contains("8 jobs: 4 ok · 0 failed · 4 pending"), "{}", ran.stderr());
    let again = bench.run(&[]).expect(1);
    assert!(again.stderr().contains("4 reused") && bench.ran().is_empty(), "{}", again.stderr());
    bench.run(&["--device", "a"]).expect(4);
}

#[test]
fn a_device_whose_points_are_all_left_out_runs_nothing_and_the_other_runs() {
    let bench = two_devices("device.id == 'a' or device.logical_cpus > 100000");
    let ran = bench.run(&["--limit", "3"]).expect(1);
    assert_eq!(bench.ran().len(), 3);
    assert!(ran.stderr().contains("b  no points · 0 jobs to run"), "{}", ran.stderr());
    // Passes are 1 2, then 2 1: the last one is left.
    bench.run(&["--filter", "size=2"]).expect(0);
    bench.run(&["--filter", "device=b"]).expect(0);
    bench.run(&["--device", "b"]).expect(0);
    assert!(bench.ran().is_empty());
    bench.run(&["--filter", "size=1"]).expect(0);
    assert_eq!(bench.ran(), ["1"]);
    bench.run(&["--rerun", "size=1"]).expect(0);
    assert_eq!(bench.ran(), ["1", "1"]);
}

#[test]
fn points_that_an_old_answer_has_left_out_come_back_with_their_records() {
    let bench = Bench::new();
    bench.edit("c.yaml", "env: { MODE: fast }", "env: { MODE: fast }\n    when: size == 1 or device.logical_cpus > 0");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["1", "1", "2", "2"]);
    // As it would have answered on a machine without CPUs, which knows nothing of the other point's files.
    let report = bench.lab.results("c").join("devices/here.json");
    let mut said: serde_json::Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    said["machine"]["logical_cpus"] = 0.into();
    said["files"] = serde_json::json!({});
    fs::write(&report, said.to_string()).unwrap();
    assert!(bench.lab.run(&["plan", "c.yaml"]).expect(0).stdout().contains("left out by `when`: 1 point"));
    let ran = bench.run(&["--filter", "size=2"]).expect(0);
    assert!(ran.stderr().contains("2 reused · 0 jobs to run"), "{}", ran.stderr());
    assert!(bench.ran().is_empty());
}

#[test]
fn a_condition_that_leaves_out_everything_says_so() {
    let bench = Bench::new();
    bench.edit("c.yaml", "env: { MODE: fast }", "env: { MODE: fast }\n    when: device.logical_cpus > 100000");
    for _ in 0..2 {
        let ran = bench.run(&[]).expect(2);
        assert!(ran.stderr().contains("no point is left: `when` leaves out 2"), "{}", ran.stderr());
    }
    assert!(bench.ran().is_empty());
}

/// A block that runs, and one of a backend of a later build, also on a device that such a build reaches.
fn with_a_later_block() -> Bench {
    let bench = Bench::new();
    bench.edit("c.yaml", "here: { local: {} }", "here: { local: {} }, pod4: { pod: { image: bench } }");
    let later = "  - { devices: [pod4, here], backend: onnx, model: m, policy: [{ id: cpu, provider: cpu }], control: { point: first } }";
    bench.lab.write("c.yaml", format!("{}{later}\nmodels: {{ m: {{ path: m.onnx }} }}\n", bench.lab.read("c.yaml")));
    bench
}

#[test]
fn blocks_of_this_build_run_where_the_others_are_left_out_by_name() {
    let bench = with_a_later_block();
    let [refused, dry] = [bench.run(&[]), bench.run(&["--dry-run", "--filter", "repetition=0"])].map(|ran| ran.expect(2));
    for what in ["`backend: onnx` is not in this build yet", "`pod`", "`control`", "hint: `--filter backend=command` runs what is built"] {
        assert!(refused.stderr().contains(what), "{what}: {}", refused.stderr());
    }
    assert!(refused.stderr().ends_with("next: isotherm run c.yaml --filter backend=command\n"), "{}", refused.stderr());
    assert!(dry.stderr().ends_with("next: isotherm run c.yaml --filter repetition=0 --filter backend=command\n"), "{}", dry.stderr());
    for more in [["--filter", "backend=onnx"], ["--filter", "model=m"], ["--device", "pod4"]] {
        let refused = bench.run(&more).expect(2);
        assert!(refused.stderr().contains("backend `onnx` is not in this build yet"), "{more:?}: {}", refused.stderr());
    }
    assert!(bench.ran().is_empty() && !bench.lab.path("results").exists());

    let ran = bench.run(&["--filter", "backend=command", "--limit", "1"]).expect(1);
    assert_eq!(ran.stderr().matches("left out: 2 points of backend `onnx`, not in this build yet\n").count(), 1, "{}", ran.stderr());
    assert!(ran.stderr().contains("4 jobs: 1 ok · 0 failed · 3 pending"), "{}", ran.stderr());
    // A filter by what the others don't have will do, too.
    bench.run(&["--filter", "size=1,2"]).expect(0);
    assert_eq!(bench.ran(), ["1", "1", "2", "2"]);
    assert!(bench.run(&["--filter", "backend=command"]).expect(0).stderr().contains("nothing to do: 4 jobs with a valid record"));
    let plan = bench.lab.run(&["plan", "c.yaml", "--refresh", "--filter", "backend=command"]).expect(0);
    assert!(plan.stdout().contains("2 points, 4 runs on 1 device\n  here   4 reused "), "{}", plan.stdout());
    let status: serde_json::Value = serde_json::from_str(&bench.look(&["status", "--json"]).expect(1).stdout()).unwrap();
    assert_eq!([&status["totals"]["runs"]["missing"], &status["totals"]["runs"]["failed"]], [4, 0], "{}", status["totals"]);
    let doctor = bench.lab.run(&["doctor", "c.yaml"]);
    assert!(doctor.stderr().contains("The rest is looked at.") && doctor.code() != Some(2), "{}", doctor.stderr());
    assert!(!doctor.stdout().contains("m.onnx") && !doctor.stdout().contains("pod4"), "{}", doctor.stdout());
}

#[test]
fn what_a_block_of_this_build_asks_of_a_later_one_is_refused_whatever_is_left_out() {
    let bench = with_a_later_block();
    bench.edit("c.yaml", "    env: { MODE: fast }\n", "    control: { point: first }\n");
    let refused = bench.run(&["--filter", "backend=command"]).expect(2);
    assert!(refused.stderr().contains("`control` is not in this build yet") && !refused.stderr().contains("next:"), "{}", refused.stderr());
    bench.lab.run(&["plan", "c.yaml", "--filter", "backend=command"]).expect(2);
}
