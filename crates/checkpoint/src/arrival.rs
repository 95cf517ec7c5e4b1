//! A part of a generation on its way into a directory.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use ropewalk_checkpoint_core::{Held, Manifest, Place, SavedFile};

use super::{
    files::{Files, RealFiles},
    rank_files::RankFiles,
    save::Save,
    store::{Store, held},
    store_error::{StoreError, cannot},
};

/// A copy of a part that is expected, and does not exist before all of it is there. Whoever has the directory's
/// [`Depot`](super::depot::Depot) can do other things with it meanwhile.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Of the rank whose part it is, for this copy alone.
    files: RankFiles<RealFiles>,
    save: Save,
    manifest: Manifest,
}

impl Arrival {
    /// Makes ready for a copy of what a manifest lists. `store` is that of its rank.
    pub(super) fn expect(store: &mut Store, manifest: Manifest) -> Result<Self, StoreError> {
        let generation = manifest.generation;
        let retired = store.files.retired_path(generation);
        // Who finds the rest of an earlier copy's removal brings it to its end, which must not be in the middle of
        // this one.
        if store.files.exists(&retired) {
            store.files.finish_retirement(generation)?;
        }
        store.quarantine(generation, "it was torn when a copy came")?;
        let mut save = store.files.stage(generation, manifest.step)?;
        store.next = store.next.max(generation.saturating_add(1));
        if manifest.place == Place::Kept {
            save.keep();
        }
        save.set_level(manifest.level);
        if manifest.place != Place::Inside {
            // Who removes an older generation meanwhile leaves the files that this one has too.
            let path = store.files.temporary_path(generation);
            let text = manifest.encode();
            if let Err(error) = cannot("write", &path, RealFiles.write(&path, text.as_bytes())) {
                store.files.abandon(save);
                return Err(error);
            }
        }
        Ok(Self {
            files: store.files.clone(),
            save,
            manifest,
        })
    }

    /// Writes the bytes that `read` hands over, see [`Depot::receive`](super::depot::Depot::receive), and
    /// brings them to the disk. The copy is still to be [published](Self::publish).
    pub(super) fn receive<E: From<StoreError>>(
        mut self,
        read: impl FnMut(&SavedFile, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let received = self.receive_all(read);
        match received.and_then(|()| self.seal().map_err(E::from)) {
            Ok(manifest) => {
                self.manifest = manifest;
                Ok(self)
            }
            Err(error) => {
                self.files.abandon(self.save);
                Err(error)
            }
        }
    }

    fn seal(&self) -> Result<Manifest, StoreError> {
        let found = self.files.seal(&self.save)?;
        match found.files == self.manifest.files {
            true => Ok(found),
            false => Err(StoreError::Changed(self.save.folder().to_owned())),
        }
    }

    /// Makes the copy exist, and says what it is. Nobody may remove older generations meanwhile: the files
    /// that this one lists are being written anew.
    pub(super) fn publish(self) -> Result<Held, StoreError> {
        match self.files.publish(&self.manifest) {
            Ok(()) => Ok(held(&self.manifest)),
            Err(error) => {
                self.files.give_up(self.save);
                Err(error)
            }
        }
    }

    /// Whose part it is.
    pub(super) fn rank(&self) -> u32 {
        self.manifest.rank
    }

    fn receive_all<E: From<StoreError>>(
        &mut self,
        mut read: impl FnMut(&SavedFile, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), E>,
    ) -> Result<(), E> {
        let base = self.save.folder().to_owned();
        for listed in &self.manifest.files {
            let path = Path::new(OsStr::from_bytes(&listed.path));
            let target = base.join(path);
            let is_in_place = self.files.options.in_place.is_some();
            let is_same = |found| found == (listed.size, listed.hash);
            // To write again what generations in place have in common would tear the older ones meanwhile.
            if is_in_place && RealFiles.digest(&target).is_ok_and(is_same) {
                self.save.add(&target)?;
                continue;
            }
            // Who removes an older generation in place removes folders that are empty, be it before the first file.
            let created = create(&target).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => create(&target),
                _ => Err(error),
            });
            let mut file = cannot("write", &target, created)?;
            let mut hasher = blake3::Hasher::new();
            read(listed, &mut |bytes| {
                hasher.update(bytes);
                file.write_all(bytes)
            })?;
            if (hasher.count(), *hasher.finalize().as_bytes()) != (listed.size, listed.hash) {
                return Err(StoreError::Changed(target).into());
            }
            if is_in_place {
                self.save.add(&target)?;
            }
        }
        for path in &self.manifest.empty_directories {
            let folder = base.join(OsStr::from_bytes(path));
            cannot("make the directory", &folder, fs::create_dir_all(&folder))?;
        }
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)
}
