//! Which MPI the programs of a job are linked with, what serves it on this host, and what it leaves behind.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    env,
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{self, Path, PathBuf},
};

use ropewalk_launch_core::mpi::{
    ANY_COMPONENT, COMPONENT_FOLDERS, FLUX_COMPONENT, Flavour, LIBRARY_FOLDERS, LIBRARY_NAMES,
    LIBRARY_VARIABLE, Means,
    elf::{Dynamic, read_dynamic},
    is_of_the_system,
    loader_cache::{CACHE_SIZE_MAX, path_of},
    service::Kind,
};
use rustix::{process::getuid, system::uname};

/// The libraries of this host for MPI programs.
pub(super) struct MpiHost {
    /// Our `libpmi.so.0`.
    library: Option<PathBuf>,
    /// Where it would be looked for first.
    expected: PathBuf,
    loader_cache: OnceCell<Vec<u8>>,
}

/// A program may need this many files, over all that it needs.
const FILES_MAX: usize = 512;

impl MpiHost {
    /// Looks for our library; `named` is the folder that the job's environment names.
    pub(super) fn new(named: Option<&OsStr>) -> Self {
        let own = env::var_os(LIBRARY_VARIABLE);
        let named = named.map(OsStr::to_owned).or(own);
        // Ranks may be in another folder.
        let named = named.and_then(|folder| path::absolute(folder).ok());
        let executable = env::current_exe().ok();
        let folder = executable.as_deref().and_then(Path::parent);
        let beside = LIBRARY_FOLDERS
            .iter()
            .filter_map(|below| Some(folder?.join(below)));
        let folders = named.into_iter().chain(beside);
        let mut candidates = folders
            .flat_map(|folder| LIBRARY_NAMES.map(|name| folder.join(name)))
            .peekable();
        Self {
            expected: candidates.peek().cloned().unwrap_or_default(),
            library: candidates.find(|path| path.exists() && is_ours(path)),
            loader_cache: OnceCell::new(),
        }
    }

    /// The library that Open MPI is to load. If it is told of none, Open MPI takes each of several ranks for
    /// a job of its own. So several ranks get a path even if our library is missing and a script hides that
    /// it is needed: ranks that cannot load it end with an error.
    pub(super) fn library(&self, ranks: u32) -> Option<&Path> {
        let expected = (ranks > 1).then_some(&self.expected);
        self.library.as_ref().or(expected).map(PathBuf::as_path)
    }

    /// The means of this host for a program.
    pub(super) fn means(&self, flavour: &Flavour, has_pmix: bool) -> Means {
        let lacks_component = match flavour {
            Flavour::OpenMpi { library, .. } => lacks_component(Path::new(library)),
            _ => false,
        };
        Means {
            has_library: self.library.is_some(),
            lacks_component,
            has_pmix,
        }
    }

