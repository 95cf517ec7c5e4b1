//! Saves that take longer on other ranks.

use super::{Advisor, Level};

impl Advisor {
    /// The slowest rank needed so many seconds longer for the save that ended last, and the others waited for it since
    /// then: that was no part of the step that is under way. To be told before the step's end.
    pub fn save_longer(&mut self, level: Level, seconds: f64) {
        self.mark += seconds.max(0.0);
        self.measure(level, |state| state.times.lengthen_last(seconds));
        self.reconsider(self.mark);
    }
}
