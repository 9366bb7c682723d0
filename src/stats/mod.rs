//! Statistics of measured numbers.
//!
//! Takes slices of finite `f64` in any unit and gives summaries, quantiles and intervals in the same unit.
//! Must not know records, metrics or text: no IO, no strings, no messages. What cannot be computed is `None`, never 0 or NaN.
//!
//! The headline of a point is the geometric mean of its run headlines with a t interval on their logs. Where a value is zero or
//! negative there are no logs: the headline is then the arithmetic mean with a t interval on the values, and [`Centre`] says so.

mod interval;
mod moments;
mod proportional;
mod quantile;
mod summary;

pub use interval::{Interval, log_t_interval, t_interval, t_quantile};
pub use moments::{coefficient_of_variation, geometric_mean, mean, standard_deviation};
pub use proportional::{Proportional, proportional};
pub use quantile::{median, quantile};
pub use summary::{CONFIDENCE, Centre, Summary};

#[cfg(test)]
mod testing {
    /// Six run headlines, tokens/s; synthetic.
    pub const RUNS: [f64; 6] = [26.83, 26.71, 27.02, 26.9, 26.77, 27.4];

    /// Equal to 11 significant digits.
    pub fn assert_close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() <= 1e-11 * expected.abs(), "{actual} is not {expected}");
    }
}
