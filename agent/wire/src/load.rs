//! Whose CPU time it was: what a machine's CPUs did between two moments.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// CPU time of a machine over a span, by whose it was. Of all CPUs together, so that a span of a second may hold many seconds of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// How long, on the clock of every duration.
    pub span_ns: u64,
    /// Everything that worked; of which …
    pub busy_ns: u64,
    /// … serving interrupts,
    pub interrupts_ns: u64,
    /// … kernel threads; `None` where they can't be seen, as in most containers,
    pub kernel_threads_ns: Option<u64>,
    /// … the agent and everything that it had started and waited for.
    pub agent_ns: u64,
    /// Processes of others that were there at the end, by name, the busiest first; at most [`MOST_NAMED`].
    pub others: Vec<ProcessTime>,
    /// What all of them used, also those beyond the list. The rest was used by processes that came and went, or can't be seen.
    pub others_ns: u64,
}

/// Processes of others that are named.
pub const MOST_NAMED: usize = 3;

/// CPU time of the processes of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTime {
    /// The kernel's name of it, `comm`: what the process calls itself, at most 64 bytes; what isn't UTF-8 is replaced.
    pub name: String,
    /// How many there were.
    pub processes: u32,
    /// Of all of them together.
    pub cpu_ns: u64,
}

/// What a machine was busy with right before a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreRun {
    pub cpu_time: CpuTime,
    /// `cpu`, `memory`, `io` → time of the span in which some task waited for it; without those that the kernel doesn't tell of.
    pub waited_us: BTreeMap<String, u64>,
}

impl CpuTime {
    /// Cores that others used on average: everything but the agent with its runs, interrupts, and kernel threads where they can be seen.
    /// Around 0 on a quiet machine, a little below it too, because the figures are counted in ticks.
    #[must_use]
    pub fn competing_cores(&self) -> f64 {
        let apart = self.interrupts_ns + self.kernel_threads_ns.unwrap_or(0) + self.agent_ns;
        self.cores(self.busy_ns) - self.cores(apart)
    }

    /// Cores that the kernel used for itself: its threads and interrupts.
    #[must_use]
    pub fn kernel_cores(&self) -> Option<f64> {
        Some(self.cores(self.kernel_threads_ns? + self.interrupts_ns))
    }

    /// CPU time as cores in use on average.
    #[must_use]
    pub fn cores(&self, cpu_ns: u64) -> f64 {
        cpu_ns as f64 / self.span_ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nobodys_else_competes() {
        let s = 1_000_000_000;
        let time = CpuTime {
            span_ns: 10 * s,
            busy_ns: 20 * s,
            interrupts_ns: s,
            kernel_threads_ns: Some(2 * s),
            agent_ns: 12 * s,
            others: Vec::new(),
            others_ns: 4 * s,
        };
        assert_eq!((time.competing_cores(), time.kernel_cores()), (0.5, Some(0.3)));
        let unseen = CpuTime { kernel_threads_ns: None, ..time };
        assert_eq!((unseen.competing_cores(), unseen.kernel_cores()), (0.7, None));
    }
}
