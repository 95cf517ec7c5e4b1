//! Peers of another version of the protocol.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use ropewalk_rpc::CallError;

use crate::{Null, call, engine, finish};

/// Where the version stands in a greeting: behind the magic, in two bytes.
const VERSION_AT: usize = 8;

/// What follows a greeting; of whatever it may be a proof in that version.
const PROOF_SIZE: usize = 32;

/// A target that answers in another version ends the call at once, and the error says which version it speaks.
#[test]
fn version_mismatch_of_the_target_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut greeting = [0; 256];
        let length = stream.read(&mut greeting).unwrap() + PROOF_SIZE;
        greeting[VERSION_AT..VERSION_AT + 2].copy_from_slice(&[0x39, 0x30]);
        stream.write_all(&greeting[..length]).unwrap();
        // The origin is the one that closes.
        let _ = stream.read(&mut [0]);
    });
    let mut origin = engine(0);
    let call = origin
        .call::<Null>(&address.parse().unwrap(), &(), crate::LONG)
        .unwrap();
    match finish(&mut [&mut origin], call) {
        Err(CallError::PeerDied { source, .. }) => {
            let mut causes =
                std::iter::successors(Some(&source as &dyn std::error::Error), |error| error.source());
            assert!(
                causes.any(|cause| cause.to_string().contains("version 12345")),
                "{source:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    other.join().unwrap();
}

/// An origin that greets in another version is dropped without an answer, and others are served.
#[test]
fn version_mismatch_of_an_origin_is_dropped() {
    let (mut origin, mut target) = (engine(0), engine(1));
    let mut stranger = TcpStream::connect(target.address().location()).unwrap();
    stranger.write_all(b"ropewalk\x39\x30").unwrap();
    stranger.write_all(&[0; 100]).unwrap();
    let stranger = thread::spawn(move || {
        let mut answer = Vec::new();
        // It may be a reset, since the target does not read on.
        let _ = stranger.read_to_end(&mut answer);
        answer
    });
    while !stranger.is_finished() {
        call(&mut origin, &mut target).unwrap();
    }
    assert_eq!(stranger.join().unwrap(), b"");
    call(&mut origin, &mut target).unwrap();
}
