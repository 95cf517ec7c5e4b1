//! Restores by ranks that can read what any number of ranks has saved.

use std::path::Path;

use ropewalk_checkpoint_core::{Choice, Held, Holdings, choose_any};

use super::{
    coordination::{Coordination, CoordinationError},
    files::{Files, RealFiles},
    named::is_partitioned,
    restore::{RANKS_MAX, Restored, any_manifest, holdings_of_all},
    store::{Store, StoreOptions, rank_name},
    store_error::StoreError,
};

/// [`restore`](Store::restore) for a program whose ranks can read what any number of ranks has saved. Each rank
/// also looks after some of the numbers that no rank of this job has; their stores are returned, so that their
/// old generations can be removed.
///
/// # Errors
/// If another process saves as one of these ranks, the directory cannot be read, or the other ranks cannot be
/// asked.
pub(super) fn restore_any(
    store: &mut Store,
    others: &mut dyn Coordination,
) -> Result<(Restored, Vec<Store>), StoreError> {
    if store.saver.is_none() {
        store.saver = store.files.restoring_lock()?;
    }
    let &StoreOptions { rank, ranks, .. } = store.options();
    let mut more = Vec::new();
    for other in (rank.saturating_add(ranks)..store.files.rank_numbers()?).step_by(ranks as usize) {
        let opened = Store::open_in(
            RealFiles,
            StoreOptions {
                rank: other,
                ..store.options().clone()
            },
        )?;
        drop(opened.files.restoring_lock()?);
        more.push(opened);
    }
    let mut holdings = vec![(rank, store.holdings()?)];
    for other in &mut more {
        holdings.push((other.options().rank, other.holdings()?));
    }
    let all = share_of_ranks(others, &holdings)?;
    let choice = choose_any(&all, store.options().restarts_max);
    let mut restored = store.apply_to(&choice, |_| true);
    for other in &mut more {
        let other = other.apply_to(&choice, |_| true);
        restored.quarantined.extend(other.quarantined);
        restored.stuck.extend(other.stuck);
    }
    Ok((restored, more))
}

/// Tells all ranks the holdings of some numbers of ranks, and returns those of all numbers.
fn share_of_ranks(
    others: &mut dyn Coordination,
    own: &[(u32, Holdings)],
) -> Result<Vec<Holdings>, CoordinationError> {
    let bytes = postcard::to_allocvec(own).expect("numbers and lists of numbers can be encoded");
    let mut all: Vec<Holdings> = Vec::new();
    for (teller, bytes) in (0..).zip(others.share(&bytes)?) {
        let unreadable = CoordinationError::Unreadable { rank: teller };
        let told: Vec<(u32, Holdings)> = match postcard::from_bytes(&bytes) {
            Ok(told) => told,
            Err(_) => return Err(unreadable),
        };
        for (rank, holdings) in told {
            if rank >= RANKS_MAX {
                return Err(unreadable);
            }
            if all.len() <= rank as usize {
                all.resize_with(rank as usize + 1, Holdings::default);
            }
            all[rank as usize] = holdings;
        }
    }
    Ok(all)
}

/// The choice of a supervisor among saves of any number of ranks.
#[derive(Debug)]
pub(super) struct Survivors {
    stores: Vec<Store>,
    choice: Choice,
}

impl Survivors {
    /// Looks at a directory in which a generation holds partitioned arrays; `None` if none does. Moves nothing.
    pub(super) fn look(directory: &Path, start: u64) -> Result<Option<Self>, StoreError> {
        let options = StoreOptions {
            start: Some(start),
            ..StoreOptions::new(directory)
        };
        let first = Store::open_in(RealFiles, options.clone())?;
        let is_partitioned = |&generation: &u64| is_partitioned(&first.files.generation_path(generation));
        if !first.files.generations()?.iter().any(is_partitioned) {
            return Ok(None);
        }
        let ranks = first.files.rank_numbers()?.max(1);
        let mut stores = Vec::new();
        for rank in 0..ranks {
            let store = Store::open_in(
                RealFiles,
                StoreOptions {
                    rank,
                    ranks,
                    ..options.clone()
                },
            )?;
            // One after the other: a process has fewer open files than a job may have ranks.
            drop(store.files.restoring_lock()?);
            stores.push(store);
        }
        let choice = choose_any(&holdings_of_all(&mut stores)?, first.options().restarts_max);
        Ok(Some(Self { stores, choice }))
    }

    /// The generation to start from, and true if its arrays are partitioned.
    pub(super) fn newest(&self) -> Option<(Held, bool)> {
        let (held, store) = self.choice.restore.zip(self.stores.first())?;
        Some((
            held,
            is_partitioned(&store.files.generation_path(held.generation)),
        ))
    }

    /// Puts aside what is newer or torn.
    pub(super) fn apply(mut self) -> (Vec<Store>, Vec<Restored>) {
        let stores = self.stores.iter_mut();
        let restored = stores
            .map(|store| store.apply_to(&self.choice, |_| true))
            .collect();
        // What stays depends on what the others have moved.
        self.stores.iter().for_each(|store| store.files.trim_quarantine());
        (self.stores, restored)
    }
}

/// The newest generation of which all ranks that saved it have a manifest, without a look at their files.
pub(super) fn newest_committed(directory: &Path) -> Option<Held> {
    let store = Store::open_in(RealFiles, StoreOptions::new(directory)).ok()?;
    store
        .files
        .generations()
        .ok()?
        .into_iter()
        .rev()
        .find_map(|generation| {
            let manifest = any_manifest(&store, generation).filter(|found| found.generation == generation)?;
            let entries = RealFiles.list(&store.files.generation_path(generation)).ok()?;
            let is_there = |rank| {
                let name = format!("{}.manifest", rank_name(rank));
                entries.iter().any(|entry| entry.name == *name)
            };
            let is_complete = entries.len() >= manifest.ranks as usize && (0..manifest.ranks).all(is_there);
            is_complete.then(|| super::store::held(&manifest))
        })
}
