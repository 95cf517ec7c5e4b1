//! Kirchhoff pre-stack depth migration, shot after shot.
//!
//! Every trace is spread over the image along its diffraction times: what a point at (x, z) would have sent to
//! this receiver from this shot lies at the travel time from the shot to the point plus that from the point to
//! the receiver. True reflections add up, everything else cancels. The weights are those of common-shot inversion
//! in two dimensions (Bleistein, "On the imaging of reflectors in the earth", Geophysics 52, 1987; Dellinger, Gray,
//! Murphy and Etgen, "Efficient 2.5-D true-amplitude migration", Geophysics 65, 2000): the obliquity at the receiver
//! times the ratio of the geometrical spreadings, here from travel times.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Gathers, Grid, Section, Segy, Trace, TravelTimes,
    trace_bank::{TraceBank, TraceFilter},
};

/// The parameters of the image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationOptions {
    /// Number of offset classes.
    pub offset_classes: usize,
    /// The largest offset that is used, in metres.
    pub offset_max_m: f32,
}

/// Migrates shots with one velocity model. The same shots in the same order give the same image, bit for bit.
pub struct Migration {
    options: MigrationOptions,
    image: Grid,
    /// The velocity on the coarse grid of the travel times.
    velocity: Section,
    /// By the surface position in centimetres.
    travel_times: BTreeMap<i32, TravelTimes>,
    filter: Option<TraceFilter>,
}

/// Why a shot cannot be migrated.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// The traces have no samples, or no time between them.
    #[error("the traces have {samples} samples {interval_us} microseconds apart")]
    NoTime {
        /// Their number.
        samples: u16,
        /// Their interval.
        interval_us: u16,
    },
    /// A source or receiver stands beside the velocity model.
    #[error("trace {trace}: a position at {x_m} m is outside of the velocity model, 0 to {width_m} m")]
    Outside {
        /// The trace's number, from 0.
        trace: usize,
        /// The position.
        x_m: f32,
        /// The model's width.
        width_m: f32,
    },
    /// A shot has more receivers than travel times are kept for.
    #[error("{receivers} receivers in a shot are more than {RECEIVERS_MAX}")]
    TooManyReceivers {
        /// Their number.
        receivers: usize,
    },
}

impl Migration {
    /// A migration onto the velocity model's own grid.
    pub fn new(velocity: &Section, options: MigrationOptions) -> Self {
        let image = velocity.grid;
        let coarse = Grid {
            columns: image.columns.saturating_sub(1).div_ceil(COARSENING) + 1,
            rows: image.rows.saturating_sub(1).div_ceil(COARSENING) + 1,
            spacing_m: image.spacing_m * COARSENING as f32,
        };
        Self {
            options,
            image,
            velocity: Section::from_function(coarse, |x, z| velocity.interpolate(x, z)),
            travel_times: BTreeMap::new(),
            filter: None,
        }
    }

    /// Empty gathers for the image.
    pub fn gathers(&self) -> Gathers {
        Gathers::new(self.image, self.options.offset_classes)
    }

    /// Adds what one shot's traces say to the gathers.
    ///
    /// # Errors
    /// If the traces do not fit to the velocity model or are of no use; the gathers are untouched then.
    ///
    /// # Panics
    /// If the gathers are not of this migration's size.
    pub fn add_shot(&mut self, record: &Segy, gathers: &mut Gathers) -> Result<(), MigrationError> {
        assert_eq!(
            (gathers.grid, gathers.classes),
            (self.image, self.options.offset_classes)
        );
        let spreads = self.spreads(record)?;
        if record.samples == 0 || record.sample_interval == 0 {
            return Err(MigrationError::NoTime {
                samples: record.samples,
                interval_us: record.sample_interval,
            });
        }
        let samples = usize::from(record.samples);
        let sample_interval_s = f32::from(record.sample_interval) * 1e-6;
        let filter = match self.filter.take() {
            Some(filter) if filter.is_for(samples, sample_interval_s) => filter,
            _ => TraceFilter::new(samples, sample_interval_s),
        };
        for (trace, spread) in record.traces.iter().zip(&spreads) {
            if let Some(class) = self.offset_class(trace) {
                let bank = filter.bank(&trace.samples);
                self.add_trace(trace, spread, &bank, gathers.class(class));
            }
        }
        self.filter = Some(filter);
        Ok(())
    }

