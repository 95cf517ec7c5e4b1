//! The checkpoints of all ranks in one host's directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{
    Choice, MANIFEST_BYTES_MAX, Manifest, Place, SavedFile,
    partner::{Inventory, Part},
};

use super::{
    arrival::Arrival,
    files::{Files, RealFiles},
    rank_files::is_no_manifest,
    store::{GENERATION, ROOT, Store, StoreOptions, rank_name},
    store_error::{StoreError, cannot},
};

/// A directory with the checkpoints of any ranks: those that run on this host, and copies of others'.
#[derive(Debug)]
pub struct Depot {
    lister: Lister,
    start: Option<u64>,
    stores: BTreeMap<u32, Store>,
}

/// Says what is in a directory by its manifests.
#[derive(Debug)]
pub(super) struct Lister {
    directory: PathBuf,
    /// The parts by the manifests that were read before: manifests do not change.
    known: BTreeMap<(u64, u32), Part>,
}

/// The parts that were put aside before a start, and the errors of those that could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutAside {
    /// Where it is now.
    pub quarantined: Vec<PathBuf>,
    /// Why something could not be moved; it is not started from all the same.
    pub stuck: Vec<String>,
}

impl Depot {
    /// Opens a directory, which is made if it does not exist. `start` is the number of the start that it is opened for.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn open(directory: impl Into<PathBuf>, start: Option<u64>) -> Result<Self, StoreError> {
        let directory = directory.into();
        cannot(
            "make the directory",
            &directory,
            RealFiles.make_directory(&directory),
        )?;
        Ok(Self {
            lister: Lister::new(directory),
            start,
            stores: BTreeMap::new(),
        })
    }

    /// All parts that have a manifest, without a look at their files.
    ///
    /// # Errors
    /// If the directory, or a manifest in it, cannot be read.
    pub fn parts(&mut self) -> Result<BTreeSet<Part>, StoreError> {
        self.lister.parts()
    }

    /// Reads and hashes all there is.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn inventory(&mut self) -> Result<Inventory, StoreError> {
        let mut inventory = Inventory::default();
        let listed = self.lister.readable_parts()?;
        for part in &listed {
            let root = root_of(&self.lister.directory);
            self.open_store(part.rank, part.ranks, root)?;
        }
        for (&rank, store) in &mut self.stores {
            let holdings = store.holdings()?;
            let of_rank = listed.iter().filter(|part| part.rank == rank);
            let is_whole = |part: &&Part| holdings.held.contains(&part.held());
            inventory.parts.extend(of_rank.filter(is_whole));
            inventory.highest = inventory.highest.max(holdings.highest);
            inventory
                .restarts
                .extend(holdings.restarts.map(|restarts| (rank, restarts)));
        }
        Ok(inventory)
    }

    /// The folder below which files in place are, if they are.
    pub fn root(&self) -> Option<PathBuf> {
        root_of(&self.lister.directory)
    }

    /// Keeps a copy of a part. `read` hands over the bytes of a listed file, in order, piece by piece. The
    /// copy exists only when all of it is here, on the disk, and as the manifest says.
    ///
    /// # Errors
    /// If it cannot be written, or is something else than the manifest says; and those of `read`.
    pub fn receive<E: From<StoreError>>(
        &mut self,
        manifest: &Manifest,
        root: Option<PathBuf>,
        read: impl FnMut(&SavedFile, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), E>,
    ) -> Result<(), E> {
        let arrival = self.expect(manifest, root)?.receive(read)?;
        Ok(self.admit(arrival)?)
    }

    /// Makes ready for a copy, the first of three steps of which the second does without this depot. The last is to
    /// [`admit`](Self::admit) it.
    pub(super) fn expect(
        &mut self,
        manifest: &Manifest,
        root: Option<PathBuf>,
    ) -> Result<Arrival, StoreError> {
        let root = root.filter(|_| manifest.place != Place::Inside);
        let store = self.open_store(manifest.rank, manifest.ranks, root)?;
        Arrival::expect(store, manifest.clone())
    }

    /// Makes a copy exist that was received.
    pub(super) fn admit(&mut self, arrival: Arrival) -> Result<(), StoreError> {
        let rank = arrival.rank();
        let held = arrival.publish()?;
        if let Some(store) = self.stores.get_mut(&rank) {
            store.whole.retain(|other| other.generation != held.generation);
            store.whole.push(held);
        }
        Ok(())
    }

    /// Puts aside what is torn, or newer than what is started from, and counts the start.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn apply(&mut self, choice: &Choice) -> Result<PutAside, StoreError> {
        let mut put_aside = PutAside::default();
        for store in self.stores.values_mut() {
            let restored = store.apply(choice);
            put_aside.quarantined.extend(restored.quarantined);
            put_aside.stuck.extend(restored.stuck);
        }
        Ok(put_aside)
    }

    /// Removes all parts of some generations.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn retire(&mut self, generations: &BTreeSet<u64>) -> Result<(), StoreError> {
        let root = self.root();
        let gone: Vec<Part> = self
            .lister
            .readable_parts()?
            .into_iter()
            .filter(|part| generations.contains(&part.generation))
            .collect();
        for part in gone {
            let store = self.open_store(part.rank, part.ranks, root.clone())?;
            store.retire_one(part.generation)?;
        }
        Ok(())
    }

    fn open_store(&mut self, rank: u32, ranks: u32, root: Option<PathBuf>) -> Result<&mut Store, StoreError> {
        let options = StoreOptions {
            rank,
            ranks,
            in_place: root,
            start: self.start,
            decided: None,
            ..StoreOptions::new(&self.lister.directory)
        };
        // Another job has been here, with files elsewhere, or in another number.
        if self
            .stores
            .get(&rank)
            .is_some_and(|store| *store.options() != options)
        {
            self.stores.remove(&rank);
        }
        match self.stores.entry(rank) {
            std::collections::btree_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                Ok(place.insert(Store::open_in(RealFiles, options)?))
            }
        }
    }
}

