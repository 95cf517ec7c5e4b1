//! Times a collective on floats, as `mpi_collective.c` beside it does for MPI.
//!
//! `reduce-vs-mpi [reduce|allreduce] any|ordered SIZE...` calls it for each size in bytes and prints `SIZE NANOSECONDS`
//! for each. The time is that of the rank that gets its result last, from its own call just after a barrier and two
//! calls that are not counted. The result is verified on every rank that gets one. Run it under `ropewalk run`;
//! `cargo xtask bench-reduce` and `cargo xtask rig bench` do.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ropewalk_reduce::{Buffer, Group, Job, Max, Order, Rank, ReduceOptions, Sum};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    let named = arguments.peek().and_then(|name| Collective::named(name));
    let collective = named.unwrap_or(Collective::Reduce);
    let mut arguments = arguments.skip(usize::from(named.is_some()));
    let order = match arguments.next().as_deref() {
        Some("any") => Order::Any,
        Some("ordered") => Order::Ordered,
        _ => bail!("usage: reduce-vs-mpi [reduce|allreduce] any|ordered SIZE..."),
    };
    let options = ReduceOptions {
        order,
        ..ReduceOptions::default()
    };
    let job = Job::from_env()?;
    let world = job.world();
    for size in arguments {
        let bytes: usize = size.parse().context("a size is a number of bytes")?;
        let mut mine = job.buffer::<f32>(bytes / size_of::<f32>())?;
        for (element, at) in mine.iter_mut().zip(0u32..) {
            *element = ((job.rank().0 + 1) * (at % 7)) as f32;
        }
        let (mut elapsed, mut result) = (Duration::ZERO, None);
        for _ in 0..=WARM_UPS {
            world.barrier(&ReduceOptions::default())?.get()?;
            let start = Instant::now();
            (result, mine) = collective.call(&world, mine, &options)?;
            elapsed = start.elapsed();
        }
        let own = match &result {
            Some(result) => {
                verify(result, collective.factor(job.size()))?;
                u64::try_from(elapsed.as_nanos())?
            }
            None => 0,
        };
        let longest = world.reduce(vec![own], Max, ROOT, &ReduceOptions::default())?;
        if let Some(longest) = longest.get()?.value {
            println!("{bytes} {}", longest[0]);
        }
    }
    job.finalize()?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Collective {
    Allreduce,
    Reduce,
}

impl Collective {
    fn named(name: &str) -> Option<Self> {
        match name {
            "allreduce" => Some(Self::Allreduce),
            "reduce" => Some(Self::Reduce),
            _ => None,
        }
    }

    /// Returns the result, if this rank gets one, and the buffer.
    fn call(
        self,
        world: &Group,
        mine: Buffer<f32>,
        options: &ReduceOptions,
    ) -> anyhow::Result<(Option<Vec<f32>>, Buffer<f32>)> {
        let (outcome, mine) = match self {
            Self::Allreduce => world.allreduce_buffer(mine, Sum, options).get(),
            Self::Reduce => world.reduce_buffer(mine, Sum, ROOT, options).get(),
        };
        Ok((outcome?.value, mine))
    }

    /// An element of the result over that of rank 0's contribution.
    fn factor(self, ranks: u32) -> u32 {
        match self {
            Self::Allreduce | Self::Reduce => ranks * (ranks + 1) / 2,
        }
    }
}

fn verify(result: &[f32], factor: u32) -> anyhow::Result<()> {
    let mut elements = result.iter().zip(0u32..);
    match elements.find(|(found, at)| **found != (factor * (at % 7)) as f32) {
        Some((found, at)) => bail!("element {at} is wrong: {found}"),
        None => Ok(()),
    }
}

const ROOT: Rank = Rank(0);
const WARM_UPS: u32 = 2;
