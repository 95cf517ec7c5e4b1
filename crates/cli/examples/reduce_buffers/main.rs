//! Reductions of buffers: `ropewalk run -n 4 --on-failure continue reduce_buffers SCENARIO [VICTIM]`.
//!
//! - `rounds VICTIM`: the ranks reduce the same buffer in eight rounds. Rank VICTIM kills itself in the middle, right
//!   after its call, and the others go on without it.
//! - `stray VICTIM`: rank VICTIM writes into its contribution by an old pointer, which kills it.
//! - `errors`: calls that go wrong give the buffer back too.
//! - `memory`: ranks reduce a large buffer, and look at the most memory that they had.
//!
//! The last line of a rank that got the right end is `buffers: ok`.

mod stray_write;

use std::{process::ExitCode, time::Duration};

use ropewalk::reduce::{
    Buffer, BufferReduction, DecodeError, Job, ObjectReducer, Rank, ReduceError, ReduceOptions,
    ReductionError, RootFailure, Sum, object,
};
use rustix::process::{Signal, getpid, kill_process};

type Failure = Box<dyn std::error::Error>;

const ELEMENTS: usize = 1 << 19;
const ROUNDS: u64 = 8;
const LAST_OF_VICTIM: u64 = 3;
const LARGE_BYTES: usize = 256 << 20;

/// Each rank has bits of its own, so that one that is missing or counted twice shows.
fn element(rank: Rank, round: u64, at: usize) -> u64 {
    (1 << (4 * rank.0)) + ((at as u64 + round) << 32)
}

fn expected(ranks: &[Rank], round: u64, at: usize) -> u64 {
    ranks.iter().map(|&rank| element(rank, round, at)).sum()
}

fn fill(buffer: &mut Buffer<u64>, rank: Rank, round: u64) {
    for (at, place) in buffer.iter_mut().enumerate() {
        *place = element(rank, round, at);
    }
}

fn is_from(ranks: &[Rank], round: u64, vector: &[u64]) -> bool {
    let mut elements = vector.iter().enumerate();
    elements.all(|(at, &found)| found == expected(ranks, round, at))
}

fn options() -> ReduceOptions {
    ReduceOptions {
        on_root_loss: RootFailure::MoveToLowest,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    }
}

fn rounds(job: &Job, victim: Rank) -> Result<(), Failure> {
    let me = job.rank();
    let all = job.world();
    let left: Vec<Rank> = all
        .ranks()
        .iter()
        .copied()
        .filter(|&rank| rank != victim)
        .collect();
    let mut buffer = job.buffer::<u64>(ELEMENTS)?;
    let mut moves = 0;
    for round in 0..ROUNDS {
        let group = match round <= LAST_OF_VICTIM {
            true => all.clone(),
            false => all.subgroup(&left)?,
        };
        let root = group.ranks()[round as usize % group.ranks().len()];
        // Each is late once.
        if me.0 as u64 == round % 4 {
            std::thread::sleep(Duration::from_millis(20));
        }
        fill(&mut buffer, me, round);
        let place = buffer.as_ptr();
        let reduction = group.reduce_buffer(buffer, Sum, root, &options());
        if me == victim && round == LAST_OF_VICTIM {
            kill_process(getpid(), Signal::KILL)?;
        }
        let outcome;
        (outcome, buffer) = reduction.get();
        let outcome = outcome?;
        moves += u64::from(buffer.as_ptr() != place);
        if !is_from(&[me], round, &buffer) {
            return Err(format!("the buffer does not have its content after round {round}").into());
        }
        if outcome.receipt.contributions as usize != group.ranks().len() {
            return Err(format!("{:?}", outcome.receipt).into());
        }
        if let Some(sum) = outcome.value {
            if !is_from(group.ranks(), round, &sum) {
                return Err(format!("the result of round {round} is wrong").into());
            }
            println!("round: {round}");
        } else if round == LAST_OF_VICTIM && outcome.receipt.root == victim && me == left[0] {
            // The victim had the result by the time that it was killed.
            println!("round: {round} at the victim");
        }
    }
    println!("moves: {moves}");
    if moves == ROUNDS {
        return Err("the buffer was copied in each round".into());
    }
    Ok(())
}

fn stray(job: &Job, victim: Rank) -> Result<(), Failure> {
    let me = job.rank();
    // One that is late keeps the others' contributions needed.
    if me.0 == job.size() - 1 {
        std::thread::sleep(Duration::from_millis(500));
    }
    let mut buffer = job.buffer::<u64>(ELEMENTS)?;
    fill(&mut buffer, me, 0);
    let place = buffer.as_mut_ptr();
    let reduction = job.world().reduce_buffer(buffer, Sum, Rank(0), &options());
    if me == victim {
        println!("stray: writes");
        stray_write::write(place);
        println!("stray: lives");
    }
    let (outcome, mut buffer) = reduction.get();
    if outcome?
        .value
        .is_some_and(|sum| !is_from(job.world().ranks(), 0, &sum))
    {
        return Err("the result is wrong".into());
    }
    // By now it may be written again.
    stray_write::write(buffer.as_mut_ptr());
    Ok(())
}

