//! The columns of telemetry: what the sampler reads, under which name and unit, and what to know about it.
//!
//! The agent names its columns by this table, the controller prints it.

use crate::unit::Unit;

/// What is known of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnEntry {
    /// As in a record; ends with the suffix of its unit.
    pub name: &'static str,
    pub unit: Unit,
    pub kind: ColumnKind,
    /// Files that it is read from, as people name them. The record has the path that was read.
    pub source: &'static str,
    /// What it is, one sentence.
    pub is: &'static str,
    /// When it starts again from below; of a gauge `-`.
    pub wraps: &'static str,
    /// What it doesn't say, or says wrongly.
    pub defects: &'static str,
}

/// How a value is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Grows from the machine's (or the group's) beginning; only differences mean something.
    Counter,
    /// The state at that moment.
    Gauge,
}

impl ColumnKind {
    /// As printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ColumnKind::Counter => "counter",
            ColumnKind::Gauge => "gauge",
        }
    }
}

const NEVER: &str = "never: 64 bits";
const AT_32_BITS: &str = "at 2³² on a 32-bit kernel, else never";
const GAUGE: &str = "-";
const TICKS: &str = "Steps of whole ticks, 10 ms as a rule; of all CPUs of the machine, also inside a container";
const MACHINE: &str = "Of the machine, also inside a container";
const PSI: &str = "Absent before Linux 4.20, without `CONFIG_PSI`, and where it has to be switched on with `psi=1`";

