//! A lane of sensors: what a driver may let hang is read by a thread of its own, which is left behind when that happens.
//!
//! Takes sensors and how to read them, gives the values of the last round and who was given up; must not know what a value means.

use super::sensors::Sensor;
use crate::sys;
use isotherm_wire::telemetry::{COSTLY_EVERY_NS, COSTLY_NS};
use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A file that doesn't answer within this time is not asked again until it gets another chance, ns: the slowest honest ones, on an i2c bus
/// at 100 kHz or behind a battery's controller, take some tens of milliseconds.
const GIVE_UP_NS: u64 = 250_000_000;
/// Who has hung this often gets no other chance: each costs a thread that may never end.
const MOST_HANGS: u32 = 3;
/// Looking around may take this many times as long as a sensor: it may start a process, and has limits of its own.
const LOOK_TIMES: u64 = 15;
/// Who gives up later than this is slow as a rule, ns.
const PROMPT_NS: u64 = 1_000_000_000;
/// A sensor's text is a number.
const TEXT_BYTES: usize = 64;

/// Reads the sensors of a lane, in their order. Each of the lane's threads has one of its own, which is lost with it.
pub trait Reader {
    /// Everything is about to be read; there is time for what isn't a value.
    fn look_around(&mut self) {}
    /// The sensor at that place; `None` where this read failed.
    fn read(&mut self, at: usize) -> Option<f64>;
}

/// Makes a reader, on the thread that is to use it.
type Open = Box<dyn Fn() -> Box<dyn Reader> + Send + Sync>;

/// Reads all sensors once whenever it is told to.
pub struct Lane {
    shared: Arc<Shared>,
    go: Sender<()>,
}

struct Shared {
    sensors: Vec<Sensor>,
    open: Open,
    give_up_ns: u64,
    state: Mutex<State>,
    finished: Condvar,
}

/// What a lane's thread is at.
#[derive(Clone, Copy)]
enum Doing {
    /// It has not been asked for anything.
    Nothing,
    /// A round that it has not begun, or that is between two sensors: a thread that gets no turn is no sensor's fault.
    Round,
    /// Looking around, since when, ns.
    Around(u64),
    /// Reading that sensor, since when, ns.
    Reading(usize, u64),
}

/// How often something has hung.
#[derive(Clone, Copy, Default)]
struct Hangs {
    times: u32,
    /// It is not asked any more.
    given_up: bool,
}

struct State {
    /// The thread that reads now; one that finds another number here has been left behind.
    reader: u64,
    doing: Doing,
    /// What was read and not taken yet: a value that came too late for its sample waits for the next one.
    values: Vec<Option<f64>>,
    /// The last value of each sensor, and when it was read, ns; whoever has taken it.
    latest: Vec<Option<(f64, u64)>>,
    /// Costly ones are read as well.
    everything: bool,
    /// Energy counters and power meters are read as well.
    instruments: bool,
    /// How long its last read took, ns, and when that began.
    costs: Vec<Option<(u64, u64)>>,
    /// How long its last costly read took, of those since everything was read, ns. A tool that answers for many is costly to whoever asks
    /// it first, and that is another one each time.
    costly: Vec<Option<u64>>,
    hangs: Vec<Hangs>,
    hangs_around: Hangs,
}

impl Hangs {
    fn give_up(&mut self) {
        *self = Hangs { times: self.times + 1, given_up: true };
    }

    fn try_again(&mut self) {
        self.given_up = self.times >= MOST_HANGS;
    }
}

impl Lane {
    /// A lane of files.
    pub fn start(sensors: Vec<Sensor>) -> Lane {
        let files: Arc<[Sensor]> = sensors.clone().into();
        Lane::with(sensors, GIVE_UP_NS, Box::new(move || Box::new(Files { sensors: Arc::clone(&files), open: files.iter().map(|_| None).collect() })))
    }

    /// A lane of what `open`'s readers read; one that doesn't answer within `give_up_ns` is not asked again.
    pub fn with(sensors: Vec<Sensor>, give_up_ns: u64, open: Open) -> Lane {
        let n = sensors.len();
        let state = State {
            reader: 0,
            doing: Doing::Nothing,
            values: vec![None; n],
            latest: vec![None; n],
            everything: false,
            instruments: true,
            costs: vec![None; n],
            costly: vec![None; n],
            hangs: vec![Hangs::default(); n],
            hangs_around: Hangs::default(),
        };
        let shared = Arc::new(Shared { sensors, open, give_up_ns, state: Mutex::new(state), finished: Condvar::new() });
        let go = if n == 0 { channel().0 } else { read_on(&shared, 0) };
        Lane { shared, go }
    }

