//! From a board that has never seen isotherm to its first record, and what can be in the way of that.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use std::fs;

/// What is installed in a directory of the board.
fn installed(rig: &Rig, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(rig.bench.lab.path("board").join(dir)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.contains("isotherm-agent")).collect()
}

#[test]
fn a_board_that_has_nothing_gets_its_agent_and_gives_records() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.open(1);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
    // Both are this machine's clock.
    let time = &rig.bench.lab.records("c")[0].1["time"];
    assert!(time["clock_offset_ms"].as_f64().unwrap().abs() <= time["clock_offset_uncertainty_ms"].as_f64().unwrap() + 1.0, "{time}");
    let agents = installed(&rig, "home/.cache/isotherm");
    assert!(matches!(&agents[..], [name] if name.len() == "isotherm-agent-".len() + 12), "{agents:?}");
    let agent = rig.bench.lab.path("board/home/.cache/isotherm").join(&agents[0]);
    let copied = fs::metadata(&agent).unwrap().modified().unwrap();
    // Nothing to do, and nothing to copy.
    let again = rig.run().expect(0);
    assert!(again.stderr().contains("2 reused"), "{}", again.stderr());
    assert_eq!(fs::metadata(&agent).unwrap().modified().unwrap(), copied);
    // One that was cut by a loss of power has the right name as well.
    fs::write(&agent, "").unwrap();
    rig.run().expect(0);
    assert!(fs::metadata(&agent).unwrap().len() > 1 << 20);
    rig.bench.nothing_is_left();
}

#[test]
fn any_login_shell_will_do_and_whatever_its_scripts_print() {
    for login_shell in ["/bin/bash", "/bin/dash", "/mnt/ash", "/usr/bin/fish"] {
        let before = "ln -sf /bin/busybox /mnt/ash";
        let Some(rig) = Rig::new(&Setup { login_shell, before, ..Setup::default() }) else { return };
        for script in [".bashrc", ".profile", ".config/fish/config.fish"] {
            rig.bench.lab.write(&format!("board/home/{script}"), "echo Welcome to this board\necho it is slow today >&2\nprintf 'no end of line'\n");
        }
        rig.open(1);
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    }
}

#[test]
fn the_shell_that_takes_the_agent_may_be_bash_or_busybox() {
    for shell in ["/bin/bash", "/bin/busybox"] {
        let before = format!("mount --bind {shell} \"$(readlink -f /bin/sh)\"");
        let Some(rig) = Rig::new(&Setup { before: &before, ..Setup::default() }) else { return };
        rig.open(1);
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    }
}

#[test]
fn an_ordinary_user_needs_no_privilege() {
    let Some(rig) = Rig::new(&Setup { uid: 1777, ..Setup::default() }) else { return };
    rig.open(1);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
    assert_eq!(rig.bench.lab.records("c")[0].1["device"]["containment"]["level"], "subreaper");
}

