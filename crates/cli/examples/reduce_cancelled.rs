//! Reductions that a rank cancels: `ropewalk run -n 4 reduce_cancelled FOLDER LENGTH`, where LENGTH is a number of
//! elements. The last line of each rank that found what it should is `cancelled: ok`.

use std::{env, error::Error, fs, path::Path, thread::sleep, time::Duration};

use ropewalk::reduce::{Job, Rank, ReduceError, ReduceOptions, ReductionError, Sum};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [folder, length] = &words[..] else {
        return Err("expected a folder and a length".into());
    };
    let (folder, length) = (Path::new(folder), length.parse()?);
    let job = Job::from_env()?;
    let (world, me) = (job.world(), job.rank());
    let last = Rank(job.size() - 1);
    let told = folder.join("told");
    let call = || world.allreduce(vec![1_u64; length], Sum, &ReduceOptions::default());

    // The last rank calls when all others have been told the end.
    while me == last && !told.exists() {
        sleep(Duration::from_millis(5));
    }
    let reduction = call()?;
    if me == Rank(1) {
        sleep(Duration::from_millis(200));
        reduction.cancel();
        reduction.cancel();
    }
    // On several hosts the scheduler may not have heard by then of others who called.
    match reduction.get() {
        Err(ReduceError::Reduction(ReductionError::Cancelled { rank, missing }))
            if rank == Rank(1) && missing.contains(&last) => {}
        outcome => return Err(format!("expected that rank 1 cancels, found {outcome:?}").into()),
    }
    if me == Rank(1) {
        fs::write(&told, "")?;
    }

    // The next call is another one, and to cancel one that has ended changes nothing.
    let reduction = call()?;
    while !reduction.wait_for(Duration::from_secs(60)) {}
    reduction.cancel();
    match reduction.get()?.value {
        Some(sum) if sum == vec![u64::from(job.size()); length] => {}
        sum => return Err(format!("expected ones times the ranks, found {sum:?}").into()),
    }
    job.finalize()?;
    println!("cancelled: ok");
    Ok(())
}
