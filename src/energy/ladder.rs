//! The ladder of instruments: which columns measure energy, of what, which of them are added up, and which instrument is the one of record.
//!
//! Takes columns and what is known of their drivers, gives instruments, best first; must not know what they read.

use super::trace::{Kind, Trace};
use crate::store::energy::{Measures, Rung};
use isotherm_wire::columns::ColumnName;
use isotherm_wire::probe::Capability;
use isotherm_wire::telemetry::{Column, Series};
use std::time::Duration;

/// One or more channels that are one instrument.
#[derive(Debug, Clone, PartialEq)]
pub struct Instrument<'a> {
    pub rung: Rung,
    pub measures: Measures,
    pub channels: Vec<Channel<'a>>,
    /// Which of several of its kind: a GPU, a chip.
    which: &'a str,
}

/// A column with what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel<'a> {
    pub column: &'a Column,
    /// As the probe found it; `None` = nothing is known beside the column.
    known: Option<&'a Capability>,
}

impl<'a> Channel<'a> {
    pub fn subject(&self) -> &'a str {
        self.column.subject.as_deref().unwrap_or_default()
    }

    fn fact(&self, name: &str) -> Option<&'a str> {
        self.known?.present()?.facts.get(name).map(String::as_str)
    }

    /// A fact that is a number above 0, of which `unit` make one of ours.
    fn number(&self, name: &str, unit: f64) -> Option<f64> {
        self.fact(name)?.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite()).map(|number| number / unit)
    }

    /// Name of the driver or chip.
    pub fn driver(&self) -> Option<&'a str> {
        self.fact("driver")
    }

    pub fn wraps_at_j(&self) -> Option<f64> {
        self.number("wraps_at_uj", 1e6)
    }

    pub fn period_ms(&self) -> Option<f64> {
        self.number("period_ms", 1.0)
    }

    /// See [`Capability::period_ms`].
    pub fn period_ns(&self) -> u64 {
        self.known.map_or(0, |known| (known.period_ms() * 1e6) as u64)
    }

    pub fn limit_w(&self) -> Option<f64> {
        self.number("limit_uw", 1e6)
    }

    /// Its name without that of the driver: `VDD_IN`.
    fn label(&self) -> &'a str {
        let subject = self.subject();
        self.driver().and_then(|driver| subject.strip_prefix(driver)).unwrap_or(subject).trim_start()
    }

    pub fn is_counter(&self) -> bool {
        self.column.metric == ColumnName::Energy.entry().name
    }

    /// Readings of it as energy over time.
    pub fn trace(&self, times_ns: &[u64], values: &[Option<f64>]) -> Result<Trace, String> {
        let kind = if self.is_counter() { Kind::Counter { wraps_at_j: self.wraps_at_j() } } else { Kind::Power };
        Trace::of(kind, times_ns, values).map_err(|why| format!("{}: {why}", self.subject()))
    }
}

impl Instrument<'_> {
    /// Do both measure the same thing, as far as that is known?
    pub fn is_like(&self, other: &Instrument<'_>) -> bool {
        self.measures == other.measures
            && match self.measures {
                Measures::Board | Measures::CpuPackages | Measures::PmicRails => true,
                Measures::Gpu => self.which == other.which,
                // The names of two drivers can't be held against each other.
                Measures::Rail => false,
            }
    }
}

/// Columns that are of instruments.
pub const METRICS: [&str; 2] = [ColumnName::Energy.entry().name, ColumnName::Power.entry().name];
/// Drivers of graphics cards among those of hwmon.
const GPU_DRIVERS: [&str; 5] = ["amdgpu", "i915", "nouveau", "radeon", "xe"];
/// Rails that everything else of a board or a card hangs at: the module input of Jetsons (INA3221), a card of Intel's `xe`.
const INPUTS: [&str; 3] = ["VDD_IN", "POM_5V_IN", "card"];

