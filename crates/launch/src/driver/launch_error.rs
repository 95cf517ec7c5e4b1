//! Why a job could not be run.

use std::{error::Error, io};

use ropewalk_launch_core::{
    JobSpec, placement::PlacementError, protocol::BOOTSTRAP_SIZE_MAX, restart::Refusal,
};
use thiserror::Error;

use super::requests::REQUESTS_MAX;

/// Why a job could not be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// More signals wait to be sent than may.
    #[error("{REQUESTS_MAX} signals wait to be sent to the job already: try again a little later")]
    Busy,
    /// The job was ended, since nobody took its events and more waited than may.
    #[error("the job was ended: nobody took its events")]
    EventsNotTaken,
    /// The ranks cannot be placed on the hosts.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The number of ranks is none that a job may have.
    #[error("a job has 1 to {} ranks, not {ranks}", JobSpec::RANKS_MAX)]
    Ranks {
        /// The number asked for.
        ranks: u32,
    },
    /// The preparation of the job refused to start it.
    #[error("the job was not started")]
    Refused {
        /// Why.
        source: Refusal,
    },
    /// The signal is none.
    #[error("{signal} is no signal")]
    Signal {
        /// The number given.
        signal: i32,
    },
    /// The system refused what a launcher needs.
    #[error("the system refused {what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The description of the job is too large.
    #[error("programs, arguments, environment and hosts together are larger than {BOOTSTRAP_SIZE_MAX} bytes")]
    TooLarge,
}

/// An error in one line with its causes.
pub(super) fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

/// The system refused what a launcher needs.
pub(super) fn system(what: &'static str, source: io::Error) -> LaunchError {
    LaunchError::System { what, source }
}
