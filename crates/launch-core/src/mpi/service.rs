//! Which protocols a program is served by, and with which variables it is told.

use serde::{Deserialize, Serialize};

use super::{Flavour, Means, Refusal};

/// The protocol by which ranks find each other, as the user wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmiChoice {
    /// As the program needs it.
    #[default]
    Auto,
    /// PMIx, by a helper with libpmix on each host, and no other.
    Pmix,
    /// PMI-2 and PMI-1, whichever the program speaks.
    Pmi2,
    /// As [`Pmi2`](Self::Pmi2), and MPICH is told to speak PMI-1.
    Pmi1,
}

/// The protocols by which a program is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// PMI-1 and PMI-2, and Open MPI 4 through its component for Flux.
    Pmi,
    /// PMIx.
    Pmix,
    /// PMIx and PMI: the program does not say which it needs.
    Both,
}

impl Service {
    /// Returns true if the helper with libpmix has a part in it.
    pub fn has_pmix(self) -> bool {
        self != Self::Pmi
    }
}

/// A program, as far as can be seen before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ELF file that says what it is linked with.
    Linked,
    /// A script, or a program that runs scripts, modules or other programs: it may need anything.
    Open,
}

/// Names of programs that run scripts, modules or other programs. What follows may be the number of a version.
const OPEN: &[&str] = &[
    "R",
    "Rscript",
    "apptainer",
    "ash",
    "bash",
    "bwrap",
    "chrt",
    "dash",
    "env",
    "gdb",
    "ipython",
    "java",
    "julia",
    "ksh",
    "ltrace",
    "lua",
    "matlab",
    "nice",
    "node",
    "nsys",
    "ncu",
    "numactl",
    "octave",
    "perf",
    "perl",
    "pypy",
    "python",
    "ruby",
    "setarch",
    "sh",
    "singularity",
    "stdbuf",
    "strace",
    "taskset",
    "tclsh",
    "time",
    "timeout",
    "valgrind",
    "xterm",
    "zsh",
];

impl Kind {
    /// The kind of a file with this name; `is_elf` if it is an ELF file.
    pub fn of(name: &str, is_elf: bool) -> Self {
        let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        match is_elf && !OPEN.contains(&stem) {
            true => Self::Linked,
            false => Self::Open,
        }
    }
}

/// By which protocols a program is served.
///
/// # Errors
/// If its ranks would not find each other.
pub fn service(choice: PmiChoice, kind: Kind, flavour: &Flavour, means: Means) -> Result<Service, Refusal> {
    let needs_pmix = flavour.speaks_pmix();
    match (choice, needs_pmix || kind == Kind::Open) {
        (PmiChoice::Pmix, _) if means.has_pmix => Ok(Service::Pmix),
        (PmiChoice::Pmix, _) => Err(Refusal::NoPmix),
        (PmiChoice::Auto, true) if means.has_pmix => Ok(match needs_pmix {
            true => Service::Pmix,
            false => Service::Both,
        }),
        _ => match flavour.refusal(means) {
            Some(reason) => Err(reason),
            None => Ok(Service::Pmi),
        },
    }
}

/// The variables that the ranks of a program get for this, besides those that libpmix sets; `flux` is the number of
/// the job for Open MPI's component for Flux, with the library that it is to load.
pub fn variables(
    choice: PmiChoice,
    service: Service,
    flux: Option<(u32, String)>,
) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    // With it Open MPI would take a launcher of its own that a rank starts for one of Flux.
    if let (Service::Pmi, Some((job, library))) = (service, flux) {
        variables.push(("FLUX_JOB_ID", job.to_string()));
        variables.push(("FLUX_PMI_LIBRARY_PATH", library));
    }
    // Open MPI 4 takes itself for a job of one rank unless a launcher that it knows has left a sign. This one's, of
    // IBM's jsrun, makes it ask for PMIx, and means nothing to a launcher of Open MPI that a rank starts.
    if service.has_pmix() {
        variables.push(("JSM_JSRUN_PORT", "0".to_owned()));
    }
    // MPICH 5 ends with an error if it finds variables of both protocols and is not told which to speak.
    if service == Service::Both || choice == PmiChoice::Pmi1 {
        variables.push(("MPIR_CVAR_PMI_VERSION", "1".to_owned()));
    }
    variables
}

/// Returns true if a variable of the ranks is one of PMI, which they do not get with this service if the user wants
/// no PMI.
pub fn is_left_out(choice: PmiChoice, name: &str) -> bool {
    choice == PmiChoice::Pmix && name.starts_with("PMI_")
}

