//! Reads a SEG-Y file trace by trace.

use std::io::{self, Read, Seek, SeekFrom};

use crate::{
    SegyError,
    segy_header::{
        ExtendedHeaders, FileHeader, SCALAR_BYTE, TRACE_INTERVAL_BYTE, TRACE_SAMPLES_BYTE, TraceHeader, scale,
    },
};

/// A SEG-Y file of revision 0 or 1 with samples of 32 bits, of which one trace at a time is in memory.
#[derive(Debug)]
pub struct SegyReader<R> {
    input: R,
    header: FileHeader,
    first_trace: u64,
    traces: u64,
    samples: u16,
    sample_interval: u16,
}

impl<R: Read + Seek> SegyReader<R> {
    /// Reads the headers of a file; the traces are checked when they are read.
    ///
    /// # Errors
    /// If the file is none that the program reads, or ends in the middle of a part.
    pub fn new(mut input: R) -> Result<Self, SegyError> {
        let size = input
            .seek(SeekFrom::End(0))
            .map_err(|source| SegyError::Io { offset: 0, source })?;
        let header = FileHeader::parse(&read(&mut input, 0, size, "the file's header")?)?;
        let first_trace = first_trace(&mut input, &header, size)?;
        let mut reader = Self {
            input,
            header,
            first_trace,
            traces: 0,
            samples: header.samples,
            sample_interval: header.sample_interval,
        };
        if size == first_trace {
            return Ok(reader);
        }
        let first = TraceHeader::parse(&read(&mut reader.input, first_trace, size, "a trace header")?);
        if reader.samples == 0 {
            reader.samples = first.samples;
        }
        if reader.sample_interval == 0 {
            reader.sample_interval = first.sample_interval;
        }
        if reader.samples == 0 {
            return Err(SegyError::NoSamples);
        }
        let body = size - first_trace;
        reader.traces = body / reader.trace_size();
        if !body.is_multiple_of(reader.trace_size()) {
            return Err(SegyError::Truncated {
                size,
                part: "a trace",
                offset: reader.trace_offset(reader.traces),
            });
        }
        Ok(reader)
    }

    /// The header of the file.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The number of traces.
    pub fn traces(&self) -> u64 {
        self.traces
    }

    /// Samples in each trace; 0 only if there are no traces.
    pub fn samples(&self) -> u16 {
        self.samples
    }

    /// The sample interval as in [`FileHeader`]; 0 if neither the file's header nor the first trace says.
    pub fn sample_interval(&self) -> u16 {
        self.sample_interval
    }

    /// The offset in the file of a trace.
    pub fn trace_offset(&self, trace: u64) -> u64 {
        self.first_trace + trace * self.trace_size()
    }

    /// Reads the header of a trace.
    ///
    /// # Errors
    /// If the file cannot be read, or the header contradicts that of the file.
    ///
    /// # Panics
    /// If there is no such trace.
    pub fn trace_header(&mut self, trace: u64) -> Result<TraceHeader, SegyError> {
        let mut bytes = [0; TraceHeader::SIZE];
        self.read_trace_bytes(trace, &mut bytes)?;
        self.checked(trace, &bytes)
    }

    /// Reads the header and the samples of a trace, all of them finite.
    ///
    /// # Errors
    /// As [`trace_header`](Self::trace_header), and if a sample is no finite number.
    ///
    /// # Panics
    /// If there is no such trace.
    pub fn trace(&mut self, trace: u64) -> Result<(TraceHeader, Vec<f32>), SegyError> {
        let mut bytes = vec![0; TraceHeader::SIZE + usize::from(self.samples) * SAMPLE_SIZE];
        self.read_trace_bytes(trace, &mut bytes)?;
        let (header, body) = bytes
            .split_first_chunk()
            .expect("the bytes of a trace begin with a header");
        let header = self.checked(trace, header)?;
        let format = self.header.format;
        let (samples, _) = body.as_chunks();
        let samples: Vec<f32> = samples.iter().map(|bytes| format.decode(*bytes)).collect();
        match samples.iter().position(|sample| !sample.is_finite()) {
            None => Ok((header, samples)),
            Some(sample) => Err(SegyError::NotFinite {
                trace,
                offset: self.trace_offset(trace) + (TraceHeader::SIZE + sample * SAMPLE_SIZE) as u64,
                sample,
            }),
        }
    }

    /// The factor that makes metres of a trace's coordinates.
    ///
    /// # Errors
    /// If the scalar is none of the standard's.
    pub fn coordinate_unit_m(&self, trace: u64, header: &TraceHeader) -> Result<f64, SegyError> {
        let scalar = header.coordinate_scalar;
        match scale(scalar) {
            Some((multiplier, divisor)) => Ok(self.header.unit_m * multiplier as f64 / divisor as f64),
            None => Err(SegyError::CoordinateScalar {
                trace,
                offset: self.field_offset(trace, SCALAR_BYTE),
                scalar,
            }),
        }
    }

