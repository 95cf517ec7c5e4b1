//! A reduction that loses a host: `ropewalk run -hosts a,b,c -n 3 --on-failure continue reduce_copies VICTIM HOW`.
//!
//! Rank VICTIM kills its agent and then itself once its contribution is protected; HOW is `background`, `acknowledged`,
//! or `process`, with which it waits for nothing and its contribution is lost. A rank that got the right end says
//! `copies: ok`.

use std::{process::ExitCode, time::Duration};

use ropewalk::reduce::{
    Job, OnLoss, Protection, Rank, ReduceError, ReduceOptions, ReductionError, RootFailure, Sum,
};
use rustix::process::{Signal, getpid, getppid, kill_process};

const ELEMENTS: usize = 1 << 20;

fn run(victim: u32, how: &str) -> Result<(), Box<dyn std::error::Error>> {
    let job = Job::from_env()?;
    let me = job.rank();
    let protection = match how {
        "process" => Protection::Process,
        how => Protection::Hosts {
            copies: 1,
            acknowledged: how == "acknowledged",
        },
    };
    let options = ReduceOptions {
        protection,
        on_loss: OnLoss::Fail,
        on_root_loss: RootFailure::MoveToLowest,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    };
    // A rank that is late keeps the others' contributions needed.
    if me.0 == job.size() - 1 {
        std::thread::sleep(Duration::from_millis(600));
    }
    let mine: Vec<u64> = (0..ELEMENTS)
        .map(|at| 1 << (8 * me.0) | (at as u64) << 40)
        .collect();
    let reduction = job.world().reduce(mine, Sum, Rank(0), &options)?;
    let is_protected = reduction.wait_until_protected();
    if me == Rank(victim) {
        if let Some(agent) = getppid() {
            kill_process(agent, Signal::KILL)?;
        }
        kill_process(getpid(), Signal::KILL)?;
    }
    let lost = ReductionError::ContributionLost {
        ranks: vec![Rank(victim)],
    };
    match reduction.get() {
        Err(ReduceError::Reduction(error)) if how == "process" && error == lost => {}
        Err(error) => return Err(error.into()),
        Ok(outcome) => {
            let size = u64::from(job.size());
            let ranks = (0..size).fold(0, |sum, rank| sum + (1 << (8 * rank)));
            let expected = |at: usize| ranks + size * ((at as u64) << 40);
            let right = |value: &Vec<u64>| (0..ELEMENTS).all(|at| value[at] == expected(at));
            if outcome.value.as_ref().is_some_and(|value| !right(value)) {
                return Err("the result is wrong".into());
            }
            // The one that all wait for may be done before it has a copy.
            let is_last = me.0 == job.size() - 1;
            if how != "process" && !is_last && (!is_protected || outcome.exposure.is_none()) {
                return Err("there is a result, and no word of protection".into());
            }
            if outcome.value.is_some() {
                println!("result without {:?}", outcome.receipt.lost);
            }
        }
    }
    println!("copies: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let victim = words
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(u32::MAX);
    match run(victim, &words.next().unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copies: {error}");
            ExitCode::FAILURE
        }
    }
}
