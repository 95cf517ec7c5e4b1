//! The words of `ropewalk reduce`, and its exit code.

use std::{num::NonZeroU32, path::PathBuf, process::ExitCode};

use clap::builder::TypedValueParser;
use ropewalk_launch::JobSpec;
use ropewalk_output_file::OutputFile;

use crate::{arrays::listed, job::Reduction, operator::Operator};

/// Reduce NumPy arrays of equal shape and type, element by element
///
/// Types are bool, integers of 8 to 64 bits, f16, bf16, f32, f64, complex64 and complex128. Integers wrap and NaN
/// spreads as in NumPy. Results are the same to the last bit in every run with the same files in the same order. Any
/// process may be killed: the others read its files again. The output appears when it is complete, or not at all.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The operation on the elements
    #[arg(long, value_enum)]
    op: Operator,
    /// How many processes share the files [default: one for some MB, at most one for each core, or for each slot of the
    /// given hosts, and for each file]
    #[arg(short, long = "processes", value_name = "N", value_parser = one_or_more())]
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

/// Clap's own parser of such numbers speaks of types.
fn one_or_more() -> impl TypedValueParser<Value = NonZeroU32> {
    clap::value_parser!(u32).range(1..).try_map(NonZeroU32::try_from)
}

/// Runs the command: 0 if the output is written, 2 if the files given are at fault, 1 for any other failure, 128 and
/// the signal if one ended it. `spec` describes the job but for its program and the number of its ranks.
pub fn run(arguments: Arguments, spec: JobSpec) -> ExitCode {
    match prepare(arguments, spec) {
        Ok(reduction) => match reduction.run() {
            Ok(code) => code,
            Err(error) => fail(&error, ExitCode::FAILURE),
        },
        Err(error) => fail(&error, ExitCode::from(2)),
    }
}

fn prepare(arguments: Arguments, spec: JobSpec) -> anyhow::Result<Reduction> {
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
pub(crate) fn fail(error: &anyhow::Error, code: ExitCode) -> ExitCode {
    eprintln!("ropewalk reduce: {error:#}");
    code
}
