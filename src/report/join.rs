//! Energy by two runs: the mean power of a power run over the rate of the timing run of the same repetition.
//!
//! Takes points with their runs; gives for the power runs that stand beside timing runs what follows from both, or why nothing does, and
//! which of their own metrics are shown. Must not know how a table is made.

use super::{
    build::operating_state,
    counts::{Fate, count},
    gather::{Gathered, Point, Run, key},
    input::ReportOptions,
};
use crate::{
    config::model::Better,
    registry::MetricId,
    stats::Summary,
    store::record::{Kind, Metric, PointIds},
};
use std::collections::{BTreeMap, BTreeSet};

/// Rates of power and timing runs that differ by more are of two workloads: what is read beside the one slows it.
const MOST_APART: f64 = 0.05;

const POWER: MetricId = MetricId::Power;

/// What follows from a power run and a timing run of some backends.
struct Joint {
    joined: MetricId,
    /// What the watts are divided by, or multiplied with.
    pace: MetricId,
    /// What is counted, for a message.
    one: &'static str,
    /// Of the metric's unit in a mJ.
    of_a_mj: f64,
}

static JOINTS: [Joint; 4] = [
    Joint { joined: MetricId::EnergyPerInferenceJoined, pace: MetricId::Latency, one: "an inference", of_a_mj: 1e-3 },
    Joint { joined: MetricId::EnergyPerTokenJoined, pace: MetricId::DecodeTps, one: "a token", of_a_mj: 1.0 },
    Joint { joined: MetricId::EnergyPerPrefillTokenJoined, pace: MetricId::PrefillTps, one: "a token", of_a_mj: 1.0 },
    Joint { joined: MetricId::EnergyPerServedTokenJoined, pace: MetricId::ServedTps, one: "a token", of_a_mj: 1.0 },
];

impl Joint {
    fn of(point: &PointIds) -> Option<&'static Joint> {
        JOINTS.iter().find(|joint| joint.joined.entry().backends.contains(&point.backend.as_str()) && joint.joined.entry().is_asked_of(point))
    }
}

/// What joining gave.
pub(super) struct Joined<'a> {
    /// By the path of the power run's record, with their names.
    metrics: BTreeMap<&'a str, (&'static str, Metric)>,
    /// Power points that stand beside timing runs, by index.
    paired: BTreeSet<usize>,
    /// Why a power point is joined with nothing, in words, where its rates are too far apart.
    withheld: BTreeMap<usize, String>,
    /// Repetitions of a power point in which a run of either kind is degraded and left out.
    left_out: BTreeMap<usize, u32>,
}

/// Both runs of a repetition.
struct Pair {
    watts: f64,
    /// Of one inference or token, in either run.
    power_ms: f64,
    timing_ms: f64,
}

/// Is it a definition that this room gives?
pub(super) fn is_joined(definition: &str) -> bool {
    JOINTS.iter().any(|joint| definition == joint.joined.entry().definition)
}

