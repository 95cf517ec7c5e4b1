//! Processor time of connections over TCP with and without encryption: `cargo bench -p ropewalk-fabric`. One thread
//! drives both ends, so that each time is the work of both sides together.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::time::Duration;

use ropewalk_fabric::{Buffer, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, Role};
use ropewalk_names::{Incarnation, JobId, Rank};
use rustix::time::{ClockId, clock_gettime};

const CONNECTIONS: usize = 300;
const TRANSFERS: usize = 31;
const TRANSFER_SIZE: usize = 16 << 20;
const LONG: Duration = Duration::from_secs(60);

fn main() {
    for _ in 0..3 {
        for encrypt in [false, true] {
            let connecting = connect(encrypt);
            let rate = TRANSFER_SIZE as f64 / get(encrypt).as_secs_f64();
            println!(
                "encrypt {encrypt:5}: {:6.0} us to connect, {:5.2} GB/s",
                connecting.as_secs_f64() * 1e6,
                rate / 1e9
            );
        }
    }
}

fn endpoint(rank: u32, encrypt: bool) -> Endpoint {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
    options.encrypt = encrypt;
    options.transports.shm = false;
    Endpoint::bind(options).unwrap()
}

/// The median time that it takes until an endpoint without a connection has sent a message and another has it.
fn connect(encrypt: bool) -> Duration {
    let mut called = endpoint(0, encrypt);
    median(CONNECTIONS, || {
        let mut caller = endpoint(1, encrypt);
        let start = used();
        caller
            .send_unexpected(called.address(), 0, b"hello".to_vec())
            .unwrap();
        drive(&mut [&mut caller, &mut called], |event| match event {
            Event::Unexpected { .. } => true,
            // That of the last round.
            Event::PeerDied { .. } => false,
            other => panic!("{other:?}"),
        });
        used() - start
    })
}

/// The median time of one large transfer.
fn get(encrypt: bool) -> Duration {
    let (mut origin, mut target) = (endpoint(0, encrypt), endpoint(1, encrypt));
    let region = target.expose(vec![3; TRANSFER_SIZE].into());
    let mut buffer = Some(Buffer::zeroed(TRANSFER_SIZE));
    median(TRANSFERS, || {
        let start = used();
        origin.get(&region, 0, buffer.take().unwrap(), LONG).unwrap();
        drive(&mut [&mut origin, &mut target], |event| match event {
            Event::Completed {
                result: Ok(Completion::Got(filled)),
                ..
            } => buffer.replace(filled).is_none(),
            other => panic!("{other:?}"),
        });
        used() - start
    })
}

/// Drives all until one has the wanted event.
fn drive(endpoints: &mut [&mut Endpoint], mut is_wanted: impl FnMut(Event) -> bool) {
    loop {
        for endpoint in endpoints.iter_mut() {
            endpoint.progress();
            while let Some(event) = endpoint.poll_event() {
                if is_wanted(event) {
                    return;
                }
            }
        }
    }
}

/// The processor time that this thread has used.
fn used() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn median(count: usize, mut measure: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<_> = (0..count).map(|_| measure()).collect();
    times.sort_unstable();
    times[count / 2]
}
