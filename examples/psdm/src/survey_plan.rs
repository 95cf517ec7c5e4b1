//! The decisions of an import: the line, the velocity model, and which trace belongs to which shot.

use std::{
    io::{Read, Seek},
    ops::Range,
};

use crate::{
    Grid, MigrationOptions, PlanError, Positions, Section, Segy, SegyReader, SurveyLine, Trace,
    VelocityModel,
    migration::RECEIVERS_MAX,
    trace_positions::{TracePosition, TracePositions},
    velocity_model,
};

/// How traces become a survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImportOptions {
    /// Where positions are in the trace headers.
    pub positions: Positions,
    /// The largest distance of a position from the line, in metres; by default the spacing of the velocity model.
    pub tolerance_m: Option<f64>,
    /// The number of offset classes of the image, 1 to 1024.
    pub offset_classes: usize,
    /// The largest offset that is migrated, in metres; by default the largest that there is.
    pub offset_max_m: Option<f32>,
}

/// The survey that a file becomes; shots are read from the file one by one.
#[derive(Debug)]
pub struct SurveyPlan {
    line: SurveyLine,
    distance_max_m: f64,
    left_out: u64,
    velocity: Section,
    migration: MigrationOptions,
    sample_interval: u16,
    /// Samples of the survey's traces, which begin at time zero.
    samples: u16,
    /// By shot, in it by place, so that the order in the file does not matter.
    traces: Vec<PlannedTrace>,
    shots: Vec<Range<usize>>,
}

#[derive(Debug)]
struct PlannedTrace {
    trace: u64,
    field_record: i32,
    source_x_cm: i32,
    receiver_x_cm: i32,
    delay_samples: i32,
}

impl SurveyPlan {
    /// Reads the headers of all traces and the velocity model, and decides.
    ///
    /// # Errors
    /// If the file does not describe a survey on a line, or the velocity model or an option does not fit to it.
    pub fn new<R: Read + Seek>(
        data: &mut SegyReader<R>,
        velocity: VelocityModel<SegyReader<R>>,
        options: &ImportOptions,
    ) -> Result<Self, PlanError> {
        options.check()?;
        let interval_us = data.sample_interval();
        let mut positions = TracePositions::read(data, options.positions)?;
        if interval_us == 0 {
            return Err(PlanError::NoInterval);
        }
        let delays = delays(data, &positions)?;
        let samples = length(data.samples(), &delays)?;
        let (first, last) = (
            &positions.traces[0],
            &positions.traces[positions.traces.len() - 1],
        );
        let line = SurveyLine::fit(positions.points()).towards(first.place.midpoint(), last.place.midpoint());
        positions.resolve(&line);
        let tolerance_m = |spacing_m: f32| options.tolerance_m.unwrap_or(f64::from(spacing_m));
        let (line, velocity) = match velocity {
            VelocityModel::Constant(velocity) => {
                let record_s = f64::from(samples) * f64::from(interval_us) * 1e-6;
                velocity.on_line(line, &positions, record_s, options)?
            }
            VelocityModel::File(mut file) => velocity_model::read(&mut file, line, &tolerance_m, options)
                .map_err(|error| PlanError::Velocity(error.into()))?,
        };
        let tolerance_m = tolerance_m(velocity.grid.spacing_m);
        let distance_max_m = positions.distance_max_m(data, &line, tolerance_m)?;
        let mut traces = Vec::with_capacity(positions.traces.len());
        for (position, delay_samples) in positions.traces.iter().zip(delays) {
            traces.push(planned(data, &line, velocity.grid, position, delay_samples)?);
        }
        traces.sort_by_key(|trace| {
            let PlannedTrace {
                field_record,
                source_x_cm,
                receiver_x_cm,
                ..
            } = *trace;
            (field_record, source_x_cm, receiver_x_cm, trace.trace)
        });
        let shots = shots(&traces, tolerance_m)?;
        let longest = shots.iter().map(Range::len).max().unwrap_or(0);
        at_most(
            longest * usize::from(samples),
            "samples in a shot",
            SHOT_SAMPLES_MAX,
        )?;
        at_most(traces.len() * usize::from(samples), "samples", SAMPLES_MAX)?;
        let offset_max_cm = traces.iter().map(PlannedTrace::offset_cm).max().unwrap_or(0);
        Ok(Self {
            line,
            distance_max_m,
            left_out: positions.left_out,
            velocity,
            migration: MigrationOptions {
                offset_classes: options.offset_classes,
                // Whole metres, so that no offset is above by rounding.
                offset_max_m: options
                    .offset_max_m
                    .unwrap_or(offset_max_cm.div_ceil(100).max(1) as f32),
            },
            sample_interval: interval_us,
            samples,
            traces,
            shots,
        })
    }

