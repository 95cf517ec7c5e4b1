//! How saving goes while a job runs, for the terminal, the log and the metrics.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use ropewalk_checkpoint::{Failing, History, JOURNAL, JournalFile, JournalFollower, Totals};
use serde_json::{Value, json};

/// The saves of a job so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Saving {
    pub(super) saves: u64,
    pub(super) failed: u64,
    /// When the last save was first seen; `None` if this command has seen none.
    pub(super) saved_at: Option<Duration>,
    /// Saves fail now, and since then nothing is saved; counted from the start of this command.
    pub(super) unprotected_since: Option<Duration>,
}

impl Saving {
    /// Made of this command's totals, and of what its journal says of the last start, so long after the begin.
    pub(super) fn of(totals: &Totals, failing: Option<Failing>, now: Duration) -> Self {
        let since = |failing: Failing| {
            let unprotected = Duration::try_from_secs_f64(failing.unprotected).unwrap_or_default();
            now.saturating_sub(unprotected)
        };
        Self {
            saves: totals.saves,
            failed: totals.failed_saves,
            saved_at: None,
            unprotected_since: failing.map(since),
        }
    }

    /// The same as an object, so long after the begin.
    pub(super) fn to_json(self, event: &str, now: Duration) -> Value {
        let since = self.unprotected_since;
        json!({
            "event": event, "saves": self.saves, "saves_failed": self.failed,
            "unprotected_since_s": since.map(|since| since.as_secs_f64()),
            "unprotected_s": since.map_or(0.0, |since| now.saturating_sub(since).as_secs_f64()),
        })
    }
}

/// Looks into the journal now and then.
#[derive(Debug)]
pub(super) struct SavingWatch {
    follower: JournalFollower,
    /// Its totals before this command.
    before: Totals,
    began: Instant,
    next: Instant,
    saving: Saving,
}

impl SavingWatch {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Watches over the saves of a job that begins now.
    pub(super) fn new(directory: &Path, began: Instant) -> Self {
        let journal = directory.join(JOURNAL);
        let before = JournalFile::look(&journal).ok().flatten().unwrap_or_default();
        Self {
            follower: JournalFollower::new(journal),
            before: *before.totals(),
            began,
            next: began + Self::INTERVAL,
            saving: Saving::default(),
        }
    }

    /// How long until the next look.
    pub(super) fn patience(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// How saving goes now, and whether it did not before: nothing if it is not time to look.
    pub(super) fn look(&mut self) -> Option<(Saving, bool)> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + Self::INTERVAL;
        // What cannot be read now may be the next time.
        let history: &History = self.follower.look().ok()?;
        let totals = history.totals().since(&self.before);
        let at = now - self.began;
        let mut new = Saving::of(&totals, history.failing(), at);
        new.saved_at = match new.saves > self.saving.saves {
            true => Some(at),
            false => self.saving.saved_at,
        };
        let changed = new.unprotected_since.is_some() != self.saving.unprotected_since.is_some();
        self.saving = new;
        Some((new, changed))
    }

    /// How long this command runs.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_checkpoint::{Level, Record};

    use super::*;

    /// It is known since when nothing is saved, and that it goes on; what an earlier command did is not counted.
    #[test]
    fn failed_saves_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let add = |records: &[Record]| {
            let (mut journal, _) = JournalFile::open(folder.path().join(JOURNAL)).unwrap();
            records.iter().for_each(|&record| journal.add(record).unwrap());
        };
        let level = Level::Full;
        let saved = Record::Saved { level, seconds: 1.0 };
        let failed = Record::NotSaved { level, seconds: 1.0 };
        add(&[Record::Start { start: 1 }, saved, failed, Record::Ended]);
        let began = Instant::now() - Duration::from_secs(100);
        let mut watch = SavingWatch::new(folder.path(), began);
        let mut look = || {
            watch.next = began;
            watch.look().unwrap()
        };
        add(&[Record::Start { start: 2 }, saved]);
        let (found, changed) = look();
        let saved_at = found.saved_at;
        let fine = Saving {
            saves: 1,
            saved_at,
            ..Saving::default()
        };
        assert_eq!((found, changed), (fine, false));
        assert!(saved_at.unwrap() >= Duration::from_secs(100), "{saved_at:?}");
        add(&[Record::Step { seconds: 9.0 }, failed]);
        let (found, changed) = look();
        let since = found.unprotected_since.unwrap().as_secs_f64();
        assert!(changed && (89.0..100.0).contains(&since), "{since}");
        assert_eq!((found.saves, found.failed, found.saved_at), (1, 1, saved_at));
        assert!(!look().1);
        add(&[saved]);
        let (found, changed) = look();
        assert!(found.saved_at > saved_at, "{found:?}");
        let again = Saving {
            saves: 2,
            failed: 1,
            saved_at: found.saved_at,
            unprotected_since: None,
        };
        assert_eq!((found, changed), (again, true));
        assert!(watch.patience() > Duration::ZERO && watch.look().is_none());
    }
}
