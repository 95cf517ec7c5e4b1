//! When to save, as told by what a run has shown so far.

mod copies;
mod failures;
pub(crate) mod forecast;
mod options;
mod save_times;
mod slowest;
#[cfg(test)]
mod tests;

use crate::{
    costs::Costs,
    journal::History,
    policy::{Decision, Moment, Policy, Rate, Reason},
    two_levels::TwoLevels,
};

pub use options::{Advice, AdvisorOptions, FastLevel, Level, MTBF_AT_FIRST, Mtbf};

use copies::Copies;
use failures::Failures;
use forecast::Forecast;
use options::SAVE_AT_FIRST;
use save_times::SaveTimes;

/// Says at the end of each step whether to save, and learns from what happens.
///
/// The caller tells what happened and when, in seconds of any clock that does not jump:
/// [`step_end`](Self::step_end) at the end of each step; [`save_begin`](Self::save_begin) and
/// [`save_end`](Self::save_end), or [`save_failed`](Self::save_failed), around each save, with
/// [`save_copied`](Self::save_copied) between them if the program goes on while the save is written;
/// [`failed`](Self::failed) after a failure that the process survives, and [`restored`](Self::restored) after
/// each restore. If full saves are copied to another host, [`copy_end`](Self::copy_end) tells when a copy is
/// made. Times that run backwards count as no time. No call allocates.
#[derive(Clone, Debug)]
pub struct Advisor {
    start: f64,
    /// When the step, save or restore that is under way began.
    mark: f64,
    failures: Failures,
    fast: Option<LevelState>,
    full: LevelState,
    /// How the levels are used together; nothing if the fast one does not pay.
    two_levels: Option<TwoLevels>,
    /// How much of the time since the last full save the last fast save holds.
    full_at_fast: f64,
    /// Nobody knows how long a save takes.
    is_save_unknown: bool,
    /// Which part of the failures the fast level survives.
    covered: f64,
    /// If full saves are fast ones that are copied to another host.
    copies: Option<Copies>,
    restore: f64,
    forecast: Forecast,
    remaining_steps: Option<u64>,
    /// How many steps are done since the last save.
    steps: u64,
    /// When the time of the job is over.
    limit: Option<f64>,
    notice: Option<Notice>,
    writing: Option<Writing>,
    /// After a save that failed none is asked for until then.
    hold_until: f64,
}

#[derive(Clone, Copy, Debug)]
struct LevelState {
    costs: Costs,
    /// How long saves kept the program waiting.
    times: SaveTimes,
    /// How long after that those protected that were written in the background.
    commits: SaveTimes,
    /// The time since the last save that is as good, in seconds. For the full level it includes the fast
    /// saves, which the program would have to make again.
    elapsed: f64,
    steps: u64,
    /// When the save that is under way began.
    began: Option<f64>,
}

/// A save that is written in the background.
#[derive(Clone, Copy, Debug)]
struct Writing {
    level: Level,
    /// When the program went on.
    since: f64,
    /// How many steps are in it.
    steps: u64,
    /// How long it was then since the last save as good, and since the last full one.
    elapsed: f64,
    full_elapsed: f64,
}

/// The job will be ended.
#[derive(Clone, Copy, Debug)]
struct Notice {
    end: f64,
    is_saved: bool,
}

