//! How workloads end, and how they are ended.

use crate::lab::{Ran, User, eventually, for_each_user, is_root};
use crate::ward::{Ward, text};
use serde_json::Value;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;

fn ended(record: &Value) -> u64 {
    record["device"]["containment"]["ended"].as_u64().unwrap()
}

fn ending(record: &Value) -> (&Value, &Value, &Value) {
    (&record["status"], &record["reason"], &record["raw"]["wait_status"])
}

#[test]
fn what_ignores_term_is_killed() {
    for_each_user(|user| {
        let ward = Ward::new(user, "1s", "trap '' TERM HUP INT\n(trap '' TERM; exec ./sleeper.sh) &\necho deaf\nwait");
        let record = ward.run();
        assert_eq!(ending(&record), (&"failed".into(), &"timeout".into(), &9.into()), "{record}");
        assert_eq!(text(&record["raw"]["stdout"]), "deaf\n");
    });
}

#[test]
fn what_hides_in_a_session_of_its_own_without_descriptors_and_environment_is_ended() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "");
        let sleeper = ward.sleeper();
        let hide = format!("( exec env -i PATH=\"$PATH\" {} <&- >&- 2>&- & )", sleeper.display());
        let body = format!("#!/bin/sh\nsetsid sh -c '{hide}' </dev/null >/dev/null 2>&1\nwhile [ ! -s started ]; do sleep 0.01; done\necho out\n");
        ward.lab.write("workload.sh", body);
        let record = ward.run();
        assert_eq!(ending(&record), (&"ok".into(), &Value::Null, &0.into()), "{record}");
        assert_eq!(ended(&record), 1);
    });
}

#[test]
fn a_child_that_holds_stdout_open_holds_nobody_up() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "./sleeper.sh &\nwhile [ ! -s started ]; do sleep 0.01; done\necho out");
        let record = ward.run();
        assert_eq!((ending(&record).0, text(&record["raw"]["stdout"])), (&"ok".into(), "out\n"));
        assert_eq!(ended(&record), 1);
        assert!(record["issues"].as_array().unwrap().iter().any(|i| i["code"] == "left_processes"), "{record}");
    });
}

#[test]
fn an_outsider_who_holds_stdout_open_holds_nobody_up() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "echo out\n./sleeper.sh");
        let isotherm = ward.lab.start(&["run", "c.yaml"]);
        eventually("the sleeper has started", || (!ward.lab.read("started").is_empty()).then_some(()));
        let pid = ward.lab.pids_of("./workload.sh")[0];
        let held = OpenOptions::new().write(true).open(format!("/proc/{pid}/fd/1")).unwrap();
        fs::write(ward.lab.path("fifo"), "go\n").unwrap();
        let record = ward.finish(Ran::of(isotherm));
        assert_eq!((ending(&record).0, text(&record["raw"]["stdout"])), (&"ok".into(), "out\n"));
        drop(held);
    });
}

#[test]
fn four_thousand_children_are_all_ended_and_counted() {
    for_each_user(|user| {
        let ward = Ward::new(user, "60s", "i=0\nwhile [ $i -lt 4000 ]; do (read line < fifo) & i=$((i+1)); done");
        let record = ward.run();
        assert_eq!(ending(&record), (&"ok".into(), &Value::Null, &0.into()), "{record}");
        assert_eq!(ended(&record), 4000);
    });
}

#[test]
fn children_that_ended_by_themselves_are_not_counted() {
    for_each_user(|user| {
        // Children and orphans; the first process has waited for the last of them when the workload ends.
        let body = "i=0\nwhile [ $i -lt 20 ]; do (true &) ; true & i=$((i+1)); done\nwait\n";
        let alone = "while [ \"$(cat /proc/$PPID/task/$PPID/children)\" != \"$$ \" ]; do :; done";
        let ward = Ward::new(user, "20s", &format!("{body}{alone}"));
        assert_eq!(ended(&ward.run()), 0);
    });
}

#[test]
fn what_stops_itself_runs_into_its_time_out() {
    for_each_user(|user| {
        let ward = Ward::new(user, "1s", "echo before\nkill -STOP $$\necho never");
        let record = ward.run();
        assert_eq!(ending(&record), (&"failed".into(), &"timeout".into(), &15.into()), "{record}");
        assert_eq!(text(&record["raw"]["stdout"]), "before\n");
    });
}

