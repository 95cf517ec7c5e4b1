//! What calls, notifications and bulk handles have to do, between engines in one process and between threads.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

/// Makes each of these functions a test over TCP, over shared memory, and over what two engines on one host choose.
macro_rules! on_every_transport {
    ($($name:ident,)+) => {
        mod over_tcp {
            $(#[test] fn $name() { crate::over(true, false, super::$name); })+
        }
        mod over_shm {
            $(#[test] fn $name() { crate::over(false, true, super::$name); })+
        }
        mod over_either {
            $(#[test] fn $name() { crate::over(true, true, super::$name); })+
        }
    };
}
use on_every_transport;

mod async_handlers;
mod batches;
mod bulk;
mod bulk_ends;
mod bulk_pipelines;
mod bulk_ranges;
mod calls;
mod drivers;
mod driving;
mod ends;
mod handles;
mod hedged;
mod limits;
mod observing;
mod once;
mod overflow;
mod processes;

use std::{
    cell::RefCell,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ropewalk_group::{Incarnation, JobId, Rank};
use ropewalk_rpc::{
    Address, BulkHandle, CallError, Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure,
    RegionHandle, Role, Transports,
};
use serde::{Deserialize, Serialize};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

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

/// What a handler leaves to be done outside it.
type Shared<T> = Arc<Mutex<Vec<T>>>;

fn options(rank: u32) -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    EndpointOptions {
        transports: TRANSPORTS.with_borrow(Clone::clone),
        ..EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity)
    }
}

/// For an endpoint at the address of an earlier one.
fn options_at(rank: u32, address: &Address) -> EndpointOptions {
    let mut options = options(rank);
    match address.location().parse() {
        Ok(bind) => options.bind = bind,
        Err(_) => options.name = Some(address.location().to_owned()),
    }
    options
}

thread_local! {
    /// By which the engines of this test reach each other.
    static TRANSPORTS: RefCell<Transports> = RefCell::default();
}

/// Runs a test whose engines have these transports.
fn over(tcp: bool, shm: bool, test: fn()) {
    TRANSPORTS.set(Transports {
        tcp,
        shm,
        ..Transports::default()
    });
    test();
}

fn engines<const N: usize>() -> [Engine; N] {
    std::array::from_fn(|rank| Engine::new(Endpoint::bind(options(rank as u32)).unwrap()))
}

/// Engines that have to be driven for others to reach what they expose, also over shared memory.
fn engines_that_send<const N: usize>() -> [Engine; N] {
    std::array::from_fn(|rank| {
        let mut options = options(rank as u32);
        options.transports.process_vm = false;
        Engine::new(Endpoint::bind(options).unwrap())
    })
}

/// Drives all of them until there is what is wanted.
fn drive<T>(engines: &mut [&mut Engine], mut wanted: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        for engine in engines.iter_mut() {
            engine.progress();
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
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
