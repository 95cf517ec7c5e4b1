//! The best time between two saves, if one could save at any moment.

/// The compute time between two saves for which the expected time of a run is least, in seconds, if a save takes `save`
/// and failures come every `mtbf` seconds on average (the paper, equation 5). The time to restore does not matter.
///
/// The relative error is below 1e-12 for `save / mtbf` from 1e-8 to 10. If `save` is so long that the processor cannot
/// tell the interval from the MTBF, it is the MTBF. Both must be positive and finite; otherwise the result is not a
/// number.
pub fn optimal_interval(save: f64, mtbf: f64) -> f64 {
    let ratio = save / mtbf;
    if !(ratio > 0.0 && ratio.is_finite()) {
        return f64::NAN;
    }
    // With x the interval and s the save, both in units of the MTBF, equation 5 says x = 1 - exp(-x - s). For y = x + s
    // that is excess(y) = s, where no small number is the difference of large ones. The function is convex and the
    // start is to the right of the root, so that each of Newton's steps comes nearer from there.
    let mut y = ratio + (2.0 * ratio).sqrt();
    for _ in 0..NEWTON_STEPS_MAX {
        let next = y - (excess(y) - ratio) / -(-y).exp_m1();
        if next >= y {
            break;
        }
        y = next;
    }
    mtbf * -(-y).exp_m1()
}

/// Young's interval: the square root of `2 * save * mtbf` (Communications of the ACM 17(9), 1974).
pub fn young(save: f64, mtbf: f64) -> f64 {
    (2.0 * save * mtbf).sqrt()
}

/// Daly's first-order interval: Young's less the time of the save (Future Generation Computer Systems 22(3), 2006,
/// equation 14).
pub fn daly_first_order(save: f64, mtbf: f64) -> f64 {
    young(save, mtbf) - save
}

/// Daly's higher-order interval (the same, equation 37).
pub fn daly_higher_order(save: f64, mtbf: f64) -> f64 {
    if save >= 2.0 * mtbf {
        return mtbf;
    }
    let half = save / (2.0 * mtbf);
    young(save, mtbf) * (1.0 + half.sqrt() / 3.0 + half / 9.0) - save
}

/// `y - (1 - exp(-y))`, without the loss of digits that this has for small `y`.
fn excess(y: f64) -> f64 {
    if y > 1.0 {
        return y + (-y).exp_m1();
    }
    // y^2/2! - y^3/3! + .., whose terms fall from the first on.
    let mut term = y * y / 2.0;
    let mut sum: f64 = 0.0;
    let mut factor = 3.0;
    while term.abs() > sum.abs() * (f64::EPSILON / 4.0) {
        sum += term;
        term *= -y / factor;
        factor += 1.0;
    }
    sum
}

/// It takes seven at most; more would be rounding errors that chase each other.
const NEWTON_STEPS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    /// Save and interval in units of the MTBF, to the last digit that a number has, by Newton's method with 60 digits.
    const REFERENCE: [(f64, f64); 20] = [
        (1e-8, 0.00014141468964921173),
        (3e-8, 0.00024492897468657944),
        (1e-7, 0.0004471469313179594),
        (1e-6, 0.0014135469742886646),
        (1e-5, 0.004465471774334782),
        (1e-4, 0.014075547672763037),
        (0.001, 0.044057192259048084),
        (0.006, 0.10558156321649402),
        (0.012, 0.14702476652441634),
        (0.024, 0.20338978473365515),
        (0.05, 0.2838105448306558),
        (0.1, 0.38318316820829484),
        (0.3, 0.5888868861354236),
        (0.5, 0.698290437315664),
        (1.0, 0.8414056604369606),
        (2.0, 0.9475309025422851),
        (3.0, 0.9813393709113166),
        (5.0, 0.9975150806648505),
        (7.5, 0.9997964902189724),
        (10.0, 0.999983298020256),
    ];

    /// Equation 5 is solved to 1e-12 over the whole range that anybody may need.
    #[test]
    fn the_interval_is_exact() {
        for (save, expected) in REFERENCE {
            for mtbf in [1.0, 25.0, 86_400.0] {
                let found = optimal_interval(save * mtbf, mtbf) / mtbf;
                let error = (found / expected - 1.0).abs();
                assert!(error <= 1e-12, "{save}: {found} is wrong by {error:e}");
            }
        }
    }

    /// The paper's own figures, and those of Young and Daly beside them.
    #[test]
    fn the_reference_figures_come_out() {
        let table = [
            (0.60, 25.0, 5.084745, 5.4772, 4.8772, 5.084529),
            (0.60, 50.0, 7.351238, 7.7460, 7.1460, 7.351131),
            (0.60, 100.0, 10.558156, 10.9545, 10.3545, 10.558103),
            (0.85, 100.0, 12.478003, 13.0384, 12.1884, 12.477895),
            (0.27, 25.0, 3.496483, 3.6742, 3.4042, 3.496439),
        ];
        let near =
            |found: f64, expected: f64, error: f64| assert!((found - expected).abs() < error, "{found}");
        for (save, mtbf, optimal, young_, daly, higher) in table {
            near(optimal_interval(save, mtbf), optimal, 1e-6);
            near(young(save, mtbf), young_, 1e-4);
            near(daly_first_order(save, mtbf), daly, 1e-4);
            near(daly_higher_order(save, mtbf), higher, 1e-6);
        }
    }

    /// Beyond all measure it is the MTBF, and for tiny saves nearly Young's.
    #[test]
    fn the_ends_of_the_range_are_sound() {
        assert_eq!(optimal_interval(4000.0, 100.0), 100.0);
        assert_eq!(daly_higher_order(200.0, 100.0), 100.0);
        let tiny = optimal_interval(1e-15, 1.0);
        assert!((tiny / young(1e-15, 1.0) - 1.0).abs() < 1e-7, "{tiny}");
        assert!(optimal_interval(0.0, 1.0).is_nan() && optimal_interval(1.0, f64::INFINITY).is_nan());
    }
}
