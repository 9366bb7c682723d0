//! What goes wrong is recorded in the tool's own words, and the rest goes on.

use crate::kit::{Bench, issues, text};
use crate::lab::Ran;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The standard campaign, whose size 2 fails while a file `broken` is there.
fn breakable() -> Bench {
    let bench = Bench::new();
    let fails = "if [ -e broken ] && [ $1 = 2 ]; then echo loading; echo 'accelerator is on fire' >&2; exit 3; fi";
    bench.script("bench.sh", &format!("{fails}\necho '{{\"score\": 1}}'"));
    bench.lab.write("broken", "");
    bench
}

/// File names of the records of size 2, sorted.
fn names(bench: &Bench) -> Vec<String> {
    let of = bench.lab.records("c").into_iter().filter(|(_, r)| r["ids"]["point"]["axes"]["size"] == 2);
    of.map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_failed_job_is_recorded_in_the_tools_words_and_alone_tried_again() {
    let bench = breakable();
    let first = bench.run(&[]).expect(1);
    assert_eq!(bench.ran(), ["1", "1", "2", "2"], "the rest is done");
    assert!(first.stderr().contains("4 jobs: 2 ok · 2 failed · 0 pending"), "{}", first.stderr());
    assert!(first.stdout().contains("failed: exit_code: exit code 3: accelerator is on fire"), "{}", first.stdout());
    let record: Value = serde_json::from_slice(&fs::read(bench.place(2, 0)).unwrap()).unwrap();
    assert_eq!((&record["status"], &record["reason"], &record["validity"]), (&"failed".into(), &"exit_code".into(), &"invalid".into()));
    assert_eq!(record["message"], "exit code 3: accelerator is on fire");
    assert_eq!(record["raw"]["wait_status"], 3 << 8);
    assert_eq!((text(&record["raw"]["stdout"]), text(&record["raw"]["stderr"])), ("loading\n", "accelerator is on fire\n"));
    bench.look(&["status"]).expect(1);

    let second = bench.run(&[]).expect(1);
    assert_eq!(bench.ran(), ["2", "2"]);
    assert!(second.stderr().contains("2 reused · 2 retry"), "{}", second.stderr());
    assert!(second.stderr().contains("2 jobs: failed: exit_code"), "{}", second.stderr());
    assert_eq!(names(&bench), ["timing-r0.attempt0.json", "timing-r0.json", "timing-r1.attempt0.json", "timing-r1.json"]);

    fs::remove_file(bench.lab.path("broken")).unwrap();
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran(), ["2", "2"]);
    let all = [
        "timing-r0.attempt0.json",
        "timing-r0.attempt1.json",
        "timing-r0.json",
        "timing-r1.attempt0.json",
        "timing-r1.attempt1.json",
        "timing-r1.json",
    ];
    assert_eq!(names(&bench), all);
    let attempt: Vec<u64> =
        bench.lab.records("c").iter().filter(|(p, _)| p.ends_with("timing-r0.json")).map(|(_, r)| r["ids"]["attempt"].as_u64().unwrap()).collect();
    assert_eq!(attempt, [0, 2]);
    bench.look(&["status"]).expect(0);
    bench.look(&["verify"]).expect(0);
    bench.run(&[]).expect(0);
    assert!(bench.ran().is_empty());
}

#[test]
fn what_failed_before_a_change_does_not_count_after_it() {
    let bench = breakable();
    bench.run(&[]).expect(1);
    bench.run(&[]).expect(1);
    fs::remove_file(bench.lab.path("broken")).unwrap();
    bench.run(&[]).expect(0);
    bench.ran();
    // Another question now: its first attempt is its only one.
    bench.edit("c.yaml", "--quick", "--exact");
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 4);
    let status = bench.look(&["status"]).expect(0);
    assert!(!status.stdout().contains("mixed") && !status.stdout().contains("stale"), "{}", status.stdout());
    let report = bench.look(&["report"]).expect(0);
    assert!(!report.stdout().contains("exit_code"), "{}", report.stdout());
    assert_eq!(bench.superseded().len(), 8, "four answers, and four attempts at two of them");
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_job_can_fail_again_after_it_was_measured_afresh() {
    let bench = breakable();
    bench.run(&[]).expect(1);
    fs::remove_file(bench.lab.path("broken")).unwrap();
    bench.run(&[]).expect(0);
    bench.lab.write("broken", "");
    // What fails when it is measured afresh takes no answer away: it is an attempt beside the valid record.
    bench.run(&["--fresh"]).expect(1);
    let attempts = bench.lab.records("c").iter().filter(|(path, _)| path.to_string_lossy().contains(".attempt")).count();
    assert!(attempts >= 2, "{attempts}");
    bench.look(&["status"]).expect(0);
    assert!(bench.look(&["report"]).expect(0).stdout().contains("2 of 2"));
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("nothing to do"), "{}", again.stderr());
    fs::remove_file(bench.lab.path("broken")).unwrap();
    bench.run(&["--fresh"]).expect(0);
    bench.look(&["status"]).expect(0);
    bench.look(&["verify"]).expect(0);
}

