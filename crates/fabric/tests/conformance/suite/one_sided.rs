//! Regions, get and put.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ropewalk_fabric::{AccessError, Buffer, Completion, Event, OperationError, RegionHandle, SubmitError};

use super::{Fabric, LONG, complete, drive, get, pattern, put, withdrawn};

/// Get and put of nothing, of the whole, and of a quarter and an eighth of a region at offsets move these
/// bytes and no others, for small regions and for such that take many frames.
pub(crate) fn one_sided_operations_take_offsets(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    for length in [8, 4096, 3 << 20] {
        let content = pattern(length);
        let readable = target.expose(Bytes::from(content.clone()));
        let writable = target.expose_writable(Buffer::zeroed(length));
        let mut expected = vec![0; length];
        let (quarter, eighth) = (length / 4, length / 8);
        for (offset, size) in [
            (0, 0),
            (length, 0),
            (quarter, quarter),
            (length - eighth, eighth),
            (0, length),
        ] {
            let range = offset..offset + size;
            let got = get(&mut origin, &mut target, &readable, offset as u64, size).unwrap();
            assert!(
                *got == content[range.clone()],
                "{size} bytes at {offset} of {length}"
            );
            put(
                &mut origin,
                &mut target,
                &writable,
                offset as u64,
                Bytes::copy_from_slice(&got),
            )
            .unwrap();
            expected[range.clone()].copy_from_slice(&content[range]);
            let now = get(&mut origin, &mut target, &writable, 0, length).unwrap();
            assert!(
                *now == expected[..],
                "after a put of {size} bytes at {offset} of {length}"
            );
        }
        assert!(withdrawn(&mut target, &readable) == content);
        assert!(withdrawn(&mut target, &writable) == content);
    }
}

/// Whatever ranges are read and written, many at once, the bytes are right, and those beside them are not
/// touched.
pub(crate) fn random_transfers_move_the_right_bytes(fabric: &Fabric) {
    const SECTION: usize = 400_000;
    const COUNT: usize = 6;
    let range = (0..=SECTION, 0..=SECTION).prop_map(|(a, b)| a.min(b)..a.max(b));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ran = runner.run(&vec((range, 1..=u8::MAX), 1..=COUNT), |steps| {
        let [mut origin, mut target] = fabric.endpoints();
        let content = pattern(SECTION);
        let readable = target.expose(Bytes::from(content.clone()));
        let writable = target.expose_writable(Buffer::zeroed(COUNT * SECTION));
        let mut expected = vec![0; COUNT * SECTION];
        let mut gets = BTreeMap::new();
        for (number, (range, fill)) in steps.iter().enumerate() {
            let into = Buffer::zeroed(range.len());
            let operation = origin.get(&readable, range.start as u64, into, LONG).unwrap();
            gets.insert(operation, range.clone());
            // Each writes into a section of its own: which of two puts to one place is later is not certain.
            let offset = number * SECTION + range.start;
            let from = Bytes::from(vec![*fill; range.len()]);
            origin.put(&writable, offset as u64, from, LONG).unwrap();
            expected[offset..offset + range.len()].fill(*fill);
        }
        let mut open = 2 * steps.len();
        drive(&mut [&mut origin, &mut target], |_, event| match event {
            Event::Completed { operation, result } => {
                if let Completion::Got(buffer) = result.unwrap() {
                    assert!(*buffer == content[gets[&operation].clone()]);
                }
                open -= 1;
                (open == 0).then_some(())
            }
            other => panic!("{other:?}"),
        });
        prop_assert!(withdrawn(&mut target, &writable) == expected);
        Ok(())
    });
    ran.unwrap();
}

