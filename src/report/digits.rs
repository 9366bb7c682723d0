//! How many digits a number is printed with.

/// Numbers of a table with fewer digits than this would hide differences.
const LEAST_SIGNIFICANT: i32 = 3;
/// Of the largest number in a column: one more than the least, so that 1 % steps are seen.
const SIGNIFICANT_OF_LARGEST: i32 = 4;
/// With more decimals than this a column is printed in scientific notation.
const MOST_DECIMALS: i32 = 9;
/// From here on too.
const LARGEST_FIXED: f64 = 1e15;

/// One format for all numbers of a column, in the unit they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Digits {
    Fixed { decimals: i32 },
    Scientific,
}

impl Digits {
    /// The smallest number keeps three significant digits, the largest four; whole digits are never dropped.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Digits {
        let sizes: Vec<f64> = values.into_iter().map(f64::abs).filter(|size| *size > 0.0).collect();
        let Some(largest) = sizes.iter().copied().reduce(f64::max) else { return Digits::Fixed { decimals: 0 } };
        let smallest = sizes.iter().copied().fold(largest, f64::min);
        let decimals = decimals(smallest, LEAST_SIGNIFICANT).max(decimals(largest, SIGNIFICANT_OF_LARGEST));
        if decimals > MOST_DECIMALS || largest >= LARGEST_FIXED { Digits::Scientific } else { Digits::Fixed { decimals } }
    }

    /// In this format, with more decimals where a number would keep fewer than three significant digits.
    pub(super) fn text(self, value: f64) -> String {
        // Also takes the sign off a negative zero.
        if value == 0.0 {
            return "0".to_owned();
        }
        match self {
            Digits::Fixed { decimals: column } => {
                let decimals = decimals(value, LEAST_SIGNIFICANT).max(column);
                if decimals > MOST_DECIMALS || value.abs() >= LARGEST_FIXED {
                    Digits::Scientific.text(value)
                } else {
                    format!("{value:.*}", decimals as usize)
                }
            }
            Digits::Scientific => format!("{value:.3e}"),
        }
    }
}

/// Decimals that keep so many significant digits; at least 0.
fn decimals(value: f64, significant: i32) -> i32 {
    // The exponent of the printed form, so that 9.999 counts as the 10.00 it will be printed as.
    let printed = format!("{value:.*e}", significant as usize - 1);
    let exponent = printed.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    (significant - 1 - exponent).max(0)
}

/// A coefficient of variation in percent.
pub(super) fn percent(value: f64) -> String {
    // Far below what any clock resolves.
    const LEAST: f64 = 1e-4;
    match value {
        0.0 => "0 %".to_owned(),
        value if value < LEAST => format!("< {LEAST} %"),
        value => format!("{value:.*} %", decimals(value, LEAST_SIGNIFICANT) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[f64]) -> Vec<String> {
        let digits = Digits::of(values.iter().copied());
        values.iter().map(|value| digits.text(*value)).collect()
    }

    #[test]
    fn a_column_has_one_number_of_decimals() {
        assert_eq!(column(&[26.83, 9.8, 11.934]), ["26.83", "9.80", "11.93"]);
        assert_eq!(column(&[1234.56, 0.5]), ["1234.560", "0.500"]);
        assert_eq!(column(&[123_456_789.0]), ["123456789"]);
    }

    #[test]
    fn no_number_keeps_fewer_than_three_significant_digits() {
        assert_eq!(Digits::of([26.83]).text(0.012_345), "0.0123");
        assert_eq!(column(&[0.000_123_4, 0.5]), ["0.000123", "0.500000"]);
        assert_eq!(column(&[9.9996]), ["10.00"]);
        assert_eq!(column(&[-2.5]), ["-2.500"]);
    }

    #[test]
    fn sizes_without_a_readable_fixed_form_are_scientific() {
        assert_eq!(column(&[1.5e-10]), ["1.500e-10"]);
        assert_eq!(column(&[2e15]), ["2.000e15"]);
        assert_eq!(Digits::of([26.83]).text(1e-12), "1.000e-12");
    }

    #[test]
    fn zero_is_zero() {
        assert_eq!(column(&[0.0, -0.0]), ["0", "0"]);
    }

    #[test]
    fn a_spread_in_percent_keeps_three_digits() {
        assert_eq!(percent(0.412_34), "0.412 %");
        assert_eq!(percent(12.345), "12.3 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1e-9), "< 0.0001 %");
    }
}
