//! The section as a picture.

use std::{
    fs::File,
    io::{self, BufWriter},
    path::Path,
};

use crate::{Grid, Section};

/// Writes a section as a grey PNG of twice its size: dark is negative, light is positive, the frame has a tick
/// every 500 m.
///
/// Amplitudes are balanced over depth (automatic gain control) and clipped, as interpreters look at sections; the
/// numbers themselves are in the NumPy file.
///
/// # Errors
/// If the file cannot be written.
pub fn write_picture(section: &Section, path: &Path) -> io::Result<()> {
    let balanced = balance(&without_low_wavenumbers(section));
    let clip = percentile(&balanced.values, CLIP);
    let picture = Picture::of(&balanced, clip);
    let mut encoder = png::Encoder::new(
        BufWriter::new(File::create(path)?),
        picture.width as u32,
        picture.height as u32,
    );
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder
        .write_header()
        .and_then(|mut writer| {
            writer.write_image_data(&picture.pixels)?;
            writer.finish()
        })
        .map_err(io::Error::other)
}

struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    fn of(section: &Section, clip: f32) -> Self {
        let grid = section.grid;
        let (inner_width, inner_height) = (grid.columns * SCALE, grid.rows * SCALE);
        let (width, height) = (inner_width + 2 * MARGIN, inner_height + 2 * MARGIN);
        let mut pixels = vec![PAPER; width * height];
        for y in 0..inner_height {
            for x in 0..inner_width {
                let value = section.interpolate(
                    x as f32 * grid.spacing_m / SCALE as f32,
                    y as f32 * grid.spacing_m / SCALE as f32,
                );
                let grey = 127.5 + 127.5 * (value / clip).clamp(-1.0, 1.0);
                pixels[(y + MARGIN) * width + x + MARGIN] = grey as u8;
            }
        }
        let mut picture = Self {
            width,
            height,
            pixels,
        };
        picture.frame(grid);
        picture
    }

    fn frame(&mut self, grid: Grid) {
        let (right, bottom) = (self.width - MARGIN, self.height - MARGIN);
        self.fill(MARGIN - 2..right + 2, MARGIN - 2..MARGIN);
        self.fill(MARGIN - 2..right + 2, bottom..bottom + 2);
        self.fill(MARGIN - 2..MARGIN, MARGIN - 2..bottom + 2);
        self.fill(right..right + 2, MARGIN - 2..bottom + 2);
        let pixels_per_tick = TICK_M / grid.spacing_m * SCALE as f32;
        let ticks = |length: usize| {
            (0..)
                .map(move |tick| (tick as f32 * pixels_per_tick) as usize)
                .take_while(move |place| *place < length)
        };
        for x in ticks(grid.columns * SCALE) {
            self.fill(MARGIN + x..MARGIN + x + 2, 4..MARGIN);
        }
        for y in ticks(grid.rows * SCALE) {
            self.fill(4..MARGIN, MARGIN + y..MARGIN + y + 2);
        }
    }

    fn fill(&mut self, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>) {
        for row in rows {
            self.pixels[row * self.width..][columns.clone()].fill(INK);
        }
    }
}

/// Takes away what changes slowly over depth: the smiles' insides that migration leaves, and no reflectors.
fn without_low_wavenumbers(section: &Section) -> Section {
    filter_columns(section, |column| {
        let mean = moving_mean(column, LOW_ROWS);
        column
            .iter()
            .zip(mean)
            .map(|(value, mean)| value - mean)
            .collect()
    })
}

/// Divides by the root mean square around each point, but nowhere by less than a part of the largest one.
fn balance(section: &Section) -> Section {
    let energy = filter_columns(section, |column| {
        let squares: Vec<f32> = column.iter().map(|value| value * value).collect();
        moving_mean(&squares, GAIN_ROWS)
    });
    // Wide along x, or a diffractor would darken what lies above and below it.
    let energy = transposed(&filter_columns(&transposed(&energy), |row| {
        moving_mean(row, GAIN_COLUMNS)
    }));
    let floor = 0.02 * percentile(&energy.values, 0.95) + f32::MIN_POSITIVE;
    let values = section
        .values
        .iter()
        .zip(&energy.values)
        .map(|(value, energy)| value / (energy + floor).sqrt())
        .collect();
    Section {
        grid: section.grid,
        values,
    }
}

fn filter_columns(section: &Section, filter: impl Fn(&[f32]) -> Vec<f32>) -> Section {
    let values = section
        .values
        .chunks_exact(section.grid.rows.max(1))
        .flat_map(filter)
        .collect();
    Section {
        grid: section.grid,
        values,
    }
}

fn transposed(section: &Section) -> Section {
    let grid = Grid {
        columns: section.grid.rows,
        rows: section.grid.columns,
        ..section.grid
    };
    let values = (0..grid.columns)
        .flat_map(|column| (0..grid.rows).map(move |row| section.at(row, column)))
        .collect();
    Section { grid, values }
}

/// The mean of the values at most so many places away.
fn moving_mean(values: &[f32], reach: usize) -> Vec<f32> {
    (0..values.len())
        .map(|centre| {
            let window = &values[centre.saturating_sub(reach)..(centre + reach + 1).min(values.len())];
            window.iter().sum::<f32>() / window.len() as f32
        })
        .collect()
}

/// The absolute value that this part of all values stays below.
fn percentile(values: &[f32], part: f32) -> f32 {
    let mut sorted: Vec<f32> = values.iter().map(|value| value.abs()).collect();
    sorted.sort_unstable_by(f32::total_cmp);
    let index = (part * sorted.len() as f32) as usize;
    sorted
        .get(index.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
        .max(f32::MIN_POSITIVE)
}

const SCALE: usize = 2;
const MARGIN: usize = 14;
const TICK_M: f32 = 500.0;
const INK: u8 = 20;
const PAPER: u8 = 255;
const CLIP: f32 = 0.985;
/// Half the window of the slow changes, in rows.
const LOW_ROWS: usize = 9;
/// Half the window of the gain control, in rows.
const GAIN_ROWS: usize = 45;
/// The same in columns.
const GAIN_COLUMNS: usize = 60;
