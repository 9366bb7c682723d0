//! The Raspberry Pi's firmware tool as a meter of power: where it is, and what its lines say.

use super::trial::{Prober, absent};
use super::{SENSOR_DEADLINE, SENSORS_TOGETHER, Surroundings};
use isotherm_wire::probe::{Absent, Cause};
use std::path::{Path, PathBuf};

pub const NAME: &str = "PMIC (vcgencmd pmic_read_adc)";
pub const SOURCE: &str = "vcgencmd pmic_read_adc";
/// What is known of its rails: it is asked once a second.
pub const FACTS: [(&str, &str); 3] = [("driver", "pmic"), ("from", "voltage × current"), ("period_ms", "1000")];

/// The tool of the machine at `root`; `None` if that is no Raspberry Pi. Of a copy of a machine's files there is none.
pub fn tool(root: &Path) -> Option<Result<PathBuf, Absent>> {
    let prober = Prober::with_deadlines(root, SENSOR_DEADLINE, SENSORS_TOGETHER);
    if prober.is_live() { tool_of(&prober, &Surroundings::of_this_process()) } else { None }
}

pub(super) fn tool_of(prober: &Prober, around: &Surroundings) -> Option<Result<PathBuf, Absent>> {
    let model = prober.text(&prober.at("sys/firmware/devicetree/base/model"))?;
    let none = || absent(Cause::NotThere, "no vcgencmd on the path");
    model.starts_with("Raspberry Pi").then(|| around.program(prober, "vcgencmd", &[]).ok_or_else(none))
}

/// Rails that have a voltage and a current, in the order of their currents, W. Lines are `NAME_A current(N)=0.5A` and `NAME_V volt(N)=0.9V`.
pub fn rails(text: &str) -> Vec<(String, f64)> {
    let channels: Vec<(&str, &str, f64)> = text.lines().filter_map(channel).collect();
    let voltage = |rail: &str| channels.iter().find(|(name, kind, _)| *name == rail && *kind == "volt").map(|(_, _, volts)| *volts);
    let currents = channels.iter().filter(|(_, kind, _)| *kind == "current");
    currents.filter_map(|(rail, _, amperes)| Some(((*rail).to_owned(), voltage(rail)? * amperes))).collect()
}

/// Rail, kind and number of a line.
fn channel(line: &str) -> Option<(&str, &str, f64)> {
    let (name, rest) = line.trim().split_once(' ')?;
    let (channel, number) = rest.trim().split_once('=')?;
    let (kind, suffix, unit) = if channel.starts_with("current(") { ("current", "_A", 'A') } else { ("volt", "_V", 'V') };
    let number: f64 = number.strip_suffix(unit)?.parse().ok()?;
    (channel.starts_with(kind) && number.is_finite()).then_some((name.strip_suffix(suffix)?, kind, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = include_str!("../../../tests/recorded/vcgencmd/pmic_read_adc.txt");

    #[test]
    fn the_power_of_a_rail_is_its_voltage_times_its_current() {
        let rails = rails(PRINTED);
        let of = |name: &str| rails.iter().find(|(rail, _)| rail == name).map(|(_, watts)| (watts * 1e6).round() / 1e6);
        assert_eq!((of("VDD_CORE"), of("DDR_VDD2"), of("DDR_VDDQ"), of("3V3_DAC")), (Some(1.6), Some(0.22), Some(0.03), Some(0.0)));
        assert_eq!((rails.len(), of("EXT5V"), of("BATT")), (12, None, None), "a voltage alone is no power");
        let watts: f64 = rails.iter().map(|(_, watts)| watts).sum();
        assert!((watts - 3.44).abs() < 1e-9, "{watts}");
    }

    #[test]
    fn what_is_no_channel_is_no_rail() {
        for text in
            ["", "error=1 error_msg=\"Command not registered\"", "VDD_CORE_A current(7)=0.8A", "VDD_CORE_A current(7)=nanA\nVDD_CORE_V volt(1)=1V"]
        {
            assert_eq!(rails(text), [], "{text}");
        }
    }
}
