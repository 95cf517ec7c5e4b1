//! Barriers of ranks of which one may die: `ropewalk run -n 4 --on-failure continue reduce_barriers FOLDER [VICTIM]`.
//!
//! Each rank leaves a file in the folder before each barrier, and sees those of all others after it. The last line of
//! each rank that got through is `barriers: ok`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use ropewalk::reduce::{Job, OnLoss, Rank, ReduceError, ReduceOptions, ReductionError};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: u32 = 12;
/// The victim dies after its call in this round.
const LAST: u32 = 5;

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let (folder, victim) = (words.next(), words.next());
    let Some(folder) = folder else {
        eprintln!("expected a folder and, if one is to die, a rank");
        return ExitCode::from(2);
    };
    let victim = victim.and_then(|victim| victim.parse().ok()).map(Rank);
    match run(Path::new(&folder), victim) {
        Ok(()) => {
            println!("barriers: ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("barriers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path, victim: Option<Rank>) -> Result {
    let job = Job::from_env()?;
    let (world, me, size) = (job.world(), job.rank(), job.size());
    let exclude = ReduceOptions {
        on_loss: OnLoss::Exclude,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    };
    for round in 0..ROUNDS {
        let is_dead = |rank: Rank| Some(rank) == victim && round > LAST;
        sleep(Duration::from_millis(u64::from((me.0 + round) % size) * 20));
        fs::write(file(folder, round, me), "")?;
        let barrier = world.barrier(&exclude)?;
        if Some(me) == victim && round == LAST {
            kill_process(getpid(), Signal::KILL)?;
        }
        let receipt = barrier.get()?;
        let living: Vec<Rank> = (0..size).map(Rank).filter(|rank| !is_dead(*rank)).collect();
        if receipt.contributions as usize != living.len() {
            return Err(format!("round {round}: expected {living:?}, found {receipt:?}").into());
        }
        for rank in living {
            if !file(folder, round, rank).exists() {
                return Err(format!("round {round} ended before rank {rank} came").into());
            }
        }
    }
    let fail = ReduceOptions {
        on_loss: OnLoss::Fail,
        ..exclude
    };
    match (world.barrier(&fail)?.get(), victim) {
        (Ok(_), None) => {}
        (Err(ReduceError::Reduction(ReductionError::ContributionLost { ranks })), Some(victim))
            if ranks == [victim] => {}
        (outcome, _) => return Err(format!("the last barrier: {outcome:?}").into()),
    }
    job.finalize()?;
    Ok(())
}

fn file(folder: &Path, round: u32, rank: Rank) -> PathBuf {
    folder.join(format!("{round}.{rank}"))
}
