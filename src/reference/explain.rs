//! What a code, a reason, a metric, a column of telemetry or a check means, one at a time.

use super::metrics::{direction, shown_name};
use crate::doctor::Check;
use crate::registry::{self, Code, ColumnEntry, ColumnName, Given, IssueEntry, MetricEntry, MetricId, Stands};
use crate::store::record::Reason;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One entry of a registry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// `issue`, `remark`, `reason`, `metric`, `telemetry` or `check`.
    pub kind: &'static str,
    pub name: String,
    /// In the order in which they are read; lists have at least one entry.
    pub facts: Map<String, Value>,
    /// Other words that it is found by.
    #[serde(skip)]
    also: Vec<&'static str>,
}

impl Explanation {
    /// Name and facts, a line each.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} ({})\n", self.name, self.kind);
        for (label, value) in &self.facts {
            text += &format!("  {:<15} {}\n", label.replace('_', " "), said(value));
        }
        text
    }

    /// The first sentence of the fact that says most.
    #[must_use]
    pub fn summary(&self) -> String {
        let most = ["means", "is", "when"].iter().find_map(|label| self.facts.get(*label)).map_or_else(String::new, said);
        most.split(". ").next().unwrap_or_default().to_owned()
    }

    fn is_called(&self, name: &str) -> bool {
        let bare = self.name.split('{').next().unwrap_or_default();
        name == self.name || name == bare || self.also.iter().any(|other| name == normal(other))
    }
}

fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Array(list) => list.iter().map(said).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// Every entry of that name; a metric can have several definitions. Tables' words (`stale identity`) and definition ids are names, too.
#[must_use]
pub fn explain(name: &str) -> Vec<Explanation> {
    let name = normal(name);
    explanations().into_iter().filter(|explanation| explanation.is_called(&name)).collect()
}

/// The names that a mistyped or shortened one may mean: the nearest, else those that contain it.
#[must_use]
pub fn similar(name: &str) -> Vec<String> {
    let name = normal(name);
    let mut names: Vec<String> = explanations().into_iter().map(|explanation| explanation.name).collect();
    names.dedup();
    if let Some(near) = crate::config::nearest(&name, names.iter().map(String::as_str)) {
        return vec![near.to_owned()];
    }
    names.retain(|other| name.chars().count() >= LEAST_PART && other.contains(&name));
    names.truncate(MOST_SIMILAR);
    names
}

/// Letters of a part that may stand for the whole.
const LEAST_PART: usize = 3;
/// So many names are a choice; more are a list.
const MOST_SIMILAR: usize = 8;

/// Letter case, blanks and hyphens don't matter.
fn normal(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-'], "_")
}

/// All there are: issues, remarks, reasons, metrics, telemetry, checks of the doctor.
#[must_use]
pub fn explanations() -> Vec<Explanation> {
    let issues = |report: bool| Code::ALL.iter().map(|code| code.entry()).filter(move |entry| (entry.stands == Stands::Report) == report);
    let mut all: Vec<Explanation> = issues(false).chain(issues(true)).map(of_issue).collect();
    all.extend(Reason::ALL.iter().copied().map(of_reason));
    all.extend(MetricId::ALL.iter().map(|id| of_metric(id.entry())));
    all.extend(ColumnName::ALL.iter().map(|column| of_column(column.entry())));
    all.extend(Check::ALL.iter().map(|check| explanation("check", check.entry().name.to_owned(), Vec::new(), [("is", json!(check.entry().is))])));
    all
}

fn explanation<const N: usize>(kind: &'static str, name: String, also: Vec<&'static str>, facts: [(&str, Value); N]) -> Explanation {
    let facts = facts.into_iter().filter(|(_, value)| !matches!(value, Value::Null)).map(|(label, value)| (label.to_owned(), value)).collect();
    Explanation { kind, name, facts, also }
}

/// A list, or nothing.
fn list(names: &[&str]) -> Value {
    if names.is_empty() { Value::Null } else { json!(names) }
}

