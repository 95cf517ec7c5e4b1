//! Files in memory that know what would be left of them after a crash.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Component, Path},
    rc::Rc,
};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_checkpoint::{Entry, EntryKind, Files};

/// The unsynced changes that are on the disk after a crash.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// All: only the process was killed.
    Nothing,
    /// None of them.
    Everything,
    /// New names are there, new content is not.
    Content,
    /// New names are there, and the first half of new content.
    HalfOfContent,
    /// New names are there, and zeros for new content.
    Zeros,
    /// Each name and each content by a throw of a coin.
    Random(u64),
}

/// A file system that stops at its n-th change.
#[derive(Clone, Debug)]
pub(crate) struct CrashingFiles(Rc<RefCell<Disk>>);

#[derive(Clone, Debug)]
struct Disk {
    nodes: Vec<Node>,
    /// Changes of names that are not on the disk yet, each whole or not at all.
    pending: Vec<Vec<NameChange>>,
    changes: u64,
    crash_at: u64,
    /// True if every write fails, as on a full disk.
    full: bool,
    /// After so many more one fails.
    syncs: u64,
}

/// In the directory, the name stands for the node or for nothing.
type NameChange = (usize, OsString, Option<usize>);

#[derive(Clone, Debug)]
enum Node {
    Directory {
        now: BTreeMap<OsString, usize>,
        durable: BTreeMap<OsString, usize>,
    },
    File {
        now: Vec<u8>,
        durable: Vec<u8>,
    },
}

impl Node {
    fn directory() -> Self {
        Self::Directory {
            now: BTreeMap::new(),
            durable: BTreeMap::new(),
        }
    }
}

impl CrashingFiles {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(Disk {
            nodes: vec![Node::directory()],
            pending: Vec::new(),
            changes: 0,
            crash_at: u64::MAX,
            full: false,
            syncs: u64::MAX,
        })))
    }

    /// Stops at this change from now on, before it is made.
    pub(crate) fn crash_after(&self, changes: u64) {
        let mut disk = self.0.borrow_mut();
        disk.crash_at = disk.changes + changes;
    }

    pub(crate) fn changes(&self) -> u64 {
        self.0.borrow().changes
    }

    pub(crate) fn fill(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    /// Lets a sync fail after so many, and then no more.
    pub(crate) fn fail_sync_after(&self, syncs: u64) {
        self.0.borrow_mut().syncs = syncs;
    }

    /// Changes a bit of a file, or cuts it to nothing, as a disk might.
    pub(crate) fn damage(&self, path: &Path, how: impl Fn(&mut Vec<u8>)) {
        let mut disk = self.0.borrow_mut();
        let at = disk.find(path).expect("there is such a file");
        match &mut disk.nodes[at] {
            Node::File { now, durable } => {
                how(now);
                how(durable);
            }
            Node::Directory { .. } => panic!("{} is a directory", path.display()),
        }
    }

    /// The files that are found after the machine has started again.
    pub(crate) fn after_crash(&self, loss: Loss) -> Self {
        let mut disk = self.0.borrow().clone();
        let mut random = Pcg64::seed_from_u64(match loss {
            Loss::Random(seed) => seed,
            _ => 0,
        });
        for change in std::mem::take(&mut disk.pending) {
            let kept = match loss {
                Loss::Everything => false,
                Loss::Random(_) => random.next_u32().is_multiple_of(2),
                _ => true,
            };
            if kept {
                disk.make_durable(change);
            }
        }
        for node in &mut disk.nodes {
            match node {
                Node::Directory { now, durable } => *now = durable.clone(),
                Node::File { now, durable } if now != durable => {
                    let kind = match loss {
                        Loss::Nothing => 0,
                        Loss::Everything | Loss::Content => 1,
                        Loss::HalfOfContent => 2,
                        Loss::Zeros => 3,
                        Loss::Random(_) => random.next_u32() % 4,
                    };
                    match kind {
                        0 => {}
                        1 => *now = durable.clone(),
                        2 => now.truncate(now.len() / 2),
                        _ => now.fill(0),
                    }
                    *durable = now.clone();
                }
                Node::File { .. } => {}
            }
        }
        disk.changes = 0;
        disk.crash_at = u64::MAX;
        Self(Rc::new(RefCell::new(disk)))
    }
}

