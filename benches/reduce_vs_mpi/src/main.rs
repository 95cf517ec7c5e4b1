//! Times a collective on floats, as `mpi_collective.c` beside it does for MPI.
//!
//! `reduce-vs-mpi [--rounds N] [--late-ms MS] [--compute-ms MS] [--at-once K] [--scheduler 1] [--kill 1]
//! [reduce|allreduce] any|ordered [none|process|host|host-acknowledged] SIZE...` calls it for each size in bytes and
//! prints a line `SIZE NANOSECONDS` for each of N rounds. The time is that of the rank that gets its result last, from
//! its own call just after a barrier, after two rounds that are not counted. The result is verified on every rank that
//! gets one.
//!
//! With `--late-ms` rank 4 calls so much later than the others, and the time begins when it calls. With `--at-once` a
//! round is of K calls of which none waits for another, and the time is that of all. With `--compute-ms` each rank
//! computes for so long between its calls and the wait for their results. With `--scheduler 1` a line goes on with the
//! scheduler's messages in the round of this number: received, their bytes, sent, their bytes. With `--kill 1` rank 4
//! kills itself in the middle of the last round: after half the time of the round before. Run it under `ropewalk run`;
//! `cargo xtask rig bench` does.

use std::{
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ropewalk_reduce::{
    Buffer, Group, Job, Max, OnLoss, Order, Protection, Rank, ReduceOptions, SchedulerLoad, Sum,
};

fn main() -> anyhow::Result<()> {
    let Words {
        rounds,
        late,
        compute,
        at_once,
        shows_scheduler,
        is_killed,
        collective,
        options,
        sizes,
    } = Words::read()?;
    let job = Job::from_env()?;
    let world = job.world();
    for bytes in sizes {
        let contribution = || {
            let mut mine = job.buffer::<f32>(bytes / size_of::<f32>())?;
            for (element, at) in mine.iter_mut().zip(0u32..) {
                *element = ((job.rank().0 + 1) * (at % 7)) as f32;
            }
            anyhow::Ok(mine)
        };
        let mut mine = (0..at_once)
            .map(|_| contribution())
            .collect::<Result<Vec<_>, _>>()?;
        let (mut elapsed, mut loads, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = Duration::ZERO;
        for round in 0..WARM_UPS + rounds {
            world.barrier(&ReduceOptions::default())?.get()?;
            let start = Instant::now() + late;
            if job.rank() == LATE_RANK {
                sleep(late);
                if is_killed && round + 1 == WARM_UPS + rounds {
                    die_after(before / 2);
                }
            }
            let load;
            (results, mine, load) = collective.call(&world, mine, &options, compute)?;
            before = start.elapsed();
            if round >= WARM_UPS {
                let gets_result = results.iter().any(Option::is_some);
                let own = if gets_result {
                    start.elapsed()
                } else {
                    Duration::ZERO
                };
                elapsed.push(u64::try_from(own.as_nanos())?);
                loads.push(load);
            }
        }
        for result in results.iter().flatten() {
            verify(result, collective.factor(job.size()))?;
        }
        let without_lost = ReduceOptions {
            on_loss: OnLoss::Exclude,
            ..ReduceOptions::default()
        };
        let longest = world.reduce(elapsed, Max, ROOT, &without_lost)?;
        for (nanoseconds, load) in longest.get()?.value.into_iter().flatten().zip(loads) {
            let load = match shows_scheduler {
                true => format!(
                    " {} {} {} {}",
                    load.received, load.received_bytes, load.sent, load.sent_bytes
                ),
                false => String::new(),
            };
            println!("{bytes} {nanoseconds}{load}");
        }
    }
    job.finalize()?;
    Ok(())
}

/// The command line.
struct Words {
    rounds: u64,
    late: Duration,
    compute: Duration,
    at_once: u64,
    shows_scheduler: bool,
    is_killed: bool,
    collective: Collective,
    options: ReduceOptions,
    sizes: Vec<usize>,
}

impl Words {
    fn read() -> anyhow::Result<Self> {
        let mut words = Self {
            rounds: 1,
            late: Duration::ZERO,
            compute: Duration::ZERO,
            at_once: 1,
            shows_scheduler: false,
            is_killed: false,
            collective: Collective::Reduce,
            options: ReduceOptions::default(),
            sizes: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(word) = arguments.next() {
            let mut number = || {
                let value = arguments.next().context("a number is missing")?;
                value
                    .parse::<u64>()
                    .with_context(|| format!("{word} takes a number"))
            };
            match word.as_str() {
                "--rounds" => words.rounds = number()?,
                "--late-ms" => words.late = Duration::from_millis(number()?),
                "--compute-ms" => words.compute = Duration::from_millis(number()?),
                "--scheduler" => words.shows_scheduler = number()? > 0,
                "--kill" => words.is_killed = number()? > 0,
                "--at-once" => words.at_once = number()?,
                "allreduce" => words.collective = Collective::Allreduce,
                "reduce" => words.collective = Collective::Reduce,
                "any" => words.options.order = Order::Any,
                "ordered" => words.options.order = Order::Ordered,
                "none" => words.options.protection = Protection::None,
                "process" => words.options.protection = Protection::Process,
                "host" | "host-acknowledged" => {
                    words.options.protection = Protection::Hosts {
                        copies: 1,
                        acknowledged: word == "host-acknowledged",
                    };
                }
                _ => words
                    .sizes
                    .push(word.parse().context("a size is a number of bytes")?),
            }
        }
        Ok(words)
    }
}

/// Kills this process, as `kill -9` does.
fn die_after(time: Duration) {
    thread::spawn(move || {
        sleep(time);
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
    });
}

/// The results of a round, its buffers, and the messages of the scheduler in its first call.
type Returned = (Vec<Option<Vec<f32>>>, Vec<Buffer<f32>>, SchedulerLoad);

#[derive(Clone, Copy)]
enum Collective {
    Allreduce,
    Reduce,
}

impl Collective {
    /// Calls once for each buffer, computes, and waits for all. Returns the results, if this rank gets some.
    fn call(
        self,
        world: &Group,
        mine: Vec<Buffer<f32>>,
        options: &ReduceOptions,
        compute: Duration,
    ) -> anyhow::Result<Returned> {
        let call = |mine| match self {
            Self::Allreduce => world.allreduce_buffer(mine, Sum, options),
            Self::Reduce => world.reduce_buffer(mine, Sum, ROOT, options),
        };
        let called: Vec<_> = mine.into_iter().map(call).collect();
        let until = Instant::now() + compute;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let (mut results, mut buffers, mut load) = (Vec::new(), Vec::new(), None);
        for call in called {
            let (outcome, mine) = call.get();
            let outcome = outcome?;
            load.get_or_insert(outcome.receipt.scheduler);
            results.push(outcome.value);
            buffers.push(mine);
        }
        Ok((results, buffers, load.unwrap_or_default()))
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
const LATE_RANK: Rank = Rank(4);
const WARM_UPS: u64 = 2;
