//! For programs: the model as it is.

use super::model::Model;
use crate::hidden::is_hidden;
use serde::Serialize;
use std::fmt::Write;

/// Prints the report as one JSON document.
#[must_use]
pub fn json(model: &Model) -> String {
    document(model)
}

/// Pretty JSON with a newline at its end; characters that could steer a terminal are written as `\u` escapes, which mean the same.
#[must_use]
pub fn document(value: &impl Serialize) -> String {
    escaped(serde_json::to_string_pretty(value))
}

/// The same on one line.
#[must_use]
pub fn line(value: &impl Serialize) -> String {
    escaped(serde_json::to_string(value))
}

fn escaped(text: serde_json::Result<String>) -> String {
    let text = text.expect("texts, numbers and switches are always JSON");
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
