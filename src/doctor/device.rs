//! One device judged by what it said.

use super::{Check, Finding, Outcome, RUN_BYTES, size, space};
use crate::plan::Point;
use crate::plan::files::{self, Part};
use crate::probe::throttle_words;
use crate::run::RESERVE_BYTES;
use crate::run::manifest::MOST_OF_MEMORY;
use crate::shell;
use indexmap::{IndexMap, IndexSet};
use isotherm_wire::inspect::ContainmentLevel;
use isotherm_wire::probe::{Family, Probed};
use isotherm_wire::readiness::{FileLook, Login, May, Readiness, Scheduled, StepLook, TripPoint};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far ahead timers are looked at while nobody knows how long the campaign takes: a night.
const A_NIGHT: Duration = Duration::from_secs(12 * 3600);
/// Nearer to the temperature of throttling than this, a load of minutes reaches it, m°C.
const CLOSE_MC: i64 = 15_000;
/// From here on a Raspberry Pi's firmware lowers the clock by itself; "Frequency management and thermal control" of its documentation.
const PI_FIRMWARE_MC: i64 = 80_000;
/// Timers and cron jobs, by the beginning of their names, that work a disk or a CPU for minutes.
const HEAVY: [&str; 21] = [
    "apt-",
    "apt.",
    "unattended-upgrades",
    "dpkg-",
    "dnf-",
    "pacman",
    "packagekit",
    "snapd",
    "fwupd",
    "updatedb",
    "plocate",
    "mlocate",
    "locate",
    "man-db",
    "fstrim",
    "e2scrub",
    "btrfs",
    "raid-check",
    "mdcheck",
    "mdadm",
    "logrotate",
];

/// How much there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Horizon {
    /// Runs that have to be made, disturbed ones once more among them.
    pub runs: usize,
    /// How long they take; `None` = there are none, or nothing like them has run yet.
    pub about: Option<Duration>,
}

/// A device that answered.
#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    pub id: &'a str,
    /// Its sessions are not ours.
    pub is_over_ssh: bool,
    /// The campaign file as it was given, for what can be pasted.
    pub file: &'a Path,
    pub probed: &'a Probed,
    pub readiness: &'a Readiness,
    /// That are to run there.
    pub points: &'a [&'a Point],
    pub horizon: Horizon,
}

/// Findings in the order of the checks.
#[must_use]
pub fn judge(device: &Device<'_>) -> Vec<Finding> {
    let readiness = device.readiness;
    let mut findings = vec![reach(device)];
    findings.extend(quarantine(readiness));
    findings.extend(borrowed(device));
    findings.extend(programs_models_inputs(device));
    findings.extend(disk(readiness));
    findings.extend(copies(device));
    findings.push(memory(device));
    findings.extend(cpus(device));
    findings.extend(prepare(readiness));
    findings.push(logout(device));
    findings.push(timers(device));
    findings.push(packages(readiness));
    findings.extend(temperature(device));
    findings.extend(throttling(device));
    findings.extend(power_source(device));
    findings
}

fn ok(check: Check, what: impl Into<String>) -> Finding {
    Finding::new(check, Outcome::Ok, what)
}

fn warning(check: Check, what: impl Into<String>) -> Finding {
    Finding::new(check, Outcome::Warning, what)
}

fn problem(check: Check, what: impl Into<String>) -> Finding {
    Finding::new(check, Outcome::Problem, what)
}

fn unknown(check: Check, what: impl Into<String>) -> Finding {
    Finding::new(check, Outcome::Unknown, what)
}

fn reach(device: &Device<'_>) -> Finding {
    let machine = &device.probed.machine;
    let user = if machine.uid == 0 { "root".into() } else { device.readiness.login.user.clone().unwrap_or_else(|| format!("uid {}", machine.uid)) };
    let level = match machine.containment.level {
        ContainmentLevel::PidNamespace => "a PID namespace",
        ContainmentLevel::Subreaper => "a subreaper",
    };
    ok(Check::Reach, format!("agent {} answers as {user}; runs are contained by {level}", device.probed.agent_version))
}

fn quarantine(readiness: &Readiness) -> Option<Finding> {
    let why = readiness.quarantine.as_ref()?;
    Some(problem(Check::Quarantine, why).mended_by("sudo reboot   # on the device; nothing is started there until then"))
}

fn borrowed(device: &Device<'_>) -> Option<Finding> {
    let restore = format!("isotherm restore {} --device {}", shell::word(device.file), shell::word(device.id));
    let what = "an earlier campaign has not given everything back; the next run does it first";
    device.readiness.borrowed.then(|| warning(Check::Borrowed, what).mended_by(restore))
}

