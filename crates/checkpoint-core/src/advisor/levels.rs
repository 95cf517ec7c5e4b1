//! The levels on which a run saves, and their use together.

use super::{
    Decision,
    copies::Copies,
    options::{Advice, Level},
    positive,
    save_times::SaveTimes,
};
use crate::{costs::Costs, policy::Reason, two_levels::TwoLevels};

/// The levels of a run.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    pub(super) fast: Option<LevelState>,
    pub(super) full: LevelState,
    /// How full saves are copied to another host, if they are fast ones that are copied.
    pub(super) copies: Option<Copies>,
    /// How the levels are used together; nothing if the fast one does not pay.
    pub(super) two_levels: Option<TwoLevels>,
    /// Which part of the failures the fast level survives.
    covered: f64,
    /// How much of the time since the last full save the last fast save holds.
    full_at_fast: f64,
}

/// The saves of one level.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelState {
    pub(super) costs: Costs,
    /// How long saves kept the program waiting.
    pub(super) times: SaveTimes,
    /// How long after that those protected that were written in the background.
    pub(super) commits: SaveTimes,
    /// The time since the last save that is as good, in seconds. For the full level it includes the fast
    /// saves, which the program would have to make again.
    pub(super) elapsed: f64,
    pub(super) steps: u64,
    /// When the save that is under way began.
    pub(super) began: Option<f64>,
}

impl Levels {
    /// The levels of a run that begins; `covered` is the part of the failures that the fast level survives.
    pub(super) fn new(
        fast: Option<LevelState>,
        full: LevelState,
        copies: Option<Copies>,
        covered: f64,
    ) -> Self {
        Self {
            fast,
            full,
            copies,
            two_levels: None,
            covered,
            full_at_fast: 0.0,
        }
    }

    /// The state of a level; that of the full one if there is no other.
    pub(super) fn get_mut(&mut self, level: Level) -> &mut LevelState {
        match (level, &mut self.fast) {
            (Level::Fast, Some(fast)) => fast,
            _ => &mut self.full,
        }
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut LevelState> {
        [Some(&mut self.full), self.fast.as_mut()].into_iter().flatten()
    }

    /// A step is over.
    pub(super) fn step(&mut self, seconds: f64) {
        for level in self.iter_mut() {
            level.elapsed += seconds;
            level.steps += 1;
        }
        if let Some(copies) = &mut self.copies {
            copies.step(seconds);
        }
    }

    /// A part of a step was computed.
    pub(super) fn compute(&mut self, seconds: f64) {
        for level in self.iter_mut() {
            level.elapsed += seconds;
        }
    }

    /// A save holds all until now, and took so many seconds of the program's time. Returns the time since the last save
    /// as good, and since the last full one.
    pub(super) fn save_copied(&mut self, level: Level, took: f64) -> (f64, f64) {
        let full_elapsed = self.full.elapsed + took;
        let state = self.get_mut(level);
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
        (elapsed, full_elapsed)
    }

    /// A save protects. `full_elapsed` is the time that it holds since the last full one; it took `wrote` seconds after
    /// the program went on if it was written in the background.
    pub(super) fn save_committed(&mut self, level: Level, full_elapsed: f64, wrote: Option<f64>) {
        self.measure(level, |state| match wrote {
            Some(wrote) => state.commits.add(wrote),
            // Nor will the next be.
            None => state.commits = SaveTimes::expected(0.0),
        });
        self.full_at_fast = match level {
            Level::Fast => full_elapsed,
            Level::Full => 0.0,
        };
    }

    /// Takes into account what a save of a level has shown, for both where they are made alike.
    pub(super) fn measure(&mut self, level: Level, measure: impl Fn(&mut LevelState)) {
        let are_alike = self.copies.is_some();
        let is_full = level == Level::Full || self.fast.is_none();
        if is_full || are_alike {
            measure(&mut self.full);
        }
        if let Some(fast) = self.fast.as_mut().filter(|_| !is_full || are_alike) {
            measure(fast);
        }
    }

    /// All since the last save of any level is lost.
    pub(super) fn lose(&mut self) {
        for level in self.iter_mut() {
            level.elapsed = 0.0;
            level.steps = 0;
            level.began = None;
        }
        self.full.elapsed = self.full_at_fast;
    }

    /// The run goes on from a full save, or does something else.
    pub(super) fn forget(&mut self) {
        self.full.elapsed = 0.0;
        self.full_at_fast = 0.0;
    }

    /// The time that 99 of 100 saves of all kinds stay below, in seconds.
    pub(super) fn save_p99(&self) -> f64 {
        self.full.times.p99() + self.full.commits.p99()
    }

    /// Works out the intervals from the time of a restore and the mean time between failures.
    pub(super) fn reconsider(&mut self, restore: f64, mtbf: f64) {
        let mut save = self.full.times.mean();
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
    /// A level of which nothing was saved yet.
    pub(super) fn new(times: SaveTimes, commits: SaveTimes, restore: f64, mtbf: f64) -> Self {
        Self {
            costs: costs(times.mean(), restore, mtbf),
            times,
            commits,
            elapsed: 0.0,
            steps: 0,
            began: None,
        }
    }

    /// Takes into account that saves are written in the background, if they are.
    fn mind_commits(&mut self) {
        if self.commits.is_measured() {
            let costs = self.costs.written_in_background(self.commits.mean());
            self.costs = costs.expect("a mean of times is finite and not negative");
        }
    }

    pub(super) fn advice(&self, level: Level, reason: Reason) -> Advice {
        Advice {
            decision: Decision::new(&self.costs, reason),
            level,
        }
    }
}

fn costs(save: f64, restore: f64, mtbf: f64) -> Costs {
    Costs::new(positive(save), restore, positive(mtbf)).expect("both are positive and finite")
}
