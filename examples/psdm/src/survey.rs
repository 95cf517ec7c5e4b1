//! A survey on disk: a folder of SEG-Y files with a manifest.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    EarthModel, Layout, MigrationOptions, Section, Segy, SegyError, SurveyOptions, Trace, model_survey,
    survey_writer::SurveyWriter,
};

/// A survey on disk, whole at the time when it was opened.
#[derive(Clone, Debug)]
pub struct Survey {
    folder: PathBuf,
    manifest: Manifest,
}

/// The manifest of a survey's folder: its parameters and its files. It is written last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: u32,
    /// `None` if the survey was not modelled.
    pub(crate) modelled_from: Option<SurveyOptions>,
    pub(crate) migration: MigrationOptions,
    pub(crate) shots: usize,
    pub(crate) files: BTreeMap<String, FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileEntry {
    size: u64,
    blake3: String,
}

/// Why a survey cannot be made or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// A file is not the one that was written.
    #[error("{} was changed or damaged since the survey was made; delete the survey and make it again",
        path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{} cannot be read or written", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest is none, or of another version of this program.
    #[error("{} is not the manifest of a survey of this version; make the survey again", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason if it could not be read at all; `None` if it is of another version.
        source: Option<serde_json::Error>,
    },
    /// A file is no SEG-Y file that we read.
    #[error("{} is no readable SEG-Y file", path.display())]
    Segy {
        /// The file.
        path: PathBuf,
        /// Why.
        source: SegyError,
    },
    /// A velocity model is not a regular grid of velocities.
    #[error("{} holds no velocity model: {reason}", path.display())]
    Velocity {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
}

/// Makes a survey in a folder below `cache`, or opens the one that is there already.
///
/// The folder's name follows from everything that the survey follows from. It is filled under another name and
/// renamed at the end, so that an interrupted run leaves nothing that looks like a survey; a damaged survey is
/// made again. `progress` is told how many shots are done, and of how many.
///
/// # Errors
/// If the files cannot be written.
pub fn prepare_survey(
    options: &SurveyOptions,
    cache: &Path,
    mut progress: impl FnMut(usize, usize),
) -> Result<Survey, SurveyError> {
    let layout = options.layout();
    let model = EarthModel::new(options);
    let folder = cache.join(format!("survey-{}", key(options, &layout, &model)));
    if folder.exists() {
        match Survey::open(&folder).and_then(|survey| survey.verify().map(|()| survey)) {
            Ok(survey) => {
                progress(layout.shots, layout.shots);
                return Ok(survey);
            }
            Err(_) => fs::remove_dir_all(&folder).map_err(at(&folder))?,
        }
    }
    fs::create_dir_all(cache).map_err(at(cache))?;
    let mut writer = SurveyWriter::new(cache)?;
    write_survey(options, &layout, &model, &mut writer, &mut progress)?;
    // Somebody else may have been faster with the same survey.
    writer.finish(&folder, layout.migration_options(), Some(*options))?;
    Survey::open(&folder)
}

impl Survey {
    /// Opens a survey that [`prepare_survey`] or [`import_survey`](crate::import_survey) has made.
    ///
    /// # Errors
    /// If the manifest cannot be read.
    pub fn open(folder: &Path) -> Result<Self, SurveyError> {
        let path = folder.join(MANIFEST);
        let bytes = read_at_most(&path, MANIFEST_SIZE_MAX).map_err(at(&path))?;
        let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|source| SurveyError::Manifest {
            path: path.clone(),
            source: Some(source),
        })?;
        if manifest.format != FORMAT {
            return Err(SurveyError::Manifest { path, source: None });
        }
        Ok(Self {
            folder: folder.to_owned(),
            manifest,
        })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The parameters that it was modelled from; `None` if it was not modelled.
    pub fn modelled_from(&self) -> Option<&SurveyOptions> {
        self.manifest.modelled_from.as_ref()
    }

    /// The parameters of its image.
    pub fn migration_options(&self) -> MigrationOptions {
        self.manifest.migration
    }

    /// The number of shots.
    pub fn shots(&self) -> usize {
        self.manifest.shots
    }

    /// The file of one shot, counted from 0.
    pub fn shot_path(&self, shot: usize) -> PathBuf {
        self.folder.join(shot_file(shot))
    }

    /// Reads the record of one shot, counted from 0.
    ///
    /// # Errors
    /// If the file is not there, not as it was written, or no SEG-Y file.
    pub fn read_shot(&self, shot: usize) -> Result<Segy, SurveyError> {
        self.read_segy(&shot_file(shot)).map(|(segy, _)| segy)
    }

