//! The behaviours.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ropewalk_fabric::{
    AccessError, Address, Buffer, Completion, Endpoint, EndpointOptions, Event, HandshakeError, Identity,
    JobKey, Limits, OperationError, OperationId, PeerDeath, RegionHandle, Role, SubmitError, Withdrawn,
};
use ropewalk_group::{Incarnation, JobId, Rank};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// Makes endpoints of one provider.
pub(crate) struct Fabric {
    bind: fn(EndpointOptions) -> Endpoint,
}

impl Fabric {
    pub(crate) fn new(bind: fn(EndpointOptions) -> Endpoint) -> Self {
        Self { bind }
    }

    fn endpoint(&self, rank: u32) -> Endpoint {
        (self.bind)(options(rank))
    }

    fn endpoints<const N: usize>(&self) -> [Endpoint; N] {
        std::array::from_fn(|rank| self.endpoint(rank as u32))
    }

    fn endpoint_with(&self, rank: u32, limits: Limits) -> Endpoint {
        (self.bind)(EndpointOptions {
            limits,
            ..options(rank)
        })
    }
}

fn options(rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity)
}

/// Drives all until the first has the wanted event; what else happens there is an error.
fn drive<T>(endpoints: &mut [&mut Endpoint], mut wanted: impl FnMut(usize, Event) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.progress();
            while let Some(event) = endpoint.poll_event() {
                if let Some(found) = wanted(index, event) {
                    return found;
                }
            }
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
    }
}

/// Drives both until the first has completed the operation.
fn complete(
    origin: &mut Endpoint,
    target: &mut Endpoint,
    wanted: OperationId,
) -> Result<Completion, OperationError> {
    drive(&mut [origin, target], |index, event| match event {
        Event::Completed { operation, result } if index == 0 && operation == wanted => Some(result),
        _ => None,
    })
}

fn get(
    origin: &mut Endpoint,
    target: &mut Endpoint,
    region: &RegionHandle,
    offset: u64,
    length: usize,
) -> Result<Buffer, OperationError> {
    let operation = origin.get(region, offset, Buffer::zeroed(length), LONG).unwrap();
    complete(origin, target, operation).map(|completion| match completion {
        Completion::Got(buffer) => buffer,
        other => panic!("expected a filled buffer, got {other:?}"),
    })
}

