//! How far the attempts of a job have come.

/// How far an attempt came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It reached a higher step than any attempt before it, so that failing again is no crash loop.
    pub came_to_something: bool,
    /// The last step that it reached, if that is known.
    pub step: Option<u64>,
}

/// The highest steps that any attempt of this command reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reached {
    saved: Option<u64>,
    told: Option<u64>,
}

impl Reached {
    /// An attempt is over. It began from the save of step `from`, or from the beginning; `saved` is the newest save
    /// that it left, and `done` how many steps its advisor was told of, if it has one.
    ///
    /// Steps that are saved and steps that are told are not compared with each other: programs may count them
    /// differently.
    pub(super) fn ended(&mut self, from: Option<u64>, saved: Option<u64>, done: Option<u64>) -> Progress {
        let told = done.map(|done| from.unwrap_or(0).saturating_add(done));
        let saved = saved.max(from);
        let came_to_something = saved > self.saved.max(from) || told.is_some() && told > self.told.max(from);
        self.saved = self.saved.max(saved);
        self.told = self.told.max(told);
        Progress {
            came_to_something,
            step: told.or(saved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn came_to_something(attempts: &[(Option<u64>, Option<u64>, Option<u64>)]) -> Vec<bool> {
        let mut reached = Reached::default();
        let ended = |&(from, saved, done): &_| reached.ended(from, saved, done).came_to_something;
        attempts.iter().map(ended).collect()
    }

    /// A step that is saved again is no progress, nor is one that is told again; only a higher one is.
    #[test]
    fn only_a_higher_step_is_progress() {
        let (at, nothing) = (Some, None);
        assert_eq!(
            came_to_something(&[
                (nothing, at(20), nothing),
                (at(20), at(20), nothing),
                // An older generation, and the same step again under a higher number.
                (at(10), at(20), nothing),
                (at(20), at(21), nothing),
            ]),
            [true, false, false, true]
        );
        assert_eq!(
            came_to_something(&[
                (nothing, nothing, at(29)),
                (nothing, nothing, at(29)),
                (at(20), at(20), at(9)),
                (at(20), at(20), at(10)),
                (nothing, nothing, nothing),
            ]),
            [true, false, false, true, false]
        );
        // What an earlier command has saved is no progress of this one.
        assert_eq!(came_to_something(&[(at(20), at(20), at(0))]), [false]);
    }

    /// The step of an attempt is the last that was told, or else the last that was saved.
    #[test]
    fn the_last_step_is_known() {
        let mut reached = Reached::default();
        assert_eq!(reached.ended(None, None, None).step, None);
        assert_eq!(reached.ended(Some(20), Some(30), None).step, Some(30));
        assert_eq!(reached.ended(Some(20), Some(30), Some(15)).step, Some(35));
    }
}
