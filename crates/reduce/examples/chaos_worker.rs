//! Reduces, broadcasts or gathers vectors whose result shows any contribution that is missing or counted twice, and
//! says how it went.
//!
//! Run it under `ropewalk run` with words such as `bytes=8388608 order=ordered`; see [`Words`]. Each rank prints a
//! line for each reduction: `exact` with the receipt at a rank with the result, `told` at the others, `wrong` or
//! `error`. If the environment names a socket by `CHAOS_SOCKET`, it gets a datagram at each
//! [moment](Moments::tell).

use std::{
    env,
    error::Error,
    fmt::Display,
    iter,
    os::unix::net::UnixDatagram,
    process::ExitCode,
    str::FromStr,
    time::{Duration, Instant},
};

use ropewalk_reduce::{
    Buffer, Group, Job, Operation, Order, Outcome, Protection, Rank, ReduceError, ReduceOptions, Reducer,
    RootFailure, Sum, elementwise,
};

/// The choices, each by its name, an equals sign and its value.
struct Words {
    /// The length of a vector.
    bytes: usize,
    /// The number of reductions.
    repeats: u32,
    /// The number of reductions before these, all like the first, of which nothing is said.
    before: u32,
    /// `any` or `ordered`.
    order: Order,
    /// The root, and who is root if that is lost.
    root: u32,
    next: u32,
    /// The collective.
    call: Call,
    /// The first operation, `sum` or `xor`; the other one is next.
    is_sum: bool,
    /// The rank that takes all memory it gets once it has contributed.
    hog: Option<u32>,
    /// Other hosts that keep a copy of each contribution before it counts.
    copies: u32,
    /// `odd`: ranks of odd number contribute a buffer, always the same; `none`: none does.
    has_buffers: bool,
    /// The rank that contributes later than the others, and by how many milliseconds.
    late: Option<u32>,
    late_ms: u64,
    /// The ranks call as a group in which they stand in reverse order.
    is_reversed: bool,
}

