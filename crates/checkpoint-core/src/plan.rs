//! After which steps a run saves, and how long that takes.

use std::collections::VecDeque;

use crate::{
    advisor::forecast::Forecast,
    costs::Costs,
    policy::{Moment, Policy},
};

/// The steps after which a run saves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// How many steps are done at each save, in rising order. The end of the run needs none.
    saves: Vec<usize>,
}

/// Up to which part of their time steps are taken for equal.
const ROUNDING: f64 = 1e-9;

impl Plan {
    /// The saves of a policy in a run whose steps take `steps` seconds each. The policy is told the number of
    /// steps, and a forecast: the next step takes as long as the last one, unless steps come in a cycle, and
    /// the rest of the run takes as long for each step as the last interval. Failures do not change the plan:
    /// after one, the steps since the last save are done again, and saved after the same steps.
    pub fn by(policy: &dyn Policy, costs: &Costs, steps: &[f64]) -> Self {
        let mut saves = Vec::new();
        let mut forecast = Forecast::new(&[]);
        let mut moment = Moment {
            elapsed: 0.0,
            next_step: 0.0,
            steps: 0,
            remaining: None,
            equal_steps: true,
        };
        for (done, &step) in (1..steps.len()).zip(steps) {
            moment.elapsed += step;
            moment.equal_steps &= (step - steps[0]).abs() <= ROUNDING * steps[0];
            moment.steps += 1;
            let left = steps.len() - done;
            forecast.step(step, costs.interval());
            moment.next_step = forecast.next();
            moment.remaining = match moment.equal_steps {
                true => Some(step * left as f64),
                false => costs.near_end(forecast.mean() * left as f64),
            };
            if policy.decide(costs, &moment).save {
                saves.push(done);
                moment.elapsed = 0.0;
                moment.steps = 0;
            }
        }
        Self { saves }
    }

    /// The best plan for a run whose steps are known beforehand, which they never are: what policies are measured by.
    ///
    /// Dynamic programming over the last save before each step. The expected time of a segment is a convex function of
    /// its length, so that later steps never want an earlier last save than earlier ones do; that makes it `n log n`
    /// for `n` steps.
    pub fn best(costs: &Costs, steps: &[f64]) -> Self {
        let ends: Vec<f64> = std::iter::once(0.0)
            .chain(steps.iter().scan(0.0, |sum, step| {
                *sum += step;
                Some(*sum)
            }))
            .collect();
        let last = steps.len();
        // The least expected time until a save after so many steps is done, and the save before that.
        let mut times = vec![0.0; last + 1];
        let mut before = vec![0; last + 1];
        let time = |times: &[f64], from: usize, to: usize| {
            let compute = ends[to] - ends[from];
            match from {
                0 => costs.first_segment(compute),
                _ => times[from] + costs.next_segment(compute),
            }
        };
        // Who is the best last save, from which step on.
        let mut candidates = VecDeque::from([(0, 1)]);
        for to in 1..last {
            if candidates.get(1).is_some_and(|&(_, from)| from <= to) {
                candidates.pop_front();
            }
            let &(save, _) = candidates
                .front()
                .expect("the first candidate stays until another takes over");
            times[to] = time(&times, save, to);
            before[to] = save;
            insert(&mut candidates, to, last, |save, end| time(&times, save, end));
        }
        let total = |save: usize| {
            let compute = ends[last] - ends[save];
            match save {
                0 => costs.unsaved(compute),
                // What does not protect before the end is of no use.
                _ if compute <= costs.commit() => f64::INFINITY,
                _ => times[save] + costs.last_segment(compute),
            }
        };
        let mut save = (0..last)
            .min_by(|&a, &b| total(a).total_cmp(&total(b)))
            .unwrap_or(0);
        let mut saves = Vec::new();
        while save > 0 {
            saves.push(save);
            save = before[save];
        }
        saves.reverse();
        Self { saves }
    }

    /// How many steps are done at each save, in rising order.
    pub fn saves(&self) -> &[usize] {
        &self.saves
    }

    /// The expected time of the run in seconds, with all its saves, failures, restores and repetitions. It is
    /// exact, since the segments between saves are independent of each other (the paper, equation 3, for each
    /// of them).
    pub fn expected_time(&self, costs: &Costs, steps: &[f64]) -> f64 {
        let compute = |from: usize, to: usize| steps[from..to].iter().sum::<f64>();
        let end = steps.len();
        let Some((&last, before)) = self.saves.split_last() else {
            return costs.unsaved(compute(0, end));
        };
        let mut start = 0;
        let mut time = 0.0;
        let segment = |start: usize, compute| match start {
            0 => costs.first_segment(compute),
            _ => costs.next_segment(compute),
        };
        for &save in before {
            time += segment(start, compute(start, save));
            start = save;
        }
        let (saved, rest) = (compute(start, last), compute(last, end));
        if rest > costs.commit() {
            return time + segment(start, saved) + costs.last_segment(rest);
        }
        // The last save does not protect before the end: it only takes its time.
        if start == 0 {
            return costs.unsaved(saved + costs.save() + rest);
        }
        time + costs.last_segment(saved.max(costs.commit()) + costs.save() + rest)
    }
}

