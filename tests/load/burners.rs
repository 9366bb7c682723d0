//! Processes that do nothing but use the CPU, under a name that nobody else has.

use crate::lab::{Lab, eventually};
use std::fs;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A workload that says that it runs, and waits for its end.
pub const WORKLOAD: &str = "#!/bin/sh\n: > started\nwhile [ ! -e end ]; do sleep 0.05; done\nrm end started\n";
/// Spans that are judged last 5 s.
const JUDGED: Duration = Duration::from_millis(5500);

/// Processes of one name that use the CPUs as long as this is there; those of one test at a time, so that they are among the busiest three.
pub struct Burners {
    pub name: String,
    children: Vec<Child>,
    since: Instant,
    _alone: MutexGuard<'static, ()>,
}

/// As many are more than whatever else a machine does at a time.
pub const BURNERS: usize = 6;

impl Burners {
    pub fn start(lab: &Lab) -> Burners {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // The kernel keeps 15 bytes of it.
        let name = format!("burn{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let script = lab.write(&name, "#!/bin/sh\nwhile :; do :; done\n");
        let burner = || Command::new(&script).spawn().unwrap();
        Burners { name, children: (0..BURNERS).map(|_| burner()).collect(), since: Instant::now(), _alone: alone }
    }

    /// Wait until they have used enough of a span that is long enough to be judged.
    pub fn disturb(&self) {
        self.disturb_for(JUDGED);
    }

    /// The same of a span so long.
    pub fn disturb_for(&self, least: Duration) {
        eventually("the burners disturb", || {
            let span = self.since.elapsed();
            (span >= least && self.cpu_s() >= 0.3 * span.as_secs_f64()).then_some(())
        });
    }

    fn cpu_s(&self) -> f64 {
        let ticks = |child: &Child| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>()
        };
        self.children.iter().map(ticks).sum::<f64>() / 100.0
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
