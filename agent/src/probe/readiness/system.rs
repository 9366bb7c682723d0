//! The system around a night: what ends it at a logout, what begins beside it, when the kernel holds its clock back.

use super::super::Surroundings;
use super::super::execute::Runner;
use super::super::first_line;
use super::super::temperature::PLAUSIBLE_MC;
use super::super::trial::{Prober, absent};
use crate::{scope, sys};
use isotherm_wire::probe::Cause;
use isotherm_wire::readiness::{Login, Scheduled, Timer, TripPoint};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

/// systemd answers within milliseconds; a machine that is busy booting doesn't.
const SYSTEMCTL_LIMIT: Duration = Duration::from_secs(5);
/// Directories of systemd's settings, the one that counts most first; systemd-system.conf(5).
const CONFIG_DIRS: [&str; 4] = ["etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd"];
/// Where distributions put what is large; hourly jobs are small.
const CRON_DIRS: [&str; 2] = ["etc/cron.daily", "etc/cron.weekly"];
/// Most processes that are looked at.
const MOST_PROCESSES: usize = 4096;
/// Debian's daemon that waits for the shutdown: cut to 15 letters, its name is that of the upgrade itself.
const IDLE: &str = "unattended-upgrade-shutdown";

fn is_systemd(prober: &Prober) -> bool {
    // sd_booted(3)
    prober.exists(&prober.at("run/systemd/system"))
}

pub fn login(prober: &Prober) -> Login {
    let uid = sys::uid();
    let user = prober.text(&prober.at("etc/passwd")).and_then(|users| scope::user_name(&users, uid));
    let linger = user.as_ref().is_some_and(|user| prober.exists(&prober.at("var/lib/systemd/linger").join(user)));
    let group = prober.text(&prober.at("proc/self/cgroup")).and_then(|text| systemd_group(&text));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let scope = scope::look(&prober.at(""), uid, &path).is_some();
    Login { systemd: is_systemd(prober), uid, user, group, linger, scope, logind: logind(prober) }
}

/// Our place in the hierarchy that systemd keeps: the unified one, or the one of its own name.
fn systemd_group(cgroup: &str) -> Option<String> {
    let groups: Vec<(&str, &str)> = cgroup.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')).collect();
    let of = |name: &str| groups.iter().find(|(controllers, _)| *controllers == name).map(|(_, path)| (*path).to_owned());
    of("name=systemd").or_else(|| of(""))
}

/// Settings of logind: its file, then the drop-ins by name, each from the directory that counts most.
fn logind(prober: &Prober) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let main = CONFIG_DIRS.iter().find_map(|dir| prober.text(&prober.at(dir).join("logind.conf")));
    main.iter().for_each(|text| read_settings(text, true, &mut settings));
    let dirs = CONFIG_DIRS.map(|dir| prober.at(dir).join("logind.conf.d"));
    let names: BTreeSet<String> = dirs.iter().flat_map(|dir| prober.names(dir).unwrap_or_default()).filter(|name| name.ends_with(".conf")).collect();
    for name in names {
        let file = dirs.iter().map(|dir| dir.join(&name)).find(|file| prober.exists(file));
        file.and_then(|file| prober.text(&file)).iter().for_each(|text| read_settings(text, false, &mut settings));
    }
    settings
}

/// `Name=value` lines; where `defaults` is set, those that stand there as a comment too, as distributions show what was built in.
fn read_settings(text: &str, defaults: bool, settings: &mut BTreeMap<String, String>) {
    let setting = |line: &str| line.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
    if defaults {
        let commented = text.lines().filter_map(|line| setting(line.trim().strip_prefix('#')?));
        settings.extend(commented.filter(|(name, _)| is_name(name)));
    }
    settings.extend(text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])).filter_map(setting).filter(|(name, _)| is_name(name)));
}

pub fn scheduled(prober: &Prober, around: &Surroundings, runner: &Runner) -> Scheduled {
    if is_systemd(prober) {
        return timers(prober, around, runner);
    }
    let crons = ["cron", "crond", "anacron"].map(str::to_owned);
    if processes(prober, &crons).is_empty() {
        return Scheduled::Nothing;
    }
    let jobs = CRON_DIRS.iter().flat_map(|dir| prober.names(&prober.at(dir)).unwrap_or_default());
    Scheduled::Cron(jobs.filter(|name| !name.starts_with('.')).collect())
}