    /// Are energy counters and power meters read from now on?
    pub fn read_instruments(&self, are_read: bool) {
        self.shared.state().instruments = are_read;
    }

    pub fn reads_instruments(&self) -> bool {
        self.shared.state().instruments
    }

    /// Who was given up is asked once more from now on, unless it has hung too often.
    pub fn try_again(&self) {
        let mut state = self.shared.state();
        state.hangs.iter_mut().for_each(Hangs::try_again);
        state.hangs_around.try_again();
    }

    /// Begin a round unless one is still on its way; whoever hangs in that one is given up.
    pub fn ask(&mut self) {
        self.begin(false);
    }

    /// Has a round begun?
    fn begin(&mut self, everything: bool) -> bool {
        let mut state = self.shared.state();
        let now_ns = sys::monotonic_ns();
        let hangs = |since_ns: u64| now_ns.saturating_sub(since_ns) > self.shared.give_up_ns;
        match state.doing {
            Doing::Nothing => {}
            Doing::Reading(at, since_ns) if hangs(since_ns) => {
                state.hangs[at].give_up();
                state.values[at] = None;
            }
            Doing::Around(since_ns) if hangs(since_ns + (LOOK_TIMES - 1) * self.shared.give_up_ns) => state.hangs_around.give_up(),
            Doing::Round | Doing::Around(_) | Doing::Reading(..) => return false,
        }
        if !matches!(state.doing, Doing::Nothing) {
            state.doing = Doing::Nothing;
            state.reader += 1;
            let reader = state.reader;
            drop(state);
            self.go = read_on(&self.shared, reader);
            state = self.shared.state();
        }
        if state.values.is_empty() {
            return true;
        }
        if everything {
            state.values.fill(None);
            state.costly.fill(None);
        }
        state.everything = everything;
        // Without a thread, as where none could be started, nothing is read.
        state.doing = if self.go.send(()).is_ok() { Doing::Round } else { Doing::Nothing };
        true
    }

    /// Values by sensor, once the round is over or `patience` is. Each is given once, so that none stands for a later moment than the one it
    /// was read at; that of who isn't through by then is in the next sample. Is the round over?
    pub fn take(&self, patience: Duration, values: &mut [Option<f64>]) -> bool {
        let state = self.shared.state();
        let waited = self.shared.finished.wait_timeout_while(state, patience, |state| !matches!(state.doing, Doing::Nothing));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        values.iter_mut().zip(&mut state.values).for_each(|(value, read)| *value = read.take());
        matches!(state.doing, Doing::Nothing)
    }

    /// How many values there are.
    pub fn width(&self) -> usize {
        self.shared.sensors.len()
    }

    /// Is an edge of a run worth waiting for it?
    pub fn is_prompt(&self) -> bool {
        self.shared.give_up_ns <= PROMPT_NS
    }

    /// Everything once, now, costly ones too: waits as long as any sensor may take, and goes on without those that hang.
    pub fn all(&mut self, values: &mut [Option<f64>]) {
        let mut begun = false;
        let mut read = vec![None; values.len()];
        // Each of them may hang once, and looking around; and a round of before may be on its way.
        for _ in 0..self.shared.sensors.len() + 3 + LOOK_TIMES as usize {
            begun |= self.begin(true);
            let is_over = self.take(Duration::from_nanos(self.shared.give_up_ns + COSTLY_NS), &mut read);
            values.iter_mut().zip(&read).for_each(|(value, read)| *value = read.or(*value));
            if begun && is_over {
                return;
            }
        }
    }

    /// The last value of a sensor, and when it was read, ns.
    pub fn latest(&self, at: usize) -> Option<(f64, u64)> {
        self.shared.state().latest[at]
    }

    /// Sensors that are read less often, with the cost of a read, ns.
    pub fn slowed(&self) -> Vec<(String, u64)> {
        let state = self.shared.state();
        self.shared.sensors.iter().zip(&state.costly).filter_map(|(sensor, cost_ns)| Some((sensor.name(), (*cost_ns)?))).collect()
    }

    /// Sensors that stopped answering, with what happened.
    pub fn given_up(&self) -> Vec<(String, String)> {
        self.shared.sensors.iter().zip(self.why_given_up()).filter_map(|(sensor, why)| Some((sensor.name(), why?))).collect()
    }

