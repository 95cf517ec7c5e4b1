//! Generations in an object store: a bucket of S3 and what is like it, or a folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use object_store::{
    ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart,
    local::LocalFileSystem,
    parse_url_opts,
    path::{Path as Key, PathPart},
};
use ropewalk_checkpoint_core::{
    Held, Holdings, MANIFEST_BYTES_MAX, Manifest, ManifestError, SavedFile, choose, partner::Part,
};
use thiserror::Error;
use tokio::runtime::Runtime;
use url::Url;

use super::{
    depot::{Depot, base_of, read_manifest, root_of},
    store::{GENERATION, ROOT, rank_name},
    store_error::StoreError,
};

/// The generations of a job in an object store, laid out as in a directory: the files of each rank, and its
/// manifest. The manifest comes last; without it nothing of the generation exists.
#[derive(Debug)]
pub struct Archive {
    store: Box<dyn ObjectStore>,
    prefix: Key,
    runtime: Runtime,
}

/// Why a generation could not be uploaded or fetched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A file is not what its manifest says: it was removed or changed meanwhile.
    #[error("{} is not what its manifest says", .0.display())]
    Changed(PathBuf),
    /// A file here cannot be read.
    #[error("cannot read {}", .path.display())]
    Files {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The bytes stored as a manifest do not parse as one.
    #[error("{key} is no manifest")]
    Manifest {
        /// Where.
        key: String,
        /// Why not.
        source: ManifestError,
    },
    /// The object store refuses, or cannot be reached.
    #[error("the object store does not do it")]
    Objects(#[from] object_store::Error),
    /// The operating system gives no runtime.
    #[error("cannot make what an object store needs")]
    Runtime(#[source] io::Error),
    /// The directory here cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address of the object store is no valid URL.
    #[error("{text:?} names no object store: write file:///FOLDER, or s3://BUCKET/FOLDER and the like")]
    Url {
        /// The address as given.
        text: String,
        /// Why not.
        source: url::ParseError,
    },
}

impl Archive {
    /// The object store at an address; `options` are those of the cloud, as they stand in environment variables
    /// (`AWS_ACCESS_KEY_ID`).
    ///
    /// # Errors
    /// If it is no address, or of a kind for which this was not built.
    pub fn open(
        text: &str,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ArchiveError> {
        let url = Url::parse(text).map_err(|source| ArchiveError::Url {
            text: text.to_owned(),
            source,
        })?;
        let (mut store, prefix) = parse_url_opts(&url, options)?;
        if url.scheme() == "file" {
            // Clouds have no folders; in a file system those of removed generations would stay, empty.
            store = Box::new(LocalFileSystem::new().with_automatic_cleanup(true));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(ArchiveError::Runtime)?;
        Ok(Self {
            store,
            prefix,
            runtime,
        })
    }

    /// The generations that are there as a whole.
    ///
    /// # Errors
    /// If the object store does not tell.
    pub fn generations(&self) -> Result<BTreeSet<u64>, ArchiveError> {
        let found = self.manifests()?;
        Ok(complete(&found).into_iter().map(|held| held.generation).collect())
    }

    /// Uploads all parts of a generation of a directory. Needs memory for some pieces of 8 MiB, however large
    /// the files are.
    ///
    /// # Errors
    /// If a file is not as it was saved, or the object store does not take it. What was uploaded has no manifest then.
    pub fn upload(&self, directory: &Path, parts: &[Part]) -> Result<(), ArchiveError> {
        let mut manifests = Vec::new();
        for part in parts {
            let unread = |source| ArchiveError::Files {
                path: directory.to_owned(),
                source,
            };
            let text = read_manifest(directory, part).map_err(unread)?;
            let key = self.rank_key(part.generation, part.rank);
            let manifest = Manifest::parse(&text).map_err(|source| ArchiveError::Manifest {
                key: key.to_string(),
                source,
            })?;
            let base = base_of(directory, part, manifest.place).map_err(unread)?;
            for file in &manifest.files {
                self.upload_file(&base, file, key_below(&key, &file.path))?;
            }
            manifests.push((self.manifest_key(part.generation, part.rank), text));
        }
        if let Some(root) = root_of(directory) {
            let root = root.into_os_string().into_vec();
            self.put(self.prefix.clone().join(ROOT), root)?;
        }
        for (key, text) in manifests {
            self.put(key, text)?;
        }
        Ok(())
    }

    /// Removes a generation: the manifests first.
    ///
    /// # Errors
    /// If the object store does not do it.
    pub fn remove(&self, generation: u64) -> Result<(), ArchiveError> {
        let of_generation = self.manifests()?;
        let of_generation = of_generation
            .iter()
            .filter(|manifest| manifest.generation == generation);
        for manifest in of_generation {
            let key = self.manifest_key(generation, manifest.rank);
            self.runtime.block_on(self.store.delete(&key))?;
            let base = self.rank_key(generation, manifest.rank);
            for file in &manifest.files {
                let key = key_below(&base, &file.path);
                self.runtime.block_on(self.store.delete(&key))?;
            }
        }
        Ok(())
    }

    /// Fetches the newest generation that is there as a whole, and says which. Nothing if there is none.
    ///
    /// # Errors
    /// If the object store does not give it, it is not what its manifests say, or it cannot be written.
    pub fn fetch(&self, depot: &mut Depot) -> Result<Option<Held>, ArchiveError> {
        let manifests = self.manifests()?;
        let Some(held) = complete(&manifests).into_iter().next_back() else {
            return Ok(None);
        };
        let root = self.prefix.clone().join(ROOT);
        let root = match self.runtime.block_on(self.bytes(&root)) {
            Ok(root) => Some(PathBuf::from(OsStr::from_bytes(&root))),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let of_generation = manifests
            .iter()
            .filter(|manifest| manifest.generation == held.generation);
        for manifest in of_generation {
            let base = self.rank_key(manifest.generation, manifest.rank);
            depot.receive::<ArchiveError>(manifest, root.clone(), |file, write| {
                let key = key_below(&base, &file.path);
                let mut offset = 0;
                while offset < file.size {
                    let end = file.size.min(offset + PIECE_BYTES);
                    let bytes = self.runtime.block_on(self.store.get_range(&key, offset..end))?;
                    if bytes.is_empty() {
                        return Err(ArchiveError::Changed(PathBuf::from(key.to_string())));
                    }
                    offset += bytes.len() as u64;
                    write(&bytes).map_err(|source| ArchiveError::Files {
                        path: PathBuf::from(key.to_string()),
                        source,
                    })?;
                }
                Ok(())
            })?;
        }
        Ok(Some(held))
    }

    fn upload_file(&self, base: &Path, file: &SavedFile, key: Key) -> Result<(), ArchiveError> {
        let path = base.join(OsStr::from_bytes(&file.path));
        let unread = |source| ArchiveError::Files {
            path: path.clone(),
            source,
        };
        let mut source = File::open(&path).map_err(unread)?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; file.size.min(PIECE_BYTES) as usize];
        if file.size <= PIECE_BYTES {
            source.read_exact(&mut piece).map_err(unread)?;
            hasher.update(&piece);
            is_saved(&hasher, file).ok_or(ArchiveError::Changed(path))?;
            return self.put(key, piece);
        }
        // Clouds take ten thousand pieces of a file.
        let length = PIECE_BYTES.max(file.size / PIECES_MAX);
        piece.resize(length as usize, 0);
        self.runtime.block_on(async {
            let upload = self.store.put_multipart(&key).await?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, piece.len());
            let sent = async {
                let mut left = file.size;
                while left > 0 {
                    let part = &mut piece[..left.min(length) as usize];
                    source.read_exact(part).map_err(unread)?;
                    hasher.update(part);
                    left -= part.len() as u64;
                    upload.wait_for_capacity(IN_FLIGHT_MAX).await?;
                    upload.write(part);
                }
                is_saved(&hasher, file).ok_or_else(|| ArchiveError::Changed(path.clone()))
            };
            match sent.await {
                Ok(()) => {
                    upload.finish().await?;
                    Ok(())
                }
                Err(error) => {
                    // The object store forgets it some day in any case.
                    let _ = upload.abort().await;
                    Err(error)
                }
            }
        })
    }

    fn put(&self, key: Key, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        let put = self.store.put(&key, PutPayload::from(bytes));
        self.runtime.block_on(put)?;
        Ok(())
    }

    /// All manifests that can be read. One that is torn is as if it were not there.
    fn manifests(&self) -> Result<Vec<Manifest>, ArchiveError> {
        self.runtime.block_on(async {
            let mut found = Vec::new();
            let listed = self.store.list_with_delimiter(Some(&self.prefix)).await?;
            for folder in listed.common_prefixes {
                let name = folder.filename().and_then(|name| name.strip_prefix(GENERATION));
                let Some(generation) = name.and_then(|number| number.parse::<u64>().ok()) else {
                    continue;
                };
                let listed = self.store.list_with_delimiter(Some(&folder)).await?;
                for object in listed.objects {
                    if object.location.extension() != Some("manifest")
                        || object.size > MANIFEST_BYTES_MAX as u64
                    {
                        continue;
                    }
                    let text = match self.bytes(&object.location).await {
                        Err(object_store::Error::NotFound { .. }) => continue,
                        text => text?,
                    };
                    let manifest = Manifest::parse(&text).ok();
                    found.extend(manifest.filter(|manifest| manifest.generation == generation));
                }
            }
            Ok(found)
        })
    }

    async fn bytes(&self, key: &Key) -> Result<Vec<u8>, object_store::Error> {
        Ok(self.store.get(key).await?.bytes().await?.into())
    }

    fn generation_key(&self, generation: u64) -> Key {
        self.prefix.clone().join(format!("{GENERATION}{generation:010}"))
    }

    fn rank_key(&self, generation: u64, rank: u32) -> Key {
        self.generation_key(generation).join(rank_name(rank))
    }

    fn manifest_key(&self, generation: u64, rank: u32) -> Key {
        let name = format!("{}.manifest", rank_name(rank));
        self.generation_key(generation).join(name)
    }
}

/// Each part of a path becomes one of the key, percent-encoded where it has to be: two paths never share a key.
fn key_below(base: &Key, path: &[u8]) -> Key {
    path.split(|&byte| byte == b'/').fold(base.clone(), |key, part| {
        let text: String = part
            .iter()
            .map(|&byte| match byte {
                b'%' | 0x80.. => format!("%{byte:02x}"),
                byte => char::from(byte).to_string(),
            })
            .collect();
        key.join(PathPart::from(text))
    })
}

fn is_saved(hasher: &blake3::Hasher, file: &SavedFile) -> Option<()> {
    let found = (hasher.count(), *hasher.finalize().as_bytes());
    (found == (file.size, file.hash)).then_some(())
}

/// The generations of which all ranks' manifests are there, in rising order.
fn complete(manifests: &[Manifest]) -> Vec<Held> {
    let mut of_generation: BTreeMap<u64, Vec<&Manifest>> = BTreeMap::new();
    for manifest in manifests {
        of_generation
            .entry(manifest.generation)
            .or_default()
            .push(manifest);
    }
    let whole = |manifests: Vec<&Manifest>| {
        let ranks = manifests.first()?.ranks;
        if ranks as usize > manifests.len() {
            return None;
        }
        let mut of_ranks = vec![Holdings::default(); ranks as usize];
        for manifest in manifests {
            let held = Held {
                generation: manifest.generation,
                step: manifest.step,
                ranks: manifest.ranks,
            };
            of_ranks.get_mut(manifest.rank as usize)?.held.push(held);
        }
        choose(&of_ranks, u32::MAX).restore
    };
    of_generation.into_values().filter_map(whole).collect()
}

/// The size in bytes of a piece that goes to or from an object store at once.
const PIECE_BYTES: u64 = 8 << 20;
const PIECES_MAX: u64 = 9000;

/// So many pieces are on their way at once.
const IN_FLIGHT_MAX: usize = 2;
