//! Hand-overs under every order in which two threads can meet, and every value that their processor may show them.

#[allow(
    clippy::duplicate_mod,
    dead_code,
    reason = "the same code over other memory; not all of it has a part in who touches the value"
)]
#[path = "handover.rs"]
mod handover;
#[allow(clippy::duplicate_mod, reason = "as above")]
#[path = "shared.rs"]
mod shared;

/// The same as what is outside, but watched.
mod memory {
    pub(super) use loom::{
        cell::UnsafeCell,
        sync::atomic::{AtomicBool, AtomicU8, Ordering},
    };
}

use std::sync::Arc;

use loom::thread;

use self::handover::{Given, handover};

/// Whatever the taker does while the value comes, it is found once or dropped once, and the giver knows whom to tell.
#[test]
fn a_value_that_comes_is_found_once() {
    let ways: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];
    for (watches, closes) in ways {
        loom::model(move || {
            let value = Arc::new(());
            let (giver, mut taker) = handover::<_, ()>(());
            let given = value.clone();
            let giving = thread::spawn(move || giver.give(|| given).0);
            let mut taken = usize::from(taker.take(|_| ()).is_some());
            if watches {
                taker.watch();
                taken += usize::from(taker.take(|_| ()).is_some());
            }
            let waited = closes && taker.close();
            taken += usize::from(taker.take(|_| ()).is_some());
            let given = giving.join().unwrap();
            taken += usize::from(taker.take(|_| ()).is_some());
            match given {
                Given::Closed => assert!(waited && taken == 0),
                Given::Watched => assert!(watches && !waited),
                Given::Unwatched => assert!(!waited),
            }
            assert!(closes || taken == 1);
            assert_eq!(Arc::strong_count(&value), 1);
        });
    }
}

/// A place is used for another value only when its taker is gone, and then nothing of the old one is in it.
#[test]
fn a_place_is_used_again_when_its_taker_is_gone() {
    loom::model(|| {
        let (giver, mut taker) = handover::<u32, ()>(());
        let taking = thread::spawn(move || taker.take(|value| *value));
        let (_, used) = giver.give(|| 1);
        if let Ok((giver, mut taker)) = used.reuse(|()| ()) {
            assert!(taker.take(|_| ()).is_none());
            assert_eq!(giver.give(|| 2).0, Given::Unwatched);
            assert_eq!(taker.take(|value| *value), Some(2));
        }
        assert!(taking.join().unwrap().is_none_or(|taken| taken == 1));
    });
}