fn put(
    origin: &mut Endpoint,
    target: &mut Endpoint,
    region: &RegionHandle,
    offset: u64,
    bytes: Bytes,
) -> Result<(), OperationError> {
    let operation = origin.put(region, offset, bytes, LONG).unwrap();
    complete(origin, target, operation).map(|completion| match completion {
        Completion::Put => {}
        other => panic!("expected the end of a put, got {other:?}"),
    })
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn withdrawn(endpoint: &mut Endpoint, handle: &RegionHandle) -> Vec<u8> {
    match endpoint.withdraw(handle) {
        Some(Withdrawn::Writable(buffer)) => buffer.to_vec(),
        Some(Withdrawn::Immutable(bytes)) => bytes.to_vec(),
        None => panic!("the region was not exposed"),
    }
}

/// Messages of 0 bytes, around each internal limit, and of the largest size arrive whole, both ways and of both
/// kinds; a larger one is refused at once.
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
        let from = drive(&mut [&mut b, &mut a], |_, event| match event {
            Event::Unexpected {
                from,
                tag: their,
                body: received,
            } => {
                assert!(
                    their == tag && received == body,
                    "{size} bytes did not arrive whole"
                );
                Some(from)
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

/// Messages of mixed sizes to one peer arrive in the order in which they were sent, also those that were sent before
/// there was a connection, and when both sides make one at the same time.
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

/// An expected message goes to the receive with its tag and sender, and is dropped without one; a second receive
/// replaces the first.
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
    drive(&mut [&mut a, &mut b, &mut c], |_, event| match event {
        Event::Completed { operation, result } => {
            assert!(operation == replaced && matches!(result, Err(OperationError::TimedOut { .. })));
            timed_out = true;
            None
        }
        Event::Unexpected { from, .. } => {
            assert_eq!(from.address, c_address);
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
    drive(&mut all, |to, event| {
        let Event::Unexpected { from, tag, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(from.identity.rank, Rank(tag as u32));
        assert!(
            !std::mem::replace(&mut seen[to][tag as usize], true),
            "it came twice"
        );
        seen.iter().flatten().all(|&seen| seen).then_some(())
    });
}

/// A server sees many clients come and go, one after the other, and stays well.
pub(crate) fn connections_come_and_go(fabric: &Fabric) {
    let mut server = fabric.endpoint(0);
    let address = server.address().clone();
    for rank in 1..60 {
        let mut client = fabric.endpoint(rank);
        client.send_unexpected(&address, 0, Bytes::new()).unwrap();
        drive(&mut [&mut server, &mut client], |_, event| {
            matches!(event, Event::Unexpected { .. }).then_some(())
        });
        let client_address = client.address().clone();
        drop(client);
        drive(&mut [&mut server], |_, event| match event {
            Event::PeerDied { peer, .. } => {
                assert_eq!(peer, client_address);
                Some(())
            }
            _ => None,
        });
    }
}

/// Get and put of nothing, of the whole, and of a quarter and an eighth of a region at offsets move these bytes and no
/// others, for small regions and for such that take many frames.
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

/// Whatever ranges are read and written, in whatever order and many at once, the bytes are right.
pub(crate) fn random_transfers_move_the_right_bytes(fabric: &Fabric) {
    const LENGTH: usize = 700_000;
    let range = (0..LENGTH, 0..LENGTH).prop_map(|(a, b)| a.min(b)..a.max(b));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ran = runner.run(&vec((range, any::<u8>()), 1..8), |steps| {
        let [mut origin, mut target] = fabric.endpoints();
        let content = pattern(LENGTH);
        let readable = target.expose(Bytes::from(content.clone()));
        let writable = target.expose_writable(Buffer::zeroed(LENGTH));
        let mut expected = vec![0; LENGTH];
        let mut gets = Vec::new();
        let mut open = 0;
        for (range, fill) in steps {
            let (offset, length) = (range.start as u64, range.len());
            let into = Buffer::zeroed(length);
            gets.push((origin.get(&readable, offset, into, LONG).unwrap(), range.clone()));
            origin
                .put(&writable, 0, Bytes::from(vec![fill; length]), LONG)
                .unwrap();
            // Puts to one peer take turns: only what all of them wrote alike is certain.
            open += 2;
            expected[..length].fill(fill);
            let done = drive(&mut [&mut origin, &mut target], |_, event| match event {
                Event::Completed { operation, result } => {
                    open -= 1;
                    if let Completion::Got(buffer) = result.unwrap() {
                        let at = gets.iter().position(|(get, _)| *get == operation).unwrap();
                        let (_, range) = gets.swap_remove(at);
                        assert!(*buffer == content[range]);
                    }
                    (open == 0).then_some(true)
                }
                other => panic!("{other:?}"),
            });
            prop_assert!(done);
        }
        prop_assert!(withdrawn(&mut target, &writable) == expected);
        Ok(())
    });
    ran.unwrap();
}

/// A handle works for whoever it was passed on to.
pub(crate) fn handles_can_be_forwarded(fabric: &Fabric) {
    let [mut owner, mut second, mut third] = fabric.endpoints();
    let third_address = third.address().clone();
    let handle = owner.expose(Bytes::from_static(b"forwarded"));
    let handle = postcard::to_allocvec(&handle).unwrap();
    second.send_unexpected(&third_address, 0, handle.into()).unwrap();
    let handle: RegionHandle = drive(&mut [&mut third, &mut second], |_, event| match event {
        Event::Unexpected { body, .. } => Some(postcard::from_bytes(&body).unwrap()),
        _ => None,
    });
    let got = get(&mut third, &mut owner, &handle, 0, 9).unwrap();
    assert_eq!(&*got, b"forwarded");
}

/// A forged token, a number that never was or is no longer a region, a range outside it, and writing what may only
/// be read get an access error, and nothing is written.
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

/// An endpoint sends to itself and reads and writes its own regions.
pub(crate) fn talking_to_oneself(fabric: &Fabric) {
    let [mut one, mut other] = fabric.endpoints();
    let address = one.address().clone();
    one.send_unexpected(&address, 3, Bytes::from_static(b"note"))
        .unwrap();
    drive(&mut [&mut one], |_, event| match event {
        Event::Unexpected { from, tag, body } => {
            assert!(from.address == address && tag == 3 && body == "note");
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

/// A get whose target dies in the middle ends with the target's death, at once.
pub(crate) fn death_ends_a_get(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    let region = target.expose(Bytes::from(vec![1; 64 << 20]));
    let operation = origin
        .get(&region, 0, Buffer::zeroed(64 << 20), Duration::from_secs(3600))
        .unwrap();
    for _ in 0..6 {
        origin.progress();
        target.progress();
    }
    let address = target.address().clone();
    drop(target);
    expect_death(&mut origin, operation, &address);
}

/// A put whose target dies in the middle ends with the target's death, at once.
pub(crate) fn death_ends_a_put(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    let region = target.expose_writable(Buffer::zeroed(64 << 20));
    let operation = origin
        .put(
            &region,
            0,
            Bytes::from(vec![1; 64 << 20]),
            Duration::from_secs(3600),
        )
        .unwrap();
    for _ in 0..6 {
        origin.progress();
        target.progress();
    }
    let address = target.address().clone();
    drop(target);
    expect_death(&mut origin, operation, &address);
}

/// Every receive from a peer that dies ends with its death, before the death itself is told.
pub(crate) fn death_ends_receives_at_once(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    let address = target.address().clone();
    let receives: Vec<_> = (0..10)
        .map(|tag| {
            origin
                .receive_expected(&address, tag, Duration::from_secs(3600))
                .unwrap()
        })
        .collect();
    origin.send_unexpected(&address, 0, Bytes::new()).unwrap();
    drive(&mut [&mut target, &mut origin], |_, event| {
        matches!(event, Event::Unexpected { .. }).then_some(())
    });
    drop(target);
    let mut ended = 0;
    drive(&mut [&mut origin], |_, event| match event {
        Event::Completed { operation, result } => {
            assert!(receives.contains(&operation));
            assert!(matches!(result, Err(OperationError::PeerDied { .. })));
            ended += 1;
            None
        }
        Event::PeerDied { peer, .. } => {
            assert!(peer == address && ended == receives.len());
            Some(())
        }
        Event::Unexpected { .. } => panic!("{event:?}"),
    });
}

/// A target whose origin dies in the middle of transfers both ways goes on serving others.
pub(crate) fn death_of_the_origin_leaves_the_target_well(fabric: &Fabric) {
    let [mut origin, mut target, mut other] = fabric.endpoints();
    let readable = target.expose(Bytes::from(vec![1; 64 << 20]));
    let writable = target.expose_writable(Buffer::zeroed(64 << 20));
    origin.get(&readable, 0, Buffer::zeroed(64 << 20), LONG).unwrap();
    origin
        .put(&writable, 0, Bytes::from(vec![2; 64 << 20]), LONG)
        .unwrap();
    for _ in 0..6 {
        origin.progress();
        target.progress();
    }
    let address = origin.address().clone();
    drop(origin);
    drive(&mut [&mut target], |_, event| match event {
        Event::PeerDied { peer, .. } => {
            assert_eq!(peer, address);
            Some(())
        }
        _ => None,
    });
    assert_eq!(*get(&mut other, &mut target, &readable, 9, 3).unwrap(), [1; 3]);
    put(&mut other, &mut target, &writable, 0, Bytes::from_static(b"ok")).unwrap();
    assert_eq!(&withdrawn(&mut target, &writable)[..2], b"ok");
}

fn expect_death(origin: &mut Endpoint, operation: OperationId, address: &Address) {
    let start = Instant::now();
    let mut ended = false;
    drive(&mut [origin], |_, event| match event {
        Event::Completed {
            operation: its,
            result,
        } => {
            assert!(its == operation && matches!(result, Err(OperationError::PeerDied { .. })));
            ended = true;
            None
        }
        Event::PeerDied { peer, .. } => {
            assert!(peer == *address && ended);
            Some(())
        }
        Event::Unexpected { .. } => panic!("{event:?}"),
    });
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "the death was seen too late"
    );
}

/// An address where nobody listens, and one that no provider has, are errors long before any deadline.
pub(crate) fn nobody_to_connect_to_is_an_error_at_once(fabric: &Fabric) {
    let [mut origin, target] = fabric.endpoints();
    let address = target.address().clone();
    drop(target);
    let receive = origin
        .receive_expected(&address, 0, Duration::from_secs(3600))
        .unwrap();
    expect_death(&mut origin, receive, &address);
    for text in [
        "nowhere://1.2.3.4:5",
        "tcp://not-an-ip-address:5",
        "tcp://127.0.0.1",
    ] {
        let refused = origin.send_unexpected(&text.parse().unwrap(), 0, Bytes::new());
        assert!(matches!(refused, Err(SubmitError::Unreachable { .. })), "{text}");
    }
}

/// Operations with a peer that lives but makes no progress end by their deadline, not much later, and not before.
pub(crate) fn stalled_peers_end_by_the_deadline(fabric: &Fabric) {
    let [mut origin, mut stalled] = fabric.endpoints();
    let timeout = Duration::from_millis(150);
    let readable = stalled.expose(Bytes::from(vec![1; 1 << 20]));
    let writable = stalled.expose_writable(Buffer::zeroed(1 << 20));
    let start = Instant::now();
    let mut open = vec![
        origin.receive_expected(&readable.address, 0, timeout).unwrap(),
        origin
            .get(&readable, 0, Buffer::zeroed(1 << 20), timeout)
            .unwrap(),
        origin
            .put(&writable, 0, Bytes::from(vec![1; 1 << 20]), timeout)
            .unwrap(),
    ];
    while !open.is_empty() {
        origin.wait(LONG);
        origin.progress();
        while let Some(event) = origin.poll_event() {
            match event {
                Event::Completed { operation, result } => {
                    assert!(matches!(result, Err(OperationError::TimedOut { .. })));
                    open.retain(|&other| other != operation);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(start.elapsed() >= timeout && start.elapsed() < LONG / 2);
    // What was given up is forgotten on both sides, and the connection is good for more.
    let later = get(&mut origin, &mut stalled, &readable, 0, 1 << 20).unwrap();
    assert!(*later == [1; 1 << 20]);
}

/// A cancelled operation tells nothing any longer, and the next ones are not disturbed by its bytes.
pub(crate) fn cancelled_operations_end_in_silence(fabric: &Fabric) {
    let [mut origin, mut target] = fabric.endpoints();
    let readable = target.expose(Bytes::from(pattern(8 << 20)));
    let writable = target.expose_writable(Buffer::zeroed(8 << 20));
    for steps in 0..8 {
        let get_operation = origin.get(&readable, 0, Buffer::zeroed(8 << 20), LONG).unwrap();
        let put_operation = origin
            .put(&writable, 0, Bytes::from(vec![steps as u8; 8 << 20]), LONG)
            .unwrap();
        let receive = origin.receive_expected(&readable.address, 0, LONG).unwrap();
        for _ in 0..steps {
            origin.progress();
            target.progress();
        }
        let early: Vec<_> = std::iter::from_fn(|| origin.poll_event()).collect();
        assert!(early.is_empty(), "8 MiB were moved in {steps} steps: {early:?}");
        for operation in [get_operation, put_operation, receive] {
            origin.cancel(operation);
        }
        let got = get(&mut origin, &mut target, &readable, 1000, 5000).unwrap();
        assert!(*got == pattern(8 << 20)[1000..6000]);
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
    // If they had waited for the transfer there would have been none; the buffers between the two hold some MiB.
    assert!(rounds >= 3, "only {rounds} round trips during 64 MiB");
}

/// One peer that reads nothing makes sends to it busy once the limit is reached, while others are served.
pub(crate) fn slow_consumers_hold_up_nobody_else(fabric: &Fabric) {
    let limits = Limits {
        queued_bytes_max: 4 << 20,
        ..Limits::default()
    };
    let mut sender = fabric.endpoint_with(0, limits);
    let [mut slow, mut quick] = fabric.endpoints();
    let slow_address = slow.address().clone();
    let quick_address = quick.address().clone();
    // Connect, then stop driving the slow one.
    sender.send_unexpected(&slow_address, 0, Bytes::new()).unwrap();
    drive(&mut [&mut slow, &mut sender], |_, event| {
        matches!(event, Event::Unexpected { .. }).then_some(())
    });
    let start = Instant::now();
    let mut sent = 0u64;
    loop {
        match sender.send_unexpected(&slow_address, 1, Bytes::from(vec![0; 64 << 10])) {
            Ok(()) => sent += 1,
            Err(SubmitError::Busy { peer, .. }) => {
                assert_eq!(peer, slow_address);
                // Not before the system's own buffers are full too.
                if (0..100).all(|_| sender.progress() == 0 && sender.has_unsent()) {
                    break;
                }
            }
            Err(other) => panic!("{other}"),
        }
        assert!(start.elapsed() < LONG);
    }
    sender.send_unexpected(&quick_address, 9, Bytes::new()).unwrap();
    drive(&mut [&mut quick, &mut sender], |_, event| {
        matches!(event, Event::Unexpected { tag: 9, .. }).then_some(())
    });
    // Nothing was lost: when it reads again all of it comes.
    drive(&mut [&mut slow, &mut sender], |_, event| {
        sent -= u64::from(matches!(event, Event::Unexpected { .. }));
        (sent == 0).then_some(())
    });
}

/// More operations or connections than the limit are refused as busy, and allowed again when there is room.
pub(crate) fn limits_are_busy_errors(fabric: &Fabric) {
    let limits = Limits {
        operations_max: 2,
        connections_max: 1,
        ..Limits::default()
    };
    let mut origin = fabric.endpoint_with(0, limits);
    let [target, other] = fabric.endpoints();
    let address = target.address().clone();
    let first = origin.receive_expected(&address, 0, LONG).unwrap();
    origin.receive_expected(&address, 1, LONG).unwrap();
    let third = origin.receive_expected(&address, 2, LONG);
    assert!(matches!(
        third,
        Err(SubmitError::Busy {
            limit: "operations_max",
            ..
        })
    ));
    origin.cancel(first);
    origin.receive_expected(&address, 2, LONG).unwrap();
    let elsewhere = origin.send_unexpected(other.address(), 0, Bytes::new());
    assert!(matches!(
        elsewhere,
        Err(SubmitError::Busy {
            limit: "connections_max",
            ..
        })
    ));
}

/// Endpoints with another key or of another job are told to nobody, and learn nothing but that they are refused.
pub(crate) fn other_jobs_are_refused(fabric: &Fabric) {
    let mut member = fabric.endpoint(0);
    let address = member.address().clone();
    let other_key = EndpointOptions {
        key: JobKey::from_bytes([3; 32]),
        ..options(1)
    };
    let other_job = EndpointOptions {
        job: JobId([9; 16]),
        ..options(1)
    };
    for (stranger, expected) in [
        (other_key, HandshakeError::Proof),
        (other_job, HandshakeError::Refused),
    ] {
        let mut stranger = (fabric.bind)(stranger);
        stranger
            .send_unexpected(&address, 0, Bytes::from_static(b"let me in"))
            .unwrap();
        let cause = drive(&mut [&mut stranger, &mut member], |index, event| match event {
            Event::PeerDied { cause, .. } if index == 0 => Some(cause),
            other => panic!("{index}: {other:?}"),
        });
        assert!(matches!(cause, PeerDeath::Handshake(error) if error == expected));
        assert!(member.poll_event().is_none());
    }
}

/// A new endpoint on the address of one that is gone is reached by those who talked to the old one.
pub(crate) fn restarted_endpoints_are_found_at_their_address(fabric: &Fabric) {
    let [mut client, mut server] = fabric.endpoints();
    let address = server.address().clone();
    for life in 0..5 {
        client.send_unexpected(&address, life, Bytes::new()).unwrap();
        drive(&mut [&mut server, &mut client], |_, event| {
            matches!(event, Event::Unexpected { tag, .. } if tag == life).then_some(())
        });
        let stale = server.expose(Bytes::from_static(b"of an earlier life"));
        drop(server);
        server = (fabric.bind)(EndpointOptions {
            bind: address.location().parse().unwrap(),
            ..options(1)
        });
        server.expose(Bytes::from_static(b"of a later life!!!"));
        drive(&mut [&mut client], |_, event| {
            matches!(event, Event::PeerDied { .. }).then_some(())
        });
        let refused = get(&mut client, &mut server, &stale, 0, 5);
        assert!(matches!(refused, Err(OperationError::Access { .. })));
    }
}

/// An endpoint that sleeps in `wait` is woken by a message and by a waker, and otherwise sleeps as long as it was
/// told.
pub(crate) fn sleepers_are_woken(fabric: &Fabric) {
    let [mut sleeper, mut other] = fabric.endpoints();
    let address = sleeper.address().clone();

    let start = Instant::now();
    sleeper.progress();
    sleeper.wait(Duration::from_millis(30));
    assert!(start.elapsed() >= Duration::from_millis(29));

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

/// Of many clients that send and read at once, half vanish in the middle; the server tells of every death and serves
/// the others.
pub(crate) fn clients_die_at_random(fabric: &Fabric) {
    const COUNT: usize = 300;
    let mut server = fabric.endpoint(0);
    let address = server.address().clone();
    let content = Bytes::from(pattern(1 << 20));
    let region = server.expose(content.clone());
    let mut clients: Vec<_> = (0..COUNT)
        .map(|rank| Some(fabric.endpoint(rank as u32)))
        .collect();
    for client in clients.iter_mut().flatten() {
        client
            .send_unexpected(&address, 0, Bytes::from(vec![1; 1000]))
            .unwrap();
        client
            .get(&region, 0, Buffer::zeroed(content.len()), LONG)
            .unwrap();
    }
    let mut alive = BTreeSet::new();
    let mut served = 0;
    let start = Instant::now();
    for round in 0.. {
        server.progress();
        while let Some(event) = server.poll_event() {
            match event {
                Event::Unexpected { from, .. } => assert!(alive.insert(from.address.clone())),
                Event::PeerDied { peer, .. } => drop(alive.remove(&peer)),
                Event::Completed { .. } => panic!("{event:?}"),
            }
        }
        for (index, slot) in clients.iter_mut().enumerate() {
            let Some(client) = slot else { continue };
            client.progress();
            while let Some(event) = client.poll_event() {
                match event {
                    Event::Completed { result, .. } => {
                        assert!(matches!(result.unwrap(), Completion::Got(buffer) if *buffer == content));
                        served += index % 2;
                    }
                    other => panic!("{other:?}"),
                }
            }
            // Some have not even connected by then, others have all they wanted.
            if index % 2 == 0 && round >= index / 16 {
                *slot = None;
            }
        }
        if served == COUNT / 2 && alive.len() == COUNT / 2 {
            return;
        }
        assert!(
            start.elapsed() < LONG,
            "{} are alive, {served} served",
            alive.len()
        );
    }
}