fn timers(prober: &Prober, around: &Surroundings, runner: &Runner) -> Scheduled {
    let Some(systemctl) = around.program(prober, "systemctl", &[]) else {
        return Scheduled::Unknown(absent(Cause::NotThere, "no systemctl on the path"));
    };
    let argv = [&systemctl.display().to_string(), "list-timers", "--all", "--no-pager", "--output=json"];
    let output = match runner.run(&argv, None, SYSTEMCTL_LIMIT) {
        Ok(output) => output,
        Err(why) => return Scheduled::Unknown(why),
    };
    if !output.ok {
        let said = first_line(&output.stderr).or_else(|| first_line(&output.stdout));
        return Scheduled::Unknown(absent(Cause::Failed, &said.unwrap_or_else(|| "systemctl fails without a word".into())));
    }
    // Before version 249 it prints its table whatever it is asked for.
    match listed(&output.stdout) {
        Ok(timers) => Scheduled::Timers { now_us: sys::realtime_ns() / 1000, timers },
        Err(e) => Scheduled::Unknown(absent(Cause::Garbage, &format!("what systemctl lists is no JSON of timers: {e}"))),
    }
}

fn listed(json: &str) -> serde_json::Result<Vec<Timer>> {
    #[derive(Deserialize)]
    struct Listed {
        unit: String,
        next: Option<u64>,
    }
    let listed: Vec<Listed> = serde_json::from_str(json)?;
    // 0 and the largest number are systemd's ways to say never.
    let timer = |Listed { unit, next }: Listed| Timer { unit, next_us: next.filter(|next| !matches!(*next, 0 | u64::MAX)) };
    Ok(listed.into_iter().map(timer).collect())
}

pub fn processes(prober: &Prober, names: &[String]) -> Vec<(String, i32)> {
    let pids = prober.names(&prober.at("proc")).unwrap_or_default();
    let pids = pids.iter().filter_map(|name| name.parse::<i32>().ok()).take(MOST_PROCESSES);
    let named = pids.filter_map(|pid| Some((prober.text(&prober.at(&format!("proc/{pid}/comm")))?, pid)));
    let is_idle = |pid: i32| prober.text(&prober.at(&format!("proc/{pid}/cmdline"))).is_some_and(|cmdline| cmdline.contains(IDLE));
    named.filter(|(name, pid)| names.contains(name) && !is_idle(*pid)).collect()
}