    /// Of each sensor why it is not asked any more; `None` = it is.
    pub fn why_given_up(&self) -> Vec<Option<String>> {
        let why = |hangs: &Hangs| hangs.given_up.then(|| format!("no answer within {} ms", self.shared.give_up_ns / 1_000_000));
        self.shared.state().hangs.iter().map(why).collect()
    }
}

#[cfg(test)]
impl Lane {
    /// Has the sensor ever been read?
    pub fn was_read(&self, at: usize) -> bool {
        self.shared.state().costs[at].is_some()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the thread that reads now; `None` for one that has been left behind.
    fn state_of(&self, reader: u64) -> Option<MutexGuard<'_, State>> {
        Some(self.state()).filter(|state| state.reader == reader)
    }

    /// One round; false for a thread that has been left behind.
    fn round(&self, number: u64, reader: &mut dyn Reader) -> bool {
        let looks_around = {
            let Some(mut state) = self.state_of(number) else { return false };
            let looks_around = state.everything && !state.hangs_around.given_up;
            if looks_around {
                state.doing = Doing::Around(sys::monotonic_ns());
            }
            looks_around
        };
        if looks_around {
            reader.look_around();
            let Some(mut state) = self.state_of(number) else { return false };
            state.doing = Doing::Round;
        }
        for (at, sensor) in self.sensors.iter().enumerate() {
            let begin_ns = {
                let Some(mut state) = self.state_of(number) else { return false };
                let begin_ns = sys::monotonic_ns();
                let rested = |(cost_ns, then_ns): (u64, u64)| cost_ns <= COSTLY_NS || begin_ns.saturating_sub(then_ns) >= COSTLY_EVERY_NS;
                let is_left_alone = sensor.column.is_instrument() && !state.instruments;
                if is_left_alone || state.hangs[at].given_up || !(state.everything || state.costs[at].is_none_or(rested)) {
                    continue;
                }
                state.doing = Doing::Reading(at, begin_ns);
                begin_ns
            };
            let value = reader.read(at);
            let Some(mut state) = self.state_of(number) else { return false };
            state.doing = Doing::Round;
            // One that has nothing new to say takes nothing away that is still waiting for its sample.
            state.values[at] = value.or(state.values[at]);
            state.latest[at] = value.map(|value| (value, begin_ns)).or(state.latest[at]);
            let cost_ns = sys::monotonic_ns().saturating_sub(begin_ns);
            state.costs[at] = Some((cost_ns, begin_ns));
            state.costly[at] = Some(cost_ns).filter(|cost_ns| *cost_ns > COSTLY_NS).or(state.costly[at]);
        }
        let Some(mut state) = self.state_of(number) else { return false };
        state.doing = Doing::Nothing;
        self.finished.notify_all();
        true
    }
}

/// A thread that does a round for every message.
fn read_on(shared: &Arc<Shared>, number: u64) -> Sender<()> {
    let (go, rounds): (Sender<()>, Receiver<()>) = channel();
    let shared = Arc::clone(shared);
    // Where no thread can be started, `go` has no receiver any more.
    let _ = thread::Builder::new().name("sensors".into()).spawn(move || {
        let mut reader = (shared.open)();
        while rounds.recv().is_ok() && shared.round(number, reader.as_mut()) {}
    });
    go
}

/// Reads files, held open from their first read on.
struct Files {
    sensors: Arc<[Sensor]>,
    open: Vec<Option<Vec<File>>>,
}

impl Reader for Files {
    fn read(&mut self, at: usize) -> Option<f64> {
        let sensor = &self.sensors[at];
        if self.open[at].is_none() {
            self.open[at] = sensor.files.iter().map(|path| File::open(path).ok()).collect();
        }
        self.open[at].as_ref().and_then(|files| read(sensor, files))
    }
}

fn read(sensor: &Sensor, files: &[File]) -> Option<f64> {
    let mut buffers = [[0; TEXT_BYTES]; 2];
    let mut lengths = [0; 2];
    for ((file, buffer), length) in files.iter().zip(&mut buffers).zip(&mut lengths) {
        *length = sys::pread(file, buffer).ok()?;
    }
    let mut texts = [""; 2];
    for (text, (buffer, length)) in texts.iter_mut().zip(buffers.iter().zip(lengths)) {
        *text = std::str::from_utf8(&buffer[..length]).ok()?;
    }
    sensor.value(&texts[..files.len()])
}
