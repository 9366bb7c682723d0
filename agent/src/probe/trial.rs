//! Trying things out below a root, each within a deadline: whatever hangs costs its deadline and nothing else.

use crate::sys;
use isotherm_wire::probe::{Absent, Cause, Present};
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// One read, listing or opening answers within this time or counts as hung: the slowest honest sensors (an i2c bus at 100 kHz, a
/// battery's controller) take some tens of milliseconds.
const DEADLINE: Duration = Duration::from_millis(500);
/// All trials together have this time, tools not counted; what is left then is not tried any more.
const ALL_TOGETHER: Duration = Duration::from_secs(20);
/// How often a source is read: once to see what it says, the rest for the cost.
const READS: usize = 4;
/// Longest text taken of a file, bytes.
const LONGEST: usize = 64 << 10;
/// Most names taken of a directory.
const MOST_NAMES: usize = 4096;

/// Tries things out below one root.
pub struct Prober {
    root: PathBuf,
    deadline: Duration,
    /// What is left of the time for all trials together.
    left: Cell<Duration>,
    /// Does the trials. One that hangs is left behind with its worker.
    worker: RefCell<Option<Sender<Job>>>,
}

type Job = Box<dyn FnOnce() + Send>;

/// What a file said.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Without trailing white space and NULs; not empty.
    pub text: String,
    pub cost_ns: u64,
    pub flaky: Option<String>,
}

impl Prober {
    pub fn new(root: &Path) -> Prober {
        Prober::with_deadlines(root, DEADLINE, ALL_TOGETHER)
    }

    pub fn with_deadlines(root: &Path, deadline: Duration, all_together: Duration) -> Prober {
        Prober { root: root.to_owned(), deadline, left: Cell::new(all_together), worker: RefCell::new(None) }
    }

    /// Is this the machine itself, and not a copy of its files?
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A path as the machine itself would name it.
    pub fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(below) => Path::new("/").join(below).display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }

    /// Do something that may hang.
    pub fn within<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T, Absent> + Send + 'static) -> Result<T, Absent> {
        self.within_times(1, work)
    }

    /// Do a lot that may hang: it has so many times the deadline.
    pub fn within_times<T: Send + 'static>(&self, times: u32, work: impl FnOnce() -> Result<T, Absent> + Send + 'static) -> Result<T, Absent> {
        let deadline = self.deadline * times;
        let left = self.left.get();
        if left.is_zero() {
            return Err(absent(Cause::NotTried, "the time for all trials together was over"));
        }
        let (answer, answered) = channel();
        let mut job: Job = Box::new(move || _ = answer.send(work()));
        let worker = loop {
            let worker = match self.worker.take() {
                Some(worker) => worker,
                None => start_worker().map_err(|e| absent(Cause::NotTried, &format!("no thread for the trial: {e}")))?,
            };
            match worker.send(job) {
                Ok(()) => break worker,
                // Its thread has ended: the next one does it.
                Err(unsent) => job = unsent.0,
            }
        };
        let start = sys::monotonic_ns();
        let outcome = answered.recv_timeout(deadline.min(left));
        self.left.set(left.saturating_sub(Duration::from_nanos(sys::monotonic_ns() - start)));
        match outcome {
            Ok(result) => {
                self.worker.replace(Some(worker));
                result
            }
            Err(RecvTimeoutError::Timeout) => Err(absent(Cause::NoAnswer, &format!("no answer within {} ms", deadline.min(left).as_millis()))),
            Err(RecvTimeoutError::Disconnected) => Err(absent(Cause::Failed, "the trial itself failed")),
        }
    }

    /// Read a file a few times with it open.
    pub fn read(&self, path: &Path) -> Result<Reading, Absent> {
        let path = path.to_owned();
        self.within(move || read(&path))
    }

    /// A file's text.
    pub fn text(&self, path: &Path) -> Option<String> {
        self.read(path).ok().map(|r| r.text)
    }

    /// One whole number, which has to be in this range to be believed.
    pub fn number(&self, path: &Path, plausible: &RangeInclusive<i64>) -> Result<Present, Absent> {
        let reading = self.read(path)?;
        let value = reading.text.parse::<i64>().map_err(|_| garbage("a whole number", &reading.text))?;
        if !plausible.contains(&value) {
            let (least, most) = (plausible.start(), plausible.end());
            let range = if *most == i64::MAX { format!("less than {least}") } else { format!("not within {least} to {most}") };
            return Err(absent(Cause::OutOfRange, &format!("reads {value}, which is {range}")));
        }
        Ok(Present { cost_ns: Some(reading.cost_ns), value: Some(value as f64), flaky: reading.flaky, ..Present::default() })
    }

    /// Names in a directory, `zone2` before `zone10`; those beyond a few thousand are left out.
    pub fn names(&self, dir: &Path) -> Result<Vec<String>, Absent> {
        let dir = dir.to_owned();
        let mut names = self.within(move || {
            let entries = fs::read_dir(&dir).map_err(|e| of_error(&e))?;
            Ok(entries.take(MOST_NAMES).flatten().filter_map(|e| e.file_name().into_string().ok()).collect::<Vec<_>>())
        })?;
        names.sort_by_key(|name| natural(name));
        Ok(names)
    }

    /// Names like `prefix7suffix` in a directory; none at all is an absence.
    pub fn numbered(&self, dir: &Path, prefix: &str, suffix: &str) -> Result<Vec<String>, Absent> {
        let mut names = self.names(dir)?;
        names.retain(|name| is_numbered(name, prefix, suffix));
        if names.is_empty() { Err(absent(Cause::NotThere, &format!("no {prefix}*{suffix} there"))) } else { Ok(names) }
    }

    /// Is there something of that name, links followed?
    pub fn exists(&self, path: &Path) -> bool {
        let path = path.to_owned();
        self.within(move || fs::metadata(&path).map_err(|e| of_error(&e))).is_ok()
    }

    /// A regular file that may be executed?
    pub fn is_program(&self, path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let path = path.to_owned();
        let meta = self.within(move || fs::metadata(&path).map_err(|e| of_error(&e)));
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    }

    /// May it be opened for writing? Nothing is written.
    pub fn is_writable(&self, path: &Path) -> Result<(), Absent> {
        let path = path.to_owned();
        self.within(move || File::options().write(true).open(&path).map(drop).map_err(|e| of_error(&e)))
    }
}

