//! Everything over every authored machine, and over each of them with one of its files broken in every way that we know.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::matrix::check;
use crate::trees::{self, Tree, fifo, release, tree};
use isotherm_wire::readiness::{Needs, Readiness};
use isotherm_wire::task::{Frequency, Prepare, When};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

/// Everything below a root; with a deadline that only a trial that hangs for good can miss.
fn look(root: &Path) -> Vec<Capability> {
    look_within(root, Duration::from_secs(60))
}

fn look_within(root: &Path, deadline: Duration) -> Vec<Capability> {
    look_by(Prober::with_deadlines(root, deadline, Duration::from_secs(600)))
}

/// The readiness of a copy, every step asked for.
pub fn readiness_by(prober: &Prober) -> Readiness {
    let steps = vec![
        Prepare::ResetSwap(When::Each),
        Prepare::DropCaches(When::Each),
        Prepare::Governor("performance".into()),
        Prepare::Frequency(Frequency::Khz(1_000_000)),
    ];
    let needs = Needs { steps, processes: vec!["apt-get".into()], ..Needs::default() };
    readiness::look(prober, &Surroundings::of_a_copy(prober), &Runner::Nothing, &needs)
}

pub fn look_by(prober: Prober) -> Vec<Capability> {
    let around = Surroundings::of_a_copy(&prober);
    let machine = machine(&prober, ContainmentCapability::default());
    capabilities(&prober, &around, &Runner::Nothing, &machine)
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() { files(&entry.path(), found) } else { found.push(entry.path()) }
    }
}

/// A name, and what makes it so of a file that has just been taken away.
type Fault = (&'static str, fn(&Path));

/// The ways of a file to go wrong.
const FAULTS: [Fault; 8] = [
    ("gone", |_| {}),
    ("empty", |path| fs::write(path, "").unwrap()),
    ("text", |path| fs::write(path, "\u{1b}[31m n/a \u{7}\n").unwrap()),
    ("bytes", |path| fs::write(path, [0xff, 0x00, 0xfe, 0x0a, 0x80]).unwrap()),
    ("huge", |path| fs::write(path, "9".repeat(100_000)).unwrap()),
    ("negative", |path| fs::write(path, "-9223372036854775808\n").unwrap()),
    ("EIO", |path| symlink("/proc/self/mem", path).unwrap()),
    ("hung", fifo),
];

#[test]
fn one_broken_file_breaks_what_is_read_from_it_and_nothing_else() {
    std::thread::scope(|scope| {
        for tree in trees::all() {
            scope.spawn(move || break_each_file_of(&tree));
        }
    });
}

fn break_each_file_of(Tree { name, root, hung, .. }: &Tree) {
    // To hang is one of the faults.
    hung.iter().for_each(|path| fs::remove_file(path).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let whole = look(root);
    let mut paths = Vec::new();
    files(root, &mut paths);
    // Of many files of one kind one stands for all: cpu3 is read like cpu0.
    let mut kinds = BTreeSet::new();
    paths.sort();
    paths.retain(|path| kinds.insert(path.to_str().unwrap().replace(|c: char| c.is_ascii_digit(), "")));
    for path in paths {
        let backup = dir.path().join("backup");
        fs::rename(&path, &backup).unwrap();
        for (fault, break_it) in FAULTS {
            break_it(&path);
            let what = format!("{name}: {} {fault}", path.display());
            // Short where something does hang: there are hundreds of them.
            let broken = if fault == "hung" { look_within(root, Duration::from_millis(50)) } else { look(root) };
            if fault == "hung" {
                release(&path);
            }
            check(&broken, &what);
            // What isn't read from this file, or named by one beside it, is as it was.
            let beside = path.parent().unwrap().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let own = |c: &Capability| c.source.trim_start_matches('/').starts_with(&beside);
            for was in whole.iter().filter(|c| c.family == Family::Temperature && c.present().is_some() && !own(c)) {
                let is = broken.iter().find(|c| c.id == was.id).unwrap_or_else(|| panic!("{what}: {} is gone", was.id));
                // On a busy machine the short deadline may be missed by others as well.
                let late = fault == "hung" && is.absent().is_some_and(|a| a.cause == Cause::NoAnswer);
                assert!(late || is.present().map(|p| p.value) == was.present().map(|p| p.value), "{what}: {}", was.id);
            }
            let _ = fs::remove_file(&path);
        }
        fs::rename(&backup, &path).unwrap();
    }
}

#[test]
fn two_of_one_name_are_two() {
    let dir = tempfile::tempdir().unwrap();
    for zone in ["intel-rapl:0", "intel-rapl:1"] {
        let zone = dir.path().join("sys/class/powercap").join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), "package-0\n").unwrap();
        fs::write(zone.join("energy_uj"), "1\n").unwrap();
    }
    let ids: Vec<String> = look(dir.path()).into_iter().map(|c| c.id).filter(|id| id.starts_with("energy.rapl")).collect();
    assert_eq!(ids, ["energy.rapl.package-0", "energy.rapl.package-0.2"]);
}

#[test]
fn only_packages_count_as_packages() {
    let entries = look(&tree("two-packages").root);
    let rapl: Vec<&str> = entries.iter().map(|c| c.id.as_str()).filter(|id| id.starts_with("energy.rapl")).collect();
    assert_eq!(rapl, ["energy.rapl.package-0", "energy.rapl.package-1"]);
    let first = entries.iter().find(|c| c.id == "energy.rapl.package-0").unwrap();
    assert_eq!((first.source.as_str(), first.unit.as_deref()), ("/sys/class/powercap/intel-rapl:0/energy_uj", Some("uj")));
    assert_eq!(first.present().unwrap().facts["wraps_at_uj"], "262143328850");
}

#[test]
fn a_batterys_power_is_in_microwatts_whichever_way_it_is_stated() {
    let entries = look(&tree("laptop").root);
    let of = |id: &str| entries.iter().find(|c| c.id == id).unwrap().present().unwrap().value;
    assert_eq!(of("energy.BAT0"), Some(9_870_000.0));
    assert_eq!(of("energy.BAT1"), Some(7_410_000.0));
    assert!(!entries.iter().any(|c| c.id.contains("hidpp")), "the mouse's battery is not the machine's");
}

#[test]
fn rails_of_voltage_and_current_give_a_power_and_offline_zones_none() {
    let dir = tempfile::tempdir().unwrap();
    let chip = dir.path().join("sys/class/hwmon/hwmon3");
    fs::create_dir_all(&chip).unwrap();
    for (file, text) in [("name", "ina3221"), ("in1_label", "VDD_IN"), ("in1_input", "5072"), ("curr1_input", "912"), ("curr2_input", "100")] {
        fs::write(chip.join(file), text).unwrap();
    }
    let entries = look(dir.path());
    let rail = entries.iter().find(|c| c.id == "energy.hwmon3.in1").unwrap();
    assert_eq!((rail.name.as_str(), rail.present().unwrap().value), ("ina3221 VDD_IN", Some(4_625_664.0)));
    let half = entries.iter().find(|c| c.id == "energy.hwmon3.in2").unwrap();
    assert_eq!(half.absent().unwrap().cause, Cause::NotThere);
}

#[test]
fn a_program_counts_only_if_it_can_be_executed() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("opt/llama.cpp/build/bin");
    fs::create_dir_all(&place).unwrap();
    let tool = place.join("llama-bench");
    fs::write(&tool, "#!/bin/sh\n").unwrap();
    let is_there = || look(dir.path()).iter().find(|c| c.id == "inference.llama-bench").unwrap().present().is_some();
    assert!(!is_there());
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(is_there());
}
