//! Figures of machines made by hand: 10 samples a second over 8 s, a process from second 1 to second 7.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::ladder::tests::known;
use super::*;
use crate::config::model::AxisValue;
use crate::store::energy::{Measures, Ran, Rung};
use isotherm_wire::columns::ColumnName;
use isotherm_wire::probe::Found;
use isotherm_wire::telemetry::Column;

const SECOND: u64 = 1_000_000_000;
const INVOCATION: (u64, u64) = (SECOND, 7 * SECOND);
const RAPL: &str = "/sys/class/powercap/intel-rapl:0/energy_uj";
const HWMON: &str = "/sys/class/hwmon/hwmon3/curr1_input";

/// Columns and facts that are added one by one.
#[derive(Default)]
struct Machine {
    series: Series,
    instruments: Vec<Capability>,
    idle: Option<Series>,
    /// Before and after.
    around: [Snapshot; 2],
}

impl Machine {
    fn new() -> Machine {
        let monotonic_ns = (0..=80).map(|tenth| tenth * SECOND / 10).collect();
        Machine { series: Series { monotonic_ns, columns: Vec::new() }, ..Machine::default() }
    }

    fn with(mut self, column: ColumnName, subject: &str, source: &str, driver: &str, value: impl Fn(f64) -> Option<f64>) -> Machine {
        let values = self.series.monotonic_ns.iter().map(|&ns| value(ns as f64 / 1e9)).collect();
        let (metric, unit): (String, String) = (column.entry().name.into(), column.entry().unit.symbol().into());
        self.instruments.push(Capability { name: subject.into(), ..known(source, &[("driver", driver)]) });
        self.series.columns.push(Column { metric, unit, subject: Some(subject.into()), source: source.into(), values });
        self
    }

    /// A package that takes so many watts.
    fn package(self, number: u32, watts: f64) -> Machine {
        self.with(ColumnName::Energy, &format!("RAPL package-{number}"), RAPL, "intel-rapl", |s| Some(1000.0 + watts * s))
    }

    /// The whole board, in watts over seconds.
    fn board(self, watts: impl Fn(f64) -> Option<f64>) -> Machine {
        self.with(ColumnName::Power, "ina3221 VDD_IN", HWMON, "ina3221", watts)
    }

    /// What is known of all of its instruments.
    fn known(mut self, name: &str, fact: &str) -> Machine {
        for one in &mut self.instruments {
            let Found::Present(present) = &mut one.found else { continue };
            present.facts.insert(name.into(), fact.into());
        }
        self
    }

    fn evidence(&self) -> Evidence<'_> {
        let (series, instruments, idle) = (&self.series, &self.instruments[..], self.idle.as_ref());
        let around = [&self.around[0], &self.around[1]];
        Evidence { backend: "builtin", series, around, instruments, unused_gpus: &[], idle, invocation: Some(INVOCATION), timed: None }
    }

    fn figures(&self, timed: Option<Timed<'_>>) -> Vec<EnergyFigure> {
        let backend = if timed.is_some() { "builtin" } else { "command" };
        figures(&Evidence { backend, timed, ..self.evidence() })
    }

    /// The only one, of a process.
    #[track_caller]
    fn figure(&self) -> EnergyFigure {
        let mut figures = self.figures(None);
        assert_eq!(figures.len(), 1);
        figures.remove(0)
    }
}

/// Inferences of 10 ms from second 2 on, one after the other, in rounds with pauses.
fn rounds(spans_ns: &[(u64, u64)]) -> Timed<'_> {
    let busy_ns: u64 = spans_ns.iter().map(|(start, end)| end - start).sum();
    Timed { spans_ns, inferences: busy_ns / 10_000_000, busy_ns }
}

fn codes(figures: &[EnergyFigure]) -> Vec<(String, Severity)> {
    issues(figures, Weight::OfRecord).into_iter().map(|issue| (issue.code.to_string(), issue.severity)).collect()
}

fn value(metrics: &IndexMap<String, Metric>, name: &str) -> Result<f64, String> {
    metrics[name].value.ok_or_else(|| metrics[name].omitted_reason.clone().unwrap())
}

fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() < 1e-6)
}

fn point(backend: &str, n_gen: i64) -> PointIds {
    let axes = [("n_prompt".to_owned(), AxisValue::Int(64)), ("n_gen".to_owned(), AxisValue::Int(n_gen))].into();
    PointIds { device: "here".into(), backend: backend.into(), axes, slug: String::new() }
}

