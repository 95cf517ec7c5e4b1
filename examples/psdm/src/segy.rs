//! SEG-Y revision 1 (SEG Technical Standards Committee, 2002), as much of it as a survey needs.
//!
//! Written are files of equally long traces of IEEE floats, big-endian, with an ASCII text header. Read is the
//! same, and what other programs write of that kind: extended text headers are passed over, a trace header may
//! leave the number of samples to the file's header. Coordinates are kept in whole centimetres.
//!
//! The bytes that are read come from outside: a reader never takes more memory than the file is long, and
//! every damage is a [`SegyError`].

use thiserror::Error;

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

/// Why bytes are no SEG-Y file that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegyError {
    /// A coordinate does not fit after its scalar was applied.
    #[error("trace {trace}: a coordinate is out of range or its scalar {scalar} is none")]
    Coordinate {
        /// The trace's number, from 0.
        trace: usize,
        /// The scalar in the header.
        scalar: i16,
    },
    /// The samples are not IEEE floats.
    #[error("samples have format code {code}, expected 5 (IEEE float)")]
    Format {
        /// The code in the header.
        code: i16,
    },
    /// The number of extended text headers is variable or negative.
    #[error("{count} extended text headers, expected a number from 0 on")]
    ExtendedHeaders {
        /// The number in the header.
        count: i16,
    },
    /// A sample is infinite or not a number.
    #[error("trace {trace}: sample {sample} is not a finite number")]
    NotFinite {
        /// The trace's number, from 0.
        trace: usize,
        /// The sample's number, from 0.
        sample: usize,
    },
    /// A trace has another length than the file's header says.
    #[error("trace {trace} has {samples} samples, expected {expected} as the file's header says")]
    Samples {
        /// The trace's number, from 0.
        trace: usize,
        /// Its length.
        samples: u16,
        /// The length in the file's header.
        expected: u16,
    },
    /// The file ends in the middle of a header or a trace.
    #[error("the file ends after {size} bytes, in the middle of {place}")]
    Truncated {
        /// Its size.
        size: usize,
        /// The part in the middle of which it ends.
        place: &'static str,
    },
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
        let mut bytes = Vec::with_capacity(TRACES_START + self.traces.len() * trace_size(samples));
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
        let mut header = [0; BINARY_SIZE];
        put(
            &mut header,
            3213 - BINARY_FIRST,
            (self.traces.len().min(0x7fff) as i16).to_be_bytes(),
        );
        put(
            &mut header,
            INTERVAL_BYTE - BINARY_FIRST,
            self.sample_interval.to_be_bytes(),
        );
        put(
            &mut header,
            SAMPLES_BYTE - BINARY_FIRST,
            self.samples.to_be_bytes(),
        );
        put(&mut header, FORMAT_BYTE - BINARY_FIRST, IEEE_FLOAT.to_be_bytes());
        put(&mut header, 3255 - BINARY_FIRST, 1i16.to_be_bytes()); // metres
        put(&mut header, 3501 - BINARY_FIRST, 0x0100u16.to_be_bytes()); // revision 1.0
        put(&mut header, 3503 - BINARY_FIRST, 1i16.to_be_bytes()); // all traces have the same length
        bytes.extend_from_slice(&header);
        for (index, trace) in self.traces.iter().enumerate() {
            assert_eq!(trace.samples.len(), samples, "length of trace {index}");
            bytes.extend_from_slice(&self.trace_header(index, trace));
            bytes.extend(trace.samples.iter().flat_map(|sample| sample.to_be_bytes()));
        }
        bytes
    }

    fn trace_header(&self, index: usize, trace: &Trace) -> [u8; TRACE_HEADER_SIZE] {
        let mut header = [0; TRACE_HEADER_SIZE];
        let number = (index + 1) as i32;
        let offset_m = (i64::from(trace.receiver_x_cm) - i64::from(trace.source_x_cm)) / 100;
        put(&mut header, 1, number.to_be_bytes());
        put(&mut header, 5, number.to_be_bytes());
        put(&mut header, SHOT_BYTE, trace.shot.to_be_bytes());
        put(&mut header, 13, number.to_be_bytes());
        put(&mut header, 29, 1i16.to_be_bytes()); // seismic data
        put(&mut header, 37, (offset_m as i32).to_be_bytes());
        put(&mut header, 69, 1i16.to_be_bytes());
        put(&mut header, SCALAR_BYTE, CENTIMETRES.to_be_bytes());
        put(&mut header, SOURCE_X_BYTE, trace.source_x_cm.to_be_bytes());
        put(&mut header, RECEIVER_X_BYTE, trace.receiver_x_cm.to_be_bytes());
        put(&mut header, 89, 1i16.to_be_bytes()); // coordinates are lengths
        put(&mut header, TRACE_SAMPLES_BYTE, self.samples.to_be_bytes());
        put(&mut header, 117, self.sample_interval.to_be_bytes());
        header
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// If they are no SEG-Y file that we read; the error says why.
    pub fn parse(bytes: &[u8]) -> Result<Self, SegyError> {
        let truncated = |place| SegyError::Truncated {
            size: bytes.len(),
            place,
        };
        let header = bytes
            .get(TEXT_SIZE..TRACES_START)
            .ok_or(truncated("the file's header"))?;
        let code = i16::from_be_bytes(take(header, FORMAT_BYTE - BINARY_FIRST));
        if code != IEEE_FLOAT {
            return Err(SegyError::Format { code });
        }
        let count = i16::from_be_bytes(take(header, EXTENDED_BYTE - BINARY_FIRST));
        let extended = usize::try_from(count).map_err(|_| SegyError::ExtendedHeaders { count })?;
        let samples = u16::from_be_bytes(take(header, SAMPLES_BYTE - BINARY_FIRST));
        let body = bytes
            .get(TRACES_START + extended * TEXT_SIZE..)
            .ok_or(truncated("an extended text header"))?;
        let chunks = body.chunks_exact(trace_size(usize::from(samples)));
        if !chunks.remainder().is_empty() {
            return Err(truncated("a trace"));
        }
        let traces = chunks
            .enumerate()
            .map(|(index, chunk)| parse_trace(index, chunk, samples))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: Vec::new(),
            sample_interval: u16::from_be_bytes(take(header, INTERVAL_BYTE - BINARY_FIRST)),
            samples,
            traces,
        })
    }
}

