//! Which generations go to an object store, and when.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::{generation::KEEP_MIN, partner::Part};

/// Decides what is uploaded next: the newest generation that all ranks have, and none that is older than one that is
/// there. What fails is tried again, later each time.
///
/// Tell it with [`handle_local`](Self::handle_local) which parts there are, take an action with
/// [`poll`](Self::poll), do it, and tell its outcome with [`handle_listed`](Self::handle_listed),
/// [`handle_done`](Self::handle_done) or [`handle_failed`](Self::handle_failed).
#[derive(Clone, Debug, Default)]
pub struct Uploads {
    complete: BTreeSet<u64>,
    /// Not known before it was asked for.
    uploaded: Option<BTreeSet<u64>>,
    failures: u32,
    again: Duration,
}

/// An action to be done in the object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadAction {
    /// Look which generations are there.
    List,
    /// Remove this generation: there are newer ones.
    Remove(u64),
    /// Upload this generation.
    Upload(u64),
}

impl Uploads {
    /// The parts that are here.
    pub fn handle_local(&mut self, parts: &BTreeSet<Part>) {
        let mut ranks: BTreeMap<(u64, u64, u32), u32> = BTreeMap::new();
        for part in parts {
            *ranks.entry((part.generation, part.step, part.ranks)).or_default() += 1;
        }
        let complete = ranks.into_iter().filter(|&((_, _, ranks), count)| ranks == count);
        self.complete = complete.map(|((generation, ..), _)| generation).collect();
    }

    /// The action to do now, if any.
    pub fn poll(&self, now: Duration) -> Option<UploadAction> {
        if now < self.again {
            return None;
        }
        let Some(uploaded) = &self.uploaded else {
            return Some(UploadAction::List);
        };
        let newest = self
            .complete
            .last()
            .filter(|&found| Some(found) > uploaded.last());
        match newest {
            Some(&generation) => Some(UploadAction::Upload(generation)),
            None if uploaded.len() > KEEP_MIN => uploaded.first().copied().map(UploadAction::Remove),
            None => None,
        }
    }

    /// Returns true if the newest generation is uploaded.
    pub fn is_done(&self) -> bool {
        self.complete.last() <= self.uploaded.as_ref().and_then(BTreeSet::last)
    }

    /// These generations are there as a whole. Says whether actions failed before.
    pub fn handle_listed(&mut self, uploaded: BTreeSet<u64>) -> bool {
        self.uploaded = Some(uploaded);
        self.went_well()
    }

    /// A generation was uploaded or removed. Says whether actions failed before.
    pub fn handle_done(&mut self, action: UploadAction) -> bool {
        if let Some(uploaded) = &mut self.uploaded {
            match action {
                UploadAction::List => {}
                UploadAction::Remove(generation) => drop(uploaded.remove(&generation)),
                UploadAction::Upload(generation) => drop(uploaded.insert(generation)),
            }
        }
        self.went_well()
    }

    fn went_well(&mut self) -> bool {
        self.again = Duration::ZERO;
        core::mem::take(&mut self.failures) > 0
    }

    /// An action failed. Says whether it is the first that does, of which the user is told.
    pub fn handle_failed(&mut self, now: Duration) -> bool {
        let pause = AGAIN * 2u32.saturating_pow(self.failures);
        self.again = now + pause.min(AGAIN_MAX);
        self.failures = (self.failures + 1).min(DOUBLINGS_MAX);
        self.failures == 1
    }
}

/// The pause after the first failure.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest pause, which is reached after so many failures.
const AGAIN_MAX: Duration = Duration::from_secs(300);
const DOUBLINGS_MAX: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(generations: &[(u64, u32)]) -> BTreeSet<Part> {
        let part = |&(generation, rank)| Part::of_two(generation, rank);
        generations.iter().map(part).collect()
    }

    /// Only what all ranks have is uploaded, the newest first, and no older one after it; then old ones are removed.
    #[test]
    fn the_newest_is_uploaded() {
        let mut uploads = Uploads::default();
        assert_eq!(uploads.poll(Duration::ZERO), Some(UploadAction::List));
        uploads.handle_listed([1, 2].into());
        uploads.handle_local(&parts(&[(3, 0), (3, 1), (4, 0), (4, 1), (5, 0)]));
        let action = uploads.poll(Duration::ZERO).unwrap();
        assert_eq!(action, UploadAction::Upload(4));
        assert!(!uploads.is_done());
        assert!(!uploads.handle_done(action) && uploads.is_done());
        let action = uploads.poll(Duration::ZERO).unwrap();
        assert_eq!(action, UploadAction::Remove(1));
        uploads.handle_done(action);
        assert_eq!(uploads.poll(Duration::ZERO), None);
    }

    /// After a failure there is a pause, longer each time up to five minutes. The failure is told once, and
    /// the recovery once.
    #[test]
    fn failures_are_told_once() {
        let mut uploads = Uploads::default();
        uploads.handle_listed(BTreeSet::new());
        uploads.handle_local(&parts(&[(1, 0), (1, 1)]));
        let mut now = Duration::ZERO;
        let mut told = 0;
        for _ in 0..40 {
            let action = uploads.poll(now).unwrap();
            assert_eq!(action, UploadAction::Upload(1));
            told += u32::from(uploads.handle_failed(now));
            assert_eq!(uploads.poll(now + AGAIN / 2), None);
            now += AGAIN_MAX;
        }
        assert_eq!(told, 1);
        assert!(uploads.handle_done(UploadAction::Upload(1)));
        assert!(uploads.is_done());
    }
}