/// Takes `new` for the last save of those ends, up to `last`, for which it is better than the candidates before it.
fn insert(
    candidates: &mut VecDeque<(usize, usize)>,
    new: usize,
    last: usize,
    time: impl Fn(usize, usize) -> f64,
) {
    let mut from = last;
    while let Some(&(other, start)) = candidates.back() {
        let start = start.max(new + 1);
        if start < last && time(new, start) <= time(other, start) {
            from = start;
            candidates.pop_back();
            continue;
        }
        // Somewhere from `start`, where the other is better, to `from`, where it is not any more.
        let (mut worse, mut better) = (start, from);
        while better - worse.min(better) > 1 {
            let middle = worse + (better - worse) / 2;
            if time(new, middle) <= time(other, middle) {
                better = middle;
            } else {
                worse = middle;
            }
        }
        from = better;
        break;
    }
    if from < last {
        candidates.push_back((new, from));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Decision, FixedSteps, Paper, Rate};

    /// The best of all plans, by trying each.
    fn best_of_all(costs: &Costs, steps: &[f64]) -> f64 {
        let plans = (0..1u32 << (steps.len() - 1)).map(|bits| Plan {
            saves: (1..steps.len())
                .filter(|step| bits & 1 << (step - 1) != 0)
                .collect(),
        });
        plans
            .map(|plan| plan.expected_time(costs, steps))
            .fold(f64::INFINITY, f64::min)
    }

    proptest! {
        /// The best plan is as good as the best of all.
        #[test]
        fn the_best_plan_is_the_best(
            steps in proptest::collection::vec(0.01f64..20.0, 1..11), save in 0.01f64..5.0, mtbf in 1.0f64..100.0,
            commit in prop_oneof![Just(0.0), 0.0f64..30.0],
        ) {
            let costs = Costs::new(save, save, mtbf).unwrap().written_in_background(commit).unwrap();
            let best = Plan::best(&costs, &steps).expected_time(&costs, &steps);
            let expected = best_of_all(&costs, &steps);
            prop_assert!((best / expected - 1.0).abs() < 1e-12, "{best}, not {expected}");
        }
    }

    /// A forecast of the rest of a run is told near its end only, and follows the last few steps.
    #[test]
    fn the_end_is_foreseen_where_it_is_near() {
        struct Seen(RefCell<Vec<Option<f64>>>);
        impl Policy for Seen {
            fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
                self.0.borrow_mut().push(moment.remaining);
                FixedSteps(5).decide(costs, moment)
            }
        }
        let seen = |steps: &[f64]| {
            // An interval is 5.08 s long.
            let (costs, seen) = (Costs::new(0.6, 0.6, 25.0).unwrap(), Seen(RefCell::default()));
            Plan::by(&seen, &costs, steps);
            seen.0.into_inner()
        };
        let steps: Vec<f64> = (0..60).map(|at| if at % 2 == 0 { 0.9 } else { 1.1 }).collect();
        let told = seen(&steps);
        assert_eq!((told.len(), told[41]), (59, None));
        for (done, left) in (1..60).zip(&told).skip(45) {
            let (left, truth) = (left.unwrap(), steps[done..].iter().sum::<f64>());
            assert!((left / truth - 1.0).abs() < 0.12, "{left}, not {truth}");
        }
        assert_eq!(seen(&[1.0; 60])[0], Some(59.0), "equal steps are no forecast");
    }

    /// A plan says after which steps to save, and none for the last.
    #[test]
    fn plans_follow_their_policy() {
        let costs = Costs::new(0.6, 0.6, 25.0).unwrap();
        assert_eq!(Plan::by(&FixedSteps(3), &costs, &[1.0; 9]).saves(), [3, 6]);
        assert_eq!(Plan::by(&Paper, &costs, &[2.0; 7]).saves(), [2, 4, 6]);
        assert_eq!(Plan::by(&Rate, &costs, &[2.0; 7]).saves(), [2, 4]);
        assert_eq!(Plan::by(&Rate, &costs, &[]).saves(), [0; 0]);
        assert_eq!(Plan::best(&costs, &[]).expected_time(&costs, &[]), 0.0);
    }
}
