//! Kirchhoff pre-stack depth migration of a survey, reduced by ropewalk.
//!
//! A survey is modelled by finite differences and written as SEG-Y files ([`prepare_survey`]), or imported from the
//! SEG-Y file of another program ([`import_survey`]). The ranks of a job read the shots from there, each its share,
//! spread them over common-image gathers ([`Migration`]), and reduce the gathers to rank 0 ([`run_worker`]);
//! [`run_serial`] makes the same bytes in one process. The sum over the gathers is the image of the earth
//! ([`write_picture`]).
//!
//! # Examples
//! ```
//! use psdm::{SurveyOptions, SurveySize, WorkerOptions, prepare_survey, run_serial, write_picture};
//!
//! let folder = tempfile::tempdir()?;
//! let options = SurveyOptions { seed: 1, size: SurveySize::Small };
//! let survey = prepare_survey(&options, folder.path(), |_done, _total| ())?;
//! let options = WorkerOptions {
//!     survey_dir: survey.folder().to_owned(),
//!     out_dir: folder.path().join("out"),
//! };
//! let migrated = run_serial(&options, 2, |_done, _total| ())?;
//! write_picture(&migrated.stack, &folder.path().join("image.png"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod earth_model;
mod gathers;
mod grid;
mod ibm_float;
mod import;
mod migration;
mod modelling;
mod picture;
mod plan_error;
mod segy;
mod segy_error;
mod segy_header;
mod segy_reader;
mod survey;
mod survey_line;
mod survey_options;
mod survey_plan;
mod survey_writer;
mod trace_bank;
mod trace_positions;
mod travel_time;
mod velocity_model;
mod wave_field;
mod worker;

pub use earth_model::{Diffractor, EarthModel};
pub use gathers::Gathers;
pub use grid::{Grid, Section};
pub use import::{ImportError, Imported, import_survey};
pub use migration::{Migration, MigrationError, MigrationOptions};
pub use modelling::{ShotRecord, model_shot, model_survey};
pub use picture::write_picture;
pub use plan_error::PlanError;
pub use segy::{Segy, Trace};
pub use segy_error::SegyError;
pub use segy_header::{ExtendedHeaders, FileHeader, SampleFormat, TraceHeader};
pub use segy_reader::SegyReader;
pub use survey::{Survey, SurveyError, prepare_survey};
pub use survey_line::SurveyLine;
pub use survey_options::{Layout, SurveyOptions, SurveySize};
pub use survey_plan::{ImportOptions, SurveyPlan};
pub use trace_positions::Positions;
pub use travel_time::TravelTimes;
pub use velocity_model::{ConstantVelocity, VelocityModel};
pub use worker::{MigrateError, Migrated, WorkerOptions, run_serial, run_worker};
