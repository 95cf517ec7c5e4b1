//! Where the traces of a file were recorded, from their headers.

use std::io::{Read, Seek};

use clap::ValueEnum;

use crate::{
    PlanError, SegyError, SegyReader, SurveyLine, TraceHeader,
    segy_header::{COORDINATE_UNITS_BYTE, DELAY_BYTE, TIME_SCALAR_BYTE, scale},
};

/// Which fields of trace headers are positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Positions {
    /// Source and group coordinates if some of both are not 0; else the CDP coordinates, in a file of revision 1.
    #[default]
    Auto,
    /// The CDP coordinates are midpoints; source and receiver are half of the offset before and behind.
    Cdp,
    /// Source and group coordinates.
    SourceGroup,
}

/// The seismic traces of a file.
pub(crate) struct TracePositions {
    pub(crate) traces: Vec<TracePosition>,
    /// Traces of other kinds.
    pub(crate) left_out: u64,
}

/// A trace and where it was recorded.
pub(crate) struct TracePosition {
    pub(crate) trace: u64,
    pub(crate) field_record: i32,
    pub(crate) place: Place,
    pub(crate) delay: Delay,
}

/// A place in the horizontal plane, in metres.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Ends { source: [f64; 2], receiver: [f64; 2] },
    Midpoint { midpoint: [f64; 2], offset_m: f64 },
}

/// The time of a trace's first sample, in milliseconds as a fraction.
#[derive(Clone, Copy)]
pub(crate) struct Delay {
    numerator: i64,
    denominator: i64,
}

impl TracePositions {
    /// Reads the headers of all traces.
    pub(crate) fn read<R: Read + Seek>(
        reader: &mut SegyReader<R>,
        positions: Positions,
    ) -> Result<Self, PlanError> {
        if reader.traces() > TRACES_MAX {
            return Err(PlanError::TooMany {
                count: reader.traces(),
                what: "traces",
                max: TRACES_MAX,
            });
        }
        let from_ends = match positions {
            Positions::Auto => has_ends(reader)?,
            Positions::Cdp => false,
            Positions::SourceGroup => true,
        };
        let (mut traces, mut left_out, mut has_midpoints) = (Vec::new(), 0, false);
        for trace in 0..reader.traces() {
            let header = reader.trace_header(trace)?;
            if !is_seismic(&header) {
                left_out += 1;
                continue;
            }
            if ![0, 1].contains(&header.coordinate_units) {
                return Err(PlanError::CoordinateUnits {
                    trace,
                    offset: reader.field_offset(trace, COORDINATE_UNITS_BYTE),
                    units: header.coordinate_units,
                });
            }
            let unit_m = reader.coordinate_unit_m(trace, &header)?;
            let metres = |point: [i32; 2]| point.map(|coordinate| f64::from(coordinate) * unit_m);
            let place = match from_ends {
                true => Place::Ends {
                    source: metres(header.source),
                    receiver: metres(header.group),
                },
                false => Place::Midpoint {
                    midpoint: metres(header.cdp),
                    offset_m: f64::from(header.offset) * reader.header().unit_m,
                },
            };
            has_midpoints |= header.cdp != [0; 2];
            traces.push(TracePosition {
                trace,
                field_record: header.field_record,
                place,
                delay: Delay::of(reader, trace, &header)?,
            });
        }
        let revision = reader.header().revision;
        if traces.is_empty() {
            return Err(PlanError::NoTraces { left_out });
        }
        // Revision 0 assigns nothing to the bytes of the CDP coordinates.
        if positions == Positions::Auto && !from_ends && (!has_midpoints || revision == 0) {
            return Err(PlanError::NoPositions { revision });
        }
        Ok(Self { traces, left_out })
    }

    /// Midpoints become sources and receivers. The offset of a trace has its sign along this line, the one that the
    /// traces were recorded along.
    pub(crate) fn resolve(&mut self, line: &SurveyLine) {
        for trace in &mut self.traces {
            if let Place::Midpoint { midpoint, offset_m } = trace.place {
                let place =
                    |part: f64| [0, 1].map(|axis| midpoint[axis] + part * offset_m * line.direction[axis]);
                trace.place = Place::Ends {
                    source: place(-0.5),
                    receiver: place(0.5),
                };
            }
        }
    }

