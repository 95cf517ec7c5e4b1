//! A reduction of sources that all ranks can read:
//! `ropewalk run -n 3 --on-failure continue reduce_sources VICTIM READS`.
//!
//! Rank VICTIM kills itself in its read number READS, or before its call if that is 0. The last line of every other
//! rank is `sources: ok`; the one with the result has compared it with a serial loop, bit by bit.

use std::{
    collections::BTreeMap,
    io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ropewalk::reduce::{Job, Rank, ReduceOptions, RootFailure, Source, Sources, Sum};
use rustix::process::{Signal, getpid, kill_process};

const MEMBERS: u32 = 7;
const ELEMENTS: usize = 1 << 18;

/// The vector of one member, whose reading takes a while.
struct Slow {
    member: u32,
    /// The reads of this rank until it dies.
    left: Option<Arc<AtomicU32>>,
}

fn element(member: u32, at: usize) -> f32 {
    ((member as usize * 7_919 + at * 104_729) % 1_000_003) as f32 / 7.0
}

fn die() {
    // It does not return.
    let _ = kill_process(getpid(), Signal::KILL);
}

impl Source for Slow {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        if let Some(left) = &self.left
            && left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            die();
        }
        std::thread::sleep(Duration::from_millis(1));
        for (at, bytes) in into.chunks_exact_mut(size_of::<f32>()).enumerate() {
            let at = offset as usize / size_of::<f32>() + at;
            bytes.copy_from_slice(&element(self.member, at).to_ne_bytes());
        }
        Ok(())
    }
}

fn run(victim: u32, reads: u32) -> Result<(), Box<dyn std::error::Error>> {
    let job = Job::from_env()?;
    let is_victim = job.rank() == Rank(victim);
    if is_victim && reads == 0 {
        die();
    }
    let left = is_victim.then(|| Arc::new(AtomicU32::new(reads)));
    let source = |member| {
        let left = left.clone();
        (member, Arc::new(Slow { member, left }) as Arc<dyn Source>)
    };
    let sources = Sources {
        members: MEMBERS,
        bytes: (ELEMENTS * size_of::<f32>()) as u64,
        held: (0..MEMBERS).map(source).collect::<BTreeMap<_, _>>(),
    };
    let options = ReduceOptions {
        on_root_loss: RootFailure::MoveToLowest,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    };
    let outcome = job
        .world()
        .reduce_sources::<f32>(sources, Sum, Rank(0), &options)?
        .get()?;
    if let Some(found) = outcome.value {
        let serial = |at| (1..MEMBERS).fold(element(0, at), |sum, member| sum + element(member, at));
        let odd = found
            .iter()
            .enumerate()
            .find(|(at, found)| found.to_bits() != serial(*at).to_bits());
        if let Some((at, found)) = odd {
            return Err(format!("element {at} is {found}, not {}", serial(at)).into());
        }
        if outcome.receipt.contributions != MEMBERS || outcome.receipt.root != job.rank() {
            return Err(format!("{:?}", outcome.receipt).into());
        }
        println!("result: {}", found.len());
    }
    println!("sources: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse().unwrap_or(0));
    let (victim, reads) = (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0));
    match run(victim, reads) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sources: {error}");
            ExitCode::FAILURE
        }
    }
}