impl Advisor {
    /// The advisor of a run that begins now, with what is known from before.
    pub fn new(options: &AdvisorOptions, history: &History, now: f64) -> Self {
        let told = match options.mtbf {
            Mtbf::Known(mtbf) => Mtbf::Known(positive(mtbf)),
            Mtbf::Learned(guess) => Mtbf::Learned(positive(guess)),
        };
        let failures = Failures::new(told, history.totals());
        let restore = history.restore().unwrap_or(options.restore).clamp(0.0, LONGEST);
        let save = options.save.unwrap_or(SAVE_AT_FIRST);
        let copies = options
            .host_mtbf
            .map(|mtbf| Copies::new(positive(mtbf), positive(save), history.copies()));
        // What is copied is saved in the same way as what is not.
        let both: &[Level] = &[Level::Fast, Level::Full];
        let level = |seconds: f64, own: &[Level]| {
            let mut times = SaveTimes::expected(positive(seconds));
            let mut commits = SaveTimes::expected(0.0);
            for &level in if copies.is_some() { both } else { own } {
                history.saves(level).iter().for_each(|&save| times.add(save));
                history
                    .commits(level)
                    .iter()
                    .for_each(|&commit| commits.add(commit));
            }
            LevelState {
                costs: costs(times.mean(), restore, failures.mtbf(0.0)),
                times,
                commits,
                elapsed: 0.0,
                steps: 0,
                began: None,
            }
        };
        let fast_save = match copies {
            Some(_) => Some(save),
            None => options.fast.map(|fast| fast.save),
        };
        let (fast, full) = (
            fast_save.map(|save| level(save, &[Level::Fast])),
            level(save, &[Level::Full]),
        );
        let mut advisor = Self {
            start: now,
            mark: now,
            failures,
            is_save_unknown: options.save.is_none() && !full.times.is_measured(),
            fast,
            full,
            two_levels: None,
            full_at_fast: 0.0,
            covered: options.fast.map_or(0.0, |fast| fast.covers.clamp(0.0, 1.0)),
            copies,
            restore,
            forecast: Forecast::new(history.steps()),
            remaining_steps: options.steps,
            steps: 0,
            limit: options.limit.map(|limit| now + limit),
            notice: None,
            writing: None,
            hold_until: f64::NEG_INFINITY,
        };
        advisor.reconsider(now);
        advisor
    }

    /// A step is over: whether to save now.
    pub fn step_end(&mut self, now: f64) -> Advice {
        let step = self.mark_to(now);
        self.steps += 1;
        self.remaining_steps = self.remaining_steps.map(|steps| steps.saturating_sub(1));
        self.forecast.step(step, self.full.costs.interval());
        for level in [Some(&mut self.full), self.fast.as_mut()].into_iter().flatten() {
            level.elapsed += step;
            level.steps += 1;
        }
        if let Some(copies) = &mut self.copies {
            copies.step(step);
        }
        self.advice(now)
    }

    /// The advice for now, without another step: for programs that hear of something in the middle of one.
    pub fn advice(&self, now: f64) -> Advice {
        let next_step = self.forecast.next();
        let full = |reason| self.full.advice(Level::Full, reason);
        if let Some(notice) = self.notice {
            return self.advice_at_notice(now, notice);
        }
        if let Some(limit) = self.limit {
            let last_start = limit - self.save_p99();
            let step = self.forecast.mean();
            let remaining = self.remaining_steps.map(|steps| steps as f64 * step);
            let is_finished_in_time = remaining.is_some_and(|remaining| now + remaining * CAUTION < limit);
            if !is_finished_in_time {
                if now > last_start {
                    return full(Reason::NoTimeLeft);
                }
                if now + next_step * CAUTION > last_start && self.full.elapsed > 0.0 {
                    return full(Reason::LimitIsNear);
                }
            }
        }
        if self.writing.is_some() {
            return full(Reason::LastSaveUnderWay);
        }
        if now < self.hold_until {
            return full(Reason::LastSaveFailed);
        }
        if self.is_save_unknown && self.full.elapsed > 0.0 && self.remaining_steps != Some(0) {
            return full(Reason::SaveTimeUnknown);
        }
        let remaining = self.remaining();
        let decide = |costs: &Costs, since: &LevelState, remaining| {
            let moment = Moment {
                elapsed: since.elapsed,
                next_step,
                steps: since.steps,
                remaining,
                // What is measured is never equal.
                equal_steps: false,
            };
            Rate.decide(costs, &moment)
        };
        // The end of the run is a forecast.
        let by_forecast = |costs: &Costs, since: &LevelState| {
            let near = remaining.and_then(|remaining| costs.near_end(remaining));
            decide(costs, since, near)
        };
        let (decision, level) = match (&self.fast, &self.copies) {
            // While a copy is made no other begins, and what is saved is saved here only.
            (Some(fast), Some(copies)) if copies.is_awaited(now) => {
                (by_forecast(&fast.costs, fast), Level::Fast)
            }
            // Every save is to be copied, and that which was made while the last copy was is as good for its time.
            (Some(fast), Some(_)) if self.two_levels.is_none() => {
                (by_forecast(&self.full.costs, fast), Level::Full)
            }
            _ => (by_forecast(&self.full.costs, &self.full), Level::Full),
        };
        let mut advice = Advice { decision, level };
        if let (Some(fast), Some(two)) = (&self.fast, &self.two_levels) {
            if !advice.decision.save && level == Level::Full {
                // The next full save ends the need for fast ones as the end of the run does, but has to be done too.
                let until_full = (two.full_interval - self.full.elapsed).max(0.0) + self.full.times.mean();
                let remaining = remaining.map_or(until_full, |remaining| remaining.min(until_full));
                advice = Advice {
                    decision: decide(&fast.costs, fast, Some(remaining)),
                    level: Level::Fast,
                };
            }
            advice.decision.overhead = two.overhead;
        }
        advice
    }