#[test]
fn a_time_out_keeps_the_output_and_ends_grandchildren() {
    for_each_user(|user| {
        let body = "echo before\necho words >&2\n(setsid ./sleeper.sh & ./sleeper.sh & wait) &\n./sleeper.sh";
        let record = Ward::new(user, "1s", body).run();
        assert_eq!(ending(&record), (&"failed".into(), &"timeout".into(), &15.into()), "{record}");
        assert_eq!((text(&record["raw"]["stdout"]), text(&record["raw"]["stderr"])), ("before\n", "words\n"));
        assert!(record["message"].as_str().unwrap().contains("time-out of 1s"), "{}", record["message"]);
        assert!(record["metrics"].as_object().unwrap().is_empty(), "{}", record["metrics"]);
    });
}

#[test]
fn a_workload_that_empties_its_own_output_pipe_still_runs_into_its_time_out() {
    for_each_user(|user| {
        let body = "cat < /proc/self/fd/1 > /dev/null &\ncat < /proc/self/fd/1 > /dev/null &\nwhile :; do echo y; done";
        let record = Ward::new(user, "1s", body).run();
        assert_eq!(ending(&record).1, "timeout", "{record}");
    });
}

#[test]
fn what_kills_its_own_process_group_ends_alone() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "setsid ./sleeper.sh &\nwhile [ ! -s started ]; do sleep 0.01; done\nkill -9 0");
        let record = ward.run();
        assert_eq!(ending(&record), (&"failed".into(), &"signal".into(), &9.into()), "{record}");
        assert_eq!(ended(&record), 1);
    });
}

#[test]
fn what_kills_its_parent_ends_nothing_but_itself() {
    for_each_user(|user| {
        let body = "(trap '' TERM; exec setsid ./sleeper.sh) &\nwhile [ ! -s started ]; do sleep 0.01; done\nkill -9 $PPID\n./sleeper.sh";
        let ward = Ward::new(user, "1s", body);
        let record = ward.run();
        if ward.level() == "pid_namespace" {
            // There the first process can't be killed from inside.
            assert_eq!(ending(&record), (&"failed".into(), &"timeout".into(), &15.into()), "{record}");
        } else {
            assert_eq!(ending(&record), (&"failed".into(), &"internal".into(), &Value::Null), "{record}");
            assert!(record["message"].as_str().unwrap().contains("ended from outside"), "{record}");
        }
    });
}

#[test]
fn what_stops_its_parent_is_ended_all_the_same() {
    for_each_user(|user| {
        let body = "(trap '' TERM; exec setsid ./sleeper.sh) &\nwhile [ ! -s started ]; do sleep 0.01; done\nkill -STOP $PPID\n./sleeper.sh";
        let record = Ward::new(user, "500ms", body).run();
        assert_eq!(ending(&record).1, "timeout", "{record}");
    });
}

#[test]
fn what_kills_everything_it_may_in_its_pid_namespace_ends_nothing_else() {
    if !is_root() {
        eprintln!("skipped: a PID namespace needs root");
        return;
    }
    let ward = Ward::new(User::Caller, "20s", "setsid ./sleeper.sh &\nwhile [ ! -s started ]; do sleep 0.01; done\nkill -9 -1\necho alone");
    let record = ward.run();
    assert_eq!((ending(&record).0, text(&record["raw"]["stdout"])), (&"ok".into(), "alone\n"), "{record}");
}

