//! The probe: what can be measured here, found by trying it, and why the rest can't.
//!
//! Takes a root and what surrounds us, gives raw entries in the system's words; must not know what would mend an absence, nor what is
//! made of a reading. One file per family. It neither needs nor takes the lease: it asks who holds it, and leaves if somebody does.

mod clock;
mod display;
mod energy;
pub mod execute;
mod gpu;
mod inference;
mod permission;
pub mod pmic;
mod power_source;
mod readiness;
mod recorded;
mod search;
pub mod temperature;
mod throttling;
pub mod trial;

use crate::sampler::{Sensors, polling, sensors};
use crate::{inspect, keep, sys, task};
use execute::Runner;
use isotherm_wire::codec::{read_frame, write_message};
use isotherm_wire::inspect::{ContainmentCapability, Machine};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found, PROBE_VERSION, Polled, Present, ProbeAnswer, ProbeRequest, Probed};
use isotherm_wire::search::{Format, first_of};
use isotherm_wire::session::{Engine, Failure};
use isotherm_wire::{GREETING_WORD, protocol_version};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trial::{Prober, absent};

/// Most entries of one kind: a machine with more of them is told so, and the rest isn't tried.
const MOST_OF_A_KIND: usize = 256;
/// A campaign waits for sensors at first contact: each has this time, and all of them together.
const SENSOR_DEADLINE: Duration = Duration::from_millis(250);
const SENSORS_TOGETHER: Duration = Duration::from_secs(5);
/// A disk that has to spin up first, or a network file system, gives a file's size within this time.
const READINESS_DEADLINE: Duration = Duration::from_secs(5);
const READINESS_TOGETHER: Duration = Duration::from_secs(20);

pub fn main(args: Vec<OsString>) -> Result<(), String> {
    let nonce = match args.as_slice() {
        [flag, nonce] if flag == "--nonce" => nonce.to_string_lossy().into_owned(),
        _ => return Err("usage: isotherm-agent probe --nonce HEX".into()),
    };
    let mut stdout = io::stdout();
    writeln!(stdout, "{GREETING_WORD} {nonce} {} {}", env!("CARGO_PKG_VERSION"), protocol_version()).map_err(|e| e.to_string())?;
    stdout.flush().map_err(|e| e.to_string())?;
    let Some(frame) = read_frame(&mut io::stdin().lock()).map_err(|e| e.to_string())? else { return Ok(()) };
    let request: ProbeRequest = frame.message().map_err(|e| e.to_string())?;
    let answer = answer(&request).map_or_else(ProbeAnswer::Refused, |probed| ProbeAnswer::Probed(Box::new(probed)));
    write_message(&mut stdout, &answer).map_err(|e| e.to_string())?;
    // Not by returning: a trial that hangs is left behind with its thread.
    std::process::exit(0)
}

fn answer(request: &ProbeRequest) -> Result<Probed, Failure> {
    let other = |message: String| Failure::Other { message };
    if request.probe_version != PROBE_VERSION {
        return Err(Failure::VersionMismatch { agent: PROBE_VERSION, controller: request.probe_version });
    }
    let root = Path::new(&request.root);
    if !root.is_absolute() || !root.is_dir() {
        return Err(other(format!("{} is not a directory that can be looked at", root.display())));
    }
    let prober = Prober::new(root);
    // Nobody measures on a copy of some files.
    let held_by = if prober.is_live() { keep::lease::holder().map_err(|e| other(e.to_string()))? } else { None };
    if let Some(holder) = held_by.as_ref().filter(|_| !request.force) {
        return Err(Failure::LeaseHeld(holder.clone()));
    }
    let (name, version, revision) = task::infer::engine_identity();
    let runner = if prober.is_live() { Runner::contained().map_err(other)? } else { Runner::Nothing };
    let around = if prober.is_live() { Surroundings::of_this_process() } else { Surroundings::of_a_copy(&prober) };
    let machine = machine(&prober, runner.containment());
    let mut capabilities = capabilities(&prober, &around, &runner, &machine);
    // Not beside a measurement, which it would disturb more than the rest does.
    if let Some(hz) = request.polling_hz.filter(|_| prober.is_live() && held_by.is_none()) {
        poll(&mut capabilities, hz);
    }
    let found = request.search.as_ref().map(|search| search::find(&search.places, machine.ram_bytes));
    let most = request.search.as_ref().map_or(0, |search| search.most_tried);
    let to_try = found.iter().flat_map(|found| first_of(&found.models, Format::Onnx, most).0).map(|model| &model.path);
    let models = request.models.iter().chain(to_try).map(|path| inference::try_model(&prober, &runner, path)).collect();
    let needs = |needs| readiness::look(&Prober::with_deadlines(root, READINESS_DEADLINE, READINESS_TOGETHER), &around, &runner, needs);
    let readiness = request.needs.as_ref().map(needs);
    Ok(Probed {
        probe_version: PROBE_VERSION,
        agent_version: env!("CARGO_PKG_VERSION").into(),
        root: request.root.clone(),
        machine,
        engine: Engine { name: name.into(), version: version.into(), revision },
        held_by,
        capabilities,
        models,
        found,
        readiness,
    })
}