    fn advice_at_notice(&self, now: f64, notice: Notice) -> Advice {
        let left = notice.end - now;
        if self.writing.is_some() {
            return self.full.advice(Level::Full, Reason::LastSaveUnderWay);
        }
        if !notice.is_saved {
            let copy = self.copies.as_ref().map_or(0.0, Copies::p99);
            // A save that may not be done in time is better than none if nobody knows how long one takes.
            if left > self.save_p99() + copy || (self.is_save_unknown && left > 0.0) {
                return self.full.advice(Level::Full, Reason::EndIsAnnounced);
            }
            if let Some(fast) = self
                .fast
                .filter(|fast| left > fast.times.p99() + fast.commits.p99())
            {
                return fast.advice(Level::Fast, Reason::EndIsAnnounced);
            }
        }
        self.full.advice(Level::Full, Reason::NoTimeLeft)
    }

    /// A save begins.
    pub fn save_begin(&mut self, level: Level, now: f64) {
        // What was computed since the last step is saved too.
        let since = self.mark_to(now);
        for state in [Some(&mut self.full), self.fast.as_mut()].into_iter().flatten() {
            state.elapsed += since;
        }
        self.level_mut(level).began = Some(self.mark);
    }

    /// The save that began has all it needs, and the program goes on while the save is written in the
    /// background. Only the time until now counts as the time of the save. It protects from
    /// [`save_end`](Self::save_end) on, and until then no other is advised. Returns how long the program
    /// waited, in seconds.
    pub fn save_copied(&mut self, level: Level, now: f64) -> f64 {
        self.mark_to(now);
        let mark = self.mark;
        let full_elapsed = self.full.elapsed;
        let steps = self.steps;
        let state = self.level_mut(level);
        let Some(began) = state.began.take() else {
            return 0.0;
        };
        let took = mark - began;
        let elapsed = std::mem::take(&mut state.elapsed);
        state.steps = 0;
        match (level, &mut self.fast) {
            (Level::Full, Some(fast)) => {
                fast.elapsed = 0.0;
                fast.steps = 0;
            }
            (Level::Fast, Some(_)) => self.full.elapsed += took,
            _ => {}
        }
        self.measure(level, |state| state.times.add(took));
        self.writing = Some(Writing {
            level,
            since: mark,
            steps,
            elapsed,
            full_elapsed: full_elapsed + took,
        });
        self.forecast.copied();
        self.hold_until = f64::NEG_INFINITY;
        self.is_save_unknown &= level == Level::Fast;
        took
    }

