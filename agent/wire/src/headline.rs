//! The headline sensor: which of a machine's temperatures speaks for it.
//!
//! Takes names of sensors as telemetry has them, gives one of them, the same for the same names in any order. Agent and controller go by
//! it alike. Must not know a value.

/// Names of sensors of a CPU, or of the package it sits in, best first; `*` is any text. Letter case doesn't matter and `_` is `-`.
///
/// A zone that the CPU's own driver registers comes before one of a whole chip, and that before one of a single core. What sits
/// elsewhere, such as a board's `acpitz`, a disk or a battery, speaks for nothing that runs.
const RULE: [&str; 15] = [
    // Raspberry Pi (hwmon: `cpu_thermal`), Jetson Orin, Allwinner, Amlogic.
    "cpu-thermal",
    // Intel, as a zone and as hwmon.
    "x86-pkg-temp",
    "coretemp package id *",
    // AMD. `Tctl` is what its fan and its throttling go by; `Tdie` is there where the two differ.
    "k10temp tctl",
    "k10temp tdie",
    "zenpower tdie",
    // Jetson Xavier (`CPU-therm`), MediaTek.
    "cpu-therm",
    "mtktscpu",
    // Rockchip: of the chip, of its clusters.
    "package-thermal",
    "soc-thermal",
    "bigcore*-thermal",
    // NXP and others, numbered; Qualcomm: of clusters and cores.
    "soc*-thermal",
    "cpuss*-thermal",
    "cpu*-thermal",
    "cpu*-thermal-zone",
];

/// The headline sensor among these; `None` if none of them speaks for a CPU.
#[must_use]
pub fn sensor<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Of several that one pattern takes, the lowest number: `cpu2-thermal` before `cpu10-thermal`, and a name before its `#2`.
    names.into_iter().filter_map(|name| Some((rank(name)?, name.len(), name))).min().map(|(.., name)| name)
}

fn rank(name: &str) -> Option<usize> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    // The second of a name is told from the first by a number behind it.
    let plain = plain.rsplit_once(" #").filter(|(_, number)| number.bytes().all(|b| b.is_ascii_digit())).map_or(&*plain, |(first, _)| first);
    RULE.iter().position(|pattern| match pattern.split_once('*') {
        None => plain == *pattern,
        Some((front, end)) => plain.len() >= front.len() + end.len() && plain.starts_with(front) && plain.ends_with(end),
    })
}

#[cfg(test)]
mod tests {
    use super::sensor;

    #[test]
    fn the_cpu_speaks_for_a_machine_whatever_else_has_a_sensor() {
        for (names, expected) in [
            (&["gpu-thermal", "cpu-thermal", "nvme Composite"][..], Some("cpu-thermal")),
            (&["cpu_thermal", "rp1_adc"], Some("cpu_thermal")),
            (&["acpitz", "coretemp Core 0", "coretemp Package id 0", "x86_pkg_temp"], Some("x86_pkg_temp")),
            (&["coretemp Core 0", "coretemp Package id 1", "coretemp Package id 0"], Some("coretemp Package id 0")),
            (&["k10temp Tccd1", "k10temp Tctl", "k10temp Tdie", "amdgpu edge"], Some("k10temp Tctl")),
            (&["AO-therm", "GPU-therm", "CPU-therm"], Some("CPU-therm")),
            (&["gpu-thermal", "littlecore-thermal", "bigcore1-thermal", "bigcore0-thermal", "soc-thermal"], Some("soc-thermal")),
            (&["cpu10-thermal", "cpu2-thermal", "cpuss1-thermal", "cpuss0-thermal"], Some("cpuss0-thermal")),
            (&["cpu10-thermal", "cpu2-thermal"], Some("cpu2-thermal")),
            (&["acpitz", "nvme Composite", "BAT0", "iwlwifi_1", "cpu"], None),
            (&[], None),
        ] {
            assert_eq!(sensor(names.iter().copied()), expected, "{names:?}");
            assert_eq!(sensor(names.iter().rev().copied()), expected, "{names:?}");
        }
    }

    #[test]
    fn the_first_of_a_name_comes_before_its_second() {
        assert_eq!(sensor(["cpu-thermal #2", "cpu-thermal"]), Some("cpu-thermal"));
        assert_eq!(sensor(["x86_pkg_temp #2"]), Some("x86_pkg_temp #2"));
    }
}
