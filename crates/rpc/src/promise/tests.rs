//! Hand-overs between threads as they happen to meet.

use std::{sync::Arc, thread};

use super::handover::*;

/// A value is found once, and gone with who closed the place before or after it came.
#[test]
fn values_are_found_once() {
    let value = Arc::new(());
    let (giver, mut taker) = handover::<_, u8>(1);
    assert!(taker.take(|_| ()).is_none() && !giver.is_closed());
    let (given, used) = giver.give(|| value.clone());
    assert_eq!(given, Given::Unwatched);
    let Err(used) = used.reuse(|_| ()) else {
        panic!("it has a taker");
    };
    assert!(taker.take(|_| ()).is_some() && taker.take(|_| ()).is_none() && !taker.close());
    drop(taker);
    let Ok((giver, mut taker)) = used.reuse(|details| *details += 1) else {
        panic!("it has no taker");
    };
    assert_eq!(*taker.details().lock().unwrap(), 2);
    taker.watch();
    assert_eq!(giver.give(|| value.clone()).0, Given::Watched);
    assert!(!taker.close() && taker.take(|_| ()).is_none());
    let (giver, mut taker) = handover::<_, u8>(0);
    assert!(taker.close() && giver.is_closed());
    assert_eq!(giver.give(|| value.clone()).0, Given::Closed);
    assert!(taker.take(|_| ()).is_none() && !taker.close());
    assert_eq!(Arc::strong_count(&value), 1);
}

/// Whatever the order in which two threads give, take, watch and close, no value is lost or kept.
#[test]
fn threads_agree() {
    let value = Arc::new(7);
    for round in 0..if cfg!(miri) { 50 } else { 2000 } {
        let (giver, mut taker) = handover::<_, ()>(());
        let given = value.clone();
        let (given, taken) = thread::scope(|scope| {
            let giving = scope.spawn(move || giver.give(|| given).0);
            let mut taken = taker.take(|value| **value);
            if taken.is_none() && round % 3 != 0 {
                taker.watch();
                taken = taker.take(|value| **value);
            }
            let waited = taken.is_none() && round % 2 == 0 && taker.close();
            (giving.join().unwrap(), (taken, waited, taker))
        });
        let (taken, waited, mut taker) = taken;
        assert_eq!(given == Given::Closed, waited);
        let later = taker.take(|value| **value);
        assert!(!(taken.is_some() && later.is_some()));
        drop(taker);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