impl Lister {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            known: BTreeMap::new(),
        }
    }

    /// All parts that have a manifest.
    ///
    /// The newest are looked for first. Older ones are copied before them, so that one which is missing here
    /// is not about to come while a newer one that came after it is here. For the same reason an error is
    /// returned if something cannot be read: other hosts may give up parts that are not listed here.
    pub(super) fn parts(&mut self) -> Result<BTreeSet<Part>, StoreError> {
        self.list(Err)
    }

    /// All parts that have a manifest that can be read.
    pub(super) fn readable_parts(&mut self) -> Result<BTreeSet<Part>, StoreError> {
        self.list(|_| Ok(()))
    }

    fn list(
        &mut self,
        unreadable: impl Fn(StoreError) -> Result<(), StoreError>,
    ) -> Result<BTreeSet<Part>, StoreError> {
        let listed = RealFiles.list(&self.directory);
        let mut generations = BTreeMap::new();
        for entry in cannot("read the directory", &self.directory, listed)? {
            let number = entry.name.to_str().and_then(|name| name.strip_prefix(GENERATION));
            if let Some(generation) = number.and_then(|number| number.parse::<u64>().ok()) {
                generations.insert(generation, self.directory.join(&entry.name));
            }
        }
        let mut found = BTreeMap::new();
        for (generation, folder) in generations.into_iter().rev() {
            let files = match RealFiles.list(&folder) {
                Ok(files) => files,
                Err(error) if is_no_manifest(&error) => continue,
                Err(error) => {
                    unreadable(unread(&folder, error))?;
                    let known = self.known.range((generation, 0)..=(generation, u32::MAX));
                    found.extend(known);
                    continue;
                }
            };
            for file in files {
                let Some(rank) = rank_of(&file.name) else { continue };
                let part = match self.known.get(&(generation, rank)) {
                    Some(&known) => Some(known),
                    None => {
                        let path = folder.join(&file.name);
                        read_part(&path, generation, rank)
                            .or_else(|error| unreadable(unread(&path, error)).map(|()| None))?
                    }
                };
                found.extend(part.map(|part| ((generation, rank), part)));
            }
        }
        self.known = found;
        Ok(self.known.values().copied().collect())
    }
}

/// The text of a manifest.
pub(super) fn read_manifest(directory: &Path, part: &Part) -> io::Result<Vec<u8>> {
    let path = folder_of(directory, part).with_extension("manifest");
    RealFiles.read(&path, MANIFEST_BYTES_MAX)
}

/// Below which folder the files of a part are.
pub(super) fn base_of(directory: &Path, part: &Part, place: Place) -> io::Result<PathBuf> {
    match place {
        Place::Inside => Ok(folder_of(directory, part)),
        Place::InPlace | Place::Kept => root_of(directory).ok_or(io::ErrorKind::NotFound.into()),
    }
}

fn folder_of(directory: &Path, part: &Part) -> PathBuf {
    let generation = format!("{GENERATION}{:010}", part.generation);
    directory.join(generation).join(rank_name(part.rank))
}

/// The folder below which files in place are, if they are.
pub(super) fn root_of(directory: &Path) -> Option<PathBuf> {
    let root = RealFiles.read(&directory.join(ROOT), PATH_BYTES_MAX).ok()?;
    (!root.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&root)))
}

fn rank_of(name: &OsStr) -> Option<u32> {
    let name = name.to_str()?.strip_prefix("rank-")?;
    name.strip_suffix(".manifest")?.parse().ok()
}

/// Nothing if it is not there, or no manifest of that part.
fn read_part(path: &Path, generation: u64, rank: u32) -> io::Result<Option<Part>> {
    let text = match RealFiles.read(path, MANIFEST_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if is_no_manifest(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(manifest) = Manifest::parse(&text) else {
        return Ok(None);
    };
    let part = Part {
        generation: manifest.generation,
        rank: manifest.rank,
        step: manifest.step,
        ranks: manifest.ranks,
        level: manifest.level,
    };
    Ok((part.generation == generation && part.rank == rank).then_some(part))
}

fn unread(path: &Path, source: io::Error) -> StoreError {
    StoreError::Files {
        action: "read",
        path: path.to_owned(),
        source,
    }
}

const PATH_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
