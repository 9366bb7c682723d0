//! Every source and every sensor over this machine and the authored ones, sound and broken.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::trees::{self, fifo, tree};
use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::{Receiver, Sender};

fn snapshot(root: &Path) -> Snapshot {
    Sources::open(root).snapshot(&mut Sensors::find(root))
}

fn find(root: &Path) -> Arc<Mutex<Sensors>> {
    Arc::new(Mutex::new(Sensors::find(root)))
}

/// What sensors say: name, value in the column's unit.
fn sensed(root: &Path) -> Vec<(String, f64)> {
    let readings = Sensors::find(root).readings();
    readings.into_iter().filter_map(|r| Some((isotherm_wire::telemetry::key(&r.metric, r.subject.as_deref()), r.value?))).collect()
}

fn sensor(dir: &Path, zone: u32, name: &str, value: Option<&str>) -> std::path::PathBuf {
    let dir = dir.join(format!("sys/class/thermal/thermal_zone{zone}"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("type"), name).unwrap();
    if let Some(value) = value {
        fs::write(dir.join("temp"), value).unwrap();
    }
    dir.join("temp")
}

#[test]
fn this_machine_is_read_and_what_is_absent_says_why() {
    let snapshot = snapshot(Path::new("/"));
    assert!(snapshot.value("mem_available_bytes").unwrap() > 0.0);
    assert!(snapshot.value("cpu_idle_s").unwrap() > 0.0);
    assert!(snapshot.readings.iter().all(|r| r.value.is_some() != r.absent.is_some()));
}

#[test]
fn a_machine_without_sources_gives_absent_readings_with_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = snapshot(dir.path());
    assert!(snapshot.readings.iter().any(|r| r.metric == "psi_cpu_some_us"));
    assert!(snapshot.readings.iter().all(|r| r.value.is_none() && r.absent.is_some()));
}

#[test]
fn every_machine_gives_each_column_with_its_unit_and_each_subject_once() {
    let trees = trees::all();
    for root in trees.iter().map(|tree| tree.root.as_path()).chain([Path::new("/")]) {
        let readings = snapshot(root).readings;
        let keys: BTreeSet<(&str, Option<&str>)> = readings.iter().map(|r| (r.metric.as_str(), r.subject.as_deref())).collect();
        assert_eq!(keys.len(), readings.len(), "{}", root.display());
        for reading in &readings {
            let column = ColumnName::ALL.iter().map(|c| c.entry()).find(|entry| entry.name == reading.metric).unwrap();
            assert_eq!(column.unit.symbol(), reading.unit);
            assert!(reading.value.is_some() != reading.absent.as_ref().is_some_and(|why| !why.is_empty()), "{reading:?}");
            assert!(reading.value.is_none_or(f64::is_finite), "{reading:?}");
        }
        // What is not of one sensor is there once, whatever the machine.
        for column in ColumnName::ALL.iter().filter(|column| **column < ColumnName::Temperature) {
            assert_eq!(readings.iter().filter(|r| r.metric == column.entry().name).count(), 1, "{column:?}");
        }
    }
}

#[test]
fn sensors_of_a_board_have_their_drivers_names_and_our_units() {
    let pi = sensed(&tree("pi5").root);
    assert!(pi.iter().any(|(key, value)| key == "temperature_c{cpu-thermal}" && (20.0..100.0).contains(value)), "{pi:?}");
    assert!(pi.iter().any(|(key, value)| key.starts_with("cpu_clock_khz{policy0") && *value > 1e5), "{pi:?}");
    assert!(pi.iter().any(|(key, _)| key == "throttle_bits{firmware throttle bits}"), "{pi:?}");
    let packages = sensed(&tree("two-packages").root);
    assert_eq!(packages.iter().filter(|(key, _)| key.starts_with("sensor_energy_j{RAPL package-")).count(), 2, "{packages:?}");
    let laptop = sensed(&tree("laptop").root);
    assert!(laptop.contains(&("sensor_power_w{battery BAT0}".into(), 9.87)), "{laptop:?}");
    assert!(laptop.iter().any(|(key, value)| key == "sensor_power_w{battery BAT1}" && (value - 7.41).abs() < 1e-9), "{laptop:?}");
}

#[test]
fn voltage_times_current_of_a_rail_is_watts() {
    let dir = tempfile::tempdir().unwrap();
    let chip = dir.path().join("sys/class/hwmon/hwmon3");
    fs::create_dir_all(&chip).unwrap();
    for (file, text) in [("name", "ina3221"), ("in1_label", "VDD_IN"), ("in1_input", "5072"), ("curr1_input", "912")] {
        fs::write(chip.join(file), text).unwrap();
    }
    let [(key, watts)] = &sensed(dir.path())[..] else { panic!("one sensor") };
    assert_eq!(key, "sensor_power_w{ina3221 VDD_IN}");
    assert!((watts - 4.625_664).abs() < 1e-9, "{watts}");
}