fn programs_models_inputs(device: &Device<'_>) -> Vec<Finding> {
    // Names, files and bytes of what is there.
    let mut there: IndexMap<Check, [u64; 3]> = IndexMap::new();
    let mut findings = Vec::new();
    let mut asked = IndexSet::new();
    for (point, file) in device.points.iter().flat_map(|point| files::of_point(point).into_iter().map(move |file| (point, file))) {
        let path = full(&file.query.base, &file.query.path);
        let (check, name, remedy) = match &file.part {
            Part::Program => (Check::Program, format!("`{}`", file.query.path), "install it there, or correct `argv[0]`"),
            Part::Model | Part::OfModel(_) => {
                let id = point.model.as_ref().map(|model| model.declared.id.as_str()).unwrap_or_default();
                let told = if file.is_pushed { format!("{} here, to be copied", file.query.path) } else { path.clone() };
                (Check::Model, format!("`{id}`: {told}"), "put the file there, or correct `path` or `paths` of the model")
            }
            Part::Inputs(pattern) => (Check::Input, format!("`{pattern}` below {}", file.query.base), "put the files there, or correct `inputs`"),
            Part::Argument(_) | Part::Flag(_) | Part::Listed(_) => continue,
        };
        if !asked.insert(file.query.key.clone()) {
            continue;
        }
        match device.readiness.files.get(&file.query.key) {
            Some(FileLook::Found { files: 0, .. }) => findings.push(warning(check, format!("{name} matches no file")).mended_by(remedy)),
            Some(FileLook::Found { files, bytes }) => {
                let sums = there.entry(check).or_default();
                sums.iter_mut().zip([1, *files, *bytes]).for_each(|(sum, more)| *sum += more);
            }
            Some(FileLook::Missing(why)) => {
                let locked = why.starts_with("it can't be executed") || why.starts_with("Permission denied");
                let right = if check == Check::Program { "+x" } else { "+r" };
                let remedy = if locked { format!("chmod {right} {}", shell::word(&path)) } else { remedy.to_owned() };
                findings.push(problem(check, format!("{name}: {}", words(why))).mended_by(remedy));
            }
            Some(FileLook::Unknown(why)) => findings.push(unknown(check, format!("{name}: {why}"))),
            None => findings.push(unknown(check, format!("{name}: the device gave no answer about it"))),
        }
    }
    findings.extend(there.into_iter().map(|(check, [names, files, bytes])| {
        let what = match check {
            Check::Program => format!("{} there", of(names, "program")),
            Check::Model => format!("{} there, {} in all", of(names, "model"), size(bytes)),
            _ => format!("{} there", of(files, "file")),
        };
        ok(check, what)
    }));
    findings.sort_by_key(|finding| finding.check);
    findings
}

/// A relative path with the directory it starts at.
fn full(base: &str, path: &str) -> String {
    if path.starts_with('~') { path.to_owned() } else { Path::new(base).join(path).components().collect::<PathBuf>().display().to_string() }
}

/// The system's words, without the number behind them.
fn words(why: &str) -> &str {
    why.split(" (os error").next().unwrap_or(why)
}

fn of(n: u64, thing: &str) -> String {
    if n == 1 { format!("1 {thing} is") } else { format!("{n} {thing}s are") }
}

fn disk(readiness: &Readiness) -> Vec<Finding> {
    let Readiness { state, bin, .. } = readiness;
    let mut findings = vec![match &state.fault {
        Some(why) => problem(Check::Disk, format!("state {}: {}", state.path, words(why)))
            .mended_by("set `state_dir` of the device to a directory on a local disk"),
        None => space("state", &state.path, state.free_bytes, state.free_files),
    }];
    // The agent is there already; the next version has to fit beside it.
    if let Some(bytes) = bin.free_bytes.filter(|bytes| *bytes < RUN_BYTES) {
        let what = format!("agent {}: {} free, another version would hardly fit", bin.path, size(bytes));
        findings.push(
            warning(Check::Disk, what).mended_by(format!("df -h {}   # make room there, or set `bin_dir` of the device", shell::word(&bin.path))),
        );
    }
    findings
}

