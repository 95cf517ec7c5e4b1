//! Those who connect without being a member.

use super::*;

/// A web browser, garbage and a greeting in another version are dropped at once, without an answer, and a
/// member talks on meanwhile.
#[test]
fn strangers_that_speak_are_dropped_at_once() {
    let mut endpoint = endpoint(Limits {
        handshake_timeout: Duration::from_secs(3600),
        ..Limits::default()
    });
    let address = endpoint.address().clone();
    let mut member = dial_in_background(&mut endpoint);
    let itself = introduction(made_up());
    let (_, mut other_version) = Handshake::initiate(itself, address.clone(), [3; 32]);
    other_version[8] += 1;
    for words in [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0xff; 5000],
        b"ropewalk".iter().copied().chain([0xff; 300]).collect(),
        other_version,
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
