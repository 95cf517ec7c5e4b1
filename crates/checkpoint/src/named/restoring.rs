//! Restores of named state, on all ranks of a job or on none.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{
    EntrySource, Held, SavedPart, StateHeader, Transfer, check_partitions, plan_restore,
};
use serde::{Deserialize, Serialize};

use super::{
    error::RunError,
    state::{Named, header_of},
    state_file::{STATE_FILE, StateFile},
};
use crate::{
    any_ranks::restore_any,
    coordination::{Coordination, CoordinationError},
    store::{Store, rank_name},
};

/// A restore that is done.
#[derive(Debug)]
pub(super) struct Begun {
    /// The number of steps done, if there was a save.
    pub(super) step: Option<u64>,
    /// The stores of numbers of ranks that saved and are none of this job, of which this rank removes old generations.
    pub(super) more: Vec<Store>,
}

/// Restores a state from the newest save that is whole.
pub(super) fn restore(
    store: &mut Store,
    others: &mut dyn Coordination,
    state: &mut [Named<'_>],
) -> Result<Begun, RunError> {
    // A state that cannot be saved is an error at the beginning.
    let wanted = share_headers(others, &header_of(state)?)?;
    // Who has decided for all ranks has looked for a save of as many.
    let takes_any = wanted.iter().any(StateHeader::is_partitioned) && store.options().decided.is_none();
    let (restored, more) = match takes_any {
        true => restore_any(store, others)?,
        false => (store.restore(others)?, Vec::new()),
    };
    let job = Job { store, wanted };
    let read = job.read(restored.from, others, state);
    if let (Err(error), Some(held)) = (&read, restored.from)
        && error.is_mismatch()
    {
        for store in more.iter().chain([job.store]) {
            store.forget_restart(held.generation)?;
        }
    }
    read?;
    Ok(Begun {
        step: restored.from.map(|held| held.step),
        more,
    })
}

fn share_headers(others: &mut dyn Coordination, own: &StateHeader) -> Result<Vec<StateHeader>, RunError> {
    let told = others.share(own.encode().as_bytes())?;
    let headers = (0..).zip(told).map(|(rank, bytes)| {
        let header = StateHeader::parse(&bytes);
        header.map_err(|_| CoordinationError::Unreadable { rank }.into())
    });
    headers.collect()
}

/// A message of a rank about saved files that it has read for all ranks.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Told {
    parts: Vec<ToldPart>,
    /// The error if a file could not be read, otherwise empty.
    problem: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct ToldPart {
    saved_rank: u32,
    header: String,
    copies: BTreeMap<String, [u8; 32]>,
}

struct Job<'a> {
    store: &'a Store,
    /// The states of all ranks.
    wanted: Vec<StateHeader>,
}

