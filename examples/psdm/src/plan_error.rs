//! Why a file of traces cannot be imported as a survey.

use thiserror::Error;

use crate::SegyError;

/// Why a file of traces cannot be imported as a survey.
///
/// Traces are counted from 0. An offset is that of the trace, or of its field, in the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The coordinates of a trace are angles.
    #[error(
        "trace {trace}, offset {offset}: coordinate units {units}, expected 0 or 1 (lengths): convert degrees to \
         lengths, such as UTM coordinates"
    )]
    CoordinateUnits {
        /// The trace.
        trace: u64,
        /// Where the code is.
        offset: u64,
        /// The code of the units.
        units: i16,
    },
    /// The first sample is not a whole number of sample intervals from time zero, or the last one is before it.
    #[error(
        "trace {trace}, offset {offset}: a delay of {delay_ms} ms, expected a multiple of the sample interval of \
         {interval_us} us with samples after time zero: resample or shift the traces"
    )]
    Delay {
        /// The trace.
        trace: u64,
        /// Where the delay is.
        offset: u64,
        /// The delay recording time in milliseconds.
        delay_ms: f64,
        /// The sample interval in microseconds.
        interval_us: u16,
    },
    /// The gathers would have too many values.
    #[error(
        "an image of {columns} columns, {rows} rows and {classes} offset classes, expected at most 2^24 columns x \
         rows, 65535 rows, 20000 km and 2^30 values in all: take a larger spacing, less depth or fewer classes"
    )]
    ImageSize {
        /// Columns.
        columns: usize,
        /// Rows.
        rows: usize,
        /// Offset classes.
        classes: usize,
    },
    /// No header says how far apart the samples are.
    #[error("offset 3216: no sample interval, neither here nor in the first trace")]
    NoInterval,
    /// All coordinates that could be positions are zero.
    #[error(
        "all source coordinates or all group coordinates are 0, expected others, or CDP coordinates in a file of \
         revision 1 (this is revision {revision}): if the fields hold the positions nevertheless, choose them"
    )]
    NoPositions {
        /// The file's revision.
        revision: u8,
    },
    /// No trace is of a kind that is migrated.
    #[error("no seismic traces; {left_out} of other kinds")]
    NoTraces {
        /// Dead traces and auxiliary ones.
        left_out: u64,
    },
    /// A trace is not on the line.
    #[error(
        "trace {trace}, offset {offset}: a position is {distance_m:.1} m from the straight line through all, expected \
         at most {tolerance_m} m: set a larger tolerance to project it"
    )]
    OffLine {
        /// The trace.
        trace: u64,
        /// Where the trace begins.
        offset: u64,
        /// Its distance from the line.
        distance_m: f64,
        /// The largest distance that is allowed.
        tolerance_m: f64,
    },
    /// An option has no value of use.
    #[error("{option} is {value}, expected {expected}")]
    OptionValue {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: f64,
        /// The values that are allowed.
        expected: &'static str,
    },
    /// A source or receiver is beside the velocity model.
    #[error(
        "trace {trace}, offset {offset}: a position at {x_m:.2} m, expected 0 to {width_m} m, the velocity model"
    )]
    OutsideVelocity {
        /// The trace.
        trace: u64,
        /// Where the trace begins.
        offset: u64,
        /// The position along the line.
        x_m: f64,
        /// The model's width.
        width_m: f32,
    },
    /// The bytes are no SEG-Y file that the program reads.
    #[error(transparent)]
    Segy(#[from] SegyError),
    /// There is more of something than a survey can have.
    #[error("{count} {what}, expected at most {max}: import a part of the file")]
    TooMany {
        /// The number.
        count: u64,
        /// The things counted.
        what: &'static str,
        /// The largest number.
        max: u64,
    },
    /// The velocity file cannot be used.
    #[error("the velocity model cannot be used")]
    Velocity(#[source] Box<PlanError>),
    /// A column of the velocity file is not where it is expected.
    #[error(
        "trace {trace}, offset {offset}: a column at {x_m:.2} m from the first, expected {expected_m:.2} m: columns \
         must be as far apart as samples, whose interval is in millimetres"
    )]
    VelocityColumn {
        /// The trace.
        trace: u64,
        /// Where the trace begins.
        offset: u64,
        /// Its place along the line.
        x_m: f64,
        /// The place that follows from the interval of the samples.
        expected_m: f64,
    },
    /// A value of the velocity file is none of rocks.
    #[error("trace {trace}, offset {offset}: a velocity of {velocity_m_s} m/s, expected 100 to 20000 m/s")]
    VelocityValue {
        /// The trace.
        trace: u64,
        /// Where the trace begins.
        offset: u64,
        /// The value.
        velocity_m_s: f32,
    },
}
