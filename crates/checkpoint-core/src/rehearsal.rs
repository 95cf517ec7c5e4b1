//! Runs in virtual time, with failures at random.

use crate::{
    advisor::{Advisor, AdvisorOptions, Level},
    costs::Costs,
    journal::History,
    plan::Plan,
};

/// The conditions of a run: how long its steps, saves and restores take, and how often it fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal<'a> {
    /// How long each step takes, in seconds.
    pub steps: &'a [f64],
    /// The true costs of full saves, restores and failures.
    pub costs: Costs,
    /// A fast way to save: how long it takes in seconds, and which part of the failures it survives.
    pub fast: Option<(f64, f64)>,
}

/// How a run in virtual time went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rehearsed {
    /// How long it took, in seconds.
    pub total: f64,
    /// How many saves were made, the fast ones included.
    pub saves: u64,
    /// How often it failed.
    pub failures: u64,
    /// How many seconds of work and saves were lost to failures.
    pub lost: f64,
    /// How many seconds saves and restores took that were not lost.
    pub upkeep: f64,
}

impl Rehearsal<'_> {
    /// A run that saves where a plan says. `uniform` gives numbers from 0 up to 1.
    pub fn planned(&self, plan: &Plan, uniform: impl FnMut() -> f64) -> Rehearsed {
        let mut fate = Fate::new(self.costs.mtbf(), uniform);
        let ends: Vec<usize> = plan.saves().iter().copied().chain([self.steps.len()]).collect();
        let begin = |at: usize| if at == 0 { 0 } else { ends[at - 1] };
        // Which segment is next, and which one a failure goes back to.
        let (mut at, mut safe) = (0, 0);
        while at < ends.len() {
            let is_last = at + 1 == ends.len();
            let work: f64 = self.steps[begin(at)..ends[at]].iter().sum();
            let save = if is_last { 0.0 } else { self.costs.save() };
            let wait = if is_last {
                0.0
            } else {
                (fate.writing - work).max(0.0)
            };
            if !fate.pass(work + wait + save, || safe = at) {
                at = safe;
                fate.restore(self.costs.restore());
                continue;
            }
            fate.result.saves += u64::from(!is_last);
            fate.result.upkeep += wait + save;
            fate.writing = self.costs.commit();
            at += 1;
            if fate.writing == 0.0 {
                safe = at;
                fate.unsafe_time = 0.0;
                fate.unsafe_upkeep = 0.0;
            } else {
                // What is in it is all that is lost if it comes to nothing.
                fate.since_copy = 0.0;
                fate.unsafe_upkeep += wait + save;
            }
        }
        fate.result
    }

    /// A run that saves when an advisor says so, who learns what it meets.
    pub fn advised(&self, options: &AdvisorOptions, uniform: impl FnMut() -> f64) -> Rehearsed {
        self.advised_until(f64::INFINITY, options, uniform)
    }

    /// The same, given up if the run is not over after `limit` seconds. Its total is then longer than that: a
    /// run that saves too seldom for its failures may never come to an end.
    pub fn advised_until(
        &self,
        limit: f64,
        options: &AdvisorOptions,
        uniform: impl FnMut() -> f64,
    ) -> Rehearsed {
        let mut fate = Fate::new(self.costs.mtbf(), uniform);
        let mut advisor = Advisor::new(options, &History::default(), 0.0);
        // How many steps are done, and in the last save of each level.
        let (mut done, mut fast, mut full) = (0, 0, 0);
        // The save that is written in the background, how long it still takes, and how many steps are in it.
        let mut writing: Option<(Level, f64, usize)> = None;
        while done < self.steps.len() && fate.result.total <= limit {
            let mut is_alive = match writing {
                // The save protects in the middle of the step.
                Some((level, left, copied)) if left <= self.steps[done] => {
                    let is_alive = fate.spend(left);
                    if is_alive {
                        advisor.save_end(level, fate.result.total);
                        fate.result.saves += 1;
                        (fast, writing) = (copied, None);
                        if level == Level::Full {
                            full = copied;
                        }
                    }
                    is_alive && fate.spend(self.steps[done] - left)
                }
                Some((_, ref mut left, _)) => {
                    *left -= self.steps[done];
                    fate.spend(self.steps[done])
                }
                None => fate.spend(self.steps[done]),
            };
            if is_alive {
                done += 1;
                let advice = advisor.step_end(fate.result.total);
                if advice.decision.save && done < self.steps.len() {
                    let save = match (advice.level, self.fast) {
                        (Level::Fast, Some((save, _))) => save,
                        _ => self.costs.save(),
                    };
                    advisor.save_begin(advice.level, fate.result.total);
                    is_alive = fate.spend(save);
                    if is_alive && advice.level == Level::Full && self.costs.commit() > 0.0 {
                        advisor.save_copied(advice.level, fate.result.total);
                        writing = Some((advice.level, self.costs.commit(), done));
                        fate.result.upkeep += save;
                    } else if is_alive {
                        advisor.save_end(advice.level, fate.result.total);
                        fate.result.saves += 1;
                        fate.result.upkeep += save;
                        fast = done;
                        if advice.level == Level::Full {
                            full = done;
                        }
                    }
                }
            }
            if is_alive {
                continue;
            }
            if writing.take().is_some() {
                // It comes to nothing, and its time was spent in vain.
                fate.result.upkeep -= self.costs.save();
                fate.result.lost += self.costs.save();
            }
            loop {
                advisor.failed(fate.result.total);
                let is_covered = self.fast.is_some_and(|(_, covers)| (fate.uniform)() < covers);
                if !is_covered && fast != full {
                    fast = full;
                    advisor.forget_steps();
                }
                let back = fast.max(full);
                fate.result.lost += self.steps[back..done].iter().sum::<f64>();
                done = back;
                advisor.set_remaining_steps(options.steps.map(|steps| steps.saturating_sub(done as u64)));
                if fate.spend(self.costs.restore()) {
                    break;
                }
                if fate.result.total > limit {
                    return fate.result;
                }
            }
            fate.result.upkeep += self.costs.restore();
            advisor.restored(fate.result.total);
        }
        fate.result
    }
}

