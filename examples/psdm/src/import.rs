//! Makes a survey of a SEG-Y file that another program has written.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{
    ImportOptions, PlanError, SegyReader, Survey, SurveyError, SurveyPlan, VelocityModel, survey::at,
    survey_writer::SurveyWriter,
};

/// A survey that was imported, and how.
#[derive(Debug)]
pub struct Imported {
    /// The survey.
    pub survey: Survey,
    /// The decisions.
    pub plan: SurveyPlan,
}

/// Why a file cannot be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is a folder of the survey's name with files in it.
    #[error("{} is there and not empty, expected the name of a new folder", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The file is of no use.
    #[error("{} cannot be imported", path.display())]
    Plan {
        /// The file of traces or velocities.
        path: PathBuf,
        /// Why.
        source: PlanError,
    },
    /// The survey cannot be written.
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// Makes the survey `to` of the traces in a SEG-Y file. One shot at a time is in memory; `progress` is told how many
/// shots are done, and of how many.
///
/// # Errors
/// If a file cannot be read or written, or its traces are of no use; there is no survey then.
pub fn import_survey(
    from: &Path,
    to: &Path,
    velocity: VelocityModel<PathBuf>,
    options: &ImportOptions,
    mut progress: impl FnMut(usize, usize),
) -> Result<Imported, ImportError> {
    let occupied = || ImportError::Occupied { path: to.to_owned() };
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(occupied());
    }
    let velocity_path = match &velocity {
        VelocityModel::Constant(_) => None,
        VelocityModel::File(path) => Some(path.clone()),
    };
    let unusable = |source| ImportError::Plan {
        path: match (&source, &velocity_path) {
            (PlanError::Velocity(_), Some(path)) => path.clone(),
            _ => from.to_owned(),
        },
        source,
    };
    let velocity = match velocity {
        VelocityModel::Constant(constant) => VelocityModel::Constant(constant),
        VelocityModel::File(path) => VelocityModel::File(open(&path)?),
    };
    let mut data = open(from)?;
    let plan = SurveyPlan::new(&mut data, velocity, options).map_err(unusable)?;
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(at(parent))?;
    let mut writer = SurveyWriter::new(parent)?;
    writer.write_migration_velocity(plan.velocity())?;
    for shot in 0..plan.shots() {
        progress(shot, plan.shots());
        let record = plan.shot(&mut data, shot).map_err(unusable)?;
        writer.write_shot(shot, &record)?;
    }
    if !writer.finish(to, plan.migration_options(), None)? {
        return Err(occupied());
    }
    progress(plan.shots(), plan.shots());
    Ok(Imported {
        survey: Survey::open(to)?,
        plan,
    })
}

fn open(path: &Path) -> Result<SegyReader<File>, ImportError> {
    let file = File::open(path).map_err(|source| ImportError::Open {
        path: path.to_owned(),
        source,
    })?;
    SegyReader::new(file).map_err(|source| ImportError::Plan {
        path: path.to_owned(),
        source: source.into(),
    })
}
