//! Values with a unit, as text.

use std::time::Duration;

/// Longest duration that a campaign may ask for.
const MAX_HOURS: u64 = 10_000;

/// Units of a duration, longest first, as milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Why a text is no such quantity, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoQuantity {
    pub reason: String,
    pub hint: String,
}

/// `500ms`, `10s`, `5m`, `2h`, and chains from long to short: `1h30m`.
///
/// # Errors
/// A number without a unit, an unknown unit, a fraction, units out of order or repeated, more than [`MAX_HOURS`].
pub fn duration(text: &str) -> Result<Duration, NoQuantity> {
    let fault = |reason: &str, hint: String| Err(NoQuantity { reason: reason.to_owned(), hint });
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

/// `85C`, `-10C`, `2.5C`: degrees Celsius.
///
/// # Errors
/// No unit, another unit, no number.
pub fn temperature(text: &str) -> Result<f64, NoQuantity> {
    let number = with_unit(text, &["C", "°C"], "a temperature is written like `85C`")?;
    if number < -273.15 {
        return Err(NoQuantity { reason: "colder than can be".to_owned(), hint: "a temperature is written like `85C`".to_owned() });
    }
    Ok(number)
}

/// `3%`, `0.5%`, as a fraction.
///
/// # Errors
/// No unit, another unit, no number, below zero.
pub fn percent(text: &str) -> Result<f64, NoQuantity> {
    let number = with_unit(text, &["%"], "a percentage is written like `3%`")?;
    if number < 0.0 {
        return Err(NoQuantity { reason: "less than nothing".to_owned(), hint: "a percentage is written like `3%`".to_owned() });
    }
    Ok(number / 100.0)
}

/// `1500MHz`, `1.5GHz`, `600000kHz`: kHz.
///
/// # Errors
/// No unit, another unit, no number, zero or less, no whole number of kHz.
pub fn frequency(text: &str) -> Result<u64, NoQuantity> {
    const FORMS: &str = "a frequency is written like `1500MHz` or `1.5GHz`";
    let factor = if text.ends_with("GHz") {
        1e6
    } else if text.ends_with("MHz") {
        1e3
    } else {
        1.0
    };
    let khz = with_unit(text, &["MHz", "GHz", "kHz"], FORMS)? * factor;
    // Nearly: 2.4 × 10⁶ is no whole number in binary.
    if !(1.0..=1e9).contains(&khz) || (khz - khz.round()).abs() > 1e-6 {
        return Err(NoQuantity { reason: "no whole number of kHz that a clock could have".to_owned(), hint: FORMS.to_owned() });
    }
    Ok(khz.round() as u64)
}

/// `512Ki`, `64Mi`, `4Gi`, `1Ti` in powers of 1024; `64M`, `4G` in powers of 1000: bytes.
///
/// # Errors
/// No unit, another unit, no whole number, more than fits.
pub fn size(text: &str) -> Result<u64, NoQuantity> {
    const SIZES: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("K", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let fault = |reason: &str, hint: &str| NoQuantity { reason: reason.to_owned(), hint: hint.to_owned() };
    let forms = "a size is written like `512Mi` or `4Gi`";
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(n_digits);
    if digits.is_empty() {
        return Err(fault("this is no size", forms));
    }
    if unit.is_empty() {
        return Err(fault("a number without a unit", &format!("write `{text}Mi`, or another unit: `Ki`, `Gi`")));
    }
    let factor = SIZES.iter().find(|known| known.0 == unit).ok_or_else(|| fault("an unknown unit", forms))?.1;
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(|| fault("too large", forms))
}

/// Highest number of a CPU that the kernel could have.
const MAX_CPU: u32 = 8191;

/// `0-3,6`: numbers of CPUs, ascending, each once.
///
/// # Errors
/// What is wrong with it.
pub fn cpu_list(text: &str) -> Result<Vec<u32>, &'static str> {
    let mut cpus = std::collections::BTreeSet::new();
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().filter(|cpu| *cpu <= MAX_CPU).ok_or("this is no number of a CPU")
    };
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err("a range that goes backwards");
        }
        for cpu in first..=last {
            if !cpus.insert(cpu) {
                return Err("a CPU that is there twice");
            }
        }
    }
    Ok(cpus.into_iter().collect())
}

/// Ascending numbers of CPUs as `0-3,6`.
#[must_use]
pub fn cpu_text(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// A decimal number in front of one of these units.
fn with_unit(text: &str, units: &[&str], forms: &str) -> Result<f64, NoQuantity> {
    let fault = |reason: &str, hint: String| NoQuantity { reason: reason.to_owned(), hint };
    let number = units.iter().find_map(|unit| text.strip_suffix(unit));
    let is_number = |text: &str| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.parse::<f64>().is_ok()
    };
    match number {
        Some(number) if is_number(number) => number.parse().map_err(|_| fault("no number", forms.to_owned())),
        None if is_number(text) => Err(fault("a number without a unit", format!("write `{text}{}`", units[0]))),
        _ => Err(fault("this is none", forms.to_owned())),
    }
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
    fn temperatures_percentages_and_sizes_have_a_unit() {
        assert_eq!(temperature("85C"), Ok(85.0));
        assert_eq!(temperature("-2.5C"), Ok(-2.5));
        assert_eq!(percent("3%"), Ok(0.03));
        assert_eq!(size("4Gi"), Ok(4 << 30));
        assert_eq!(size("64M"), Ok(64_000_000));
        assert_eq!(temperature("85").expect_err("no unit").hint, "write `85C`");
        assert_eq!(size("512").expect_err("no unit").reason, "a number without a unit");
        for text in ["", "C", "85F", "hotC", "1e3C", "-300C"] {
            assert!(temperature(text).is_err(), "{text}");
        }
        for text in ["", "%", "3", "-1%", "3 %"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!([frequency("1500MHz"), frequency("2.4GHz"), frequency("600000kHz")], [Ok(1_500_000), Ok(2_400_000), Ok(600_000)]);
        for text in ["", "MHz", "1500", "1.5THz", "0MHz", "-1GHz", "1.0005kHz", "9999GHz"] {
            assert!(frequency(text).is_err(), "{text}");
        }
        for text in ["", "Gi", "4gb", "1.5Gi", "-1Gi", "99999999999Ti"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_of_cpus_are_sets() {
        assert_eq!(cpu_list("6,0-3"), Ok(vec![0, 1, 2, 3, 6]));
        assert_eq!(cpu_text(&[0, 1, 2, 3, 6, 8, 9]), "0-3,6,8-9");
        for text in ["", "a", "3-1", "0-3,2", "1,", "-1", "0x1", "99999"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
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
