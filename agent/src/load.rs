//! Who uses the CPUs of this machine: a census of its processes with the CPU time of each; two of them tell who worked in between.
//!
//! Takes the root of `/proc`, gives CPU time by whose it was; must not know what is measured, or how much is too much.
//!
//! A census takes about 10 µs per process (2 ms with 200): fit for once a second in a wait, and never taken in a window.

pub mod lookout;

use crate::{aside, contain, sys};
use isotherm_wire::load::{CpuTime, MOST_NAMED, ProcessTime};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::path::Path;

/// Processes that are looked at, at most: 0.2 s of work. With more nobody is named and kernel threads aren't told apart.
const MOST_PROCESSES: usize = 20_000;
/// `PF_KTHREAD` among the flags of `/proc/<pid>/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// All processes at one moment, and what each has used of the CPUs since it was started.
pub struct Census {
    monotonic_ns: u64,
    busy_ticks: u64,
    interrupt_ticks: u64,
    agent_ns: u64,
    /// By pid; `None` = there are too many.
    processes: Option<HashMap<u32, Process>>,
}

struct Process {
    /// Clock ticks after boot: tells it from another with the same pid.
    started: u64,
    ticks: u64,
    is_kernel_thread: bool,
    name: String,
}

impl Census {
    /// Look at everything below `root`, `/` on a real machine; `None` where `/proc/stat` can't be read.
    pub fn take(root: &Path) -> Option<Census> {
        let stat = fs::read_to_string(root.join("proc/stat")).ok()?;
        let (busy_ticks, interrupt_ticks) = machine(&stat)?;
        let mut census = Census { monotonic_ns: sys::monotonic_ns(), busy_ticks, interrupt_ticks, agent_ns: agent_ns(), processes: None };
        census.processes = processes(&root.join("proc"));
        Some(census)
    }

    /// Who used the CPUs since an earlier census; `None` where no time has passed.
    pub fn since(&self, earlier: &Census) -> Option<CpuTime> {
        let ns = |ticks: u64| ticks.saturating_mul(1_000_000_000 / sys::ticks_per_s());
        let span_ns = self.monotonic_ns.checked_sub(earlier.monotonic_ns).filter(|ns| *ns > 0)?;
        let mut kernel_threads = None;
        let mut by_name: BTreeMap<&str, (u32, u64)> = BTreeMap::new();
        if let (Some(now), Some(before)) = (&self.processes, &earlier.processes) {
            for (pid, process) in now {
                let before = before.get(pid).filter(|before| before.started == process.started);
                let ticks = process.ticks.saturating_sub(before.map_or(0, |before| before.ticks));
                if process.is_kernel_thread {
                    kernel_threads = Some(kernel_threads.unwrap_or(0u64).saturating_add(ticks));
                } else if *pid != std::process::id() && !aside::is_one(*pid) && ticks > 0 {
                    let (n, sum) = by_name.entry(&process.name).or_default();
                    (*n, *sum) = (*n + 1, sum.saturating_add(ticks));
                }
            }
        }
        let mut others: Vec<ProcessTime> =
            by_name.iter().map(|(name, (n, ticks))| ProcessTime { name: (*name).to_owned(), processes: *n, cpu_ns: ns(*ticks) }).collect();
        let others_ns = others.iter().map(|other| other.cpu_ns).fold(0, u64::saturating_add);
        others.sort_by_key(|other| std::cmp::Reverse(other.cpu_ns));
        others.truncate(MOST_NAMED);
        Some(CpuTime {
            span_ns,
            // Counters of the kernel; `iowait` alone steps back, and is in none of them.
            busy_ns: ns(self.busy_ticks.saturating_sub(earlier.busy_ticks)),
            interrupts_ns: ns(self.interrupt_ticks.saturating_sub(earlier.interrupt_ticks)),
            kernel_threads_ns: kernel_threads.map(ns),
            agent_ns: self.agent_ns.saturating_sub(earlier.agent_ns),
            others,
            others_ns,
        })
    }
}

/// CPU time of this process, of those beside it, and of all that it has waited for, with what those had waited for: every run that has
/// ended, and what a run's cgroup knows beyond that.
fn agent_ns() -> u64 {
    sys::process_cpu_ns() + aside::cpu_ns() + sys::waited_ns() + contain::unwaited_ns()
}

/// Ticks of all CPUs: work of any kind, and what of it was for interrupts. Guests are in user and nice already.
fn machine(stat: &str) -> Option<(u64, u64)> {
    let mut ticks = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().map(|word| word.parse::<u64>().ok());
    let mut next = || ticks.next().flatten();
    let (user, nice, system, _idle, _iowait, irq, softirq) = (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
    let interrupts = irq.checked_add(softirq)?;
    Some(([user, nice, system].into_iter().try_fold(interrupts, u64::checked_add)?, interrupts))
}

/// All processes below a `/proc`; one that ends meanwhile isn't there. `None` = too many.
fn processes(proc: &Path) -> Option<HashMap<u32, Process>> {
    let mut found = HashMap::new();
    // The kernel gives all of it at once: 52 numbers and a short name.
    let mut text = [0; 2048];
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let read = fs::File::open(entry.path().join("stat")).and_then(|mut file| file.read(&mut text));
        if let Some(process) = read.ok().and_then(|n| process(&text[..n])) {
            found.insert(pid, process);
        }
        if found.len() > MOST_PROCESSES {
            return None;
        }
    }
    Some(found)
}

