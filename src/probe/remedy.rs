//! What would mend an absence: something that can be pasted, or the one thing to do. One table, by what is absent and why.

use isotherm_wire::inspect::Machine;
use isotherm_wire::probe::{Absent, Capability, Cause, Family};

/// A remedy where there is one: for hardware that isn't there, there is none.
#[must_use]
pub fn remedy(capability: &Capability, machine: &Machine) -> Option<String> {
    let Absent { cause, .. } = capability.absent()?;
    let id = capability.id.as_str();
    let text = match (capability.family, cause) {
        (_, Cause::NoAnswer) if capability.family == Family::Inference || capability.family == Family::Gpu => {
            format!("start `{}` by hand and see what it waits for", capability.source)
        }
        (_, Cause::NoAnswer) => format!("timeout 2 cat {}; a driver that hangs is reported in `dmesg`", capability.source),
        (Family::Energy, Cause::NotPermitted) if id.starts_with("energy.rapl") => {
            // Of package zones as well as of their parts: they are read by the same user.
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj (until the next boot)".into()
        }
        (Family::Energy, Cause::NotThere) if id == "energy.rapl" && is_x86(machine) => {
            "sudo modprobe intel_rapl_msr (not in a virtual machine)".into()
        }
        (Family::Energy, Cause::NotThere) if id == "energy.pmic" => "sudo apt install libraspberrypi-bin".into(),
        (Family::Energy, Cause::Failed | Cause::NotPermitted) if id == "energy.pmic" => "sudo usermod -aG video $USER, and log in again".into(),
        (Family::Pressure, Cause::NotThere) => "boot with psi=1 (kernel built with CONFIG_PSI)".into(),
        (Family::Pressure, Cause::Failed) => "boot with psi=1".into(),
        (Family::Clock, Cause::NotThere) if !is_virtual(machine) => "load a cpufreq driver, e.g. sudo modprobe cpufreq-dt".into(),
        (Family::Clock, Cause::NotPermitted) => format!("sudo chmod a+r {}", capability.source),
        (Family::Gpu, Cause::Failed) if id == "gpu.nvidia.smi" => "load the driver: sudo modprobe nvidia".into(),
        (Family::Gpu, Cause::NotThere) if id == "gpu.nvidia.devices" => "load the driver: sudo modprobe nvidia".into(),
        (Family::Gpu, Cause::NotThere) if id.starts_with("gpu.nvidia.") => "install the NVIDIA driver's utilities of the same version".into(),
        (Family::Inference, Cause::NotThere) if id == "inference.onnxruntime.env" => "unset ORT_DYLIB_PATH, or set it to the library".into(),
        (Family::Inference, Cause::NotThere) if id.starts_with("inference.onnxruntime") => {
            "pip install onnxruntime, or set ORT_DYLIB_PATH to the library".into()
        }
        (Family::Inference, Cause::NotThere) => "build llama.cpp, and put its build/bin on PATH".into(),
        (Family::Inference, Cause::Failed) => format!("{} --version (an executable of another machine, or a library it misses?)", capability.source),
        (Family::Permission, Cause::NotPermitted) => match id {
            "permission.pid_namespace" | "permission.own_cgroup" => "run isotherm as root; without it runs are contained as a subreaper".into(),
            _ => "run isotherm as root".into(),
        },
        (Family::Cgroup, Cause::NotThere) => "sudo mount -t cgroup2 none /sys/fs/cgroup".into(),
        (_, Cause::NotPermitted) if !capability.source.is_empty() => format!("sudo chmod a+r {}", capability.source),
        _ => return None,
    };
    Some(text)
}

fn is_x86(machine: &Machine) -> bool {
    machine.arch == "x86_64" || machine.cpu_features.iter().any(|feature| feature == "sse4_2")
}

/// Told by the vendor that the firmware names; a guess is good enough to leave out a remedy.
fn is_virtual(machine: &Machine) -> bool {
    const VENDORS: [&str; 7] = ["QEMU", "VMware", "Xen", "innotek", "Microsoft Corporation Virtual", "Amazon EC2", "Google Compute"];
    machine.board_model.as_ref().is_none_or(|model| VENDORS.iter().any(|vendor| model.starts_with(vendor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_wire::probe::Found;

    fn of(family: Family, id: &str, cause: Cause) -> Option<String> {
        let found = Found::Absent(Absent { cause, reason: "why".into() });
        let source = "/sys/x".to_owned();
        let capability = Capability { id: id.into(), family, name: "n".into(), unit: None, source, recorded: false, found };
        remedy(&capability, &Machine { arch: "x86_64".into(), ..Machine::default() })
    }

    #[test]
    fn an_unreadable_counter_has_a_line_to_paste_and_missing_hardware_none() {
        let unreadable = of(Family::Energy, "energy.rapl.package-0", Cause::NotPermitted);
        assert!(unreadable.is_some_and(|line| line.starts_with("sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj")));
        assert_eq!(of(Family::Temperature, "temperature.thermal", Cause::NotThere), None);
        assert_eq!(of(Family::Temperature, "temperature.thermal_zone0", Cause::NotPermitted).as_deref(), Some("sudo chmod a+r /sys/x"));
        assert!(of(Family::Temperature, "temperature.thermal_zone0", Cause::NoAnswer).is_some_and(|line| line.contains("cat /sys/x")));
    }
}
