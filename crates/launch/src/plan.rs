//! Which rank runs where, and what its environment says about it.

use std::ffi::{OsStr, OsString};

use ropewalk_group::{HostId, Rank};

use crate::{job::JobSpec, protocol::Start};

/// The variable by which the processes of a job are recognised, wherever they went.
pub(crate) const JOB_VARIABLE: &str = "ROPEWALK_JOB_ID";

/// The ranks of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    pub(crate) host: HostId,
    pub(crate) ranks: Vec<Rank>,
}

/// Deals the ranks of a job to its hosts; there is one host so far.
pub(crate) fn place(spec: &JobSpec) -> [HostPlan; 1] {
    [HostPlan {
        host: HostId(0),
        ranks: (0..spec.ranks).map(Rank).collect(),
    }]
}

/// The variables by which a rank learns who it is, without those that name descriptors. PMI's are those of
/// MPICH's Hydra; the others are what frameworks for machine learning read.
pub(crate) fn rank_variables(start: &Start, rank: Rank) -> Vec<(&'static str, String)> {
    let local_rank = start.ranks.iter().take_while(|&&other| other != rank).count();
    let local_size = start.ranks.len();
    vec![
        (JOB_VARIABLE, start.job.to_string()),
        ("PMI_RANK", rank.to_string()),
        ("PMI_SIZE", start.size.to_string()),
        ("MPI_LOCALNRANKS", local_size.to_string()),
        ("MPI_LOCALRANKID", local_rank.to_string()),
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", start.size.to_string()),
        ("LOCAL_RANK", local_rank.to_string()),
        ("LOCAL_WORLD_SIZE", local_size.to_string()),
        ("GFORTRAN_UNBUFFERED_PRECONNECTED", "y".to_owned()),
    ]
}

/// The part of the launcher's environment that ranks get: not what an outer job says about the launcher.
pub(crate) fn inheritable_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let belongs_to_outer_job = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"PMI_")
            || name.starts_with(b"MPI_LOCAL")
            || name == b"HYDI_CONTROL_FD"
            || name == ropewalk_fabric::AgentLink::VARIABLE.as_bytes()
    };
    environment
        .into_iter()
        .filter(|(name, _)| !belongs_to_outer_job(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rank has a place, once.
    #[test]
    fn all_ranks_are_placed() {
        let spec = JobSpec {
            ranks: 3,
            ..JobSpec::new("agent", "program")
        };
        let plan = place(&spec);
        assert_eq!(plan[0].ranks, [Rank(0), Rank(1), Rank(2)]);
    }

    /// A launcher that is itself a rank does not pass its own identity on.
    #[test]
    fn an_outer_job_does_not_shine_through() {
        let environment = [
            "PATH",
            "PMI_FD",
            "PMI_RANK",
            "MPI_LOCALRANKID",
            "ROPEWALK_AGENT_FD",
            "PMIX",
        ]
        .map(|name| (OsString::from(name), OsString::new()));
        let names: Vec<_> = inheritable_environment(environment)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["PATH", "PMIX"]);
    }
}
