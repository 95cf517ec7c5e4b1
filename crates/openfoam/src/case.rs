//! A case on the disk.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint::{Held, MANIFEST_BYTES_MAX, Manifest, Store, StoreOptions, restore_all};

use crate::{
    case_error::CaseError,
    control_dict::{Begin, Block, Entries, Resumed, number_of, with_block, without_block},
    installation::{START_VARIABLE, project_directory},
    retention::let_stay,
    times::{Time, newer},
};

/// A case, and how it is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    root: PathBuf,
    options: CaseOptions,
}

/// How a case is run and saved.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseOptions {
    /// How many ranks of a decomposed case there are; nothing if it is run without `-parallel`.
    pub parallel: Option<u32>,
    /// The library of the function object.
    pub library: PathBuf,
    /// Where checkpoints are; by default the folder `checkpoints` of the case.
    pub directory: Option<PathBuf>,
    /// How many are kept, two at least.
    pub keep: u32,
    /// The mean time between failures in seconds, if it is known.
    pub mtbf: Option<f64>,
    /// Save every so many steps, and not when it is best.
    pub every: Option<u32>,
    /// The number of this start, if a supervisor counts it too.
    pub start: Option<u64>,
}

impl CaseOptions {
    /// Those of a case that is run by one process and saved when it is best.
    pub fn new(library: impl Into<PathBuf>) -> Self {
        Self {
            parallel: None,
            library: library.into(),
            directory: None,
            keep: 2,
            mtbf: None,
            every: None,
            start: None,
        }
    }
}

/// The beginning of a run, as [`Case::prepare`] has prepared it.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The time.
    pub begin: Time,
    /// The checkpoint; nothing if it begins at the beginning.
    pub from: Option<Held>,
    /// The paths of all that was put aside.
    pub quarantined: Vec<PathBuf>,
    /// How many older things were removed from where they had been put aside: the newest
    /// [`QUARANTINE_MAX`](crate::QUARANTINE_MAX) of each rank stay.
    pub dropped: usize,
    /// The outputs that were removed, because the user wants only newer ones (`purgeWrite`).
    pub purged: Vec<PathBuf>,
    /// The variables that all ranks need in their environment.
    pub environment: Vec<(&'static str, PathBuf)>,
}

impl Case {
    /// A case in a folder.
    ///
    /// # Errors
    /// If it is none.
    pub fn open(root: &Path, options: CaseOptions) -> Result<Self, CaseError> {
        let no_case = || CaseError::NoCase(root.to_owned());
        let root = root.canonicalize().map_err(|_| no_case())?;
        match root.join(CONTROL_DICT).exists() {
            true => Ok(Self { root, options }),
            false => Err(no_case()),
        }
    }

    /// Where the checkpoints are.
    pub fn directory(&self) -> PathBuf {
        match &self.options.directory {
            Some(directory) => self.root.join(directory),
            None => self.root.join("checkpoints"),
        }
    }

    /// Sees to it that the solver, which must not run now, begins with the newest save that is whole: counts
    /// the start, moves all that is newer or torn to the folder `quarantine` of the checkpoints, of which the
    /// newest stay, removes what [`purge`](Self::purge) does, and writes our blocks into
    /// `system/controlDict`.
    ///
    /// # Errors
    /// If something is missing or cannot be moved or written; each says what to do.
    pub fn prepare(&self) -> Result<Prepared, CaseError> {
        let project = project_directory()?;
        let places = self.places()?;
        self.unpark()?;
        self.check_ranks()?;
        let is_first = self.noted_origin().is_none();
        let mut stores = self.stores()?;
        let all = restore_all(&mut stores)?;
        let stuck: Vec<&str> = all
            .iter()
            .flat_map(|rank| &rank.stuck)
            .map(String::as_str)
            .collect();
        let from = all.first().and_then(|rank| rank.from);
        let begin = match from {
            Some(held) => saved_time(&stores, held)?,
            None => self.origin(&places)?,
        };
        if !stuck.is_empty() {
            return Err(CaseError::Stuck(stuck.join("; ")));
        }
        let mut quarantined: Vec<PathBuf> = all.into_iter().flat_map(|rank| rank.quarantined).collect();
        for (rank, place) in &places {
            let why = format!(
                "it is newer than time {}, where the run began again",
                begin.name()
            );
            for time in newer(times(place)?, &begin) {
                let moved = stores[*rank].quarantine_path_of(&place.join(time.name()), &why)?;
                if let Some(folder) = moved.parent().filter(|_| is_first) {
                    let_stay(folder)?;
                }
                quarantined.push(moved);
            }
            if !place.join(begin.name()).exists() {
                return Err(CaseError::NoTime {
                    folder: place.clone(),
                    expected: begin.name().to_owned(),
                });
            }
        }
        let purged = self.purge()?;
        let resumed = match from {
            Some(_) => Some(self.resumed(&places, &begin)?),
            None => None,
        };
        self.edit(|text| with_block(text, &self.block(resumed)))?;
        Ok(Prepared {
            dropped: self.trim_quarantine(stores.len())?,
            purged,
            environment: vec![("WM_PROJECT_DIR", project), (START_VARIABLE, begin.name().into())],
            begin,
            from,
            quarantined,
        })
    }