/// Room for the models that are to be copied there. Which of them are there already is told by name and length: nothing is hashed.
fn copies(device: &Device<'_>) -> Option<Finding> {
    let Readiness { state, models, .. } = device.readiness;
    let mut pushed: IndexMap<String, u64> = IndexMap::new();
    for point in device.points.iter().filter(|point| point.pushed().is_some()) {
        pushed.extend(model_bytes(device, point).and_then(|bytes| Some((point.model.as_ref()?.path.clone(), bytes))));
    }
    let is_there = |path: &str, bytes: u64| {
        let name = Path::new(path).file_name().map(|name| name.to_string_lossy());
        models.iter().any(|model| model.name.as_deref() == name.as_deref() && model.bytes == bytes)
    };
    let (n, needed) = pushed.iter().filter(|(path, bytes)| !is_there(path, **bytes)).fold((0, 0), |(n, sum), (_, bytes)| (n + 1, sum + bytes));
    let free = state.free_bytes?;
    if n == 0 {
        return None;
    }
    let what = format!("{} to be copied to {}, {} in all; {} free", copies_of(n), state.path, size(needed), size(free));
    if needed.saturating_add(RESERVE_BYTES) <= free {
        return Some(ok(Check::Disk, what));
    }
    let list = format!("isotherm models {} --device {}", shell::word(device.file), shell::word(device.id));
    let remedy = format!("{list}   # what is kept there, and can be evicted; or set `state_dir` of the device to a larger disk");
    Some(problem(Check::Disk, format!("{what}, and {} have to stay so", size(RESERVE_BYTES))).mended_by(remedy))
}

/// Of all files of a point's model together; `None` where one of them isn't there.
fn model_bytes(device: &Device<'_>, point: &Point) -> Option<u64> {
    let files = files::of_point(point).into_iter().filter(|file| matches!(file.part, Part::Model | Part::OfModel(_)));
    let bytes = |file: files::PointFile| match device.readiness.files.get(&file.query.key)? {
        FileLook::Found { bytes, .. } => Some(*bytes),
        _ => None,
    };
    point.model.as_ref().and_then(|_| files.map(bytes).sum())
}

fn copies_of(n: u64) -> String {
    if n == 1 { "1 model has".into() } else { format!("{n} models have") }
}

fn memory(device: &Device<'_>) -> Finding {
    let limit = device.probed.machine.limits.memory_bytes;
    let available = [device.readiness.mem_available_bytes, limit].into_iter().flatten().min();
    let models = device.points.iter().filter_map(|point| Some((model_bytes(device, point)?, point.model.as_ref()?.declared.id.as_str())));
    match (available, models.max()) {
        (None, _) => unknown(Check::Memory, "the device doesn't say how much memory is available"),
        (Some(available), None) => ok(Check::Memory, format!("{} available", size(available))),
        (Some(available), Some((bytes, id))) if bytes as f64 > MOST_OF_MEMORY * available as f64 => {
            let what = format!("model `{id}` has {}, of memory {} are available: its runs fail as precondition", size(bytes), size(available));
            problem(Check::Memory, what).mended_by("end what else needs memory (`ps aux --sort=-rss | head`), or use a smaller model")
        }
        (Some(available), Some((bytes, id))) => {
            ok(Check::Memory, format!("{} available; the largest model is `{id}` with {}", size(available), size(bytes)))
        }
    }
}

fn cpus(device: &Device<'_>) -> Option<Finding> {
    let asked: BTreeSet<u32> = device.points.iter().filter_map(|point| point.cpus.as_ref()).flatten().copied().collect();
    if asked.is_empty() {
        return None;
    }
    let Some(allowed) = &device.readiness.cpus else { return Some(unknown(Check::Cpus, "the device doesn't say which CPUs may be used")) };
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let others: Vec<u32> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if others.is_empty() {
        return Some(ok(Check::Cpus, format!("{} may be used", list(&Vec::from_iter(asked)))));
    }
    let what = format!("{} may not be used, of {}: runs with them fail as precondition", list(&others), list(allowed));
    Some(problem(Check::Cpus, what).mended_by("choose other `cpus`, or give the agent's container or session these"))
}

fn prepare(readiness: &Readiness) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut permitted: IndexMap<&str, Vec<&str>> = IndexMap::new();
    for StepLook { step, may } in &readiness.steps {
        let step = step.name();
        match may {
            May::Directly => permitted.entry("permitted").or_default().push(step),
            May::BySudo => permitted.entry("listed as permitted by sudo").or_default().push(step),
            May::Unsupported(why) => findings.push(
                warning(Check::Prepare, format!("{step}: {why}; its runs have prepare_unsupported")).mended_by("leave the step out for this device"),
            ),
            May::Denied(why) => findings.push(
                problem(Check::Prepare, format!("{step}: {why}; its runs are left out (prepare_denied)"))
                    .mended_by("run isotherm as root, or put the lines of docs/protocol.md into /etc/sudoers.d/isotherm"),
            ),
        }
    }
    findings.extend(permitted.into_iter().map(|(how, steps)| ok(Check::Prepare, format!("{}: {how}", steps.join(", ")))));
    findings
}