#[test]
fn tokens_of_a_prompt_and_tokens_that_are_generated_have_definitions_of_their_own() {
    let figures = Machine::new().package(0, 2.0).figures(Some(rounds(&[(2 * SECOND, 4 * SECOND)])));
    let definition = |n_gen| metrics(&figures, &point("llama-bench", n_gen), "none")["energy_per_token_mj"].definition.clone();
    assert_eq!([definition(0), definition(16)], ["energy.prefill_window.v1", "energy.window.v1"]);
}

#[test]
fn a_process_has_the_energy_of_its_packages_between_its_edges() {
    let figure = Machine::new().package(0, 1.0).package(1, 0.5).figure();
    assert!(near(figure.joules, 9.0) && near(figure.mean_w, 1.5), "{figure:?}");
    let told = (figure.instrument, figure.measures, figure.of_record, figure.scope, figure.ran, figure.channels.len());
    assert_eq!(told, (Rung::RaplEnergyCounter, Measures::CpuPackages, true, Scope::OnDeviceGated, Ran::Invocation, 2));
    assert!(near(figure.channels[1].joules, 3.0) && figure.edge_error_pct.unwrap() < 1e-6);
    assert_eq!(figure.per_inference_j, None);
    assert!(codes(std::slice::from_ref(&figure)).is_empty());
    let metrics = metrics(&[figure], &point("command", 0), "none");
    assert_eq!((metrics.len(), value(&metrics, "power_w")), (1, Ok(1.5)));
}

#[test]
fn inferences_have_the_energy_of_their_rounds_and_none_of_the_pauses() {
    // 10 W while it works, 2 W in the pause and else.
    let spans = [(2 * SECOND, 3 * SECOND), (4 * SECOND, 5 * SECOND)];
    let busy = |s: f64| (s - 2.0).clamp(0.0, 1.0) + (s - 4.0).clamp(0.0, 1.0);
    let machine = Machine::new().with(ColumnName::Energy, "RAPL package-0", RAPL, "intel-rapl", |s| Some(2.0 * s + 8.0 * busy(s)));
    let figures = machine.figures(Some(rounds(&spans)));
    let figure = &figures[0];
    assert!(near(figure.joules, 20.0) && near(figure.mean_w, 10.0) && near(figure.per_inference_j, 0.1), "{figure:?}");
    assert_eq!((figure.ran, figure.scope), (Ran::TimedInferences, Scope::AgentTimedWindow));
    assert_eq!((figure.window.integrated_ns, figure.window.parts, figure.window.inferences), (2 * SECOND, 2, Some(200)));
    let metrics = metrics(&figures, &point("builtin", 0), "none");
    assert!(near(value(&metrics, "energy_per_inference_j").ok(), 0.1));
}

#[test]
fn a_window_of_less_than_a_second_keeps_the_whole_energy_and_gives_none_per_inference() {
    let spans = [(2 * SECOND, 2 * SECOND + SECOND / 2)];
    let figures = Machine::new().package(0, 2.0).figures(Some(rounds(&spans)));
    let figure = &figures[0];
    assert!(near(figure.joules, 12.0), "{figure:?}");
    assert_eq!((figure.scope, figure.ran, figure.per_inference_j), (Scope::FreeFormCapture, Ran::Invocation, None));
    assert_eq!(figure.per_inference_omitted_reason.as_deref(), Some("the timed inferences took 0.500 s, less than 1 s"));
    let metrics = metrics(&figures, &point("builtin", 0), "none");
    assert_eq!(value(&metrics, "power_w").unwrap_err(), "no window of 1 s and more: the whole energy stands in the record");
    assert!(codes(&figures).is_empty());
}

#[test]
fn what_is_wrong_with_a_window_that_is_too_short_is_a_note_unless_it_is_its_clock() {
    let short = [(2 * SECOND, 2 * SECOND + SECOND / 2)];
    let unseen = Machine::new().board(|s| (s < 1.5).then_some(5.0));
    let figures = unseen.figures(Some(rounds(&short)));
    assert_eq!((figures[0].scope, figures[0].joules), (Scope::FreeFormCapture, None));
    assert!(codes(&figures).contains(&("window_observer_mismatch".into(), Severity::Note)), "{:?}", codes(&figures));
    assert!(codes(&figures).iter().all(|(_, severity)| *severity == Severity::Note));
    assert_eq!(value(&metrics(&figures, &point("command", 0), "none"), "power_w").unwrap_err(), "no window of 1 s and more");
    let long = [(2 * SECOND, 4 * SECOND)];
    assert!(codes(&unseen.figures(Some(rounds(&long)))).contains(&("window_observer_mismatch".into(), Severity::Error)));
    let unplaced = unseen.figures(Some(Timed { inferences: 5, ..rounds(&[]) }));
    assert!(codes(&unplaced).iter().all(|(_, severity)| *severity == Severity::Note), "{:?}", codes(&unplaced));
    let frozen = Timed { inferences: 5, ..rounds(&[(2 * SECOND, 2 * SECOND)]) };
    assert!(codes(&unseen.figures(Some(frozen))).contains(&("window_clock_frozen".into(), Severity::Error)));
}

