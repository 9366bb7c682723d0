//! What the controller does while something is measured on its own machine: nothing for others, and its CPU time is counted.

use super::assemble;
use crate::registry::Code;
use crate::store::issue::Issue;
use crate::store::record::Record;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Of one CPU.
const MOST_SHARE: f64 = 0.005;
/// What it does to begin and to end weighs more, the shorter a run is.
const LEAST_JUDGED: Duration = Duration::from_secs(5);

/// CPU time of this process over some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub cpu: Duration,
    pub time: Duration,
}

/// Since when it is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    began: Instant,
    cpu: Duration,
}

impl Since {
    pub fn now() -> Since {
        Since { began: Instant::now(), cpu: cpu_time() }
    }

    pub fn until_now(self) -> Beside {
        Beside { cpu: cpu_time().saturating_sub(self.cpu), time: self.began.elapsed() }
    }
}

/// Of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Note it in the record of that run.
pub(super) fn note(record: &mut Record, beside: Beside) {
    let Beside { cpu, time } = beside;
    let Some(observer) = &mut record.observer else { return };
    observer.controller_cpu_ms = Some(cpu.as_secs_f64() * 1e3);
    let share = cpu.as_secs_f64() / time.as_secs_f64();
    if time >= LEAST_JUDGED && share > MOST_SHARE {
        let words = format!("{:.0} ms of CPU time in {:.1} s: {:.1} % of a CPU", cpu.as_secs_f64() * 1e3, time.as_secs_f64(), share * 100.0);
        record.issues.push(Issue::new(Code::ControllerBusy, words));
        record.validity = assemble::validity(record.status, &record.issues);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::store::record::Validity;
    use std::path::Path;

    const RECORD: &str = "results/reference/here/model=tiny-cnn-threads=1-d2d3be1e/timing-r0.json";

    #[test]
    fn more_than_half_a_percent_of_five_seconds_degrades_a_run() {
        let noted = |cpu_ms, time_ms| {
            let mut record = crate::store::index::read_record(Path::new(RECORD)).unwrap();
            assert_eq!((record.validity, &record.issues[..]), (Validity::Valid, &[][..]));
            note(&mut record, Beside { cpu: Duration::from_millis(cpu_ms), time: Duration::from_millis(time_ms) });
            (
                record.observer.unwrap().controller_cpu_ms.unwrap(),
                record.issues.iter().any(|issue| issue.code == Code::ControllerBusy),
                record.validity,
            )
        };
        assert_eq!(noted(25, 5000), (25.0, false, Validity::Valid));
        assert_eq!(noted(26, 5000), (26.0, true, Validity::Degraded));
        assert_eq!(noted(26, 4999), (26.0, false, Validity::Valid), "a short run is not judged");
    }
}
