//! Ways to call reduce, each checked by the ranks themselves: `ropewalk run -n 5 reduce_scenarios SCENARIO`.
//!
//! The last line of each rank that got through is `SCENARIO: ok`. Scenarios with a death want
//! `--on-failure continue`.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    process::{Command, ExitCode},
    task::{Context, Poll, Waker},
    time::Duration,
};

use ropewalk::{
    fabric::AgentLink,
    reduce::{
        DecodeError, Job, Max, Min, ObjectReducer, Order, Prod, Rank, ReduceError, ReduceOptions,
        ReductionError, RootFailure, Sum, elementwise, object, ordered_fold,
    },
};
use rustix::process::{Signal, getpid, kill_process};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

type Scenario = fn(&Job) -> Result;

const SCENARIOS: [(&str, Scenario); 24] = [
    ("arithmetic", arithmetic),
    ("awaited", awaited),
    ("broken-link", broken_link),
    ("concurrent", concurrent),
    ("dead-after-its-call", dead_after_its_call),
    ("dead-before-its-call", dead_before_its_call),
    ("dead-root", dead_root),
    ("dead-scheduler", dead_scheduler),
    ("dead-scheduler-before", dead_scheduler_before),
    ("impatient", impatient),
    ("late", late),
    ("matrices", matrices),
    ("mismatch", mismatch),
    ("moved-root", moved_root),
    ("objects", objects),
    ("ordered", ordered),
    ("panic", panicking),
    ("reused-id", reused_id),
    ("sizes", sizes),
    ("slow", slow),
    ("stopped", stopped),
    ("subgroups", subgroups),
    ("threads", threads),
    ("withdrawn", withdrawn),
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((name, scenario)) = SCENARIOS.iter().find(|(known, _)| *known == name) else {
        let names = SCENARIOS.map(|(name, _)| name).join(", ");
        eprintln!("expected one scenario of {names}; found {name:?}");
        return ExitCode::from(2);
    };
    let run = || -> Result {
        if *name == "broken-link" {
            break_link_soon()?;
        }
        let job = Job::from_env()?;
        scenario(&job)?;
        println!("{name}: ok");
        job.finalize()?;
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> ReduceOptions {
    ReduceOptions {
        timeout: Some(Duration::from_secs(60)),
        ..ReduceOptions::default()
    }
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, found {found:?}").into())
    }
}

/// A one of each rank, on rank 0.
fn check_count(job: &Job, found: Option<Vec<u32>>) -> Result {
    check("sum", found, (job.rank() == Rank(0)).then(|| vec![job.size()]))
}

/// Goal: every predefined operation, on integers and floats, with every rank as the root.
fn arithmetic(job: &Job) -> Result {
    let (world, me, size) = (job.world(), job.rank(), u64::from(job.size()));
    for root in (0..job.size()).map(Rank) {
        let mine = vec![u64::from(me.0) + 1; 1000];
        let sum = world.reduce(mine.clone(), Sum, root, &options())?.get()?;
        check("receipt", u64::from(sum.receipt.contributions), size)?;
        check(
            "sum",
            sum.value,
            (me == root).then(|| vec![size * (size + 1) / 2; 1000]),
        )?;
        let product = world.reduce(mine, Prod, root, &options())?.get()?;
        check(
            "product",
            product.value,
            (me == root).then(|| vec![(1..=size).product(); 1000]),
        )?;
        let float = vec![f64::from(me.0) - 1.0, -f64::from(me.0)];
        let least = world.reduce(float.clone(), Min, root, &options())?.get()?;
        check(
            "least",
            least.value,
            (me == root).then(|| vec![-1.0, 1.0 - size as f64]),
        )?;
        let largest = world.reduce(float, Max, root, &options())?.get()?;
        check(
            "largest",
            largest.value,
            (me == root).then(|| vec![size as f64 - 2.0, -0.0]),
        )?;
    }
    Ok(())
}

/// Goal: a reduction is a future for any executor.
fn awaited(job: &Job) -> Result {
    let reduction = job
        .world()
        .reduce(vec![1u32; 100_000], Sum, Rank(0), &options())?;
    let mut reduction = pin!(reduction);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let is_done = reduction.is_done();
        match reduction.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => {
                let sum = outcome?.value.map(|sum| sum[99_999]);
                return check("sum", sum, (job.rank() == Rank(0)).then_some(job.size()));
            }
            Poll::Pending if is_done => return Err("done, yet not ready".into()),
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Goal: 28 reductions at once, as in the paper's figure 6(b), each with its own root and order, waited for in
/// another order than they were begun in.
fn concurrent(job: &Job) -> Result {
    let mut begun = Vec::new();
    for number in 0..28u32 {
        let root = Rank(number % job.size());
        let order = match number % 3 {
            0 => Order::Ordered,
            _ => Order::Any,
        };
        let options = ReduceOptions {
            order,
            id: (number % 2 == 0).then_some(number.into()),
            ..options()
        };
        let mine = vec![1u64 << (8 * (job.rank().0 % 8)); 1 << 15];
        begun.push((number, root, job.world().reduce(mine, Sum, root, &options)?));
    }
    let expected: u64 = (0..job.size()).map(|rank| 1 << (8 * (rank % 8))).sum();
    for (number, root, reduction) in begun.into_iter().rev() {
        let value = reduction.get()?.value;
        check(
            &format!("sum {number}"),
            value,
            (job.rank() == root).then(|| vec![expected; 1 << 15]),
        )?;
    }
    Ok(())
}

/// Goal: a rank that dies before its call makes the result impossible; all others are told so and by whom.
fn dead_before_its_call(job: &Job) -> Result {
    if job.rank() == Rank(2) {
        std::process::abort();
    }
    let result = job.world().reduce(vec![1u8; 10], Sum, Rank(0), &options())?.get();
    expect_error(result, &ReductionError::ContributionLost { ranks: vec![Rank(2)] })
}

/// Goal: what a rank contributed is in the result if it died long before the others called, wherever its host
/// is, and even if no other rank lives there.
fn dead_after_its_call(job: &Job) -> Result {
    if job.rank() != Rank(1) {
        std::thread::sleep(Duration::from_millis(1500));
    }
    lose_one(job, Rank(1), Rank(0), Rank(0))
}

/// Reduces to `root` while a rank dies after its call; then `holder` has the result.
fn lose_one(job: &Job, dead: Rank, root: Rank, holder: Rank) -> Result {
    let options = ReduceOptions {
        on_root_loss: RootFailure::MoveTo(holder),
        ..options()
    };
    let reduction = job.world().reduce(vec![1u32; 1 << 16], Sum, root, &options)?;
    if job.rank() == dead {
        std::process::abort();
    }
    let outcome = reduction.get()?;
    check("root", outcome.receipt.root, holder)?;
    // A call that ends without the scheduler, on one host, may end before the loss is known.
    if outcome.receipt.plans > 0 {
        check("lost", outcome.receipt.lost, vec![dead])?;
    }
    check(
        "sum",
        outcome.value,
        (job.rank() == holder).then(|| vec![job.size(); 1 << 16]),
    )
}

/// Goal: nobody waits for a root that is dead, although all contributions are there.
fn dead_root(job: &Job) -> Result {
    if job.rank() == Rank(1) {
        std::thread::sleep(Duration::from_millis(300));
    }
    let reduction = job.world().reduce(vec![1u8; 10], Sum, Rank(3), &options())?;
    if job.rank() == Rank(3) {
        std::process::abort();
    }
    expect_error(reduction.get(), &ReductionError::RootLost { rank: Rank(3) })
}

/// Goal: a root that dies in the middle, which has the scheduler too, is replaced by the rank that the call names.
fn moved_root(job: &Job) -> Result {
    if job.rank() == Rank(2) {
        std::thread::sleep(Duration::from_millis(300));
    }
    lose_one(job, Rank(0), Rank(0), Rank(3))
}

/// Goal: the scheduler may die in the middle; another rank takes over, and nothing is lost.
fn dead_scheduler(job: &Job) -> Result {
    if job.rank() == Rank(2) {
        std::thread::sleep(Duration::from_millis(300));
    }
    lose_one(job, Rank(0), Rank(1), Rank(1))
}

/// Goal: a scheduler that was dead long before the call is missed as a member, and as nothing else.
fn dead_scheduler_before(job: &Job) -> Result {
    if job.rank() == Rank(0) {
        std::process::abort();
    }
    std::thread::sleep(Duration::from_millis(300));
    let result = job.world().reduce(vec![1u8; 10], Sum, Rank(1), &options())?.get();
    expect_error(result, &ReductionError::ContributionLost { ranks: vec![Rank(0)] })
}

/// Goal: the others begin without a late rank; its call completes the reduction.
fn late(job: &Job) -> Result {
    if job.rank() == Rank(1) {
        std::thread::sleep(Duration::from_millis(300));
    }
    let outcome = job
        .world()
        .reduce(vec![1u32; 1 << 16], Sum, Rank(0), &options())?
        .get()?;
    check(
        "sum",
        outcome.value,
        (job.rank() == Rank(0)).then(|| vec![job.size(); 1 << 16]),
    )
}

/// Goal: an operation that does not commute, on elements of the user's, comes out in order of rank.
fn matrices(job: &Job) -> Result {
    type Matrix = [u64; 4];
    fn product(a: Matrix, b: Matrix) -> Matrix {
        let entry = |i: usize, j: usize| {
            a[2 * i]
                .wrapping_mul(b[j])
                .wrapping_add(a[2 * i + 1].wrapping_mul(b[2 + j]))
        };
        [entry(0, 0), entry(0, 1), entry(1, 0), entry(1, 1)]
    }
    let of = |rank: u32| vec![[1, u64::from(rank) + 1, u64::from(rank) * 7, 3]; 40_000];
    let options = ReduceOptions {
        order: Order::Ordered,
        ..options()
    };
    let operation = elementwise("matrix product", product);
    let outcome = job
        .world()
        .reduce(of(job.rank().0), operation, Rank(0), &options)?
        .get()?;
    let expected = (1..job.size()).fold(of(0)[0], |left, rank| product(left, of(rank)[0]));
    check(
        "product",
        outcome.value,
        (job.rank() == Rank(0)).then(|| vec![expected; 40_000]),
    )
}

/// Goal: members that ask for different things are told so, all of them, with the name of the odd one.
fn mismatch(job: &Job) -> Result {
    let length = if job.rank() == Rank(1) { 99 } else { 100 };
    let result = job
        .world()
        .reduce(vec![1f32; length], Sum, Rank(0), &options())?
        .get();
    match result {
        Err(ReduceError::Reduction(ReductionError::Mismatch {
            odd: Rank(1),
            expected,
            found,
        })) if expected.contains("100 x f32") && found.contains("99 x f32") => Ok(()),
        other => Err(format!("expected a mismatch of rank 1, found {other:?}").into()),
    }
}

/// Goal: values that cannot be cut, of different encoded lengths.
fn objects(job: &Job) -> Result {
    struct Census;
    impl ObjectReducer for Census {
        type Value = BTreeMap<u32, u64>;

        fn combine(&self, mut left: Self::Value, right: Self::Value) -> Self::Value {
            right
                .into_iter()
                .for_each(|(key, count)| *left.entry(key).or_default() += count);
            left
        }

        fn encode(&self, value: &Self::Value) -> Vec<u8> {
            let entries = value
                .iter()
                .map(|(key, count)| [key.to_le_bytes().as_slice(), &count.to_le_bytes()].concat());
            entries.flatten().collect()
        }

        fn decode(&self, bytes: &[u8]) -> std::result::Result<Self::Value, DecodeError> {
            let error = || DecodeError {
                message: format!("{} bytes are no census", bytes.len()),
            };
            let entries = bytes.chunks(12).map(|entry| {
                let (key, count) = entry.split_first_chunk().ok_or_else(error)?;
                Ok((
                    u32::from_le_bytes(*key),
                    u64::from_le_bytes(count.try_into().map_err(|_| error())?),
                ))
            });
            entries.collect()
        }
    }
    // Some of them longer than a chunk of a vector would be.
    let of = |rank: u32| 0..(rank + 1) * 100_000;
    let mine: BTreeMap<u32, u64> = of(job.rank().0).map(|key| (key, 1)).collect();
    let outcome = job
        .world()
        .reduce(mine, object(Census), Rank(1), &options())?
        .get()?;
    let counted = |key: u32| (key, u64::from(job.size() - key / 100_000));
    let expected: BTreeMap<u32, u64> = of(job.size() - 1).map(counted).collect();
    let is_right = outcome.value == (job.rank() == Rank(1)).then_some(expected);
    check("the census is right", is_right, true)
}

/// Goal: an ordered sum of floats is bitwise the serial one.
fn ordered(job: &Job) -> Result {
    let of = |rank: u32| -> Vec<f32> {
        (0..100_003)
            .map(|at| ((at * 7919 + rank * 104_729) % 10_007) as f32 * 1e-3f32.powi(rank as i32))
            .collect()
    };
    let options = ReduceOptions {
        order: Order::Ordered,
        ..options()
    };
    let serial = ordered_fold((0..job.size()).map(of).collect(), Sum)?.unwrap_or_default();
    for _ in 0..5 {
        let outcome = job
            .world()
            .reduce(of(job.rank().0), Sum, Rank(0), &options)?
            .get()?;
        if let Some(sum) = outcome.value {
            let equal = sum.iter().zip(&serial).all(|(a, b)| a.to_bits() == b.to_bits());
            check("bitwise equal", equal && sum.len() == serial.len(), true)?;
        }
    }
    Ok(())
}

/// Goal: an operation that panics is an error on all ranks, and their processes live on.
fn panicking(job: &Job) -> Result {
    std::panic::set_hook(Box::new(|_| {}));
    let faulty = elementwise(
        "faulty",
        |a: u32, b: u32| if a == 7 || b == 7 { panic!("seven") } else { a + b },
    );
    let mine = vec![if job.rank() == Rank(1) { 7 } else { 1u32 }; 10];
    match job.world().reduce(mine, faulty, Rank(0), &options())?.get() {
        Err(ReduceError::Reduction(ReductionError::Operation { message, .. }))
            if message.contains("seven") => {}
        other => return Err(format!("expected the operation's panic, found {other:?}").into()),
    }
    let after = job.world().reduce(vec![1u32], Sum, Rank(0), &options())?.get()?;
    check_count(job, after.value)
}

/// Goal: an operation may take longer than a silent process is waited for.
fn slow(job: &Job) -> Result {
    let operation = elementwise("slow", |a: u32, b: u32| {
        std::thread::sleep(Duration::from_millis(1_500));
        a + b
    });
    let sum = job
        .world()
        .reduce(vec![1u32], operation, Rank(0), &options())?
        .get()?;
    check_count(job, sum.value)
}

/// Goal: an identifier that was used is refused; the first use's result is not given for the second's.
fn reused_id(job: &Job) -> Result {
    let options = ReduceOptions {
        id: Some(7),
        ..options()
    };
    job.world().reduce(vec![1u32], Sum, Rank(0), &options)?.get()?;
    match job.world().reduce(vec![2u32], Sum, Rank(0), &options)?.get() {
        Err(ReduceError::Reduction(ReductionError::IdReused { .. })) => Ok(()),
        other => Err(format!("expected a refusal, found {other:?}").into()),
    }
}

/// Goal: no length is special: nothing, one element, around a chunk's end, and many chunks.
fn sizes(job: &Job) -> Result {
    let chunk = 4096;
    for length in [0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 5, 300 * chunk] {
        let mine: Vec<u64> = (0..length).map(|at| at + u64::from(job.rank().0)).collect();
        let outcome = job.world().reduce(mine, Sum, Rank(2), &options())?.get()?;
        let (size, ranks) = (u64::from(job.size()), (0..u64::from(job.size())).sum::<u64>());
        let expected = (0..length).map(|at| at * size + ranks).collect();
        check("sum", outcome.value, (job.rank() == Rank(2)).then_some(expected))?;
    }
    Ok(())
}

/// Goal: groups reduce by themselves, at the same time, also without rank 0; and only members may call.
fn subgroups(job: &Job) -> Result {
    let world = job.world();
    let (odd, even): (Vec<Rank>, Vec<Rank>) = world.ranks().iter().partition(|rank| rank.0 % 2 == 1);
    let (mine, other) = if job.rank().0 % 2 == 1 {
        (odd, even)
    } else {
        (even, odd)
    };
    let group = world.subgroup(&mine)?;
    let root = mine[mine.len() - 1];
    let sum = group
        .reduce(vec![u64::from(job.rank().0); 5000], Sum, root, &options())?
        .get()?;
    let expected = mine.iter().map(|rank| u64::from(rank.0)).sum();
    check(
        "sum",
        sum.value,
        (job.rank() == root).then(|| vec![expected; 5000]),
    )?;
    let stranger = world
        .subgroup(&other)?
        .reduce(vec![1u8], Sum, other[0], &options());
    check(
        "refused",
        matches!(stranger, Err(ReduceError::NotMember { .. })),
        true,
    )
}

/// Goal: threads of one process reduce side by side, and no call is overlooked while another is taken.
fn threads(job: &Job) -> Result {
    let (world, size) = (job.world(), job.size());
    let worker = |first: u64| -> std::result::Result<(), String> {
        for round in 0..500 {
            let options = ReduceOptions {
                id: Some(first + 2 * round),
                ..options()
            };
            let reduction = world
                .reduce(vec![1u32], Sum, Rank(0), &options)
                .map_err(|error| error.to_string())?;
            let sum = reduction.get().map_err(|error| error.to_string())?.value;
            if sum.is_some_and(|sum| sum != [size]) {
                return Err(format!("round {round} is wrong"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| worker(1));
        worker(0).and(other.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    Ok(())
}

/// Goal: a call that fails on one rank ends the reduction for the others, and the next one is not mixed up with it.
fn withdrawn(job: &Job) -> Result {
    let outside = if job.rank() == Rank(1) { Rank(99) } else { Rank(0) };
    let call = job.world().reduce(vec![1u32], Sum, outside, &options());
    match call.and_then(|reduction| reduction.get()) {
        Err(ReduceError::RootNotMember { .. }) if job.rank() == Rank(1) => {}
        Err(ReduceError::Reduction(ReductionError::Withdrawn { rank: Rank(1), .. })) => {}
        other => return Err(format!("expected a withdrawal, found {other:?}").into()),
    }
    let next = job.world().reduce(vec![1u32], Sum, Rank(0), &options())?.get()?;
    check_count(job, next.value)
}

/// Goal: an error that one rank has by itself ends the reductions of all, whether that rank has called or not.
fn broken_link(job: &Job) -> Result {
    if job.rank() == Rank(1) {
        std::thread::sleep(Duration::from_secs(2));
        return Ok(());
    }
    for _ in 0..2 {
        let result = job.world().reduce(vec![1u32], Sum, Rank(0), &options())?.get();
        match result {
            Err(ReduceError::Reduction(ReductionError::Withdrawn { rank: Rank(1), .. })) => {}
            other => return Err(format!("expected a withdrawal, found {other:?}").into()),
        }
    }
    Ok(())
}

/// Has something else than messages come over the link of rank 1 to its agent.
fn break_link_soon() -> Result {
    if std::env::var("RANK")? == "1" {
        let script = format!("sleep 0.5; echo garbage >&${}", AgentLink::VARIABLE);
        Command::new("bash").args(["-c", &script]).spawn()?;
    }
    Ok(())
}

/// Goal: after an error nobody waits long to leave, although rank 0 does not leave.
fn impatient(job: &Job) -> Result {
    let length = 1 + u64::from(job.rank() == Rank(1));
    let result = job
        .world()
        .reduce(vec![1u32; length as usize], Sum, Rank(0), &options())?
        .get();
    if !matches!(
        result,
        Err(ReduceError::Reduction(ReductionError::Mismatch { .. }))
    ) {
        return Err(format!("expected a mismatch, found {result:?}").into());
    }
    if job.rank() == Rank(0) {
        std::thread::sleep(Duration::from_secs(14));
    }
    Ok(())
}

/// Goal: a rank that is stopped for longer than it takes to make a connection, and goes on, costs time and
/// nothing else.
fn stopped(job: &Job) -> Result {
    if std::env::var("STOPPED")? == job.rank().0.to_string() {
        Command::new("sh")
            .args(["-c", "sleep 10; kill -CONT $PPID"])
            .spawn()?;
        kill_process(getpid(), Signal::STOP)?;
    }
    let outcome = job
        .world()
        .reduce(vec![1u32; 1 << 16], Sum, Rank(0), &options())?
        .get()?;
    check(
        "sum",
        outcome.value,
        (job.rank() == Rank(0)).then(|| vec![job.size(); 1 << 16]),
    )
}

fn expect_error<T: std::fmt::Debug>(
    result: std::result::Result<T, ReduceError>,
    expected: &ReductionError,
) -> Result {
    match result {
        Err(ReduceError::Reduction(error)) if error == *expected => Ok(()),
        other => Err(format!("expected {expected:?}, found {other:?}").into()),
    }
}