#[test]
fn what_a_counter_cannot_be_is_withheld_and_never_zero() {
    let package = |value: &dyn Fn(f64) -> Option<f64>| Machine::new().with(ColumnName::Energy, "RAPL package-0", RAPL, "intel-rapl", value);
    let cases: [(Machine, &str); 4] = [
        (package(&|_| Some(55.0)), "the instrument stood still"),
        (package(&|s| Some(if s < 4.0 { 500.0 + s } else { s })), "RAPL package-0: it went back from 503.9 to 4 J"),
        (Machine::new().package(0, 50.0).known("limit_uw", "40000000"), "50.00 W on average, with a limit of 40.00 W"),
        (Machine::new().board(|_| Some(-3.0)), "-18.000 J over the window"),
    ];
    for (machine, why) in cases {
        let figure = machine.figure();
        assert_eq!((figure.joules, figure.mean_w, figure.omitted_reason.as_deref()), (None, None, Some(why)));
        assert!(codes(std::slice::from_ref(&figure)).contains(&("energy_implausible".into(), Severity::Error)), "{figure:?}");
        assert_eq!(value(&metrics(&[figure], &point("command", 0), "none"), "power_w").unwrap_err(), why);
    }
    let allowed = Machine::new().package(0, 47.0).known("limit_uw", "40000000").figure();
    assert!(near(allowed.joules, 282.0));
}

#[test]
fn a_counter_that_wraps_in_the_middle_counts_on() {
    let wrapping = |s: f64| Some((1000.0 + 3.0 * s) % 1010.0);
    let machine = Machine::new().with(ColumnName::Energy, "RAPL package-0", RAPL, "intel-rapl", wrapping);
    assert!(near(machine.known("wraps_at_uj", "1010000000").figure().joules, 18.0));
}

#[test]
fn a_monitor_that_falls_silent_has_not_seen_the_window() {
    let figure = Machine::new().board(|s| (s < 4.0).then_some(5.0)).figure();
    assert_eq!((figure.joules, figure.omitted_reason.as_deref()), (None, Some("ina3221 VDD_IN was seen for 2.900 of 6.000 s")));
    let codes = codes(&[figure]);
    assert_eq!(codes[0], ("window_observer_mismatch".into(), Severity::Error));
    assert!(codes.contains(&("check_inoperative".into(), Severity::Note)), "what had nothing to judge was not passed: {codes:?}");
    // A gap of three samples is bridged.
    assert!(near(Machine::new().board(|s| (!(3.95..4.15).contains(&s)).then_some(5.0)).figure().joules, 30.0));
}

#[test]
fn power_that_changes_at_the_edges_makes_a_short_window_doubtful() {
    // Rises within the first second of two: 1 W to 21 W.
    let spans = [(2 * SECOND, 4 * SECOND)];
    let machine = Machine::new().board(|s| Some(1.0 + 20.0 * (s - 2.0).clamp(0.0, 1.0)));
    let figures = machine.figures(Some(rounds(&spans)));
    let figure = &figures[0];
    assert!(near(figure.joules, 32.0), "{figure:?}");
    // Δ/T · |P first − P̄| ÷ P̄ = 0.1/2 · (16 − 2)/16.
    assert!((figure.edge_error_pct.unwrap() - 100.0 * 0.05 * 14.0 / 16.0).abs() < 1e-6, "{figure:?}");
    assert!(figure.per_inference_j.is_some());
    assert_eq!(codes(&figures), [("edge_error".into(), Severity::Warning)]);
    assert!(near(value(&metrics(&figures, &point("builtin", 0), "none"), "power_w").ok(), 16.0));
    // The same with a tenth of the samples.
    let slow = machine.known("period_ms", "1000");
    let figures = slow.figures(Some(rounds(&spans)));
    assert!(figures[0].edge_error_pct.unwrap() > 5.0 && figures[0].joules.is_some());
    let why = figures[0].per_inference_omitted_reason.as_ref().unwrap();
    assert!(why.starts_with("its edges may have brought in"), "{why}");
    assert_eq!(value(&metrics(&figures, &point("builtin", 0), "none"), "power_w").as_ref().unwrap_err(), why);
}