/// Everything, family by family.
fn capabilities(prober: &Prober, around: &Surroundings, runner: &Runner, machine: &Machine) -> Vec<Capability> {
    let families: [Vec<Capability>; 11] = [
        recorded::entries(prober),
        temperature::entries(prober),
        clock::entries(prober),
        throttling::entries(prober),
        energy::entries(prober, around, runner),
        power_source::entries(prober),
        gpu::entries(prober, around, runner),
        display::entries(prober),
        display::engine_times(prober),
        inference::entries(prober, around, runner),
        permission::entries(prober, runner, machine),
    ];
    let mut entries: Vec<Capability> = families.into_iter().flatten().collect();
    for entry in &mut entries {
        entry.recorded |= entry.present().is_some() && sensors::is_sensor(entry);
    }
    let mut ids = BTreeSet::new();
    for entry in &mut entries {
        // Two of one name, as a driver may have it: numbered.
        let name = entry.id.clone();
        let mut number = 2;
        while !ids.insert(entry.id.clone()) {
            entry.id = format!("{name}.{number}");
            number += 1;
        }
    }
    entries
}

/// Add what energy instruments say when they are read rarely and often, as a run would read them.
fn poll(capabilities: &mut [Capability], hz: f64) {
    if !capabilities.iter().any(Capability::measures_energy) {
        return;
    }
    let polled = polling::try_out(&mut Sensors::find(Path::new("/")), hz);
    for entry in capabilities {
        let same = |one: &&Capability| (&one.source, &one.name) == (&entry.source, &entry.name);
        let of_it = polled.iter().find(same).and_then(|one| one.present()?.polled.clone());
        let measures_energy = entry.measures_energy();
        if let (true, Found::Present(present)) = (measures_energy, &mut entry.found) {
            // All rails of a power controller are one entry here, and rest too long to tell.
            present.polled = of_it.or_else(|| Some(Polled { hz, ..Polled::default() }));
        }
    }
}

/// Everything that is read from a file of `/sys`: what the sampler has to know of before it reads.
pub fn sensors(root: &Path) -> Vec<Capability> {
    let prober = Prober::with_deadlines(root, SENSOR_DEADLINE, SENSORS_TOGETHER);
    let families: [fn(&Prober) -> Vec<Capability>; 6] =
        [temperature::entries, clock::entries, throttling::entries, energy::files, power_source::entries, display::entries];
    families.into_iter().flat_map(|family| family(&prober)).collect()
}

/// Where programs and libraries are looked for besides the usual places.
#[derive(Debug, Default)]
struct Surroundings {
    homes: Vec<PathBuf>,
    path: Vec<PathBuf>,
    /// `ORT_DYLIB_PATH`.
    onnxruntime: Option<PathBuf>,
    /// `VIRTUAL_ENV`, `PYENV_ROOT`.
    python_roots: Vec<PathBuf>,
}

impl Surroundings {
    fn of_this_process() -> Surroundings {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let path = std::env::var_os("PATH").unwrap_or_else(|| inspect::files::DEFAULT_PATH.into());
        Surroundings {
            homes: crate::dirs::home().into_iter().collect(),
            path: std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect(),
            onnxruntime: std::env::var_os("ORT_DYLIB_PATH").filter(|path| !path.is_empty()).map(PathBuf::from),
            python_roots: ["VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT"].iter().filter_map(|name| variable(name)).collect(),
        }
    }