    /// All places that have to be on the line.
    pub(crate) fn points(&self) -> impl Iterator<Item = [f64; 2]> + Clone {
        self.traces.iter().flat_map(|trace| trace.place.points())
    }

    /// The largest distance from the line, if none is above the tolerance.
    pub(crate) fn distance_max_m<R: Read + Seek>(
        &self,
        reader: &SegyReader<R>,
        line: &SurveyLine,
        tolerance_m: f64,
    ) -> Result<f64, PlanError> {
        let mut distance_max_m: f64 = 0.0;
        for position in &self.traces {
            let [one, other] = position.place.points().map(|point| line.distance_m(point));
            let distance_m = one.max(other);
            if distance_m > tolerance_m {
                return Err(PlanError::OffLine {
                    trace: position.trace,
                    offset: reader.trace_offset(position.trace),
                    distance_m,
                    tolerance_m,
                });
            }
            distance_max_m = distance_max_m.max(distance_m);
        }
        Ok(distance_max_m)
    }
}

impl Place {
    /// The source and the receiver, or the midpoint twice.
    pub(crate) fn points(self) -> [[f64; 2]; 2] {
        match self {
            Self::Ends { source, receiver } => [source, receiver],
            Self::Midpoint { midpoint, .. } => [midpoint; 2],
        }
    }

    pub(crate) fn midpoint(self) -> [f64; 2] {
        let [one, other] = self.points();
        [0, 1].map(|axis| 0.5 * (one[axis] + other[axis]))
    }

    /// The places of source and receiver along the line, in metres.
    pub(crate) fn ends_m(self, line: &SurveyLine) -> [f64; 2] {
        match self {
            Self::Ends { source, receiver } => [source, receiver].map(|point| line.x_m(point)),
            Self::Midpoint { midpoint, offset_m } => {
                let x_m = line.x_m(midpoint);
                [x_m - 0.5 * offset_m, x_m + 0.5 * offset_m]
            }
        }
    }
}

impl Delay {
    fn of<R: Read + Seek>(
        reader: &SegyReader<R>,
        trace: u64,
        header: &TraceHeader,
    ) -> Result<Self, SegyError> {
        // The bytes of the scalar are unassigned in revision 0.
        let scalar = match reader.header().revision {
            0 => 0,
            _ => header.time_scalar,
        };
        let (multiplier, divisor) = scale(scalar).ok_or(SegyError::TimeScalar {
            trace,
            offset: reader.field_offset(trace, TIME_SCALAR_BYTE),
            scalar,
        })?;
        Ok(Self {
            numerator: i64::from(header.delay) * multiplier,
            denominator: divisor,
        })
    }

    /// The delay in sample intervals, if it is a whole number of them that 32 bits can hold.
    pub(crate) fn samples(self, interval_us: u16) -> Option<i32> {
        let (dividend, divisor) = (self.numerator * 1000, self.denominator * i64::from(interval_us));
        let whole = divisor != 0 && dividend % divisor == 0;
        whole
            .then(|| dividend / divisor)
            .and_then(|samples| i32::try_from(samples).ok())
    }

    /// The error of a trace whose delay is of no use.
    pub(crate) fn error<R: Read + Seek>(self, reader: &SegyReader<R>, trace: u64) -> PlanError {
        PlanError::Delay {
            trace,
            offset: reader.field_offset(trace, DELAY_BYTE),
            delay_ms: self.numerator as f64 / self.denominator as f64,
            interval_us: reader.sample_interval(),
        }
    }
}

/// If both a source and a group coordinate of a seismic trace are not 0.
fn has_ends<R: Read + Seek>(reader: &mut SegyReader<R>) -> Result<bool, SegyError> {
    let (mut source, mut group) = (false, false);
    for trace in 0..reader.traces() {
        let header = reader.trace_header(trace)?;
        if is_seismic(&header) {
            source |= header.source != [0; 2];
            group |= header.group != [0; 2];
        }
        if source && group {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Unknown, seismic data, pressure and vertical motion; not dead traces, auxiliary ones and other components.
fn is_seismic(header: &TraceHeader) -> bool {
    matches!(header.identification, 0 | 1 | 11 | 12)
}

/// So many positions take 200 MiB.
const TRACES_MAX: u64 = 1 << 21;