/// A collective; one with a root has that of the words.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    Reduce,
    Allreduce,
    Broadcast,
    Gather,
    Allgather,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words = Words::read()?;
    let job = Job::from_env()?;
    let moments = Moments::from_env()?;
    let options = ReduceOptions {
        order: words.order,
        on_root_loss: RootFailure::MoveTo(Rank(words.next % job.size())),
        protection: match words.copies {
            0 => Protection::Process,
            copies => Protection::Hosts {
                copies,
                acknowledged: true,
            },
        },
        ..ReduceOptions::default()
    };
    let mut is_well = true;
    // A broadcast lends nothing.
    let has_buffer = words.has_buffers && words.call != Call::Broadcast && job.rank().0 % 2 == 1;
    let mut buffer = match has_buffer {
        true => Some(job.buffer(words.bytes / size_of::<u64>())?),
        false => None,
    };
    for _ in 0..words.before {
        let mine = contribution(words.is_sum, job.rank(), words.bytes / size_of::<u64>());
        collect(&job, mine, &mut buffer, words.is_sum, &words, &options, |wait| {
            if words.copies > 0 {
                wait();
            }
        })?;
    }
    for repeat in 0..words.repeats {
        let is_sum = words.is_sum == repeat.is_multiple_of(2);
        let mine = contribution(is_sum, job.rank(), words.bytes / size_of::<u64>());
        if words.late == Some(job.rank().0) {
            std::thread::sleep(Duration::from_millis(words.late_ms));
        }
        moments.tell(&job, "calls");
        let start = Instant::now();
        let outcome = collect(&job, mine, &mut buffer, is_sum, &words, &options, |wait| {
            if words.copies > 0 {
                wait();
            }
            moments.tell(&job, "returned");
            if words.hog == Some(job.rank().0) {
                take_all_memory();
            }
        });
        let elapsed = start.elapsed().as_secs_f64() * 1e3;
        moments.tell(&job, "answered");
        match outcome {
            Ok(outcome) => {
                let receipt = outcome.receipt;
                let is_intact = |buffer: &Buffer<u64>| {
                    **buffer == *contribution(is_sum, job.rank(), words.bytes / size_of::<u64>())
                };
                let how = match outcome
                    .value
                    .map(|found| check(is_sum, &found, &words, job.size()))
                {
                    _ if !buffer.as_ref().is_none_or(is_intact) => {
                        "wrong (its buffer was changed)".to_owned()
                    }
                    None => "told".to_owned(),
                    Some(Ok(())) => "exact".to_owned(),
                    Some(Err(at)) => format!("wrong ({at})"),
                };
                is_well &= !how.starts_with("wrong");
                println!(
                    "{how}: {} contributions, {} plans, root {}, lost {:?}, {elapsed:.3} ms",
                    receipt.contributions,
                    receipt.plans,
                    receipt.root,
                    receipt.lost.iter().map(|rank| rank.0).collect::<Vec<_>>()
                );
            }
            Err(error) => {
                is_well = false;
                let causes = iter::successors(error.source(), |&cause| cause.source());
                let causes: String = causes.map(|cause| format!(": {cause}")).collect();
                println!("error: {error}{causes}");
            }
        }
        if !is_well {
            break;
        }
    }
    job.finalize()?;
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Calls with a vector, or with the buffer and that content. `has_called` is told how to wait for the copies.
fn collect(
    job: &Job,
    mine: Vec<u64>,
    buffer: &mut Option<Buffer<u64>>,
    is_sum: bool,
    words: &Words,
    options: &ReduceOptions,
    has_called: impl FnOnce(&dyn Fn() -> bool),
) -> Result<Outcome<Vec<u64>>, ReduceError> {
    let operation: Operation<Vec<u64>> = match is_sum {
        true => Sum.into_operation(),
        false => elementwise("xor", |a: u64, b: u64| a ^ b).infallible(),
    };
    let (group, root) = (words.group(job)?, Rank(words.root % job.size()));
    let Some(mut lent) = buffer.take() else {
        let reduction = match words.call {
            Call::Reduce => group.reduce(mine, operation, root, options)?,
            Call::Allreduce => group.allreduce(mine, operation, options)?,
            Call::Broadcast => group.broadcast(mine, root, options)?,
            Call::Gather => group.gather(mine, root, options)?,
            Call::Allgather => group.allgather(mine, options)?,
        };
        has_called(&|| reduction.wait_until_protected());
        return reduction.get();
    };
    lent.copy_from_slice(&mine);
    drop(mine);
    let reduction = match words.call {
        Call::Reduce | Call::Broadcast => group.reduce_buffer(lent, operation, root, options),
        Call::Allreduce => group.allreduce_buffer(lent, operation, options),
        Call::Gather => group.gather_buffer(lent, root, options),
        Call::Allgather => group.allgather_buffer(lent, options),
    };
    has_called(&|| reduction.wait_until_protected());
    let (outcome, back) = reduction.get();
    *buffer = Some(back);
    outcome
}

/// Each rank's elements. Of a sum: its own power of two, another one at each place. Of an exclusive or: random words.
fn contribution(is_sum: bool, rank: Rank, length: usize) -> Vec<u64> {
    let word = |at: u64| match is_sum {
        true => 1 << ((u64::from(rank.0) + at) % 64),
        false => mixed(u64::from(rank.0) << 40 ^ at),
    };
    (0..length as u64).map(word).collect()
}