#[test]
fn a_job_can_fail_again_after_its_old_content_came_back() {
    let bench = breakable();
    bench.run(&[]).expect(1);
    bench.run(&[]).expect(1);
    bench.edit("c.yaml", "--quick", "--exact");
    bench.run(&[]).expect(1);
    bench.edit("c.yaml", "--exact", "--quick");
    bench.run(&[]).expect(1);
    bench.run(&[]).expect(1);
    fs::remove_file(bench.lab.path("broken")).unwrap();
    bench.run(&[]).expect(0);
    bench.look(&["status"]).expect(0);
    bench.look(&["verify"]).expect(0);
}

/// Run a campaign of one job that fails; its record.
#[track_caller]
fn failed(bench: &Bench, reason: &str) -> (Value, Ran) {
    let ran = bench.run(&[]).expect(1);
    let record = bench.record();
    assert_eq!((&record["status"], &record["reason"]), (&"failed".into(), &reason.into()), "{}", record["message"]);
    bench.look(&["status"]).expect(1);
    bench.look(&["verify"]).expect(0);
    (record, ran)
}

fn message(record: &Value) -> &str {
    record["message"].as_str().unwrap()
}

#[test]
fn a_missing_program_is_a_spawn_failure() {
    let bench = Bench::one("argv: [./no-such-program]");
    let (record, ran) = failed(&bench, "spawn");
    assert_eq!(message(&record), "./no-such-program: No such file or directory (os error 2)");
    assert!(ran.stdout().contains("./no-such-program"), "{}", ran.stdout());
    assert_eq!(record["raw"]["wait_status"], Value::Null);

    // It is another thing once it is there.
    bench.script("no-such-program", "");
    let again = bench.run(&[]).expect(0);
    assert!(again.stderr().contains("argv[0] changed (\"missing\" → "), "{}", again.stderr());
}

#[test]
fn a_program_that_may_not_be_executed_is_a_spawn_failure() {
    let bench = Bench::one("argv: [./notes.txt]");
    bench.lab.write("notes.txt", "not a program");
    let (record, _) = failed(&bench, "spawn");
    assert_eq!(message(&record), "./notes.txt: Permission denied (os error 13)");
}

#[test]
fn a_program_in_no_directory_of_the_path_is_a_spawn_failure() {
    let bench = Bench::one("argv: [no-such-tool-anywhere]");
    let (record, _) = failed(&bench, "spawn");
    assert!(message(&record).contains("no-such-tool-anywhere"), "{}", message(&record));
}

#[test]
fn a_workload_ended_by_a_signal_is_named_by_it() {
    for (signal, number) in [("KILL", 9), ("SEGV", 11), ("TERM", 15)] {
        let bench = Bench::one("argv: [./bench.sh]");
        bench.script("bench.sh", &format!("echo last words >&2; kill -{signal} $$"));
        let (record, _) = failed(&bench, "signal");
        assert_eq!(message(&record), format!("ended by SIG{signal}: last words"));
        assert_eq!(record["raw"]["wait_status"].as_i64().unwrap() & 0x7f, number);
    }
}

#[test]
fn a_workload_that_runs_into_its_time_out_leaves_its_output_and_nothing_else() {
    let bench = Bench::one("argv: [./bench.sh]\ntimeout: 300ms\nmetrics: { score: { from: stdout, regex: 'score: (.*)', unit: p, better: higher } }");
    bench.script("bench.sh", "echo 'score: 5'; echo half way >&2; sleep 1000 & sleep 1000");
    let (record, _) = failed(&bench, "timeout");
    assert_eq!(message(&record), "ran into its time-out of 300ms: half way");
    assert_eq!((text(&record["raw"]["stdout"]), text(&record["raw"]["stderr"])), ("score: 5\n", "half way\n"));
    assert_eq!(record["metrics"], serde_json::json!({}), "a run that was ended has no numbers");
    assert!(bench.lab.processes().is_empty(), "{:?}", bench.lab.processes());
}

#[test]
fn a_warm_up_that_dies_fails_its_run_in_its_own_words() {
    let bench = Bench::one("argv: [./bench.sh]\nwarmup: 2");
    bench.script("bench.sh", "echo cold >&2; kill -ABRT $$");
    let (record, _) = failed(&bench, "signal");
    assert_eq!(message(&record), "warm-up 1: ended by SIGABRT: cold");
    assert_eq!(bench.ran().len(), 1, "nothing is measured after it");
}