impl<'a> Joined<'a> {
    pub(super) fn of(gathered: &Gathered<'a>, options: ReportOptions) -> Joined<'a> {
        let mut joined = Joined { metrics: BTreeMap::new(), paired: BTreeSet::new(), withheld: BTreeMap::new(), left_out: BTreeMap::new() };
        let place = |point: &Point<'_>| (key(point.ids, Kind::Timing), point.identity.map(str::to_owned));
        let of_timing: BTreeMap<_, usize> =
            (0..gathered.points.len()).filter(|&at| gathered.points[at].kind == Kind::Timing).map(|at| (place(&gathered.points[at]), at)).collect();
        for (at, point) in gathered.points.iter().enumerate().filter(|(_, point)| point.kind == Kind::Power) {
            let Some(timing) = of_timing.get(&place(point)) else { continue };
            joined.paired.insert(at);
            if let Some(joint) = Joint::of(point.ids) {
                joined.point(at, joint, point, &gathered.points[*timing], options);
            }
        }
        joined
    }

    fn point(&mut self, at: usize, joint: &'static Joint, power: &Point<'a>, timing: &Point<'_>, options: ReportOptions) {
        let pairs: Vec<(&Run<'a>, Result<Pair, String>)> = power.own_runs().map(|run| (run, pair(joint, run, timing, options))).collect();
        let apart = apart(joint, pairs.iter().filter_map(|(_, pair)| pair.as_ref().ok()));
        self.withheld.extend(apart.iter().map(|why| (at, why.clone())));
        if !options.include_degraded {
            let degraded = power.own_runs().chain(timing.own_runs()).filter(|run| run.fate() == Fate::Degraded);
            self.left_out.insert(at, count(degraded.map(Run::repetition).collect::<BTreeSet<_>>().len()));
        }
        for (run, pair) in pairs {
            let energy = match (&apart, pair) {
                (Some(why), Ok(_)) => Err(why.clone()),
                (_, pair) => pair.map(|pair| pair.watts * pair.timing_ms * joint.of_a_mj),
            };
            self.metrics.insert(run.path, (joint.joined.entry().name, metric(joint, energy)));
        }
    }

    /// The metrics of a run that tables are made of: of a power run beside a timing run its power, and what both give together. Its own time
    /// and what follows from that are those of a run that was disturbed.
    pub(super) fn metrics<'r>(&'r self, point: usize, run: &'r Run<'_>) -> impl Iterator<Item = (&'r str, &'r Metric)> {
        let own = run.record.metrics.iter().map(|(name, metric)| (name.as_str(), metric));
        let shown = own.filter(move |(_, metric)| self.shows(point, &metric.definition));
        shown.chain(self.metrics.get(run.path).map(|(name, metric)| (*name, metric)))
    }

    /// Has the point a row in tables of this definition?
    pub(super) fn shows(&self, point: usize, definition: &str) -> bool {
        !self.paired.contains(&point) || is_joined(definition) || definition == POWER.entry().definition
    }

    /// Why these points, which are one row, give nothing: of one of them the rates are too far apart (`rates_differ`).
    pub(super) fn withheld(&self, points: &[usize]) -> Option<&str> {
        points.iter().find_map(|point| self.withheld.get(point)).map(String::as_str)
    }

    /// Repetitions that are joined with nothing because one of their runs is degraded.
    pub(super) fn left_out(&self, point: usize) -> u32 {
        self.left_out.get(&point).copied().unwrap_or(0)
    }
}

/// Both runs of this power run's repetition, or what is lacking.
fn pair(joint: &Joint, power: &Run<'_>, timing: &Point<'_>, options: ReportOptions) -> Result<Pair, String> {
    let usable = |run: &Run<'_>| run.fate() == Fate::Ok || options.include_degraded && run.fate() == Fate::Degraded;
    let repetition = power.repetition();
    let beside = timing.own_runs().find(|run| run.repetition() == repetition).ok_or_else(|| format!("there is no timing run r{repetition}"))?;
    if !usable(beside) {
        return Err(format!("timing run r{repetition} is {}", beside.fate().name()));
    }
    if !usable(power) {
        return Err(format!("power run r{repetition} is {}", power.fate().name()));
    }
    let [state, other] = [power, beside].map(|run| operating_state(&run.record.context.state, true));
    if state != other {
        return Err(format!("runs r{repetition} found different states ({} and {})", said(&other), said(&state)));
    }
    let value = |run: &Run<'_>, id: MetricId, whose: &str| {
        let metric = named(run, id);
        let why = || metric.and_then(|metric| metric.omitted_reason.clone()).unwrap_or_else(|| "not reported".to_owned());
        let positive = metric.and_then(|metric| metric.value).filter(|value| value.is_finite() && *value > 0.0);
        positive.ok_or_else(|| format!("no {} of {whose} run r{repetition}: {}", id.entry().name, why()))
    };
    let ms = |run: &Run<'_>, whose: &str| {
        let value = value(run, joint.pace, whose)?;
        Ok::<f64, String>(if joint.pace.entry().better == Better::Lower { value } else { 1000.0 / value })
    };
    let (watts, power_ms) = (value(power, POWER, "power")?, ms(power, "power")?);
    Ok(Pair { watts, power_ms, timing_ms: ms(beside, "timing")? })
}

fn named<'r>(run: &'r Run<'_>, id: MetricId) -> Option<&'r Metric> {
    run.record.metrics.get(id.entry().name).filter(|metric| metric.definition == id.entry().definition)
}

fn said(state: &str) -> &str {
    if state.is_empty() { "nominal" } else { state }
}