/// The error of a reduction, and its buffer, whose content has to be that of the rank.
fn failed(reduction: BufferReduction<u64>, me: Rank) -> Result<(ReduceError, Buffer<u64>), Failure> {
    let (outcome, buffer) = reduction.get();
    match outcome {
        Ok(outcome) => Err(format!("{:?}", outcome.receipt).into()),
        Err(_) if !is_from(&[me], 0, &buffer) => Err("the buffer does not have its content".into()),
        Err(error) => Ok((error, buffer)),
    }
}

fn errors(job: &Job) -> Result<(), Failure> {
    let (me, world, options) = (job.rank(), job.world(), options());
    let mut buffer = job.buffer::<u64>(ELEMENTS)?;
    fill(&mut buffer, me, 0);
    let (error, buffer) = failed(world.reduce_buffer(buffer, Sum, Rank(job.size()), &options), me)?;
    if !matches!(error, ReduceError::RootNotMember { .. }) {
        return Err(error.into());
    }
    // The others have called when this one has not.
    let (error, buffer) = match me {
        Rank(1) => failed(world.reduce_buffer(buffer, object(First), Rank(0), &options), me)?,
        _ => failed(world.reduce_buffer(buffer, Sum, Rank(0), &options), me)?,
    };
    match (me, error) {
        (Rank(1), ReduceError::NotElementwise { .. }) => {}
        (_, ReduceError::Reduction(ReductionError::Withdrawn { rank: Rank(1), .. })) => {}
        (_, error) => return Err(error.into()),
    }
    let (outcome, _) = world.reduce_buffer(buffer, Sum, Rank(0), &options).get();
    if outcome?.value.is_some_and(|sum| !is_from(world.ranks(), 0, &sum)) {
        return Err("the result is wrong".into());
    }
    // No elements can be reduced too.
    let empty = job.buffer::<u64>(0)?;
    let (outcome, empty) = world.reduce_buffer(empty, Sum, Rank(0), &options).get();
    if outcome?.receipt.contributions != job.size() || !empty.is_empty() {
        return Err("nothing did not come back".into());
    }
    Ok(())
}

/// A vector as a whole.
struct First;

impl ObjectReducer for First {
    type Value = Vec<u64>;

    fn combine(&self, left: Vec<u64>, _right: Vec<u64>) -> Vec<u64> {
        left
    }

    fn encode(&self, value: &Vec<u64>) -> Vec<u8> {
        value.iter().flat_map(|element| element.to_ne_bytes()).collect()
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u64>, DecodeError> {
        Ok(vec![0; bytes.len() / 8])
    }
}

fn memory(job: &Job) -> Result<(), Failure> {
    let me = job.rank();
    let mut buffer = job.buffer::<u64>(LARGE_BYTES / 8)?;
    fill(&mut buffer, me, 0);
    let (outcome, buffer) = job.world().reduce_buffer(buffer, Sum, Rank(0), &options()).get();
    let outcome = outcome?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: usize = peak
        .and_then(|peak| peak.trim().strip_suffix(" kB"))
        .ok_or("no VmHWM in /proc/self/status")?
        .parse()?;
    let arrays = 1 + usize::from(outcome.value.is_some());
    println!(
        "memory: {} % of {arrays} arrays",
        peak * 1024 * 100 / (LARGE_BYTES * arrays)
    );
    if outcome
        .value
        .is_some_and(|sum| !is_from(job.world().ranks(), 0, &sum))
        || !is_from(&[me], 0, &buffer)
    {
        return Err("the result is wrong".into());
    }
    Ok(())
}

fn run(scenario: &str, victim: Rank) -> Result<(), Failure> {
    let job = Job::from_env()?;
    match scenario {
        "rounds" => rounds(&job, victim)?,
        "stray" => stray(&job, victim)?,
        "errors" => errors(&job)?,
        "memory" => memory(&job)?,
        other => return Err(format!("no scenario {other:?}").into()),
    }
    println!("buffers: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let scenario = words.next().unwrap_or_default();
    let victim = words.next().and_then(|word| word.parse().ok());
    match run(&scenario, Rank(victim.unwrap_or(u32::MAX))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("buffers: {error}");
            ExitCode::FAILURE
        }
    }
}
