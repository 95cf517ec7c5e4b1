//! The rows of the table.

/// A part of a suite.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) suite: Suite,
    /// The folder of MPICH's suite.
    pub(super) folder: &'static str,
}

/// A suite with the library that it tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// MPICH's with Debian's library.
    Mpich,
    /// MPICH's with the wheel's library, which can spawn. Debian's has no dynamic processes: its device is UCX.
    MpichWheel,
    /// The examples and tests of Open MPI.
    OpenMpi,
}

impl Part {
    /// The name by which it is chosen.
    pub(super) fn name(&self) -> String {
        match self.suite {
            Suite::Mpich => self.folder.to_owned(),
            Suite::MpichWheel => format!("{}-wheel", self.folder.replace('/', "-")),
            Suite::OpenMpi => "open-mpi".to_owned(),
        }
    }

    /// The name of the launcher that ours is compared with.
    pub(super) fn launcher(&self) -> &'static str {
        match self.suite {
            Suite::Mpich | Suite::MpichWheel => "Hydra",
            Suite::OpenMpi => "mpirun",
        }
    }
}

/// All parts, in the order of the table.
pub(super) const PARTS: [Part; 16] = [
    mpich("attr"),
    mpich("coll"),
    mpich("comm"),
    mpich("errhan"),
    mpich("errors"),
    mpich("group"),
    mpich("info"),
    mpich("init"),
    mpich("io"),
    mpich("pt2pt"),
    mpich("rma"),
    mpich("spawn"),
    mpich("topo"),
    Part {
        suite: Suite::MpichWheel,
        folder: "spawn",
    },
    Part {
        suite: Suite::MpichWheel,
        folder: "errors/spawn",
    },
    Part {
        suite: Suite::OpenMpi,
        folder: "",
    },
];

const fn mpich(folder: &'static str) -> Part {
    Part {
        suite: Suite::Mpich,
        folder,
    }
}