#[test]
fn exit_codes_that_the_campaign_allows_are_no_failure() {
    let bench = Bench::one("argv: [./bench.sh]\nsuccess: { exit: [0, 7] }");
    bench.script("bench.sh", "exit 7");
    bench.run(&[]).expect(0);
    assert_eq!(bench.record()["raw"]["wait_status"], 7 << 8);

    let bench = Bench::one("argv: [./bench.sh]\nsuccess: { exit: [7] }");
    bench.script("bench.sh", "exit 0");
    let (record, _) = failed(&bench, "exit_code");
    assert_eq!(message(&record), "exit code 0");
}

#[test]
fn a_missing_model_of_a_command_that_needs_it_is_named() {
    let bench = Bench::one("argv: [./bench.sh, \"{model.path}\"]\nmodel: m");
    bench.edit("c.yaml", "matrix:", "models: { m: { path: gone.bin } }\nmatrix:");
    bench.script("bench.sh", "cat \"$1\"");
    let (record, _) = failed(&bench, "model_missing");
    assert!(message(&record).contains("gone.bin: No such file or directory"), "{}", message(&record));
    assert_eq!(record["workload"]["model"]["sha256"], Value::Null);
}

#[test]
fn a_model_that_cannot_be_hashed_fails_its_run_whatever_the_command_makes_of_it() {
    let bench = Bench::one("argv: [\"true\"]\nmodel: [gone, directory]");
    bench.edit("c.yaml", "matrix:", "models: { gone: { path: gone.bin }, directory: { path: dir } }\nmatrix:");
    fs::create_dir(bench.lab.path("dir")).unwrap();
    bench.run(&[]).expect(1);
    let messages: Vec<String> = bench.lab.records("c").iter().map(|(_, r)| format!("{}: {}", r["reason"].as_str().unwrap(), message(r))).collect();
    let missing = |id: &str, path: &str| format!("model_missing: model `{id}` is missing or no regular file: {path}");
    assert_eq!(messages, [missing("directory", "dir"), missing("gone", "gone.bin")]);
}

#[test]
fn an_argument_too_long_for_the_system_is_a_spawn_failure() {
    let bench = Bench::one(&format!("argv: [\"true\", {}]", "x".repeat(200_000)));
    let (record, _) = failed(&bench, "spawn");
    assert_eq!(message(&record), "true: Argument list too long (os error 7)");
}

#[test]
fn an_input_that_changes_during_a_run_makes_its_record_invalid() {
    let bench = Bench::one("argv: [./bench.sh]\ninputs: [data.bin]");
    bench.lab.write("data.bin", "one");
    bench.script("bench.sh", "if [ -e careless ]; then echo two >> data.bin; fi");
    bench.lab.write("careless", "");
    let ran = bench.run(&[]).expect(1);
    assert!(ran.stdout().contains("input_changed"), "{}", ran.stdout());
    let record = bench.record();
    assert_eq!((&record["status"], &record["validity"]), (&"ok".into(), &"invalid".into()));
    assert_eq!(issues(&record), ["input_changed"]);
    assert!(record["issues"][0]["message"].as_str().unwrap().contains("data.bin"), "{record:#}");

    fs::remove_file(bench.lab.path("careless")).unwrap();
    bench.run(&[]).expect(0);
    assert_eq!(bench.record()["validity"], "valid");
}

#[test]
fn a_file_that_changed_since_it_was_hashed_is_not_measured_under_the_old_name() {
    let bench = Bench::one("argv: [./bench.sh]\ninputs: [data.bin]\nrepetitions: 2");
    bench.lab.write("data.bin", "one");
    // The first repetition changes what the second one would read.
    bench.script("bench.sh", "if [ ! -e done ]; then touch done; echo two >> data.bin; fi");
    bench.run(&[]).expect(1);
    assert_eq!(bench.ran().len(), 1);
    let records = bench.lab.records("c");
    let second = &records.iter().find(|(_, r)| r["ids"]["repetition"] == 1).unwrap().1;
    assert_eq!(second["reason"], "precondition");
    assert!(message(second).starts_with("a file changed before the run: "), "{}", message(second));
    bench.run(&[]).expect(0);
    assert_eq!(bench.ran().len(), 2);
}

#[test]
fn a_missing_working_file_of_the_workload_is_its_own_failure() {
    let bench = Bench::one("argv: [sh, missing.sh]");
    let (record, _) = failed(&bench, "exit_code");
    assert!(message(&record).contains("missing.sh"), "{}", message(&record));
}

