//! Markdown from texts of our own.

/// A table; every row is as long as the header.
pub(super) struct Table {
    lines: Vec<String>,
}

impl Table {
    pub(super) fn new<const N: usize>(header: [&str; N]) -> Table {
        let rule = format!("|{}", "---|".repeat(N));
        Table { lines: vec![line(&header), rule] }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.lines.push(line(&cells));
    }

    /// Its text, with a line feed at the end.
    pub(super) fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

fn line(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    format!("| {} |", cells.join(" | "))
}

/// `a`, `b`, `c`.
pub(super) fn codes<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
