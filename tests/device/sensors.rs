//! What a record says of temperatures, clocks, throttling and power, and of sensors that fail.

use crate::board::Board;
use crate::held::{has_started, reading};
use crate::lab::{User, eventually, for_each_user};
use serde_json::Value;
use std::fs;

#[test]
fn a_record_tells_how_a_board_was_before_during_and_after_its_run() {
    for_each_user(|user| {
        let Some(board) = Board::new(user) else { return };
        board.zone(0, "cpu-thermal", 48_312);
        // Offline, as on a Jetson.
        board.zone(1, "gpu-thermal", -256_000);
        board.set("devices/system/cpu/cpufreq/policy0/affected_cpus", "0 1");
        let clock = "devices/system/cpu/cpufreq/policy0/scaling_cur_freq";
        board.set(clock, "1500000");
        board.set("class/powercap/intel-rapl:0/name", "package-0");
        let energy = "class/powercap/intel-rapl:0/energy_uj";
        board.set(energy, "250000000");
        let controller = board.start(&["run", "c.yaml"]);
        has_started(&board.lab);
        board.zone(0, "cpu-thermal", 81_500);
        board.set(clock, "600000");
        board.set(energy, "260000000");
        let ran = board.end(controller).expect(0);
        let record = board.record();
        let context = &record["context"];
        assert_eq!(reading(&context["before"], "temperature_c", "cpu-thermal")["value"], 48.312, "{}", ran.stderr());
        assert_eq!(reading(&context["after"], "temperature_c", "cpu-thermal")["value"], 81.5);
        let off = reading(&context["before"], "temperature_c", "gpu-thermal");
        assert!(off["value"].is_null() && off["absent"].as_str().unwrap().contains("-256000"), "{off}");
        assert_eq!(reading(&context["before"], "cpu_clock_khz", "policy0 (cpu 0 1)")["value"], 1_500_000.0);
        assert_eq!(reading(&context["after"], "cpu_clock_khz", "policy0 (cpu 0 1)")["value"], 600_000.0);
        let headline = &context["headline"];
        assert_eq!((&headline["sensor"], &headline["start_c"], &headline["end_c"]), (&"cpu-thermal".into(), &48.312.into(), &81.5.into()));
        assert!(headline["max_c"].as_f64() >= headline["mean_c"].as_f64(), "{headline}");
        assert!(ran.stdout().contains("   48.3 → 81.5 °C"), "{}", ran.stdout());
        let joules = |when: &str| reading(&context[when], "sensor_energy_j", "RAPL package-0")["value"].as_f64().unwrap();
        assert_eq!(joules("after") - joules("before"), 10.0);
    });
}

#[test]
fn how_a_board_was_after_its_run_is_read_ahead_of_what_is_done_with_its_files() {
    let Some(board) = Board::new(User::Caller) else { return };
    board.zone(0, "cpu-thermal", 81_500);
    // It takes the agent a good while to hash this.
    board.lab.write("workload.sh", "#!/bin/sh\necho 7 > big\ntruncate -s 128M big\n");
    let metric = "argv: [./workload.sh], metrics: { v: { from: 'file:big', regex: '^([0-9]+)', unit: x, better: lower } }";
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("argv: [./workload.sh]", metric));
    let controller = board.start(&["run", "c.yaml"]);
    let big = board.lab.path("big");
    let has_it_open = |pid: &i32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.flat_map(|fd| fs::read_link(fd.path())).any(|path| path == big)
    };
    eventually("it is collected", || board.lab.pids_of(" keep ").iter().any(has_it_open).then_some(()));
    board.zone(0, "cpu-thermal", 50_000);
    // Of so large a file only the ends are kept, which no rule reads.
    crate::lab::Ran::of(controller).expect(1);
    let record = board.record();
    assert_eq!(reading(&record["context"]["after"], "temperature_c", "cpu-thermal")["value"], 81.5);
    assert_eq!(record["context"]["headline"]["end_c"], 81.5);
}

#[test]
fn a_run_is_sampled_sensor_by_sensor() {
    for_each_user(|user| {
        let Some(board) = Board::new(user) else { return };
        board.zone(0, "cpu-thermal", 40_000);
        board.zone(1, "soc, \"left\"", 41_000);
        let controller = board.start(&["run", "c.yaml"]);
        has_started(&board.lab);
        board.end(controller).expect(0);
        let columns = board.record()["samples"]["inline"]["columns"].as_array().unwrap().clone();
        let of = |subject: &str| columns.iter().find(|c| c["metric"] == "temperature_c" && c["subject"] == subject).unwrap();
        assert!(of("cpu-thermal")["values"].as_array().unwrap().iter().all(|value| *value == 40.0), "{columns:?}");
        assert_eq!(of("soc, \"left\"")["source"], "/sys/class/thermal/thermal_zone1/temp");
    });
}

#[test]
fn a_sensor_that_hangs_costs_its_own_values_and_nothing_else() {
    for_each_user(|user| {
        let Some(board) = Board::new(user) else { return };
        board.zone(0, "cpu-thermal", 40_000);
        let hung = board.zone(1, "gpu-thermal", 41_000);
        fs::remove_file(&hung).unwrap();
        let name = std::ffi::CString::new(hung.to_str().unwrap()).unwrap();
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o644) }, 0);
        board.lab.write("end", "");
        board.run(&["run", "c.yaml"]).expect(0);
        let before = board.record()["context"]["before"].clone();
        let said = reading(&before, "temperature_c", "gpu-thermal")["absent"].as_str().unwrap().to_owned();
        assert!(said.contains("no answer within"), "{said}");
        assert_eq!(reading(&before, "temperature_c", "cpu-thermal")["value"], 40.0);
        eventually("nothing is left", || board.lab.processes().is_empty().then_some(()));
    });
}

#[test]
fn two_of_six_runs_that_were_throttled_have_a_row_of_their_own() {
    let Some(board) = Board::new(User::Caller) else { return };
    let count = board.set("devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "3");
    // The fifth and the sixth run meet a hot package.
    let heat = "[ $(grep -c '' started) -lt 5 ] || printf '%-24s\\n' $(grep -c '' started) 1<> \"$COUNT\"";
    board.lab.write("workload.sh", format!("#!/bin/sh\necho >> started\n{heat}\n"));
    // Not as an argument: files that are named there must not change.
    let env = format!("env: {{ COUNT: {:?} }}, argv: [./workload.sh]", count.display().to_string());
    board.lab.write("c.yaml", board.lab.read("c.yaml").replace("repetitions: 1", "repetitions: 6").replace("argv: [./workload.sh]", &env));
    board.run(&["run", "c.yaml"]).expect(0);
    let report = board.run(&["report", "results/c", "--format", "json"]).expect(0);
    let model: Value = serde_json::from_str(&report.stdout()).unwrap();
    let wall = model["tables"].as_array().unwrap().iter().find(|table| table["metric"] == "wall_s").unwrap();
    let row = |row: &Value| (row["number"]["runs"].clone(), row["states"][0]["code"].clone(), row["states"][0]["detail"].clone());
    let rows: Vec<_> = wall["rows"].as_array().unwrap().iter().map(row).collect();
    let state = |runs: u32, detail: &str| (runs.into(), "operating_state".into(), detail.into());
    assert_eq!(rows, [state(4, "nominal"), state(2, "throttled")], "{}", report.stdout());
}
