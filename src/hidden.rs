//! Characters that are not seen and do something: takes text, gives it with these made visible; must not know what is printed, nor where.

use std::fmt::Write;

/// Control characters and invisible format characters as `\n`, `\t`, `\u{1b}`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if is_hidden(char) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(char));
            }
            _ => out.push(char),
        }
    }
    out
}

/// Control characters (C0, DEL, C1), and format characters that hide text or change its direction (Unicode category Cf, line separators).
#[must_use]
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            u32::from(char),
            0x00AD
                | 0x061C
                | 0x180E
                | 0x200B..=0x200F
                | 0x2028..=0x202E
                | 0x2060..=0x206F
                | 0xFEFF
                | 0xFFF9..=0xFFFB
                | 0x1D173..=0x1D17A
                | 0xE0000..=0xE007F
        )
}
