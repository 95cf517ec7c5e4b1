//! A loop whose steps need the sum of all: `ropewalk run -n 4 --on-failure continue allreduce [VICTIM]`.
//!
//! Each rank checks every sum. The victim dies right after its call in the middle of the loop: that step still has its
//! contribution, and in those after it the others go on without it. The last line of each rank that got through is
//! `allreduce: ok`.

use std::{env, process::ExitCode, time::Duration};

use ropewalk::reduce::{Job, OnLoss, Protection, Rank, ReduceOptions, Sum};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const STEPS: u64 = 10;
/// The victim dies after its call in this step.
const LAST: u64 = 4;
/// Of elements: from one to more than a megabyte.
const LENGTHS: [usize; 3] = [1, 1_000, 150_000];

fn main() -> ExitCode {
    let victim = env::args()
        .nth(1)
        .and_then(|victim| victim.parse().ok())
        .map(Rank);
    match run(victim) {
        Ok(()) => {
            println!("allreduce: ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("allreduce: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(victim: Option<Rank>) -> Result {
    let job = Job::from_env()?;
    let options = ReduceOptions {
        on_loss: OnLoss::Exclude,
        protection: Protection::Process,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    };
    let word = |rank: u32, step: u64, at: usize| (u64::from(rank) + 1) * (step + 1) + at as u64;
    for step in 0..STEPS {
        let length = LENGTHS[step as usize % LENGTHS.len()];
        let mine: Vec<u64> = (0..length).map(|at| word(job.rank().0, step, at)).collect();
        let reduction = job.world().allreduce(mine, Sum, &options)?;
        if victim == Some(job.rank()) && step == LAST {
            kill_process(getpid(), Signal::KILL)?;
        }
        let outcome = reduction.get()?;
        let found = outcome.value.ok_or("all ranks get the result")?;
        let excluded = &outcome.receipt.excluded;
        if step <= LAST && !excluded.is_empty() {
            return Err(format!("step {step} is without {excluded:?}, which had called").into());
        }
        let counted: Vec<u32> = (0..job.size())
            .filter(|rank| !excluded.contains(&Rank(*rank)))
            .collect();
        for (at, found) in found.iter().enumerate() {
            let expected: u64 = counted.iter().map(|rank| word(*rank, step, at)).sum();
            if *found != expected {
                return Err(format!("step {step}: element {at} is {found}, not {expected}").into());
            }
        }
    }
    job.finalize()?;
    Ok(())
}