#[test]
fn what_kills_everything_of_its_user_leaves_nothing_and_its_job_pending() {
    if !is_root() {
        eprintln!("skipped: it would kill everything of the user who runs the tests");
        return;
    }
    let ward = Ward::new(User::Ordinary, "20s", "");
    let (sleeper, hold) = (ward.sleeper(), ward.fifo("hold"));
    let deaf = format!("setsid env -i {} <&- >&- 2>&- &\nwhile [ ! -s started ]; do :; done", sleeper.display());
    ward.lab.write("workload.sh", format!("#!/bin/sh\necho $$ >> ran\n{deaf}\nkill -9 -1\n"));
    ward.lab.write("main.sh", "#!/bin/sh\n\"$@\" &\nwait $!\necho $? > code\nread line < hold\n");
    // In a PID namespace of the test's own, so that it reaches this lab and no other.
    let mut command = ward.lab.isotherm_inside(&["unshare", "--pid", "--fork", "--mount-proc", "./main.sh"], &["run", "c.yaml"]);
    let mut namespace = command.spawn().unwrap();
    eventually("the controller has been killed", || (!ward.lab.read("code").is_empty()).then_some(()));
    assert_eq!(ward.lab.read("code"), "137\n");
    eventually("nothing but the test's own is left", || {
        (ward.lab.pids_of("main.sh") == ward.lab.processes() && ward.named().is_empty()).then_some(())
    });
    fs::write(hold, "go\n").unwrap();
    assert!(namespace.wait().unwrap().success());
    assert!(ward.lab.records("c").is_empty());

    // It has no result, so it is run again; this time it behaves.
    assert_eq!(ward.lab.read("ran").lines().count(), 1);
    ward.lab.write("workload.sh", "#!/bin/sh\necho $$ >> ran\n");
    assert_eq!(ending(&ward.run()).0, "ok");
    assert_eq!(ward.lab.read("ran").lines().count(), 2);
}

#[test]
fn what_can_not_be_executed_says_so_and_is_not_handed_to_a_shell() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "");
        let executable = |name: &str, content: &str| {
            let path = ward.lab.write(name, content);
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        };
        ward.lab.write("plain.sh", "#!/bin/sh\necho fine\n");
        fs::set_permissions(ward.lab.path("plain.sh"), Permissions::from_mode(0o644)).unwrap();
        fs::create_dir(ward.lab.path("directory.sh")).unwrap();
        executable("words.sh", "echo fine\n");
        executable("empty.sh", "");
        executable("interpreter.sh", "#!/no/such/interpreter\necho fine\n");
        executable("torn.sh", "\u{7f}ELF");
        let faults = [
            ("plain", "Permission denied"),
            ("directory", "Permission denied"),
            ("words", "Exec format error"),
            ("empty", "Exec format error"),
            ("interpreter", "the interpreter or loader that it names is not there"),
            ("torn", "Exec format error"),
            ("missing", "No such file"),
        ];
        let names: Vec<&str> = faults.iter().map(|(name, _)| *name).chain(["next"]).collect();
        ward.campaign("20s", "./{which}.sh", &names);
        let ran = ward.lab.run(&["run", "c.yaml"]).expect(1);
        for (name, words) in faults {
            let record = ward.record(name).unwrap_or_else(|| panic!("no record of {name}: {}", ran.stderr()));
            assert_eq!(ending(&record), (&"failed".into(), &"spawn".into(), &Value::Null), "{record}");
            let message = record["message"].as_str().unwrap();
            assert!(message.contains(words) && message.contains(&format!("{name}.sh")), "{name}: {message}");
        }
        assert_eq!(ward.record("next").unwrap()["status"], "ok");
        ward.nothing_is_left();
    });
}

#[test]
fn the_raw_wait_status_is_that_of_the_workload() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "");
        let faults = [("exit7", 7 << 8, "exit_code"), ("abrt", 6, "signal"), ("kill", 9, "signal"), ("segv", 11, "signal"), ("usr1", 10, "signal")];
        ward.lab.write("exit7.sh", "#!/bin/sh\nexit 7\n");
        for (name, ..) in &faults[1..] {
            ward.lab.write(&format!("{name}.sh"), format!("#!/bin/sh\nkill -{} $$\n", name.to_uppercase()));
        }
        ward.campaign("20s", "./{which}.sh", &faults.iter().map(|f| f.0).chain(["next"]).collect::<Vec<_>>());
        ward.lab.run(&["run", "c.yaml"]).expect(1);
        for (name, status, reason) in faults {
            let record = ward.record(name).unwrap();
            assert_eq!(ending(&record), (&"failed".into(), &reason.into(), &status.into()), "{name}: {record}");
        }
        assert_eq!(ward.record("next").unwrap()["status"], "ok");
        ward.nothing_is_left();
    });
}
