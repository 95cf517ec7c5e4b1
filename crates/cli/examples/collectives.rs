//! A loop whose steps make every collective once: `ropewalk run -n 4 --on-failure continue collectives [VICTIM]`.
//!
//! Each rank checks all that it gets. The victim dies right after its calls in the middle of the loop: that step still
//! has its contributions, and in those after it the others go on without it. The last line of each rank that got
//! through is `collectives: ok`.

use std::{env, iter::repeat_n, process::ExitCode, time::Duration};

use ropewalk::reduce::{Job, OnLoss, Outcome, Protection, Rank, ReduceOptions, RootFailure, Sum};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const STEPS: u64 = 10;
/// The victim dies after its calls in this step.
const LAST: u64 = 4;
/// Of elements: none, one, and up to more than a megabyte.
const LENGTHS: [usize; 4] = [0, 1, 1_000, 150_000];

fn main() -> ExitCode {
    let victim = env::args()
        .nth(1)
        .and_then(|victim| victim.parse().ok())
        .map(Rank);
    match run(victim) {
        Ok(()) => {
            println!("collectives: ok");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("collectives: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(victim: Option<Rank>) -> Result {
    let job = Job::from_env()?;
    let mut counted: Vec<Rank> = (0..job.size()).map(Rank).collect();
    for number in 0..STEPS {
        let step = Step {
            number,
            size: job.size(),
            length: LENGTHS[number as usize % LENGTHS.len()],
        };
        step.run(&job, &counted, victim.filter(|_| number == LAST))?;
        if number == LAST {
            counted.retain(|rank| victim != Some(*rank));
        }
    }
    parts(&job, &counted)?;
    job.finalize()?;
    Ok(())
}

fn options() -> ReduceOptions {
    ReduceOptions {
        on_loss: OnLoss::Exclude,
        on_root_loss: RootFailure::MoveToLowest,
        protection: Protection::Process,
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    }
}

struct Step {
    number: u64,
    size: u32,
    length: usize,
}

impl Step {
    /// An element that a rank contributes.
    fn word(&self, rank: Rank, at: usize) -> u64 {
        (u64::from(rank.0) + 1) * (self.number + 1) + at as u64
    }

    fn vector(&self, rank: Rank, length: usize) -> Vec<u64> {
        (0..length).map(|at| self.word(rank, at)).collect()
    }

    /// Makes all calls before it waits for the first of them. The contributions of the `counted` ranks are there.
    fn run(&self, job: &Job, counted: &[Rank], victim: Option<Rank>) -> Result {
        let (world, options, rank) = (job.world(), options(), job.rank());
        let mine = self.vector(rank, self.length);
        let long = self.vector(rank, self.length * self.size as usize);
        // Whoever may be lost is a root too.
        let root = victim.unwrap_or(counted[self.number as usize % counted.len()]);
        let text = format!("step {} ", self.number).repeat(self.length);
        let allreduce = world.allreduce(mine.clone(), Sum, &options)?;
        let broadcast = world.broadcast(mine.clone(), root, &options)?;
        let bytes = match rank == root {
            true => text.clone().into_bytes(),
            false => Vec::new(),
        };
        let bytes = world.broadcast_bytes(bytes, root, &options)?;
        let gather = world.gather(mine.clone(), root, &options)?;
        let allgather = world.allgather(mine.clone(), &options)?;
        let scattered = world.reduce_scatter(long, Sum, &options)?;
        let mut lent = job.buffer::<u64>(self.length)?;
        lent.copy_from_slice(&mine);
        let lent = world.allgather_buffer(lent, &options);
        if victim == Some(rank) {
            kill_process(getpid(), Signal::KILL)?;
        }

        let sums = |at: usize| counted.iter().map(|rank| self.word(*rank, at)).sum::<u64>();
        let all: Vec<u64> = (0..self.length).map(sums).collect();
        self.check("allreduce", allreduce.get()?, counted, Some(&all))?;
        let of_root = self.vector(root, self.length);
        self.check("broadcast", broadcast.get()?, &[root], Some(&of_root))?;
        self.check(
            "broadcast of bytes",
            bytes.get()?,
            &[root],
            Some(&text.into_bytes()),
        )?;
        let block = |rank: Rank| match counted.contains(&rank) {
            true => self.vector(rank, self.length),
            false => repeat_n(0, self.length).collect(),
        };
        let side_by_side: Vec<u64> = (0..self.size).map(Rank).flat_map(block).collect();
        let gathered = gather.get()?;
        let is_root = gathered.receipt.root == rank;
        self.check("gather", gathered, counted, is_root.then_some(&side_by_side))?;
        self.check("allgather", allgather.get()?, counted, Some(&side_by_side))?;
        let begin = rank.index() * self.length;
        let block: Vec<u64> = (begin..begin + self.length).map(sums).collect();
        self.check("reduce_scatter", scattered.get()?, counted, Some(&block))?;
        let (outcome, buffer) = lent.get();
        self.check("allgather of buffers", outcome?, counted, Some(&side_by_side))?;
        match *buffer == *mine {
            true => Ok(()),
            false => Err(format!("step {}: a buffer came back changed", self.number).into()),
        }
    }

    fn check<T: PartialEq>(
        &self,
        what: &str,
        outcome: Outcome<Vec<T>>,
        counted: &[Rank],
        expected: Option<&Vec<T>>,
    ) -> Result {
        let Outcome { value, receipt, .. } = outcome;
        if receipt.contributions as usize != counted.len() {
            return Err(format!(
                "step {}: {what} is of {receipt:?}, not of {counted:?}",
                self.number
            )
            .into());
        }
        match value.as_ref() == expected {
            true => Ok(()),
            false => Err(format!("step {}: the result of {what} is wrong", self.number).into()),
        }
    }
}

/// The ranks that live part in even and odd ones, in opposite order, and each part sums by itself. Nobody asks rank 2.
fn parts(job: &Job, counted: &[Rank]) -> Result {
    let rank = job.rank();
    let color = (rank != Rank(2)).then_some(rank.0 % 2);
    let part = job.world().split(color, -i64::from(rank.0), &options())?;
    let mut expected: Vec<Rank> = counted.to_vec();
    expected.retain(|other| *other != Rank(2) && other.0 % 2 == rank.0 % 2);
    expected.reverse();
    let Some(part) = part.filter(|_| color.is_some()) else {
        return Ok(());
    };
    if part.ranks() != expected {
        return Err(format!("the part is {:?}, not {expected:?}", part.ranks()).into());
    }
    let outcome = part.allreduce(vec![1_u64], Sum, &options())?.get()?;
    match outcome.value == Some(vec![expected.len() as u64]) {
        true => Ok(()),
        false => Err(format!("a part of {} counts {:?}", expected.len(), outcome.value).into()),
    }
}
