//! Endpoints at `unix://NAME`, played against one that shares memory with its other peers.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener, UnixStream},
};

use super::*;

fn unix(limits: Limits) -> Endpoint {
    let mut options = EndpointOptions { limits, ..options() };
    options.transports.unix = true;
    Endpoint::bind(options).unwrap()
}

fn sharing() -> Endpoint {
    let mut options = options();
    options.transports.shm = true;
    Endpoint::bind(options).unwrap()
}

/// Messages of any size go both ways, transfers too, without anything that is shared; the end of one is told
/// to the other.
#[test]
fn who_shares_nothing_is_reached_all_the_same() {
    let mut plain = unix(Limits::default());
    let mut other = sharing();
    assert_eq!(plain.address().provider(), "unix");
    let known: Vec<_> = plain
        .providers()
        .iter()
        .filter(|known| known.unavailable.is_none())
        .collect();
    assert!(matches!(&known[..], [known] if known.name == "unix"));
    let address = plain.address().clone();
    let bodies = [0, 1, 5000, 60 << 10];
    for (tag, &size) in bodies.iter().enumerate() {
        let body = Bytes::from(vec![tag as u8; size]);
        other.send_unexpected(&address, tag as u64, body).unwrap();
    }
    let mut received = Vec::new();
    let start = Instant::now();
    while received.len() < 2 * bodies.len() {
        assert!(start.elapsed() < LONG, "{} came", received.len());
        for at in [0, 1] {
            let endpoint = if at == 0 { &mut plain } else { &mut other };
            endpoint.progress();
            while let Some(event) = endpoint.poll_event() {
                let Event::Unexpected { from, tag, body } = event else {
                    panic!("{event:?}");
                };
                assert!(body.len() == bodies[tag as usize] && body.iter().all(|&byte| byte == tag as u8));
                received.push((at, tag));
                assert_eq!(endpoint.provider_of(from), Some("unix"));
                if at == 0 {
                    endpoint.send_unexpected(from, tag, body).unwrap();
                }
            }
        }
    }
    assert_eq!(received.iter().filter(|(at, _)| *at == 0).count(), bodies.len());
    let region = plain.expose(vec![7; 3 << 20].into());
    other.get(&region, 0, Buffer::zeroed(3 << 20), LONG).unwrap();
    let into = loop {
        assert!(start.elapsed() < LONG);
        plain.progress();
        other.progress();
        if let Some(event) = other.poll_event() {
            let Event::Completed {
                result: Ok(Completion::Got(into)),
                ..
            } = event
            else {
                panic!("{event:?}");
            };
            break into;
        }
    };
    assert!(into.iter().all(|&byte| byte == 7));
    other.watch(&address).unwrap();
    drop(plain);
    assert!(matches!(death(&mut other), PeerDeath::Closed));
}

/// A peer that lets nobody in for a while, and whose queue is full, is dialed until there is room.
#[test]
fn full_queues_are_waited_for() {
    let name = format!("full/{}", std::process::id());
    let listening = SocketAddr::from_abstract_name(format!("ropewalk/{name}")).unwrap();
    let listener = UnixListener::bind_addr(&listening).unwrap();
    // Room for one.
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect_addr(&listening).unwrap();
    let mut endpoint = unix(Limits::default());
    let address: Address = format!("unix://{name}").parse().unwrap();
    endpoint.send_unexpected(&address, 0, Bytes::new()).unwrap();
    let tried = 2 * StreamProvider::REDIAL_PAUSES.iter().sum::<Duration>();
    beside(&mut endpoint, || {
        thread::sleep(tried);
        (listener.accept().unwrap(), listener.accept().unwrap())
    });
}

/// One whose process is known to be stopped is waited for too, over one connection.
#[test]
fn stopped_listeners_on_this_host_are_waited_for() {
    let limits = Limits {
        connect_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let mut stopped = unix(Limits::default());
    let mut other = unix(limits);
    let peer = other.peer(&stopped.address().clone()).unwrap();
    other.connect_patiently(peer).unwrap();
    let start = Instant::now();
    drive(&mut other, |other, event| {
        assert!(event.is_none(), "{event:?}");
        let is_over = start.elapsed() > limits.connect_timeout * 10;
        is_over.then(|| assert!(other.is_reached(peer)))
    });
    while other.peer_info(peer).is_none() {
        assert!(start.elapsed() < LONG, "it is not answered");
        stopped.progress();
        other.progress();
        assert!(other.poll_event().is_none());
    }
}
