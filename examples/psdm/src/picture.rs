//! The section as a picture.

mod lettering;

use std::{
    fs::File,
    io::{self, BufWriter},
    path::Path,
};

use crate::{Grid, Section};

/// Writes a section as a grey PNG of twice its size: dark is negative, light is positive. Axes of distance and depth
/// have a tick and a number every 500 m.
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
        let (width, height) = (LEFT + inner_width + RIGHT, TOP + inner_height + BOTTOM);
        let mut pixels = vec![PAPER; width * height];
        for y in 0..inner_height {
            for x in 0..inner_width {
                let value = section.interpolate(
                    x as f32 * grid.spacing_m / SCALE as f32,
                    y as f32 * grid.spacing_m / SCALE as f32,
                );
                let grey = 127.5 + 127.5 * (value / clip).clamp(-1.0, 1.0);
                pixels[(y + TOP) * width + x + LEFT] = grey as u8;
            }
        }
        let mut picture = Self {
            width,
            height,
            pixels,
        };
        picture.frame();
        picture.axes(grid);
        picture
    }

    fn frame(&mut self) {
        let (right, bottom) = (self.width - RIGHT, self.height - BOTTOM);
        self.fill(LEFT - LINE..right + LINE, TOP - LINE..TOP);
        self.fill(LEFT - LINE..right + LINE, bottom..bottom + LINE);
        self.fill(LEFT - LINE..LEFT, TOP - LINE..bottom + LINE);
        self.fill(right..right + LINE, TOP - LINE..bottom + LINE);
    }

    fn axes(&mut self, grid: Grid) {
        let (right, bottom) = (self.width - RIGHT, self.height - BOTTOM);
        let pixels_per_tick = TICK_M / grid.spacing_m * SCALE as f32;
        let ticks = |length: usize| {
            (0..)
                .map(move |tick| (tick, (tick as f32 * pixels_per_tick) as usize))
                .take_while(move |(_, place)| *place < length)
        };
        let number = |tick: u16| format!("{:.1}", f32::from(tick) * TICK_M / 1000.0);
        let end = bottom + LINE + TICK;
        for (tick, place) in ticks(right - LEFT) {
            let x = LEFT + place;
            self.fill(x..x + LINE, bottom..end);
            let text = number(tick);
            self.write(&text, x + LINE / 2 - text_width(&text) / 2, end + GAP);
        }
        let text = "distance (km)";
        let middle = (LEFT + right).saturating_sub(text_width(text)) / 2;
        self.write(text, middle, end + 2 * GAP + TEXT_HEIGHT);
        let end = LEFT - LINE - TICK;
        for (tick, place) in ticks(bottom - TOP) {
            let y = TOP + place;
            self.fill(end..LEFT, y..y + LINE);
            let text = number(tick);
            self.write(
                &text,
                end - GAP - text_width(&text),
                y + LINE / 2 - TEXT_HEIGHT / 2,
            );
        }
        self.write("depth (km)", GAP, GAP);
    }

    /// Writes a text with its upper left corner there. A narrow picture has room for its beginning only.
    fn write(&mut self, text: &str, x: usize, y: usize) {
        for (column, row) in lettering::dots(text) {
            let (x, y) = (x + column * DOT, y + row * DOT);
            if x + DOT > self.width {
                continue;
            }
            self.fill(x..x + DOT, y..y + DOT);
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

/// The width of a text up to the end of its last character, in pixels.
fn text_width(text: &str) -> usize {
    (text.chars().count() * lettering::ADVANCE - 1) * DOT
}

const SCALE: usize = 2;
/// The side of a dot of the lettering, in pixels: it can be read on a telephone too, a third as large.
const DOT: usize = 3;
const TEXT_HEIGHT: usize = lettering::HEIGHT * DOT;
/// The width of lines.
const LINE: usize = 2;
/// The length of ticks.
const TICK: usize = 8;
const GAP: usize = 8;
/// There is room for numbers below 10 km, and beside the frame for half of one.
const LEFT: usize = 3 * lettering::ADVANCE * DOT + GAP + GAP + TICK + LINE;
const RIGHT: usize = 3 * lettering::ADVANCE * DOT / 2;
/// There is room for the name of the axis above the number at its begin.
const TOP: usize = GAP + TEXT_HEIGHT + GAP + TEXT_HEIGHT / 2;
const BOTTOM: usize = LINE + TICK + 2 * TEXT_HEIGHT + 3 * GAP;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each axis has its name and a number at each tick: a section of 1.1 km by 0.6 km has three and two.
    #[test]
    fn axes_have_names_and_numbers() {
        let grid = Grid {
            columns: 111,
            rows: 61,
            spacing_m: 10.0,
        };
        let section = Section::from_function(grid, |_, _| 0.0);
        let picture = Picture::of(&section, 1.0);
        let bottom = picture.height - BOTTOM;
        let reads = |text: &str, columns: std::ops::Range<usize>, rows: std::ops::Range<usize>| {
            let mut found = 0;
            for (x, y) in columns.flat_map(|x| rows.clone().map(move |y| (x, y))) {
                let is_ink = |column: usize, row: usize| {
                    let pixel = (y + row * DOT) * picture.width + x + column * DOT;
                    picture.pixels.get(pixel) == Some(&INK)
                };
                let dots: Vec<_> = lettering::dots(text).collect();
                let size = (text.chars().count() * lettering::ADVANCE - 1, lettering::HEIGHT);
                let all = (0..size.0).flat_map(|column| (0..size.1).map(move |row| (column, row)));
                found += usize::from(
                    all.into_iter()
                        .all(|dot| is_ink(dot.0, dot.1) == dots.contains(&dot)),
                );
            }
            found / (DOT * DOT)
        };
        let below = |text| {
            reads(
                text,
                0..picture.width - text_width(text),
                bottom + TICK..bottom + TICK + 2 * GAP,
            )
        };
        let beside = |text| reads(text, 0..GAP * 2, TOP - TEXT_HEIGHT..bottom);
        assert_eq!(["0.0", "0.5", "1.0", "1.5"].map(below), [1, 1, 1, 0]);
        assert_eq!(["0.0", "0.5", "1.0"].map(beside), [1, 1, 0]);
        assert_eq!(reads("depth (km)", 0..2 * GAP, 0..2 * GAP), 1);
        let name = bottom + TICK + TEXT_HEIGHT..picture.height - TEXT_HEIGHT;
        assert_eq!(reads("distance (km)", 0..LEFT, name), 1);
    }
}