    /// Reads the smooth velocity that the survey is migrated with, in m/s.
    ///
    /// # Errors
    /// As [`read_shot`](Self::read_shot), and if the file holds no velocity model.
    pub fn migration_velocity(&self) -> Result<Section, SurveyError> {
        let (segy, path) = self.read_segy(MIGRATION_VELOCITY)?;
        let section = Section::from_segy(&segy).map_err(|reason| SurveyError::Velocity {
            path: path.clone(),
            reason,
        })?;
        match section
            .values
            .iter()
            .all(|velocity| VELOCITIES_M_S.contains(velocity))
        {
            true => Ok(section),
            false => Err(SurveyError::Velocity {
                path,
                reason: "a value is no velocity of rocks in m/s",
            }),
        }
    }

    /// Checks that all files are there and as they were written.
    fn verify(&self) -> Result<(), SurveyError> {
        self.manifest
            .files
            .keys()
            .try_for_each(|name| self.read_file(name).map(drop))
    }

    fn read_segy(&self, name: &str) -> Result<(Segy, PathBuf), SurveyError> {
        let path = self.folder.join(name);
        match Segy::parse(&self.read_file(name)?) {
            Ok(segy) => Ok((segy, path)),
            Err(source) => Err(SurveyError::Segy { path, source }),
        }
    }

    fn read_file(&self, name: &str) -> Result<Vec<u8>, SurveyError> {
        let path = self.folder.join(name);
        let Some(entry) = self.manifest.files.get(name) else {
            return Err(SurveyError::Changed { path });
        };
        let bytes = read_at_most(&path, entry.size.saturating_add(1)).map_err(at(&path))?;
        match FileEntry::of(&bytes) == *entry {
            true => Ok(bytes),
            false => Err(SurveyError::Changed { path }),
        }
    }
}

impl FileEntry {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            size: bytes.len() as u64,
            blake3: blake3::hash(bytes).to_string(),
        }
    }
}

fn write_survey(
    options: &SurveyOptions,
    layout: &Layout,
    model: &EarthModel,
    writer: &mut SurveyWriter,
    progress: &mut impl FnMut(usize, usize),
) -> Result<(), SurveyError> {
    writer.write(VELOCITY, &model.velocity.to_segy(VELOCITY_TEXT))?;
    writer.write_migration_velocity(&model.migration_velocity)?;
    let mut done = 0;
    progress(done, layout.shots);
    model_survey(model, layout, |record| {
        let traces = layout
            .receiver_columns(record.shot)
            .into_iter()
            .zip(record.traces);
        let segy = Segy {
            text: vec![
                "SYNTHETIC 2-D SURVEY, ACOUSTIC FINITE DIFFERENCES, DIRECT WAVE REMOVED".to_owned(),
                format!(
                    "SEED {} SHOT {} OF {}",
                    options.seed,
                    record.shot + 1,
                    layout.shots
                ),
                format!(
                    "RICKER WAVELET, PEAK {} HZ, AT TIME ZERO",
                    layout.peak_frequency_hz
                ),
            ],
            sample_interval: layout.sample_interval_us,
            samples: layout.samples,
            traces: traces
                .map(|(column, samples)| Trace {
                    shot: record.shot as i32 + 1,
                    source_x_cm: layout.grid.x_cm(layout.shot_column(record.shot)),
                    receiver_x_cm: layout.grid.x_cm(column),
                    samples,
                })
                .collect(),
        };
        writer.write_shot(record.shot, &segy)?;
        done += 1;
        progress(done, layout.shots);
        Ok(())
    })
}

/// Names all that a survey follows from.
fn key(options: &SurveyOptions, layout: &Layout, model: &EarthModel) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{FORMAT} {options:?} {layout:?}").as_bytes());
    for section in [&model.velocity, &model.background, &model.migration_velocity] {
        hasher.update(bytemuck::cast_slice(&section.values));
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

pub(crate) fn shot_file(shot: usize) -> String {
    format!("shot-{:03}.sgy", shot + 1)
}

/// The beginning of a file. A manifest that is cut is no JSON, and any other file has another digest.
fn read_at_most(path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(size_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> SurveyError + use<> {
    let path = path.to_owned();
    |source| SurveyError::Io { path, source }
}

pub(crate) const MANIFEST: &str = "survey.json";
const VELOCITY: &str = "velocity.sgy";
pub(crate) const MIGRATION_VELOCITY: &str = "migration-velocity.sgy";
/// Raised whenever the same options no longer give the same files.
pub(crate) const FORMAT: u32 = 2;
const MANIFEST_SIZE_MAX: u64 = 16 << 20;
pub(crate) const VELOCITY_TEXT: &str = "P-WAVE VELOCITY IN M/S";
pub(crate) const VELOCITIES_M_S: std::ops::RangeInclusive<f32> = 100.0..=20_000.0;
