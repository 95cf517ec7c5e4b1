//! Writes the folder of a survey, which is there whole or not at all.

use std::{collections::BTreeMap, fs, io, path::Path};

use tempfile::TempDir;

use crate::{
    MigrationOptions, Section, Segy, SurveyError, SurveyOptions,
    survey::{FORMAT, FileEntry, MANIFEST, MIGRATION_VELOCITY, Manifest, VELOCITY_TEXT, at, shot_file},
};

/// A survey under another name, until [`finish`](Self::finish) renames it; it is removed otherwise.
pub(crate) struct SurveyWriter {
    folder: TempDir,
    shots: usize,
    files: BTreeMap<String, FileEntry>,
}

impl SurveyWriter {
    /// An empty survey in the folder that is to hold the finished one.
    pub(crate) fn new(parent: &Path) -> Result<Self, SurveyError> {
        let folder = tempfile::Builder::new()
            .prefix(".survey-")
            .tempdir_in(parent)
            .map_err(at(parent))?;
        Ok(Self {
            folder,
            shots: 0,
            files: BTreeMap::new(),
        })
    }

    pub(crate) fn write_migration_velocity(&mut self, velocity: &Section) -> Result<(), SurveyError> {
        self.write(MIGRATION_VELOCITY, &velocity.to_segy(VELOCITY_TEXT))
    }

    /// Writes one shot, counted from 0, once.
    pub(crate) fn write_shot(&mut self, shot: usize, record: &Segy) -> Result<(), SurveyError> {
        self.shots += 1;
        self.write(&shot_file(shot), record)
    }

    pub(crate) fn write(&mut self, name: &str, segy: &Segy) -> Result<(), SurveyError> {
        let path = self.folder.path().join(name);
        let bytes = segy.to_bytes();
        self.files.insert(name.to_owned(), FileEntry::of(&bytes));
        fs::write(&path, bytes).map_err(at(&path))
    }

    /// Writes the manifest and renames the folder. If there is a folder of that name with files in it, nothing is
    /// renamed and the answer is `false`.
    pub(crate) fn finish(
        self,
        to: &Path,
        migration: MigrationOptions,
        modelled_from: Option<SurveyOptions>,
    ) -> Result<bool, SurveyError> {
        let manifest = Manifest {
            format: FORMAT,
            modelled_from,
            migration,
            shots: self.shots,
            files: self.files,
        };
        let path = self.folder.path().join(MANIFEST);
        let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::from);
        text.and_then(|text| fs::write(&path, text)).map_err(at(&path))?;
        match fs::rename(self.folder.path(), to) {
            Ok(()) => {
                // There is nothing to remove any more.
                let _ = self.folder.keep();
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(at(to)(error)),
        }
    }
}
