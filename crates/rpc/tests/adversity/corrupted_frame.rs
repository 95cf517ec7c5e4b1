//! Bytes on a connection that its two ends did not put there.

use std::{net::SocketAddr, os::fd::OwnedFd};

use ropewalk_rpc::{Address, CallError, Engine, PeerDeath};
use rustix::{
    net::{SocketAddrUnix, getpeername},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

use crate::{Hang, LONG, call, drive, engine};

crate::on_every_transport! { without_ofi: corrupted_frames_end_the_calls_and_no_more, }

/// Garbage in the middle of a connection ends it and every call over it, at both ends, with the reason at the end
/// that saw it; the next call goes over a new connection. What libfabric connects is not ours to write to.
fn corrupted_frames_end_the_calls_and_no_more() {
    let (mut origin, mut target) = (engine(0), engine(1));
    let address = target.address().clone();
    call(&mut origin, &mut target).unwrap();
    let mut hanging: Vec<_> = (0..10)
        .map(|_| origin.call::<Hang>(&address, &(), LONG).unwrap())
        .collect();
    // Whatever has to be said before the garbage is said.
    call(&mut origin, &mut target).unwrap();
    let wire = connection_to(&address);
    assert_eq!(rustix::io::write(&wire, &[0xa5; 64]).unwrap(), 64);
    for hanging in &mut hanging {
        let ended = drive(&mut [&mut origin, &mut target], |_| hanging.try_take());
        assert!(matches!(ended, Err(CallError::PeerDied { .. })), "{ended:?}");
    }
    let lost = drive(
        &mut [&mut origin, &mut target],
        |engines: &mut [&mut Engine]| engines[1].poll_lost_peer(),
    );
    assert!(matches!(lost.cause, PeerDeath::Protocol(_)), "{lost:?}");
    assert_eq!(lost.address, *origin.address());
    drop(wire);
    call(&mut origin, &mut target).unwrap();
}

/// The socket that this process has connected to the address.
fn connection_to(address: &Address) -> OwnedFd {
    let myself = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let own_descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let sockets = own_descriptors.filter_map(|entry| {
        let number = entry.unwrap().file_name().to_str()?.parse().ok()?;
        pidfd_getfd(&myself, number, PidfdGetfdFlags::empty()).ok()
    });
    let name = format!("ropewalk/{}", address.location());
    let mut connected = sockets.filter(|socket| {
        let Ok(Some(peer)) = getpeername(socket) else {
            return false;
        };
        match SocketAddrUnix::try_from(peer.clone()) {
            Ok(unix) => unix.abstract_name() == Some(name.as_bytes()),
            Err(_) => SocketAddr::try_from(peer).is_ok_and(|peer| peer.to_string() == address.location()),
        }
    });
    connected.next().expect("there is a connection")
}
