//! The behaviours that every provider has, as tests: one function for each, and their common parts. Each crate that
//! has a provider runs them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_fabric::{
    Address, BindError, Buffer, Completion, Endpoint, EndpointOptions, Event, Identity, JobKey, Limits,
    OperationError, OperationId, Peer, RegionHandle, Role, Transports, Withdrawn,
};
use ropewalk_names::{Incarnation, JobId, Rank};

pub(crate) mod members;
pub(crate) mod messages;
pub(crate) mod one_sided;
pub(crate) mod peers;

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// Runs every behaviour on these fabrics, if they are there.
macro_rules! conformance {
    ($($name:ident: $expression:expr,)+) => {
        $(
            mod $name {
                super::behaviours!($expression);
            }
        )+
    };
}

macro_rules! behaviours {
    ($fabric:expr) => {
        super::behaviours!($fabric, [
            members::nobody_poses_as_another,
            members::the_fenced_stay_out,
            messages::all_endpoints_of_a_process_talk_to_each_other,
            messages::expected_messages_go_to_their_receive,
            messages::messages_arrive_in_order,
            messages::messages_of_every_size_arrive,
            messages::sleepers_are_woken,
            messages::talking_to_oneself,
            one_sided::allocated_memory_is_transferred,
            one_sided::cancelled_operations_end_in_silence,
            one_sided::handles_can_be_forwarded,
            one_sided::handles_that_grant_nothing_are_refused,
            one_sided::large_transfers_let_small_messages_pass,
            one_sided::one_sided_operations_take_offsets,
            one_sided::random_transfers_move_the_right_bytes,
            one_sided::withdrawal_ends_access,
            peers::clients_die_at_random,
            peers::connections_come_and_go,
            peers::death_ends_a_get,
            peers::death_ends_a_put,
            peers::death_ends_receives_at_once,
            peers::death_of_the_origin_leaves_the_target_well,
            peers::limits_are_busy_errors,
            peers::nobody_to_connect_to_is_an_error_at_once,
            peers::other_jobs_are_refused,
            peers::restarted_endpoints_are_found_at_their_address,
            peers::keys_of_an_earlier_incarnation_open_nothing,
            peers::silent_peers_are_found,
            peers::slow_consumers_hold_up_nobody_else,
            peers::stalled_peers_end_by_the_deadline,
        ]);
    };
    ($fabric:expr, [$($group:ident::$behaviour:ident),+ $(,)?]) => {
        $(
            #[test]
            fn $behaviour() {
                if let Some(fabric) = $fabric {
                    super::suite::$group::$behaviour(&fabric);
                }
            }
        )+
    };
}

pub(crate) use {behaviours, conformance};

/// Makes endpoints that reach each other in one way.
pub(crate) struct Fabric {
    pub(crate) bind: fn(EndpointOptions) -> Result<Endpoint, BindError>,
    pub(crate) transports: Transports,
    pub(crate) bulk_checksum: bool,
    pub(crate) encrypt: bool,
    pub(crate) connect_timeout: Duration,
    /// True if endpoints cannot sleep for long, as there is no descriptor to sleep on.
    pub(crate) naps: bool,
    /// How many endpoints a process has memory for.
    pub(crate) many: usize,
}

impl Fabric {
    /// Of endpoints that `bind` makes, which sleep and are small.
    pub(crate) fn new(
        bind: fn(EndpointOptions) -> Result<Endpoint, BindError>,
        transports: Transports,
    ) -> Self {
        Self {
            bind,
            transports,
            bulk_checksum: false,
            encrypt: false,
            connect_timeout: Limits::default().connect_timeout,
            naps: false,
            many: 300,
        }
    }

    fn bind(&self, options: EndpointOptions) -> Endpoint {
        (self.bind)(options).unwrap()
    }

    fn endpoint(&self, rank: u32) -> Endpoint {
        self.bind(self.options(rank))
    }

    fn endpoints<const N: usize>(&self) -> [Endpoint; N] {
        std::array::from_fn(|rank| self.endpoint(rank as u32))
    }

    fn endpoint_with(&self, rank: u32, limits: Limits) -> Endpoint {
        let options = EndpointOptions {
            limits,
            ..self.options(rank)
        };
        self.bind(options)
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
        self.bind(options)
    }

    pub(crate) fn options(&self, rank: u32) -> EndpointOptions {
        self.options_of(rank, 0)
    }

    fn options_of(&self, rank: u32, incarnation: u32) -> EndpointOptions {
        let identity = identity(rank, incarnation);
        let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
        options.transports = self.transports.clone();
        options.bulk_checksum = self.bulk_checksum;
        options.encrypt = self.encrypt;
        options.limits.connect_timeout = self.connect_timeout;
        options
    }
}

fn identity(rank: u32, incarnation: u32) -> Identity {
    Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(incarnation),
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
