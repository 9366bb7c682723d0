//! Values with a unit, as text.

use std::time::Duration;

/// Longest duration that a campaign may ask for.
const MAX_HOURS: u64 = 10_000;

/// Units of a duration, longest first, as milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Why a text is no duration, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotADuration {
    pub reason: String,
    pub hint: String,
}

/// `500ms`, `10s`, `5m`, `2h`, and chains from long to short: `1h30m`.
///
/// # Errors
/// A number without a unit, an unknown unit, a fraction, units out of order or repeated, more than [`MAX_HOURS`].
pub fn duration(text: &str) -> Result<Duration, NotADuration> {
    let fault = |reason: &str, hint: String| Err(NotADuration { reason: reason.to_owned(), hint });
    let forms = || "a duration is written like `500ms`, `10s`, `5m`, `2h` or `1h30m`".to_owned();
    let mut rest = text;
    let mut millis: u64 = 0;
    let mut last = usize::MAX;
    if text.is_empty() {
        return fault("this is empty", forms());
    }
    while !rest.is_empty() {
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, tail) = rest.split_at(n_digits);
        let n_letters = tail.chars().take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum();
        let (unit, tail) = tail.split_at(n_letters);
        if digits.is_empty() {
            return fault("this is no duration", forms());
        }
        if unit.is_empty() && tail.is_empty() && last == usize::MAX {
            return fault("a number without a unit", format!("write `{text}s`, or another unit: `ms`, `m`, `h`"));
        }
        if tail.starts_with('.') && unit.is_empty() {
            return fault("a fraction", "use a smaller unit: `1500ms` for one and a half seconds, `1h30m` for one and a half hours".to_owned());
        }
        let Some(index) = UNITS.iter().position(|known| known.0 == unit) else {
            return fault(if unit.is_empty() { "this is no duration" } else { "an unknown unit" }, forms());
        };
        if last != usize::MAX && index <= last {
            return fault("units go from long to short, each once", forms());
        }
        last = index;
        let part = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(UNITS[index].1));
        let Some(sum) = part.and_then(|part| millis.checked_add(part)).filter(|sum| *sum <= MAX_HOURS * 3_600_000) else {
            return fault("too long", format!("at most `{MAX_HOURS}h`"));
        };
        millis = sum;
        rest = tail;
    }
    Ok(Duration::from_millis(millis))
}

/// A name that is safe as a directory and in a file name on every system: letters, digits, `.`, `_`, `-`, no dot in front.
///
/// # Errors
/// What is wrong with it.
pub fn safe_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("a name cannot be empty"),
        _ if name.starts_with('.') => Err("a name cannot start with a dot"),
        _ if name.len() > 100 => Err("a name has at most 100 characters"),
        _ if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) => Err("a name has only letters, digits, `.`, `_` and `-`"),
        _ => Ok(()),
    }
}

/// The nearest safe name, for a hint.
#[must_use]
pub fn made_safe(name: &str) -> String {
    let safe: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).take(100).collect();
    let safe = safe.trim_start_matches('.').trim_matches('-');
    if safe.is_empty() { "my-campaign".to_owned() } else { safe.to_owned() }
}

/// A name of a variable or of a number: letters, digits, `_`, no digit in front.
#[must_use]
pub fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Lower-case or upper-case hex of a SHA-256.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_go_from_long_to_short() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1h30m", 5_400_000), ("1h2m3s4ms", 3_723_004), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for (text, reason) in [
            ("10", "a number without a unit"),
            ("0", "a number without a unit"),
            ("1.5s", "a fraction"),
            ("10 s", "this is no duration"),
            ("-1s", "this is no duration"),
            ("ten seconds", "this is no duration"),
            ("10sec", "an unknown unit"),
            ("1d", "an unknown unit"),
            ("10S", "an unknown unit"),
            ("3µs", "an unknown unit"),
            ("1m1h", "units go from long to short, each once"),
            ("1s1s", "units go from long to short, each once"),
            ("1h30", "this is no duration"),
            ("", "this is empty"),
            ("10001h", "too long"),
            ("99999999999999999999999s", "too long"),
        ] {
            assert_eq!(duration(text).map_err(|e| e.reason), Err(reason.to_owned()), "{text}");
        }
        assert_eq!(duration("10").expect_err("no unit").hint, "write `10s`, or another unit: `ms`, `m`, `h`");
    }

    #[test]
    fn a_safe_name_cannot_leave_its_directory() {
        for name in ["a", "pi5-threads", "A.b_c-1", "_x", "-x"] {
            assert_eq!(safe_name(name), Ok(()), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "ä", "a\0"] {
            assert!(safe_name(name).is_err(), "{name}");
        }
        assert!(safe_name(&"x".repeat(101)).is_err());
        for (name, safe) in [("my first run", "my-first-run"), ("..", "my-campaign"), ("ä/b", "b"), (".x", "x")] {
            assert_eq!(made_safe(name), safe);
            assert_eq!(safe_name(&made_safe(name)), Ok(()));
        }
    }
}