/// In words, where power runs were another workload than timing runs.
fn apart<'p>(joint: &Joint, pairs: impl Iterator<Item = &'p Pair>) -> Option<String> {
    let (power, timing): (Vec<f64>, Vec<f64>) = pairs.map(|pair| (pair.power_ms, pair.timing_ms)).unzip();
    let (power, timing) = (Summary::of(&power)?.headline, Summary::of(&timing)?.headline);
    let ratio = timing / power;
    (1.0 - ratio).abs().gt(&MOST_APART).then(|| {
        format!(
            "withheld: {} took {power:.4} ms in the power runs and {timing:.4} ms in the timing runs; their rates are {:.1} % apart, more than {} %",
            joint.one,
            100.0 * (1.0 - ratio).abs(),
            100.0 * MOST_APART
        )
    })
}

fn metric(joint: &Joint, energy: Result<f64, String>) -> Metric {
    let entry = joint.joined.entry();
    Metric {
        n: u32::from(energy.is_ok()),
        value: energy.as_ref().ok().copied(),
        unit: entry.unit.symbol().into(),
        better: entry.better,
        spread: None,
        definition: entry.definition.into(),
        label: None,
        omitted_reason: energy.err(),
        samples: Vec::new(),
        samples_sidecar: None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::registry::Code;
    use crate::report::{
        Model, ReportInput, Row, Table,
        records::{self, point, run},
    };
    use crate::store::record::{OperatingState, Record, Severity};

    /// Repetition r: a timing run with this latency in ms, then a power run with this mean power in W and a latency of its own.
    fn repetition(r: u32, timing_ms: f64, watts: f64, power_ms: f64) -> [records::Run; 2] {
        let point = point(&[("threads", crate::config::model::AxisValue::Int(1))]);
        [run(&point, r).latency(timing_ms), run(&point, r).latency(power_ms).power(watts)]
    }

    fn model(runs: impl IntoIterator<Item = records::Run>) -> Model {
        let records: Vec<(String, Record)> = runs.into_iter().map(records::Run::stored).collect();
        Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default())
    }

    fn table<'m>(model: &'m Model, definition: &str) -> &'m Table {
        model.tables.iter().find(|table| table.definition.terminal() == definition).unwrap()
    }

    fn joined(model: &Model) -> &Row {
        let table = table(model, "energy.joined.v1");
        assert_eq!((table.metric.terminal(), table.rows.len()), ("energy_per_inference_j".to_owned(), 1));
        &table.rows[0]
    }

    fn codes(row: &Row) -> Vec<Code> {
        row.states.iter().map(|state| state.code).collect()
    }

    #[test]
    fn energy_per_inference_is_the_power_of_the_one_run_times_the_time_of_the_other() {
        // 5 W × 2 ms = 10 mJ; 5.2 W × 2.1 ms = 10.92 mJ. That the power runs took a little longer changes nothing.
        let model = model([repetition(0, 2.0, 5.0, 2.06), repetition(1, 2.1, 5.2, 2.1)].into_iter().flatten());
        let number = joined(&model).number.as_ref().unwrap();
        assert!((number.value - (0.010_f64 * 0.010_92).sqrt()).abs() < 1e-12, "{}", number.value);
        // Of the pairs' logs: t at 1 degree of freedom (12.706) times their standard error.
        let half = 12.706_204_736_432_095 * (0.010_92_f64 / 0.010).ln() / 2.0;
        let interval = number.interval.unwrap();
        assert!((interval.high / number.value - half.exp()).abs() < 1e-9, "{interval:?}");
        assert_eq!((number.runs, codes(joined(&model))), (2, vec![]));
        // The power run's own time is in no table, and its power is in one.
        assert_eq!(table(&model, "inference.wall.v1").rows.len(), 1);
        assert_eq!(table(&model, "power.mean.v1").rows[0].number.as_ref().unwrap().runs, 2);
        assert_eq!(model.tables.len(), 3);
        let kinds = |definition| table(&model, definition).constants.iter().filter(|constant| constant.name.terminal() == "kind").count();
        assert_eq!((kinds("power.mean.v1"), kinds("energy.joined.v1")), (1, 0));
    }

    #[test]
    fn power_runs_that_were_more_than_5_percent_off_are_joined_with_nothing_and_both_times_are_named() {
        for (power_ms, withheld) in [(2.10, false), (2.12, true), (1.90, true)] {
            let model = model([repetition(0, 2.0, 5.0, power_ms), repetition(1, 2.0, 5.0, power_ms)].into_iter().flatten());
            assert_eq!(joined(&model).number.is_none(), withheld, "{power_ms}");
            if withheld {
                let why = joined(&model).absent_reason.as_ref().unwrap().terminal();
                assert!(why.contains(&format!("{power_ms:.4} ms")) && why.contains("2.0000 ms"), "{why}");
                assert_eq!(codes(joined(&model)), [Code::RatesDiffer]);
            }
            // Its power stands all the same.
            assert!(table(&model, "power.mean.v1").rows[0].number.is_some());
        }
    }

    #[test]
    fn energy_per_token_is_the_power_of_the_one_run_over_the_decode_rate_of_the_other() {
        let point = crate::store::record::PointIds { backend: "llama-bench".into(), ..point(&[]) };
        let rate = |run: records::Run, name, definition, tps| run.metric(name, Some(tps), "tokens/s", definition, Better::Higher);
        let both = |run, prefill, decode| rate(rate(run, "prefill_tps", "llama_bench.pp.v1", prefill), "decode_tps", "llama_bench.tg.v1", decode);
        // 6 W at 12 tokens/s: 500 mJ a token. That the power run was a little slower changes nothing, and what prefill did neither.
        let timing = both(run(&point, 0), 100.0, 12.0);
        let all = model([timing.clone(), both(run(&point, 0), 50.0, 11.8).power(6.0)]);
        let table_of = |model: &Model| table(model, "energy.joined.v1").clone();
        let joined = table_of(&all);
        assert_eq!((joined.metric.terminal(), joined.unit.terminal()), ("energy_per_token_mj".to_owned(), "mJ".to_owned()));
        assert!((joined.rows[0].number.as_ref().unwrap().value - 500.0).abs() < 1e-9);
        let apart = table_of(&model([timing, both(run(&point, 0), 100.0, 11.0).power(6.0)]));
        let why = apart.rows[0].absent_reason.as_ref().unwrap().terminal();
        assert!(why.contains("a token took 90.9091 ms in the power runs and 83.3333 ms in the timing runs"), "{why}");
        // Of prefill where that is all, by a definition of its own: in a table with decode it has no row.
        use crate::config::model::AxisValue;
        let lengths = |n_gen| [("n_prompt", AxisValue::Int(64)), ("n_gen", AxisValue::Int(n_gen))];
        let ids = |n_gen| PointIds { backend: "llama-bench".into(), ..records::point(&lengths(n_gen)) };
        let prefill = rate(run(&ids(0), 0), "prefill_tps", "llama_bench.pp.v1", 100.0);
        let decode = both(run(&ids(16), 0), 100.0, 12.0);
        let all = model([prefill.clone(), prefill.power(6.0), decode.clone(), decode.power(6.0)]);
        let rows = |definition| table(&all, definition).rows.iter().map(|row| row.number.as_ref().unwrap().value.round()).collect::<Vec<_>>();
        assert_eq!((rows("energy.prefill_joined.v1"), rows("energy.joined.v1")), (vec![60.0], vec![500.0]));
    }

    #[test]
    fn a_row_of_several_points_is_withheld_where_the_rates_of_one_of_them_are_too_far_apart() {
        use crate::config::model::AxisValue;
        let ids = |n_prompt| {
            let axes = [("n_prompt", AxisValue::Int(n_prompt)), ("n_gen", AxisValue::Int(16)), ("depth", AxisValue::Int(0))];
            PointIds { backend: "llama-bench".into(), ..records::point(&axes) }
        };
        let decode = |n_prompt, tps| run(&ids(n_prompt), 0).metric("decode_tps", Some(tps), "tokens/s", "llama_bench.tg.v1", Better::Higher);
        let row = |short, long| {
            let runs = [decode(32, 12.0), decode(32, short).power(6.0), decode(64, 12.0), decode(64, long).power(6.0)];
            let all = table(&model(runs), "energy.joined.v1").rows.clone();
            assert_eq!((all.len(), all[0].pooled.len()), (1, 1));
            all[0].clone()
        };
        assert_eq!((row(11.8, 11.8).number.unwrap().runs, codes(&row(11.8, 11.8))), (2, vec![]));
        for row in [row(11.8, 10.0), row(10.0, 11.8)] {
            assert_eq!((&row.number, codes(&row)), (&None, vec![Code::RatesDiffer]));
            let why = row.absent_reason.unwrap().terminal();
            assert!(why.starts_with("withheld: a token took 100.0000 ms in the power runs and 83.3333 ms"), "{why}");
        }
    }

    #[test]
    fn energy_per_served_token_is_the_power_of_the_one_run_over_the_tokens_served_in_the_other() {
        let point = PointIds { backend: "llama-server".into(), ..point(&[]) };
        let served = |tps| run(&point, 0).metric("served_tps", Some(tps), "tokens/s", "client.served.v1", Better::Higher);
        let of = |power_tps| table(&model([served(12.0), served(power_tps).power(6.0)]), "energy.served_joined.v1").rows[0].clone();
        assert!((of(11.8).number.unwrap().value - 500.0).abs() < 1e-9);
        assert_eq!(codes(&of(11.0)), [Code::RatesDiffer]);
    }

    #[test]
    fn a_repetition_that_lacks_one_of_its_runs_gives_nothing_and_says_which() {
        let [timing, power] = repetition(0, 2.0, 5.0, 2.0);
        let [disturbed, beside] = repetition(1, 2.0, 5.0, 2.0);
        let [_, alone] = repetition(2, 2.0, 5.0, 2.0);
        let disturbed = disturbed.issue("competing_load", Severity::Warning, "busy");
        let all = model([timing.clone(), power.clone(), alone.clone()]);
        assert_eq!((joined(&all).number.as_ref().unwrap().runs, codes(joined(&all))), (1, vec![Code::WithoutValue]));
        // One that escaped the disturbance of another is no number of the point.
        let all = model([timing, power, disturbed, beside, alone]);
        assert_eq!((&joined(&all).number, codes(joined(&all))), (&None, vec![Code::WithoutValue, Code::Withheld]));
        let why = joined(&all).absent_reason.as_ref().unwrap().terminal();
        assert_eq!(why, "withheld: 1 valid repetition left, 1 repetition with a degraded run; --include degraded uses all");
        let [disturbed, beside] = repetition(1, 2.0, 5.0, 2.0);
        let [_, alone] = repetition(2, 2.0, 5.0, 2.0);
        let none = model([disturbed.issue("competing_load", Severity::Warning, "busy"), beside, alone]);
        let why = joined(&none).absent_reason.as_ref().unwrap().terminal();
        assert_eq!(why, "timing run r1 is degraded; there is no timing run r2");
    }

    #[test]
    fn runs_of_different_states_are_not_joined() {
        let [timing, power] = repetition(0, 2.0, 5.0, 2.0).map(records::Run::stored);
        let mut throttled = power;
        throttled.1.context.state = OperatingState { throttled: Some(true), ..OperatingState::default() };
        let records = vec![timing, throttled];
        let model = Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default());
        let why = joined(&model).absent_reason.as_ref().unwrap().terminal();
        assert!(why.contains("found different states"), "{why}");
    }

    #[test]
    fn power_runs_without_timing_runs_show_all_that_they_have_as_of_their_kind() {
        let [_, power] = repetition(0, 2.0, 5.0, 2.0);
        let model = model([power]);
        let definitions: Vec<String> = model.tables.iter().map(|table| table.definition.terminal()).collect();
        assert_eq!(definitions, ["inference.wall.v1", "power.mean.v1"]);
        assert!(model.tables.iter().all(|table| table.constants.iter().any(|constant| constant.name.terminal() == "kind")));
    }

    #[test]
    fn a_failed_power_run_leaves_the_row_of_its_timing_runs_as_it_is() {
        let [timing, power] = repetition(0, 2.0, 5.0, 2.0);
        let alone = model([timing.clone()]);
        let both = model([timing, power.failed(crate::store::record::Reason::Timeout, "too long")]);
        let latency =
            |model: &Model| table(model, "inference.wall.v1").rows.iter().map(|row| (row.number.clone(), row.states.clone())).collect::<Vec<_>>();
        assert_eq!(latency(&alone), latency(&both));
        assert_eq!(both.tables.len(), 1);
    }
}