/// logind ends the processes of a session when its user leaves, if it is told to, and those of the user's manager unless the user lingers.
fn logout(device: &Device<'_>) -> Finding {
    let Login { systemd, uid, user, group, linger, scope, logind } = &device.readiness.login;
    if !systemd {
        return ok(Check::Logout, "no systemd: nothing ends at a logout by itself");
    }
    let Some(group) = group else { return unknown(Check::Logout, "the agent's place among systemd's groups can't be read") };
    let is_in = |prefix: &str, suffix: &str| group.split('/').any(|part| part.starts_with(prefix) && part.ends_with(suffix));
    let name = user.clone().unwrap_or_else(|| uid.to_string());
    let lingering = match device.is_over_ssh {
        true if *linger => {
            "install systemd-run there, and let pam_systemd register its sessions: the keeper is started in a scope of its own then".into()
        }
        true => "loginctl enable-linger   # on the device: its keeper is started in a scope of its own then".into(),
        false => format!("loginctl enable-linger && systemd-run --user --scope isotherm run {}", shell::word(device.file)),
    };
    if device.is_over_ssh && *scope {
        return ok(Check::Logout, format!("user {name} lingers: its keeper is started in a scope of its own (systemd-run)"));
    }
    if is_in("user@", ".service") {
        let ends = format!("user {name} doesn't linger: what its manager has started ends with its last session");
        return match linger {
            true => ok(Check::Logout, format!("user {name} lingers")),
            false => problem(Check::Logout, ends).mended_by("loginctl enable-linger"),
        };
    }
    if !is_in("session-", ".scope") {
        return ok(Check::Logout, "not part of a login session");
    }
    let list = |name: &str| logind.get(name).map(|users| users.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap_or_default();
    let is_named = |users: &[String]| user.as_ref().is_some_and(|user| users.contains(user));
    let only = list("KillOnlyUsers");
    // logind.conf(5): root is left out unless something else stands there.
    let excluded = logind.get("KillExcludeUsers").map_or_else(|| *uid == 0, |_| is_named(&list("KillExcludeUsers")));
    match logind.get("KillUserProcesses").map(|word| is_true(word)) {
        Some(Some(true)) if !excluded && (only.is_empty() || is_named(&only)) => {
            problem(Check::Logout, format!("logind ends all processes of {name} at a logout (KillUserProcesses), the keeper and its run too"))
                .mended_by(lingering)
        }
        Some(Some(_)) => ok(Check::Logout, format!("logind leaves the processes of {name} alone at a logout")),
        Some(None) | None => {
            unknown(Check::Logout, "no file says whether logind ends processes at a logout (KillUserProcesses)").mended_by(lingering)
        }
    }
}

/// As systemd reads a switch.
fn is_true(word: &str) -> Option<bool> {
    match word.to_lowercase().as_str() {
        "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
        _ => None,
    }
}

fn timers(device: &Device<'_>) -> Finding {
    let heavy = |name: &str| HEAVY.iter().any(|beginning| name.starts_with(beginning));
    match &device.readiness.scheduled {
        Scheduled::Timers { now_us, timers } => {
            let horizon = device.horizon.about.unwrap_or(A_NIGHT);
            let until = now_us.saturating_add(u64::try_from(horizon.as_micros()).unwrap_or(u64::MAX));
            let span = match device.horizon.about {
                Some(_) => "before the campaign is through".to_owned(),
                None if device.horizon.runs == 0 => format!("within {} h", A_NIGHT.as_secs() / 3600),
                None => format!("within {} h (how long the campaign takes isn't known yet)", A_NIGHT.as_secs() / 3600),
            };
            let mut due: Vec<(u64, &str)> = timers
                .iter()
                .filter(|timer| heavy(&timer.unit))
                .filter_map(|t| Some((t.next_us.filter(|next| *next <= until)?, t.unit.as_str())))
                .collect();
            due.sort_unstable();
            if due.is_empty() {
                return ok(Check::Timers, format!("none that would disturb is due {span}"));
            }
            let minutes = |next: u64| next.saturating_sub(*now_us) / 60_000_000;
            let list: Vec<String> = due.iter().map(|(next, unit)| format!("{unit} in {} min", minutes(*next))).collect();
            let units: Vec<String> = due.iter().map(|(_, unit)| shell::word(unit)).collect();
            warning(Check::Timers, format!("due {span}: {}", list.join(", ")))
                .mended_by(format!("sudo systemctl stop {0}   # and afterwards: sudo systemctl start {0}", units.join(" ")))
        }
        Scheduled::Cron(jobs) => {
            let due: Vec<&str> = jobs.iter().map(String::as_str).filter(|job| heavy(job)).collect();
            if due.is_empty() {
                return ok(Check::Timers, "cron has no daily or weekly job that would disturb");
            }
            let what = format!("cron runs {} once a day or week; when, its files don't tell for sure", due.join(", "));
            warning(Check::Timers, what).mended_by("see /etc/crontab for the hour, and start after it")
        }
        Scheduled::Nothing => ok(Check::Timers, "neither systemd nor cron is there"),
        Scheduled::Unknown(why) => unknown(Check::Timers, format!("timers can't be listed: {}", why.reason)),
    }
}

fn packages(readiness: &Readiness) -> Finding {
    let Some((_, first)) = readiness.processes.first() else { return ok(Check::Packages, "no package manager or indexer is at work") };
    let list: Vec<String> = readiness.processes.iter().map(|(name, pid)| format!("{name} (process {pid})")).collect();
    let wait = format!("tail --pid={first} -f /dev/null   # returns when it has ended");
    warning(Check::Packages, format!("at work: {}", list.join(", "))).mended_by(wait)
}

fn temperature(device: &Device<'_>) -> Vec<Finding> {
    let mut points: Vec<TripPoint> = device.readiness.trip_points.clone();
    let is_pi = device.probed.machine.board_model.as_deref().is_some_and(|model| model.starts_with("Raspberry Pi"));
    if is_pi && points.is_empty() {
        let zone = device.probed.capabilities.iter().find(|c| c.family == Family::Temperature && c.name == "cpu-thermal");
        let now_millicelsius = zone.and_then(|zone| zone.present()?.value).map(|value| value as i64);
        points.push(TripPoint { zone: "firmware".into(), name: "the firmware".into(), millicelsius: PI_FIRMWARE_MC, now_millicelsius });
    }
    // Of one zone the first that is met.
    points.sort_by_key(|point| point.millicelsius);
    let mut zones = IndexSet::new();
    points.retain(|point| zones.insert(point.zone.clone()));
    if points.is_empty() {
        return vec![unknown(Check::Temperature, "no passive trip point is known: at which temperature the clock is held back can't be told")];
    }
    let degrees = |millicelsius: i64| format!("{:.1} °C", millicelsius as f64 / 1e3);
    let finding = |point: &TripPoint| match point.now_millicelsius {
        None => unknown(
            Check::Temperature,
            format!("{} holds the clock back from {}; what it is now can't be read", point.name, degrees(point.millicelsius)),
        ),
        Some(now) => {
            let what = format!("{} holds the clock back from {}, it is {} now", point.name, degrees(point.millicelsius), degrees(now));
            if now > point.millicelsius - CLOSE_MC {
                warning(Check::Temperature, what)
                    .mended_by("let the device cool, give it a fan or a cooler room, or wait longer between runs (`prepare: { settle: … }`)")
            } else {
                ok(Check::Temperature, what)
            }
        }
    };
    points.iter().map(finding).collect()
}

/// Live bits of the firmware; history is no news.
fn throttling(device: &Device<'_>) -> Option<Finding> {
    let bits = device.probed.capabilities.iter().find(|c| c.id == "throttling.firmware")?.present()?.value? as u32;
    let (now, since_boot) = (throttle_words(bits), throttle_words(bits >> 16));
    Some(match (now.is_empty(), since_boot.is_empty()) {
        (false, _) => warning(Check::Throttling, format!("the firmware reports {now}")).mended_by(if bits & 1 != 0 {
            "use the board's own power supply and a short cable"
        } else {
            "let the board cool, or give it a fan"
        }),
        (true, false) => ok(Check::Throttling, format!("nothing is held back now; since boot there was {since_boot}")),
        (true, true) => ok(Check::Throttling, "nothing is held back, and was not since boot"),
    })
}

fn power_source(device: &Device<'_>) -> Option<Finding> {
    let supplies = || device.probed.capabilities.iter().filter(|c| c.family == Family::PowerSource).filter_map(|c| Some((c, c.present()?)));
    let online: Vec<f64> = supplies().filter(|(c, _)| c.unit.as_deref() == Some("online")).filter_map(|(_, present)| present.value).collect();
    let discharges = supplies().any(|(_, present)| present.facts.get("status").is_some_and(|status| status == "Discharging"));
    match online.iter().any(|value| *value > 0.0) {
        true => Some(ok(Check::PowerSource, "on mains")),
        false if discharges => {
            Some(warning(Check::PowerSource, "on battery: its clock and its limits are others than on mains").mended_by("plug in its supply"))
        }
        false => None,
    }
}
