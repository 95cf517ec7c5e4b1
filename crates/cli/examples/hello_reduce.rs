//! Adds up vectors of all ranks although one crashes: `ropewalk run -n 4 --on-failure continue hello_reduce`.

use std::{error::Error, process};

use ropewalk::reduce::{Job, Rank, ReduceOptions, Sum};

fn main() -> Result<(), Box<dyn Error>> {
    let job = Job::from_env()?;
    let mine = vec![f64::from(job.rank().0) + 1.0; 1000];
    let reduction = job
        .world()
        .reduce(mine, Sum, Rank(0), &ReduceOptions::default())?;
    if job.rank() == Rank(3) {
        process::abort(); // The contribution is safe from the call on.
    }
    let outcome = reduction.get()?;
    if let Some(sum) = outcome.value {
        println!("sum {} of {} ranks", sum[0], outcome.receipt.contributions);
    }
    job.finalize()?;
    Ok(())
}
