//! Calls while the agent reads nothing: `ropewalk run -n 4 --on-failure continue reduce_full_link named|numbered`.
//!
//! Rank 0 stops the agent of its host, and all ranks begin more reductions than the links to it have room for: no call
//! waits, and the contributions without room are not protected. When the agent goes on it takes all of them. Rank 1
//! dies then, and its contributions count. The last line of a rank that got the right results is `full link: ok`.

use std::{
    env,
    process::ExitCode,
    time::{Duration, Instant},
};

use ropewalk::reduce::{Job, Rank, ReduceOptions, Reduction, Sum};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

type Failure = Box<dyn std::error::Error>;

/// A link has room for some 200 contributions, and each of these needs a descriptor.
const CALLS: u64 = 350;
/// The agent holds shorter contributions without a message for each.
const LENGTH: usize = 10_000;
/// The agent is stopped for less than the time after which it counts as lost.
const CALLS_TIME_MAX: Duration = Duration::from_secs(2);

/// A process that is stopped, until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: Pid) -> Result<Self, Failure> {
        kill_process(process, Signal::STOP)?;
        Ok(Self(process))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // If it is gone by now there is nothing to do.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Rank `rank` adds this to reduction `number`.
fn element(rank: u32, number: u64) -> u64 {
    number << 16 | 1 << rank
}

fn run(are_named: bool) -> Result<(), Failure> {
    let job = Job::from_env()?;
    let (world, options) = (job.world(), ReduceOptions::default());
    let begin = |number: u64| -> Result<Reduction<Vec<u64>>, Failure> {
        let options = ReduceOptions {
            id: are_named.then_some(number),
            ..ReduceOptions::default()
        };
        Ok(world.allreduce(vec![element(job.rank().0, number); LENGTH], Sum, &options)?)
    };
    // The ways between the ranks are open then.
    world.barrier(&options)?.get()?;
    let stopped = match job.rank() {
        Rank(0) => Some(Stopped::new(getppid().ok_or("there is no agent")?)?),
        _ => None,
    };
    world.barrier(&options)?.get()?;
    let begun = Instant::now();
    let reductions: Vec<_> = (0..CALLS).map(begin).collect::<Result<_, _>>()?;
    let time = begun.elapsed();
    if stopped.is_some() && reductions.iter().all(Reduction::is_protected) {
        return Err("all contributions are protected by an agent that is stopped".into());
    }
    drop(stopped);
    if time > CALLS_TIME_MAX {
        return Err(format!("the calls took {time:?}").into());
    }
    if job.rank() == Rank(1) && reductions.iter().all(Reduction::wait_until_protected) {
        kill_process(getpid(), Signal::KILL)?;
    }
    for (reduction, number) in reductions.into_iter().zip(0..) {
        let outcome = reduction.get()?;
        let expected = (0..job.size()).map(|rank| element(rank, number)).sum();
        if outcome.value != Some(vec![expected; LENGTH]) || outcome.exposure.is_none() {
            let first = outcome.value.as_ref().and_then(|value| value.first());
            return Err(format!("reduction {number}: {first:?}, not {expected}").into());
        }
    }
    println!("full link: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    match run(env::args().nth(1).is_some_and(|calls| calls == "named")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("full link: {error}");
            ExitCode::FAILURE
        }
    }
}
