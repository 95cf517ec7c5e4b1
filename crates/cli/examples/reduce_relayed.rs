//! Calls of a job that is so large that ranks carry messages of others, and the loss of one that does: `ropewalk run
//! --on-failure continue -n 64 reduce_relayed VICTIM`. Each rank checks what it gets.

use std::{env, error::Error, time::Duration};

use ropewalk::reduce::{Job, OnLoss, Rank, ReduceOptions, Sum};
use rustix::process::{Signal, getpid, kill_process};

/// Too long for the announcement.
const LENGTH: usize = 2 << 10;
const CALLS: usize = 8;
/// In this call the victim dies once it has contributed.
const LAST_OF_VICTIM: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let victim = Rank(env::args().nth(1).ok_or("expected a victim")?.parse()?);
    let job = Job::from_env()?;
    let me = job.rank();
    let options = ReduceOptions {
        on_loss: OnLoss::Exclude,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    };
    let own = || vec![1_u64 << me.0; LENGTH];
    let all: u64 = (0..job.size()).map(|rank| 1 << rank).sum();
    for call in 0..CALLS {
        let reduction = match call % 2 {
            0 => job.world().reduce(own(), Sum, Rank(0), &options)?,
            _ => job.world().allreduce(own(), Sum, &options)?,
        };
        if call == LAST_OF_VICTIM && me == victim {
            kill_process(getpid(), Signal::KILL)?;
        }
        let outcome = reduction.get()?;
        let (missing, expected) = match call <= LAST_OF_VICTIM {
            true => (Vec::new(), all),
            false => (vec![victim], all - (1 << victim.0)),
        };
        if outcome.receipt.excluded != missing {
            return Err(format!("call {call} went without {:?}", outcome.receipt.excluded).into());
        }
        let is_right =
            |found: Vec<u64>| found.len() == LENGTH && found.iter().all(|found| *found == expected);
        if !outcome.value.is_none_or(is_right) {
            return Err(format!("call {call} has a wrong result").into());
        }
    }
    println!("relayed: ok");
    Ok(job.finalize()?)
}
