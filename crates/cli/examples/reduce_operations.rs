//! Reductions by each predefined operation: `ropewalk run -n 4 --on-failure continue reduce_operations [VICTIM]`.
//!
//! Each rank makes all calls before it looks at the first outcome. The victim kills itself between: its contributions
//! count. The last line of a rank that got what a plain loop gives is `operations: ok`.

use std::{env, fmt::Debug, process::ExitCode};

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use ropewalk::reduce::{
    Accumulator, BitwiseAnd, BitwiseOr, BitwiseXor, Bool, ExactSum, Job, Located, LogicalAnd, LogicalOr,
    LogicalXor, Max, MaxLoc, Min, MinLoc, Prod, Rank, ReduceOptions, Reducer, Sum,
};
use rustix::process::{Signal, getpid, kill_process};

type Failure = Box<dyn std::error::Error>;
/// Waits for an outcome, and compares it.
type Check = Box<dyn FnOnce() -> Result<(), Failure>>;

/// The first travels with the calls, the second in chunks.
const LENGTHS: [usize; 2] = [7, 30_000];

struct Calls<'a> {
    job: &'a Job,
    length: usize,
    under_way: Vec<Check>,
}

impl Calls<'_> {
    /// Begins a reduction to all of the elements that `element` gives for a rank and a place. The outcome is to be that
    /// of a loop over the ranks with `combine`.
    fn begin<T: Pod + PartialEq + Debug + Send + Sync>(
        &mut self,
        reducer: impl Reducer<Vec<T>> + Debug,
        element: impl Fn(u32, u32) -> T,
        combine: impl Fn(T, T) -> T,
    ) -> Result<(), Failure> {
        let vector = |rank| -> Vec<T> { (0..self.length as u32).map(|at| element(rank, at)).collect() };
        let mut expected = vector(0);
        for rank in 1..self.job.size() {
            for (left, right) in expected.iter_mut().zip(vector(rank)) {
                *left = combine(*left, right);
            }
        }
        let name = format!("{reducer:?} of {} x {}", self.length, std::any::type_name::<T>());
        let mine = vector(self.job.rank().0);
        let reduction = self
            .job
            .world()
            .allreduce(mine, reducer, &ReduceOptions::default())?;
        self.under_way.push(Box::new(move || {
            let found = reduction.get()?.value.ok_or("all get the result")?;
            let wrong = found
                .iter()
                .zip(&expected)
                .find(|(found, expected)| found != expected);
            match wrong {
                None if found.len() == expected.len() => Ok(()),
                wrong => Err(format!("{name}: found and expected are {wrong:?}").into()),
            }
        }));
        Ok(())
    }

    /// Numbers that are small and exact in all types, so that the order makes no difference.
    fn numbers(&mut self) -> Result<(), Failure> {
        let small = |rank: u32, at: u32| ((rank + at) % 3 + 1) as f32;
        let half = |rank, at| f16::from_f32(small(rank, at));
        let brain = |rank, at| bf16::from_f32(small(rank, at));
        let single = |rank, at| Complex::new(small(rank, at), small(rank, at + 1));
        let double = |rank, at| Complex::new(f64::from(small(rank, at)), -1.0);
        self.begin(Sum, half, |a, b| f16::from_f32(a.to_f32() + b.to_f32()))?;
        self.begin(Prod, half, |a, b| f16::from_f32(a.to_f32() * b.to_f32()))?;
        self.begin(Min, half, |a, b| if b < a { b } else { a })?;
        self.begin(Max, half, |a, b| if b > a { b } else { a })?;
        self.begin(Sum, brain, |a, b| bf16::from_f32(a.to_f32() + b.to_f32()))?;
        self.begin(Prod, brain, |a, b| bf16::from_f32(a.to_f32() * b.to_f32()))?;
        self.begin(Min, brain, |a, b| if b < a { b } else { a })?;
        self.begin(Max, brain, |a, b| if b > a { b } else { a })?;
        self.begin(Sum, single, |a, b| Complex::new(a.re + b.re, a.im + b.im))?;
        self.begin(Prod, single, |a, b| {
            Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
        })?;
        self.begin(Sum, double, |a, b| Complex::new(a.re + b.re, a.im + b.im))?;
        self.begin(Prod, double, |a, b| {
            Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)
        })
    }

    /// Bits, and truth values of which half are false.
    fn bits(&mut self) -> Result<(), Failure> {
        let word = |rank: u32, at: u32| (at + 1).wrapping_mul((2 * rank + 3) * 0x9E37) & (at << 9 | 0xFF);
        let number = |rank, at| i16::from_ne_bytes([word(rank, at) as u8 & 3, 0]);
        let truth = |rank, at| Bool::from(word(rank, at) & 2 == 0);
        self.begin(BitwiseAnd, word, |a, b| a & b)?;
        self.begin(BitwiseOr, word, |a, b| a | b)?;
        self.begin(BitwiseXor, word, |a, b| a ^ b)?;
        self.begin(LogicalAnd, number, |a, b| i16::from(a != 0 && b != 0))?;
        self.begin(LogicalOr, number, |a, b| i16::from(a != 0 || b != 0))?;
        self.begin(LogicalXor, number, |a, b| i16::from((a != 0) != (b != 0)))?;
        self.begin(LogicalAnd, truth, |a, b| (bool::from(a) && bool::from(b)).into())?;
        self.begin(LogicalOr, truth, |a, b| (bool::from(a) || bool::from(b)).into())?;
        self.begin(LogicalXor, truth, |a, b| (bool::from(a) != bool::from(b)).into())?;
        self.begin(Min, truth, |a, b| (bool::from(a) && bool::from(b)).into())?;
        self.begin(Max, truth, |a, b| (bool::from(a) || bool::from(b)).into())
    }

    /// Floats of which a sum in double precision is 0.
    fn exact_sums(&mut self) -> Result<(), Failure> {
        let term = |rank: u32, at: u32| [1e300, f64::from(at), 2f64.powi(-40), -1e300][rank as usize % 4];
        self.begin(
            ExactSum,
            |rank, at| Accumulator::from(term(rank, at)),
            |mut sum, term| {
                sum.add(term.to_f64());
                sum
            },
        )
    }

    /// Values with the numbers of their ranks; several have the same value.
    fn places(&mut self) -> Result<(), Failure> {
        let value = |rank: u32, at: u32| (at * (rank + 3)) % 5 % 3;
        let real = |rank, at| Located::new(f64::from(value(rank, at)), rank as i32);
        let whole = |rank, at| Located::new(value(rank, at) as u16, u64::from(rank));
        // Ranks come in order: the first of equal values has the lowest index.
        self.begin(MinLoc, real, |a, b| if b.value() < a.value() { b } else { a })?;
        self.begin(MaxLoc, real, |a, b| if b.value() > a.value() { b } else { a })?;
        self.begin(MinLoc, whole, |a, b| if b.value() < a.value() { b } else { a })?;
        self.begin(MaxLoc, whole, |a, b| if b.value() > a.value() { b } else { a })
    }
}

fn run(victim: Option<Rank>) -> Result<(), Failure> {
    let job = Job::from_env()?;
    let mut under_way = Vec::new();
    for length in LENGTHS {
        let mut calls = Calls {
            job: &job,
            length,
            under_way: Vec::new(),
        };
        calls.numbers()?;
        calls.bits()?;
        calls.places()?;
        calls.exact_sums()?;
        under_way.append(&mut calls.under_way);
    }
    if victim == Some(job.rank()) {
        kill_process(getpid(), Signal::KILL)?;
    }
    for check in under_way {
        check()?;
    }
    println!("operations: ok");
    job.finalize()?;
    Ok(())
}

fn main() -> ExitCode {
    let victim = env::args()
        .nth(1)
        .and_then(|victim| victim.parse().ok())
        .map(Rank);
    match run(victim) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operations: {error}");
            ExitCode::FAILURE
        }
    }
}
