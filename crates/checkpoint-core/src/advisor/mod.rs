//! When to save, as told by what a run has shown so far.

mod copies;
mod failures;
pub(crate) mod forecast;
mod levels;
mod options;
mod run_end;
mod save_times;
#[cfg(test)]
mod tests;

use crate::{
    costs::Costs,
    journal::History,
    policy::{Decision, Moment, Policy, Rate, Reason},
};

pub use options::{Advice, AdvisorOptions, FastLevel, Level, MTBF_AT_FIRST, Mtbf};

use copies::Copies;
use failures::Failures;
use forecast::Forecast;
use levels::{LevelState, Levels};
use options::SAVE_AT_FIRST;
use run_end::{Notice, RunEnd};
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
    levels: Levels,
    /// Nobody knows how long a save takes.
    is_save_unknown: bool,
    restore: f64,
    forecast: Forecast,
    end: RunEnd,
    /// How many steps are done since the last save.
    steps: u64,
    writing: Option<Writing>,
    /// After a save that failed none is asked for until then.
    hold_until: f64,
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
            LevelState::new(times, commits, restore, failures.mtbf(0.0))
        };
        let fast_save = match copies {
            Some(_) => Some(save),
            None => options.fast.map(|fast| fast.save),
        };
        let (fast, full) = (
            fast_save.map(|save| level(save, &[Level::Fast])),
            level(save, &[Level::Full]),
        );
        let covered = options.fast.map_or(0.0, |fast| fast.covers.clamp(0.0, 1.0));
        let mut advisor = Self {
            start: now,
            mark: now,
            failures,
            is_save_unknown: options.save.is_none() && !full.times.is_measured(),
            levels: Levels::new(fast, full, copies, covered),
            restore,
            forecast: Forecast::new(history.steps()),
            end: RunEnd::new(options.steps, options.limit.map(|limit| now + limit)),
            steps: 0,
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
        self.end.step();
        self.forecast.step(step, self.levels.full.costs.interval());
        self.levels.step(step);
        self.advice(now)
    }

    /// The advice for now, without another step: for programs that hear of something in the middle of one.
    pub fn advice(&self, now: f64) -> Advice {
        let Levels {
            fast,
            full,
            copies,
            two_levels,
            ..
        } = &self.levels;
        let because = |reason| full.advice(Level::Full, reason);
        if let Some(notice) = self.end.notice {
            return self.advice_at_notice(now, notice);
        }
        let is_saved = full.elapsed <= 0.0;
        let save = self.levels.save_p99();
        if let Some(reason) = self.end.advice_at_limit(now, &self.forecast, save, is_saved) {
            return because(reason);
        }
        if self.writing.is_some() {
            return because(Reason::LastSaveUnderWay);
        }
        if now < self.hold_until {
            return because(Reason::LastSaveFailed);
        }
        if self.is_save_unknown && !is_saved && self.end.remaining_steps != Some(0) {
            return because(Reason::SaveTimeUnknown);
        }
        let remaining = self.end.remaining(&self.forecast);
        let decide = |costs: &Costs, since: &LevelState, remaining| {
            let moment = Moment {
                elapsed: since.elapsed,
                next_step: self.forecast.next(),
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
        let (decision, level) = match (fast, copies) {
            // While a copy is made no other begins, and what is saved is saved here only.
            (Some(fast), Some(copies)) if copies.is_awaited(now) => {
                (by_forecast(&fast.costs, fast), Level::Fast)
            }
            // Every save is to be copied, and that which was made while the last copy was is as good for its time.
            (Some(fast), Some(_)) if two_levels.is_none() => (by_forecast(&full.costs, fast), Level::Full),
            _ => (by_forecast(&full.costs, full), Level::Full),
        };
        let mut advice = Advice { decision, level };
        if let (Some(fast), Some(two)) = (fast, two_levels) {
            if !advice.decision.save && level == Level::Full {
                // The next full save ends the need for fast ones as the end of the run does, but has to be done too.
                let until_full = (two.full_interval - full.elapsed).max(0.0) + full.times.mean();
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
        let Levels {
            fast, full, copies, ..
        } = &self.levels;
        let left = notice.end - now;
        if self.writing.is_some() {
            return full.advice(Level::Full, Reason::LastSaveUnderWay);
        }
        if !notice.is_saved {
            let copy = copies.as_ref().map_or(0.0, Copies::p99);
            // A save that may not be done in time is better than none if nobody knows how long one takes.
            if left > self.levels.save_p99() + copy || (self.is_save_unknown && left > 0.0) {
                return full.advice(Level::Full, Reason::EndIsAnnounced);
            }
            if let Some(fast) = fast.filter(|fast| left > fast.times.p99() + fast.commits.p99()) {
                return fast.advice(Level::Fast, Reason::EndIsAnnounced);
            }
        }
        full.advice(Level::Full, Reason::NoTimeLeft)
    }

    /// A save begins.
    pub fn save_begin(&mut self, level: Level, now: f64) {
        // What was computed since the last step is saved too.
        let since = self.mark_to(now);
        self.levels.compute(since);
        self.levels.get_mut(level).began = Some(self.mark);
    }

    /// The save that began has all it needs, and the program goes on while the save is written in the
    /// background. Only the time until now counts as the time of the save. It protects from
    /// [`save_end`](Self::save_end) on, and until then no other is advised. Returns how long the program
    /// waited, in seconds.
    pub fn save_copied(&mut self, level: Level, now: f64) -> f64 {
        self.mark_to(now);
        let mark = self.mark;
        let Some(began) = self.levels.get_mut(level).began.take() else {
            return 0.0;
        };
        let took = mark - began;
        let (elapsed, full_elapsed) = self.levels.save_copied(level, took);
        self.writing = Some(Writing {
            level,
            since: mark,
            steps: self.steps,
            elapsed,
            full_elapsed,
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
        let wrote = is_background.then(|| (now - writing.since).max(0.0));
        self.levels
            .save_committed(writing.level, writing.full_elapsed, wrote);
        self.steps -= writing.steps;
        self.forecast.committed();
        if let (Level::Full, Some(copies)) = (writing.level, &mut self.levels.copies) {
            copies.begin(now, self.forecast.mean());
        }
        self.end.save_committed();
        self.reconsider(now);
        took + wrote.unwrap_or(0.0)
    }

    /// The slowest rank needed so many seconds longer for the save that ended last, and the others waited for it since
    /// then: that was no part of the step that is under way. To be told before the step's end.
    pub fn save_longer(&mut self, level: Level, seconds: f64) {
        self.mark += seconds.max(0.0);
        self.levels
            .measure(level, |state| state.times.lengthen_last(seconds));
        self.reconsider(self.mark);
    }

    /// The last full save is copied to another host, and survives the loss of its own host from now on.
    /// Returns how long the copy took and by how much steps were longer meanwhile, both in seconds; `None` if
    /// no copy was awaited. May be called in the middle of a step.
    pub fn copy_end(&mut self, now: f64) -> Option<(f64, f64)> {
        let made = self.levels.copies.as_mut()?.end(now)?;
        self.reconsider(now.max(self.mark));
        Some(made)
    }

    /// Returns true if a full save is being copied to another host.
    pub fn is_copying(&self) -> bool {
        self.levels.copies.as_ref().is_some_and(Copies::is_under_way)
    }

    /// Returns true if a save is being written in the background.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// A save could not be made, as on a full disk. The next one is advised when as much was computed as between two.
    pub fn save_failed(&mut self, level: Level, now: f64) {
        let level = match self.writing.take() {
            Some(writing) => {
                let state = self.levels.get_mut(writing.level);
                state.elapsed += writing.elapsed;
                writing.level
            }
            None => {
                self.mark_to(now);
                level
            }
        };
        let state = self.levels.get_mut(level);
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
        self.end.lose(lost);
        self.levels.lose();
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
        self.levels.forget();
    }

    /// How many steps are still to be done; nothing if nobody knows.
    pub fn set_remaining_steps(&mut self, steps: Option<u64>) {
        self.end.remaining_steps = steps;
    }

    /// The job will be ended in so many seconds: a save is advised at once, if there is time for it, and none after it.
    pub fn preempt(&mut self, notice: f64, now: f64) {
        self.end.announce(now + notice);
    }

    /// The time of the job is over in so many seconds, or earlier if that is known: the last save starts early enough.
    pub fn set_limit(&mut self, left: f64, now: f64) {
        self.end.limit_to(now + left);
    }

    /// True if a save was made since the job's end was announced.
    pub fn is_saved_for_notice(&self) -> bool {
        self.end.notice.is_some_and(|notice| notice.is_saved)
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
            Level::Full => Some(&self.levels.full.costs),
            Level::Fast => self.levels.fast.as_ref().map(|fast| &fast.costs),
        }
    }

    /// The time that 99 of 100 saves of all kinds stay below, in seconds.
    pub fn save_p99(&self) -> f64 {
        self.levels.save_p99()
    }

    /// How long it was since the last call.
    fn mark_to(&mut self, now: f64) -> f64 {
        let since = (now - self.mark).max(0.0);
        self.mark = self.mark.max(now);
        since
    }

    /// Works out the intervals from what is known now.
    fn reconsider(&mut self, now: f64) {
        let save = self.levels.full.times.mean();
        let mtbf = self.failures.cautious_mtbf((now - self.start).max(0.0), save);
        self.levels.reconsider(self.restore, mtbf);
    }
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
