//! Units: a closed list, each with its symbol and the suffix of names that carry it.

/// A unit of a metric, a telemetry column or a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Bytes,
    /// 1 GB = 10⁹ bytes.
    GigabytesPerSecond,
    Count,
    Percent,
    Hertz,
    Kilohertz,
    DegreesCelsius,
    Watts,
    Joules,
    Millijoules,
    TokensPerSecond,
    InferencesPerSecond,
    RequestsPerSecond,
    /// A plain number: a ratio, a load average.
    One,
}

impl Unit {
    /// Every unit there is.
    pub const ALL: &[Unit] = &[
        Unit::Nanoseconds,
        Unit::Microseconds,
        Unit::Milliseconds,
        Unit::Seconds,
        Unit::Bytes,
        Unit::GigabytesPerSecond,
        Unit::Count,
        Unit::Percent,
        Unit::Hertz,
        Unit::Kilohertz,
        Unit::DegreesCelsius,
        Unit::Watts,
        Unit::Joules,
        Unit::Millijoules,
        Unit::TokensPerSecond,
        Unit::InferencesPerSecond,
        Unit::RequestsPerSecond,
        Unit::One,
    ];

    /// As it stands in a record.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Bytes => "bytes",
            Unit::GigabytesPerSecond => "GB/s",
            Unit::Count => "count",
            Unit::Percent => "pct",
            Unit::Hertz => "Hz",
            Unit::Kilohertz => "kHz",
            Unit::DegreesCelsius => "°C",
            Unit::Watts => "W",
            Unit::Joules => "J",
            Unit::Millijoules => "mJ",
            Unit::TokensPerSecond => "tokens/s",
            Unit::InferencesPerSecond => "inferences/s",
            Unit::RequestsPerSecond => "requests/s",
            Unit::One => "1",
        }
    }

    /// How a name ends whose value is in this unit; empty for a plain number. Where there are several, the first is ours and the others are
    /// those of tools whose names are kept.
    #[must_use]
    pub const fn suffixes(self) -> &'static [&'static str] {
        match self {
            Unit::Nanoseconds => &["_ns"],
            Unit::Microseconds => &["_us"],
            Unit::Milliseconds => &["_ms"],
            Unit::Seconds => &["_s"],
            Unit::Bytes => &["_bytes"],
            Unit::GigabytesPerSecond => &["_gb_s"],
            Unit::Count => &["_count"],
            Unit::Percent => &["_pct"],
            Unit::Hertz => &["_hz"],
            Unit::Kilohertz => &["_khz"],
            Unit::DegreesCelsius => &["_c"],
            Unit::Watts => &["_w"],
            Unit::Joules => &["_j"],
            Unit::Millijoules => &["_mj"],
            // llama-bench calls its rates `avg_ts`, `stddev_ts`.
            Unit::TokensPerSecond => &["_tps", "_ts"],
            Unit::InferencesPerSecond => &["_ips"],
            Unit::RequestsPerSecond => &["_rps"],
            Unit::One => &[],
        }
    }

    /// The unit that a name carries as its suffix, if it does: that of the longest suffix that fits.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Unit> {
        let fitting = Unit::ALL.iter().flat_map(|unit| unit.suffixes().iter().map(move |suffix| (*unit, *suffix)));
        fitting.filter(|(_, suffix)| name.ends_with(suffix)).max_by_key(|(_, suffix)| suffix.len()).map(|(unit, _)| unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_symbol_and_no_suffix_stands_for_two_units() {
        let symbols: BTreeSet<&str> = Unit::ALL.iter().map(|unit| unit.symbol()).collect();
        assert_eq!(symbols.len(), Unit::ALL.len());
        let suffixes: Vec<&str> = Unit::ALL.iter().flat_map(|unit| unit.suffixes()).copied().collect();
        assert_eq!(suffixes.iter().collect::<BTreeSet<_>>().len(), suffixes.len());
    }

    #[test]
    fn a_name_has_the_unit_of_its_longest_suffix() {
        let names = ["latency_ms", "read_bandwidth_gb_s", "wall_s", "energy_per_token_mj", "threads", "load_1min"];
        let units = [Some(Unit::Milliseconds), Some(Unit::GigabytesPerSecond), Some(Unit::Seconds), Some(Unit::Millijoules), None, None];
        assert_eq!(names.map(Unit::of_name), units);
    }
}
