//! Which runs a point has: timing runs, power runs or both, and in which of them the energy instruments of its device are read.
//!
//! Takes what the campaign asks for and what the device said of its instruments; gives kinds of run. Pure; must not know how an
//! instrument is read, nor what is made of its readings.

use super::identity::DeviceReport;
use super::point::Point;
use crate::config::model::Power;
use crate::energy;
use crate::energy::polling::{self, Verdict};
use crate::store::record::Kind;
use isotherm_wire::probe::{Capability, Cause, Found, Polled};
use std::time::Duration;

/// Instruments that take less than this to read, all together, are read in timing runs, ns: a hundredth of the time between two samples
/// at 10 Hz.
const CHEAP_NS: u64 = 1_000_000;
/// What reading an instrument does to it is looked at with no fewer readings a second: where these change nothing, fewer don't.
pub const LEAST_POLLING_HZ: f64 = 10.0;

/// The runs of one repetition of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// A timing run; no instrument is read.
    Timing,
    /// A timing run in which instruments are read.
    Together,
    /// A timing run, then a power run.
    Split,
    /// A power run alone.
    Only,
}

impl Runs {
    /// What a point with this setting and so many readings a second has on a device. Before the device was asked, `split` counts on an
    /// instrument, and `auto` on none that needs runs of its own.
    #[must_use]
    pub fn of(power: Power, hz: f64, report: Option<&DeviceReport>) -> Runs {
        let Some(instruments) = report.and_then(|report| report.instruments.as_ref()) else {
            return match power {
                Power::Off => Runs::Timing,
                Power::Auto | Power::Together => Runs::Together,
                Power::Split => Runs::Split,
                Power::Only => Runs::Only,
            };
        };
        match power {
            Power::Off => Runs::Timing,
            Power::Only => Runs::Only,
            _ if !instruments.iter().any(Capability::measures_energy) => Runs::Timing,
            Power::Split => Runs::Split,
            Power::Together => Runs::Together,
            Power::Auto => {
                if hurdle(instruments, hz).is_some() {
                    Runs::Split
                } else {
                    Runs::Together
                }
            }
        }
    }

    /// In the order in which they are run.
    #[must_use]
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Runs::Timing | Runs::Together => &[Kind::Timing],
            Runs::Split => &[Kind::Timing, Kind::Power],
            Runs::Only => &[Kind::Power],
        }
    }

    /// Are instruments read in a run of this kind?
    #[must_use]
    pub fn read_instruments(self, kind: Kind) -> bool {
        kind == Kind::Power || self == Runs::Together
    }
}

/// The kinds that a point with this setting may have on some device.
#[must_use]
pub fn possible(power: Power) -> &'static [Kind] {
    match power {
        Power::Off | Power::Together => Runs::Timing.kinds(),
        Power::Auto | Power::Split => Runs::Split.kinds(),
        Power::Only => Runs::Only.kinds(),
    }
}

/// Why `auto` doesn't read these so often a second in timing runs, in words; `None` = nothing is known to stand against it.
fn hurdle(instruments: &[Capability], hz: f64) -> Option<String> {
    let verdict = |one: &Capability| polling::verdict_at(one, hz.max(LEAST_POLLING_HZ));
    let measuring = || instruments.iter().filter(|one| one.measures_energy());
    let cost_ns = |one: &Capability| one.present().and_then(|present| present.cost_ns);
    // A cost that isn't known may be any.
    if let Some(one) = measuring().find(|one| cost_ns(one).is_none()) {
        return Some(format!("what a reading of {} costs is not known", one.name));
    }
    let all_ns: u64 = measuring().filter_map(cost_ns).sum();
    if all_ns >= CHEAP_NS {
        return Some(format!("its instruments take {:.1} ms to read", all_ns as f64 / 1e6));
    }
    // All are read at once: what reading a GPU's power does shows in its counter, of the same name, where its power can't tell, and what
    // reading a rail does, in what would be of record instead of it.
    let told_by_another = |one: &Capability| {
        let may_be_of_record = |one: &Capability| energy::may_be_of_record(instruments, one);
        let is_of_it = |other: &Capability| other.name == one.name && other.unit != one.unit;
        let speaks_for_it = |other: &Capability| is_of_it(other) || may_be_of_record(other) && !may_be_of_record(one);
        measuring().any(|other| speaks_for_it(other) && matches!(verdict(other), None | Some(Verdict::NoShift { .. })))
    };
    let stands_against = |one: &Capability| {
        verdict(one).filter(|verdict| match verdict {
            Verdict::Shift { .. } => true,
            Verdict::NoShift { .. } => false,
            Verdict::NotTold { .. } => !told_by_another(one),
        })
    };
    measuring().find_map(|one| Some(format!("{}: {}", one.name, stands_against(one)?)))
}

