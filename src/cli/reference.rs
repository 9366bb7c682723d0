//! `isotherm reference` and `isotherm explain`: what the registries say.

use super::{ExplainArgs, complain, exit, print, words};
use crate::reference::{self, Explanation, Page};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::json;

/// A page by its name.
pub fn page_parser() -> impl TypedValueParser<Value = Page> {
    let names = Page::ALL.iter().map(|page| page.name());
    PossibleValuesParser::new(names).try_map(|name| Page::ALL.iter().copied().find(|page| page.name() == name).ok_or("no page of that name"))
}

pub fn explain(args: &ExplainArgs) -> u8 {
    let found = match &args.name {
        None => reference::explanations(),
        Some(name) => reference::explain(name),
    };
    if let (Some(name), true) = (&args.name, found.is_empty()) {
        let hint = match reference::similar(name).as_slice() {
            [] => "`isotherm explain` lists all; what a campaign declares is explained by its file alone".into(),
            [only] => format!("did you mean `{only}`? `isotherm explain {only}`"),
            several => format!("name one of them: {}", several.join(", ")),
        };
        complain(&format!("`{}` is no code, reason, metric or telemetry column", words::plain(name)), Some(&hint));
        return exit::USAGE;
    }
    print(&match (args.json, &args.name) {
        (true, _) => format!("{:#}\n", json!({"entries": found})),
        (false, Some(_)) => found.iter().map(Explanation::text).collect::<Vec<_>>().join("\n"),
        (false, None) => list(&found),
    })
}

/// One line each, below the kind that they are of.
fn list(explanations: &[Explanation]) -> String {
    let width = explanations.iter().map(|explanation| explanation.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for kind in explanations.chunk_by(|left, right| left.kind == right.kind) {
        let Some(first) = kind.first() else { continue };
        text += &format!("{}{}\n", if text.is_empty() { "" } else { "\n" }, first.kind);
        for explanation in kind {
            text += &format!("  {:<width$}  {}\n", explanation.name, explanation.summary());
        }
    }
    text
}
