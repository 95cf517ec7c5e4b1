//! Reduces vectors whose sum shows any contribution that is missing or counted twice.
//!
//! Run it under `ropewalk run` or any PMI-1 process manager: `soak_worker [BYTES [REPEATS [ORDER]]]`, ORDER being
//! `any` or `ordered`. Rank 0 gets the result or, if it is lost, rank 1, which checks it and prints a line. If rank 0
//! has it, rank 1 prints that.

use std::time::Instant;

use ropewalk_reduce::{Job, Order, Rank, ReduceOptions, RootFailure, Sum};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let bytes: usize = arguments.next().map_or(Ok(8 << 20), |text| text.parse())?;
    let repeats: u32 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let order = match arguments.next().as_deref() {
        None | Some("any") => Order::Any,
        Some("ordered") => Order::Ordered,
        Some(other) => return Err(format!("{other:?} is no order: expected any or ordered").into()),
    };
    let job = Job::from_env()?;
    let options = ReduceOptions {
        order,
        on_root_loss: RootFailure::MoveTo(Rank(1 % job.size())),
        ..ReduceOptions::default()
    };
    for repeat in 0..repeats {
        let mine = contribution(job.rank(), bytes / size_of::<u64>());
        let start = Instant::now();
        let outcome = job.world().reduce(mine, Sum, Rank(0), &options)?.get()?;
        if job.rank() == Rank(1) && outcome.receipt.root == Rank(0) {
            println!("told {repeat}: rank 0 has the result");
        }
        if let Some(sum) = outcome.value {
            let elapsed = start.elapsed();
            check(&sum, job.size())?;
            let receipt = outcome.receipt;
            println!(
                "exact {repeat}: {} contributions, {} plans, lost {:?}, {:.3} ms",
                receipt.contributions,
                receipt.plans,
                receipt.lost,
                elapsed.as_secs_f64() * 1e3
            );
        }
    }
    job.finalize()?;
    Ok(())
}

/// Each rank's elements: its own power of two, times a factor of the position.
fn contribution(rank: Rank, length: usize) -> Vec<u64> {
    (0..length as u64)
        .map(|at| (at % 251 + 1) << (8 * (rank.0 % 7)) ^ u64::from(rank.0))
        .collect()
}

fn check(sum: &[u64], size: u32) -> Result<(), String> {
    let mut expected = vec![0u64; sum.len()];
    for rank in (0..size).map(Rank) {
        let contributed = contribution(rank, sum.len());
        expected
            .iter_mut()
            .zip(contributed)
            .for_each(|(sum, one)| *sum = sum.wrapping_add(one));
    }
    match sum
        .iter()
        .zip(&expected)
        .position(|(found, expected)| found != expected)
    {
        None => Ok(()),
        Some(at) => Err(format!("element {at} is {}, not {}", sum[at], expected[at])),
    }
}
