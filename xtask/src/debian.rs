//! The Debian packages that the tests need and Rust does not bring along.

use anyhow::bail;

use crate::shell::{self, program, run, succeeds};

/// A Debian package that the tests need.
struct Package {
    name: &'static str,
    /// The use of the package, for somebody who is asked to install it.
    purpose: &'static str,
    /// A command that succeeds once it is there; other systems may have the thing without the package.
    probe: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package {
        name: "chromium",
        purpose: "looks at the demo's report",
        probe: &["chromium", "--version"],
    },
    Package {
        name: "bzip2",
        purpose: "unpacks the sources of OpenFOAM",
        probe: &["bzip2", "--help"],
    },
    Package {
        name: "g++",
        purpose: "compiles the function object of OpenFOAM",
        probe: &["g++", "--version"],
    },
    Package {
        name: "gcc",
        purpose: "compiles the MPI programs that we must be able to start",
        probe: &["gcc", "--version"],
    },
    Package {
        name: "groff-base",
        purpose: "sets the manual pages",
        probe: &["groff", "--version"],
    },
    Package {
        name: "libfabric-dev",
        purpose: "is one of the ways that endpoints reach each other",
        probe: &["test", "-e", "/usr/include/rdma/fabric.h"],
    },
    Package {
        name: "iproute2",
        purpose: "makes the network namespaces that are hosts to the tests",
        probe: &["ip", "-V"],
    },
    Package {
        name: "libpmi2-0-dev",
        purpose: "is the PMI library of Slurm, over which programs must be able to run",
        probe: &["test", "-e", "/usr/include/slurm/pmi2.h"],
    },
    Package {
        name: "libopenmpi-dev",
        purpose: "compiles the MPI programs that we must be able to start",
        // The compiler's command comes with another package.
        probe: &[
            "sh",
            "-c",
            "test -e \"$(mpicc.openmpi --showme:incdirs | cut -d ' ' -f 1)/mpi.h\"",
        ],
    },
    Package {
        name: "libpmix-dev",
        purpose: "compiles the PMIx programs that we must be able to start, and is the library that serves them",
        probe: &["pkg-config", "--exists", "pmix"],
    },
    Package {
        name: "libmpich-dev",
        purpose: "compiles the MPI programs that we must be able to start",
        probe: &["mpicc.mpich", "-show"],
    },
    Package {
        name: "make",
        purpose: "builds the function object of OpenFOAM",
        probe: &["make", "--version"],
    },
    Package {
        name: "man-db",
        purpose: "reads the manual pages as users do",
        probe: &["man", "--version"],
    },
    Package {
        name: "mpich",
        purpose: "starts MPI programs, to be compared with what we do",
        probe: &["mpiexec.hydra", "--version"],
    },
    Package {
        name: "munge",
        purpose: "lets the parts of Slurm trust each other",
        probe: &["munged", "--version"],
    },
    Package {
        name: "openfoam",
        purpose: "is a large program over Open MPI that we must be able to start",
        probe: &["test", "-x", "/usr/bin/icoFoam"],
    },
    Package {
        name: "openmpi-bin",
        purpose: "has the components that programs of Open MPI load",
        probe: &["mpirun.openmpi", "--version"],
    },
    Package {
        name: "openssh-client",
        purpose: "starts agents on other hosts",
        probe: &["ssh", "-V"],
    },
    Package {
        name: "openssh-server",
        purpose: "is what ssh finds on other hosts",
        probe: &["test", "-x", "/usr/sbin/sshd"],
    },
    Package {
        name: "python3-numpy",
        purpose: "is the reference for `ropewalk reduce`",
        // By its path: another python3 may stand before Debian's.
        probe: &["/usr/bin/python3", "-c", "import numpy"],
    },
    Package {
        name: "python3-venv",
        purpose: "keeps the package for Python, and mpi4py, apart from what is installed",
        probe: &["/usr/bin/python3", "-c", "import ensurepip"],
    },
    Package {
        name: "slurm-wlm",
        purpose: "is the resource manager inside whose allocations jobs must run",
        probe: &["slurmctld", "-V"],
    },
    Package {
        name: "systemd",
        purpose: "verifies the unit of the name server",
        probe: &["systemd-analyze", "--version"],
    },
];

