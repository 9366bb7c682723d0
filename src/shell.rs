//! Text for somebody's shell: takes one word, gives it so that a POSIX shell takes it for one. Nothing here is executed.

/// A word of a command line that is printed to be pasted.
#[must_use]
pub fn word(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._:@+-,=".contains(c);
    if !text.is_empty() && text.chars().all(safe) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