#[test]
fn one_session_of_the_server_is_enough() {
    let Some(rig) = Rig::new(&Setup { sshd: "MaxSessions 1", ..Setup::default() }) else { return };
    rig.open(1);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn a_place_that_can_not_hold_the_agent_is_passed_over_and_named_where_there_is_no_other() {
    for (before, why) in [
        ("mount -o remount,bind,noexec /home", "ermission denied"),
        ("mount -o remount,bind,ro /home", "ead-only file system"),
        ("mkdir -p /home/.cache && mount -t tmpfs -o size=64k tmpfs /home/.cache", "o space left on device"),
        ("mkdir -p /home/.cache/isotherm && chmod 777 /home/.cache/isotherm", "others may write there"),
        ("mkdir -p /home/.cache /mnt/else && ln -sfn /mnt/else /home/.cache/isotherm", "is a link"),
    ] {
        let Some(rig) = Rig::new(&Setup { before, ..Setup::default() }) else { return };
        rig.campaign(", bin_dir: ~/.cache/isotherm");
        for command in ["probe", "run"] {
            let refused = rig.bench.run(&[command, "c.yaml"]).expect(4).stderr();
            assert!(refused.contains("/home/.cache/isotherm: ") && refused.contains(why) && refused.contains("hint: set `bin_dir`"), "{refused}");
        }
        assert_eq!((rig.events("device_failed"), rig.events("out_of_reach"), rig.bench.lab.records("c").len()), (1, 0, 0), "{before}");
        rig.campaign("");
        // Where nothing can be executed, or written, what is measured lies elsewhere as well.
        let campaign = rig.bench.lab.read("c.yaml").replace("./workload.sh, ", "/bin/echo, done, ");
        rig.bench.lab.write("c.yaml", campaign);
        rig.run().expect(0);
        rig.bench.lab.answered("c", &["board"], 2, 0);
        assert_eq!((installed(&rig, "tmp/isotherm-0").len(), installed(&rig, "home/.cache/isotherm").len()), (1, 0), "{before}");
        rig.bench.nothing_is_left();
    }
}

#[test]
fn where_there_is_nvidias_driver_the_companion_comes_along() {
    // As much of /dev as a board needs, and the driver's.
    let before = "mkdir -p /mnt/dev && mount -t tmpfs tmpfs /mnt/dev && mkdir /mnt/dev/shm
        for node in null zero full random urandom tty; do touch /mnt/dev/$node; mount --bind /dev/$node /mnt/dev/$node; done
        touch /mnt/dev/nvidiactl
        mount --move /mnt/dev /dev";
    for (before, companions) in [("", 0), (before, 1)] {
        let Some(rig) = Rig::new(&Setup { before, ..Setup::default() }) else { return };
        rig.bench.run(&["probe", "c.yaml"]).expect(0);
        let entries = fs::read_dir(rig.bench.lab.path("board/home/.cache/isotherm")).unwrap().flatten();
        let names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        assert_eq!(names.iter().filter(|name| name.starts_with("isotherm-companion-")).count(), companions, "{names:?}");
    }
}

#[test]
fn the_directories_of_the_campaign_are_the_boards() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.campaign(", bin_dir: ~/a+b/bin, state_dir: /home/state.d");
    rig.open(1);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
    assert_eq!(installed(&rig, "home/a+b/bin").len(), 1);
    assert!(rig.bench.lab.path("board/home/state.d").is_dir() && !rig.bench.lab.path("board/home/.local").exists());
}

#[test]
fn a_machine_without_an_agent_is_named_and_one_that_can_not_execute_its_agent_too() {
    let uname = "printf '#!/bin/sh\\necho aarch64\\n' > /mnt/uname && chmod +x /mnt/uname && mount --bind /mnt/uname /usr/bin/uname";
    let Some(rig) = Rig::new(&Setup { before: uname, ..Setup::default() }) else { return };
    let refused = |command: &str, agents: &str| {
        let mut command = rig.bench.isotherm(&[command, "c.yaml"]);
        crate::lab::Ran(command.env("ISOTHERM_AGENTS_DIR", rig.bench.lab.path(agents)).output().unwrap()).expect(4).stderr()
    };
    for command in ["probe", "run"] {
        let absent = refused(command, "nowhere");
        assert!(absent.contains("for aarch64 in ") && absent.contains("scripts/build-agents --out DIR aarch64"), "{absent}");
    }
    // The smallest file that looks like a whole executable of that architecture.
    let mut file = vec![0; 128];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (file[18], file[40], file[58], file[60]) = (183, 64, 64, 1);
    rig.bench.lab.write(&format!("agents/isotherm-agent-{}-aarch64-unknown-linux-gnu", env!("CARGO_PKG_VERSION")), file);
    for command in ["probe", "run"] {
        let foreign = refused(command, "agents");
        assert!(foreign.contains("/home/.cache/isotherm: ") && foreign.contains("xec format error"), "{foreign}");
        assert!(foreign.contains("/var/tmp/isotherm-0: ") && foreign.contains("/dev/shm/isotherm-0: "), "{foreign}");
    }
    assert!(rig.bench.lab.records("c").is_empty());
}

