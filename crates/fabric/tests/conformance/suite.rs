//! The behaviours, and what they have in common.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_fabric::{
    Buffer, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, Limits, OperationError,
    OperationId, RegionHandle, Role, Withdrawn,
};
use ropewalk_group::{Incarnation, JobId, Rank};

pub(crate) mod messages;
pub(crate) mod one_sided;
pub(crate) mod peers;

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// Makes endpoints of one provider.
pub(crate) struct Fabric {
    bind: fn(EndpointOptions) -> Endpoint,
}

impl Fabric {
    pub(crate) fn new(bind: fn(EndpointOptions) -> Endpoint) -> Self {
        Self { bind }
    }

    fn endpoint(&self, rank: u32) -> Endpoint {
        (self.bind)(options(rank))
    }

    fn endpoints<const N: usize>(&self) -> [Endpoint; N] {
        std::array::from_fn(|rank| self.endpoint(rank as u32))
    }

    fn endpoint_with(&self, rank: u32, limits: Limits) -> Endpoint {
        (self.bind)(EndpointOptions {
            limits,
            ..options(rank)
        })
    }
}

fn options(rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity)
}

/// Drives all until the first has the wanted event; what else happens there is an error.
fn drive<T>(endpoints: &mut [&mut Endpoint], mut wanted: impl FnMut(usize, Event) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.progress();
            while let Some(event) = endpoint.poll_event() {
                if let Some(found) = wanted(index, event) {
                    return found;
                }
            }
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
    }
}

/// Drives both until the first has completed the operation.
fn complete(
    origin: &mut Endpoint,
    target: &mut Endpoint,
    wanted: OperationId,
) -> Result<Completion, OperationError> {
    drive(&mut [origin, target], |index, event| match event {
        Event::Completed { operation, result } if index == 0 && operation == wanted => Some(result),
        _ => None,
    })
}

fn get(
    origin: &mut Endpoint,
    target: &mut Endpoint,
    region: &RegionHandle,
    offset: u64,
    length: usize,
) -> Result<Buffer, OperationError> {
    let operation = origin.get(region, offset, Buffer::zeroed(length), LONG).unwrap();
    complete(origin, target, operation).map(|completion| match completion {
        Completion::Got(buffer) => buffer,
        other => panic!("expected a filled buffer, got {other:?}"),
    })
}

fn put(
    origin: &mut Endpoint,
    target: &mut Endpoint,
    region: &RegionHandle,
    offset: u64,
    bytes: Bytes,
) -> Result<(), OperationError> {
    let operation = origin.put(region, offset, bytes, LONG).unwrap();
    complete(origin, target, operation).map(|completion| match completion {
        Completion::Put => {}
        other => panic!("expected the end of a put, got {other:?}"),
    })
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn withdrawn(endpoint: &mut Endpoint, handle: &RegionHandle) -> Vec<u8> {
    match endpoint.withdraw(handle) {
        Some(Withdrawn::Writable(buffer)) => buffer.to_vec(),
        Some(Withdrawn::Immutable(bytes)) => bytes.to_vec(),
        None => panic!("the region was not exposed"),
    }
}