fn start_worker() -> io::Result<Sender<Job>> {
    let (jobs, queue) = channel::<Job>();
    thread::Builder::new().name("trial".into()).spawn(move || queue.iter().for_each(|job| job()))?;
    Ok(jobs)
}

fn read(path: &Path) -> Result<Reading, Absent> {
    let file = File::open(path).map_err(|e| of_error(&e))?;
    read_by(|buffer| sys::pread(&file, buffer))
}

fn read_by(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Result<Reading, Absent> {
    let mut buffer = vec![0; LONGEST];
    let mut text = None;
    let mut failure = None;
    let mut costs = Vec::with_capacity(READS);
    for _ in 0..READS {
        let start = sys::monotonic_ns();
        let outcome = read(&mut buffer);
        let cost_ns = sys::monotonic_ns() - start;
        match outcome {
            Ok(n) => {
                costs.push(cost_ns);
                text.get_or_insert_with(|| String::from_utf8_lossy(&buffer[..n]).trim_end_matches(['\0', '\n', ' ', '\t']).to_owned());
            }
            Err(e) => failure = Some(e),
        }
    }
    match (text, failure) {
        (Some(text), _) if text.trim().is_empty() => Err(absent(Cause::Garbage, "it is empty")),
        (Some(text), failure) => {
            let flaky = failure.map(|e| format!("{} of {READS} reads failed: {}", READS - costs.len(), words(&e)));
            costs.sort_unstable();
            Ok(Reading { text, cost_ns: costs[costs.len() / 2], flaky })
        }
        (None, Some(e)) => Err(of_error(&e)),
        (None, None) => Err(absent(Cause::Garbage, "it is empty")),
    }
}

pub fn absent(cause: Cause, reason: &str) -> Absent {
    Absent { cause, reason: reason.to_owned() }
}

/// Something else was read than what has to be there.
pub fn garbage(expected: &str, got: &str) -> Absent {
    let mut shown: String = got.chars().take(40).collect();
    if shown.len() < got.len() {
        shown.push('…');
    }
    absent(Cause::Garbage, &format!("reads {shown:?}, which is not {expected}"))
}

pub fn of_error(error: &io::Error) -> Absent {
    let cause = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::NotThere,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Cause::NotPermitted,
        _ => Cause::Failed,
    };
    Absent { cause, reason: words(error) }
}

