//! Text for somebody's shell: takes one word, gives it so that a shell takes it for one. Nothing here is executed.

use crate::hidden::is_hidden;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// A word of a command line that is printed to be pasted. What can't be seen, or is no text, is written as POSIX.1-2024 does (`$'a\012b'`).
#[must_use]
pub fn word(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._:@+-,=".contains(c);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(safe) => text.to_owned(),
        Some(text) if !text.contains(is_hidden) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => format!("$'{}'", escaped(word.as_bytes())),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\'' | '\\' => out.extend(['\\', char]),
                _ if is_hidden(char) => octal(&mut out, char.encode_utf8(&mut [0; 4]).as_bytes()),
                _ => out.push(char),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out
}

/// As octal numbers, of which a shell reads three digits and no more.
fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_the_bytes_that_were_meant() {
        let words: [&[u8]; 8] = [b"a/b", b"my results", b"it's $(id) `id`", b"", b"a\nb", b"\x1b[2J7", b"x\xff\xfe'\\y", "é\u{202e}1".as_bytes()];
        for bytes in words {
            let script = format!("printf %s {}", word(OsStr::from_bytes(bytes)));
            assert!(!script.contains(is_hidden), "{script:?}");
            let output = std::process::Command::new("bash").args(["-c", &script]).output().expect("bash starts");
            assert_eq!(output.stdout, bytes, "{script}");
        }
    }
}
