//! Those who connect without being a member.

use super::*;
use crate::handshake::VERSION;

/// A web browser and garbage are dropped at once, without an answer, and a member talks on meanwhile.
#[test]
fn strangers_that_speak_are_dropped_at_once() {
    let mut endpoint = endpoint(Limits {
        handshake_timeout: Duration::from_secs(3600),
        ..Limits::default()
    });
    let address = endpoint.address().clone();
    let mut member = dial_in_background(&mut endpoint);
    for words in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0xff; 5000],
        [&b"ropewalk"[..], &VERSION.to_le_bytes(), &[0xff; 300]].concat(),
    ] {
        let dropped = beside(&mut endpoint, || {
            let mut stream = dial(&address);
            // It may be closed before all of it is written.
            let _ = stream.write_all(&words);
            is_dropped(stream)
        });
        assert!(dropped);
        member
            .write_all(&frame(Kind::Unexpected, 5, b"still here"))
            .unwrap();
        drive(&mut endpoint, |_, event| match event {
            Some(Event::Unexpected { body, .. }) => {
                assert_eq!(body, "still here");
                Some(())
            }
            other => {
                assert!(other.is_none(), "{other:?}");
                None
            }
        });
    }
}

/// A stranger that says nothing, and one that says what is right but slowly, are dropped when their time is
/// over.
#[test]
fn strangers_that_are_silent_are_dropped_in_time() {
    let timeout = Duration::from_millis(200);
    let mut endpoint = endpoint(Limits {
        handshake_timeout: timeout,
        ..Limits::default()
    });
    let address = endpoint.address().clone();
    let elapsed = beside(&mut endpoint, || {
        let start = Instant::now();
        assert!(is_dropped(dial(&address)));
        start.elapsed()
    });
    assert!(elapsed >= timeout && elapsed < LONG / 2);
    beside(&mut endpoint, || {
        let mut stream = dial(&address);
        let start = Instant::now();
        for byte in b"ropewalk".iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(30));
            assert!(start.elapsed() < LONG);
        }
    });
}

/// A flood of silent strangers, more than there is room for, keeps no member out.
#[test]
fn floods_of_strangers_keep_nobody_out() {
    let mut endpoint = endpoint(Limits {
        handshake_timeout: Duration::from_secs(3600),
        strangers_max: 8,
        connections_max: 16,
        ..Limits::default()
    });
    let address = endpoint.address().clone();
    let strangers: Vec<_> = (0..40)
        .map(|_| beside(&mut endpoint, || dial(&address)))
        .collect();
    let mut member = dial_in_background(&mut endpoint);
    member.write_all(&frame(Kind::Unexpected, 1, b"in")).unwrap();
    drive(&mut endpoint, |_, event| {
        matches!(event, Some(Event::Unexpected { .. })).then_some(())
    });
    drop(strangers);
}

/// A flood of strangers that know the job's id, but not its key, keeps no member out either.
#[test]
fn floods_of_greeted_strangers_keep_nobody_out() {
    let mut endpoint = endpoint(Limits {
        handshake_timeout: Duration::from_secs(3600),
        strangers_max: 8,
        connections_max: 16,
        ..Limits::default()
    });
    let address = endpoint.address().clone();
    let strangers: Vec<_> = (0..40)
        .map(|number| {
            beside(&mut endpoint, || {
                let mut stranger = dial(&address);
                if number % 2 == 0 {
                    let itself = introduction(made_up());
                    let (_, greeting) = Handshake::initiate(itself, address.clone(), [number; 32]);
                    stranger.write_all(&greeting).unwrap();
                    stranger.read_exact(&mut [0]).unwrap();
                }
                stranger
            })
        })
        .collect();
    let mut member = Endpoint::bind(options()).unwrap();
    member
        .send_unexpected(&address, 0, Bytes::from_static(b"in"))
        .unwrap();
    drive(&mut endpoint, |_, event| {
        member.progress();
        let lost = member.poll_event();
        assert!(lost.is_none(), "{lost:?}");
        matches!(event, Some(Event::Unexpected { .. })).then_some(())
    });
    drop(strangers);
}

/// Who greets in another version is told this one's, and dropped; nothing else is looked at.
#[test]
fn peers_of_another_version_are_told() {
    let mut endpoint = endpoint(Limits::default());
    let address = endpoint.address().clone();
    for length in [10, 300] {
        let answer = beside(&mut endpoint, || {
            let mut stream = dial(&address);
            let mut greeting = [0xff; 300];
            greeting[..8].copy_from_slice(b"ropewalk");
            stream.write_all(&greeting[..length]).unwrap();
            let mut answer = Vec::new();
            // What comes after it may be a reset, since not all was read.
            let _ = stream.read_to_end(&mut answer);
            answer
        });
        assert_eq!(answer, [&b"ropewalk"[..], &VERSION.to_le_bytes()].concat());
    }
}

/// A target of another version that drops us is told as such, not as one that refused.
#[test]
fn the_version_of_a_target_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut endpoint = endpoint(Limits::default());
    endpoint.connect(&address_of(&listener)).unwrap();
    let (cause, ()) = thread::scope(|scope| {
        let target = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut version = [0; 10];
            stream.read_exact(&mut version).unwrap();
            version[8..].copy_from_slice(&12345_u16.to_le_bytes());
            stream.write_all(&version).unwrap();
        });
        (death(&mut endpoint), target.join().unwrap())
    });
    let expected = HandshakeError::Version { version: 12345 };
    assert!(
        matches!(&cause, PeerDeath::Handshake(error) if *error == expected),
        "{cause:?}"
    );
}

/// Many who connect at once, as when a job starts, all prove themselves at their first attempt, although there is room
/// for few of them at a time.
#[test]
fn crowds_are_let_in() {
    let mut target = endpoint(Limits {
        strangers_max: 4,
        ..Limits::default()
    });
    let address = target.address().clone();
    beside(&mut target, || {
        let address = &address;
        thread::scope(|scope| {
            let members: Vec<_> = (1..=40)
                .map(|port| {
                    let itself: Address = format!("tcp://127.0.0.9:{port}").parse().unwrap();
                    scope.spawn(move || dial_as(itself, address))
                })
                .collect();
            // All stay until all are in.
            members
                .into_iter()
                .map(|member| member.join().unwrap())
                .collect::<Vec<_>>()
        })
    });
}