#[test]
fn a_jump_host_and_whatever_stands_in_the_users_configuration() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    // Each of these would spoil a session that relies on the configuration being plain.
    let more = "  ControlMaster auto\n  ControlPath /nowhere/%C\n  ControlPersist 1m\n  RequestTTY force\n  RemoteCommand echo hello\n  \
                ForwardX11 yes\n  ForwardAgent yes\n  LocalCommand cat\n  PermitLocalCommand yes\n  SendEnv LANG\n  Compression yes\n  LogLevel ERROR\n";
    rig.through_itself(more);
    rig.open(1);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn what_a_connection_lives_by_is_not_the_users_configuration() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let forwarded = rig.bench.lab.path("forwarded");
    let more = format!("  ServerAliveCountMax 1000\n  LogLevel QUIET\n  LocalForward {} 127.0.0.1:22\n", forwarded.display());
    rig.bench.lab.write("ssh_config", rig.bench.lab.read("ssh_config") + &more);
    let keys = rig.bench.lab.read("board/authorized_keys");
    rig.bench.lab.write("board/authorized_keys", "");
    unreachable(&rig, &["Permission denied (publickey)"]);
    rig.bench.lab.write("board/authorized_keys", keys);
    let controller = rig.start();
    assert!(!forwarded.exists());
    rig.bench.cut();
    eventually("the link counts as lost", || (rig.events("link_lost") == 1).then_some(()));
    rig.bench.mend();
    rig.open(1);
    end(controller, 0);
    rig.settled([1, 1], 0);
}

#[test]
fn an_account_that_nobody_logs_into_says_so() {
    let Some(rig) = Rig::new(&Setup { login_shell: "/usr/sbin/nologin", ..Setup::default() }) else { return };
    let told = rig.bench.run(&["probe", "c.yaml"]).expect(4).stderr();
    assert!(told.contains("its shell ended before the agent was there: it said \"This account is currently not available.\""), "{told}");
}

/// A probe of the board ends with exit code 4, and these words.
#[track_caller]
fn unreachable(rig: &Rig, words: &[&str]) {
    let told = rig.bench.run(&["probe", "c.yaml"]).expect(4).stderr();
    for word in words {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn what_ssh_says_is_told_with_what_to_do_about_it() {
    let Some(mut rig) = Rig::new(&Setup::default()) else { return };
    let known = rig.bench.lab.read("known_hosts");
    rig.bench.lab.write("known_hosts", "");
    unreachable(&rig, &["device `board` (ssh board) can't be reached: its host key is not known here", "hint: call `ssh -F ", " board` once"]);

    let other = format!("10.79.0.9 {}10.79.0.2 {}", rig.bench.lab.read("key.pub"), rig.bench.lab.read("key.pub"));
    rig.bench.lab.write("known_hosts", other);
    let place = format!("{}:2", rig.bench.lab.path("known_hosts").display());
    unreachable(&rig, &["its host key is another one than in ", &place, "sed -i 2d "]);
    rig.bench.lab.write("known_hosts", known);

    rig.bench.lab.write("board/authorized_keys", "");
    unreachable(&rig, &["root@10.79.0.2: Permission denied (publickey)", "hint: ssh-copy-id -F "]);
    rig.bench.lab.write("board/authorized_keys", rig.bench.lab.read("key.pub"));

    rig.campaign(", port: 2");
    unreachable(&rig, &["connect to host 10.79.0.2 port 2: Connection refused", "hint: is sshd running there"]);
    rig.campaign("");
    let told = rig.bench.isotherm(&["probe", "c.yaml"]).env("PATH", "/nowhere").output().unwrap();
    let told = crate::lab::Ran(told).expect(4).stderr();
    assert!(told.contains("there is no program `ssh` here") && told.contains("apt install openssh-client"), "{told}");

    rig.bench.lab.write("odd_config", "Host board\n  Hostnam 10.79.0.2\n");
    for (config, told) in [("odd_config", "line 2: Bad configuration option: hostnam"), ("nowhere", "nowhere: No such file or directory")] {
        rig.campaign_of(&format!("board: {{ ssh: {{ host: board, config: {config} }} }}"), "board");
        unreachable(&rig, &[told, "hint: try `ssh -F "]);
    }
    rig.campaign(", proxy_jump: 'gate,'");
    unreachable(&rig, &["Invalid -J argument", "hint: try `ssh -F "]);
    rig.campaign("");

    rig.bench.power_cut();
    let told = rig.bench.isotherm(&["probe", "c.yaml"]).env("ISOTHERM_SSH_ALIVE_S", "1").output().unwrap();
    let told = crate::lab::Ran(told).expect(4).stderr();
    assert!(told.contains("connect to host 10.79.0.2 port 22: ") && told.contains("is it switched on"), "{told}");

    let config = rig.bench.lab.read("ssh_config").replace("10.79.0.2", "nosuch.invalid");
    rig.bench.lab.write("ssh_config", config);
    unreachable(&rig, &["Could not resolve hostname nosuch.invalid", "correct `host` of the device"]);
}