/// A random word for each number (SplitMix64; Steele, Lea, Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Compares with what all of so many ranks make together.
fn check(is_sum: bool, found: &[u64], words: &Words, size: u32) -> Result<(), String> {
    let mut ranks: Vec<Rank> = (0..size).map(Rank).collect();
    if words.is_reversed {
        ranks.reverse();
    }
    let length = words.bytes / size_of::<u64>();
    let expected = match words.call {
        Call::Reduce | Call::Allreduce => {
            let mut expected = vec![0u64; length];
            for rank in ranks {
                let contributed = contribution(is_sum, rank, length);
                // Powers of two that differ add up as they exclude each other.
                let all = expected.iter_mut().zip(contributed);
                all.for_each(|(all, one)| *all ^= one);
            }
            expected
        }
        Call::Broadcast => contribution(is_sum, Rank(words.root % size), length),
        Call::Gather | Call::Allgather => ranks
            .into_iter()
            .flat_map(|rank| contribution(is_sum, rank, length))
            .collect(),
    };
    if found.len() != expected.len() {
        return Err(format!("{} elements, not {}", found.len(), expected.len()));
    }
    let odd = found
        .iter()
        .zip(&expected)
        .position(|(found, expected)| found != expected);
    odd.map_or(Ok(()), |at| {
        let (found, expected) = (found[at], expected[at]);
        Err(format!("element {at} is {found:#x}, not {expected:#x}"))
    })
}

fn take_all_memory() {
    const PIECE: usize = 1 << 20;
    const PIECES_MAX: usize = 512;
    let mut pieces = Vec::new();
    while pieces.len() < PIECES_MAX {
        pieces.push(std::hint::black_box(vec![1u8; PIECE]));
    }
}

/// A socket of whoever disturbs this job. Words to it take no way that the disturbance could touch.
struct Moments(Option<UnixDatagram>);

impl Moments {
    fn from_env() -> std::io::Result<Self> {
        let Some(path) = env::var_os("CHAOS_SOCKET") else {
            return Ok(Self(None));
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(Some(socket)))
    }

    /// Sends `RANK PID MOMENT NANOSECONDS`: this rank calls, the call has returned, or it was answered.
    fn tell(&self, job: &Job, moment: &str) {
        if let Some(socket) = &self.0 {
            let text = format!("{} {} {moment} {}", job.rank(), std::process::id(), job.now_ns());
            // One that does not want to know it any more misses nothing.
            let _ = socket.send(text.as_bytes());
        }
    }
}

impl Words {
    /// The group that calls.
    fn group(&self, job: &Job) -> Result<Group, ReduceError> {
        let world = job.world();
        match self.is_reversed {
            true => world.subgroup(&world.ranks().iter().rev().copied().collect::<Vec<_>>()),
            false => Ok(world),
        }
    }

    fn read() -> Result<Self, String> {
        let mut words = Self {
            bytes: 8 << 20,
            repeats: 1,
            before: 0,
            order: Order::Any,
            root: 0,
            next: 1,
            call: Call::Reduce,
            is_sum: true,
            hog: None,
            copies: 0,
            has_buffers: false,
            late: None,
            late_ms: 0,
            is_reversed: false,
        };
        for word in env::args().skip(1) {
            let (name, value) = word.split_once('=').ok_or(format!("{word:?} is no NAME=VALUE"))?;
            match (name, value) {
                ("bytes", _) => words.bytes = number(value)?,
                ("repeats", _) => words.repeats = number(value)?,
                ("before", _) => words.before = number(value)?,
                ("order", "any") => words.order = Order::Any,
                ("order", "ordered") => words.order = Order::Ordered,
                ("root", _) => words.root = number(value)?,
                ("next", _) => words.next = number(value)?,
                ("call", "reduce") => words.call = Call::Reduce,
                ("call", "allreduce") => words.call = Call::Allreduce,
                ("call", "broadcast") => words.call = Call::Broadcast,
                ("call", "gather") => words.call = Call::Gather,
                ("call", "allgather") => words.call = Call::Allgather,
                ("operation", "sum") => words.is_sum = true,
                ("operation", "xor") => words.is_sum = false,
                ("copies", _) => words.copies = number(value)?,
                ("buffers", "odd") => words.has_buffers = true,
                ("buffers", "none") => words.has_buffers = false,
                ("hog", _) => words.hog = Some(number(value)?),
                ("group", "world") => words.is_reversed = false,
                ("group", "reversed") => words.is_reversed = true,
                ("late", _) => words.late = Some(number(value)?),
                ("late-ms", _) => words.late_ms = number(value)?,
                _ => return Err(format!("{word:?} is not understood")),
            }
        }
        Ok(words)
    }
}

fn number<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}