/// Time that passes, and failures in it.
struct Fate<U> {
    mtbf: f64,
    uniform: U,
    /// How long until the next failure.
    left: f64,
    /// How long it still takes until the last save of a plan protects.
    writing: f64,
    /// The time since the state that a failure goes back to, the time since the last save was copied, and the
    /// upkeep in the first of them, all in seconds.
    unsafe_time: f64,
    since_copy: f64,
    unsafe_upkeep: f64,
    result: Rehearsed,
}

impl<U: FnMut() -> f64> Fate<U> {
    fn new(mtbf: f64, uniform: U) -> Self {
        let mut fate = Self {
            mtbf,
            uniform,
            left: 0.0,
            writing: 0.0,
            unsafe_time: 0.0,
            since_copy: 0.0,
            unsafe_upkeep: 0.0,
            result: Rehearsed::default(),
        };
        fate.draw();
        fate
    }

    fn draw(&mut self) {
        self.left = -self.mtbf * (-(self.uniform)()).ln_1p();
    }

    /// Lets some time pass; says whether it passed without a failure.
    fn spend(&mut self, seconds: f64) -> bool {
        if seconds < self.left {
            self.left -= seconds;
            self.result.total += seconds;
            return true;
        }
        self.result.total += self.left;
        self.result.lost += self.left;
        self.result.failures += 1;
        self.draw();
        false
    }

    /// Lets `seconds` of a plan pass, in which the last save may come to protect. Returns true if they passed
    /// without a failure.
    fn pass(&mut self, seconds: f64, protects: impl FnOnce()) -> bool {
        let writing = self.writing.min(seconds);
        if !self.go_on(writing) {
            return false;
        }
        if self.writing > 0.0 {
            self.writing -= writing;
            if self.writing == 0.0 {
                protects();
                self.unsafe_time = self.since_copy;
                self.unsafe_upkeep = 0.0;
            }
        }
        self.go_on(seconds - writing)
    }

    fn go_on(&mut self, seconds: f64) -> bool {
        let is_alive = self.spend(seconds);
        if is_alive {
            self.unsafe_time += seconds;
            self.since_copy += seconds;
        } else {
            self.result.lost += self.unsafe_time;
            self.result.upkeep -= self.unsafe_upkeep;
            (
                self.unsafe_time,
                self.since_copy,
                self.unsafe_upkeep,
                self.writing,
            ) = (0.0, 0.0, 0.0, 0.0);
        }
        is_alive
    }

    fn restore(&mut self, seconds: f64) {
        while !self.spend(seconds) {}
        self.result.upkeep += seconds;
    }
}
