//! Reductions under a process manager that is not ours, while ranks die or stand still; each rank checks what it gets:
//! `mpiexec.hydra -disable-auto-cleanup -n 4 reduce_foreign WAY VICTIM MILLISECONDS [FOLDER]`.
//!
//! The victim is killed so many milliseconds after the job has begun. The ways are `fail`, in which the others get an
//! error with its name, `exclude`, in which they go on without it, `copies`, in which it dies after its call and its
//! contribution counts, `shared`, in which all ranks can read all contributions, and `stop`, in which all ranks below
//! the victim stand still instead, and the victim goes on alone. Each rank leaves its process id in the folder.

use std::{
    env,
    error::Error,
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use ropewalk::reduce::{
    Job, OnLoss, Outcome, Protection, Rank, ReduceError, ReduceOptions, ReductionError, RootFailure, Source,
    Sources, Sum,
};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LENGTH: usize = 1 << 16;
/// All is over by then, or something hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between reductions without ranks that may come back.
const PAUSE: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result {
    let words: Vec<String> = env::args().skip(1).collect();
    let [way, victim, millis, rest @ ..] = &words[..] else {
        return Err("expected a way, a victim and milliseconds".into());
    };
    let (victim, delay) = (Rank(victim.parse()?), Duration::from_millis(millis.parse()?));
    let job = Job::from_env()?;
    let me = job.rank();
    if let Some(folder) = rest.first() {
        let file = PathBuf::from(folder).join(me.to_string());
        fs::write(file, getpid().as_raw_nonzero().to_string())?;
    }
    let is_copied = way == "copies";
    let signal = match way.as_str() {
        "stop" => (me < victim).then_some(Signal::STOP),
        _ => (me == victim && !is_copied).then_some(Signal::KILL),
    };
    if let Some(signal) = signal {
        thread::spawn(move || {
            thread::sleep(delay);
            kill_process(getpid(), signal)
        });
    }
    let told = match way.as_str() {
        "fail" => meet_the_error(&job, victim),
        "exclude" => go_on(&job, Duration::ZERO, None),
        "stop" => {
            let mark = rest.first().map(|folder| PathBuf::from(folder).join("without"));
            go_on(&job, PAUSE, mark)
        }
        "copies" => die_with_copies(&job, victim, delay),
        "shared" => share(&job, victim),
        _ => Err(format!("{way:?} is no way").into()),
    };
    // An error is no reason to leave without the others.
    match &told {
        Ok(told) => println!("rank {me}: {told}"),
        Err(error) => println!("rank {me}: error: {error}"),
    }
    job.finalize()?;
    told.map(|_| ())
}

fn options(on_loss: OnLoss) -> ReduceOptions {
    ReduceOptions {
        on_loss,
        on_root_loss: RootFailure::MoveTo(Rank(1)),
        timeout: Some(TIMEOUT),
        ..ReduceOptions::default()
    }
}

fn own_part(job: &Job) -> Vec<u64> {
    vec![1 << job.rank().0; LENGTH]
}

/// A result has each contribution once that its receipt does not exclude.
fn check(job: &Job, outcome: &Outcome<Vec<u64>>) -> Result {
    let excluded = &outcome.receipt.excluded;
    let counted = (0..job.size()).filter(|rank| !excluded.contains(&Rank(*rank)));
    let expected: u64 = counted.map(|rank| 1 << rank).sum();
    match &outcome.value {
        Some(found) if found.len() != LENGTH || found.iter().any(|found| *found != expected) => {
            Err(format!("expected {expected}, found {:?}", &found[..1]).into())
        }
        _ => Ok(()),
    }
}

/// Reduces until one reduction fails, as it has to.
fn meet_the_error(job: &Job, victim: Rank) -> Result<String> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        match job
            .world()
            .reduce(own_part(job), Sum, Rank(0), &options(OnLoss::Fail))?
            .get()
        {
            Ok(outcome) => check(job, &outcome)?,
            Err(ReduceError::Reduction(ReductionError::ContributionLost { ranks })) if ranks == [victim] => {
                return Ok(format!("contributions were lost with rank {victim}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err("no reduction has failed".into())
}

/// Reduces until a rank is missing, which makes the mark, and ten times more, after a pause each.
fn go_on(job: &Job, pause: Duration, mark: Option<PathBuf>) -> Result<String> {
    let start = Instant::now();
    let mut excluded = Vec::new();
    let mut without = 0;
    while without < 10 {
        if start.elapsed() > TIMEOUT {
            return Err("nobody was lost".into());
        }
        let options = options(OnLoss::Exclude);
        let outcome = job.world().reduce(own_part(job), Sum, Rank(0), &options)?.get()?;
        check(job, &outcome)?;
        if !outcome.receipt.excluded.is_empty() {
            without += 1;
            excluded = outcome.receipt.excluded;
            mark.as_ref().map(|mark| fs::write(mark, "")).transpose()?;
            thread::sleep(pause);
        }
    }
    let excluded: Vec<u32> = excluded.iter().map(|rank| rank.0).collect();
    Ok(format!("went on without {excluded:?}"))
}

/// Another rank keeps a copy of the victim's contribution.
fn die_with_copies(job: &Job, victim: Rank, delay: Duration) -> Result<String> {
    let options = ReduceOptions {
        protection: Protection::Hosts {
            copies: 1,
            acknowledged: true,
        },
        ..options(OnLoss::Fail)
    };
    if job.rank() != victim {
        thread::sleep(delay);
    }
    let reduction = job.world().reduce(own_part(job), Sum, Rank(0), &options)?;
    if job.rank() == victim {
        reduction.wait_until_protected();
        // The scheduler hears of it too.
        thread::sleep(delay / 2);
        kill_process(getpid(), Signal::KILL)?;
    }
    let outcome = reduction.get()?;
    check(job, &outcome)?;
    match outcome.receipt.contributions == job.size() && outcome.receipt.excluded.is_empty() {
        true => Ok("all contributions counted".into()),
        false => Err(format!("not all is counted: {:?}", outcome.receipt).into()),
    }
}

/// The contribution of one member, as each rank can make it. Reading takes a while.
struct Part(u32);

impl Source for Part {
    fn read(&self, _: u64, into: &mut [u8]) -> std::io::Result<()> {
        thread::sleep(Duration::from_millis(2));
        for element in into.chunks_exact_mut(size_of::<u64>()) {
            element.copy_from_slice(&(1_u64 << self.0).to_ne_bytes());
        }
        Ok(())
    }
}

/// Reduces what all can read, until a rank is missing and some times more: nothing is lost with it.
fn share(job: &Job, victim: Rank) -> Result<String> {
    let start = Instant::now();
    let mut without = 0;
    while without < 3 {
        if start.elapsed() > TIMEOUT {
            return Err("nobody was lost".into());
        }
        let part = |member| (member, Arc::new(Part(member)) as Arc<dyn Source>);
        let sources = Sources {
            members: job.size(),
            bytes: (LENGTH * size_of::<u64>()) as u64,
            held: (0..job.size()).map(part).collect(),
        };
        let options = options(OnLoss::Fail);
        let reduction = job
            .world()
            .reduce_sources::<u64>(sources, Sum, Rank(0), &options)?;
        let outcome = reduction.get()?;
        check(job, &outcome)?;
        without += u32::from(outcome.receipt.lost == [victim]);
    }
    Ok("all contributions counted".into())
}
