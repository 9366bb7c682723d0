//! Whatever is cut, ended or switched off in the middle of a run: every job has one answer, and nothing of it is left on the board.

use crate::boards::Setup;
use crate::lab::{Clocks, Ran, eventually};
use crate::rig::{Rig, end};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Wait until the run that is executing is sealed on the board.
#[track_caller]
fn sealed(rig: &Rig) {
    eventually("the run is sealed", || rig.sealed().then_some(()));
}

#[test]
fn a_cut_that_the_connection_outlives_costs_nothing() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.begin(None);
    rig.has_started(1);
    rig.bench.cut();
    rig.open(1);
    sealed(&rig);
    rig.bench.mend();
    end(controller, 0);
    assert_eq!(rig.events("link_lost"), 0);
    rig.settled([1, 1], 0);
}

#[test]
fn a_run_goes_on_through_a_cut_and_its_result_is_fetched_by_the_next_connection() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    rig.bench.cut();
    eventually("the link counts as lost", || (rig.events("link_lost") >= 1).then_some(()));
    assert!(rig.bench.lab.read("results/c/journal.ndjson").contains("Timeout, server 10.79.0.2 not responding"));
    rig.open(1);
    sealed(&rig);
    rig.bench.mend();
    end(controller, 0);
    rig.settled([1, 1], 0);
}

/// How long a wire is cut.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    /// For so short a time that the connection outlives it.
    Outlived,
    /// Until it counts as lost, by a controller that finds that within seconds.
    Lost,
    /// So long a router may take that is started anew. Waits on purpose: nothing but time brings every limit on the way past its end.
    FiveMinutes,
}

impl Cut {
    /// `isotherm run c.yaml`, with a patience that fits.
    fn begin(self, rig: &Rig) -> Child {
        let text = rig.bench.lab.read("c.yaml").replace("timeout: 60s", "timeout: 20m");
        rig.bench.lab.write("c.yaml", text);
        rig.begin((self == Cut::Lost).then_some("1"))
    }

    /// Wait as long as the wire is to be cut; one that is outlived isn't waited for.
    #[track_caller]
    fn wait(self, rig: &Rig) {
        match self {
            Cut::Outlived => {}
            Cut::Lost => eventually("the link counts as lost", || (rig.events("link_lost") >= 1).then_some(())),
            Cut::FiveMinutes => {
                std::thread::sleep(Duration::from_secs(300));
                assert!(rig.events("link_lost") == 1 && rig.events("out_of_reach") >= 3);
            }
        }
    }

    /// All jobs have one answer, and the link was lost as it should.
    #[track_caller]
    fn end(self, rig: &Rig, controller: Child) {
        match self {
            // The pause until the next try may be two minutes.
            Cut::FiveMinutes => _ = Ran::of(controller).expect(0),
            Cut::Outlived | Cut::Lost => _ = end(controller, 0),
        }
        assert_eq!((rig.events("link_lost") > 0, rig.events("link_back") > 0), (self != Cut::Outlived, self != Cut::Outlived));
        rig.settled([1, 1], 0);
    }
}

#[test]
#[ignore = "takes seven minutes; .ci/run has it beside its other tests"]
fn a_run_goes_on_through_a_cut_of_five_minutes() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = Cut::FiveMinutes.begin(&rig);
    rig.has_started(1);
    rig.bench.cut();
    Cut::FiveMinutes.wait(&rig);
    rig.open(1);
    sealed(&rig);
    rig.bench.mend();
    Cut::FiveMinutes.end(&rig, controller);
}

#[test]
#[ignore = "takes seven minutes; .ci/run has it beside its other tests"]
fn a_board_is_prepared_through_a_cut_of_five_minutes() {
    prepared_through(Cut::FiveMinutes);
}

#[test]
#[ignore = "takes seven minutes; .ci/run has it beside its other tests"]
fn a_result_is_fetched_on_after_a_cut_of_five_minutes() {
    fetched_through(Cut::FiveMinutes);
}

#[test]
fn a_run_outlives_the_servers_end_of_its_connection() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    rig.end_sessions();
    eventually("the run is followed again", || (rig.events("link_lost") >= 1).then_some(()));
    rig.open(1);
    end(controller, 0);
    rig.settled([1, 1], 0);
}

