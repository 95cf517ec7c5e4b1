//! A reduction of vectors that each rank can make:
//! `ropewalk run -n 3 --on-failure continue reduce_made VICTIM HOW FILE`.
//!
//! Rank VICTIM kills itself while rank 2 is busy with the first vector that it makes; rank 1 has made its own ones by
//! then. Before that it makes FILE, for which rank 2 waits. HOW is `alike`, or `otherwise`: then each rank makes other
//! vectors, which must be an error if rank 1 dies. The last line of a rank that got the right end is `made: ok`.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use ropewalk::reduce::{Job, Rank, ReduceError, ReduceOptions, ReductionError, RootFailure, Sources, Sum};
use rustix::process::{Signal, getpid, kill_process};

const MEMBERS: u32 = 6;
const ELEMENTS: usize = 1 << 19;
/// The rank that takes its time.
const SLOW: Rank = Rank(2);

fn element(member: u32, at: usize) -> f64 {
    ((member as usize * 7_919 + at * 104_729) % 1_000_003) as f64 / 7.0
}

/// Waits for something, but not for ever.
fn wait_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run(victim: Rank, how: &str, file: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let job = Job::from_env()?;
    let me = job.rank();
    let odd = match how {
        "otherwise" => f64::from(me.0),
        _ => 0.0,
    };
    let has_victim = victim.0 < job.size();
    let made = Arc::new(AtomicU32::new(0));
    let (count, mark) = (Arc::clone(&made), file.clone());
    let make = move |member| {
        if me == SLOW && has_victim && count.load(Ordering::Relaxed) == 0 {
            wait_until(|| mark.exists());
            std::thread::sleep(Duration::from_millis(100));
        }
        let vector = (0..ELEMENTS).map(|at| element(member, at) + odd).collect();
        count.fetch_add(1, Ordering::Relaxed);
        vector
    };
    let sources = Sources::from_fn(MEMBERS, ELEMENTS, make);
    let options = ReduceOptions {
        on_root_loss: RootFailure::MoveToLowest,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    };
    let reduction = job
        .world()
        .reduce_sources::<f64>(sources, Sum, Rank(0), &options)?;
    if me == victim {
        // The root makes its vectors when others come to it.
        wait_until(|| me == Rank(0) || made.load(Ordering::Relaxed) > 0);
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(file, "")?;
        kill_process(getpid(), Signal::KILL)?;
    }
    match reduction.get() {
        Ok(outcome) if how == "otherwise" && outcome.receipt.lost.is_empty() => {}
        Ok(outcome) if how == "otherwise" => return Err(format!("{:?}", outcome.receipt).into()),
        Ok(outcome) => {
            let serial = |at| (1..MEMBERS).fold(element(0, at), |sum, member| sum + element(member, at));
            if let Some(found) = outcome.value {
                let odd = (0..ELEMENTS).find(|&at| found[at].to_bits() != serial(at).to_bits());
                if let Some(at) = odd {
                    return Err(format!("element {at} is {}, not {}", found[at], serial(at)).into());
                }
                println!("result without {:?}", outcome.receipt.lost);
            }
        }
        Err(ReduceError::Reduction(ReductionError::Source { message, .. }))
            if how == "otherwise" && message.contains("with other bits") =>
        {
            println!("odd: {message}");
        }
        Err(error) => return Err(error.into()),
    }
    println!("made: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let victim = words.next().and_then(|word| word.parse().ok());
    let (how, file) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match run(Rank(victim.unwrap_or(u32::MAX)), &how, file.into()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("made: {error}");
            ExitCode::FAILURE
        }
    }
}
