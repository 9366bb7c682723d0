//! Facts made up, findings judged.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::plan::expand;
use isotherm_wire::inspect::Machine;
use isotherm_wire::models::Cached;
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, Present, Probed};
use isotherm_wire::readiness::{FileLook, Login, May, Place, Readiness, Scheduled, StepLook, Timer, TripPoint};
use isotherm_wire::session::Engine;
use isotherm_wire::task::Step;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const CAMPAIGN: &str = "devices: { here: { local: {} } }
models: { small: { path: /models/small.onnx }, large: { path: large.onnx } }
matrix:
  - { devices: here, backend: builtin, model: [small, large], threads: [1, 2] }
  - { devices: here, backend: command, argv: [./bench.sh, data], inputs: ['data/*.bin'], cpus: '0,3' }
";

fn readiness() -> Readiness {
    let place = |path: &str| Place { path: path.into(), free_bytes: Some(10 << 30), free_files: None, fault: None };
    Readiness {
        files: BTreeMap::new(),
        bin: place("/bin"),
        state: place("/state"),
        models: Vec::new(),
        quarantine: None,
        borrowed: false,
        mem_available_bytes: Some(8 << 30),
        cpus: Some(vec![0, 1]),
        steps: Vec::new(),
        login: Login::default(),
        scheduled: Scheduled::Nothing,
        processes: Vec::new(),
        trip_points: Vec::new(),
    }
}

fn probed() -> Probed {
    Probed {
        probe_version: 1,
        agent_version: "0.1.0".into(),
        root: "/".into(),
        machine: Machine::default(),
        engine: Engine { name: "rten".into(), version: "1".into(), revision: 1 },
        held_by: None,
        capabilities: Vec::new(),
        models: Vec::new(),
        found: None,
        readiness: None,
    }
}

fn sensor(family: Family, id: &str, name: &str, unit: Option<&str>, present: Present) -> Capability {
    let found = Found::Present(present);
    Capability { id: id.into(), family, name: name.into(), unit: unit.map(str::to_owned), source: "/sys/x".into(), recorded: true, found }
}

/// Findings of one check, with every file of the campaign as this says.
fn judged(probed: &Probed, mut readiness: Readiness, horizon: Horizon, check: Check, file: impl Fn(&str) -> FileLook) -> Vec<Finding> {
    let campaign = crate::config::parse(CAMPAIGN, Path::new("/c/x.yaml")).unwrap();
    let plan = expand::expand(&campaign, &BTreeMap::new()).unwrap();
    let points: Vec<_> = plan.points.iter().collect();
    let asked = needs(&campaign.devices["here"], &points);
    readiness.files.extend(asked.files.iter().map(|query| (query.key.clone(), file(&query.path))));
    let device = Device { id: "here", is_over_ssh: false, file: Path::new("my night.yaml"), probed, readiness: &readiness, points: &points, horizon };
    judge(&device).into_iter().filter(|finding| finding.check == check).collect()
}

fn pushing(change: impl FnOnce(&mut Readiness)) -> Vec<Finding> {
    let text = CAMPAIGN.replace("large: { path: large.onnx }", "large: { path: large.onnx, push: true }");
    let campaign = crate::config::parse(&text, Path::new("/c/x.yaml")).unwrap();
    let plan = expand::expand(&campaign, &BTreeMap::new()).unwrap();
    let points: Vec<_> = plan.points.iter().collect();
    let asked = needs(&campaign.devices["here"], &points);
    assert!(!asked.files.iter().any(|query| query.path == "large.onnx"), "it is not asked for where it will be copied to");
    let key = |point: &&crate::plan::Point| crate::plan::files::of_point(point).swap_remove(0).query.key;
    let large = points.iter().find(|point| point.pushed().is_some()).map(key).unwrap();
    let mut readiness = Readiness { files: BTreeMap::from([(large, FileLook::Found { files: 1, bytes: 2 << 30 })]), ..readiness() };
    change(&mut readiness);
    let (probed, horizon) = (probed(), Horizon::default());
    let device =
        Device { id: "here", is_over_ssh: false, file: Path::new("my night.yaml"), probed: &probed, readiness: &readiness, points: &points, horizon };
    judge(&device).into_iter().filter(|finding| finding.check == Check::Disk && finding.what.contains("to be copied")).collect()
}