#[test]
fn a_copy_of_the_agent_that_is_cut_leaves_nothing_that_counts() {
    let Some(mut rig) = Rig::new(&Setup::default()) else { return };
    if !rig.bench.slow_down("8mbit") {
        return eprintln!("skipped: a slow wire (no tbf in this kernel)");
    }
    rig.open(1);
    let place = rig.bench.lab.path("board/home/.cache/isotherm");
    let names =
        || std::fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>();
    let mut command = rig.bench.isotherm(&["probe", "c.yaml"]);
    let controller = command.env("ISOTHERM_SSH_ALIVE_S", "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the copy has begun", || names().first().is_some_and(|name| name.starts_with(".isotherm-agent.new.")).then_some(()));
    rig.bench.power_cut();
    let told = end(controller, 4).stderr();
    assert!(told.contains("the agent on device `board` did not answer: "), "{told}");
    rig.bench.boot();
    rig.run().expect(0);
    rig.settled([1, 1], 0);
    assert!(matches!(&names()[..], [name] if name.starts_with("isotherm-agent-")), "{:?}", names());
}

#[test]
fn a_board_that_is_switched_off_and_on_has_its_run_tried_once_more() {
    let Some(mut rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    rig.bench.power_cut();
    rig.bench.boot();
    eventually("the job has started again", || (rig.executions(1) == 2).then_some(()));
    rig.open(1);
    end(controller, 0);
    rig.settled([2, 1], 1);
    let records = rig.bench.lab.records("c");
    let (_, attempt) = records.iter().find(|(path, _)| path.display().to_string().contains(".attempt")).unwrap();
    assert_eq!((&attempt["status"], &attempt["reason"]), (&"failed".into(), &"interrupted".into()));
    assert_eq!(attempt["issues"][0]["code"], "device_restarted");
}

#[test]
fn a_record_has_clock_and_boot_of_the_device_as_it_was_then_however_often_that_was_started_anew() {
    let Some(mut rig) = Rig::new(&Setup { sshd: "SetEnv ISOTHERM_CLOCK=/home/clock", ..Setup::default() }) else { return };
    let boots: [i32; 3] = [100, -5000, 7000];
    let set = |rig: &Rig, seconds| {
        _ = rig.bench.lab.write_in_place("board/home/clock", Clocks { realtime_s: i64::from(seconds), ..Clocks::default() }.bytes())
    };
    let boot_id = |rig: &Rig| rig.bench.lab.read("board/boot_id").trim().to_owned();
    set(&rig, boots[0]);
    let mut ids = vec![boot_id(&rig)];
    let controller = rig.start();
    for (n, seconds) in boots.iter().enumerate().skip(1) {
        rig.bench.power_cut();
        set(&rig, *seconds);
        rig.bench.boot();
        ids.push(boot_id(&rig));
        eventually("it goes on", || (rig.events("run_lost") == n && rig.events("started") == n + 1).then_some(()));
        eventually("the next run has started", || (rig.executions(1) + rig.executions(2) == n + 1).then_some(()));
    }
    end(controller, 1);
    let records = rig.bench.lab.records("c");
    let of = |reason: Option<&str>| &records.iter().find(|(_, record)| record["reason"].as_str() == reason).unwrap().1;
    for (n, reason) in [Some("interrupted"), Some("device_lost"), None].into_iter().enumerate() {
        let record = of(reason);
        assert_eq!(record["device"]["machine"]["boot_id"], ids[n].as_str(), "{reason:?}");
        // What nobody observed is absent.
        if reason.is_none() {
            let [offset_ms, within_ms] = ["clock_offset_ms", "clock_offset_uncertainty_ms"].map(|name| record["time"][name].as_f64().unwrap());
            assert!((offset_ms - 1000.0 * f64::from(boots[n])).abs() <= within_ms + 1.0, "{offset_ms} ± {within_ms}");
        }
    }
    let report: serde_json::Value = serde_json::from_str(&rig.bench.lab.read("results/c/devices/board.json")).unwrap();
    assert_eq!(report["machine"]["boot_id"], ids[2].as_str());
    rig.bench.nothing_is_left();
}

#[test]
fn what_a_killed_controller_left_running_is_collected_by_the_next_one() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let mut controller = rig.start();
    controller.kill().unwrap();
    controller.wait().unwrap();
    rig.open(1);
    sealed(&rig);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
    // Its ssh has ended with it.
    eventually("no process of the controller is left", || rig.bench.lab.processes().is_empty().then_some(()));
}

