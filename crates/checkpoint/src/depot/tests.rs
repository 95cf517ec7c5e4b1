use std::{fs, os::unix::fs::symlink};

use tempfile::TempDir;

use super::*;

fn store(directory: &Path, in_place: Option<&Path>) -> Store {
    let options = StoreOptions {
        in_place: in_place.map(Path::to_owned),
        ..StoreOptions::new(directory)
    };
    Store::open(options).unwrap()
}

/// Generations whose files stay in place have a file in common. While the newer one comes the older one is
/// whole, until it is removed, and leaves that file.
#[test]
fn an_older_generation_leaves_the_files_of_one_that_comes() {
    let folder = TempDir::new().unwrap();
    let [theirs, own] = ["theirs", "own"].map(|name| folder.path().join(name));
    let roots = [&theirs, &own].map(|directory| directory.join("results"));
    let mut ranks = store(&theirs.join("saves"), Some(&roots[0]));
    let mut depot = Depot::open(own.join("saves"), None).unwrap();
    fs::create_dir_all(&roots[0]).unwrap();
    fs::write(roots[0].join("mesh"), b"the same").unwrap();
    let mut manifests = Vec::new();
    for name in ["time-1", "time-2"] {
        let mut save = ranks.begin(1).unwrap();
        fs::write(roots[0].join(name), name).unwrap();
        for path in ["mesh", name] {
            save.add(&roots[0].join(path)).unwrap();
        }
        let generation = ranks.commit(save).unwrap();
        manifests.push(ranks.whole_manifest(generation).unwrap());
    }
    let content = |listed: &SavedFile| fs::read(roots[0].join(OsStr::from_bytes(&listed.path))).unwrap();
    let root = Some(roots[1].clone());
    depot
        .receive::<StoreError>(&manifests[0], root.clone(), |listed, write| {
            cannot("write", "", write(&content(listed)))
        })
        .unwrap();

    let arrival = depot.expect(&manifests[1], root).unwrap();
    let arrival = arrival.receive::<StoreError>(|listed, write| {
        assert_eq!(listed.path, b"time-2");
        assert_eq!(depot.inventory().unwrap().parts.len(), 1);
        depot.retire(&[1].into()).unwrap();
        cannot("write", "", write(&content(listed)))
    });
    assert!(!roots[1].join("time-1").exists());
    assert_eq!(depot.parts().unwrap(), [].into(), "it is not admitted");
    depot.admit(arrival.unwrap()).unwrap();
    let parts = depot.inventory().unwrap().parts;
    let generations: Vec<u64> = parts.iter().map(|part| part.generation).collect();
    assert_eq!(generations, [2]);
}

/// A manifest that cannot be read may be there: then `parts` fails. A file that is no manifest does not
/// count.
#[test]
fn what_cannot_be_read_is_not_taken_for_gone() {
    let folder = TempDir::new().unwrap();
    let mut store = store(folder.path(), None);
    for _ in 0..3 {
        let save = store.begin(1).unwrap();
        fs::write(save.folder().join("state"), b"content").unwrap();
        store.commit(save).unwrap();
    }
    let generations = |parts: BTreeSet<Part>| -> Vec<u64> {
        let parts = parts.iter();
        parts.map(|part| part.generation).collect()
    };
    let mut lister = Lister::new(folder.path().to_owned());
    let path = store.files.manifest_path(2);
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&path, &path).unwrap();
    match lister.parts() {
        Err(StoreError::Files { path: named, .. }) => assert_eq!(named, path),
        other => panic!("{other:?}"),
    }
    assert_eq!(generations(lister.readable_parts().unwrap()), [1, 3]);
    let mut depot = Depot::open(folder.path(), None).unwrap();
    assert!(depot.parts().is_err());
    assert_eq!(depot.inventory().unwrap().parts.len(), 2);

    fs::remove_file(&path).unwrap();
    fs::write(&path, &text[1..]).unwrap();
    assert_eq!(generations(lister.parts().unwrap()), [1, 3]);
    fs::write(&path, &text).unwrap();
    assert_eq!(generations(lister.parts().unwrap()), [1, 2, 3]);

    // The same goes for the folder of a generation, but not for a file in its place.
    let [gone, file] = [9, 8].map(|generation| store.generation_path(generation));
    fs::write(&file, b"").unwrap();
    assert_eq!(generations(lister.parts().unwrap()), [1, 2, 3]);
    symlink(&gone, &gone).unwrap();
    assert!(lister.parts().is_err());
}

/// Three generations in place, each of which has `mesh` and a file of its own.
fn in_place(folder: &Path) -> (Store, PathBuf) {
    let root = folder.join("results");
    fs::create_dir_all(&root).unwrap();
    fs::write(root.join("mesh"), b"the same").unwrap();
    let mut store = store(&folder.join("saves"), Some(&root));
    for name in ["time-1", "time-2", "time-3"] {
        let mut save = store.begin(1).unwrap();
        fs::write(root.join(name), name).unwrap();
        for path in ["mesh", name] {
            save.add(&root.join(path)).unwrap();
        }
        store.commit(save).unwrap();
    }
    (store, root)
}

/// Files in place stay as long as a manifest that may list them cannot be read, and go after that.
#[test]
fn what_may_be_listed_elsewhere_stays() {
    let folder = TempDir::new().unwrap();
    let (store, root) = in_place(folder.path());
    let mut depot = Depot::open(folder.path().join("saves"), None).unwrap();
    let path = store.files.manifest_path(3);
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&path, &path).unwrap();
    assert!(depot.retire(&[1, 2].into()).is_err());
    assert!(root.join("mesh").exists() && root.join("time-2").exists());

    fs::remove_file(&path).unwrap();
    fs::write(&path, &text).unwrap();
    let mut depot = Depot::open(folder.path().join("saves"), None).unwrap();
    depot.inventory().unwrap();
    depot.retire(&[2].into()).unwrap();
    assert!(!root.join("time-1").exists() && !root.join("time-2").exists());
    assert_eq!(depot.inventory().unwrap().parts.len(), 1);
}

/// The list of a copy that was never made keeps no files in place of a generation that is put aside.
#[test]
fn a_copy_on_its_way_keeps_nothing_from_quarantine() {
    let folder = TempDir::new().unwrap();
    let (mut store, root) = in_place(folder.path());
    let text = fs::read(store.files.manifest_path(3)).unwrap();
    fs::create_dir(store.generation_path(4)).unwrap();
    fs::write(store.files.temporary_path(4), &text).unwrap();
    let aside = store.quarantine(3, "it is given up").unwrap().unwrap();
    assert!(!root.join("time-3").exists() && root.join("mesh").exists());
    assert!(aside.join("files/time-3").exists());
}
