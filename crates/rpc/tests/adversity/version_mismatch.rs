//! Peers of another version of the protocol.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    thread,
};

use ropewalk_rpc::{CallError, Transports};

use crate::{
    Null, call, engine, finish,
    settings::{transports, waiting},
};

/// Where the version stands in a greeting: behind the magic, in two bytes.
const VERSION_AT: usize = 8;

/// The bytes that follow a greeting: a proof, of whatever that may be in that version.
const PROOF_SIZE: usize = 32;

/// The stream that a stranger speaks over: TCP, or the UNIX socket by which shared memory is offered.
trait Stream: Read + Write + Send + 'static {}

impl<S: Read + Write + Send + 'static> Stream for S {}

crate::on_every_transport! {
    without_ofi:
    version_mismatch_of_the_target_is_told,
    version_mismatch_of_an_origin_is_dropped,
}

/// A target that answers in another version ends the call at once, and the error says which version it speaks.
fn version_mismatch_of_the_target_is_told() {
    if transports().tcp {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        call_another_version(&address, move || listener.accept().unwrap().0);
    } else {
        // Two of these may run at once.
        let name = format!("version-mismatch-{}-{:?}", std::process::id(), waiting());
        let listener = UnixListener::bind_addr(&abstract_address(&name)).unwrap();
        call_another_version(&format!("shm://{name}"), move || listener.accept().unwrap().0);
    }
}

fn call_another_version<S: Stream>(address: &str, accept: impl FnOnce() -> S + Send + 'static) {
    let other = thread::spawn(move || {
        let mut stream = accept();
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

/// An origin that greets in another version is told the target's and dropped, and others are served.
fn version_mismatch_of_an_origin_is_dropped() {
    let (mut origin, mut target) = (engine(0), engine(1));
    let location = target.address().location().to_owned();
    let mut stranger: Box<dyn Stream> = match transports() {
        Transports { shm: false, .. } => Box::new(TcpStream::connect(&location).unwrap()),
        _ => Box::new(UnixStream::connect_addr(&abstract_address(&location)).unwrap()),
    };
    stranger.write_all(b"ropewalk\x39\x30").unwrap();
    // It may be dropped already.
    let _ = stranger.write_all(&[0; 100]);
    let stranger = thread::spawn(move || {
        let mut answer = Vec::new();
        // It may be a reset, since the target does not read on.
        let _ = stranger.read_to_end(&mut answer);
        answer
    });
    while !stranger.is_finished() {
        call(&mut origin, &mut target).unwrap();
    }
    let answer = stranger.join().unwrap();
    assert_eq!(
        (answer.len(), &answer[..VERSION_AT]),
        (VERSION_AT + 2, &b"ropewalk"[..])
    );
    call(&mut origin, &mut target).unwrap();
}

/// Where an endpoint listens for peers of its host.
fn abstract_address(location: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(format!("ropewalk/{location}")).unwrap()
}