    /// The class of a trace: n classes of equal width above zero offset, each with its upper bound.
    fn offset_class(&self, trace: &Trace) -> Option<usize> {
        let offset_cm = trace.receiver_x_cm.abs_diff(trace.source_x_cm);
        let offset_max_cm = (self.options.offset_max_m * 100.0) as u64;
        let classes = self.options.offset_classes as u64;
        let class = u64::from(offset_cm.saturating_sub(1)) * classes / offset_max_cm.max(1);
        (class < classes).then_some(class as usize)
    }

    /// For each trace the positions of its receiver's neighbours; makes all travel times that are missing.
    fn spreads(&mut self, record: &Segy) -> Result<Vec<Spread>, MigrationError> {
        let width_m = self.image.width_m();
        let width_cm = (width_m * 100.0) as i32;
        for (trace, header) in record.traces.iter().enumerate() {
            for x_cm in [header.source_x_cm, header.receiver_x_cm] {
                if !(0..=width_cm).contains(&x_cm) {
                    let x_m = x_cm as f32 / 100.0;
                    return Err(MigrationError::Outside { trace, x_m, width_m });
                }
            }
        }
        let mut receivers: Vec<i32> = record.traces.iter().map(|trace| trace.receiver_x_cm).collect();
        receivers.sort_unstable();
        receivers.dedup();
        if receivers.len() > RECEIVERS_MAX {
            return Err(MigrationError::TooManyReceivers {
                receivers: receivers.len(),
            });
        }
        let mut intervals_cm: Vec<i32> = receivers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        intervals_cm.sort_unstable();
        // The median: receivers in the field are not quite equally far apart, and some are missing.
        let interval_cm = intervals_cm
            .get(intervals_cm.len() / 2)
            .copied()
            .unwrap_or((self.image.spacing_m * 100.0) as i32)
            .max(1);
        let spreads: Vec<Spread> = record
            .traces
            .iter()
            .map(|trace| Spread {
                left_cm: (trace.receiver_x_cm - interval_cm).max(0),
                right_cm: (trace.receiver_x_cm + interval_cm).min(width_cm),
                interval_m: interval_cm as f32 / 100.0,
            })
            .collect();
        if self.travel_times.len() * self.velocity.grid.nodes() > TRAVEL_TIME_NODES_MAX {
            self.travel_times.clear();
        }
        for (trace, spread) in record.traces.iter().zip(&spreads) {
            for x_cm in [
                trace.source_x_cm,
                trace.receiver_x_cm,
                spread.left_cm,
                spread.right_cm,
            ] {
                self.travel_times
                    .entry(x_cm)
                    .or_insert_with(|| TravelTimes::new(&self.velocity, x_cm as f32 / 100.0));
            }
        }
        Ok(spreads)
    }

    fn add_trace(&self, trace: &Trace, spread: &Spread, bank: &TraceBank, image: &mut [f32]) {
        let from_source = &self.travel_times[&trace.source_x_cm].0;
        let operator = Operator {
            from_source,
            from_receiver: &self.travel_times[&trace.receiver_x_cm].0,
            from_left: &self.travel_times[&spread.left_cm].0,
            from_right: &self.travel_times[&spread.right_cm].0,
            neighbours_m: (spread.right_cm - spread.left_cm) as f32 / 100.0,
            interval_m: spread.interval_m,
            velocity_m_s: self.velocity.interpolate(trace.receiver_x_cm as f32 / 100.0, 0.0),
        };
        let aperture = Aperture::new(trace);
        let coarse_rows = self.velocity.grid.rows;
        let mut left = OperatorColumn::new(coarse_rows);
        let mut right = OperatorColumn::new(coarse_rows);
        let mut between = OperatorColumn::new(coarse_rows);
        let mut fine = OperatorColumn::new(coarse_rows * COARSENING);
        let mut right_is = None;
        for column in 0..self.image.columns {
            let first_depth_m = aperture.first_depth_m(self.image.x_m(column));
            if first_depth_m >= self.image.depth_m() {
                continue;
            }
            let (coarse, part) = (column / COARSENING, column % COARSENING);
            if right_is != Some(coarse + 1) {
                if right_is == Some(coarse) {
                    std::mem::swap(&mut left, &mut right);
                } else {
                    operator.fill(coarse, &mut left);
                }
                operator.fill((coarse + 1).min(self.velocity.grid.columns - 1), &mut right);
                right_is = Some(coarse + 1);
            }
            between.blend(&left, &right, part as f32 / COARSENING as f32);
            fine.refine(&between);
            let rows = self.image.rows;
            let first_row = (first_depth_m / self.image.spacing_m).ceil() as usize;
            let taper_per_row = self.image.spacing_m / (TAPER * first_depth_m.max(self.image.spacing_m));
            let taper_start = first_depth_m / self.image.spacing_m;
            let image = &mut image[column * rows..][..rows];
            for (row, value) in image.iter_mut().enumerate().skip(first_row) {
                let taper = ((row as f32 - taper_start) * taper_per_row).min(1.0);
                let amplitude = bank.at(fine.time_s[row], fine.version[row]);
                *value += taper * fine.weight[row] * amplitude;
            }
        }
    }
}

