//! For a terminal: plain text in aligned columns, readable without colour.

use super::{
    escape::Foreign,
    layout::{Grid, Part, Tone, report},
    model::Model,
};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width};

/// No lines but one under the header.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Blanks to the right of a cell; the layout adds one between columns.
const PADDING: u16 = 1;

/// Prints the report.
///
/// `width` in columns: wider tables are wrapped inside their cells; `None` = never. Only colour depends on `color`.
#[must_use]
pub fn terminal(model: &Model, width: Option<usize>, color: bool) -> String {
    print(&report(model, Foreign::terminal), width, color)
}

pub(super) fn print(parts: &[Part], width: Option<usize>, color: bool) -> String {
    let mut out = String::new();
    let mut after_grid = false;
    for part in parts {
        match part {
            Part::Title(text) => line(&mut out, &paint(text, Style::Bold, color)),
            Part::Section(text, tone) => {
                out.push('\n');
                line(&mut out, &paint(text, Style::Heading(*tone), color));
            }
            Part::Line(text) => {
                let indent = if after_grid && text.starts_with('—') { "  " } else { "" };
                line(&mut out, &format!("{indent}{text}"));
            }
            Part::Remark(text) => {
                out.push('\n');
                line(&mut out, text);
            }
            Part::Grid(grid) => out.push_str(&columns(grid, width, color)),
            Part::Item(head, lines) => {
                line(&mut out, &format!("  {head}"));
                for text in lines {
                    line(&mut out, &format!("    {text}"));
                }
            }
            Part::Hint(text) => line(&mut out, &format!("  {text}")),
        }
        after_grid = matches!(part, Part::Grid(_)) || (after_grid && matches!(part, Part::Line(_)));
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

fn columns(grid: &Grid, width: Option<usize>, color: bool) -> String {
    // Where not even words fit, a table first gives up a column that it can do without, then the wider gaps; only then words are broken.
    let dropped = width.and_then(|width| grid.expendable.filter(|_| !fits(grid, width, PADDING)));
    let shorter = dropped.map(|column| grid.without(column));
    let note = dropped.zip(width).map(|(column, width)| format!("{}: not shown in {width} columns", grid.header[column]));
    let grid = shorter.as_ref().unwrap_or(grid);
    let padding = if dropped.is_some() || width.is_some_and(|width| !fits(grid, width, PADDING)) { 0 } else { PADDING };
    let mut table = comfy_table::Table::new();
    table.load_style(STYLE);
    match width.and_then(|width| u16::try_from(width).ok()) {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table.set_header(&grid.header);
    for (_, texts) in &grid.rows {
        table.add_row(texts);
    }
    let fits = width.is_some_and(|width| fits(grid, width, padding));
    let last = grid.header.len().saturating_sub(1);
    for (index, (column, right)) in table.column_iter_mut().zip(&grid.align_right).enumerate() {
        column.set_cell_alignment(if *right { CellAlignment::Right } else { CellAlignment::Left });
        column.set_padding((0, if index == last { 0 } else { padding }));
        if fits {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least_width(grid, index).saturating_add(padding))));
        }
    }
    // Colour goes on after the layout, which counts every character. The mark begins the first line of a row; the others begin with
    // a blank.
    let mut tones = grid.rows.iter().map(|(tone, texts)| (*tone, texts.first().map_or("", String::as_str)));
    let mut next = tones.next();
    let mut out = String::new();
    for (number, text) in table.lines().enumerate() {
        let text = text.trim_end();
        match next {
            Some((tone, mark)) if number > 1 && !mark.is_empty() && text.starts_with(mark) => {
                line(&mut out, &text.replacen(mark, &paint(mark, Style::Mark(tone), color), 1));
                next = tones.next();
            }
            _ => line(&mut out, text),
        }
    }
    if let Some(note) = note {
        line(&mut out, &format!("  {note}"));
    }
    out
}

/// Do the words of all columns fit? One blank between columns is the layout's own.
fn fits(grid: &Grid, width: usize, padding: u16) -> bool {
    let least = (0..grid.header.len()).map(|column| usize::from(least_width(grid, column)) + usize::from(padding) + 1);
    least.sum::<usize>() <= width + 1
}

/// Width that a column needs so that no word in it is broken and no number wrapped; a very long word may be.
fn least_width(grid: &Grid, column: usize) -> u16 {
    const LONGEST_WORD: usize = 24;
    let numbers = grid.align_right.get(column) == Some(&true);
    let longest_word = |text: &String| text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0);
    let of_row = |texts: &Vec<String>| texts.get(column).map_or(0, |text| if numbers { text.chars().count() } else { longest_word(text) });
    let of_header = grid.header.get(column).map_or(0, longest_word);
    let least = grid.rows.iter().map(|(_, texts)| of_row(texts)).max().unwrap_or(0).max(of_header);
    u16::try_from(least.min(LONGEST_WORD)).unwrap_or(u16::MAX)
}

#[derive(Clone, Copy)]
enum Style {
    Bold,
    Heading(Tone),
    Mark(Tone),
}

/// SGR codes of ECMA-48: bold, and the eight colours that every terminal has.
fn paint(text: &str, style: Style, color: bool) -> String {
    let hue = |tone| match tone {
        Tone::Plain => None,
        Tone::Good => Some("32"),
        Tone::Warning => Some("33"),
        Tone::Bad => Some("31"),
    };
    let codes = match style {
        Style::Bold => Some("1".to_owned()),
        Style::Heading(tone) => Some(hue(tone).map_or_else(|| "1".to_owned(), |hue| format!("1;{hue}"))),
        Style::Mark(tone) => hue(tone).map(str::to_owned),
    };
    match codes {
        Some(codes) if color => format!("\u{1b}[{codes}m{text}\u{1b}[0m"),
        _ => text.to_owned(),
    }
}