/// Memory that an endpoint allocated is read and written like any other, at both ends; withdrawn, it is its owner's
/// again, with what was written, and can be had anew.
pub(crate) fn allocated_memory_is_transferred(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    for length in [1, 5000, 3 << 20, 20 << 20] {
        let content = Bytes::from(pattern(length));
        let mut readable = target.allocate(length);
        readable.copy_from_slice(&content);
        let readable = target.expose(readable.into());
        let writable = target.allocate(length);
        let writable = target.expose_writable(writable);
        for _ in 0..2 {
            let into = origin.allocate(length);
            let operation = origin.get(&readable, 0, into, LONG).unwrap();
            let Ok(Completion::Got(got)) = complete(&mut origin, &mut target, operation) else {
                panic!("the get failed");
            };
            assert!(*got == content);
            put(&mut origin, &mut target, &writable, 0, got.into()).unwrap();
        }
        assert!(withdrawn(&mut target, &readable) == content);
        assert!(withdrawn(&mut target, &writable) == content);
    }
}

/// A handle works for whoever it was passed on to.
pub(crate) fn handles_can_be_forwarded(fabric: &Fabric) {
    let [mut owner, mut second, mut third] = fabric.endpoints();
    let third_address = third.address().clone();
    let handle = owner.expose(Bytes::from_static(b"forwarded"));
    let handle = postcard::to_allocvec(&handle).unwrap();
    second.send_unexpected(&third_address, 0, handle).unwrap();
    let handle: RegionHandle = drive(&mut [&mut third, &mut second], |_, event| match event {
        Event::Unexpected { body, .. } => Some(postcard::from_bytes(&body).unwrap()),
        _ => None,
    });
    let got = get(&mut third, &mut owner, &handle, 0, 9).unwrap();
    assert_eq!(&*got, b"forwarded");
}

/// A forged token, a number that never was or is no longer a region, a range outside it, and writing what may
/// only be read get an access error, and nothing is written.
pub(crate) fn handles_that_grant_nothing_are_refused(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    let readable = target.expose(Bytes::from(pattern(100)));
    let writable = target.expose_writable(Buffer::zeroed(100));
    let refused = |result: Result<_, OperationError>| match result {
        Err(OperationError::Access { source, .. }) => source,
        other => panic!("expected an access error, got {other:?}"),
    };

    let mut forged = readable.clone();
    forged.token ^= 1 << 77;
    assert_eq!(
        refused(get(&mut origin, &mut target, &forged, 0, 10).map(drop)),
        AccessError::Unknown
    );
    let mut forged = writable.clone();
    forged.token ^= 1;
    let bytes = Bytes::from(pattern(1 << 20)).slice(..100);
    assert_eq!(
        refused(put(&mut origin, &mut target, &forged, 0, bytes.clone())),
        AccessError::Unknown
    );
    assert!(target.withdraw(&forged).is_none());

    let mut never = readable.clone();
    never.region = 1 << 40;
    assert_eq!(
        refused(get(&mut origin, &mut target, &never, 0, 10).map(drop)),
        AccessError::Unknown
    );

    let mut longer = readable.clone();
    longer.length = u64::MAX;
    for offset in [91, 100, 1 << 40, u64::MAX - 10] {
        assert_eq!(
            refused(get(&mut origin, &mut target, &longer, offset, 10).map(drop)),
            AccessError::OutOfRange
        );
    }
    let outside = origin.get(&readable, 91, Buffer::zeroed(10), LONG);
    assert!(matches!(outside, Err(SubmitError::OutOfRange { .. })));
    let outside = origin.get(&readable, u64::MAX, Buffer::zeroed(10), LONG);
    assert!(matches!(outside, Err(SubmitError::OutOfRange { .. })));

    let not_allowed = origin.put(&readable, 0, bytes.clone(), LONG);
    assert!(matches!(not_allowed, Err(SubmitError::ReadOnly)));
    let mut pretended = readable.clone();
    pretended.writable = true;
    assert_eq!(
        refused(put(&mut origin, &mut target, &pretended, 0, bytes)),
        AccessError::ReadOnly
    );

    let stale = target.expose(Bytes::from_static(b"gone"));
    withdrawn(&mut target, &stale);
    assert_eq!(
        refused(get(&mut origin, &mut target, &stale, 0, 4).map(drop)),
        AccessError::Unknown
    );
    assert_eq!(withdrawn(&mut target, &writable), [0; 100]);
    assert_eq!(withdrawn(&mut target, &readable), pattern(100));
}

