//! The behaviour of calls, notifications and bulk handles, between engines in one process and between
//! threads.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod async_handlers;
mod batches;
mod bulk;
mod bulk_ends;
mod bulk_pipelines;
mod bulk_pushes;
mod bulk_ranges;
mod calls;
mod data;
mod drivers;
mod driving;
mod ends;
mod every_transport;
mod handles;
mod hedged;
mod limits;
mod listed;
mod observing;
mod once;
mod oneself;
mod oneself_bulk;
mod overflow;
mod processes;
mod settings;

use std::{
    net::Ipv4Addr,
    process,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{
    Address, Buffer, BulkHandle, CallError, EndpointOptions, Engine, Fault, Identity, JobKey, Procedure,
    RegionHandle, Role,
};
use serde::{Deserialize, Serialize};

use every_transport::{each_over, on_every_transport, spinning_and_sleeping};
use settings::{Waiting, sleep, transports, waiting};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;

macro_rules! procedures {
    ($($name:ident($input:ty) -> $output:ty;)+) => {
        $(
            struct $name;

            impl Procedure for $name {
                const NAME: &'static str = concat!("test.", stringify!($name));
                type Input = $input;
                type Output = $output;
            }
        )+
    };
}

procedures! {
    Null(()) -> ();
    Describe(Survey) -> Survey;
    Echo(Vec<u8>) -> Vec<u8>;
    Count(u64) -> ();
    Refuse(String) -> ();
    Relay((Address, u64)) -> u64;
    Double(u64) -> u64;
    SumOf(BulkHandle) -> u64;
    Relayed(BulkHandle) -> u64;
    Checksum(RegionHandle) -> u64;
    Fill(RegionHandle) -> ();
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Survey {
    name: String,
    shots: Vec<(f64, Option<i32>)>,
}

/// Values that a handler leaves for the test to use outside it.
type Shared<T> = Arc<Mutex<Vec<T>>>;

fn options(rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
    options.transports = transports();
    if options.transports.external.is_none() {
        // A loopback address of its own: at that of all tests another one may take the port of a server that is
        // started again.
        let [_, first, second, third] = process::id().to_be_bytes();
        options
            .bind
            .set_ip(Ipv4Addr::new(127, 1 + first, second, third).into());
    }
    options
}

/// For an endpoint at the address of an earlier one.
fn options_at(rank: u32, address: &Address) -> EndpointOptions {
    let mut options = options(rank);
    match address.provider() {
        "tcp" => options.bind = address.location().parse().unwrap(),
        "ofi" => {
            // Bytes 2 and 3 of a socket address are its port.
            let (_, name) = address.location().rsplit_once('/').unwrap();
            let port = u16::from_str_radix(&name[4..8], 16).unwrap();
            options.bind.set_port(port);
        }
        _ => options.name = Some(address.location().to_owned()),
    }
    options
}

fn engines<const N: usize>() -> [Engine; N] {
    std::array::from_fn(|rank| Engine::new(ropewalk_rpc::bind(options(rank as u32)).unwrap()))
}

/// Engines that have to be driven for others to reach what they expose, also over shared memory.
fn engines_that_send<const N: usize>() -> [Engine; N] {
    std::array::from_fn(|rank| {
        let mut options = options(rank as u32);
        options.transports.process_vm = false;
        Engine::new(ropewalk_rpc::bind(options).unwrap())
    })
}

/// Some bytes that differ from place to place.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 31 + at / 251 + seed * 7) as u8)
        .collect()
}

/// Serves the sum of what a handle shows, which the handler pulls.
fn serve_sum_of(engine: &mut Engine) {
    engine.serve_async::<SumOf, _>(|context, handle| async move {
        let into = Buffer::zeroed(handle.len() as usize);
        let pull = context
            .handle()
            .with(move |engine| engine.pull_bulk(&handle, 0, into, LONG));
        let pulled = pull.await.map_err(Fault::new)?.map_err(Fault::new)?.await;
        Ok(pulled
            .map_err(Fault::new)?
            .iter()
            .map(|&byte| u64::from(byte))
            .sum())
    });
}

/// Drives all of them until there is what is wanted.
fn drive<T>(engines: &mut [&mut Engine], mut wanted: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        let happened: usize = engines.iter_mut().map(|engine| engine.progress()).sum();
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
        if happened == 0 && waiting() == Waiting::Sleeping {
            sleep(engines);
        }
    }
}

/// Calls and drives both until there is a result.
fn call<P: Procedure>(
    origin: &mut Engine,
    target: &mut Engine,
    input: &P::Input,
) -> Result<P::Output, CallError> {
    let mut call = origin.call::<P>(target.address(), input, LONG)?;
    drive(&mut [origin, target], || call.try_take())
}
