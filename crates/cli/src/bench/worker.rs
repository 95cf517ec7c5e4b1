//! `ropewalk bench-reduce-worker`: one rank of `ropewalk bench reduce`.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use ropewalk_bench::output::print;
use ropewalk_reduce::{Group, Job, Max, ReduceOptions};

use super::{
    call::{Call, ELEMENT, contributed},
    task::{Task, Times},
};

/// The arguments of a rank.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The task, in JSON.
    task: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let task: Task = serde_json::from_str(&arguments.task).context("the task is no task")?;
    let options = task.options();
    let job = Job::from_env()?;
    let rank = Rank {
        own: job.rank().0,
        ranks: job.size(),
        world: job.world(),
        options: &options,
    };
    for &(call, bytes) in &task.cases {
        let about = || format!("{} of {bytes} bytes", call.name());
        let seconds = rank.time(call, bytes, task.rounds).with_context(about)?;
        if rank.own == 0 {
            let times = Times { call, bytes, seconds };
            print(serde_json::to_string(&times)?)?;
        }
    }
    job.finalize()?;
    Ok(())
}

/// A rank that measures.
struct Rank<'a> {
    own: u32,
    ranks: u32,
    world: Group,
    options: &'a ReduceOptions,
}

impl Rank<'_> {
    /// The seconds of each round, the longest of all ranks. Checks the last result.
    fn time(&self, call: Call, bytes: u64, rounds: u32) -> anyhow::Result<Vec<f64>> {
        let elements = usize::try_from(bytes / ELEMENT)?;
        let mut mine = Vec::new();
        mine.try_reserve_exact(elements)?;
        mine.extend((0..elements).map(|at| contributed(self.own, at)));
        let mut seconds = Vec::new();
        let mut result = None;
        // The row before is on its way to the terminal, and who carries it needs a processor.
        thread::sleep(SETTLING);
        for round in 0..WARM_UPS + rounds {
            // The call takes its vector: the copy for the next round is made outside the time.
            let data = mine.clone();
            self.world.barrier(self.options)?.get()?;
            let start = Instant::now();
            let outcome = call.begin(&self.world, data, self.options)?.get()?;
            let elapsed = start.elapsed();
            if round >= WARM_UPS {
                seconds.push(elapsed.as_secs_f64());
            }
            result = outcome.value;
        }
        self.check(call, elements, result.as_deref())?;
        let longest = self.world.allreduce(seconds, Max, self.options)?.get()?;
        longest.value.context("all ranks get the longest times")
    }

    /// Checks a result.
    fn check(&self, call: Call, elements: usize, result: Option<&[f64]>) -> anyhow::Result<()> {
        let expected = call.result_length(self.own, self.ranks, elements);
        let found = result.map(<[f64]>::len);
        ensure!(
            found == expected,
            "the result has {found:?} elements, not {expected:?}"
        );
        for (at, &found) in result.unwrap_or_default().iter().enumerate() {
            let expected = call.result(self.own, self.ranks, elements, at);
            ensure!(
                found == expected,
                "element {at} of the result is {found}, not {expected}"
            );
        }
        Ok(())
    }
}

const SETTLING: Duration = Duration::from_millis(20);
/// Rounds that do not count: memory and connections are cold.
const WARM_UPS: u32 = 2;
