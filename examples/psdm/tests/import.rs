//! From somebody else's SEG-Y file to the image.

#![expect(
    clippy::unwrap_used,
    reason = "what the tests share is outside of test functions, where the lint is off"
)]

use std::{
    error::Error,
    fs,
    io::Cursor,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use psdm::{
    ConstantVelocity, ImportError, ImportOptions, Migrated, PlanError, Positions, Section, Segy, SegyReader,
    Survey, SurveyOptions, SurveyPlan, SurveySize, VelocityModel, WorkerOptions, import_survey,
    prepare_survey, run_serial,
};

const OPTIONS: ImportOptions = ImportOptions {
    positions: Positions::Auto,
    tolerance_m: None,
    offset_classes: 16,
    offset_max_m: None,
};

const WATER: ConstantVelocity = ConstantVelocity {
    velocity_m_s: 1500.0,
    spacing_m: 10.0,
    depth_m: Some(50.0),
};

/// A trace as a stranger's program writes it: fields by the bytes of the standard, and samples in the file's format.
#[derive(Clone, Default)]
struct ForeignTrace {
    fields: Vec<(usize, i32)>,
    samples: Vec<u32>,
}

/// A file of the revision 1 with IEEE floats, unless fields of the binary header say otherwise.
fn foreign(fields: &[(usize, i16)], traces: &[ForeignTrace]) -> Vec<u8> {
    let mut bytes = vec![b' '; 3200];
    bytes.resize(3600, 0);
    let mut put = |byte: usize, field: i16| bytes[byte - 1..=byte].copy_from_slice(&field.to_be_bytes());
    put(3217, 2000);
    put(3221, traces[0].samples.len() as i16);
    put(3225, 5);
    put(3501, 0x100);
    for (byte, field) in fields {
        put(*byte, *field);
    }
    for trace in traces {
        let mut header = [0; 240];
        for (byte, field) in &trace.fields {
            match LONG_FIELDS.contains(byte) {
                true => header[byte - 1..byte + 3].copy_from_slice(&field.to_be_bytes()),
                false => header[byte - 1..=*byte].copy_from_slice(&(*field as i16).to_be_bytes()),
            }
        }
        bytes.extend(header);
        bytes.extend(trace.samples.iter().flat_map(|sample| sample.to_be_bytes()));
    }
    bytes
}

const LONG_FIELDS: [usize; 8] = [9, 37, 73, 77, 81, 85, 181, 185];

/// A trace of four samples, 1 to 4.
fn trace(fields: &[(usize, i32)]) -> ForeignTrace {
    ForeignTrace {
        fields: fields.to_vec(),
        samples: [1.0f32, 2.0, 3.0, 4.0].map(f32::to_bits).to_vec(),
    }
}

/// A source at `x` and a receiver 20 m on.
fn pair(x: i32) -> ForeignTrace {
    trace(&[(9, 1), (73, x), (81, x + 20)])
}

/// All shots of the survey that a file becomes.
fn shots(bytes: &[u8], velocity: ConstantVelocity, options: &ImportOptions) -> Result<Vec<Segy>, PlanError> {
    let mut reader = SegyReader::new(Cursor::new(bytes))?;
    let plan = SurveyPlan::new(&mut reader, VelocityModel::Constant(velocity), options)?;
    (0..plan.shots())
        .map(|shot| plan.shot(&mut reader, shot))
        .collect()
}

/// The places of sources and receivers in centimetres, trace by trace.
fn places(shots: &[Segy]) -> Vec<(i32, i32)> {
    let traces = shots.iter().flat_map(|shot| &shot.traces);
    traces
        .map(|trace| (trace.source_x_cm, trace.receiver_x_cm))
        .collect()
}

fn message(bytes: &[u8], options: &ImportOptions) -> String {
    shots(bytes, WATER, options).unwrap_err().to_string()
}

/// The files of the program's own survey in one, as a stranger would send them: in another order, with the line turned
/// and moved to map coordinates in decimetres, and the samples in a format of choice.
struct Stranger {
    folder: tempfile::TempDir,
    survey: Survey,
}

impl Stranger {
    fn new() -> Self {
        let options = SurveyOptions {
            seed: 7,
            size: SurveySize::Small,
        };
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("surveys");
        Self {
            folder: tempfile::tempdir().unwrap(),
            survey: prepare_survey(&options, &cache, |_, _| ()).unwrap(),
        }
    }

    /// Positions are multiples of 5 m, so that on this line they are whole decimetres.
    fn coordinates(x_cm: i32) -> [i32; 2] {
        [5_000_000 + x_cm / 10 * 3 / 5, 60_000_000 - x_cm / 10 * 4 / 5]
    }

    fn write(&self, name: &str, file: &Segy, order: impl Fn(usize) -> usize, ibm: bool) -> PathBuf {
        let traces: Vec<_> = (0..file.traces.len())
            .map(|index| {
                let trace = &file.traces[order(index)];
                let (source, group) = (
                    Self::coordinates(trace.source_x_cm),
                    Self::coordinates(trace.receiver_x_cm),
                );
                let encode = |sample: &f32| if ibm { to_ibm(*sample) } else { sample.to_bits() };
                ForeignTrace {
                    fields: vec![
                        (9, trace.shot),
                        (71, -10),
                        (73, source[0]),
                        (77, source[1]),
                        (81, group[0]),
                        (85, group[1]),
                    ],
                    samples: trace.samples.iter().map(encode).collect(),
                }
            })
            .collect();
        let format = if ibm { 1 } else { 5 };
        let bytes = foreign(&[(3217, file.sample_interval as i16), (3225, format)], &traces);
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Imports it all and migrates it.
    fn image(&self, ibm: bool) -> Migrated {
        let mut all = self.survey.read_shot(0).unwrap();
        for shot in 1..self.survey.shots() {
            all.traces.extend(self.survey.read_shot(shot).unwrap().traces);
        }
        let count = all.traces.len();
        // A prime number of steps meets every trace once.
        assert!(count < 7919);
        let data = self.write("data.sgy", &all, |index| index * 7919 % count, ibm);
        let velocity = self.survey.migration_velocity().unwrap().to_segy("");
        let velocity = self.write("velocity.sgy", &velocity, |index| index, false);
        let options = ImportOptions {
            offset_max_m: Some(self.survey.migration_options().offset_max_m),
            ..OPTIONS
        };
        let to = self.folder.path().join("imported");
        let imported = import_survey(&data, &to, VelocityModel::File(velocity), &options, |_, _| ()).unwrap();
        assert_eq!((imported.plan.traces(), imported.plan.left_out()), (count, 0));
        self.migrate(&to)
    }

    fn migrate(&self, survey: &Path) -> Migrated {
        let options = WorkerOptions {
            survey_dir: survey.to_owned(),
            out_dir: self.folder.path().join("out"),
        };
        run_serial(&options, 1, |_, _| ()).unwrap()
    }
}

/// The nearest number in IBM's format, up to three bits of the fraction less.
fn to_ibm(value: f32) -> u32 {
    let (mut fraction, mut exponent) = (value.abs(), 64);
    if value == 0.0 {
        return 0;
    }
    while fraction >= 1.0 {
        (fraction, exponent) = (fraction / 16.0, exponent + 1);
    }
    while fraction < 1.0 / 16.0 {
        (fraction, exponent) = (fraction * 16.0, exponent - 1);
    }
    (value.to_bits() & 0x8000_0000) | exponent << 24 | (fraction * 16_777_216.0) as u32
}

/// A file of the program's own traces on a line elsewhere, in another order, is imported to the same image bit for bit;
/// with IBM's floats, which have up to three bits less, to an image that differs by their rounding.
#[test]
fn a_strangers_file_has_the_image_of_the_own_survey() {
    let stranger = Stranger::new();
    let own = stranger.migrate(stranger.survey.folder());
    assert_eq!(stranger.image(false).digest, own.digest);

    fs::remove_dir_all(stranger.folder.path().join("imported")).unwrap();
    let ibm = stranger.image(true);
    assert_ne!(ibm.digest, own.digest);
    let largest = |section: &Section| {
        section
            .values
            .iter()
            .fold(0.0f32, |most, value| most.max(value.abs()))
    };
    let mut difference = own.stack.clone();
    for (value, other) in difference.values.iter_mut().zip(&ibm.stack.values) {
        *value -= other;
    }
    assert!(largest(&difference) < 1e-5 * largest(&own.stack));
}

/// Coordinates are scaled, in metres or feet, and their line begins at the leftmost position.
#[test]
fn coordinates_become_places_on_the_line() {
    let scaled = |scalar, units: i16, factor: i32| {
        let positions = [(100, 120), (100, 140), (130, 150)];
        let traces = positions.map(|(source, group)| {
            trace(&[
                (9, source),
                (71, scalar),
                (73, source * factor),
                (81, group * factor),
                (89, 1),
            ])
        });
        places(&shots(&foreign(&[(3255, units)], &traces), WATER, &OPTIONS).unwrap())
    };
    let metres = [(0, 2000), (0, 4000), (3000, 5000)];
    assert_eq!(scaled(0, 0, 1), metres);
    assert_eq!(scaled(-100, 1, 100), metres);
    assert_eq!(scaled(-1, 1, 1), metres);
    assert_eq!(
        scaled(10, 1, 1),
        metres.map(|(source, receiver)| (source * 10, receiver * 10))
    );
    assert_eq!(scaled(1, 2, 1), [(0, 610), (0, 1219), (914, 1524)]);
}

/// The traces of a field record with one source are a shot wherever they are in the file; if no record has a number,
/// the traces of one source are a shot.
#[test]
fn traces_are_gathered_into_shots() {
    let with_records = |records: [i32; 4], tolerance_m| {
        let sources = [50, 0, 50, 0];
        let traces: Vec<_> = (0..4)
            .map(|index| {
                trace(&[
                    (9, records[index]),
                    (73, sources[index] + 1000),
                    (81, 1000 + 20 * index as i32),
                ])
            })
            .collect();
        let options = ImportOptions {
            tolerance_m: Some(tolerance_m),
            ..OPTIONS
        };
        let shots = shots(&foreign(&[], &traces), WATER, &options).unwrap();
        let number = |shot: &Segy| (shot.traces[0].shot, shot.traces.len());
        (places(&shots), shots.iter().map(number).collect::<Vec<_>>())
    };
    let by_place = vec![(0, 2000), (0, 6000), (5000, 0), (5000, 4000)];
    for (records, tolerance_m, numbers) in [
        ([0; 4], 60.0, vec![(1, 2), (2, 2)]),
        ([9, 4, 9, 4], 10.0, vec![(4, 2), (9, 2)]),
        ([9; 4], 10.0, vec![(9, 2), (9, 2)]),
        ([9; 4], 60.0, vec![(9, 4)]),
    ] {
        assert_eq!(
            with_records(records, tolerance_m),
            (by_place.clone(), numbers),
            "{records:?}"
        );
    }
}

/// Midpoints and offsets are positions if there are no others, in revision 0 only when asked.
#[test]
fn midpoints_and_offsets_are_positions_too() {
    let traces =
        [(100, 40), (110, 60), (120, -20)].map(|(x, offset)| trace(&[(9, 3), (181, x), (37, offset)]));
    let expected = [(0, 4000), (0, 6000), (5000, 3000)];
    assert_eq!(
        places(&shots(&foreign(&[], &traces), WATER, &OPTIONS).unwrap()),
        expected
    );
    let revision_0 = foreign(&[(3501, 0)], &traces);
    assert!(message(&revision_0, &OPTIONS).contains("all source coordinates or all group coordinates are 0"));
    let asked = ImportOptions {
        positions: Positions::Cdp,
        ..OPTIONS
    };
    assert_eq!(places(&shots(&revision_0, WATER, &asked).unwrap()), expected);
    assert!(message(&foreign(&[], &[trace(&[])]), &OPTIONS).contains("expected others, or CDP coordinates"));
}

/// A trace that begins later than time zero gets zeros before, and one that begins earlier loses samples.
#[test]
fn delays_shift_traces_to_time_zero() {
    let with_delays = |fields: &[&[(usize, i32)]]| {
        let traces: Vec<_> = fields
            .iter()
            .map(|fields| {
                let mut trace = pair(100);
                trace.fields.extend_from_slice(fields);
                trace
            })
            .collect();
        foreign(&[], &traces)
    };
    let samples = |bytes: &[u8]| -> Vec<Vec<f32>> {
        let shots = shots(bytes, WATER, &OPTIONS).unwrap();
        shots[0]
            .traces
            .iter()
            .map(|trace| trace.samples.clone())
            .collect()
    };
    assert_eq!(
        samples(&with_delays(&[
            &[(109, 4)],
            &[(109, -2)],
            &[(109, 20), (215, -10)],
            &[]
        ])),
        [
            [0.0, 0.0, 1.0, 2.0, 3.0, 4.0],
            [2.0, 3.0, 4.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 2.0, 3.0, 4.0, 0.0],
            [1.0, 2.0, 3.0, 4.0, 0.0, 0.0],
        ]
    );
    for (fields, expected) in [
        ([(109, 3), (215, 0)], "trace 1, offset 3964: a delay of 3 ms"),
        ([(109, -8), (215, 1)], "trace 1, offset 3964: a delay of -8 ms"),
        ([(109, 8), (215, 3)], "trace 1, offset 4070: time scalar 3"),
    ] {
        let message = message(&with_delays(&[&[], &fields]), &OPTIONS);
        assert!(message.contains(expected), "{message}");
    }
}

/// Dead traces and auxiliary ones are left out; a file of nothing else is refused.
#[test]
fn only_seismic_traces_are_imported() {
    let kinds = [1, 2, 0, 6, 11].map(|kind| {
        let mut trace = pair(100);
        trace.fields.push((29, kind));
        trace
    });
    let bytes = foreign(&[], &kinds);
    let mut reader = SegyReader::new(Cursor::new(&bytes)).unwrap();
    let plan = SurveyPlan::new(&mut reader, VelocityModel::Constant(WATER), &OPTIONS).unwrap();
    assert_eq!((plan.traces(), plan.left_out()), (3, 2));
    assert!(message(&foreign(&[], &kinds[1..2]), &OPTIONS).contains("no seismic traces; 1 of other kinds"));
}

/// Positions beside the line are refused with the trace and its distance, or projected if the tolerance allows it.
#[test]
fn positions_beside_the_line_need_tolerance() {
    let mut traces: Vec<_> = (0..40).map(|index| pair(10 * index)).collect();
    traces[25].fields.extend([(77, 30), (85, 30)]);
    let bytes = foreign(&[], &traces);
    let tolerant = ImportOptions {
        tolerance_m: Some(30.0),
        ..OPTIONS
    };
    let message = message(&bytes, &OPTIONS);
    assert!(
        message.contains("trace 25, offset 10000: a position is 2"),
        "{message}"
    );
    assert!(message.contains("expected at most 10 m"), "{message}");
    assert_eq!(places(&shots(&bytes, WATER, &tolerant).unwrap()).len(), 40);
}

/// Files and options of which no survey can be made are refused with the reason.
#[test]
fn refusals_name_the_reason() {
    let degrees = trace(&[(73, 1), (81, 2), (89, 2)]);
    for (bytes, expected) in [
        (
            foreign(&[], &[pair(100), degrees]),
            "trace 1, offset 3944: coordinate units 2",
        ),
        (foreign(&[(3217, 0)], &[pair(100)]), "no sample interval"),
        (
            foreign(&[], &[pair(100), trace(&[(9, 2), (73, 50_000_000), (81, 1)])]),
            "an image of",
        ),
    ] {
        let message = message(&bytes, &OPTIONS);
        assert!(message.contains(expected), "{message}");
    }
    let bytes = foreign(&[], &[pair(100)]);
    for (velocity, options, expected) in [
        (
            ConstantVelocity {
                velocity_m_s: 3.0,
                ..WATER
            },
            OPTIONS,
            "the velocity is 3",
        ),
        (
            ConstantVelocity {
                spacing_m: 100.0,
                ..WATER
            },
            OPTIONS,
            "the spacing is 100",
        ),
        (
            ConstantVelocity {
                depth_m: Some(f32::NAN),
                ..WATER
            },
            OPTIONS,
            "the depth is NaN",
        ),
        (
            WATER,
            ImportOptions {
                offset_classes: 0,
                ..OPTIONS
            },
            "the number of offset classes is 0",
        ),
        (
            WATER,
            ImportOptions {
                tolerance_m: Some(-1.0),
                ..OPTIONS
            },
            "the tolerance is -1",
        ),
        (
            WATER,
            ImportOptions {
                offset_max_m: Some(0.0),
                ..OPTIONS
            },
            "the largest offset is 0",
        ),
    ] {
        let message = shots(&bytes, velocity, &options).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// The columns of a velocity file may run against the line of the data: the sign of an offset is that of the data.
#[test]
fn columns_may_run_against_the_line() {
    let record = [(1010, 20), (1020, 40), (1030, 60)];
    let data = foreign(
        &[],
        &record.map(|(x, offset)| trace(&[(9, 3), (181, x), (37, offset)])),
    );
    for (first, step, expected) in [
        (990, 10, [(1000, 3000), (1000, 5000), (1000, 7000)]),
        (1100, -10, [(10_000, 4000), (10_000, 6000), (10_000, 8000)]),
    ] {
        let columns = (0..12).map(|index| ForeignTrace {
            fields: vec![(181, first + step * index)],
            samples: vec![2000.0_f32.to_bits(); 3],
        });
        let velocity = foreign(&[(3217, 10_000)], &columns.collect::<Vec<_>>());
        let velocity = VelocityModel::File(SegyReader::new(Cursor::new(&velocity[..])).unwrap());
        let mut reader = SegyReader::new(Cursor::new(&data[..])).unwrap();
        let plan = SurveyPlan::new(&mut reader, velocity, &OPTIONS).unwrap();
        assert_eq!(plan.shots(), 1);
        assert_eq!(places(&[plan.shot(&mut reader, 0).unwrap()]), expected);
    }
}

/// One damaged delay in a file of many short traces would make all of them long.
#[test]
fn shots_are_bounded_in_memory() {
    let mut traces: Vec<_> = (0..2000)
        .map(|index| trace(&[(9, 1), (73, 100), (81, 120 + index)]))
        .collect();
    traces[7].fields.push((109, 30_000));
    let data = foreign(&[(3217, 500)], &traces);
    assert!(message(&data, &OPTIONS).contains("samples in a shot, expected at most 67108864"));
}

/// A velocity file that does not fit to the traces is refused with its own trace, and a folder with files in it is not
/// touched; no survey is left behind.
#[test]
fn velocities_have_to_fit() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let column = |x: i32, velocity: f32| ForeignTrace {
        fields: vec![(181, x)],
        samples: vec![velocity.to_bits(); 3],
    };
    let data = write("data.sgy", foreign(&[], &[pair(1000), pair(1000)]));
    let to = folder.path().join("survey");
    let import = |columns: &[ForeignTrace]| {
        let velocity = VelocityModel::File(write("velocity.sgy", foreign(&[(3217, 10_000)], columns)));
        import_survey(&data, &to, velocity, &OPTIONS, |_, _| ())
    };
    let columns: Vec<_> = (0..6).map(|index| column(990 + 10 * index, 2000.0)).collect();
    let with = |index: usize, changed: ForeignTrace| {
        let mut columns = columns.clone();
        columns[index] = changed;
        columns
    };
    for (columns, expected) in [
        (
            with(4, column(1036, 2000.0)),
            "trace 4, offset 4608: a column at 46.00 m from the first, expected 40.00 m",
        ),
        (
            with(3, column(1020, 50.0)),
            "trace 3, offset 4356: a velocity of 50 m/s",
        ),
        (columns[..1].to_vec(), "the number of its traces or samples is 1"),
        (
            columns[2..].to_vec(),
            "trace 0, offset 3600: a position at -10.00 m, expected 0 to 30 m",
        ),
    ] {
        let error = import(&columns).unwrap_err();
        assert!(matches!(error, ImportError::Plan { .. }));
        let chain = std::iter::successors(Some(&error as &dyn Error), |error| (*error).source());
        let message = chain.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        assert!(message.contains(expected), "{message}");
        let is_of_data = expected.contains("a position");
        assert_eq!(message.contains("velocity.sgy"), !is_of_data, "{message}");
        assert!(!to.exists());
    }
    let imported = import(&columns).unwrap();
    let shot = imported.survey.read_shot(0).unwrap();
    assert_eq!(places(&[shot]), [(1000, 3000); 2]);
    assert_eq!(imported.plan.line().start_m, [990.0, 0.0]);
    assert!(matches!(
        import(&columns).unwrap_err(),
        ImportError::Occupied { .. }
    ));
    let mut left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["data.sgy", "survey", "velocity.sgy"]);
}

proptest! {
    /// Whatever stands in the headers, an import ends with shots on the velocity model or with an error.
    #[test]
    fn damaged_headers_are_survived(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = foreign(&[], &[pair(100), pair(100), pair(110)]);
        let headers = bytes.len() - 3200;
        for (place, byte) in damage {
            bytes[3200 + place.index(headers)] = byte;
        }
        for shot in shots(&bytes, WATER, &OPTIONS).into_iter().flatten() {
            prop_assert_eq!(shot.traces[0].samples.len(), usize::from(shot.samples));
            prop_assert_eq!(&Segy::parse(&shot.to_bytes()).unwrap().traces, &shot.traces);
        }
    }
}