fn parse_trace(trace: usize, chunk: &[u8], expected: u16) -> Result<Trace, SegyError> {
    let (header, body) = chunk.split_at(TRACE_HEADER_SIZE);
    let samples = u16::from_be_bytes(take(header, TRACE_SAMPLES_BYTE));
    if samples != expected && samples != 0 {
        return Err(SegyError::Samples {
            trace,
            samples,
            expected,
        });
    }
    let scalar = i16::from_be_bytes(take(header, SCALAR_BYTE));
    let centimetres = |first_byte| {
        let value = i64::from(i32::from_be_bytes(take(header, first_byte))) * 100;
        let scaled = match scalar {
            0 => value,
            i16::MIN..0 => value / -i64::from(scalar),
            1.. => value * i64::from(scalar),
        };
        i32::try_from(scaled).map_err(|_| SegyError::Coordinate { trace, scalar })
    };
    let values: Vec<f32> = body
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_be_bytes(*bytes))
        .collect();
    if let Some(sample) = values.iter().position(|value| !value.is_finite()) {
        return Err(SegyError::NotFinite { trace, sample });
    }
    Ok(Trace {
        shot: i32::from_be_bytes(take(header, SHOT_BYTE)),
        source_x_cm: centimetres(SOURCE_X_BYTE)?,
        receiver_x_cm: centimetres(RECEIVER_X_BYTE)?,
        samples: values,
    })
}

fn trace_size(samples: usize) -> usize {
    TRACE_HEADER_SIZE + samples * size_of::<f32>()
}

/// Writes a field at a byte that the standard counts from 1.
fn put<const N: usize>(header: &mut [u8], first_byte: usize, field: [u8; N]) {
    header[first_byte - 1..first_byte - 1 + N].copy_from_slice(&field);
}

/// Reads a field at a byte that the standard counts from 1; the header is long enough for every field we read.
fn take<const N: usize>(header: &[u8], first_byte: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&header[first_byte - 1..first_byte - 1 + N]);
    field
}

const TEXT_SIZE: usize = 3200;
const BINARY_SIZE: usize = 400;
const TRACES_START: usize = TEXT_SIZE + BINARY_SIZE;
const TRACE_HEADER_SIZE: usize = 240;

/// The standard counts the bytes of the binary header from here; a field's number less this counts from 1.
const BINARY_FIRST: usize = TEXT_SIZE;
const INTERVAL_BYTE: usize = 3217;
const SAMPLES_BYTE: usize = 3221;
const FORMAT_BYTE: usize = 3225;
const EXTENDED_BYTE: usize = 3505;

const SHOT_BYTE: usize = 9;
const SCALAR_BYTE: usize = 71;
const SOURCE_X_BYTE: usize = 73;
const RECEIVER_X_BYTE: usize = 81;
const TRACE_SAMPLES_BYTE: usize = 115;

const IEEE_FLOAT: i16 = 5;
/// The scalar of coordinates in centimetres: divide by 100 to get metres.
const CENTIMETRES: i16 = -100;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_segy() -> impl Strategy<Value = Segy> {
        (0u16..20, 0u16..).prop_flat_map(|(samples, sample_interval)| {
            let sample = prop::num::f32::NORMAL | prop::num::f32::ZERO | prop::num::f32::SUBNORMAL;
            let trace = (
                any::<i32>(),
                any::<i32>(),
                any::<i32>(),
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
            let whole = cut >= TRACES_START && (cut - TRACES_START).is_multiple_of(trace);
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
            let end = bytes.len().min(TRACES_START + 2 * TRACE_HEADER_SIZE) - TEXT_SIZE;
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

    /// Infinite samples and foreign formats are refused by name, and a scalar that multiplies is applied.
    #[test]
    fn refusals_name_the_reason() {
        let good = Segy {
            text: Vec::new(),
            sample_interval: 1,
            samples: 1,
            traces: vec![Trace {
                shot: 0,
                source_x_cm: 3,
                receiver_x_cm: i32::MAX,
                samples: vec![0.0],
            }],
        }
        .to_bytes();
        let with = |byte: usize, field: [u8; 2]| {
            let mut bytes = good.clone();
            put(&mut bytes, byte, field);
            Segy::parse(&bytes)
        };
        assert_eq!(with(3225, [0, 1]).unwrap_err(), SegyError::Format { code: 1 });
        assert_eq!(
            with(3505, [0xff, 0xff]).unwrap_err(),
            SegyError::ExtendedHeaders { count: -1 }
        );
        assert_eq!(
            with(3841, [0x7f, 0x80]).unwrap_err(),
            SegyError::NotFinite { trace: 0, sample: 0 }
        );
        assert_eq!(
            with(3600 + 71, [0, 10]).unwrap_err(),
            SegyError::Coordinate { trace: 0, scalar: 10 }
        );
        assert!(with(3600 + 115, [0, 0]).is_ok());
        assert!(matches!(
            with(3600 + 115, [0, 9]).unwrap_err(),
            SegyError::Samples { samples: 9, .. }
        ));
    }
}
