//! Means and spreads.

/// Arithmetic mean.
///
/// Corrected once by the mean of the residuals, so that the mean of equal values is exactly that value.
/// `None` for no values or where a value isn't finite.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let rough = values.iter().sum::<f64>() / n;
    let mean = rough + values.iter().map(|value| value - rough).sum::<f64>() / n;
    mean.is_finite().then_some(mean)
}

/// Sample standard deviation (ddof 1), in the unit of the values.
///
/// `None` for fewer than two values or where a value isn't finite.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values)?;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    Some((squares / (values.len() - 1) as f64).sqrt()).filter(|sd| sd.is_finite())
}

/// Coefficient of variation: standard deviation (ddof 1) ÷ |mean|, as a fraction (0.02 = 2 %).
///
/// `None` for fewer than two values, a mean of 0, or where a value isn't finite.
#[must_use]
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let sd = standard_deviation(values)?;
    (mean != 0.0).then(|| sd / mean.abs()).filter(|cov| cov.is_finite())
}

/// Geometric mean, in the unit of the values.
///
/// Equal values give exactly that value. `None` for no values or where one is zero, negative or not finite.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs = logs(values)?;
    match values {
        [first, rest @ ..] if rest.iter().all(|value| value == first) => Some(*first),
        _ => mean(&logs).map(f64::exp),
    }
}

/// Natural logs of the values; `None` where one has none.
pub(super) fn logs(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| (*value > 0.0 && value.is_finite()).then(|| value.ln())).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::stats::testing::{RUNS, assert_close};

    // Printed by NumPy 2.4.6 and SciPy 1.17.1 for the same six values: numpy.mean, numpy.std(ddof=1), scipy.stats.variation(ddof=1),
    // scipy.stats.gmean.
    #[test]
    fn mean_deviation_variation_and_geometric_mean_agree_with_scipy() {
        assert_close(mean(&RUNS).unwrap(), 26.938_333_333_333_336);
        assert_close(standard_deviation(&RUNS).unwrap(), 0.250_393_024_396_979_64);
        assert_close(coefficient_of_variation(&RUNS).unwrap(), 0.009_295_045_142_497_542);
        assert_close(geometric_mean(&RUNS).unwrap(), 26.937_369_687_652_57);
    }

    #[test]
    fn equal_values_have_exactly_their_mean_and_no_spread() {
        let values = [0.1; 7];
        assert_eq!(mean(&values), Some(0.1));
        assert_eq!(geometric_mean(&values), Some(0.1));
        assert_eq!(standard_deviation(&values), Some(0.0));
        assert_eq!(coefficient_of_variation(&values), Some(0.0));
    }

    #[test]
    fn what_cannot_be_computed_is_none() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[1.0, f64::NAN]), None);
        assert_eq!(mean(&[f64::MAX, f64::MAX]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(coefficient_of_variation(&[-1.0, 1.0]), None);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[1.0, -1.0]), None);
        assert_eq!(geometric_mean(&[1.0, f64::INFINITY]), None);
    }

    #[test]
    fn a_negative_mean_has_a_positive_coefficient_of_variation() {
        assert_close(coefficient_of_variation(&[-1.0, -3.0]).unwrap(), 2.0_f64.sqrt() / 2.0);
    }
}