    /// The offset in the file of a field of a trace header, which the standard counts from 1.
    pub(crate) fn field_offset(&self, trace: u64, first_byte: usize) -> u64 {
        self.trace_offset(trace) + first_byte as u64 - 1
    }

    fn trace_size(&self) -> u64 {
        (TraceHeader::SIZE + usize::from(self.samples) * SAMPLE_SIZE) as u64
    }

    fn read_trace_bytes(&mut self, trace: u64, bytes: &mut [u8]) -> Result<(), SegyError> {
        assert!(trace < self.traces, "trace {trace} of {}", self.traces);
        let offset = self.trace_offset(trace);
        read_into(&mut self.input, offset, bytes)
    }

    /// The header of a trace if it agrees with that of the file; a field that is 0 does.
    fn checked(&self, trace: u64, bytes: &[u8; TraceHeader::SIZE]) -> Result<TraceHeader, SegyError> {
        let header = TraceHeader::parse(bytes);
        if ![0, self.samples].contains(&header.samples) {
            return Err(SegyError::Samples {
                trace,
                offset: self.field_offset(trace, TRACE_SAMPLES_BYTE),
                samples: header.samples,
                expected: self.samples,
            });
        }
        if ![0, self.sample_interval].contains(&header.sample_interval) {
            return Err(SegyError::SampleInterval {
                trace,
                offset: self.field_offset(trace, TRACE_INTERVAL_BYTE),
                interval: header.sample_interval,
                expected: self.sample_interval,
            });
        }
        Ok(header)
    }
}

/// The offset of the first trace: after the extended textual headers.
fn first_trace(input: &mut (impl Read + Seek), header: &FileHeader, size: u64) -> Result<u64, SegyError> {
    let (part, header_size) = ("an extended textual header", ExtendedHeaders::SIZE as u64);
    let mut offset = FileHeader::SIZE as u64;
    match header.extended {
        ExtendedHeaders::Count(count) => {
            let end = offset + u64::from(count) * header_size;
            if end <= size {
                return Ok(end);
            }
            let whole = (size - offset) / header_size;
            let offset = offset + whole * header_size;
            Err(SegyError::Truncated { size, part, offset })
        }
        ExtendedHeaders::UntilEnd => loop {
            let text: [u8; ExtendedHeaders::SIZE] = read(input, offset, size, part)?;
            offset += header_size;
            if ExtendedHeaders::is_last(&text) {
                return Ok(offset);
            }
        },
    }
}

fn read<const N: usize>(
    input: &mut (impl Read + Seek),
    offset: u64,
    size: u64,
    part: &'static str,
) -> Result<[u8; N], SegyError> {
    if size.saturating_sub(offset) < N as u64 {
        return Err(SegyError::Truncated { size, part, offset });
    }
    let mut bytes = [0; N];
    read_into(input, offset, &mut bytes)?;
    Ok(bytes)
}

fn read_into(input: &mut (impl Read + Seek), offset: u64, bytes: &mut [u8]) -> Result<(), SegyError> {
    let mut read = || -> io::Result<()> {
        input.seek(SeekFrom::Start(offset))?;
        input.read_exact(bytes)
    };
    read().map_err(|source| SegyError::Io { offset, source })
}