    /// Takes our blocks out of `system/controlDict`, and the saves from among the results: the job is over.
    ///
    /// # Errors
    /// If the file cannot be written or a save not be moved.
    pub fn finish(&self) -> Result<(), CaseError> {
        self.edit(without_block)?;
        self.park()
    }

    /// How the run goes on from a time.
    fn resumed(&self, places: &[(usize, PathBuf)], begin: &Time) -> Result<Resumed, CaseError> {
        let state = |(_, place): &(usize, PathBuf)| {
            fs::read_to_string(place.join(begin.name()).join("uniform/time")).ok()
        };
        let state = places.first().and_then(state).unwrap_or_default();
        // What OpenFOAM had, which reads a name, or what the user wrote.
        let noted = self.noted_origin().map_or(begin.value(), |origin| origin.value());
        let origin = match Entries::read(&self.control()?).begin {
            Begin::Time(value) if is_near(noted, value) => value,
            _ => noted,
        };
        Ok(Resumed {
            begin: number_of(&state, "value").map(str::to_owned),
            origin,
            outputs: self.purgeable_outputs()?,
        })
    }

    fn block(&self, resumed: Option<Resumed>) -> Block {
        Block {
            library: self.options.library.display().to_string(),
            directory: self.directory().display().to_string(),
            keep: self.options.keep,
            mtbf: self.options.mtbf,
            every: self.options.every,
            resumed,
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folders in which the run looks for times, and the rank to which each belongs.
    pub(crate) fn places(&self) -> Result<Vec<(usize, PathBuf)>, CaseError> {
        let Some(ranks) = self.options.parallel else {
            return Ok(vec![(0, self.root.clone())]);
        };
        let collated = self.collated(ranks)?;
        if !collated.is_empty() {
            return Ok(collated);
        }
        let folders = (0..ranks).map(|rank| (rank as usize, format!("processor{rank}")));
        folders
            .map(|(rank, name)| match self.root.join(&name) {
                folder if folder.is_dir() => Ok((rank, folder)),
                _ => Err(CaseError::NotDecomposed {
                    case: self.root.clone(),
                    missing: name,
                    ranks,
                }),
            })
            .collect()
    }

    /// Folders of several ranks together: `processors4`, or `processors4_0-1` and `processors4_2-3`.
    fn collated(&self, ranks: u32) -> Result<Vec<(usize, PathBuf)>, CaseError> {
        let mut found = Vec::new();
        for name in names(&self.root)? {
            let Some(rest) = name.strip_prefix("processors") else {
                continue;
            };
            let (count, group) = rest.split_once('_').unwrap_or((rest, "0"));
            let first = group.split('-').next().unwrap_or_default();
            if let (Ok(count), Ok(first)) = (count.parse::<u32>(), first.parse::<u32>())
                && count == ranks
                && first < ranks
            {
                found.push((first as usize, self.root.join(name)));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn stores(&self) -> Result<Vec<Store>, CaseError> {
        let ranks = self.options.parallel.unwrap_or(1);
        let open = |rank| {
            Store::open(StoreOptions {
                rank,
                ranks,
                in_place: Some(self.root.clone()),
                keep: self.options.keep as usize,
                start: self.options.start,
                ..StoreOptions::new(self.directory())
            })
        };
        Ok((0..ranks).map(open).collect::<Result<_, _>>()?)
    }

    /// Ranks of another number would not find their files, and put all checkpoints aside.
    fn check_ranks(&self) -> Result<(), CaseError> {
        let directory = self.directory();
        let ranks = self.options.parallel.unwrap_or(1);
        if !directory.exists() {
            return Ok(());
        }
        for generation in names(&directory)? {
            let path = directory.join(&generation).join("rank-00000.manifest");
            let length = fs::metadata(&path).map_or(u64::MAX, |data| data.len());
            if !generation.starts_with("generation-") || length > MANIFEST_BYTES_MAX as u64 {
                continue;
            }
            let manifest = fs::read(&path).ok().and_then(|text| Manifest::parse(&text).ok());
            if let Some(manifest) = manifest
                && manifest.ranks != ranks
            {
                return Err(CaseError::OtherRanks {
                    directory,
                    found: manifest.ranks,
                    ranks,
                });
            }
        }
        Ok(())
    }

    /// The time at which the run began for the first time. Later starts that find no checkpoint begin there
    /// again, whatever was written since.
    fn origin(&self, places: &[(usize, PathBuf)]) -> Result<Time, CaseError> {
        if let Some(time) = self.noted_origin() {
            return Ok(time);
        }
        let wanted = Entries::read(&self.control()?).begin;
        let mut common: Option<Vec<Time>> = None;
        for (_, place) in places {
            let here = times(place)?;
            common = Some(match common {
                None => here,
                Some(before) => before.into_iter().filter(|time| here.contains(time)).collect(),
            });
        }
        let mut common = common.unwrap_or_default();
        common.sort_by(|a, b| a.value().total_cmp(&b.value()));
        let (found, expected) = match wanted {
            Begin::First => (common.first(), "one".to_owned()),
            Begin::Latest => (common.last(), "one".to_owned()),
            Begin::Time(value) => {
                let found = common.iter().find(|time| is_near(time.value(), value));
                (found, value.to_string())
            }
        };
        let origin = found.cloned().ok_or_else(|| CaseError::NoTime {
            folder: places
                .first()
                .map_or_else(|| self.root.clone(), |(_, place)| place.clone()),
            expected,
        })?;
        write_whole(&self.origin_path(), &format!("{}\n", origin.name()))?;
        Ok(origin)
    }

    /// Where the run began for the first time, if it has.
    pub(crate) fn noted_origin(&self) -> Option<Time> {
        let noted = fs::read_to_string(self.origin_path()).ok()?;
        Time::parse(noted.trim())
    }

    fn origin_path(&self) -> PathBuf {
        self.directory().join("origin")
    }

    /// The text of `system/controlDict`.
    pub(crate) fn control(&self) -> Result<String, CaseError> {
        let path = self.root.join(CONTROL_DICT);
        file("read", &path, fs::read_to_string(&path))
    }

    fn edit(&self, change: impl FnOnce(&str) -> String) -> Result<(), CaseError> {
        let path = self.root.join(CONTROL_DICT);
        let text = self.control()?;
        let changed = change(&text);
        if changed == text {
            return Ok(());
        }
        // Through links, to the user's own file.
        let path = file("find", &path, path.canonicalize())?;
        write_whole(&path, &changed)
    }
}

/// Tells if two times are one for OpenFOAM, which prints a time with six digits.
fn is_near(time: f64, other: f64) -> bool {
    (time - other).abs() <= 1e-6 * other.abs().max(1e-30)
}

/// The time that a checkpoint is of, by the folders of its files.
fn saved_time(stores: &[Store], held: Held) -> Result<Time, CaseError> {
    let manifest = stores
        .first()
        .and_then(|store| store.whole_manifest(held.generation))
        .ok_or(ropewalk_checkpoint::StoreError::Missing(held.generation))?;
    time_of(&manifest).ok_or_else(|| CaseError::Stuck(format!("checkpoint {} has no time", held.generation)))
}

/// The time that a rank has saved, by the folders of its files.
pub(crate) fn time_of(manifest: &Manifest) -> Option<Time> {
    let mut parts = manifest
        .files
        .iter()
        .filter_map(|saved| std::str::from_utf8(&saved.path).ok())
        .flat_map(|path| path.split('/').take(2));
    parts.find_map(Time::parse)
}

pub(crate) fn times(place: &Path) -> Result<Vec<Time>, CaseError> {
    let names = names(place)?;
    let folders = names.iter().filter(|name| place.join(name).is_dir());
    Ok(folders.filter_map(|name| Time::parse(name)).collect())
}

/// The names in a folder, but for those that are not UTF-8.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, CaseError> {
    let entries = file("read the folder", folder, fs::read_dir(folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = file("read the folder", folder, entry)?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

/// Writes a file in the place of another, at once.
fn write_whole(path: &Path, text: &str) -> Result<(), CaseError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".ropewalk");
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, text)
        .and_then(|()| match fs::metadata(path) {
            Ok(old) => fs::set_permissions(&temporary, old.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| File::open(&temporary)?.sync_all())
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    file("write", path, written)
}

pub(crate) fn file<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, CaseError> {
    result.map_err(|source| CaseError::File {
        action,
        path: path.to_owned(),
        source,
    })
}

const CONTROL_DICT: &str = "system/controlDict";
