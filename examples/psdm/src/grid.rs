//! A regular grid in a vertical plane and a quantity on it.

use crate::{Segy, Trace};

/// A regular grid in a vertical plane: x to the right, z downwards from the surface, both from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// Nodes along x.
    pub columns: usize,
    /// Nodes along z.
    pub rows: usize,
    /// Distance of neighbouring nodes in both directions, in metres.
    pub spacing_m: f32,
}

impl Grid {
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.columns * self.rows
    }

    /// The x of a column, in metres.
    pub fn x_m(&self, column: usize) -> f32 {
        column as f32 * self.spacing_m
    }

    /// The x of a column, in whole centimetres.
    pub fn x_cm(&self, column: usize) -> i32 {
        (self.x_m(column) * 100.0).round() as i32
    }

    /// The depth of a row, in metres.
    pub fn z_m(&self, row: usize) -> f32 {
        row as f32 * self.spacing_m
    }

    /// The distance from the first to the last column, in metres.
    pub fn width_m(&self) -> f32 {
        self.x_m(self.columns.saturating_sub(1))
    }

    /// The depth of the last row, in metres.
    pub fn depth_m(&self) -> f32 {
        self.z_m(self.rows.saturating_sub(1))
    }
}

/// One value for each node of a grid: a velocity model in m/s, or a section of reflectivity.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Where the values are.
    pub grid: Grid,
    /// The values, column after column, each from the surface down.
    pub values: Vec<f32>,
}

impl Section {
    /// A section from a function of x and z in metres.
    pub fn from_function(grid: Grid, mut value: impl FnMut(f32, f32) -> f32) -> Self {
        let mut values = Vec::with_capacity(grid.nodes());
        for column in 0..grid.columns {
            for row in 0..grid.rows {
                values.push(value(grid.x_m(column), grid.z_m(row)));
            }
        }
        Self { grid, values }
    }

    /// The values of one column, from the surface down.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column(&self, column: usize) -> &[f32] {
        &self.values[column * self.grid.rows..][..self.grid.rows]
    }

    /// The value at a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn at(&self, column: usize, row: usize) -> f32 {
        self.column(column)[row]
    }

    /// The value between the nodes, bilinear; outside the grid that of the nearest edge.
    pub fn interpolate(&self, x_m: f32, z_m: f32) -> f32 {
        let (left, right, x) = neighbours(x_m / self.grid.spacing_m, self.grid.columns);
        let (upper, lower, z) = neighbours(z_m / self.grid.spacing_m, self.grid.rows);
        let (a, b) = (self.column(left), self.column(right));
        (a[upper] * (1.0 - z) + a[lower] * z) * (1.0 - x) + (b[upper] * (1.0 - z) + b[lower] * z) * x
    }
}

impl Section {
    /// The section as a SEG-Y file: a trace for each column, with depth in millimetres where time would be.
    pub fn to_segy(&self, text: &str) -> Segy {
        Segy {
            text: vec![
                text.to_owned(),
                "SAMPLES ARE DEPTHS, THEIR INTERVAL IS IN MM".to_owned(),
            ],
            sample_interval: (self.grid.spacing_m * 1000.0).round() as u16,
            samples: self.grid.rows as u16,
            traces: (0..self.grid.columns)
                .map(|column| Trace {
                    shot: 0,
                    source_x_cm: self.grid.x_cm(column),
                    receiver_x_cm: self.grid.x_cm(column),
                    samples: self.column(column).to_vec(),
                })
                .collect(),
        }
    }

    /// The section in a SEG-Y file like those of [`to_segy`](Self::to_segy).
    ///
    /// # Errors
    /// Why it is none.
    pub fn from_segy(segy: &Segy) -> Result<Self, &'static str> {
        let grid = Grid {
            columns: segy.traces.len(),
            rows: usize::from(segy.samples),
            spacing_m: f32::from(segy.sample_interval) / 1000.0,
        };
        if grid.columns < 2 || grid.rows < 2 || grid.spacing_m <= 0.0 {
            return Err("a section needs two columns, two rows and a spacing");
        }
        let regular = |(column, trace): (usize, &Trace)| trace.receiver_x_cm == grid.x_cm(column);
        if !segy.traces.iter().enumerate().all(regular) {
            return Err("the columns are not as far apart as the rows");
        }
        Ok(Self {
            grid,
            values: segy
                .traces
                .iter()
                .flat_map(|trace| &trace.samples)
                .copied()
                .collect(),
        })
    }
}

/// The nodes before and after a position in units of the spacing, and how far it is from the first to the second.
fn neighbours(position: f32, nodes: usize) -> (usize, usize, f32) {
    let last = nodes - 1;
    let position = position.clamp(0.0, last as f32);
    let before = position as usize;
    (before, (before + 1).min(last), position - before as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the nodes a plane is met exactly, outside the grid the edge's value is taken.
    #[test]
    fn interpolation_is_exact_for_a_plane() {
        let grid = Grid {
            columns: 4,
            rows: 3,
            spacing_m: 10.0,
        };
        let plane = Section::from_function(grid, |x, z| 2.0 * x + 3.0 * z);
        assert_eq!(plane.interpolate(12.5, 5.0), 40.0);
        assert_eq!(plane.interpolate(30.0, 20.0), 120.0);
        assert_eq!(plane.interpolate(-5.0, 99.0), 60.0);
    }

    /// A section comes back from SEG-Y bit for bit; traces at other places are refused.
    #[test]
    fn segy_keeps_a_section() {
        let grid = Grid {
            columns: 5,
            rows: 3,
            spacing_m: 12.5,
        };
        let section = Section::from_function(grid, |x, z| (x + 0.1) / (z + 0.3));
        let mut segy = Segy::parse(&section.to_segy("TEST").to_bytes()).unwrap();
        assert_eq!(Section::from_segy(&segy), Ok(section));
        segy.traces[2].receiver_x_cm += 1;
        assert!(Section::from_segy(&segy).is_err());
        segy.traces.truncate(1);
        assert!(Section::from_segy(&segy).is_err());
    }
}
