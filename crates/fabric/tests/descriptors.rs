//! Descriptors are given back, and running out of them is survived. One test, in a process of its own: it
//! counts and limits the descriptors of the whole process.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Buffer, Endpoint, EndpointOptions, Event, Identity, JobKey, Role};
use ropewalk_names::{Incarnation, JobId, Rank};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

fn endpoint(rank: u32) -> Endpoint {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    Endpoint::bind(EndpointOptions::new(
        JobId([1; 16]),
        JobKey::from_bytes([2; 32]),
        identity,
    ))
    .unwrap()
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The processor time that this thread has used.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn receive(server: &mut Endpoint, client: &mut Endpoint) {
    let start = Instant::now();
    loop {
        server.progress();
        client.progress();
        if let Some(Event::Unexpected { .. }) = server.poll_event() {
            return;
        }
        assert!(start.elapsed() < LONG);
    }
}

/// Endpoints dropped at every stage of their lives leave no descriptor behind; a server that can accept
/// nobody for want of descriptors sleeps instead of spinning, keeps its connections, and accepts again when
/// there are some.
#[test]
fn descriptors_are_given_back_and_running_out_is_survived() {
    let mut server = endpoint(0);
    let address = server.address().clone();
    let region = server.expose(Bytes::from(vec![1; 1 << 20]));
    let before = open_descriptors();
    for stage in 0..100 {
        let mut client = endpoint(1);
        client.send_unexpected(&address, 0, Bytes::new()).unwrap();
        client.get(&region, 0, Buffer::zeroed(1 << 20), LONG).unwrap();
        for _ in 0..stage % 10 {
            client.progress();
            server.progress();
        }
    }
    let start = Instant::now();
    while open_descriptors() > before {
        server.wait(Duration::from_millis(10));
        server.progress();
        while server.poll_event().is_some() {}
        assert!(
            start.elapsed() < LONG,
            "{} descriptors are left",
            open_descriptors() - before
        );
    }

    let mut member = endpoint(1);
    member.send_unexpected(&address, 0, Bytes::new()).unwrap();
    receive(&mut server, &mut member);

    let unlimited = getrlimit(Resource::Nofile);
    let limited = Rlimit {
        current: Some(open_descriptors() as u64 + 5),
        ..unlimited
    };
    setrlimit(Resource::Nofile, limited).unwrap();
    let strangers: Vec<_> = std::iter::from_fn(|| TcpStream::connect(address.location()).ok()).collect();
    assert!((1..10).contains(&strangers.len()));
    let (start, processor) = (Instant::now(), processor_time());
    while start.elapsed() < Duration::from_millis(400) {
        server.wait(Duration::from_millis(400));
        server.progress();
    }
    let used = processor_time() - processor;
    setrlimit(Resource::Nofile, unlimited).unwrap();
    assert!(
        used < Duration::from_millis(100),
        "it used {used:?} of 400 ms for nothing"
    );
    member.send_unexpected(&address, 0, Bytes::new()).unwrap();
    receive(&mut server, &mut member);

    let mut late = endpoint(2);
    late.send_unexpected(&address, 0, Bytes::new()).unwrap();
    receive(&mut server, &mut late);
    drop(strangers);
}