/// The sentence about several ranks of which this one ended well and never asked who the others are.
pub fn silent_end(flavour: &Flavour) -> Option<String> {
    let library = match flavour {
        Flavour::OpenMpi { .. } => "Open MPI",
        Flavour::Pmix { .. } => "PMIx",
        Flavour::Mpich | Flavour::None => return None,
    };
    Some(format!(
        "is linked with {library}, ended with exit code 0, and never asked its launcher for the other ranks: if it \
         called MPI_Init, it was a job of one rank"
    ))
}

/// The same for a process that has these files mapped, as `/proc/PID/maps` names them (proc(5)).
pub fn silent_end_of_libraries(maps: &str) -> Option<String> {
    let library = String::new();
    let flavour = match (has_open_mpi(maps), has(maps, "/libmpi.so.")) {
        (true, true) => Flavour::OpenMpi {
            portable_layer: 0,
            library,
        },
        (false, false) if has(maps, "/libpmix.so.") => Flavour::Pmix { library },
        _ => return None,
    };
    silent_end(&flavour)
}

/// The sentence about a process of several ranks that has these files mapped and has not asked who the others are:
/// Open MPI is initialised in it.
///
/// Open MPI maps these files after it has asked its launcher: the segment for messages between processes of one host,
/// and what a PMIx server tells of its job, which ours does not tell by a file.
pub fn singleton(maps: &str) -> Option<String> {
    let traces = ["/sm_segment.", "/vader_segment.", "/pmix_dstor_"];
    let is_initialised = traces.iter().any(|trace| has(maps, trace));
    (is_initialised && has_open_mpi(maps) && has(maps, "/libmpi.so.")).then(|| {
        "runs as a job of one rank: MPI_Init of Open MPI did not ask this launcher for the other ranks; a script may \
         have taken the variables PMIX_* away, or --pmi left them out"
            .to_owned()
    })
}

/// Returns true if a process that has these files mapped is itself a launcher of Open MPI, whose children ask it for
/// each other.
pub fn is_launcher(maps: &str) -> bool {
    let has_runtime = has(maps, "/libopen-rte.so.") || has(maps, "/libprrte.so.");
    has_runtime && !has(maps, "/libmpi.so.")
}

fn has_open_mpi(maps: &str) -> bool {
    has(maps, "/libopen-pal.so.") || has(maps, "/libopen-rte.so.")
}

