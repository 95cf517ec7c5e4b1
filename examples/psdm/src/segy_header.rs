//! The headers of a SEG-Y file of revision 0 (Barry, Cavers and Kneale, "Recommended standards for digital tape
//! formats", Geophysics 40, 1975) or 1 (SEG Technical Standards Committee, 2002).
//!
//! The textual header is for people and is not read.

use crate::{SegyError, ibm_float::ibm_to_f32};

/// The parts of the binary header that a reader needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FileHeader {
    /// The revision of the standard, 0 or 1.
    pub revision: u8,
    /// The encoding of the samples.
    pub format: SampleFormat,
    /// Samples in each trace; 0 if the header does not say.
    pub samples: u16,
    /// The sample interval in microseconds, or in millimetres if the samples go with depth; 0 if the header does not
    /// say.
    pub sample_interval: u16,
    /// The unit of coordinates and offsets, in metres.
    pub unit_m: f64,
    /// The extended textual headers between the binary header and the first trace.
    pub extended: ExtendedHeaders,
}

/// The encoding of the samples, 32 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleFormat {
    /// Code 1.
    IbmFloat,
    /// Code 5.
    IeeeFloat,
}

/// How many extended textual headers a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedHeaders {
    /// So many.
    Count(u16),
    /// As many as it takes until one says that it is the last.
    UntilEnd,
}

/// The parts of a trace header that a reader needs, as they stand there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceHeader {
    /// The number of the field record, which is the number of the shot.
    pub field_record: i32,
    /// The kind of the trace.
    pub identification: i16,
    /// The distance from source to receiver, negative against the direction of the line; no scalar applies.
    pub offset: i32,
    /// The scalar of the coordinates.
    pub coordinate_scalar: i16,
    /// The coordinates of the source.
    pub source: [i32; 2],
    /// The coordinates of the receiver group.
    pub group: [i32; 2],
    /// The kind of the coordinates.
    pub coordinate_units: i16,
    /// The time of the first sample.
    pub delay: i16,
    /// Samples in this trace; 0 if the header does not say.
    pub samples: u16,
    /// The sample interval as in [`FileHeader`]; 0 if the header does not say.
    pub sample_interval: u16,
    /// The coordinates of the midpoint (revision 1).
    pub cdp: [i32; 2],
    /// The scalar of the times (revision 1).
    pub time_scalar: i16,
}

impl FileHeader {
    /// The size of textual and binary header, in bytes.
    pub const SIZE: usize = TEXT_SIZE + 400;

    /// Reads the textual and the binary header.
    ///
    /// # Errors
    /// If the file is of a kind that is not supported, or a code is none of the standard's.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Result<Self, SegyError> {
        let code = i16::from_be_bytes(take(bytes, FORMAT_BYTE));
        let format = match (code, code.swap_bytes()) {
            (1, _) => SampleFormat::IbmFloat,
            (5, _) => SampleFormat::IeeeFloat,
            (_, swapped @ 1..=16) => return Err(SegyError::ByteOrder { swapped }),
            _ => return Err(SegyError::Format { code }),
        };
        let revision = match take(bytes, REVISION_BYTE) {
            [0, 0] => 0,
            // Some programs write the number 1 where the standard has 1 in the high byte.
            [1, _] | [0, 1] => 1,
            [major, minor] => return Err(SegyError::Revision { major, minor }),
        };
        let unit_m = match i16::from_be_bytes(take(bytes, MEASUREMENT_BYTE)) {
            0 | 1 => 1.0,
            2 => FOOT_M,
            code => return Err(SegyError::MeasurementSystem { code }),
        };
        let extended = match i16::from_be_bytes(take(bytes, EXTENDED_BYTE)) {
            // These bytes are unassigned in revision 0.
            _ if revision == 0 => ExtendedHeaders::Count(0),
            -1 => ExtendedHeaders::UntilEnd,
            count => u16::try_from(count)
                .map(ExtendedHeaders::Count)
                .map_err(|_| SegyError::ExtendedHeaders { count })?,
        };
        Ok(Self {
            revision,
            format,
            samples: u16::from_be_bytes(take(bytes, SAMPLES_BYTE)),
            sample_interval: u16::from_be_bytes(take(bytes, INTERVAL_BYTE)),
            unit_m,
            extended,
        })
    }
}

impl SampleFormat {
    /// The value of a sample; not finite if the bytes are no number or `f32` cannot hold it.
    pub fn decode(self, bytes: [u8; 4]) -> f32 {
        match self {
            Self::IbmFloat => ibm_to_f32(u32::from_be_bytes(bytes)),
            Self::IeeeFloat => f32::from_be_bytes(bytes),
        }
    }
}

impl ExtendedHeaders {
    /// The size of an extended textual header, in bytes.
    pub const SIZE: usize = TEXT_SIZE;

    /// If an extended textual header is the last one: it begins with the stanza `((SEG: EndText))`, in ASCII or
    /// EBCDIC.
    pub fn is_last(header: &[u8]) -> bool {
        let ascii = header
            .iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .map(u8::to_ascii_uppercase);
        // Small letters of EBCDIC are capital ones without this bit.
        let ebcdic = header
            .iter()
            .filter(|byte| **byte != EBCDIC_SPACE)
            .map(|byte| if *byte > 0x80 { byte | 0x40 } else { *byte });
        ascii.take(END_ASCII.len()).eq(END_ASCII) || ebcdic.take(END_EBCDIC.len()).eq(END_EBCDIC)
    }
}