    /// The files that libpmix may be in for a program: where the environment says, beside its own libraries, where
    /// the system has it.
    pub(super) fn pmix_libraries(
        &self,
        file: &Path,
        flavour: &Flavour,
        environment: &BTreeMap<&OsString, &OsString>,
    ) -> Vec<PathBuf> {
        let variable = |name: &str| environment.get(&OsString::from(name)).map(Path::new);
        let named = variable(PMIX_VARIABLE).map(Path::to_owned);
        let own = match flavour {
            Flavour::OpenMpi { library, .. } | Flavour::Pmix { library } => vec![PathBuf::from(library)],
            Flavour::None | Flavour::Mpich => {
                let interpreter = interpreter(file);
                let prefixes =
                    ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| variable(name).map(|path| path.join("lib/x")));
                let interpreter = interpreter.into_iter().chain([file.to_owned()]);
                interpreter.chain(prefixes.into_iter().flatten()).collect()
            }
        };
        let system = path_of(self.loader_cache(), PMIX_LIBRARY).map(PathBuf::from);
        let found = named.into_iter().chain(own.iter().flat_map(|file| beside(file)));
        found.chain(system).filter(|path| path.exists()).collect()
    }

    /// Looks through what a program needs, and what that needs, until MPI is among it.
    pub(super) fn flavour(&self, program: &Path, environment: &BTreeMap<&OsString, &OsString>) -> Flavour {
        let library_path = environment.get(&OsString::from("LD_LIBRARY_PATH"));
        let library_path = library_path.map(|path| path.as_os_str());
        let mut seen = BTreeSet::new();
        let mut files = VecDeque::from([program.to_owned()]);
        // What the program itself says about folders counts for all that it needs, unless it says it in the newer way.
        let mut inherited = Vec::new();
        while let Some(path) = files.pop_front() {
            let Some(dynamic) = dynamic_of(&path) else {
                continue;
            };
            if inherited.is_empty() && dynamic.runpath.is_none() {
                inherited = folders(dynamic.rpath.as_deref(), &path);
            }
            for library in &dynamic.needed {
                if is_of_the_system(library) || !seen.insert(library.clone()) || seen.len() > FILES_MAX {
                    continue;
                }
                let Some(found) = self.find(library, &path, &dynamic, &inherited, library_path) else {
                    continue;
                };
                if Flavour::is_pmix(library) {
                    let library = found.to_string_lossy().into_owned();
                    return Flavour::Pmix { library };
                }
                if Flavour::is_mpi(library) {
                    let needed = dynamic_of(&found).unwrap_or_default().needed;
                    return Flavour::of_library(&found.to_string_lossy(), &needed);
                }
                files.push_back(found);
            }
        }
        Flavour::None
    }

    /// Where the dynamic loader finds a library (ld.so(8)).
    fn find(
        &self,
        library: &str,
        user: &Path,
        dynamic: &Dynamic,
        inherited: &[PathBuf],
        library_path: Option<&OsStr>,
    ) -> Option<PathBuf> {
        if library.contains('/') {
            return Some(library.into());
        }
        let first = match dynamic.runpath {
            Some(_) => Vec::new(),
            None => folders(dynamic.rpath.as_deref(), user),
        };
        let named = library_path.map(OsStr::as_bytes).unwrap_or_default();
        let named = named
            .split(|byte| matches!(byte, b':' | b';'))
            .filter(|folder| !folder.is_empty())
            .map(|folder| PathBuf::from(OsStr::from_bytes(folder)));
        let last = folders(dynamic.runpath.as_deref(), user);
        let mut tried = first
            .into_iter()
            .chain(inherited.iter().cloned())
            .chain(named)
            .chain(last)
            .map(|folder| folder.join(library));
        let in_cache = || path_of(self.loader_cache(), library).map(PathBuf::from);
        let in_system = || {
            let folders = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
            folders
                .map(|folder| Path::new(folder).join(library))
                .into_iter()
                .find(|path| path.exists())
        };
        tried
            .find(|path| path.exists())
            .or_else(in_cache)
            .or_else(in_system)
    }

    fn loader_cache(&self) -> &[u8] {
        self.loader_cache.get_or_init(|| {
            let path = "/etc/ld.so.cache";
            let is_small = fs::metadata(path).is_ok_and(|about| about.len() <= CACHE_SIZE_MAX as u64);
            is_small
                .then(|| fs::read(path).ok())
                .flatten()
                .unwrap_or_default()
        })
    }
}

/// The variable with the file of libpmix, for whoever has it somewhere else.
const PMIX_VARIABLE: &str = "ROPEWALK_PMIX_LIBRARY";
/// The name of libpmix.
const PMIX_LIBRARY: &str = "libpmix.so.2";
/// Where it is, from the folder of a program or of `libmpi` on.
const PMIX_FOLDERS: [&str; 4] = [".", "openmpi", "../lib", "../lib/openmpi"];

fn beside(file: &Path) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let paths = PMIX_FOLDERS.map(|below| folder.join(below).join(PMIX_LIBRARY));
    paths.into_iter().filter(|path| path.exists()).collect()
}