/// All instruments of a run: those that measure a known whole before single rails, each by the ladder, then as they were found.
pub fn instruments<'a>(series: &'a Series, known: &'a [Capability]) -> Vec<Instrument<'a>> {
    let mut instruments: Vec<Instrument<'a>> = Vec::new();
    for column in &series.columns {
        // A file is of one sensor; of several GPUs the same library says the same thing.
        let is_it = |known: &&Capability| column.source.starts_with('/') || column.subject.as_deref() == Some(known.name.as_str());
        let channel = Channel { column, known: known.iter().filter(|known| known.source == column.source).find(is_it) };
        let Some((rung, measures)) = place(&channel) else { continue };
        let which = match measures {
            // What NVML and nvidia-smi call a GPU, or the directory of its driver.
            Measures::Gpu if column.source.starts_with('/') => column.source.rsplit_once('/').map_or("", |(dir, _)| dir),
            Measures::Gpu | Measures::Rail | Measures::Board => channel.subject(),
            Measures::CpuPackages | Measures::PmicRails => "",
        };
        let same = |i: &&mut Instrument<'_>| (i.rung, i.measures, i.which) == (rung, measures, which);
        match instruments.iter_mut().find(same) {
            Some(instrument) => instrument.channels.push(channel),
            None => instruments.push(Instrument { rung, measures, channels: vec![channel], which }),
        }
    }
    let mut instruments: Vec<Instrument<'a>> = instruments.into_iter().flat_map(whole).collect();
    instruments.sort_by_key(|i| (i.measures == Measures::Rail, i.rung));
    instruments
}

