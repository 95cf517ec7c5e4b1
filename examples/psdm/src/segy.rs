//! SEG-Y files of surveys and sections.
//!
//! Written are files of revision 1 (SEG Technical Standards Committee, 2002) with equally long traces of IEEE floats,
//! big-endian, with an ASCII text header. Read is all that [`SegyReader`] reads. Coordinates are kept in whole
//! centimetres.

use std::io::Cursor;

use crate::{
    SegyError, SegyReader, TraceHeader,
    segy_header::{
        COORDINATE_UNITS_BYTE, FORMAT_BYTE, FileHeader, GROUP_X_BYTE, IDENTIFICATION_BYTE, INTERVAL_BYTE,
        MEASUREMENT_BYTE, OFFSET_BYTE, REVISION_BYTE, SAMPLES_BYTE, SCALAR_BYTE, SHOT_BYTE, SOURCE_X_BYTE,
        TEXT_SIZE, TRACE_INTERVAL_BYTE, TRACE_SAMPLES_BYTE, put,
    },
};

/// A file of traces.
#[derive(Clone, Debug, PartialEq)]
pub struct Segy {
    /// Lines of the text header, each at most [`Segy::TEXT_WIDTH`] ASCII characters; at most
    /// [`Segy::TEXT_LINES`] are written. Not read back.
    pub text: Vec<String>,
    /// The sample interval in microseconds, or in millimetres where the samples go with depth.
    pub sample_interval: u16,
    /// Samples in each trace.
    pub samples: u16,
    /// The traces, each with that many samples.
    pub traces: Vec<Trace>,
}

/// One trace with what its header says.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The number of the shot (field record).
    pub shot: i32,
    /// The x of the source, in centimetres.
    pub source_x_cm: i32,
    /// The x of the receiver, in centimetres.
    pub receiver_x_cm: i32,
    /// The amplitudes.
    pub samples: Vec<f32>,
}

impl Segy {
    /// Lines of a text header.
    pub const TEXT_LINES: usize = 40;
    /// Characters in a line of it, without the line's number.
    pub const TEXT_WIDTH: usize = 76;

    /// The file's bytes.
    ///
    /// # Panics
    /// If a trace has not as many samples as the file says.
    pub fn to_bytes(&self) -> Vec<u8> {
        let samples = usize::from(self.samples);
        let mut bytes = Vec::with_capacity(FileHeader::SIZE + self.traces.len() * trace_size(samples));
        for line in 0..Self::TEXT_LINES {
            let text = match line {
                38 => "SEG Y REV1",
                39 => "END TEXTUAL HEADER",
                _ => self.text.get(line).map_or("", String::as_str),
            };
            let number = line + 1;
            let width = Self::TEXT_WIDTH;
            let start = bytes.len();
            bytes.extend_from_slice(format!("C{number:2} {text:width$.width$}").as_bytes());
            bytes.resize(start + TEXT_SIZE / Self::TEXT_LINES, b' ');
        }
        bytes.resize(FileHeader::SIZE, 0);
        let traces = self.traces.len().min(0x7fff) as i16;
        put(&mut bytes, TRACES_BYTE, traces.to_be_bytes());
        put(&mut bytes, INTERVAL_BYTE, self.sample_interval.to_be_bytes());
        put(&mut bytes, SAMPLES_BYTE, self.samples.to_be_bytes());
        put(&mut bytes, FORMAT_BYTE, IEEE_FLOAT.to_be_bytes());
        put(&mut bytes, MEASUREMENT_BYTE, METRES.to_be_bytes());
        put(&mut bytes, REVISION_BYTE, REVISION.to_be_bytes());
        put(&mut bytes, FIXED_LENGTH_BYTE, 1i16.to_be_bytes());
        for (index, trace) in self.traces.iter().enumerate() {
            assert_eq!(trace.samples.len(), samples, "length of trace {index}");
            bytes.extend_from_slice(&self.trace_header(index, trace));
            bytes.extend(trace.samples.iter().flat_map(|sample| sample.to_be_bytes()));
        }
        bytes
    }

