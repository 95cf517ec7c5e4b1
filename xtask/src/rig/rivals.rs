//! MPI's collectives on the hosts.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    bench_reduce::compile,
    debian, project,
    shell::{program, run},
};
use ropewalk_rig::Network;

/// An MPI library, and settings of it.
#[derive(Clone, Copy)]
pub(super) struct Rival {
    pub(super) name: &'static str,
    library: Library,
    settings: &'static [(&'static str, &'static str)],
    /// The calls of a round block, and come one after the other.
    pub(super) is_in_turn: bool,
}

#[derive(Clone, Copy)]
enum Library {
    /// Settings are variables of the environment.
    Mpich,
    /// Settings are MCA parameters.
    OpenMpi,
}

impl Rival {
    /// Each library with its defaults, and with the settings that make it fastest for long vectors. Calls at once are
    /// measured in both ways.
    pub(super) fn all(collective: &str, at_once: u32) -> Vec<Self> {
        let (mpich, open_mpi) = match collective {
            "allreduce" => (MPICH_RING, OPEN_MPI_RING),
            _ => (MPICH_BINOMIAL, OPEN_MPI_PIPELINE),
        };
        let ways: &[bool] = if at_once > 1 { &[false, true] } else { &[false] };
        let rivals = [MPICH, mpich, OPEN_MPI, open_mpi];
        let in_ways = |rival: Self| ways.iter().map(move |&is_in_turn| Self { is_in_turn, ..rival });
        rivals.into_iter().flat_map(in_ways).collect()
    }

    /// Its name, and the way if there are several calls.
    pub(super) fn full_name(&self, at_once: u32) -> String {
        match (at_once, self.is_in_turn) {
            (1, _) => self.name.to_owned(),
            (_, false) => format!("{}, at once", self.name),
            (_, true) => format!("{}, in turn", self.name),
        }
    }
}

/// The compiled programs.
pub(super) struct Programs {
    mpich: PathBuf,
    open_mpi: PathBuf,
    short_waits: PathBuf,
}

impl Programs {
    pub(super) fn build() -> anyhow::Result<Self> {
        debian::provide()?;
        let folder = project::target()?.join("rig-bench");
        fs::create_dir_all(&folder)?;
        let programs = Self {
            mpich: folder.join("mpich"),
            open_mpi: folder.join("open_mpi"),
            short_waits: folder.join("short_waits.so"),
        };
        let library = ["-O2", "-shared", "-fPIC"];
        for (compiler, flags, source, target) in [
            ("mpicc.mpich", &library[..1], "mpi_collective.c", &programs.mpich),
            (
                "mpicc.openmpi",
                &library[..1],
                "mpi_collective.c",
                &programs.open_mpi,
            ),
            ("gcc", &library[..], "short_waits.c", &programs.short_waits),
        ] {
            run(compile(compiler, flags, source, target))?;
        }
        Ok(programs)
    }

    /// The command that runs so many ranks on each host; it has to be started on host 0, and takes the words of the
    /// program after it.
    pub(super) fn command(&self, rival: &Rival, network: &Network, ranks_per_host: u16) -> Command {
        let hosts = network.hosts_with_ranks(ranks_per_host);
        let ranks = (u32::from(network.hosts()) * u32::from(ranks_per_host)).to_string();
        // Everything runs under a limit of time: MPI ranks that wait for each other do so for ever.
        let limited = ["timeout", TIME_MAX_SECONDS];
        let mut command = match rival.library {
            // Its launcher may die by SIGPIPE when ranks leave that do not finalize. What is missing in its output is
            // noticed all the same.
            Library::Mpich => program("sh", &["-c", r#""$@" || true"#, "sh"]),
            Library::OpenMpi => program("env", &[]),
        };
        command.args(limited);
        match rival.library {
            Library::Mpich => {
                command.args(["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec"]);
                command.arg(network.command());
                command.args(["-localhost", &network.address(0), "-hosts", &hosts]);
                command.args(["-disable-auto-cleanup", "-n", &ranks]);
                command.arg("-env").arg("LD_PRELOAD");
                command.arg(&self.short_waits);
                for (name, value) in MPICH_OVER_TCP.iter().chain(rival.settings) {
                    command.args(["-env", name, value]);
                }
                command.arg(&self.mpich);
            }
            Library::OpenMpi => {
                // Bound, the ranks of all hosts would share this machine's first processor.
                let words = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none"];
                command.args(words);
                command.args(["--host", &hosts, "-n", &ranks, "--mca", "plm_rsh_agent"]);
                command.arg(network.command()).arg("-x");
                command.arg(format!("LD_PRELOAD={}", self.short_waits.display()));
                for (name, value) in OPEN_MPI_OVER_TCP.iter().chain(rival.settings) {
                    command.args(["--mca", name, value]);
                }
                command.arg(&self.open_mpi);
            }
        }
        command
    }
}

const MPICH: Rival = Rival {
    name: "MPICH",
    library: Library::Mpich,
    settings: &[],
    is_in_turn: false,
};
const MPICH_BINOMIAL: Rival = Rival {
    name: "MPICH, binomial",
    settings: &[("MPIR_CVAR_REDUCE_INTRA_ALGORITHM", "binomial")],
    ..MPICH
};
const MPICH_RING: Rival = Rival {
    name: "MPICH, ring",
    settings: &[
        ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "nb"),
        ("MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM", "tsp_ring"),
    ],
    ..MPICH
};
const OPEN_MPI: Rival = Rival {
    name: "Open MPI",
    library: Library::OpenMpi,
    settings: &[],
    is_in_turn: false,
};
const OPEN_MPI_PIPELINE: Rival = Rival {
    name: "Open MPI, pipeline of 64 KiB",
    settings: &[
        ("coll_tuned_use_dynamic_rules", "1"),
        ("coll_tuned_reduce_algorithm", "3"),
        ("coll_tuned_reduce_algorithm_segmentsize", "65536"),
    ],
    ..OPEN_MPI
};
const OPEN_MPI_RING: Rival = Rival {
    name: "Open MPI, ring",
    settings: &[
        ("coll_tuned_use_dynamic_rules", "1"),
        ("coll_tuned_allreduce_algorithm", "4"),
    ],
    ..OPEN_MPI
};

/// All hosts are this machine, and have shared memory that they must not use.
const MPICH_OVER_TCP: &[(&str, &str)] = &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "eth0")];
const OPEN_MPI_OVER_TCP: &[(&str, &str)] = &[
    ("pml", "ob1"),
    ("btl", "tcp,self"),
    ("btl_tcp_if_include", "eth0"),
    ("oob_tcp_if_include", "eth0"),
];
const TIME_MAX_SECONDS: &str = "120";
