//! `ropewalk reduce-worker`: one process of `ropewalk reduce`.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::npy::{ArrayFile, ElementType, Header, write_array};
use anyhow::{Context, anyhow};
use bytemuck::{cast_slice, cast_slice_mut};
use ropewalk_reduce::{Job, Number, Order, Rank, ReduceError, ReduceOptions, elementwise};

use super::reduce::{Operator, fail};

/// One process of `ropewalk reduce`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long, value_enum)]
    op: Operator,
    #[arg(long)]
    output: PathBuf,
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match work(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

fn work(arguments: &Arguments) -> anyhow::Result<()> {
    let job = Job::from_env()?;
    let element = open(&arguments.inputs[0])?.header().element();
    match element {
        ElementType::F32 => work_on::<f32>(&job, arguments)?,
        ElementType::F64 => work_on::<f64>(&job, arguments)?,
        ElementType::I8 => work_on::<i8>(&job, arguments)?,
        ElementType::I16 => work_on::<i16>(&job, arguments)?,
        ElementType::I32 => work_on::<i32>(&job, arguments)?,
        ElementType::I64 => work_on::<i64>(&job, arguments)?,
        ElementType::U8 => work_on::<u8>(&job, arguments)?,
        ElementType::U16 => work_on::<u16>(&job, arguments)?,
        ElementType::U32 => work_on::<u32>(&job, arguments)?,
        ElementType::U64 => work_on::<u64>(&job, arguments)?,
    }
    job.finalize()?;
    Ok(())
}

fn work_on<T: Number>(job: &Job, arguments: &Arguments) -> anyhow::Result<()> {
    match arguments.op {
        Operator::Max => combine_with(job, arguments, "max", T::larger),
        Operator::Min => combine_with(job, arguments, "min", T::smaller),
        Operator::Prod => combine_with(job, arguments, "prod", T::product),
        Operator::Sum => combine_with(job, arguments, "sum", T::sum),
    }
}

/// Combines the files of this rank in order, then with the other ranks'; rank 0 writes the result.
fn combine_with<T: Number>(
    job: &Job,
    arguments: &Arguments,
    name: &str,
    combine: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let inputs = arguments.inputs.iter();
    let mut mine = inputs.skip(job.rank().index()).step_by(job.size() as usize);
    let first = mine.next().context("there are more workers than files")?;
    let (header, mut sum) = read_all::<T>(first)?;
    for path in mine {
        add_file(&mut sum, path, &header, combine)?;
    }
    let options = ReduceOptions {
        order: Order::Ordered,
        ..Default::default()
    };
    let reduction = job
        .world()
        .reduce(sum, elementwise(name, combine), Rank(0), &options)?;
    match reduction.get() {
        Ok(outcome) => match outcome.value {
            Some(result) => write(&arguments.output, &header, cast_slice(&result)),
            None => Ok(()),
        },
        // All members get the same error, and one line about it is enough. What only this rank knows, it has to say.
        Err(ReduceError::Reduction(error)) if !error.is_local() && job.rank() != Rank(0) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn read_all<T: Number>(path: &Path) -> anyhow::Result<(Header, Vec<T>)> {
    let mut file = open(path)?;
    let header = file.header().clone();
    let count = usize::try_from(header.element_count()).context("the array does not fit in memory")?;
    let mut elements = bytemuck::allocation::try_zeroed_vec(count)
        .map_err(|()| anyhow!("{}: there is no memory for {count} elements", path.display()))?;
    file.read_elements(cast_slice_mut(&mut elements))
        .map_err(|error| named(path, &error))?;
    Ok((header, elements))
}

/// Combines a file into `sum`, a piece at a time: it need not fit in memory beside it.
fn add_file<T: Number>(
    sum: &mut [T],
    path: &Path,
    header: &Header,
    combine: impl Fn(T, T) -> T,
) -> anyhow::Result<()> {
    let mut file = open(path)?;
    // The launcher has checked that, but files change.
    if (file.header().element(), file.header().shape()) != (header.element(), header.shape()) {
        return Err(anyhow!("{}: it has changed since it was checked", path.display()));
    }
    let mut piece = vec![T::zeroed(); PIECE_SIZE / size_of::<T>()];
    for sums in sum.chunks_mut(piece.len()) {
        let elements = &mut piece[..sums.len()];
        file.read_elements(cast_slice_mut(elements))
            .map_err(|error| named(path, &error))?;
        for (sum, &element) in sums.iter_mut().zip(&*elements) {
            *sum = combine(*sum, element);
        }
    }
    Ok(())
}

fn write(path: &Path, header: &Header, elements: &[u8]) -> anyhow::Result<()> {
    let header =
        Header::new(header.element(), header.shape().to_vec()).with_fortran_order(header.fortran_order());
    let write = || {
        let mut writer = BufWriter::new(File::create(path)?);
        write_array(&mut writer, &header, elements)?;
        writer.into_inner().map(drop).map_err(|error| error.into_error())
    };
    write().context("cannot write the result")
}

fn open(path: &Path) -> anyhow::Result<ArrayFile> {
    ArrayFile::open(path).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &crate::npy::ArrayFileError) -> anyhow::Error {
    anyhow!("{}: {error}", path.display())
}

const PIECE_SIZE: usize = 1 << 20;