/// Where the neighbours of a receiver stand, or would stand.
struct Spread {
    left_cm: i32,
    right_cm: i32,
    interval_m: f32,
}

/// Which image points a trace adds to: those that it can see under a moderate dip and a moderate opening angle.
struct Aperture {
    midpoint_m: f32,
    half_offset_m: f32,
}

impl Aperture {
    fn new(trace: &Trace) -> Self {
        let (source_m, receiver_m) = (
            trace.source_x_cm as f32 / 100.0,
            trace.receiver_x_cm as f32 / 100.0,
        );
        Self {
            midpoint_m: 0.5 * (source_m + receiver_m),
            half_offset_m: 0.5 * (source_m - receiver_m).abs(),
        }
    }

    /// The depth from which on the points below an x belong to it.
    fn first_depth_m(&self, x_m: f32) -> f32 {
        let under_dip = (x_m - self.midpoint_m).abs() / DIP_TANGENT_MAX;
        under_dip.max(self.half_offset_m / OPENING_TANGENT_MAX)
    }
}

/// The factors for a trace's amplitudes, and where the amplitudes go, at the nodes of the coarse grid.
struct Operator<'a> {
    from_source: &'a Section,
    from_receiver: &'a Section,
    from_left: &'a Section,
    from_right: &'a Section,
    neighbours_m: f32,
    interval_m: f32,
    velocity_m_s: f32,
}

/// A column of the operator.
struct OperatorColumn {
    time_s: Vec<f32>,
    weight: Vec<f32>,
    /// See [`TraceBank::version`].
    version: Vec<f32>,
}

impl Operator<'_> {
    fn fill(&self, column: usize, into: &mut OperatorColumn) {
        let source = self.from_source.column(column);
        let receiver = self.from_receiver.column(column);
        let (left, right) = (self.from_left.column(column), self.from_right.column(column));
        for row in 0..source.len() {
            // The horizontal slowness at the receiver, by the difference of its neighbours' times.
            let slowness = (right[row] - left[row]) / self.neighbours_m;
            let sine = self.velocity_m_s * slowness;
            let cosine = (1.0 - sine * sine).max(0.0).sqrt();
            let spreading = (source[row] / receiver[row].max(TIME_MIN_S)).sqrt();
            into.time_s[row] = source[row] + receiver[row];
            into.weight[row] = cosine * spreading;
            into.version[row] = TraceBank::version(slowness.abs() * self.interval_m);
        }
    }
}

impl OperatorColumn {
    fn new(rows: usize) -> Self {
        Self {
            time_s: vec![0.0; rows],
            weight: vec![0.0; rows],
            version: vec![0.0; rows],
        }
    }

    /// The column between two others.
    fn blend(&mut self, left: &Self, right: &Self, part: f32) {
        for (into, left, right) in [
            (&mut self.time_s, &left.time_s, &right.time_s),
            (&mut self.weight, &left.weight, &right.weight),
            (&mut self.version, &left.version, &right.version),
        ] {
            for ((into, left), right) in into.iter_mut().zip(left).zip(right) {
                *into = left + part * (right - left);
            }
        }
    }

    /// The same column on the fine grid.
    fn refine(&mut self, coarse: &Self) {
        for (into, from) in [
            (&mut self.time_s, &coarse.time_s),
            (&mut self.weight, &coarse.weight),
            (&mut self.version, &coarse.version),
        ] {
            for (into, pair) in into
                .as_chunks_mut::<COARSENING>()
                .0
                .iter_mut()
                .zip(from.windows(2))
            {
                let step = (pair[1] - pair[0]) / COARSENING as f32;
                for (part, into) in into.iter_mut().enumerate() {
                    *into = pair[0] + part as f32 * step;
                }
            }
            if let (Some(last), Some(into)) = (from.last(), into.get_mut((from.len() - 1) * COARSENING..)) {
                into.fill(*last);
            }
        }
    }
}

