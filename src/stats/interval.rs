//! Intervals from Student's t distribution.

use super::moments::{logs, mean, standard_deviation};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Two-sided interval, in the unit of the values; `low` ≤ `high`, both finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// Quantile of Student's t distribution; `probability` between 0 and 1, both exclusive.
///
/// `None` for 0 degrees of freedom or a probability outside.
#[must_use]
pub fn t_quantile(probability: f64, degrees_of_freedom: usize) -> Option<f64> {
    if !(probability > 0.0 && probability < 1.0) {
        return None;
    }
    let t = StudentsT::new(0.0, 1.0, degrees_of_freedom as f64).ok()?;
    Some(t.inverse_cdf(probability)).filter(|value| value.is_finite())
}

/// t interval of the arithmetic mean: mean ± t·s/√n.
///
/// `confidence` between 0 and 1, e.g. 0.95. `None` for fewer than two values, a value that isn't finite, or a confidence outside.
#[must_use]
pub fn t_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let mean = mean(values)?;
    let sd = standard_deviation(values)?;
    let half = t_quantile(0.5 + confidence / 2.0, values.len() - 1)? * sd / (values.len() as f64).sqrt();
    let interval = Interval { low: mean - half, high: mean + half };
    (interval.low.is_finite() && interval.high.is_finite()).then_some(interval)
}

/// t interval of the geometric mean: the t interval of the mean of the logs, taken back.
///
/// `None` as for [`t_interval`], and where a value is zero or negative.
#[must_use]
pub fn log_t_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if let [first, second, rest @ ..] = values
        && std::iter::once(second).chain(rest).all(|value| value == first && *value > 0.0 && value.is_finite())
    {
        return Some(Interval { low: *first, high: *first });
    }
    let interval = t_interval(&logs(values)?, confidence)?;
    let interval = Interval { low: interval.low.exp(), high: interval.high.exp() };
    interval.high.is_finite().then_some(interval)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::stats::testing::{RUNS, assert_close};

    // Printed by SciPy 1.17.1: scipy.stats.t.ppf(p, df).
    #[test]
    fn t_quantiles_agree_with_scipy() {
        for (degrees_of_freedom, at_975, at_95) in [
            (1, 12.706_204_736_174_694, 6.313_751_514_675_037),
            (2, 4.302_652_729_749_462, 2.919_985_580_353_724_2),
            (3, 3.182_446_305_283_707_8, 2.353_363_434_801_823_3),
            (5, 2.570_581_835_636_314_6, 2.015_048_373_333_023_3),
            (9, 2.262_157_162_798_205, 1.833_112_932_656_237),
            (29, 2.045_229_642_132_703, 1.699_127_026_533_497_2),
            (99, 1.984_216_951_586_417_4, 1.660_391_156_016_990_6),
        ] {
            assert_close(t_quantile(0.975, degrees_of_freedom).unwrap(), at_975);
            assert_close(t_quantile(0.95, degrees_of_freedom).unwrap(), at_95);
        }
    }

    // Printed by SciPy 1.17.1: exp of scipy.stats.t.interval(0.95, n-1, loc=mean(log), scale=sem(log)).
    #[test]
    fn the_interval_on_logs_agrees_with_scipy() {
        let interval = log_t_interval(&RUNS, 0.95).unwrap();
        assert_close(interval.low, 26.677_111_984_481_23);
        assert_close(interval.high, 27.200_166_423_988_35);
        let interval = log_t_interval(&[10.0, 11.0], 0.95).unwrap();
        assert_close(interval.low, 5.724_326_232_559_298);
        assert_close(interval.high, 19.216_235_331_650_548);
    }

    // Printed by SciPy 1.17.1: scipy.stats.t.interval(0.95, n-1, loc=mean, scale=sem).
    #[test]
    fn the_interval_on_raw_values_agrees_with_scipy() {
        let interval = t_interval(&[-1.5, 0.0, 2.5, 4.0], 0.95).unwrap();
        assert_close(interval.low, -2.674_658_709_893_915);
        assert_close(interval.high, 5.174_658_709_893_915);
    }

    #[test]
    fn equal_values_have_an_interval_without_width() {
        assert_eq!(log_t_interval(&[0.3; 4], 0.95), Some(Interval { low: 0.3, high: 0.3 }));
    }

    #[test]
    fn what_cannot_be_computed_is_none() {
        assert_eq!(t_interval(&[1.0], 0.95), None);
        assert_eq!(log_t_interval(&[1.0], 0.95), None);
        assert_eq!(log_t_interval(&[1.0, 0.0], 0.95), None);
        assert_eq!(log_t_interval(&[0.0, 0.0], 0.95), None);
        assert_eq!(t_interval(&[1.0, 2.0], 1.0), None);
        assert_eq!(t_quantile(0.975, 0), None);
        assert_eq!(t_quantile(1.0, 3), None);
        // ln spans 1380: the upper bound is beyond f64.
        assert_eq!(log_t_interval(&[1e-300, 1e300], 0.95), None);
    }
}
