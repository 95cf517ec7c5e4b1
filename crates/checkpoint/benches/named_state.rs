//! The foreground cost of a save by name, beside a copy of the same bytes: `cargo bench -p ropewalk-checkpoint
//! --bench named_state [-- DIRECTORY [MIB]]`. The directory says on which disk; by default that of temporary files.

use std::{
    env,
    error::Error,
    hint::black_box,
    path::PathBuf,
    time::{Duration, Instant},
};

use ropewalk_checkpoint::{AdvisorOptions, Mtbf, Named, RunOptions, SavedRun};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1).filter(|word| word != "--bench");
    let directory = words.next().map_or_else(env::temp_dir, PathBuf::from);
    let mebibytes: usize = words.next().map_or(Ok(256), |text| text.parse())?;
    let folder = tempfile::tempdir_in(directory)?;
    let mut options = RunOptions::of_job(Some(folder.path()))?;
    // A save is due at the end of each step.
    options.advisor = AdvisorOptions {
        mtbf: Mtbf::Known(0.01),
        save: Some(0.001),
        ..options.advisor
    };
    let mut state = vec![1.0_f64; mebibytes << 17];
    let mut copy = state.clone();
    let mut run = SavedRun::open(options)?;
    let [mut copies, mut saves, mut commits] = [const { Vec::new() }; 3];
    run.step(u64::MAX, &mut [Named::array("state", &mut state)])?;
    run.wait()?;
    for round in 0..ROUNDS {
        state.fill(round as f64);
        let begin = Instant::now();
        black_box(&mut copy).copy_from_slice(black_box(&state));
        copies.push(begin.elapsed());
        let begin = Instant::now();
        run.step(u64::MAX, &mut [Named::array("state", &mut state)])?;
        saves.push(begin.elapsed());
        let begin = Instant::now();
        run.wait()?;
        commits.push(begin.elapsed());
        if let Some(failure) = run.take_failure() {
            return Err(failure.into());
        }
    }
    let first = saves[0];
    let [copy, save, commit] = [copies, saves, commits].map(|mut times| {
        times.sort_unstable();
        if times[0] < Duration::from_micros(1) {
            println!("a save was not due in each step: the numbers mean nothing");
        }
        times[ROUNDS / 2]
    });
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    println!("{mebibytes} MiB, median of {ROUNDS} rounds, in milliseconds:");
    println!("| copy by memcpy | foreground of a save | beside the copy | first save | in the background |");
    println!("|---|---|---|---|---|");
    println!(
        "| {:.1} | {:.1} | {:.3} | {:.1} | {:.0} |",
        milliseconds(copy),
        milliseconds(save),
        save.as_secs_f64() / copy.as_secs_f64(),
        milliseconds(first),
        milliseconds(commit),
    );
    run.close(true)?;
    Ok(())
}

const ROUNDS: usize = 11;