    fn trace_header(&self, index: usize, trace: &Trace) -> [u8; TraceHeader::SIZE] {
        let mut header = [0; TraceHeader::SIZE];
        let number = (index + 1) as i32;
        let offset_m = (i64::from(trace.receiver_x_cm) - i64::from(trace.source_x_cm)) / 100;
        put(&mut header, 1, number.to_be_bytes());
        put(&mut header, 5, number.to_be_bytes());
        put(&mut header, SHOT_BYTE, trace.shot.to_be_bytes());
        put(&mut header, 13, number.to_be_bytes());
        put(&mut header, IDENTIFICATION_BYTE, 1i16.to_be_bytes()); // seismic data
        put(&mut header, OFFSET_BYTE, (offset_m as i32).to_be_bytes());
        put(&mut header, 69, 1i16.to_be_bytes());
        put(&mut header, SCALAR_BYTE, CENTIMETRES.to_be_bytes());
        put(&mut header, SOURCE_X_BYTE, trace.source_x_cm.to_be_bytes());
        put(&mut header, GROUP_X_BYTE, trace.receiver_x_cm.to_be_bytes());
        put(&mut header, COORDINATE_UNITS_BYTE, 1i16.to_be_bytes()); // lengths
        put(&mut header, TRACE_SAMPLES_BYTE, self.samples.to_be_bytes());
        put(
            &mut header,
            TRACE_INTERVAL_BYTE,
            self.sample_interval.to_be_bytes(),
        );
        header
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// If they are no SEG-Y file that the program reads, or a coordinate is beyond 21474 km.
    pub fn parse(bytes: &[u8]) -> Result<Self, SegyError> {
        let mut reader = SegyReader::new(Cursor::new(bytes))?;
        let traces = (0..reader.traces()).map(|number| {
            let (header, samples) = reader.trace(number)?;
            let unit_m = reader.coordinate_unit_m(number, &header)?;
            let centimetres = |coordinate| {
                let metres = f64::from(coordinate) * unit_m;
                let centimetres = (metres * 100.0).round();
                if centimetres.abs() > f64::from(i32::MAX) {
                    let offset = reader.trace_offset(number);
                    return Err(SegyError::Coordinate {
                        trace: number,
                        offset,
                        metres,
                    });
                }
                Ok(centimetres as i32)
            };
            Ok(Trace {
                shot: header.field_record,
                source_x_cm: centimetres(header.source[0])?,
                receiver_x_cm: centimetres(header.group[0])?,
                samples,
            })
        });
        let traces = traces.collect::<Result<_, SegyError>>()?;
        Ok(Self {
            text: Vec::new(),
            sample_interval: reader.sample_interval(),
            samples: reader.samples(),
            traces,
        })
    }
}

fn trace_size(samples: usize) -> usize {
    TraceHeader::SIZE + samples * size_of::<f32>()
}

/// Traces in an ensemble.
const TRACES_BYTE: usize = 3213;
const FIXED_LENGTH_BYTE: usize = 3503;
const IEEE_FLOAT: i16 = 5;
const METRES: i16 = 1;
const REVISION: u16 = 0x0100;
/// The scalar of coordinates in centimetres: divide by 100 to get metres.
const CENTIMETRES: i16 = -100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_segy() -> impl Strategy<Value = Segy> {
        (1u16..20, 0u16..).prop_flat_map(|(samples, sample_interval)| {
            let sample = prop::num::f32::NORMAL | prop::num::f32::ZERO | prop::num::f32::SUBNORMAL;
            let trace = (
                any::<i32>(),
                -i32::MAX..,
                -i32::MAX..,
                prop::collection::vec(sample, usize::from(samples)),
            )
                .prop_map(|(shot, source_x_cm, receiver_x_cm, samples)| Trace {
                    shot,
                    source_x_cm,
                    receiver_x_cm,
                    samples,
                });
            prop::collection::vec(trace, 0..6).prop_map(move |traces| Segy {
                text: Vec::new(),
                sample_interval,
                samples,
                traces,
            })
        })
    }

    proptest! {
        /// Written files are read back, bit for bit.
        #[test]
        fn written_is_read(segy in any_segy()) {
            let read = Segy::parse(&segy.to_bytes()).unwrap();
            prop_assert_eq!(&read, &segy);
            prop_assert_eq!(read.to_bytes(), segy.to_bytes());
        }

        /// A file that ends too early is an error, unless it ends between two traces.
        #[test]
        fn truncation_is_noticed(segy in any_segy(), cut in any::<prop::sample::Index>()) {
            let bytes = segy.to_bytes();
            let cut = cut.index(bytes.len());
            let trace = trace_size(usize::from(segy.samples));
            let whole = cut >= FileHeader::SIZE && (cut - FileHeader::SIZE).is_multiple_of(trace);
            prop_assert_eq!(Segy::parse(&bytes[..cut]).is_ok(), whole);
        }

        /// Whatever the bytes are, reading them ends with a file or an error, and what was read is no larger than
        /// the bytes.
        #[test]
        fn garbage_is_survived(
            segy in any_segy(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30),
        ) {
            let mut bytes = segy.to_bytes();
            // Damage the headers, where the numbers are that could lead astray.
            let end = bytes.len().min(FileHeader::SIZE + 2 * TraceHeader::SIZE) - TEXT_SIZE;
            for (place, byte) in damage {
                bytes[TEXT_SIZE + place.index(end)] = byte;
            }
            if let Ok(read) = Segy::parse(&bytes) {
                let values: usize = read.traces.iter().map(|trace| trace.samples.len()).sum();
                prop_assert!(values * 4 <= bytes.len());
            }
        }

        /// Bytes that never were a file are survived too.
        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..8000)) {
            let _ = Segy::parse(&bytes);
        }
    }

    /// The fields stand where the standard puts them.
    #[test]
    fn fields_stand_where_the_standard_says() {
        let bytes = Segy {
            text: vec!["A SURVEY".to_owned()],
            sample_interval: 4000,
            samples: 2,
            traces: vec![Trace {
                shot: 7,
                source_x_cm: 100_000,
                receiver_x_cm: 163_050,
                samples: vec![1.0, -2.0],
            }],
        }
        .to_bytes();
        let i16_at = |byte: usize| i16::from_be_bytes([bytes[byte - 1], bytes[byte]]);
        let i32_at = |byte: usize| i32::from_be_bytes(bytes[byte - 1..byte + 3].try_into().unwrap());
        assert_eq!(bytes.len(), 3600 + 240 + 8);
        assert!(bytes.starts_with(b"C 1 A SURVEY "));
        assert_eq!(&bytes[39 * 80..][..22], b"C40 END TEXTUAL HEADER");
        assert_eq!((i16_at(3217), i16_at(3221), i16_at(3225)), (4000, 2, 5));
        assert_eq!((i16_at(3501), i16_at(3503), i16_at(3505)), (0x100, 1, 0));
        let trace = |byte: usize| 3600 + byte;
        assert_eq!(i32_at(trace(9)), 7);
        assert_eq!(i32_at(trace(37)), 630);
        assert_eq!(i16_at(trace(71)), -100);
        assert_eq!((i32_at(trace(73)), i32_at(trace(81))), (100_000, 163_050));
        assert_eq!((i16_at(trace(115)), i16_at(trace(117))), (2, 4000));
        assert_eq!(bytes[3840..], [0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0]);
    }
}