/// A region that is withdrawn while it is being read or written ends the transfer with an error.
pub(crate) fn withdrawal_ends_access(fabric: &Fabric) {
    const LENGTH: usize = 64 << 20;
    let [mut origin, mut target] = fabric.endpoints();
    let content = Bytes::from(vec![7; LENGTH]);
    let readable = target.expose(content.clone());
    let writable = target.expose_writable(Buffer::zeroed(LENGTH));
    for (region, write) in [(&readable, false), (&writable, true)] {
        let operation = if write {
            origin.put(region, 0, content.clone(), LONG).unwrap()
        } else {
            origin.get(region, 0, Buffer::zeroed(LENGTH), LONG).unwrap()
        };
        // Enough for the transfer to have begun, too little for it to end.
        for _ in 0..6 {
            origin.progress();
            target.progress();
        }
        withdrawn(&mut target, region);
        let ended = complete(&mut origin, &mut target, operation);
        match ended {
            Err(OperationError::Access { source, .. }) => assert_eq!(source, AccessError::Unknown),
            other => panic!("expected an access error (writing: {write}), got {other:?}"),
        }
    }
    // Both are as well as before.
    let handle = target.expose(content.slice(..10));
    assert_eq!(*get(&mut origin, &mut target, &handle, 0, 10).unwrap(), [7; 10]);
}

/// A cancelled operation tells nothing any longer, and the next ones are not disturbed by its bytes.
pub(crate) fn cancelled_operations_end_in_silence(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    const LENGTH: usize = 64 << 20;
    let content = Bytes::from(pattern(LENGTH));
    let readable = target.expose(content.clone());
    let writable = target.expose_writable(Buffer::zeroed(LENGTH));
    for steps in 0..8 {
        let get_operation = origin.get(&readable, 0, Buffer::zeroed(LENGTH), LONG).unwrap();
        let put_operation = origin.put(&writable, 0, content.clone(), LONG).unwrap();
        let receive = origin.receive_expected(&readable.address, 0, LONG).unwrap();
        for _ in 0..steps {
            origin.progress();
            target.progress();
        }
        let early: Vec<_> = std::iter::from_fn(|| origin.poll_event()).collect();
        assert!(early.is_empty(), "so much was moved in {steps} steps: {early:?}");
        for operation in [get_operation, put_operation, receive] {
            origin.cancel(operation);
        }
        let got = get(&mut origin, &mut target, &readable, 1000, 5000).unwrap();
        assert!(*got == content[1000..6000]);
        let late = origin.poll_event();
        assert!(late.is_none(), "{late:?}");
    }
}

/// While a large transfer is under way small messages pass it, in both directions.
pub(crate) fn large_transfers_let_small_messages_pass(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    let (origin_address, target_address) = (origin.address().clone(), target.address().clone());
    let region = target.expose(Bytes::from(vec![3; 64 << 20]));
    let transfer = origin.get(&region, 0, Buffer::zeroed(64 << 20), LONG).unwrap();
    let mut rounds = 0;
    origin.send_unexpected(&target_address, 0, Bytes::new()).unwrap();
    loop {
        let done = drive(&mut [&mut origin, &mut target], |index, event| {
            match (index, event) {
                (0, Event::Completed { operation, result }) => {
                    assert!(operation == transfer && result.is_ok());
                    Some(None)
                }
                (index, Event::Unexpected { .. }) => Some(Some(index)),
                (_, other) => panic!("{other:?}"),
            }
        });
        match done {
            None => break,
            Some(0) => {
                rounds += 1;
                origin.send_unexpected(&target_address, 0, Bytes::new()).unwrap();
            }
            Some(_) => target.send_unexpected(&origin_address, 0, Bytes::new()).unwrap(),
        }
    }
    // If they had waited for the transfer there would have been none; the buffers between the two hold some
    // MiB.
    assert!(rounds >= 3, "only {rounds} round trips during 64 MiB");
}