/// The packages that only the measurements of OpenFOAM need.
const EXAMPLES: &[Package] = &[Package {
    name: "openfoam-examples",
    purpose: "has the cases that OpenFOAM is measured with",
    probe: &["test", "-d", "/usr/share/doc/openfoam-examples/examples"],
}];

/// The packages that only the suites of MPI libraries need.
const SUITES: &[Package] = &[
    Package {
        name: "dpkg-dev",
        purpose: "unpacks source packages",
        probe: &["dpkg-source", "--version"],
    },
    Package {
        name: "perl",
        purpose: "runs MPICH's suite",
        probe: &["perl", "-MTime::HiRes", "-e", "1"],
    },
];

/// Sees to it that everything the tests need is there.
///
/// # Errors
/// If something is missing and cannot be installed from here; says what, and how to get it.
pub(crate) fn provide() -> anyhow::Result<()> {
    provide_all(PACKAGES)
}

/// Sees to it that OpenFOAM is there, with what compiles its function object.
///
/// # Errors
/// As [`provide`].
pub(crate) fn provide_openfoam() -> anyhow::Result<()> {
    let needed =
        |package: &&Package| ["bzip2", "g++", "make", "openfoam", "openmpi-bin"].contains(&package.name);
    provide_missing(missing(PACKAGES).into_iter().filter(needed).collect())
}

/// Sees to it that OpenFOAM's examples are there.
///
/// # Errors
/// As [`provide`].
pub(crate) fn provide_examples() -> anyhow::Result<()> {
    provide_all(EXAMPLES)
}

/// Sees to it that the suites of MPI libraries can be had, compiled and run.
///
/// # Errors
/// As [`provide`].
pub(crate) fn provide_suites() -> anyhow::Result<()> {
    let needed = |package: &&Package| {
        [
            "gcc",
            "libmpich-dev",
            "libopenmpi-dev",
            "make",
            "mpich",
            "openmpi-bin",
            "python3-venv",
        ]
        .contains(&package.name)
    };
    let known = missing(PACKAGES).into_iter().filter(needed);
    provide_missing(known.chain(missing(SUITES)).collect())
}

fn provide_all(packages: &'static [Package]) -> anyhow::Result<()> {
    provide_missing(missing(packages))
}

fn provide_missing(missing: Vec<&'static Package>) -> anyhow::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.name).collect();
    if !can_install() {
        for package in &missing {
            eprintln!("missing: {}, which {}", package.name, package.purpose);
        }
        bail!(
            "something cannot run; as root: apt-get install {}",
            names.join(" ")
        );
    }
    run(apt_get(&["update"]))?;
    run(apt_get(
        &[&["install", "--yes", "--no-install-recommends"], &names[..]].concat(),
    ))?;
    let fails = |package: &&&Package| !succeeds(program(package.probe[0], &package.probe[1..]));
    match missing.iter().find(fails) {
        Some(package) => bail!(
            "{} is installed, but `{}` fails",
            package.name,
            package.probe.join(" ")
        ),
        None => Ok(()),
    }
}

fn missing(packages: &'static [Package]) -> Vec<&'static Package> {
    let is_missing = |package: &&Package| !succeeds(program(package.probe[0], &package.probe[1..]));
    packages.iter().filter(is_missing).collect()
}

fn can_install() -> bool {
    let root = shell::output(program("id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    root && succeeds(program("apt-get", &["--version"]))
}

fn apt_get(arguments: &[&str]) -> std::process::Command {
    let mut command = program("apt-get", arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
