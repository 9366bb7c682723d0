//! What would mend an absence: something that can be pasted, or the one thing to do. One table, by what is absent and why.

use crate::shell;
use isotherm_wire::inspect::Machine;
use isotherm_wire::probe::{Absent, Capability, Cause, Family};

/// A remedy where there is one: for hardware that isn't there, there is none. A command, with what there is to say about it behind a `#`.
#[must_use]
pub fn remedy(capability: &Capability, machine: &Machine) -> Option<String> {
    let Absent { cause, reason } = capability.absent()?;
    let id = capability.id.as_str();
    let source = shell::word(&capability.source);
    let text = match (capability.family, cause) {
        (Family::Inference, Cause::NoAnswer | Cause::Failed) => format!("{source} --version   # what does it wait for, or miss?"),
        // Of one GPU's values: what a driver doesn't have can't be mended.
        (_, Cause::NoAnswer) if id.starts_with("gpu.GPU") || id == "gpu.nvidia.library" => {
            "nvidia-smi   # does it answer? dmesg names a driver that hangs".into()
        }
        (Family::Gpu, Cause::NoAnswer) if id == "gpu.nvidia.smi" => format!("{source}   # what does it wait for?"),
        (_, Cause::NoAnswer) => format!("timeout 2 cat {source}   # a driver that hangs is named by dmesg"),
        (Family::Energy, Cause::NotPermitted) if id.starts_with("energy.rapl") => {
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj   # until the next boot".into()
        }
        // The module's name is Intel's; it serves AMD as well.
        (Family::Energy, Cause::NotThere) if id == "energy.rapl" && is_x86(machine) && !is_virtual(machine) => "sudo modprobe intel_rapl_msr".into(),
        (Family::Energy, Cause::NotThere) if id == "energy.pmic" => "sudo apt install raspi-utils   # has vcgencmd".into(),
        (Family::Energy, Cause::Failed | Cause::NotPermitted) if id == "energy.pmic" && reason.to_lowercase().contains("permission") => {
            "sudo usermod -aG video $USER   # and log in again".into()
        }
        (Family::Pressure, Cause::NotThere | Cause::Failed) if machine.board_model.as_deref().is_some_and(|m| m.starts_with("Raspberry Pi")) => {
            "sudo sed -i '1s/$/ psi=1/' /boot/firmware/cmdline.txt   # and reboot".into()
        }
        (Family::Pressure, Cause::NotThere) => "add psi=1 to the kernel's command line (a kernel with CONFIG_PSI)".into(),
        (Family::Pressure, Cause::Failed) if reason.contains("not supported") => "add psi=1 to the kernel's command line".into(),
        (Family::Clock, Cause::NotThere) if !is_virtual(machine) => "sudo modprobe cpufreq-dt   # or the cpufreq driver of this processor".into(),
        (Family::Gpu, Cause::NotThere) if id == "gpu.nvidia.library" && reason.contains("Driver Not Loaded") => {
            "sudo modprobe nvidia   # is the driver installed?".into()
        }
        (Family::Gpu, Cause::NotThere) if id == "gpu.nvidia.library" => {
            "export ISOTHERM_NVML=/path/to/libnvidia-ml.so.1   # it comes with the driver; a container has to be given it (--gpus all)".into()
        }
        (Family::Gpu, Cause::NotTried) if id == "gpu.nvidia.library" => "build isotherm on a machine with glibc   # then it has the companion".into(),
        (Family::Gpu, Cause::NotPermitted) if id.ends_with(".engines") => "sudo usermod -aG render $USER   # and log in again".into(),
        (Family::Gpu, Cause::Failed) if id == "gpu.nvidia.smi" => "sudo modprobe nvidia   # is the driver loaded?".into(),
        (Family::Gpu, Cause::NotThere) if id == "gpu.nvidia.devices" => "sudo modprobe nvidia   # is the driver loaded?".into(),
        (Family::Inference, Cause::NotThere) if id == "inference.onnxruntime.env" => "unset ORT_DYLIB_PATH   # or set it to the library".into(),
        (Family::Inference, Cause::NotThere) if id.starts_with("inference.onnxruntime") => {
            "pip install onnxruntime   # or set ORT_DYLIB_PATH to the library".into()
        }
        (Family::Inference, Cause::NotThere) => "export PATH=$PATH:~/llama.cpp/build/bin   # once llama.cpp is built there".into(),
        (Family::Permission, Cause::NotPermitted) if ["permission.pid_namespace", "permission.own_cgroup"].contains(&id) => {
            "run isotherm as root; without it, runs are contained by a subreaper".into()
        }
        (Family::Permission, Cause::NotPermitted) => "run isotherm as root".into(),
        (Family::Cgroup, Cause::NotThere) if reason.starts_with("no cgroup") => "sudo mount -t cgroup2 none /sys/fs/cgroup".into(),
        (_, Cause::NotPermitted) if capability.source.starts_with('/') => format!("sudo chmod a+r {source}"),
        _ => return None,
    };
    Some(text)
}

fn is_x86(machine: &Machine) -> bool {
    machine.arch == "x86_64" || machine.cpu_features.iter().any(|feature| feature == "sse4_2")
}

/// By the vendor that the firmware names; where it names none, it is taken for a virtual machine, too. Leaves out remedies, nothing else.
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
    fn a_path_is_one_word_of_a_command() {
        assert_eq!(shell::word("/sys/class/powercap/intel-rapl:0/energy_uj"), "/sys/class/powercap/intel-rapl:0/energy_uj");
        assert_eq!(shell::word("/a b/$(c)'d"), "'/a b/$(c)'\\''d'");
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
