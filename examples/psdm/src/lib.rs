//! Kirchhoff pre-stack depth migration of a synthetic survey, reduced by ropewalk.

mod earth_model;
mod grid;
mod modelling;
mod segy;
mod survey_options;
mod travel_time;
mod wave_field;

pub use earth_model::{Diffractor, EarthModel};
pub use grid::{Grid, Section};
pub use modelling::{ShotRecord, model_shot, model_survey};
pub use segy::{Segy, SegyError, Trace};
pub use survey_options::{Layout, SurveyOptions, SurveySize};
pub use travel_time::TravelTimes;