/// A GPU's driver may have several channels, of which one holds the others: they are not added up. Packages and the rails of a power
/// controller lie side by side.
fn whole(instrument: Instrument<'_>) -> Vec<Instrument<'_>> {
    if instrument.measures != Measures::Gpu || instrument.channels.len() == 1 {
        return vec![instrument];
    }
    let Instrument { rung, which, channels, .. } = instrument;
    let measures = |channel: &Channel<'_>| if INPUTS.contains(&channel.label()) { Measures::Gpu } else { Measures::Rail };
    channels.into_iter().map(|channel| Instrument { rung, measures: measures(&channel), which, channels: vec![channel] }).collect()
}

/// How long the slowest channel of what would be of record rests ([`Capability::rests_ms`]), of instruments as a probe found them; zero where
/// nothing is.
pub fn period(capabilities: &[Capability], backend: &str) -> Duration {
    let series = columns(capabilities);
    let instruments = instruments(&series, capabilities);
    let slowest_ms = |at: usize| instruments[at].channels.iter().filter_map(|channel| channel.known).map(Capability::rests_ms).fold(0.0, f64::max);
    Duration::try_from_secs_f64(of_record(&instruments, backend, &[]).map_or(0.0, slowest_ms) / 1e3).unwrap_or(Duration::MAX)
}

/// Whether one of them may be of record, or a part of what is. Which GPU that would be depends on the run.
pub fn may_be_of_record(capabilities: &[Capability], one: &Capability) -> bool {
    let series = columns(capabilities);
    let instruments = instruments(&series, capabilities);
    let is_of_record = |at: usize| of_record(&instruments, "builtin", &[]).map_or(true, |best| best == at);
    let place = instruments.iter().position(|instrument| instrument.channels.iter().any(|channel| channel.known == Some(one)));
    place.is_some_and(|at| instruments[at].measures == Measures::Gpu || is_of_record(at))
}

/// Columns as a run would have them, without values.
fn columns(capabilities: &[Capability]) -> Series {
    let column = |one: &Capability| {
        let column = match one.unit.as_deref()? {
            "uj" | "mj" => ColumnName::Energy,
            "uw" | "mw" => ColumnName::Power,
            _ => return None,
        };
        let (metric, unit) = (column.entry().name.into(), column.entry().unit.symbol().into());
        Some(Column { metric, unit, subject: Some(one.name.clone()), source: one.source.clone(), values: Vec::new() })
    };
    let columns = capabilities.iter().filter(|one| one.measures_energy()).filter_map(column).collect();
    Series { monotonic_ns: Vec::new(), columns }
}

/// Rung and subject matter of a column; `None` for what is no instrument: a battery's meter tells what flows through the battery, which on
/// mains is nothing of the run, and cores are parts of their socket.
fn place(channel: &Channel<'_>) -> Option<(Rung, Measures)> {
    let (source, driver) = (channel.column.source.as_str(), channel.driver().unwrap_or_default());
    let of_chip = || match channel.label() {
        label if INPUTS.contains(&label) && !GPU_DRIVERS.contains(&driver) => Measures::Board,
        _ if GPU_DRIVERS.contains(&driver) => Measures::Gpu,
        // ACPI's meter of the whole machine.
        _ if driver == "power_meter" => Measures::Board,
        _ => Measures::Rail,
    };
    if channel.is_counter() {
        return match () {
            () if source.starts_with("nvml:") => Some((Rung::NvmlEnergyCounter, Measures::Gpu)),
            // Core, uncore and dram are parts of a package or stand beside it, psys is more than all: only packages are added up.
            () if source.contains("/intel-rapl") => {
                channel.subject().starts_with("RAPL package").then_some((Rung::RaplEnergyCounter, Measures::CpuPackages))
            }
            () if driver == "amd_energy" => channel.label().starts_with("Esocket").then_some((Rung::HwmonEnergyCounter, Measures::CpuPackages)),
            () if source.contains("/hwmon") => Some((Rung::HwmonEnergyCounter, of_chip())),
            () => None,
        };
    }
    if channel.column.metric != ColumnName::Power.entry().name {
        return None;
    }
    match () {
        () if source.starts_with("nvml:") => Some((Rung::NvmlIntegratedSamples, Measures::Gpu)),
        () if source.starts_with("nvidia-smi:") => Some((Rung::NvidiaSmiInstantaneous, Measures::Gpu)),
        () if source.starts_with("vcgencmd") => Some((Rung::PiPmicSamples, Measures::PmicRails)),
        // The kernel shows batteries there, too.
        () if source.contains("/hwmon") && driver.starts_with("BAT") => None,
        () if source.contains("/hwmon") || source.contains("/iio:device") => Some((Rung::HwmonPowerSamples, of_chip())),
        () => None,
    }
}

/// Which of them is of record for this backend, by index, or why none is. `unused_gpus`: those that the run is known not to have used.
///
/// # Errors
/// In words.
pub fn of_record(instruments: &[Instrument<'_>], backend: &str, unused_gpus: &[&str]) -> Result<usize, String> {
    // The engine of `builtin` runs on the CPU alone: what a graphics card takes meanwhile is none of it.
    let fits = |i: &Instrument<'_>| i.measures != Measures::Gpu || backend != "builtin" && !unused_gpus.contains(&i.which);
    let fitting: Vec<usize> = (0..instruments.len()).filter(|&index| fits(&instruments[index])).collect();
    let Some(&best) = fitting.first() else { return Err("the device has no energy instrument that was read".into()) };
    let is_whole = |index: &usize| instruments[*index].measures == Measures::Board;
    let rivals: Vec<usize> = fitting.iter().copied().filter(|&index| instruments[index].rung == instruments[best].rung).collect();
    let rivals = match rivals.iter().copied().find(is_whole) {
        Some(board) => return Ok(board),
        None => rivals.into_iter().filter(|&index| instruments[index].measures == instruments[best].measures).collect::<Vec<_>>(),
    };
    if rivals.len() == 1 {
        return Ok(best);
    }
    let names: Vec<&str> = rivals.iter().flat_map(|&index| &instruments[index].channels).map(Channel::subject).collect();
    Err(format!("which of {} is the whole, or whether they may be added up, is not known", names.join(", ")))
}

#[cfg(test)]
pub mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use isotherm_wire::probe::{Family, Found, Present};

    /// An instrument as a probe may have found it.
    pub fn known(source: &str, facts: &[(&str, &str)]) -> Capability {
        let facts = facts.iter().map(|(name, fact)| ((*name).to_owned(), (*fact).to_owned())).collect();
        let found = Found::Present(Present { facts, ..Present::default() });
        let (id, name) = (String::new(), String::new());
        Capability { id, family: Family::Energy, name, unit: None, source: source.into(), recorded: true, found }
    }

    /// Columns by metric, subject, source and driver.
    fn machine(columns: &[(ColumnName, &str, &str, &str)]) -> (Series, Vec<Capability>) {
        let fact = |(_, subject, source, driver): &(ColumnName, &str, &str, &str)| Capability {
            name: (*subject).into(),
            ..known(source, &[("driver", driver)])
        };
        let column = |(column, subject, source, _): &(ColumnName, &str, &str, &str)| Column {
            metric: column.entry().name.into(),
            unit: column.entry().unit.symbol().into(),
            subject: Some((*subject).into()),
            source: (*source).into(),
            values: Vec::new(),
        };
        (Series { monotonic_ns: Vec::new(), columns: columns.iter().map(column).collect() }, columns.iter().map(fact).collect())
    }

    /// Instruments in order, as rung, what they measure and their channels; and the one of record.
    fn told(columns: &[(ColumnName, &str, &str, &str)], backend: &str) -> (Vec<String>, Result<usize, String>) {
        let (series, facts) = machine(columns);
        let instruments = instruments(&series, &facts);
        let channels = |i: &Instrument<'_>| i.channels.iter().map(Channel::subject).collect::<Vec<_>>().join(" + ");
        let all = instruments.iter().map(|i| format!("{} {}: {}", i.rung.name(), i.measures.name(), channels(i))).collect();
        (all, of_record(&instruments, backend, &[]))
    }

    use ColumnName::{Energy, Power, Temperature};
    const RAPL: &str = "/sys/class/powercap/intel-rapl:0/energy_uj";

    #[test]
    fn packages_are_added_up_and_nothing_else_of_rapl() {
        let rapl = |subject| (Energy, subject, RAPL, "intel-rapl");
        let zones = ["RAPL package-0", "RAPL core", "RAPL uncore", "RAPL package-1", "RAPL psys", "RAPL dram"];
        let (all, record) = told(&zones.map(rapl), "builtin");
        assert_eq!((all, record), (vec!["rapl_energy_counter cpu_packages: RAPL package-0 + RAPL package-1".to_owned()], Ok(0)));
    }

    #[test]
    fn a_boards_input_is_the_board_and_its_rails_stand_beside_it() {
        let rail = |subject| (Power, subject, "/sys/class/hwmon/hwmon3/curr1_input", "ina3221");
        let (all, record) = told(&[rail("ina3221 VDD_CPU_GPU_CV"), rail("ina3221 VDD_IN"), (Temperature, "cpu", "/sys", "")], "command");
        let expected = ["hwmon_power_samples board: ina3221 VDD_IN", "hwmon_power_samples rail: ina3221 VDD_CPU_GPU_CV"];
        assert_eq!((all, record), (expected.map(str::to_owned).to_vec(), Ok(0)));
        let (_, record) = told(&[rail("ina3221 VDD_GPU_SOC"), rail("ina3221 VDD_CPU_CV")], "command");
        assert_eq!(
            record.unwrap_err(),
            "which of ina3221 VDD_GPU_SOC, ina3221 VDD_CPU_CV is the whole, or whether they may be added up, is not known"
        );
        assert_eq!(told(&[rail("ina3221 VDD_GPU_SOC")], "command").1, Ok(0));
    }

    #[test]
    fn the_ladder_decides_and_an_engine_on_the_cpu_has_nothing_of_a_graphics_card() {
        let columns = [
            (Power, "GPU-0", "nvidia-smi:power.draw", ""),
            (Power, "GPU-0", "nvml:power", ""),
            (Energy, "RAPL package-0", RAPL, "intel-rapl"),
            (Energy, "GPU-0", "nvml:total_energy", ""),
            (Power, "amdgpu PPT", "/sys/class/hwmon/hwmon4/power1_average", "amdgpu"),
        ];
        let (all, record) = told(&columns, "command");
        let rungs: Vec<&str> = all.iter().map(|told| told.split(' ').next().unwrap()).collect();
        let expected = ["nvml_energy_counter", "rapl_energy_counter", "hwmon_power_samples", "nvml_integrated_samples", "nvidia_smi_instantaneous"];
        assert_eq!((rungs, record), (expected.to_vec(), Ok(0)));
        assert_eq!(told(&columns, "builtin").1, Ok(1));
        let (series, facts) = machine(&columns);
        let instruments = instruments(&series, &facts);
        let like: Vec<bool> = instruments.iter().map(|other| instruments[0].is_like(other)).collect();
        assert_eq!(like, [true, false, false, true, true], "the same GPU by three ways");
    }

    #[test]
    fn what_would_be_of_record_is_as_slow_as_its_slowest_channel_is_known_to_be() {
        let one = |name: &str, unit: &str, source: &str, cost_ns, facts: &[(&str, &str)]| {
            let mut one = Capability { name: name.into(), unit: Some(unit.into()), ..known(source, facts) };
            let Found::Present(present) = &mut one.found else { panic!("it is there") };
            present.cost_ns = cost_ns;
            one
        };
        let (cheap, ms) = (Some(2000), |capabilities: &[Capability]| period(capabilities, "builtin").as_millis());
        let board = |cost_ns, facts: &[(&str, &str)]| one("ina226 VDD_IN", "uw", "/sys/class/hwmon/hwmon3/power1_input", cost_ns, facts);
        let driver = ("driver", "ina226");
        assert_eq!((ms(&[]), ms(&[board(cheap, &[driver])])), (0, 0));
        assert_eq!(ms(&[board(cheap, &[driver, ("period_ms", "250")])]), 250);
        assert_eq!(ms(&[board(Some(6_000_000), &[driver, ("period_ms", "250")])]), 1000, "it is read once a second");
        assert_eq!(ms(&[board(None, &[driver])]), 1000, "one read may take any time");
        let rail = |name: &str, period| one(name, "uw", "vcgencmd pmic_read_adc", Some(500_000), period);
        assert_eq!(ms(&[rail("VDD_CORE", &[("period_ms", "1000")]), rail("3V3", &[])]), 1000);
        // A counter beside a slow monitor is of record, and knows what it did meanwhile.
        assert_eq!(ms(&[board(None, &[driver]), one("RAPL package-0", "uj", RAPL, Some(6_000_000), &[])]), 0);
        assert_eq!(ms(&[one("GPU-0", "mw", "nvidia-smi:power.draw", None, &[])]), 0, "of no record here");
    }

    #[test]
    fn two_graphics_cards_are_not_one() {
        let card = |subject| (Energy, subject, "nvml:total_energy", "");
        let (all, record) = told(&[card("GPU-0"), card("GPU-1")], "command");
        assert_eq!(all.len(), 2);
        assert!(record.unwrap_err().starts_with("which of GPU-0, GPU-1 is the whole"));
        let (series, mut facts) = machine(&[card("GPU-0"), card("GPU-1"), (Energy, "RAPL package-0", RAPL, "intel-rapl")]);
        let of_record = |unused: &[&str]| of_record(&instruments(&series, &facts), "command", unused);
        assert_eq!(of_record(&["GPU-0"]), Ok(1), "the one that it used");
        assert_eq!(of_record(&["GPU-0", "GPU-1"]), Ok(2), "it used none");
        for (capability, limit_uw) in facts.iter_mut().zip(["250000000", "70000000"]) {
            let Found::Present(present) = &mut capability.found else { panic!("it is there") };
            present.facts.insert("limit_uw".into(), limit_uw.into());
        }
        let limits: Vec<Option<f64>> = instruments(&series, &facts).iter().take(2).map(|i| i.channels[0].limit_w()).collect();
        assert_eq!(limits, [Some(250.0), Some(70.0)], "each with its own facts");
    }

    #[test]
    fn what_holds_the_others_is_not_added_to_them() {
        let xe = |subject| (Energy, subject, "/sys/class/hwmon/hwmon5/energy1_input", "xe");
        let socket = |subject| (Energy, subject, "/sys/class/hwmon/hwmon6/energy1_input", "amd_energy");
        let columns = [xe("xe pkg"), xe("xe card"), socket("amd_energy Ecore000"), socket("amd_energy Esocket0"), socket("amd_energy Esocket1")];
        let expected = [
            "hwmon_energy_counter gpu: xe card",
            "hwmon_energy_counter cpu_packages: amd_energy Esocket0 + amd_energy Esocket1",
            "hwmon_energy_counter rail: xe pkg",
        ];
        assert_eq!(told(&columns, "builtin"), (expected.map(str::to_owned).to_vec(), Ok(1)));
    }

    #[test]
    fn a_battery_is_no_instrument_and_the_rails_of_a_power_controller_are_one() {
        let columns = [
            (Power, "battery BAT0", "/sys/class/power_supply/BAT0/power_now", ""),
            (Power, "BAT0 power1", "/sys/class/hwmon/hwmon1/power1_input", "BAT0"),
        ];
        assert_eq!(told(&columns, "builtin"), (Vec::new(), Err("the device has no energy instrument that was read".into())));
        let rail = |subject| (Power, subject, "vcgencmd pmic_read_adc", "");
        let (all, record) = told(&[rail("VDD_CORE"), rail("DDR_VDD2")], "builtin");
        assert_eq!((all, record), (vec!["pi_pmic_samples pmic_rails: VDD_CORE + DDR_VDD2".to_owned()], Ok(0)));
    }
}