/// Travel times are smooth: every third node is enough, and they cost a ninth.
const COARSENING: usize = 3;
/// Nodes of all travel times that are kept from shot to shot, 256 MiB.
const TRAVEL_TIME_NODES_MAX: usize = 1 << 26;
/// Distinct receiver positions in one shot.
pub(crate) const RECEIVERS_MAX: usize = 4096;
/// Steeper than 60 degrees nothing is imaged.
const DIP_TANGENT_MAX: f32 = 1.73;
/// Wider than 45 degrees on either side a wavelet is stretched too much.
const OPENING_TANGENT_MAX: f32 = 1.0;
/// The aperture opens over this part of its first depth.
const TAPER: f32 = 0.35;
/// Nearer to the receiver the weight grows no more.
const TIME_MIN_S: f32 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid {
        columns: 61,
        rows: 41,
        spacing_m: 10.0,
    };

    fn migration() -> Migration {
        let velocity = Section::from_function(GRID, |_, _| 2000.0);
        let options = MigrationOptions {
            offset_classes: 4,
            offset_max_m: 200.0,
        };
        Migration::new(&velocity, options)
    }

    fn record(receivers_x_cm: &[i32], samples: u16, sample: impl Fn(i32, u16) -> f32) -> Segy {
        Segy {
            text: Vec::new(),
            sample_interval: 2000,
            samples,
            traces: receivers_x_cm
                .iter()
                .map(|&receiver_x_cm| Trace {
                    shot: 1,
                    source_x_cm: 30_000,
                    receiver_x_cm,
                    samples: (0..samples).map(|index| sample(receiver_x_cm, index)).collect(),
                })
                .collect(),
        }
    }

    /// One trace with one pulse becomes the ellipse with the foci source and receiver, in the class of its offset.
    #[test]
    fn pulse_becomes_an_ellipse() {
        let (pulse_s, receiver_m) = (0.3f32, 400.0f32);
        let pulse = |_, index| (-(((f32::from(index) * 0.002 - pulse_s) / 0.008).powi(2))).exp();
        let mut migration = migration();
        let mut gathers = migration.gathers();
        migration
            .add_shot(&record(&[40_000], 300, pulse), &mut gathers)
            .unwrap();
        assert!(gathers.class(0).iter().all(|&value| value == 0.0));
        let image = Section {
            grid: GRID,
            values: gathers.class(1).to_vec(),
        };
        for column in [25, 30, 35, 40, 45] {
            let time_s = |row: usize| {
                let leg = |x_m: f32| (GRID.x_m(column) - x_m).hypot(GRID.z_m(row)) / 2000.0;
                leg(300.0) + leg(receiver_m)
            };
            let expected = (0..GRID.rows)
                .min_by(|a, b| {
                    (time_s(*a) - pulse_s)
                        .abs()
                        .total_cmp(&(time_s(*b) - pulse_s).abs())
                })
                .unwrap();
            let column_of = image.column(column);
            let peak = (0..GRID.rows)
                .max_by(|a, b| column_of[*a].total_cmp(&column_of[*b]))
                .unwrap();
            assert!(
                peak.abs_diff(expected) <= 1,
                "column {column}: {peak}, expected {expected}"
            );
        }
    }

    /// The distance of receivers is the median one, even if one is missing and two stand close together.
    #[test]
    fn distance_of_receivers_is_the_median() {
        let receivers = [10_000, 11_000, 12_000, 12_010, 13_000, 16_000];
        let spreads = migration().spreads(&record(&receivers, 4, |_, _| 0.0)).unwrap();
        assert!(spreads.iter().all(|spread| spread.interval_m == 10.0));
        assert_eq!((spreads[5].left_cm, spreads[5].right_cm), (15_000, 17_000));
    }

    /// Positions beside the model and traces without time are refused, and the image stays as it was; traces
    /// beyond the largest offset are passed over.
    #[test]
    fn unusable_shots_leave_the_image_alone() {
        let mut migration = migration();
        let mut gathers = migration.gathers();
        let empty = gathers.clone();
        let outside = record(&[31_000, 60_001], 100, |_, _| 1.0);
        assert_eq!(
            migration.add_shot(&outside, &mut gathers),
            Err(MigrationError::Outside {
                trace: 1,
                x_m: 600.01,
                width_m: 600.0
            })
        );
        let timeless = record(&[31_000], 0, |_, _| 1.0);
        assert!(matches!(
            migration.add_shot(&timeless, &mut gathers),
            Err(MigrationError::NoTime { samples: 0, .. })
        ));
        let far = record(&[50_001], 100, |_, _| 1.0);
        assert_eq!(migration.add_shot(&far, &mut gathers), Ok(()));
        assert_eq!(gathers, empty);
    }
}
