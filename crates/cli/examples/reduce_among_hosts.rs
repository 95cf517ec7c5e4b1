//! Short calls of ranks on two hosts, two on each: `ropewalk run -n 4 --on-failure continue reduce_among_hosts FOLDER
//! lost|late`. The last line of each rank that found what it should is `among hosts: ok`.

use std::{env, fs, path::Path, process::ExitCode, thread::sleep, time::Duration};

use ropewalk::reduce::{Job, Rank, ReduceError, ReduceOptions, ReductionError, Sum};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [folder, "lost"] => lost(Path::new(folder)),
        [folder, "late"] => late(Path::new(folder)),
        _ => Err("expected a folder, and `lost` or `late`".into()),
    };
    match result {
        Ok(()) => {
            println!("among hosts: ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("among hosts: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits until others are so far.
fn wait_for(file: &Path) {
    while !file.exists() {
        sleep(Duration::from_millis(5));
    }
}

/// Rank 0 dies before it calls, and rank 3 does not call before the others know: nobody waits for it.
fn lost(folder: &Path) -> Result {
    let job = Job::from_env()?;
    let me = job.rank();
    match me {
        Rank(0) => kill_process(getpid(), Signal::KILL)?,
        Rank(3) => [1, 2]
            .iter()
            .for_each(|rank| wait_for(&folder.join(format!("knows-{rank}")))),
        _ => {}
    }
    let outcome = job
        .world()
        .allreduce(vec![u64::from(me.0)], Sum, &ReduceOptions::default())?
        .get();
    match outcome {
        Err(ReduceError::Reduction(ReductionError::ContributionLost { ranks })) if ranks == [Rank(0)] => {}
        outcome => return Err(format!("expected the loss of rank 0, found {outcome:?}").into()),
    }
    fs::write(folder.join(format!("knows-{me}")), "")?;
    job.finalize()?;
    Ok(())
}

/// The ranks of one host make two calls at once, of which the second has a time-out, before those of the other make
/// any: only the second ends by its time-out.
fn late(folder: &Path) -> Result {
    let job = Job::from_env()?;
    let (world, me) = (job.world(), job.rank());
    let over = |rank: u32| folder.join(format!("over-{rank}"));
    if me.0 >= 2 {
        [0, 1].map(over).iter().for_each(|file| wait_for(file));
    }
    let first = world.allreduce(vec![u64::from(me.0)], Sum, &ReduceOptions::default())?;
    let options = ReduceOptions {
        timeout: Some(Duration::from_millis(300)),
        ..ReduceOptions::default()
    };
    let outcome = world.allreduce(vec![1_u64], Sum, &options)?.get();
    if !matches!(
        outcome,
        Err(ReduceError::Reduction(ReductionError::Timeout { .. }))
    ) {
        return Err(format!("expected a time-out, found {outcome:?}").into());
    }
    fs::write(over(me.0), "")?;
    match first.get()?.value {
        Some(sum) if sum == [6] => {}
        sum => return Err(format!("expected the sum 6, found {sum:?}").into()),
    }
    job.finalize()?;
    Ok(())
}