/// The system's words, without the number behind them.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_owned()
}

fn is_numbered(name: &str, prefix: &str, suffix: &str) -> bool {
    let middle = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
    middle.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Digits as numbers, so that names sort as people count.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(text);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(digits);
        parts.push((0, word.to_owned()));
        parts.push((if number.is_empty() { 0 } else { number.parse().unwrap_or(u64::MAX) }, String::new()));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_hangs_is_given_up_and_the_next_trial_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        fs::write(dir.path().join("temp"), "48300\n").unwrap();
        let prober = Prober::with_deadlines(dir.path(), Duration::from_millis(20), Duration::from_secs(60));
        assert_eq!(prober.read(&fifo).unwrap_err().cause, Cause::NoAnswer);
        assert_eq!(prober.number(&prober.at("temp"), &(0..=100_000)).unwrap().value, Some(48300.0));
    }

    #[test]
    fn after_the_time_for_all_nothing_is_tried() {
        let prober = Prober::with_deadlines(Path::new("/"), DEADLINE, Duration::ZERO);
        assert_eq!(prober.read(Path::new("/proc/stat")).unwrap_err().cause, Cause::NotTried);
    }

    #[test]
    fn each_fault_has_its_cause_and_words() {
        let dir = tempfile::tempdir().unwrap();
        let prober = Prober::new(dir.path());
        std::os::unix::fs::symlink("/proc/self/mem", dir.path().join("broken")).unwrap();
        let faults = [("empty", "\n"), ("garbage", "\u{1b}[31mN/A"), ("cold", "-274000"), ("fraction", "1.5")];
        for (file, text) in faults {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let fault = |name: &str| prober.number(&prober.at(name), &(-55_000..=200_000)).unwrap_err();
        assert_eq!(fault("none"), absent(Cause::NotThere, "No such file or directory"));
        assert_eq!(fault("broken"), absent(Cause::Failed, "Input/output error"));
        assert_eq!(fault("empty"), absent(Cause::Garbage, "it is empty"));
        assert_eq!(fault("garbage"), absent(Cause::Garbage, "reads \"\\u{1b}[31mN/A\", which is not a whole number"));
        assert_eq!(fault("cold"), absent(Cause::OutOfRange, "reads -274000, which is not within -55000 to 200000"));
        assert_eq!(fault("fraction").cause, Cause::Garbage);
        assert_eq!(fault(".").cause, Cause::Failed);
    }

    /// As some zones of a Jetson answer: `EAGAIN` now, a number later.
    #[test]
    fn a_sensor_that_says_try_again_is_unreliable_if_it_answers_once_and_absent_if_it_never_does() {
        let again = || io::Error::from_raw_os_error(libc::EAGAIN);
        let mut asked = 0;
        let once = read_by(|buffer| {
            asked += 1;
            if asked != 3 {
                return Err(again());
            }
            buffer[..6].copy_from_slice(b"45906\n");
            Ok(6)
        });
        let once = once.unwrap();
        assert_eq!((once.text.as_str(), once.flaky.as_deref()), ("45906", Some("3 of 4 reads failed: Resource temporarily unavailable")));
        assert_eq!(read_by(|_| Err(again())).unwrap_err(), absent(Cause::Failed, "Resource temporarily unavailable"));
    }

    #[test]
    fn names_are_sorted_as_people_count() {
        let mut names = ["zone10", "zone2", "a", "zone", "zone2b"];
        names.sort_by_key(|n| natural(n));
        assert_eq!(names, ["a", "zone", "zone2", "zone2b", "zone10"]);
        assert!(is_numbered("policy4", "policy", "") && !is_numbered("policy", "policy", "") && is_numbered("temp1_input", "temp", "_input"));
    }
}