    /// A save is done, and protects from now on. Returns how long it took, in seconds: if it was written in
    /// the background, from [`save_copied`](Self::save_copied) on. In that case this may be called in the
    /// middle of a step.
    pub fn save_end(&mut self, level: Level, now: f64) -> f64 {
        let is_background = self.writing.is_some();
        let took = match is_background {
            true => 0.0,
            false => self.save_copied(level, now),
        };
        let Some(writing) = self.writing.take() else {
            return 0.0;
        };
        let wrote = (now - writing.since).max(0.0);
        self.measure(writing.level, |state| match is_background {
            true => state.commits.add(wrote),
            // Nor will the next be.
            false => state.commits = SaveTimes::expected(0.0),
        });
        self.full_at_fast = match writing.level {
            Level::Fast => writing.full_elapsed,
            Level::Full => 0.0,
        };
        self.steps -= writing.steps;
        self.forecast.committed();
        if let (Level::Full, Some(copies)) = (writing.level, &mut self.copies) {
            copies.begin(now, self.forecast.mean());
        }
        if let Some(notice) = &mut self.notice {
            notice.is_saved = true;
        }
        self.reconsider(now);
        took + if is_background { wrote } else { 0.0 }
    }

    /// The last full save is copied to another host, and survives the loss of its own host from now on.
    /// Returns how long the copy took and by how much steps were longer meanwhile, both in seconds; `None` if
    /// no copy was awaited. May be called in the middle of a step.
    pub fn copy_end(&mut self, now: f64) -> Option<(f64, f64)> {
        let made = self.copies.as_mut()?.end(now)?;
        self.reconsider(now.max(self.mark));
        Some(made)
    }

    /// Returns true if a full save is being copied to another host.
    pub fn is_copying(&self) -> bool {
        self.copies.as_ref().is_some_and(Copies::is_under_way)
    }

    /// Returns true if a save is being written in the background.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// A save could not be made, as on a full disk. The next one is advised when as much was computed as between two.
    pub fn save_failed(&mut self, level: Level, now: f64) {
        let level = match self.writing.take() {
            Some(writing) => {
                let state = self.level_mut(writing.level);
                state.elapsed += writing.elapsed;
                writing.level
            }
            None => {
                self.mark_to(now);
                level
            }
        };
        let state = self.level_mut(level);
        state.began = None;
        self.hold_until = now + state.costs.interval();
    }

    /// Something failed that this process survives; it will restore its last save of any level.
    pub fn failed(&mut self, now: f64) {
        self.mark_to(now);
        self.failures.add();
        self.writing = None;
        let lost = self.forecast.lost() as u64;
        let lost = lost.max(std::mem::take(&mut self.steps));
        self.remaining_steps = self.remaining_steps.map(|steps| steps.saturating_add(lost));
        for state in [Some(&mut self.full), self.fast.as_mut()].into_iter().flatten() {
            state.elapsed = 0.0;
            state.steps = 0;
            state.began = None;
        }
        self.full.elapsed = self.full_at_fast;
    }

    /// The state of the last save is restored. Returns how long that took, in seconds, since the last call or
    /// the beginning of the run.
    pub fn restored(&mut self, now: f64) -> f64 {
        let took = self.mark_to(now);
        self.restore = took;
        self.reconsider(now);
        took
    }

    /// An older, full save was restored instead of the last one, or the program does something else from now
    /// on: the knowledge of its steps does not hold any more.
    pub fn forget_steps(&mut self) {
        self.forecast.forget();
        self.writing = None;
        self.full.elapsed = 0.0;
        self.full_at_fast = 0.0;
    }

    /// How many steps are still to be done; nothing if nobody knows.
    pub fn set_remaining_steps(&mut self, steps: Option<u64>) {
        self.remaining_steps = steps;
    }

    /// The job will be ended in so many seconds: a save is advised at once, if there is time for it, and none after it.
    pub fn preempt(&mut self, notice: f64, now: f64) {
        self.notice = Some(Notice {
            end: now + notice,
            is_saved: false,
        });
    }

    /// The time of the job is over in so many seconds, or earlier if that is known: the last save starts early enough.
    pub fn set_limit(&mut self, left: f64, now: f64) {
        let limit = now + left;
        self.limit = Some(self.limit.map_or(limit, |before| before.min(limit)));
    }

    /// True if a save was made since the job's end was announced.
    pub fn is_saved_for_notice(&self) -> bool {
        self.notice.is_some_and(|notice| notice.is_saved)
    }

    /// The mean time between failures that is believed in now, in seconds.
    pub fn mtbf(&self) -> f64 {
        self.failures.mtbf(self.mark - self.start)
    }

