//! The acoustic wave equation of constant density in two dimensions, in finite differences: second order in
//! time, eighth order in space.
//!
//! The scheme is the one of Dablain, "The application of high-order differencing to the scalar wave equation",
//! Geophysics 51 (1986). All four sides absorb, the surface too, so there are no surface multiples.

use crate::Section;

/// Pressure on a grid that is larger than the model by [`ABSORBING`] cells on each side, with one source and all
/// receivers at the model's surface.
pub(crate) struct WaveField {
    columns: usize,
    rows: usize,
    /// (velocity * time step / spacing)^2 for each cell.
    courant_squared: Vec<f32>,
    /// 1 / (1 + damping * time step), as a product of one factor for the column and one for the row.
    damping_of_column: Vec<f32>,
    damping_of_row: Vec<f32>,
    current: Vec<f32>,
    previous: Vec<f32>,
    source_column: usize,
    /// Cells that the fastest wave passes in a step.
    cells_per_step: f32,
    steps_done: usize,
    steps_total: usize,
}

impl WaveField {
    /// A field at rest over the first `rows` rows of a velocity model, for a source in this column that is to be
    /// followed for so many steps.
    ///
    /// # Panics
    /// If the time step is too long for the scheme to be stable.
    pub(crate) fn new(
        velocity: &Section,
        rows: usize,
        time_step_s: f32,
        source_column: usize,
        steps_total: usize,
    ) -> Self {
        let model = velocity.grid;
        let columns = model.columns + 2 * ABSORBING;
        let rows = rows.min(model.rows) + 2 * ABSORBING;
        let mut courant_squared = Vec::with_capacity(columns * rows);
        for column in 0..columns {
            let source = velocity.column(column.saturating_sub(ABSORBING).min(model.columns - 1));
            courant_squared.extend((0..rows).map(|row| {
                let velocity = source[row.saturating_sub(ABSORBING).min(model.rows - 1)];
                (velocity * time_step_s / model.spacing_m).powi(2)
            }));
        }
        let largest = courant_squared.iter().copied().fold(0.0, f32::max);
        assert!(
            largest < COURANT_SQUARED_MAX,
            "squared Courant number {largest} is not below {COURANT_SQUARED_MAX}"
        );
        let cells_per_step = largest.sqrt();
        let typical = 0.7 * cells_per_step;
        Self {
            columns,
            rows,
            courant_squared,
            damping_of_column: damping(columns, typical),
            damping_of_row: damping(rows, typical),
            current: vec![0.0; columns * rows],
            previous: vec![0.0; columns * rows],
            source_column: source_column + ABSORBING,
            cells_per_step,
            steps_done: 0,
            steps_total,
        }
    }