#[test]
fn who_leaves_with_two_ctrl_c_leaves_the_run_to_the_board() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    for _ in 0..2 {
        // SAFETY: plain integers.
        unsafe { libc::kill(controller.id() as i32, libc::SIGINT) };
        eventually("it was heard", || (rig.events("stopping") >= 1).then_some(()));
    }
    end(controller, 130);
    rig.open(1);
    sealed(&rig);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

#[test]
fn another_host_key_in_the_middle_of_a_night_ends_it_and_the_run_goes_on() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    let known = rig.bench.lab.read("known_hosts");
    rig.bench.lab.write("known_hosts", format!("10.79.0.2 {}", rig.bench.lab.read("key.pub")));
    rig.bench.cut();
    eventually("the link counts as lost", || (rig.events("link_lost") >= 1).then_some(()));
    rig.bench.mend();
    let Ran(output) = end(controller, 4);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("its host key is another one than in"), "{told}");
    rig.bench.lab.write("known_hosts", known);
    rig.open(1);
    sealed(&rig);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
}

/// Stands in the place of sudo, for an ordinary user whose board is to drop its caches: notes that it was called, and waits.
const PREPARES: &str = "mkdir -p /mnt/bin
    printf '#!/bin/sh\\necho >> /home/prepares\\nuntil [ -e /home/prepared ]; do sleep 0.01; done\\n' > /mnt/bin/sudo
    chmod +x /mnt/bin/sudo
    mount -t overlay overlay -o lowerdir=/mnt/bin:/usr/bin /usr/bin";

#[test]
fn a_link_that_is_cut_while_a_board_is_prepared_costs_nothing_whether_the_connection_outlives_it_or_not() {
    [Cut::Outlived, Cut::Lost].into_iter().for_each(prepared_through);
}

fn prepared_through(cut: Cut) {
    let Some(rig) = Rig::new(&Setup { uid: 1777, before: PREPARES, ..Setup::default() }) else { return };
    let text = rig.bench.lab.read("c.yaml").replace("prepare: {", "prepare: { drop_caches: each,");
    rig.bench.lab.write("c.yaml", text);
    let prepares = || rig.bench.lab.read("board/home/prepares").lines().count();
    let controller = cut.begin(&rig);
    eventually("the board is prepared for job 1", || (prepares() == 1).then_some(()));
    rig.bench.cut();
    let go_on = || {
        assert_eq!((prepares(), rig.executions(1)), (1, 0));
        rig.bench.lab.write("board/home/prepared", "");
        rig.has_started(1);
    };
    // A step that took five minutes would have hung, by its own time-out.
    if cut == Cut::FiveMinutes {
        go_on();
    }
    cut.wait(&rig);
    if cut == Cut::Lost {
        rig.bench.mend();
        eventually("the run is followed again", || (rig.events("link_back") >= 1).then_some(()));
    }
    if cut != Cut::FiveMinutes {
        go_on();
    }
    rig.bench.mend();
    rig.open(1);
    cut.end(&rig, controller);
    assert_eq!(prepares(), 2);
}

#[test]
fn a_result_whose_way_is_cut_is_fetched_once_whether_the_connection_outlives_it_or_not() {
    [Cut::Outlived, Cut::Lost].into_iter().for_each(fetched_through);
}

fn fetched_through(cut: Cut) {
    const BULK: u64 = 1_000_000;
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    rig.says_much(1, BULK);
    let controller = cut.begin(&rig);
    let before = rig.fetch_slowly(1, "2mbit", BULK * 2 / 3);
    rig.bench.cut();
    cut.wait(&rig);
    assert_eq!(rig.bench.lab.records("c").len(), 0, "cut too late");
    if cut == Cut::Outlived {
        eventually("the board sends in vain", || rig.bench.sends_in_vain().then_some(()));
    }
    rig.bench.mend();
    cut.end(&rig, controller);
    // What had come counts.
    let received = rig.bench.received() - before;
    assert!((BULK..BULK * 3 / 2).contains(&received), "{received}");
}

#[test]
fn a_slow_wire_is_no_fault() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    if !rig.bench.slow_down("10mbit") {
        return eprintln!("skipped: a slow wire (no tbf in this kernel)");
    }
    rig.open(1);
    rig.run().expect(0);
    assert_eq!(rig.events("link_lost") + rig.events("out_of_reach"), 0);
    rig.settled([1, 1], 0);
}
