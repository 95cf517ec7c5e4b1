//! The files that ranks' output goes to, which may be more than this process can have open.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

/// Files by their paths. Those that were closed for want of descriptors are opened again when a line comes.
#[derive(Default)]
pub(super) struct FileTable {
    files: BTreeMap<PathBuf, Option<File>>,
}

impl FileTable {
    /// Writes a line to a file in a folder that is made if it is not there.
    pub(super) fn write_in_folder(&mut self, path: PathBuf, line: &[u8]) -> io::Result<()> {
        if let (false, Some(folder)) = (self.files.contains_key(&path), path.parent()) {
            fs::create_dir_all(folder).map_err(|error| named(&error, folder))?;
        }
        self.write(path, line)
    }

    /// Writes a line to a file. The first one replaces what was in the file before.
    pub(super) fn write(&mut self, path: PathBuf, line: &[u8]) -> io::Result<()> {
        if let Some(Some(file)) = self.files.get_mut(&path) {
            return file.write_all(line).map_err(|error| named(&error, &path));
        }
        let is_known = self.files.contains_key(&path);
        let opened = match open(&path, is_known) {
            Err(error) if lacks_descriptors(&error) && self.files.values().any(Option::is_some) => {
                self.files.values_mut().for_each(|file| drop(file.take()));
                open(&path, is_known)
            }
            opened => opened,
        };
        let mut file = opened.map_err(|error| named(&error, &path))?;
        file.write_all(line).map_err(|error| named(&error, &path))?;
        self.files.insert(path, Some(file));
        Ok(())
    }
}

/// The error about a file or folder, with its path.
fn named(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn open(path: &Path, is_known: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match is_known {
        true => options.append(true),
        false => options.write(true).truncate(true),
    };
    options.create(true).open(path)
}

fn lacks_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .map(Errno::raw_os_error)
        .map(Some)
        .contains(&error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, getrlimit, setrlimit};

    use super::*;

    /// More files than the process may have open get their lines, each line once and in order.
    #[test]
    fn files_may_be_more_than_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let before = getrlimit(Resource::Nofile);
        let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let mut limit = before;
        limit.current = Some(open + 40);
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut files = FileTable::default();
        let paths: Vec<_> = (0..100)
            .map(|number| folder.path().join(number.to_string()))
            .collect();
        fs::write(&paths[0], "from before").unwrap();
        let written = ["a\n", "b\n"].iter().try_for_each(|line| {
            let mut paths = paths.iter();
            paths.try_for_each(|path| files.write(path.clone(), line.as_bytes()))
        });
        drop(files);
        setrlimit(Resource::Nofile, before).unwrap();
        written.unwrap();
        for path in paths {
            assert_eq!(fs::read_to_string(path).unwrap(), "a\nb\n");
        }
    }
}