/// Readings a second with which it has to be found out what they do to these instruments; `None` = no run of these points hangs on it, or it
/// is known.
#[must_use]
pub fn polling_hz(points: &[Point], instruments: &[Capability]) -> Option<f64> {
    let rates = points.iter().filter(|point| point.settings.power == Power::Auto).map(|point| point.settings.sample_hz);
    // What stands against a rate stands against all above it, and what isn't known of one isn't known of these.
    let hz = rates.filter(|hz| hurdle(instruments, *hz).is_none()).reduce(f64::max)?.max(LEAST_POLLING_HZ);
    let is_open = |one: &Capability| one.measures_energy() && one.present().is_some_and(|it| it.polled.as_ref().is_none_or(|polled| polled.hz < hz));
    instruments.iter().any(is_open).then_some(hz)
}

/// Why energy has runs of its own where that was left open, in words.
#[must_use]
pub fn because(power: Power, hz: f64, report: Option<&DeviceReport>) -> Option<String> {
    let why = hurdle(report?.instruments.as_ref()?, hz).filter(|_| power == Power::Auto)?;
    Some(format!("power runs of their own: {why}"))
}

/// How long the device's instrument of record goes without a new value with this backend; zero where nothing is known of that.
#[must_use]
pub fn period(backend: &str, report: Option<&DeviceReport>) -> Duration {
    report.and_then(|report| report.instruments.as_ref()).map_or(Duration::ZERO, |instruments| energy::period(instruments, backend))
}

/// What a device can't do of what a campaign asks for, in words; `None` = it can, or was never asked.
#[must_use]
pub fn shortfall(power: Power, report: Option<&DeviceReport>) -> Option<String> {
    let instruments = report?.instruments.as_ref()?;
    let then = match power {
        Power::Off => return None,
        Power::Auto | Power::Together => "no energy",
        Power::Split => "no power runs",
        Power::Only => "its power runs will fail",
    };
    if instruments.iter().any(Capability::measures_energy) {
        return None;
    }
    let why = |one: &Capability| Some(format!("{}: {}", one.name, one.absent()?.reason));
    let reasons: Vec<String> = instruments.iter().filter_map(why).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    Some(format!("no energy instrument that can be read{reasons}: {then}"))
}

/// What isn't known before a device was asked, in words.
#[must_use]
pub fn unknown(power: Power, hz: f64, report: Option<&DeviceReport>) -> Option<&'static str> {
    let instruments = report.and_then(|report| report.instruments.as_deref());
    let is_open = |one: &Capability| one.measures_energy() && polling::verdict_at(one, hz.max(LEAST_POLLING_HZ)).is_none();
    match power {
        Power::Auto if instruments.is_some_and(|all| hurdle(all, hz).is_none() && all.iter().any(is_open)) => {
            Some("whether reading its energy instruments changes what they say, so that it needs power runs, is not known yet")
        }
        _ if instruments.is_some() => None,
        Power::Off => None,
        Power::Auto => Some("whether energy is measured in these runs, in runs of their own or not at all is not known yet"),
        Power::Split => Some("whether it has an energy instrument, and so power runs, is not known yet"),
        Power::Together | Power::Only => Some("whether it has an energy instrument is not known yet"),
    }
}

