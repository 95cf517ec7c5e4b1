//! From the wave equation to the image: what the migration makes of modelled data.

#![expect(
    clippy::unwrap_used,
    reason = "what the tests share is outside of test functions, where the lint is off"
)]

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use psdm::{
    Diffractor, EarthModel, MigrateError, Section, Survey, SurveyError, SurveyOptions, SurveySize,
    WorkerOptions, prepare_survey, run_serial, run_worker, write_picture,
};

const OPTIONS: SurveyOptions = SurveyOptions {
    seed: 7,
    size: SurveySize::Small,
};

/// A survey that the tests share; none of them changes it.
static SURVEY: LazyLock<Survey> = LazyLock::new(|| {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("surveys");
    prepare_survey(&OPTIONS, &cache, |_, _| ()).unwrap()
});

fn options(out: &Path) -> WorkerOptions {
    WorkerOptions {
        survey_dir: SURVEY.folder().to_owned(),
        out_dir: out.to_owned(),
    }
}

/// A copy of the shared survey that a test may damage.
fn copy_of_survey(folder: &Path) -> PathBuf {
    let copy = folder.join("survey");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(SURVEY.folder()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    copy
}

/// The envelope of every column: the amplitude whatever the phase.
fn envelope(section: &Section) -> Section {
    let rows = section.grid.rows;
    let column_envelope = |column: &[f32]| -> Vec<f32> {
        let quadrature = |row: usize| -> f32 {
            let odd = (0..rows).filter(|other| other.abs_diff(row) % 2 == 1);
            odd.map(|other| column[other] * std::f32::consts::FRAC_2_PI / (row as f32 - other as f32))
                .sum()
        };
        (0..rows).map(|row| column[row].hypot(quadrature(row))).collect()
    };
    Section {
        grid: section.grid,
        values: section.values.chunks(rows).flat_map(column_envelope).collect(),
    }
}

/// The image of a point diffractor has the peak of its envelope within one cell of where the point was put, and
/// there is little beside it.
#[test]
fn diffractors_focus_where_they_were_put() {
    let out = tempfile::tempdir().unwrap();
    let stack = run_serial(&options(out.path()), 1, |_, _| ()).unwrap().stack;
    let envelope = envelope(&stack);
    let diffractors = EarthModel::new(&OPTIONS).diffractors;
    assert!(!diffractors.is_empty());
    for Diffractor { column, row } in diffractors {
        let near = (column - 12..=column + 12)
            .flat_map(|column| (row - 12..=row + 12).map(move |row| (column, row)))
            .max_by(|a, b| envelope.at(a.0, a.1).total_cmp(&envelope.at(b.0, b.1)))
            .unwrap();
        assert!(
            near.0.abs_diff(column) <= 1 && near.1.abs_diff(row) <= 1,
            "a diffractor at column {column}, row {row} is imaged at {near:?}"
        );
        for side in [column - 12, column + 12] {
            let beside = (row - 3..=row + 3).map(|row| envelope.at(side, row));
            assert!(
                beside.fold(0.0, f32::max) < 0.25 * envelope.at(near.0, near.1),
                "smeared"
            );
        }
    }
}

/// The reflector lies, within one cell, where the velocity steps up, and the step up is a positive peak.
#[test]
fn reflector_lies_where_the_velocity_steps() {
    let out = tempfile::tempdir().unwrap();
    let stack = run_serial(&options(out.path()), 1, |_, _| ()).unwrap().stack;
    let model = EarthModel::new(&OPTIONS);
    for column in (30..150).step_by(10) {
        let depths = 95..150;
        let contrast = |row| model.velocity.at(column, row) - model.background.at(column, row);
        let whole_step = contrast(depths.end);
        // The cell with the interface in it has a part of the step.
        let steps: f32 = depths.clone().map(|row| contrast(row) / whole_step).sum();
        let interface = depths.end as f32 - 0.5 - steps;
        let peak = depths
            .max_by(|a, b| stack.at(column, *a).total_cmp(&stack.at(column, *b)))
            .unwrap();
        assert!(
            (interface - peak as f32).abs() <= 1.0,
            "column {column}: interface at {interface}, peak at {peak}"
        );
    }
}

/// However many workers the shots are dealt to, the gathers differ by rounding only; and for one number of
/// workers they are the same, bit for bit.
#[test]
fn image_does_not_depend_on_the_number_of_workers() {
    let out = tempfile::tempdir().unwrap();
    let run = |parts| {
        let migrated = run_serial(&options(out.path()), parts, |_, _| ()).unwrap();
        (migrated.digest, fs::read(migrated.gathers).unwrap())
    };
    let values = |npy: &[u8]| -> Vec<f32> {
        let header = 10 + usize::from(u16::from_le_bytes([npy[8], npy[9]]));
        npy[header..]
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    };
    let (one_digest, one) = run(1);
    let one = values(&one);
    let largest = one.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    for parts in [2, 3, 5] {
        let (digest, bytes) = run(parts);
        assert_ne!(digest, one_digest, "the sum is rounded in another order");
        let off = one
            .iter()
            .zip(values(&bytes))
            .fold(0.0f32, |off, (one, other)| off.max((one - other).abs()));
        assert!(off < 2e-6 * largest, "{parts} parts: off by {off} of {largest}");
        assert_eq!(run(parts), (digest, bytes), "{parts} parts, twice");
    }
}

/// A worker that is a job of its own writes what one serial part does.
#[test]
fn lone_worker_equals_one_part() {
    let out = tempfile::tempdir().unwrap();
    let worker = run_worker(&options(&out.path().join("worker"))).unwrap().unwrap();
    let serial = run_serial(&options(&out.path().join("serial")), 1, |_, _| ()).unwrap();
    assert_eq!(worker.digest, serial.digest);
    assert_eq!(
        fs::read(worker.gathers).unwrap(),
        fs::read(serial.gathers).unwrap()
    );
    assert_eq!(
        fs::read(worker.section).unwrap(),
        fs::read(serial.section).unwrap()
    );
    assert_eq!(worker.receipt.unwrap().contributions, 1);
}

/// The picture is twice as large as the section with room for its axes, and neither empty nor flat.
#[test]
fn picture_shows_something() {
    let out = tempfile::tempdir().unwrap();
    let stack = run_serial(&options(out.path()), 1, |_, _| ()).unwrap().stack;
    let path = out.path().join("image.png");
    write_picture(&stack, &path).unwrap();
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(&path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), (2 * 200 + 107, 2 * 160 + 134));
    let share = |part: &dyn Fn(u8) -> bool| {
        pixels.iter().filter(|&&pixel| part(pixel)).count() as f32 / pixels.len() as f32
    };
    assert!(share(&|pixel| pixel < 64) > 0.005 && share(&|pixel| pixel > 192) > 0.005);
    assert!(share(&|pixel| (96..160).contains(&pixel)) > 0.5);
}

