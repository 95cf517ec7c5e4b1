//! Kirchhoff pre-stack depth migration of a synthetic survey, reduced by ropewalk.

mod earth_model;
mod gathers;
mod grid;
mod migration;
mod modelling;
mod picture;
mod segy;
mod survey;
mod survey_options;
mod trace_bank;
mod travel_time;
mod wave_field;
mod worker;

pub use earth_model::{Diffractor, EarthModel};
pub use gathers::Gathers;
pub use grid::{Grid, Section};
pub use migration::{Migration, MigrationError, MigrationOptions};
pub use modelling::{ShotRecord, model_shot, model_survey};
pub use picture::write_picture;
pub use segy::{Segy, SegyError, Trace};
pub use survey::{Survey, SurveyError, prepare_survey};
pub use survey_options::{Layout, SurveyOptions, SurveySize};
pub use travel_time::TravelTimes;
pub use worker::{MigrateError, Migrated, WorkerOptions, run_serial, run_worker};
