//! The list below the tables: everything that isn't as planned, with the record that shows it.

use super::{
    counts::Fate,
    escape::Foreign,
    gather::{Gathered, Point, Run},
    model::{Class, Entry, Finding, IssueCount},
};
use crate::registry::{self, Code};
use crate::store::record::{Issue, RanRole, Reason, Severity};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a message that are shown; all of it stands in the record.
const MESSAGE_CHARS: usize = 200;
/// Hex digits that tell two identities apart for people.
const IDENTITY_DIGITS: usize = 8;

/// Fields of `executed` that say what computed.
pub(super) const COMPUTED: [&str; 3] = ["gpu_info", "backends", "devices"];

/// The first digits of an identity.
pub(super) fn short_identity(identity: &str) -> Foreign {
    Foreign::new(identity.chars().take(IDENTITY_DIGITS).collect::<String>())
}

/// Repetitions as people write them: `r0–r2, r5`.
#[must_use]
pub(super) fn repetitions_text(repetitions: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &repetition in repetitions {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(repetition) => *last = repetition,
            _ => ranges.push((repetition, repetition)),
        }
    }
    let texts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => format!("r{first}"),
            1 => format!("r{first}, r{last}"),
            _ => format!("r{first}–r{last}"),
        })
        .collect();
    texts.join(", ")
}

/// Repetitions of a point's usable runs by epoch, in the order of their first repetition.
pub(super) fn epochs<'a>(point: &Point<'a>) -> Vec<Vec<u32>> {
    let mut epochs: Vec<(&str, Vec<u32>)> = Vec::new();
    for run in point.own_runs().filter(|run| matches!(run.fate(), Fate::Ok | Fate::Degraded)) {
        let epoch = run.record.ids.epoch.as_str();
        match epochs.iter_mut().find(|(name, _)| *name == epoch) {
            Some((_, repetitions)) => repetitions.push(run.repetition()),
            None => epochs.push((epoch, vec![run.repetition()])),
        }
    }
    epochs.into_iter().map(|(_, repetitions)| repetitions).collect()
}

/// Libraries of which the point's runs had different contents mapped, by path.
pub(super) fn mixed_libraries(point: &Point<'_>) -> Vec<String> {
    let mut contents: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for run in point.own_runs().filter(|run| matches!(run.fate(), Fate::Ok | Fate::Degraded)) {
        for file in run.record.backend.files.iter().filter(|file| file.role == RanRole::Library) {
            contents.entry(&file.file.path).or_default().insert(&file.file.sha256);
        }
    }
    contents.into_iter().filter(|(_, hashes)| hashes.len() > 1).map(|(path, _)| path.to_owned()).collect()
}

/// What the tool says of what computed these runs of a point: names of which they have different values, with these.
///
/// A name that a run doesn't have is no other value of it: a build may not print it.
pub(super) fn mixed_executed<'a>(point: &Point<'_>, runs: &[&Run<'a>]) -> Vec<(&'static str, Vec<&'a serde_json::Value>)> {
    let is_told = |name: &str| name == "n_threads" && point.ids.axes.contains_key("threads");
    let values = |name: &'static str| {
        let mut values: Vec<&serde_json::Value> = Vec::new();
        for value in runs.iter().filter_map(|run| run.record.executed.get(name)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        (name, values)
    };
    let names = COMPUTED.into_iter().chain(["n_threads"]).filter(|name| !is_told(name));
    names.map(values).filter(|(_, values)| values.len() > 1).collect()
}

/// Issues of a point's runs, worst first.
pub(super) fn issue_counts(point: &Point<'_>) -> Vec<IssueCount> {
    let mut counts: BTreeMap<(std::cmp::Reverse<Severity>, &str), u32> = BTreeMap::new();
    for run in &point.runs {
        let codes: BTreeSet<_> = run.record.issues.iter().map(|issue| (std::cmp::Reverse(issue.severity), issue.code.as_str())).collect();
        for code in codes {
            *counts.entry(code).or_default() += 1;
        }
    }
    let issue =
        |((severity, code), runs): ((std::cmp::Reverse<Severity>, &str), u32)| IssueCount { code: Foreign::new(code), severity: severity.0, runs };
    counts.into_iter().map(issue).collect()
}

