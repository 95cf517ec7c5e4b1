//! The environment variables by which a supervisor informs the program that it starts.

use std::{env, path::PathBuf};

use ropewalk_checkpoint_core::{MTBF_AT_FIRST, Mtbf};

/// The variable with the directory of the job's checkpoints.
pub const DIRECTORY_VARIABLE: &str = "ROPEWALK_CHECKPOINT_DIR";

/// The variable with the folder of the generation to start from, in which each rank has a folder
/// `rank-NNNNN`; for files in place, with the folder below which they are. Not set at the first start.
pub const RESTORE_VARIABLE: &str = "ROPEWALK_RESTORE";

/// The variable with the step of the generation to start from.
pub const RESTORE_STEP_VARIABLE: &str = "ROPEWALK_RESTORE_STEP";

/// The variable with somebody's guess of the mean time between failures, in seconds.
pub const MTBF_VARIABLE: &str = "ROPEWALK_MTBF";

/// The variable with the mean time between failures in seconds, if somebody knows it.
pub const MTBF_KNOWN_VARIABLE: &str = "ROPEWALK_MTBF_KNOWN";

/// The variable with the guess in seconds that nobody made: it follows from the number of hosts.
pub const MTBF_DEFAULT_VARIABLE: &str = "ROPEWALK_MTBF_DEFAULT";

/// The variable with the mean time between losses of a host in seconds, if saves of the full level are copied
/// to other hosts.
pub const HOST_MTBF_VARIABLE: &str = "ROPEWALK_HOST_MTBF";

/// The variable with the number of the start, by which the supervisor and the program know that they mean the same.
pub const START_VARIABLE: &str = "ROPEWALK_CHECKPOINT_START";

/// The variable with the number of the generation to start from, or `none`, if the process that starts the
/// job has decided for all ranks, which then need not ask each other; see [`Decided`].
pub const GENERATION_VARIABLE: &str = "ROPEWALK_RESTORE_GENERATION";

/// The variable with the number of the next generation, beside [`GENERATION_VARIABLE`].
pub const NEXT_VARIABLE: &str = "ROPEWALK_NEXT_GENERATION";

/// The start as decided for all ranks by the process that starts them: if each host has a directory of its
/// own, ranks do not see the generations of others. Such ranks do not remove old generations either, which is
/// done when there are copies of newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The generation to start from, which each rank has whole; the program starts from its beginning if `None`.
    pub generation: Option<u64>,
    /// The number of the next generation.
    pub next: u64,
}

/// The decision for this start by the process that has started it; `None` if there is none.
pub fn decided_of_job() -> Option<Decided> {
    let next = env::var(NEXT_VARIABLE).ok()?.parse().ok()?;
    let generation = match env::var(GENERATION_VARIABLE).ok()?.as_str() {
        "none" => None,
        number => Some(number.parse().ok()?),
    };
    Some(Decided { generation, next })
}

/// The directory of the job's checkpoints, if a supervisor keeps any.
pub fn directory_of_job() -> Option<PathBuf> {
    env::var_os(DIRECTORY_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// The job's mean time between failures, if the supervisor was told.
pub fn mtbf_of_job() -> Option<Mtbf> {
    let known = seconds(MTBF_KNOWN_VARIABLE).map(Mtbf::Known);
    known.or_else(|| seconds(MTBF_VARIABLE).map(Mtbf::Learned))
}

/// The mean time between failures of this job if nobody was told one.
pub fn default_mtbf_of_job() -> Mtbf {
    Mtbf::Learned(seconds(MTBF_DEFAULT_VARIABLE).unwrap_or(MTBF_AT_FIRST))
}

/// The mean time between losses of a host, in seconds, if the job's hosts copy what others save.
pub fn host_mtbf_of_job() -> Option<f64> {
    seconds(HOST_MTBF_VARIABLE)
}

fn seconds(variable: &str) -> Option<f64> {
    let text = env::var(variable).ok()?;
    text.parse()
        .ok()
        .filter(|seconds| (0.0..f64::INFINITY).contains(seconds))
}

/// The number that the supervisor gave this start.
pub fn start_of_job() -> Option<u64> {
    env::var(START_VARIABLE).ok()?.parse().ok()
}
