//! `ropewalk reduce`: reduces array files on several processes.

use std::{ffi::OsString, process::ExitCode};

use ropewalk_reduce_files::Arguments;

use crate::run::some_options;

/// Runs the command: 2 if the options are at fault, else the exit code of [`ropewalk_reduce_files::run`]. `run_words`
/// are options of `ropewalk run`.
pub(crate) fn run(arguments: Arguments, run_words: Vec<OsString>) -> ExitCode {
    match some_options(run_words, RUN_OPTIONS) {
        Ok(spec) => ropewalk_reduce_files::run(arguments, spec),
        Err(error) => {
            eprintln!("ropewalk reduce: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The options of `ropewalk run` that this command has too.
pub(crate) const RUN_OPTIONS: &[&str] = &[
    "-hosts",
    "-hostfile",
    "HYDRA_HOST_FILE",
    "-rmk",
    "HYDRA_RMK",
    "-order-nodes",
    "-skip-launch-node",
    "-ppn",
    "-launcher",
    "HYDRA_LAUNCHER",
    "-launcher-exec",
    "HYDRA_LAUNCHER_EXEC",
    "HYDRA_LAUNCHER_EXTRA_ARGS",
    "--arity",
    "-iface",
    "HYDRA_IFACE",
    "-localhost",
    "--encrypt",
    "--detect",
    "--start-timeout",
    "--timeout",
];
