//! Peers that come, go, stall and refuse, and one's own limits.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{
    AccessError, Address, Buffer, Completion, Endpoint, EndpointOptions, Event, HandshakeError, JobKey,
    Limits, OperationError, OperationId, PeerDeath, RegionHandle, SubmitError,
};
use ropewalk_names::JobId;

use super::{Fabric, LONG, drive, get, identity, pattern, put, withdrawn};

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
            Event::PeerDied { address, .. } => {
                assert_eq!(address, client_address);
                Some(())
            }
            _ => None,
        });
    }
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
        Event::PeerDied { address: dead, .. } => {
            assert!(dead == address && ended == receives.len());
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
    // A connection may take more turns than the transfers are given.
    origin.send_unexpected(target.address(), 0, Bytes::new()).unwrap();
    drive(&mut [&mut target, &mut origin], |_, event| {
        matches!(event, Event::Unexpected { .. }).then_some(())
    });
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
        Event::PeerDied { address: dead, .. } => {
            assert_eq!(dead, address);
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
        Event::PeerDied { address: dead, .. } => {
            assert!(dead == *address && ended);
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

/// Operations with a peer that lives but makes no progress end by their deadline, not much later, and not
/// before.
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

/// A peer that gives no sign of life while an operation waits for it, or while it is watched, is taken for dead
/// within the limit; one that has nothing to say but is driven is not.
pub(crate) fn silent_peers_are_found(fabric: &Fabric) {
    let heartbeat = Duration::from_millis(400);
    let limits = Limits {
        heartbeat: Some(heartbeat),
        ..Limits::default()
    };
    let mut origin = fabric.endpoint_with(0, limits);
    let [mut stopped, mut watched, mut driven] = fabric.endpoints();
    for peer in [&mut stopped, &mut watched, &mut driven] {
        origin.send_unexpected(peer.address(), 0, Bytes::new()).unwrap();
        drive(&mut [peer, &mut origin], |_, event| {
            matches!(event, Event::Unexpected { .. }).then_some(())
        });
    }
    let lost = origin.receive_expected(stopped.address(), 1, LONG).unwrap();
    let kept = origin.receive_expected(driven.address(), 1, LONG).unwrap();
    origin.watch(watched.address()).unwrap();
    let start = Instant::now();
    let mut dead = BTreeSet::new();
    while start.elapsed() < heartbeat * 4 {
        origin.progress();
        driven.progress();
        while let Some(event) = origin.poll_event() {
            match event {
                Event::Completed { operation, result } => {
                    assert_eq!(operation, lost);
                    assert!(matches!(
                        result,
                        Err(OperationError::PeerDied {
                            source: PeerDeath::Silent,
                            ..
                        })
                    ));
                }
                Event::PeerDied { address, cause, .. } => {
                    assert!(matches!(cause, PeerDeath::Silent), "{cause:?}");
                    assert!(start.elapsed() > heartbeat / 2);
                    dead.insert(address);
                }
                Event::Unexpected { .. } => panic!("{event:?}"),
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let silent = [stopped.address().clone(), watched.address().clone()];
    assert_eq!(dead, silent.into_iter().collect());
    driven
        .send_expected(origin.address(), 1, Bytes::from_static(b"here"))
        .unwrap();
    drive(&mut [&mut origin, &mut driven], |_, event| {
        matches!(event, Event::Completed { operation, .. } if operation == kept).then_some(())
    });
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

/// Endpoints with another key or of another job are told to nobody, and learn nothing but that they are
/// refused.
pub(crate) fn other_jobs_are_refused(fabric: &Fabric) {
    let mut member = fabric.endpoint(0);
    let address = member.address().clone();
    let other_key = EndpointOptions {
        key: JobKey::from_bytes([3; 32]).key_of(identity(1, 0)),
        ..fabric.options(1)
    };
    let other_job = EndpointOptions {
        job: JobId([9; 16]),
        ..fabric.options(1)
    };
    for (stranger, expected) in [
        (other_key, HandshakeError::Proof),
        (other_job, HandshakeError::Refused),
    ] {
        let mut stranger = fabric.bind(stranger);
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
    if address.location().starts_with("shm/") {
        eprintln!("skipped: libfabric names endpoints of its shm as it likes");
        return;
    }
    for life in 0..5 {
        client.send_unexpected(&address, life, Bytes::new()).unwrap();
        drive(&mut [&mut server, &mut client], |_, event| {
            matches!(event, Event::Unexpected { tag, .. } if tag == life).then_some(())
        });
        let stale = server.expose(Bytes::from_static(b"of an earlier life"));
        drop(server);
        server = fabric.endpoint_at(&address, 1);
        server.expose(Bytes::from_static(b"of a later life!!!"));
        drive(&mut [&mut client], |_, event| {
            matches!(event, Event::PeerDied { .. }).then_some(())
        });
        let refused = get(&mut client, &mut server, &stale, 0, 5);
        assert!(
            matches!(refused, Err(OperationError::Access { .. })),
            "{refused:?}"
        );
    }
}

/// The key to a region of one life of a rank is no key in the next, at the same address and for a region of
/// the same number, length and content: not for reading, not for writing, and not from a peer that knew both
/// lives.
pub(crate) fn keys_of_an_earlier_incarnation_open_nothing(fabric: &Fabric) {
    let [mut client, mut server] = fabric.endpoints();
    let address = server.address().clone();
    if address.location().starts_with("shm/") {
        eprintln!("skipped: libfabric names endpoints of its shm as it likes");
        return;
    }
    let content = || Buffer::zeroed(16);
    let mut earlier: Vec<RegionHandle> = Vec::new();
    for incarnation in 1..4 {
        let handle = server.expose_writable(content());
        for stale in &earlier {
            assert_eq!((stale.region, stale.length), (handle.region, handle.length));
            assert_ne!(stale.token, handle.token);
            let read = get(&mut client, &mut server, stale, 0, 16);
            let written = put(&mut client, &mut server, stale, 0, vec![1; 16].into());
            for refused in [read.map(drop), written] {
                let unknown = matches!(&refused, Err(OperationError::Access { source, .. })
                    if *source == AccessError::Unknown);
                assert!(unknown, "incarnation {incarnation}: {refused:?}");
            }
        }
        let read = get(&mut client, &mut server, &handle, 0, 16).unwrap();
        assert_eq!(*read, *content());
        earlier.push(handle);
        drop(server);
        server = fabric.incarnation_at(&address, 1, incarnation);
        drive(&mut [&mut client], |_, event| {
            matches!(event, Event::PeerDied { .. }).then_some(())
        });
    }
}

/// Of many clients that send and read at once, half vanish in the middle; the server tells of every death and
/// serves the others.
pub(crate) fn clients_die_at_random(fabric: &Fabric) {
    let count = fabric.many;
    let mut server = fabric.endpoint(0);
    let address = server.address().clone();
    let content = Bytes::from(pattern(1 << 20));
    let region = server.expose(content.clone());
    let mut clients: Vec<_> = (0..count)
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
                Event::Unexpected { from, .. } => assert!(alive.insert(from)),
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
        if served == count / 2 && alive.len() == count / 2 {
            return;
        }
        assert!(
            start.elapsed() < LONG,
            "{} are alive, {served} served",
            alive.len()
        );
    }
}
