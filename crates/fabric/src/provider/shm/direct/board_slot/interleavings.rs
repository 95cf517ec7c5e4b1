//! The rules of a slot under every interleaving of two processes, and every order that the memory model allows.

use std::sync::atomic::Ordering;

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicU64, fence},
    },
    thread,
};

use super::*;

impl Word for AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    fn fence(ordering: Ordering) {
        fence(ordering);
    }
}

fn entry(token: u128) -> Entry {
    Entry {
        token,
        place: Place::Arena(token as u64),
        length: token as u64,
        writable: true,
    }
}

const FIRST: Mark = Mark(1);
const SECOND: Mark = Mark(2);

/// Who reads a region that is withdrawn, and whose memory and slot are used for another meanwhile, either gets what
/// was in it while it was exposed, or is refused.
#[test]
fn readers_notice_withdrawal() {
    loom::model(|| {
        let slot = Arc::new(Slot::<AtomicU64>::default());
        let memory = Arc::new(AtomicU64::new(7));
        assert!(slot.publish(FIRST, &entry(1)));
        let owner = {
            let (slot, memory) = (Arc::clone(&slot), Arc::clone(&memory));
            thread::spawn(move || {
                assert!(slot.withdraw(FIRST));
                memory.store(8, Ordering::Relaxed);
                assert!(slot.publish(SECOND, &entry(2)));
            })
        };
        let mut read = 0;
        let outcome = slot.read(FIRST, |said| {
            assert_eq!(*said, entry(1));
            read = memory.load(Ordering::Relaxed);
            Attempt::Done
        });
        match outcome {
            Attempt::Done => assert_eq!(read, 7),
            outcome => assert!(matches!(
                outcome,
                Attempt::NotDirect | Attempt::Refused(AccessError::Unknown)
            )),
        }
        owner.join().unwrap();
    });
}

/// The owner takes writable memory back only when nobody writes it; in the meantime it knows that somebody does. What a
/// writer was told to have written is there in either case. (To touch the cell from two sides at once would fail.)
#[test]
fn memory_is_not_taken_from_writers() {
    loom::model(|| {
        let slot = Arc::new(Slot::<AtomicU64>::default());
        let writing = Arc::new(AtomicU64::new(0));
        let exclusive = Arc::new(UnsafeCell::new(0));
        let memory = Arc::new(AtomicU64::new(7));
        assert!(slot.publish(FIRST, &entry(1)));
        let writer = {
            let (slot, writing) = (Arc::clone(&slot), Arc::clone(&writing));
            let (exclusive, memory) = (Arc::clone(&exclusive), Arc::clone(&memory));
            thread::spawn(move || {
                slot.write(FIRST, &writing, |_| {
                    exclusive.with_mut(drop);
                    memory.store(9, Ordering::Relaxed);
                    Attempt::Done
                })
            })
        };
        assert!(slot.withdraw(FIRST));
        if !is_written(&*writing, FIRST) {
            exclusive.with_mut(drop);
        }
        let copied = memory.load(Ordering::Relaxed);
        if writer.join().unwrap() == Attempt::Done {
            assert_eq!(copied, 9);
        }
    });
}

/// Who begins to write one region while another is put into the same slot writes only what it was allowed to: the new
/// region has memory of its own, and says so.
#[test]
fn writers_do_not_mix_regions_up() {
    loom::model(|| {
        let slot = Arc::new(Slot::<AtomicU64>::default());
        let writing = Arc::new(AtomicU64::new(0));
        assert!(slot.publish(FIRST, &entry(1)));
        let owner = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                assert!(slot.withdraw(FIRST));
                assert!(slot.publish(SECOND, &entry(2)));
            })
        };
        slot.write(FIRST, &*writing, |said| {
            assert_eq!(*said, entry(1));
            Attempt::Done
        });
        owner.join().unwrap();
        assert!(!is_written(&*writing, FIRST));
    });
}