#[test]
fn few_readings_of_a_monitor_are_no_power_and_no_energy_of_an_inference() {
    let spans = [(2 * SECOND, 5 * SECOND)];
    let machine = Machine::new().board(|s| (s.fract() < 1e-9).then_some(5.0));
    let figures = machine.figures(Some(rounds(&spans)));
    assert!(near(figures[0].joules, 15.0), "{:?}", figures[0]);
    assert_eq!(figures[0].per_inference_omitted_reason.as_deref(), Some("only 4 readings fell into the window"));
    assert_eq!(value(&metrics(&figures, &point("builtin", 0), "none"), "power_w").unwrap_err(), "only 4 readings fell into the window");
    // Of a counter two are enough, at the edges.
    let read = |s: f64| [2.0, 5.0].contains(&s).then_some(5.0 * s);
    let counted = Machine::new().with(ColumnName::Energy, "RAPL package-0", RAPL, "intel-rapl", read).figures(Some(rounds(&spans)));
    assert!(near(value(&metrics(&counted, &point("builtin", 0), "none"), "power_w").ok(), 5.0));
}

#[test]
fn a_power_that_is_the_mean_of_a_second_has_edges_of_a_second_and_is_not_held_against_the_counter_of_a_short_run() {
    // 50 W, and 300 W from second 1 to second 7: 1800 J.
    let work = |s: f64| (s.min(7.0) - 1.0).max(0.0);
    let counted = |s: f64| 50.0 * s + 250.0 * work(s);
    let mean = move |s: f64| (counted(s) - counted(s - 1.0)).max(50.0);
    let machine = Machine::new().with(ColumnName::Energy, "GPU-0", "nvml:total_energy", "nvml", move |s| Some(counted(s))).with(
        ColumnName::Power,
        "GPU-0",
        "nvml:power",
        "nvml",
        move |s| Some(mean(s)),
    );
    let figures = machine.figures(None);
    assert!(near(figures[0].joules, 1800.0), "{:?}", figures[0]);
    let late = &figures[1];
    assert!((late.joules.unwrap() - 1675.0).abs() < 5.0, "{late:?}");
    // It has missed 7 %, and may have missed 1.1 s of 250 W and more.
    assert!(late.edge_error_pct.unwrap() > 7.0, "{late:?}");
    assert_eq!(late.power_omitted_reason.as_deref().map(|why| why.starts_with("its edges may have brought in")), Some(true));
    assert!(figures.iter().all(|figure| figure.cross_check.is_none()) && codes(&figures).is_empty());
}

#[test]
fn two_instruments_for_one_thing_are_held_against_each_other() {
    let gpu = |machine: Machine, watts: f64| {
        machine
            .with(ColumnName::Energy, "GPU-0", "nvml:total_energy", "nvml", |s| Some(31.2 * s))
            .with(ColumnName::Power, "GPU-0", "nvml:power", "nvml", move |_| Some(watts))
            .package(0, 200.0)
    };
    let figures = gpu(Machine::new(), 54.5).figures(None);
    let told: Vec<_> =
        figures.iter().map(|figure| (figure.instrument, figure.of_record, figure.cross_check.as_ref().map(|c| c.instrument))).collect();
    assert_eq!(
        told,
        [
            (Rung::NvmlEnergyCounter, true, Some(Rung::NvmlIntegratedSamples)),
            (Rung::RaplEnergyCounter, false, None),
            (Rung::NvmlIntegratedSamples, false, Some(Rung::NvmlEnergyCounter)),
        ]
    );
    let issue = &issues(&figures, Weight::OfRecord)[0];
    assert_eq!(issue.message, "nvml_integrated_samples has 1.747 times the energy of nvml_energy_counter");
    assert!(codes(&gpu(Machine::new(), 32.0).figures(None)).is_empty());
}

