//! A look at a directory of checkpoints that changes nothing in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use ropewalk_checkpoint_core::{MANIFEST_BYTES_MAX, Manifest, ManifestError, Place, SavedFile};
use thiserror::Error;

use super::{
    copied::Copied,
    files::{Entry, EntryKind, Files, RealFiles},
    journal_file::JournalFile,
    quarantine::Quarantined,
    run_advisor::JOURNAL,
    store::{GENERATION, QUARANTINE, ROOT, rank_name},
};

/// The checkpoints in a directory, as they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The directory.
    pub directory: PathBuf,
    /// Each host has such a directory, with the parts of some ranks (`ropewalk run --partner`).
    pub is_of_one_host: bool,
    /// The folder below which files are that stay where the program writes them.
    pub root: Option<PathBuf>,
    /// In rising order of number.
    pub generations: Vec<Surveyed>,
    /// The generations that were put aside, and the bytes of each.
    pub quarantined: BTreeMap<u64, u64>,
}

/// A generation as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surveyed {
    /// Its number.
    pub generation: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// The step that was saved, if a manifest tells.
    pub step: Option<u64>,
    /// How many ranks saved together, if a manifest tells.
    pub ranks: Option<u32>,
    /// When the last of them was done.
    pub saved: Option<SystemTime>,
    /// How many bytes its files have.
    pub bytes: u64,
    /// Says if it can be started from.
    pub state: State,
}

/// Says if a generation can be started from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Every file of every rank is as it was saved.
    Whole,
    /// The same for the ranks of which there are parts here; the others are on other hosts.
    WholeHere {
        /// The ranks without a part here.
        elsewhere: Vec<u32>,
    },
    /// It cannot: why.
    NotWhole(Vec<String>),
}

/// Why there is nothing to look at.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// It is something else.
    #[error("{} holds no checkpoints of ropewalk: it has no generations, no journal and no saver's lock", .0.display())]
    Foreign(PathBuf),
    /// It cannot be read.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Looks at the checkpoints in a directory: reads and hashes every file of them, creates nothing, moves
/// nothing, locks nothing, and counts no start. A job may save there meanwhile: a save on its way is not
/// whole yet, and a generation that is removed is passed over.
///
/// # Errors
/// If it cannot be read, or is no directory of checkpoints.
pub fn survey(directory: &Path) -> Result<Survey, SurveyError> {
    let listed = list(directory)?;
    let mut found = Survey {
        directory: directory.to_owned(),
        is_of_one_host: Copied::of(directory).read().is_some(),
        root: root_of(directory),
        generations: Vec::new(),
        quarantined: bytes_in_quarantine(directory),
    };
    let mut numbers = BTreeMap::new();
    let mut is_ours = !found.quarantined.is_empty();
    for entry in listed {
        let Some(name) = entry.name.to_str() else { continue };
        if let Some(number) = name
            .strip_prefix(GENERATION)
            .and_then(|rest| rest.parse::<u64>().ok())
            && entry.kind == EntryKind::Directory
        {
            numbers.insert(number, directory.join(name));
        }
        is_ours |= name.starts_with("rank-") && name.ends_with(".lock");
    }
    if numbers.is_empty() && !is_ours && !has_journal(directory) {
        return Err(SurveyError::Foreign(directory.to_owned()));
    }
    for (generation, folder) in numbers {
        found.generations.extend(found.look_at(generation, folder));
    }
    Ok(found)
}

impl Survey {
    /// The newest generation that can be started from, as far as it can be seen here.
    pub fn newest_whole(&self) -> Option<&Surveyed> {
        let mut newest_first = self.generations.iter().rev();
        newest_first.find(|found| !matches!(found.state, State::NotWhole(_)))
    }

