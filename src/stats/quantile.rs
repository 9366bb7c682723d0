//! Quantiles.

/// Quantile of type 7, in the unit of the values, which need not be sorted; `probability` 0 … 1.
///
/// Linear between the order statistics around position (n − 1)·p, counted from 0: type 7 of Hyndman and Fan, "Sample Quantiles in
/// Statistical Packages", The American Statistician 50 (1996). `None` for no values, a value that isn't finite, or a probability
/// outside 0 … 1.
#[must_use]
pub fn quantile(values: &[f64], probability: f64) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) || !(0.0..=1.0).contains(&probability) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = (sorted.len() - 1) as f64 * probability;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let fraction = position - below as f64;
    Some(sorted[below] + fraction * (sorted[above] - sorted[below])).filter(|value| value.is_finite())
}

/// Median: the quantile of type 7 at ½. `None` as for [`quantile`].
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::stats::testing::{RUNS, assert_close};

    // Printed by NumPy 2.4.6: numpy.quantile(values, q, method="linear"), which is type 7.
    #[test]
    fn quantiles_agree_with_numpy() {
        for (probability, expected) in
            [(0.0, 26.71), (0.1, 26.740_000_000_000_002), (0.25, 26.785), (0.5, 26.865), (0.9, 27.21), (0.95, 27.305), (1.0, 27.4)]
        {
            assert_close(quantile(&RUNS, probability).unwrap(), expected);
        }
    }

    #[test]
    fn the_median_of_two_lies_between_them() {
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
    }

    #[test]
    fn p99_of_a_hundred_is_not_the_largest() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_close(quantile(&values, 0.99).unwrap(), 99.01);
    }

    #[test]
    fn what_cannot_be_computed_is_none() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0, f64::NAN], 0.5), None);
        assert_eq!(quantile(&[1.0], 1.01), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
    }
}
