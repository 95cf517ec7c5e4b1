//! `ropewalk openfoam`: builds the function object by which solvers save themselves, and runs solvers with it.

use std::{
    env,
    ffi::OsString,
    path::{self, Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use ropewalk_openfoam::{
    LIBRARY_VARIABLE, build_function_object, cache_folder, find_checkpoint_library, library_folder,
};

use crate::run;

/// Save and restart solvers of OpenFOAM
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Build(BuildArguments),
    Run(RunArguments),
}

/// Build the function object by which solvers save themselves; once for each OpenFOAM
///
/// It is built with wmake for the OpenFOAM that WM_PROJECT_DIR names, which has to have its sources. Without
/// this variable it is built for Debian's package openfoam, whose sources are fetched; that needs the packages
/// bzip2, g++ and make. Tried with OpenFOAM 1912, in both ways.
#[derive(Debug, clap::Args)]
struct BuildArguments {
    /// The folder for the library [default: $FOAM_USER_LIBBIN, or ropewalk in $XDG_DATA_HOME or
    /// ~/.local/share]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    output: Option<PathBuf>,
}

/// Run a solver that saves itself, and start it again from its newest save when it fails
///
/// The same as `ropewalk run --adapter openfoam --on-failure restart`, of which it takes all options.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
struct RunArguments {
    /// Options of `ropewalk run`, the solver and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    words: Vec<OsString>,
}

/// Does it.
pub(crate) fn run(arguments: Arguments) -> ExitCode {
    match arguments.command {
        Command::Build(arguments) => match build(&arguments) {
            Ok(library) => {
                println!("{}", library.display());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("ropewalk openfoam: {error:#}");
                ExitCode::FAILURE
            }
        },
        Command::Run(RunArguments { words }) => {
            let first = RUN_WORDS.iter().map(OsString::from);
            run::run(run::Arguments::new(first.chain(words).collect()))
        }
    }
}

/// Builds the function object, and returns the path of its library.
fn build(arguments: &BuildArguments) -> anyhow::Result<PathBuf> {
    let executable = env::current_exe().context("cannot find my own executable")?;
    let checkpoint_library = find_checkpoint_library(&executable)?;
    let usual = library_folder();
    let output = arguments.output.as_ref().or(usual.as_ref());
    let output = output.context("there is no HOME: choose a folder with --output")?;
    let output = &path::absolute(output).context("cannot find the working directory")?;
    let cache = cache_folder().context("there is no HOME for fetched sources: set XDG_CACHE_HOME")?;
    let library = build_function_object(&checkpoint_library, &cache, output)?;
    if !is_found(output, usual.as_deref(), &executable) {
        eprintln!(
            "ropewalk openfoam: `ropewalk run` finds it if {LIBRARY_VARIABLE}={}",
            library.display()
        );
    }
    Ok(library)
}

/// Returns true if `run` looks into a folder by itself.
fn is_found(output: &Path, usual: Option<&Path>, executable: &Path) -> bool {
    Some(output) == usual || executable.parent() == Some(output)
}

/// The options of `run` that the command stands for.
const RUN_WORDS: [&str; 4] = ["--adapter", "openfoam", "--on-failure", "restart"];
