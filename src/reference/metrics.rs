//! `docs/metrics.md`.

use super::markdown::{Table, codes};
use crate::config::model::Better;
use crate::registry::{ColumnEntry, ColumnName, DECLARED, Given, MetricEntry, MetricId, Unit};

pub(super) fn page() -> String {
    format!(
        "\
# Metrics

A metric is a name, a unit, a direction and a **definition id**. What is computed otherwise gets another id, and no table, ratio or fit mixes \
ids or units. Several metrics that are read out of one measurement share its id. Points that differ only in what a metric doesn't depend on are one row of its table. `isotherm explain NAME` prints a single \
one.

## Of this build

{given}
{declared}
The clock is the device's CLOCK_MONOTONIC.

## Not in this build yet

Names, units and ids are settled, so that nothing else takes them; no backend gives them yet. Axes in braces belong to the name: the number \
means nothing without their values.

{later}
## Telemetry

Raw values, sampled beside a run; what is made of them is the reader's business. `context.before` and `after` have each column once, `samples` \
over time, `context.during` sums up what lies between spawn and exit: of a **counter** only `delta` means something there, and of a **gauge** \
`mean`, `min` and `max`. A counter that wraps or steps back shows as a negative `delta`; nothing mends it.

{telemetry}
## Units

A closed list. The suffix of a name is its unit, wherever a number crosses a border.

{units}",
        given = table(Given::Yes),
        declared = declared(),
        later = table(Given::NotYet),
        telemetry = telemetry(),
        units = units(),
    )
}

fn table(given: Given) -> String {
    let mut table = Table::new(["metric", "unit", "better", "definition id", "backend", "is", "known defects"]);
    for entry in MetricId::ALL.iter().map(|id| id.entry()).filter(|entry| entry.given == given) {
        let MetricEntry { unit, definition, backends, is, independent_of, defects, .. } = entry;
        let independent =
            if independent_of.is_empty() { String::new() } else { format!(". Doesn't depend on {}", codes(independent_of.iter().copied())) };
        let (name, definition) = (format!("`{}`", shown_name(entry)), format!("`{definition}`"));
        table.row([
            &name,
            unit.symbol(),
            direction(entry.better),
            &definition,
            &codes(backends.iter().copied()),
            &format!("{is}{independent}"),
            defects,
        ]);
    }
    table.text()
}

/// `prefill_tps{n_prompt,depth}`.
pub(super) fn shown_name(entry: &MetricEntry) -> String {
    if entry.conditions.is_empty() { entry.name.into() } else { format!("{}{{{}}}", entry.name, entry.conditions.join(",")) }
}

pub(super) const fn direction(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    }
}

fn declared() -> String {
    format!(
        "\
A campaign **declares** metrics of its own for `command`: name, unit and direction as it says, definition id `{DECLARED}`, where `NAME` is the \
metric's name and `RULE` the first 8 hex digits of the sha256 over the canonical JSON of its rule's `from` and `pick`, as they stand in the record's \
`read.rules`. A rule that looks elsewhere or picks otherwise thus has another id and another table; `unit` and `better` are no part of it, as \
tables part by them anyway. The value is what the rule picked; of several values their median, with all of them in `samples`.
"
    )
}

fn telemetry() -> String {
    let mut table = Table::new(["column", "unit", "kind", "source", "is", "wraps", "known defects"]);
    for ColumnEntry { name, unit, kind, source, is, wraps, defects } in ColumnName::ALL.iter().map(|column| column.entry()) {
        table.row([&format!("`{name}`"), unit.symbol(), kind.name(), &format!("`{source}`"), is, wraps, defects]);
    }
    table.text()
}

fn units() -> String {
    let mut table = Table::new(["unit", "suffix"]);
    for unit in Unit::ALL {
        let suffixes = if unit.suffixes().is_empty() { "none".into() } else { codes(unit.suffixes().iter().copied()) };
        table.row([unit.symbol(), &suffixes]);
    }
    table.text()
}
