//! Calls of groups of ranks on one host: `ropewalk run -n 6 --on-failure continue reduce_groups SCENARIO`.
//!
//! - `grid`: the ranks are a grid of two rows. Rows, columns and all reduce in turns, and end without the scheduler.
//! - `survivors`: rank 1 kills itself after a call, in the middle of the calls of a group and of all. Its contributions
//!   count. The others go on as a group, without the scheduler.
//! - `many`: there are more groups than tables, and all are right.
//!
//! The last line of a rank that got the right results is `groups: ok`.

use std::process::ExitCode;

use ropewalk::reduce::{Group, Job, Outcome, Rank, ReduceOptions, Reduction, RootFailure, Sum};
use rustix::process::{Signal, getpid, kill_process};

type Failure = Box<dyn std::error::Error>;

const ROUNDS: u64 = 200;
const VICTIM: Rank = Rank(1);
/// Some end in records, some in chunks.
const LENGTHS: [usize; 3] = [1, 1_000, 20_000];

fn options() -> ReduceOptions {
    ReduceOptions {
        on_root_loss: RootFailure::MoveToLowest,
        ..ReduceOptions::default()
    }
}

/// Each rank has bits of its own.
fn element(rank: Rank, round: u64) -> u64 {
    (1 << (4 * rank.0)) + (round << 32)
}

fn call(job: &Job, group: &Group, round: u64) -> Result<Reduction<Vec<u64>>, Failure> {
    let mine = vec![element(job.rank(), round); LENGTHS[round as usize % LENGTHS.len()]];
    let root = group.ranks()[round as usize % group.ranks().len()];
    Ok(match round % 2 {
        0 => group.allreduce(mine, Sum, &options())?,
        _ => group.reduce(mine, Sum, root, &options())?,
    })
}

fn check(job: &Job, group: &Group, round: u64, outcome: &Outcome<Vec<u64>>) -> Result<(), Failure> {
    let expected: u64 = group.ranks().iter().map(|rank| element(*rank, round)).sum();
    let length = LENGTHS[round as usize % LENGTHS.len()];
    let is_right = match &outcome.value {
        Some(sum) => *sum == vec![expected; length],
        None => round % 2 == 1 && outcome.receipt.root != job.rank(),
    };
    match is_right && outcome.receipt.contributions as usize == group.ranks().len() {
        true => Ok(()),
        false => Err(format!("round {round} of {:?}: {:?}", group.ranks(), outcome.receipt).into()),
    }
}

/// The call and its end.
fn round(job: &Job, group: &Group, round: u64) -> Result<Outcome<Vec<u64>>, Failure> {
    let outcome = call(job, group, round)?.get()?;
    check(job, group, round, &outcome)?;
    Ok(outcome)
}

/// Many calls, of which none needs the scheduler.
fn rounds_in_table(job: &Job, groups: &[&Group]) -> Result<(), Failure> {
    for number in 0..ROUNDS {
        for group in groups {
            let plans = round(job, group, number)?.receipt.plans;
            if plans > 0 {
                return Err(format!("round {number} of {:?}: {plans} plans", group.ranks()).into());
            }
        }
    }
    Ok(())
}

fn grid(job: &Job) -> Result<(), Failure> {
    let world = job.world();
    let columns = job.size() / 2;
    let place = |rank: &Rank| (rank.0 / columns, rank.0 % columns);
    let own = place(&job.rank());
    let of = |is_mine: &dyn Fn(&Rank) -> bool| {
        let ranks: Vec<Rank> = world
            .ranks()
            .iter()
            .copied()
            .filter(|rank| is_mine(rank))
            .collect();
        world.subgroup(&ranks)
    };
    let row = of(&|rank| place(rank).0 == own.0)?;
    let column = of(&|rank| place(rank).1 == own.1)?;
    rounds_in_table(job, &[&row, &column, &world])
}

fn survivors(job: &Job) -> Result<(), Failure> {
    let world = job.world();
    let last = job.size() - 1;
    // The scheduler's rank is not in it. The order is its own.
    let some: Vec<Rank> = (1..=last).rev().map(Rank).collect();
    let some = world.subgroup(&some)?;
    let is_some = job.rank() != Rank(0);
    // After these all have the tables.
    if is_some {
        round(job, &some, 0)?;
    }
    round(job, &world, 0)?;
    // The last rank is late, so that the victim dies while calls wait. It is the root of some.
    if job.rank().0 == last {
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let mut under_way = Vec::new();
    for number in 0..4 {
        if is_some {
            under_way.push((&some, number, call(job, &some, number)?));
        }
        under_way.push((&world, number, call(job, &world, number)?));
    }
    if job.rank() == VICTIM {
        kill_process(getpid(), Signal::KILL)?;
    }
    for (group, number, reduction) in under_way {
        check(job, group, number, &reduction.get()?)?;
    }
    let left: Vec<Rank> = (0..=last).map(Rank).filter(|rank| *rank != VICTIM).collect();
    let left = world.subgroup(&left)?;
    rounds_in_table(job, &[&left])?;
    let begun = std::time::Instant::now();
    for _ in 0..ROUNDS {
        left.allreduce(vec![1u64], Sum, &options())?.get()?;
    }
    let mean = begun.elapsed().as_secs_f64() / ROUNDS as f64;
    if job.rank() == Rank(0) {
        println!(
            "groups: an allreduce of 8 bytes takes the survivors {:.1} us",
            mean * 1e6
        );
    }
    Ok(())
}

fn many(job: &Job) -> Result<(), Failure> {
    let world = job.world();
    let mut ranks = world.ranks().to_vec();
    for number in 0..100 {
        // Another order is another group.
        let at = number as usize % (ranks.len() - 1);
        ranks.swap(at, at + 1);
        let group = world.subgroup(&ranks)?;
        round(job, &group, number)?;
        round(job, &group, number + 1)?;
    }
    Ok(())
}

fn run(scenario: &str) -> Result<(), Failure> {
    let job = Job::from_env()?;
    match scenario {
        "grid" => grid(&job)?,
        "survivors" => survivors(&job)?,
        "many" => many(&job)?,
        other => return Err(format!("no scenario {other:?}").into()),
    }
    println!("groups: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    match run(&std::env::args().nth(1).unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("groups: {error}");
            ExitCode::FAILURE
        }
    }
}
