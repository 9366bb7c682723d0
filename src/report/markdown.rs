//! For a README or an issue: GitHub-flavoured Markdown.

use super::{
    escape::Foreign,
    layout::{Grid, Part, report},
    model::Model,
};

/// Prints the report.
#[must_use]
pub fn markdown(model: &Model) -> String {
    let mut out = String::new();
    let mut previous_is_item = false;
    for part in report(model, Foreign::markdown) {
        let is_item = matches!(part, Part::Item(..));
        // Items of one list stay together; everything else is a block of its own.
        let continues_list = is_item && previous_is_item;
        if !(out.is_empty() || continues_list) {
            out.push('\n');
        }
        match part {
            Part::Title(text) => out.push_str(&format!("# {text}\n")),
            Part::Section(text, _) => out.push_str(&format!("## {text}\n")),
            Part::Line(text) | Part::Remark(text) | Part::Hint(text) => out.push_str(&format!("{text}\n")),
            Part::Grid(grid) => out.push_str(&pipes(&grid)),
            Part::Item(head, lines) => {
                out.push_str(&format!("- {head}\n"));
                for text in lines {
                    out.push_str(&format!("  - {text}\n"));
                }
            }
        }
        previous_is_item = is_item;
    }
    out
}

fn pipes(grid: &Grid) -> String {
    let row = |texts: &[String]| format!("| {} |\n", texts.join(" | "));
    let rule: Vec<String> = grid.align_right.iter().map(|right| if *right { "---:" } else { "---" }.to_owned()).collect();
    let mut out = row(&grid.header);
    out.push_str(&row(&rule));
    for (_, texts) in &grid.rows {
        out.push_str(&row(texts));
    }
    out
}