/// `/proc/<pid>/stat`: `pid (name) state ppid …`. The name may hold anything, brackets too.
fn process(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|&b| b == b'(')?;
    let close = stat.iter().rposition(|&b| b == b')')?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    let fields: Vec<&str> = std::str::from_utf8(&stat[close + 1..]).ok()?.split_ascii_whitespace().collect();
    // Numbered as in proc_pid_stat(5), from 3 on.
    let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    Some(Process { started: field(22)?, ticks: field(14)?.checked_add(field(15)?)?, is_kernel_thread: field(9)? & KERNEL_THREAD != 0, name })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn stat(pid: u32, name: &str, flags: u64, ticks: u64, started: u64) -> String {
        format!("{pid} ({name}) S 1 1 1 0 -1 {flags} 5 0 0 0 {ticks} 0 7 7 20 0 1 0 {started} 1000 10\n")
    }

    /// A census of a machine with these ticks of work and these processes: pid, name, flags, ticks, start.
    fn census(second: u64, busy: u64, processes: &[(u32, &str, u64, u64, u64)]) -> Census {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        fs::create_dir_all(proc.join("self")).unwrap();
        fs::write(proc.join("stat"), format!("cpu  {busy} 0 0 900 50 10 5 0 0 0\ncpu0 1\n")).unwrap();
        for &(pid, name, flags, ticks, started) in processes {
            fs::create_dir(proc.join(pid.to_string())).unwrap();
            fs::write(proc.join(format!("{pid}/stat")), stat(pid, name, flags, ticks, started)).unwrap();
        }
        Census { monotonic_ns: second * 1_000_000_000, agent_ns: second * 250_000_000, ..Census::take(dir.path()).unwrap() }
    }

    fn cores(time: &CpuTime) -> Vec<(&str, u32, f64)> {
        time.others.iter().map(|other| (other.name.as_str(), other.processes, time.cores(other.cpu_ns))).collect()
    }

    #[test]
    fn whose_time_it_was_is_told_by_name() {
        let hz = sys::ticks_per_s();
        let before =
            census(10, 100 * hz, &[(2, "kthreadd", KERNEL_THREAD, 0, 0), (7, "cron", 64, 5, 3), (9, "cc1plus", 0, 9 * hz, 40), (8, "old", 0, 0, 1)]);
        let after = census(
            20,
            120 * hz,
            &[
                (2, "kthreadd", KERNEL_THREAD, hz, 0),
                (7, "cron", 64, 5, 3),
                // The pid of another that has ended.
                (9, "cc1plus", 0, 4 * hz, 2000),
                (11, "cc1plus", 0, 2 * hz, 2001),
                (12, "odd ) name (", 0, hz, 2002),
                (13, "a", 0, 1, 2003),
                (14, "b", 0, 2, 2004),
                (std::process::id(), "us", 0, 3 * hz, 5),
            ],
        );
        let time = after.since(&before).unwrap();
        assert_eq!(cores(&time), [("cc1plus", 2, 0.6), ("odd ) name (", 1, 0.1), ("b", 1, 2.0 / hz as f64 / 10.0)]);
        assert_eq!(time.cores(time.others_ns), 0.7 + 3.0 / hz as f64 / 10.0, "beyond the list, too");
        assert_eq!((time.kernel_cores(), time.cores(time.agent_ns)), (Some(0.1), 0.25));
        assert!((time.competing_cores() - (2.0 - 0.1 - 0.25)).abs() < 1e-9);
        assert!(before.since(&after).is_none() && before.since(&before).is_none());
    }

    #[test]
    fn kernel_threads_that_cant_be_seen_are_unknown_and_not_zero() {
        let (before, after) = (census(0, 0, &[(1, "sh", 0, 0, 0)]), census(10, 0, &[(1, "sh", 0, 0, 0)]));
        assert_eq!(after.since(&before).unwrap().kernel_threads_ns, None);
    }

    #[test]
    fn what_isnt_a_process_is_no_process() {
        let huge = format!("1 (x) S 1 1 1 0 -1 0 5 0 0 0 {} 1 7 7 20 0 1 0 3", u64::MAX);
        for text in [&huge, "", "1 (", "1 )(", "1 (x) S", "1 (x) S 1 1 1 0 -1 x 5 0 0 0 1 0 7 7 20 0 1 0 3"] {
            assert!(process(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(process(b"1 (\xff\x1b[2J) R 1 1 1 0 -1 0 5 0 0 0 1 0 7 7 20 0 1 0 3 1").unwrap().name, "\u{fffd}\u{1b}[2J");
    }

    #[test]
    fn this_machine_can_be_counted() {
        let census = Census::take(Path::new("/")).unwrap();
        assert!(census.busy_ticks > 0 && census.processes.unwrap().contains_key(&std::process::id()));
    }
}
