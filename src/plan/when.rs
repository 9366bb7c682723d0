//! A block's `when`: takes a point and what its device says of itself, gives whether the point stays. Must not know how a condition is
//! written.

use super::files;
use super::identity::DeviceReport;
use super::point::{Combination, Point};
use crate::config::model::AxisValue;
use crate::config::{Condition, Known, Verdict};
use isotherm_wire::inspect::Machine;

/// Ask a condition about a point.
pub(super) fn ask(condition: &Condition, point: &Point, axes: &Combination, report: Option<&DeviceReport>) -> Result<Verdict, String> {
    let text = |text: &str| Known::Value(AxisValue::Text(text.to_owned()));
    let declared = |value: Option<&String>| value.map_or(Known::Nothing, |value| text(value));
    condition.evaluate(|name| {
        // Variables and options as the workload gets them, with their placeholders replaced.
        if let Some(value) = name.strip_prefix("env.").and_then(|name| point.env.get(name)) {
            return text(value);
        }
        if let Some(value) = point.ids.axes.get(name).or_else(|| axes.get(name).copied()) {
            return Known::Value(value.clone());
        }
        match (name.split_once('.'), &point.model) {
            (Some(("device", "id")), _) => text(&point.ids.device),
            (Some(("device", fact)), _) => report.map_or(Known::NotYet, |report| fact_of(&report.machine, fact)),
            (Some(("model", "id")), Some(model)) => text(&model.declared.id),
            (Some(("model", "path")), Some(model)) => text(&model.path),
            (Some(("model", "quantization")), Some(model)) => declared(model.declared.quantization.as_ref()),
            (Some(("model", "bytes")), Some(_)) => match report.map(|report| files::model(point, &report.files)) {
                None | Some(None) => Known::NotYet,
                Some(Some(Ok(_))) => {
                    let bytes = report.and_then(|report| files::model_bytes(point, &report.files)).and_then(|bytes| i64::try_from(bytes).ok());
                    bytes.map_or(Known::Nothing, |bytes| Known::Value(AxisValue::Int(bytes)))
                }
                Some(Some(Err(_))) => Known::Nothing,
            },
            (Some(("model", rest)), Some(model)) => declared(rest.strip_prefix("tags.").and_then(|tag| model.declared.tags.get(tag))),
            _ => Known::Nothing,
        }
    })
}

/// What a device says of itself.
fn fact_of(machine: &Machine, fact: &str) -> Known {
    let int = |value: Option<u64>| value.and_then(|v| i64::try_from(v).ok()).map_or(Known::Nothing, |v| Known::Value(AxisValue::Int(v)));
    match fact {
        "logical_cpus" => int(Some(machine.logical_cpus.into())),
        "physical_cores" => int(machine.physical_cores.map(Into::into)),
        "ram_bytes" => int(machine.ram_bytes),
        "arch" => Known::Value(AxisValue::Text(machine.arch.clone())),
        "effective_cpus" => {
            let limits = &machine.limits;
            let counts = [machine.online_cpus, limits.cpuset_cpus, limits.affinity_cpus].into_iter().flatten().map(f64::from);
            let least = counts.chain(limits.quota_cpus).fold(f64::from(machine.logical_cpus), f64::min);
            Known::Value(AxisValue::Float(least))
        }
        _ => Known::Nothing,
    }
}