impl TraceHeader {
    /// Its size, in bytes.
    pub const SIZE: usize = 240;

    /// Reads a trace header.
    pub fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let number = |byte| i16::from_be_bytes(take(bytes, byte));
        let long = |byte| i32::from_be_bytes(take(bytes, byte));
        Self {
            field_record: long(SHOT_BYTE),
            identification: number(IDENTIFICATION_BYTE),
            offset: long(OFFSET_BYTE),
            coordinate_scalar: number(SCALAR_BYTE),
            source: [long(SOURCE_X_BYTE), long(SOURCE_X_BYTE + 4)],
            group: [long(GROUP_X_BYTE), long(GROUP_X_BYTE + 4)],
            coordinate_units: number(COORDINATE_UNITS_BYTE),
            delay: number(DELAY_BYTE),
            samples: u16::from_be_bytes(take(bytes, TRACE_SAMPLES_BYTE)),
            sample_interval: u16::from_be_bytes(take(bytes, TRACE_INTERVAL_BYTE)),
            cdp: [long(CDP_X_BYTE), long(CDP_X_BYTE + 4)],
            time_scalar: number(TIME_SCALAR_BYTE),
        }
    }
}

/// A scalar of the standard as multiplier and divisor: positive ones multiply, negative ones divide, 0 does neither.
pub(crate) fn scale(scalar: i16) -> Option<(i64, i64)> {
    match (scalar, i64::from(scalar.unsigned_abs())) {
        (0, _) => Some((1, 1)),
        (1.., factor @ (1 | 10 | 100 | 1000 | 10_000)) => Some((factor, 1)),
        (_, factor @ (1 | 10 | 100 | 1000 | 10_000)) => Some((1, factor)),
        _ => None,
    }
}

/// Writes a field at a byte that the standard counts from 1.
pub(crate) fn put<const N: usize>(header: &mut [u8], first_byte: usize, field: [u8; N]) {
    header[first_byte - 1..first_byte - 1 + N].copy_from_slice(&field);
}

/// Reads a field at a byte that the standard counts from 1; the header is long enough for every field of it.
fn take<const N: usize>(header: &[u8], first_byte: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&header[first_byte - 1..first_byte - 1 + N]);
    field
}

pub(crate) const TEXT_SIZE: usize = 3200;
pub(crate) const INTERVAL_BYTE: usize = 3217;
pub(crate) const SAMPLES_BYTE: usize = 3221;
pub(crate) const FORMAT_BYTE: usize = 3225;
pub(crate) const MEASUREMENT_BYTE: usize = 3255;
pub(crate) const REVISION_BYTE: usize = 3501;
pub(crate) const EXTENDED_BYTE: usize = 3505;

pub(crate) const SHOT_BYTE: usize = 9;
pub(crate) const IDENTIFICATION_BYTE: usize = 29;
pub(crate) const OFFSET_BYTE: usize = 37;
pub(crate) const SCALAR_BYTE: usize = 71;
pub(crate) const SOURCE_X_BYTE: usize = 73;
pub(crate) const GROUP_X_BYTE: usize = 81;
pub(crate) const COORDINATE_UNITS_BYTE: usize = 89;
pub(crate) const DELAY_BYTE: usize = 109;
pub(crate) const TRACE_SAMPLES_BYTE: usize = 115;
pub(crate) const TRACE_INTERVAL_BYTE: usize = 117;
pub(crate) const CDP_X_BYTE: usize = 181;
pub(crate) const TIME_SCALAR_BYTE: usize = 215;

/// The international foot.
const FOOT_M: f64 = 0.3048;
const END_ASCII: [u8; 15] = *b"((SEG:ENDTEXT))";
const END_EBCDIC: [u8; 15] = [
    0x4d, 0x4d, 0xe2, 0xc5, 0xc7, 0x7a, 0xc5, 0xd5, 0xc4, 0xe3, 0xc5, 0xe7, 0xe3, 0x5d, 0x5d,
];
const EBCDIC_SPACE: u8 = 0x40;

#[cfg(test)]
mod tests {
    use super::*;

    /// Scalars of the standard and no others are understood.
    #[test]
    fn scalars_multiply_and_divide() {
        assert_eq!(scale(0), Some((1, 1)));
        assert_eq!(scale(1), Some((1, 1)));
        assert_eq!(scale(-1), Some((1, 1)));
        assert_eq!(scale(1000), Some((1000, 1)));
        assert_eq!(scale(-10_000), Some((1, 10_000)));
        for none in [2, -3, 99, 20_000, i16::MIN, i16::MAX] {
            assert_eq!(scale(none), None, "{none}");
        }
    }

    /// The last extended header is known in both alphabets, in capital and small letters, with and without a space.
    #[test]
    fn the_last_extended_header_is_known() {
        assert!(ExtendedHeaders::is_last(b"((SEG: EndText))   "));
        assert!(ExtendedHeaders::is_last(b" ((SEG:ENDTEXT))\r\n"));
        let small = [
            0x4d, 0x4d, 0xe2, 0xc5, 0xc7, 0x7a, 0x40, 0xc5, 0x95, 0x84, 0xe3, 0x85, 0xa7, 0xa3, 0x5d, 0x5d,
            0x40,
        ];
        assert!(ExtendedHeaders::is_last(&small));
        assert!(!ExtendedHeaders::is_last(b"((SEG: Location Data ver 1.0))"));
        assert!(!ExtendedHeaders::is_last(b"((SEG: EndText)"));
        assert!(!ExtendedHeaders::is_last(&[]));
    }
}