fn has(maps: &str, file: &str) -> bool {
    maps.lines().any(|line| line.contains(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(has_pmix: bool) -> Means {
        Means {
            has_library: true,
            lacks_component: false,
            has_pmix,
        }
    }

    fn open_mpi(portable_layer: u32) -> Flavour {
        Flavour::OpenMpi {
            portable_layer,
            library: "/lib/libmpi.so.40".to_owned(),
        }
    }

    /// The whole table: a program that needs no PMIx costs nothing, one that may need it gets it if it is there, and
    /// one that must have it is refused without.
    #[test]
    fn programs_get_what_they_need() {
        use PmiChoice::{Auto, Pmi2, Pmix};
        let pmix = Flavour::Pmix {
            library: "/lib/libpmix.so.2".to_owned(),
        };
        for (choice, kind, flavour, has_pmix, expected) in [
            (Auto, Kind::Linked, Flavour::None, true, Some(Service::Pmi)),
            (Auto, Kind::Linked, Flavour::Mpich, true, Some(Service::Pmi)),
            (Auto, Kind::Linked, open_mpi(40), true, Some(Service::Pmix)),
            (Auto, Kind::Linked, open_mpi(80), true, Some(Service::Pmix)),
            (Auto, Kind::Linked, pmix.clone(), true, Some(Service::Pmix)),
            (Auto, Kind::Open, Flavour::None, true, Some(Service::Both)),
            (Auto, Kind::Open, Flavour::None, false, Some(Service::Pmi)),
            (Auto, Kind::Linked, open_mpi(40), false, Some(Service::Pmi)),
            (Auto, Kind::Linked, open_mpi(80), false, None),
            (Auto, Kind::Linked, pmix.clone(), false, None),
            (Pmi2, Kind::Linked, open_mpi(80), true, None),
            (Pmi2, Kind::Linked, open_mpi(40), true, Some(Service::Pmi)),
            (Pmi2, Kind::Open, Flavour::None, true, Some(Service::Pmi)),
            (Pmix, Kind::Linked, Flavour::None, true, Some(Service::Pmix)),
            (Pmix, Kind::Linked, Flavour::None, false, None),
        ] {
            let found = service(choice, kind, &flavour, means(has_pmix));
            assert_eq!(found.ok(), expected, "{choice:?} {kind:?} {flavour:?} {has_pmix}");
        }
        let refusal = service(Auto, Kind::Linked, &pmix, means(false)).unwrap_err();
        assert!(
            refusal.to_string().contains(crate::mpi::PMIX_PACKAGE),
            "{refusal}"
        );
    }

    /// Open MPI and PMIx are known by what a process has mapped, and MPICH's `libmpi` is neither.
    #[test]
    fn mapped_libraries_tell_the_flavour() {
        let line = |path: &str| format!("7f00-7f01 r--p 00000000 08:01 7 {path}\n");
        let open_mpi = line("/usr/lib/libmpi.so.40") + &line("/usr/lib/libopen-pal.so.80");
        let found = silent_end_of_libraries(&open_mpi).unwrap();
        assert!(found.contains("Open MPI"), "{found}");
        let found = silent_end_of_libraries(&line("/usr/lib/libpmix.so.2")).unwrap();
        assert!(found.contains("PMIx"), "{found}");
        assert_eq!(
            silent_end_of_libraries(&line("/opt/mpich/lib/libmpi.so.12")),
            None
        );
        assert_eq!(silent_end_of_libraries(""), None);
    }

    /// A process in which Open MPI is initialised has mapped more than its libraries, and `mpirun` has not even these.
    #[test]
    fn singletons_have_traces() {
        let line = |path: &str| format!("7f00-7f01 r--p 00000000 08:01 7 {path}\n");
        let open_mpi = line("/usr/lib/libmpi.so.40") + &line("/usr/lib/libopen-pal.so.80");
        assert_eq!(singleton(&open_mpi), None, "not initialised");
        for trace in [
            "/dev/shm/sm_segment.vm.0.eb630000.0",
            "/dev/shm/vader_segment.vm.0.eb630001.0",
            "/tmp/ompi.vm.0/pid.7/pmix_dstor_ds21_7/smseg-835190785-0",
        ] {
            let found = singleton(&(open_mpi.clone() + &line(trace)));
            assert!(
                found.is_some_and(|told| told.contains("job of one rank")),
                "{trace}"
            );
            assert_eq!(singleton(&line(trace)), None, "{trace} of another program");
        }
        for runtime in ["/usr/lib/libopen-rte.so.40", "/opt/lib/libprrte.so.3"] {
            assert!(is_launcher(&line(runtime)), "{runtime}");
        }
        assert!(!is_launcher(&(open_mpi + &line("/usr/lib/libopen-rte.so.40"))));
    }

    /// Interpreters are known with and without the number of a version.
    #[test]
    fn interpreters_may_need_anything() {
        for (name, is_elf, expected) in [
            ("python3.11", true, Kind::Open),
            ("sh", true, Kind::Open),
            ("solver", true, Kind::Linked),
            ("solver", false, Kind::Open),
            ("pythonic", true, Kind::Linked),
        ] {
            assert_eq!(Kind::of(name, is_elf), expected, "{name}");
        }
    }

    /// Flux's variables go away where PMIx serves; MPICH is told what to speak where it could doubt.
    #[test]
    fn variables_are_those_of_the_service() {
        let names = |choice, service| {
            let variables = variables(choice, service, Some((7, "/lib/libpmi.so.0".to_owned())));
            let names: Vec<_> = variables.iter().map(|(name, _)| *name).collect();
            names.join(" ")
        };
        let flux = "FLUX_JOB_ID FLUX_PMI_LIBRARY_PATH";
        assert_eq!(names(PmiChoice::Auto, Service::Pmi), flux);
        assert_eq!(names(PmiChoice::Auto, Service::Pmix), "JSM_JSRUN_PORT");
        assert_eq!(
            names(PmiChoice::Auto, Service::Both),
            "JSM_JSRUN_PORT MPIR_CVAR_PMI_VERSION"
        );
        assert_eq!(
            names(PmiChoice::Pmi1, Service::Pmi),
            format!("{flux} MPIR_CVAR_PMI_VERSION")
        );
        assert!(is_left_out(PmiChoice::Pmix, "PMI_RANK"));
        assert!(!is_left_out(PmiChoice::Auto, "PMI_RANK"));
    }
}