const SAMPLE_SIZE: usize = size_of::<f32>();

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::{
        Segy, Trace,
        segy_header::{EXTENDED_BYTE, FORMAT_BYTE, MEASUREMENT_BYTE, REVISION_BYTE, SAMPLES_BYTE, put},
    };

    /// Two traces of two samples at an interval of 4 ms.
    fn file() -> Vec<u8> {
        let trace = |shot, samples: [f32; 2]| Trace {
            shot,
            source_x_cm: 100,
            receiver_x_cm: 250,
            samples: samples.to_vec(),
        };
        Segy {
            text: Vec::new(),
            sample_interval: 4000,
            samples: 2,
            traces: vec![trace(7, [1.0, -2.0]), trace(8, [0.5, 3.0])],
        }
        .to_bytes()
    }

    fn with(changes: &[(usize, i16)]) -> Vec<u8> {
        let mut bytes = file();
        for (byte, field) in changes {
            put(&mut bytes, *byte, field.to_be_bytes());
        }
        bytes
    }

    /// Reads all traces.
    fn read_all(bytes: &[u8]) -> Result<Vec<(TraceHeader, Vec<f32>)>, SegyError> {
        let mut reader = SegyReader::new(Cursor::new(bytes))?;
        (0..reader.traces()).map(|trace| reader.trace(trace)).collect()
    }

    fn message(bytes: &[u8]) -> String {
        read_all(bytes).unwrap_err().to_string()
    }

    const SECOND_TRACE: usize = FileHeader::SIZE + TraceHeader::SIZE + 8;

    /// Each damage of a header or sample is an error with the trace, the offset, what came and what was expected.
    #[test]
    fn errors_name_the_place() {
        for (byte, field, expected) in [
            (
                FORMAT_BYTE,
                3,
                "offset 3224: sample format 3 (integer of 16 bits)",
            ),
            (FORMAT_BYTE, 0, "sample format 0 (none of the standard)"),
            (FORMAT_BYTE, 0x0500, "5 in little-endian order"),
            (REVISION_BYTE, 0x0200, "offset 3500: SEG-Y revision 2.0"),
            (MEASUREMENT_BYTE, 3, "offset 3254: measurement system 3"),
            (EXTENDED_BYTE, -2, "offset 3504: -2 extended textual headers"),
            (
                SECOND_TRACE + TRACE_SAMPLES_BYTE,
                3,
                "trace 1, offset 3962: 3 samples, expected 2",
            ),
            (
                SECOND_TRACE + TRACE_INTERVAL_BYTE,
                1,
                "trace 1, offset 3964: sample interval 1, expected 4000",
            ),
            (
                SECOND_TRACE + 245,
                0x7f80,
                "trace 1, offset 4092: sample 1 is no finite number",
            ),
        ] {
            let message = message(&with(&[(byte, field)]));
            assert!(message.contains(expected), "{message}");
        }
        let scalar = with(&[(SECOND_TRACE + SCALAR_BYTE, 7)]);
        let message = Segy::parse(&scalar).unwrap_err().to_string();
        assert!(
            message.contains("trace 1, offset 3918: coordinate scalar 7"),
            "{message}"
        );
        let far = with(&[
            (SECOND_TRACE + SCALAR_BYTE, 10_000),
            (SECOND_TRACE + 73, i16::MAX),
        ]);
        let message = Segy::parse(&far).unwrap_err().to_string();
        assert!(
            message.contains("trace 1, offset 3848: a coordinate of"),
            "{message}"
        );
    }

    /// A number of samples or an interval that the file's header or a trace leaves at 0 comes from the other; none
    /// at all is an error only for the samples.
    #[test]
    fn zero_fields_come_from_the_other_header() {
        let traces = [FileHeader::SIZE, SECOND_TRACE];
        let in_traces: Vec<_> = traces
            .iter()
            .flat_map(|start| [(start + TRACE_SAMPLES_BYTE, 0), (start + TRACE_INTERVAL_BYTE, 0)])
            .collect();
        let samples = |bytes: &[u8]| read_all(bytes).unwrap().into_iter().map(|(_, samples)| samples);
        let whole: Vec<_> = samples(&file()).collect();
        assert_eq!(whole, [[1.0, -2.0], [0.5, 3.0]]);
        assert!(samples(&with(&in_traces)).eq(whole.clone()));
        let in_file = [(SAMPLES_BYTE, 0), (3217, 0)];
        assert!(samples(&with(&in_file)).eq(whole));
        let reader = SegyReader::new(Cursor::new(with(&in_file))).unwrap();
        assert_eq!((reader.samples(), reader.sample_interval()), (2, 4000));
        assert!(message(&with(&[&in_traces[..], &in_file].concat())).contains("no number of samples"));
    }

    /// Extended textual headers are skipped: a number of them, or all until the last, and none in revision 0, which
    /// has other uses for the number.
    #[test]
    fn extended_headers_are_skipped() {
        let extended = |count: i16, texts: &[&[u8]]| {
            let mut bytes = with(&[(EXTENDED_BYTE, count)]);
            let traces = bytes.split_off(FileHeader::SIZE);
            for text in texts {
                bytes.extend_from_slice(text);
                bytes.resize(bytes.len().next_multiple_of(100), b' ');
                bytes.resize(bytes.len() + ExtendedHeaders::SIZE - 100, b' ');
            }
            [bytes, traces].concat()
        };
        let plain = read_all(&file()).unwrap();
        for bytes in [
            extended(2, &[b"((SEG: Location Data))", b"more"]),
            extended(-1, &[b"((SEG: Location Data))", b"more", b"((SEG: EndText))"]),
        ] {
            assert_eq!(read_all(&bytes).unwrap(), plain);
        }
        assert_eq!(
            read_all(&with(&[(REVISION_BYTE, 0), (EXTENDED_BYTE, 9)])).unwrap(),
            plain
        );
        assert!(message(&with(&[(EXTENDED_BYTE, 9)])).contains("an extended textual header"));
        assert!(message(&extended(-1, &[b"first"])).contains("an extended textual header"));
    }

    /// The samples of a file of format 1 are IBM's.
    #[test]
    fn ibm_samples_are_converted() {
        let bytes = with(&[
            (FORMAT_BYTE, 1),
            (SECOND_TRACE + 241, 0x4276u16 as i16),
            (SECOND_TRACE + 243, -0x6000),
        ]);
        assert_eq!(read_all(&bytes).unwrap()[1].1[0], 118.625);
        let huge = with(&[(FORMAT_BYTE, 1), (SECOND_TRACE + 241, 0x7fff)]);
        assert!(message(&huge).contains("trace 1, offset 4088: sample 0 is no finite number"));
    }
}
