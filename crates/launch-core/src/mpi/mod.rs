//! Which MPI a program was made for, and what that one wants of us.
//!
//! MPICH and what descends from it (Intel MPI, MVAPICH) speak PMI over a descriptor. Open MPI up to its fourth version
//! has a component that loads a library with the functions of PMI-1, if its environment says that the job belongs to
//! the resource manager Flux and names the library: ours does what is asked of it. The variables that each reads mean
//! nothing to the other, so that every rank gets both, and what starts MPI without saying so (a script, Python) is
//! served as well. Open MPI 5 can do nothing but PMIx, and both speak it where libpmix is ([`service`]).

pub mod elf;
pub mod loader_cache;
pub mod service;

use ropewalk_names::JobId;
use thiserror::Error;

/// The MPI of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// It needs none, or does not say so.
    None,
    /// MPICH, or what has its interface.
    Mpich,
    /// Open MPI, by the number of its library `libopen-pal`, and where its `libmpi` is.
    OpenMpi {
        /// The number of `libopen-pal`.
        portable_layer: u32,
        /// The path of `libmpi`.
        library: String,
    },
    /// PMIx itself, without MPI.
    Pmix {
        /// The path of `libpmix`.
        library: String,
    },
}

/// The variable with the folder of our `libpmi.so.0`, for whoever installs it somewhere else.
pub const LIBRARY_VARIABLE: &str = "ROPEWALK_LIBRARY_DIR";
/// The names of our library; the second where cargo has built it.
pub const LIBRARY_NAMES: [&str; 2] = ["libpmi.so.0", "libpmi.so"];
/// Where it is looked for, from the folder of our executable on.
pub const LIBRARY_FOLDERS: [&str; 3] = [".", "../lib/ropewalk", "../lib"];

/// `libopen-pal.so.80` is that of Open MPI 5.0.
const PMIX_ONLY: u32 = 80;

/// Where Open MPI keeps its components, from the folder of its `libmpi` on; the second and third on Debian.
pub const COMPONENT_FOLDERS: [&str; 3] = ["openmpi", "openmpi/lib/openmpi3", "openmpi/lib/openmpi"];
/// A component that each Open MPI has which has components as files.
pub const ANY_COMPONENT: &str = "mca_pmix_isolated.so";
/// The component that we serve.
pub const FLUX_COMPONENT: &str = "mca_pmix_flux.so";

/// The findings on a host that matter to programs of Open MPI.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Our library is there.
    pub has_library: bool,
    /// Open MPI's component is not.
    pub lacks_component: bool,
    /// libpmix is there.
    pub has_pmix: bool,
}

impl Flavour {
    /// Returns true if a library's name says that it is MPI itself.
    pub fn is_mpi(library: &str) -> bool {
        library.starts_with("libmpi.so") || library.starts_with("libmpich.so")
    }

    /// The flavour of the MPI library at this path, by the libraries that it needs in turn.
    pub fn of_library(path: &str, needed: &[String]) -> Self {
        let number = |name: &String| -> Option<u32> { name.strip_prefix("libopen-pal.so.")?.parse().ok() };
        match needed.iter().find_map(number) {
            Some(portable_layer) => Self::OpenMpi {
                portable_layer,
                library: path.to_owned(),
            },
            None => Self::Mpich,
        }
    }

    /// Returns true if a library's name says that it is PMIx itself.
    pub fn is_pmix(library: &str) -> bool {
        library.starts_with("libpmix.so")
    }

    /// Returns true if its programs can be started by PMIx.
    pub fn speaks_pmix(&self) -> bool {
        matches!(self, Self::OpenMpi { .. } | Self::Pmix { .. })
    }

    /// Why several ranks of such a program would not find each other by PMI, if that is so.
    pub fn refusal(&self, means: Means) -> Option<Refusal> {
        let has_pmix = means.has_pmix;
        let (portable_layer, library) = match self {
            Self::None | Self::Mpich => return None,
            Self::OpenMpi {
                portable_layer,
                library,
            } => (*portable_layer, library.clone()),
            Self::Pmix { library } => {
                let library = library.clone();
                return Some(Refusal::Pmix { library, has_pmix });
            }
        };
        if portable_layer >= PMIX_ONLY {
            return Some(Refusal::OpenMpi5 { library, has_pmix });
        }
        if means.lacks_component {
            return Some(Refusal::NoComponent { library });
        }
        (!means.has_library).then_some(Refusal::NoLibrary { library })
    }

    /// Why a program and these others of its job would not find each other, if that is so.
    pub fn refusal_beside(&self, others: &[Self]) -> Option<Refusal> {
        let name = |flavour: &Self| match flavour {
            Self::OpenMpi { .. } => Some("Open MPI"),
            Self::Mpich => Some("MPICH"),
            Self::None | Self::Pmix { .. } => None,
        };
        let own = name(self)?;
        let other = others.iter().filter_map(name).find(|other| *other != own)?;
        Some(Refusal::OtherMpi { own, other })
    }
}