impl Job<'_> {
    fn rank(&self) -> u32 {
        self.store.options().rank
    }

    fn ranks(&self) -> u32 {
        self.store.options().ranks
    }

    fn path(&self, held: Held, saved_rank: u32) -> PathBuf {
        let folder = self.store.generation_path(held.generation);
        folder.join(rank_name(saved_rank)).join(STATE_FILE)
    }

    /// Reads what was saved, once all ranks have seen that they can.
    fn read(
        &self,
        from: Option<Held>,
        others: &mut dyn Coordination,
        state: &mut [Named<'_>],
    ) -> Result<(), RunError> {
        check_partitions(&self.wanted)?;
        let Some(held) = from else {
            // Nobody saves before all have looked through the directory: they would take a folder that is made for
            // torn.
            return all_can(self.rank(), others, Ok(()));
        };
        let saved = self.share_saved(held, others)?;
        let planned = plan_restore(&self.wanted, &saved, self.rank()).map_err(RunError::from);
        let planned = planned.and_then(|plan| {
            self.look_at_files(held, &plan, &saved)?;
            Ok(plan)
        });
        let plan = all_can(self.rank(), others, planned)?;
        self.read_planned(held, &plan, &saved, state)
    }

    /// The headers of all saved files, each of which one rank reads.
    fn share_saved(&self, held: Held, others: &mut dyn Coordination) -> Result<Vec<SavedPart>, RunError> {
        let (parts, error) = match self.own_share(held) {
            Ok(parts) => (parts, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let problem = error.as_ref().map(ToString::to_string).unwrap_or_default();
        let own = postcard::to_allocvec(&Told { parts, problem }).expect("texts and numbers can be encoded");
        let told = others.share(&own);
        if let Some(error) = error {
            return Err(error);
        }
        let mut saved: Vec<Option<SavedPart>> = vec![None; held.ranks as usize];
        let unreadable = |rank| RunError::from(CoordinationError::Unreadable { rank });
        for (rank, bytes) in (0..).zip(told?) {
            let told: Told = postcard::from_bytes(&bytes).map_err(|_| unreadable(rank))?;
            if !told.problem.is_empty() {
                let text = told.problem;
                return Err(RunError::OtherRank { rank, text });
            }
            for part in told.parts {
                let header = StateHeader::parse(part.header.as_bytes()).map_err(|_| unreadable(rank))?;
                let place = saved.get_mut(part.saved_rank as usize);
                *place.ok_or_else(|| unreadable(rank))? = Some(SavedPart {
                    header,
                    copies: part.copies,
                });
            }
        }
        let all = (0..)
            .zip(saved)
            .map(|(saved_rank, part)| part.ok_or_else(|| unreadable(saved_rank % self.ranks())));
        all.collect()
    }

    /// Reads the headers of this rank's share of the saved files.
    fn own_share(&self, held: Held) -> Result<Vec<ToldPart>, RunError> {
        let own = (self.rank()..held.ranks).step_by(self.ranks() as usize);
        let parts = own.map(|saved_rank| {
            let path = self.path(held, saved_rank);
            let file = StateFile::open(&path)?;
            let mut copies = BTreeMap::new();
            // As many ranks as saved it read their own.
            if held.ranks != self.ranks() {
                for (index, entry) in file.header().entries().iter().enumerate() {
                    if !entry.is_partitioned() {
                        let hash = file.digest(index).map_err(|source| unreadable(&path, source))?;
                        copies.insert(entry.name().to_owned(), hash);
                    }
                }
            }
            Ok(ToldPart {
                saved_rank,
                header: file.header().encode(),
                copies,
            })
        });
        parts.collect()
    }

    /// Opens each file that this rank will read: another rank may see one that this one does not.
    fn look_at_files(&self, held: Held, plan: &[EntrySource], saved: &[SavedPart]) -> Result<(), RunError> {
        let mut ranks: Vec<u32> = plan
            .iter()
            .flat_map(|entry| &entry.parts)
            .map(|part| part.saved_rank)
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        for saved_rank in ranks {
            let path = self.path(held, saved_rank);
            match StateFile::open(&path) {
                Ok(file) if *file.header() == saved[saved_rank as usize].header => {}
                Err(RunError::NoNamedState(_)) | Ok(_) => {
                    return Err(RunError::NotSeen { path, saved_rank });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_planned(
        &self,
        held: Held,
        plan: &[EntrySource],
        saved: &[SavedPart],
        state: &mut [Named<'_>],
    ) -> Result<(), RunError> {
        // One file after the other: a process has fewer open files than a job may have ranks.
        let mut parts: BTreeMap<u32, Vec<(usize, &Transfer)>> = BTreeMap::new();
        let mut rooms = Vec::new();
        for (entry, (named, source)) in state.iter_mut().zip(plan).enumerate() {
            let (like, index) = source.like;
            let saved_entry = &saved[like as usize].header.entries()[index];
            rooms.push((saved_entry.name(), named.room(saved_entry)));
            for part in &source.parts {
                parts.entry(part.saved_rank).or_default().push((entry, part));
            }
        }
        for (saved_rank, parts) in parts {
            let path = self.path(held, saved_rank);
            let file = StateFile::open(&path)?;
            for (entry, part) in parts {
                let (name, room) = &mut rooms[entry];
                let length = part.from.end - part.from.start;
                let room = &mut room[part.to as usize..(part.to + length) as usize];
                let read = file.read_at(name, part.from.start, room);
                read.map_err(|source| unreadable(&path, source))?;
            }
        }
        Ok(())
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> RunError {
    RunError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

/// Goes on if all ranks can.
fn all_can<T>(rank: u32, others: &mut dyn Coordination, own: Result<T, RunError>) -> Result<T, RunError> {
    let text = own.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let said = others.share(text.as_bytes());
    let own = own?;
    let wrong = said?
        .into_iter()
        .enumerate()
        .find(|(other, text)| *other != rank as usize && !text.is_empty());
    match wrong {
        None => Ok(own),
        Some((other, text)) => Err(RunError::OtherRank {
            rank: other as u32,
            text: String::from_utf8_lossy(&text).into_owned(),
        }),
    }
}