    /// How many failures there were, those before this run included.
    pub fn failures(&self) -> u64 {
        self.failures.count()
    }

    /// The costs by which saves of a level are decided.
    pub fn costs(&self, level: Level) -> Option<&Costs> {
        match level {
            Level::Full => Some(&self.full.costs),
            Level::Fast => self.fast.as_ref().map(|fast| &fast.costs),
        }
    }

    /// The time that 99 of 100 saves of all kinds stay below, in seconds.
    pub fn save_p99(&self) -> f64 {
        self.full.times.p99() + self.full.commits.p99()
    }

    fn remaining(&self) -> Option<f64> {
        let steps = self.remaining_steps?;
        Some(steps as f64 * self.forecast.mean())
    }

    fn level_mut(&mut self, level: Level) -> &mut LevelState {
        match (level, &mut self.fast) {
            (Level::Fast, Some(fast)) => fast,
            _ => &mut self.full,
        }
    }

    /// Takes into account what a save of a level has shown, for both where they are made alike.
    fn measure(&mut self, level: Level, measure: impl Fn(&mut LevelState)) {
        let are_alike = self.copies.is_some();
        let is_full = level == Level::Full || self.fast.is_none();
        if is_full || are_alike {
            measure(&mut self.full);
        }
        if let Some(fast) = self.fast.as_mut().filter(|_| !is_full || are_alike) {
            measure(fast);
        }
    }

    /// How long it was since the last call.
    fn mark_to(&mut self, now: f64) -> f64 {
        let since = (now - self.mark).max(0.0);
        self.mark = self.mark.max(now);
        since
    }

    /// Works out the intervals from what is known now.
    fn reconsider(&mut self, now: f64) {
        let [mut save, restore] = [self.full.times.mean(), self.restore];
        let mtbf = self.failures.cautious_mtbf((now - self.start).max(0.0), save);
        if let Some(copies) = &self.copies {
            save += copies.cost();
            self.covered = (1.0 - mtbf / copies.host_mtbf()).clamp(0.0, 1.0);
        }
        self.full.costs = costs(save, restore, mtbf);
        self.full.mind_commits();
        let Some(fast) = &mut self.fast else { return };
        let fast_save = fast.times.mean();
        self.two_levels = TwoLevels::new(&self.full.costs, fast_save, self.covered);
        if let Some(two) = &mut self.two_levels {
            // Each level is there for the failures that the other does not survive, or need not; and a full save costs
            // only what it takes longer than the fast one in whose place it is.
            self.full.costs = costs(
                save - fast_save,
                restore,
                mtbf / (1.0 - self.covered).max(f64::EPSILON),
            );
            fast.costs = costs(fast_save, restore, mtbf / self.covered);
            if let Some(copies) = &self.copies {
                // What was computed while the last copy was made is lost with a host too.
                two.overhead += copies.mean() / copies.host_mtbf();
                fast.mind_commits();
            }
        } else if self.copies.is_some() {
            fast.costs = costs(fast_save, restore, mtbf);
            fast.mind_commits();
        }
    }
}

impl LevelState {
    /// Takes into account that saves are written in the background, if they are.
    fn mind_commits(&mut self) {
        if self.commits.is_measured() {
            let costs = self.costs.written_in_background(self.commits.mean());
            self.costs = costs.expect("a mean of times is finite and not negative");
        }
    }

    fn advice(&self, level: Level, reason: Reason) -> Advice {
        Advice {
            decision: Decision::new(&self.costs, reason),
            level,
        }
    }
}

fn costs(save: f64, restore: f64, mtbf: f64) -> Costs {
    Costs::new(positive(save), restore, positive(mtbf)).expect("both are positive and finite")
}

/// A number of seconds by which one can divide.
fn positive(seconds: f64) -> f64 {
    if seconds.is_nan() {
        SHORTEST
    } else {
        seconds.clamp(SHORTEST, LONGEST)
    }
}

const SHORTEST: f64 = 1e-9;
const LONGEST: f64 = 1e12;

/// By how much the next step may be longer than foreseen when there is no second chance.
const CAUTION: f64 = 1.25;