/// All findings; by class, then by point, then by code.
pub(super) fn findings(gathered: &Gathered<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, point) in gathered.points.iter().enumerate() {
        of_runs(index, point, &mut findings);
        of_point(index, point, &mut findings);
    }
    let duplicates: Vec<Entry> = gathered.duplicates.iter().map(|run| entry(run, None, None)).collect();
    if !duplicates.is_empty() {
        findings.push(Finding { entries: duplicates, ..remark(Class::Duplicate, Code::Duplicate) });
    }
    for broken in &gathered.broken {
        let entry = Entry { repetition: None, path: Some(Foreign::new(&broken.path)), message: message(&broken.why), hint: None };
        findings.push(Finding { entries: vec![entry], ..remark(Class::Broken, Code::BrokenFile) });
    }
    // Stable: within a class the order of points and codes stays.
    findings.sort_by_key(|finding| finding.class);
    findings
}

/// A finding of the registry, about nothing yet.
fn remark(class: Class, code: Code) -> Finding {
    let (code, hint) = (Foreign::new(code.entry().code), Some(Foreign::new(code.entry().hint)));
    Finding { class, code, detail: None, point: None, repetitions: Vec::new(), entries: Vec::new(), hint }
}

/// What to do about what these records say: their own words where they all have the same, else the registry's.
fn hint_of(code: &str, entries: &[Entry]) -> Option<Foreign> {
    let own = entries.first().and_then(|first| first.hint.clone()).filter(|hint| entries.iter().all(|entry| entry.hint.as_ref() == Some(hint)));
    let reason = || Reason::ALL.iter().find(|reason| reason.name() == code).map(|found| registry::reason(*found).hint);
    own.or_else(|| Code::of(code).map(|code| code.entry().hint).or_else(reason).map(Foreign::new))
}

fn message(text: &str) -> Option<Foreign> {
    Some(Foreign::shortened(text, MESSAGE_CHARS)).filter(|text| !text.is_empty())
}

fn entry(run: &Run<'_>, text: Option<&str>, hint: Option<&str>) -> Entry {
    Entry { repetition: Some(run.repetition()), path: Some(Foreign::new(run.path)), message: text.and_then(message), hint: hint.and_then(message) }
}

/// Failures by reason and issues by code.
fn of_runs(index: usize, point: &Point<'_>, findings: &mut Vec<Finding>) {
    let mut groups: BTreeMap<(Class, &str), Vec<Entry>> = BTreeMap::new();
    for run in &point.runs {
        let record = run.record;
        let fate = run.fate();
        if let Fate::Failed | Fate::Skipped = fate {
            let class = if fate == Fate::Failed { Class::Failed } else { Class::Skipped };
            let reason = record.reason.map_or(Code::Unexplained.entry().code, |reason| reason.name());
            groups.entry((class, reason)).or_default().push(entry(run, record.message.as_deref(), None));
        }
        for issue in &record.issues {
            let Issue { code, message, subject, hint, .. } = issue;
            let class = match issue.severity {
                Severity::Error => Class::Invalid,
                Severity::Warning => Class::Degraded,
                Severity::Note => Class::Note,
            };
            let text = subject.as_ref().map_or_else(|| message.clone(), |subject| format!("{subject}: {message}"));
            groups.entry((class, code.as_str())).or_default().push(entry(run, Some(&text), hint.as_deref()));
        }
        // A validity that no issue accounts for must not pass unseen.
        let unexplained = match fate {
            Fate::Invalid if record.issues.iter().all(|issue| issue.severity < Severity::Error) => Some(Class::Invalid),
            Fate::Degraded if record.issues.iter().all(|issue| issue.severity < Severity::Warning) => Some(Class::Degraded),
            _ => None,
        };
        if let Some(class) = unexplained {
            groups.entry((class, Code::Unexplained.entry().code)).or_default().push(entry(run, Some("no issue in the record says why"), None));
        }
    }
    for ((class, code), entries) in groups {
        let mut repetitions: Vec<u32> = entries.iter().filter_map(|entry| entry.repetition).collect();
        repetitions.dedup();
        let hint = hint_of(code, &entries);
        findings.push(Finding { class, code: Foreign::new(code), detail: None, point: Some(index), repetitions, entries, hint });
    }
}