/// A trip point of 0 or less is one that the firmware left unset.
pub fn trip_points(prober: &Prober) -> Vec<TripPoint> {
    let dir = prober.at("sys/class/thermal");
    let mut points = Vec::new();
    for zone in prober.numbered(&dir, "thermal_zone", "").unwrap_or_default() {
        let dir = dir.join(&zone);
        let number = |file: &Path| prober.number(file, &PLAUSIBLE_MC).ok()?.value.map(|value| value as i64);
        let kinds = prober.numbered(&dir, "trip_point_", "_type").unwrap_or_default();
        let passive = kinds.iter().filter(|kind| prober.text(&dir.join(kind)).as_deref() == Some("passive"));
        let at = passive.filter_map(|kind| number(&dir.join(kind.replace("_type", "_temp")))).filter(|at| *at > 0);
        let at: Vec<i64> = at.collect();
        if at.is_empty() {
            continue;
        }
        let name = prober.text(&dir.join("type")).unwrap_or_else(|| zone.clone());
        let now = number(&dir.join("temp"));
        points.extend(at.into_iter().map(|millicelsius| TripPoint { zone: zone.clone(), name: name.clone(), millicelsius, now_millicelsius: now }));
    }
    points
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::trees::of_files as tree;

    #[test]
    fn a_drop_in_counts_more_than_the_file_and_the_file_more_than_what_was_built_in() {
        let files = [("usr/lib/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\n#KillExcludeUsers=root\n# a word = or two\n")];
        let of = |more: &[(&str, &str)]| logind(&Prober::new(tree(&[&files[..], more].concat()).path()))["KillUserProcesses"].clone();
        assert_eq!(of(&[]), "no");
        assert_eq!(of(&[("etc/systemd/logind.conf", "KillUserProcesses = yes\n")]), "yes");
        let drop_in = ("usr/lib/systemd/logind.conf.d/50.conf", "[Login]\nKillUserProcesses=yes\n");
        assert_eq!(of(&[drop_in]), "yes");
        // One of the same name in /etc replaces it, an empty one too.
        assert_eq!(of(&[drop_in, ("etc/systemd/logind.conf.d/50.conf", "")]), "no");
        assert_eq!(of(&[drop_in, ("etc/systemd/logind.conf.d/60.conf", "KillUserProcesses=0")]), "0");
    }

    #[test]
    fn the_group_is_the_one_that_systemd_keeps() {
        assert_eq!(systemd_group("0::/user.slice/a.scope\n").as_deref(), Some("/user.slice/a.scope"));
        assert_eq!(systemd_group("3:cpu:/x\n1:name=systemd:/y\n0::/z\n").as_deref(), Some("/y"));
        assert_eq!(systemd_group("3:cpu:/x\n"), None);
        assert_eq!(scope::user_name("root:x:0:0::/root:/bin/sh\npi:x:1000:1000::/home/pi:/bin/sh\n", 1000).as_deref(), Some("pi"));
        assert_eq!(scope::user_name("root:x:0:0\n", 1000), None);
    }

    #[test]
    fn timers_are_those_that_systemctl_lists() {
        let timer = |unit: &str, next_us| Timer { unit: unit.into(), next_us };
        let recorded = listed(include_str!("../../../../tests/recorded/systemctl/list-timers.json")).unwrap();
        assert_eq!(recorded, [timer("apt-daily.timer", Some(1_796_083_200_000_000)), timer("fstrim.timer", None)]);
        let never = listed(r#"[{"next":18446744073709551615,"unit":"a.timer"},{"next":0,"unit":"b.timer"}]"#).unwrap();
        assert_eq!(never, [timer("a.timer", None), timer("b.timer", None)]);
        assert!(listed("NEXT LEFT LAST PASSED UNIT\n").is_err());
    }

    #[test]
    fn who_waits_for_the_shutdown_is_not_at_work() {
        let daemon = "/usr/bin/python3\0/usr/share/unattended-upgrades/unattended-upgrade-shutdown\0--wait-for-signal\0";
        let dir = tree(&[
            ("proc/7/comm", "unattended-upgr\n"),
            ("proc/7/cmdline", daemon),
            ("proc/8/comm", "unattended-upgr\n"),
            ("proc/8/cmdline", "/usr/bin/python3\0/usr/bin/unattended-upgrade\0"),
            ("proc/9/comm", "sh\n"),
        ]);
        assert_eq!(processes(&Prober::new(dir.path()), &["unattended-upgr".into()]), [("unattended-upgr".into(), 8)]);
    }

    #[test]
    fn a_passive_trip_point_is_named_with_its_zone_and_an_unset_one_is_none() {
        let zone = "sys/class/thermal/thermal_zone0";
        let at = |file: &str| format!("{zone}/{file}");
        let dir = tree(&[
            (&at("type"), "cpu-thermal\n"),
            (&at("temp"), "48312\n"),
            (&at("trip_point_0_type"), "critical\n"),
            (&at("trip_point_0_temp"), "110000\n"),
            (&at("trip_point_1_type"), "passive\n"),
            (&at("trip_point_1_temp"), "80000\n"),
            (&at("trip_point_2_type"), "passive\n"),
            (&at("trip_point_2_temp"), "0\n"),
            (&at("trip_point_3_type"), "passive\n"),
            (&at("trip_point_3_temp"), "-2147483648\n"),
        ]);
        let expected = TripPoint { zone: "thermal_zone0".into(), name: "cpu-thermal".into(), millicelsius: 80_000, now_millicelsius: Some(48_312) };
        assert_eq!(trip_points(&Prober::new(dir.path())), [expected]);
    }
}