/// The program that a script names in its first line.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut buffer = [0; 256];
    let length = File::open(file).ok()?.read_at(&mut buffer, 0).ok()?;
    let words = buffer[..length].strip_prefix(b"#!")?;
    let line = words.split(|&byte| byte == b'\n').next()?;
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    Some(PathBuf::from(OsStr::from_bytes(words.next()?)))
}

/// The kind of a program.
pub(super) fn kind_of(file: &Path) -> Kind {
    let mut magic = [0; 4];
    let is_file = fs::metadata(file).is_ok_and(|about| about.is_file());
    let read = is_file
        .then(|| File::open(file).ok()?.read_exact_at(&mut magic, 0).ok())
        .flatten();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Kind::of(&name, read.is_some() && magic == *b"\x7fELF")
}

/// Folders between colons, from the file that names them on.
fn folders(list: Option<&str>, user: &Path) -> Vec<PathBuf> {
    let origin = user.canonicalize().ok();
    let origin = origin.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let origin = origin.to_string_lossy();
    let list = list
        .unwrap_or_default()
        .split(':')
        .filter(|folder| !folder.is_empty());
    list.map(|folder| {
        folder
            .replace("${ORIGIN}", &origin)
            .replace("$ORIGIN", &origin)
            .into()
    })
    .collect()
}

fn dynamic_of(path: &Path) -> Option<Dynamic> {
    // Opening a pipe would wait for somebody at its other end.
    let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
    let file = is_file.then(|| File::open(path).ok()).flatten()?;
    read_dynamic(&|offset, buffer| file.read_at(buffer, offset).unwrap_or(0))
}

/// Slurm has a library of the same name, which cannot speak with us.
fn is_ours(library: &Path) -> bool {
    // What has our name is ours: this is looked at in each job.
    let folder = library.parent().and_then(Path::file_name);
    if folder == Some(OsStr::new("ropewalk")) || library.with_file_name("ropewalk").is_file() {
        return true;
    }
    dynamic_of(library).is_some_and(|dynamic| !dynamic.needed.iter().any(|name| name.starts_with("libslurm")))
}

fn lacks_component(library: &Path) -> bool {
    let library = library.canonicalize().unwrap_or_else(|_| library.to_owned());
    let folder = library.parent().unwrap_or(Path::new("/"));
    let mut folders = COMPONENT_FOLDERS.iter().map(|below| folder.join(below));
    let folder = folders.find(|folder| folder.join(ANY_COMPONENT).exists());
    folder.is_some_and(|folder| !folder.join(FLUX_COMPONENT).exists())
}

/// Removes what ranks of Open MPI leave behind that could not finalize, which its own launcher would remove: the folder
/// of the job below that for temporary files, and shared memory.
pub(super) fn remove_leftovers(job: u32, environments: &[&[CString]]) {
    let (user, host) = (
        getuid().as_raw(),
        uname().nodename().to_string_lossy().into_owned(),
    );
    let short = host.split('.').next().unwrap_or(&host);
    let mut folders = BTreeSet::from([PathBuf::from("/tmp")]);
    for name in ["TMPDIR=", "TEMP=", "TMP="] {
        let values = environments
            .iter()
            .copied()
            .flatten()
            .filter_map(|variable| variable.to_bytes().strip_prefix(name.as_bytes()));
        folders.extend(values.map(|value| PathBuf::from(OsStr::from_bytes(value))));
    }
    let mut was_there = false;
    for folder in folders
        .iter()
        .flat_map(|folder| [&host, short].map(|host| folder.join(format!("ompi.{host}.{user}"))))
    {
        let is_own = fs::symlink_metadata(&folder).is_ok_and(|about| about.is_dir() && about.uid() == user);
        let family = folder.join(format!("jf.{}", job >> 16));
        if is_own && family.exists() {
            was_there = true;
            let _ = fs::remove_dir_all(family.join((job & 0xffff).to_string()));
            // Other jobs may still be in them.
            let _ = fs::remove_dir(&family);
            let _ = fs::remove_dir(&folder);
        }
    }
    let belongs =
        |name: &str| name.starts_with("vader_segment.") && name.contains(&format!(".{user}.{job:x}."));
    if was_there {
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(belongs) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
