//! The earth that is surveyed: what the waves see, and the smooth velocity that the migration is given.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::{Grid, Section, SurveyOptions, SurveySize};

/// A vertical plane through a made-up earth of constant density.
#[derive(Clone, Debug)]
pub struct EarthModel {
    /// The P-wave velocity with layers and diffractors, in m/s: what the modelling sees.
    pub velocity: Section,
    /// The velocity without them, in m/s; equal to `velocity` near the surface.
    pub background: Section,
    /// The velocity that a velocity analysis would find, in m/s: the slowness of the layers smoothed over
    /// about a wavelength, without the diffractors.
    pub migration_velocity: Section,
    /// Where the point diffractors are.
    pub diffractors: Vec<Diffractor>,
}

/// A point that scatters in all directions, at a node of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diffractor {
    /// Its column.
    pub column: usize,
    /// Its row.
    pub row: usize,
}

impl EarthModel {
    /// Builds the model of a survey.
    pub fn new(options: &SurveyOptions) -> Self {
        let grid = options.layout().grid;
        let mut random = Pcg64::seed_from_u64(options.seed);
        let plan = Plan::of(options.size);
        let interfaces: Vec<Interface> = plan
            .interfaces
            .iter()
            .map(|interface| Interface {
                depth: interface.depth + 0.008 * symmetric(&mut random),
                ..*interface
            })
            .collect();
        let diffractors: Vec<Diffractor> = plan
            .diffractors
            .iter()
            .map(|(x, z)| Diffractor {
                column: near(*x, grid.columns, &mut random),
                row: near(*z, grid.rows, &mut random),
            })
            .collect();

        let background = Section::from_function(grid, |x, z| {
            let (x, z) = (x / grid.width_m(), z / grid.depth_m());
            let lateral = 120.0 * z * (std::f32::consts::TAU * 0.75 * x).sin();
            plan.velocity_top_m_s + (plan.velocity_bottom_m_s - plan.velocity_top_m_s) * z + lateral
        });
        let layered = layered(&background, &interfaces);
        let migration_velocity = smooth_slowness(&layered, plan.smoothing_rows);
        let mut velocity = layered;
        for diffractor in &diffractors {
            scatterer(&mut velocity, *diffractor);
        }
        Self {
            velocity,
            background,
            migration_velocity,
            diffractors,
        }
    }
}

/// The part of a model that does not depend on the seed. Places are fractions of the grid's width and depth.
struct Plan {
    velocity_top_m_s: f32,
    velocity_bottom_m_s: f32,
    smoothing_rows: f32,
    interfaces: &'static [Interface],
    diffractors: &'static [(f32, f32)],
}

/// A boundary below which the velocity is higher or lower by a step.
#[derive(Clone, Copy)]
struct Interface {
    /// Its depth in the middle of the line.
    depth: f32,
    /// How much deeper it is at the right end than at the left one.
    dip: f32,
    /// The height of an anticline.
    bulge: f32,
    /// Where the anticline's top is.
    bulge_x: f32,
    /// How much deeper it lies on the right-hand side of the fault.
    throw: f32,
    /// The step, in m/s.
    step_m_s: f32,
}

const FLAT: Interface = Interface {
    depth: 0.0,
    dip: 0.0,
    bulge: 0.0,
    bulge_x: 0.0,
    throw: 0.0,
    step_m_s: 0.0,
};

/// Where the fault meets the surface, and how far it moves to the right down to the bottom.
const FAULT_X: f32 = 0.28;
const FAULT_LEAN: f32 = 0.12;
/// The half width of an anticline.
const BULGE_WIDTH: f32 = 0.13;

impl Plan {
    fn of(size: SurveySize) -> Self {
        match size {
            SurveySize::Demo => Self {
                velocity_top_m_s: 1600.0,
                velocity_bottom_m_s: 2700.0,
                smoothing_rows: 7.0,
                interfaces: &[
                    Interface {
                        depth: 0.15,
                        dip: 0.01,
                        step_m_s: 120.0,
                        ..FLAT
                    },
                    Interface {
                        depth: 0.29,
                        bulge: 0.07,
                        bulge_x: 0.62,
                        step_m_s: -90.0,
                        ..FLAT
                    },
                    Interface {
                        depth: 0.35,
                        bulge: 0.08,
                        bulge_x: 0.62,
                        step_m_s: 170.0,
                        ..FLAT
                    },
                    Interface {
                        depth: 0.56,
                        dip: 0.32,
                        step_m_s: 200.0,
                        ..FLAT
                    },
                    Interface {
                        depth: 0.82,
                        throw: 0.035,
                        step_m_s: -150.0,
                        ..FLAT
                    },
                    Interface {
                        depth: 0.90,
                        throw: 0.035,
                        bulge: 0.02,
                        bulge_x: 0.75,
                        step_m_s: 220.0,
                        ..FLAT
                    },
                ],
                diffractors: &[
                    (0.12, 0.23),
                    (0.36, 0.22),
                    (0.88, 0.22),
                    (0.80, 0.46),
                    (0.55, 0.45),
                    (0.93, 0.55),
                    (0.17, 0.58),
                    (0.30, 0.68),
                    (0.50, 0.74),
                ],
            },
            SurveySize::Small => Self {
                velocity_top_m_s: 1700.0,
                velocity_bottom_m_s: 2300.0,
                smoothing_rows: 5.0,
                interfaces: &[Interface {
                    depth: 0.75,
                    dip: 0.12,
                    step_m_s: 200.0,
                    ..FLAT
                }],
                diffractors: &[(0.35, 0.35), (0.62, 0.48)],
            },
        }
    }
}

