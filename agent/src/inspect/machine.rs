//! Identity and make of the machine, from `/proc` and `/sys` under a root. Every source may be absent alone.

use super::{cgroup, machine_key, text};
use crate::sys;
use isotherm_wire::inspect::{ContainmentCapability, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Features of `/proc/cpuinfo` that select inference kernels.
const KERNEL_FEATURES: [&str; 22] = [
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
    "neon",
    "vfpv4",
    "v",
];

/// Asked once: it takes reading a library of megabytes, and a new one needs a restart of everything anyway.
static LIBC: OnceLock<Option<String>> = OnceLock::new();

/// Read everything. `containment` was found by trying it when the keeper started.
pub fn inspect(root: &Path, containment: &ContainmentCapability) -> Machine {
    let name = sys::uname();
    let cpuinfo = text(root, "proc/cpuinfo").unwrap_or_default();
    let meminfo = text(root, "proc/meminfo").unwrap_or_default();
    let cpus = text(root, "sys/devices/system/cpu/present").as_deref().and_then(sys::cpu_count);
    Machine {
        machine_key: machine_key(),
        boot_id: boot_id(root),
        hostname: name.hostname,
        board_model: board_model(root),
        cpu_model: cpuinfo_field(&cpuinfo, &["model name", "Model", "uarch", "Hardware"]).or_else(|| cpu_parts(&cpuinfo)),
        cpu_features: features(&cpuinfo),
        arch: name.machine,
        logical_cpus: cpus.unwrap_or_else(|| cpuinfo.lines().filter(|l| l.starts_with("processor")).count() as u32),
        online_cpus: text(root, "sys/devices/system/cpu/online").as_deref().and_then(sys::cpu_count),
        physical_cores: physical_cores(root),
        numa_nodes: text(root, "sys/devices/system/node/online").as_deref().and_then(sys::cpu_count),
        smt_active: smt_active(root),
        ram_bytes: kib(&meminfo, "MemTotal"),
        swap_bytes: kib(&meminfo, "SwapTotal"),
        os: text(root, "etc/os-release").as_deref().and_then(|t| shell_value(t, "PRETTY_NAME")),
        kernel: name.release,
        kernel_version: name.version,
        kernel_cmdline: text(root, "proc/cmdline"),
        libc: LIBC.get_or_init(|| libc_version(root)).clone(),
        microcode: cpuinfo_field(&cpuinfo, &["microcode"]),
        mitigations: mitigations(root),
        transparent_hugepages: transparent_hugepages(root),
        governor: governor(root),
        uid: sys::uid(),
        // Files don't tell; who asks drivers does.
        gpus: Vec::new(),
        limits: cgroup::limits(root),
        containment: containment.clone(),
    }
}

/// The same machine later in the same boot: what can have changed since is read again.
pub fn again(root: &Path, known: &Machine) -> Machine {
    let online_cpus = text(root, "sys/devices/system/cpu/online").as_deref().and_then(sys::cpu_count);
    let meminfo = text(root, "proc/meminfo").unwrap_or_default();
    Machine {
        physical_cores: if online_cpus == known.online_cpus { known.physical_cores } else { physical_cores(root) },
        online_cpus,
        smt_active: smt_active(root),
        ram_bytes: kib(&meminfo, "MemTotal"),
        swap_bytes: kib(&meminfo, "SwapTotal"),
        transparent_hugepages: transparent_hugepages(root),
        governor: governor(root),
        limits: cgroup::limits(root),
        ..known.clone()
    }
}

fn smt_active(root: &Path) -> Option<bool> {
    text(root, "sys/devices/system/cpu/smt/active").map(|t| t == "1")
}

fn transparent_hugepages(root: &Path) -> Option<String> {
    text(root, "sys/kernel/mm/transparent_hugepage/enabled").as_deref().and_then(bracketed)
}

/// cpufreq governor of CPU 0.
pub fn governor(root: &Path) -> Option<String> {
    text(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
}

/// Which boot of the machine this is; `None` where the kernel doesn't say.
pub fn boot_id(root: &Path) -> Option<String> {
    text(root, "proc/sys/kernel/random/boot_id")
}

fn board_model(root: &Path) -> Option<String> {
    if let Some(model) = text(root, "sys/firmware/devicetree/base/model") {
        return Some(model);
    }
    let parts = ["sys_vendor", "product_name"].map(|f| text(root, &format!("sys/class/dmi/id/{f}")));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn cpuinfo_field(cpuinfo: &str, names: &[&str]) -> Option<String> {
    let fields: Vec<(&str, &str)> = cpuinfo.lines().filter_map(|l| l.split_once(':')).map(|(k, v)| (k.trim(), v.trim())).collect();
    names.iter().find_map(|name| fields.iter().find(|(k, v)| k == name && !v.is_empty()).map(|(_, v)| (*v).to_owned()))
}

/// On Arm, where the kernel gives no name: the different `implementer/part` pairs.
fn cpu_parts(cpuinfo: &str) -> Option<String> {
    let mut parts = BTreeSet::new();
    let mut implementer = "";
    for (key, value) in cpuinfo.lines().filter_map(|l| l.split_once(':')) {
        match key.trim() {
            "CPU implementer" => implementer = value.trim(),
            "CPU part" => _ = parts.insert(format!("implementer {implementer} part {}", value.trim())),
            _ => {}
        }
    }
    (!parts.is_empty()).then(|| parts.into_iter().collect::<Vec<_>>().join(" + "))
}

fn features(cpuinfo: &str) -> Vec<String> {
    let list = cpuinfo_field(cpuinfo, &["flags", "Features"]).unwrap_or_default();
    let isa = cpuinfo_field(cpuinfo, &["isa"]).unwrap_or_default();
    let there: BTreeSet<&str> = list.split(' ').chain(riscv_extensions(&isa)).collect();
    let mut found: Vec<String> = KERNEL_FEATURES.iter().filter(|f| there.contains(**f)).map(|f| (*f).to_owned()).collect();
    found.sort();
    found
}

/// Extensions in RISC-V's `rv64imafdcv_zicsr_…`: single letters up to the first underscore, then names.
fn riscv_extensions(isa: &str) -> impl Iterator<Item = &str> {
    let isa = isa.strip_prefix("rv64").or_else(|| isa.strip_prefix("rv32")).unwrap_or_default();
    let (letters, names) = isa.split_once('_').unwrap_or((isa, ""));
    letters.split("").chain(names.split('_'))
}

fn physical_cores(root: &Path) -> Option<u32> {
    let mut cores = BTreeSet::new();
    for entry in fs::read_dir(root.join("sys/devices/system/cpu")).ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok()) {
            let topology = entry.path().join("topology");
            if let (Some(package), Some(core)) = (text(&topology, "physical_package_id"), text(&topology, "core_id")) {
                cores.insert((package, core));
            }
        }
    }
    (!cores.is_empty()).then_some(cores.len() as u32)
}

fn mitigations(root: &Path) -> BTreeMap<String, String> {
    let dir = root.join("sys/devices/system/cpu/vulnerabilities");
    let names = fs::read_dir(&dir).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| text(&dir, &name).map(|state| (name, state))).collect()
}

