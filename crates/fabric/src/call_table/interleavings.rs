//! The rules of a table under every interleaving of its processes, and every order that the memory model allows.

use std::sync::atomic::Ordering;

use loom::{
    cell::UnsafeCell,
    sync::{Arc, atomic::AtomicU64},
    thread,
};

use super::{
    chunks::Chunks,
    row::{CallState, Row, Taken, Word, has_place, state},
};

impl Word for AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    fn compare_exchange(&self, current: u64, new: u64, ordering: Ordering) -> bool {
        self.compare_exchange(current, new, ordering, Ordering::Relaxed)
            .is_ok()
    }

    fn fetch_or(&self, bits: u64, ordering: Ordering) {
        self.fetch_or(bits, ordering);
    }
}

/// Two processes with one place each for a record.
#[derive(Default)]
struct Table {
    rows: [Row<AtomicU64>; 2],
    records: [UnsafeCell<u64>; 2],
}

impl Table {
    fn post(&self, row: usize, call: u64) -> bool {
        if !has_place(self.rows.iter(), call, 1) {
            return false;
        }
        self.records[row].with_mut(|record| {
            // SAFETY: loom has just checked that nobody reads or writes it.
            unsafe { *record = 10 * call + row as u64 }
        });
        self.rows[row].post(call)
    }

    fn state(&self, call: u64) -> CallState {
        state(self.rows.iter(), call)
    }

    fn read(&self, row: usize) -> u64 {
        // SAFETY: loom checks that nobody writes it.
        self.records[row].with(|record| unsafe { *record })
    }
}

// SAFETY: the cells are loom's, which fail the test at any access that is not ordered.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// A record is read as it was posted, and nobody writes the next one over it before all have read it.
#[test]
fn records_are_read_before_they_are_replaced() {
    loom::model(|| {
        let table = Arc::new(Table::default());
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                assert!(table.post(1, 0));
                if table.state(0) == CallState::Posted {
                    assert_eq!(table.read(0), 0);
                    table.rows[1].finish(1);
                    table.post(1, 1);
                }
            })
        };
        assert!(table.post(0, 0));
        if table.state(0) == CallState::Posted {
            assert_eq!(table.read(1), 1);
            table.rows[0].finish(1);
            table.post(0, 1);
        }
        other.join().unwrap();
        assert_ne!(table.state(1), CallState::Closed);
    });
}

/// All see the same end of a call that is posted while the row is closed.
#[test]
fn all_agree_on_the_calls_of_a_closed_row() {
    loom::model(|| {
        let table = Arc::new(Table::default());
        let late = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let is_posted = table.post(1, 0);
                (is_posted, table.state(0))
            })
        };
        assert!(table.post(0, 0));
        table.rows[1].close();
        let seen = table.state(0);
        let (is_posted, seen_late) = late.join().unwrap();
        assert_ne!(seen, CallState::Open);
        assert_eq!(seen == CallState::Posted, is_posted);
        assert!([CallState::Open, seen].contains(&seen_late));
    });
}

/// All see the same of a result that is taken while the row is closed.
#[test]
fn all_agree_on_what_is_taken() {
    loom::model(|| {
        let table = Arc::new(Table::default());
        let root = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.rows[1].take(0))
        };
        table.rows[1].close();
        let seen = table.rows[1].taken(0);
        let has_taken = root.join().unwrap();
        assert_eq!(seen, if has_taken { Taken::Yes } else { Taken::Never });
    });
}

/// Each chunk is claimed once; what is written into one is read by whoever sees that it is finished; and what is left
/// from an earlier call counts for nothing.
#[test]
fn chunks_are_shared() {
    loom::model(|| {
        let chunks: Arc<Chunks<AtomicU64>> = Arc::default();
        let written: Arc<[UnsafeCell<u64>; 2]> = Arc::new(std::array::from_fn(|_| UnsafeCell::new(0)));
        chunks.claim(0, 1);
        chunks.finish(0, 0);
        chunks.finish(0, 1);
        let work = {
            let (chunks, written) = (Arc::clone(&chunks), Shared(Arc::clone(&written)));
            move || {
                let written = &written;
                while let Some(chunk) = chunks.claim(7, 2) {
                    // SAFETY: loom checks that nobody reads or writes it meanwhile.
                    written.0[chunk as usize].with_mut(|value| unsafe { *value = 1 });
                    chunks.finish(7, chunk);
                }
                for chunk in (0..2).filter(|chunk| chunks.is_finished(7, *chunk)) {
                    // SAFETY: loom checks that nobody writes it meanwhile.
                    let value = written.0[chunk as usize].with(|value| unsafe { *value });
                    assert_eq!(value, 1);
                }
            }
        };
        let other = thread::spawn(work.clone());
        work();
        other.join().unwrap();
        assert!(chunks.are_finished(7, 2) && chunks.claim(7, 2).is_none());
    });
}

/// Cells that threads share: loom looks at each access.
#[derive(Clone)]
struct Shared(Arc<[UnsafeCell<u64>; 2]>);

// SAFETY: as for the table.
unsafe impl Send for Shared {}
