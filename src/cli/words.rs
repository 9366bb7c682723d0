//! Words and numbers as people read them.

use crate::report::Foreign;
pub use crate::shell::word as shell_word;
use crate::store::record::Metric;
use std::time::Duration;

/// Text of foreign origin, safe for a terminal.
pub fn plain(text: &str) -> String {
    Foreign::new(text).terminal()
}

/// Four significant digits, without an exponent for everyday sizes.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-6..15).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let decimals = usize::try_from(3 - magnitude).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// `latency_ms 1.452 ms ±0.8 %`.
pub fn metric(name: &str, metric: &Metric) -> String {
    let Some(value) = metric.value else {
        return format!("{} — ({})", plain(name), plain(metric.omitted_reason.as_deref().unwrap_or("absent")));
    };
    let spread = metric.spread.as_ref().and_then(|s| s.cov_pct).map_or(String::new(), |cov| format!(" ±{cov:.1} %"));
    let unit = if metric.unit == "1" { String::new() } else { format!(" {}", plain(&metric.unit)) };
    format!("{} {}{unit}{spread}", plain(name), number(value))
}

/// This program, as it can be called again from here: by the path it was called by (`cargo run` does that), else by its name.
pub fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    if called.as_encoded_bytes().contains(&b'/') { shell_word(called) } else { "isotherm".into() }
}

/// `about 3 h 12 min`, to the precision that an estimate has.
pub fn duration(time: Duration) -> String {
    let s = time.as_secs_f64().round() as u64;
    match s {
        _ if time < Duration::from_secs(1) && !time.is_zero() => format!("{} ms", time.as_millis().max(1)),
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", (s + 30) / 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// `1 job`, `2 jobs`.
pub fn count(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let all = [1234567.0, 123.44, 1.0, 0.012_346, -2.5, 0.0];
        let texts: Vec<String> = all.into_iter().map(number).collect();
        assert_eq!(texts, ["1234567", "123.4", "1.000", "0.01235", "-2.500", "0"]);
    }

    #[test]
    fn a_command_can_be_pasted_whatever_a_directory_is_called() {
        assert_eq!(["results/a-b", "my results/a", "it's", ""].map(shell_word), ["results/a-b", "'my results/a'", "'it'\\''s'", "''"]);
    }

    #[test]
    fn durations_read_like_durations() {
        let texts: Vec<String> = [59, 119, 120, 4000, 11_520].map(|s| duration(Duration::from_secs(s))).into();
        assert_eq!(texts, ["59 s", "119 s", "2 min", "67 min", "3 h 12 min"]);
    }
}
