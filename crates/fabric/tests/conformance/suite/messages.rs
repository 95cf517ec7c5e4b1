//! Messages, between endpoints and with oneself.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Address, Buffer, Completion, Event, Limits, OperationError, SubmitError};
use ropewalk_names::Rank;

use super::{Fabric, LONG, complete, drive, drive_known, get, pattern, put};

/// Messages of 0 bytes, around each internal limit, and of the largest size arrive whole, both ways and of
/// both kinds; a larger one is refused at once.
pub(crate) fn messages_of_every_size_arrive(fabric: &Fabric) {
    let limits = Limits {
        message_size_max: 1 << 20,
        ..Limits::default()
    };
    let mut a = fabric.endpoint_with(0, limits);
    let mut b = fabric.endpoint_with(1, limits);
    let (a_address, b_address) = (a.address().clone(), b.address().clone());
    for (tag, size) in [0, 1, 4096, 4097, 32 << 10, (32 << 10) + 1, 300_000, 1 << 20]
        .into_iter()
        .enumerate()
    {
        let tag = tag as u64;
        let body = Bytes::from(pattern(size));
        a.send_unexpected(&b_address, tag, body.clone()).unwrap();
        let from = drive_known(&mut [&mut b, &mut a], |_, event, from| match event {
            Event::Unexpected {
                tag: their,
                body: received,
                ..
            } => {
                assert!(
                    their == tag && received == body,
                    "{size} bytes did not arrive whole"
                );
                from.cloned()
            }
            _ => None,
        });
        assert_eq!((&from.address, from.identity.rank), (&a_address, Rank(0)));
        let receive = a.receive_expected(&b_address, tag, LONG).unwrap();
        b.send_expected(&from.address, tag, body.clone()).unwrap();
        match complete(&mut a, &mut b, receive).unwrap() {
            Completion::Received(received) => assert!(received == body),
            other => panic!("expected a message, got {other:?}"),
        }
    }
    let refused = a.send_unexpected(&b_address, 0, Bytes::from(vec![0; (1 << 20) + 1]));
    assert!(matches!(refused, Err(SubmitError::TooLarge { .. })));
}

/// Messages of mixed sizes to one peer arrive in the order in which they were sent, also those that were sent
/// before there was a connection, and when both sides make one at the same time.
pub(crate) fn messages_arrive_in_order(fabric: &Fabric) {
    const COUNT: u64 = 3000;
    let [mut a, mut b] = fabric.endpoints();
    let (a_address, b_address) = (a.address().clone(), b.address().clone());
    for tag in 0..COUNT {
        let body = Bytes::from(pattern(if tag % 100 == 0 { 20_000 } else { tag as usize % 50 }));
        a.send_unexpected(&b_address, tag, body.clone()).unwrap();
        b.send_unexpected(&a_address, tag, body).unwrap();
    }
    let mut next = [0; 2];
    drive(&mut [&mut a, &mut b], |index, event| {
        let Event::Unexpected { tag, .. } = event else {
            panic!("unexpected {event:?}");
        };
        assert_eq!(tag, next[index]);
        next[index] += 1;
        (next == [COUNT; 2]).then_some(())
    });
}

/// An expected message goes to the receive with its tag and sender, and is dropped without one; a second
/// receive replaces the first.
pub(crate) fn expected_messages_go_to_their_receive(fabric: &Fabric) {
    let [mut a, mut b, mut c] = fabric.endpoints();
    let (a_address, b_address, c_address) = (a.address().clone(), b.address().clone(), c.address().clone());
    let replaced = a.receive_expected(&b_address, 5, LONG).unwrap();
    let wanted = a.receive_expected(&b_address, 5, LONG).unwrap();
    b.send_expected(&a_address, 4, Bytes::from_static(b"other tag"))
        .unwrap();
    c.send_expected(&a_address, 5, Bytes::from_static(b"other sender"))
        .unwrap();
    c.send_unexpected(&a_address, 0, Bytes::new()).unwrap();
    let mut timed_out = false;
    drive_known(&mut [&mut a, &mut b, &mut c], |_, event, from| match event {
        Event::Completed { operation, result } => {
            assert!(operation == replaced && matches!(result, Err(OperationError::TimedOut { .. })));
            timed_out = true;
            None
        }
        Event::Unexpected { .. } => {
            assert_eq!(from.unwrap().address, c_address);
            Some(())
        }
        Event::PeerDied { .. } => panic!("{event:?}"),
    });
    assert!(timed_out);
    b.send_expected(&a_address, 5, Bytes::from_static(b"this one"))
        .unwrap();
    match complete(&mut a, &mut b, wanted).unwrap() {
        Completion::Received(body) => assert_eq!(body, "this one"),
        other => panic!("{other:?}"),
    }
}

