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
    // With a failure each tenth of a second saves are due at the end of most steps.
    options.advisor = AdvisorOptions {
        mtbf: Mtbf::Known(0.1),
        ..options.advisor
    };
    let mut state = vec![1.0_f64; mebibytes << 17];
    // From the same call as the buffer of the saves, so that its pages are as large.
    let mut copy = vec![0.0_f64; state.len()];
    copy.fill(1.0);
    let mut run = SavedRun::open(options)?;
    let [mut copies, mut saves, mut commits] = [const { Vec::new() }; 3];
    // The first call restores, and the second ends the first step: it saves, as nobody knows how long that takes.
    for _ in 0..2 {
        run.step(u64::MAX, &mut [Named::array("state", &mut state)])?;
        run.wait()?;
    }
    let mut round = 0;
    while saves.len() < ROUNDS {
        round += 1;
        state.fill(f64::from(round));
        let before = run.saves_begun();
        // The second of both finds more in the caches.
        let is_first = round % 2 == 0;
        let earlier = is_first.then(|| copied(&mut copy, &state));
        let begin = Instant::now();
        run.step(u64::MAX, &mut [Named::array("state", &mut state)])?;
        let took = begin.elapsed();
        let copy_took = earlier.unwrap_or_else(|| copied(&mut copy, &state));
        let begin = Instant::now();
        run.wait()?;
        if run.saves_begun() > before {
            copies.push(copy_took);
            saves.push(took);
            commits.push(begin.elapsed());
        }
        if let Some(failure) = run.take_failure() {
            return Err(failure.into());
        }
    }
    let [copy, save, commit] = [copies, saves, commits].map(|mut times| {
        times.sort_unstable();
        times[ROUNDS / 2]
    });
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    println!("{mebibytes} MiB, median of {ROUNDS} rounds, in milliseconds:");
    println!("| copy by memcpy | foreground of a save | beside the copy | in the background |");
    println!("|---|---|---|---|");
    println!(
        "| {:.1} | {:.1} | {:.3} | {:.0} |",
        milliseconds(copy),
        milliseconds(save),
        save.as_secs_f64() / copy.as_secs_f64(),
        milliseconds(commit),
    );
    run.close(true)?;
    Ok(())
}

/// The time of a copy.
fn copied(to: &mut [f64], from: &[f64]) -> Duration {
    let begin = Instant::now();
    black_box(to).copy_from_slice(black_box(from));
    begin.elapsed()
}

const ROUNDS: usize = 11;
