//! The ways in which users start programs of MPI.

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// An executable that was compiled with the library.
    Program,
    /// Python with mpi4py.
    Python,
    /// A shell script that executes the program.
    Script,
    /// A script that starts the program with the library's own launcher.
    NestedLauncher,
    /// `MPI_Comm_spawn`.
    Spawn,
    /// `MPI_Publish_name`, `MPI_Lookup_name` and `MPI_Unpublish_name`.
    Names,
    /// mpi4py's `MPIPoolExecutor`, which spawns its workers.
    Pool,
    /// The program on two hosts with addresses of their own.
    TwoHosts,
}

impl Way {
    pub(super) const ALL: [Self; 8] = [
        Self::Program,
        Self::Python,
        Self::Script,
        Self::NestedLauncher,
        Self::Spawn,
        Self::Names,
        Self::Pool,
        Self::TwoHosts,
    ];

    /// The heading of the column.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Program => "ELF",
            Self::Python => "Python",
            Self::Script => "script",
            Self::NestedLauncher => "nested mpirun",
            Self::Spawn => "spawn",
            Self::Names => "names",
            Self::Pool => "pool",
            Self::TwoHosts => "two hosts",
        }
    }

    /// The number of ranks that the launcher starts.
    pub(super) fn ranks(self) -> u32 {
        match self {
            Self::NestedLauncher | Self::Pool => 1,
            Self::Spawn | Self::Names => 2,
            Self::Program | Self::Python | Self::Script => 3,
            Self::TwoHosts => 4,
        }
    }

    /// The last words of a rank: the kind of job, and how many processes met.
    pub(super) fn expected(self) -> (&'static str, u32) {
        match self {
            Self::NestedLauncher => ("met", NESTED_RANKS),
            Self::Spawn => ("spawned", 4),
            Self::Names => ("named", 2),
            Self::Pool => ("pooled", 1),
            Self::Program | Self::Python | Self::Script | Self::TwoHosts => ("met", self.ranks()),
        }
    }

    /// The argument of the program.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Spawn => "spawn",
            Self::Names => "names",
            Self::Pool => "pool",
            _ => "meet",
        }
    }
}

/// The number of ranks that the nested launcher starts.
pub(super) const NESTED_RANKS: u32 = 2;