/// Why several ranks of a program would not find each other, as a clause.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The user wants PMIx, and the host does not have it.
    #[error("--pmi pmix wants libpmix, which is not on this host: install the Debian package {PMIX_PACKAGE}")]
    NoPmix,
    /// The program speaks nothing but PMIx.
    #[error("it is linked with PMIx ({library}), {}", without_pmix(*.has_pmix))]
    Pmix {
        /// The path of `libpmix`.
        library: String,
        /// The host has it for us.
        has_pmix: bool,
    },
    /// Its Open MPI speaks nothing but PMIx.
    #[error(
        "it is linked with Open MPI 5 or later ({library}), which can be started by PMIx only, {}",
        without_pmix(*.has_pmix)
    )]
    OpenMpi5 {
        /// The path of `libmpi`.
        library: String,
        /// The host has libpmix.
        has_pmix: bool,
    },
    /// Its Open MPI 4 cannot speak PMI.
    #[error(
        "it is linked with an Open MPI ({library}) that was built without {FLUX_COMPONENT}, by which it speaks PMI: \
         use Debian's Open MPI 4 or MPICH, or start it with the mpirun of that Open MPI"
    )]
    NoComponent {
        /// The path of `libmpi`.
        library: String,
    },
    /// Our library, by which its Open MPI 4 speaks PMI, is not there.
    #[error(
        "it is linked with Open MPI ({library}), which speaks PMI through ropewalk's {}, and that is not to be found: \
         it belongs beside the executable ropewalk or into {}, or into a folder that the variable {LIBRARY_VARIABLE} \
         names",
        LIBRARY_NAMES[0],
        LIBRARY_FOLDERS[1..].join(" or ")
    )]
    NoLibrary {
        /// The path of `libmpi`.
        library: String,
    },
    /// Another program of the job has another MPI.
    #[error(
        "it is linked with {own}, and another program of the job with {other}, and their ranks cannot speak with each \
         other: link all programs of a job with the same MPI, or start each by a command of its own"
    )]
    OtherMpi {
        /// The name of its MPI.
        own: &'static str,
        /// The name of the other program's.
        other: &'static str,
    },
}

/// The Debian package with libpmix.
const PMIX_PACKAGE: &str = "libpmix2";

/// The rest of a sentence about a program that needs PMIx.
fn without_pmix(has_pmix: bool) -> String {
    match has_pmix {
        true => "and --pmi says that ropewalk serves PMI only: leave that option out".to_owned(),
        false => format!("and libpmix is not on this host: install the Debian package {PMIX_PACKAGE}"),
    }
}

/// The number by which Open MPI tells a job from the others of a user on a host, in the names of its files
/// too. It takes 32 bits, the 16th of which it loses on some of its ways, and the highest of which must not
/// all be set.
pub fn open_mpi_job(job: JobId) -> u32 {
    let [a, b, c, d, ..] = job.0;
    (u32::from_le_bytes([a, b, c, d]) & 0x7fff_7fff) | 1
}

/// Returns true if a library is part of every system, and needs no MPI.
pub fn is_of_the_system(library: &str) -> bool {
    let name = library.split_once(".so").map_or(library, |(name, _)| name);
    matches!(
        name,
        "ld-linux-x86-64"
            | "ld-linux-aarch64"
            | "libc"
            | "libdl"
            | "libgcc_s"
            | "libm"
            | "libpthread"
            | "librt"
            | "libstdc++"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Means = Means {
        has_library: true,
        lacks_component: false,
        has_pmix: false,
    };

    fn flavour(needed: &[&str]) -> Flavour {
        let needed: Vec<_> = needed.iter().map(|name| (*name).to_owned()).collect();
        Flavour::of_library("/lib/libmpi.so", &needed)
    }

    /// Who cannot be served is told why, and who can is not.
    #[test]
    fn only_what_cannot_be_served_is_refused() {
        let fourth = flavour(&["libopen-rte.so.40", "libopen-pal.so.40", "libc.so.6"]);
        let fifth = flavour(&["libopen-pal.so.80", "libpmix.so.2"]);
        let mpich = flavour(&["libfabric.so.1", "libc.so.6"]);
        for (flavour, means, expected) in [
            (&mpich, ALL, None),
            (&fourth, ALL, None),
            (&fifth, ALL, Some("PMIx only")),
            (
                &fourth,
                Means {
                    has_library: false,
                    ..ALL
                },
                Some("ROPEWALK_LIBRARY_DIR"),
            ),
            (
                &fourth,
                Means {
                    lacks_component: true,
                    ..ALL
                },
                Some("without mca_pmix_flux.so"),
            ),
            (
                &mpich,
                Means {
                    has_library: false,
                    ..ALL
                },
                None,
            ),
        ] {
            let refusal = flavour.refusal(means);
            match expected {
                None => assert_eq!(refusal, None),
                Some(part) => assert!(
                    refusal.is_some_and(|refusal| refusal.to_string().contains(part)),
                    "{flavour:?}"
                ),
            }
        }
    }

    /// Programs of one job have one MPI; those that need none are beside any.
    #[test]
    fn programs_of_a_job_have_one_mpi() {
        let open = flavour(&["libopen-pal.so.40"]);
        let mpich = flavour(&["libfabric.so.1"]);
        for (own, others, is_refused) in [
            (&open, vec![], false),
            (&open, vec![Flavour::None, open.clone()], false),
            (&Flavour::None, vec![open.clone()], false),
            (&open, vec![Flavour::None, mpich.clone()], true),
            (&mpich, vec![open.clone()], true),
        ] {
            assert_eq!(
                own.refusal_beside(&others).is_some(),
                is_refused,
                "{own:?} {others:?}"
            );
        }
    }

    /// Open MPI's name of a job has no bit that it would lose, and is not 0.
    #[test]
    fn open_mpi_can_keep_the_jobs_number() {
        assert_eq!(open_mpi_job(JobId([0xff; 16])), 0x7fff_7fff);
        assert_eq!(open_mpi_job(JobId([0; 16])), 1);
    }
}
