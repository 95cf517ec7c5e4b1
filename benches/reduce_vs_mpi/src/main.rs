//! Times a reduction of floats to rank 0, as `mpi_reduce.c` beside it does for MPI.
//!
//! `reduce-vs-mpi any|ordered SIZE...` reduces once for each size in bytes and prints `SIZE NANOSECONDS`
//! for each. The result is verified. Run it under `ropewalk run`; `cargo xtask bench-reduce` does.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ropewalk_reduce::{Group, Job, Order, Rank, ReduceOptions, Sum};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let order = match arguments.next().as_deref() {
        Some("any") => Order::Any,
        Some("ordered") => Order::Ordered,
        _ => bail!("usage: reduce-vs-mpi any|ordered SIZE..."),
    };
    let options = ReduceOptions {
        order,
        ..ReduceOptions::default()
    };
    let job = Job::from_env()?;
    let world = job.world();
    for size in arguments {
        let bytes: usize = size.parse().context("a size is a number of bytes")?;
        let mine: Vec<f32> = (0..bytes / size_of::<f32>())
            .map(|at| ((job.rank().0 + 1) * (at % 7) as u32) as f32)
            .collect();
        let (mut elapsed, mut result) = (Duration::ZERO, None);
        for _ in 0..=WARM_UPS {
            // The copy that the reduction takes over is made outside the time: MPI leaves the caller's alone.
            let contribution = mine.clone();
            wait_for_all(&world)?;
            let start = Instant::now();
            result = world.reduce(contribution, Sum, Rank(0), &options)?.get()?.value;
            elapsed = start.elapsed();
        }
        if let Some(result) = result {
            let factor = job.size() * (job.size() + 1) / 2;
            let mut elements = result.iter().zip(0u32..);
            if let Some((found, at)) = elements.find(|(found, at)| **found != (factor * (at % 7)) as f32) {
                bail!("element {at} is wrong: {found}");
            }
            println!("{bytes} {}", elapsed.as_nanos());
        }
    }
    job.finalize()?;
    Ok(())
}

/// A barrier: the end of a reduction is known only when all have contributed.
fn wait_for_all(world: &Group) -> anyhow::Result<()> {
    world
        .reduce(vec![0u8], Sum, Rank(0), &ReduceOptions::default())?
        .get()?;
    Ok(())
}

const WARM_UPS: u32 = 2;
