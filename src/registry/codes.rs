//! What a code of an issue or a remark says: the fields of its row, and codes by their name.

use super::issues::Code;
use crate::store::issue::Severity;
use serde::{Serialize, Serializer};

/// What is known of one code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssueEntry {
    /// As in records and in JSON.
    pub code: &'static str,
    /// As people read it in a table.
    pub words: &'static str,
    pub stands: Stands,
    pub severity: Severity,
    /// What it means, one sentence.
    pub means: &'static str,
    /// The exact condition.
    pub when: &'static str,
    pub headline: Headline,
    /// What to do, as a fragment after `hint:`.
    pub hint: &'static str,
}

/// Where a code is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stands {
    /// In the record of a run; reports count it.
    Record,
    /// In `report` and `status` only: it follows from several records, or from the plan.
    Report,
    /// It is judged for a run and for a point.
    Both,
}

impl Stands {
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Stands::Record => "issue of a record",
            Stands::Report => "remark of a report",
            Stands::Both => "issue of a record and remark of a report",
        }
    }
}

/// What it does to a point's headline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headline {
    /// Nothing.
    Untouched,
    /// The number stands and says so.
    Flagged,
    /// The run is in no headline.
    LeftOut,
    /// The run is in no headline unless degraded runs are asked for.
    LeftOutUnlessIncluded,
    /// There is no number.
    Withheld,
}

impl Headline {
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Headline::Untouched => "untouched",
            Headline::Flagged => "flagged",
            Headline::LeftOut => "left out",
            Headline::LeftOutUnlessIncluded => "left out unless `--include degraded`",
            Headline::Withheld => "withheld",
        }
    }
}

/// As its code.
impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.entry().code)
    }
}

impl Code {
    /// The code of a text that may be one.
    #[must_use]
    pub fn of(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.entry().code == text)
    }

    /// Did something else disturb the run, so that another one may come out better? Never judged by the run's own timing.
    #[must_use]
    pub fn is_contamination(self) -> bool {
        matches!(self, Code::CompetingLoad | Code::BusyBefore | Code::GpuBusyBefore | Code::SwapTraffic | Code::Suspended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_is_unique_and_a_word() {
        let codes: BTreeSet<&str> = Code::ALL.iter().map(|code| code.entry().code).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in codes {
            assert!(code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code}");
        }
    }

    #[test]
    fn every_code_has_a_meaning_a_condition_and_a_hint() {
        for IssueEntry { code, means, when, hint, words, .. } in Code::ALL.iter().map(|code| code.entry()) {
            assert!([means, when, hint, words].iter().all(|text| !text.is_empty()), "{code}");
            assert!([means, when, hint].iter().all(|text| !text.ends_with('.')), "{code}: a fragment has no full stop");
            assert!(!hint.starts_with(|c: char| c.is_uppercase()), "{code}: {hint}");
        }
    }

    #[test]
    fn an_issue_does_to_the_headline_what_its_severity_says() {
        for entry in Code::ALL.iter().map(|code| code.entry()).filter(|entry| entry.stands != Stands::Report) {
            let expected = match entry.severity {
                Severity::Error => Headline::LeftOut,
                Severity::Warning => Headline::LeftOutUnlessIncluded,
                Severity::Note => Headline::Untouched,
            };
            assert_eq!(entry.headline, expected, "{}", entry.code);
            assert_eq!(entry.words, entry.code, "issues are read by their code");
        }
    }
}
