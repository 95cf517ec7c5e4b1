//! First-arrival travel times from a point at the surface, by the factored eikonal equation and fast sweeping.
//!
//! The time is written as t = t0 * tau, where t0 is the time in a medium of the source's velocity: tau is smooth
//! at the source, where t is not, and so first order is enough (Fomel, Luo and Zhao, "Fast sweeping method for the
//! factored eikonal equation", J. Comput. Phys. 228, 2009). The order of the sweeps is Zhao's ("A fast sweeping
//! method for eikonal equations", Math. Comput. 74, 2005).

use crate::{Grid, Section};

/// Travel times in seconds from a surface point to the nodes of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct TravelTimes(pub Section);

impl TravelTimes {
    /// Solves for a source at the surface, anywhere between the first and the last column.
    ///
    /// # Panics
    /// If the velocity has fewer than two columns or rows.
    pub fn new(velocity: &Section, source_x_m: f32) -> Self {
        let slowness: Vec<f32> = velocity.values.iter().map(|velocity| velocity.recip()).collect();
        let mut solver = Solver::new(velocity, &slowness, source_x_m);
        for _ in 0..SWEEPS_MAX {
            if solver.sweep() < CONVERGED {
                break;
            }
        }
        let times = solver
            .plain_times
            .iter()
            .zip(&solver.factors)
            .map(|(plain, factor)| plain.time_s * factor)
            .collect();
        Self(Section {
            grid: velocity.grid,
            values: times,
        })
    }
}

struct Solver<'a> {
    grid: Grid,
    slowness: &'a [f32],
    plain_times: Vec<PlainTime>,
    factors: Vec<f32>,
    fixed: Vec<bool>,
}

/// The time in the homogeneous medium and its derivatives.
#[derive(Clone, Copy)]
struct PlainTime {
    time_s: f32,
    along_x: f32,
    along_z: f32,
}

impl<'a> Solver<'a> {
    fn new(velocity: &Section, slowness: &'a [f32], source_x_m: f32) -> Self {
        let grid = velocity.grid;
        assert!(
            grid.columns > 1 && grid.rows > 1,
            "a grid of at least 2 x 2 nodes"
        );
        let source_slowness = velocity.interpolate(source_x_m, 0.0).recip();
        let mut plain_times = Vec::with_capacity(grid.nodes());
        let mut factors = vec![UNKNOWN; grid.nodes()];
        let mut fixed = vec![false; grid.nodes()];
        for column in 0..grid.columns {
            let x = grid.x_m(column) - source_x_m;
            for row in 0..grid.rows {
                let z = grid.z_m(row);
                let distance = (x * x + z * z).sqrt();
                let node = plain_times.len();
                // At the source itself the derivatives are never used: the node is fixed.
                let slope = source_slowness / distance.max(f32::MIN_POSITIVE);
                plain_times.push(PlainTime {
                    time_s: source_slowness * distance,
                    along_x: slope * x,
                    along_z: slope * z,
                });
                if distance < FIXED_RADIUS * grid.spacing_m {
                    factors[node] = 0.5 * (slowness[node] + source_slowness) / source_slowness;
                    fixed[node] = true;
                }
            }
        }
        Self {
            grid,
            slowness,
            plain_times,
            factors,
            fixed,
        }
    }

    /// Passes over the grid in all four directions; how much the largest change of a factor was.
    fn sweep(&mut self) -> f32 {
        let Grid { columns, rows, .. } = self.grid;
        let mut change: f32 = 0.0;
        for (right, down) in [(true, true), (false, true), (false, false), (true, false)] {
            for step in 0..columns {
                let column = if right { step } else { columns - 1 - step };
                for step in 0..rows {
                    let row = if down { step } else { rows - 1 - step };
                    change = change.max(self.update(column, row));
                }
            }
        }
        change
    }

    fn update(&mut self, column: usize, row: usize) -> f32 {
        let Grid {
            columns,
            rows,
            spacing_m,
        } = self.grid;
        let node = column * rows + row;
        if self.fixed[node] {
            return 0.0;
        }
        let slowness = self.slowness[node];
        let plain = self.plain_times[node];
        let along_x = self.upwind(
            (column > 0).then(|| node - rows),
            (column + 1 < columns).then_some(node + rows),
        );
        let along_z = self.upwind((row > 0).then(|| node - 1), (row + 1 < rows).then_some(node + 1));
        // t_x = linear.0 * tau - linear.1, with the one-sided difference of tau towards the neighbour.
        let linear_x = along_x.linear(plain.along_x, plain.time_s, spacing_m);
        let linear_z = along_z.linear(plain.along_z, plain.time_s, spacing_m);
        let both = larger_root(linear_x, linear_z, slowness)
            .filter(|factor| along_x.comes_from(linear_x, *factor) && along_z.comes_from(linear_z, *factor));
        let candidate = both.unwrap_or_else(|| {
            let straight_x_s = along_x.straight(slowness, spacing_m);
            let straight_z_s = along_z.straight(slowness, spacing_m);
            straight_x_s.min(straight_z_s) / plain.time_s
        });
        let old = self.factors[node];
        if candidate < old {
            self.factors[node] = candidate;
            return old - candidate;
        }
        0.0
    }