#[test]
fn a_broken_figure_is_a_note_beside_other_numbers() {
    let figures = Machine::new().board(|_| Some(0.0)).figures(None);
    let severities = |weight| issues(&figures, weight).into_iter().map(|issue| issue.severity).collect::<Vec<_>>();
    assert_eq!(severities(Weight::OfRecord)[0], Severity::Error);
    assert!(severities(Weight::Beside).iter().all(|severity| *severity == Severity::Note) && !severities(Weight::Beside).is_empty());
}

#[test]
fn inferences_that_leave_much_of_the_window_unexplained_have_no_energy() {
    let spans = [(2 * SECOND, 4 * SECOND)];
    let with = |busy_ns| Machine::new().package(0, 5.0).figures(Some(Timed { spans_ns: &spans, inferences: 100, busy_ns }));
    assert!(codes(&with(1_900_000_000)).is_empty());
    assert_eq!(codes(&with(1_770_000_000)), [("reference_drift".into(), Severity::Note)]);
    assert!(with(1_770_000_000)[0].per_inference_j.is_some());
    assert_eq!(with(1_000_000_000)[0].per_inference_omitted_reason.as_deref(), Some("the window is 100.0 % off the sum of its inferences"));
}

#[test]
fn without_an_instrument_the_reason_names_what_could_not_be_read() {
    let mut machine = Machine::new();
    let absent = |metric: &str| Reading {
        metric: metric.into(),
        unit: "J".into(),
        subject: Some("RAPL package-0".into()),
        source: RAPL.into(),
        value: None,
        absent: Some("Permission denied".into()),
    };
    machine.around[0].readings = vec![absent("sensor_energy_j"), absent("temperature_c")];
    let why = without(&machine.evidence());
    let expected = "the device has no energy instrument that was read (RAPL package-0: Permission denied; `isotherm probe` says what mends that)";
    assert_eq!(why, expected);
    let metrics = metrics(&machine.figures(None), &point("builtin", 0), &why);
    assert_eq!(metrics.values().map(|metric| (metric.value, metric.omitted_reason.as_deref())).collect::<Vec<_>>(), [(None, Some(expected)); 2]);
}

#[test]
fn what_a_device_takes_while_it_waits_is_taken_off() {
    let waited = |seconds: u64, watts: f64| {
        let mut machine = Machine::new().package(0, 5.0);
        let values = (0..=seconds).map(|second| Some(900.0 + watts * second as f64)).collect();
        let columns = vec![Column { values, ..machine.series.columns[0].clone() }];
        machine.idle = Some(Series { monotonic_ns: (0..=seconds).map(|second| second * SECOND).collect(), columns });
        machine.figure()
    };
    let figure = waited(10, 2.0);
    let net = figure.net.unwrap();
    assert!(near(Some(net.joules), 18.0) && near(Some(net.mean_w), 3.0) && near(Some(net.idle_w), 2.0), "{net:?}");
    assert!(near(figure.joules, 30.0), "the headline is gross");
    assert_eq!(net.idle_ns, 10 * SECOND);
    let why = |figure: EnergyFigure| (figure.net, figure.net_omitted_reason.unwrap());
    assert_eq!(why(waited(9, 2.0)), (None, "it was read for 9.0 s while the device waited, less than 10 s".into()));
    assert_eq!(why(waited(10, 6.0)), (None, "the device took 6.00 W while it waited and 5.00 W in the window".into()));
    assert_eq!(why(Machine::new().package(0, 5.0).figure()), (None, "it was not read while the device waited for the run".into()));
}

#[test]
fn an_instrument_that_is_read_rarely_reaches_the_edges_by_its_readings_around_the_run() {
    // Once a second, from second 2 to second 6; the process ran from 1 to 7.
    let mut machine = Machine::new().board(|s| (s.fract() < 1e-9 && (2.0..=6.0).contains(&s)).then_some(5.0));
    assert_eq!(machine.figure().joules, None);
    let Column { metric, unit, subject, source, .. } = machine.series.columns[0].clone();
    let reading = Reading { metric, unit, subject, source, value: Some(5.0), absent: None };
    let at = |monotonic_ns| Snapshot { monotonic_ns, readings: vec![reading.clone()] };
    machine.series.monotonic_ns.iter_mut().for_each(|ns| *ns += 1);
    machine.around = [at(0), at(8 * SECOND + SECOND / 2)];
    assert!(near(machine.figure().joules, 30.0), "{:?}", machine.figure());
    // One that was taken while it was sampled is no reading ahead of the samples.
    machine.around[0].monotonic_ns = SECOND;
    assert_eq!(machine.figure().joules, None);
}