/// Instruments as a device has them now, with what was known of them.
///
/// A night that goes on after a start of its device wants the same runs as before. So the first cost stands, which is measured and differs
/// from time to time, and so does what was said when it was polled, beside what it says when it is polled more often. An instrument that is
/// there and can't be read any more stays one: its runs fail and say why, instead of not being planned. So does one that isn't named any
/// more because who would name it didn't answer.
#[must_use]
pub fn remembered(mut now: Vec<Capability>, earlier: &[Capability]) -> Vec<Capability> {
    let unanswered = |one: &Capability| one.absent().is_some_and(|why| why.cause != Cause::NotThere);
    let mut unmatched: Vec<usize> = (0..now.len()).collect();
    let mut unnamed = Vec::new();
    for earlier in earlier {
        let Some(at) = unmatched.iter().position(|&at| is_same(&now[at], earlier)) else {
            // A directory or a tool that names instruments has its own entry if it doesn't answer: their sources begin with its.
            let names_it = |one: &Capability| unanswered(one) && !one.source.is_empty() && earlier.source.starts_with(&one.source);
            unnamed.extend((earlier.present().is_some() && now.iter().any(names_it)).then(|| earlier.clone()));
            continue;
        };
        let one = &mut now[unmatched.remove(at)];
        let is_unanswered = unanswered(one);
        match (&mut one.found, &earlier.found) {
            (Found::Present(now), Found::Present(then)) => {
                now.cost_ns = then.cost_ns;
                let is_more = |polled: &Polled| then.polled.as_ref().is_none_or(|earlier| polled.hz > earlier.hz);
                let faster = now.polled.take().filter(|polled| polling::is_whole(polled) && is_more(polled));
                now.polled_slower.clone_from(&then.polled_slower);
                now.polled_slower.extend(faster.is_some().then(|| then.polled.clone()).flatten());
                now.polled = faster.or_else(|| then.polled.clone());
            }
            (found, Found::Present(_)) if is_unanswered => found.clone_from(&earlier.found),
            _ => {}
        }
    }
    now.append(&mut unnamed);
    now
}

/// The same instrument, of several that are alike the next one: the kernel numbers chips anew at every start, so that names tell them apart,
/// which have that of the driver.
fn is_same(a: &Capability, b: &Capability) -> bool {
    (&a.name, &a.unit) == (&b.name, &b.unit) && unnumbered(&a.source) == unnumbered(&b.source)
}