    /// One time step, with this much pressure added at the source.
    pub(crate) fn step(&mut self, source: f32) {
        let rows = self.rows;
        // Only where the wave can have come by now, and from where it can still come back to the surface.
        let reach = self.reach(self.steps_done);
        let first_column = self.source_column.saturating_sub(reach).max(HALF);
        let last_column = (self.source_column + reach).min(self.columns - HALF - 1);
        let depth = reach.min(self.reach(self.steps_total.saturating_sub(self.steps_done)));
        let end_row = (ABSORBING + depth).min(rows - HALF);
        let damping_of_row = &self.damping_of_row[HALF..end_row];
        for column in first_column..=last_column {
            let line = |distance: isize| {
                let neighbour = column.checked_add_signed(distance);
                let start = neighbour.expect("HALF columns lie before the first one") * rows;
                &self.current[start..start + rows]
            };
            let neighbours = Neighbours {
                left: [line(-1), line(-2), line(-3), line(-4)],
                centre: line(0),
                right: [line(1), line(2), line(3), line(4)],
            };
            let start = column * rows;
            update_column(
                &mut self.previous[start + HALF..start + end_row],
                &neighbours,
                &self.courant_squared[start + HALF..start + end_row],
                damping_of_row,
                self.damping_of_column[column],
            );
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        let node = self.source_column * rows + ABSORBING;
        self.current[node] += self.courant_squared[node] * source;
        self.steps_done += 1;
    }

    /// The pressure at a node of the model's surface.
    pub(crate) fn at_surface(&self, column: usize) -> f32 {
        self.current[(column + ABSORBING) * self.rows + ABSORBING]
    }

    /// How many cells a wave can come in so many steps.
    fn reach(&self, steps: usize) -> usize {
        (steps as f32 * self.cells_per_step) as usize + REACH_MARGIN
    }
}

/// The lines of the field that a column's update needs, nearest first.
struct Neighbours<'a> {
    left: [&'a [f32]; HALF],
    centre: &'a [f32],
    right: [&'a [f32]; HALF],
}

/// Overwrites the inner cells of a column of the field before the last with those of the next.
///
/// Every cell goes through the same operations in the same order, so the result does not depend on how wide the
/// vectors are that the compiler chooses.
fn update_column(
    field: &mut [f32],
    neighbours: &Neighbours<'_>,
    courant_squared: &[f32],
    damping_of_row: &[f32],
    damping_of_column: f32,
) {
    let cells = field.len();
    fn from(line: &[f32], first: usize, cells: usize) -> &[f32] {
        &line[first..first + cells]
    }
    let centre = neighbours.centre;
    let c = from(centre, HALF, cells);
    let (u1, u2, u3, u4) = (
        from(centre, 3, cells),
        from(centre, 2, cells),
        from(centre, 1, cells),
        from(centre, 0, cells),
    );
    let (d1, d2, d3, d4) = (
        from(centre, 5, cells),
        from(centre, 6, cells),
        from(centre, 7, cells),
        from(centre, 8, cells),
    );
    let [l1, l2, l3, l4] = neighbours.left.map(|line| from(line, HALF, cells));
    let [r1, r2, r3, r4] = neighbours.right.map(|line| from(line, HALF, cells));
    let courant_squared = &courant_squared[..cells];
    let damping_of_row = &damping_of_row[..cells];
    for i in 0..cells {
        let laplacian = 2.0 * CENTRE * c[i]
            + WEIGHTS[0] * ((u1[i] + d1[i]) + (l1[i] + r1[i]))
            + WEIGHTS[1] * ((u2[i] + d2[i]) + (l2[i] + r2[i]))
            + WEIGHTS[2] * ((u3[i] + d3[i]) + (l3[i] + r3[i]))
            + WEIGHTS[3] * ((u4[i] + d4[i]) + (l4[i] + r4[i]));
        let damping = damping_of_column * damping_of_row[i];
        field[i] = damping * (2.0 * c[i] + courant_squared[i] * laplacian) - (2.0 * damping - 1.0) * field[i];
    }
}

/// Damping factors along one side: 1 inside, falling towards the edges. The damping grows with the square of the
/// depth in the layer, to a largest value that would leave [`REFLECTION`] of a wave that goes in and out again.
fn damping(cells: usize, typical_courant: f32) -> Vec<f32> {
    let largest = 1.5 * typical_courant / ABSORBING as f32 * REFLECTION.recip().ln();
    (0..cells)
        .map(|cell| {
            let inside = cell.min(cells - 1 - cell);
            let depth = ABSORBING.saturating_sub(inside) as f32 / ABSORBING as f32;
            1.0 / (1.0 + largest * depth * depth)
        })
        .collect()
}

/// The thickness of the absorbing layers, in cells.
const ABSORBING: usize = 40;
const REFLECTION: f32 = 1e-4;
/// Cells added to the reach of a wave, for what the grid lets run ahead of it.
const REACH_MARGIN: usize = 12;
/// Half the width of the stencil.
const HALF: usize = 4;
/// Eighth-order weights of the second derivative.
const CENTRE: f32 = -205.0 / 72.0;
const WEIGHTS: [f32; HALF] = [8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];
/// Stability of the scheme: 4 over the sum of the stencil's absolute weights in both directions, 2 * 6.502.
const COURANT_SQUARED_MAX: f32 = 0.307;
