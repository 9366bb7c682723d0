//! What a workload finds when it starts: the same, whoever started the controller.

use crate::lab::{Ran, for_each_user};
use crate::ward::{Ward, text};
use std::os::unix::process::CommandExt;

#[test]
fn no_signal_is_blocked_or_ignored_even_if_the_controller_was_started_that_way() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "cat /proc/self/status");
        let mut command = ward.lab.isotherm(&["run", "c.yaml"]);
        // SAFETY: async-signal-safe calls on plain data.
        unsafe {
            command.pre_exec(|| {
                // As `nohup` and a script's `&` do, and a parent that waits for signals by other means.
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE, libc::SIGUSR1] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                let mut blocked: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut blocked);
                libc::sigaddset(&mut blocked, libc::SIGUSR2);
                libc::sigaddset(&mut blocked, libc::SIGALRM);
                libc::sigprocmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut());
                Ok(())
            });
        }
        let record = ward.finish(Ran::by(&mut command));
        let status = text(&record["raw"]["stdout"]);
        for field in ["SigPnd", "SigBlk", "SigIgn"] {
            assert!(status.contains(&format!("\n{field}:\t0000000000000000\n")), "{field}: {status}");
        }
    });
}

#[test]
fn no_descriptor_file_mode_or_core_limit_of_the_controllers_is_inherited() {
    for_each_user(|user| {
        let ward = Ward::new(user, "20s", "ls /proc/self/fd\numask\nulimit -S -c\nreadlink /proc/self/fd/0");
        let mut command = ward.lab.isotherm(&["run", "c.yaml"]);
        // SAFETY: async-signal-safe calls on plain data.
        unsafe {
            command.pre_exec(|| {
                libc::dup2(0, 9);
                libc::dup2(0, 77);
                libc::umask(0o077);
                let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
                libc::setrlimit(libc::RLIMIT_CORE, &unlimited);
                Ok(())
            });
        }
        let record = ward.finish(Ran::by(&mut command));
        // The fourth is the directory that `ls` reads.
        assert_eq!(text(&record["raw"]["stdout"]), "0\n1\n2\n3\n0022\n0\n/dev/null\n");
    });
}

#[test]
fn a_workload_of_roots_sees_itself_and_its_first_process_and_nobody_else() {
    for_each_user(|user| {
        let body = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done\necho $PPID";
        let ward = Ward::new(user, "20s", body);
        let record = ward.run();
        let seen = text(&record["raw"]["stdout"]);
        let keeper = " keep --state-dir ";
        if ward.level() == "pid_namespace" {
            assert!(!seen.contains(keeper) && seen.ends_with("\n1\n"), "{seen}");
            assert!(seen.contains("init --level pid_namespace") && seen.contains("./workload.sh"), "{seen}");
        } else {
            assert!(seen.contains(keeper), "{seen}");
        }
    });
}

#[test]
fn a_workload_has_a_session_of_its_own_and_no_terminal() {
    for_each_user(|user| {
        // pid, (name), state, parent, group, session, terminal
        let body = "read pid name state parent group session terminal rest < /proc/self/stat\n[ $pid = $$ ] && [ $session = $$ ] && [ $group = $$ ] && [ $terminal = 0 ] && echo alone";
        assert_eq!(text(&Ward::new(user, "20s", body).run()["raw"]["stdout"]), "alone\n");
    });
}
