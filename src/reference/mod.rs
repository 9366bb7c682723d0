//! The registries as pages and as answers: takes their tables and the record's schema, gives the Markdown of `docs/` and what
//! `isotherm explain` says. Must not know records, campaigns or devices.
//!
//! A page is made whole here, prose included, so that it can't say another thing than the tables. `tests/generated.rs` compares.

mod explain;
mod issues;
mod markdown;
mod metrics;
mod record;

pub use explain::{Explanation, explain, explanations, similar};

/// A page of the documentation that is made from tables and types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Campaign,
    Metrics,
    Issues,
    Record,
}

impl Page {
    /// Every page there is.
    pub const ALL: &[Page] = &[Page::Campaign, Page::Metrics, Page::Issues, Page::Record];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Page::Campaign => "campaign",
            Page::Metrics => "metrics",
            Page::Issues => "issues",
            Page::Record => "record",
        }
    }

    /// Where it stands, relative to the repository.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Page::Campaign => "docs/campaign-keys.md",
            Page::Metrics => "docs/metrics.md",
            Page::Issues => "docs/issues.md",
            Page::Record => "docs/record-fields.md",
        }
    }

    /// Its whole text.
    #[must_use]
    pub fn markdown(self) -> String {
        let text = match self {
            Page::Campaign => crate::config::campaign_reference(),
            Page::Metrics => metrics::page(),
            Page::Issues => issues::page(),
            Page::Record => record::page(),
        };
        format!("<!-- Generated: `isotherm reference {}` prints this page. -->\n\n{}\n", self.name(), text.trim())
    }
}