#[test]
fn a_zone_that_is_off_is_absent_with_what_it_reads_and_two_of_one_name_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    sensor(dir.path(), 0, "cpu-thermal", Some("48312"));
    sensor(dir.path(), 1, "gpu-thermal", Some("-256000"));
    sensor(dir.path(), 2, "cpu-thermal", Some("50000"));
    let readings = Sensors::find(dir.path()).readings();
    let of = |subject: &str| readings.iter().find(|r| r.subject.as_deref() == Some(subject)).unwrap();
    assert_eq!((of("cpu-thermal").value, of("cpu-thermal #2").value), (Some(48.312), Some(50.0)));
    assert!(of("gpu-thermal").absent.as_ref().unwrap().contains("-256000"));
}

#[test]
fn a_sensor_that_vanishes_or_stops_making_sense_has_no_value_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (sensor(dir.path(), 0, "a", Some("40000")), sensor(dir.path(), 1, "b", Some("41000")));
    let mut sensors = Sensors::find(dir.path());
    for (text, expected) in [("42000\n", Some(42.0)), ("garbage", None), ("", None), ("-256000", None), ("43500", Some(43.5))] {
        fs::write(&first, text).unwrap();
        let readings = sensors.readings();
        assert_eq!((readings[0].value, readings[1].value), (expected, Some(41.0)), "{text:?}");
        assert_eq!(readings[0].absent.is_some(), expected.is_none());
    }
    fs::remove_file(second).unwrap();
    // It is held open; a driver that is unloaded gives an error, a file that was removed its last content.
    assert_eq!(sensors.readings()[0].value, Some(43.5));
}

#[test]
fn a_sensor_that_hangs_is_given_up_for_its_run_and_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let hangs = sensor(dir.path(), 0, "hangs", Some("40000"));
    sensor(dir.path(), 1, "works", Some("41000"));
    let sensors = find(dir.path());
    // Found sound; it hangs as soon as it is opened for good.
    fs::remove_file(&hangs).unwrap();
    fifo(&hangs);
    let (series, observer) = {
        let sampler = Sampler::start(Sources::open(Path::new("/")), &sensors, 100.0, 64).unwrap();
        while !lock(&sensors).lanes[0].was_read(1) {
            // Lets the sampler have its turn; no matter how long.
            thread::park_timeout(Duration::from_millis(1));
        }
        sampler.stop()
    };
    let of = |subject: &str| series.columns.iter().find(|c| c.subject.as_deref() == Some(subject)).unwrap();
    assert!(of("hangs").values.iter().all(Option::is_none));
    assert_eq!(observer.given_up, [("hangs".to_owned(), "no answer within 250 ms".to_owned())]);
    // Meanwhile everything else was sampled all the time.
    let busy = series.columns.iter().find(|c| c.metric == "cpu_busy_s").unwrap();
    assert!(busy.values.len() > 5 && busy.values.iter().all(Option::is_some), "{:?}", busy.values);
    let readings = lock(&sensors).readings();
    assert_eq!((readings[0].absent.as_deref(), readings[1].value), (Some("no answer within 250 ms"), Some(41.0)));
    // Within this run it is not asked any more, whatever it might say now; the next one asks it.
    fs::remove_file(&hangs).unwrap();
    sensor(dir.path(), 0, "hangs", Some("42000"));
    assert_eq!(lock(&sensors).readings()[0].value, None);
    lock(&sensors).try_again();
    assert_eq!(lock(&sensors).readings()[0].value, Some(42.0));
}

#[test]
fn a_sensor_that_hangs_in_three_runs_is_left_alone_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let hangs = sensor(dir.path(), 0, "hangs", Some("40000"));
    let mut sensors = Sensors::find(dir.path());
    fs::remove_file(&hangs).unwrap();
    fifo(&hangs);
    for _ in 0..3 {
        sensors.try_again();
        assert_eq!(sensors.readings()[0].value, None);
    }
    fs::remove_file(&hangs).unwrap();
    sensor(dir.path(), 0, "hangs", Some("42000"));
    sensors.try_again();
    assert_eq!(sensors.readings()[0].absent.as_deref(), Some("no answer within 250 ms"));
}

/// Hangs where it is told to until somebody lets go of it, and reads 7.
struct Slow {
    held: Arc<Mutex<Receiver<()>>>,
    around: bool,
}

impl lane::Reader for Slow {
    fn look_around(&mut self) {
        if self.around {
            let _ = self.held.lock().unwrap().recv();
        }
    }

    fn read(&mut self, _at: usize) -> Option<f64> {
        Some(7.0)
    }
}

/// A lane of one sensor, and what lets go of who hangs in it: ahead of its first round, or when it looks around.
fn slow(dir: &Path, give_up_ns: u64, around: bool) -> (Lane, Sender<()>) {
    sensor(dir, 0, "works", Some("41000"));
    let (found, _) = sensors::of(dir, &crate::probe::sensors(dir));
    let (let_go, held) = channel();
    let held = Arc::new(Mutex::new(held));
    let open = move || {
        if !around {
            let _ = held.lock().unwrap().recv();
        }
        Box::new(Slow { held: Arc::clone(&held), around }) as Box<dyn lane::Reader>
    };
    (Lane::with(found, give_up_ns, Box::new(open)), let_go)
}

