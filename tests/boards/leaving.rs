//! Ctrl-C at a terminal, which reaches all of its foreground process group, and a board that is only waited for.

use crate::boards::Setup;
use crate::lab::eventually;
use crate::rig::{Rig, end};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

const CLIENT: &str = "ssh -S none ";
/// So much is said by a job whose result takes its time.
const BULK: u64 = 1_000_000;

fn signal(pid: i32, signal: i32) {
    // SAFETY: plain integers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// `isotherm run c.yaml` as a shell starts it from a terminal: leader of a process group. No silence of a board is too long for it.
fn start(rig: &Rig) -> Child {
    let mut command = rig.bench.isotherm(&["run", "c.yaml"]);
    command.process_group(0).env("ISOTHERM_SSH_ALIVE_S", "3600").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What the terminal does.
#[track_caller]
fn ctrl_c(rig: &Rig, controller: &Child) {
    let heard = rig.events("stopping");
    signal(-(controller.id() as i32), libc::SIGINT);
    eventually("it was heard", || (rig.events("stopping") > heard).then_some(()));
}

/// The client of the board: what it starts to get through jump hosts is called otherwise.
#[track_caller]
fn connecting(rig: &Rig) -> i32 {
    eventually("ssh is connecting", || rig.bench.lab.pids_of(CLIENT).first().copied())
}

/// Nobody is waited for any more, and nothing of the controller is left.
#[track_caller]
fn left_at_once(rig: &Rig, controller: Child) {
    end(controller, 130);
    assert_eq!((rig.events("device_failed"), rig.events("out_of_reach")), (0, 0));
    eventually("no process of the controller is left", || rig.bench.lab.processes().is_empty().then_some(()));
}

#[test]
fn ctrl_c_reaches_no_client_that_holds_a_connection() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    // Through a jump host it is two.
    rig.through_itself("");
    let controller = start(&rig);
    rig.has_started(1);
    let clients = rig.bench.lab.pids_of("ssh");
    assert!(clients.len() >= 2, "{clients:?}");
    ctrl_c(&rig, &controller);
    assert_eq!(rig.bench.lab.pids_of("ssh"), clients);
    rig.open(1);
    end(controller, 130);
    assert_eq!((rig.events("link_lost"), rig.executions(1), rig.executions(2)), (0, 1, 0));
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn ctrl_c_reaches_no_client_that_is_on_its_way_back_to_a_run() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = start(&rig);
    rig.has_started(1);
    signal(rig.bench.listener(), libc::SIGSTOP);
    rig.end_sessions();
    eventually("the link counts as lost", || (rig.events("link_lost") == 1).then_some(()));
    let client = connecting(&rig);
    ctrl_c(&rig, &controller);
    assert_eq!(connecting(&rig), client);
    signal(rig.bench.listener(), libc::SIGCONT);
    eventually("the run is followed again", || (rig.events("link_back") == 1).then_some(()));
    rig.open(1);
    end(controller, 130);
    assert_eq!((rig.events("out_of_reach"), rig.executions(1), rig.executions(2)), (0, 1, 0));
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn a_result_that_is_being_fetched_is_waited_for_by_the_first_ctrl_c_and_who_leaves_all_the_same_hears_of_it() {
    for is_left in [false, true] {
        let Some(rig) = Rig::new(&Setup::default()) else { return };
        rig.says_much(1, BULK);
        let controller = rig.begin(Some("1"));
        rig.fetch_slowly(1, "2mbit", BULK / 3);
        signal(controller.id() as i32, libc::SIGINT);
        eventually("it was heard", || (rig.events("stopping") == 1).then_some(()));
        rig.bench.cut();
        eventually("the board is waited for", || (rig.events("out_of_reach") >= 1).then_some(()));
        assert_eq!(rig.bench.lab.records("c").len(), 0, "cut too late");
        if is_left {
            signal(controller.id() as i32, libc::SIGINT);
            let told = end(controller, 130).stderr();
            assert!(told.contains("2 jobs: 0 ok · 0 failed · 1 pending · 1 left on its device"), "{told}");
            rig.bench.mend();
        } else {
            rig.bench.mend();
            end(controller, 130);
            assert_eq!(rig.bench.lab.records("c").len(), 1);
        }
        rig.run().expect(0);
        rig.settled([1, 1], 0);
    }
}

#[test]
fn a_board_that_is_gone_when_everything_is_stored_is_not_waited_for_and_one_that_is_back_soon_is_given_back() {
    for is_back in [false, true] {
        let Some(rig) = Rig::new(&Setup::default()) else { return };
        rig.says_much(2, BULK);
        std::fs::remove_file(rig.bench.lab.path("board/home/gate.2")).unwrap();
        rig.open(1);
        let controller = rig.begin(Some("1"));
        // Its keeper has answered for the last time, and most of that is on its way.
        rig.fetch_slowly(2, "1mbit", BULK * 88 / 100);
        let keeper = rig.bench.processes().into_iter().find(|(_, line)| line.contains(" keep ")).unwrap().0;
        signal(keeper, libc::SIGSTOP);
        eventually("everything is stored", || (rig.bench.lab.records("c").len() == 2).then_some(()));
        rig.bench.cut();
        eventually("the link counts as lost", || (rig.events("link_lost") == 1).then_some(()));
        let mend = || {
            signal(keeper, libc::SIGCONT);
            rig.bench.mend();
        };
        if is_back {
            mend();
        }
        let told = end(controller, 0).stderr();
        assert_eq!((rig.events("link_back") == 1, !told.contains("device `board` was not given back (")), (is_back, is_back), "{told}");
        if !is_back {
            mend();
            rig.run().expect(0);
        }
        rig.settled([1, 1], 0);
    }
}

#[test]
fn one_ctrl_c_is_enough_where_a_board_accepts_a_connection_and_says_nothing() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    signal(rig.bench.listener(), libc::SIGSTOP);
    let controller = start(&rig);
    connecting(&rig);
    ctrl_c(&rig, &controller);
    left_at_once(&rig, controller);
    // Who doesn't leave is told.
    let told = rig.bench.isotherm(&["probe", "c.yaml"]).env("ISOTHERM_SSH_ALIVE_S", "1").output().unwrap();
    let told = crate::lab::Ran(told).expect(4).stderr();
    assert!(told.contains("timed out") && told.contains("hint: it accepts connections and says nothing"), "{told}");
}

#[test]
fn whatever_ends_a_controller_that_is_connecting_ends_its_client() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    signal(rig.bench.listener(), libc::SIGSTOP);
    for (command, how) in [("probe", libc::SIGINT), ("doctor", libc::SIGINT), ("run", libc::SIGKILL)] {
        let mut isotherm = rig.bench.isotherm(&[command, "c.yaml"]);
        isotherm.process_group(0).env("ISOTHERM_SSH_ALIVE_S", "3600").stdout(Stdio::null()).stderr(Stdio::null());
        let mut controller = isotherm.spawn().unwrap();
        connecting(&rig);
        signal(-(controller.id() as i32), how);
        controller.wait().unwrap();
        eventually("no process of the controller is left", || rig.bench.lab.processes().is_empty().then_some(()));
    }
}

