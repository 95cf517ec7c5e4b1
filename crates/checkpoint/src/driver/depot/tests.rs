use std::fs;

use tempfile::TempDir;

use super::*;

fn store(directory: &Path, in_place: Option<&Path>) -> Store {
    let options = StoreOptions {
        in_place: in_place.map(Path::to_owned),
        ..StoreOptions::new(directory)
    };
    Store::open(options).unwrap()
}

/// Generations whose files stay in place have a file in common. While the newer one comes the older one is whole, until it is
/// removed, and leaves that file.
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