#[test]
fn models_to_be_copied_have_room_or_say_how_much_they_lack() {
    let [fits] = &pushing(|_| {})[..] else { panic!() };
    assert_eq!((fits.outcome, fits.what.as_str()), (Outcome::Ok, "1 model has to be copied to /state, 2.0 GiB in all; 10.0 GiB free"));
    let [short] = &pushing(|readiness| readiness.state.free_bytes = Some(2 << 30))[..] else { panic!() };
    assert_eq!(short.outcome, Outcome::Problem);
    assert!(short.what.ends_with("2.0 GiB free, and 64 MiB have to stay so"), "{}", short.what);
    assert!(short.remedy.as_ref().unwrap().starts_with("isotherm models 'my night.yaml' --device here "), "{short:?}");
    let there = Cached { sha256: "a".repeat(64), name: Some("large.onnx".into()), bytes: 2 << 30, last_used_s: 0, campaign: None };
    assert!(pushing(|readiness| readiness.models.push(there)).is_empty());
}

fn found(_: &str) -> FileLook {
    FileLook::Found { files: 1, bytes: 1 << 20 }
}

/// The only finding of a check.
#[track_caller]
fn only(check: Check, change: impl FnOnce(&mut Probed, &mut Readiness)) -> Finding {
    let (mut probed, mut readiness) = (probed(), readiness());
    change(&mut probed, &mut readiness);
    let mut findings = judged(&probed, readiness, Horizon::default(), check, found);
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn every_check_has_a_name_and_says_what_it_looks_at() {
    let names: std::collections::BTreeSet<&str> = Check::ALL.iter().map(|check| check.entry().name).collect();
    assert_eq!(names.len(), Check::ALL.len());
    assert!(Check::ALL.iter().all(|check| !check.entry().is.is_empty()));
}

#[test]
fn space_is_judged_by_bytes_and_by_files_where_those_are_counted() {
    let outcome = |bytes, files| space("results", "/r", bytes, files).outcome;
    assert_eq!(outcome(Some(16 << 20), None), Outcome::Warning);
    assert_eq!(outcome(Some((16 << 20) - 1), None), Outcome::Problem);
    assert_eq!(outcome(Some(1 << 30), Some(63)), Outcome::Problem);
    assert_eq!(outcome(Some(1 << 30), Some(64)), Outcome::Ok);
    assert_eq!(outcome(None, None), Outcome::Unknown);
}

#[test]
fn each_file_is_asked_for_once_and_an_argument_is_none() {
    let campaign = crate::config::parse(CAMPAIGN, Path::new("/c/x.yaml")).unwrap();
    let plan = expand::expand(&campaign, &BTreeMap::new()).unwrap();
    let asked = needs(&campaign.devices["here"], &plan.points.iter().collect::<Vec<_>>());
    let paths: std::collections::BTreeSet<&str> = asked.files.iter().map(|query| query.path.as_str()).collect();
    assert_eq!((paths, asked.files.len()), (["./bench.sh", "/models/small.onnx", "data/*.bin", "large.onnx"].into(), 4));
}

#[test]
fn a_file_that_is_missing_on_the_device_is_a_problem_and_one_that_nobody_could_look_at_is_unknown() {
    let look = |path: &str| match path {
        "/models/small.onnx" => FileLook::Missing("No such file or directory (os error 2)".into()),
        "large.onnx" => FileLook::Unknown("no answer within 5000 ms".into()),
        "data/*.bin" => FileLook::Found { files: 0, bytes: 0 },
        _ => found(path),
    };
    let of = |check| judged(&probed(), readiness(), Horizon::default(), check, look);
    let models = of(Check::Model);
    assert_eq!(models.iter().map(|f| f.outcome).collect::<Vec<_>>(), [Outcome::Problem, Outcome::Unknown]);
    assert_eq!(models[0].what, "`small`: /models/small.onnx: No such file or directory");
    assert!(models[0].remedy.is_some() && models[1].what.starts_with("`large`: /c/large.onnx: no answer"), "{models:?}");
    assert_eq!((of(Check::Program)[0].outcome, of(Check::Input)[0].outcome), (Outcome::Ok, Outcome::Warning));
}

#[test]
fn the_largest_model_has_to_fit_by_the_rule_of_a_run() {
    let memory = |bytes: u64, limit: Option<u64>| {
        let mut probed = probed();
        probed.machine.limits.memory_bytes = limit;
        let look = |path: &str| if path == "large.onnx" { FileLook::Found { files: 1, bytes } } else { found(path) };
        judged(&probed, readiness(), Horizon::default(), Check::Memory, look).remove(0)
    };
    assert_eq!(memory(7 << 30, None).outcome, Outcome::Ok);
    let full = memory(8 << 30, None);
    assert!(full.outcome == Outcome::Problem && full.what.contains("`large` has 8.0 GiB"), "{full:?}");
    assert_eq!(memory(7 << 30, Some(4 << 30)).outcome, Outcome::Problem, "a container's limit counts as well");
    assert_eq!(only(Check::Memory, |_, readiness| readiness.mem_available_bytes = None).outcome, Outcome::Unknown);
}

#[test]
fn cpus_that_may_not_be_used_are_a_problem() {
    let cpus = |allowed| only(Check::Cpus, |_, readiness| readiness.cpus = allowed);
    let denied = cpus(Some(vec![0, 1, 2]));
    assert_eq!((denied.outcome, denied.what.as_str()), (Outcome::Problem, "3 may not be used, of 0,1,2: runs with them fail as precondition"));
    assert_eq!((cpus(Some(vec![0, 1, 2, 3])).outcome, cpus(None).outcome), (Outcome::Ok, Outcome::Unknown));
}

#[test]
fn a_step_that_is_denied_is_a_problem_and_one_that_the_device_lacks_a_warning() {
    let step = |may| only(Check::Prepare, |_, readiness| readiness.steps = vec![StepLook { step: Step::Governor, may }]);
    assert_eq!(step(May::Directly).outcome, Outcome::Ok);
    assert!(step(May::BySudo).what.contains("sudo"));
    assert_eq!(step(May::Unsupported("no cpufreq".into())).outcome, Outcome::Warning);
    let denied = step(May::Denied("policy0/scaling_governor: Permission denied; there is no sudo".into()));
    assert!(denied.outcome == Outcome::Problem && denied.remedy.unwrap().contains("/etc/sudoers.d/isotherm"));
}

#[test]
fn the_keeper_of_a_device_over_ssh_is_kept_by_a_scope_of_its_own() {
    let over_ssh = |linger: bool, scope: bool| {
        let logind = BTreeMap::from([("KillUserProcesses".to_owned(), "yes".to_owned())]);
        let group = Some("/user.slice/user-1000.slice/session-3.scope".into());
        let login = Login { systemd: true, uid: 1000, user: Some("pi".into()), group, linger, scope, logind };
        let (probed, readiness) = (probed(), Readiness { login, ..readiness() });
        let horizon = Horizon::default();
        let device = Device { id: "pi", is_over_ssh: true, file: Path::new("x.yaml"), probed: &probed, readiness: &readiness, points: &[], horizon };
        judge(&device).into_iter().find(|finding| finding.check == Check::Logout).unwrap()
    };
    assert_eq!(over_ssh(true, true).outcome, Outcome::Ok);
    for (linger, remedy) in [(false, "loginctl enable-linger   # on the device"), (true, "install systemd-run there")] {
        let ended = over_ssh(linger, false);
        assert!(ended.outcome == Outcome::Problem && ended.remedy.as_ref().unwrap().starts_with(remedy), "{ended:?}");
    }
}

#[test]
fn a_logout_ends_what_logind_is_told_to_end_and_nothing_else() {
    let logout = |uid: u32, group: Option<&str>, linger: bool, logind: &[(&str, &str)]| {
        let login = Login {
            systemd: true,
            uid,
            user: Some(if uid == 0 { "root" } else { "pi" }.into()),
            group: group.map(str::to_owned),
            linger,
            scope: false,
            logind: logind.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        only(Check::Logout, |_, readiness| readiness.login = login)
    };
    let session = Some("/user.slice/user-1000.slice/session-3.scope");
    let yes = [("KillUserProcesses", "yes")];
    let ended = logout(1000, session, true, &yes);
    assert_eq!(ended.outcome, Outcome::Problem, "lingering doesn't save a session's own processes");
    assert_eq!(ended.remedy.unwrap(), "loginctl enable-linger && systemd-run --user --scope isotherm run 'my night.yaml'");
    for spared in [
        logout(1000, session, false, &[("KillUserProcesses", "no")]),
        logout(0, session, false, &yes),
        logout(1000, session, false, &[yes[0], ("KillExcludeUsers", "root pi")]),
        logout(1000, session, false, &[yes[0], ("KillOnlyUsers", "guest")]),
        logout(1000, Some("/system.slice/ssh.service"), false, &yes),
        logout(1000, Some("/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"), true, &yes),
    ] {
        assert_eq!(spared.outcome, Outcome::Ok, "{spared:?}");
    }
    assert_eq!(logout(0, session, false, &[yes[0], ("KillExcludeUsers", "")]).outcome, Outcome::Problem);
    assert_eq!(logout(1000, Some("/user.slice/user-1000.slice/user@1000.service/x"), false, &[]).outcome, Outcome::Problem);
    for untold in
        [logout(1000, session, false, &[]), logout(1000, None, false, &yes), logout(1000, session, false, &[("KillUserProcesses", "maybe")])]
    {
        assert_eq!(untold.outcome, Outcome::Unknown, "{untold:?}");
    }
    assert_eq!(only(Check::Logout, |_, _| {}).outcome, Outcome::Ok, "no systemd");
}

#[test]
fn a_timer_disturbs_if_it_is_heavy_and_due_before_the_end() {
    const HOUR_US: u64 = 3_600_000_000;
    let now_us = 1_796_000_000_000_000;
    let due = |unit: &str, hours: Option<u64>| Timer { unit: unit.into(), next_us: hours.map(|hours| now_us + hours * HOUR_US) };
    let timers =
        vec![due("apt-daily.timer", Some(3)), due("fstrim.timer", None), due("systemd-tmpfiles-clean.timer", Some(0)), due("man-db.timer", Some(13))];
    let ahead = |horizon: Horizon| {
        let readiness = Readiness { scheduled: Scheduled::Timers { now_us, timers: timers.clone() }, ..readiness() };
        judged(&probed(), readiness, horizon, Check::Timers, found).remove(0)
    };
    let within = |about: Option<Duration>| ahead(Horizon { runs: 1, about });
    assert_eq!(within(Some(Duration::from_secs(2 * 3600))).outcome, Outcome::Ok);
    let warned = within(Some(Duration::from_secs(4 * 3600)));
    assert_eq!((warned.outcome, warned.what.as_str()), (Outcome::Warning, "due before the campaign is through: apt-daily.timer in 180 min"));
    assert_eq!(warned.remedy.unwrap(), "sudo systemctl stop apt-daily.timer   # and afterwards: sudo systemctl start apt-daily.timer");
    assert!(within(None).what.starts_with("due within 12 h"), "a night is looked at where nobody knows how long it is");
    assert_eq!(ahead(Horizon::default()).what, "due within 12 h: apt-daily.timer in 180 min", "nothing to run has no end");
    assert!(within(Some(Duration::from_secs(u64::MAX))).what.contains("man-db.timer"));
    let cron = only(Check::Timers, |_, readiness| readiness.scheduled = Scheduled::Cron(vec!["logrotate".into(), "bsdmainutils".into()]));
    assert!(cron.outcome == Outcome::Warning && cron.what.contains("logrotate") && !cron.what.contains("bsdmainutils"), "{cron:?}");
    let untold = Absent { cause: Cause::Garbage, reason: "what systemctl lists is no JSON".into() };
    assert_eq!(only(Check::Timers, |_, readiness| readiness.scheduled = Scheduled::Unknown(untold)).outcome, Outcome::Unknown);
}

#[test]
fn a_zone_is_judged_by_its_first_trip_point_and_a_pi_by_its_firmware() {
    let point = |millicelsius, now| TripPoint { zone: "thermal_zone0".into(), name: "cpu-thermal".into(), millicelsius, now_millicelsius: now };
    let at = |now| only(Check::Temperature, |_, readiness| readiness.trip_points = vec![point(95_000, now), point(80_000, now)]);
    assert_eq!((at(Some(65_000)).outcome, at(Some(65_001)).outcome, at(None).outcome), (Outcome::Ok, Outcome::Warning, Outcome::Unknown));
    assert_eq!(at(Some(48_312)).what, "cpu-thermal holds the clock back from 80.0 °C, it is 48.3 °C now");
    assert_eq!(only(Check::Temperature, |_, _| {}).outcome, Outcome::Unknown);
    let pi = only(Check::Temperature, |probed, _| {
        probed.machine.board_model = Some("Raspberry Pi 5 Model B Rev 1.0".into());
        let present = Present { value: Some(84_950.0), ..Present::default() };
        probed.capabilities = vec![sensor(Family::Temperature, "temperature.thermal_zone0", "cpu-thermal", Some("millicelsius"), present)];
    });
    assert!(pi.outcome == Outcome::Warning && pi.what.contains("80.0 °C, it is 85.0 °C now"), "{pi:?}");
}

#[test]
fn live_bits_and_a_battery_are_warnings_and_history_and_mains_are_not() {
    let bits = |bits: u32| {
        only(Check::Throttling, |probed, _| {
            let present = Present { value: Some(f64::from(bits)), ..Present::default() };
            probed.capabilities = vec![sensor(Family::Throttling, "throttling.firmware", "firmware", Some("bits"), present)];
        })
    };
    assert_eq!((bits(0).outcome, bits(0x50000).outcome, bits(0x50004).outcome), (Outcome::Ok, Outcome::Ok, Outcome::Warning));
    assert!(bits(0x50000).what.contains("since boot there was under-voltage, throttled"));
    assert!(bits(0x50001).remedy.unwrap().contains("power supply"));
    let power = |online: f64, status: &str| {
        let facts = [("status".to_owned(), status.to_owned())].into();
        let (mains, battery) = (Present { value: Some(online), ..Present::default() }, Present { facts, ..Present::default() });
        only(Check::PowerSource, |probed, _| {
            probed.capabilities = vec![
                sensor(Family::PowerSource, "power_source.AC", "AC (Mains)", Some("online"), mains),
                sensor(Family::PowerSource, "power_source.BAT0", "BAT0 (Battery)", None, battery),
            ];
        })
    };
    assert_eq!((power(1.0, "Charging").outcome, power(0.0, "Discharging").outcome), (Outcome::Ok, Outcome::Warning));
}

#[test]
fn what_an_earlier_run_left_is_said_with_what_ends_it() {
    let stuck = only(Check::Quarantine, |_, readiness| readiness.quarantine = Some("process 12 can't be ended".into()));
    assert_eq!(stuck.outcome, Outcome::Problem);
    let borrowed = only(Check::Borrowed, |_, readiness| readiness.borrowed = true);
    assert_eq!((borrowed.outcome, borrowed.remedy.as_deref()), (Outcome::Warning, Some("isotherm restore 'my night.yaml' --device here")));
    let busy = only(Check::Packages, |_, readiness| readiness.processes = vec![("apt-get".into(), 77)]);
    assert!(busy.outcome == Outcome::Warning && busy.what.contains("apt-get (process 77)"), "{busy:?}");
}
