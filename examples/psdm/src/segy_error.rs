//! Why bytes are no SEG-Y file that the program reads.

use std::io;

use thiserror::Error;

/// Why bytes are no SEG-Y file that the program reads.
///
/// Traces are counted from 0. An offset is that of the first byte of the field or part in the file, from 0.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SegyError {
    /// The binary header makes sense only with its bytes in the other order.
    #[error(
        "offset 3224: the sample format reads {swapped} in little-endian order; expected a big-endian file: convert it"
    )]
    ByteOrder {
        /// The code of the sample format with its bytes swapped.
        swapped: i16,
    },
    /// A coordinate in centimetres is beyond the range of 32 bits.
    #[error("trace {trace}, offset {offset}: a coordinate of {metres} m, expected at most 21474836 m")]
    Coordinate {
        /// The trace.
        trace: u64,
        /// Where the trace begins.
        offset: u64,
        /// The coordinate.
        metres: f64,
    },
    /// The scalar of the coordinates is none of the standard's.
    #[error(
        "trace {trace}, offset {offset}: coordinate scalar {scalar}, expected 0, 1 or -1, or 10, 100, 1000 or 10000 \
         with either sign"
    )]
    CoordinateScalar {
        /// The trace.
        trace: u64,
        /// Where the scalar is.
        offset: u64,
        /// The scalar.
        scalar: i16,
    },
    /// The number of extended textual headers is negative, and not the -1 that stands for any number.
    #[error("offset 3504: {count} extended textual headers, expected -1 or a number from 0 on")]
    ExtendedHeaders {
        /// The number in the header.
        count: i16,
    },
    /// The samples are neither IBM's nor IEEE's floats of 32 bits.
    #[error(
        "offset 3224: sample format {code} ({}), expected 1 (IBM float) or 5 (IEEE float): convert the samples",
        format_name(*code)
    )]
    Format {
        /// The code in the header.
        code: i16,
    },
    /// The file cannot be read.
    #[error("cannot be read at offset {offset}")]
    Io {
        /// Where the part begins that was to be read.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// The measurement system is none of the standard's.
    #[error("offset 3254: measurement system {code}, expected 0 (unknown), 1 (metres) or 2 (feet)")]
    MeasurementSystem {
        /// The code in the header.
        code: i16,
    },
    /// Neither the binary header nor the first trace says how many samples a trace has.
    #[error("offset 3220: no number of samples, neither here nor in the first trace")]
    NoSamples,
    /// A sample is infinite, not a number, or too large for an IEEE float of 32 bits.
    #[error("trace {trace}, offset {offset}: sample {sample} is no finite number of 32 bits")]
    NotFinite {
        /// The trace.
        trace: u64,
        /// Where the sample is.
        offset: u64,
        /// The sample's number in the trace, from 0.
        sample: usize,
    },
    /// The file is of a revision with other rules.
    #[error("offset 3500: SEG-Y revision {major}.{minor}, expected revision 0 or 1")]
    Revision {
        /// The part before the point.
        major: u8,
        /// The part after it.
        minor: u8,
    },
    /// A trace has another sample interval than the file.
    #[error(
        "trace {trace}, offset {offset}: sample interval {interval}, expected {expected} as in the file's header"
    )]
    SampleInterval {
        /// The trace.
        trace: u64,
        /// Where the interval is.
        offset: u64,
        /// The trace's interval.
        interval: u16,
        /// The interval of the binary header, or of the first trace if the binary header has none.
        expected: u16,
    },
    /// A trace has another length than the file says.
    #[error("trace {trace}, offset {offset}: {samples} samples, expected {expected} as in the file's header")]
    Samples {
        /// The trace.
        trace: u64,
        /// Where the number is.
        offset: u64,
        /// The trace's length.
        samples: u16,
        /// The length of the binary header, or of the first trace if the binary header has none.
        expected: u16,
    },
    /// The scalar of the times is none of the standard's.
    #[error(
        "trace {trace}, offset {offset}: time scalar {scalar}, expected 0, 1 or -1, or 10, 100, 1000 or 10000 with \
         either sign"
    )]
    TimeScalar {
        /// The trace.
        trace: u64,
        /// Where the scalar is.
        offset: u64,
        /// The scalar.
        scalar: i16,
    },
    /// The file ends in the middle of a header or a trace.
    #[error("the file ends after {size} bytes, in the middle of {part}, which begins at offset {offset}")]
    Truncated {
        /// The file's size.
        size: u64,
        /// The part in the middle of which it ends.
        part: &'static str,
        /// Where that part begins.
        offset: u64,
    },
}

/// The names of the sample formats in the revisions 0 to 2 of the standard.
fn format_name(code: i16) -> &'static str {
    match code {
        2 => "integer of 32 bits",
        3 => "integer of 16 bits",
        4 => "fixed point with gain",
        6 => "IEEE float of 64 bits",
        7 => "integer of 24 bits",
        8 => "integer of 8 bits",
        9 => "integer of 64 bits",
        10 => "unsigned integer of 32 bits",
        11 => "unsigned integer of 16 bits",
        12 => "unsigned integer of 64 bits",
        15 => "unsigned integer of 24 bits",
        16 => "unsigned integer of 8 bits",
        _ => "none of the standard",
    }
}
