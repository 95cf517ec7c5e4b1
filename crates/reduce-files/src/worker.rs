//! `ropewalk reduce-worker`: one process of `ropewalk reduce`.

use std::{
    collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::PathBuf, process::ExitCode, sync::Arc,
    thread, time::Duration,
};

use anyhow::{Context, anyhow};
use bytemuck::cast_slice;
use ropewalk_reduce::{Job, Rank, ReduceError, ReduceOptions, RootFailure, Source, Sources, elementwise};

use super::{
    arrays::Kind,
    element::Element,
    input_file::{Desk, InputError, InputFile},
    operator::{Kitchen, Recipe},
    task::Task,
    word::Word,
};
use crate::npy::ArrayFile;

/// Runs a process of the reduction, which the task on its standard input describes.
pub fn work() -> ExitCode {
    Word::Beat.say();
    match Task::take().context("cannot read the task").and_then(reduce) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Word::Error(format!("{error:#}")).say();
            ExitCode::FAILURE
        }
    }
}

fn reduce(task: Task) -> anyhow::Result<()> {
    let desk = Arc::new(Desk::new());
    let watched = Arc::clone(&desk);
    // It goes on until the process ends.
    thread::Builder::new()
        .name("ropewalk-beat".to_owned())
        .spawn(move || beat(&watched, task.silence_max))?;
    let job = Job::from_env()?;
    match &task.kind {
        Some(kind) => task.operator.apply(
            kind.element,
            Worker {
                job: &job,
                task: &task,
                kind: Arc::new(kind.clone()),
                desk,
            },
        )?,
        None => find_out(&task.inputs()),
    }
    job.finalize()?;
    Ok(())
}

/// Tells that this process lives, and of reads that take too long. Time in which it stood still does not count.
fn beat(desk: &Desk, silence_max: Duration) {
    const BEATS: u32 = 4;
    let mut last = None;
    let mut beats = 0;
    loop {
        thread::sleep(silence_max / BEATS);
        Word::Beat.say();
        let reading = desk.reading();
        match &reading {
            Some((number, path)) if last == Some(*number) => {
                beats += 1;
                if beats == BEATS {
                    Word::Slow(path.display().to_string()).say();
                }
            }
            _ => beats = 0,
        }
        last = reading.map(|(number, _)| number);
    }
}

/// Says of which kind the files are that can be opened here, by the first of them.
fn find_out(inputs: &[PathBuf]) {
    let mut files = inputs.iter().filter_map(|path| ArrayFile::open(path).ok());
    if let Some(file) = files.next() {
        Word::Kind(Kind::of(file.header())).say();
        return;
    }
    let reasons = inputs.iter().filter_map(|path| ArrayFile::open(path).err());
    Word::Missing {
        files: (0..inputs.len() as u32).collect(),
        reasons: reasons.take(1).map(|error| error.to_string()).collect(),
    }
    .say();
}

/// A worker that knows what the arrays have in common.
struct Worker<'a> {
    job: &'a Job,
    task: &'a Task,
    kind: Arc<Kind>,
    desk: Arc<Desk>,
}

impl Kitchen for Worker<'_> {
    type Meal = anyhow::Result<()>;

    fn follow<T: Element>(
        self,
        recipe: Recipe<T, impl Fn(T, T) -> T + Copy + Send + Sync + 'static>,
    ) -> Self::Meal {
        let inputs = self.task.inputs();
        let members = inputs.len() as u32;
        let files: Vec<Arc<InputFile>> = inputs
            .into_iter()
            .map(|path| {
                let (kind, desk) = (Arc::clone(&self.kind), Arc::clone(&self.desk));
                Arc::new(InputFile::new(path, kind, size_of::<T>(), recipe.load, desk))
            })
            .collect();
        let files: BTreeMap<u32, Arc<InputFile>> = (0..).zip(files).collect();
        let held = match self.task.looks_first {
            true => openable(&files)?,
            false => files.clone(),
        };
        let sources = Sources {
            members,
            bytes: self.kind.elements() * size_of::<T>() as u64,
            held: held
                .iter()
                .map(|(&at, file)| (at, Arc::clone(file) as Arc<dyn Source>))
                .collect(),
        };
        let operation = elementwise(recipe.name, recipe.combine);
        let options = ReduceOptions {
            on_root_loss: RootFailure::MoveToLowest,
            ..ReduceOptions::default()
        };
        let world = self.job.world();
        let reduction = world.reduce_sources(sources, operation, Rank(0), &options)?;
        let outcome = match reduction.get() {
            Ok(outcome) => outcome,
            Err(ReduceError::Reduction(error)) if !error.is_local() => {
                // All workers have it, and the command tells it once.
                Word::Error(error.to_string()).say();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for file in held.values() {
            if let Err(error) = file.is_unchanged() {
                Word::Fault(format!("{}: {error}", file.path().display())).say();
                return Ok(());
            }
        }
        let Some(result) = outcome.value else {
            return Ok(());
        };
        let header = self.kind.header(recipe.output);
        let mut output = Output::begin(self.task, &header.encode(), header.data_size())
            .context("cannot write the result")?;
        let written = match recipe.finish {
            None => output.write(cast_slice(&result)),
            Some(finish) => result
                .chunks(ELEMENTS_AT_ONCE)
                .try_for_each(|elements| output.write(&finish(elements, members))),
        };
        written.context("cannot write the result")?;
        Word::Written.say();
        Ok(())
    }
}

/// The files that can be opened here; the command is told of the others.
fn openable(files: &BTreeMap<u32, Arc<InputFile>>) -> anyhow::Result<BTreeMap<u32, Arc<InputFile>>> {
    const REASONS_MAX: usize = 8;
    let (mut held, mut missing, mut reasons) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (&at, file) in files {
        match file.open() {
            Ok(_) => drop(held.insert(at, Arc::clone(file))),
            Err(InputError::Missing(error)) => {
                missing.push(at);
                reasons.push(error.to_string());
                reasons.truncate(REASONS_MAX);
            }
            Err(error) => {
                let text = format!("{}: {error}", file.path().display());
                Word::Fault(text.clone()).say();
                return Err(anyhow!(text));
            }
        }
    }
    if !missing.is_empty() {
        Word::Missing {
            files: missing,
            reasons,
        }
        .say();
    }
    Ok(held)
}

/// The result on its way to the output: the file itself, or the command, which has it.
struct Output {
    /// `None` on other hosts.
    file: Option<File>,
    at: u64,
}

impl Output {
    fn begin(task: &Task, header: &[u8], data_size: u64) -> io::Result<Self> {
        Word::Begin {
            length: header.len() as u64 + data_size,
        }
        .say();
        let mut output = Self {
            file: task.output.open(),
            at: 0,
        };
        output.write(header)?;
        Ok(output)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &self.file {
            Some(file) => file.write_all_at(bytes, self.at)?,
            None => bytes
                .chunks(Word::DATA_MAX)
                .for_each(|piece| Word::Data(piece.to_vec()).say()),
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

/// So many elements become part of the result at once.
const ELEMENTS_AT_ONCE: usize = 1 << 14;
