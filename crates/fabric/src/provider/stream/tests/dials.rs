//! Connections that are made, dropped and made anew.

use super::*;

/// A listener that never answers is given up in time, and named silent.
#[test]
fn silent_listeners_are_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut endpoint = endpoint(Limits {
        connect_timeout: Duration::from_millis(100),
        ..Limits::default()
    });
    endpoint
        .send_unexpected(&address_of(&listener), 0, Bytes::new())
        .unwrap();
    assert!(matches!(
        death(&mut endpoint),
        PeerDeath::Handshake(HandshakeError::Silent)
    ));
}

/// A listener that is known to be stopped is waited for over the one connection that its system has taken,
/// and hears all when it goes on.
#[test]
fn stopped_listeners_are_waited_for() {
    let limits = Limits {
        connect_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut endpoint = endpoint(limits);
    let peer = endpoint.peer(&address_of(&listener)).unwrap();
    endpoint.connect_patiently(peer).unwrap();
    assert!(!endpoint.is_reached(peer));
    endpoint
        .send_unexpected(peer, 6, Bytes::from_static(b"patient"))
        .unwrap();
    let start = Instant::now();
    drive(&mut endpoint, |endpoint, event| {
        assert!(event.is_none(), "{event:?}");
        let is_over = start.elapsed() > limits.connect_timeout * 10;
        is_over.then(|| assert!(endpoint.is_reached(peer) && endpoint.next_deadline().is_none()))
    });
    let (bytes, stream) = beside(&mut endpoint, || {
        let mut stream = accept_as_member(&listener);
        let mut bytes = vec![0; HEADER_SIZE + 7];
        stream.read_exact(&mut bytes).unwrap();
        (bytes, stream)
    });
    assert_eq!(bytes, frame(Kind::Unexpected, 6, b"patient"));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "another connection was made");
    drop((listener, stream));
    assert!(matches!(death(&mut endpoint), PeerDeath::Closed));
    assert!(!endpoint.is_reached(peer));
}

/// That its process ends is told at once, as of any other.
#[test]
fn stopped_listeners_that_end_are_missed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut endpoint = endpoint(Limits {
        connect_timeout: Duration::from_millis(100),
        ..Limits::default()
    });
    let peer = endpoint.peer(&address_of(&listener)).unwrap();
    endpoint.connect_patiently(peer).unwrap();
    let start = Instant::now();
    drive(&mut endpoint, |endpoint, event| {
        assert!(event.is_none(), "{event:?}");
        (endpoint.is_reached(peer) && start.elapsed() > Duration::from_millis(300)).then_some(())
    });
    drop(listener);
    let cause = death(&mut endpoint);
    let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    assert!(
        matches!(&cause, PeerDeath::Io(error) if is_refused(error)),
        "{cause:?}"
    );
}

/// A peer that drops the first connections in their handshake, as one may that was stalled, is reached by a
/// later one and nothing is lost; one that always does is given up.
#[test]
fn dropped_handshakes_are_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = address_of(&listener);
    let mut endpoint = endpoint(Limits::default());
    endpoint
        .send_unexpected(&address, 6, Bytes::from_static(b"patient"))
        .unwrap();
    let received = beside(&mut endpoint, || {
        for _ in 0..StreamProvider::REDIAL_PAUSES.len() {
            drop(listener.accept().unwrap());
        }
        let mut stream = accept_as_member(&listener);
        let mut bytes = vec![0; HEADER_SIZE + 7];
        stream.read_exact(&mut bytes).unwrap();
        (bytes, stream)
    });
    assert_eq!(received.0, frame(Kind::Unexpected, 6, b"patient"));
    drop(received);
    assert!(matches!(death(&mut endpoint), PeerDeath::Closed));

    endpoint.send_unexpected(&address, 6, Bytes::new()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..=StreamProvider::REDIAL_PAUSES.len() {
                drop(listener.accept().unwrap());
            }
        });
        let cause = death(&mut endpoint);
        assert!(
            matches!(
                &cause,
                PeerDeath::Handshake(HandshakeError::Refused) | PeerDeath::Io(_)
            ),
            "{cause:?}"
        );
    });
}

/// Messages and transfers that wait for a connection which cannot be made go over the one that the peer made
/// meanwhile, the messages in order.
#[test]
fn failed_dials_hand_over_to_the_peers_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = address_of(&listener);
    let mut endpoint = endpoint(Limits {
        connect_timeout: LONG,
        ..Limits::default()
    });
    let region = RegionHandle {
        address: address.clone(),
        region: 0,
        token: 0,
        length: 3,
        writable: false,
    };
    for tag in 0..2 {
        endpoint
            .send_unexpected(&address, tag, Bytes::from_static(b"word"))
            .unwrap();
    }
    let get = endpoint.get(&region, 0, Buffer::zeroed(3), LONG).unwrap();
    let own = endpoint.address().clone();
    let mut member = beside(&mut endpoint, || dial_as(address, &own));
    greet(&mut member, &mut endpoint);
    // Its other connection, which it never answered, ends only now.
    drop(listener.accept().unwrap());
    let expected = [
        frame(Kind::Unexpected, 0, b"word"),
        frame(Kind::Unexpected, 1, b"word"),
    ]
    .concat();
    let mut received = vec![0; expected.len() + HEADER_SIZE + ACCESS_SIZE];
    beside(&mut endpoint, || member.read_exact(&mut received).unwrap());
    assert_eq!(received[..expected.len()], expected);
    member
        .write_all(&frame(Kind::GetData, get.tag(), b"got"))
        .unwrap();
    let result = drive(&mut endpoint, |_, event| match event {
        Some(Event::Completed { result, .. }) => Some(result),
        other => {
            assert!(other.is_none(), "{other:?}");
            None
        }
    });
    assert!(matches!(result, Ok(Completion::Got(buffer)) if *buffer == *b"got"));
}

/// When a peer connects anew, what it had before is dead: the endpoint tells so, answers over the new
/// connection, and does not miss the old one when its end is seen.
#[test]
fn later_connections_of_a_peer_replace_earlier_ones() {
    let mut endpoint = endpoint(Limits::default());
    let mut stale = dial_in_background(&mut endpoint);
    greet(&mut stale, &mut endpoint);
    let address = endpoint.address().clone();
    let mut fresh = thread::scope(|scope| {
        let fresh = scope.spawn(|| dial_as_member(&address));
        assert!(matches!(death(&mut endpoint), PeerDeath::Closed));
        fresh.join().unwrap()
    });
    assert!(is_dropped(stale));
    endpoint
        .send_unexpected(&made_up(), 0, Bytes::from_static(b"answer"))
        .unwrap();
    let mut answer = vec![0; HEADER_SIZE + 6];
    beside(&mut endpoint, || fresh.read_exact(&mut answer).unwrap());
    assert_eq!(answer, frame(Kind::Unexpected, 0, b"answer"));
    greet(&mut fresh, &mut endpoint);
}
