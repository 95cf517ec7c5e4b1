//! Data that goes with checksums and comes wrong.

use super::*;

/// Data that was asked for with checksums and comes with a flipped bit, or without its checksum, ends the get with
/// the reason: the buffer is never handed out. Right data completes it.
#[test]
fn wrong_data_of_a_checked_get_ends_it() {
    const LENGTH: usize = 100_000;
    let [right, wrong, unchecked] = [None, Some(true), Some(false)].map(|choice| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut endpoint = Endpoint::bind(EndpointOptions {
            bulk_checksum: true,
            ..options()
        })
        .unwrap();
        let region = RegionHandle {
            address: address_of(&listener),
            region: 0,
            token: 0,
            length: LENGTH as u64,
            writable: false,
        };
        endpoint.get(&region, 0, Buffer::zeroed(LENGTH), LONG).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = accept_as_member(&listener);
                let mut request = [0; HEADER_SIZE + ACCESS_SIZE];
                stream.read_exact(&mut request).unwrap();
                assert_eq!(request[4..8], [Kind::Get as u8, 0, 1, 0]);
                let header = Header {
                    checked: choice != Some(false),
                    ..Header::new(
                        Kind::GetData,
                        u64::from_le_bytes(request[8..16].try_into().unwrap()),
                    )
                };
                let mut data = vec![7; LENGTH];
                let checksum = header.encode_data_checksum(&data).map_or(vec![], Vec::from);
                if choice == Some(true) {
                    data[LENGTH / 2] ^= 1;
                }
                let answer = [&header.encode(&data)[..], &checksum, &data].concat();
                // It is closed in the middle if the endpoint sees at once what it is.
                let _ = stream.write_all(&answer);
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let result = drive(&mut endpoint, |_, event| match event {
                Some(Event::Completed { result, .. }) => Some(result),
                _ => None,
            });
            drop(endpoint);
            result
        })
    });
    assert!(matches!(right, Ok(Completion::Got(buffer)) if *buffer == [7; LENGTH]));
    let reason = |result| match result {
        Err(OperationError::PeerDied {
            source: PeerDeath::Protocol(error),
            ..
        }) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(reason(wrong), FrameError::Checksum { .. }));
    assert_eq!(reason(unchecked), FrameError::Unsolicited);
}

/// A put's origin that has the option on has its data checked by a target that has it off: a flipped bit on the way
/// ends the connection, and the put is not confirmed.
#[test]
fn wrong_data_of_a_checked_put_is_found() {
    let mut endpoint = endpoint(Limits::default());
    let region = endpoint.expose_writable(Buffer::zeroed(1000));
    let access = Access {
        region: region.region,
        token: region.token,
        offset: 0,
        length: 1000,
    };
    let header = Header {
        checked: true,
        ..Header::new(Kind::PutData, 1)
    };
    let mut data = [7; 1000];
    let checksum = header.encode_data_checksum(&data).unwrap();
    data[999] ^= 0x80;
    let mut member = dial_in_background(&mut endpoint);
    let put = frame(Kind::Put, 1, &access.encode());
    member
        .write_all(&[&put, &header.encode(&data)[..], &checksum, &data].concat())
        .unwrap();
    let cause = death(&mut endpoint);
    assert!(
        matches!(cause, PeerDeath::Protocol(FrameError::Checksum { .. })),
        "{cause:?}"
    );
    // Not even a `Done`.
    assert!(is_dropped(member));
}
