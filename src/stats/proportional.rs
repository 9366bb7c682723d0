//! A line through the origin.

/// y = slope · x, by least squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proportional {
    /// Σxy ÷ Σx², in the unit of y ÷ that of x.
    pub slope: f64,
    /// 1 − SSres ÷ SStot about the mean of y: negative where that mean fits better. `None` where all y are equal.
    pub r_squared: Option<f64>,
}

/// The line that fits these points best. `None` for no points, only x of 0, or where a number isn't finite.
///
/// # Panics
/// Never: of lists of different lengths the rest of the longer one is left out.
#[must_use]
pub fn proportional(x: &[f64], y: &[f64]) -> Option<Proportional> {
    let pairs = || x.iter().zip(y);
    let squares: f64 = pairs().map(|(x, _)| x * x).sum();
    let slope = pairs().map(|(x, y)| x * y).sum::<f64>() / squares;
    let mean = super::mean(y)?;
    let residual: f64 = pairs().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let total: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
    let r_squared = (total > 0.0).then_some(1.0 - residual / total).filter(|r| r.is_finite());
    slope.is_finite().then_some(Proportional { slope, r_squared })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_the_origin_is_what_a_pen_says() {
        // Σxy = 2 + 8 + 15 = 25, Σx² = 14: 25/14. Residuals 3/14, 6/14, −5/14: SSres = 70/196 = 5/14; SStot about 11/3 = 14/3.
        let fit = proportional(&[1.0, 2.0, 3.0], &[2.0, 4.0, 5.0]).unwrap();
        assert!((fit.slope - 25.0 / 14.0).abs() < 1e-15, "{fit:?}");
        assert!((fit.r_squared.unwrap() - (1.0 - (5.0 / 14.0) / (14.0 / 3.0))).abs() < 1e-15, "{fit:?}");
        // Worse than the mean, and says so.
        assert!(proportional(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]).unwrap().r_squared.unwrap() < 0.0);
    }

    #[test]
    fn what_has_no_line_or_no_spread_has_none() {
        assert_eq!(proportional(&[], &[]), None);
        assert_eq!(proportional(&[0.0, 0.0], &[1.0, 2.0]), None);
        assert_eq!(proportional(&[1.0, f64::NAN], &[1.0, 2.0]), None);
        assert_eq!(proportional(&[1.0, 1.0], &[2.0, 2.0]), Some(Proportional { slope: 2.0, r_squared: None }));
    }
}
