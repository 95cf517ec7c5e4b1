//! The journal of a job, of which the partner of the host that writes it keeps a copy.

use std::{
    io,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{History, Record, Totals};
use serde::{Deserialize, Serialize};

use crate::{journal_file::JournalFile, run_advisor::JOURNAL};

/// How much a journal knows. More of the same job's is newer.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub(super) struct Knowledge {
    /// How many saves there were: a supervisor's own journal has none.
    saves: u64,
    /// For how many seconds the job ran.
    ran: f64,
}

impl Knowledge {
    fn of(history: &History) -> Self {
        let (saves, ran) = history.knowledge();
        Self { saves, ran }
    }
}

/// The host with the journal that knows most, which is `home` if its own is as good.
pub(super) fn best_of(hosts: &[Option<Knowledge>], home: usize) -> Option<usize> {
    let known = |host: usize| hosts.get(host).copied().flatten();
    let best = (0..hosts.len())
        .filter(|&host| known(host).is_some())
        .reduce(|best, host| if known(host) > known(best) { host } else { best })?;
    Some(if known(home) >= known(best) { home } else { best })
}

/// The history of a job that a host knows: from its journal, or from its copy of another host's, whichever
/// knows more. `None` if it has neither.
///
/// # Errors
/// If one of them cannot be read.
pub fn history_of_host(directory: &Path) -> io::Result<Option<History>> {
    Ok(known(directory)?.map(|(_, history)| history))
}

/// The same, and how much that is.
pub(super) fn known(directory: &Path) -> io::Result<Option<(Knowledge, History)>> {
    let mut best: Option<(Knowledge, History)> = None;
    for path in [directory.join(JOURNAL), copy_path(directory)] {
        if let Some(history) = JournalFile::look(&path)? {
            let knowledge = Knowledge::of(&history);
            if best.as_ref().is_none_or(|(other, _)| knowledge > *other) {
                best = Some((knowledge, history));
            }
        }
    }
    Ok(best)
}

/// Keeps a copy of another host's journal.
pub(super) fn keep_copy(directory: &Path, text: &[u8]) -> io::Result<()> {
    JournalFile::replace(&copy_path(directory), &History::read(text))
}

/// Goes on with a journal from elsewhere, if it knows more than the own. The losses of hosts that only the
/// own knows, as a supervisor wrote them, are added to it. Returns true if it goes on with the other journal.
pub(super) fn go_on_with(directory: &Path, text: &[u8]) -> io::Result<bool> {
    let path = directory.join(JOURNAL);
    let mut history = History::read(text);
    if let Some(own) = JournalFile::look(&path)? {
        if Knowledge::of(&own) >= Knowledge::of(&history) {
            return Ok(false);
        }
        let [own, other] = [own.totals(), history.totals()].map(|totals| totals.hosts_lost);
        history.add(Record::Before(Totals {
            hosts_lost: own.saturating_sub(other),
            ..Totals::default()
        }));
    }
    JournalFile::replace(&path, &history)?;
    Ok(true)
}

fn copy_path(directory: &Path) -> PathBuf {
    directory.join(format!("{JOURNAL}-of-partner"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_checkpoint_core::Level;

    fn text(records: &[Record]) -> String {
        records.iter().map(Record::encode).collect()
    }

    fn saved(count: usize) -> Vec<Record> {
        let saved = Record::Saved {
            level: Level::Full,
            seconds: 2.0,
        };
        [vec![Record::Start { start: 1 }], vec![saved; count]].concat()
    }

    /// The journal that knows of more saves is newer, then the one that ran longer. A host that has one as
    /// good fetches none.
    #[test]
    fn the_best_journal_is_found() {
        let knows = |saves, ran| Some(Knowledge { saves, ran });
        assert_eq!(best_of(&[None, None], 1), None);
        assert_eq!(best_of(&[knows(0, 99.0), knows(3, 5.0), None], 0), Some(1));
        assert_eq!(best_of(&[knows(3, 5.0), None, knows(3, 5.0)], 2), Some(2));
        assert_eq!(best_of(&[knows(3, 5.0), knows(3, 6.0)], 0), Some(1));
    }

    /// A host without a journal goes on with the copy; one that knows more keeps its own; losses of hosts stay known.
    #[test]
    fn a_new_host_goes_on_with_the_copy() {
        let [old, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        keep_copy(old.path(), text(&saved(5)).as_bytes()).unwrap();
        let (knowledge, history) = known(old.path()).unwrap().unwrap();
        assert_eq!((knowledge.saves, knowledge.ran), (5, 10.0));
        let short = history.encode();

        assert!(known(new.path()).unwrap().is_none());
        assert!(go_on_with(new.path(), short.as_bytes()).unwrap());
        let own = || JournalFile::look(&new.path().join(JOURNAL)).unwrap().unwrap();
        assert_eq!((own().totals().saves, own().saves(Level::Full).len()), (5, 5));
        assert!(!go_on_with(new.path(), text(&saved(4)).as_bytes()).unwrap());
        assert_eq!(own().totals().saves, 5);

        let (mut journal, _) = JournalFile::open(new.path().join(JOURNAL)).unwrap();
        journal.add(Record::HostLost).unwrap();
        assert!(go_on_with(new.path(), text(&saved(6)).as_bytes()).unwrap());
        assert_eq!((own().totals().saves, own().totals().hosts_lost), (6, 1));
    }
}
