//! The effects around [`crate::partner`]: what hosts ask of each other, and the directory of each.

mod blocking;
mod copier;
mod guarding;
mod journals;
mod partner_error;
mod procedures;
mod service;

pub use journals::history_of_host;
pub use partner_error::PartnerError;
pub use service::{Report, Service, ServiceOptions};