/// What is wrong with the point as a whole.
fn of_point(index: usize, point: &Point<'_>, findings: &mut Vec<Finding>) {
    let mut push = |class, code, detail: Option<Foreign>, repetitions: Vec<u32>, entries| {
        findings.push(Finding { detail, point: Some(index), repetitions, entries, ..remark(class, code) });
    };
    let paths = |runs: &[&Run<'_>]| runs.iter().map(|run| entry(run, None, None)).collect::<Vec<_>>();
    let repetitions = |runs: &[&Run<'_>]| runs.iter().map(|run| run.repetition()).collect::<Vec<_>>();

    if !point.missing.is_empty() {
        push(Class::Missing, Code::Missing, None, point.missing.clone(), Vec::new());
    }
    let all: Vec<&Run<'_>> = point.runs.iter().collect();
    let identity = point.identity.map(short_identity);
    if point.mixed {
        push(Class::MixedIdentity, Code::MixedIdentity, identity.clone(), repetitions(&all), paths(&all));
    }
    let libraries = mixed_libraries(point);
    if !libraries.is_empty() {
        let text = format!("runs with different contents of {}", libraries.join(", "));
        let entry = Entry { repetition: None, path: None, message: Some(Foreign::new(text)), hint: None };
        push(Class::MixedIdentity, Code::MixedLibraries, None, repetitions(&all), vec![entry]);
    }
    let usable: Vec<&Run<'_>> = point.own_runs().filter(|run| matches!(run.fate(), Fate::Ok | Fate::Degraded)).collect();
    let executed = mixed_executed(point, &usable);
    if !executed.is_empty() {
        let said = |(name, values): &(&str, Vec<&serde_json::Value>)| {
            format!("{name} {}", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "))
        };
        let text = format!("the tool says {}", executed.iter().map(said).collect::<Vec<_>>().join(", "));
        let entry = Entry { repetition: None, path: None, message: message(&text), hint: None };
        push(Class::MixedIdentity, Code::MixedExecuted, None, repetitions(&usable), vec![entry]);
    }
    if point.stale && !point.mixed {
        push(Class::StaleIdentity, Code::StaleIdentity, identity, repetitions(&all), paths(&all));
    }
    let orphans: Vec<&Run<'_>> = point.runs.iter().filter(|run| run.orphan).collect();
    if !orphans.is_empty() {
        push(Class::Orphan, Code::Orphan, None, repetitions(&orphans), paths(&orphans));
    }
    let epochs = epochs(point);
    if epochs.len() > 1 {
        let parts: Vec<String> = epochs.iter().map(|repetitions| repetitions_text(repetitions)).collect();
        let text = format!("runs of {} epochs, not interleaved with each other: {}", epochs.len(), parts.join(" · "));
        let entry = Entry { repetition: None, path: None, message: Some(Foreign::new(text)), hint: None };
        let mut repetitions = epochs.concat();
        repetitions.sort_unstable();
        push(Class::Note, Code::MixedEpochs, None, repetitions, vec![entry]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_what_all_records_say_else_what_the_registry_says() {
        let entry = |hint: Option<&str>| Entry { repetition: None, path: None, message: None, hint: hint.map(Foreign::new) };
        let registered = || Some(Foreign::new(Code::Suspended.entry().hint));
        assert_eq!(hint_of("suspended", &[entry(Some("own")), entry(Some("own"))]), Some(Foreign::new("own")));
        assert_eq!(hint_of("suspended", &[entry(Some("own")), entry(Some("other"))]), registered());
        assert_eq!(hint_of("suspended", &[entry(None)]), registered());
        assert_eq!(hint_of("oom", &[entry(None)]), Some(Foreign::new(registry::reason(Reason::Oom).hint)));
        assert_eq!(hint_of("of_another_version", &[entry(None)]), None);
    }

    #[test]
    fn neighbouring_repetitions_are_written_as_a_range() {
        assert_eq!(repetitions_text(&[0, 1, 2, 5, 7, 8]), "r0–r2, r5, r7, r8");
        assert_eq!(repetitions_text(&[]), "");
        assert_eq!(repetitions_text(&[u32::MAX]), format!("r{}", u32::MAX));
    }
}
