//! Numbers against the most that their device can do: a share of it, where a campaign says what it is.

use super::{
    build::rounded,
    escape::Foreign,
    gather::Run,
    model::{AgainstCeiling, Number},
};
use crate::config::model::Ceiling;
use crate::registry::MetricId;
use crate::store::record::Record;
use serde_json::Value;

/// Metrics, with the ceiling that each is held against.
const HELD: [(MetricId, &str); 1] = [(MetricId::DecodeBandwidth, Ceiling::DRAM_READ)];

/// What a row's number is of its ceiling: of the last run's, because a ceiling that is declared anew is the better known one. Of a number
/// that a GPU has any part in there is no share.
pub(super) fn of_row(definition: &str, number: &Number, used: &[&Run<'_>]) -> Option<AgainstCeiling> {
    let (_, name) = HELD.into_iter().find(|(id, _)| id.entry().definition == definition)?;
    let last = used.iter().max_by_key(|run| &run.record.ids.run_id)?;
    let Ceiling { value, source } = last.record.device.ceilings.get(name)?;
    let omitted = used.iter().find_map(|run| gpu(run.record)).map(|gpu| format!("{gpu} computed, and `{name}` says nothing of what it reads by"));
    Some(AgainstCeiling {
        name: Foreign::new(name),
        value: *value,
        source: Foreign::new(source),
        utilization_pct: omitted.is_none().then(|| rounded(100.0 * number.value / value)),
        omitted_reason: omitted.map(Foreign::new),
    })
}

/// The GPU that computed: one that the build has, with layers that may be on it.
fn gpu(record: &Record) -> Option<&str> {
    let text = |name: &str| record.executed.get(name).and_then(Value::as_str).unwrap_or_default();
    let has_layers = record.executed.get("n_gpu_layers").and_then(Value::as_i64) != Some(0);
    let gpu = Some(text("gpu_info")).filter(|gpu| !gpu.is_empty() && text("backends") != "CPU");
    gpu.filter(|_| has_layers && text("devices") != "none")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use crate::config::model::{AxisValue, Better, Ceiling};
    use crate::registry::Code;
    use crate::report::{
        Model, ReportInput, ReportOptions, Row, csv,
        records::{point, run},
        terminal,
    };
    use crate::store::record::Record;

    /// Points that reach so many GB/s, on a device with a ceiling of 10.
    fn records(reached: &[f64]) -> Vec<(String, Record)> {
        let of = |(threads, gb_s): (usize, &f64)| {
            let point = point(&[("threads", AxisValue::Int(threads as i64 + 1))]);
            let (path, mut record) = run(&point, 0).metric("decode_gb_s", Some(*gb_s), "GB/s", "llama_bench.decode_gb_s.v3", Better::Higher).stored();
            record.device.ceilings.insert("dram_read_gb_s".into(), Ceiling { value: 10.0, source: "measured".into() });
            (path, record)
        };
        reached.iter().enumerate().map(of).collect()
    }

    fn model(records: Vec<(String, Record)>) -> Model {
        Model::of(&ReportInput { records, ..ReportInput::default() }, ReportOptions::default())
    }

    fn rows(model: &Model) -> &[Row] {
        &model.tables[0].rows
    }

    #[test]
    fn a_share_of_the_ceiling_stands_with_its_source_and_is_never_cut_off() {
        let model = model(records(&[8.0, 12.5]));
        let shares: Vec<f64> = rows(&model).iter().map(|row| row.ceiling.as_ref().unwrap().utilization_pct.unwrap()).collect();
        assert_eq!(shares, [80.0, 125.0]);
        let states = |row: usize| rows(&model)[row].states.iter().map(|state| state.code).collect::<Vec<_>>();
        assert_eq!((states(0), states(1)), (vec![], vec![Code::CeilingTooLow]));
        let page = terminal(&model, None, false);
        assert!(page.contains("threads=1: 80.0 % of dram_read_gb_s 10 GB/s (measured)"), "{page}");
        assert!(page.contains("threads=2: 125 % of dram_read_gb_s 10 GB/s (measured)"), "{page}");
        let sheet = csv(&model);
        assert!(sheet.lines().next().unwrap().ends_with(",ceiling,ceiling_source,utilization_pct"), "{sheet}");
        assert!(sheet.lines().nth(1).unwrap().ends_with(",10,measured,80"), "{sheet}");
    }

    #[test]
    fn without_a_ceiling_there_is_no_share() {
        let mut records = records(&[8.0, 8.0]);
        records[1].1.device.ceilings.clear();
        let model = model(records);
        assert_eq!((rows(&model)[0].ceiling.as_ref().unwrap().utilization_pct, rows(&model)[1].ceiling.is_none()), (Some(80.0), true));
    }

    #[test]
    fn what_a_gpu_computed_is_not_held_against_the_memory_of_the_cpu() {
        for (backends, gpu_info, layers, devices, has_share) in [
            ("CUDA", "NVIDIA A2", 99, "auto", false),
            ("CUDA", "NVIDIA A2", -1, "auto", false),
            ("CUDA", "NVIDIA A2", 0, "auto", true),
            ("CUDA", "NVIDIA A2", 99, "none", true),
            ("CPU", "", 99, "auto", true),
            ("BLAS", "", 99, "auto", true),
        ] {
            let mut records = records(&[8.0]);
            for (name, value) in
                [("backends", backends.into()), ("gpu_info", gpu_info.into()), ("n_gpu_layers", layers.into()), ("devices", devices.into())]
            {
                records[0].1.executed.insert(name.into(), value);
            }
            let model = model(records);
            let ceiling = rows(&model)[0].ceiling.as_ref().unwrap();
            assert_eq!(
                (ceiling.utilization_pct.is_some(), ceiling.omitted_reason.is_none()),
                (has_share, has_share),
                "{backends} {layers} {devices}"
            );
            assert_eq!(terminal(&model, None, false).contains("NVIDIA A2 computed"), !has_share);
        }
    }

    #[test]
    fn a_number_that_a_gpu_has_any_part_in_has_no_share() {
        let mut records = records(&[8.0, 8.0]);
        for (repetition, gpu_info) in [(0, "NVIDIA A2"), (1, "")] {
            let record = &mut records[repetition].1;
            record.ids.point.axes.insert("threads".into(), AxisValue::Int(1));
            record.ids.run_id = format!("run-{repetition}");
            record.ids.repetition = u32::try_from(repetition).unwrap();
            record.executed.insert("gpu_info".into(), gpu_info.into());
        }
        let model = model(records);
        let row = &rows(&model)[0];
        assert_eq!((row.number.as_ref().unwrap().runs, row.ceiling.as_ref().unwrap().utilization_pct), (2, None));
        assert_eq!(row.states[0].code, Code::MixedExecuted);
    }
}
