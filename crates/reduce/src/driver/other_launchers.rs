//! Launchers that make a process one of several, and do not offer it PMI.

/// Another launcher, and the place of this process in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherLauncher {
    pub(super) name: &'static str,
    pub(super) rank: u32,
    pub(super) ranks: u32,
}

/// The launcher that has started this process beside others, by its variables.
pub(super) fn other_launcher(variable: impl Fn(&str) -> Option<String>) -> Option<OtherLauncher> {
    let number = |name| variable(name)?.parse().ok();
    LAUNCHERS.iter().find_map(|&(name, sign, rank, ranks)| {
        variable(sign)?;
        let (rank, ranks) = (number(rank)?, number(ranks)?);
        (ranks > 1 && rank < ranks).then_some(OtherLauncher { name, rank, ranks })
    })
}

/// Launchers with a variable that they alone set, and those of the rank and of the number of ranks. Those of the number
/// are set for processes that the launcher starts, and not for the script of a batch job.
const LAUNCHERS: [(&str, &str, &str, &str); 3] = [
    (
        "mpirun of Open MPI",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
    ),
    (
        "srun of Slurm",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
    ),
    ("torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A process is one of several if a launcher's own variables say so.
    #[test]
    fn processes_beside_others_are_found() {
        let of = |set: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            other_launcher(value).map(|found| (found.name, found.rank, found.ranks))
        };
        let torchrun = [("TORCHELASTIC_RUN_ID", "x"), ("RANK", "1"), ("WORLD_SIZE", "4")];
        assert_eq!(of(&torchrun), Some(("torchrun", 1, 4)));
        assert_eq!(of(&torchrun[1..]), None);
        let srun = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(of(&srun), Some(("srun of Slurm", 0, 2)));
        assert_eq!(
            of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")]),
            None,
            "a batch script"
        );
        let mpirun = |size| [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", size)];
        assert_eq!(of(&mpirun("3")), Some(("mpirun of Open MPI", 0, 3)));
        assert_eq!(of(&mpirun("1")), None);
        assert_eq!(of(&mpirun("many")), None);
        assert_eq!(of(&[]), None);
    }
}