/// A missing, cut or altered shot file, and a folder without a survey, are errors that name the file.
#[test]
fn damage_is_told_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let survey = copy_of_survey(folder.path());
    let options = WorkerOptions {
        survey_dir: survey.clone(),
        out_dir: folder.path().join("out"),
    };
    let shot = survey.join("shot-003.sgy");
    let whole = fs::read(&shot).unwrap();
    let message = || {
        let error = run_serial(&options, 1, |_, _| ()).unwrap_err();
        assert!(!options.out_dir.exists(), "no result is left behind");
        assert!(matches!(error, MigrateError::Survey(_)));
        error.to_string()
    };

    fs::remove_file(&shot).unwrap();
    assert!(message().contains("shot-003.sgy cannot be read"));
    fs::write(&shot, &whole[..whole.len() - 1]).unwrap();
    assert!(message().contains("shot-003.sgy was changed or damaged"));
    let mut altered = whole.clone();
    altered[5000] ^= 1;
    fs::write(&shot, altered).unwrap();
    assert!(message().contains("shot-003.sgy was changed or damaged"));
    fs::remove_file(survey.join("survey.json")).unwrap();
    assert!(message().contains("survey.json cannot be read"));
    fs::write(survey.join("survey.json"), "{}").unwrap();
    assert!(message().contains("survey.json is not the manifest"));
}

/// A survey is made once; when a file of it is damaged it is made again, the same; and nothing else is left in
/// the folder.
#[test]
fn damaged_survey_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let copy = cache.join(SURVEY.folder().file_name().unwrap());
    fs::rename(copy_of_survey(folder.path()), &copy).unwrap();
    let prepare = || {
        let mut calls = 0;
        let survey = prepare_survey(&OPTIONS, &cache, |_, _| calls += 1).unwrap();
        assert_eq!(survey.folder(), copy);
        assert_eq!(
            fs::read(copy.join("shot-001.sgy")).unwrap(),
            fs::read(SURVEY.folder().join("shot-001.sgy")).unwrap()
        );
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
        calls
    };
    assert_eq!(prepare(), 1, "told at once that all is there");
    fs::write(copy.join("shot-001.sgy"), "damaged").unwrap();
    assert_eq!(prepare(), 1 + SURVEY.shots());
}

/// A cache that cannot be written is an error that names it and its cause.
#[test]
fn unwritable_cache_is_an_error() {
    let error = prepare_survey(&OPTIONS, Path::new("/dev/null/cache"), |_, _| ()).unwrap_err();
    assert!(matches!(error, SurveyError::Io { .. }));
    assert!(error.to_string().contains("/dev/null/cache"));
    assert!(error.source().is_some());
}
