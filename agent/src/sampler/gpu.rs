//! The lane of GPUs: what they say, sampled like sensors, by a process beside the keeper that is ended when it hangs, and started again before the next run.
//!
//! Takes what was found by asking, gives sensors with their reader, what the GPUs are, and who computes on them; must not know what
//! any of it means for a run.

use super::lane::Reader;
use super::sensors::{self, Sensor};
use crate::aside::Handle;
use crate::gpu::{self, Connection, Looked, Means};
use crate::processes;
use isotherm_wire::columns::ColumnName;
use isotherm_wire::companion::{Answer, ComputeProcess, Question};
use isotherm_wire::inspect::Gpu;
use isotherm_wire::probe::Capability;
use isotherm_wire::result::GpuProcess;
use isotherm_wire::telemetry::Reading;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A GPU's value that isn't there within this time is given up with the process that was asked, ns.
const GIVE_UP_NS: u64 = 1_000_000_000;

/// So often a session starts whom to ask again: as often as one sensor may hang. A GPU that doesn't answer any more keeps each of them.
const MOST_RESTARTS: u32 = 3;

/// What is known of the GPUs beside their values. Filled by the lane's thread.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    gpus: Vec<Gpu>,
    /// GPU and pid, as of the last time that somebody looked.
    now: Vec<(String, u32)>,
    processes: Vec<GpuProcess>,
    /// Who is asked at present.
    asked: Option<Arc<Handle>>,
    /// The thread of the lane that asks; those with a lower number have been left behind.
    reader: u32,
    restarts: u32,
}

impl Watch {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the GPUs are, as of the last time that everything was read.
    pub fn gpus(&self) -> Vec<Gpu> {
        self.known().gpus.clone()
    }

    /// From here on a run is watched: who computes now was there before it.
    pub fn begin(&self) {
        let mut known = self.known();
        let Known { now, processes, .. } = &mut *known;
        processes.retain_mut(|process| {
            process.before = true;
            now.iter().any(|(gpu, pid)| *gpu == process.gpu && *pid == process.pid)
        });
    }

    /// Who was seen since then, those that were there before among them.
    pub fn processes(&self) -> Vec<GpuProcess> {
        self.known().processes.clone()
    }

    /// End who is asked, even one that hangs.
    pub fn end(&self) {
        if let Some(handle) = self.known().asked.take() {
            handle.kill();
        }
    }

    /// Another thread asks from now on. Gives its number.
    fn hand_over(&self) -> u32 {
        let mut known = self.known();
        known.reader += 1;
        known.reader
    }

    /// Start whom to ask again, in the place of who was asked before: that one is ended first, because what it holds may be needed. `None`
    /// for a thread that has been left behind, and where it was started often enough.
    fn start_again(&self, reader: u32, means: &Means) -> Option<Connection> {
        let before = {
            let mut known = self.known();
            if known.reader != reader || known.restarts >= MOST_RESTARTS {
                return None;
            }
            known.restarts += 1;
            known.asked.take()
        };
        before.iter().for_each(|handle| handle.kill());
        let connection = Connection::start(means).ok()?;
        let mut known = self.known();
        // Left behind meanwhile, it ends what it has started.
        (known.reader == reader).then(|| {
            known.asked = Some(connection.handle());
            connection
        })
    }

    fn note(&self, gpu: &str, listed: &[ComputeProcess]) {
        let mut known = self.known();
        known.now.retain(|(of, _)| of != gpu);
        known.now.extend(listed.iter().map(|process| (gpu.to_owned(), process.pid)));
        for ComputeProcess { pid, memory_bytes } in listed {
            match known.processes.iter_mut().find(|seen| seen.gpu == gpu && seen.pid == *pid) {
                Some(seen) => seen.memory_bytes = seen.memory_bytes.max(*memory_bytes),
                None => {
                    let (name, of_run) = (processes::name(*pid as i32), processes::is_below_us(*pid as i32));
                    known.processes.push(GpuProcess { gpu: gpu.to_owned(), pid: *pid, name, memory_bytes: *memory_bytes, before: false, of_run });
                }
            }
        }
    }
}

/// What the lane is started with.
pub struct Found {
    pub sensors: Vec<Sensor>,
    pub absent: Vec<Reading>,
    pub capabilities: Vec<Capability>,
    pub watch: Watch,
    pub give_up_ns: u64,
    pub open: Box<dyn Fn() -> Box<dyn Reader> + Send + Sync>,
}