    /// Nothing if it is gone.
    fn look_at(&self, generation: u64, folder: PathBuf) -> Option<Surveyed> {
        let entries = RealFiles.list(&folder).ok()?;
        let mut found = Surveyed {
            generation,
            folder,
            step: None,
            ranks: None,
            saved: None,
            bytes: 0,
            state: State::Whole,
        };
        let mut reasons = Reasons::default();
        let (mut manifests, mut unsealed) = (BTreeMap::new(), BTreeSet::new());
        for entry in &entries {
            let Some((rank, kind)) = entry.name.to_str().and_then(part_of) else {
                continue;
            };
            let path = found.folder.join(&entry.name);
            match kind {
                "manifest" => match read_manifest(&path, generation, rank) {
                    Ok(manifest) => {
                        let saved = fs::metadata(&path).and_then(|data| data.modified()).ok();
                        found.saved = found.saved.max(saved);
                        manifests.insert(rank, manifest);
                    }
                    Err(why) => reasons.add(format!("rank {rank}: {why}")),
                },
                "" => drop(unsealed.insert(rank)),
                _ => {}
            }
        }
        for (rank, manifest) in &manifests {
            unsealed.remove(rank);
            found.step = found.step.or(Some(manifest.step));
            found.ranks = found.ranks.or(Some(manifest.ranks));
            found.bytes = found.bytes.saturating_add(manifest.bytes());
            if (found.step, found.ranks) != (Some(manifest.step), Some(manifest.ranks)) {
                let Manifest { step, ranks, .. } = manifest;
                reasons.add(format!(
                    "rank {rank} saved step {step} of {ranks} ranks, other than the first"
                ));
            }
            self.check(&found.folder, manifest, &mut reasons);
        }
        for rank in &unsealed {
            let path = found.folder.join(rank_name(*rank));
            found.bytes = found.bytes.saturating_add(size_of(&path));
            reasons.add(format!(
                "rank {rank} has no manifest: it is being saved, or its save was cut off"
            ));
        }
        let all = 0..found.ranks.unwrap_or(0);
        let elsewhere: Vec<u32> = all
            .filter(|rank| !manifests.contains_key(rank) && !unsealed.contains(rank))
            .collect();
        if manifests.is_empty() && unsealed.is_empty() {
            reasons.add("there is no manifest in it".to_owned());
        } else if !elsewhere.is_empty() && !self.is_of_one_host {
            for rank in &elsewhere {
                reasons.add(format!("rank {rank} has saved nothing of it"));
            }
        }
        if !found.folder.exists() {
            return None;
        }
        found.state = match reasons.finish() {
            Some(reasons) => State::NotWhole(reasons),
            None if elsewhere.is_empty() => State::Whole,
            None => State::WholeHere { elsewhere },
        };
        Some(found)
    }

    /// Compares a part with what its manifest says.
    fn check(&self, folder: &Path, manifest: &Manifest, reasons: &mut Reasons) {
        let rank = manifest.rank;
        let base = match (manifest.place, &self.root) {
            (Place::Inside, _) => folder.join(rank_name(rank)),
            (Place::InPlace | Place::Kept, Some(root)) => root.clone(),
            (Place::InPlace | Place::Kept, None) => {
                reasons.add(format!("rank {rank}: nothing says where its files in place are"));
                return;
            }
        };
        for path in &manifest.empty_directories {
            let path = base.join(OsStr::from_bytes(path));
            if !matches!(RealFiles.kind(&path), Ok(EntryKind::Directory)) {
                reasons.add(format!("{} is missing", path.display()));
            }
        }
        for SavedFile { path, size, hash } in &manifest.files {
            let path = base.join(OsStr::from_bytes(path));
            match RealFiles.digest(&path) {
                Ok(found) if found == (*size, *hash) => {}
                Ok((found, _)) if found != *size => reasons.add(format!(
                    "{} has {found} bytes, and {size} were saved",
                    path.display()
                )),
                Ok(_) => reasons.add(format!("{} was changed", path.display())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    reasons.add(format!("{} is missing", path.display()));
                }
                Err(error) => reasons.add(format!("cannot read {}: {error}", path.display())),
            }
        }
    }
}