    /// The line that positions are projected onto.
    pub fn line(&self) -> &SurveyLine {
        &self.line
    }

    /// The largest distance of a position from the line, in metres.
    pub fn distance_max_m(&self) -> f64 {
        self.distance_max_m
    }

    /// The number of traces that are migrated.
    pub fn traces(&self) -> usize {
        self.traces.len()
    }

    /// The number of traces that are dead, auxiliary or of another component.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The velocity model, on the grid of the image.
    pub fn velocity(&self) -> &Section {
        &self.velocity
    }

    /// The parameters of the image.
    pub fn migration_options(&self) -> MigrationOptions {
        self.migration
    }

    /// The number of shots.
    pub fn shots(&self) -> usize {
        self.shots.len()
    }

    /// Reads the traces of one shot, counted from 0, as the survey has them.
    ///
    /// # Errors
    /// If the file cannot be read or a sample is no finite number.
    ///
    /// # Panics
    /// If there is no such shot.
    pub fn shot<R: Read + Seek>(&self, data: &mut SegyReader<R>, shot: usize) -> Result<Segy, PlanError> {
        let traces = &self.traces[self.shots[shot].clone()];
        let number = match traces[0].field_record {
            0 => shot as i32 + 1,
            field_record => field_record,
        };
        let traces = traces.iter().map(|planned| {
            let (_, recorded) = data.trace(planned.trace)?;
            Ok(Trace {
                shot: number,
                source_x_cm: planned.source_x_cm,
                receiver_x_cm: planned.receiver_x_cm,
                samples: from_time_zero(&recorded, planned.delay_samples, self.samples.into()),
            })
        });
        Ok(Segy {
            text: vec![format!("IMPORTED, FIELD RECORD {number}, POSITIONS ALONG A LINE")],
            sample_interval: self.sample_interval,
            samples: self.samples,
            traces: traces.collect::<Result<_, PlanError>>()?,
        })
    }
}

impl ImportOptions {
    fn check(&self) -> Result<(), PlanError> {
        let tolerance_m = self.tolerance_m.unwrap_or(0.0);
        let offset_max_m = self.offset_max_m.unwrap_or(1.0);
        in_range("the tolerance", tolerance_m, 0.0..=1e6, "0 to 1000000 m")?;
        in_range(
            "the largest offset",
            offset_max_m.into(),
            1.0..=1e6,
            "1 to 1000000 m",
        )?;
        let classes = self.offset_classes as f64;
        in_range("the number of offset classes", classes, 1.0..=1024.0, "1 to 1024")
    }
}

impl PlannedTrace {
    fn offset_cm(&self) -> u32 {
        self.receiver_x_cm.abs_diff(self.source_x_cm)
    }
}

pub(crate) fn in_range(
    option: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    expected: &'static str,
) -> Result<(), PlanError> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(PlanError::OptionValue {
            option,
            value,
            expected,
        }),
    }
}