#[test]
fn a_thread_that_gets_no_turn_is_no_sensors_fault() {
    let dir = tempfile::tempdir().unwrap();
    // Whoever is asked and doesn't answer at once hangs.
    let (mut lane, let_go) = slow(dir.path(), 0, false);
    let begin_ns = sys::monotonic_ns();
    while sys::monotonic_ns() < begin_ns + 1000 {
        lane.ask();
    }
    lane.ask();
    assert_eq!(lane.given_up(), []);
    let_go.send(()).unwrap();
    let mut values = [None];
    assert!(lane.take(Duration::from_secs(60), &mut values));
    assert_eq!(values, [Some(7.0)]);
}

#[test]
fn looking_around_that_hangs_costs_no_sensor_its_value() {
    let dir = tempfile::tempdir().unwrap();
    let (mut lane, _let_go) = slow(dir.path(), 50_000_000, true);
    let mut values = [None];
    lane.all(&mut values);
    assert_eq!((values, lane.given_up()), ([Some(7.0)], vec![]));
}

#[test]
fn an_instrument_that_is_left_alone_is_not_even_opened() {
    let dir = tempfile::tempdir().unwrap();
    sensor(dir.path(), 0, "works", Some("41000"));
    let package = dir.path().join("sys/class/powercap/intel-rapl:0");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("name"), "package-0").unwrap();
    fs::write(package.join("energy_uj"), "250000000").unwrap();
    let sensors = find(dir.path());
    assert_eq!(lock(&sensors).no_instrument(), None);
    // Whoever opened it now would be given up.
    fs::remove_file(package.join("energy_uj")).unwrap();
    fifo(&package.join("energy_uj"));
    lock(&sensors).read_instruments(false);
    let readings = lock(&sensors).readings();
    let told: Vec<_> = readings.iter().map(|r| (r.subject.as_deref().unwrap(), r.value, r.absent.as_deref())).collect();
    assert_eq!(told, [("RAPL package-0", None, Some(NOT_READ)), ("works", Some(41.0), None)]);
    let (series, observer) = Sampler::start(Sources::open(dir.path()), &sensors, 100.0, 16).unwrap().stop();
    assert!(observer.given_up.is_empty());
    let sensed: Vec<_> = series.columns.iter().filter_map(|column| column.subject.as_deref()).collect();
    assert_eq!(sensed, ["works"]);
}

#[test]
fn a_series_has_one_value_per_time_and_at_least_one_sample() {
    let trees = trees::all();
    for root in trees.iter().map(|tree| tree.root.as_path()).chain([Path::new("/")]) {
        let (series, observer) = Sampler::start(Sources::open(root), &find(root), 100.0, 16).unwrap().stop();
        assert!(!series.monotonic_ns.is_empty());
        assert!(series.columns.iter().all(|c| c.values.len() == series.monotonic_ns.len()));
        assert_eq!(observer.samples, series.monotonic_ns.len() as u64);
    }
}

#[test]
fn a_mark_is_a_sample_at_once_and_none_that_was_due() {
    let root = tempfile::tempdir().unwrap();
    // The next one is due in half an hour.
    let sampler = Sampler::start(Sources::open(root.path()), &find(root.path()), 0.0005, 16).unwrap();
    sampler.mark();
    sampler.mark();
    let (series, observer) = sampler.stop();
    assert_eq!((series.monotonic_ns.len(), observer.samples, observer.missed_samples, observer.achieved_hz), (3, 3, 0, None));
}

#[test]
fn instruments_are_read_first_and_say_what_their_readings_depend_on() {
    let dir = tempfile::tempdir().unwrap();
    sensor(dir.path(), 0, "cpu-thermal", Some("40000"));
    let write = |path: &str, text: &str| {
        let path = dir.path().join("sys/class").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let zone = [("name", "package-0"), ("energy_uj", "5000000"), ("max_energy_range_uj", "262143328850")];
    let limits = [("constraint_0_power_limit_uw", "15000000"), ("constraint_1_power_limit_uw", "64000000")];
    zone.iter().chain(&limits).for_each(|(file, text)| write(&format!("powercap/intel-rapl:0/{file}"), text));
    for (file, text) in [("name", "amdgpu"), ("power1_average", "9000000"), ("power1_cap", "100000000"), ("update_interval", "50")] {
        write(&format!("hwmon/hwmon1/{file}"), text);
    }
    let sensors = Sensors::find(dir.path());
    let facts: Vec<_> = sensors.instruments_read().into_iter().map(|one| one.present().unwrap().facts.clone()).collect();
    let expected = [
        vec![("driver", "intel-rapl"), ("limit_uw", "64000000"), ("wraps_at_uj", "262143328850")],
        vec![("driver", "amdgpu"), ("limit_uw", "100000000"), ("period_ms", "50")],
    ];
    assert_eq!(facts, expected.map(|facts| facts.into_iter().map(|(name, fact)| (name.to_owned(), fact.to_owned())).collect()));
    let order: Vec<_> = sensors.definitions.iter().map(|definition| definition.column).collect();
    assert_eq!(order, [ColumnName::Energy, ColumnName::Power, ColumnName::Temperature]);
}
