//! The Raspberry Pi 5's power controller, through its firmware's tool: what each of the rails gives that it makes, voltage × current.
//!
//! Takes the tool, gives sensors of rails with their reader; must not know what a rail feeds. An execution costs some milliseconds of a CPU,
//! so there is one a second at the most, by a process beside the keeper: between two of them there is no value, and none is repeated.

use super::lane::Reader;
use super::sensors::{self, Sensor};
use crate::aside::{Aside, Handle};
use crate::probe::pmic::{FACTS, NAME, SOURCE, rails};
use crate::{probe, sys};
use isotherm_wire::probe::{Absent, Capability, Cause, Family, Found as Trial, Present};
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The tool answers within some milliseconds; one that has not answered by now is ended and not asked again, ns.
pub const GIVE_UP_NS: u64 = 2_000_000_000;
/// Between two executions, ns.
const EVERY_NS: u64 = 1_000_000_000;
/// Output taken of it, bytes.
const MOST_BYTES: u64 = 64 << 10;

/// What the lane is started with.
pub struct Found {
    pub sensors: Vec<Sensor>,
    /// One for each rail; or the one that isn't there, with its reason.
    pub capabilities: Vec<Capability>,
    pub open: Box<dyn Fn() -> Box<dyn Reader> + Send + Sync>,
}

/// Who executes at present.
type Running = Arc<Mutex<Option<Arc<Handle>>>>;

/// Try the tool; `None` on a machine that is no Raspberry Pi.
pub fn find(root: &Path) -> Option<Found> {
    let running = Running::default();
    let start_ns = sys::monotonic_ns();
    let tried = probe::pmic::tool(root)?.and_then(|program| Ok((trial(&program, &running)?, program)));
    let cost_ns = sys::monotonic_ns() - start_ns;
    let entry = |name: String, found| {
        let id = format!("energy.pmic.{name}");
        Capability { id, family: Family::Energy, name, unit: Some("uw".into()), source: SOURCE.into(), recorded: true, found }
    };
    let (found, program) = match tried {
        Ok(tried) => tried,
        Err(why) => {
            let open = Box::new(|| Box::new(Nobody) as Box<dyn Reader>);
            return Some(Found { sensors: Vec::new(), capabilities: vec![entry(NAME.into(), Trial::Absent(why))], open });
        }
    };
    let facts = FACTS.map(|(name, fact)| (name.to_owned(), fact.to_owned())).into();
    // All of them come with one execution.
    let present = Present { cost_ns: Some(cost_ns / found.len() as u64), facts, ..Present::default() };
    let capability = |(rail, watts): &(String, f64)| entry(rail.clone(), Trial::Present(Present { value: Some(watts * 1e6), ..present.clone() }));
    let capabilities: Vec<Capability> = found.iter().map(capability).collect();
    let (sensors, _) = sensors::of(root, &capabilities);
    let names: Arc<[String]> = sensors.iter().map(|sensor| sensor.subject.clone()).collect();
    let open = Box::new(move || {
        end(&running);
        let (program, rails, running) = (program.clone(), Arc::clone(&names), Arc::clone(&running));
        Box::new(Asking { program, rails, running, values: HashMap::new(), asked_ns: None }) as Box<dyn Reader>
    });
    Some(Found { sensors, capabilities, open })
}

struct Nobody;

impl Reader for Nobody {
    fn read(&mut self, _at: usize) -> Option<f64> {
        None
    }
}

struct Asking {
    program: PathBuf,
    rails: Arc<[String]>,
    running: Running,
    /// Watts that nobody has taken yet.
    values: HashMap<String, f64>,
    asked_ns: Option<u64>,
}

impl Reader for Asking {
    fn look_around(&mut self) {
        self.asked_ns = None;
    }

    /// The first rail stands for the execution: what that takes is its cost, and whoever hangs hangs in it.
    fn read(&mut self, at: usize) -> Option<f64> {
        let now_ns = sys::monotonic_ns();
        if at == 0 && self.asked_ns.is_none_or(|then_ns| now_ns - then_ns >= EVERY_NS) {
            self.asked_ns = Some(now_ns);
            self.values = execute(&self.program, &self.running).map(|text| rails(&text).into_iter().collect()).unwrap_or_default();
        }
        self.values.remove(&self.rails[at])
    }
}

/// What it printed, once it has ended.
fn execute(program: &Path, running: &Running) -> std::io::Result<String> {
    let aside = Aside::start(program, &["pmic_read_adc"])?;
    *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&aside.handle));
    let mut text = String::new();
    (&aside.stdout).take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// End who executes, even one that hangs.
fn end(running: &Running) {
    if let Some(handle) = running.lock().unwrap_or_else(PoisonError::into_inner).take() {
        handle.kill();
    }
}

/// The rails that it names, within the time that a reading has.
fn trial(program: &Path, running: &Running) -> Result<Vec<(String, f64)>, Absent> {
    let absent = |cause, reason: String| Absent { cause, reason };
    let (answer, answered) = channel();
    let (owned, shared) = (program.to_owned(), Arc::clone(running));
    let started = thread::Builder::new().name("trial".into()).spawn(move || answer.send(execute(&owned, &shared)));
    started.map_err(|e| absent(Cause::NotTried, format!("no thread for the trial: {e}")))?;
    match answered.recv_timeout(Duration::from_nanos(GIVE_UP_NS)) {
        Ok(Ok(text)) => Some(rails(&text)).filter(|rails| !rails.is_empty()).ok_or_else(|| absent(Cause::Failed, "it names no rail".into())),
        Ok(Err(e)) => Err(absent(Cause::Failed, e.to_string())),
        Err(_) => {
            end(running);
            Err(absent(Cause::NoAnswer, format!("no answer within {} ms", GIVE_UP_NS / 1_000_000)))
        }
    }
}
