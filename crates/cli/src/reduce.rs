//! `ropewalk reduce`: reduces array files on several processes.

mod arrays;
mod element;
mod input_file;
mod job;
mod mapping;
mod operator;
mod task;
mod watch;
mod word;
pub(crate) mod worker;

use std::{ffi::OsString, num::NonZeroU32, path::PathBuf, process::ExitCode};

use self::{arrays::listed, job::Reduction, operator::Operator};
use super::output_file::OutputFile;

/// Reduce NumPy arrays of equal shape and type, element by element
///
/// Types are bool, integers of 8 to 64 bits, f16, bf16, f32, f64, complex64 and complex128. Integers wrap and NaN
/// spreads as in NumPy. Results are the same to the last bit in every run with the same files in the same order. Any
/// process may be killed: the others read its files again. The output appears when it is complete, or not at all.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The operation on the elements
    #[arg(long, value_enum)]
    op: Operator,
    /// How many processes share the files [default: one for some MB, at most one for each core, or for each slot of the
    /// given hosts, and for each file]
    #[arg(short, long = "processes", value_name = "N")]
    n: Option<NonZeroU32>,
    /// Where the result goes: a file, which is replaced, a pipe or a device; - is the standard output
    #[arg(short, long, value_name = "OUT.npy")]
    output: PathBuf,
    /// Read names of more arrays from a file, or - for standard input: one a line, or with NUL behind each
    #[arg(long, value_name = "FILE|-")]
    files_from: Vec<PathBuf>,
    /// The arrays
    #[arg(required_unless_present = "files_from", value_name = "IN.npy")]
    inputs: Vec<PathBuf>,
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

/// Runs the command: 0 if the output is written, 2 if the files given are at fault, 1 for any other failure, 128 and
/// the signal if one ended it. `run_words` are options of `ropewalk run`.
pub(crate) fn run(arguments: Arguments, run_words: Vec<OsString>) -> ExitCode {
    match prepare(arguments, run_words) {
        Ok(reduction) => match reduction.run() {
            Ok(code) => code,
            Err(error) => fail(&error, ExitCode::FAILURE),
        },
        Err(error) => fail(&error, ExitCode::from(2)),
    }
}

fn prepare(arguments: Arguments, run_words: Vec<OsString>) -> anyhow::Result<Reduction> {
    let spec = super::run::some_options(run_words, RUN_OPTIONS)?;
    let mut inputs = arguments.inputs;
    for list in &arguments.files_from {
        inputs.extend(listed(list)?);
    }
    if inputs.is_empty() {
        anyhow::bail!("no arrays are named");
    }
    let output = OutputFile::prepare(&arguments.output);
    Reduction::prepare(arguments.op, inputs, arguments.n, output, spec)
}

/// Says in one line what is wrong.
fn fail(error: &anyhow::Error, code: ExitCode) -> ExitCode {
    eprintln!("ropewalk reduce: {error:#}");
    code
}
