use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use bytes::Bytes;
use ropewalk_checkpoint_core::{
    Level,
    partner::{GuardOptions, Inventory},
};
use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{
    Endpoint, EndpointOptions, Engine, Fault, Identity, JobKey, Responder, Role, thread::Driver,
};
use tempfile::TempDir;

use super::*;
use crate::{
    depot::{Depot, read_manifest},
    partners::procedures::{Listing, ReadManifest, ReadPiece},
    store::{Store, StoreOptions},
};

fn engine(host: u32) -> Engine {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(host),
        incarnation: Incarnation(0),
    };
    let key = JobKey::from_bytes([2; 32]);
    Engine::new(Endpoint::bind(EndpointOptions::new(JobId([1; 16]), key, identity)).unwrap())
}

fn store(directory: &Path, rank: u32) -> Store {
    let options = StoreOptions {
        rank,
        ranks: 2,
        ..StoreOptions::new(directory)
    };
    Store::open(options).unwrap()
}

fn save(store: &mut Store, content: &[u8]) -> u64 {
    let save = store.begin(1).unwrap();
    fs::write(save.folder().join("state"), content).unwrap();
    store.commit(save).unwrap()
}

/// A host that gives a part, but the content of its files only when the test does.
fn giver(directory: PathBuf, part: Part, pieces: Sender<Responder<Bytes>>) -> Engine {
    let mut giver = engine(0);
    giver.serve::<Listing>(move |_, ()| {
        Ok(Stock {
            inventory: Inventory {
                parts: vec![part],
                ..Inventory::default()
            },
            root: None,
            journal: None,
        })
    });
    giver.serve::<ReadManifest>(move |_, part| {
        let text = read_manifest(&directory, &part);
        text.map(Bytes::from).map_err(Fault::new)
    });
    giver.serve_later::<ReadPiece>(move |_, _, _, responder| pieces.send(responder).unwrap());
    giver
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A copy takes its time and one host does not answer at all: the copy is begun long before that one counts
/// as silent, old generations go while it is made, the own part of the copied generation stays, and the copy
/// exists when all of it has come.
#[test]
fn old_generations_go_while_one_is_copied() {
    let folder = TempDir::new().unwrap();
    let [theirs, own] = ["theirs", "own"].map(|name| folder.path().join(name));
    let part = Part {
        generation: save(&mut store(&theirs, 0), b"theirs"),
        rank: 0,
        step: 1,
        ranks: 2,
        level: Level::Full,
    };
    let mut ranks = store(&own, 1);
    assert_eq!(save(&mut ranks, b"own"), part.generation);

    let (sender, pieces) = channel();
    let (_giver, giver) = Driver::spawn(giver(theirs, part, sender)).unwrap();
    let mut silent = engine(2);
    let kept = Mutex::new(Vec::new());
    silent.serve_later::<Listing>(move |_, _, (), responder| kept.lock().unwrap().push(responder));
    let (_silent, silent) = Driver::spawn(silent).unwrap();
    let (driver, handle) = Driver::spawn(engine(1)).unwrap();
    let addresses = vec![
        giver.address().clone(),
        handle.address().clone(),
        silent.address().clone(),
    ];
    let directory = own.clone();
    let began = Instant::now();
    // It ends with the process of the test.
    thread::spawn(move || {
        let _driver = driver;
        let depot = Mutex::new(Depot::open(&directory, None).unwrap());
        let guard = Guard::new(GuardOptions {
            host: 1,
            hosts: 3,
            host_of_rank: vec![0, 1],
            base: None,
            fallbacks: BTreeSet::new(),
            next: 1,
        });
        let copier = Copier {
            handle: &handle,
            depot: &depot,
            addresses: &addresses,
            names: &["a", "b", "c"].map(str::to_owned),
        };
        let Err(error) = run(guard, &copier, &directory, &mut |_| {}, &mut |_| {});
        panic!("{error}");
    });

    let piece = pieces.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(began.elapsed() < ASK_TIMEOUT, "{:?}", began.elapsed());
    let generations = || -> BTreeSet<u64> {
        let parts = Depot::open(&own, None).unwrap().parts().unwrap();
        assert!(!parts.contains(&part), "half of it is here");
        parts.into_iter().map(|part| part.generation).collect()
    };
    for _ in 0..40 {
        save(&mut ranks, b"more");
    }
    wait_until("old generations stay", || generations().len() <= 14);
    assert!(generations().contains(&part.generation));
    assert!(own.join("generation-0000000001/rank-00000").is_dir());

    piece.answer(Ok(Bytes::from_static(b"theirs")));
    let mut depot = Depot::open(&own, None).unwrap();
    wait_until("there is no copy", || {
        depot.inventory().unwrap().parts.contains(&part)
    });
}
