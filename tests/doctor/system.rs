//! The system around a night: permissions, logouts, timers, temperatures.

use crate::lab::{User, for_each_user};
use crate::machine::Machine;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// One policy, whose files root may write.
fn cpufreq(machine: &Machine) {
    machine.lay("sys/devices/system/cpu/cpufreq/.keep", "");
    for (file, value) in [
        ("scaling_governor", "ondemand"),
        ("scaling_available_governors", "ondemand performance"),
        ("scaling_min_freq", "600000"),
        ("scaling_max_freq", "1500000"),
        ("cpuinfo_min_freq", "600000"),
        ("cpuinfo_max_freq", "1500000"),
        ("scaling_cur_freq", "600000"),
    ] {
        machine.lab.write(&format!("cpufreq/policy0/{file}"), format!("{value}\n"));
    }
}

const STEPS: &str = ", drop_caches: each, governor: performance, frequency: 1.5GHz";

#[test]
fn an_ordinary_user_may_not_prepare_a_device_unless_sudo_lists_it() {
    let Some(machine) = Machine::of(User::Ordinary) else { return };
    cpufreq(&machine);
    machine.campaign(STEPS);
    let Some(denied) = machine.findings("prepare", 1) else { return };
    let outcomes: Vec<&str> = denied.iter().map(|(outcome, ..)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["problem", "problem", "problem"], "{denied:?}");
    assert!(denied[0].1.starts_with("drop_caches: /proc/sys/vm/drop_caches: Permission denied"), "{denied:?}");
    assert!(denied[1].1.contains("policy0/scaling_governor: Permission denied") && denied[1].2.contains("/etc/sudoers.d/isotherm"), "{denied:?}");

    // In the place of sudo: it notes what it was asked for, and lists what is about the governor.
    let asked = machine.lab.path("asked").display().to_string();
    machine.lay(
        "usr/bin/sudo",
        &format!(
            "#!/bin/sh\necho \"$*\" >> {asked}\ncase \"$*\" in *scaling_governor) exit 0;; esac\necho 'sudo: a password is required' >&2\nexit 1\n"
        ),
    );
    let Some(listed) = machine.findings("prepare", 1) else { return };
    let of = |step: &str| listed.iter().find(|(_, what, _)| what.contains(step)).unwrap_or_else(|| panic!("no {step} in {listed:?}"));
    assert_eq!((of("governor").0.as_str(), of("governor").1.as_str()), ("ok", "governor: listed as permitted by sudo"));
    assert!(of("frequency").0 == "problem" && of("frequency").1.contains("a password is required"), "{listed:?}");
    let asked = machine.lab.read("asked");
    assert!(asked.lines().all(|line| line.starts_with("-n -l /usr/bin/tee /")), "nothing is executed by it: {asked}");
}

#[test]
fn root_may_prepare_a_device_and_the_doctor_leaves_it_as_it_is() {
    let Some(machine) = Machine::of(User::Caller) else { return };
    cpufreq(&machine);
    machine.campaign(STEPS);
    let Some(may) = machine.findings("prepare", 0) else { return };
    assert_eq!(may, [("ok".into(), "drop_caches, governor, frequency: permitted".into(), String::new())]);
    assert_eq!(machine.lab.read("cpufreq/policy0/scaling_governor"), "ondemand\n");
}

#[test]
fn a_governor_that_the_kernel_does_not_have_is_a_warning() {
    for_each_user(|user| {
        let Some(machine) = Machine::of(user) else { return };
        cpufreq(&machine);
        machine.campaign(", governor: schedutil");
        let Some(lacks) = machine.findings("prepare", 0) else { return };
        assert!(lacks[0].0 == "warning" && lacks[0].1.contains("policy0 has no governor schedutil: ondemand performance"), "{lacks:?}");
    });
}

#[test]
fn a_session_that_logind_ends_is_a_problem_for_an_ordinary_user() {
    let Some(machine) = Machine::of(User::Ordinary) else { return };
    machine.lay("run/systemd/system/.keep", "");
    machine.lay("etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\n#KillExcludeUsers=root\n");
    machine.lay("var/lib/systemd/linger/.keep", "");
    machine.lab.write("bin/systemctl", "#!/bin/sh\necho '[]'\n");
    machine.lab.write("session", format!("isotherm-lab-{}/session-3.scope", std::process::id()));
    let Some(left) = machine.findings("logout", 0) else { return };
    assert_eq!((left[0].0.as_str(), left[0].1.as_str()), ("ok", "logind leaves the processes of nobody alone at a logout"));
    machine.lay("etc/systemd/logind.conf.d/50-kill.conf", "[Login]\nKillUserProcesses=yes\n");
    let Some(ended) = machine.findings("logout", 1) else { return };
    assert!(ended[0].0 == "problem" && ended[0].2.starts_with("loginctl enable-linger && systemd-run --user --scope isotherm run "), "{ended:?}");

    // A service of the user's own manager outlives the last session only if the user lingers.
    machine.lab.write("session", format!("isotherm-lab-{}/user@65534.service", std::process::id()));
    let Some(ends) = machine.findings("logout", 1) else { return };
    assert_eq!((ends[0].0.as_str(), ends[0].2.as_str()), ("problem", "loginctl enable-linger"));
    machine.lay("var/lib/systemd/linger/nobody", "");
    let Some(lingers) = machine.findings("logout", 0) else { return };
    assert_eq!(lingers[0].1, "user nobody lingers");
    let own = machine.lab.read("joined");
    let _ = fs::remove_dir(own.trim().replace("user@65534.service", "session-3.scope"));
}