    /// The neighbour that the wave reaches first, of the one before and the one after.
    fn upwind(&self, before: Option<usize>, after: Option<usize>) -> Upwind {
        let neighbour = |node: Option<usize>, side: f32| {
            node.map_or(Upwind::NONE, |node| Upwind {
                factor: self.factors[node],
                time_s: self.plain_times[node].time_s * self.factors[node],
                slowness: self.slowness[node],
                side,
            })
        };
        let (before, after) = (neighbour(before, 1.0), neighbour(after, -1.0));
        if before.time_s <= after.time_s {
            before
        } else {
            after
        }
    }
}

/// The neighbour that an update leans on.
#[derive(Clone, Copy)]
struct Upwind {
    factor: f32,
    time_s: f32,
    slowness: f32,
    /// 1 if it comes before the node, -1 if after.
    side: f32,
}

impl Upwind {
    const NONE: Self = Self {
        factor: UNKNOWN,
        time_s: f32::MAX,
        slowness: 0.0,
        side: 1.0,
    };

    /// The slope and the negative offset of the derivative of t as a function of the node's factor.
    fn linear(&self, plain_slope: f32, plain_time_s: f32, spacing_m: f32) -> (f32, f32) {
        let difference = self.side * plain_time_s / spacing_m;
        (plain_slope + difference, difference * self.factor)
    }

    /// Returns true if the wave really comes from this side.
    fn comes_from(&self, (slope, offset): (f32, f32), factor: f32) -> bool {
        self.factor < UNKNOWN && self.side * (slope * factor - offset) >= 0.0
    }

    /// The time at the node if the wave comes straight from here.
    fn straight(&self, slowness: f32, spacing_m: f32) -> f32 {
        self.time_s + 0.5 * spacing_m * (self.slowness + slowness)
    }
}

/// The larger tau of (a.0 tau - a.1)^2 + (b.0 tau - b.1)^2 = slowness^2.
fn larger_root(a: (f32, f32), b: (f32, f32), slowness: f32) -> Option<f32> {
    let square = a.0 * a.0 + b.0 * b.0;
    let half = a.0 * a.1 + b.0 * b.1;
    // As a cross product, because the difference of squares would cancel.
    let cross = a.0 * b.1 - b.0 * a.1;
    let discriminant = square * slowness * slowness - cross * cross;
    (discriminant >= 0.0).then(|| (half + discriminant.sqrt()) / square)
}

/// A factor that no wave has.
const UNKNOWN: f32 = 1e6;
/// Within so many cells of the source rays are straight.
const FIXED_RADIUS: f32 = 1.6;
/// When no factor changes by more the times are good to some ten microseconds.
const CONVERGED: f32 = 1e-5;
const SWEEPS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid {
        columns: 120,
        rows: 80,
        spacing_m: 20.0,
    };

    fn largest_error(velocity: &Section, source_x_m: f32, exact: impl Fn(f32, f32) -> f32) -> f32 {
        let times = TravelTimes::new(velocity, source_x_m).0;
        let exact = Section::from_function(velocity.grid, |x, z| exact(x - source_x_m, z));
        times
            .values
            .iter()
            .zip(&exact.values)
            .map(|(time, exact)| (time - exact).abs())
            .fold(0.0, f32::max)
    }

    /// In constant velocity the factored equation is exact, on nodes and between them.
    #[test]
    fn constant_velocity_is_exact() {
        let velocity = Section::from_function(GRID, |_, _| 2000.0);
        for source_x_m in [0.0, 500.0, 1237.0, GRID.width_m()] {
            let error = largest_error(&velocity, source_x_m, |x, z| x.hypot(z) / 2000.0);
            assert!(error < 2e-5, "{error} s");
        }
    }

    /// In a linear gradient v = v0 + k z the time is arcosh(1 + k^2 (x^2 + z^2) / (2 v0 v(z))) / k (Slotnick,
    /// Lessons in Seismic Computing, 1959); the error is far below a sample of 4 ms and falls with the spacing.
    #[test]
    fn gradient_matches_the_circular_rays() {
        let (v0, k) = (1600.0f32, 0.6f32);
        let exact = |x: f32, z: f32| {
            let argument = f64::from(k * k * (x * x + z * z)) / f64::from(2.0 * v0 * (v0 + k * z));
            ((1.0 + argument).acosh() / f64::from(k)) as f32
        };
        let error_on = |grid| {
            let velocity = Section::from_function(grid, |_, z| v0 + k * z);
            largest_error(&velocity, 610.0, exact)
        };
        let coarse = error_on(GRID);
        let fine = error_on(Grid {
            columns: 239,
            rows: 159,
            spacing_m: 10.0,
        });
        assert!(coarse < 0.5e-3, "{coarse} s");
        assert!(fine < 0.6 * coarse, "{fine} s, {coarse} s");
    }
}