/// Value of `NAME kB` in `/proc/meminfo`, bytes.
pub fn kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|l| l.strip_prefix(name).is_some_and(|r| r.starts_with(':')))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

fn shell_value(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

/// `always [madvise] never` → `madvise`.
fn bracketed(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Version of the system's C library, from the name its loader or library file carries: the agent itself is static.
fn libc_version(root: &Path) -> Option<String> {
    const DIRS: [&str; 8] =
        ["lib", "lib64", "usr/lib", "usr/lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib/arm-linux-gnueabihf", "lib/riscv64-linux-gnu"];
    for dir in DIRS {
        for entry in fs::read_dir(root.join(dir)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("ld-musl-") {
                return Some("musl".into());
            }
            if name == "libc.so.6" {
                let bytes = fs::read(entry.path()).ok()?;
                let banner = b"GNU C Library ";
                let at = bytes.windows(banner.len()).position(|w| w == banner)?;
                let line: Vec<u8> = bytes[at..].iter().copied().take_while(|&b| b != b'\n' && b != 0).take(120).collect();
                return Some(String::from_utf8_lossy(&line).trim_end_matches('.').to_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn fields_are_read_as_the_kernel_writes_them() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\nflags\t\t: fpu avx2 fma sse4_2\n";
        assert_eq!(cpuinfo_field(cpuinfo, &["model name"]).as_deref(), Some("A CPU @ 3 GHz"));
        assert_eq!(features(cpuinfo), ["avx2", "fma", "sse4_2"]);
        assert_eq!(features("isa\t\t: rv64imafdcv_zicsr_zifencei\nuarch\t\t: sifive,u74-mc\n"), ["v"]);
        assert!(features("isa\t\t: rv64imafdc_zicsr_zve64v\n").is_empty());
        assert_eq!(features("Features\t: half thumb neon vfpv4 idiva\n"), ["neon", "vfpv4"]);
        assert_eq!(cpu_parts("CPU implementer\t: 0x41\nCPU part\t: 0xd0b\n").as_deref(), Some("implementer 0x41 part 0xd0b"));
        assert_eq!(kib("MemTotal:  10 kB\nMemFree: 3 kB\n", "MemFree"), Some(3072));
        assert_eq!(kib("MemTotal:  10 kB\n", "Mem"), None);
        assert_eq!(bracketed("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(shell_value("NAME=x\nPRETTY_NAME=\"Debian 12\"\n", "PRETTY_NAME").as_deref(), Some("Debian 12"));
    }

    #[test]
    fn a_machine_that_is_looked_at_again_is_what_it_is_now() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let cpu = "sys/devices/system/cpu";
        put("proc/cpuinfo", "model name\t: A CPU\n");
        put("proc/meminfo", "MemTotal:  10 kB\nSwapTotal: 4 kB\n");
        put(&format!("{cpu}/online"), "0-1\n");
        put(&format!("{cpu}/vulnerabilities/meltdown"), "Not affected\n");
        for core in 0..2 {
            put(&format!("{cpu}/cpu{core}/topology/physical_package_id"), "0\n");
            put(&format!("{cpu}/cpu{core}/topology/core_id"), &format!("{core}\n"));
        }
        let known = inspect(root.path(), &ContainmentCapability::default());
        assert_eq!((known.physical_cores, known.mitigations["meltdown"].as_str()), (Some(2), "Not affected"));
        assert_eq!(again(root.path(), &known), known);
        put(&format!("{cpu}/online"), "0\n");
        put(&format!("{cpu}/smt/active"), "1\n");
        put(&format!("{cpu}/cpu0/cpufreq/scaling_governor"), "powersave\n");
        put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        put("proc/meminfo", "MemTotal:  10 kB\nSwapTotal: 0 kB\n");
        fs::remove_dir_all(root.path().join(cpu).join("cpu1")).unwrap();
        assert_eq!(again(root.path(), &known), inspect(root.path(), &ContainmentCapability::default()));
    }

    #[test]
    fn a_machine_with_nothing_to_read_has_nothing_but_its_name() {
        let machine = inspect(Path::new("/nonexistent"), &ContainmentCapability::default());
        assert_eq!((machine.cpu_model, machine.ram_bytes, machine.board_model), (None, None, None));
        assert!(!machine.kernel.is_empty());
    }
}