/// Why a generation is not whole: the first reasons.
#[derive(Debug, Default)]
struct Reasons {
    first: Vec<String>,
    more: u64,
}

impl Reasons {
    fn add(&mut self, reason: String) {
        match self.first.len() {
            REASONS_MAX => self.more += 1,
            _ => self.first.push(reason),
        }
    }

    fn finish(mut self) -> Option<Vec<String>> {
        if self.more > 0 {
            self.first.push(format!("and {} more", self.more));
        }
        (!self.first.is_empty()).then_some(self.first)
    }
}

/// The rank of an entry of a generation's folder, and its extension.
fn part_of(name: &str) -> Option<(u32, &str)> {
    let rest = name.strip_prefix("rank-")?;
    let (rank, kind) = rest.split_once('.').unwrap_or((rest, ""));
    Some((rank.parse().ok()?, kind))
}

/// Why the manifest of a part cannot be used.
#[derive(Debug, Error)]
enum PartError {
    #[error("its manifest is that of another part")]
    Foreign,
    #[error(transparent)]
    Malformed(#[from] ManifestError),
    #[error("cannot read its manifest: {0}")]
    Unreadable(#[from] io::Error),
}

fn read_manifest(path: &Path, generation: u64, rank: u32) -> Result<Manifest, PartError> {
    let text = RealFiles.read(path, MANIFEST_BYTES_MAX)?;
    let manifest = Manifest::parse(&text)?;
    match (manifest.generation, manifest.rank) == (generation, rank) {
        true => Ok(manifest),
        false => Err(PartError::Foreign),
    }
}

fn root_of(directory: &Path) -> Option<PathBuf> {
    let root = RealFiles.read(&directory.join(ROOT), PATH_BYTES_MAX).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(&root)))
}

/// The generations of which parts lie in the quarantine of a directory.
pub fn quarantined(directory: &Path) -> Vec<u64> {
    let listed = RealFiles.list(&directory.join(QUARANTINE)).unwrap_or_default();
    let found: BTreeSet<u64> = listed
        .iter()
        .filter_map(|entry| Some(Quarantined::parse(entry.name.to_str()?)?.generation))
        .collect();
    found.into_iter().collect()
}

fn bytes_in_quarantine(directory: &Path) -> BTreeMap<u64, u64> {
    let folder = directory.join(QUARANTINE);
    let mut found = BTreeMap::new();
    for entry in RealFiles.list(&folder).unwrap_or_default() {
        if let Some(part) = entry.name.to_str().and_then(Quarantined::parse) {
            let bytes: &mut u64 = found.entry(part.generation).or_default();
            *bytes = bytes.saturating_add(size_of(&folder.join(&entry.name)));
        }
    }
    found
}

/// How many bytes the files below a folder have, as far as that can be seen.
fn size_of(folder: &Path) -> u64 {
    let entries = RealFiles.list(folder).unwrap_or_default();
    let sizes = entries.into_iter().map(|entry| {
        let path = folder.join(&entry.name);
        match entry.kind {
            EntryKind::Directory => size_of(&path),
            EntryKind::File => fs::metadata(&path).map_or(0, |data| data.len()),
            EntryKind::Other => 0,
        }
    });
    sizes.fold(0, u64::saturating_add)
}

fn list(directory: &Path) -> Result<Vec<Entry>, SurveyError> {
    RealFiles
        .list(directory)
        .map_err(|source| SurveyError::Unreadable {
            path: directory.to_owned(),
            source,
        })
}

/// Others may call a file so too.
fn has_journal(directory: &Path) -> bool {
    let journal = JournalFile::look(&directory.join(JOURNAL));
    matches!(journal, Ok(Some(history)) if history.open_ran().is_some() || history.knowledge() != (0, 0.0))
}

const PATH_BYTES_MAX: usize = 4096;

/// As many reasons are told of each generation.
const REASONS_MAX: usize = 3;