/// A stand-in for systemctl: a machine without systemd has no timers.
#[test]
fn a_timer_that_is_due_in_the_night_is_a_warning_with_its_name() {
    for_each_user(|user| {
        let Some(machine) = Machine::of(user) else { return };
        machine.lay("run/systemd/system/.keep", "");
        let systemctl = "#!/bin/sh
[ \"$*\" = 'list-timers --all --no-pager --output=json' ] || exit 64
next=$(( $(date +%s) * 1000000 + 1830000000 ))
echo '[{\"next\":'$next',\"left\":1,\"last\":null,\"passed\":null,\"unit\":\"apt-daily.timer\",\"activates\":\"apt-daily.service\"},'
echo '{\"next\":'$next',\"unit\":\"systemd-tmpfiles-clean.timer\",\"activates\":null},{\"next\":null,\"unit\":\"fstrim.timer\",\"activates\":null}]'
";
        machine.lab.write("bin/systemctl", systemctl);
        let Some(due) = machine.findings("timers", 0) else { return };
        assert_eq!(due.len(), 1, "{due:?}");
        assert!(due[0].0 == "warning" && due[0].1.contains("apt-daily.timer in 30 min") && !due[0].1.contains("tmpfiles"), "{due:?}");
        assert!(due[0].2.starts_with("sudo systemctl stop apt-daily.timer "), "{due:?}");

        // An older one prints its table; one that hangs is ended.
        machine.lab.write("bin/systemctl", "#!/bin/sh\necho 'NEXT LEFT LAST PASSED UNIT ACTIVATES'\n");
        let Some(older) = machine.findings("timers", 0) else { return };
        assert!(older[0].0 == "unknown" && older[0].1.contains("no JSON of timers"), "{older:?}");
        machine.lab.write("bin/systemctl", "#!/bin/sh\nwhile :; do sleep 1000; done\n");
        let Some(hangs) = machine.findings("timers", 0) else { return };
        assert!(hangs[0].0 == "unknown" && hangs[0].1.contains("no answer within 5 s"), "{hangs:?}");
        fs::set_permissions(machine.lab.path("bin/systemctl"), fs::Permissions::from_mode(0o644)).unwrap();
    });
}

#[test]
fn a_board_close_to_its_passive_trip_point_is_warned_of() {
    for_each_user(|user| {
        let Some(machine) = Machine::of(user) else { return };
        let zone = |number: u32, kind: &str, temp: &str| {
            let dir = format!("sys/class/thermal/thermal_zone{number}");
            for (file, text) in [("type", kind), ("temp", temp), ("trip_point_0_type", "critical"), ("trip_point_0_temp", "110000")] {
                machine.lay(&format!("{dir}/{file}"), &format!("{text}\n"));
            }
            machine.lay(&format!("{dir}/trip_point_1_type"), "passive\n");
            machine.lay(&format!("{dir}/trip_point_1_temp"), "85000\n");
        };
        zone(0, "cpu-thermal", "78500");
        zone(1, "soc-thermal", "45000");
        let Some(warned) = machine.findings("temperature", 0) else { return };
        let said: Vec<String> = warned.iter().map(|(outcome, what, _)| format!("{outcome}: {what}")).collect();
        assert_eq!(
            said,
            [
                "warning: cpu-thermal holds the clock back from 85.0 °C, it is 78.5 °C now",
                "ok: soc-thermal holds the clock back from 85.0 °C, it is 45.0 °C now",
            ]
        );
    });
}

#[test]
fn borrowed_settings_that_nobody_gave_back_are_told() {
    let Some(machine) = Machine::of(User::Caller) else { return };
    machine.lab.run(&["run", "c.yaml", "--dry-run"]).expect(0);
    let keeper = fs::read_dir(machine.lab.path("state/isotherm")).unwrap().flatten().next().unwrap().path();
    machine.lab.write("c.yaml", machine.lab.read("c.yaml"));
    fs::write(keeper.join("restore-journal.json"), "{}").unwrap();
    let Some(borrowed) = machine.findings("borrowed", 0) else { return };
    assert_eq!((borrowed[0].0.as_str(), borrowed[0].2.as_str()), ("warning", "isotherm restore c.yaml --device here"));
}