crate::table! {
    /// One column of telemetry.
    ColumnName of ColumnEntry {
        CpuBusy {
            name: "cpu_busy_s",
            unit: Unit::Seconds,
            kind: ColumnKind::Counter,
            source: "/proc/stat",
            is: "CPU time spent working since boot: user, nice, system, irq, softirq; guests are in user already",
            wraps: NEVER,
            defects: TICKS,
        }
        CpuIdle {
            name: "cpu_idle_s",
            unit: Unit::Seconds,
            kind: ColumnKind::Counter,
            source: "/proc/stat",
            is: "CPU time without work since boot: idle and iowait",
            wraps: NEVER,
            defects: "As `cpu_busy_s`; iowait may step back, and this with it",
        }
        CpuSteal {
            name: "cpu_steal_s",
            unit: Unit::Seconds,
            kind: ColumnKind::Counter,
            source: "/proc/stat",
            is: "Time since boot for which a virtual CPU was ready and its host ran something else",
            wraps: NEVER,
            defects: "Stays 0 under a hypervisor that doesn't report it",
        }
        ContextSwitches {
            name: "context_switches_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "/proc/stat",
            is: "Context switches since boot, all CPUs",
            wraps: NEVER,
            defects: MACHINE,
        }
        Interrupts {
            name: "interrupts_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "/proc/stat",
            is: "Interrupts served since boot, all CPUs",
            wraps: "at 2³² per CPU on a 32-bit kernel, else never",
            defects: MACHINE,
        }
        ProcsRunning {
            name: "procs_running_count",
            unit: Unit::Count,
            kind: ColumnKind::Gauge,
            source: "/proc/stat",
            is: "Threads that run or could run at this moment",
            wraps: GAUGE,
            defects: "The sampler's own thread is one of them; of the machine, also inside a container",
        }
        Load {
            name: "load_1min",
            unit: Unit::One,
            kind: ColumnKind::Gauge,
            source: "/proc/loadavg",
            is: "Load average over about a minute: threads that run, could run or wait uninterruptibly",
            wraps: GAUGE,
            defects: "Moves every 5 s only and remembers what was before the run; waiting for a disk counts as load",
        }
        MemAvailable {
            name: "mem_available_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "/proc/meminfo",
            is: "Memory that could be had without swapping: `MemAvailable`",
            wraps: GAUGE,
            defects: "The kernel's estimate; of the machine, whatever a cgroup allows",
        }
        MemFree {
            name: "mem_free_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "/proc/meminfo",
            is: "Memory that holds nothing: `MemFree`",
            wraps: GAUGE,
            defects: "Small on a machine that has read many files; `mem_available_bytes` says what can be had",
        }
        Cached {
            name: "cached_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "/proc/meminfo",
            is: "Contents of files in memory: `Cached`",
            wraps: GAUGE,
            defects: "Shared memory and tmpfs are in it, which can't be dropped",
        }
        Dirty {
            name: "dirty_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "/proc/meminfo",
            is: "Contents of files that wait to be written: `Dirty`",
            wraps: GAUGE,
            defects: "What is being written at this moment (`Writeback`) is not in it",
        }
        SwapUsed {
            name: "swap_used_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "/proc/meminfo",
            is: "Swap in use: `SwapTotal` − `SwapFree`",
            wraps: GAUGE,
            defects: "Pages that are in memory again keep their place in it; zram counts by what went in, not by what it takes",
        }
        SwapIn {
            name: "swap_in_pages_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "/proc/vmstat",
            is: "Pages read from swap since boot: `pswpin`",
            wraps: AT_32_BITS,
            defects: "Pages, whose size differs between kernels; zram counts as swap",
        }
        SwapOut {
            name: "swap_out_pages_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "/proc/vmstat",
            is: "Pages written to swap since boot: `pswpout`",
            wraps: AT_32_BITS,
            defects: "As `swap_in_pages_count`",
        }
        MajorFaults {
            name: "major_faults_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "/proc/vmstat",
            is: "Page faults since boot that had to wait for a disk: `pgmajfault`",
            wraps: AT_32_BITS,
            defects: "Of all processes; those of the run alone are in `context.usage`",
        }
        OomKills {
            name: "oom_kills_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "/proc/vmstat",
            is: "Processes killed since boot for want of memory, the machine's or a cgroup's: `oom_kill`",
            wraps: AT_32_BITS,
            defects: "Absent before Linux 4.13; whose process it was is not told",
        }
        PsiCpuSome {
            name: "psi_cpu_some_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "/proc/pressure/cpu",
            is: "Time since boot in which some task waited for a CPU",
            wraps: NEVER,
            defects: PSI,
        }
        PsiCpuFull {
            name: "psi_cpu_full_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "/proc/pressure/cpu",
            is: "Of the machine as a whole 0 by definition: somebody always has the CPU",
            wraps: NEVER,
            defects: "Absent before Linux 5.13; else as `psi_cpu_some_us`",
        }
        PsiMemorySome {
            name: "psi_memory_some_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "/proc/pressure/memory",
            is: "Time since boot in which some task waited for memory",
            wraps: NEVER,
            defects: PSI,
        }
        PsiMemoryFull {
            name: "psi_memory_full_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "/proc/pressure/memory",
            is: "Time since boot in which every task that had work waited for memory",
            wraps: NEVER,
            defects: PSI,
        }
        PsiIoSome {
            name: "psi_io_some_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "/proc/pressure/io",
            is: "Time since boot in which some task waited for a disk",
            wraps: NEVER,
            defects: PSI,
        }
        PsiIoFull {
            name: "psi_io_full_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "/proc/pressure/io",
            is: "Time since boot in which every task that had work waited for a disk",
            wraps: NEVER,
            defects: PSI,
        }
        CgroupMemory {
            name: "cgroup_memory_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "memory.current (v1: memory.usage_in_bytes)",
            is: "Memory charged to the keeper's own cgroup",
            wraps: GAUGE,
            defects: "Contents of files that the group read first are in it; v1 is inexact by what each CPU holds back",
        }
        CgroupThrottled {
            name: "cgroup_throttled_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "cpu.stat",
            is: "Periods in which the CPU quota held the keeper's own cgroup back",
            wraps: "at 2³¹ periods, 6.8 years at the usual 100 ms",
            defects: "v2: absent in the root group and without the cpu controller; what quotas further up hold back is not in it",
        }
        CgroupThrottledTime {
            name: "cgroup_throttled_us",
            unit: Unit::Microseconds,
            kind: ColumnKind::Counter,
            source: "cpu.stat",
            is: "Time for which the CPU quota held the keeper's own cgroup back, summed over its CPUs",
            wraps: NEVER,
            defects: "As `cgroup_throttled_count`; v1 counts ns, which are divided by 1000",
        }
        Temperature {
            name: "temperature_c",
            unit: Unit::DegreesCelsius,
            kind: ColumnKind::Gauge,
            source: "thermal_zone*/temp, hwmon*/temp*_input, nvml:temperature, nvidia-smi:temperature.gpu",
            is: "Temperature of one sensor, by the name that its driver gives it",
            wraps: GAUGE,
            defects: "Where a sensor sits is the driver's affair; a zone that is switched off reads far below zero and is absent",
        }
        CpuClock {
            name: "cpu_clock_khz",
            unit: Unit::Kilohertz,
            kind: ColumnKind::Gauge,
            source: "cpufreq/policy*/scaling_cur_freq",
            is: "Clock of the CPUs of one policy",
            wraps: GAUGE,
            defects: "What was last asked for or what was measured since the last read, by driver; reading it may wake a CPU",
        }
        DeviceClock {
            name: "device_clock_hz",
            unit: Unit::Hertz,
            kind: ColumnKind::Gauge,
            source: "devfreq/*/cur_freq, nvml:*_clock, nvidia-smi:clocks.gr, nvidia-smi:clocks.mem",
            is: "Clock of a GPU, an NPU or a memory controller",
            wraps: GAUGE,
            defects: "0 while it is off; not every driver keeps it current",
        }
        ThrottleBits {
            name: "throttle_bits",
            unit: Unit::One,
            kind: ColumnKind::Gauge,
            source: "soc:firmware/get_throttled",
            is: "The Raspberry Pi's firmware bits: 0 under-voltage, 1 clock capped, 2 throttled, 3 soft temperature limit, now; 16 to 19 the same since boot",
            wraps: GAUGE,
            defects: "The upper ones say nothing of when: only a bit that appears during a run is of that run",
        }
        Throttles {
            name: "throttles_count",
            unit: Unit::Count,
            kind: ColumnKind::Counter,
            source: "cpu*/thermal_throttle/*_throttle_count",
            is: "Times since boot that a core or package of an x86 CPU was slowed down for its temperature",
            wraps: NEVER,
            defects: "Of the first CPU of each package; how long it lasted is not told; a power limit is no throttle in this sense",
        }
        CoolingState {
            name: "cooling_state",
            unit: Unit::One,
            kind: ColumnKind::Gauge,
            source: "cooling_device*/cur_state",
            is: "How far a cooling device is in use, from 0: a fan's speed, or how much a clock is held back",
            wraps: GAUGE,
            defects: "Steps are the driver's; a fan is not throttling",
        }
        Energy {
            name: "sensor_energy_j",
            unit: Unit::Joules,
            kind: ColumnKind::Counter,
            source: "intel-rapl:*/energy_uj, hwmon*/energy*_input, nvml:total_energy",
            is: "Energy that one package, rail or GPU has taken",
            wraps: "RAPL: at `max_energy_range_uj`, after minutes to hours; hwmon: by driver; NVML: when the driver is loaded anew",
            defects: "RAPL is a model on some CPUs and a measurement on others, updated about every millisecond",
        }
        Power {
            name: "sensor_power_w",
            unit: Unit::Watts,
            kind: ColumnKind::Gauge,
            source: "hwmon*/power*, in*_input × curr*_input, iio in_power*_input, power_supply power_now, vcgencmd pmic_read_adc, nvml:power, nvidia-smi:power.draw",
            is: "Power through one rail, battery or GPU at that moment",
            wraps: GAUGE,
            defects: "An average over the monitor's own period, which is rarely told (NVML: a second on some GPUs); a battery's sign is the driver's",
        }
        Mains {
            name: "mains_online",
            unit: Unit::One,
            kind: ColumnKind::Gauge,
            source: "power_supply/*/online",
            is: "1 (or 2) while that supply feeds the machine",
            wraps: GAUGE,
            defects: "USB-C ports count as supplies; a weak one is told by nothing",
        }
        GpuBusy {
            name: "gpu_busy_pct",
            unit: Unit::Percent,
            kind: ColumnKind::Gauge,
            source: "nvml:busy, nvidia-smi:utilization.gpu, card*/device/gpu_busy_percent, devfreq/*/load, kgsl/*/gpu_busy_percentage, gpu.0/load",
            is: "Share of the driver's last sample period in which a GPU or an NPU had anything to do",
            wraps: GAUGE,
            defects: "Says nothing of how much of it worked; the period is 1/6 s to 1 s with NVIDIA, and the driver's elsewhere",
        }
        GpuMemory {
            name: "gpu_memory_used_bytes",
            unit: Unit::Bytes,
            kind: ColumnKind::Gauge,
            source: "nvml:memory_used, nvidia-smi:memory.used, card*/device/mem_info_vram_used",
            is: "Memory of a GPU that is in use, whoever uses it",
            wraps: GAUGE,
            defects: "What the driver keeps for itself is in it; a peak between two samples is not seen",
        }
        GpuReasons {
            name: "gpu_throttle_bits",
            unit: Unit::One,
            kind: ColumnKind::Gauge,
            source: "nvml:reasons, nvidia-smi:clocks_throttle_reasons.active",
            is: "Why an NVIDIA GPU's clock is not higher: bit 0 idle, 1 clock setting, 2 power limit, 3 hardware slowdown, 4 sync boost, 5 and 6 \
                 temperature (software, hardware), 7 power brake, 8 display clock",
            wraps: GAUGE,
            defects: "Of that moment: what came and went between two samples is not in it",
        }
        GpuProcesses {
            name: "gpu_processes_count",
            unit: Unit::Count,
            kind: ColumnKind::Gauge,
            source: "nvml:processes, nvidia-smi:compute-apps",
            is: "Processes that have a compute context on a GPU",
            wraps: GAUGE,
            defects: "Idle ones too; none where the driver hides them, as in some containers",
        }
    }
}

impl ColumnName {
    /// Of an energy counter or a power meter: read in those runs only that ask for it, because a read may slow what is timed.
    #[must_use]
    pub const fn is_instrument(self) -> bool {
        matches!(self, ColumnName::Energy | ColumnName::Power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_column_has_a_name_of_its_own_that_ends_with_its_unit() {
        let names: BTreeSet<&str> = ColumnName::ALL.iter().map(|column| column.entry().name).collect();
        assert_eq!(names.len(), ColumnName::ALL.len());
        for entry in ColumnName::ALL.iter().map(|column| column.entry()) {
            let expected = (entry.unit != Unit::One).then_some(entry.unit);
            assert_eq!(Unit::of_name(entry.name), expected, "{}", entry.name);
        }
    }

    #[test]
    fn every_column_says_what_it_is_and_a_counter_when_it_wraps() {
        for entry in ColumnName::ALL.iter().map(|column| column.entry()) {
            assert!(!entry.is.is_empty() && !entry.source.is_empty() && !entry.defects.is_empty(), "{}", entry.name);
            assert_eq!(entry.wraps == GAUGE, entry.kind == ColumnKind::Gauge, "{}", entry.name);
        }
    }
}