impl Interface {
    /// Its depth at an x, both as fractions.
    fn depth_at(&self, x: f32) -> f32 {
        let from_top = (x - self.bulge_x) / BULGE_WIDTH;
        let fault_x = FAULT_X + FAULT_LEAN * self.depth;
        let throw = if x > fault_x { self.throw } else { 0.0 };
        self.depth + self.dip * (x - 0.5) - self.bulge * (-from_top * from_top).exp() + throw
    }
}

/// Adds the interfaces' steps. A cell that an interface crosses gets its share of the step, so that a dipping
/// interface is no staircase of diffractors.
fn layered(background: &Section, interfaces: &[Interface]) -> Section {
    let grid = background.grid;
    let mut velocity = background.clone();
    for column in 0..grid.columns {
        let x = grid.x_m(column) / grid.width_m();
        for interface in interfaces {
            let depth_rows = interface.depth_at(x) * (grid.rows - 1) as f32;
            for (row, value) in velocity.values[column * grid.rows..][..grid.rows]
                .iter_mut()
                .enumerate()
            {
                *value += interface.step_m_s * (row as f32 - depth_rows + 0.5).clamp(0.0, 1.0);
            }
        }
    }
    velocity
}

/// Smooths the slowness, which keeps vertical travel times, with a Gaussian of this standard deviation.
fn smooth_slowness(velocity: &Section, deviation_rows: f32) -> Section {
    let Grid { columns, rows, .. } = velocity.grid;
    let reach = (3.0 * deviation_rows).ceil() as isize;
    let weights: Vec<f32> = (-reach..=reach)
        .map(|distance| (-0.5 * (distance as f32 / deviation_rows).powi(2)).exp())
        .collect();
    let total: f32 = weights.iter().sum();
    let smooth_along = |values: &[f32], nodes: usize, index: &dyn Fn(usize, usize) -> usize, lines: usize| {
        let mut smoothed = vec![0.0; values.len()];
        for line in 0..lines {
            for node in 0..nodes {
                let sum: f32 = (-reach..=reach)
                    .zip(&weights)
                    .map(|(distance, weight)| {
                        // Beyond the edges the values go on in a straight line, so that a gradient is kept.
                        let place = node as isize + distance;
                        let inside = place.clamp(0, nodes as isize - 1);
                        let mirrored = (2 * inside - place).clamp(0, nodes as isize - 1);
                        let edge = values[index(line, inside as usize)];
                        weight * (2.0 * edge - values[index(line, mirrored as usize)])
                    })
                    .sum();
                smoothed[index(line, node)] = sum / total;
            }
        }
        smoothed
    };
    let slowness: Vec<f32> = velocity.values.iter().map(|velocity| velocity.recip()).collect();
    let along_z = smooth_along(&slowness, rows, &|column, row| column * rows + row, columns);
    let along_x = smooth_along(&along_z, columns, &|row, column| column * rows + row, rows);
    Section {
        grid: velocity.grid,
        values: along_x.iter().map(|slowness| slowness.recip()).collect(),
    }
}

/// A disc of three cells of lower velocity: small beside a wavelength, so it scatters in all directions.
/// Lower, because a higher one would ask for a shorter time step.
fn scatterer(velocity: &mut Section, diffractor: Diffractor) {
    let rows = velocity.grid.rows;
    for column in diffractor.column - 1..=diffractor.column + 1 {
        for row in diffractor.row - 1..=diffractor.row + 1 {
            let corner = column != diffractor.column && row != diffractor.row;
            velocity.values[column * rows + row] *= if corner { 0.9 } else { 0.75 };
        }
    }
}

/// A node at a fraction of the grid, moved by at most 2 %.
fn near(fraction: f32, nodes: usize, random: &mut Pcg64) -> usize {
    ((fraction + 0.02 * symmetric(random)) * (nodes - 1) as f32) as usize
}

/// A number from -1 to 1.
fn symmetric(random: &mut Pcg64) -> f32 {
    (random.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(seed: u64) -> EarthModel {
        EarthModel::new(&SurveyOptions {
            seed,
            size: SurveySize::Demo,
        })
    }

    /// The seed moves things, and only the seed does.
    #[test]
    fn seed_decides_the_model() {
        assert_eq!(model(1).velocity, model(1).velocity);
        assert_ne!(model(1).velocity, model(2).velocity);
        assert_ne!(model(1).diffractors, model(2).diffractors);
    }

    /// Near the surface the earth is its background, so that subtracting the background's waves removes the
    /// direct wave; and all velocities are ones that the modelling is stable for.
    #[test]
    fn model_is_fit_for_modelling() {
        for seed in 0..5 {
            let model = model(seed);
            for column in 0..model.velocity.grid.columns {
                assert_eq!(
                    model.velocity.column(column)[..20],
                    model.background.column(column)[..20]
                );
            }
            assert!(
                model
                    .velocity
                    .values
                    .iter()
                    .all(|&velocity| (700.0..3600.0).contains(&velocity))
            );
        }
    }

    /// The smooth model keeps vertical travel times: at the bottom it is off by less than a sample of 4 ms.
    #[test]
    fn smoothing_keeps_travel_times() {
        let model = model(3);
        let layered = {
            let mut without = model.velocity.clone();
            for diffractor in &model.diffractors {
                for column in diffractor.column - 1..=diffractor.column + 1 {
                    for row in diffractor.row - 1..=diffractor.row + 1 {
                        let node = column * without.grid.rows + row;
                        without.values[node] = model.migration_velocity.values[node];
                    }
                }
            }
            without
        };
        for column in (0..layered.grid.columns).step_by(37) {
            let time = |section: &Section| -> f32 { section.column(column).iter().map(|v| 10.0 / v).sum() };
            assert!((time(&layered) - time(&model.migration_velocity)).abs() < 0.004);
        }
    }
}
