//! Reduces, broadcasts and gathers until a time, while its ranks are killed and come back.
//!
//! `reduce-soak END LIFE`: END is in seconds since 1970, and each process but those of rank 3 kills itself after a
//! random time of LIFE seconds on average. Run it under `ropewalk run --on-failure respawn=N` with at most 16 ranks;
//! `cargo xtask papers --only 003-soak` does.
//!
//! Each step is one call, or four to eight of which none waits for another. Its number says which collectives these are
//! and how long their vectors. Every result is checked: each rank that its receipt does not exclude is in it once. The
//! lowest rank prints a line for each step: `step CALLS BYTES NANOSECONDS`, where BYTES is the longest vector's. Rank 3
//! prints `memory KIBIBYTES` of its own now and then. A broadcast whose root is lost before it has called has no
//! result, which is no failure; its step is not printed.

use std::{
    env, fs,
    process::{self, ExitCode},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, ensure};
use ropewalk_reduce::{
    BootstrapError, Group, Job, Max, OnLoss, Order, Outcome, Rank, ReduceError, ReduceOptions, Reduction,
    ReductionError, RootFailure, Sum,
};
use rustix::process::{Signal, getpid, kill_process};

fn main() -> ExitCode {
    match soak() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A line is said whole.
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn soak() -> anyhow::Result<()> {
    let words: Vec<u64> = env::args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()
        .context("two numbers: when it ends, and how long a process lives")?;
    let [end, life] = words[..] else {
        anyhow::bail!("two words: when it ends, and how long a process lives");
    };
    let mut job = match Job::from_env() {
        Err(BootstrapError::JobOver { .. }) => return Ok(()),
        joined => joined?,
    };
    ensure!(job.size() <= RANKS_MAX, "a digit of a sum is for each rank");
    if !job.has_come_back() {
        // One that dies before all have joined would end the job.
        job.world().barrier(&ReduceOptions::default())?.get()?;
    }
    if job.rank() != STAYS {
        die_after(life);
    }
    let options = ReduceOptions {
        on_loss: OnLoss::Exclude,
        on_root_loss: RootFailure::MoveToLowest,
        ..ReduceOptions::default()
    };
    let mut group = job.world();
    // The number of the next step.
    let mut state = vec![0_u64];
    let mut memory_told = Instant::now();
    loop {
        if state[0].is_multiple_of(STEPS_BETWEEN_ADMISSIONS) {
            if !job.admit()?.is_empty() {
                group = job.world().without(&job.lost())?;
                state = job.share_state(state)?;
            }
            let is_over = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() >= end;
            let outcome = group.allreduce(vec![u64::from(is_over)], Max, &options)?.get()?;
            if outcome.value.context("all get it")?[0] == 1 {
                break;
            }
            group = group.without(&outcome.receipt.excluded)?;
        }
        let calls = Call::of_step(state[0]);
        let start = Instant::now();
        let begun = calls.iter().map(|call| call.begin(&group, job.rank(), &options));
        let begun = begun.collect::<Result<Vec<_>, _>>()?;
        let mut lost = Vec::new();
        let mut are_all_there = true;
        for (call, reduction) in calls.iter().zip(begun) {
            match reduction.get() {
                Ok(outcome) => {
                    call.check(&group, &outcome)
                        .with_context(|| format!("step {}: {call:?} is wrong", state[0]))?;
                    lost.extend(outcome.receipt.excluded);
                }
                Err(ReduceError::Reduction(ReductionError::ContributionLost { .. }))
                    if call.collective == Collective::Broadcast =>
                {
                    are_all_there = false;
                }
                Err(error) => Err(error).with_context(|| format!("step {}: {call:?}", state[0]))?,
            }
        }
        if are_all_there && group.ranks()[0] == job.rank() {
            let bytes = calls.iter().map(|call| call.length * size_of::<u64>()).max();
            println!(
                "step {} {} {}",
                calls.len(),
                bytes.unwrap_or_default(),
                start.elapsed().as_nanos()
            );
        }
        if job.rank() == STAYS && memory_told.elapsed() >= MEMORY_IS_TOLD_EVERY {
            memory_told = Instant::now();
            println!("memory {}", memory_kib()?);
        }
        lost.sort_unstable();
        lost.dedup();
        group = group.without(&lost)?;
        state[0] += 1;
    }
    job.finalize()?;
    Ok(())
}

/// A call that all ranks make.
#[derive(Debug)]
struct Call {
    collective: Collective,
    /// The root is the rank at this place of the group, counted round.
    root: usize,
    /// The elements that a rank contributes.
    length: usize,
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Collective {
    Reduce,
    Allreduce,
    Broadcast,
    Gather,
    Allgather,
}

impl Call {
    /// The calls of a step.
    fn of_step(step: u64) -> Vec<Self> {
        use Collective::{Allgather, Allreduce, Broadcast, Gather, Reduce};
        const COLLECTIVES: [Collective; 8] = [
            Reduce, Allreduce, Reduce, Broadcast, Allreduce, Gather, Reduce, Allgather,
        ];
        const ALONE: [usize; 5] = [1, 128, 8 << 10, 128 << 10, 1 << 20];
        const AT_ONCE: [usize; 4] = [1, 128, 8 << 10, 128 << 10];
        let mut dice = step;
        let mut draw = |below: usize| (random(&mut dice) % below as u64) as usize;
        let count = if draw(3) == 0 { 4 + draw(5) } else { 1 };
        let lengths = if count == 1 { &ALONE[..] } else { &AT_ONCE[..] };
        let mut call = || {
            let collective = COLLECTIVES[draw(COLLECTIVES.len())];
            let length = lengths[draw(lengths.len())];
            Self {
                collective,
                root: draw(RANKS_MAX as usize),
                // Its result has as many of these as there are ranks.
                length: match collective {
                    Gather | Allgather => length.div_ceil(8),
                    _ => length,
                },
                order: if draw(4) == 0 { Order::Ordered } else { Order::Any },
            }
        };
        (0..count).map(|_| call()).collect()
    }

    fn begin(
        &self,
        group: &Group,
        own: Rank,
        options: &ReduceOptions,
    ) -> Result<Reduction<Vec<u64>>, ReduceError> {
        let options = &ReduceOptions {
            order: self.order,
            ..options.clone()
        };
        let data = vec![digit(own); self.length];
        let root = self.root(group);
        match self.collective {
            Collective::Reduce => group.reduce(data, Sum, root, options),
            Collective::Allreduce => group.allreduce(data, Sum, options),
            Collective::Broadcast => group.broadcast(data, root, options),
            Collective::Gather => group.gather(data, root, options),
            Collective::Allgather => group.allgather(data, options),
        }
    }

    fn root(&self, group: &Group) -> Rank {
        group.ranks()[self.root % group.ranks().len()]
    }

    fn check(&self, group: &Group, outcome: &Outcome<Vec<u64>>) -> anyhow::Result<()> {
        let Some(found) = &outcome.value else {
            return Ok(());
        };
        let part = |rank: &Rank| match outcome.receipt.excluded.contains(rank) {
            true => 0,
            false => digit(*rank),
        };
        let expected: Vec<u64> = match self.collective {
            Collective::Reduce | Collective::Allreduce => vec![group.ranks().iter().map(part).sum()],
            Collective::Broadcast => vec![digit(self.root(group))],
            Collective::Gather | Collective::Allgather => group.ranks().iter().map(part).collect(),
        };
        let length = self.length * expected.len();
        ensure!(found.len() == length, "{} elements, not {length}", found.len());
        for (block, expected) in found.chunks(self.length).zip(expected) {
            if let Some(element) = block.iter().find(|element| **element != expected) {
                anyhow::bail!("{element:x}, not {expected:x}: {:?}", outcome.receipt);
            }
        }
        Ok(())
    }
}

/// The contribution of a rank: a hexadecimal digit of its own, so that a sum shows who is in it, and how often.
fn digit(rank: Rank) -> u64 {
    1 << (4 * rank.0)
}

/// Lets this process end after a random time of so many seconds on average, as by a failure of its memory.
fn die_after(seconds: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut dice = now.unwrap_or_default().as_nanos() as u64 ^ u64::from(process::id()) << 40;
    let uniform = (random(&mut dice) >> 11) as f64 / (1_u64 << 53) as f64;
    let life = Duration::from_secs_f64(-(1.0 - uniform).ln() * seconds as f64);
    thread::spawn(move || {
        thread::sleep(life);
        // It cannot fail.
        let _ = kill_process(getpid(), Signal::KILL);
    });
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut drawn = *state;
    drawn = (drawn ^ drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    drawn = (drawn ^ drawn >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    drawn ^ drawn >> 31
}

/// The memory of this process that is its own, in KiB.
fn memory_kib() -> anyhow::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Dirty:"));
    let words = line.context("the kernel tells no Pss_Dirty")?.split_whitespace();
    Ok(words.take(1).collect::<String>().parse()?)
}

/// Each rank has a digit of a `u64`.
const RANKS_MAX: u32 = 16;
/// It is never killed: somebody has to know the step, and to show that its memory does not grow.
const STAYS: Rank = Rank(3);
const STEPS_BETWEEN_ADMISSIONS: u64 = 8;
const MEMORY_IS_TOLD_EVERY: Duration = Duration::from_secs(20);