/// Every one of many endpoints in one process sends to every other and to itself.
pub(crate) fn all_endpoints_of_a_process_talk_to_each_other(fabric: &Fabric) {
    const COUNT: usize = 12;
    let mut endpoints: Vec<_> = (0..COUNT as u32).map(|rank| fabric.endpoint(rank)).collect();
    let addresses: Vec<Address> = endpoints
        .iter()
        .map(|endpoint| endpoint.address().clone())
        .collect();
    for (from, endpoint) in endpoints.iter_mut().enumerate() {
        for address in &addresses {
            endpoint
                .send_unexpected(address, from as u64, Bytes::new())
                .unwrap();
        }
    }
    let mut seen = [[false; COUNT]; COUNT];
    let mut all: Vec<_> = endpoints.iter_mut().collect();
    drive_known(&mut all, |to, event, from| {
        let Event::Unexpected { tag, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(from.unwrap().identity.rank, Rank(tag as u32));
        assert!(
            !std::mem::replace(&mut seen[to][tag as usize], true),
            "it came twice"
        );
        seen.iter().flatten().all(|&seen| seen).then_some(())
    });
}

/// An endpoint sends to itself and reads and writes its own regions.
pub(crate) fn talking_to_oneself(fabric: &Fabric) {
    let [mut one, mut other] = fabric.endpoints();
    let address = one.address().clone();
    one.send_unexpected(&address, 3, Bytes::from_static(b"note"))
        .unwrap();
    drive_known(&mut [&mut one], |_, event, from| match event {
        Event::Unexpected { tag, body, .. } => {
            assert!(from.unwrap().address == address && tag == 3 && body == "note");
            Some(())
        }
        _ => None,
    });
    let receive = one.receive_expected(&address, 4, LONG).unwrap();
    one.send_expected(&address, 4, Bytes::from_static(b"answer"))
        .unwrap();
    assert!(matches!(
        complete(&mut one, &mut other, receive),
        Ok(Completion::Received(body)) if body == "answer"
    ));
    let region = one.expose_writable(Buffer::copy_of(b"0123456789"));
    put(&mut one, &mut other, &region, 4, Bytes::from_static(b"xy")).unwrap();
    assert_eq!(&*get(&mut one, &mut other, &region, 3, 4).unwrap(), b"3xy6");
    let mut forged = region.clone();
    forged.token ^= 1;
    assert!(get(&mut one, &mut other, &forged, 0, 1).is_err());
}

/// An endpoint that sleeps in `wait` is woken by a message and by a waker, and otherwise sleeps as long as it
/// was told.
pub(crate) fn sleepers_are_woken(fabric: &Fabric) {
    let [mut sleeper, mut other] = fabric.endpoints();
    let address = sleeper.address().clone();

    let start = Instant::now();
    sleeper.progress();
    sleeper.wait(Duration::from_millis(30));
    assert!(start.elapsed() >= Duration::from_millis(29) || fabric.naps);

    let woken = AtomicBool::new(false);
    let waker = sleeper.waker();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            woken.store(true, Ordering::Relaxed);
            waker.wake();
            waker.wake();
        });
        while sleeper.progress() == 0 {
            sleeper.wait(LONG);
        }
    });
    assert!(woken.load(Ordering::Relaxed) && start.elapsed() < LONG);

    std::thread::scope(|scope| {
        scope.spawn(|| {
            other.send_unexpected(&address, 0, Bytes::new()).unwrap();
            assert!(other.flush(LONG));
        });
        let start = Instant::now();
        loop {
            sleeper.wait(LONG);
            sleeper.progress();
            if let Some(Event::Unexpected { .. }) = sleeper.poll_event() {
                break;
            }
            assert!(start.elapsed() < LONG);
        }
    });
}
