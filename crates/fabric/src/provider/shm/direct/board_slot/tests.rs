//! The entry in a slot, and what readers make of it.

use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{Buffer, region_table::RegionTable};

fn mark(region: u64) -> Mark {
    Mark::of(region).unwrap()
}

proptest! {
    /// A reader decides about any access exactly as the owner's table does, with the same error.
    #[test]
    fn decides_like_the_owner(
        writable: bool,
        right_token: bool,
        write: bool,
        offset in prop_oneof![0..20u64, u64::MAX - 20..=u64::MAX],
        length in prop_oneof![0..20u64, u64::MAX - 20..=u64::MAX],
        start in prop_oneof![0..20u64, u64::MAX - 20..=u64::MAX],
    ) {
        let mut table = RegionTable::new([1; 32]);
        let address = "tcp://127.0.0.1:1".parse().unwrap();
        let handle = if writable {
            table.expose_writable(&address, Buffer::zeroed(10))
        } else {
            table.expose(&address, Bytes::from_static(&[0; 10]))
        };
        let access = Access {
            region: handle.region,
            token: if right_token { handle.token } else { handle.token ^ 1 << 100 },
            offset,
            length,
        };
        let slot = Slot::<AtomicU64>::default();
        let place = Place::Address(start);
        assert!(slot.publish(mark(handle.region), &Entry { token: handle.token, place, length: 10, writable }));
        let entry = slot.entry(mark(handle.region)).unwrap();
        let granted = entry.grant(&access, write);
        prop_assert_eq!(granted.map(drop), table.check(&access, write));
        if let Ok(place) = granted {
            prop_assert_eq!(place, start.checked_add(offset).map(Place::Address));
        }
    }

    /// Whatever is said comes back as it was said.
    #[test]
    fn entries_survive(token: u128, at: u64, arena: bool, length: u64, writable: bool, region in 0..u64::MAX) {
        let place = if arena { Place::Arena(at) } else { Place::Address(at) };
        let entry = Entry { token, place, length, writable };
        let slot = Slot::<AtomicU64>::default();
        assert!(slot.publish(mark(region), &entry));
        prop_assert_eq!(slot.entry(mark(region)), Some(entry));
    }
}

/// A slot is one region's until it is withdrawn; nobody finds another's there.
#[test]
fn a_slot_has_one_region() {
    let slot = Slot::<AtomicU64>::default();
    let entry = Entry {
        token: 1,
        place: Place::Arena(0),
        length: 1,
        writable: false,
    };
    assert_eq!(slot.entry(mark(5)), None);
    assert!(slot.publish(mark(5), &entry));
    assert!(!slot.publish(mark(6), &entry));
    assert_eq!(slot.entry(mark(6)), None);
    assert!(!slot.withdraw(mark(6)));
    assert!(slot.withdraw(mark(5)));
    assert_eq!(slot.entry(mark(5)), None);
    assert!(slot.publish(mark(6), &entry));
    assert_eq!(Mark::of(u64::MAX), None);
}

/// A writer's word names the region while it writes, and not before or after; what a withdrawal overtakes is refused.
#[test]
fn writers_say_what_they_write() {
    let slot = Slot::<AtomicU64>::default();
    let writing = AtomicU64::new(0);
    let entry = Entry {
        token: 1,
        place: Place::Arena(0),
        length: 1,
        writable: true,
    };
    assert_eq!(
        slot.write(mark(5), &writing, |_| unreachable!()),
        Attempt::NotDirect
    );
    assert!(slot.publish(mark(5), &entry));
    let write = || {
        slot.write(mark(5), &writing, |_| {
            assert!(is_written(&writing, mark(5)) && !is_written(&writing, mark(4)));
            Attempt::Done
        })
    };
    assert_eq!(write(), Attempt::Done);
    assert!(!is_written(&writing, mark(5)));
    let overtaken = slot.write(mark(5), &writing, |_| {
        assert!(slot.withdraw(mark(5)));
        Attempt::Done
    });
    assert_eq!(overtaken, Attempt::Refused(AccessError::Unknown));
}