#[test]
fn processes_that_a_workload_leaves_behind_are_ended_and_said() {
    let bench = Bench::one("argv: [./bench.sh]");
    bench.script("bench.sh", "sleep 1000 >/dev/null 2>&1 &");
    bench.run(&[]).expect(0);
    let record = bench.record();
    assert_eq!(issues(&record), ["left_processes"]);
    assert_eq!(record["validity"], "valid");
    assert!(bench.lab.processes().is_empty(), "{:?}", bench.lab.processes());
}

#[test]
fn a_tool_that_says_it_has_no_memory_is_out_of_memory_and_a_zoom_is_not() {
    for (words, reason) in [("terminate called: std::bad_alloc", "oom"), ("zoom level 3, no room", "exit_code")] {
        let bench = Bench::one("argv: [./bench.sh]");
        bench.script("bench.sh", &format!("echo '{words}' >&2; exit 1"));
        bench.run(&[]).expect(1);
        let record = bench.record();
        assert_eq!(record["reason"], reason, "{words}");
        assert!(record["message"].as_str().unwrap().contains(words), "{record}");
        // Read again, it is the same.
        bench.look(&["reparse"]).expect(0);
        assert_eq!(bench.record()["reason"], reason, "{words}");
    }
}

/// A memory cgroup with a limit, removed with it; `None` where none can be made.
struct SmallGroup(PathBuf);

impl SmallGroup {
    fn make(name: &str, mib: u64) -> Option<SmallGroup> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (dir, limit) =
            if v1.is_dir() { (v1.join(name), "memory.limit_in_bytes") } else { (Path::new("/sys/fs/cgroup").join(name), "memory.max") };
        fs::create_dir(&dir).ok()?;
        let group = SmallGroup(dir);
        fs::write(group.0.join(limit), (mib << 20).to_string()).ok()?;
        Some(group)
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_workload_that_the_kernel_ends_in_a_limited_cgroup_is_out_of_memory_and_its_keeper_goes_on() {
    let Some(group) = SmallGroup::make(&format!("isotherm-oom-{}", std::process::id()), 32) else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let bench = Bench::one("params: { how: [direct, shell, fine] }\nargv: [./bench.sh, \"{how}\"]");
    let body = format!(
        "echo $$ > {}/cgroup.procs
case $1 in
direct) exec tail /dev/zero ;;
shell) tail /dev/zero; exit $? ;;
fine) echo fine ;;
esac",
        group.0.display()
    );
    bench.script("bench.sh", &body);
    bench.run(&[]).expect(1);
    let reason = |how: &str| {
        let records = bench.lab.records("c");
        records.into_iter().find(|(_, record)| record["ids"]["point"]["axes"]["how"] == how).unwrap().1["reason"].clone()
    };
    assert_eq!((reason("direct"), reason("shell"), reason("fine")), ("oom".into(), "oom".into(), Value::Null));
}

#[test]
fn a_model_that_hardly_fits_is_not_started_unless_forced() {
    let Some(group) = SmallGroup::make(&format!("isotherm-fit-{}", std::process::id()), 128) else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let bench = Bench::new();
    bench.edit("c.yaml", "matrix:", "models: { big: { path: big.bin }, small: { path: small.bin } }\nmatrix:");
    bench.edit("c.yaml", "params: { size: [1, 2] }", "model: [small, big]");
    bench.edit("c.yaml", "{size}", "{model.id}");
    bench.edit("c.yaml", "repetitions: 2", "repetitions: 1");
    bench.script("bench.sh", "echo '{\"score\": 1}'");
    bench.lab.write("small.bin", "");
    fs::File::create(bench.lab.path("small.bin")).and_then(|file| file.set_len(100 << 20)).unwrap();
    fs::File::create(bench.lab.path("big.bin")).and_then(|file| file.set_len(125 << 20)).unwrap();
    let limited = |args: &str| {
        let shell = bench.lab.isotherm(&[]);
        let isotherm = shell.get_program().to_string_lossy().into_owned();
        let line = format!("echo $$ > {}/cgroup.procs && exec {isotherm} run c.yaml {args}", group.0.display());
        let mut inside = std::process::Command::new("sh");
        inside.arg("-c").arg(line).current_dir(bench.lab.path(""));
        inside.env_clear().envs(shell.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ran::by(&mut inside)
    };
    limited("").expect(1);
    assert_eq!(bench.ran(), ["small"]);
    let records = bench.lab.records("c");
    let big = &records.iter().find(|(_, record)| record["ids"]["point"]["axes"]["model"] == "big").unwrap().1;
    assert_eq!(big["reason"], "precondition");
    assert_eq!(big["message"], "132 MiB of memory are needed for the model, and 128 MiB are available");
    limited("--force").expect(0);
    assert_eq!(bench.ran(), ["big"]);
}
