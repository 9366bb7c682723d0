//! Text from elsewhere, and how each renderer makes it harmless.
//!
//! Device names, axis values, messages, tool output and paths were written by campaigns, devices and tools. [`Foreign`] has no
//! `Display`: it can only be printed through the escaper of the place it is printed to.

use crate::hidden::visible;
use serde::Serialize;

/// Text that this program did not write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Foreign(String);

impl Foreign {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Foreign {
        Foreign(text.into())
    }

    /// The beginning of a text: at most `max_chars` characters, with `…` where something was cut off.
    #[must_use]
    pub fn shortened(text: &str, max_chars: usize) -> Foreign {
        let text = text.trim();
        match text.char_indices().nth(max_chars) {
            None => Foreign::new(text),
            Some((end, _)) => Foreign(format!("{}…", text[..end].trim_end())),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For a terminal: whatever moves the cursor, changes colours or reorders text is made visible.
    #[must_use]
    pub fn terminal(&self) -> String {
        visible(&self.0)
    }

    /// For GitHub-flavoured Markdown, also inside a table cell: no markup, no HTML, no links, no mentions.
    ///
    /// Not meant for the start of a line, where a `-` or `1.` would still begin a list.
    #[must_use]
    pub fn markdown(&self) -> String {
        let text = visible(&self.0);
        let mut out = String::with_capacity(text.len());
        let mut before = None;
        let mut rest = text.chars().peekable();
        while let Some(char) = rest.next() {
            match char {
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '&' => out.push_str("&amp;"),
                '@' => out.push_str("&#64;"),
                // Bare addresses become links by themselves.
                ':' if rest.peek() == Some(&'/') => out.push_str("&#58;"),
                '.' if ends_with_www(&out) => out.push_str("&#46;"),
                // Inside a word an underscore is no emphasis, and names stay readable.
                '_' if before.is_some_and(char::is_alphanumeric) && rest.peek().copied().is_some_and(char::is_alphanumeric) => out.push('_'),
                '\\' | '`' | '*' | '_' | '[' | ']' | '{' | '}' | '|' | '#' | '~' | '!' | '$' => {
                    out.push('\\');
                    out.push(char);
                }
                _ => out.push(char),
            }
            before = Some(char);
        }
        out
    }

    /// For a CSV field: no control characters, and nothing that a spreadsheet takes for a formula.
    ///
    /// Text whose first visible character is `=`, `+`, `-` or `@` (or a full-width form of them) gets a `'` in front, unless it is a number.
    /// Quoting is left to the CSV writer.
    #[must_use]
    pub fn csv(&self) -> String {
        let text = visible(&self.0);
        let first = text.trim_start().chars().next();
        let formula = matches!(first, Some('=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠'));
        if formula && !is_plain_number(&text) { format!("'{text}") } else { text }
    }
}

/// Escaped, so that a control character in a failing test's message can't reach the terminal.
impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Foreign({:?})", self.0)
    }
}

/// Digits with sign, point and exponent; not the `inf` and `nan` that Rust reads as numbers too.
fn is_plain_number(text: &str) -> bool {
    text.chars().all(|char| char.is_ascii_digit() || matches!(char, '+' | '-' | '.' | 'e' | 'E')) && text.parse::<f64>().is_ok()
}

fn ends_with_www(text: &str) -> bool {
    text.len() >= 3 && text.is_char_boundary(text.len() - 3) && text[text.len() - 3..].eq_ignore_ascii_case("www")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_controls_become_visible() {
        let text = Foreign::new("a\u{1b}[31mred\u{7}\r\n\tx\u{9b}2J\u{7f}\u{202e}evil\u{2066}");
        assert_eq!(text.terminal(), "a\\u{1b}[31mred\\u{7}\\r\\n\\tx\\u{9b}2J\\u{7f}\\u{202e}evil\\u{2066}");
    }

    #[test]
    fn letters_of_any_script_stay() {
        assert_eq!(Foreign::new("Zürich 東京 ±0.4 % ✓").terminal(), "Zürich 東京 ±0.4 % ✓");
    }

    #[test]
    fn markdown_has_no_markup_html_or_new_cells() {
        let text = Foreign::new("a|b `c` <script>alert(1)</script> **d** [e](f) \\ #9 &amp;");
        assert_eq!(text.markdown(), "a\\|b \\`c\\` &lt;script&gt;alert(1)&lt;/script&gt; \\*\\*d\\*\\* \\[e\\](f) \\\\ \\#9 &amp;amp;");
    }

    #[test]
    fn markdown_makes_no_links_or_mentions() {
        assert_eq!(Foreign::new("https://x.org www.x.org @me").markdown(), "https&#58;//x.org www&#46;x.org &#64;me");
    }

    #[test]
    fn markdown_keeps_underscores_inside_words() {
        assert_eq!(Foreign::new("decode_tps _it_").markdown(), "decode_tps \\_it\\_");
    }

    #[test]
    fn csv_formulas_get_an_apostrophe() {
        for formula in ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "  =1", "-inf", "＝1"] {
            assert_eq!(Foreign::new(formula).csv(), format!("'{formula}"));
        }
        assert_eq!(Foreign::new("\t=1").csv(), "\\t=1");
    }

    #[test]
    fn csv_numbers_and_names_stay() {
        for text in ["-1", "-1.5e-3", "+2", "a=b", "q4_0"] {
            assert_eq!(Foreign::new(text).csv(), text);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(Foreign::shortened("  äöü  ", 3), Foreign::new("äöü"));
        assert_eq!(Foreign::shortened("äöüx", 3), Foreign::new("äöü…"));
    }
}