#[test]
fn one_ctrl_c_is_enough_where_a_boards_shell_takes_everything_and_says_nothing() {
    let before = "printf '#!/bin/sh\\nexec cat > /dev/null\\n' > /mnt/deaf && chmod +x /mnt/deaf";
    let Some(rig) = Rig::new(&Setup { before, login_shell: "/mnt/deaf", ..Setup::default() }) else { return };
    let controller = start(&rig);
    eventually("its shell was started", || rig.bench.processes().iter().any(|(_, line)| line.starts_with("cat")).then_some(()));
    ctrl_c(&rig, &controller);
    left_at_once(&rig, controller);
    rig.bench.nothing_is_left();
}

#[test]
fn while_one_board_is_waited_for_the_first_ctrl_c_waits_for_the_run_of_another_device() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.bench.lab.write("workload.sh", "#!/bin/sh\necho $1 >> count\nwhile [ ! -e gate ]; do sleep 0.01; done\n");
    rig.campaign_of("here: { local: {} }, board: { ssh: { host: board, config: ssh_config } }", "here, board");
    signal(rig.bench.listener(), libc::SIGSTOP);
    let controller = start(&rig);
    let client = connecting(&rig);
    eventually("the other device is at work", || (rig.bench.lab.read("count") == "1\n").then_some(()));
    ctrl_c(&rig, &controller);
    eventually("the board is waited for no longer", || (!rig.bench.lab.pids_of(CLIENT).contains(&client)).then_some(()));
    rig.bench.lab.write("gate", "");
    left_at_once(&rig, controller);
    assert_eq!(rig.bench.lab.records("c").len(), 1);
}

#[test]
fn nothing_is_asked_at_a_terminal_for_a_jump_host_neither() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let lab = &rig.bench.lab;
    let key = lab.path("locked");
    let made = std::process::Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "a passphrase", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    let keys = lab.read("board/authorized_keys") + &lab.read("locked.pub");
    lab.write("board/authorized_keys", keys);
    let config = lab.read("ssh_config");
    let gate = config.split_once('\n').unwrap().1.replace(&lab.path("key").display().to_string(), &key.display().to_string());
    lab.write("ssh_config", format!("{config}Host gate\n{gate}"));
    rig.campaign(", proxy_jump: gate");
    // With a terminal of its own.
    let terminal = ["python3", "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"];
    let ran = crate::lab::Ran(rig.bench.inside(&terminal, &["probe", "c.yaml"]).output().unwrap()).expect(4);
    // What happens at a jump host is the user's to look at.
    for part in ["can't be reached: on the way there: root@10.79.0.2: Permission denied (publickey).", "hint: try `ssh -F ", " -J gate board`"] {
        assert!(ran.stdout().contains(part), "{}", ran.stdout());
    }
}