/// A path without the numbers of its chips and devices: `/sys/class/hwmon/hwmon/power1_input`.
fn unnumbered(source: &str) -> String {
    let part = |part: &str| {
        let kind = ["hwmon", "iio:device"].into_iter().find(|kind| part.starts_with(kind));
        kind.map_or_else(|| part.to_owned(), |kind| kind.to_owned() + part[kind.len()..].trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    source.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::identity::REPORT_VERSION;
    use isotherm_wire::probe::{Absent, Family, PolledPair, Present};

    fn instrument(name: &str, found: Result<Option<u64>, Cause>) -> Capability {
        let found = match found {
            Ok(cost_ns) => Found::Present(Present { cost_ns, ..Present::default() }),
            Err(cause) => Found::Absent(Absent { cause, reason: "Permission denied".into() }),
        };
        let source = format!("/sys/class/powercap/{name}/energy_uj");
        Capability { id: format!("energy.{name}"), family: Family::Energy, name: name.into(), unit: Some("uj".into()), source, recorded: true, found }
    }

    fn report(instruments: Vec<Capability>) -> DeviceReport {
        let engine = isotherm_wire::session::Engine { name: "e".into(), version: "1".into(), revision: 1 };
        let (machine, files) = Default::default();
        DeviceReport {
            report_version: REPORT_VERSION,
            taken_at: String::new(),
            machine,
            engine,
            files,
            programs: Default::default(),
            instruments: Some(instruments),
            clock: None,
        }
    }

    fn runs_of(power: Power, report: Option<&DeviceReport>) -> Runs {
        Runs::of(power, 10.0, report)
    }

    #[test]
    fn auto_reads_cheap_instruments_in_timing_runs_and_others_in_runs_of_their_own() {
        let of = |costs: &[Option<u64>]| {
            let instruments = costs.iter().map(|cost| instrument("rapl", Ok(*cost))).collect();
            runs_of(Power::Auto, Some(&report(instruments)))
        };
        assert_eq!(of(&[Some(2000)]), Runs::Together);
        assert_eq!(of(&[Some(600_000), Some(600_000)]), Runs::Split, "together they cost more than a millisecond");
        assert_eq!(of(&[Some(2000), None]), Runs::Split, "one of them may cost anything");
        assert_eq!(of(&[]), Runs::Timing);
    }

    /// It said so in eight pairs of slices.
    fn polled(mut instrument: Capability, hz: f64, often: f64) -> Capability {
        if let Found::Present(present) = &mut instrument.found {
            let pair = |by: f64| PolledPair { rarely: Some(10.0 + by), often: Some(often + by) };
            present.polled = Some(Polled { hz, pairs: [0.0, 0.01].repeat(4).into_iter().map(pair).collect(), followed: 32, new: 32 });
        }
        instrument
    }

    #[test]
    fn auto_reads_in_timing_runs_only_what_says_the_same_when_it_is_read_often() {
        let rapl = || instrument("rapl", Ok(Some(2000)));
        let of = |instruments: &[Capability]| {
            let report = report(instruments.to_vec());
            let why = because(Power::Auto, 10.0, Some(&report)).or(unknown(Power::Auto, 10.0, Some(&report)).map(str::to_owned));
            (runs_of(Power::Auto, Some(&report)), why)
        };
        assert_eq!(of(&[polled(rapl(), 10.0, 10.1)]), (Runs::Together, None));
        let (runs, why) = of(&[polled(rapl(), 10.0, 10.0), polled(instrument("ina", Ok(Some(2000))), 10.0, 11.0)]);
        let expected = "power runs of their own: ina: read 10 times a second it says 10.0 % more (+10.0 … +10.0 %)";
        assert_eq!((runs, why.as_deref()), (Runs::Split, Some(expected)));
        let (runs, why) = of(&[instrument("rapl", Ok(Some(1_200_000)))]);
        assert_eq!((runs, why.as_deref()), (Runs::Split, Some("power runs of their own: its instruments take 1.2 ms to read")));
        // A GPU's power can't tell, its counter can.
        let gpu = |of: &str, unit: &str| Capability { unit: Some(unit.into()), source: format!("nvml:{of}"), ..instrument("GPU-0", Ok(Some(2000))) };
        let (power, counter) = (gpu("power", "mw"), gpu("total_energy", "mj"));
        assert_eq!(of(std::slice::from_ref(&power)).0, Runs::Split);
        assert_eq!(of(&[power.clone(), counter.clone()]).0, Runs::Together, "until somebody has looked");
        assert_eq!(of(&[power.clone(), polled(counter.clone(), 10.0, 10.0)]), (Runs::Together, None));
        assert_eq!(of(&[power, polled(counter, 10.0, 11.0)]).0, Runs::Split);
        // A rail that nobody uses, beside the input of its board.
        let rail = |name: &str, often| {
            let found = instrument(name, Ok(Some(2000)));
            let source = format!("/sys/class/hwmon/hwmon1/{name}");
            polled(Capability { unit: Some("uw".into()), source, ..found }, 10.0, often)
        };
        let mut unused = rail("VDD_CSI", 0.0);
        if let Found::Present(Present { polled: Some(polled), .. }) = &mut unused.found {
            polled.pairs.fill(PolledPair { rarely: Some(0.0), often: Some(0.0) });
        }
        assert_eq!(of(&[unused.clone(), rail("VDD_IN", 10.0)]).0, Runs::Together);
        assert_eq!(of(&[unused.clone(), rail("VDD_IN", 11.0)]).0, Runs::Split);
        assert_eq!(of(&[unused.clone(), rail("VDD_GPU", 10.0)]).0, Runs::Split, "which of them is the whole is not known");
        // Until somebody has looked, nothing stands against it.
        let (runs, why) = of(&[rapl()]);
        assert!(runs == Runs::Together && why.is_some_and(|why| why.ends_with("so that it needs power runs, is not known yet")));
    }

    #[test]
    fn polling_is_tried_where_runs_hang_on_it_and_once_for_each_higher_rate() {
        let points = |power: &str| {
            let block = |hz| {
                format!(
                    "  - {{ devices: here, backend: command, argv: [x], params: {{ hz: {hz} }}, measure: {{ power: {power}, sample_hz: {hz} }} }}"
                )
            };
            let text = format!("devices: {{ here: {{ local: {{}} }} }}\nmatrix:\n{}\n{}\n", block(5), block(20));
            let campaign = crate::config::parse(&text, std::path::Path::new("/c/x.yaml")).expect("a campaign");
            crate::plan::expand::expand(&campaign, &std::collections::BTreeMap::new()).expect("two points").points
        };
        let rapl = || instrument("rapl", Ok(Some(2000)));
        let (auto, split) = (points("auto"), points("split"));
        assert_eq!((polling_hz(&auto, &[rapl()]), polling_hz(&auto[..1], &[rapl()])), (Some(20.0), Some(10.0)));
        assert_eq!((polling_hz(&split, &[rapl()]), polling_hz(&auto, &[])), (None, None));
        assert_eq!(polling_hz(&auto, &[instrument("rapl", Ok(Some(1_200_000)))]), None, "its cost is enough");
        let known = |hz| polling_hz(&auto, &[polled(rapl(), hz, 10.0)]);
        assert_eq!((known(20.0), known(10.0)), (None, Some(20.0)));
        // What was said first stands, and beside it what it says when it is read more often.
        let first = || polled(rapl(), 10.0, 10.0);
        let again = |hz| remembered(vec![polled(rapl(), hz, 11.0)], &[first()]);
        assert_eq!((again(10.0), remembered(vec![rapl()], &[first()])), (vec![first()], vec![first()]));
        let both = again(20.0);
        let known = both[0].present().map(|it| [it.polled_slower.first(), it.polled.as_ref()].map(|polled| polled.map(|polled| polled.hz)));
        assert_eq!(known, Some([Some(10.0), Some(20.0)]));
        assert_eq!(remembered(vec![rapl()], &both), both);
        // Timing runs of the slower block stay what they were.
        let report = report(both.clone());
        let runs: Vec<Runs> = auto.iter().map(|point| Runs::of(Power::Auto, point.settings.sample_hz, Some(&report))).collect();
        assert_eq!((runs, polling_hz(&auto, &both)), (vec![Runs::Together, Runs::Split], None));
        // What was late may be in time the next night.
        let mut late = polled(rapl(), 10.0, 11.0);
        if let Found::Present(present) = &mut late.found {
            present.polled.iter_mut().for_each(|polled| polled.pairs[3].often = None);
        }
        assert_eq!(remembered(vec![late], &[rapl()]), [rapl()]);
    }

    #[test]
    fn a_device_without_an_instrument_has_no_power_runs_unless_they_are_all_that_is_asked_for() {
        let mut battery = instrument("BAT0", Ok(Some(1)));
        battery.source = "/sys/class/power_supply/BAT0/power_now".into();
        let none = report(vec![instrument("RAPL", Err(Cause::NotPermitted)), battery]);
        let all = [Power::Off, Power::Auto, Power::Split, Power::Together, Power::Only];
        assert_eq!(all.map(|power| runs_of(power, Some(&none))), [Runs::Timing, Runs::Timing, Runs::Timing, Runs::Timing, Runs::Only]);
        let told = shortfall(Power::Split, Some(&none));
        assert_eq!(told.as_deref(), Some("no energy instrument that can be read (RAPL: Permission denied): no power runs"));
        assert_eq!(shortfall(Power::Off, Some(&none)), None);
    }

    #[test]
    fn a_device_that_was_never_asked_is_expected_to_have_what_the_campaign_asks_for() {
        let never = DeviceReport { instruments: None, ..report(Vec::new()) };
        for unknown in [None, Some(&never)] {
            assert_eq!(runs_of(Power::Split, unknown), Runs::Split);
            assert_eq!(runs_of(Power::Auto, unknown), Runs::Together);
            assert_eq!(shortfall(Power::Split, unknown), None);
        }
    }

    #[test]
    fn what_can_not_be_read_any_more_stays_an_instrument_and_costs_do_not_waver() {
        let earlier = [instrument("rapl", Ok(Some(500_000))), instrument("ina", Ok(Some(3000)))];
        for cause in [Cause::NotPermitted, Cause::NoAnswer, Cause::Failed] {
            let lost = remembered(vec![instrument("rapl", Err(cause))], &earlier);
            assert_eq!(lost[0], instrument("rapl", Ok(Some(500_000))));
        }
        let slower = remembered(vec![instrument("rapl", Ok(Some(2_000_000)))], &earlier);
        assert_eq!(slower[0].present().and_then(|present| present.cost_ns), Some(500_000));
        let gone = remembered(vec![instrument("rapl", Err(Cause::NotThere))], &earlier);
        assert!(gone[0].present().is_none());
    }

    fn of_chip(chip: u32, name: &str, found: Result<Option<u64>, Cause>) -> Capability {
        let (id, source) = (format!("energy.hwmon{chip}.power1"), format!("/sys/class/hwmon/hwmon{chip}/power1_input"));
        Capability { id, source, unit: Some("uw".into()), ..instrument(name, found) }
    }

    #[test]
    fn chips_that_are_numbered_anew_are_known_by_their_names() {
        let earlier = [of_chip(1, "ina226 VDD_IN", Ok(Some(800_000))), of_chip(3, "amdgpu PPT", Ok(Some(3000)))];
        let now = remembered(vec![of_chip(1, "amdgpu PPT", Ok(Some(9000))), of_chip(4, "ina226 VDD_IN", Ok(Some(2_000_000)))], &earlier);
        assert_eq!(now, [of_chip(1, "amdgpu PPT", Ok(Some(3000))), of_chip(4, "ina226 VDD_IN", Ok(Some(800_000)))]);
        let locked = remembered(vec![of_chip(4, "ina226 VDD_IN", Err(Cause::NotPermitted))], &earlier);
        assert_eq!(locked, [of_chip(4, "ina226 VDD_IN", Ok(Some(800_000)))]);
        // Of two that are alike each has its own.
        let twins = |costs: [u64; 2]| Vec::from([0, 1].map(|at| of_chip(at, "ina226 power1", Ok(Some(costs[at as usize])))));
        assert_eq!(remembered(twins([7, 8]), &twins([1, 2])), twins([1, 2]));
    }

    #[test]
    fn what_nobody_names_because_who_would_does_not_answer_stays_an_instrument() {
        let of_gpu = |id: &str, source: &str, found| Capability { id: id.into(), source: source.into(), ..instrument("GPU-5b3c7f00", found) };
        let gpu = of_gpu("gpu.GPU-5b3c7f00.power", "nvml:power", Ok(Some(20_000)));
        let earlier = [gpu.clone()];
        let refused = |source: &str, cause| of_gpu("gpu.nvidia", source, Err(cause));
        let now = remembered(vec![refused("nvml:", Cause::NoAnswer)], &earlier);
        assert_eq!(now, [refused("nvml:", Cause::NoAnswer), gpu]);
        for gone in [refused("nvml:", Cause::NotThere), refused("nvidia-smi:", Cause::NoAnswer), refused("", Cause::NotTried)] {
            assert_eq!(remembered(vec![gone.clone()], &earlier), [gone]);
        }
        assert_eq!(remembered(Vec::new(), &earlier), []);
    }
}
