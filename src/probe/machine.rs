//! The machine in one line.

use isotherm_wire::inspect::Machine;

/// `AMD EPYC, 2 CPUs (2 online, quota none), 23.5 GiB, Linux 6.18.44, Debian GNU/Linux 12 (bookworm)`; what isn't known is left out.
#[must_use]
pub fn machine_line(machine: &Machine) -> String {
    let mut parts = Vec::new();
    parts.extend([&machine.cpu_model, &machine.board_model].into_iter().flatten().next().cloned());
    if parts.is_empty() && !machine.arch.is_empty() {
        parts.push(machine.arch.clone());
    }
    if machine.logical_cpus > 0 {
        let online = machine.online_cpus.map(|n| format!("{n} online"));
        let quota = match (machine.limits.quota_cpus, machine.limits.unknown.contains_key("quota_cpus")) {
            (Some(quota), _) => format!("quota {quota}"),
            (None, true) => "quota unknown".into(),
            (None, false) => "quota none".into(),
        };
        let more: Vec<String> = online.into_iter().chain([quota]).collect();
        let plural = if machine.logical_cpus == 1 { "CPU" } else { "CPUs" };
        parts.push(format!("{} {plural} ({})", machine.logical_cpus, more.join(", ")));
    }
    if let Some(bytes) = machine.ram_bytes {
        let limit = machine.limits.memory_bytes.map(|bytes| format!(" (limit {})", gib(bytes))).unwrap_or_default();
        parts.push(format!("{}{limit}", gib(bytes)));
    }
    if !machine.kernel.is_empty() {
        parts.push(format!("Linux {}", machine.kernel));
    }
    parts.extend(machine.os.clone());
    if parts.is_empty() { "a machine that says nothing of itself".into() } else { parts.join(", ") }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out_and_not_zero() {
        assert_eq!(machine_line(&Machine::default()), "a machine that says nothing of itself");
        let machine = Machine { arch: "aarch64".into(), logical_cpus: 4, ram_bytes: Some(8 << 30), ..Machine::default() };
        assert_eq!(machine_line(&machine), "aarch64, 4 CPUs (quota none), 8.0 GiB");
    }
}
