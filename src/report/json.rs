//! For programs: the model as it is.

use super::{escape::is_hidden, model::Model};
use serde::Serialize;
use std::fmt::Write;

/// Prints the report as one JSON document.
#[must_use]
pub fn json(model: &Model) -> String {
    print(model)
}

/// Pretty JSON with a newline at its end; characters that could steer a terminal are written as `\u` escapes, which mean the same.
pub(super) fn print(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("texts, numbers and switches are always JSON");
    let mut out = String::with_capacity(text.len() + 1);
    for char in text.chars() {
        // The line feeds of the layout are the only controls that serde_json leaves outside of texts.
        if char != '\n' && is_hidden(char) {
            for unit in char.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(char);
        }
    }
    out.push('\n');
    out
}
