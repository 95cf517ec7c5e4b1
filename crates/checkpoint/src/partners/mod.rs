//! The effects around [`crate::partner`]: what hosts ask of each other, and the directory of each.

mod blocking;
mod copier;
mod guarding;
mod job_beside;
mod journals;
mod partner_error;
mod procedures;
mod process;
mod service;

pub use job_beside::{Agreed, HostJournals, Partners, PartnersError, attempt_end};
pub use journals::history_of_host;
pub use partner_error::PartnerError;
pub use process::partner_main;
pub use service::{Service, ServiceOptions};