impl Disk {
    fn change(&mut self) -> io::Result<()> {
        if self.changes >= self.crash_at {
            return Err(io::Error::other("the machine has crashed"));
        }
        self.changes += 1;
        Ok(())
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = 0;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            let Node::Directory { now, .. } = &self.nodes[at] else {
                return Err(io::ErrorKind::NotADirectory.into());
            };
            at = *now.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    /// The directory of a path, and its name in it.
    fn place(&self, path: &Path) -> io::Result<(usize, OsString)> {
        let (folder, name) = (path.parent(), path.file_name());
        let (Some(folder), Some(name)) = (folder, name) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((self.find(folder)?, name.to_owned()))
    }

    fn rename(&mut self, changes: Vec<NameChange>) {
        for (directory, name, node) in &changes {
            let Node::Directory { now, .. } = &mut self.nodes[*directory] else {
                panic!("only directories have names in them");
            };
            match node {
                Some(node) => now.insert(name.clone(), *node),
                None => now.remove(name),
            };
        }
        self.pending.push(changes);
    }

    fn make_durable(&mut self, changes: Vec<NameChange>) {
        for (directory, name, node) in changes {
            let Node::Directory { durable, .. } = &mut self.nodes[directory] else {
                panic!("only directories have names in them");
            };
            match node {
                Some(node) => durable.insert(name, node),
                None => durable.remove(&name),
            };
        }
    }
}

impl Files for CrashingFiles {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        if let Ok(at) = self.0.borrow().find(path) {
            return match self.0.borrow().nodes[at] {
                Node::Directory { .. } => Ok(()),
                Node::File { .. } => Err(io::ErrorKind::AlreadyExists.into()),
            };
        }
        if let Some(above) = path.parent() {
            self.make_directory(above)?;
        }
        let mut disk = self.0.borrow_mut();
        disk.change()?;
        let (folder, name) = disk.place(path)?;
        disk.nodes.push(Node::directory());
        let new = disk.nodes.len() - 1;
        disk.rename(vec![(folder, name, Some(new))]);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let disk = self.0.borrow();
        let at = disk.find(path)?;
        let Node::Directory { now, .. } = &disk.nodes[at] else {
            return Err(io::ErrorKind::NotADirectory.into());
        };
        let entries = now.iter().map(|(name, &node)| Entry {
            name: name.clone(),
            kind: match disk.nodes[node] {
                Node::Directory { .. } => EntryKind::Directory,
                Node::File { .. } => EntryKind::File,
            },
        });
        Ok(entries.collect())
    }

    fn kind(&self, path: &Path) -> io::Result<EntryKind> {
        let disk = self.0.borrow();
        Ok(match disk.nodes[disk.find(path)?] {
            Node::Directory { .. } => EntryKind::Directory,
            Node::File { .. } => EntryKind::File,
        })
    }

    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let disk = self.0.borrow();
        match &disk.nodes[disk.find(path)?] {
            Node::File { now, .. } if now.len() <= most => Ok(now.clone()),
            _ => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.change()?;
        if disk.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Ok(at) = disk.find(path) {
            let Node::File { now, .. } = &mut disk.nodes[at] else {
                return Err(io::ErrorKind::IsADirectory.into());
            };
            *now = content.to_owned();
            return Ok(());
        }
        let (folder, name) = disk.place(path)?;
        disk.nodes.push(Node::File {
            now: content.to_owned(),
            durable: Vec::new(),
        });
        let new = disk.nodes.len() - 1;
        disk.rename(vec![(folder, name, Some(new))]);
        Ok(())
    }

    fn digest(&self, path: &Path) -> io::Result<(u64, [u8; 32])> {
        let content = self.read(path, usize::MAX)?;
        Ok((content.len() as u64, *blake3::hash(&content).as_bytes()))
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.change()?;
        let is_failing = disk.syncs == 0;
        disk.syncs = disk.syncs.wrapping_sub(1);
        if is_failing {
            return Err(io::Error::from_raw_os_error(5));
        }
        let at = disk.find(path)?;
        if let Node::File { now, durable } = &mut disk.nodes[at] {
            *durable = now.clone();
            return Ok(());
        }
        let touches = |change: &Vec<NameChange>| change.iter().any(|(folder, ..)| *folder == at);
        let (synced, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut disk.pending).into_iter().partition(touches);
        disk.pending = rest;
        for change in synced {
            disk.make_durable(change);
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.change()?;
        let node = disk.find(from)?;
        let ((from, old), (to, new)) = (disk.place(from)?, disk.place(to)?);
        disk.rename(vec![(from, old, None), (to, new, Some(node))]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        disk.change()?;
        disk.find(path)?;
        let (folder, name) = disk.place(path)?;
        disk.rename(vec![(folder, name, None)]);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.remove_file(path)
    }
}
