//! What a set of numbers comes to.

use super::{
    interval::{Interval, log_t_interval, t_interval},
    moments::{coefficient_of_variation, geometric_mean, mean, standard_deviation},
    quantile::median,
};

/// Confidence of the interval in a [`Summary`].
///
/// The t interval on logs covered 0.94–0.95 of simulated points at 6, 10 and 30 runs; a hierarchical bootstrap covered 0.86–0.93.
pub const CONFIDENCE: f64 = 0.95;

/// Which mean a headline is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Centre {
    /// With a t interval on the logs.
    Geometric,
    /// With a t interval on the values: at least one value is zero or negative, so there are no logs.
    Arithmetic,
}

/// Headline, interval and spread of a set of numbers, all in their unit unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// At least 1.
    pub n: usize,
    pub centre: Centre,
    pub headline: f64,
    /// 95 %; `None` for one value.
    pub interval: Option<Interval>,
    pub mean: f64,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// ddof 1; `None` for one value.
    pub sd: Option<f64>,
    /// As a fraction; `None` for one value or a mean of 0.
    pub cov: Option<f64>,
}

impl Summary {
    /// Summarizes values in any order; the order never changes the outcome.
    ///
    /// `None` for no values, a value that isn't finite, or values so large that their mean isn't.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Summary> {
        // A sum in floating point depends on its order.
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let mean = mean(&values)?;
        let (centre, headline, interval) = match geometric_mean(&values) {
            Some(headline) => (Centre::Geometric, headline, log_t_interval(&values, CONFIDENCE)),
            None => (Centre::Arithmetic, mean, t_interval(&values, CONFIDENCE)),
        };
        Some(Summary {
            n: values.len(),
            centre,
            headline,
            interval,
            mean,
            median: median(&values)?,
            min: *values.first()?,
            max: *values.last()?,
            sd: standard_deviation(&values),
            cov: coefficient_of_variation(&values),
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::stats::testing::{RUNS, assert_close};

    #[test]
    fn the_headline_is_the_geometric_mean() {
        let summary = Summary::of(&RUNS).unwrap();
        assert_eq!((summary.n, summary.centre), (6, Centre::Geometric));
        assert_close(summary.headline, 26.937_369_687_652_57);
        assert_close(summary.interval.unwrap().low, 26.677_111_984_481_23);
        assert_eq!((summary.min, summary.max), (26.71, 27.4));
    }

    #[test]
    fn a_value_without_log_makes_the_headline_arithmetic() {
        let summary = Summary::of(&[-1.5, 0.0, 2.5, 4.0]).unwrap();
        assert_eq!(summary.centre, Centre::Arithmetic);
        assert_close(summary.headline, 1.25);
        assert_close(summary.interval.unwrap().high, 5.174_658_709_893_915);
    }

    #[test]
    fn one_value_is_its_own_headline_without_interval_or_spread() {
        let summary = Summary::of(&[12.34]).unwrap();
        assert_eq!((summary.headline, summary.interval, summary.sd, summary.cov), (12.34, None, None, None));
    }

    #[test]
    fn the_order_of_values_does_not_matter() {
        let mut reversed = RUNS;
        reversed.reverse();
        assert_eq!(Summary::of(&RUNS), Summary::of(&reversed));
    }

    #[test]
    fn no_values_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::INFINITY]), None);
    }
}
