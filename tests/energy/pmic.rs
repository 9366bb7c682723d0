//! A Raspberry Pi 5 whose power controller is asked through a stand-in for its firmware's tool.

use crate::board::Board;
use crate::held::has_started;
use crate::lab::{Ran, User, eventually};
use serde_json::Value;

const PRINTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/vcgencmd/pmic_read_adc.txt");

/// Its only instrument is the power controller. The tool takes its time, and hangs for good once a file is there.
fn pi(power: &str, workload: &str) -> Option<Board> {
    let board = Board::new(User::Caller)?;
    board.set("firmware/devicetree/base/model", "Raspberry Pi 5 Model B");
    board.zone(0, "cpu-thermal", 48_312);
    let (hang, calls) = (board.lab.path("hang"), board.lab.path("calls"));
    let tool = format!(
        "#!/bin/sh\n[ \"$*\" = pmic_read_adc ] || exit 1\necho >> {calls:?}\n[ ! -e {hang:?} ] || exec sleep 1000\nsleep 0.02\nexec cat {PRINTED:?}\n"
    );
    board.lab.write("bin/vcgencmd", tool);
    board.lab.write("workload.sh", format!("#!/bin/sh\necho >> started\n{workload}\n"));
    let campaign = board.lab.read("c.yaml").replace("sample_hz: 50, power: together", &format!("sample_hz: 10, power: {power}"));
    board.lab.write("c.yaml", campaign);
    Some(board)
}

/// `isotherm run` with the tool on the path.
fn run(board: &Board) -> std::process::Command {
    let mut command = board.inside(&["run", "c.yaml"]);
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", board.lab.path("bin").display()));
    command
}

fn figure(record: &Value) -> &Value {
    record["energy"].as_array().unwrap().iter().find(|figure| figure["instrument"] == "pi_pmic_samples").unwrap()
}

#[test]
fn the_rails_of_a_power_controller_are_added_up_and_stand_apart_and_it_is_asked_once_a_second_only() {
    let Some(board) = pi("only", "sleep 3.5") else { return };
    Ran(run(&board).output().unwrap()).expect(0);
    let record = board.record();
    let figure = figure(&record);
    assert_eq!((&figure["of_record"], &figure["measures"], &figure["scope"]), (&true.into(), &"pmic_rails".into(), &"agent_timed_window".into()));
    let seconds = figure["window"]["integrated_ns"].as_f64().unwrap() / 1e9;
    let near = |found: &Value, expected: f64| (found.as_f64().unwrap() - expected).abs() < 1e-6;
    assert!(near(&figure["mean_w"], 3.44), "{figure}");
    let power = &record["metrics"]["power_w"];
    assert!(power["value"].is_null() && power["omitted_reason"].as_str().unwrap().ends_with("readings fell into the window"), "{power}");
    let rail = |name: &str| figure["channels"].as_array().unwrap().iter().find(|channel| channel["subject"] == name).unwrap();
    assert!(near(&rail("VDD_CORE")["joules"], 1.6 * seconds) && near(&rail("DDR_VDD2")["joules"], 0.22 * seconds), "{figure}");
    assert_eq!((rail("HDMI")["period_ms"].as_f64(), figure["channels"].as_array().unwrap().len()), (Some(1000.0), 12));
    // Values are given once, and there is one a second at the most.
    let columns = record["samples"]["inline"]["columns"].as_array().unwrap();
    let core = columns.iter().find(|column| column["subject"] == "VDD_CORE").unwrap();
    let values = core["values"].as_array().unwrap().iter().filter(|value| !value.is_null()).count() as f64;
    assert!((2.0..=seconds + 2.0).contains(&values), "{values} in {seconds} s");
    assert_eq!(record["observer"]["slowed"][0][0], "3V7_WL_SW vcgencmd pmic_read_adc");
    // Whoever asks it is no process of the run.
    assert!(record["issues"].as_array().unwrap().iter().all(|issue| issue["code"] != "left_processes"), "{}", record["issues"]);
}

#[test]
fn a_tool_that_hangs_is_given_up_and_ended_and_nothing_waits_for_it() {
    let Some(board) = pi("only", "while [ ! -e end ]; do sleep 0.01; done") else { return };
    let mut command = run(&board);
    let controller = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    has_started(&board.lab);
    let asked = || board.lab.read("calls").lines().count();
    let before = asked();
    board.lab.write("hang", "");
    // It is asked once more, and that one is ended.
    eventually("it is asked", || (asked() > before).then_some(()));
    eventually("it is ended", || board.lab.pids_of("sleep 1000").is_empty().then_some(()));
    board.lab.write("end", "");
    Ran::of(controller).expect(1);
    let record = board.record();
    assert!(figure(&record)["joules"].is_null(), "{}", figure(&record));
    assert!(record["observer"]["given_up"][0][1].as_str().unwrap().contains("no answer within 2000 ms"), "{}", record["observer"]);
    let columns = record["samples"]["inline"]["columns"].as_array().unwrap();
    let zone = columns.iter().find(|column| column["subject"] == "cpu-thermal").unwrap();
    assert!(zone["values"].as_array().unwrap().iter().all(|value| *value == 48.312), "{zone}");
    eventually("nothing is left", || board.lab.processes().is_empty().then_some(()));
}

#[test]
fn a_pi_without_the_tool_says_so() {
    let Some(board) = pi("split", "true") else { return };
    std::fs::remove_file(board.lab.path("bin/vcgencmd")).unwrap();
    let ran = Ran(run(&board).output().unwrap()).expect(0);
    assert!(ran.stderr().contains("PMIC (vcgencmd pmic_read_adc): no vcgencmd on the path"), "{}", ran.stderr());
}