    /// Of a copied tree nobody's environment is known: every home in it, and the standard path.
    fn of_a_copy(prober: &Prober) -> Surroundings {
        let users = prober.names(&prober.at("home")).unwrap_or_default();
        let homes = users.iter().map(|user| prober.at("home").join(user)).chain([prober.at("root")]);
        let path = inspect::files::DEFAULT_PATH.split(':').map(|dir| prober.at(dir.trim_start_matches('/')));
        Surroundings { homes: homes.collect(), path: path.collect(), ..Surroundings::default() }
    }

    /// The first program of that name on the path, then in other directories.
    fn program(&self, prober: &Prober, name: &str, elsewhere: &[PathBuf]) -> Option<PathBuf> {
        self.path.iter().chain(elsewhere).map(|dir| dir.join(name)).find(|program| prober.is_program(program))
    }
}

/// What the machine is. Of a copy, what only the running kernel can tell is left empty.
fn machine(prober: &Prober, containment: ContainmentCapability) -> Machine {
    let root = prober.root().to_owned();
    // Some hundred files, and a C library of megabytes that a cold SD card takes its time to give.
    let found = prober.within_times(10, {
        let containment = containment.clone();
        move || Ok(inspect::machine::inspect(&root, &containment))
    });
    let mut machine = found.unwrap_or_else(|why: Absent| {
        // Some file of it hangs. The rest is known without files.
        let name = sys::uname();
        let mut machine =
            Machine { hostname: name.hostname, arch: name.machine, kernel: name.release, kernel_version: name.version, ..Machine::default() };
        for field in ["quota_cpus", "cpuset_cpus", "memory_bytes"] {
            machine.limits.unknown.insert(field.into(), why.reason.clone());
        }
        machine.uid = sys::uid();
        machine.containment = containment;
        machine
    });
    if !prober.is_live() {
        let text = |path: &str| prober.text(&prober.at(path)).unwrap_or_default();
        machine.machine_key = String::new();
        machine.hostname = text("proc/sys/kernel/hostname");
        machine.kernel = text("proc/sys/kernel/osrelease");
        machine.kernel_version = text("proc/sys/kernel/version");
        machine.arch = text("proc/sys/kernel/arch");
        machine.limits.affinity_cpus = None;
        machine.limits.unknown.insert("affinity_cpus".into(), COPY.into());
    }
    machine
}

/// What is said of a tool that is there and was not executed for that reason.
const NOT_EXECUTED: &str = "not executed";
/// Why something is not tried below a root of its own.
const COPY: &str = "these are a machine's files, not the machine: nothing is executed or tried out";

fn capability(family: Family, id: String, name: &str, unit: Option<&str>, source: String, found: Found) -> Capability {
    Capability { id, family, name: name.to_owned(), unit: unit.map(str::to_owned), source, recorded: false, found }
}

fn found(trial: Result<Present, Absent>) -> Found {
    trial.map_or_else(Found::Absent, Found::Present)
}

/// It is there; nothing is read of it.
fn is_there(facts: BTreeMap<String, String>) -> Found {
    Found::Present(Present { facts, ..Present::default() })
}

/// Those of the facts that are known.
fn facts<const N: usize>(all: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    all.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), fact?))).collect()
}

/// Entries of one kind, not more than a machine with a reasonable number of them has.
fn limited<T>(family: Family, kind: &str, all: Vec<T>, entries: &mut Vec<Capability>, mut entry: impl FnMut(T) -> Vec<Capability>) {
    let more = all.len().saturating_sub(MOST_OF_A_KIND);
    entries.extend(all.into_iter().take(MOST_OF_A_KIND).flat_map(&mut entry));
    if more > 0 {
        let reason = format!("only the first {MOST_OF_A_KIND} are tried");
        let found = Found::Absent(absent(Cause::NotTried, &reason));
        entries.push(capability(family, format!("{kind}.more"), &format!("{more} more"), None, String::new(), found));
    }
}

/// Text of a program, as far as it is one line for people.
fn first_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(160).collect())
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::{look_by, readiness_by};
