//! By what an energy was measured: numbers of different instruments are no repetitions of each other.
//!
//! Takes records, gives the instrument of an energy metric in words; must not know how a table is made.

use super::gather::Run;
use crate::registry::MetricId;
use crate::store::energy::EnergyFigure;
use std::collections::BTreeSet;

/// Channels that are named one by one.
const MOST_NAMED: usize = 4;

/// Is it a definition of what an instrument measures?
pub(super) fn measures(definition: &str) -> bool {
    let energy = [
        MetricId::Power,
        MetricId::EnergyPerInferenceWindow,
        MetricId::EnergyPerInferenceJoined,
        MetricId::EnergyPerPrefillTokenWindow,
        MetricId::EnergyPerPrefillTokenJoined,
    ];
    energy.iter().any(|id| id.entry().definition == definition)
}

fn of_record<'r>(run: &Run<'r>) -> Option<&'r EnergyFigure> {
    run.record.energy.iter().find(|figure| figure.of_record)
}

/// Instrument of a run, what it measures and which of its channels: equal for numbers that may be averaged. `None` = the run has none.
pub(super) fn of_run(run: &Run<'_>) -> Option<String> {
    let figure = of_record(run)?;
    let names: Vec<&str> = figure.channels.iter().map(|channel| channel.subject.as_str()).collect();
    let channels = if names.len() > MOST_NAMED { format!("{} channels", names.len()) } else { names.join(" + ") };
    Some(format!("{} of {} ({channels})", figure.instrument.name(), figure.measures.name()))
}

/// The same for runs of one instrument, with the scopes that they have.
pub(super) fn of_runs(runs: &[&Run<'_>]) -> Option<String> {
    let instrument = runs.iter().find_map(|run| of_run(run))?;
    let scopes: BTreeSet<&str> = runs.iter().filter_map(|run| of_record(run)).map(|figure| figure.scope.name()).collect();
    Some(format!("{instrument}, {}", scopes.into_iter().collect::<Vec<_>>().join(" and ")))
}

#[cfg(test)]
mod tests {
    use crate::report::{
        Model, ReportInput, ReportOptions, csv,
        records::{self, point, run},
        terminal,
    };
    use crate::store::energy::{EnergyChannel, EnergyFigure, EnergyWindow, Measures, Observers, Ran, Rung, Scope};
    use crate::store::record::Record;

    fn figure(instrument: Rung, scope: Scope, subjects: &[&str]) -> EnergyFigure {
        let channel = |subject: &&str| EnergyChannel {
            metric: "sensor_energy_j".into(),
            subject: (*subject).into(),
            source: String::new(),
            driver: None,
            joules: None,
            wraps_at_j: None,
            period_ms: None,
            limit_w: None,
        };
        EnergyFigure {
            instrument,
            measures: Measures::CpuPackages,
            of_record: true,
            scope,
            ran: Ran::Invocation,
            window: EnergyWindow { start_ns: 0, end_ns: 1, integrated_ns: 1, parts: 1, inferences: None },
            joules: None,
            mean_w: None,
            omitted_reason: None,
            power_omitted_reason: None,
            net: None,
            net_omitted_reason: None,
            per_inference_j: None,
            per_inference_omitted_reason: None,
            edge_error_pct: None,
            observers: Observers::SameClock,
            checks: Vec::new(),
            cross_check: None,
            channels: subjects.iter().map(channel).collect(),
        }
    }

    fn model(runs: Vec<(records::Run, EnergyFigure)>) -> Model {
        let stored = |(run, figure): (records::Run, EnergyFigure)| {
            let (path, mut record): (String, Record) = run.stored();
            record.energy = vec![figure];
            (path, record)
        };
        Model::of(&ReportInput { records: runs.into_iter().map(stored).collect(), ..ReportInput::default() }, ReportOptions::default())
    }

    /// Runs, value and instrument of every row.
    fn rows(model: &Model) -> Vec<(u32, f64, String)> {
        let row = |row: &crate::report::Row| {
            let number = row.number.as_ref()?;
            Some((number.runs, number.value, row.instrument.as_ref()?.terminal()))
        };
        model.tables[0].rows.iter().filter_map(row).collect()
    }

    #[test]
    fn a_table_of_power_names_its_instrument_and_every_scope_of_it() {
        let at = |r, scope| (run(&point(&[]), r).power(6.0), figure(Rung::RaplEnergyCounter, scope, &["RAPL package-0", "RAPL package-1"]));
        let model = model(vec![at(0, Scope::OnDeviceGated), at(1, Scope::AgentTimedWindow)]);
        let by = "rapl_energy_counter of cpu_packages (RAPL package-0 + RAPL package-1), agent_timed_window and on_device_gated";
        assert_eq!(rows(&model), [(2, 6.0, by.to_owned())]);
        let page = terminal(&model, None, false);
        assert!(page.contains(&format!("measured by {by}")), "{page}");
        assert!(csv(&model).lines().all(|line| line.ends_with(",instrument") || line.contains(by)), "{}", csv(&model));
        // No other number has one.
        let (path, record) = run(&point(&[]), 0).latency(2.0).stored();
        let times = Model::of(&ReportInput { records: vec![(path, record)], ..ReportInput::default() }, ReportOptions::default());
        assert!(times.tables[0].rows[0].instrument.is_none());
    }

    #[test]
    fn runs_that_were_measured_by_different_instruments_are_different_rows() {
        let at = |r, watts, instrument, subjects: &[&str]| (run(&point(&[]), r).power(watts), figure(instrument, Scope::OnDeviceGated, subjects));
        let model = model(vec![
            at(0, 6.0, Rung::RaplEnergyCounter, &["RAPL package-0"]),
            at(1, 6.0, Rung::RaplEnergyCounter, &["RAPL package-0"]),
            at(2, 9.0, Rung::HwmonPowerSamples, &["ina226 VDD_IN"]),
            at(3, 7.0, Rung::RaplEnergyCounter, &["RAPL package-0", "RAPL package-1"]),
        ]);
        let found: Vec<(u32, f64)> = rows(&model).into_iter().map(|(runs, value, _)| (runs, value)).collect();
        assert_eq!(found, [(1, 9.0), (1, 7.0), (2, 6.0)]);
        assert!(model.tables[0].rows.iter().all(|row| row.states.is_empty()), "an instrument is no state of the machine");
    }
}
