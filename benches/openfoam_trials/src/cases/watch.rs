//! When a solver does what, as it says itself.

use std::{
    io::{BufRead, BufReader, Write},
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::Context;

use super::super::solver::{Running, Solver};

/// An event that a solver has told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    /// The step to this time begins.
    Begins(f64),
    /// A step is over, before anything is saved.
    Done,
}

/// Reads what a solver prints, until it ends.
#[derive(Debug)]
pub(super) struct Watch {
    reader: JoinHandle<Vec<(Instant, Mark)>>,
}

/// The steps that one start of a solver made, and their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    /// When its first step began.
    pub(super) first: Option<Instant>,
    /// When its last step was over.
    pub(super) last: Option<Instant>,
    /// How long each step took that came to its end, in seconds, and which it was, counted from 0.
    pub(super) steps: Vec<(usize, f64)>,
    /// How long it took from the end of each step to the beginning of the next one: a save, where there was one.
    pub(super) pauses: Vec<f64>,
}

impl Watch {
    /// Begins with a solver that was started to be watched; it is to be dropped or ended before [`end`](Self::end).
    pub(super) fn begin(solver: &Solver, running: &mut Running) -> anyhow::Result<Self> {
        let output = running.output().context("the solver is watched once")?;
        let mut log = solver.open_log()?;
        let reader = thread::spawn(move || {
            let mut marks = Vec::new();
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let now = Instant::now();
                if let Some(time) = line
                    .strip_prefix("Time = ")
                    .and_then(|time| time.trim().parse().ok())
                {
                    marks.push((now, Mark::Begins(time)));
                } else if line.starts_with("ExecutionTime") {
                    marks.push((now, Mark::Done));
                }
                // A log that is not whole changes no time.
                let _ = writeln!(log, "{line}");
            }
            marks
        });
        Ok(Self { reader })
    }

    /// Ends with the solver; `times` are those to which the steps of a whole run lead, in rising order.
    pub(super) fn end(self, times: &[f64]) -> anyhow::Result<Observed> {
        let marks = self.reader.join().ok().context("the reader of a log ends")?;
        Ok(observe(&marks, times))
    }

    /// Ends with a solver that made all steps, and gives their times too.
    pub(super) fn end_of_whole(self) -> anyhow::Result<(Observed, Vec<f64>)> {
        let marks = self.reader.join().ok().context("the reader of a log ends")?;
        let begun = marks.iter().filter_map(|&(_, mark)| match mark {
            Mark::Begins(time) => Some(time),
            Mark::Done => None,
        });
        let times: Vec<f64> = begun.collect();
        Ok((observe(&marks, &times), times))
    }
}

/// Which step leads to a time. After a restart it may be printed with another last digit.
fn step_to(time: f64, times: &[f64]) -> usize {
    let after = times.partition_point(|&other| other < time);
    let near = [after.saturating_sub(1), after.min(times.len().saturating_sub(1))];
    let distance = |at: usize| times.get(at).map_or(f64::INFINITY, |other| (other - time).abs());
    match distance(near[0]) < distance(near[1]) {
        true => near[0],
        false => near[1],
    }
}

fn observe(marks: &[(Instant, Mark)], times: &[f64]) -> Observed {
    let mut observed = Observed::default();
    let mut begun: Option<(Instant, f64)> = None;
    for &(at, mark) in marks {
        match mark {
            Mark::Begins(time) => {
                observed.first.get_or_insert(at);
                if let Some(last) = observed.last {
                    observed.pauses.push((at - last).as_secs_f64());
                }
                begun = Some((at, time));
            }
            Mark::Done => {
                if let Some((from, time)) = begun.take() {
                    observed
                        .steps
                        .push((step_to(time, times), (at - from).as_secs_f64()));
                    observed.last = Some(at);
                }
            }
        }
    }
    observed
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Steps are known by their time; what is between them is no part of them.
    #[test]
    fn steps_and_pauses_are_told_apart() {
        let zero = Instant::now();
        let at = |seconds| zero + Duration::from_secs(seconds);
        let marks = [
            (at(2), Mark::Begins(0.015)),
            (at(5), Mark::Done),
            (at(6), Mark::Begins(0.02)),
            (at(10), Mark::Done),
            (at(10), Mark::Begins(0.025)),
        ];
        let observed = observe(&marks, &[0.005, 0.01, 0.015_000_1, 0.019_999_9]);
        assert_eq!(observed.first, Some(at(2)));
        assert_eq!(observed.last, Some(at(10)));
        assert_eq!(observed.steps, [(2, 3.0), (3, 4.0)]);
        assert_eq!(observed.pauses, [1.0, 0.0]);
    }
}