fn of_issue(entry: &'static IssueEntry) -> Explanation {
    let IssueEntry { code, words, stands, severity, means, when, headline, hint } = entry;
    let kind = if *stands == Stands::Report { "remark" } else { "issue" };
    let facts = [
        ("means", json!(means)),
        ("when", json!(when)),
        ("severity", json!(severity.name())),
        ("headline", json!(headline.words())),
        ("stands", if *stands == Stands::Both { json!(stands.words()) } else { Value::Null }),
        ("hint", json!(hint)),
    ];
    explanation(kind, (*code).to_owned(), vec![words], facts)
}

fn of_reason(reason: Reason) -> Explanation {
    let entry = registry::reason(reason);
    let facts = [("when", json!(entry.when)), ("given", json!(entry.given == Given::Yes)), ("hint", json!(entry.hint))];
    explanation("reason", reason.name().to_owned(), Vec::new(), facts)
}

fn of_metric(entry: &'static MetricEntry) -> Explanation {
    let facts = [
        ("is", json!(entry.is)),
        ("unit", json!(entry.unit.symbol())),
        ("better", json!(direction(entry.better))),
        ("definition", json!(entry.definition)),
        ("backends", list(entry.backends)),
        ("given", json!(entry.given == Given::Yes)),
        ("conditions", list(entry.conditions)),
        ("independent_of", list(entry.independent_of)),
        ("defects", json!(entry.defects)),
    ];
    explanation("metric", shown_name(entry), vec![entry.definition], facts)
}

fn of_column(entry: &'static ColumnEntry) -> Explanation {
    let facts = [
        ("is", json!(entry.is)),
        ("unit", json!(entry.unit.symbol())),
        ("reading", json!(entry.kind.name())),
        ("source", json!(entry.source)),
        ("wraps", json!(entry.wraps)),
        ("defects", json!(entry.defects)),
    ];
    explanation("telemetry", entry.name.to_owned(), Vec::new(), facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn names(found: &[Explanation]) -> Vec<(&str, &str)> {
        found.iter().map(|explanation| (explanation.kind, explanation.name.as_str())).collect()
    }

    #[test]
    fn a_name_is_found_however_it_is_written() {
        for written in ["stale_identity", "stale identity", "Stale-Identity"] {
            assert_eq!(names(&explain(written)), [("remark", "stale_identity")], "{written}");
        }
        for written in ["prefill_tps", "prefill_tps{n_prompt,depth}", "llama_bench.pp.v1"] {
            assert_eq!(names(&explain(written)), [("metric", "prefill_tps{n_prompt,depth}")], "{written}");
        }
        assert_eq!(names(&explain("oom")), [("reason", "oom")]);
        assert_eq!(names(&explain("psi_io_full_us")), [("telemetry", "psi_io_full_us")]);
    }

    #[test]
    fn a_metric_is_explained_by_every_definition_it_has() {
        let found = explain("energy_per_token_mj");
        let definitions: Vec<&Value> = found.iter().map(|explanation| &explanation.facts["definition"]).collect();
        let of_bench = ["energy.joined.v1", "energy.prefill_joined.v1", "energy.window.v1", "energy.prefill_window.v1"];
        assert_eq!(definitions, [&of_bench[..], &["energy.served_joined.v1", "energy.served_window.v1"]].concat());
    }

    #[test]
    fn a_typo_or_a_part_has_similar_names_and_nonsense_has_none() {
        assert_eq!(similar("output_difers"), ["output_differs"]);
        assert_eq!(similar("latency"), ["latency_ms"]);
        assert_eq!(similar("output"), ["output_mismatch", "output_differs"]);
        for nonsense in ["xyzzy", "_", ""] {
            assert_eq!(similar(nonsense), Vec::<String>::new());
        }
    }

    #[test]
    fn a_name_means_one_kind_of_thing() {
        let mut kinds: BTreeMap<String, &str> = BTreeMap::new();
        for explanation in explanations() {
            assert!(!explanation.summary().is_empty(), "{}", explanation.name);
            let kind = *kinds.entry(explanation.name.clone()).or_insert(explanation.kind);
            assert_eq!(kind, explanation.kind, "{}", explanation.name);
        }
    }
}
