//! The migration as a job: every rank migrates its shots, the gathers are reduced to one rank.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use ropewalk_reduce::{
    BootstrapError, FoldFailed, Job, Order, Rank, Receipt, ReduceError, ReduceOptions, SpanKind, Sum,
    ordered_fold,
};
use thiserror::Error;

use crate::{Gathers, Migration, MigrationError, Section, Survey, SurveyError};

/// The folders of a worker's survey and result.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The folder of the survey.
    pub survey_dir: PathBuf,
    /// The folder that the result is written to, by rank 0.
    pub out_dir: PathBuf,
}

/// The result of a migration, and where it is.
#[derive(Clone, Debug)]
pub struct Migrated {
    /// The BLAKE3 digest of the gathers' values.
    pub digest: blake3::Hash,
    /// The NumPy file with the gathers, shape (offset classes, columns, rows).
    pub gathers: PathBuf,
    /// The SEG-Y file with their stack, with depth where time would be.
    pub section: PathBuf,
    /// The stack.
    pub stack: Section,
    /// The receipt of the reduction; `None` if the result was made serially.
    pub receipt: Option<Receipt>,
}

/// Why a migration has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The process cannot join its job.
    #[error("cannot join the job")]
    Bootstrap(#[from] BootstrapError),
    /// The process cannot leave its job in good order.
    #[error("cannot leave the job")]
    Finalize(#[source] Box<dyn Error + Send + Sync>),
    /// The serial result cannot be folded.
    #[error(transparent)]
    Fold(#[from] FoldFailed),
    /// A shot does not fit to the velocity model.
    #[error("{} cannot be migrated", path.display())]
    Migration {
        /// The shot's file.
        path: PathBuf,
        /// Why.
        source: MigrationError,
    },
    /// A result cannot be written.
    #[error("{} cannot be written", path.display())]
    Output {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The gathers cannot be reduced.
    #[error("the gathers cannot be reduced")]
    Reduce(#[from] ReduceError),
    /// The survey cannot be read.
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// Migrates this rank's shots, reduces the gathers, and writes the result on rank 0, which gets it back too.
///
/// Rank r of n has the shots r, r + n, r + 2 n, .. and adds them in this order; the reduction is ordered. So the
/// result depends on the number of ranks only, bit for bit, whatever died on the way.
///
/// # Errors
/// If the job, the survey or the disk does not do its part.
pub fn run_worker(options: &WorkerOptions) -> Result<Option<Migrated>, MigrateError> {
    let job = Job::from_env()?;
    let survey = Survey::open(&options.survey_dir)?;
    let mut migration = migration_of(&survey)?;
    let mut since_ns = job.now_ns();
    let part = Part {
        number: job.rank().0 as usize,
        of: job.size() as usize,
    };
    job.progress(PROGRESS, 0, part.shots(&survey).count() as u64);
    let gathers = migrate_part(&survey, &mut migration, part, |step| {
        let now_ns = job.now_ns();
        match step {
            Step::Read { shot } => job.span(
                SpanKind::File,
                format!("read shot {}", shot + 1),
                since_ns,
                now_ns,
            ),
            Step::Migrated { shot, done, total } => {
                job.span(SpanKind::Compute, format!("shot {}", shot + 1), since_ns, now_ns);
                job.progress(PROGRESS, done as u64, total as u64);
            }
        }
        since_ns = now_ns;
    })?;
    let (grid, classes) = (gathers.grid, gathers.classes);
    let ordered = ReduceOptions {
        order: Order::Ordered,
        ..Default::default()
    };
    let called_ns = job.now_ns();
    let reduction = job.world().reduce(gathers.values, Sum, Rank(0), &ordered)?;
    let outcome = reduction.get()?;
    job.span(SpanKind::Call, "reduce", called_ns, job.now_ns());
    let receipt = outcome.receipt;
    let migrated = outcome
        .value
        .map(|values| {
            let gathers = Gathers {
                grid,
                classes,
                values,
            };
            write_result(&gathers, &options.out_dir, Some(receipt))
        })
        .transpose()?;
    job.finalize()
        .map_err(|error| MigrateError::Finalize(error.into()))?;
    Ok(migrated)
}

/// Does in one process what as many workers do, and writes the same bytes. `progress` is told how many shots are
/// done, and of how many.
///
/// # Errors
/// If the survey or the disk does not do its part.
pub fn run_serial(
    options: &WorkerOptions,
    parts: usize,
    mut progress: impl FnMut(usize, usize),
) -> Result<Migrated, MigrateError> {
    let survey = Survey::open(&options.survey_dir)?;
    let mut migration = migration_of(&survey)?;
    let Gathers { grid, classes, .. } = migration.gathers();
    let mut done = 0;
    let partial = (0..parts.max(1))
        .map(|number| {
            let part = Part {
                number,
                of: parts.max(1),
            };
            migrate_part(&survey, &mut migration, part, |step| {
                if let Step::Migrated { .. } = step {
                    done += 1;
                    progress(done, survey.shots());
                }
            })
            .map(|gathers| gathers.values)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let values = ordered_fold(partial, Sum)?.expect("there is at least one part");
    let gathers = Gathers {
        grid,
        classes,
        values,
    };
    write_result(&gathers, &options.out_dir, None)
}

/// Which of the shots: every `of`-th from `number` on.
#[derive(Clone, Copy)]
struct Part {
    number: usize,
    of: usize,
}

impl Part {
    fn shots(self, survey: &Survey) -> impl ExactSizeIterator<Item = usize> + use<> {
        (self.number..survey.shots().max(self.number)).step_by(self.of)
    }
}

/// A step that [`migrate_part`] has just done.
enum Step {
    Read { shot: usize },
    Migrated { shot: usize, done: usize, total: usize },
}

fn migrate_part(
    survey: &Survey,
    migration: &mut Migration,
    part: Part,
    mut watch: impl FnMut(Step),
) -> Result<Gathers, MigrateError> {
    let mut gathers = migration.gathers();
    let shots = part.shots(survey);
    let total = shots.len();
    for (index, shot) in shots.enumerate() {
        let record = survey.read_shot(shot)?;
        watch(Step::Read { shot });
        migration
            .add_shot(&record, &mut gathers)
            .map_err(|source| MigrateError::Migration {
                path: survey.shot_path(shot),
                source,
            })?;
        watch(Step::Migrated {
            shot,
            done: index + 1,
            total,
        });
    }
    Ok(gathers)
}

fn migration_of(survey: &Survey) -> Result<Migration, MigrateError> {
    Ok(Migration::new(
        &survey.migration_velocity()?,
        survey.migration_options(),
    ))
}

fn write_result(gathers: &Gathers, out: &Path, receipt: Option<Receipt>) -> Result<Migrated, MigrateError> {
    fs::create_dir_all(out).map_err(|source| MigrateError::Output {
        path: out.to_owned(),
        source,
    })?;
    let stack = gathers.stack();
    Ok(Migrated {
        digest: gathers.digest(),
        gathers: write_whole(out.join("gathers.npy"), |path| gathers.write_npy(path))?,
        section: write_whole(out.join("section.sgy"), |path| {
            fs::write(path, stack.to_segy("MIGRATED SECTION").to_bytes())
        })?,
        stack,
        receipt,
    })
}

/// Writes a file under another name and renames it, so that there is never half of it.
fn write_whole(path: PathBuf, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<PathBuf, MigrateError> {
    let partial = path.with_extension("partial");
    let written = write(&partial).and_then(|()| fs::rename(&partial, &path));
    match written {
        Ok(()) => Ok(path),
        Err(source) => {
            let _ = fs::remove_file(&partial);
            Err(MigrateError::Output { path, source })
        }
    }
}

const PROGRESS: &str = "migrate";