/// The delays of all traces in samples. Each trace has at least one sample after time zero.
fn delays<R: Read + Seek>(data: &SegyReader<R>, positions: &TracePositions) -> Result<Vec<i32>, PlanError> {
    let delay = |position: &TracePosition| {
        let samples = position.delay.samples(data.sample_interval());
        samples
            .filter(|delay| i64::from(*delay) + i64::from(data.samples()) > 0)
            .ok_or_else(|| position.delay.error(data, position.trace))
    };
    positions.traces.iter().map(delay).collect()
}

/// The samples from time zero to the end of the longest trace.
fn length(samples: u16, delays: &[i32]) -> Result<u16, PlanError> {
    let delay_max = delays.iter().copied().max().unwrap_or(0);
    let length = i64::from(delay_max) + i64::from(samples);
    u16::try_from(length).map_err(|_| PlanError::TooMany {
        count: length.unsigned_abs(),
        what: "samples from time zero on",
        max: u16::MAX.into(),
    })
}

/// The samples from time zero on: nothing before the first that was recorded, and after the last.
fn from_time_zero(recorded: &[f32], delay_samples: i32, length: usize) -> Vec<f32> {
    let delay = delay_samples.unsigned_abs() as usize;
    let mut samples = match delay_samples {
        0.. => [&vec![0.0; delay], recorded].concat(),
        _ => recorded[delay..].to_vec(),
    };
    samples.resize(length, 0.0);
    samples
}

fn planned<R: Read + Seek>(
    data: &SegyReader<R>,
    line: &SurveyLine,
    grid: Grid,
    position: &TracePosition,
    delay_samples: i32,
) -> Result<PlannedTrace, PlanError> {
    let width_m = grid.width_m();
    let [source, receiver] = position.place.ends_m(line).map(|x_m| {
        let x_cm = (x_m * 100.0).round();
        (0.0..=f64::from((width_m * 100.0).floor()))
            .contains(&x_cm)
            .then_some(x_cm as i32)
            .ok_or(PlanError::OutsideVelocity {
                trace: position.trace,
                offset: data.trace_offset(position.trace),
                x_m,
                width_m,
            })
    });
    Ok(PlannedTrace {
        trace: position.trace,
        field_record: position.field_record,
        source_x_cm: source?,
        receiver_x_cm: receiver?,
        delay_samples,
    })
}

/// The ranges of the traces that belong together, none too large to be migrated: those of one field record whose
/// sources agree within the tolerance. Where there are no numbers of field records, sources agree exactly.
fn shots(traces: &[PlannedTrace], tolerance_m: f64) -> Result<Vec<Range<usize>>, PlanError> {
    let mut shots: Vec<Range<usize>> = Vec::new();
    for (index, trace) in traces.iter().enumerate() {
        let tolerance_cm = match trace.field_record {
            0 => 0.0,
            _ => tolerance_m * 100.0,
        };
        let belongs_to = |first: &PlannedTrace| {
            let distance_cm = f64::from(trace.source_x_cm.abs_diff(first.source_x_cm));
            first.field_record == trace.field_record && distance_cm <= tolerance_cm
        };
        match shots.last_mut() {
            Some(shot) if belongs_to(&traces[shot.start]) => shot.end += 1,
            _ => shots.push(index..index + 1),
        }
    }
    at_most(shots.len(), "shots", SHOTS_MAX)?;
    let longest = shots.iter().map(Range::len).max().unwrap_or(0);
    at_most(longest, "traces in a shot", RECEIVERS_MAX)?;
    Ok(shots)
}

fn at_most(count: usize, what: &'static str, max: usize) -> Result<(), PlanError> {
    match count <= max {
        true => Ok(()),
        false => Err(PlanError::TooMany {
            count: count as u64,
            what,
            max: max as u64,
        }),
    }
}

/// So many take 256 MiB.
const SHOT_SAMPLES_MAX: usize = 1 << 26;
/// So many take 128 GiB on disk.
const SAMPLES_MAX: usize = 1 << 35;
/// The manifest with so many shots is below its largest size.
const SHOTS_MAX: usize = 1 << 16;
