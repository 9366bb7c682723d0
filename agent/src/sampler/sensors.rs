//! Sensors: what was found by trying it, as something that can be read again and again.
//!
//! Takes the probe's entries, gives columns, names and how texts become numbers; must not know when anything is read.

use super::Definition;
use crate::probe::temperature::PLAUSIBLE_MC;
use isotherm_wire::columns::ColumnName;
use isotherm_wire::probe::{Capability, Family, Found};
use isotherm_wire::telemetry::Reading;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// One sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    pub column: ColumnName,
    /// By its driver's name; no other of this column has the same.
    pub subject: String,
    /// The file, as the machine itself would name it.
    pub source: String,
    /// One file, or two whose product it is; none of what isn't read from files.
    pub files: Vec<PathBuf>,
    scale: Scale,
}

/// How the text of a sensor's files becomes a number in its column's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    /// How many of its own units make one.
    Per(f64),
    /// Likewise, of the number that the text begins with.
    LeadingPer(f64),
    Hexadecimal,
}

/// The whole number that a text begins with, as in `42@850000000Hz` and `12 %`.
pub fn leading(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let rest = text[end..].trim();
    text[..end].parse().ok().filter(|_| rest.is_empty() || rest == "%" || rest.starts_with('@'))
}

impl Sensor {
    pub fn definition(&self) -> Definition {
        Definition { column: self.column, subject: Some(self.subject.clone()), source: self.source.clone() }
    }

    /// What tells it from the others of its lane: of a GPU it is its source that does.
    pub fn name(&self) -> String {
        if self.source.starts_with('/') { self.subject.clone() } else { format!("{} {}", self.subject, self.source) }
    }

    /// The value in the texts of its files, in their order; `None` for what is no number, and for a temperature that stands for "off".
    pub fn value(&self, texts: &[&str]) -> Option<f64> {
        let number = |text: &&str| text.trim().parse::<i64>().ok().map(|n| n as f64);
        let value = match self.scale {
            Scale::Hexadecimal => f64::from(u32::from_str_radix(texts.first()?.trim().trim_start_matches("0x"), 16).ok()?),
            Scale::LeadingPer(unit) => leading(texts.first()?)? as f64 / unit,
            Scale::Per(unit) => texts.iter().map(number).try_fold(1.0, |product, n| Some(product * n?))? / unit,
        };
        (self.column != ColumnName::Temperature || PLAUSIBLE_MC.contains(&((value * 1e3).round() as i64))).then_some(value)
    }
}

/// The column of an entry, and what makes its raw unit the column's; `None` for what is no sensor.
fn column(capability: &Capability) -> Option<(ColumnName, Scale)> {
    use ColumnName::{CoolingState, CpuClock, DeviceClock, Energy, GpuBusy, GpuMemory, GpuProcesses, GpuReasons, Mains, Power, Temperature};
    use ColumnName::{ThrottleBits, Throttles};
    let per = |column, unit| Some((column, Scale::Per(unit)));
    match (capability.family, capability.unit.as_deref()?) {
        (Family::Temperature, "millicelsius") => per(Temperature, 1e3),
        (Family::Temperature, "celsius") => per(Temperature, 1.0),
        (Family::Clock, "khz") => per(CpuClock, 1.0),
        (Family::Clock, "hz") => per(DeviceClock, 1.0),
        (Family::Clock, "mhz") => per(DeviceClock, 1e-6),
        (Family::Throttling, "bits") => Some((ThrottleBits, Scale::Hexadecimal)),
        (Family::Throttling, "count") => per(Throttles, 1.0),
        (Family::Throttling, "state") => per(CoolingState, 1.0),
        (Family::Energy, "uj") => per(Energy, 1e6),
        (Family::Energy, "mj") => per(Energy, 1e3),
        (Family::Energy, "uw") => per(Power, 1e6),
        (Family::Energy, "mw") => per(Power, 1e3),
        (Family::PowerSource, "online") => per(Mains, 1.0),
        (Family::Gpu, "pct") => Some((GpuBusy, Scale::LeadingPer(1.0))),
        (Family::Gpu, "per_mille") => per(GpuBusy, 10.0),
        (Family::Gpu, "bytes") => per(GpuMemory, 1.0),
        (Family::Gpu, "reasons") => per(GpuReasons, 1.0),
        (Family::Gpu, "count") => per(GpuProcesses, 1.0),
        _ => None,
    }
}

/// Is this an entry that is read in every run?
pub fn is_sensor(capability: &Capability) -> bool {
    column(capability).is_some()
}

/// The voltage whose product with a current an entry is, and what that makes of its unit: hwmon has mV and mA, a battery µV and µA.
fn voltage(source: &str) -> Option<(String, f64)> {
    let (dir, name) = source.rsplit_once('/')?;
    match name.strip_prefix("curr").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        Some(rest) => Some((format!("{dir}/in{rest}"), 1e6)),
        None => (name == "current_now").then(|| (format!("{dir}/voltage_now"), 1e12)),
    }
}

/// Lower and upper limit of the clock of every cpufreq policy, in the order of their names.
pub fn frequency_limits(root: &Path) -> Vec<Sensor> {
    const DIR: &str = "sys/devices/system/cpu/cpufreq";
    let names = std::fs::read_dir(root.join(DIR)).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut policies: Vec<String> = names.filter(|name| name.starts_with("policy")).collect();
    policies.sort();
    let limit = |policy: &String, which: &str| {
        let file = format!("{DIR}/{policy}/scaling_{which}_freq");
        let (subject, source) = (format!("{policy} {which}"), format!("/{file}"));
        Sensor { column: ColumnName::CpuClock, subject, source, files: vec![root.join(file)], scale: Scale::Per(1.0) }
    };
    policies.iter().flat_map(|policy| ["min", "max"].map(|which| limit(policy, which))).collect()
}

/// The sensors among a machine's entries, and readings that say why the others aren't there.
pub fn of(root: &Path, capabilities: &[Capability]) -> (Vec<Sensor>, Vec<Reading>) {
    let (mut sensors, mut absent) = (Vec::new(), Vec::new());
    let mut names: HashMap<(ColumnName, String), u32> = HashMap::new();
    for capability in capabilities {
        let Some((column, mut scale)) = column(capability) else { continue };
        let number = names.entry((column, capability.name.clone())).or_default();
        *number += 1;
        let subject = if *number == 1 { capability.name.clone() } else { format!("{} #{number}", capability.name) };
        let source = capability.source.clone();
        match &capability.found {
            Found::Present(_) => {
                let at = |path: &str| root.join(path.trim_start_matches('/'));
                let mut files = vec![at(&source)];
                if let Some((volts, unit)) = voltage(&source) {
                    files.push(at(&volts));
                    scale = Scale::Per(unit);
                }
                sensors.push(Sensor { column, subject, source, files, scale });
            }
            Found::Absent(why) => absent.push(Reading {
                metric: column.entry().name.into(),
                unit: column.entry().unit.symbol().into(),
                subject: Some(subject),
                source,
                value: None,
                absent: Some(why.reason.clone()),
            }),
        }
    }
    (sensors, absent)
}