/// Ask for GPUs; `None` where nothing tells of one.
pub fn find() -> Option<Found> {
    let (looked, refusals) = gpu::look();
    let watch = Watch::default();
    let Some(Looked { means, connection, gpus, entries }) = looked else {
        // Something is there and can't be asked: the reasons stand where its values would, and beside the instruments it may have.
        let capabilities = refusals.iter().map(|(means, why)| means.refused(why.clone())).collect();
        let (_, why) = refusals.into_iter().next()?;
        let absent = Reading {
            metric: ColumnName::GpuBusy.entry().name.into(),
            unit: ColumnName::GpuBusy.entry().unit.symbol().into(),
            subject: Some("NVIDIA".into()),
            source: "nvml:busy".into(),
            value: None,
            absent: Some(why.reason),
        };
        let open = Box::new(|| Box::new(Nobody) as Box<dyn Reader>);
        return Some(Found { sensors: Vec::new(), absent: vec![absent], capabilities, watch, give_up_ns: GIVE_UP_NS, open });
    };
    watch.known().gpus = gpus.gpus;
    let capabilities: Vec<Capability> = entries.iter().map(|entry| entry.capability.clone()).collect();
    let (sensors, absent) = sensors::of(Path::new("/"), &capabilities);
    let questions = entries.into_iter().filter(|entry| entry.capability.present().is_some()).map(|entry| entry.question);
    let asked: Arc<[(Sensor, Question)]> = sensors.iter().cloned().zip(questions).collect();
    watch.known().asked = Some(connection.handle());
    let (first, of_readers) = (Mutex::new(Some(connection)), watch.clone());
    let give_up_ns = if matches!(means, Means::Smi(_)) { means.patience().as_nanos() as u64 } else { GIVE_UP_NS };
    let open = Box::new(move || {
        let (number, connection) = (of_readers.hand_over(), first.lock().unwrap_or_else(PoisonError::into_inner).take());
        if connection.is_none() {
            // A window may be on: who hangs is ended, and nobody is started.
            of_readers.end();
        }
        Box::new(Asking { number, means: means.clone(), connection, asked: Arc::clone(&asked), watch: of_readers.clone() }) as Box<dyn Reader>
    });
    Some(Found { sensors, absent, capabilities, watch, give_up_ns, open })
}

struct Nobody;

impl Reader for Nobody {
    fn read(&mut self, _at: usize) -> Option<f64> {
        None
    }
}

struct Asking {
    /// Of the thread whose reader it is.
    number: u32,
    means: Means,
    /// `None` until it is started again, if it is.
    connection: Option<Connection>,
    asked: Arc<[(Sensor, Question)]>,
    watch: Watch,
}

impl Asking {
    fn ask(&mut self, question: &Question, limit: Option<Duration>) -> Option<Answer> {
        self.connection.as_mut()?.ask(question, limit).ok()
    }
}

impl Reader for Asking {
    fn look_around(&mut self) {
        let patience = self.means.patience();
        let mut answer = self.ask(&Question::Gpus, Some(patience));
        if self.connection.as_ref().is_none_or(Connection::is_broken) {
            // It hung or crashed. What a run lost by that it goes on without; here no window is on.
            self.connection = self.watch.start_again(self.number, &self.means);
            answer = self.ask(&Question::Gpus, Some(patience.max(gpu::FIRST_ANSWER)));
        }
        if let Some(Answer::Gpus(gpus)) = answer {
            self.watch.known().gpus = gpus.gpus;
        }
    }

    fn read(&mut self, at: usize) -> Option<f64> {
        let asked = Arc::clone(&self.asked);
        let (sensor, question) = &asked[at];
        // Without a limit of its own: the lane has one, and ends who doesn't keep it.
        let answer = self.ask(question, None)?;
        if let Answer::Processes(listed) = &answer {
            self.watch.note(&sensor.subject, listed);
        }
        sensor.value(&[&gpu::number(&answer)?.to_string()])
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::probe::Cause;

    #[test]
    fn a_thread_that_was_left_behind_neither_starts_nor_ends_whom_another_asks() {
        let (watch, means) = (Watch::default(), Means::Companion("/bin/cat".into()));
        let (left_behind, number) = (watch.hand_over(), watch.hand_over());
        let mut connection = watch.start_again(number, &means).unwrap();
        assert!(watch.start_again(left_behind, &means).is_none());
        let answer = connection.ask(&Question::Gpus, Some(gpu::FIRST_ANSWER));
        assert_eq!(answer.unwrap_err().cause, Cause::Garbage, "it is still there, and repeats the question");
        let again = (0..MOST_RESTARTS).filter(|_| watch.start_again(number, &means).is_some()).count() as u32;
        assert_eq!(again, MOST_RESTARTS - 1);
    }
}
