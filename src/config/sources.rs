//! The texts that a campaign is made of, as one: the file, the files it uses, what the command line sets. A span is a place in all of
//! them together.

use crate::hidden::{is_hidden, visible};

/// Texts with their names, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    text: String,
    parts: Vec<Part>,
    /// Where lines begin in all of them, ascending.
    lines: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Part {
    name: String,
    start: usize,
    end: usize,
}

impl Sources {
    #[must_use]
    pub fn of(name: &str, text: &str) -> Sources {
        let mut sources = Sources::default();
        sources.add(name, text);
        sources
    }

    /// Where the text begins in all of them.
    pub fn add(&mut self, name: &str, text: &str) -> usize {
        if !self.parts.is_empty() {
            self.text.push('\n');
        }
        let start = self.text.len();
        self.text.push_str(text);
        self.lines.push(start);
        self.lines.extend(text.match_indices('\n').map(|(at, _)| start + at + 1));
        self.parts.push(Part { name: name.to_owned(), start, end: self.text.len() });
        start
    }

    /// The same with hidden characters left out of the terminal. Same length in bytes, so that offsets hold.
    #[must_use]
    pub fn printable(&self) -> Sources {
        let shown = |c: char| match c.len_utf8() {
            _ if !is_hidden(c) || matches!(c, '\n' | '\t') => c,
            1 => '?',
            2 => '¿',
            3 => char::REPLACEMENT_CHARACTER,
            _ => '🛇',
        };
        let named = |part: &Part| Part { name: visible(&part.name), ..part.clone() };
        // The end of a line of DOS is no fault of it.
        let text = self.text.replace("\r\n", " \n");
        Sources { text: text.chars().map(shown).collect(), parts: self.parts.iter().map(named).collect(), lines: self.lines.clone() }
    }

    /// All of it; spans are offsets into this.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text around an offset: its name, where it begins, and itself.
    #[must_use]
    pub fn around(&self, offset: usize) -> (&str, usize, &str) {
        let part = self.parts.iter().rev().find(|part| part.start <= offset).or(self.parts.first());
        part.map_or(("", 0, ""), |part| (&part.name, part.start, &self.text[part.start..part.end]))
    }

    /// Line of an offset in its own text, from 1.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        let start = self.around(offset).1;
        let before = |at: usize| self.lines.partition_point(|line| *line <= at);
        (before(offset) + 1).saturating_sub(before(start)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_belongs_to_one_text() {
        let mut sources = Sources::of("a", "x\ny");
        let base = sources.add("b", "z\nw");
        assert_eq!(sources.around(0), ("a", 0, "x\ny"));
        assert_eq!(sources.around(3), ("a", 0, "x\ny"));
        assert_eq!(sources.around(base), ("b", base, "z\nw"));
        assert_eq!((sources.line(2), sources.line(base), sources.line(base + 2)), (2, 1, 2));
        assert_eq!(&sources.text()[base..base + 1], "z");
    }
}
