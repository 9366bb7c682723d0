//! `docs/issues.md`.

use super::markdown::{Table, codes};
use crate::registry::{self, Code, Given, IssueEntry, Stands};
use crate::store::record::Reason;

pub(super) fn page() -> String {
    format!(
        "\
# Issues and reasons

A **reason** says why a run is not `ok`; an **issue** is a remark on a record whatever its status. An `error` makes the record `invalid`, a \
`warning` makes it `degraded`; a failed run is always `invalid`. `isotherm explain CODE` prints a single one.

## Issues in records

{issues}
A record carries severity and hint with it, so that it can be read without this page.

## Remarks of reports

They follow from several records, or from the plan, and stand in `report` and `status`, not in a record. Where a table says it in other words \
than the code, these are given too.

{remarks}
## What it does to a headline

* **left out**: the run is in no headline; it is counted beside the number and listed below it.
* **left out unless `--include degraded`**: likewise, until the reader asks for it; the report then says so.
* **withheld**: there is no number, and the reason stands in its place.
* **flagged**: the number stands, and the row says so.
* **untouched**: it stands in the record and among the findings.

## Reasons

{reasons}
A warm-up invocation of `command` fails the run if it ends by a signal or runs into the time-out; its exit code is not judged. Output is kept \
whatever the reason; metrics are read only if the workload ended by itself. A run whose keeper died is started once more at once; should that \
keeper die as well, the record says so and has neither output nor telemetry.

## Not in this build yet

Words of the schema that nothing gives yet, as is the status `skipped`:

{later}",
        issues = issues(),
        remarks = remarks(),
        reasons = reasons(Given::Yes),
        later = reasons(Given::NotYet),
    )
}

fn entries() -> impl Iterator<Item = &'static IssueEntry> {
    Code::ALL.iter().map(|code| code.entry())
}

fn issues() -> String {
    let mut table = Table::new(["code", "severity", "means", "when", "headline", "do"]);
    for IssueEntry { code, severity, means, when, headline, hint, .. } in entries().filter(|entry| entry.stands != Stands::Report) {
        table.row([&format!("`{code}`"), severity.name(), means, when, headline.words(), hint]);
    }
    table.text()
}

fn remarks() -> String {
    let mut table = Table::new(["code", "severity", "means", "when", "headline", "do"]);
    for IssueEntry { code, words, severity, means, when, headline, hint, .. } in entries().filter(|entry| entry.stands != Stands::Record) {
        let name = if code == words { format!("`{code}`") } else { format!("`{code}` (“{words}”)") };
        table.row([&name, severity.name(), means, when, headline.words(), hint]);
    }
    table.text()
}

fn reasons(given: Given) -> String {
    let mut table = Table::new(["reason", "when", "do"]);
    for (name, entry) in Reason::ALL.iter().map(|reason| (reason.name(), registry::reason(*reason))).filter(|(_, entry)| entry.given == given) {
        table.row([&codes([name]), entry.when, entry.hint]);
    }
    table.text()
}
