//! The behaviours, and what they have in common.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_fabric::{
    Address, Buffer, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, Limits, OperationError,
    OperationId, Peer, RegionHandle, Role, Transports, Withdrawn,
};
use ropewalk_names::{Incarnation, JobId, Rank};

pub(crate) mod members;
pub(crate) mod messages;
pub(crate) mod one_sided;
pub(crate) mod peers;

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// Makes endpoints that reach each other in one way.
pub(crate) struct Fabric {
    transports: Transports,
    bulk_checksum: bool,
    encrypt: bool,
}

impl Fabric {
    /// One that is everywhere.
    pub(crate) fn of(transports: Transports) -> Option<Self> {
        Some(Self {
            transports,
            bulk_checksum: false,
            encrypt: false,
        })
    }

    /// One whose data goes with checksums.
    pub(crate) fn checked(transports: Transports) -> Option<Self> {
        Some(Self {
            transports,
            bulk_checksum: true,
            encrypt: false,
        })
    }

    /// One that encrypts.
    pub(crate) fn encrypted(transports: Transports) -> Option<Self> {
        Some(Self {
            transports,
            bulk_checksum: false,
            encrypt: true,
        })
    }

    fn endpoint(&self, rank: u32) -> Endpoint {
        Endpoint::bind(self.options(rank)).unwrap()
    }

    fn endpoints<const N: usize>(&self) -> [Endpoint; N] {
        std::array::from_fn(|rank| self.endpoint(rank as u32))
    }

    fn endpoint_with(&self, rank: u32, limits: Limits) -> Endpoint {
        let options = EndpointOptions {
            limits,
            ..self.options(rank)
        };
        Endpoint::bind(options).unwrap()
    }

    /// An endpoint where one was that is gone.
    fn endpoint_at(&self, address: &Address, rank: u32) -> Endpoint {
        self.incarnation_at(address, rank, 0)
    }

    /// A later life of a rank, where an earlier one was.
    fn incarnation_at(&self, address: &Address, rank: u32, incarnation: u32) -> Endpoint {
        let mut options = self.options_of(rank, incarnation);
        match address.provider() {
            "tcp" => options.bind = address.location().parse().unwrap(),
            "ofi" => {
                // Bytes 2 and 3 of a socket address are its port.
                let (_, name) = address.location().rsplit_once('/').unwrap();
                options
                    .bind
                    .set_port(u16::from_str_radix(&name[4..8], 16).unwrap());
            }
            _ => options.name = Some(address.location().to_owned()),
        }
        Endpoint::bind(options).unwrap()
    }

    fn options(&self, rank: u32) -> EndpointOptions {
        self.options_of(rank, 0)
    }

    fn options_of(&self, rank: u32, incarnation: u32) -> EndpointOptions {
        let identity = identity(rank, incarnation);
        let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
        options.transports = self.transports.clone();
        options.bulk_checksum = self.bulk_checksum;
        options.encrypt = self.encrypt;
        if self.transports.ofi.is_some() {
            // libfabric does not always tell that nobody is there: this does.
            options.limits.connect_timeout = Duration::from_secs(5);
        }
        options
    }

    /// Whether endpoints cannot sleep for long, as libfabric has no descriptor to sleep on.
    fn naps(&self) -> bool {
        self.transports.ofi.as_deref() == Some("shm")
    }

    /// How many endpoints a process has memory for; each takes tens of megabytes at libfabric.
    fn many(&self) -> usize {
        if self.transports.ofi.is_some() { 30 } else { 300 }
    }
}

fn identity(rank: u32, incarnation: u32) -> Identity {
    Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(incarnation),
    }
}

/// A fabric of libfabric's provider of this name; `None`, with a word why, where libfabric does not have it.
#[cfg(feature = "ofi")]
pub(crate) fn ofi(provider: &str) -> Option<Fabric> {
    let transports = Transports {
        ofi: Some(provider.to_owned()),
        ..Transports::default()
    };
    let fabric = Fabric {
        transports,
        bulk_checksum: false,
        encrypt: false,
    };
    match Endpoint::bind(fabric.options(0)) {
        Ok(_) => Some(fabric),
        Err(error @ ropewalk_fabric::BindError::Ofi { .. }) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Drives all until one has the wanted event.
fn drive<T>(endpoints: &mut [&mut Endpoint], mut wanted: impl FnMut(usize, Event) -> Option<T>) -> T {
    drive_known(endpoints, |index, event, _| wanted(index, event))
}

/// Drives all until one has the wanted event, of which it is told from whom it is.
fn drive_known<T>(
    endpoints: &mut [&mut Endpoint],
    mut wanted: impl FnMut(usize, Event, Option<&Peer>) -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.progress();
            while let Some(event) = endpoint.poll_event() {
                let from = match &event {
                    Event::Unexpected { from, .. } => endpoint.peer_info(*from),
                    _ => None,
                };
                if let Some(found) = wanted(index, event, from.map(|from| &**from)) {
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
